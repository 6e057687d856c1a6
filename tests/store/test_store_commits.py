"""How many commits a step costs, what waits for them, and what never does."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from tests.store.conftest import Outside
from tests.store.store_graphs import agent, asking_graph, config, looping_graph
from tests.store.test_store_sharing import Line
from tests.support import forked
from tests.support.postgres import connected
from tests.support.waiting import until
from wick_graph import Agent, langgraph_config, tool
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.hooks import BaseHook
from wick_graph.store import SqlSaver, commit_policy
from wick_graph.store.commit_policy import CommitPolicy, Flusher
from wick_graph.store.leases import Writer
from wick_graph.testing import ScriptedModel, call, text

PULL = "~__pregel_pull, think"
PUSH = "~__pregel_push, 0000000001"
NOW: dict[str, bool] = {}
ONLY_CHECKPOINT = {"checkpoint": True}
ONLY_RESULTS = {"call_results": True}
RECORDED = {**ONLY_CHECKPOINT, **ONLY_RESULTS}


class Commits:
    """Counts the commits of a saver's connection."""

    def __init__(self, saver: SqlSaver) -> None:
        self.count = 0
        db: Any = saver._core._connection
        if isinstance(db, sqlite3.Connection):
            db.set_trace_callback(self._see)
        else:
            execute = db.execute

            def seen(text: str, *values: Any) -> Any:
                self._see(text)
                return execute(text, *values)

            db.execute = seen

    def _see(self, statement: str) -> None:
        if statement == "COMMIT":
            self.count += 1


@pytest.fixture
def commits(saver: SqlSaver) -> Commits:
    return Commits(saver)


@pytest.fixture
def still(saver: SqlSaver) -> SqlSaver:
    """A saver whose flusher never comes."""
    saver._core._flusher.close()
    return saver


def given(text: str = "go") -> Any:
    return {"messages": [HumanMessage(text, id=text)]}


def head(saver: SqlSaver) -> Any:
    """A config that addresses a first checkpoint."""
    line = Line(saver)
    return config("t", checkpoint_ns="", checkpoint_id=line.put(log=[]))


@pytest.mark.parametrize("door", ["sync", "async"])
def test_a_step_of_one_node_is_one_commit(still: SqlSaver, commits: Commits, door: str) -> None:
    graph = looping_graph(still, 50)
    if door == "sync":
        graph.invoke(given(), config(), durability="sync")
    else:
        asyncio.run(graph.ainvoke(given(), config(), durability="sync"))
    assert 100 <= commits.count <= 102  # 100 steps and the input


async def test_a_step_of_one_node_is_one_hop(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops: list[object] = []
    give = saver._core.worker.give

    def counted(work: Any, future: Any, *, long: bool = False) -> None:
        hops.append(work)
        give(work, future, long=long)

    monkeypatch.setattr(saver._core.worker, "give", counted)
    await looping_graph(saver, 20).ainvoke(given(), config(), durability="sync")
    assert 20 < len(hops) <= 43


def test_an_agent_of_langchain_saves_a_commit_too(still: SqlSaver, commits: Commits) -> None:
    agent(still, 40).invoke(given(), config(), durability="sync")
    assert commits.count <= 3 * 40 + 8


@pytest.mark.sisters(6)
@pytest.mark.parametrize(("replay", "most"), [("never", 4), ("safe", 3)])
@pytest.mark.parametrize("door", ["sync", "async"])
def test_an_iteration_of_our_agent(
    saver: SqlSaver, commits: Commits, replay: Any, most: int, door: str
) -> None:
    def look(n: int) -> str:
        """Look."""
        return f"{n} found"

    def run(turns: int) -> int:
        steps = [*(call("look", n=n) for n in range(turns)), text("done")]
        made = Agent(
            model=ScriptedModel(steps=steps),
            tools=[tool(replay=replay)(look)],
            store=saver,
            max_iterations=turns + 1,
        )
        before = commits.count
        at: Any = config(f"t{turns}")
        if door == "sync":
            made.graph.invoke(given(), at)
        else:
            asyncio.run(made.graph.ainvoke(given(), at))
        return commits.count - before

    few, many = run(5), run(45)
    assert (many - few) / 40 <= most + 0.25  # a slow machine adds a flush here and there


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda s: s.get_tuple(config()), id="get_tuple"),
        pytest.param(lambda s: [*s.list(None)], id="list"),
        pytest.param(lambda s: s.threads.list(), id="threads"),
        pytest.param(lambda s: s.threads.get("t"), id="thread"),
        pytest.param(lambda s: s.sweep(), id="sweep"),
        pytest.param(lambda s: s.prune(["t"]), id="prune"),
        pytest.param(lambda s: s.copy_thread("t", "u"), id="copy"),
        pytest.param(lambda s: s.delete_thread("other"), id="delete"),
        pytest.param(lambda s: s.delete_for_runs(["other"]), id="delete_for_runs"),
        pytest.param(lambda s: s.close(), id="close"),
        pytest.param(lambda s: Line(s, "other").put(log=[]), id="another thread's step"),
    ],
)
def test_what_waits_is_written_before_anything_else(
    still: SqlSaver, outside: Outside, look: Callable[[SqlSaver], object]
) -> None:
    at = head(still)
    still.put_writes(at, [("log", ["x"])], "task", PULL)
    assert outside.count("writes") == 0
    look(still)
    assert outside.count("writes") >= 1


