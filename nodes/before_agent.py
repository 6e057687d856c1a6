"""before_agent: open an input. Runs once per input, never when a thread is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    calls, orphans = unsound(new)
    lost = [RemoveMessage(answer.id) for answer in orphans if answer.id]
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


def unsound(
    messages: Sequence[BaseMessage],
) -> tuple[list[tuple[AIMessage, int]], list[ToolMessage]]:
    """Find each call without an answer and each answer without a call: a model refuses both.

    The reducer files answers right behind the reply with their calls, so a call id that a provider
    uses again in a later turn is no problem.

    Returns:
        Replies with the number of a call that nothing answers, and the answers to no call.
    """
    dangling: list[tuple[AIMessage, int]] = []
    orphans: list[ToolMessage] = []
    asker: AIMessage | None = None
    asked: set[str] = set()
    answered: set[str] = set()
    for message in (*messages, None):
        if type(message) is not AIMessage and isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
            if message.tool_call_id not in asked:
                orphans.append(message)
            continue
        if asker is not None:  # loops: a comprehension is a call, and a resumed thread is long
            for at, call in enumerate(asker.tool_calls):
                if call["id"] not in answered:
                    dangling.append((asker, at))
        asker = message if isinstance(message, AIMessage) else None
        asked.clear()
        answered.clear()
        if asker is not None:
            for call in asker.tool_calls:
                asked.add(call["id"] or "")
    return dangling, orphans


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
