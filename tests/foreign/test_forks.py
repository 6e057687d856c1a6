"""Forks of other people's graphs: the preview is what runs, and the past never changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.debug.support import WAIT
from tests.foreign.graphs import (
    closure,
    commands,
    deferred,
    join,
    loop,
    react,
    retried,
    sends,
    subgraph,
    tool_node,
)
from wick_graph.debug import DebugSession, Mock, Policy, record

OVER = ("finished", "failed", "interrupt", "cancelled")

MADE = (loop, join, sends, subgraph, closure, commands, deferred, retried, tool_node, react)
FORKS = [
    (make, part, saver)
    for make in MADE
    for part in (0, 1, 2)
    for saver in (InMemorySaver, None)
    if saver is not None or make is not subgraph  # without a saver it asks nothing
]


def recorded(make: Any, saver: Any) -> tuple[Any, DebugSession, Any]:
    graph = make(saver)
    with record(store="sqlite://") as recording:
        for given in graph.inputs:
            graph.graph.invoke(given, {"configurable": {"thread_id": "t"}})
    session = recording.session()
    session.agent = graph.graph
    return graph, session, recording


def rest(session: DebugSession, stop: Any) -> Any:
    while stop.reason not in OVER:
        assert stop.reason != "ask", stop.text
        stop = session.cont(timeout=WAIT)
    return stop


def ran(session: DebugSession, after: int) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for entry in session.inspect.moments():
        if entry.run <= after:
            continue
        if entry.what in ("node.enter", "model.request", "interrupt.raise") or entry.is_call:
            kind = "question" if entry.kind == "interrupt" else entry.kind
            found[kind, entry.name] += 1
    return found


@pytest.mark.parametrize(("make", "part", "saver"), FORKS)
def test_the_preview_is_what_runs(make: Any, part: int, saver: Any) -> None:
    graph, session, recording = recorded(make, saver and saver())
    with session:
        nodes = session.inspect.moments("node.enter")
        chosen = nodes[(len(nodes) - 1) * part // 2]
        graph.ran.clear()
        plan = session.fork(chosen)
        runs = len(session.journal.runs())  # type: ignore[union-attr]  # it is recorded
        before = [e.seq for e in session.inspect.moments()]
        stop = rest(session, session.live(plan, timeout=WAIT))
        assert session.thread_id == "t-fork1"
        planned = Counter((one.kind, one.name) for one in plan.will_execute)
        assert ran(session, runs) == planned
        asked = any(kind == "question" for kind, _ in planned)
        assert stop.reason == ("interrupt" if asked else "finished")
        with DebugSession.open(session.journal.saver, "t") as original:  # type: ignore[union-attr]  # as above
            assert [e.seq for e in original.inspect.moments()] == before
    recording.close()


def only(session: DebugSession, what: str, name: str, nth: int = 0) -> Any:
    return [e for e in session.inspect.moments(what) if e.name == name][nth]


@pytest.mark.parametrize(
    ("make", "where", "edit", "path", "expected"),
    [
        (loop, ("node.enter", "a", 0), {"state": {"n": 2}}, "log", ["a", "b"]),
        (loop, ("node.enter", "b", 0), {"state": {"n": 3}}, "log", ["a", "b"]),
        (loop, ("node.enter", "a", 1), {"state": {"log[0]": "x"}}, "log", list("xbab")),
        (join, ("node.enter", "end", 0), {"state": {"log": ["x"]}}, "log", ["x", "end"]),
        (commands, ("node.enter", "inner", 0), {"state": {"n": 5}}, "n", 5),
        (sends, ("node.enter", "plan", 0), {"state": {"n": 5}}, "n", 5),
        (
            react,
            ("node.enter", "model", 1),
            {"state": {"messages[2].content": "six"}},
            "messages[2].content",
            "six",
        ),
        (react, ("tool.enter", "add", 0), {"result": "six"}, "messages[2].content", "six"),
        (react, ("tool.enter", "add", 0), {"args": {"a": 4, "b": 4}}, "messages[2].content", "8"),
        (
            react,
            ("model.request", "scripted", 1),
            {"response": "By hand."},
            "messages[-1].content",
            "By hand.",
        ),
        (
            tool_node,
            ("tool.enter", "add", 1),
            {"result": "nine"},
            "messages[3].content",
            "nine",
        ),
    ],
)
def test_a_fork_goes_on_with_its_edit(
    make: Any, where: Any, edit: dict[str, Any], path: str, expected: Any
) -> None:
    _, session, recording = recorded(make, None)
    with session:
        was = session.inspect.value(path, "@last") if "[" not in path else None
        told: dict[str, Any] = {} if "response" in edit else {"policy": Policy(model=Mock("So."))}
        plan = session.fork(only(session, *where), **edit, **told)
        stop = rest(session, session.live(plan, timeout=WAIT))
        assert stop.reason == "finished", stop.text
        assert session.inspect.value(path, "@last") == expected
        with DebugSession.open(session.journal.saver, "t") as original:  # type: ignore[union-attr]  # it is recorded
            assert was is None or original.inspect.value(path, "@last") == was
    recording.close()


def test_a_fork_in_place_stays_in_the_graphs_own_thread() -> None:
    saver = InMemorySaver()
    graph, session, recording = recorded(loop, saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    with session:
        before = len(list(saver.list(config)))
        rest(session, session.live(session.fork("@3"), timeout=WAIT))
        assert len(list(saver.list(config))) == before
        assert session.thread_id == "t-fork1"
        assert rest(session, session.live(session.fork("@3"), timeout=WAIT)).reason == "finished"
        assert session.thread_id == "t-fork2"
    with recording.session() as session:
        session.agent = graph.graph
        rest(session, session.live(session.fork("@3"), timeout=WAIT, in_place=True))
        assert session.thread_id == "t"
        assert len(list(saver.list(config))) > before
        assert [b.number for b in session.inspect.branches()] == [0, 1]
    recording.close()


def test_a_fork_asks_before_a_tool_that_was_not_recorded() -> None:
    graph, session, recording = recorded(react, None)
    with session:
        asked = {
            "content": "",
            "tool_calls": [{"id": "c9", "name": "add", "args": {"a": 1, "b": 1}}],
        }
        first = only(session, "model.request", "scripted")
        policy = Policy(missing_model="stop")
        stop = session.live(session.fork(first, response=asked, policy=policy), timeout=WAIT)
        while stop.reason not in ("ask", *OVER):
            stop = session.cont(timeout=WAIT)
        assert stop.reason == "ask"
        assert "recorded were" in stop.text
        stop = session.accept(Mock("2"), timeout=WAIT)
        assert stop.reason == "divergence"
        assert rest(session, session.accept(Mock("So."), timeout=WAIT)).reason == "finished"
        assert session.executed == (0, 0)
        assert session.value("messages[-1].content", "@last") == "So."
    recording.close()


def test_a_question_is_answered_in_a_thread_that_only_its_recording_has() -> None:
    graph, session, recording = recorded(subgraph, InMemorySaver())
    with session:
        stop = rest(session, session.live(session.fork("@1"), timeout=WAIT))
        assert stop.reason == "interrupt"
        assert rest(session, session.answer("that", timeout=WAIT)).reason == "finished"
        assert session.result["log"] == ["that", "after", "last"]
    recording.close()