def test_a_reader_finds_what_waits(still: SqlSaver) -> None:
    at = head(still)
    still.put_writes(at, [("log", ["x"])], "task", PULL)
    found = still.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task", "log", ["x"])]


def test_what_waits_is_as_it_was_given(still: SqlSaver) -> None:
    at = head(still)
    log = ["x"]
    still.put_writes(at, [("log", log)], "task", PULL)
    log.append("later")
    found = still.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task", "log", ["x"])]


@pytest.mark.parametrize("storable", [True, False], ids=["stored", "refused as well"])
def test_what_cannot_be_written_takes_no_checkpoint_along(still: SqlSaver, storable: bool) -> None:
    """LangGraph may save a checkpoint after what its tasks wrote: the error comes, but once."""
    line = Line(still)
    first, later = line.put(log=[]), str(uuid6())
    at: Any = config("t", checkpoint_ns="", checkpoint_id=later)
    still.put_writes(at, [("log", [object()])], "task", PULL)
    with pytest.raises(StorageError, match="object cannot be stored"):
        line.put(later, log=["x" if storable else object()])
    found = still.get_tuple(config())
    assert found is not None
    assert found.config["configurable"]["checkpoint_id"] == (later if storable else first)


def test_nothing_waits_longer_than_a_moment(saver: SqlSaver, outside: Outside) -> None:
    saver.put_writes(head(saver), [("log", ["x"])], "task", PULL)
    until(lambda: outside.count("writes") == 1, "the write is stored")
    with saver._core._db_lock:  # the commit is over
        pass
    assert saver._core.deferred.since is None


def writer(checkpoint: str | None, policy: dict[str, bool] | None) -> dict[str, Any]:
    """Who writes a superstep, and what of it may wait; nobody for None."""
    if policy is None:
        return {}
    return {langgraph_config.WRITER: Writer(None, CommitPolicy(checkpoint or "", **policy))}


@pytest.mark.parametrize(
    ("writes", "path_of_task", "policy", "waits"),
    [
        pytest.param([("log", ["x"])], PULL, None, True, id="a node alone"),
        pytest.param([("log", ["x"])], PULL, NOW, True, id="a node alone, of a run"),
        pytest.param([("log", ["x"])], PUSH, None, False, id="a pushed task"),
        pytest.param([("log", ["x"])], PUSH, NOW, False, id="not recorded"),
        pytest.param([("log", ["x"])], PUSH, RECORDED, True, id="recorded"),
        pytest.param([("log", ["x"])], PUSH, ONLY_CHECKPOINT, False, id="not recorded either"),
        pytest.param([("log", ["x"])], "", RECORDED, False, id="no task"),
        pytest.param([("__interrupt__", ("ask",))], PULL, RECORDED, False, id="an interrupt"),
        pytest.param([("__error__", ValueError("x"))], PULL, RECORDED, False, id="an error"),
        pytest.param([("__error__", ValueError("x"))], PUSH, RECORDED, False, id="a call's error"),
        pytest.param([("__resume__", "yes")], PULL, RECORDED, False, id="an answer"),
    ],
)
def test_which_writes_may_wait(
    still: SqlSaver, outside: Outside, writes: Any, path_of_task: str, policy: Any, waits: bool
) -> None:
    at: Any = head(still)
    at["configurable"].update(writer(at["configurable"]["checkpoint_id"], policy))
    still.put_writes(at, writes, "task", path_of_task)
    assert outside.count("writes") == (0 if waits else 1)


