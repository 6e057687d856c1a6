"""The listing of threads, their time to live, and the sweeper."""

from __future__ import annotations

import contextlib
import sqlite3
import textwrap
import threading
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from sqlalchemy import select

from tests.store.conftest import Counts, Outside
from tests.store.store_graphs import agent, config
from tests.support.orphans import assert_no_orphans
from wick_graph import Agent
from wick_graph.errors import ConfigError, StorageError, ThreadBusyError, ThreadNotFoundError
from wick_graph.loading import load
from wick_graph.store import SqlSaver, SqlStore
from wick_graph.store.cleanup import ABOUT
from wick_graph.store.schema import threads
from wick_graph.store.texts import compiled
from wick_graph.store.threads import _listed, expired
from wick_graph.testing import ScriptedModel

START = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> float:
        return self.time

    def forward(self, minutes: float) -> None:
        self.time += minutes * 60


@pytest.fixture
def clock(saver: SqlSaver) -> Clock:
    made = Clock()
    saver.clock = made
    return made


def run(saver: SqlSaver, thread: str = "t") -> None:
    agent(saver).invoke({"messages": [HumanMessage("hello")]}, config(thread))


def open_thread(saver: SqlSaver, thread: str, ttl: float | None = 3600.0) -> None:
    saver.threads.open(thread, agent="demo", ttl=ttl, run_id="run-1", title="Title")


@pytest.mark.parametrize(
    ("minutes", "gone"),
    [pytest.param(59, False, id="T-12 kept"), pytest.param(61, True, id="T-12")],
)
def test_an_idle_thread_goes_after_an_hour(
    saver: SqlSaver, clock: Clock, counts: Counts, minutes: float, gone: bool
) -> None:
    run(saver)
    clock.forward(minutes)
    assert saver.sweep() == (["t"] if gone else [])
    assert (saver.get_tuple(config()) is None) is gone
    assert any(counts().values()) is not gone


def test_nothing_is_swept_without_being_asked(saver: SqlSaver, clock: Clock) -> None:
    run(saver)
    clock.forward(10_000)
    assert saver.threads.list()[0].thread_id == "t"
    run(saver, "other")
    assert saver.get_tuple(config()) is not None


@pytest.mark.parametrize("how", ["get", "open", "touch", "step"])
def test_access_keeps_a_thread(saver: SqlSaver, clock: Clock, how: str) -> None:
    """T-11, D-19: reading and writing both count."""
    run(saver)
    clock.forward(50)
    if how == "get":
        assert saver.threads.get("t") is not None
    elif how == "touch":
        saver.threads.touch("t")
    elif how == "open":
        open_thread(saver, "t")
        saver.threads.close("t", status="idle", stopped_because="done")
    else:
        run(saver)
    clock.forward(50)
    assert saver.sweep() == []
    clock.forward(20)
    assert saver.sweep() == ["t"]


@pytest.mark.parametrize("state", ["running", "waiting", "pinned", "never", "failed", "idle"])
def test_who_is_never_swept(saver: SqlSaver, clock: Clock, state: str) -> None:
    open_thread(saver, "t", ttl=None if state == "never" else 60.0)
    if state == "pinned":
        saver.threads.pin("t")
    if state == "waiting":
        saver.threads.close("t", status="waiting", stopped_because="interrupted")
    elif state == "failed":
        saver.threads.close("t", status="failed", stopped_because="failed", error="boom")
    elif state != "running":
        saver.threads.close("t", status="idle", stopped_because="done")
    clock.forward(1_000_000)
    assert saver.sweep() == (["t"] if state in ("failed", "idle") else [])
    if state == "pinned":
        saver.threads.pin("t", on=False)
        assert saver.sweep() == ["t"]


@pytest.mark.parametrize("queued", [True, False])
def test_a_thread_whose_run_a_server_is_to_end_is_never_swept(
    saver: SqlSaver, clock: Clock, queued: bool
) -> None:
    """A run may begin long before it opens its thread: it waits for others, or has waited."""
    streams, run_id = saver.streams, str(uuid.uuid4())
    row = (streams.admit if queued else streams.begin)("t", run_id, {"agent": "a"})
    assert row is not None
    clock.forward(1_000)
    if queued:
        row = streams.claim(row)
        assert row is not None
    assert saver.threads.due() == saver.sweep() == []
    streams.append(row, row.first, [row.tell("error", {})], "failed")
    assert saver.sweep() == ["t"]


