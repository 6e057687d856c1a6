"""What the journal costs, in things that can be counted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.journal.conftest import Opener
from tests.journal.support import Guard, Todo, agent_of
from wick_graph.store import SqlSaver
from wick_graph.store.digests import PLACES
from wick_graph.testing import ScriptedModel, call

TURNS = 30


def run(url: str, level: Any, hooks: Any = ()) -> tuple[int, int]:
    """Return the commits and the bytes of a run."""
    script: list[Any] = [*[call("add", a=n, b=1) for n in range(TURNS)], "done"]
    with SqlSaver.from_url(url) as saver:
        commits: list[str] = []
        saver._core._connection.set_trace_callback(  # type: ignore[union-attr]  # open
            lambda statement: commits.append(statement) if statement == "COMMIT" else None
        )
        agent, _ = agent_of(
            saver,
            hooks=hooks,
            model=ScriptedModel(script, record_calls=False),
            journal=level,
            max_iterations=TURNS + 1,
        )
        agent.invoke("a question of some length, as people ask", thread_id="t")
    return len(commits), Path(url.removeprefix("sqlite:///")).stat().st_size


@pytest.mark.parametrize("level", ["steps", "full"])
def test_a_journal_adds_no_commit_and_few_bytes(level: str, tmp_path: Path) -> None:
    commits, size = run(f"sqlite:///{tmp_path}/off.db", "off")
    with_journal, larger = run(f"sqlite:///{tmp_path}/on.db", level)
    # A commit of the journal's own would be one for each step; slow flushes come between some.
    assert with_journal - commits < TURNS
    assert larger <= size * 1.5


def test_a_step_writes_the_same_at_the_end_as_at_the_beginning(url: str, path: Path) -> None:
    run(url, "steps", [Todo(), Guard()])
    with closing(sqlite3.connect(path)) as db, db:
        pages = db.execute("SELECT rid, length(body) FROM moments ORDER BY rid").fetchall()
        blobs = db.execute("SELECT count(*) FROM blobs").fetchone()[0]
    db.close()
    first, last = (rid & PLACES for rid, _ in (pages[0], pages[-1]))
    tenth = (last - first) // 10

    def written(low: int, high: int) -> int:
        return sum(size for rid, size in pages if low <= (rid & PLACES) - first < high)

    # By moments: a slow machine cuts more pages. What grows would be three times as large.
    assert written(7 * tenth, 10 * tenth) <= 1.3 * written(tenth, 4 * tenth)
    assert blobs < 15 + 2 * TURNS  # each call's changed arguments, and nothing that grows


def test_a_request_does_not_copy_the_history(url: str, path: Path, opened: Opener) -> None:
    script: list[Any] = [*[call("add", a=n, b=1) for n in range(TURNS)], "done"]
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel(script), max_iterations=TURNS + 1)
    agent.invoke("needle " * 500, thread_id="t")
    agent.close()
    held = path.read_bytes().count(b"needle needle")
    assert held <= 520  # once in the thread, and a little of it in its title
    last = list(opened().moments(kind="model.request"))[-1]
    assert opened().request_at(last.seq).messages[1].text.startswith("needle")
