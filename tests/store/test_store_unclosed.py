"""A store that was dropped without being closed: what waits is written, and nothing of it stays."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.store_graphs import config
from tests.store.test_store_sharing import Line
from tests.support.waiting import until
from wick_graph import Agent
from wick_graph.store import SqlSaver, keeper
from wick_graph.testing import ScriptedModel


def names(before: set[threading.Thread]) -> set[str]:
    """The threads of stores that were not there before."""
    since = {*threading.enumerate()} - before
    return {one.name for one in since} & {"wick-leases", "wick-store", "wick-flush"}


def collect_written(before: set[threading.Thread]) -> None:
    """Collect what is garbage as soon as nothing waits to be written: it takes a second here."""
    until(lambda: "wick-flush" not in names(before), "all is written")
    gc.collect()


async def test_nothing_of_it_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.02)
    before = {*threading.enumerate()}

    async def use() -> tuple[weakref.ref[Any], ...]:
        agent = Agent(model=ScriptedModel(["a", "b"]), store=url)
        agent.invoke("one", thread_id="t")
        await agent.ainvoke("two", thread_id="t")
        assert names(before) >= {"wick-leases", "wick-store"}
        store: Any = agent.store
        return tuple(map(weakref.ref, (agent, store._core, store._core._connection)))

    made = await use()
    collect_written(before)
    until(lambda: not names(before), lambda: str(names(before)))
    assert [one() for one in made] == [None] * 3
    with Agent(model=ScriptedModel(["a", "b", "c"]), store=url) as again:
        messages = again.invoke("three", thread_id="t").messages
    assert [one.text for one in messages] == ["one", "a", "two", "b", "three", "c"]


def test_what_waits_is_written_before_it_goes(url: str) -> None:
    """The writes of a task that is alone in its step may wait for the checkpoint that follows."""

    def use() -> weakref.ref[Any]:
        saver = SqlSaver.from_url(url)
        line = Line(saver)
        at = config("t", checkpoint_ns="", checkpoint_id=line.put(log=["a"]))
        saver.put_writes(at, [("log", "kept")], "task", "~__pregel_pull, think")
        assert saver._core.deferred.since is not None
        return weakref.ref(saver._core)

    before = {*threading.enumerate()}
    made = use()
    gc.collect()  # before it is written
    collect_written(before)
    assert made() is None
    with SqlSaver.from_url(url) as saver:
        found = saver.get_tuple(config("t"))
        assert found is not None
        assert found.pending_writes == [("task", "log", "kept")]


def test_a_finalizer_may_still_use_and_close_it(url: str) -> None:
    """Those of a cycle of objects run when all weak references to them are gone."""
    ended: list[str] = []

    class Owner:
        def __init__(self) -> None:
            self.saver = SqlSaver.from_url(url)
            self.saver.leases.acquire("held")
            self.me = self

        def __del__(self) -> None:
            Line(self.saver, "late").put(log=["a"])
            assert asyncio.run(self.saver.aget_tuple(config("late"))) is not None
            self.saver.close()
            ended.append("closed")

    Owner()
    gc.collect()
    assert ended == ["closed"]
    with SqlSaver.from_url(url) as saver:
        found = saver.get_tuple(config("late"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"log": ["a"]}


LINES = 40
"""More than such a thread runs from its start until it has waited twice."""


@pytest.fixture
def trace() -> Iterator[Callable[[Any], None]]:
    before = threading.gettrace()
    yield threading.settrace
    threading.settrace(before)


@pytest.mark.parametrize("name", ["wick-leases", "wick-flush"])
def test_a_finalizer_may_close_it_in_its_own_thread(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch, trace: Callable[[Any], None]
) -> None:
    """Garbage is collected at any line, also of what such a thread waits with."""
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.005)
    for at in range(LINES):
        saver = SqlSaver.from_url(f"sqlite:///{path}")
        left, closed = [at], threading.Event()

        def collect(_: Any, event: str, __: Any, of: Any = (saver, left, closed)) -> Any:
            saver, left, closed = of
            if threading.current_thread().name == name and event == "line" and left:
                left[0] -= 1
                if left[0] < 0:
                    left.clear()
                    saver.close()
                    closed.set()
            return functools.partial(collect, of=of)

        trace(collect)
        saver.leases.acquire(f"t{at}")
        saver._core._flusher.wake(saver._core)
        trace(None)
        assert closed.wait(60), f"closed at line {at} of its thread"


@pytest.mark.parametrize("name", ["wick-leases", "wick-flush", "wick-store"])
async def test_a_thread_that_could_not_start_is_started_next_time(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has only so many threads at a time."""
    start = threading.Thread.start
    refused: list[str] = []

    def start_or_not(thread: threading.Thread) -> None:
        if thread.name == name and not refused:
            refused.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    before = {*threading.enumerate()}
    with SqlSaver.from_url(url) as saver:

        async def use(thread: str) -> None:
            saver.leases.acquire(thread)
            saver._core._flusher.wake(saver._core)
            await saver.aget_tuple(config(thread))

        with pytest.raises(RuntimeError, match="can't start new thread"):
            await use("first")
        await use("second")
        assert name in names(before)
