"""What people from LangGraph write at an agent: their input forms, chains, pictures, platform."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, HumanMessageChunk, RemoveMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.graph import MermaidDrawMethod
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from tests.engine.support import add, agent_of, async_door, sync_door
from wick_graph import Agent, Result, events
from wick_graph.debug import DebugSession
from wick_graph.errors import ConfigError, MessageError
from wick_graph.testing import ScriptedModel, call

HI = HumanMessage("Hi")

FORMS: list[Any] = [
    [("user", "Hi")],
    [("human", "Hi")],
    [["user", "Hi"]],
    [{"role": "user", "content": "Hi"}],
    [{"role": "human", "content": "Hi"}],
    [{"type": "human", "content": "Hi"}],
    [HI.model_dump()],
    [dumpd(HI)],
    [HI],
    [HumanMessageChunk(content="Hi")],
    ["Hi"],
    (HI,),
    "Hi",
    ("user", "Hi"),
    {"role": "user", "content": "Hi"},
    HI,
]
"""All forms of LangGraph's `add_messages` for one message."""


def stream_door(agent: Agent, given: Any, **options: Any) -> Result:
    *_, last = agent.stream(given, **options)
    assert isinstance(last, events.Done)
    assert isinstance(last.result, Result)
    return last.result


def astream_door(agent: Agent, given: Any, **options: Any) -> Result:
    async def read() -> list[events.Event]:
        return [event async for event in agent.astream(given, **options)]

    *_, last = asyncio.run(read())
    assert isinstance(last, events.Done)
    assert isinstance(last.result, Result)
    return last.result


def graph_door(agent: Agent, given: Any, thread_id: str) -> Any:
    return agent.graph.invoke(given, {"configurable": {"thread_id": thread_id}})["messages"]


def agraph_door(agent: Agent, given: Any, thread_id: str) -> Any:
    config: Any = {"configurable": {"thread_id": thread_id}}
    return asyncio.run(agent.graph.ainvoke(given, config))["messages"]


DOORS = pytest.mark.parametrize(
    "door", [sync_door, async_door, stream_door, astream_door, graph_door, agraph_door]
)


def said(found: Any) -> list[tuple[str, str]]:
    messages = found.messages if isinstance(found, Result) else found
    return [(message.type, message.text) for message in messages]


@DOORS
@pytest.mark.parametrize("form", FORMS, ids=lambda form: repr(form)[:40])
def test_every_form_of_a_message_is_taken(door: Callable[..., Any], form: Any) -> None:
    agent, model = agent_of("Ho.")
    assert said(door(agent, {"messages": form}, thread_id="t")) == [("human", "Hi"), ("ai", "Ho.")]
    assert [m.text for m in model.calls[0].messages] == ["Hi"]
    info = agent.threads.get("t")
    assert info is not None
    assert info.title == "Hi"
    stored = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert type(stored[0]) is HumanMessage


@DOORS
def test_a_conversation_in_pairs(door: Callable[..., Any]) -> None:
    agent = Agent(model=ScriptedModel(["Ho."], cursor="fifo"))
    given = {"messages": [("system", "Be good."), ("user", "1"), ("ai", "2"), ("human", "3")]}
    kinds = [kind for kind, _ in said(door(agent, given, thread_id="t"))]
    assert kinds == ["system", "human", "ai", "human", "ai"]


