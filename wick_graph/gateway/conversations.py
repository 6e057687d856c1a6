"""Conversations: the turns of agents in the threads of chats, and the commands of people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from wick_graph import langgraph_config
from wick_graph.config import AgentsFile
from wick_graph.config.gateway import Busy
from wick_graph.engine.agent import Agent
from wick_graph.engine.result import Result, spent_tokens
from wick_graph.errors import ConfigError, NothingWaitsError, StorageError, WickError
from wick_graph.gateway.agents import OriginAgents, context_of
from wick_graph.gateway.channels.files import NOT_READ, client_of, is_voice, transcribe
from wick_graph.gateway.channels.protocol import FetchingChannel, Receive
from wick_graph.gateway.delivery import Delivery
from wick_graph.gateway.memory import scope_folder
from wick_graph.gateway.messages import (
    COMMANDS,
    DECISIONS,
    InboundMessage,
    OutboundMessage,
    Sessions,
    command_of,
    own_message,
    thread_of,
)
from wick_graph.gateway.people import Gate
from wick_graph.gateway.questions import (
    answer_of,
    ask,
    buttons_of,
    decided_in,
    decision,
    other_questions,
    place_of,
    questions_of,
    text_of,
)
from wick_graph.gateway.schedule import is_silent
from wick_graph.gateway.turns import (
    failure,
    human_of,
    origin_of,
    should_wake,
    target_of,
    was_read,
)
from wick_graph.hooks.roles import SENDER, lowest
from wick_graph.service.options import log
from wick_graph.store.mailbox import Change, Row, hashed

MAX_FILE: Final = 20 * 2**20
"""Bytes of a file that comes with a message."""

_MOST_FILES: Final = 10
"""Files of one message."""

_BATCH, _MEDIA = "batch/", "media/"
"""How the keys of facts of a turn begin."""

_RETRY: Final = (0.5, 2.0, 10.0, 30.0)
"""Seconds until a message is handled again after its handling failed: the store was away."""

_LOOK: Final = 0.05
"""Seconds between two looks at whether the run of a turn has begun."""

_OWN_THREAD: Final = frozenset({"cron", "heartbeat"})
"""Kinds of messages that begin a thread of their own."""


@dataclass(slots=True)
class _Turn:
    """Messages that are answered together."""

    rows: Sequence[Row]
    messages: Sequence[InboundMessage]
    drops: list[str] = field(default_factory=list)
    """Facts that end with it."""
    answers: str = ""
    """The id of the agent's question that it answers."""
    held: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the chat of others in which the owner writes from a terminal."""
    agent: Agent | None = None
    """Known once it begins, as its thread is."""
    thread: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the question that it answers."""

    @property
    def last(self) -> InboundMessage:
        """The message that is answered."""
        return self.messages[-1]

    @property
    def kind(self) -> str:
        """What the gateway itself asks; empty for a person's message."""
        return str(self.last.metadata.get("kind") or "") if self.last.channel == "system" else ""

    @property
    def origin(self) -> dict[str, Any]:
        """Where it is held, with the lowest role of its senders."""
        every = [origin_of(one, self.last.key) for one in self.messages]
        return {**every[-1], **self.held, "role": lowest(*(one["role"] for one in every))}


