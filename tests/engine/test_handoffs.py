"""A tool's `Command` for the graph around its agent's, as supervisors and swarms send it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from operator import add as plus
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from tests.engine.handoff_process import CONFIG, team
from tests.engine.support import add
from tests.source import ROOT
from tests.support import forked
from wick_graph import Agent, BaseHook, SqlSaver, ToolContext, tool, tool_msg
from wick_graph.debug import DebugSession
from wick_graph.hooks import ApprovalHook
from wick_graph.testing import ScriptedModel, call, calls

GO: Any = {"messages": [("user", "Go.")]}


def invoke(graph: Any, given: Any, config: Any = None) -> Any:
    return graph.invoke(given, config)


def ainvoke(graph: Any, given: Any, config: Any = None) -> Any:
    return asyncio.run(graph.ainvoke(given, config))


def stream(graph: Any, given: Any, config: Any = None) -> Any:
    *_, last = graph.stream(given, config, stream_mode="values", subgraphs=False)
    return last


DOORS = pytest.mark.parametrize("door", [invoke, ainvoke, stream])

SAVERS = pytest.mark.parametrize(
    "saver", [lambda: None, InMemorySaver, lambda: SqlSaver.from_url("sqlite://")]
)


class TeamState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    active: str
    log: Annotated[list[str], plus]


def hand_over(name: str) -> StructuredTool:
    """A LangChain tool as langgraph-swarm makes it."""

    def transfer(
        state: Annotated[Any, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[Any]:
        answer = ToolMessage(f"{name} has it", name=f"to_{name}", tool_call_id=tool_call_id)
        update = {"messages": [*state["messages"], answer], "active": name, "log": [name]}
        return Command(goto=name, graph=Command.PARENT, update=update)

    return StructuredTool.from_function(transfer, name=f"to_{name}", description=f"Ask {name}.")


def graph_of(
    *steps: Any, saver: BaseCheckpointSaver[Any] | None = None, tools: Any = (), **options: Any
) -> Any:
    """Build a team: `alice` plays the steps; `bob` and `carl` answer with their names."""
    own = [hand_over("bob"), hand_over("carl"), add, *tools]
    graph = StateGraph(TeamState)
    graph.add_node(
        "alice",
        Agent("alice", ScriptedModel(list(steps), cursor="fifo"), tools=own, **options).graph,
        destinations=("bob", "carl"),
    )
    for name in ("bob", "carl"):
        graph.add_node(name, Agent(name, ScriptedModel([name] * 3, cursor="fifo")).graph)
        graph.add_edge(name, END)
    graph.add_edge(START, "alice")
    return graph.compile(checkpointer=saver)


def said(state: Any) -> list[tuple[str, str]]:
    return [(m.name or m.type, m.text) for m in state["messages"]]


@DOORS
@SAVERS
def test_the_run_leaves_for_the_named_node_with_the_update(
    door: Callable[..., Any], saver: Callable[[], Any]
) -> None:
    graph = graph_of(call("to_bob"), saver=saver())
    state = door(graph, GO, {"configurable": {"thread_id": "t"}})
    assert said(state) == [
        ("human", "Go."),
        ("alice", ""),
        ("to_bob", "bob has it"),
        ("bob", "bob"),
    ]
    assert (state["active"], state["log"]) == ("bob", ["bob"])


@DOORS
def test_the_other_calls_of_the_reply_are_answered_too(door: Callable[..., Any]) -> None:
    state = door(graph_of(calls(("add", {"a": 1, "b": 2}), ("to_bob", {}))), GO)
    asked = state["messages"][1]
    assert isinstance(asked, AIMessage)
    answers = {m.tool_call_id: m.text for m in state["messages"] if isinstance(m, ToolMessage)}
    assert [answers[c["id"] or ""] for c in asked.tool_calls] == ["3", "bob has it"]
    assert said(state)[-1] == ("bob", "bob")


@DOORS
def test_two_hand_overs_of_one_reply_go_to_both(door: Callable[..., Any]) -> None:
    state = door(graph_of(calls(("to_bob", {}), ("to_carl", {}))), GO)
    assert [name for name, _ in said(state)].count("alice") == 1
    assert ("to_bob", "bob has it") in said(state)
    assert ("to_carl", "carl has it") in said(state)
    assert {name for name, _ in said(state)[-2:]} == {"bob", "carl"}
    assert state["active"] == "carl"  # the last call's


@pytest.mark.parametrize("bare", ["both", "first", "second"])
def test_messages_outside_a_list_follow_each_other_too(bare: str) -> None:
    def leaver(name: str) -> StructuredTool:
        def leave(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
            """Leave."""
            answer: Any = tool_msg(name, tool_call_id, name)
            answer = answer if bare in ("both", name) else [answer]
            return Command(graph=Command.PARENT, goto="after", update={"messages": answer})

        return StructuredTool.from_function(leave, name=name)

    model = ScriptedModel([calls(("first", {}), ("second", {}))])
    agent = Agent("leaves", model, tools=[leaver("first"), leaver("second")], store=False)
    outer = StateGraph(MessagesState)
    outer.add_node("agent", agent.graph)
    outer.add_node("after", lambda state: {"messages": [AIMessage("After.")]})
    outer.add_edge(START, "agent")
    said = [message.text for message in outer.compile().invoke(GO)["messages"]]
    assert said == ["Go.", "first", "second", "After."]


@DOORS
def test_an_agent_may_come_back(door: Callable[..., Any]) -> None:
    script = ScriptedModel([call("to_bob"), "Thanks."], cursor="fifo")
    alice = Agent("alice", script, tools=[hand_over("bob")])
    script = ScriptedModel([call("to_alice")], cursor="fifo")
    bob = Agent("bob", script, tools=[hand_over("alice")])
    graph = StateGraph(TeamState)
    graph.add_node("alice", alice.graph, destinations=("bob",))
    graph.add_node("bob", bob.graph, destinations=("alice",))
    graph.add_edge(START, "alice")
    state = door(graph.compile(checkpointer=InMemorySaver()), GO, CONFIG)
    assert [name for name, _ in said(state)] == [
        *("human", "alice", "to_bob", "bob", "to_alice", "alice")
    ]
    assert state["log"] == ["bob", "alice"]


@DOORS
def test_an_update_alone_ends_the_agents_node(door: Callable[..., Any]) -> None:
    @tool
    def leave(ctx: ToolContext) -> Command[Any]:
        """Leave."""
        return Command(graph=Command.PARENT, update={"log": ["left"]})

    graph = graph_of(call("leave"), "never", tools=[leave])
    state = door(graph, GO)
    assert state["log"] == ["left"]
    assert said(state) == [("human", "Go.")]


@DOORS
def test_a_send_carries_its_own_state(door: Callable[..., Any]) -> None:
    @tool
    def split(ctx: ToolContext) -> Command[Any]:
        """Split."""
        sends = [Send("bob", {"messages": [("user", text)]}) for text in ("1", "2")]
        return Command(graph=Command.PARENT, goto=sends)

    state = door(graph_of(call("split"), tools=[split]), GO)
    assert {text for _, text in said(state)} >= {"1", "2", "bob"}


@DOORS
def test_a_waiting_call_beside_it_is_answered_first(door: Callable[..., Any]) -> None:
    graph = graph_of(
        calls(("to_bob", {}), ("add", {"a": 1, "b": 2})),
        saver=SqlSaver.from_url("sqlite://"),
        hooks=[ApprovalHook({"add": True})],
    )
    door(graph, GO, CONFIG)
    (asked,) = graph.get_state(CONFIG).interrupts
    assert asked.value["tool"] == "add"
    state = door(graph, Command(resume={"decision": "approve"}), CONFIG)
    assert said(state)[-1] == ("bob", "bob")
    assert ("add", "3") in said(state)


def test_the_agents_own_state_has_the_answer() -> None:
    seen: list[Any] = []

    class See(BaseHook):
        def wrap_tool_call(self, request: Any, next: Any) -> Any:
            result = next(request)
            seen.append((result.output, list(result.update)))
            return result

    saver = SqlSaver.from_url("sqlite://")
    graph = graph_of(call("to_bob"), saver=saver, hooks=[See()])
    parts = list(graph.stream(GO, CONFIG, stream_mode="updates", subgraphs=True))
    assert seen == [("bob has it", ["to_parent"])]
    own = [part["tools"] for place, part in parts if place and "tools" in part]
    assert [m.text for m in own[0]["messages"]] == ["bob has it"]


@pytest.mark.parametrize("saver", [InMemorySaver, lambda: SqlSaver.from_url("sqlite://")])
def test_an_agent_that_keeps_its_state_goes_on_after_it(saver: Callable[[], Any]) -> None:
    script = ScriptedModel([call("to_bob"), "second"], cursor="fifo")
    kept = Agent("alice", script, tools=[hand_over("bob")]).platform_graph()
    graph: Any = StateGraph(TeamState)
    graph.add_node("alice", kept.copy(update={"checkpointer": True}), destinations=("bob",))
    graph.add_node("bob", lambda state: {"log": ["at bob"]})
    graph.add_edge(START, "alice")
    team_graph = graph.compile(checkpointer=saver())
    assert team_graph.invoke(GO, CONFIG)["log"] == ["bob", "at bob"]
    assert said(team_graph.invoke(GO, CONFIG))[-1] == ("alice", "second")


def test_a_team_inside_a_tool_leaves_the_outer_journal_whole() -> None:
    inner = graph_of(call("to_bob"))

    @tool
    def ask_team(ctx: ToolContext) -> str:
        """Ask the team."""
        return str(said(inner.invoke(GO))[-1])

    agent = Agent(model=ScriptedModel([call("ask_team"), "Done."]), tools=[ask_team])
    with agent, DebugSession(agent) as session:
        session.run("Go.", thread_id="t", stop_on_entry=False)
        assert said(session.result)[-2:] == [("ask_team", "('bob', 'bob')"), ("agent", "Done.")]
        whats = [(entry.what, entry.name) for entry in session.inspect.moments()]
    assert ("tool.exit", "to_bob") in whats
    assert ("tool.exit", "ask_team") in whats
    assert whats[-1][0] == "run.exit"


# --- a process that dies --------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["leaving", "bob"])
def test_a_kill_on_the_way_loses_and_repeats_nothing(tmp_path: Path, place: str) -> None:
    database, log = tmp_path / "t.db", tmp_path / "log"
    program = [sys.executable, "-m", "tests.engine.handoff_process"]
    done = forked.run([*program, str(database), str(log), place], cwd=ROOT)
    assert done.returncode == -9
    assert sorted(log.read_text().split()) == ["pay", "to_bob"]
    with SqlSaver.from_url(f"sqlite:///{database}") as saver:
        graph = team(saver, log)
        state = graph.invoke(None, CONFIG)
        assert sorted(log.read_text().split()) == ["pay", "to_bob"]
        assert [text for _, text in said(state)] == ["Go.", "", "bob has it", "paid", "Done."]
        assert graph.get_state(CONFIG).next == ()


# --- what has no parent ---------------------------------------------------------------------------


@tool
def leave_all(ctx: ToolContext) -> Command[Any]:
    """Leave."""
    return Command(goto="bob", graph=Command.PARENT)


def sync_run(agent: Agent) -> list[BaseMessage]:
    return agent.invoke("Go.").messages


def async_run(agent: Agent) -> list[BaseMessage]:
    return asyncio.run(agent.ainvoke("Go.")).messages


def graph_run(agent: Agent) -> list[BaseMessage]:
    found: list[BaseMessage] = agent.graph.invoke(GO)["messages"]
    return found


RUNS = pytest.mark.parametrize("run", [sync_run, async_run, graph_run])


@RUNS
def test_without_a_parent_the_call_fails_and_the_run_goes_on(
    run: Callable[[Agent], list[BaseMessage]],
) -> None:
    agent = Agent(model=ScriptedModel([call("leave_all"), "Stayed."]), tools=[leave_all])
    messages = run(agent)
    assert messages[-1].text == "Stayed."
    assert "leave_all returned a Command for a parent graph" in messages[-2].text
    assert "\n" not in messages[-2].text


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (Command(graph=Command.PARENT, goto="bob", resume=1), "more than an update"),
        (Command(graph=Command.PARENT, goto=[3]), "more than an update"),
        (Command(graph="alice", goto="bob"), "Command with graph"),
        (Command(goto="bob"), "Command with goto"),
        (Command(update={"to_parent": "bob"}), "to_parent: it takes commands of tools alone"),
    ],
)
def test_any_other_command_is_an_error_for_the_model(command: Any, sentence: str) -> None:
    @tool
    def wrong(ctx: ToolContext) -> Any:
        """Go wrong."""
        return command

    state = graph_of(call("wrong"), "Stayed.", tools=[wrong]).invoke(GO)
    assert said(state)[-1] == ("alice", "Stayed.")
    assert sentence in said(state)[-2][1]


@RUNS
def test_a_graph_inside_a_tool_cannot_leave_into_the_agents_own(
    run: Callable[[Agent], list[BaseMessage]],
) -> None:
    inner = Agent("inner", ScriptedModel([call("leave_all")], cursor="fifo"), tools=[leave_all])

    @tool
    def ask_inner(ctx: ToolContext) -> str:
        """Ask the inner agent."""
        return str(inner.graph.invoke(GO))

    agent = Agent(model=ScriptedModel([call("ask_inner"), "Stayed."]), tools=[ask_inner])
    messages = run(agent)
    assert messages[-1].text == "Stayed."
    assert "a graph that ask_inner runs sent a Command to its parent" in messages[-2].text
    assert not agent.graph.get_state({"configurable": {"thread_id": "x"}}).next


def test_a_command_written_by_hand_leads_nowhere_without_a_parent() -> None:
    @tool
    def forge(ctx: ToolContext) -> Command[Any]:
        """Forge."""
        forged = [{"goto": ["bob"], "update": []}]
        return Command(update={"to_parent": forged})

    agent = Agent(model=ScriptedModel([call("forge"), "Stayed."]), tools=[forge])
    assert agent.invoke("Go.").text == "Stayed."


def test_the_unused_state_class_of_langgraph_works_too() -> None:
    graph = StateGraph(MessagesState)
    alice = Agent("alice", ScriptedModel([call("to_bob")]), tools=[_plain_hand_over])
    graph.add_node("alice", alice, destinations=("bob",))
    graph.add_node("bob", Agent("bob", ScriptedModel(["bob"], cursor="fifo")))
    graph.add_edge(START, "alice")
    state = graph.compile().invoke(GO)
    assert said(state)[-1] == ("bob", "bob")


@tool(name="to_bob")
def _plain_hand_over(ctx: ToolContext) -> Command[Any]:
    """Hand over."""
    answer = tool_msg(ctx.call_id, "to_bob", "bob has it")
    update = {"messages": [*ctx.state["messages"], answer]}
    return Command(goto="bob", graph=Command.PARENT, update=update)
