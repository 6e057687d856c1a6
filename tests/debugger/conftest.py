from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journal.support import agent_of
from wick_graph.cli.app import call
from wick_graph.debug import DebugSession
from wick_graph.debug.terminal import Shell
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver

TRIES = 20
"""How often the recorded run is made at most."""

Wick = Callable[..., tuple[int, list[str], str]]

YAML = """\
store: sqlite:///store.db
agents:
  adder: {model: "scripted:script.yaml", journal: steps}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agents.yaml").write_text(YAML, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a finished run with two hooks and three tools, one of which fails.

    The tools run at once, so their order may change; the tests name places of the usual one.
    """
    for _ in range(TRIES):
        path = tmp_path_factory.mktemp("recording") / "store.db"
        with SqlSaver.from_url(f"sqlite:///{path}") as saver:
            agent, _ = agent_of(saver)
            agent.invoke("add", thread_id="t")
            with DebugSession.open(saver, "t") as session:
                if str(session.goto("@error").position) == "t/b0@6.9":
                    return path
    pytest.fail(f"none of {TRIES} runs ended its tools in the order of their calls")


@pytest.fixture
def saver(folder: Path, request: pytest.FixtureRequest) -> Iterator[SqlSaver]:
    if "journal" in request.fixturenames:
        shutil.copyfile(request.getfixturevalue("recording"), folder / "store.db")
    with SqlSaver.from_url(f"sqlite:///{folder}/store.db") as saver:
        yield saver


@pytest.fixture
def journal(saver: SqlSaver) -> Journal:
    """The record of that run."""
    return Journal(saver, "t")


@pytest.fixture
def shell(journal: Journal, saver: SqlSaver) -> Iterator[Shell]:
    with DebugSession.open(saver, "t") as session:
        yield Shell(session)


@pytest.fixture
def wick(capsys: pytest.CaptureFixture[str]) -> Wick:
    """Call `wick debug` in this process: its exit code, its lines, and what it complains of."""

    def run(*arguments: str) -> tuple[int, list[str], str]:
        code = call(["debug", *arguments])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run