class Conversations:
    """Answer the messages of chats."""

    def __init__(
        self,
        file: AgentsFile,
        agents: OriginAgents,
        delivery: Delivery,
        gate: Gate,
        receive: Receive,
        clock: Callable[[], float],
    ) -> None:
        self._file, self._agents, self._delivery = file, agents, delivery
        self._receive, self._clock = receive, clock
        self._config, self._mailbox = file.gateway, delivery.mailbox
        self._workspace = (file.base_dir / file.gateway.workspace).resolve()
        self._gate: Final = gate
        self.sessions: Final = Sessions(self._mailbox)
        self._compacting: set[asyncio.Task[str]] = set()
        self._turns: dict[str, _Turn] = {}
        """The turns that go on here, by chat."""
        self._batches: dict[str, str] = {}
        """The facts of turns with several messages, by the keys of these."""

    def busy_of(self, one: Row) -> Busy:
        """Return what happens to a message that comes during a turn of its chat."""
        channel = self._file.channels.get(str(one.message.get("channel")))
        if channel is None or command_of(InboundMessage.from_json(one.message))[0]:
            return "queue"
        return channel.busy

    def joins(self, one: Row, after: Row) -> bool:
        """Return whether a message is answered in one turn with the one before it."""
        batch = self._batches.get(one.key)
        if batch is not None:
            return batch == self._batches.get(after.key)
        return self.busy_of(one) == self.busy_of(after) == "collect"

    async def recall(self) -> None:
        """Read which messages were answered in one turn before a crash."""
        found = await self._mailbox.run(self._mailbox.facts, _BATCH)
        self._batches = {key: name for name, keys in found.items() for key in keys}

    async def interrupt(self, one: Row) -> bool:
        """Cancel the turn of a message's chat, in any process; return whether it was cancelled.

        A turn of this process that still prepares itself, such as by a download, is cancelled once
        it has begun: its messages belong to the conversation.
        """
        message = InboundMessage.from_json(one.message)
        if (turn := self._turns.get(one.chat)) is None:
            agent = await self._agent(message, origin_of(message, message.key))
            return await agent.acancel(await self.sessions.thread(message.key))
        while self._turns.get(one.chat) is turn:
            if turn.agent is not None and await turn.agent.acancel(turn.thread):
                return True
            await asyncio.sleep(_LOOK)
        return False

    async def stop(self) -> None:
        """Cancel compactions; their threads stay as they are."""
        for task in self._compacting:
            task.cancel()
        if self._compacting:
            await asyncio.wait(self._compacting)

    async def answer(self, rows: list[Row]) -> bool:
        """Answer messages, again after a pause if that fails; return whether it was done."""
        box = self._mailbox
        for pause in (*_RETRY, None):
            try:
                if all(map(box.takes, rows)):
                    await self.handle(rows)
                else:  # they were given to this process since it answered those before
                    await box.run(box.release, [one.row for one in rows])
                return True
            except Exception as error:
                log.error("a message of %s was not answered: %s", rows[0].chat, error)
                if pause is not None:
                    await asyncio.sleep(pause)
        return False

    async def handle(self, rows: list[Row]) -> None:
        """Answer messages of one chat, in order; several in one turn if they were collected.

        Raises:
            StorageError: The store cannot be used now; the messages stay open.
        """
        first, box = InboundMessage.from_json(rows[0].message), self._mailbox
        word, _ = command_of(first)
        if word:
            turn = _Turn(rows[:1], [first])
            try:
                turn.held = await self._held(first)
                text = await self._command(word, turn)
            except StorageError:
                raise  # the store may be back at the next try
            except Exception as error:  # else the chat would wait for this command forever
                text = failure(error, turn.origin)
            await self._settle(turn, text)
            return
        if first.channel != "system":
            await self._decided_before(await self.sessions.thread(first.key))
        now, drops = rows, []
        collects = self.busy_of(rows[0]) == "collect" or rows[0].key in self._batches
        if collects:  # after a crash, a turn has the messages it had
            name, keys = _BATCH + rows[0].key, [row.key for row in rows]
            known = await box.run(box.change_fact, name, lambda known: known or keys)
            now, drops = [row for row in rows if row.key in known], [name]
        messages = [InboundMessage.from_json(row.message) for row in now]
        await self._answer(_Turn(now, messages, drops))
        if later := rows[len(now) :]:
            await self.handle(later)

    async def _decided_before(self, thread: str) -> None:
        """Let a thread go on with what was decided, before a message gives the call up."""
        box = self._mailbox
        for key in await box.run(decided_in, box, thread):
            await self.decided(key)
            for one in await box.run(box.inbox, "open", 1000):
                message = InboundMessage.from_json(one.message)
                if message.metadata.get("question") == key:
                    await self._answer(_Turn([one], [message]))

    # --- a turn

    async def _answer(self, turn: _Turn) -> None:
        result, text, home, thread, chat = None, "", "", "", turn.rows[0].chat
        self._turns[chat] = turn
        try:
            turn.held = await self._held(turn.last)
            agent = await self._agent(turn.last, turn.origin)
            thread = home = await self._thread(turn)
            if not turn.kind:
                agent, thread = await self._asked(turn, agent, home)
            turn.agent, turn.thread = agent, thread
            self._delivery.turns[thread] = turn.rows[0].key  # the same after a crash
            if turn.kind != "task" or await self._wakes(turn.last, agent, thread):
                result = await self._run(turn, agent, thread)
            if result is not None:
                text = await self._text(turn, agent, result)
        except StorageError:
            raise  # the store may be back at the next try
        except Exception as error:
            log.warning("a turn of %s failed: %s", turn.last.key, error, exc_info=True)
            told = failure(error, turn.origin)
            await self._settle(turn, told, costs=await self._costs(turn, None))
            return
        finally:
            self._delivery.turns.pop(thread, None)
            self._turns.pop(chat, None)
        if result is not None and not turn.kind:
            turn.drops.append(f"wakes/{home}")
        await self._settle(turn, text, result, await self._costs(turn, result))
        if result is not None and not turn.kind:
            self._compact_beside(agent, thread, result)

    async def _costs(self, turn: _Turn, result: Result | None) -> Mapping[str, Change]:
        """Return what a turn costs its senders: also a failed one, and what a decision allowed.

        A task that was started in a chat costs its sender tokens, and so do the turns that its end
        starts.
        """
        about, asked = turn.last.metadata, turn.kind in ("", "cron")
        if not self._gate.counts or (turn.kind and "origin" not in about):
            return {}  # the owner's own jobs and heartbeats are not limited
        tokens = 0 if result is None else spent_tokens(result)
        if "tokens" in about and turn.agent is not None:
            known = (await _state(turn.agent, turn.thread)).values.get("messages") or ()
            tokens += 0 if was_read(turn.last, known) else int(about["tokens"])
        return self._gate.counted(turn.messages, tokens, self._clock(), turns=int(asked))

    async def _run(self, turn: _Turn, agent: Agent, thread: str) -> Result | None:
        """Run a turn, or let a thread go on with an answer; repeated, it is the same turn."""
        if turn.kind == "decided":
            key = str(turn.last.metadata["question"])
            fact = await self._mailbox.run(self._mailbox.fact, key)
            turn.drops.append(key)
            if fact is None or not await self._waits(key, fact, agent, thread):
                return None
            return await _resumed(agent, thread, answer_of(fact), turn.origin)
        images = agent.spec.model.reads_images
        humans = []
        for row, message in zip(turn.rows, turn.messages, strict=True):
            media = await self._media(row, message, turn)
            humans.append(human_of(message, media, images=images))
        if turn.answers:
            text = "\n\n".join(one.text for one in humans)
            return await _resumed(agent, thread, {turn.answers: text}, turn.asked)
        if any(one.startswith(_MEDIA) for one in turn.drops):
            humans = _as_known(humans, (await _state(agent, thread)).values.get("messages") or ())
        keys = [row.key for row in turn.rows]
        return await agent.ainvoke(
            {"messages": humans, "origin": turn.origin},
            thread_id=thread,
            context=context_of(agent, turn.origin),
            idempotency_key=f"in/{keys[0] if len(keys) == 1 else hashed(*keys)}",
            on_busy="queue",
        )

    async def _asked(self, turn: _Turn, agent: Agent, home: str) -> tuple[Agent, str]:
        """Return the agent and the thread of a turn: of the question that it answers, if any.

        Questions are of the chat's own thread and of jobs that answer here; the last one counts.
        The text becomes a result, which has no role: it counts only from the sender who was asked,
        and an owner may answer for the owner's job.
        """
        box, row = self._mailbox, turn.rows[0].key
        found = await box.run(box.facts, _asked_key(turn.last.key))
        mine = {name: row in (fact.get("row"), fact["by"]) for name, fact in found.items()}
        order = sorted(found, key=lambda name: (not mine[name], -float(found[name]["at"])))
        for name, fact in ((name, found[name]) for name in order):
            thread, other, turn.asked = str(fact["thread"]), agent, fact["origin"]
            if thread != home:
                try:
                    other = await self._agents.get(fact["agent"], turn.asked)
                except ConfigError:  # the file has no such agent any more: none can go on
                    await box.run(box.drop_fact, name)
                    continue
            if mine[name]:  # again, after a crash
                turn.answers = str(fact["id"] if fact.get("row") == row else fact["was"])
                turn.drops.append(name)
                return other, thread
            archived = fact["own"] and thread != home
            if fact.get("row") or archived or not await _asks(other, thread, fact):
                await box.run(box.drop_fact, name)
            elif _may_answer(turn.origin, fact["origin"], own=thread == home):
                turn.answers = str(fact["id"])
                turn.drops.append(name)
                await box.run(box.put_fact, name, {**fact, "row": row})
                return other, thread
            elif thread == home:  # the conversation goes on without an answer
                await box.run(box.drop_fact, name)
        return agent, home

    async def _waits(self, key: str, fact: Any, agent: Agent, thread: str) -> bool:
        """Return whether a thread waits for a decision, or went on with it before a crash."""
        if not fact.get("begun"):
            if not await _asks(agent, thread, fact):
                return False  # the person wrote on, and so gave the call up
            await self._mailbox.run(self._mailbox.put_fact, key, {**fact, "begun": True})
        return True

    async def _text(self, turn: _Turn, agent: Agent, result: Result) -> str:
        """Return what a turn answers: nothing if it was cancelled, or a heartbeat is silent."""
        if result.stopped_because == "interrupted":
            return await self._ask(turn, agent, result)
        silent = turn.kind == "heartbeat" and is_silent(result.text)
        if silent or result.stopped_because == "cancelled":
            return ""
        text = result.text or self._config.default_response
        cut = result.reason if result.stopped_because == "done" else ""
        return f"{text}\n\n[{cut}]" if cut else text

    async def _ask(self, turn: _Turn, agent: Agent, result: Result) -> str:
        """Ask an owner for approvals; return what is asked of the person in this chat."""
        origin, box = turn.origin, self._mailbox
        about = {"agent": agent.name, "origin": origin}
        owners, here = await self._delivery.owners_chat(), target_of(turn.last)
        is_owner = origin.get("owner") is True or turn.last.channel == "cli"
        place = place_of(here, is_owner, owners)
        told: list[str] = []
        for question in questions_of(result):
            if place is None:
                told.append("An owner must allow this, and none has written to me yet.")
                break
            asked = await box.run(ask, question, box, self._clock(), about)
            await self._delivery.say(asked.key, *place, text_of(asked), buttons_of(asked))
            if place != here:
                told = ["I have asked the owner, and go on when it is allowed."]
        for number, text in other_questions(result)[:1]:
            home, thread = str(origin.get("home") or turn.last.key), result.thread_id
            name, own = _asked_key(home, thread), thread == await self.sessions.thread(home)
            asker = {"by": turn.rows[0].key, "was": turn.answers, "at": self._clock(), "own": own}
            await box.run(box.put_fact, name, {"id": number, "thread": thread, **about, **asker})
            turn.drops = [one for one in turn.drops if one != name]  # that was the one before
            told.append(text)
        return "\n\n".join(told)

    async def _settle(
        self,
        turn: _Turn,
        text: str,
        result: Result | None = None,
        costs: Mapping[str, Change] = MappingProxyType({}),
    ) -> None:
        """End a turn's messages with its answer and its costs, in one commit, and let it be sent.

        If a tool of the run has written to the chat, the answer is left out.
        """
        channel, chat = target_of(turn.last)
        drafts = []
        if text.strip():
            reply = "" if turn.last.channel == "system" else turn.last.native_id
            made = OutboundMessage(channel=channel, chat_id=chat, content=text, reply_to=reply)
            drafts = self._delivery.drafts(f"reply/{turn.rows[0].key}", made)
        done = result is not None and result.stopped_because != "interrupted"
        ended = await self._mailbox.run(
            self._mailbox.settle,
            [row.row for row in turn.rows],
            drafts,
            turn="" if result is None else turn.rows[0].key,
            unless=f"{channel}:{chat}" if done else "",
            drops=turn.drops,
            changes=costs,
        )
        self._delivery.add(ended)

    async def _wakes(self, message: InboundMessage, agent: Agent, thread: str) -> bool:
        """Return whether the end of a task starts a turn."""
        if self._config.announce == "log":
            log.info("%s: %s", message.sender_id, message.content)
            return False
        state, box, name = await _state(agent, thread), self._mailbox, f"wakes/{thread}"
        known = state.values.get("messages") or ()
        wakes, fact = should_wake(message, await box.run(box.fact, name), known)
        await box.run(box.put_fact, name, fact)
        return wakes

    # --- what a turn needs

    def _agent_id(self, message: InboundMessage) -> str:
        channel = self._file.channels.get(target_of(message)[0])
        named = message.metadata.get("agent") or (channel and channel.agent) or self._config.agent
        return self._agents.name_of(named)

    async def _agent(self, message: InboundMessage, origin: Mapping[str, Any]) -> Agent:
        model = message.metadata.get("model")
        return await self._agents.get(self._agent_id(message), origin, model)

    async def _held(self, message: InboundMessage) -> Mapping[str, Any]:
        """Return the origin of the session of a terminal; empty if it is the owner's own."""
        if message.channel != "cli" or not message.session_key:
            return {}
        agent = await self._agent(message, origin_of(message, message.key))
        thread = await self.sessions.thread(message.key)
        known = (await _state(agent, thread)).values.get("origin")
        known = known or await self.sessions.held(message.key)
        return {} if known.get("owner") and known.get("group") is False else known

    async def _thread(self, turn: _Turn) -> str:
        if turn.kind in _OWN_THREAD:
            return thread_of(turn.last.key)
        known = turn.last.metadata.get("thread") if turn.kind else None
        return str(known or await self.sessions.thread(turn.last.key))

    async def _media(self, row: Row, message: InboundMessage, turn: _Turn) -> Mapping[str, Any]:
        """Store the files of a message, and return their paths, the same when it is repeated."""
        attached = message.metadata.get("attachments") or ()
        if not attached:
            return {}
        box, name = self._mailbox, _MEDIA + row.key
        turn.drops.append(name)
        if (known := await box.run(box.fact, name)) is not None:
            return known  # type: ignore[no-any-return]  # as it was put
        channel, terms = self._delivery.channels.get(message.channel), self._config.transcription
        own = self._agents.workdir(self._agent_id(message), turn.origin)
        folder = (own or scope_folder(self._workspace, turn.origin)) / "inbox"
        made: dict[str, list[str]] = {"paths": [], "said": [], "notes": []}
        for one in attached[:_MOST_FILES]:
            try:
                if not isinstance(channel, FetchingChannel):
                    raise StorageError(f"the channel {message.channel} does not run here")
                path = await channel.fetch(one, folder, MAX_FILE)
                made["paths"].append(str(path))
                if is_voice(path, str(one.get("type") or "")):
                    if terms is None:
                        made["notes"].append(NOT_READ)
                    else:
                        made["said"].append(await transcribe(path, terms, client_of(terms)))
            except StorageError:
                raise
            except WickError as error:
                made["notes"].append(f"not read: {error}")
        if (more := len(attached) - _MOST_FILES) > 0:
            made["notes"].append(f"{more} more files; {_MOST_FILES} are read")
        await box.run(box.put_fact, name, made)
        return made

    # --- compaction

    def _compact_beside(self, agent: Agent, thread: str, result: Result) -> None:
        """Let the engine summarise a long thread, if it must; its next turn need not wait."""
        terms, window = self._config.compaction, agent.spec.model.context_window
        if terms is None:
            return
        read = result.usage.input_tokens or spent_tokens(result)
        full = read * 100 > window * terms.percent
        if len(result.messages) > terms.messages or full:
            task = asyncio.create_task(self._compact(agent, thread))
            self._compacting.add(task)
            task.add_done_callback(self._compacting.discard)

    async def _compact(self, agent: Agent, thread: str, *, force: bool = False) -> str:
        terms = self._config.compaction
        given: dict[str, Any] = {} if terms is None else terms.model_dump()
        try:
            return (await agent.acompact(thread, force=force, **given)).outcome
        except Exception as error:  # the conversation stays as it is
            log.warning("the conversation %s was not compacted: %s", thread, error)
            return "failed"

    # --- commands

    async def _command(self, word: str, turn: _Turn) -> str:
        message, row = turn.last, turn.rows[0]
        if word == "/help":
            return "\n".join(f"{name} {what}" for name, what in COMMANDS.items())
        if word == "/new":
            await self.sessions.renew(message.key, row.key, turn.origin)
            return "A new conversation begins."
        if word in DECISIONS:
            role = str(message.metadata.get("role"))
            made = await self._mailbox.run(decision, message, role, self._mailbox, self._clock())
            if made is None:
                return f"Write {word} and the code of the question."
            fact = await self._mailbox.run(self._mailbox.fact, made.key)
            if fact is not None:
                agent = await self._agents.get(fact["agent"], fact["origin"])
                given_up = not fact.get("begun") and not await _asks(agent, fact["thread"], fact)
                await self.decided(made.key)
                return "The conversation went on without that call." if given_up else made.text
            return made.text
        thread = await self.sessions.thread(message.key)
        agent = await self._agent(message, turn.origin)
        if word == "/stop":
            return "Stopped." if await self.interrupt(row) else "Nothing is going on here."
        if word == "/compact":
            return _COMPACTED[await self._compact(agent, thread, force=True)]
        open_rows = await self._mailbox.run(self._mailbox.inbox, "open", 1000)
        waiting = sum(one.chat == row.chat and one.row != row.row for one in open_rows)
        model = agent.spec.model.name
        return f"Agent {agent.name}, model {model}, thread {thread}; {waiting} messages wait."

    async def decided(self, key: str) -> None:
        """Let the thread of a decided question go on, by a message that survives a crash."""
        fact = await self._mailbox.run(self._mailbox.fact, key)
        if fact is None:
            return
        about = {name: fact[name] for name in ("agent", "thread", "origin")}
        verb = str(fact["decided"]["verb"])
        message = own_message("decided", key, verb, sender="decision", question=key, **about)
        await self._receive(message)


