"""A journal is read up to a moment, and tells of moments that another one has read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.journal.conftest import Opener
from tests.journal.support import agent_of
from tests.journal.test_lost import killed, run_fatally
from wick_graph.errors import StorageError
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.store.dialect import Database
from wick_graph.testing import ScriptedModel, call


@pytest.fixture
def saver(url: str) -> Iterator[SqlSaver]:
    """A thread of two runs, each with one call of a tool."""
    with SqlSaver.from_url(url) as made:
        for number in (1, 2):
            script: list[Any] = [call("add", a=number, b=1), "Done."]
            model = ScriptedModel(script, cursor="fifo")
            agent_of(made, model=model)[0].invoke("add", thread_id="t")
        yield made


def test_nothing_behind_the_last_moment_is_read(saver: SqlSaver) -> None:
    whole = Journal(saver, "t")
    seen = list(whole.moments())
    for upto in (0, 1, len(seen) // 2, len(seen) - 1, len(seen), len(seen) + 9):
        part = Journal(saver, "t", upto=upto)
        assert list(part.moments()) == seen[:upto]
        assert list(part.backwards()) == seen[:upto][::-1]
        assert list(part.backwards(before=3)) == seen[: min(upto, 2)][::-1]
        assert part.last() == min(upto, len(seen))
        if upto < len(seen):
            with pytest.raises(StorageError, match=f"its last one is {upto}"):
                part.moment(upto + 1)


def test_answers_behind_the_last_moment_are_not_given(saver: SqlSaver) -> None:
    whole = Journal(saver, "t")
    first, second = whole.runs()
    assert [len(list(whole.replies())), len(list(whole.results()))] == [4, 2]
    early = Journal(saver, "t", upto=second.first - 1)
    assert list(early.replies()) == list(whole.replies(first.number))
    assert list(early.results()) == list(whole.results(first.number))
    assert len(early.runs()) == 2  # what runs there are does not depend on it


def test_what_lost_its_process_is_read_up_to_a_moment_too(url: str, opened: Opener) -> None:
    killed(lambda: run_fatally(url))
    seen = list(opened().moments())
    lost = [m.seq for m in seen if m.phase == "lost"]
    with SqlSaver.from_url(url) as saver:
        part = Journal(saver, "t", upto=lost[0])
        assert list(part.moments()) == seen[: lost[0]]
        assert list(part.backwards()) == seen[: lost[0]][::-1]
        assert part.last() == lost[0]


def test_a_journal_tells_of_moments_that_another_one_read(saver: SqlSaver) -> None:
    reader = Journal(saver, "t")
    for moment in reader.moments():
        other = Journal(saver, "t")
        assert other.to_dict(moment) == reader.to_dict(moment)


@pytest.mark.parametrize("keep", [0, 4])
def test_a_checkpoint_is_read_once_where_it_is_kept(
    keep: int, saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(saver, "t", keep=keep)
    asked: list[str] = []
    read = journal.rows.checkpoint

    def counted(db: Database, name: str) -> Any:
        """Count what the store is asked; the answers are its own."""
        asked.append(name)
        return read(db, name)

    monkeypatch.setattr(journal.rows, "checkpoint", counted)
    exits = list(journal.moments(kind="tool.exit"))
    told = [journal.details(moment) for moment in exits for _ in range(3)]
    assert told == [Journal(saver, "t").details(moment) for moment in exits for _ in range(3)]
    assert len(asked) == (2 if keep else 6)