@DOORS
def test_unknown_keys_are_dropped_with_a_warning(
    door: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    # what the stock adapter of AG-UI sends beside the messages
    extra = {"tools": [], "ag-ui": {"tools": [], "context": []}, "copilotkit": {"actions": []}}
    agent, _ = agent_of("Ho.")
    with caplog.at_level(logging.WARNING, "wick_graph"):
        found = door(agent, {"messages": [("user", "Hi")], **extra}, thread_id="t")
    assert said(found)[-1] == ("ai", "Ho.")
    assert caplog.messages == [
        "dropped from the input: 'tools', 'ag-ui', 'copilotkit'; "
        "an agent takes messages, todos, files, origin"
    ]
    values = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values
    assert not set(extra) & set(values)


@DOORS
def test_the_engines_own_channels_cannot_be_set(
    door: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    agent, model = agent_of("Ho.", max_iterations=3)
    hostile = {"request": {"messages": []}, "middleware": {"x": 1}, "memory": {"a": "Obey."}}
    given = {"messages": [("user", "Hi")], "iteration": 99, "stop_reason": "done", **hostile}
    assert said(door(agent, given, thread_id="t"))[-1] == ("ai", "Ho.")
    assert len(model.calls) == 1
    assert "'middleware'" in caplog.messages[0]
    values = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values
    assert (values["iteration"], values["middleware"], values["memory"]) == (1, {}, {})


@DOORS
def test_files_and_todos_come_with_the_messages(door: Callable[..., Any]) -> None:
    agent, _ = agent_of("Ho.")
    todo = {"id": "1", "title": "Answer.", "status": "pending"}
    given = {"messages": [("user", "Hi")], "files": {"a.md": "A"}, "todos": [todo]}
    door(agent, given, thread_id="t")
    values = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values
    assert (values["files"], values["todos"]) == ({"a.md": "A"}, [todo])


@DOORS
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [("nobody", "Hi")]}, "nobody"),
        ({"messages": [("user", "Hi", "more")]}, "message"),
        ({"messages": [3]}, "int"),
        ({"messages": [("user", "Hi")], "files": ["a"]}, "files: must be a mapping"),
        ({"messages": [{"lc": 1, "type": "constructor", "id": ["os", "system"]}]}, "message"),
    ],
)
def test_what_is_no_message_is_refused_and_nothing_is_stored(
    door: Callable[..., Any], given: Any, sentence: str
) -> None:
    agent, model = agent_of("No.")
    with pytest.raises(MessageError, match=sentence):
        door(agent, given, thread_id="t")
    assert not model.calls
    assert agent.threads.get("t") is None


def test_an_input_without_a_known_key_is_refused() -> None:
    agent, _ = agent_of("No.")
    with pytest.raises(MessageError, match="has no channel 'message'"):
        graph_door(agent, {"message": "Hi"}, "t")
    with pytest.raises(MessageError, match="has no channel 'zz'"):
        graph_door(agent, Command(update={"messages": [("user", "Hi")], "zz": 1}), "t")


def test_an_agents_input_removes_nothing_and_its_graph_does() -> None:
    agent, _ = agent_of("Ho.", "Anew.")
    agent.invoke("Hi", thread_id="t")
    given = {"messages": [RemoveMessage(id="__remove_all__"), ("user", "Start.")]}
    with pytest.raises(MessageError, match=r"message\[0\]: an input removes no message; change"):
        agent.invoke(given, thread_id="t")
    found = graph_door(agent, given, "t")
    assert said(found)[0] == ("human", "Start.")


def test_a_repeated_key_with_other_files_is_another_input() -> None:
    agent, _ = agent_of("Ho.")
    given = {"messages": [("user", "Hi")], "files": {"a": "A"}}
    first = agent.invoke(given, thread_id="t", idempotency_key="k")
    again = agent.invoke({**given, "unknown": 1}, thread_id="t", idempotency_key="k")
    assert again.run_id == first.run_id
    with pytest.raises(Exception, match="was used for another input"):
        agent.invoke({**given, "files": {}}, thread_id="t", idempotency_key="k")


def test_the_debugger_takes_a_state_too() -> None:
    agent, _ = agent_of("Ho.")
    with DebugSession(agent) as session:
        given = {"messages": [("user", "Hi")], "files": {"a": "A"}}
        session.run(given, thread_id="t", stop_on_entry=False)
        assert session.result["messages"][-1].text == "Ho."
    values = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values
    assert values["files"] == {"a": "A"}


# --- chains ---------------------------------------------------------------------------------------


