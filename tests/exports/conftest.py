from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import pytest

from tests.journal.support import add, agent_of
from wick_graph import tool
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver


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
    together = Barrier(3)

    @functools.wraps(add)
    def met(a: float, b: float) -> str:
        together.wait(60)
        return add(a, b)

    agent, _ = agent_of(saver, tools=[tool(met)])
    agent.invoke("add", thread_id="t")
    return Journal(saver, "t")