def test_of_parallel_nodes_only_the_first_waits_and_only_for_the_second(
    still: SqlSaver, outside: Outside
) -> None:
    at = head(still)
    still.put_writes(at, [("log", ["a"])], "task a", PULL)
    assert outside.count("writes") == 0
    still.put_writes(at, [("log", ["b"])], "task b", PULL)
    assert outside.count("writes") == 2


@pytest.mark.parametrize(
    ("tasks", "policy", "waits"),
    [
        pytest.param([PUSH], RECORDED, True, id="recorded"),
        pytest.param([PUSH, PUSH], ONLY_CHECKPOINT, True, id="committed"),
        pytest.param([PUSH], ONLY_RESULTS, False, id="only their results"),
        pytest.param([PULL], ONLY_CHECKPOINT, True, id="a node"),
        pytest.param([PULL], ONLY_RESULTS, False, id="a node whose run says nothing of it"),
        pytest.param([PULL], NOW, False, id="a node that may not"),
        pytest.param([PULL, PULL], RECORDED, False, id="nodes side by side"),
        pytest.param([PUSH, PULL], RECORDED, False, id="both kinds"),
        pytest.param([], RECORDED, False, id="no task"),
        pytest.param([PULL], None, False, id="a node of somebody else's graph"),
        pytest.param([PUSH], None, False, id="a graph of somebody else"),
    ],
)
def test_which_checkpoints_may_wait(
    still: SqlSaver, outside: Outside, tasks: list[str], policy: Any, waits: bool
) -> None:
    line = Line(still)
    line.put(log=[])
    run = writer(line.parent, policy)
    at: Any = config("t", checkpoint_ns="", checkpoint_id=line.parent)
    at["configurable"].update(run)
    for n, task in enumerate(tasks):
        still.put_writes(at, [("log", [str(n)])], f"task {n}", task)
    line.run = run
    values: dict[str, Any] = {"log": ["x"]}
    line.put(**values)
    assert outside.count("checkpoints") == (1 if waits else 2)
    line.run = {}
    values["log"].append("later")
    assert line.get(line.parent) == {"log": ["x"]}
    line.put(log=["y"])
    assert outside.count("checkpoints") == 3


@pytest.mark.parametrize("kind", [PULL, PUSH], ids=["a node", "a call"])
def test_a_policy_is_for_one_superstep(still: SqlSaver, outside: Outside, kind: str) -> None:
    """LangGraph may save a step in the background, when the policy is one of another step."""
    line = Line(still)
    first = line.put(log=[])
    second = line.put(log=["a"])
    at: Any = config("t", checkpoint_ns="", checkpoint_id=second)
    at["configurable"].update(writer(first, RECORDED))
    still.put_writes(at, [("log", ["x"])], "task", kind)
    assert outside.count("writes") == (1 if kind == PUSH else 0)
    line.run = writer(first, RECORDED)
    line.put(log=["a", "x"])
    assert outside.count("checkpoints") == 3


def lost(saver: SqlSaver) -> tuple[Line, Any]:
    """Let writes wait that no database can hold, under the head of a line; name that head."""
    line = Line(saver)
    line.put(log=["a"])
    at = config("t", checkpoint_ns="", checkpoint_id=line.parent)
    saver.put_writes(at, [("log", [object()])], "task", PULL)
    return line, at


def test_a_value_that_cannot_be_stored_is_told_at_the_next_call(still: SqlSaver) -> None:
    line, at = lost(still)
    assert still.get_tuple(config("other")) is None
    with pytest.raises(StorageError, match="cannot be stored"):
        line.put(log=["b"])
    assert line.get() == {"log": ["a"]}
    assert line.put(log=["b"])


