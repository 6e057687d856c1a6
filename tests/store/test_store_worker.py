"""Who does the store's work for an event loop: its own thread, or the loop if it is alone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver, worker
from wick_graph.store.sqlite import BUSY_SECONDS, Connection
from wick_graph.store.verify import verify
from wick_graph.store.worker import Worker
from wick_graph.testing import ScriptedModel, call

THREAD = "wick-store"


@pytest.fixture(autouse=True)
def _no_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with other work to do takes a job for slow."""
    monkeypatch.setattr(worker, "SLOW", 3_600.0)


@pytest.fixture
def saver(path: Path) -> Iterator[SqlSaver]:
    """An open store: a loop never opens the database itself."""
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
    return saver._core.worker.run_short(where(done))


@pytest.fixture
def passed_on(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs that the thread gets, such as one that meets the thread which flushes."""
    given: list[Any] = []
    put = Worker._put

    def noted(own: Worker, job: Any) -> None:
        given.append(job)
        put(own, job)

    monkeypatch.setattr(Worker, "_put", noted)
    return given


async def test_the_loop_of_a_lone_run_stores_its_steps(
    saver: SqlSaver, passed_on: list[Any]
) -> None:
    for at in range(20):
        passed_on.clear()
        assert (await agent_of(saver).ainvoke("1 + 2?", thread_id=f"t{at}")).text == "3."
        if not passed_on:
            break
    assert passed_on == []
    assert await work_of(saver, []) == threading.current_thread().name


async def test_a_loop_with_another_task_is_not_held_up(saver: SqlSaver) -> None:
    other = asyncio.ensure_future(asyncio.sleep(60))
    try:
        assert await work_of(saver, []) == THREAD
    finally:
        other.cancel()
    assert await work_of(saver, []) == THREAD  # it looks again after a while
    saver._core.worker._not_before = 0.0
    assert await work_of(saver, []) != THREAD


async def test_a_job_gives_the_loop_its_turn(saver: SqlSaver, passed_on: list[Any]) -> None:
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
    assert len(passed_on) <= len(ended) + 1, "of five jobs of a run"
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


async def test_a_slow_disk_is_the_threads(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SLOW", -1.0)
    done: list[str] = []
    await work_of(saver, done)
    await work_of(saver, done)
    assert (done[0] == THREAD, done[1] == THREAD) == (False, True)


async def test_a_loop_in_debug_mode_is_not_held_up(saver: SqlSaver) -> None:
    asyncio.get_running_loop().set_debug(True)
    try:
        assert await work_of(saver, []) == THREAD
    finally:
        asyncio.get_running_loop().set_debug(False)


async def test_what_may_be_long_is_the_threads(saver: SqlSaver) -> None:
    """Such as the read of a thread: a timeout could not come in time."""
    assert await saver._core.worker.run(where([])) == THREAD
    assert await saver._core.worker.run_long(where([])) == THREAD


def _given(saver: SqlSaver, work: Callable[[], Any]) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    saver._core.worker.give(work, future, short=True)
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
        await saver._core.worker.run_short(fail)
    assert await work_of(saver, []) == threading.current_thread().name


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
    await asyncio.sleep(0)
    assert len(done) == 1


async def test_a_store_that_is_closed_finishes_its_jobs(saver: SqlSaver) -> None:
    done: list[str] = []
    future = _given(saver, where(done))
    saver._core.worker.close()
    assert done == [THREAD]
    await asyncio.wait_for(future, 20)
    with pytest.raises(StorageError, match="closed"):
        _given(saver, where(done))


def test_a_loop_that_stops_leaves_its_job_to_the_thread(saver: SqlSaver) -> None:
    done: list[str] = []
    loop = asyncio.new_event_loop()

    async def stop() -> None:
        _given(saver, where(done))
        loop.stop()
        await asyncio.sleep(60)

    task = loop.create_task(stop())
    loop.run_forever()
    assert done == []
    task.cancel()
    loop._ready.clear()  # type: ignore[attr-defined]  # as `close` does, which complains of a task
    asyncio.run(_finish(saver, done))
    assert done[0] == THREAD
    loop.close()


async def _finish(saver: SqlSaver, done: list[str]) -> None:
    await work_of(saver, done)


async def test_no_job_is_lost_if_no_thread_can_start(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    first = _given(saver, where([]))
    with pytest.raises(RuntimeError, match="new thread"):
        _given(saver, where([]))
    with pytest.raises(RuntimeError, match="new thread"):
        await asyncio.wait_for(first, 20)
    assert await work_of(saver, []) == threading.current_thread().name


def test_each_loop_gets_the_results_of_its_own_jobs(saver: SqlSaver) -> None:
    """Loops in many threads: each is alone in its own, and all share the store."""
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


@contextmanager
def counted(saver: SqlSaver) -> Iterator[list[str]]:
    seen: list[str] = []
    db: Any = saver._core._connection
    db.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
    try:
        yield seen
    finally:
        db.set_trace_callback(None)


async def test_a_lone_run_makes_no_more_commits_than_one_beside_others(saver: SqlSaver) -> None:
    agent = agent_of(saver, 2)
    with counted(saver) as alone:
        await agent.ainvoke("1 + 2?", thread_id="a")
    other = asyncio.ensure_future(asyncio.sleep(60))
    saver._core.worker._not_before = time.monotonic() + 60
    with counted(saver) as beside:
        await agent.ainvoke("1 + 2?", thread_id="b")
    other.cancel()
    assert len(alone) <= len(beside)


async def test_no_loop_waits_for_a_server(postgres_url: str) -> None:
    """Each statement is a trip through a network."""
    with SqlSaver.from_url(postgres_url) as saver:
        saver.threads.list()
        assert await work_of(saver, []) == THREAD


def test_a_worker_of_a_store_that_is_gone_does_its_jobs() -> None:
    class Gone:
        """A store that a finalizer still uses."""

    made: list[str] = []

    async def use() -> None:
        store: Any = Gone()
        own = Worker(store)
        del store
        await own.run_short(where(made))

    asyncio.run(use())
    assert made == [THREAD]
