"""`wick chat`: talk with an agent at a terminal."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import asking, output
from wick_graph.cli.agents import DEFAULT_FILE, AgentArgument, pick
from wick_graph.cli.live import Live
from wick_graph.cli.trusting import load_trusted
from wick_graph.cli.turns import Turns, Where, say_notices
from wick_graph.errors import WickError

if TYPE_CHECKING:
    from wick_graph.agent import Agent
    from wick_graph.store import SqlSaver

_PROMPT: Final = "> "
_HELP: Final = """\
/help    show this
/thread  say which thread this is
/resume  go on with a run that was cancelled or waits for an answer
/quit    leave; so does Ctrl-D
Ctrl-C   cancel the run that is going on, and stay"""
_COMMAND: Final = re.compile(r"/[a-z]+")
_KEPT_EVERY: Final = 60.0
"""Seconds after which a thread that is talked in is marked as used, at the latest."""

_THREAD: Final[Any] = typer.Option("--thread", "-t", metavar="ID", help="Go on in this thread.")


def chat(
    agent: AgentArgument = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    thread: Annotated[str | None, _THREAD] = None,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Talk with an agent at the terminal.

    Ctrl-C cancels a run, Ctrl-D leaves, /help shows the commands. Threads whose time is up are
    removed meanwhile, but never the one that is talked in.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.result import checked_thread_id
    from wick_graph.store.database.opening import dialect_of

    if not (asking.can_ask() and output.is_terminal(sys.stdout)):
        raise ConfigError('wick chat needs a terminal; elsewhere write wick run "…"')
    thread_id = checked_thread_id(thread)
    with load_trusted(config, model=model, trust=trust) as agents:
        for notice in agents.config.notices:
            output.say(f"note: {notice}")
        agent_id = pick(agent, agents.config)
        made = agents[agent_id]
        if made.spec.model.notice:
            output.say(made.spec.model.notice)
        say_notices(made)
        kept = dialect_of(agents.config.store_url).lasts
        where = Where(thread_id=thread_id, agent_id=agent_id, config=config, model=model, kept=kept)
        ttl = agents.config.agent(agent_id).ttl
        with (
            agents.store.sweeper(),
            _kept(agents.store, thread_id, ttl),
            asyncio.Runner() as runner,
        ):
            _Chat(made, where, runner).loop()


@dataclass(slots=True)
class _Chat:
    agent: Agent
    where: Where
    runner: asyncio.Runner

    def loop(self) -> None:
        """Read lines and answer them, until the person leaves."""
        name = f"{self.where.agent_id} ({self.agent.spec.model.name})"
        output.say(f"{name}, thread {self.where.thread_id}; /help shows what can be done", dim=True)
        self._guarded(lambda: self._resume() if self._asked() else None)
        while True:
            try:
                text = asking.line(_PROMPT).strip()
            except KeyboardInterrupt:
                output.say("Ctrl-D leaves")
                continue
            except EOFError:
                output.say("")
                break
            if text == "/quit":
                break
            self._guarded(partial(self._take, text))
        self.where.point(waits=bool(self._asked()))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what neither an error nor Ctrl-C may end the talk by."""
        try:
            work()
        except KeyboardInterrupt:
            output.say("stopped: cancelled; /resume goes on with it")
        except WickError as error:
            output.report(error)

    def _take(self, text: str) -> None:
        if not text:
            return
        if text == "/help":
            output.say(_HELP)
        elif text == "/thread":
            self.where.point(waits=bool(self._asked()))
        elif text == "/resume":
            self._resume()
        elif _COMMAND.fullmatch(text):
            output.say(f"there is no {text}; /help shows what there is")
        else:
            self._watched(lambda turns: turns.say(text))

    def _resume(self) -> None:
        # In the store's thread: Ctrl-C amid a statement would be an error of the database.
        info = self.runner.run(self.agent.threads.aget(self.where.thread_id))
        if info is None or info.stopped_because == "done":
            output.say("there is nothing to go on with")
            return
        asked = self._asked()
        answers = asking.ask(asked) if asked else {}
        if answers or not asked:
            self._watched(lambda turns: turns.go_on(info.stopped_because, answers))

    def _watched(self, work: Any) -> None:
        view = Live(tokens=True, asks=True)
        turns = Turns(
            agent=self.agent,
            thread_id=self.where.thread_id,
            view=view,
            runner=self.runner,
            asks=True,
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
            output.say("/resume asks again; a new text goes on without the answers", dim=True)

    def _asked(self) -> list[Any]:
        """List the questions that wait."""
        from wick_graph import keys
        from wick_graph.graph.answers import waiting

        config: Any = keys.with_configurable(None, **{keys.THREAD_ID: self.where.thread_id})
        store: Any = self.agent.store
        return waiting(self.runner.run(store.aget_tuple(config)))


@contextmanager
def _kept(store: SqlSaver, thread_id: str, ttl: float | None) -> Iterator[None]:
    """Mark a thread as used from time to time: a person who thinks must not lose it."""
    from wick_graph.errors import StorageError

    stop = threading.Event()
    every = _KEPT_EVERY if ttl is None else min(ttl / 3, _KEPT_EVERY)

    def keep() -> None:
        while not stop.wait(every):
            try:
                store.threads.touch(thread_id)
            except StorageError:  # not there yet, or the database is busy: the next turn will do
                continue

    keeper = threading.Thread(target=keep, name="wick-chat", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
