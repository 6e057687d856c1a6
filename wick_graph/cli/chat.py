"""`wick chat`: chat with an agent at a terminal."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from wick_graph.cli import output, watch
from wick_graph.cli.gateway import SESSION, converse
from wick_graph.cli.run import (
    THREAD,
    Turns,
    Where,
    context_of,
    has_own_store,
    lasts,
    say_notices,
)
from wick_graph.cli.select import (
    DEFAULT_FILE,
    AgentArgument,
    find,
    known,
    load_trusted,
    pick,
    take_target,
)
from wick_graph.cli.watch import Live
from wick_graph.errors import ConfigError, WickError, did_you_mean

if TYPE_CHECKING:
    from wick_graph.engine.agent import Agent
    from wick_graph.store import SqlSaver
    from wick_graph.store.threads import ThreadInfo


_PROMPT: Final = "> "

_HELP: Final = """\
/help          show this help
/model [SPEC]  show the model, or go on with another one
/thread        show this thread's id
/threads [ID]  list the agent's threads, or go on with this one
/new           begin a new thread
/undo          go on from before the last message, in a copy of the thread
/resume        continue a run that was cancelled or waits for an answer
/quit          quit; so does Ctrl-D
Ctrl-C         cancel the current run"""

_COMMANDS: Final = tuple(re.findall(r"^(/[a-z]+)", _HELP, re.MULTILINE))

_COMMAND: Final = re.compile(r"(/[a-z]+)(?:\s+(.*))?", re.DOTALL)

_LISTED: Final = 10
"""Threads that `/threads` lists."""

_TITLE: Final = 60
"""Characters of a title that it shows."""

_KEPT_EVERY: Final = 60.0
"""Seconds between two marks of the chat's thread as used."""


