"""What a crashed step had finished is taken, by whichever of the two records holds it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.recorded import until_done, until_written
from wick_graph import Agent, SqlSaver, tool
from wick_graph.testing import ScriptedModel, call, calls
from wick_graph.types import Replay


class World:
    """Effects and signals that all processes see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def done(self, what: str) -> None:
        with (self.folder / what).open("a") as file:
            file.write("x")

    def count(self, what: str) -> int:
        path = self.folder / what
        return len(path.read_text()) if path.exists() else 0

    def wait(self, what: str) -> None:
        while not self.count(what):
            time.sleep(0.005)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def agent_of(url: str, world: World, replay: Replay, *, still: bool = False) -> Agent:
    """An agent whose first reply calls a tool that ends, and one that then kills the process.

    Args:
        url: Its store.
        world: Where its tools leave traces.
        replay: Of the tool that ends.
        still: Whether the store writes nothing because time has passed.
    """

    @tool(replay=replay)
    def act() -> str:
        """Have an effect, once the other call is under way."""
        world.wait("begun")
        world.done("acted")
        return "acted"

    @tool(replay="never")
    def die() -> str:
        """Wait until the other's result is where it is to be, and take the process down."""
        world.done("begun")
        world.wait("acted")
        (until_done(url) if still else until_written(url, "acted"))
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    script: list[Any] = [calls(("act", {}), ("die", {})), "ok", "more"]
    store = SqlSaver.from_url(url)
    if still:
        store._core._flusher.close()
        store.leases.close()  # the keeper reads, and what waits is written before any read
    return Agent(model=ScriptedModel(script), tools=[act, die], store=store)


def crash(work: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@contextmanager
def opened(url: str, world: World, replay: Replay) -> Iterator[Agent]:
    """An agent as `agent_of` makes it, and close its store in the end."""
    agent = agent_of(url, world, replay)
    with cast("SqlSaver", agent.store):
        yield agent


def told(url: str, world: World, replay: Replay) -> list[str]:
    """Send a new message, and return what became of the calls that were left."""
    with opened(url, world, replay) as agent:
        result = agent.invoke("hello?", thread_id="t")
    return [m.text[:27] for m in result.messages if m.type == "tool"]


CUT = "Error: interrupted, outcome"


def test_a_new_message_takes_what_only_the_ledger_holds(url: str, world: World) -> None:
    """Nothing of the step's writes is on disk: they waited when the process died."""
    crash(lambda: agent_of(url, world, "never", still=True).invoke("?", thread_id="t"))
    assert told(url, world, "never") == ["acted", CUT]
    assert world.count("acted") == 1


def test_a_new_message_takes_what_only_the_steps_writes_hold(url: str, world: World) -> None:
    """The ledger keeps no result of a call that may be repeated, if nobody was told of it."""
    crash(lambda: agent_of(url, world, "safe").invoke("?", thread_id="t"))
    assert told(url, world, "safe") == ["acted", CUT]
    assert world.count("acted") == 1


@pytest.mark.sisters(3)
@pytest.mark.parametrize("replay", ["never", "safe"])
def test_a_result_that_was_told_is_not_made_again(url: str, world: World, replay: Replay) -> None:
    """Of a call that may be repeated too: whoever heard of its result must not find another."""
    crash(lambda: [*agent_of(url, world, replay, still=True).stream("?", thread_id="t")])
    with opened(url, world, replay) as agent:
        result = agent.resume("t")
    assert [m.text[:27] for m in result.messages if m.type == "tool"] == ["acted", CUT]
    assert world.count("acted") == 1


def test_two_equal_calls_of_one_reply_both_run(url: str) -> None:
    effects: list[int] = []

    @tool(replay="never")
    def act(n: int) -> str:
        """Have an effect."""
        effects.append(n)
        return f"acted {len(effects)}"

    script: list[Any] = [calls(("act", {"n": 1}), ("act", {"n": 1})), call("act", n=1), "ok"]
    with Agent(model=ScriptedModel(script), tools=[act], store=url) as agent:
        result = agent.invoke("?", thread_id="t")
    assert effects == [1, 1, 1]
    answers = sorted(m.text for m in result.messages if m.type == "tool")
    assert answers == ["acted 1", "acted 2", "acted 3"]


def test_one_key_in_two_threads_is_two_runs(url: str) -> None:
    with Agent(model=ScriptedModel(["one"]), store=url) as agent:
        first: Any = agent.invoke("?", thread_id="a", idempotency_key="k")
        second: Any = agent.invoke("?", thread_id="b", idempotency_key="k")
    assert (first.thread_id, second.thread_id) == ("a", "b")
    assert first.run_id != second.run_id