_COMPACTED: Final[Mapping[str, str]] = {
    "compacted": "The old part of this conversation is summarised.",
    "short": "There is nothing to summarise yet.",
    "busy": "The conversation is busy; try again.",
    "changed": "The conversation has changed meanwhile; try again.",
    "unfinished": "The last turn must end first; write a message.",
    "failed": "The summary failed; the conversation stays as it is.",
}


async def _resumed(
    agent: Agent, thread: str, answer: Mapping[str, Any], origin: Mapping[str, Any]
) -> Result:
    """Let a thread go on with an answer; one that it has already is not given again."""
    context = context_of(agent, origin)
    try:
        return await agent.aresume(thread, dict(answer), context=context)
    except NothingWaitsError:
        return await agent.aresume(thread, context=context)


def _as_known(humans: list[HumanMessage], known: Sequence[BaseMessage]) -> list[HumanMessage]:
    """Return messages as a thread has them since a crash: its turn may have moved their files."""
    sent = {_native(one): one.content for one in known if _native(one)}
    return [
        one.model_copy(update={"content": sent.get(_native(one), one.content)}) for one in humans
    ]


def _native(message: BaseMessage) -> str:
    facts = message.additional_kwargs.get(SENDER) or {}
    return hashed(*map(str, facts.values())) if facts.get("native_id") else ""


async def _asks(agent: Agent, thread: str, fact: Mapping[str, Any]) -> bool:
    """Return whether a thread waits for the answer to a question."""
    return any(one.id == fact["id"] for one in (await _state(agent, thread)).interrupts)


async def _state(agent: Agent, thread: str) -> Any:
    config: Any = langgraph_config.with_configurable(None, **{langgraph_config.THREAD_ID: thread})
    return await agent.graph.aget_state(config)


def _may_answer(origin: Mapping[str, Any], asked: Mapping[str, Any], *, own: bool) -> bool:
    """Return whether the sender of a turn was asked: by its chat's own thread, or by a job."""
    if origin["role"] != asked["role"]:
        return False
    same = all(origin.get(key) == asked.get(key) for key in ("channel", "sender_id"))
    return same or (not own and origin.get("owner") is True and asked.get("owner") is True)


def _asked_key(home: str, thread: str | None = None) -> str:
    """Return the key of a thread's question to a chat, by the chat's session; or how all begin."""
    return f"asked/{hashed(home)}/{'' if thread is None else hashed(thread)}"