def test_what_is_about_a_thread_goes_with_it(saver: SqlSaver, clock: Clock) -> None:
    notes = SqlStore.of(saver)
    for thread in ("swept", "deleted", "kept"):
        run(saver, thread)
        notes.put(ABOUT, thread, {"who": thread})
        notes.put(("people",), thread, {"who": thread})
    saver.threads.pin("kept")
    assert saver.threads.delete("deleted")
    assert notes.get(ABOUT, "deleted") is None
    clock.forward(1_000_000)
    assert saver.sweep() == ["swept"]
    assert [item.key for item in notes.search(ABOUT)] == ["kept"]
    assert len(notes.search(("people",))) == 3


def test_a_sweep_gives_pages_back_and_leaves_other_threads(
    saver: SqlSaver, clock: Clock, path: Path, url: str
) -> None:
    for n in range(20):
        run(saver, f"old{n}")
    clock.forward(55)
    run(saver, "young")
    clock.forward(10)
    with SqlSaver.from_url(url):
        pass
    assert sorted(saver.sweep()) == sorted(f"old{n}" for n in range(20))
    assert [one.thread_id for one in saver.threads.list()] == ["young"]
    saver.close()
    head = path.read_bytes()[:100]
    assert int.from_bytes(head[36:40], "big") == 0  # no free pages
    assert path.stat().st_size < 200_000


