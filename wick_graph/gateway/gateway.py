"""The gateway: takes messages of channels, lets agents answer them, and sends the answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final

from wick_graph.config.gateway import Busy, ChannelConfig, GatewayConfig
from wick_graph.engine.agent import Agent
from wick_graph.engine.result import Result
from wick_graph.errors import StorageError
from wick_graph.gateway.announcements import should_wake
from wick_graph.gateway.channels.protocol import Channel
from wick_graph.gateway.delivery import Delivery
from wick_graph.gateway.dispatch import Dispatcher
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.gateway.schedule import is_silent
from wick_graph.gateway.sessions import AT_ONCE, COMMANDS, Sessions, command_of, thread_of
from wick_graph.gateway.turns import drafts_of, failure, human_of, origin_of, target_of
from wick_graph.service.options import log
from wick_graph.store import SqlSaver
from wick_graph.store.mailbox import Draft, Outgoing, Received, hashed

LOOK_SECONDS: Final = 2.0
"""Seconds between two looks at the mailbox for what other processes left or gave to this one."""

ALIVE_SECONDS: Final = 10.0

KEPT_SECONDS: Final = 30 * 24 * 3600.0
"""How long ended messages are kept; until then a message that comes again is known."""

_SWEEP_SECONDS: Final = 3600.0

_REFUSAL_SECONDS: Final = 60.0

_BUSY: Final = (
    "I am still busy with earlier messages and did not take this one; send it again later."
)

Admit = Callable[[InboundMessage], Awaitable[InboundMessage | None]]
"""Returns a message with the role of its sender, or None if it is not answered."""

AgentOf = Callable[[str, Mapping[str, Any]], Awaitable[Agent]]
"""Returns the agent with an id, for an origin."""


class Gateway:
    """Agents behind chats.

    Args:
        store: The tenant's store.
        agent_of: Makes or finds agents.
        channels: By name; the gateway starts and stops them.
        config: `gateway:` of the configuration.
        described: `channels:` of the configuration.
        admit: Decides who is answered.
        default: The id of the agent behind channels that name none.
    """

    def __init__(
        self,
        store: SqlSaver,
        agent_of: AgentOf,
        *,
        channels: Mapping[str, Channel],
        config: GatewayConfig,
        described: Mapping[str, ChannelConfig],
        admit: Admit,
        default: str,
    ) -> None:
        self.mailbox, self.channels, self.config = store.mailbox, channels, config
        self._store, self._agent_of, self._admit = store, agent_of, admit
        self._described, self._default = described, default
        self.sessions = Sessions(self.mailbox)
        self.delivery = Delivery(self.mailbox, channels, self._tell_owner)
        self._dispatcher: Dispatcher | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refused: dict[str, float] = {}
        self._last_chat: dict[str, str] = {}

    # --- life

    @contextlib.asynccontextmanager
    async def running(self, *jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run within the block: open messages first, then what channels bring.

        Args:
            jobs: Run beside, and are cancelled at the end: a scheduler.
        """
        self._dispatcher = Dispatcher(
            self._handle,
            busy=self._busy,
            interrupt=self._interrupt,
            parallel=self.config.parallel,
        )
        await self.mailbox.run(self.mailbox.note_alive)
        started: list[Channel] = []
        try:
            for channel in self.channels.values():
                await channel.start(self.receive)
                started.append(channel)
            await self.look()
            for job in (self._keep_looking(), self._keep_alive(), self._keep_sweeping(), *jobs):
                self._spawn(job)
            for channel in started:
                await channel.catch_up()
            yield
        finally:
            await self._stop(started)

    async def _stop(self, started: list[Channel]) -> None:
        for task in self._tasks:
            task.cancel()
        for channel in started:
            await channel.stop()
        assert self._dispatcher is not None
        with contextlib.suppress(StorageError):  # then a kill while draining counts as a crash
            await self._store.leases.anote_shutdown()
        await self._dispatcher.stop(self.config.drain)
        await self.delivery.stop(self.config.drain)
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.mailbox.run(self.mailbox.leave)

    async def look(self) -> None:
        """Take what is open and this process's to do."""
        assert self._dispatcher is not None
        for one in await self.mailbox.run(self.mailbox.waiting):
            await self._dispatcher.add(one)
        self.delivery.add(await self.mailbox.run(self.mailbox.unsent))

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except StorageError as error:  # the next look may succeed
                log.error("the mailbox cannot be read: %s", error)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            with contextlib.suppress(StorageError):  # the next note may succeed
                await self.mailbox.run(self.mailbox.note_alive)

    async def _keep_sweeping(self) -> None:
        while True:
            with contextlib.suppress(StorageError):  # the next sweep may succeed
                await self.mailbox.run(self.mailbox.sweep, self.mailbox.now - KEPT_SECONDS)
                await asyncio.to_thread(self._store.sweep)
            await asyncio.sleep(_SWEEP_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- messages that come in

    async def receive(self, message: InboundMessage) -> None:
        """Store a message and let it be answered; return once it is stored, known or refused.

        Raises:
            StorageError: It cannot be stored now.
        """
        admitted = message if message.channel == "system" else await self._admit(message)
        if admitted is None:
            return None
        native = message.native_id or uuid.uuid4().hex
        key = hashed(message.channel, message.chat_id, native)
        one = await self.mailbox.run(
            self._take, key, admitted.key, admitted.to_json(), self.config.backlog
        )
        if one is None:
            return None
        if one.state == "refused":
            return await self._say_busy(admitted, one)
        await self._note_chat(admitted)
        if command_of(admitted.content)[0] in AT_ONCE:
            self._spawn(self._handle([one]))
            return None
        assert self._dispatcher is not None
        await self._dispatcher.add(one)

    def _take(self, key: str, chat: str, message: Mapping[str, Any], most: int) -> Received | None:
        return self.mailbox.receive(key, chat, message, most=most)

    async def _say_busy(self, message: InboundMessage, one: Received) -> None:
        now = time.monotonic()
        if now - self._refused.get(one.chat, -_REFUSAL_SECONDS) < _REFUSAL_SECONDS:
            return
        self._refused[one.chat] = now
        await self.say(f"busy/{one.key}", *target_of(message), _BUSY)

    async def _note_chat(self, message: InboundMessage) -> None:
        """Remember the owner's last chat: heartbeats, jobs and questions go there."""
        about = message.metadata
        if message.channel == "system" or about.get("role") != "owner" or about.get("group"):
            return
        fact = dict(zip(("channel", "chat_id"), target_of(message), strict=True))
        if fact != self._last_chat:
            await self.mailbox.run(self.mailbox.put_fact, "last-chat", fact)
            self._last_chat = fact

    # --- turns

    async def _handle(self, rows: list[Received]) -> None:
        messages = [InboundMessage.from_json(one.message) for one in rows]
        word, rest = command_of(messages[0].content)
        if word and messages[0].channel != "system":
            text = await self._command(word, rest, messages[0], rows[0])
            return await self._settle(rows, messages[0], text)
        await self._turn(rows, messages)

    async def _turn(self, rows: list[Received], messages: list[InboundMessage]) -> None:
        first = messages[0]
        kind = str(first.metadata.get("kind") or "")
        session = rows[0].chat
        thread = thread_of(session) if kind in ("cron", "heartbeat") else await self._thread(first)
        origin = origin_of(first, session)
        agent = await self._agent_of(self._agent_id(first), origin)
        if kind == "task" and not await self._wakes(first, agent, thread):
            return await self._settle(rows, first, "")
        try:
            result = await agent.ainvoke(
                {"messages": [human_of(one) for one in messages], "origin": origin},
                thread_id=thread,
                idempotency_key=await self._key(rows),
                on_busy="queue",
            )
        except StorageError:
            raise  # the store may be back at the next try
        except Exception as error:
            log.exception("a turn of %s failed", session)
            return await self._settle(rows, first, failure(error))
        if kind != "task" and first.channel != "system":
            await self.mailbox.run(self.mailbox.drop_fact, f"wakes/{thread}")
        await self._settle(rows, first, self._text(result, kind), result)
        if self.config.compaction is not None and not kind:
            self._spawn(self._compact(agent, thread))

    def _text(self, result: Result, kind: str) -> str:
        """Return what a turn answers; nothing for a cancelled one and a silent heartbeat."""
        if result.stopped_because == "cancelled":
            return ""
        if kind == "heartbeat" and is_silent(result.text):
            return ""
        return result.text or self.config.default_response

    async def _settle(
        self, rows: list[Received], first: InboundMessage, text: str, result: Result | None = None
    ) -> None:
        """End messages with their answer, in one commit, and let it be sent."""
        channel, chat = target_of(first)
        drafts: list[Draft] = []
        if text.strip():
            message = OutboundMessage(
                channel=channel, chat_id=chat, content=text, reply_to=first.native_id
            )
            drafts = [*drafts_of(f"reply/{rows[0].key}", message, self.channels)]
        run = "" if result is None else result.run_id
        made = await self.mailbox.run(
            self._end, [one.row for one in rows], drafts, run, f"{channel}:{chat}" if run else ""
        )
        self.delivery.add(made)

    def _end(self, rows: list[int], drafts: list[Draft], turn: str, unless: str) -> list[Outgoing]:
        return self.mailbox.settle(rows, drafts, turn=turn, unless=unless)

    async def _key(self, rows: list[Received]) -> str:
        """Return the turn's key: of its message, or of the batch, which is the same after a crash."""
        return f"in/{rows[0].key}" if len(rows) == 1 else f"in/{hashed(*(r.key for r in rows))}"

    async def _thread(self, message: InboundMessage) -> str:
        if message.metadata.get("kind") == "task":
            return str(message.metadata["thread"])
        return await self.sessions.thread(message.key)

    async def _wakes(self, message: InboundMessage, agent: Agent, thread: str) -> bool:
        if self.config.announce == "log":
            log.info("%s: %s", message.sender_id, message.content)
            return False
        state = await agent.graph.aget_state({"configurable": {"thread_id": thread}})
        name = f"wakes/{thread}"
        fact = await self.mailbox.run(self.mailbox.fact, name)
        wakes, fact = should_wake(message, fact, state.values.get("messages") or ())
        await self.mailbox.run(self.mailbox.put_fact, name, dict(fact))
        return wakes

    async def _compact(self, agent: Agent, thread: str) -> None:
        terms = self.config.compaction
        assert terms is not None
        try:
            await agent.acompact(
                thread,
                messages=terms.messages,
                percent=terms.percent,
                keep=terms.keep,
                model=terms.model,
            )
        except Exception as error:  # the conversation stays as it is
            log.warning("the conversation %s was not compacted: %s", thread, error)

    # --- commands

    async def _command(self, word: str, rest: str, message: InboundMessage, row: Received) -> str:
        thread = await self.sessions.thread(message.key)
        if word == "/help":
            return "\n".join(f"{name} {what}" for name, what in COMMANDS.items())
        if word == "/new":
            await self.sessions.renew(message.key, row.key)
            return "A new conversation begins."
        agent = await self._agent_of(self._agent_id(message), origin_of(message, row.chat))
        if word == "/stop":
            return "Stopped." if await agent.acancel(thread) else "Nothing is going on here."
        if word == "/compact":
            made = await agent.acompact(thread, force=True)
            return str(made.text or "There is nothing to summarise.")
        if word == "/status":
            waits = len(
                [
                    one
                    for one in await self.mailbox.run(self.mailbox.waiting)
                    if one.chat == row.chat
                ]
            )
            return f"agent {agent.name}, thread {thread}, {waits} messages wait"
        return "Nothing waits for an answer here."

    # --- messages that go out

    async def say(self, key: str, channel: str, chat: str, text: str) -> None:
        """Send a text; the same key sends it once."""
        message = OutboundMessage(channel=channel, chat_id=chat, content=text)
        for draft in drafts_of(key, message, self.channels):
            made = await self.mailbox.run(self.mailbox.queue, draft)
            self.delivery.add([] if made is None else [made])

    async def _tell_owner(self, dead: Outgoing, why: str) -> None:
        fact = await self.mailbox.run(self.mailbox.fact, "last-chat")
        if (
            not fact
            or dead.key.startswith("dead/")
            or dead.chat == f"{fact['channel']}:{fact['chat_id']}"
        ):
            return
        text = f"A message to {dead.chat} was given up after {dead.tries + 1} tries: {why}"
        await self.say(f"dead/{dead.key}", fact["channel"], fact["chat_id"], text)

    # --- settings of channels

    def _agent_id(self, message: InboundMessage) -> str:
        channel = self._described.get(target_of(message)[0])
        named = message.metadata.get("agent") or (channel and channel.agent)
        return str(named or self.config.agent or self._default)

    def _busy(self, one: Received) -> Busy:
        channel = self._described.get(str(one.message.get("channel")))
        plain = not command_of(str(one.message.get("content")))[0]
        return channel.busy if channel is not None and plain else "queue"

    async def _interrupt(self, chat: str) -> None:
        thread = await self.sessions.thread(chat)
        agent = await self._agent_of(self.config.agent or self._default, {})
        await agent.acancel(thread)


def with_role(message: InboundMessage, role: str) -> InboundMessage:
    """Return a message with the role of its sender, as it is stored."""
    return replace(message, metadata={**message.metadata, "role": role})