def test_whoever_hears_of_it_first_the_next_checkpoint_is_refused(still: SqlSaver) -> None:
    """It may hold nothing of the value itself, as with delta channels."""
    line, at = lost(still)
    with pytest.raises(StorageError, match="cannot be stored"):
        still.threads.get("t")
    with pytest.raises(StorageError, match="cannot be stored"):
        line.put(log=["b"])
    still.put_writes(at, [("log", ["mended"])], "task", PULL)
    assert line.put(log=["b"])


def test_a_run_that_begins_later_hears_nothing_of_it(still: SqlSaver) -> None:
    line, at = lost(still)
    with pytest.raises(StorageError, match="cannot be stored"):
        still.threads.get("t")
    assert still.get_tuple(config())
    assert line.put(log=["b"])


def test_it_does_not_harm_other_threads(still: SqlSaver) -> None:
    bad, good = Line(still, "bad"), Line(still, "good")
    for line in (bad, good):
        line.put(log=["a"])
    for line, value in ((bad, object()), (good, "fine")):
        at = config(line.thread, checkpoint_ns="", checkpoint_id=line.parent)
        still.put_writes(at, [("log", [value])], "task", PULL)
    good.put(log=["b"])
    with pytest.raises(StorageError, match="cannot be stored"):
        still.threads.get("bad")
    assert still.threads.get("bad") is not None
    found = still.get_tuple(
        config("good", checkpoint_ns="", checkpoint_id=at["configurable"]["checkpoint_id"])
    )
    assert found is not None
    assert found.pending_writes == [("task", "log", ["fine"])]


@contextmanager
def locked(saver: SqlSaver, url: str) -> Iterator[None]:
    """Let somebody else keep the database, or the thread."""
    own: Any = saver._core._connection
    assert own is not None
    if url.startswith("postgresql"):
        own.script("SET lock_timeout TO 10")
        with connected(url) as session, session.transaction():
            session.execute("SELECT * FROM threads FOR UPDATE")
            yield
        return
    own.execute("PRAGMA busy_timeout=10")
    other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_what_waits_outlives_a_database_that_refuses(saver: SqlSaver, url: str) -> None:
    at = head(saver)
    with locked(saver, url):
        saver.put_writes(at, [("log", ["x"])], "task", PULL)
        for _ in range(3):
            with pytest.raises(StorageError, match="another process keeps it locked"):
                saver.get_tuple(at)
    found = saver.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task", "log", ["x"])]


def test_a_close_that_cannot_write_says_so(still: SqlSaver, url: str) -> None:
    at = head(still)
    still.put_writes(at, [("log", ["x"])], "task", PULL)
    with locked(still, url), pytest.raises(StorageError, match="locked"):
        still.close()
    still.close()
    with pytest.raises(StorageError, match="closed"):
        still.put_writes(at, [("log", ["x"])], "task", PULL)


def test_nothing_runs_after_close(url: str) -> None:
    before = {*threading.enumerate()}
    with SqlSaver.from_url(url) as saver:
        asyncio.run(looping_graph(saver, 2).ainvoke(given(), config()))
        assert {*threading.enumerate()} - before
    assert {t for t in threading.enumerate() if t.name.startswith("wick")} <= before


def test_a_fork_does_not_write_twice(saver: SqlSaver) -> None:
    at = head(saver)
    saver.put_writes(at, [("log", ["x"])], "task", PULL)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = saver.get_tuple(at)
            saver.put_writes(at, [("log", ["y"])], "task y", PULL)
            saver.close()
            code = 0 if found is not None and found.pending_writes else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = saver.get_tuple(at)
    assert found is not None
    assert [w[2] for w in found.pending_writes or ()] == [["x"], ["y"]]


@pytest.mark.sisters
def test_what_waits_survives_the_end_of_the_process(url: str, outside: Outside) -> None:
    """Even if nobody closes the store."""
    code = (
        "from tests.store.test_store_commits import *\n"
        f"s = SqlSaver.from_url({url!r})\n"
        "s._core._flusher.close()\n"
        "s.put_writes(head(s), [('log', ['x'])], 'task', PULL)\n"
    )
    forked.run([sys.executable, "-c", code], check=True)
    assert outside.count("writes") == 1


