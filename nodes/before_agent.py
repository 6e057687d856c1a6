"""before_agent: open an input. Runs once per input, never when a thread is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from wick_graph.errors import MessageError
from wick_graph.hooks.compile import apply
from wick_graph.runtime import NodeContext
from wick_graph.state import Update

INTERRUPTED: Final = "Error: run interrupted before this tool finished"
"""What the model reads of a call that an earlier run left without a result."""


async def before_agent(state: Mapping[str, Any], ctx: NodeContext) -> list[tuple[str, Any]]:
    """Reset the run's counters, answer calls that nobody answered, and run the hooks.

    Raises:
        MessageError: The thread holds no message to answer.
        HookError: A hook raised; the model is not called.
    """
    messages = state.get("messages") or []
    if not messages:
        raise MessageError("messages must not be empty")
    updates: list[tuple[str, Any]] = [("iteration", 0), ("stop_reason", "")]
    repairs = list(dangling(messages))
    if repairs:
        updates.append(("messages", repairs))
    for layer in ctx.spec.hooks.before_agent:
        _, update = await apply(layer, ctx.io, ctx.run.port, state, ctx.for_hooks(state))
        updates.extend(update.items())
        state = overlaid(state, update)
    return updates


def overlaid(state: Mapping[str, Any], update: Update) -> Mapping[str, Any]:
    """Show a hook what the hooks before it wrote; messages join the thread only after the node."""
    visible = {key: value for key, value in update.items() if key != "messages"}
    return {**state, **visible} if visible else state


def dangling(messages: Sequence[BaseMessage]) -> Iterator[ToolMessage]:
    """Make an answer for each call without one: a model refuses a history that has such calls.

    Answers stand right behind the reply that asked (the reducer files them there), so a call id
    that a provider uses again in a later turn is told apart.
    """
    open_calls: dict[str, str] = {}
    for message in [*messages, None]:
        if isinstance(message, ToolMessage):
            open_calls.pop(message.tool_call_id, None)
            continue
        for call_id, name in open_calls.items():
            yield ToolMessage(INTERRUPTED, tool_call_id=call_id, name=name, status="error")
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        open_calls = {call["id"] or "": call["name"] for call in calls}
