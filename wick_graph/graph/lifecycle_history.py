"""What a caller sends of the thread's own past: results of its calls, and messages that it holds.

The graph's input replaces messages by their ids, as LangGraph's does; an agent's input does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import MessageError
from wick_graph.messages.inputs import UNNAMED

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened


async def refuse_strays(opened: Opened, io: Leaves) -> None:
    """Refuse a result that answers no call of the thread, or one that has its answer.

    A message that the thread holds already, by its id, may come again: it stays as it is.

    Raises:
        MessageError: Names the call, or the message that is another one in the thread; nothing is
            stored.
    """
    asked: dict[str, str] = {}
    answered: set[str] = set()
    known: dict[str | None, Any] = {}
    for message in await _stored(opened, io):
        known[message.id] = message
        if isinstance(message, AIMessage):
            calls = {call["id"] or "": call["name"] for call in message.tool_calls}
            asked, answered = {**asked, **calls}, answered.difference(calls)
        elif isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
    if opened.run.named:
        given = [_unchanged(i, m, known) for i, m in enumerate(opened.input["messages"])]
        opened.input = {**opened.input, "messages": given}
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
            _name(opened, answer, asked[answer.tool_call_id])


def _unchanged(i: int, message: BaseMessage, known: Mapping[str | None, Any]) -> BaseMessage:
    """Return the thread's own message in place of one that is sent again."""
    held: BaseMessage | None = None if message.id is None else known.get(message.id)
    if held is not None and _said(held) != _said(message):
        raise MessageError(
            f"message[{i}]: the thread holds another message under the id {message.id!r:.80}; "
            "leave the id out to say something new, or change the past with agent.graph"
        )
    return message if held is None else held


def _said(message: BaseMessage) -> tuple[Any, ...]:
    """Return what makes a message another one; its name and its notes are the engine's."""
    own: tuple[Any, ...] = ()
    if isinstance(message, AIMessage):
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        own = ([(call["id"], call["name"], call["args"]) for call in calls],)
    elif isinstance(message, ToolMessage):
        own = (message.tool_call_id, message.status)
    return message.type, message.content, *own


async def _stored(opened: Opened, io: Leaves) -> list[Any]:
    graph, config = opened.graph, opened.config
    if opened.saver is None or keys.thread_of(config) is None:
        return []
    plain: Any = {**config, "metadata": {}}
    state: Any = await io.either(lambda: graph.get_state(plain), lambda: graph.aget_state(plain))
    return list(state.values.get("messages") or ())


def _name(opened: Opened, answer: ToolMessage, name: str) -> None:
    for message in opened.input["messages"]:  # copies of our own, not stored yet
        unnamed = isinstance(message, ToolMessage) and message.name == UNNAMED
        if unnamed and message.tool_call_id == answer.tool_call_id:
            message.name = name
