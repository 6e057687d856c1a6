"""An agent's compiled graph as a node of a user's own LangGraph graph."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from tests.engine.support import add, wild
from wick_graph import Agent, SqlSaver
from wick_graph.testing import ScriptedModel
from wick_graph.tools.builtin_tools import question_tool


def outer(agent: Agent, saver: Any) -> Any:
    """A graph that prepares the input, asks the agent, and counts the answer's words."""

    class State(MessagesState, total=False):
        words: int

    graph = StateGraph(State)
    graph.add_node("prepare", lambda state: {"messages": [("user", "1+2?")]})
    graph.add_node("agent", agent.graph)
    graph.add_node("count", lambda state: {"words": len(state["messages"][-1].text.split())})
    graph.add_edge(START, "prepare")
    graph.add_edge("prepare", "agent")
    graph.add_edge("agent", "count")
    graph.add_edge("count", END)
    return graph.compile(checkpointer=saver)


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.fixture(params=["memory", "ours"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield InMemorySaver()
        return
    made = SqlSaver.from_url(f"sqlite:///{tmp_path / 'outer.db'}")
    yield made
    made.close()


def run(graph: Any, given: Any, thread: str, door: str) -> Any:
    if door == "sync":
        return graph.invoke(given, on(thread))
    return asyncio.run(graph.ainvoke(given, on(thread)))


@pytest.mark.parametrize("door", ["sync", "async"])
def test_an_agent_is_a_step_of_a_users_graph(door: str, saver: Any) -> None:
    script = [wild("add", a=1, b=2), "It is three."]
    agent = Agent("it", ScriptedModel(script), tools=[add], store=False)
    graph = outer(agent, saver)
    ended = run(graph, {"messages": []}, "t", door)
    assert (ended["messages"][-1].text, ended["words"]) == ("It is three.", 3)
    streamed = [
        message.text
        for namespace, (message, _) in graph.stream(
            {"messages": []}, on("u"), stream_mode="messages", subgraphs=True
        )
        if namespace and message.type == "AIMessageChunk"
    ]
    assert "".join(streamed) == "It is three."


@pytest.mark.parametrize("door", ["sync", "async"])
def test_a_question_inside_waits_in_the_users_graph(door: str, saver: Any) -> None:
    script = [wild("request_user_input", question="Sure?"), "As you say."]
    agent = Agent("it", ScriptedModel(script), tools=[question_tool()], store=False)
    graph = outer(agent, saver)
    waits = run(graph, {"messages": []}, "t", door)
    (asked,) = waits["__interrupt__"]
    assert asked.value["question"] == "Sure?"
    ended = run(graph, Command(resume="Yes"), "t", door)
    assert ended["words"] == 3
    assert [m.text for m in ended["messages"] if m.type == "tool"] == ["Yes"]
