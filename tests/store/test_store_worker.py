"""The thread that does a store's work for event loops."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.sqlite import BUSY_SECONDS, Connection
from wick_graph.store.verify import verify
from wick_graph.store.worker import Worker
from wick_graph.testing import ScriptedModel, call

THREAD = "wick-store"


@pytest.fixture
def saver(path: Path) -> Iterator[SqlSaver]:
    """An open store."""
    with SqlSaver.from_url(f"sqlite:///{path}", synchronous="NORMAL") as opened:
        opened.threads.list()
        yield opened


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def agent_of(saver: SqlSaver, turns: int = 1) -> Agent:
    model = ScriptedModel([reply for _ in range(turns) for reply in (call("add", a=1, b=2), "3.")])
    return Agent(model=model, tools=[add], store=saver)


def where(done: list[str]) -> Callable[[], str]:
    """A job that notes the name of its thread."""

    def work() -> str:
        done.append(threading.current_thread().name)
        return done[-1]

    return work


def work_of(saver: SqlSaver, done: list[str]) -> Any:
    return saver._core.worker.run(where(done))


async def test_a_job_gives_the_loop_its_turn(saver: SqlSaver) -> None:
    """Timers and cancellations are seen between two steps, however many steps there are."""
    agent, began, ended = agent_of(saver, 500), time.monotonic(), list[int]()

    async def many() -> None:
        async with asyncio.timeout(0.2):
            for at in range(500):
                await agent.ainvoke("1 + 2?", thread_id=f"t{at}")
                ended.append(at)

    with pytest.raises(TimeoutError):
        await many()
    assert time.monotonic() - began < 10
    assert len(ended) < 500
    assert (await agent.ainvoke("And now?", thread_id="next")).stopped_because == "done"


async def test_it_does_not_wait_for_another_process(saver: SqlSaver, path: Path) -> None:
    """It would wait for what its own loop does later."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.1, other.rollback)
        began = time.monotonic()
        assert (await agent_of(saver).ainvoke("1 + 2?", thread_id="t")).text == "3."
        assert time.monotonic() - began < BUSY_SECONDS / 2


async def test_it_does_not_wait_for_another_thread(saver: SqlSaver) -> None:
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with saver._core.writing():
            held.set()
            free.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    asyncio.get_running_loop().call_later(0.1, free.set)
    began = time.monotonic()
    assert (await agent_of(saver).ainvoke("1 + 2?", thread_id="t")).text == "3."
    assert time.monotonic() - began < 10
    thread.join()


async def test_no_loop_does_the_work(saver: SqlSaver) -> None:
    assert await saver._core.worker.run(where([])) == THREAD
    assert await saver._core.worker.run_long(where([])) == THREAD


def _given(saver: SqlSaver, work: Callable[[], Any]) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    saver._core.worker.give(work, future)
    return future


async def test_jobs_keep_their_order(saver: SqlSaver) -> None:
    """Two at once are the thread's, which commits them together."""
    order: list[int] = []

    def note(at: int) -> None:
        time.sleep(0.01)
        order.append(at)

    await asyncio.gather(*[_given(saver, partial(note, at)) for at in range(5)])
    assert order == [0, 1, 2, 3, 4]


async def test_the_error_of_a_job_is_its_callers(saver: SqlSaver) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await saver._core.worker.run(fail)
    assert await work_of(saver, []) == THREAD


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_commit_that_fails_by_no_fault_of_the_database_is_an_error(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch, others: int, nth: int
) -> None:
    """Such as one without memory: no caller waits for good, and the store goes on."""
    execute, left = Connection.execute, [nth]

    def fail(self: Connection, text: Any, values: Any = (), /) -> Any:
        if text == "COMMIT" and threading.current_thread().name != "wick-flush":
            left[0] -= 1
            if left[0] == 0:
                raise MemoryError("no room")
        return execute(self, text, values)

    monkeypatch.setattr(Connection, "execute", fail)
    tasks = [asyncio.ensure_future(asyncio.sleep(60)) for _ in range(others)]
    with pytest.raises(MemoryError, match="no room"):
        await agent_of(saver).ainvoke("1 + 2?", thread_id="t")
    for task in tasks:
        task.cancel()
    assert (await agent_of(saver).ainvoke("1 + 2?", thread_id="next")).text == "3."
    assert verify(saver).is_whole


async def test_jobs_at_once_get_the_error_of_their_commit(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise MemoryError("no room")

    def write() -> None:
        with saver._core.writing():
            time.sleep(0.01)

    first = _given(saver, lambda: time.sleep(0.05))
    jobs = [_given(saver, write) for _ in range(3)]
    monkeypatch.setattr(type(saver._core), "_commit", fail)
    found = await asyncio.gather(first, *jobs, return_exceptions=True)
    monkeypatch.undo()
    assert [type(one) for one in found[1:]] == [MemoryError] * 3
    assert (await agent_of(saver).ainvoke("1 + 2?", thread_id="t")).text == "3."


async def test_a_cancelled_caller_ends_no_job(saver: SqlSaver) -> None:
    done: list[str] = []
    future = _given(saver, where(done))
    future.cancel()
    await work_of(saver, done)
    assert len(done) == 2


async def test_a_store_that_is_closed_finishes_its_jobs(saver: SqlSaver) -> None:
    done: list[str] = []
    future = _given(saver, where(done))
    saver._core.worker.close()
    assert done == [THREAD]
    await asyncio.wait_for(future, 20)
    with pytest.raises(StorageError, match="closed"):
        _given(saver, where(done))


def test_each_loop_gets_the_results_of_its_own_jobs(saver: SqlSaver) -> None:
    """Loops in many threads share the store."""
    errors: list[BaseException] = []

    async def use(mine: int) -> None:
        loop = asyncio.get_running_loop()
        for at in range(60):
            future = _given(saver, partial(_pair, mine, at))
            assert future.get_loop() is loop
            assert await asyncio.wait_for(_of(future), 60) == (mine, at)

    def run(mine: int) -> None:
        try:
            asyncio.run(use(mine))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def _pair(*given: int) -> tuple[int, ...]:
    return given


async def _of(future: asyncio.Future[Any]) -> Any:
    return await future


def test_a_worker_of_a_store_that_is_gone_does_its_jobs() -> None:
    class Gone:
        """A store that a finalizer still uses."""

    made: list[str] = []

    async def use() -> None:
        store: Any = Gone()
        own = Worker(store)
        del store
        await own.run(where(made))

    asyncio.run(use())
    assert made == [THREAD]