def test_threads_share_commits(url: str) -> None:
    """While one waits for the disk, the others get ready for the next commit."""
    with SqlSaver.from_url(url) as saver:
        seen = Commits(saver)
        lines = [Line(saver, f"t{n}") for n in range(16)]

        def work(line: Line) -> None:
            for n in range(10):
                line.put(log=[str(n)])

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, lines))
        assert seen.count < 130
        assert all(line.get() == {"log": ["9"]} for line in lines)


@pytest.mark.sisters
async def test_tasks_of_a_loop_share_commits(saver: SqlSaver, commits: Commits) -> None:
    graph = looping_graph(saver, 5)
    await asyncio.gather(*(graph.ainvoke(given(), config(f"t{n}")) for n in range(20)))
    assert commits.count < 20 * 11 * 3 / 4  # a few age alone on a machine that is busy


def test_one_failure_in_a_shared_commit_is_one_callers_own(saver: SqlSaver) -> None:
    good, bad = Line(saver, "good"), Line(saver, "bad")
    core = saver._core
    with core.batch() as joined:
        good.put(log=["a"])
        with pytest.raises(StorageError, match="cannot be stored"):
            bad.put(log=[object()])
        good.put(log=["b"])
    for group in joined:
        group.check()
    assert good.get() == {"log": ["b"]}
    assert saver.get_tuple(config("bad")) is None


async def test_a_failed_commit_reaches_everybody_who_shared_it(saver: SqlSaver) -> None:
    lines = [Line(saver, f"t{n}") for n in range(6)]
    held = threading.Event()
    first = asyncio.ensure_future(saver._core.worker.run(held.wait, 10))
    refused = saver._core._errors[0]("database or disk is full")
    end = saver._core._commit

    def full() -> None:
        group = saver._core._group
        if group is not None:
            saver._core._fail(group, saver._core._explained(refused))

    saver._core._commit = full  # type: ignore[method-assign]  # what a full disk does there
    tasks = [asyncio.ensure_future(saver._core.worker.run(line.put, log=["a"])) for line in lines]
    await asyncio.sleep(0)
    held.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    saver._core._commit = end  # type: ignore[method-assign]  # as above
    assert [type(result) for result in results] == [StorageError] * 6
    for line in lines:
        line.parent = None
        line.put(log=["b"])
        assert line.get() == {"log": ["b"]}


def test_what_a_refused_batch_took_along_waits_again_and_holds_nothing(
    still: SqlSaver, url: str, outside: Outside
) -> None:
    at = head(still)
    with SqlSaver.from_url(url) as other:
        lease = other.leases.acquire("busy")
        still.put_writes(at, [("log", ["b"])], "task", PULL)
        assert outside.count("writes") == 0
        with pytest.raises(ThreadBusyError):
            still.leases.together(lambda: void(still.leases.acquire("busy")))
        other.leases.release(lease)  # nobody holds the database meanwhile
        assert outside.count("writes") == 0
        still._core.flush()
        assert outside.count("writes") == 1


def test_callers_that_fail_again_and_again_do_not_keep_writes_waiting(
    saver: SqlSaver, url: str, outside: Outside
) -> None:
    at = head(saver)
    with SqlSaver.from_url(url) as other:
        other.leases.acquire("busy")
        saver.put_writes(at, [("log", ["b"])], "task", PULL)
        until = time.monotonic() + 60
        while outside.count("writes") == 0 and time.monotonic() < until:
            for _ in range(20):
                with pytest.raises(ThreadBusyError):
                    saver.leases.acquire("busy")
    assert outside.count("writes") == 1


def void(_: object) -> None:
    """Return nothing."""


def test_an_interrupt_is_durable_when_it_is_told(saver: SqlSaver, url: str) -> None:
    saver._core._flusher.close()
    result = asking_graph(saver).invoke({"log": ["in"]}, config(), durability="sync")
    assert result["__interrupt__"]
    with SqlSaver.from_url(url) as other:
        state = asking_graph(other).get_state(config())
    assert [task.interrupts[0].value for task in state.tasks if task.interrupts] == [
        {"question": "ask"}
    ]


