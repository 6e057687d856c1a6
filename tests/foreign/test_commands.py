"""The commands that record a LangGraph graph and open its recording."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from wick_graph.engine.guest import is_graph
from wick_graph.foreign.seams import needs_loop

APP = '''\
import operator
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

from wick_graph.testing import ScriptedModel, call


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


async def wait(state):
    return {"messages": [("ai", "Done.")]}


waiting = StateGraph(MessagesState).add_node("wait", wait).add_edge(START, "wait").compile()


@tool
async def look(text: str) -> str:
    """Look."""
    return text


@wrap_model_call
async def layer(request, handler):
    return await handler(request)


waiting_tool = create_agent(ScriptedModel([call("look", text="x"), "Done."]), tools=[look])
waiting_layer = create_agent(ScriptedModel(["Done."]), middleware=[layer])
'''


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


def test_a_graph_is_held_where_it_should_stop(folder: Path) -> None:
    told = '{"n": 1}'
    asked = ["--batch", "-b", "up:exit", "-e", "continue; set n = 7; continue; state n"]
    done = wick(folder, "debug", "app.py:graph", "--input", told, *asked)
    assert "breakpoint 1, up:exit" in done.stdout, done.stderr
    assert "node up will write this to n" in done.stdout
    assert done.stdout.rstrip().endswith("7")
    asked = ["--batch", "-e", f"run {told}; continue; goto @1; fork; live; continue"]
    done = wick(folder, "debug", "app.py:graph", *asked)
    assert "-fork1, a copy; " in done.stdout, done.stderr


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


def test_a_recorded_thread_is_listed_drawn_and_exported(folder: Path) -> None:
    wick(folder, "run", "--record", "-t", "mine", "app.py:chat", "hi")
    assert "say" in wick(folder, "journal", "mine").stdout
    assert "thread mine" in wick(folder, "graph", "app.py:chat", "--thread", "mine").stdout
    for form in ("html", "wickrun", "chrome", "jsonl"):
        done = wick(folder, "export", "-t", "mine", "--to", form, "-o", f"out.{form}")
        assert done.stdout.startswith(f"wrote out.{form}"), done.stderr
        assert (folder / f"out.{form}").stat().st_size
    drawn = wick(folder, "export", "-t", "mine", "--app", "app.py:chat", "-o", "drawn.html")
    assert drawn.returncode == 0, drawn.stderr
    assert "<svg" in (folder / "drawn.html").read_text()
    named = ("--to", "pytest", "--agent", "app:chat", "-o", "test_mine.py")
    assert wick(folder, "export", "-t", "mine", *named).returncode == 0
    assert (
        "there is no thread no" in wick(folder, "export", "-t", "no", "--app", "app.py:chat").stderr
    )


def test_what_cannot_be_recorded_is_refused(folder: Path) -> None:
    both = wick(folder, "debug", "app.py:graph", "hi", "--input", "{}")
    assert "give a message or --input JSON, not both" in both.stderr
    assert "is no JSON" in wick(folder, "debug", "app.py:graph", "--input", "{").stderr
    nothing = wick(folder, "debug", "app.py:graph", "--thread", "no")
    assert "there is no thread no" in nothing.stderr


def test_a_graph_without_messages_is_run_and_drawn(folder: Path) -> None:
    ran = wick(folder, "run", "--record", "-t", "mine", "app.py:graph", '{"n": 1}')
    assert json.loads(ran.stdout) == {"n": 3, "log": ["up", "up"]}
    laid = wick(folder, "graph", "app.py:graph", "--thread", "mine", "--format", "json")
    drawn = json.loads(laid.stdout)
    run = drawn["run"]
    assert drawn["agent"] == "graph"
    assert run["nodes"]["up"]["visits"] == 2
    uses = {(edge["source"], edge["target"]): edge["visits"] for edge in run["edges"]}
    assert uses == {("START", "up"): 1, ("up", "up"): 1, ("up", "END"): 1}
    text = wick(folder, "run", "--record", "app.py:graph", "hi")
    assert "has no channel messages, and its input is no JSON" in text.stderr
    failed = wick(folder, "run", "--record", "app.py:graph", '{"n": 9}')
    assert failed.returncode == 1
    assert "ValueError: too many" in failed.stderr


def test_a_graph_with_async_parts_alone_is_debugged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--batch", "-e", "goto @last; state"]
    done = wick(folder, "debug", "app.py:waiting_layer", "hi", *asked)
    assert "failed" not in done.stderr
    assert "Done." in done.stdout
    monkeypatch.syspath_prepend(folder)
    names = vars(importlib.import_module("app"))
    sys.modules.pop("app")
    found = {name: needs_loop(value) for name, value in names.items() if is_graph(value)}
    assert {name for name, waits in found.items() if waits} == {
        *("waiting", "waiting_tool", "waiting_layer")
    }


def test_a_graph_that_is_not_compiled_is_named_as_such(folder: Path) -> None:
    done = wick(folder, "debug", "app.py:made", "--input", "{}")
    assert "a StateGraph that is not compiled" in done.stderr
