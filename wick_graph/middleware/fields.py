"""What a middleware keeps in the state: its schema's own fields, held in one channel of ours.

The channels of a graph never depend on its hooks, so a thread resumes under any list of them.
All fields of all middleware stand in the channel `middleware`, by their names: as in LangChain,
two middleware with a field of one name share it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired, Required, get_args, get_origin

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState
from langchain_core.messages import BaseMessage
from langgraph.channels import (
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    UntrackedValue,
)
from langgraph.channels.base import BaseChannel
from typing_extensions import get_type_hints

from wick_graph.errors import ConfigError
from wick_graph.reducers import folding
from wick_graph.views import StateView, raw

CHANNEL: Final = "middleware"
JUMP: Final = "jump_to"
_COMMON: Final = frozenset(AgentState.__annotations__)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one middleware."""

    names: frozenset[str] = frozenset()
    run_scoped: frozenset[str] = frozenset()
    """Those that begin anew with each input."""
    reducers: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, middleware: AgentMiddleware[Any, Any, Any]) -> Fields:
        """Read the fields of a middleware's state schema.

        Raises:
            ConfigError: A field is kept in a channel of a kind that is not carried over.
        """
        hints = get_type_hints(middleware.state_schema, include_extras=True)
        own = {name: hint for name, hint in hints.items() if name not in _COMMON}
        scoped: set[str] = set()
        reducers: dict[str, Callable[[Any, Any], Any]] = {}
        for name, hint in own.items():
            for mark in _marks(hint):
                if (channel := _channel(mark)) is not None:
                    if issubclass(channel, UntrackedValue | EphemeralValue):
                        scoped.add(name)
                    elif channel is BinaryOperatorAggregate and not inspect.isclass(mark):
                        reducers[name] = mark.operator
                    elif channel is not LastValue:
                        raise ConfigError(
                            f"the middleware {middleware.name} keeps {name!r} in a "
                            f"{channel.__name__}, which is not carried over"
                        )
                elif _is_reducer(mark):
                    reducers[name] = mark
        return cls(frozenset(own), frozenset(scoped), reducers)

    def view(
        self, state: Mapping[str, Any], messages: Sequence[BaseMessage] | None = None
    ) -> StateView:
        """Return the state as the middleware knows it: the thread's, and its own fields.

        Args:
            state: The thread's.
            messages: What stands in the place of the thread's messages.
        """
        state = raw(state)
        held = state.get(CHANNEL) or {}
        own = {name: value for name, value in held.items() if value is not None}
        hidden = (CHANNEL, "request")
        seen = {name: value for name, value in state.items() if name not in hidden}
        seen["messages"] = (state.get("messages") or []) if messages is None else messages
        return StateView({**seen, **{name: own[name] for name in self.names if name in own}})

    def split(self, update: Mapping[str, Any]) -> dict[str, Any]:
        """Put a middleware's update into the terms of our channels."""
        own = {name: value for name, value in update.items() if name in self.names}
        rest = {name: value for name, value in update.items() if name not in {*own, JUMP}}
        return {**rest, CHANNEL: own} if own else rest

    def fold(self, state: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state in which an update of our channel has been made."""
        state = raw(state)
        if CHANNEL not in update:
            return dict(state)
        return {**state, CHANNEL: folding(self.reducers)(state.get(CHANNEL), update[CHANNEL])}


def _marks(hint: Any) -> tuple[Any, ...]:
    while get_origin(hint) in (Required, NotRequired):
        (hint,) = get_args(hint)
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _channel(mark: Any) -> type[BaseChannel[Any, Any, Any]] | None:
    kind = mark if inspect.isclass(mark) else type(mark)
    return kind if issubclass(kind, BaseChannel) else None


def _is_reducer(mark: Any) -> bool:
    if not callable(mark) or inspect.isclass(mark):
        return False
    try:
        taken = inspect.signature(mark).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in taken) == 2
