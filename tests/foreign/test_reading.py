"""The debugger's questions about recorded graphs, with their answers checked by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.foreign.graphs import GRAPHS, config, loop
from wick_graph.core.state import AgentState
from wick_graph.debug import DebugSession, record
from wick_graph.debug.recording import Recording
from wick_graph.debug.values import read_path
from wick_graph.debug.view import FACTS
from wick_graph.errors import DebugError
from wick_graph.foreign.run import NAMED
from wick_graph.store import SqlSaver

TYPES = AgentState.__annotations__

WHYS = [
    ("loop", "n", ["a"]),
    ("loop", "log[0]", ["a"]),
    ("loop", "log[1]", ["b"]),
    ("loop", "log[2]", ["a"]),
    ("loop", "log[-1]", ["b"]),
    *(("loop", f"log[{at}]", ["b" if at % 2 else "a"]) for at in range(3, 10)),
    ("join", "log[0]", ["a"]),
    ("join", "log[1]", ["b"]),
    ("join", "log[2]", ["c"]),
    ("join", "log[3]", ["end"]),
    ("join", "n", ["input"]),
    ("send", "log[0]", ["plan"]),
    ("send", "log[1]", ["work"]),
    ("send", "log[2]", ["work"]),
    ("send", "log[3]", ["work"]),
    ("send", "n", ["input"]),
    ("subgraph", "log[0]", ["inner", "inner/ask"]),
    ("subgraph", "log[1]", ["inner", "inner/after"]),
    ("subgraph", "log[-3]", ["inner", "inner/ask"]),
    ("subgraph", "log[-1]", ["last"]),
    ("subgraph", "n", ["inner"]),
    ("closure", "log[0]", ["outer", "outer/deep"]),
    ("closure", "n", ["input"]),
    ("command", "log[0]", ["go"]),
    ("command", "log[1]", ["inner"]),
    ("command", "n", ["input"]),
    ("command", "log[2]", ["last"]),
    ("defer", "log[-1]", ["last"]),
    ("defer", "log[0]", ["a"]),
    ("defer", "log[1]", ["b"]),
    ("defer", "n", ["input"]),
    ("defer", "log[2]", ["c"]),
    ("retry", "log[0]", ["flaky"]),
    ("retry", "log[1]", ["kept"]),
    ("retry", "log[2]", ["flaky"]),
    ("retry", "log[3]", ["kept"]),
    ("retry", "n", ["input"]),
    ("functional", "end", ["flow"]),
    ("functional", "previous", ["flow"]),
    ("delta", "messages[0].content", ["input"]),
    ("delta", "messages[1].content", ["a"]),
    ("delta", "messages[2].content", ["b"]),
    ("toolnode", "messages[0].content", ["input"]),
    ("toolnode", "messages[1].content", ["model", "model"]),
    ("toolnode", "messages[2].content", ["tool:add", "model", "model"]),
    ("toolnode", "messages[3].content", ["tool:add", "model", "model"]),
    ("toolnode", "messages[4].content", ["model", "model"]),
    ("create_agent", "messages[0].content", ["input"]),
    ("create_agent", "messages[1].content", ["model", "model"]),
    ("create_agent", "messages[2].content", ["tool:add", "hook:Doubling", "model", "model"]),
    ("create_agent", "messages[3].content", ["model", "model"]),
    ("deepagents", "messages[0].content", ["input"]),
    ("deepagents", "messages[1].content", ["model", "model"]),
    ("deepagents", "messages[2].content", ["tool:task", "model", "model"]),
    ("deepagents", "messages[3].content", ["model", "model"]),
    ("wick", "messages[0].content", ["input"]),
    ("wick", "messages[1].content", ["agent", "model", "model"]),
]

_PROMPT = [
    ("system", "added", "Prompting", "You add. Be brief."),
    ("system", "dropped", "Prompting", "You add."),
]

_FILES = ("ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep")

_OFFERED = [("tool", "kept", "agent", name) for name in _FILES]

_TAKEN = [("tool", "dropped", "FilesystemMiddleware", "execute")]  # there is no shell here

_KEPT = ("message", "kept", "thread")

BLAMES = [
    ("toolnode", 0, [(*_KEPT, "sum")]),
    ("toolnode", 1, [(*_KEPT, "sum"), (*_KEPT, ""), (*_KEPT, "3"), (*_KEPT, "7")]),
    ("create_agent", 0, [*_PROMPT, (*_KEPT, "sum"), ("tool", "kept", "agent", "add")]),
    (
        "create_agent",
        1,
        [
            *_PROMPT,
            *((*_KEPT, text) for text in ("sum", "", "4")),
            ("tool", "kept", "agent", "add"),
        ],
    ),
    (
        "deepagents",
        0,
        [
            ("system", "kept", "agent", "You delegate."),
            (*_KEPT, "sum"),
            *_OFFERED,
            ("tool", "kept", "agent", "task"),
            *_TAKEN,
        ],
    ),
    (
        "deepagents",
        1,
        [("system", "kept", "agent", "You add."), (*_KEPT, "add"), *_OFFERED, *_TAKEN],
    ),
]


@pytest.fixture(scope="module")
def recorded() -> Iterator[dict[str, tuple[DebugSession, Recording]]]:
    """Each graph, run once with all its inputs."""
    made: dict[str, tuple[DebugSession, Recording]] = {}
    for name, make in GRAPHS.items():
        graph, where = make(InMemorySaver()), config()
        with record(store="sqlite://") as recording:
            for given in graph.inputs[:2]:
                graph.graph.invoke(given, where)
        made[name] = recording.session(), recording
    yield made
    for session, recording in made.values():
        session.close()
        recording.close()


@pytest.mark.parametrize(("name", "path", "by"), WHYS)
def test_each_why_is_right(name: str, path: str, by: list[str], recorded: dict[str, Any]) -> None:
    session, _ = recorded[name]
    session.goto("@last")
    assert [cause.by for cause in session.why(path)] == by


@pytest.mark.parametrize(("name", "number", "parts"), BLAMES)
def test_each_blame_is_right(
    name: str, number: int, parts: list[Any], recorded: dict[str, Any]
) -> None:
    session, recording = recorded[name]
    asked = recording.moments("model.request")[number]
    found = session.inspect.blame(f"#{asked.seq}")
    assert [(b.part, b.op, b.by, getattr(b.value, "content", b.value)) for b in found] == parts


@pytest.mark.parametrize("name", GRAPHS)
def test_no_channel_is_shown_that_the_graph_lacks(name: str, recorded: dict[str, Any]) -> None:
    session, _ = recorded[name]
    own = {*GRAPHS[name](None).graph.channels, *NAMED.values()}
    shown = set()
    for moment in session.inspect.moments():
        if not moment.level:
            shown |= set(session.inspect.state(at=f"#{moment.seq}"))
    assert shown <= own
    agents = {*TYPES, "before_agent", "modify_request", "route:tools", "compact"} - own - {*FACTS}
    assert not agents & set(session.inspect.complete(""))


def test_names_come_from_the_recording(recorded: dict[str, Any]) -> None:
    session, _ = recorded["loop"]
    session.goto("@first")
    session.add("break b")
    assert [m.node for m in session.inspect.hits(1)] == ["b"] * len(session.inspect.hits(1))
    session.add("break route:a")
    assert {m.what for m in session.inspect.hits(2)} == {"route.taken"}
    session.add("watch n")
    assert {m.node for m in session.inspect.hits(3)} == {"a"}
    assert [made.note for made in session.breakpoints] == ["", "", ""]
    assert "has no channel todos" in session.breakpoints.watch("todos").note
    with pytest.raises(DebugError, match=r"write a node \(a, b\)"):
        session.add("break modify_request")
    assert "messages" not in session.inspect.complete("m")
    assert session.inspect.complete("lo") == ["log"]


def test_nodes_of_subgraphs_and_tools_stop_by_their_names(recorded: dict[str, Any]) -> None:
    session, _ = recorded["subgraph"]
    session.add("break node:inner/ask")
    session.add("break node:ask:exit")
    asked = [m.node for m in session.inspect.hits(1)]
    assert asked == ["inner/ask"] * 2
    assert {m.phase for m in session.inspect.hits(2)} == {"exit", "error"}
    session, _ = recorded["toolnode"]
    session.add("break tool:add if args.a == 3")
    (hit,) = session.inspect.hits(1)
    assert hit.call_id == "c1"


def test_state_diff_history_and_search(recorded: dict[str, Any]) -> None:
    session, _ = recorded["loop"]
    session.goto("@last")
    assert set(session.inspect.state()) == {"n", "log"}
    written = session.inspect.history("n")
    assert [value for _, value in written][:3] == [1, 2, 3]
    first = next(m for m in session.inspect.moments("node.exit") if m.node == "a")
    session.goto(f"#{first.seq}")
    assert {change.path for change in session.inspect.diff()} == {"n", "log[0]"}
    assert session.inspect.search("returned 'a'")


def test_a_thread_without_moments_shows_its_channels_and_the_nodes_that_ran() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        made, where = loop(saver), config()
        made.graph.invoke({"n": 0}, where)
        with DebugSession.open(saver, where["configurable"]["thread_id"]) as session:
            session.goto("@last")
            assert session.inspect.state() == made.graph.get_state(where).values
            names = [m.name for m in session.inspect.moments()]
            assert names[-1] == "step 6: b"


ODD = ("a b", "x.y", "é", "it's", "a-b", "state")


def odd_graph(saver: Any) -> Any:
    """Make a graph whose channels have names that no path and no condition spells plainly."""
    make: Any = TypedDict
    schema = make("schema", dict.fromkeys(ODD, Annotated[list[int], add]))
    builder = StateGraph(schema)
    builder.add_node("first", lambda state: {name: [1] for name in ODD})
    builder.add_node("second", lambda state: {name: [2] for name in ODD})
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("name", ODD)
def test_a_channel_with_an_odd_name_is_quoted(name: str) -> None:
    with record(store="sqlite://") as recording:
        odd_graph(InMemorySaver()).invoke({}, config())
    with recording.session() as session:
        quoted = f"state[{json.dumps(name, ensure_ascii=False)}]"
        session.goto("@last")
        assert session.inspect.state(quoted) == [1, 2]
        assert session.value(f"{quoted}[1]") == 2
        assert [cause.by for cause in session.why(f"{quoted}[0]")] == ["first"]
        assert [cause.by for cause in session.why(f"{quoted}[-1]")] == ["second"]
        assert [value for _, value in session.inspect.history(quoted)] == [[1], [1, 2]]
        session.goto("@first")
        session.add(f"watch {quoted} if len({quoted}) == 2")
        stop = session.cont()
        assert (stop.reason, session.here.name) == ("watch", "second")  # type: ignore[union-attr]
        offered = [word for word in session.inspect.complete("") if read(word) == name]
        assert [session.inspect.state(word) for word in offered] == [[1]]
        changed = {change.path for change in session.inspect.diff()}
        assert {read_path(path)[0] for path in changed} == set(ODD)
        planned = session.fork(state={quoted: [7]})
        assert planned.state == {name: [7]}
        with pytest.raises(DebugError, match=r"state\['a b'\]"):
            session.inspect.state("nothing")
    recording.close()


@pytest.mark.parametrize("path", ["a-b", "a.b-c", "a - b"])
def test_a_path_that_a_condition_would_subtract_is_refused(path: str) -> None:
    with pytest.raises(DebugError, match="is no path.*write one such as"):
        read_path(path)
    assert read_path('state["a-b"].c["d-e"]') == ("a-b", "c", "d-e")


def read(word: str) -> str:
    """Return the channel that a completed path names; empty for other words."""
    try:
        return str(read_path(word)[0])
    except DebugError:
        return ""
