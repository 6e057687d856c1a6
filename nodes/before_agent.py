"""before_agent: open an input. Runs once per input, never when a thread is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage

from wick_graph.core.request import state_view
from wick_graph.core.state import Update
from wick_graph.errors import MessageError, ToolError
from wick_graph.hooks.onion import apply
from wick_graph.hooks.protocol import Tripwire
from wick_graph.messages import ToolCall
from wick_graph.messages.base import exchanged
from wick_graph.nodes.route import sent_for
from wick_graph.runtime.context import NodeContext
from wick_graph.runtime.tool_ledger import UNKNOWN, leave, recorded
from wick_graph.store.ledger import Finished
from wick_graph.tools.result import failure

INTERRUPTED: Final = "run interrupted before this tool finished"
"""The model reads this for a call that an earlier run left without a result."""


async def before_agent(state: Mapping[str, Any], ctx: NodeContext) -> list[tuple[str, Any]]:
    """Reset the run's counters, answer dangling calls, and run the hooks.

    Raises:
        MessageError: The thread has no message.
        HookError: A hook raised; the model is not called.
    """
    messages = state.get("messages") or []
    if not messages:
        raise MessageError("messages must not be empty")
    updates: list[tuple[str, Any]] = [("iteration", 0), ("stop_reason", "")]
    if state.get("output") is not None:
        updates.append(("output", None))
    new = messages[_turn_before(messages, ctx.caches.sound) :]
    calls, lost = [*dangling(new)], [RemoveMessage(m.id) for m in orphans(new) if m.id]
    for reply, index in calls:
        updates += await _repaired(reply, index, ctx)
    if lost:
        updates.append(("messages", lost))
    elif not calls:
        ctx.caches.sound = list(messages)
    try:
        for layer in ctx.spec.hooks.before_agent:
            _, update = await apply(
                layer, ctx.bridge, ctx.listener, state_view(state), ctx.for_hooks(state)
            )
            updates.extend(update.items())
            state = overlaid(state, update)
    except Tripwire as trip:
        trip.writes += updates
        raise
    return updates


def overlaid(state: Mapping[str, Any], update: Update) -> Mapping[str, Any]:
    """Show a hook the writes of earlier hooks, except messages, which the node adds at its end."""
    visible = {key: value for key, value in update.items() if key != "messages"}
    return {**state, **visible} if visible else state


def _turn_before(messages: Sequence[BaseMessage], sound: list[BaseMessage]) -> int:
    """Return where the turn begins behind which messages are not known to be sound."""
    at = min([*exchanged(sound, messages)[:1], len(sound), len(messages)])
    while at > 0:
        at -= 1
        if not isinstance(messages[at], ToolMessage):
            break
    return at


def dangling(messages: Sequence[BaseMessage]) -> Iterator[tuple[AIMessage, int]]:
    """Find each call without an answer: a model refuses a history with such calls.

    The reducer files answers right behind the reply with their calls, so a call id that a provider
    uses again in a later turn is no problem.
    """
    asker: AIMessage | None = None
    answered: set[str] = set()
    for message in [*messages, None]:
        if type(message) is not AIMessage and isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
            continue
        for i, call in enumerate(asker.tool_calls if asker else ()):
            if asker is not None and call["id"] not in answered:
                yield asker, i
        asker, answered = (message if isinstance(message, AIMessage) else None), set()


def orphans(messages: Sequence[BaseMessage]) -> Iterator[ToolMessage]:
    """Find each answer without a call: a model refuses a history with one."""
    asked: set[str] = set()
    for message in messages:
        if type(message) is not ToolMessage and isinstance(message, AIMessage):
            asked = {call["id"] or "" for call in message.tool_calls}
        elif not isinstance(message, ToolMessage):
            asked = set()
        elif message.tool_call_id not in asked:
            yield message


async def _repaired(reply: AIMessage, index: int, ctx: NodeContext) -> list[tuple[str, Any]]:
    """Answer a dangling call: by its recorded result, or by an error."""
    sent = sent_for(reply, index)
    call = ToolCall(id=sent["id"], name=sent["name"], args=sent["args"])
    known, ledger = None, ctx.run.ledger
    if ledger is not None:
        look = (sent["key"], call.name, call.args)
        known = await ctx.bridge.call(lambda: ledger.lookup(*look), lambda: ledger.alookup(*look))
        await leave(ctx, sent["key"])
    if isinstance(known, Finished):
        result = recorded(call, known.fields)
    else:
        result = failure(call, ToolError(INTERRUPTED if known is None else UNKNOWN))
    return [*(result.update or {}).items(), ("messages", [result.to_message()])]
