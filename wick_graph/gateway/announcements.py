"""Background tasks that end: kept from their start, announced as messages of `system`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage

from wick_graph.core.request import position
from wick_graph.engine.agent import Agent
from wick_graph.errors import WickError
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.messages import InboundMessage, own_message
from wick_graph.gateway.schedule import FALLBACK
from wick_graph.hooks.prompt_files import as_data, one_line
from wick_graph.store.mailbox import Mailbox
from wick_graph.subagents.background import Background, Begun, TaskEnd
from wick_graph.subagents.delegate import response_id

MAX_WAKES: Final = 3
"""Turns of a conversation that tasks start without a person's message between them."""

_SAID: Final = {
    "done": "completed",
    "error": "failed",
    "cancelled": "was cancelled",
    "waiting": "waits for an answer",
}

_RESULT: Final = "Result:\n"

_log: Final = logging.getLogger(__name__)


AgentOf = Callable[[str, Mapping[str, Any]], Awaitable[Agent]]


class TaskWatch:
    """Keep the background tasks of a process in the mailbox, and announce their ends.

    Assign it to `watcher` of the loaded agents before the first one is made.
    """

    def __init__(self, mailbox: Mailbox, receive: Receive) -> None:
        self._mailbox, self._receive = mailbox, receive

    async def began(self, begun: Begun) -> None:
        """Keep a task before it starts."""
        await self._mailbox.run(self._mailbox.put_fact, f"task/{begun.task.id}", begun.to_json())

    async def ended(self, end: TaskEnd) -> None:
        """Announce an end; one that waits for an answer is kept until it ends."""
        await self._receive(announcement(end))
        if end.status != "waiting":
            await self._mailbox.run(self._mailbox.drop_fact, f"task/{end.begun.task.id}")

    async def announce_unseen(self, agent_of: AgentOf) -> None:
        """Go on with tasks that have no announced end; call it at the start, and again.

        Those that have ended are announced; a task of a live process stays with it.
        """
        for key, fact in (await self._mailbox.run(self._mailbox.facts, "task/")).items():
            try:
                begun = Begun.from_json(fact)
                agent = await agent_of(begun.home.by, begun.task.origin)
                (hook,) = (one for one in agent.hooks if isinstance(one, Background))
                await hook.take_up(begun)
            except (WickError, KeyError, TypeError, ValueError) as error:
                _log.warning("%s cannot go on: %s", key, error)


def announcement(end: TaskEnd) -> InboundMessage:
    """Return the message that says how a task has ended."""
    task, home = end.begun.task, end.begun.home
    channel, chat_id = task.origin.get("channel"), task.origin.get("chat_id")
    ends = f"/{end.question}" if end.status == "waiting" else ""
    label = one_line(task.text, 60)
    return own_message(
        *("task", f"task/{task.id}{ends}", f"{channel}:{chat_id}" if channel else FALLBACK),
        f"Task '{label}' {_SAID[end.status]}.\n\n{_RESULT}{end.text}",
        sender=f"subagent:{task.id}",
        session=str(task.origin.get("session") or ""),
        task=task.id,
        status=end.status,
        thread=home.thread_id,
        depth=len(home.path),
        origin=dict(task.origin),
    )


def for_model(message: InboundMessage) -> str:
    """Return an announcement as the model reads it: the result is data."""
    said, _, result = message.content.partition(_RESULT)
    return f"{said}{as_data('result', result)}"


def should_wake(
    message: InboundMessage, fact: Any, messages: Sequence[BaseMessage]
) -> tuple[bool, Mapping[str, Any]]:
    """Decide whether an announcement starts a turn of its conversation.

    It does unless the conversation has read the result already, the task was cancelled, another
    task asked for it, or three turns have begun so since a person wrote.

    Returns:
        The decision, the same for the same announcement, and the fact `wakes/…` to write, which a
        person's message deletes.
    """
    woken = [str(one) for one in (fact or {}).get("rows", ())]
    about, row = message.metadata, message.native_id
    if row not in woken:
        known = messages and position(messages, response_id(str(about.get("task")))) is not None
        idle = known or about.get("status") == "cancelled" or about.get("depth", 1) > 1
        if idle or len(woken) >= MAX_WAKES:
            return False, {"rows": woken}
        woken.append(row)
    return True, {"rows": woken}
