"""What a graph sees with our saver is what it sees with LangGraph's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tests.store.store_graphs import Make, State, agent, asking_graph, config, looping_graph, plain
from wick_graph.store import SqlSaver

DURABILITIES = ("sync", "async", "exit")


@pytest.fixture(params=["memory", "file"])
def both(request: pytest.FixtureRequest, url: str) -> Iterator[tuple[Any, Any]]:
    with ExitStack() as stack:
        target = "sqlite://" if request.param == "memory" else url
        ours = stack.enter_context(SqlSaver.from_url(target, synchronous="NORMAL"))
        yield InMemorySaver(), ours


def same_history(graphs: tuple[Any, Any], thread: str = "t") -> list[Any]:
    theirs, ours = ([*graph.get_state_history(config(thread))] for graph in graphs)
    assert [plain(one) for one in ours] == [plain(one) for one in theirs]
    for snapshot in ours:
        assert plain(graphs[1].get_state(snapshot.config)) == plain(snapshot)
    return ours


def graphs_of(make: Make, both: tuple[Any, Any]) -> tuple[Any, Any]:
    return make(both[0]), make(both[1])


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_run_and_a_second_input(both: tuple[Any, Any], durability: Any) -> None:
    graphs = graphs_of(lambda saver: looping_graph(saver, 4), both)
    for text in ("hello", "again"):
        results = [
            graph.invoke(
                {"messages": [HumanMessage(text, id=text)]}, config(), durability=durability
            )
            for graph in graphs
        ]
        assert results[0] == results[1]
    assert len(same_history(graphs)) >= 2


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_the_same_in_an_event_loop(both: tuple[Any, Any], durability: Any) -> None:
    graphs = graphs_of(lambda saver: looping_graph(saver, 4), both)
    given = {"messages": [HumanMessage("hello", id="h")]}
    results = [await graph.ainvoke(given, config(), durability=durability) for graph in graphs]
    assert results[0] == results[1]
    theirs, ours = [[s async for s in graph.aget_state_history(config())] for graph in graphs]
    assert [plain(one) for one in ours] == [plain(one) for one in theirs]
    # the sync methods work inside the running loop too
    assert plain(graphs[1].get_state(config())) == plain(theirs[0])


def test_an_interrupt_among_parallel_tasks_resumes(both: tuple[Any, Any]) -> None:
    ran: tuple[list[str], list[str]] = ([], [])
    graphs = asking_graph(both[0], ran[0]), asking_graph(both[1], ran[1])
    for graph in graphs:
        graph.invoke({"log": ["in"]}, config())
    same_history(graphs)
    for graph in graphs:
        graph.invoke(Command(resume="yes"), config())
    history = same_history(graphs)
    assert history[0].values["log"] == [
        "in",
        "fan",
        "work b",
        "work a",
        "work yes",
        "work c",
        "join",
    ]
    assert sorted(ran[1]) == ["a", "ask", "ask", "b", "c"]


def test_time_travel_and_update_state(both: tuple[Any, Any]) -> None:
    graphs = graphs_of(lambda saver: looping_graph(saver, 3), both)
    for graph in graphs:
        graph.invoke({"messages": [HumanMessage("hello", id="h")]}, config())
        middle = [s for s in graph.get_state_history(config()) if s.next == ("act",)][1]
        forked = graph.update_state(
            middle.config, {"messages": [HumanMessage("other", id="o")]}, as_node="think"
        )
        graph.invoke(None, forked)
        graph.invoke(None, middle.config)
    history = same_history(graphs)
    assert {s.metadata["source"] for s in history} >= {"loop", "input", "update", "fork"}


def test_messages_are_edited_and_removed(both: tuple[Any, Any]) -> None:
    graphs = graphs_of(lambda saver: looping_graph(saver, 4), both)
    for graph in graphs:
        graph.invoke({"messages": [HumanMessage("hello", id="h")]}, config())
        graph.update_state(config(), {"messages": [AIMessage("edited", id="m1")]}, as_node="act")
        graph.update_state(config(), {"messages": [RemoveMessage(id="m2")]}, as_node="act")
        graph.update_state(config(), {"messages": [AIMessage("late", id="z")]}, as_node="act")
    history = same_history(graphs)
    assert [m.id for m in history[0].values["messages"]] == ["h", "m0", "m1", "m3", "z"]
    assert history[0].values["messages"][2].content == "edited"


def test_an_agent_of_langchain(both: tuple[Any, Any]) -> None:
    graphs = graphs_of(agent, both)
    for graph in graphs:
        for text in ("one", "two"):
            graph.invoke({"messages": [HumanMessage(text, id=text)]}, config())
    history = same_history(graphs)
    assert [m.type for m in history[0].values["messages"]].count("tool") == 3


def test_an_agent_goes_on_in_another_saver(url: str) -> None:
    with SqlSaver.from_url(url) as first:
        agent(first).invoke({"messages": [HumanMessage("one", id="one")]}, config())
    with SqlSaver.from_url(url) as second:
        result = agent(second).invoke({"messages": [HumanMessage("two", id="two")]}, config())
    memory = InMemorySaver()
    for text in ("one", "two"):
        expected = agent(memory).invoke({"messages": [HumanMessage(text, id=text)]}, config())
    assert [m.content for m in result["messages"]] == [m.content for m in expected["messages"]]


def _collect(state: list[Any], writes: list[Any]) -> list[Any]:
    return [*state, *(one for write in writes for one in write)]


class DeltaState(TypedDict, total=False):
    notes: Annotated[list[str], DeltaChannel(_collect, list[str], snapshot_frequency=5)]
    count: int


def delta_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    def note(state: DeltaState) -> DeltaState:
        n = state.get("count", 0)
        return {"notes": [f"note {n} " + "n" * 120], "count": n + 1}

    builder = StateGraph(DeltaState)
    builder.add_node("note", note)
    builder.add_edge(START, "note")
    builder.add_conditional_edges(
        "note", lambda s: "note" if s["count"] % 12 else END, ["note", END]
    )
    return builder.compile(checkpointer=saver)


@pytest.mark.sisters(3)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_delta_channels(both: tuple[Any, Any], durability: Any) -> None:
    graphs = graphs_of(delta_graph, both)
    for graph in graphs:
        graph.invoke({"notes": ["first"]}, config(), durability=durability)
        graph.update_state(config(), {"notes": ["by hand"]}, as_node="note")
        graph.invoke({"notes": ["again"]}, config(), durability=durability)
    history = same_history(graphs)
    assert len(history[0].values["notes"]) == 27


def test_pruning_keeps_the_value_of_a_delta_channel(saver: SqlSaver) -> None:
    graph = delta_graph(saver)
    graph.invoke({"notes": ["first"]}, config())
    before = graph.get_state(config())
    stored = saver.get_tuple(config())
    assert stored is not None
    assert "notes" not in stored.checkpoint["channel_values"]  # it must be rebuilt
    saver.prune(["t"])
    assert plain(graph.get_state(config())) == plain(before)
    assert len([*graph.get_state_history(config())]) == 1
    graph.invoke({"notes": ["again"]}, config())
    assert graph.get_state(config()).values["notes"][:13] == before.values["notes"]


def test_a_failed_node_is_remembered_as_text(saver: SqlSaver) -> None:
    def fail(state: State) -> State:
        raise ValueError("boom")

    builder = StateGraph(State)
    builder.add_node("fail", fail)
    builder.add_edge(START, "fail")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        graph.invoke({"count": 1}, config())
    (task,) = graph.get_state(config()).tasks
    error: Any = task.error  # LangGraph's type is the exception, its savers return the text
    assert error == "ValueError('boom')"


def test_writes_come_back_in_the_order_in_which_a_run_applies_them(saver: SqlSaver) -> None:
    graph = looping_graph(saver, 1)
    graph.invoke({"messages": []}, config())
    at = saver.get_tuple(config())
    assert at is not None
    order = [("~b", "2"), ("~a", "9"), ("", "5"), ("~a", "1"), ("~b", "0")]
    for path, task in order:
        saver.put_writes(at.config, [("log", [task]), ("count", 1)], task, path)
    found = saver.get_tuple(config())
    assert found is not None
    assert [(task, channel) for task, channel, _ in found.pending_writes or []] == [
        (task, channel) for _, task in sorted(order) for channel in ("log", "count")
    ]


@pytest.mark.parametrize("named", [True, False])
def test_a_fork_keeps_the_steps_of_a_subgraph_that_waits(saver: SqlSaver, named: bool) -> None:
    ran: list[str] = []
    inner = StateGraph(State)
    inner.add_node("first", lambda _: ran.append("first"))
    inner.add_node("ask", lambda _: {"messages": [HumanMessage(interrupt("?"))]})
    inner.add_edge(START, "first")
    inner.add_edge("first", "ask")
    outer = StateGraph(State).add_node("inner", inner.compile()).add_edge(START, "inner")
    graph: Any = outer.compile(checkpointer=saver)
    graph.invoke({"messages": [HumanMessage("go")]}, config())
    head = graph.get_state(config()).config["configurable"]["checkpoint_id"]
    saver.threads.fork("t", "u", head if named else None)
    assert graph.invoke(Command(resume="yes"), config("u"))["messages"][-1].content == "yes"
    assert ran == ["first"]
