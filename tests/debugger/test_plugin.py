"""The pytest plug-in, in test sessions of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import ROOT

CONFTEST = """\
import pytest
from wick_graph import Agent, ToolError, tool
from wick_graph.testing import ScriptedModel, call


@tool
def look(word: str) -> str:
    \"\"\"Look a word up.\"\"\"
    if word == "nothing":
        raise ToolError("there is nothing")
    return f"{word}: a thing"


@pytest.fixture
def agent():
    asked = [call("look", word=word) for word in ("wick", "nothing")]
    model = ScriptedModel([*asked, "It is a thing."])
    with Agent("finder", model, tools=[look], journal="off") as agent:
        yield agent
"""
RUNS = """\
import asyncio


def test_what_happened(agent, wick_runs):
    assert len(wick_runs) == 0
    agent.invoke("What is a wick?")
    run = wick_runs.last
    assert run.stopped_because == "done"
    assert run.model_calls == 3
    assert run.called("look") == 2
    assert run.called("look", word="wick") == 1
    assert run.called("look", word="other") == run.called("other") == 0
    assert [(c.args["word"], c.output, c.error) for c in run.tool_calls] == [
        ("wick", "wick: a thing", None), ("nothing", None, "there is nothing")
    ]
    assert run.path[:4] == ["before_agent", "modify_request", "model", "tools"]
    assert run.requests[0].messages[-1].text == "What is a wick?"
    with run.session() as session:
        assert session.verb("next_error").entry.name == "look"


def test_async_runs_are_told_too(agent, wick_runs):
    asyncio.run(agent.ainvoke("What is a wick?"))
    assert [run.stopped_because for run in wick_runs] == ["done"]


def test_that_fails(agent, wick_runs):
    agent.invoke("What is a wick?")
    assert wick_runs.last.called("look") == 7


def test_that_runs_nothing(agent, wick_runs):
    wick_runs.last
"""
CLOSED = """\
from wick_graph import Agent
from wick_graph.debug import recording as recorded
from wick_graph.testing import ScriptedModel


def ask(runs, called):
    with Agent("finder", ScriptedModel(["It is a thing."])) as agent:
        agent.invoke("What is a wick?")
        assert runs.last.called("look") == called


def test_that_fails_before_its_store_is_closed(wick_runs):
    ask(wick_runs, 7)


def test_whose_runs_cannot_be_told(wick_runs, monkeypatch):
    monkeypatch.setattr(recorded.RecordedRuns, "report", lambda self, last: iter([1 / 0]))
    ask(wick_runs, 7)


def test_that_passes(wick_runs):
    ask(wick_runs, 0)
"""
TAPE = """\
import os
from wick_graph import Agent
from wick_graph.testing import ScriptedModel


def made():
    assert os.environ.get("ASKED")
    return ScriptedModel(["It is a thing."])


def test_answer(wick_cassette):
    with Agent("finder", wick_cassette(made)) as agent:
        assert agent.invoke(os.environ.get("SAID", "What?")).text == "It is a thing."
"""


def session(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    options = ("-q", "-p", "no:cacheprovider", "-p", "wick_graph.pytest_plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_runs.py").write_text(RUNS, encoding="utf-8")
    (tmp_path / "test_tape.py").write_text(TAPE, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_runs_are_recorded_and_a_failure_shows_their_end(folder: Path) -> None:
    done = session(folder, "test_runs.py")
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    shown = done.stdout
    assert shown.count("wick: the last moments") == 1
    assert ": done\n" in shown
    assert "✕ tool look failed: there is nothing" in shown
    assert "no run is recorded yet" in shown


@pytest.mark.slow
def test_a_failure_where_the_store_is_closed_already_shows_the_end_too(folder: Path) -> None:
    (folder / "test_closed.py").write_text(CLOSED, encoding="utf-8")
    done = session(folder, "test_closed.py")
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "← run done" in done.stdout
    assert ": done\n" in done.stdout
    assert done.stdout.count("the rest cannot be shown: ZeroDivisionError") == 1
    assert "the store is closed" not in done.stdout


@pytest.mark.slow
def test_a_model_is_recorded_once_and_then_answered_from_its_file(folder: Path) -> None:
    done = session(folder, "test_tape.py")
    assert "record it with pytest --wick-record" in done.stdout
    assert done.returncode == 1
    done = session(folder, "test_tape.py", "--wick-record", ASKED="1")
    assert "1 passed" in done.stdout, done.stdout
    assert (folder / "cassettes" / "test_tape" / "test_answer.jsonl").exists()
    assert "1 passed" in session(folder, "test_tape.py").stdout
    done = session(folder, "test_tape.py", SAID="What else?")
    assert done.returncode == 1
    assert "+user: What else?" in done.stdout


def test_sessions_that_use_none_of_it_load_no_langchain(folder: Path) -> None:
    (folder / "conftest.py").unlink()
    (folder / "test_plain.py").write_text(
        "import sys\n\n\ndef test_it():\n    assert 'langchain_core' not in sys.modules\n",
        encoding="utf-8",
    )
    assert "1 passed" in session(folder, "test_plain.py").stdout
