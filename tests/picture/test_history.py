"""A run laid over its graph, as far as checkpoints tell."""

from __future__ import annotations

import cProfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from tests.picture.graphs import Chat, State
from wick_graph import Agent, SqlSaver
from wick_graph.errors import ConfigError, ThreadNotFoundError
from wick_graph.picture import RunOverlay, Tally, as_svg, as_text, overlay_of, picture_of
from wick_graph.testing import ScriptedModel, calls, error

THREAD: Final[Any] = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> str:
    """Add two numbers."""
    if a == 9:
        raise ValueError("no nines")
    return str(a + b)


def agent_of(*steps: Any, **options: Any) -> Agent:
    return Agent("adder", ScriptedModel(list(steps)), tools=[add], **options)


def visits(run: RunOverlay) -> dict[str, int]:
    return {name: tally.visits for name, tally in run.nodes.items()}


def ways(run: RunOverlay) -> dict[tuple[str, str], int]:
    return {edge: tally.visits for edge, tally in run.edges.items()}


TWO_CALLS = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 9, "b": 2}))


def test_a_thread_of_two_runs() -> None:
    agent = agent_of(TWO_CALLS, "3", "again")
    agent.invoke("first", thread_id="t")
    agent.invoke("second", thread_id="t")
    run = overlay_of(agent.graph, "t")
    one = ("START", "before_agent", "modify_request", "model")
    assert run.path == (*one, "tools", "tools", "modify_request", "model", "END", *one, "END")
    assert visits(run) == {
        "START": 2,
        "before_agent": 2,
        "modify_request": 3,
        "model": 3,
        "tools": 2,
        "END": 2,
    }
    assert ways(run) == {
        ("START", "before_agent"): 2,
        ("before_agent", "modify_request"): 2,
        ("modify_request", "model"): 3,
        ("model", "tools"): 1,
        ("tools", "modify_request"): 1,
        ("model", "END"): 2,
    }
    assert {name: replace(tally, seconds=None) for name, tally in run.tools.items()} == {
        "add": Tally(2, errors=1)
    }
    assert run.nodes["tools"].errors == run.total.errors == 1
    assert run.status == "done"
    assert run.at == ()
    assert run.total.visits == 9


def test_times_and_tokens_add_up() -> None:
    agent = agent_of(TWO_CALLS, "3")
    result = agent.invoke("first", thread_id="t")
    run = overlay_of(agent.graph, "t")
    model = run.nodes["model"]
    assert model.input_tokens == run.total.input_tokens == result.usage.input_tokens > 0
    assert model.output_tokens == run.total.output_tokens == result.usage.output_tokens > 0
    seconds = [tally.seconds for tally in run.nodes.values() if tally.seconds is not None]
    assert run.total.seconds == pytest.approx(sum(seconds))
    assert run.total.seconds is not None
    assert run.total.seconds > 0
    assert run.nodes["START"].seconds is None


def test_a_run_that_failed_says_where() -> None:
    agent = agent_of(TWO_CALLS, error("the provider is down"))
    with pytest.raises(Exception, match="provider is down"):
        agent.invoke("first", thread_id="t")
    run = overlay_of(agent.graph, "t")
    assert run.status == "failed"
    assert run.at == ("model",)
    assert run.nodes["model"].errors == 1
    assert run.place("model") == "failed here"
    drawn = picture_of(agent.graph).with_run(run)
    assert "▶ failed here" in as_text(drawn)
    assert 'class="node broke"' in as_svg(drawn)


def test_a_run_that_waits_says_where_and_the_pause_is_no_work() -> None:
    def ask(question: str) -> str:
        """Ask a person."""
        return str(interrupt(question))

    steps: list[Any] = [calls(("ask", {"question": "Well?"})), "Thanks"]
    agent = Agent("asker", ScriptedModel(steps), tools=[ask])
    agent.invoke("first", thread_id="t")
    run = overlay_of(agent.graph, "t")
    assert (run.status, run.at, run.place("tools")) == ("interrupted", ("tools",), "waits here")
    assert "tools" not in visits(run)
    assert ways(run)["model", "tools"] == 1
    agent.resume("t", "yes")
    run = overlay_of(agent.graph, "t")
    assert run.status == "done"
    assert visits(run)["tools"] == 1


def test_what_a_fork_left_is_no_part_of_the_path() -> None:
    agent = agent_of(TWO_CALLS, "3", "another answer")
    agent.invoke("first", thread_id="t")
    graph = agent.graph
    before = next(s for s in graph.get_state_history(THREAD) if s.next == ("model",))
    graph.invoke(None, before.config)
    run = overlay_of(graph, "t")
    assert visits(run)["model"] == 2
    assert run.path.count("END") == 1


