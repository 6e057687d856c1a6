"""The rows: deleted with their thread, copied with it; damage is told, and nothing gets lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.engine.support import Door
from tests.journal.conftest import Opener
from tests.journal.support import agent_of, on_both
from tests.store.conftest import Outside
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.journal import Journal
from wick_graph.journal.journal import line_of
from wick_graph.store import SqlSaver, journal_rows
from wick_graph.store.checkpoint_write import StepTransaction
from wick_graph.store.digests import PLACES
from wick_graph.store.journal_rows import Batch
from wick_graph.store.leases import Leases
from wick_graph.testing import ScriptedModel, call

TABLES = ("runs", "moments", "blobs")


def counts(outside: Outside) -> dict[str, int]:
    return {table: outside.count(table) for table in TABLES}


def recorded(url: str, *threads: str) -> None:
    agent, _ = agent_of(url)
    for thread in threads:
        agent.invoke("add", thread_id=thread)
    agent.close()


def _delete(saver: SqlSaver) -> None:
    saver.threads.delete("t")


def _sweep(saver: SqlSaver) -> None:
    now = saver.clock() + 7_200
    saver.clock = lambda: now
    assert sorted(saver.sweep()) == ["t", "u"]


def _of_runs(saver: SqlSaver) -> None:
    for thread in ("t", "u"):
        saver.delete_for_runs([run.run_id for run in Journal(saver, thread).runs()])


@on_both
def test_deletion_leaves_no_row(url: str, outside: Outside) -> None:
    recorded(url, "t", "u")
    before = counts(outside)
    assert all(before.values())
    with SqlSaver.from_url(url) as saver:
        _delete(saver)
    half = counts(outside)
    assert half["runs"] == 1
    assert all(0 < half[table] < before[table] for table in TABLES)
    with SqlSaver.from_url(url) as saver:
        assert Journal(saver, "u").problems() == []
        saver.threads.delete("u")
    assert not any(counts(outside).values())


@on_both
def test_the_sweeper_takes_the_journal_along(url: str, outside: Outside) -> None:
    recorded(url, "t", "u")
    with SqlSaver.from_url(url) as saver:
        _sweep(saver)
    assert not any(counts(outside).values())


@on_both
def test_deleted_runs_take_their_moments_along(url: str, outside: Outside) -> None:
    recorded(url, "t", "u")
    with SqlSaver.from_url(url) as saver:
        _of_runs(saver)
        assert Journal(saver, "t").runs() == []
        assert list(Journal(saver, "t").moments()) == []
    assert not any(counts(outside).values())


@on_both
def test_a_copied_thread_has_the_whole_journal(url: str) -> None:
    recorded(url, "t")
    with SqlSaver.from_url(url) as saver:
        saver.copy_thread("t", "copy")
        one, other = Journal(saver, "t"), Journal(saver, "copy")
        assert [m.what for m in other.moments()] == [m.what for m in one.moments()]
        last = other.last()
        assert other.request_at(last).messages == one.request_at(last).messages
        assert other.request_at(last).exact
        saver.threads.delete("t")
        assert other.problems() == []
        assert other.request_at(last).exact


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, values).rowcount == 1
    db.close()


def page(path: Path, at: int) -> int:
    with closing(sqlite3.connect(path)) as db, db:
        rids = [row[0] for row in db.execute("SELECT rid FROM moments ORDER BY rid")]
    db.close()
    return int(rids[at])


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        pytest.param("UPDATE moments SET body = x'00' WHERE rid = ?", "damaged", id="damaged"),
        pytest.param("DELETE FROM moments WHERE rid = ?", "missing", id="missing"),
    ],
)
def test_what_cannot_be_read_is_told_and_hides_nothing_else(
    url: str, path: Path, opened: Opener, harm: str, word: str
) -> None:
    recorded(url, "t")
    whole = list(opened().moments())
    rid = page(path, 2)
    gone = [m for m in whole if page(path, 1) < rid - rid % 2**32 + m.seq <= rid]
    change(path, harm, rid)
    journal = opened()
    first, last = gone[0].seq, gone[-1].seq
    gap = [m for m in journal.moments() if m.kind == "gap"]
    assert [(m.phase, m.seq, m.fields["first"]) for m in gap] == [(word, last, first)]
    assert journal.problems() == [gap[0].error]
    assert [m for m in journal.moments() if m.kind != "gap"] == [m for m in whole if m not in gone]
    back = list(journal.backwards())
    assert [m.seq for m in back if m.kind == "gap"] == [last]
    assert [m for m in back if m.kind != "gap"] == [m for m in whole if m not in gone][::-1]
    with pytest.raises(StorageError, match=f"moment {first} cannot be read"):
        journal.moment(first)
    assert journal.moment(last + 1) == whole[last]


def test_a_damaged_run_row_is_told_and_does_not_keep_the_thread_from_going_on(
    url: str, path: Path, opened: Opener
) -> None:
    recorded(url, "t")
    whole = [m.what for m in opened().moments()]
    change(path, "UPDATE runs SET body = x'00'")
    journal = opened()
    assert journal.problems() == ["run 1 is damaged"]
    assert [m.what for m in journal.moments()] == whole
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel(["more"], cursor="fifo"))
    agent.invoke("and?", thread_id="t")
    agent.close()
    again = opened()
    assert [run.number for run in again.runs()] == [1, 2]
    entered = [m.step for m in again.moments(kind="node.enter")]
    assert entered == list(range(1, len(entered) + 1))


def test_a_missing_value_is_told_where_it_is_needed(url: str, path: Path, opened: Opener) -> None:
    recorded(url, "t")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM blobs WHERE hash <> x''")
    db.close()
    journal = opened()
    request = next(journal.moments(kind="model.request"))
    assert "a value is missing" in journal.details(request)["missing"]
    with pytest.raises(StorageError, match="a value is missing"):
        journal.request_at(request.seq)
    assert journal.state_at(request.seq).values["messages"]
    lines = [line_of(journal, moment) for moment in journal.moments(kind="route.taken")]
    assert lines
    assert all("· route  (table blobs of thread 't' is damaged" in line for line in lines)


def test_a_commit_that_fails_loses_no_moment(
    door: Door, url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is written before the step's own rows: an error there takes both back."""
    stored: Callable[..., None] = StepTransaction.checkpoint
    failures = iter([True])

    def fails_once(self: StepTransaction, *args: Any, **kwargs: Any) -> None:
        stored(self, *args, **kwargs)
        if args[0]["channel_values"].get("iteration") == 1 and next(failures, False):
            raise RuntimeError("no more")

    monkeypatch.setattr(StepTransaction, "checkpoint", fails_once)
    agent, _ = agent_of(url, hooks=[])
    with pytest.raises(Exception, match="no more"):
        door(agent, "add", thread_id="t")
    agent.close()
    journal = opened()
    assert journal.problems() == []
    seen = list(journal.moments())
    assert [m.seq for m in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].what == "run.error"
    assert "model.response" in {m.what for m in seen}


