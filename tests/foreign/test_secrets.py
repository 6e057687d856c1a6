"""A secret in state, arguments or tracebacks of any graph reaches no page and no export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from tests.foreign.graphs import calls, config, model
from wick_graph.debug import record
from wick_graph.exports.chrome import as_chrome
from wick_graph.exports.page import as_page
from wick_graph.exports.plain import Hider, as_jsonl
from wick_graph.exports.wickrun import open_wickrun, write_wickrun
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver

SECRET = "tok-9876543210-secret"


@tool
def send(text: str) -> str:
    """Send a text."""
    raise ValueError(f"refused: {text}")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run with the secret in its input, its calls, a tool's error and the run's error."""
    monkeypatch.setenv("OTHER_API_KEY", SECRET)
    with SqlSaver.from_url("sqlite://") as saver:
        asked = calls(("send", {"text": f"key {SECRET}"}))
        graph: Any = create_agent(model(asked, "done"), tools=[send], checkpointer=saver)
        where: Any = config()
        with record() as recording, pytest.raises(ValueError, match="refused"):
            graph.invoke({"messages": [("user", f"use {SECRET}")]}, where)
        assert recording.problems == []
        assert recording.moments("tool.error")
        yield Journal(saver, where["configurable"]["thread_id"])


def test_no_page_holds_it(journal: Journal) -> None:
    rows = journal.rows
    with journal.reading() as db:
        thread = rows.thread(db)
        kept = [body for _, body in rows.contents(db, thread)]
        kept += [page.body or b"" for page in rows.pages(db, thread, 0)]
    assert kept
    assert not any(SECRET.encode() in body for body in kept)
    ends = ("tool.error", "node.error", "run.error", "run.enter")  # a reply is the state's own
    told = str([journal.details(moment) for moment in journal.moments() if moment.what in ends])
    assert "•••" in told
    assert "in send" in told
    assert SECRET not in told


def test_no_export_holds_it(journal: Journal, tmp_path: Path) -> None:
    forms = [
        as_page(journal, Hider.of(journal)),
        as_chrome(journal, Hider.of(journal)),
        "\n".join(as_jsonl(journal, Hider.of(journal))),
    ]
    assert all("send" in form for form in forms)
    assert not any(SECRET in form for form in forms)
    file = tmp_path / "run.wickrun"
    write_wickrun(journal, journal.saver, file, Hider.of(journal))
    assert SECRET.encode() not in file.read_bytes()
    with open_wickrun(file) as opened:
        told = [opened.journal.details(moment) for moment in opened.journal.moments()]
        held: list[Any] = [one.checkpoint for one in opened.saver.list(None)]
        held += [one.pending_writes for one in opened.saver.list(None)]
        assert told
        assert held
        assert SECRET not in str(told) + str(held)
