"""The gateway: messages of channels become turns of agents, and their answers are sent.

A message is stored before its platform hears so; it ends in the commit that stores its answer; an
answer is stored until its channel has sent it. What a crash leaves open goes on at the next start:
a turn repeats under the key of its message, so nothing runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from wick_graph.config import AgentsFile
from wick_graph.config.schema import Additions
from wick_graph.errors import StorageError, describe
from wick_graph.gateway.agents import OriginAgents
from wick_graph.gateway.channels.cli import CliChannel
from wick_graph.gateway.channels.protocol import Channel, PublishingChannel
from wick_graph.gateway.channels.registry import make_channel
from wick_graph.gateway.conversations import Conversations
from wick_graph.gateway.delivery import Delivery
from wick_graph.gateway.lanes import Lanes, wait_for
from wick_graph.gateway.memory import Memories, memory_tools
from wick_graph.gateway.messages import AT_ONCE, DECISIONS, INTERNAL, InboundMessage, command_of
from wick_graph.gateway.people import Admission, Gate
from wick_graph.gateway.questions import expire
from wick_graph.gateway.schedule import LAST_CHAT, Scheduler, zone_of
from wick_graph.gateway.tools import ForUserHook, cron_tool, fetch_tool, message_tool
from wick_graph.gateway.turns import TaskWatch, target_of
from wick_graph.gateway.workspace import WorkspaceHook, protected
from wick_graph.hooks.roles import RoleHook, lowest
from wick_graph.loading import Agents
from wick_graph.service.options import log
from wick_graph.store.mailbox import Mailbox, Row, hashed

LOOK_SECONDS: Final = 2.0
"""Seconds between two looks at the mailbox for what other processes left or gave to this one."""

ALIVE_SECONDS: Final = 10.0

KEPT_SECONDS: Final = 30 * 24 * 3600.0
"""How long ended messages are kept; until then a message that comes again is known."""

OTHERS_TTL: Final = "24h"
"""How long threads of jobs, heartbeats and tasks are kept; those of chats never expire."""

_BUSY: Final = (
    "I am still busy with earlier messages and did not take this one; send it again later."
)


class Gateway:
    """The agents of a configuration behind chats.

    Args:
        file: The configuration.
        channels: Instead of those that it names.
        model: A model to use instead of those in the file.
        alone: Take the messages of one session only, and run no jobs: for a terminal beside a
            gateway that runs.
        clock: Returns the seconds since 1970.
        wait: Waits until an event, at most so many seconds.

    Raises:
        ConfigError: A setting is invalid.
        StorageError: The store cannot be opened.
    """

    def __init__(
        self,
        file: AgentsFile,
        *,
        channels: Mapping[str, Channel] | None = None,
        model: str | None = None,
        alone: str = "",
        clock: Callable[[], float] = time.time,
        wait: Callable[[asyncio.Event, float], Coroutine[Any, Any, None]] = wait_for,
    ) -> None:
        config = file.gateway
        self.config: Final = config
        self.workspace: Final = (file.base_dir / config.workspace).resolve()
        self._clock, self._alone = clock, alone
        if channels is None:
            channels = {name: make_channel(name, one) for name, one in file.channels.items()}
        self.channels: Final = channels
        self.workspace.mkdir(parents=True, exist_ok=True)
        others = "never" if alone else OTHERS_TTL  # a session of the terminal has any key
        ttl = {"": others, **dict.fromkeys(["cli", *file.channels, *channels], "never")}
        self._root: Final = Agents(file.adding(Additions(ttl=ttl)), model=model)
        self.store: Final = self._root.store
        self.mailbox: Final[Mailbox] = self.store.mailbox
        zone = zone_of(config.timezone)
        self._gate: Final = Gate(file.channels, config.limits, self.mailbox, zone)
        self.mailbox.sends = frozenset(
            f"{name}:{one.chat}" if isinstance(one, CliChannel) else name
            for name, one in channels.items()
        )
        self.mailbox.takes = self._takes
        self.delivery: Final = Delivery(self.mailbox, channels)
        self.scheduler: Final = Scheduler(
            self.mailbox,
            self.receive,
            jobs=file.cron,
            heartbeat=config.heartbeat,
            workspace=self.workspace,
            timezone=config.timezone,
            clock=clock,
            wait=wait,
        )
        self._watch: Final = TaskWatch(self.mailbox, self.receive)
        agents = self._root.of(file.adding(replace(self._additions(file), ttl=ttl)))
        agents.watcher = self._watch
        self.agents: Final = OriginAgents(agents)
        for agent in (config.agent, *(one.agent for one in file.channels.values())):
            self.agents.name_of(agent)
        self._conversations: Final = Conversations(
            file, self.agents, self.delivery, self._gate, self.receive, clock
        )
        answer, joins = self._conversations.answer, self._conversations.joins
        self._lanes: Final = Lanes(answer, joins=joins, parallel=config.parallel)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._told: dict[str, str] = {}
        """What was wrong with each channel when it was last looked at."""
        self._at_once: set[int] = set()
        """Rows of commands that are being done beside the turns."""

    def _additions(self, file: AgentsFile) -> Additions:
        config, put = self.config, self.delivery.put
        roles = RoleHook(config.roles)
        memories = Memories(self.workspace, config.memory, config.timezone, self._clock)
        workspace = WorkspaceHook(
            memories,
            file=file,
            may_use=lambda tool, origin: roles.allows(lowest(origin.get("role")), tool),
        )
        changed, clock = self.scheduler.changed, self._clock
        tools = (
            message_tool(put, file.channels),
            fetch_tool(),
            cron_tool(self.mailbox, config.timezone, changed=changed, clock=clock),
            *memory_tools(memories),
        )
        more = (ForUserHook(put),) if config.for_user else ()
        return Additions((workspace, *more), tools, partial(protected, self.workspace))

    # --- life

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run within the block: open messages first, then what channels bring.

        Raises:
            ConfigError: A channel's platform refuses a setting.
        """
        started: list[Channel] = []
        try:
            await asyncio.to_thread(self.agents.check)
            await self.mailbox.run(self.mailbox.note_alive)
            await self._take_open()  # before a channel brings what came later
            for name, channel in self.channels.items():
                if isinstance(channel, PublishingChannel):
                    channel.past = partial(self.delivery.past, name)
                await channel.start(self.receive)
                started.append(channel)
            await self._look()
            for channel in started:
                self.spawn(channel.catch_up())
            self.spawn(self._every(LOOK_SECONDS, self._look))
            self.spawn(self._every(ALIVE_SECONDS, self._show_life))
            if not self._alone:
                self.spawn(self.scheduler.run())
                self.spawn(self._every(60.0, self._go_on))
                self.spawn(self._every(3600.0, self._sweep))
            yield
        finally:
            await self._stop(started)

    async def _stop(self, started: list[Channel]) -> None:
        for task in self._tasks:
            task.cancel()
        for channel in started:
            await channel.stop()
        with contextlib.suppress(StorageError):  # then a kill while draining counts as a crash
            await self.store.leases.anote_shutdown()
        await self._lanes.stop(self.config.drain)
        await self._conversations.stop()
        await self.delivery.lanes.stop(self.config.drain)
        if self._tasks:
            await asyncio.wait(self._tasks)
        with contextlib.suppress(StorageError):  # others see soon that this process is gone
            await self.mailbox.run(self.mailbox.leave)
        await asyncio.to_thread(self._root.close)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let something run beside; it is cancelled at the end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _every(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # the next time may succeed, and nothing else would look
                log.error("the gateway could not look after its messages: %s", describe(error))
            await asyncio.sleep(seconds)

    async def _look(self) -> None:
        """Take what is open and this process's to do."""
        await self._take_open()
        sending = self.delivery.lanes.known
        self.delivery.add(await self.mailbox.run(self.mailbox.unsent, sending))

    async def _take_open(self) -> None:
        await self._conversations.recall()
        for one in await self.mailbox.run(self.mailbox.waiting, self._lanes.known):
            await self._queue(one)

    def _takes(self, one: Row) -> bool:
        """Return whether to take over a message: others have channels and agents of their own."""
        name = target_of(InboundMessage.from_json(one.message))[0]
        return self._alone in ("", one.chat) and (name in self.channels or name in INTERNAL)

    async def _queue(self, one: Row) -> None:
        word = command_of(InboundMessage.from_json(one.message))[0]
        if word in AT_ONCE:
            if one.row not in self._at_once:
                done = self.spawn(self._do_at_once(one))
                if word in DECISIONS:  # else the next message could begin before it
                    await asyncio.wait([done])
        elif self._lanes.add(one) and self._conversations.busy_of(one) == "interrupt":
            self.spawn(self._interrupt(one))

    async def _interrupt(self, one: Row) -> None:
        try:
            await self._conversations.interrupt(one)
        except Exception as error:  # the turn ends by itself
            log.warning("a turn of %s was not interrupted: %s", one.chat, describe(error))

    async def _do_at_once(self, one: Row) -> None:
        """Do what does not wait for the turn before it; the next look repeats what fails."""
        self._at_once.add(one.row)
        try:
            await self._conversations.handle([one])
        except StorageError as error:
            log.error("a command of %s was not done: %s", one.chat, error)
        finally:
            self._at_once.discard(one.row)

    async def _show_life(self) -> None:
        health = {name: _health(channel) for name, channel in self.channels.items()}
        for name, wrong in health.items():
            if wrong and wrong != self._told.get(name):
                log.warning("%s", wrong)
        self._told = health
        await self.mailbox.run(self.mailbox.note_alive, {"channels": health})

    async def _go_on(self) -> None:
        """Go on with what others began: tasks of dead processes, and decided questions."""
        await self._watch.announce_unseen(self.agents.get)
        for key in await self.mailbox.run(expire, self.mailbox, self._clock()):
            await self._conversations.decided(key)

    async def _sweep(self) -> None:
        await self.mailbox.run(self.mailbox.sweep, self.mailbox.now - KEPT_SECONDS)
        await asyncio.to_thread(self.store.sweep)

    # --- messages that come in

    async def receive(self, message: InboundMessage) -> str:
        """Store a message and let it be answered; return why it is refused, empty if it is not.

        Raises:
            StorageError: It cannot be stored now.
        """
        found, one = await self.mailbox.run(self._take, message)
        if not found.role:
            if message.channel != "system":
                await self._refuse(message, found.reply)
            return found.refused
        if one is None:
            return ""
        if one.state == "refused":
            await self._refuse(message, _BUSY)
            return "backlog"
        if not one.here:
            return ""  # the other process finds it
        if command_of(message)[0] not in AT_ONCE and not self._lanes.has(one.behind):
            await self._take_open()  # earlier ones come first: of a dead process, or given to this
        else:
            await self._queue(one)
        return ""

    def _take(self, message: InboundMessage) -> tuple[Admission, Row | None]:
        """Decide about a message, and store it, all in the store's thread."""
        found, now = Admission("owner"), self._clock()
        if message.channel != "system":
            found = self._gate.admit(message, now)
            known: dict[str, Any] = {"role": found.role, "owner": found.owner}
        elif message.metadata.get("kind") == "cron" and "origin" in message.metadata:
            found = self._gate.present(message, now)
            origin = message.metadata["origin"]
            known = {"origin": {**origin, "role": found.role, "owner": found.owner}}
        else:
            known = {}
        if not found.role:
            return found, None
        key = hashed(message.channel, message.chat_id, message.native_id or uuid.uuid4().hex)
        # a decision, the end of a task and /stop would be lost, and no person repeats them
        endless = command_of(message)[0] in AT_ONCE or message.channel == "system"
        most = None if endless else self.config.backlog
        message = replace(message, metadata={**message.metadata, **known})
        made, notes = message.to_json(), _last_chat(message)
        return found, self.mailbox.receive(key, message.key, made, most=most, notes=notes)

    async def _refuse(self, message: InboundMessage, text: str) -> None:
        """Tell a sender why its message is not answered, once in a minute."""
        box, now = self.mailbox, self._clock()
        if bool(text) and await box.run(self._gate.may_refuse, message, now):
            await self.delivery.say(f"refused/{uuid.uuid4().hex}", *target_of(message), text)


def _last_chat(message: InboundMessage) -> dict[str, str]:
    """Return the owner's last chat as a fact: heartbeats, jobs and questions go there."""
    about = message.metadata
    if message.channel == "system" or not about.get("owner") or about.get("group") is not False:
        return {}
    if message.channel == "cli" and not message.key.startswith("cli:"):
        return {}  # a look at another chat: no one will see there what comes later
    return {LAST_CHAT: ":".join(target_of(message))}


def _health(channel: Channel) -> str:
    try:
        return channel.healthy()
    except Exception as error:  # a package's fault; without signs of life others take its messages
        return f"the channel {channel.name} cannot say how it is: {describe(error)}"