def act() -> str:
    """Act."""
    return "acted"


@on_both
def test_another_thread_s_failing_write_takes_no_last_moment_with_it(
    door: Door, url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rolls back what waits for its commit, and nothing is recorded after the last moment."""
    saver = SqlSaver.from_url(url)
    given_up: Callable[..., None] = Leases.give_up

    def disturbed(self: Leases, *args: Any) -> None:
        given_up(self, *args)
        with suppress(ValueError), saver._core.writing("other"):
            raise ValueError("it fails")

    monkeypatch.setattr(Leases, "give_up", disturbed)
    agent, _ = agent_of(saver, model=ScriptedModel(["Done."]))
    door(agent, "add", thread_id="t")
    saver.close()
    journal = opened()
    seen = list(journal.moments())
    assert [m.seq for m in seen] == list(range(1, len(seen) + 1))
    assert (seen[-1].what, journal.problems()) == ("run.exit", [])
    assert [run.status for run in journal.runs()] == ["ended"]


@pytest.mark.parametrize("database", ["sqlite"])
@pytest.mark.parametrize("first", [2, 3, 4])
def test_a_second_failing_write_loses_no_moment(
    door: Door, first: int, url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be written again fails again: the new moments behind it were taken already."""
    add, writes = journal_rows._add, count(1)

    def failing(*given: Any) -> None:
        if next(writes) in (first, first + 1):
            raise sqlite3.OperationalError("disk I/O error")
        add(*given)

    monkeypatch.setattr(journal_rows, "_add", failing)
    with SqlSaver.from_url(url) as saver:
        agent = Agent(model=ScriptedModel([call("act"), "Done."]), tools=[act], store=saver)
        with suppress(StorageError):
            door(agent, "Act", thread_id="t")
    journal = opened()
    seen = list(journal.moments())
    assert [m.seq for m in seen] == list(range(1, len(seen) + 1))
    assert journal.problems() == []


@on_both
def test_a_fork_is_a_branch_that_counts_on_from_where_it_left(
    door: Door, url: str, opened: Opener
) -> None:
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel(["one", "two", "three"], cursor="fifo"))
    door(agent, "a", thread_id="t")
    config: Any = {"configurable": {"thread_id": "t"}}
    old = agent.graph.get_state(config).config
    door(agent, "b", thread_id="t")
    agent.graph.invoke({"messages": [("user", "c")]}, old)
    agent.close()
    journal = opened()
    assert [run.branch for run in journal.runs()] == [0, 0, 1]
    own = list(journal.moments(kind="node.enter", branch=1))
    assert [m.step for m in own] == [4, 5, 6]
    assert [m.visit for m in own] == [2, 2, 2]
    first = list(journal.moments(kind="node.enter", branch=0))
    assert [m.step for m in first] == list(range(1, 7))
    texts = [m.text for m in journal.request_at(journal.last()).messages]
    assert texts == ["You add numbers.", "a", "one", "c"]
    every = [m.seq for m in journal.moments()]
    assert every == sorted(set(every))


def test_threads_in_memory_are_recorded_too(door: Door) -> None:
    agent, _ = agent_of(None)
    door(agent, "add", thread_id="t")
    journal = Journal(agent.store, "t")  # type: ignore[arg-type]  # ours
    assert journal.request_at(journal.last()).exact


def test_other_savers_and_no_saver_are_left_alone(door: Door) -> None:
    for store in (InMemorySaver(), False):
        agent, _ = agent_of(store)
        assert door(agent, "add", thread_id="t").text == "Done."


def test_what_one_writer_of_a_commit_adds_is_kept_when_another_one_fails(tmp_path: Path) -> None:
    """Its pages are added again by the next write: no moment is lost."""
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/rows.db") as saver:
        core, rows = saver._core, saver.journal_rows("t")

        def add(number: int, fail: bool = False) -> None:
            with core.writing("t") as db:
                thread = core.thread_for_writing(db, "t").id
                rows.write(db, thread, Batch(page=(number, b"page")))
                if fail:
                    raise ValueError("it fails")

        with core.batch():
            add(1)
            with pytest.raises(ValueError, match="it fails"):
                add(2, fail=True)
        add(3)
        with core.reading("t") as db:
            found = [row[0] & PLACES for row in db.execute("SELECT rid FROM moments").fetchall()]
    assert found == [1, 2, 3]
