from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.support import add, agent_of
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.tools import tool


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agents.yaml").write_text(
        "store: sqlite:///store.db\nagents:\n  other: {model: scripted}\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/store.db"


@pytest.fixture
def saver(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url) as saver:
        yield saver


@pytest.fixture
def journal(saver: SqlSaver) -> Journal:
    """A finished run with two hooks and three tools side by side, one of which fails."""
    together = threading.Barrier(3, timeout=60)

    @functools.wraps(add)
    def meeting(a: float, b: float) -> str:
        together.wait()
        return add(a, b)

    agent, _ = agent_of(saver, tools=[tool(meeting)])
    agent.invoke("add", thread_id="t")
    return Journal(saver, "t")
