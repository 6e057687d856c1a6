"""Results of tools that a caller gives for calls of the thread: each call has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolMessage

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import MessageError
from wick_graph.messages.inputs import UNNAMED

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened


async def refuse_strays(opened: Opened, io: Leaves) -> None:
    """Refuse a result that answers no call of the thread, or one that has its answer.

    A message that the thread holds already, by its id, may come again: it is put in its own place.

    Raises:
        MessageError: Names the call; nothing is stored.
    """
    asked: dict[str, str] = {}
    answered: set[str] = set()
    known: set[str | None] = set()
    for message in await _stored(opened, io):
        known.add(message.id)
        if isinstance(message, AIMessage):
            calls = {call["id"] or "": call["name"] for call in message.tool_calls}
            asked, answered = {**asked, **calls}, answered.difference(calls)
        elif isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
    for answer in opened.run.answers:
        if answer.id is not None and answer.id in known:
            continue
        if answer.tool_call_id not in asked:
            raise MessageError(
                f"there is no call {answer.tool_call_id!r:.80} that this result could answer; "
                "send the assistant's message that made it before"
            )
        if answer.tool_call_id in answered:
            raise MessageError(
                f"the call {answer.tool_call_id!r:.80} has its answer; send the next message alone"
            )
        if answer.name == UNNAMED:
            answer.name = asked[answer.tool_call_id]  # a copy of our own, not stored yet


async def _stored(opened: Opened, io: Leaves) -> list[Any]:
    graph, config = opened.graph, opened.config
    if opened.saver is None or keys.thread_of(config) is None:
        return []
    plain: Any = {**config, "metadata": {}}
    state: Any = await io.either(lambda: graph.get_state(plain), lambda: graph.aget_state(plain))
    return list(state.values.get("messages") or ())
