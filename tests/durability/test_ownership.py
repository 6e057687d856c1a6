"""Several processes on one thread: no turn is lost, no two overlap, and the frozen stay harmless.

`WICK_ZOMBIES` sets how many workers are frozen on each database (3 here, hundreds by night).
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wick_graph import Agent, SqlSaver, tool
from wick_graph.constants import LEASE_SECONDS
from wick_graph.errors import ThreadBusyError
from wick_graph.testing import ScriptedModel, calls, respond

ZOMBIES = int(os.environ.get("WICK_ZOMBIES", "3"))
OVERTAKEN = 7


class Echo:
    """Say what was said last, and note when a turn begins and ends."""

    def __init__(self, log: int) -> None:
        self.log = log

    def agent(self, url: str) -> Agent:
        def answer(asked: Any) -> str:
            said = asked.messages[-1].text
            os.write(self.log, f"start {said}\n".encode())
            time.sleep(0.002)
            os.write(self.log, f"end {said}\n".encode())
            return f"heard {said}"

        steps = [respond(answer) for _ in range(200)]
        return Agent(model=ScriptedModel(steps), store=url)


def children(works: list[Callable[[], None]]) -> list[int]:
    pids = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


@pytest.mark.sisters
@pytest.mark.timeout(200)
@pytest.mark.parametrize("on_busy", ["queue", "reject"])
@pytest.mark.parametrize(("processes", "turns"), [(2, 12), (4, 6)])
def test_w1_processes_on_one_thread_lose_no_turn(
    tmp_path: Path, url: str, processes: int, turns: int, on_busy: Any
) -> None:
    path = tmp_path / "log"
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Echo(log).agent(url):  # the database is there
        pass

    def worker(name: int) -> None:
        with Echo(log).agent(url) as agent:
            for n in range(turns):
                while True:
                    try:
                        agent.invoke(f"{name}:{n}", thread_id="t", on_busy=on_busy)
                    except ThreadBusyError:
                        time.sleep(0.005)
                        continue
                    os.write(log, f"ack {name}:{n}\n".encode())
                    break

    codes = children([lambda name=name: worker(name) for name in range(processes)])  # type: ignore[misc]
    assert codes == [0] * processes
    lines = [line.split(" ", 1) for line in path.read_text().splitlines()]
    acked = {said for word, said in lines if word == "ack"}
    with Echo(log).agent(url) as agent:
        messages = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    said = [m.text for m in messages if m.type == "human"]
    assert sorted(acked) == sorted(said)
    assert len(said) == len(set(said)) == processes * turns
    assert [m.text for m in messages if m.type == "ai"] == [f"heard {text}" for text in said]
    under_way = [(word, said) for word, said in lines if word != "ack"]
    assert all(
        (one, two) == (("start", one[1]), ("end", one[1]))
        for one, two in zip(under_way[::2], under_way[1::2], strict=True)
    ), "two turns overlapped"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_w2_a_frozen_worker_commits_nothing_and_starts_nothing_more(
    tmp_path: Path, url: str, database: str
) -> None:
    """Stop the whole process inside of a step past its lease, take over, and wake it."""
    passed = mmap.mmap(-1, 8)  # what all processes have as the time that has passed

    def now() -> float:
        return time.time() + float(struct.unpack("d", passed[:])[0])

    log = tmp_path / "log"
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def agent_of(role: str) -> Agent:
        @tool(replay="never")
        def first() -> str:
            """Freeze here."""
            os.write(fd, f"{role} first\n".encode())
            if role == "zombie":
                os.kill(os.getpid(), signal.SIGSTOP)
            return f"first by {role}"

        @tool(replay="never")
        def second() -> str:
            """Follow."""
            os.write(fd, f"{role} second\n".encode())
            return f"second by {role}"

        steps: Any = [calls(("first", {})), calls(("second", {})), f"said {role}"]
        return Agent(model=ScriptedModel(steps), tools=[first, second], store=url)

    commits = 0
    for n in range(ZOMBIES):
        thread = f"t{n}"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with agent_of("zombie") as zombie:
                    zombie.store.clock = now  # type: ignore[union-attr]  # it is ours
                    zombie.invoke("?", thread_id=thread)
            except ThreadBusyError:
                code = OVERTAKEN
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        passed[:] = struct.pack("d", (n + 1) * (LEASE_SECONDS + 1))
        with agent_of("heir") as agent:
            store = agent.store
            assert isinstance(store, SqlSaver)
            store.clock = now
            result = agent.resume(thread)
            os.kill(pid, signal.SIGCONT)
            _, status = os.waitpid(pid, 0)
            assert os.WEXITSTATUS(status) == OVERTAKEN
            config: Any = {"configurable": {"thread_id": thread}}
            messages = agent.graph.get_state(config).values["messages"]
            commits += sum("zombie" in m.text for m in messages)
            assert [m.text for m in messages] == [m.text for m in result.messages]
            assert "outcome unknown" in messages[2].text
            assert messages[-1].text == "said heir"
    lines = log.read_text().splitlines()
    print(f"\nfrozen on {database}: {ZOMBIES}, zombie commits: {commits}", file=sys.stderr)
    assert commits == 0
    assert lines.count("zombie first") == ZOMBIES
    assert "zombie second" not in lines
    assert lines.count("heir second") == ZOMBIES


@pytest.mark.timeout(200)
def test_w5_many_processes_on_one_database_do_not_disturb_each_other(
    tmp_path: Path, url: str, database: str
) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Echo(log).agent(url):
        pass

    def worker(name: int) -> None:
        with Echo(log).agent(url) as agent:
            for n in range(5):
                agent.invoke(str(n), thread_id=f"t{name}")

    assert children([lambda name=name: worker(name) for name in range(6)]) == [0] * 6  # type: ignore[misc]
    with SqlSaver.from_url(url) as saver:
        infos = saver.threads.list()
        assert {info.thread_id for info in infos} == {f"t{name}" for name in range(6)}
        assert {info.steps for info in infos} == {infos[0].steps}
        if database == "sqlite":
            with saver._core.reading() as db:
                assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_run_whose_process_died_expires_as_an_idle_thread_does(url: str) -> None:
    """Nobody may keep a thread for ever by dying in it."""

    def die() -> str:
        """Take the process down."""
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    def agent() -> Agent:
        return Agent(
            model=ScriptedModel([calls(("die", {})), "ok"]), tools=[die], store=url, ttl=60
        )

    pid = os.fork()
    if pid == 0:
        agent().invoke("?", thread_id="dead")
        os._exit(0)
    os.waitpid(pid, 0)
    with agent() as left:
        store = left.store
        assert isinstance(store, SqlSaver)
        assert left.threads.get("dead").status == "running"
        now = store.clock()
        store.clock = lambda: now + 40  # its lease is over, its time to live is not
        assert (store.threads.due(), store.sweep()) == ([], [])
        store.clock = lambda: now + 200
        assert store.threads.due() == ["dead"]
        assert store.sweep() == ["dead"]
