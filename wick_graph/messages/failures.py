"""Failures as messages: an agent that fails, or may not be called, answers with a record."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final, ParamSpec

from langchain_core.messages import ChatMessage

from wick_graph.messages.build import error_message, is_failure

P = ParamSpec("P")

MAX_DEPTH: Final = 5
"""Agents that call each other in a row, by default."""
MAX_INTERACTIONS: Final = 10
"""Calls between agents in one turn, by default."""


def errors_as_messages(
    name: str | None = None,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """Decorate a function, sync or async, so that it returns its failures as error messages.

    Cancellation, exits and LangGraph's interrupts are raised as ever.
    """

    def decorate(function: Callable[P, Any]) -> Callable[P, Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: P.args, **kwargs: P.kwargs) -> Any:
                try:
                    return await function(*args, **kwargs)
                except Exception as error:
                    if not is_failure(error):
                        raise
                    return error_message(error, name)

            return later

        @functools.wraps(function)
        def now(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if not is_failure(error):
                    raise
                return error_message(error, name)

        return now

    return decorate


def refuse_agent_call(
    target: str,
    *,
    caller: str,
    known: Collection[str],
    allowed: Collection[str] | None = None,
    depth: int = 0,
    max_depth: int = MAX_DEPTH,
    interactions: int = 0,
    max_interactions: int = MAX_INTERACTIONS,
) -> ChatMessage | None:
    """Return why one agent may not call another, or nothing if it may.

    Asked in this order: is the target known, is it allowed (all are if `allowed` is none), is
    there depth left, are there interactions left. The counters are those before the call.
    """
    reason = None
    if target not in known:
        reason = f"Target agent '{target}' not found."
    elif allowed is not None and target not in allowed:
        reason = f"Agent '{caller}' is not allowed to call agent '{target}'."
    elif depth >= max_depth:
        reason = f"Maximum invocation depth ({max_depth}) reached."
    elif interactions >= max_interactions:
        reason = f"Maximum interaction count ({max_interactions}) reached."
    return None if reason is None else error_message(reason, caller)