def chat(
    agent: AgentArgument = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    thread: Annotated[str | None, THREAD] = None,
    model: Annotated[str | None, output.MODEL] = None,
    session: Annotated[str | None, SESSION] = None,
    context: Annotated[Path | None, output.CONTEXT] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Chat with an agent at the terminal.

    Ctrl-C cancels a run, Ctrl-D quits, /help lists the commands. Expired threads are deleted
    meanwhile, but never the thread of the chat.
    """
    from wick_graph.engine.result import checked_thread_id

    if not (watch.can_ask() and output.is_terminal(sys.stdout)):
        raise ConfigError('wick chat needs a terminal; elsewhere use wick run "…"')
    if session is not None:
        beside = {"an agent": agent, "--thread": thread}
        converse(config, session, None, model=model, trust=trust, beside=beside)
        return
    thread_id = checked_thread_id(thread)
    named = take_target(agent)
    with load_trusted(config, model=model, trust=trust) as agents:
        for notice in agents.config.notices:
            output.say(f"note: {notice}")
        agent_id = pick(named, agents.config)
        made = agents[agent_id]
        if made.spec.model.notice:
            output.say(made.spec.model.notice)
        say_notices(made)
        where = Where(
            thread_id=thread_id,
            agent_id=agent_id,
            config=config,
            model=model,
            kept=lasts(agents, agent_id),
            among_several=len(agents) > 1,
            own=has_own_store(agents, agent_id),
            context=context_of(context),
        )
        ttl = agents.config.agent(agent_id).ttl
        with agents.store.sweeper(), asyncio.Runner() as runner:
            chat = _Chat(made, where, runner, agents.config.base_dir)
            with _kept(agents.store, lambda: chat.where.thread_id, ttl):
                chat.loop()


@dataclass(slots=True)
class _Chat:
    agent: Agent
    where: Where
    runner: asyncio.Runner
    base_dir: Path

    def loop(self) -> None:
        """Read and answer lines until the person quits."""
        name = f"{self.where.agent_id} ({self.agent.spec.model.name})"
        output.say(f"{name}, thread {self.where.thread_id}; /help lists the commands", dim=True)
        self._guarded(self._ask_again)
        while True:
            try:
                text = watch.line(_PROMPT).strip()
            except KeyboardInterrupt:
                output.say("Ctrl-D quits")
                continue
            except EOFError:
                output.say("")
                break
            if text == "/quit":
                break
            self._guarded(partial(self._take, text))
        self.where.point(waits=bool(self._asked()))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do some work; neither its errors nor Ctrl-C end the chat."""
        try:
            work()
        except KeyboardInterrupt:
            output.say("stopped: cancelled; /resume continues it")
        except WickError as error:
            output.report(error)

    def _take(self, text: str) -> None:
        if not text:
            return
        found = _COMMAND.fullmatch(text)
        name, rest = (found[1], found[2]) if found else ("", None)
        hint = did_you_mean(name, _COMMANDS) if name else ""
        if name in _COMMANDS:
            self._command(name, (rest or "").strip())
        elif name and (rest is None or hint):  # else a text such as "/etc is what?"
            output.say(f"unknown command {name}{hint or '; /help lists the commands'}")
        else:
            self._watched(lambda turns: turns.say(text))

    def _command(self, name: str, rest: str) -> None:
        """Do a command of the chat."""
        if rest and name not in ("/model", "/threads"):
            output.say(f"{name} takes nothing behind it; write {name} alone")
            return
        match name:
            case "/help":
                output.say(_HELP)
            case "/model":
                self._model(rest)
            case "/thread":
                self.where.point(waits=bool(self._asked()))
            case "/threads":
                self._threads(rest)
            case "/new":
                self._move(_new_thread_id())
            case "/undo":
                self._undo()
            case "/resume":
                self._resume()

    def _model(self, spec: str) -> None:
        """Show the model, or go on with another one.

        Raises:
            ModelError: It cannot be built; the chat keeps its own.
        """
        from wick_graph.models.resolve import resolve_model

        if spec:
            model = resolve_model(spec, base_dir=self.base_dir)
            self.agent = self.agent.copy_with(self.agent.store, model=model)
            self.where = replace(self.where, model=spec)
        output.say(f"the model is {self.agent.spec.model.name}", dim=True)

    def _threads(self, thread_id: str) -> None:
        """List the agent's threads, or go on with one of them."""
        self._must_list("/threads")
        own: Any = self.agent.store
        if thread_id:
            info = self.runner.run(asyncio.to_thread(find, own, thread_id))
            info = info or known(own, thread_id)[1]
            if info.agent != self.where.agent_id:
                raise ConfigError(f"thread {info.thread_id} belongs to the agent {info.agent}")
            self._move(info.thread_id)
            self._ask_again()
            return
        agent = self.where.agent_id
        listed = self.runner.run(self.agent.threads.alist(limit=_LISTED, agent=agent))
        for info in listed:
            mark = "*" if info.thread_id == self.where.thread_id else " "
            output.say(f"{mark} {info.thread_id}  {output.shorten(info.title or '', _TITLE)}")
        if not listed:
            output.say("no threads yet")

    def _move(self, thread_id: str) -> None:
        """Go on in another thread."""
        self.where = replace(self.where, thread_id=thread_id)
        output.say(f"thread {thread_id}", dim=True)

    def _undo(self) -> None:
        """Go on from before the last message, in a copy of the thread."""
        self._must_list("/undo")
        old, new = self.where.thread_id, _new_thread_id()
        info = self._info()
        if info is None or not info.steps:
            output.say("there is nothing to undo")
            return
        before = self.runner.run(self._before_last())
        if before:
            self.runner.run(self.agent.threads.afork(old, new, before))
            self.runner.run(self.agent.threads.arename(new, info.title))
        output.say(
            f"the last message and its answer are taken back; what its tools have done stays done. "
            f"Thread {old} keeps them (/threads {old})"
        )
        self._move(new)

    async def _before_last(self) -> str:
        """Return the checkpoint before the last message; empty if that was the first one.

        Raises:
            ConfigError: It is no longer kept.
        """
        from wick_graph import langgraph_config

        key = langgraph_config.THREAD_ID
        config: Any = langgraph_config.with_configurable(None, **{key: self.where.thread_id})
        async for state in self.agent.graph.aget_state_history(config):
            if (state.metadata or {}).get("source") == "input":
                above = state.parent_config
                return str(above[langgraph_config.CONFIGURABLE]["checkpoint_id"]) if above else ""
        raise ConfigError("the state before the last message is no longer kept; see retention:")

    def _ask_again(self) -> None:
        """Ask what the thread waits for, if it waits."""
        if self._asked():
            self._resume()

    def _resume(self) -> None:
        info = self._info()
        because = "done" if info is None else info.stopped_because
        asked = self._asked()
        if because == "done" and not asked:
            output.say("there is nothing to resume")
            return
        answers = watch.ask(asked) if asked else {}
        if answers or not asked:
            self._watched(lambda turns: turns.go_on(because, answers))

    def _info(self) -> ThreadInfo | None:
        """Return what the store knows of the thread; None from a foreign checkpointer."""
        from wick_graph.store import SqlSaver

        if not isinstance(self.agent.store, SqlSaver):
            return None
        # In the store's thread: Ctrl-C during a statement would be a database error.
        return self.runner.run(self.agent.store.threads.aget(self.where.thread_id))

    def _must_list(self, command: str) -> None:
        """Refuse a command that needs the list of threads.

        Raises:
            ConfigError: The agent's checkpointer is not one of ours.
        """
        from wick_graph.store import SqlSaver

        if not isinstance(self.agent.store, SqlSaver):
            raise ConfigError(f"{command} needs a SqlSaver as the store; this agent has another")

    def _watched(self, work: Any) -> None:
        view = Live(tokens=True, asks=True)
        turns = Turns(
            agent=self.agent,
            thread_id=self.where.thread_id,
            view=view,
            runner=self.runner,
            asks=True,
            context=self.where.context,
        )
        try:
            work(turns)
        except KeyboardInterrupt:
            view.end_line()
            raise
        if view.failed is not None:
            output.report(view.failed)
        turns.say_why()
        if turns.waits:
            output.say("/resume asks again; a new message continues without the answers", dim=True)

    def _asked(self) -> list[Any]:
        """List the open questions."""
        from wick_graph import langgraph_config
        from wick_graph.engine.answers import waiting

        config: Any = langgraph_config.with_configurable(
            None, **{langgraph_config.THREAD_ID: self.where.thread_id}
        )
        store: Any = self.agent.store
        return waiting(None if store is None else self.runner.run(store.aget_tuple(config)))


@contextmanager
def _kept(store: SqlSaver, thread_id: Callable[[], str], ttl: float | None) -> Iterator[None]:
    """Mark a thread as used regularly, so that it does not expire while a person thinks."""
    from wick_graph.errors import StorageError

    stop = threading.Event()
    every = _KEPT_EVERY if ttl is None else min(ttl / 3, _KEPT_EVERY)

    def keep() -> None:
        while not stop.wait(every):
            try:
                store.threads.touch(thread_id())
            except (
                StorageError
            ):  # it does not exist yet, or the database is busy: the next mark will do
                continue

    keeper = threading.Thread(target=keep, name="wick-chat", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()


def _new_thread_id() -> str:
    from wick_graph.engine.result import new_thread_id

    return new_thread_id()
