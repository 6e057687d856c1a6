"""`wick graph`: every form, into a file or a pipe, with and without a thread."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from tests.source import ROOT
from wick_graph import load
from wick_graph.cli.app import call

THREAD: Final[Any] = {"configurable": {"thread_id": "th_one"}}
CONFIG = """\
agents:
  first:
    model: scripted:demo
    tools: [calculate]
  second:
    model: scripted:demo
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agents.yaml").write_text(CONFIG, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def out(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert call(["graph", *args]) == 0
    return capsys.readouterr().out


@pytest.fixture
def thread(folder: Path) -> str:
    with load(folder / "agents.yaml") as agents:
        agents["first"].invoke("What is 6*7?", thread_id="th_one")
    return "th_one"


def test_each_form_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "│ model " in out(capsys, "first")
    assert out(capsys, "first", "--format", "text") == out(capsys, "first")
    assert out(capsys, "first", "-f", "mermaid").startswith("flowchart TD\n")
    assert out(capsys, "first", "-f", "dot").startswith('digraph "first" {\n')
    assert json.loads(out(capsys, "first", "-f", "json"))["agent"] == "first"
    assert ElementTree.fromstring(out(capsys, "first", "-f", "svg")).tag.endswith("svg")
    assert out(capsys, "first", "-f", "html").startswith("<!doctype html>\n")
    assert not (folder / "checkpoints").exists()


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.svg", "<svg "),
        ("a.HTML", "<!doctype html>"),
        ("a.mmd", "flowchart"),
        ("a.gv", "digraph"),
        ("a.json", "{"),
        ("a.txt", " "),
        ("a", " "),
    ],
)
def test_a_files_name_says_the_form(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, begins: str
) -> None:
    assert out(capsys, "first", "-o", name) == ""
    written = (folder / name).read_text("utf-8")
    assert written.startswith(begins)
    assert written.endswith("\n")


def test_a_named_form_comes_before_the_files_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out(capsys, "first", "-f", "dot", "-o", "a.svg")
    assert (folder / "a.svg").read_text("utf-8").startswith("digraph")


def test_a_thread_is_laid_over_its_own_agent(
    thread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(out(capsys, "--thread", thread, "-f", "json"))
    assert told["agent"] == "first"
    assert told["run"]["status"] == "done"
    assert told["run"]["tools"]["calculate"]["visits"] == 1
    assert told["run"]["path"][-1] == "END"
    text = out(capsys, "first", "-t", thread)
    assert text.startswith(f"thread {thread} · done · ")
    assert "route: tools ×1" in text


def test_another_agent_can_be_drawn_under_a_thread_and_it_is_said(
    thread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["graph", "second", "--thread", thread]) == 0
    said = capsys.readouterr()
    assert "this thread belongs to the agent first, but second is drawn" in said.err
    assert "2 visits" in said.out


def test_reading_a_thread_changes_nothing_in_it(
    folder: Path, thread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> list[object]:
        with load(folder / "agents.yaml") as agents:
            return [*agents["first"].graph.get_state_history(THREAD)]

    before = state()
    out(capsys, "--thread", thread)
    assert state() == before


def on_a_terminal(folder: Path, columns: int, encoding: str) -> str:
    """Run the command as a person does, and give what the screen is sent."""
    ours, theirs = pty.openpty()
    env = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "wick_graph", "graph", "first"]
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux says so when the other side is closed
            while part := os.read(ours, 65_536):
                shown += part
        os.close(ours)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("columns", "encoding", "has", "has_not"),
    [
        pytest.param(120, "utf-8", "│ model ", "  → tools", id="wide"),
        pytest.param(120, "ascii", "| model ", "\\u", id="ASCII only"),
        pytest.param(40, "utf-8", "  → tools  (route: tools)", "│", id="narrow"),
    ],
)
def test_the_drawing_fits_the_terminal(
    folder: Path, columns: int, encoding: str, has: str, has_not: str
) -> None:
    shown = on_a_terminal(folder, columns, encoding)
    assert has in shown
    assert has_not not in shown


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        pytest.param(["first", "-t", "th_none"], 2, "there is no thread th_none", id="unknown"),
        pytest.param(["first", "-t", "a b"], 2, "thread", id="no id"),
        pytest.param(["third"], 2, "no agent", id="agent"),
        pytest.param([], 2, "no agent is called default", id="which agent"),
        pytest.param(["first", "-o", "no/a.svg"], 2, "no/a.svg cannot be written", id="folder"),
        pytest.param(["first", "-f", "png"], 2, "png", id="form"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    code: int,
    said: str,
) -> None:
    assert call(["graph", *args]) == code
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("wick: ")
    assert said in written.err
    assert "Traceback" not in written.err
    assert not (folder / "checkpoints").exists()
