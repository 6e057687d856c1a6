"""What is kept and what goes: each reason to stay by itself, and each bound."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.store.conftest import Outside
from tests.store.test_store_sharing import Line
from tests.store.test_store_threads import START, Clock
from tests.support.orphans import assert_no_orphans
from wick_graph.store import SqlSaver, cleanup

RUN = "11111111-1111-4111-8111-111111111111"
TTL = 3_600.0


@pytest.fixture
def clock(saver: SqlSaver) -> Clock:
    made = Clock()
    saver.clock = made
    return made


def opened(saver: SqlSaver, thread: str = "t") -> None:
    saver.threads.open(thread, agent="demo", ttl=TTL, run_id=RUN)


def idle(saver: SqlSaver, thread: str = "t") -> None:
    opened(saver, thread)
    saver.threads.close(thread, status="idle", stopped_because="done")


def waiting(saver: SqlSaver) -> None:
    opened(saver)
    saver.threads.close("t", status="waiting", stopped_because="interrupted")


def pinned(saver: SqlSaver) -> None:
    idle(saver)
    saver.threads.pin("t")


def held(saver: SqlSaver) -> None:
    """A run of this process; its lease looks over, since nobody renewed it by this clock."""
    saver.leases.acquire("t")
    opened(saver)


def unpinned(saver: SqlSaver) -> None:
    saver.threads.pin("t", on=False)


def ended(saver: SqlSaver) -> None:
    saver.threads.close("t", status="idle", stopped_because="done")


@pytest.mark.parametrize(
    ("keep", "let_go"),
    [
        pytest.param(opened, ended, id="running"),
        pytest.param(held, ended, id="running, with a lease"),
        pytest.param(waiting, ended, id="waiting"),
        pytest.param(pinned, unpinned, id="pinned"),
    ],
)
def test_running_waiting_and_pinned_threads_are_never_swept(
    saver: SqlSaver,
    clock: Clock,
    keep: Callable[[SqlSaver], None],
    let_go: Callable[[SqlSaver], None],
) -> None:
    keep(saver)
    for _ in range(3):
        clock.forward(100 * TTL / 60)
        assert saver.sweep() == []
    let_go(saver)
    clock.forward(100 * TTL / 60)
    assert saver.sweep() == ["t"]
    assert_no_orphans(saver)


def test_a_thread_is_kept_for_its_whole_time_and_no_longer(saver: SqlSaver, clock: Clock) -> None:
    """The time begins anew when a run ends, and when the thread is looked at."""
    opened(saver)
    clock.time = START + 1_800
    saver.threads.close("t", status="idle", stopped_because="done")
    clock.time = START + 1_800 + TTL - 1
    assert saver.sweep() == []
    clock.time = START + 1_800 + TTL - 0.5
    assert saver.threads.get("t") is not None
    clock.time += TTL - 1
    assert saver.sweep() == []
    clock.time += 2
    assert saver.sweep() == ["t"]


@pytest.fixture
def anna(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url, tenant="anna") as store:
        yield store


@pytest.fixture
def ben(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url, tenant="ben") as store:
        yield store


def test_a_sweep_takes_its_own_tenants_threads_alone(anna: SqlSaver, ben: SqlSaver) -> None:
    clock = Clock()
    anna.clock = ben.clock = clock
    for store in (anna, ben):
        idle(store)
    clock.forward(100 * TTL / 60)
    assert anna.threads.due() == ["t"]
    assert anna.sweep() == ["t"]
    assert anna.threads.get("t") is None
    assert [info.thread_id for info in ben.threads.list()] == ["t"]


def test_a_tenant_finds_its_own_threads_alone(anna: SqlSaver, ben: SqlSaver) -> None:
    idle(anna)
    assert ben.threads.list() == []
    assert ben.threads.get("t") is None
    assert not ben.threads.delete("t")
    idle(ben, "u")
    assert [info.thread_id for info in anna.threads.list()] == ["t"]


def test_a_tenant_finds_its_own_runs_alone(anna: SqlSaver, ben: SqlSaver) -> None:
    asked = {"agent": "default", "kind": "message", "messages": []}
    assert anna.streams.begin("t", RUN, asked, key=b"k" * 32) is not None
    assert ben.streams.by_run(RUN) is None
    assert ben.streams.by_key(b"k" * 32) is None
    assert ben.streams.running() == ben.streams.latest(10) == []
    found = anna.streams.by_run(RUN)
    assert found is not None
    assert anna.streams.by_key(b"k" * 32) == found


def test_a_deletion_takes_a_bounded_number_of_rows_at_a_time(
    saver: SqlSaver, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(saver)
    log: list[str] = []
    for n in range(30):
        log.append(f"entry {n} " + "x" * 200)
        line.put(log=[*log])
    batch = 7
    monkeypatch.setattr(sys.modules[cleanup.remove.__module__], "BATCH", batch)
    items = outside.count("items")
    assert items >= 30
    seen: list[int] = []
    removed = cleanup._remove_some

    def watched(db: Any, group: Sequence[int]) -> bool:
        before = db.execute("SELECT count(*) FROM items").fetchone()[0]
        more = removed(db, group)
        seen.append(before - db.execute("SELECT count(*) FROM items").fetchone()[0])
        return more

    monkeypatch.setattr(cleanup, "_remove_some", watched)
    saver.threads.delete("t")
    assert sum(seen) == items
    assert max(seen) <= batch
    assert_no_orphans(saver)


def test_appending_writes_one_row(saver: SqlSaver, outside: Outside) -> None:
    """However long the list is, and whoever made it."""
    line = Line(saver)
    log = [f"entry {n} " + "x" * 200 for n in range(50)]
    line.put(log=[*log])
    for n in range(50, 60):
        before = outside.count("items")
        log = [*log, f"entry {n} " + "x" * 200]
        line.put(log=[*log])
        assert outside.count("items") == before + 1
    assert line.get() == {"log": log}


def test_pruning_keeps_what_other_rows_point_to(
    saver: SqlSaver, url: str, outside: Outside
) -> None:
    """Of two messages with one text the second's row points to the first's, which goes."""
    text = "the very same words " * 20
    first, second = HumanMessage(text, id="a"), HumanMessage(text, id="b")
    line = Line(saver)
    line.put(log=[first])
    line.put(log=[first, second])
    line.put(log=[second])
    assert outside.run("SELECT count(*) FROM items WHERE base IS NOT NULL")[0][0] > 0
    saver.threads.keep_latest("t", 1)
    with SqlSaver.from_url(url) as fresh:  # which remembers nothing
        found = fresh.get_tuple({"configurable": {"thread_id": "t"}})
    assert found is not None
    assert found.checkpoint["channel_values"] == {"log": [second]}