def test_a_breakpoint_is_where_the_thread_stands() -> None:
    agent = agent_of(TWO_CALLS, "3")
    graph: Any = agent.graph
    graph.invoke({"messages": [("user", "go")]}, THREAD, interrupt_before=["tools"])
    run = overlay_of(agent.graph, "t")
    assert run.at == ("tools",)
    assert run.place("tools") == "comes next"
    assert ways(run)["model", "tools"] == 1


def test_old_steps_can_be_left_out_and_it_is_said() -> None:
    agent = agent_of(TWO_CALLS, "3")
    agent.invoke("first", thread_id="t")
    run = overlay_of(agent.graph, "t", limit=3)
    assert run.path == ("modify_request", "model", "END")
    assert "only the last 3 checkpoints were read" in run.notes
    assert not any("checkpoints" in note for note in overlay_of(agent.graph, "t").notes)


def test_the_cost_grows_with_the_number_of_steps(tmp_path: Path) -> None:
    spent = []
    for turns in (20, 80):
        steps = [calls(("add", {"a": n, "b": 1})) for n in range(turns)]
        with SqlSaver.from_url(f"sqlite:///{tmp_path / str(turns)}.db") as saver:
            agent = Agent(
                model=ScriptedModel([*steps, "done"]),
                tools=[add],
                store=saver,
                max_iterations=turns + 2,
            )
            agent.invoke("?", thread_id="t")
            overlay_of(agent.graph, "t")  # so that what is done once is done
            counted = cProfile.Profile()
            counted.runcall(overlay_of, agent.graph, "t")
        spent.append(sum(entry.callcount for entry in counted.getstats()) / turns)
    assert spent[1] < spent[0] * 1.2, spent


def test_a_thread_that_nobody_began_and_a_graph_without_threads() -> None:
    with pytest.raises(ThreadNotFoundError, match="nobody"):
        overlay_of(agent_of("x").graph, "nobody")
    with pytest.raises(ConfigError, match="keeps no threads"):
        overlay_of(agent_of("x", store=False).graph, "t")


def graph_with_branches() -> Any:
    """Two branches of different length that meet; and a choice that ends."""
    graph = StateGraph(State)
    for name in ("a", "b", "long", "c"):
        graph.add_node(name, lambda state: {"log": ["x"]})
    graph.add_edge(START, "a")
    graph.add_edge(START, "b")
    graph.add_edge("b", "long")
    graph.add_edge(["a", "long"], "c")
    graph.add_conditional_edges(
        "c", lambda state: "on" if len(state["log"]) < 5 else "off", {"on": "b", "off": END}
    )
    return graph.compile(checkpointer=InMemorySaver())


def test_parallel_branches_that_meet_are_counted_once() -> None:
    graph = graph_with_branches()
    graph.invoke({"log": []}, THREAD)
    run = overlay_of(graph, "t")
    assert {name: visits(run)[name] for name in "abc"} == {"a": 1, "b": 2, "c": 1}
    assert ways(run)["a", "c"] == 1
    assert ways(run)["b", "long"] == 2
    assert ways(run)["c", "b"] == 1


def test_any_langgraph_graph_with_messages_tells_tokens_and_tool_errors() -> None:
    def ask(state: Chat) -> dict[str, Any]:
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        return {"messages": [AIMessage("hi", usage_metadata=usage)]}

    def act(state: Chat) -> Command[str]:
        failed = ToolMessage("bad", tool_call_id="1", name="look", status="error")
        return Command(update={"messages": [failed]}, goto=END)

    graph = StateGraph(Chat)
    graph.add_node("ask", ask)
    graph.add_node("act", act, destinations=(END,))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "act")
    compiled: Any = graph.compile(checkpointer=InMemorySaver())
    compiled.invoke({"messages": []}, THREAD)
    run = overlay_of(compiled, "t")
    assert (run.nodes["ask"].input_tokens, run.nodes["ask"].output_tokens) == (7, 3)
    assert run.tools == {"look": Tally(1, errors=1)}
    assert ways(run)["act", "END"] == 1


def test_numbers_of_hooks_are_for_those_who_record_them() -> None:
    agent = agent_of("x")
    run = RunOverlay(
        "t", layers={("wrap_tool_call", "a\x1b"): Tally(2, 0.5)}, tools={"b\x1b": Tally(1)}
    )
    drawn = picture_of(agent.graph).with_run(run)
    assert drawn.run is not None
    assert drawn.run.layer("wrap_tool_call", "a␛") == Tally(2, 0.5)
    assert drawn.run.tool("b␛") == Tally(1)


def test_tallies_add_up_and_say_what_they_know() -> None:
    total = Tally(1, 0.5, 10, 2) + Tally(2, None, errors=1)
    assert total == Tally(3, 0.5, 10, 2, 1)
    assert (Tally(1) + Tally(1)).seconds is None
    assert total.parts() == ["3 visits", "500 ms", "10 tokens in, 2 out", "1 error"]
    assert total.short() == "×3 · 500 ms · 10 tokens in, 2 out · 1 error"
    assert Tally().short() == ""
