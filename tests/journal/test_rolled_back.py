"""A transaction that is rolled back takes no moment with it, and gives none to another thread."""

from __future__ import annotations

import uuid
from pathlib import Path
from sqlite3 import OperationalError
from unittest.mock import Mock

import pytest

from tests.journal.conftest import Opener
from tests.journal.support import on_both
from wick_graph.core.moments import JournalOptions, Moment
from wick_graph.errors import StorageError
from wick_graph.journal.run_start import Begun
from wick_graph.journal.shared import RunJournal
from wick_graph.store import SqlSaver
from wick_graph.store.digests import PLACES
from wick_graph.store.journal_rows import Batch, JournalRows
from wick_graph.store.verify import verify


def recorded(saver: SqlSaver, name: str) -> RunJournal:
    """Begin to record a run of a graph that holds no lease."""
    about = {"agent": name, "model": "", "hooks": [], "graph": "", "code": "", "versions": {}}
    begun = Begun(run_id=str(uuid.uuid4()), mode="input", about=about, model=None)
    run = RunJournal(lambda: (None, begun), JournalOptions())
    run.open(saver, "t")
    run.record(Moment("run", "enter", name, {"input": {}}))
    return run


def ended(run: RunJournal) -> None:
    run.record(Moment("run", "exit", "", {"stopped_because": "done"}))
    run.close()


def write(saver: SqlSaver, error: Exception | None = None) -> None:
    """Write to the thread as a step does, with the moments that wait; then fail."""
    core, recorder = saver._core, saver.journal_rows("t").recorder()
    assert recorder is not None
    with core.writing("t") as db:
        recorder.along(db, core.thread_for_writing(db, "t").id)
        if error is not None:
            raise error


@on_both
def test_a_recording_moves_to_the_number_that_its_thread_has_at_last(
    url: str, opened: Opener
) -> None:
    """The transaction that made the thread failed; the next thread may have its number then."""
    with SqlSaver.from_url(url) as saver:
        run = recorded(saver, "graph")
        with pytest.raises(ValueError, match="it fails"):
            write(saver, ValueError("it fails"))
        with saver._core.writing("other") as db:
            saver._core.thread_for_writing(db, "other")
        write(saver)
        ended(run)
        assert verify(saver).findings == []
    journal = opened()
    assert [m.what for m in journal.moments()] == ["run.enter", "run.exit"]
    assert [one.status for one in journal.runs()] == ["ended"]
    assert opened("other").runs() == []


def test_a_database_that_fails_for_a_moment_stops_no_recording(
    url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails the whole write; what was not written waits for the next one."""
    with SqlSaver.from_url(url) as saver:
        run = recorded(saver, "graph")
        for broken in ("pages", "last"):
            with monkeypatch.context() as patch:
                name = "last" if broken == "last" else "_put"
                patch.setattr(JournalRows, name, Mock(side_effect=OperationalError("disk full")))
                with pytest.raises(StorageError, match="disk full"):
                    write(saver)
            run.record(Moment("node", "enter", broken, {"input": {}}))
        write(saver)
        ended(run)
        assert run.problem == ""
    journal = opened()
    assert [(m.seq, m.what) for m in journal.moments()] == [
        (1, "run.enter"),
        (2, "node.enter"),
        (3, "node.enter"),
        (4, "run.exit"),
    ]
    assert [one.status for one in journal.runs()] == ["ended"]


@on_both
def test_a_write_that_fails_within_a_shared_commit_stops_no_recording(
    url: str, opened: Opener
) -> None:
    """Other moments of the same commit are no other process's."""
    with SqlSaver.from_url(url) as saver:
        run = recorded(saver, "graph")
        with saver._core.batch():
            write(saver)
            run.record(Moment("node", "enter", "one", {"input": {}}))
            with pytest.raises(ValueError, match="it fails"):
                write(saver, ValueError("it fails"))
            run.record(Moment("node", "enter", "two", {"input": {}}))
            write(saver)
        ended(run)
        assert run.problem == ""
        assert verify(saver).findings == []
    journal = opened()
    assert [(m.seq, m.what) for m in journal.moments()] == [
        *enumerate(("run.enter", "node.enter", "node.enter", "run.exit"), 1)
    ]
    assert [one.status for one in journal.runs()] == ["ended"]


@on_both
def test_a_run_that_a_debugger_holds_has_its_number_before_another_begins(
    url: str, opened: Opener
) -> None:
    with SqlSaver.from_url(url) as saver, SqlSaver.from_url(url) as other:
        run = recorded(saver, "mine")
        run.begin()
        ended(recorded(other, "theirs"))
        ended(run)
        assert verify(saver).findings == []
    found = opened().runs()
    assert [(one.agent, one.status) for one in found] == [("mine", "ended"), ("theirs", "ended")]


@pytest.mark.parametrize("at_once", [True, False])
def test_another_process_keeps_the_numbers_that_a_failed_write_had(
    url: str, opened: Opener, at_once: bool
) -> None:
    """Also if its first page ends with the same moment as the one that failed."""
    with SqlSaver.from_url(url) as saver, SqlSaver.from_url(url) as other:
        run = recorded(saver, "mine")
        with pytest.raises(ValueError, match="it fails"):
            write(saver, ValueError("it fails"))
        theirs = recorded(other, "theirs")
        if not at_once:
            write(other)
        ended(theirs)
        ended(run)
        assert "another process recorded meanwhile" in run.problem
        ended(recorded(saver, "next"))
    journal = opened()
    assert [(m.seq, m.what) for m in journal.moments()] == [
        *enumerate(("run.enter", "run.exit", "run.enter", "run.exit"), 1)
    ]
    assert [(one.agent, one.status) for one in journal.runs()] == [
        ("theirs", "ended"),
        ("next", "ended"),
    ]
    assert journal.problems() == []


def test_a_page_outlives_a_failure_in_the_middle_of_making_up_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/rows.db") as saver:
        core, rows = saver._core, saver.journal_rows("t")

        def add(number: int, error: Exception | None = None) -> None:
            with core.writing("t") as db:
                thread = core.thread_for_writing(db, "t").id
                rows.write(db, thread, Batch(page=(number, b"page"), first=number))
                if error is not None:
                    raise error

        with pytest.raises(ValueError, match="it fails"):
            add(1, ValueError("it fails"))
        with monkeypatch.context() as patch:
            patch.setattr(JournalRows, "_put", Mock(side_effect=OperationalError("disk full")))
            with pytest.raises(StorageError, match="disk full"):
                add(2)
        add(3)
        with core.reading("t") as db:
            found = [row[0] & PLACES for row in db.execute("SELECT rid FROM moments").fetchall()]
    assert found == [1, 2, 3]
