"""Compiled LangGraph graphs that are run as agents, through every method of an agent."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel
from typing_extensions import TypedDict

from wick_graph import Agent, events, langgraph_config
from wick_graph.core.stopping import Stop
from wick_graph.engine.guest import GuestAgent
from wick_graph.errors import ConfigError, RunError, ThreadBusyError
from wick_graph.hooks import ApprovalHook
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call


def shout(text: str) -> str:
    """Write in capital letters."""
    return text.upper()


def guest(graph: Any, name: str = "guest", store: Any = "sqlite://") -> GuestAgent:
    return GuestAgent(graph, name).copy_with(store)


def chain(node: Any, state: Any = MessagesState, **more: Any) -> Any:
    return StateGraph(state).add_node("node", node).add_edge(START, "node").compile(**more)


def text_of(told: list[events.Event]) -> str:
    return "".join(one.delta for one in told if isinstance(one, events.ChatModelStream))


SHOUTS: list[Any] = [call("shout", text="hi"), "HI, it is."]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_both_agents_of_langchain_are_run() -> None:
    for make in (create_agent, create_react_agent):
        agent = guest(make(ScriptedModel(SHOUTS * 2), tools=[shout]))
        with agent:
            told = [*agent.stream("Shout.", thread_id="t")]
            assert text_of(told) == "HI, it is."
            (end,) = [one for one in told if isinstance(one, events.ToolEnd)]
            assert (end.name, end.output, end.error) == ("shout", "HI", None)
            done = agent.invoke("Again.", thread_id="t")
            assert (done.text, done.usage.calls, done.thread_usage.calls) == ("HI, it is.", 2, 4)


async def test_calls_in_other_threads_reach_the_reader_in_order() -> None:
    model = ScriptedModel(["one two three four."] * 3)

    def node(state: MessagesState) -> Any:  # in a thread, since it is sync
        assert threading.current_thread() is not threading.main_thread()
        return {"messages": [model.invoke(state["messages"])]}

    with guest(chain(node)) as agent:
        told = [event async for event in agent.astream("Count.", thread_id="t")]
    kinds = [type(event).__name__ for event in told]
    assert text_of(told) == "one two three four."
    assert (kinds[0], kinds[-2:]) == ("ChatModelStart", ["ChatModelEnd", "Done"])


def test_models_in_parallel_nodes_are_all_reported() -> None:
    model = ScriptedModel(["Left or right."] * 2)

    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("left", ask).add_node("right", ask)
    both = graph.add_edge(START, "left").add_edge(START, "right").compile()
    with guest(both) as agent:
        told = [*agent.stream("Go.")]
    ends = [event for event in told if isinstance(event, events.ChatModelEnd)]
    assert [end.content for end in ends] == ["Left or right."] * 2


def test_a_graph_that_repeats_its_messages_is_not_reported_twice() -> None:
    class Whole(MessagesState):
        pass

    def echo(state: Any) -> Any:
        return {"messages": [*state["messages"], ("ai", f"{len(state['messages'])}")]}

    with guest(chain(echo, Whole)) as agent:
        assert text_of([*agent.stream("a", thread_id="t")]) == "1"
        assert text_of([*agent.stream("b", thread_id="t")]) == "3"


def test_breakpoints_and_questions_are_continued() -> None:
    model = ScriptedModel(SHOUTS)
    with guest(create_agent(model, tools=[shout], interrupt_before=["tools"])) as agent:
        first = agent.invoke("Shout.", thread_id="t")
        assert (first.stopped_because, first.interrupts) == ("interrupted", ())
        assert agent.threads.get("t").status == "waiting"
        assert agent.resume("t").text == "HI, it is."
    asks = HumanInTheLoopMiddleware({"shout": True})
    with guest(create_agent(ScriptedModel(SHOUTS), tools=[shout], middleware=[asks])) as agent:
        (question,) = agent.invoke("Shout.", thread_id="t").interrupts
        assert question.value["action_requests"][0]["name"] == "shout"
        done = agent.resume("t", {"decisions": [{"type": "approve"}]})
        assert (done.text, done.tool_calls[0]["output"]) == ("HI, it is.", "HI")


class Person(BaseModel):
    name: str


class Typed(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    person: Person | None = None


def test_a_state_of_classes_comes_back() -> None:
    def know(state: Typed) -> Any:
        seen = "again" if isinstance(state.person, Person) else "first"
        return {"messages": [AIMessage(seen)], "person": Person(name="Bob")}

    with guest(chain(know, Typed)) as agent:
        texts = [agent.invoke("Hi", thread_id="t").text for _ in range(2)]
    assert texts == ["first", "again"]


def test_its_own_class_and_config_are_kept() -> None:
    class Own(CompiledStateGraph):  # type: ignore[type-arg]  # any state
        def stream(self, *args: Any, **kwargs: Any) -> Any:
            streamed.append(1)
            return super().stream(*args, **kwargs)

    streamed: list[int] = []
    seen: list[Any] = []

    def look(state: Any, config: RunnableConfig) -> Any:
        seen.append((config["recursion_limit"], config["tags"]))
        return {"messages": [AIMessage("Done.")]}

    graph = chain(look).with_config({"recursion_limit": 7, "tags": ["mine"]})
    graph.__class__ = Own
    with guest(graph) as agent:
        assert agent.invoke("Hi").text == "Done."
    assert (streamed, seen) == ([1], [(7, ["mine"])])
    assert graph.checkpointer is None


async def test_a_reader_who_leaves_ends_the_run() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(state: Any) -> Any:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    agent = guest(chain(wait))
    reader = agent.astream("Hi", thread_id="t")
    first = asyncio.ensure_future(anext(reader))
    await began.wait()
    with pytest.raises(ThreadBusyError):
        await agent.ainvoke("Too", thread_id="t")
    first.cancel()
    await asyncio.wait([first])
    await reader.aclose()  # type: ignore[attr-defined]  # an async generator
    assert ended.is_set()
    info = await agent.threads.aget("t")
    assert (info.status, info.stopped_because) == ("idle", "cancelled")
    agent.close()


def test_a_run_is_cancelled_and_its_deadline_holds_between_two_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Stop.ask

    def asked(self: Stop, because: str, text: str) -> bool:
        found = ask(self, because, text)
        go.set()
        return found

    def step(state: MessagesState) -> Any:
        began.set()
        go.wait(60)
        return {"messages": [AIMessage("Step.")]}

    began, go = threading.Event(), threading.Event()
    graph = StateGraph(MessagesState).add_node("one", step).add_node("two", step)
    agent = guest(graph.add_edge(START, "one").add_edge("one", "two").compile())
    results: list[Any] = []
    work = threading.Thread(target=lambda: results.append(agent.invoke("Hi", thread_id="t")))
    work.start()
    began.wait(60)
    monkeypatch.setattr(Stop, "ask", asked)
    assert agent.cancel("t")
    work.join(60)
    assert results[0].stopped_because == "cancelled"
    assert [message.text for message in agent.resume("t").messages] == ["Hi", "Step.", "Step."]
    go.clear()
    assert agent.invoke("Hi", thread_id="late", deadline=0.1).stopped_because == "limit"
    agent.close()


def test_approval_rules_that_it_cannot_keep_end_the_run() -> None:
    rules = ApprovalHook({"shout": True})
    graph = create_agent(ScriptedModel(SHOUTS), tools=[shout])
    child = guest(graph, "child")
    task = call("delegate_to_agent", agent="child", task="Shout.")
    boss = Agent(
        "boss",
        ScriptedModel([task, "It failed."]),
        tools=[delegation({"child": Subagent(child, "Shouts.")})],
        hooks=[rules],
        store="sqlite://",
    )
    with boss, child:
        done = boss.invoke("Go.", thread_id="t")
        assert "which the graph child cannot keep" in done.tool_calls[0]["error"]
        thread = child.threads.list()[0].thread_id
        with pytest.raises(ConfigError, match="bound by approval rules"):
            child.invoke("Shout.", thread_id=thread)


def test_it_is_a_sub_agent_without_rules() -> None:
    child = guest(create_agent(ScriptedModel(SHOUTS), tools=[shout]), "child")
    task = call("delegate_to_agent", agent="child", task="Shout.")
    tools = [delegation({"child": Subagent(child, "Shouts.")})]
    with Agent(model=ScriptedModel([task, "Done."]), tools=tools) as boss, child:
        told = [*boss.stream("Go.")]
        below = [e.inner.event for e in told if isinstance(e, events.SubagentEvent)]
        assert "on_tool_end" in below
        (end,) = [e for e in told if isinstance(e, events.ToolEnd)]
        assert end.output == "HI, it is."


def test_a_failure_of_a_node_is_a_sentence() -> None:
    def fail(state: Any) -> Any:
        raise LookupError("no such thing")

    with guest(chain(fail)) as agent:
        with pytest.raises(RunError, match="the graph guest failed: LookupError: no such thing"):
            agent.invoke("Hi", thread_id="t")
        told = [*agent.stream("Hi", thread_id="t")]
        assert isinstance(told[-1], events.Failed)
        state = agent.graph.get_state({"configurable": {"thread_id": "t"}})
        kinds = [message.type for message in state.values["messages"]]
        assert kinds == ["human", "human"]  # no record of the engine is among them


def test_it_keeps_its_own_checkpointer() -> None:
    own = InMemorySaver()

    def count(state: Any) -> Any:
        return {"messages": [AIMessage(str(len(state["messages"])))]}

    agent = GuestAgent(chain(count, checkpointer=own), "guest")
    assert [agent.invoke("Hi", thread_id="t").text for _ in range(2)] == ["1", "3"]
    config: Any = langgraph_config.with_configurable(None, thread_id="t")
    saved = own.get_tuple(config)
    assert saved is not None
    assert len(saved.checkpoint["channel_values"]["messages"]) == 4


def test_messages_that_are_plain_dicts_are_read() -> None:
    class Loose(TypedDict):
        messages: list[Any]

    def loose(state: Any) -> Any:
        return {"messages": [{"role": "assistant", "content": "Loose."}]}

    with guest(chain(loose, Loose)) as agent:
        for _ in range(2):
            given = {"role": "user", "content": "Hi", "id": "m1"}
            assert agent.invoke(given, thread_id="t").text == "Loose."


def test_a_reply_that_was_cut_off_adds_nothing_to_the_graphs_thread() -> None:
    model = ScriptedModel(["one two three four five"], chunk_delay=0.05)
    with guest(chain(lambda state: {"messages": [model.invoke(state["messages"])]})) as agent:
        told: Any = agent.stream("Count.", thread_id="t")
        assert next(one for one in told if isinstance(one, events.ChatModelStream)).delta
        told.close()
        assert [m.type for m in agent.resume("t").messages] == ["human", "ai"]


class Noted(MessagesState):
    """A state with a channel that no agent has."""

    blob: str


def note(state: Any) -> Any:
    return {"messages": [AIMessage("Noted.")], "blob": "kept"}


def kept_for(info: Any) -> Any:
    return info.expires_at and round((info.expires_at - info.last_access).total_seconds())


def test_an_agent_does_not_drop_the_state_of_a_graph(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/wick.db"
    own = Agent("mine", ScriptedModel(["Mine."] * 9), store=store, ttl="1m")
    with (
        own,
        guest(chain(note, Noted), store=store) as noted,
        guest(chain(lambda state: {"messages": [AIMessage("Plain.")]}), "plain", store) as plain,
    ):
        noted.invoke("Hi", thread_id="t")
        kept: Any = noted.store
        lasts = kept_for(kept.threads.get("t"))
        doors: dict[str, Any] = {
            "invoke": lambda: own.invoke("More.", thread_id="t"),
            "ainvoke": lambda: asyncio.run(own.ainvoke("More.", thread_id="t")),
            "graph": lambda: own.graph.invoke(
                {"messages": [("user", "More.")]}, {"configurable": {"thread_id": "t"}}
            ),
            "resume": lambda: own.resume("t"),
        }
        said = "belongs to the agent guest, and the agent mine has no channel blob for its state"
        for door, call_it in doors.items():
            with pytest.raises(ConfigError, match=said):
                call_it()
            head = noted.graph.get_state({"configurable": {"thread_id": "t"}})
            assert (door, head.values["blob"], len(head.values["messages"])) == (door, "kept", 2)
            info = kept.threads.get("t")
            assert (door, info.agent, info.status) == (door, "guest", "idle")
            assert (door, kept_for(info)) == (door, lasts), "it would be swept too early"
        (failed,) = own.stream("More.", thread_id="t")
        assert isinstance(failed, events.Failed)
        assert said in failed.error
        assert noted.invoke("Again.", thread_id="t").text == "Noted.", "its own agent goes on"
        plain.invoke("Hi", thread_id="messages-alone")
        assert own.invoke("More.", thread_id="messages-alone").text == "Mine."
