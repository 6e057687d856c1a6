"""Generated graphs: what was recorded equals counters in their nodes, routes and tools."""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from tests.foreign.graphs import config
from wick_graph.debug import record
from wick_graph.picture import recorded_overlay


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    messages: Annotated[list[BaseMessage], add_messages]


class Generated:
    """A graph of random stages, each after the other, and counters of all that happens in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ran: Counter[str] = Counter()
        self.taken: Counter[tuple[str, str]] = Counter()
        self.called: Counter[str] = Counter()
        self.made: Any = StateGraph(State)
        self.joins: list[tuple[list[str], str]] = []
        self.heads: list[str] = []
        kinds = (self.step, self.fan, self.sends, self.below, self.tools, self.goes, self.loop)
        ends: list[str] = [START]
        for at in range(self.random.randint(2, 6)):
            ends = self.random.choice(kinds)(f"s{at}", ends)
        self.lead(ends, END)
        self.graph: Any = self.made.compile(InMemorySaver())

    def node(self, name: str, result: Callable[[], Any] | None = None) -> str:
        def run(state: Any) -> Any:
            self.ran[name] += 1
            return {"log": [name]} if result is None else result()

        self.made.add_node(name, run)
        return name

    def lead(self, ends: list[str], target: str) -> None:
        """Add plain edges, which count with their sources."""
        for end in ends:
            self.made.add_edge(end, target)

    def head(self, name: str, ends: list[str], result: Callable[[], Any] | None = None) -> str:
        self.node(name, result)
        self.lead(ends, name)
        self.heads.append(name)
        return name

    def step(self, name: str, ends: list[str]) -> list[str]:
        return [self.head(name, ends)]

    def fan(self, name: str, ends: list[str]) -> list[str]:
        first, last = self.head(name, ends), f"{name}_all"
        beside = [self.node(f"{name}_{n}") for n in range(self.random.randint(2, 3))]
        for one in beside:
            self.lead([first], one)
        longer = self.node(f"{name}_more")
        self.lead([beside[0]], longer)
        self.node(last)
        sources = [longer, *beside[1:]]
        self.made.add_edge(sources, last)
        self.joins.append((sources, last))
        return [last]

    def sends(self, name: str, ends: list[str]) -> list[str]:
        first, work, last = self.head(name, ends), f"{name}_work", f"{name}_sum"

        def route(state: Any) -> list[Send]:
            count = self.random.randint(1, 3)
            self.taken[first, work] += count
            return [Send(work, {"log": []})] * count

        self.made.add_conditional_edges(first, route, [work])
        self.node(work)
        self.node(last)
        self.lead([work], last)
        return [last]

    def below(self, name: str, ends: list[str]) -> list[str]:
        inner: Any = StateGraph(State)
        names = [f"in{n}" for n in range(self.random.randint(1, 2))]

        def runs(one: str) -> Callable[[Any], Any]:
            def run(state: Any) -> Any:
                self.ran[f"{name}/{one}"] += 1
                return {"log": [one]}

            return run

        for before, one in zip([START, *names], names, strict=False):
            inner.add_node(one, runs(one)).add_edge(before, one)
        self.made.add_node(name, inner.compile())
        self.lead(ends, name)
        return [name]

    def tools(self, name: str, ends: list[str]) -> list[str]:
        @tool(f"{name}_tool")
        def count(n: int) -> str:
            """Count."""
            self.called[f"{name}_tool"] += 1
            return str(n)

        numbers = iter(range(1_000))

        def ask() -> Any:
            asked = range(self.random.randint(1, 3))
            calls = [
                {"name": f"{name}_tool", "args": {"n": n}, "id": f"{name}{next(numbers)}"}
                for n in asked
            ]
            return {"messages": [AIMessage("", tool_calls=calls)]}

        first, last = self.head(name, ends, ask), f"{name}_tools"
        self.made.add_node(last, ToolNode([count]))
        self.lead([first], last)
        return [last]

    def goes(self, name: str, ends: list[str]) -> list[str]:
        left, right = f"{name}_left", f"{name}_right"

        def go() -> Any:
            target = self.random.choice([left, right])
            self.taken[name, target] += 1
            return Command(goto=target, update={"log": [name]})

        def run(state: Any) -> Any:
            self.ran[name] += 1
            return go()

        self.made.add_node(name, run, destinations=(left, right))
        self.lead(ends, name)
        self.heads.append(name)
        return [self.node(left), self.node(right)]

    def loop(self, name: str, ends: list[str]) -> list[str]:
        first, rest = self.head(name, ends), f"{name}_rest"
        back = self.random.choice(self.heads)
        left = [self.random.randint(0, 2)]

        def again(state: Any) -> str:
            left[0] -= 1
            target = back if left[0] >= 0 else rest
            self.taken[first, target] += 1
            return target

        self.made.add_conditional_edges(first, again, [back, rest])
        return [self.node(rest)]

    def edges(self) -> dict[tuple[str, str], int]:
        """Return how often each edge was used."""
        found = Counter(self.taken)
        for source, target in self.made.edges:
            found[source, target] += 1 if source == START else self.times(source)
        for sources, target in self.joins:
            for source in sources:
                found[source, target] += self.ran[target]
        return {edge: times for edge, times in found.items() if times}

    def times(self, source: str) -> int:
        """Return how often a node ran, also one that is a graph or a tool node."""
        if source.endswith("_tools"):
            return self.ran[source.removesuffix("_tools")]
        return self.ran[source] or self.ran[f"{source}/in0"]


def check(seed: int) -> None:
    made, where = Generated(seed), cast("Any", config())
    with record(store="sqlite://") as recording:
        made.graph.invoke({"log": []}, {**where, "recursion_limit": 200})
    assert recording.problems == []
    session = recording.session()
    journal = session.journal
    assert journal is not None
    names = {START: "START", END: "END"}
    overlay = recorded_overlay(made.graph, journal)
    outer = {name for name in made.ran if "/" not in name}
    assert {name: overlay.nodes[name].visits for name in outer} == {n: made.ran[n] for n in outer}
    wanted = {(names.get(a, a), names.get(b, b)): times for (a, b), times in made.edges().items()}
    assert {edge: tally.visits for edge, tally in overlay.edges.items()} == wanted
    assert {name: tally.visits for name, tally in overlay.tools.items()} == made.called
    entered = Counter(entry.node for entry in recording.moments("node.enter"))
    assert {name: entered[name] for name in made.ran} == made.ran
    assert overlay.status == "done"
    assert overlay.at == ()
    own = {entry.checkpoint: entry.seq for entry in recording.moments("node.enter")}
    for snapshot in made.graph.get_state_history(where):
        at = snapshot.config["configurable"]["checkpoint_id"]
        if at in own:
            shown = session.inspect.state(at=f"#{own[at]}")
            assert shown == session._cursor.views.json.plain(snapshot.values)
    assert set(session.inspect.state(at="@last")) <= {"log", "messages"}
    session.close()
    recording.close()


@pytest.mark.parametrize("seed", range(25))
def test_a_generated_graph_is_counted_as_it_counts_itself(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25, 200))
def test_more_generated_graphs_are_counted_as_they_count_themselves(seed: int) -> None:
    check(seed)