def test_each_transaction_of_a_sweep_is_small(
    saver: SqlSaver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3, and T2: a thread that is being deleted is gone at once."""
    monkeypatch.setattr("wick_graph.store.cleanup.BATCH", 7)
    run(saver)
    clock.forward(70)
    seen: list[int] = []
    writing = saver._core.writing

    def counted(*, alone: bool) -> object:
        assert alone
        seen.append(1)
        with saver._core.reading() as db:
            left = db.execute("SELECT count(*) FROM items").fetchone()[0]
        if len(seen) > 2 and left:
            assert saver.get_tuple(config()) is None
            assert saver.threads.list() == []
        return writing(alone=alone)

    monkeypatch.setattr(saver._core, "writing", counted)
    assert saver.sweep() == ["t"]
    assert len(seen) > 5


def test_a_deletion_that_was_cut_short_is_finished(
    saver: SqlSaver, clock: Clock, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(saver)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("wick_graph.store.cleanup.remove", dies)
        with pytest.raises(KeyboardInterrupt):
            saver.delete_thread("t")
    assert saver.threads.get("t") is None
    assert counts()["items"] > 0
    run(saver)  # the id is free again
    assert saver.sweep() == []
    saver.delete_thread("t")
    assert not any(counts().values())


def test_many_threads_go_together_and_leave_what_stays_whole(
    saver: SqlSaver, clock: Clock, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one transaction marks, more than one removes, and each is cut short once."""
    monkeypatch.setattr("wick_graph.store.threads._MARKED", 7)
    monkeypatch.setattr("wick_graph.store.cleanup._TOGETHER", 4)
    monkeypatch.setattr("wick_graph.store.cleanup.BATCH", 30)
    names = [f"t{number:02}" for number in range(20)]
    for name in names:
        run(saver, name)
    kept = names[3::5]
    before = {name: saver.get_tuple(config(name)) for name in kept}
    for name in kept:
        saver.threads.pin(name)
    clock.forward(70)
    gone, cut, writing = [], 0, saver._core.writing

    def cut_short(*args: Any, **options: Any) -> object:
        nonlocal cut
        cut += 1
        if cut % 6 == 0:
            raise KeyboardInterrupt
        return writing(*args, **options)

    monkeypatch.setattr(saver._core, "writing", cut_short)
    while len(saver.threads.list()) > len(kept):
        with contextlib.suppress(KeyboardInterrupt):
            gone += saver.sweep()
    monkeypatch.setattr(saver._core, "writing", writing)
    saver.sweep()
    assert cut > 12
    assert set(gone) <= set(names) - set(kept)
    assert {one.thread_id for one in saver.threads.list()} == set(kept)
    for name in kept:
        found = saver.get_tuple(config(name))
        known = before[name]
        assert found is not None
        assert known is not None
        assert found.checkpoint == known.checkpoint
        saver.delete_thread(name)
    assert_no_orphans(saver)
    assert not any(counts().values())


def test_the_sweeper_sweeps_in_the_background(saver: SqlSaver, clock: Clock) -> None:
    run(saver)
    clock.forward(70)
    with saver.sweeper(interval=0.01):
        while saver.threads.list():
            pass  # the test's time limit ends it
    assert "wick-sweeper" not in {thread.name for thread in threading.enumerate()}


def test_a_sweeper_outlives_an_error(saver: SqlSaver, caplog: pytest.LogCaptureFixture) -> None:
    with saver.sweeper(interval=0.01):
        saver.close()
        while len([r for r in caplog.records if "sweep failed" in r.message]) < 2:
            pass
    assert "closed" in caplog.text


YEAR = 365 * 24 * 3_600
JUMPS = [
    pytest.param(hours, id=f"T1 {hours:+} h") for hours in (1, -1, 24, -24, -3 * 365 * 24, 365 * 24)
]


@pytest.mark.sisters(3)
@pytest.mark.parametrize("hours", JUMPS)
def test_a_clock_that_jumps_takes_no_thread_from_a_run(
    saver: SqlSaver, clock: Clock, hours: float
) -> None:
    """Its lease looks over, or as if it came from the future; its process is there all the same."""
    lease = saver.leases.acquire("t")
    open_thread(saver, "t", ttl=60.0)
    run(saver, "idle")
    clock.forward(hours * 60)
    swept = saver.sweep()
    assert swept == (["idle"] if hours > 0 else [])
    info = saver.threads.get("t")
    assert info is not None
    assert info.status == "running"
    saver.leases.renew()
    assert not lease.lost
    with pytest.raises(ThreadBusyError):
        saver.leases.acquire("t")
    saver.threads.note_end(lease, status="idle", stopped_because="done")
    saver.leases.release(lease)
    clock.forward(2)
    assert saver.sweep() == ["t"]


@pytest.mark.parametrize("years", [1, -1])
def test_a_sweep_is_left_out_when_the_clock_was_set(
    saver: SqlSaver, caplog: pytest.LogCaptureFixture, years: int
) -> None:
    """Idle time counts anew from there, so no thread is lost in the rounds that follow either."""
    run(saver)
    set_by(saver, years * YEAR)
    assert (saver.sweep(), saver.sweep()) == ([], [])
    assert "so nothing is swept this time" in caplog.text
    later(saver, 3_500)
    assert saver.sweep() == []
    later(saver, 3_700 + (YEAR if years < 0 else 0))  # of one that was set back, the end is later
    assert saver.sweep() == ["t"]


def test_a_clock_that_was_set_before_the_process_began_deletes_nothing(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        run(saver)
    with SqlSaver.from_url(url) as saver:
        set_by(saver, YEAR)
        assert (saver.threads.due(), saver.sweep(), saver.sweep()) == (["t"], [], [])
        assert saver.threads.due() == []


@pytest.mark.parametrize("hours", [0.5, 1.5, 30])
def test_after_a_restart_of_the_machine_a_long_gap_counts_as_none(
    url: str, outside: Outside, hours: float
) -> None:
    """Nothing tells a machine that was off from one whose clock is wrong."""
    with SqlSaver.from_url(url) as saver:
        run(saver)
        saver.sweep()
    outside.run("UPDATE clock SET boot = ?", b"another boot")
    with SqlSaver.from_url(url) as saver:
        set_by(saver, hours * 3_600)
        outside.run("UPDATE clock SET boot = ?", b"another boot")
        assert saver.sweep() == []
        later(saver, hours * 3_600 + 3_700)
        assert saver.sweep() == ["t"]


def set_by(saver: SqlSaver, seconds: float) -> None:
    """Set the wall clock; no time passes."""
    core, real = saver._core, saver._core.dialect.now
    steady = core.steady()
    core.clock = lambda: real() + seconds
    core.steady = lambda: steady  # type: ignore[method-assign]  # the machine's own clock


def later(saver: SqlSaver, seconds: float) -> None:
    """Let time pass, by both clocks."""
    core = saver._core
    wall, steady = core.now() + seconds, core.steady() + seconds
    core.clock = lambda: wall
    core.steady = lambda: steady  # type: ignore[method-assign]  # as above


@pytest.mark.sisters
def test_a_thread_that_is_swept_while_it_is_used_is_whole_or_new(
    saver: SqlSaver, clock: Clock
) -> None:
    """T2: who comes as it goes gets the whole conversation, or begins a new one, or is told."""
    graph = agent(saver)

    def turn(thread: str) -> int:
        return len(graph.invoke({"messages": [HumanMessage("go")]}, config(thread))["messages"])

    once, twice = turn("whole"), turn("whole")
    saver.threads.pin("whole")
    for n in range(12):
        assert turn(f"t{n}") == once
        clock.forward(61)
        sweeper = threading.Timer(n * 0.002, saver.sweep)
        sweeper.start()
        with contextlib.suppress(StorageError, ThreadBusyError):
            assert turn(f"t{n}") in (once, twice)
        sweeper.join()
        kept = graph.get_state(config(f"t{n}")).values.get("messages", [])
        assert len(kept) <= twice
    assert_no_orphans(saver)


def test_an_interval_must_be_positive(saver: SqlSaver) -> None:
    with pytest.raises(StorageError, match="interval"):
        saver.sweeper(interval=0)


def test_the_life_of_a_thread_is_listed(saver: SqlSaver, clock: Clock) -> None:
    open_thread(saver, "t", ttl=7200.0)
    info = saver.threads.get("t")
    assert info is not None
    assert (info.agent, info.status, info.title) == ("demo", "running", "Title")
    assert info.created == info.last_access == datetime.fromtimestamp(START, UTC)
    assert info.expires_at == info.last_access + timedelta(hours=2)
    assert (info.pinned, info.parent, info.steps, info.stopped_because) == (False, None, 0, None)
    run(saver)
    clock.forward(1)
    saver.threads.close("t", status="failed", stopped_because="failed", error="it \x00 broke")
    info = saver.threads.get("t")
    assert info is not None
    assert (info.status, info.stopped_because, info.last_error) == (
        "failed",
        "failed",
        "it \x00 broke",
    )
    assert info.steps == len([*saver.list(config())])
    before = saver.threads.open("t", agent="other", ttl=None, run_id="2")
    assert before == info
    reopened = saver.threads.get("t")
    assert reopened is not None
    assert (reopened.agent, reopened.title, reopened.status) == ("other", "Title", "running")
    assert (reopened.last_error, reopened.expires_at) == (None, None)


def test_listing_by_page_agent_and_status(saver: SqlSaver, clock: Clock) -> None:
    for n in range(6):
        clock.forward(1)
        saver.threads.open(f"t{n}", agent="ab"[n % 2], ttl=60.0, run_id="r")
        if n < 3:
            saver.threads.close(f"t{n}", status="idle", stopped_because="done")
    first = saver.threads.list(limit=4)
    assert [one.thread_id for one in first] == ["t5", "t4", "t3", "t2"]
    rest = saver.threads.list(limit=4, before=first[-1].last_access)
    assert [one.thread_id for one in rest] == ["t1", "t0"]
    assert [one.thread_id for one in saver.threads.list(agent="a")] == ["t4", "t2", "t0"]
    assert [one.thread_id for one in saver.threads.list(status="idle", agent="b")] == ["t1"]


FILTERS = [{}, {"agent": "a"}, {"status": "failed"}, {"agent": "b", "status": "idle"}]


@pytest.mark.parametrize("asked", FILTERS)
def test_a_list_is_in_order_whatever_it_is_filtered_by(
    saver: SqlSaver, clock: Clock, asked: dict[str, Any]
) -> None:
    """Threads of one moment are in the order of their making; pages continue one another."""
    random, told = Random(1), []
    ends: list[Any] = ["idle", "waiting", "failed", None]
    for number in range(60):
        clock.forward(random.randrange(2))
        agent, end = random.choice("ab"), random.choice(ends)
        saver.threads.open(f"t{number}", agent=agent, ttl=None, run_id="r")
        if end is not None:
            saver.threads.close(f"t{number}", status=end, stopped_because="done")
        told.append({"agent": agent, "status": end or "running", "id": f"t{number}"})
    found = [one["id"] for one in reversed(told) if all(one[name] == asked[name] for name in asked)]
    assert 3 < len(found) < 61
    assert [one.thread_id for one in saver.threads.list(100, **asked)] == found
    assert [one.thread_id for one in saver.threads.list(3, **asked)] == found[:3]
    at = saver.threads.list(100, **asked)[len(found) // 2].last_access
    rest = [one for one in saver.threads.list(100, **asked) if one.last_access < at]
    assert saver.threads.list(100, at, **asked) == rest != []
    assert saver.threads.list(0, **asked) == []


@pytest.mark.parametrize("asked", FILTERS)
def test_a_list_sorts_nothing_and_reads_no_older_page(
    path: Path, saver: SqlSaver, asked: dict[str, Any]
) -> None:
    text = _listed(*asked).text
    plan = _plan(path, text, [None] * text.count("?"))
    assert plan[0] == "SEARCH threads USING INDEX threads_recent (tenant=? AND last_access<?)"
    assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN")]


def test_a_sweep_reads_expired_threads_alone(path: Path, saver: SqlSaver) -> None:
    query = select(threads.c.id).where(*expired(saver._core))
    first = _plan(path, *compiled(query))[0]
    assert first == "SEARCH threads USING INDEX threads_expiry (tenant=? AND expires_at<?)"


def _plan(path: Path, text: str, values: Sequence[Any]) -> list[str]:
    db = sqlite3.connect(path)
    db.create_function("wick_now", 0, lambda: 0.0)
    with contextlib.closing(db):
        return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]


@pytest.mark.parametrize("thread", ["", "a b", "a/b", "x" * 129, "naïve", "a\n", "a\x00", 7])
def test_an_impossible_thread_id_is_refused(saver: SqlSaver, thread: str) -> None:
    """D-18; the raw checkpointer takes any text."""
    threads = saver.threads
    for door in (threads.get, threads.delete, threads.touch, threads.pin):
        with pytest.raises(StorageError, match="thread id"):
            door(thread)
    with pytest.raises(StorageError, match="thread id"):
        open_thread(saver, thread)
    run(saver, thread)
    assert saver.get_tuple(config(thread)) is not None


def test_unknown_threads(saver: SqlSaver) -> None:
    assert saver.threads.get("none") is None
    assert saver.threads.delete("none") is False
    saver.threads.close("none", status="idle", stopped_because="done")
    assert saver.threads.list() == []
    for door in (saver.threads.touch, saver.threads.pin):
        with pytest.raises(ThreadNotFoundError, match="no thread 'none'"):
            door("none")
    with pytest.raises(StorageError, match="cannot end"):
        saver.threads.close("none", status="running", stopped_because="done")  # type: ignore[arg-type]  # the point


async def test_every_door_has_an_async_twin(saver: SqlSaver, clock: Clock) -> None:
    threads = saver.threads
    assert await threads.aopen("t", agent="a", ttl=60.0, run_id="r", title="x") is None
    info = await threads.aget("t")
    assert info is not None
    assert await threads.aopen("t", agent="a", ttl=60.0, run_id="s") == info
    await threads.apin("t")
    await threads.aclose("t", status="idle", stopped_because="done")
    await threads.atouch("t")
    (listed,) = await threads.alist(status="idle")
    assert listed.pinned
    assert await threads.adelete("t") is True
    assert await threads.adelete("t") is False


def test_tenants_do_not_see_each_other(url: str) -> None:
    with SqlSaver.from_url(url, tenant="a") as a, SqlSaver.from_url(url, tenant="b") as b:
        run(a)
        assert b.get_tuple(config()) is None
        assert [*b.list(None)] == []
        assert b.threads.list() == []
        assert b.threads.delete("t") is False
        run(b)
        b.delete_thread("t")
        assert a.get_tuple(config()) is not None


def test_the_time_to_live_of_a_foreign_graphs_thread(url: str) -> None:
    for ttl, seconds in (("30m", 1800.0), ("never", None), (90, 90.0), (None, None)):
        with SqlSaver.from_url(url, ttl=ttl) as saver:
            saver.clock = Clock()
            run(saver, f"t{ttl}")
            info = saver.threads.get(f"t{ttl}")
            assert info is not None
            expected = seconds and datetime.fromtimestamp(START + seconds, UTC)
            assert info.expires_at == expected


def test_namespaces_of_threads_have_times_of_their_own(url: str) -> None:
    """Threads of any graph: what stands before the first colon of an id is its namespace."""
    lives = {"": "1d", "scratch": "5m", "kept": "never"}
    with SqlSaver.from_url(url, ttl=lives) as saver:
        saver.clock = clock = Clock()
        for thread in ("plain", "scratch:1", "scratch:2:x", "kept:1", "scratch", "other:1"):
            run(saver, thread)
        clock.forward(6)
        assert saver.threads.due() == ["scratch:1", "scratch:2:x"]
        assert sorted(saver.sweep()) == ["scratch:1", "scratch:2:x"]
        clock.forward(24 * 60)
        assert sorted(saver.sweep()) == ["other:1", "plain", "scratch"]
        assert [info.thread_id for info in saver.threads.list()] == ["kept:1"]
    with pytest.raises(ConfigError, match="has a colon"):
        SqlSaver.from_url(url, ttl={"a:b": "1h"})


def test_an_agent_without_a_time_of_its_own_has_the_namespaces(url: str) -> None:
    with SqlSaver.from_url(url, ttl={"": "7d", "scratch": "5m", "kept": "never"}) as saver:
        saver.clock = clock = Clock()
        own = Agent("own", ScriptedModel(["ok"] * 9), store=saver, ttl="10m")
        stores = Agent("stores", ScriptedModel(["ok"] * 9), store=saver)
        for thread in ("plain", "scratch:1", "kept:1"):
            stores.invoke("go", thread_id=thread)
        own.invoke("go", thread_id="kept:2")
        clock.forward(11)
        assert sorted(saver.sweep()) == ["kept:2", "scratch:1"]
        clock.forward(8 * 24 * 60)
        assert saver.sweep() == ["plain"]


def test_agents_of_one_store_have_times_of_their_own(url: str, tmp_path: Path) -> None:
    text = """
        defaults: {{model: "scripted:demo", ttl: 2h}}
        agents:
          short: {{ttl: 5m}}
          long: {{ttl: 7d}}
          usual: {{}}
          kept: {{ttl: never}}
        store: "{url}"
        """
    file = tmp_path / "agents.yaml"
    file.write_text(textwrap.dedent(text.format(url=url)), encoding="utf-8")
    with load(file) as agents:
        store, clock = agents.store, Clock()
        store.clock = clock
        for name in ("short", "long", "usual", "kept"):
            agents[name].invoke("go", thread_id=name)
        gone = []
        for minutes in (6, 120, 7 * 24 * 60):
            clock.forward(minutes)
            gone.append(store.sweep())
        assert gone == [["short"], ["usual"], ["long"]]
        assert store.threads.get("kept") is not None


def test_the_history_of_a_thread_is_read_in_pages(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wick_graph.store.checkpoint_list._PAGE", 4)
    run(saver)
    run(saver)
    expected = [one.config["configurable"]["checkpoint_id"] for one in saver.list(config())]
    reads: list[int] = []
    reading = saver._core.reading

    def counted(thread_id: str | None = None) -> object:
        reads.append(1)
        return reading(thread_id)

    monkeypatch.setattr(saver._core, "reading", counted)
    steps = iter(saver.threads.history("t"))
    assert reads == []
    first = [next(steps) for _ in range(4)]
    assert len(reads) == 1
    rest = [*steps]
    assert [one.checkpoint_id for one in (*first, *rest)] == expected
    assert [one.parent_id for one in (*first, *rest)] == [*expected[1:], None]
    assert (rest[-1].source, rest[-1].step) == ("input", -1)
    assert first[0].at >= rest[-1].at
    page = [*saver.threads.history("t", limit=3, before=expected[2])]
    assert [one.checkpoint_id for one in page] == expected[3:6]
    assert [*saver.threads.history("t", limit=0)] == []


async def test_the_history_of_a_thread_in_a_loop(saver: SqlSaver) -> None:
    await agent(saver).ainvoke({"messages": [HumanMessage("hello")]}, config())
    steps = [one async for one in saver.threads.history("t", limit=5)]
    assert steps == [*saver.threads.history("t", limit=5)]
    with pytest.raises(ThreadNotFoundError, match="no thread 'none'"):
        [*saver.threads.history("none")]


def test_a_run_that_lost_its_thread_unnoticed_does_not_end_the_other_one(
    saver: SqlSaver, url: str
) -> None:
    frozen = saver.leases.acquire("t")
    with SqlSaver.from_url(url) as other:
        lease = other.leases.acquire("t", force=True)
        other.threads.open("t", agent="a", ttl=60.0, run_id="r")
        saver.threads.note_end(frozen, status="failed", stopped_because="failed")
        saver.leases.release(frozen)
        known = other.threads.get("t")
        assert known is not None
        assert (known.status, known.stopped_because) == ("running", None)
        other.threads.note_end(lease, status="idle", stopped_because="done")
        other.leases.release(lease)
        known = other.threads.get("t")
        assert known is not None
        assert known.stopped_because == "done"


def test_a_lease_of_a_deleted_thread_opens_no_new_one_of_its_name(saver: SqlSaver) -> None:
    stale = saver.leases.acquire("t")
    saver.leases.release(stale)
    assert saver.threads.delete("t")

    def opened() -> None:
        with saver.leases.opening("t"):
            saver.leases.acquire("t")  # it makes the thread, in this write
            saver.threads.open("t", agent="a", ttl=None, run_id="r", lease=stale)

    with pytest.raises(ThreadBusyError, match="taken over"):
        saver.leases.together(opened)
