"""Recordings of other people's graphs for other tools, and their replays."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.debug.support import WAIT
from tests.foreign.graphs import (
    GRAPHS,
    Counting,
    Doubling,
    Passing,
    Prompting,
    add,
    loop,
    model,
    react,
    subgraph,
    tool_node,
)
from tests.support import forked
from wick_graph.debug import DebugSession, record
from wick_graph.errors import ReplayError
from wick_graph.exports.chrome import as_chrome
from wick_graph.exports.page import as_page
from wick_graph.exports.plain import Hider
from wick_graph.exports.testfile import FromCode, replay_file, write_test
from wick_graph.exports.wickrun import write_wickrun

APP = """\
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from tests.foreign.graphs import add, calls, model

RAN = []


def made():
    again = calls(("add", {"a": 3, "b": 4}))
    again.tool_calls[0]["id"] = "second"
    asks = HumanInTheLoopMiddleware(interrupt_on={"add": True})
    return create_agent(model(calls(("add", {"a": 1, "b": 2})), again, "done"), tools=[add],
                        middleware=[asks], checkpointer=InMemorySaver())


graph = made()
"""


def test_a_run_behind_two_approvals_becomes_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "approving.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    graph = import_module("approving").graph
    config: Any = {"configurable": {"thread_id": "t"}}
    approved: Any = Command(resume={"decisions": [{"type": "approve"}]})
    with record(store="sqlite://") as recording:
        graph.invoke({"messages": [("user", "add")]}, config)
        graph.invoke(approved, config)
        ended = graph.invoke(approved, config)
    assert ended["messages"][-1].text == "done"
    assert recording.problems == []
    with recording.session() as session:
        journal = session.journal
        assert journal is not None
        assert [run.mode for run in journal.runs()] == ["input", "answer", "answer"]
        file = tmp_path / "test_approved.py"
        named = FromCode("approving", "graph")
        cassette = write_test(journal, journal.saver, file, named, Hider.of(journal))
        rerun = replay_file(cassette, graph)
        assert rerun.text == "done"
        assert [args for _, args in rerun.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
        session.agent = graph
        stop = session.goto("@last") and session.replay(timeout=WAIT)
        child = session.replayed
        assert child is not None
        assert (stop.reason, child.executed) == ("finished", (0, 0))
        assert session.compare(session, child).first is None
    recording.close()
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    done = forked.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file.name],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_each_graph_is_exported(name: str, tmp_path: Path) -> None:
    graph = GRAPHS[name](InMemorySaver())
    with record(store="sqlite://") as recording:
        for given in graph.inputs[:2]:
            graph.graph.invoke(given, {"configurable": {"thread_id": "t"}})
    with recording.session() as session:
        journal = session.journal
        assert journal is not None
        page = as_page(journal, Hider.of(journal))
        assert "<script" in page
        assert json.loads(as_chrome(journal, Hider.of(journal)))["traceEvents"]
        assert write_wickrun(journal, journal.saver, tmp_path / "t.wickrun", Hider.of(journal)) == 0
        lines = [session.inspect.line(m) for m in session.inspect.moments()]
        states = [session.inspect.state(at=m) for m in session.inspect.moments("node.enter")]
        with DebugSession.open(str(tmp_path / "t.wickrun")) as again:
            assert [again.inspect.line(m) for m in again.inspect.moments()] == lines
            entered = again.inspect.moments("node.enter")
            assert [again.inspect.state(at=m) for m in entered] == states
    recording.close()


@pytest.mark.parametrize("make", [loop, subgraph, tool_node, react])
def test_a_replay_calls_no_model_and_no_tool(make: Any, tmp_path: Path) -> None:
    graph = make(InMemorySaver())
    with record(store="sqlite://") as recording:
        for given in graph.inputs:
            graph.graph.invoke(given, {"configurable": {"thread_id": "t"}})
    with recording.session() as session:
        session.agent = make(InMemorySaver()).graph
        session.goto("@last")
        stop = session.replay(timeout=WAIT)
        child = session.replayed
        assert child is not None
        assert (stop.reason, child.executed) == ("finished", (0, 0)), stop.text
        if make is not loop:  # its second run alone is replayed
            assert session.compare(session, child).first is None
    recording.close()


def test_a_replay_says_where_the_code_of_today_differs(tmp_path: Path) -> None:
    graph = react(InMemorySaver())
    with record(store="sqlite://") as recording:
        graph.graph.invoke(graph.inputs[0], {"configurable": {"thread_id": "t"}})
    with recording.session() as session:
        journal = session.journal
        assert journal is not None
        write_wickrun(journal, journal.saver, tmp_path / "t.wickrun", Hider.of(journal))
    recording.close()
    layers = [Prompting(), Passing(), Doubling(), Counting()]
    other = create_agent(model(), tools=[add], system_prompt="You subtract.", middleware=layers)
    with pytest.raises(ReplayError, match="no answer to this request") as caught:
        replay_file(tmp_path / "t.wickrun", other)
    assert "+system: You subtract. Be brief." in str(caught.value)