def to_state(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


def last(state: dict[str, Any]) -> str:
    message = state["messages"][-1]
    assert isinstance(message, AIMessage)
    return message.text


STATE = {"messages": [("user", "Hi")]}


def echo(number: int = 20) -> Agent:
    return Agent("echo", ScriptedModel([f"{n}" for n in range(number)]))


@pytest.mark.parametrize(
    ("chain", "given"),
    [
        (lambda agent: agent | last, STATE),
        (lambda agent: agent | RunnableLambda(last), STATE),
        (lambda agent: RunnableLambda(to_state) | agent | last, "Hi"),
        (lambda agent: to_state | agent | last, "Hi"),
        (lambda agent: {"messages": lambda text: [("user", text)]} | agent | last, "Hi"),
        (lambda agent: RunnableLambda(to_state) | agent.graph | last, "Hi"),
    ],
)
def test_an_agent_is_a_step_of_a_chain(chain: Callable[[Agent], Any], given: Any) -> None:
    made = chain(echo())
    assert made.invoke(given) == "0"
    assert asyncio.run(made.ainvoke(given)) == "0"
    assert made.batch([given, given]) == ["0", "0"]  # each in a new thread


def test_agents_follow_each_other() -> None:
    second = Agent("second", ScriptedModel(["Second."], cursor="fifo"))
    state = (echo() | second).invoke(STATE)
    assert said(state["messages"]) == [("human", "Hi"), ("ai", "0"), ("ai", "Second.")]


def test_a_batch_gives_states_of_threads_of_their_own() -> None:
    agent = echo()
    config: Any = [{"configurable": {"thread_id": name}} for name in ("a", "b")]
    assert [last(state) for state in agent.batch([STATE, STATE], config)] == ["0", "0"]
    assert [last(state) for state in asyncio.run(agent.abatch([STATE, STATE], config))] == ["1"] * 2
    assert [last(state) for state in agent.batch([STATE, STATE])] == ["0", "0"]
    assert len(agent.threads.list()) == 4


def test_a_config_stays_with_the_graph() -> None:
    agent = echo()
    graph = agent.with_config(tags=["x"], configurable={"thread_id": "t"})
    assert last(graph.invoke(STATE)) == "0"
    assert last(graph.invoke(STATE)) == "1"
    assert agent.threads.get("t") is not None
    assert agent.graph.config is None or "tags" not in agent.graph.config


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(TypeError):
        echo() | 3
    with pytest.raises(TypeError):
        3 | echo()


def test_an_agent_is_a_node_of_a_graph() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("one", echo())
    graph.add_node("two", Agent("two", ScriptedModel(["Second."] * 2, cursor="fifo")))
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", END)
    compiled: Any = graph.compile()
    wanted = [("human", "Hi"), ("ai", "0"), ("ai", "Second.")]
    assert said(compiled.invoke(STATE)["messages"]) == wanted
    assert said(asyncio.run(compiled.ainvoke(STATE))["messages"]) == wanted


# --- pictures: no host is asked (the tests have no network) ---------------------------------------


def test_a_notebook_shows_our_own_picture() -> None:
    agent = Agent("a<b>&c", ScriptedModel(["x"]), tools=[add])
    for shown in (agent, agent.graph, agent.with_config(tags=["x"]), agent.platform_graph()):
        bundle = shown._repr_mimebundle_(include=None, exclude=None)
        assert bundle["text/plain"] == repr(shown)
        drawn = ElementTree.fromstring(bundle["image/svg+xml"])
        assert drawn.tag.endswith("svg")
        assert "<script" not in bundle["image/svg+xml"]
        assert set(bundle) == {"text/plain", "image/svg+xml"}


def test_langgraphs_picture_needs_a_method_of_drawing() -> None:
    graph = echo().graph
    for drawn in (graph.get_graph(), graph.get_graph(xray=True), asyncio.run(graph.aget_graph())):
        assert "modify_request" in drawn.draw_mermaid()
        with pytest.raises(ConfigError, match=r"would send the graph to mermaid\.ink; draw it"):
            drawn.draw_mermaid_png()
    with pytest.raises(Exception, match="(?i)pyppeteer"):
        graph.get_graph().draw_mermaid_png(draw_method=MermaidDrawMethod.PYPPETEER)


# --- a platform that brings its own checkpointer --------------------------------------------------


def test_the_platforms_graph_has_no_store_of_its_own() -> None:
    agent, _ = agent_of(call("add", a=2, b=3), "5", "And 6.")
    graph = agent.platform_graph()
    assert graph.checkpointer is None
    assert graph.store is None
    assert last(graph.invoke(STATE)) == "5"
    # the platform compiles nothing anew: it copies the graph with its checkpointer
    served = graph.copy(update={"checkpointer": InMemorySaver()})
    config: Any = {"configurable": {"thread_id": "t"}}
    held = served.invoke(STATE, config, interrupt_before=["tools"])
    assert [c["name"] for c in held["messages"][-1].tool_calls] == ["add"]
    assert served.get_state(config).next == ("tools",)
    assert last(served.invoke(None, config)) == "5"
    assert last(served.invoke(STATE, config)) == "And 6."
    assert agent.threads.list() == []
    for schema in (graph.get_input_jsonschema(), graph.get_output_jsonschema()):
        assert "messages" in schema["properties"]
