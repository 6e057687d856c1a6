"""Threads, loops, processes and forks on one store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.source import ROOT
from tests.store.store_graphs import agent, config, looping_graph
from tests.store.test_store_sharing import Line
from tests.support import forked
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver


def given(text: str = "go") -> Any:
    return {"messages": [HumanMessage(text, id=text)]}


def intact(url: str) -> bool:
    """Read everything, which verifies each row; SQLite looks at its file too."""
    with SqlSaver.from_url(url) as saver:
        read = [*saver.list(None)]
    if url.startswith("postgresql"):
        return bool(read)
    db = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        return bool(db.execute("PRAGMA integrity_check").fetchone()[0] == "ok")
    finally:
        db.close()


def turn(saver: SqlSaver, thread: str, text: str) -> list[Any]:
    result = looping_graph(saver, 10).invoke(given(text), config(thread), durability="sync")
    return list(result["messages"])


@pytest.mark.sisters
def test_eight_threads_share_a_saver(saver: SqlSaver, url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = [*pool.map(lambda n: turn(saver, f"t{n}", f"h{n}"), range(16))]
    assert all(len(messages) == 11 for messages in results)
    for n in range(16):
        values = looping_graph(saver, 1).get_state(config(f"t{n}")).values
        assert values["messages"][0].id == f"h{n}"
        assert len(values["messages"]) == 11
    assert intact(url)


@pytest.mark.sisters
async def test_many_runs_in_one_loop(saver: SqlSaver) -> None:
    graph = looping_graph(saver, 5)
    results = await asyncio.gather(*(graph.ainvoke(given(), config(f"t{n}")) for n in range(20)))
    assert all(len(result["messages"]) == 6 for result in results)
    assert len([one async for one in saver.alist(None)]) == 20 * 12


def test_a_saver_serves_one_loop_after_another(saver: SqlSaver) -> None:
    graph = looping_graph(saver, 2)
    for n in range(3):
        asyncio.run(graph.ainvoke(given(f"h{n}"), config()))
        graph.invoke(given(f"s{n}"), config())
    humans = [m for m in graph.get_state(config()).values["messages"] if m.type == "human"]
    assert [m.id for m in humans] == ["h0", "s0", "h1", "s1", "h2", "s2"]


async def test_a_cancelled_wait_leaves_the_store_in_order(saver: SqlSaver) -> None:
    at = (await looping_graph(saver, 1).ainvoke(given(), config())) and config()
    found = await saver.aget_tuple(at)
    assert found is not None
    put = asyncio.ensure_future(saver.aput_writes(found.config, [("log", ["x"])], "task"))
    await asyncio.sleep(0)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    again = await saver.aget_tuple(at)
    assert again is not None
    assert [w[2] for w in again.pending_writes or []][-1] == ["x"]


def test_no_lock_is_held_while_a_listing_is_read(saver: SqlSaver) -> None:
    looping_graph(saver, 30).invoke(given(), config())
    done = threading.Event()

    def other() -> None:
        looping_graph(saver, 1).invoke(given(), config("other"))
        done.set()

    for n, one in enumerate(saver.list(config())):
        assert saver.get_tuple(one.config) is not None
        if n == 3:
            worker = threading.Thread(target=other)
            worker.start()
            assert done.wait(60)
            worker.join()


async def test_an_async_listing_can_be_left_and_used_inside(saver: SqlSaver) -> None:
    await looping_graph(saver, 30).ainvoke(given(), config())
    seen = 0
    async for one in saver.alist(config(), limit=40):
        assert await saver.aget_tuple(one.config) is not None
        seen += 1
    assert seen == 40


def in_child(work: Callable[[], object]) -> int:
    """Run in a fork and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_goes_on_with_the_file(saver: SqlSaver, url: str) -> None:
    asyncio.run(looping_graph(saver, 3).ainvoke(given(), config()))  # the thread is running

    def work() -> None:
        graph = looping_graph(saver, 6)
        graph.invoke(given("child"), config())
        asyncio.run(graph.ainvoke(given("child loop"), config("other")))
        saver.close()

    assert in_child(work) == 0
    result = looping_graph(saver, 8).invoke(given("parent"), config())
    ids = [m.id for m in result["messages"]]
    assert ids.count("child") == ids.count("parent") == 1
    assert saver.get_tuple(config("other")) is not None
    assert intact(url)


@pytest.mark.sisters
def test_a_fork_while_another_thread_works(saver: SqlSaver) -> None:
    stop = threading.Event()

    def busy() -> None:
        n = 0
        while not stop.is_set():
            turn(saver, "busy", f"h{n}")
            n += 1

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for n in range(5):
            assert in_child(partial(turn, saver, f"child{n}", "x")) == 0
    finally:
        stop.set()
        worker.join()
    assert len(saver.threads.list()) == 6


def test_a_store_in_memory_does_not_survive_a_fork() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        looping_graph(saver, 1).invoke(given(), config())

        def work() -> None:
            with pytest.raises(StorageError, match="does not survive a fork"):
                saver.get_tuple(config())

        assert in_child(work) == 0
        assert saver.get_tuple(config()) is not None


STARTED = """\
import sys
from tests.store.test_store_concurrency import work
url, number = sys.argv[1:]
print("ready", flush=True)
sys.stdin.read()
work(url, int(number), 3)
"""


def work(url: str, number: int, turns: int) -> None:
    with SqlSaver.from_url(url, synchronous="NORMAL") as saver:
        for n in range(turns):
            turn(saver, f"own{number}", f"p{number}-{n}")


@pytest.mark.sisters
def test_two_processes_make_and_use_one_file(url: str) -> None:
    command = [sys.executable, "-c", STARTED, url]
    pipes: Any = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    workers = [forked.Popen([*command, str(n)], cwd=ROOT, **pipes) for n in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()  # both start at once
    assert [worker.wait() for worker in workers] == [0, 0]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.close()
    assert intact(url)
    with SqlSaver.from_url(url) as saver:
        for n in range(2):
            values = looping_graph(saver, 1).get_state(config(f"own{n}")).values
            assert len([m for m in values["messages"] if m.type == "human"]) == 3


def test_two_savers_take_turns_on_one_thread(url: str) -> None:
    """The caches of one must not hide what the other wrote."""
    with SqlSaver.from_url(url) as first, SqlSaver.from_url(url) as second:
        for n in range(6):
            agent((first, second)[n % 2], turns=n + 2).invoke(given(f"m{n}"), config())
        states = [agent(saver).get_state(config()) for saver in (first, second)]
        assert states[0].values == states[1].values
        ids = [m.id for m in states[0].values["messages"] if m.type == "human"]
        assert ids == [f"m{n}" for n in range(6)]


def test_two_savers_write_in_turns_without_looking(url: str) -> None:
    """What one adds (names, items, a head) the other must know of before it writes."""
    with SqlSaver.from_url(url) as first, SqlSaver.from_url(url) as second:
        line, values = Line(first), dict[str, Any]()
        for n in range(6):
            line.saver = (first, second)[n % 2]
            values = {**values, f"channel {n}": [f"text {n} " + "x" * 300]}
            line.put(**values)
        assert line.get() == values
