"""The commands that record a LangGraph graph and open its recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked

APP = """\
import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, MessagesState, StateGraph


class Log(TypedDict, total=False):
    n: int
    log: Annotated[list, operator.add]


def up(state):
    if state["n"] > 5:
        raise ValueError("too many")
    return {"n": state["n"] + 1, "log": ["up"]}


made = StateGraph(Log).add_node("up", up).add_edge(START, "up")
made.add_conditional_edges("up", lambda state: "up" if state["n"] < 3 else END, ["up", END])
graph = made.compile()
chat = StateGraph(MessagesState).add_node("say", lambda s: {"messages": [("ai", "Hello.")]})
chat = chat.add_edge(START, "say").compile()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def wick(folder: Path, *args: str) -> Any:
    command = [sys.executable, "-m", "wick_graph", *args]
    return forked.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_graph_of_any_state_is_run_and_debugged(folder: Path) -> None:
    asked = ["--batch", "-e", "break up; continue; continue; state; why log[-1]"]
    done = wick(folder, "debug", "app.py:graph", "--input", '{"n": 1}', *asked)
    assert "breakpoint 1, up" in done.stdout
    assert "n = 2" in done.stdout
    assert "by up in node up" in done.stdout
    assert "recording into checkpoints" in done.stderr


def test_a_failure_is_shown_where_it_began(folder: Path) -> None:
    asked = ["--batch", "-e", "goto @error; where"]
    done = wick(folder, "debug", "app.py:graph", "--input", '{"n": 9}', *asked)
    assert "the run failed: ValueError: too many" in done.stderr
    assert 'raise ValueError("too many")' in done.stdout


def test_a_recorded_run_is_opened_by_its_thread(folder: Path) -> None:
    ran = wick(folder, "run", "--record", "-t", "mine", "app.py:chat", "hi")
    assert ran.stdout.strip() == "Hello."
    asked = ["--thread", "mine", "--batch", "-e", "goto @last; why messages[-1]"]
    done = wick(folder, "debug", "app.py:chat", *asked)
    assert "by say in node say" in done.stdout


def test_what_cannot_be_recorded_is_refused(folder: Path) -> None:
    assert "say what to run" in wick(folder, "debug", "app.py:graph").stderr
    both = wick(folder, "debug", "app.py:graph", "hi", "--input", "{}")
    assert "give a message or --input JSON, not both" in both.stderr
    assert "is no JSON" in wick(folder, "debug", "app.py:graph", "--input", "{").stderr
    nothing = wick(folder, "debug", "app.py:graph", "--thread", "no")
    assert "there is no thread no" in nothing.stderr