@tool(replay="safe")
def step(n: int) -> str:
    """Take a step."""
    return f"{n} taken"


class Knows(BaseHook):
    """Injects a long text, and a short one that changes, into every system prompt."""

    phases = ("modify_request",)

    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request.append_system(f"Step {ctx.iteration}.").append_system("knowledge " * 3_000)


def test_what_a_hook_injects_at_each_step_is_stored_once(tmp_path: Path) -> None:
    sizes = []
    for n, hooks in enumerate([[], [Knows()]]):
        file = tmp_path / f"{n}.db"
        steps = [*(call("step", n=n) for n in range(99)), text("done")]
        with SqlSaver.from_url(f"sqlite:///{file}", synchronous="NORMAL") as saver:
            made = Agent(
                model=ScriptedModel(steps=steps),
                tools=[step],
                store=saver,
                max_iterations=100,
                hooks=hooks,
            )
            made.graph.invoke(given(), config())
        sizes.append(file.stat().st_size)
    assert sizes[1] - sizes[0] < 200_000
    assert sizes[1] < 610_000  # each index has a page


def test_a_lease_is_checked_anew_by_each_writer_of_a_commit(tmp_path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/a.db") as saver:
        by = {langgraph_config.WRITER: Writer(saver.leases.acquire("t"))}
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", **by}}
        first, second = empty_checkpoint(), empty_checkpoint()

        def work() -> None:
            saver.put(at, first, {"source": "input", "step": -1, "parents": {}}, {})
            saver.leases.acquire("t", force=True)
            at["configurable"]["checkpoint_id"] = first["id"]
            saver.put(at, second, {"source": "loop", "step": 0, "parents": {}}, {})

        with pytest.raises(ThreadBusyError, match="taken over by another run"):
            saver.leases.together(work)
        found = saver.get_tuple({"configurable": {"thread_id": "t"}})
        assert found is None or found.checkpoint["id"] == first["id"]


def test_an_error_between_two_writes_keeps_the_first(saver: SqlSaver, url: str) -> None:
    """The engine counts on it: the run that failed has its lease, and gives it back."""
    taken: list[Any] = []

    def work() -> None:
        taken.append(saver.leases.acquire("t"))
        raise LookupError("not of the database")

    with pytest.raises(LookupError, match="not of the database"):
        saver.leases.together(work)
    with SqlSaver.from_url(url) as other, pytest.raises(ThreadBusyError):
        other.leases.acquire("t")
    saver.leases.release(taken[0])
    with SqlSaver.from_url(url) as other:
        other.leases.release(other.leases.acquire("t"))


# --- The flusher's thread leaves when nothing has waited for a while.


class Idle:
    """A store in which nothing waits, until `comes` is called while the flusher's thread leaves."""

    def __init__(self, flusher: Flusher, comes: Callable[[Idle], float | None]) -> None:
        self.flusher, self.comes, self.deferred = flusher, comes, self
        self.came: float | None = None
        self.flushed = threading.Event()

    @property
    def since(self) -> float | None:
        comes = self.comes if self.flusher._thread is None else None
        if comes is not None and self.came is None:
            return comes(self)
        return self.came

    def flush(self) -> None:
        self.came, self.comes = None, lambda _: None
        self.flushed.set()


def before_it_looks(store: Idle) -> float | None:
    store.came = 0.0
    return store.came


def after_it_looks(store: Idle) -> float | None:
    store.came = 0.0
    threading.Thread(target=store.flusher.wake, args=(store,)).start()
    return None


@pytest.mark.parametrize("comes", [before_it_looks, after_it_looks])
def test_what_comes_while_the_flusher_leaves_is_flushed(
    comes: Callable[[Idle], float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_policy, "_IDLE_SECONDS", 0.0)
    flusher = Flusher()
    store: Any = Idle(flusher, comes)
    flusher.wake(store)
    flusher.wake(store)
    assert store.flushed.wait(10)
    until(lambda: flusher._thread is None, "the thread leaves later all the same")
    flusher.close()
