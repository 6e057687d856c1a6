"""Held runs of other people's graphs: a stop says what is held, and an edit is what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from tests.debug.support import WAIT
from wick_graph.debug import DebugSession, Policy, hears, record
from wick_graph.errors import DebugError, RunCancelled
from wick_graph.foreign import seams
from wick_graph.foreign.held import HeldRun
from wick_graph.models.scripted import ScriptedModel


def one_node(node: Any) -> Any:
    made: Any = StateGraph(MessagesState)
    return made.add_node("say", node).add_edge(START, "say").compile()


@pytest.mark.parametrize("door", ["sync", "async"])
def test_a_streamed_call_is_not_said_to_be_held(door: Any) -> None:
    model = FakeListChatModel(responses=["hello"])

    def say(state: Any) -> Any:
        return {"messages": [("ai", "".join(piece.text for piece in model.stream("x")))]}

    async def asay(state: Any) -> Any:
        return {"messages": [("ai", "".join([p.text async for p in model.astream("x")]))]}

    with DebugSession(one_node(say if door == "sync" else asay), store="sqlite://") as session:
        session.add("break model:request")
        begun: Any = {"door": door, "stop_on_entry": False, "timeout": WAIT}
        stop = session.run({"messages": []}, **begun)
        assert (stop.reason, stop.entry and stop.entry.what) == ("breakpoint", "model.request")
        with pytest.raises(DebugError, match="no code waits"):
            session.edit("request.system", "You shout.")
        stop = session.cont(WAIT)
        assert stop.reason == "finished"
        assert [m.text for m in session.result["messages"]] == ["hello"]


class Wrapping(AgentMiddleware):
    """Has a layer around each."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


def test_edits_at_a_layer_are_what_it_gets() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    call = {"name": "add", "args": {"a": 1, "b": 1}, "id": "c1"}
    model = ScriptedModel([AIMessage("", tool_calls=[call]), AIMessage("done")])
    graph = create_agent(model, [add], system_prompt="Add.", middleware=[Wrapping()])
    with DebugSession(graph, store="sqlite://") as session:
        session.add("break hook:Wrapping.wrap_model_call hit 1")
        session.add("break hook:Wrapping.wrap_tool_call")
        begun: Any = {"stop_on_entry": False, "timeout": WAIT}
        assert session.run({"messages": ["sum"]}, **begun).reason == "breakpoint"
        session.edit("request.system", "Multiply.")
        assert session.cont(WAIT).reason == "breakpoint"
        session.edit("args", {"a": 20, "b": 2})
        while (stop := session.cont(WAIT)).reason == "breakpoint":
            pass
        assert stop.reason == "finished", stop.text
        assert [m.text for m in session.result["messages"]] == ["sum", "", "22", "done"]
        first = session.inspect.moments("model.request")[0]
        assert session.inspect.request(first).system == (("agent", "Multiply."),)


def test_a_request_with_stop_words_is_edited() -> None:
    model = FakeListChatModel(responses=["hello"])

    def say(state: Any) -> Any:
        return {"messages": [model.invoke("x", stop=["END"])]}

    with DebugSession(one_node(say), store="sqlite://") as session:
        session.add("break model:request")
        session.run({"messages": []}, stop_on_entry=False, timeout=WAIT)
        session.edit("request.system", "You shout.")
        assert session.cont(WAIT).reason == "finished"
        assert [m.text for m in session.result["messages"]] == ["hello"]


def test_tools_run_after_their_recording_stopped() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def breaks(state: Any) -> Any:
        heard = seams.HEARD.get()
        assert isinstance(heard, HeldRun)
        heard.journal.fail(OSError("full"))
        return {}

    made: Any = StateGraph(MessagesState)
    made.add_node("breaks", breaks).add_node("do", ToolNode([add]))
    graph = made.add_edge(START, "breaks").add_edge("breaks", "do").compile()
    calls = [{"name": "add", "args": {"a": n, "b": 1}, "id": f"c{n}"} for n in (1, 2, 3)]
    with DebugSession(graph, store="sqlite://") as session:
        begun: Any = {"stop_on_entry": False, "timeout": WAIT}
        stop = session.run({"messages": [AIMessage("", tool_calls=calls)]}, **begun)
        assert stop.reason == "finished", stop.text
        assert [m.text for m in session.result["messages"]] == ["", "2", "3", "4"]


def test_a_stream_that_is_no_generator_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chunks:
        def __init__(self, chunks: Any) -> None:
            self._chunks = chunks

        def __iter__(self) -> Iterator[Any]:
            return map(dict, self._chunks)

    graph = one_node(lambda state: {"messages": [("ai", "hello")]})
    own = type(graph).stream

    def stream(self: Any, input: Any, config: Any = None, **more: Any) -> Any:
        return Chunks(own(self, input, config, **more))

    monkeypatch.setattr("langgraph.pregel.Pregel.stream", stream)
    with record(store="sqlite://") as recording:
        assert [[*chunk] for chunk in graph.stream({"messages": []})] == [["say"]]
    assert len(recording.moments("node.enter")) == 1
    recording.close()


class Unreadable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_ends_the_session_too() -> None:
    def say(state: Any) -> Any:
        raise Unreadable

    with DebugSession(one_node(say), store="sqlite://") as session:
        stop = session.run({"messages": []}, stop_on_entry=False, timeout=WAIT)
        assert (stop.reason, stop.text) == ("failed", "its text cannot be shown")


async def test_the_end_of_an_aborted_run_is_seen_once() -> None:
    graph = one_node(lambda state: {"messages": [("ai", "hello")]})
    with DebugSession(graph, store="sqlite://") as session, hears(session):
        first = asyncio.create_task(graph.ainvoke({"messages": []}))
        assert (await asyncio.to_thread(session.wait_for_run, WAIT)).reason == "entry"
        assert (await asyncio.to_thread(session.abort, timeout=WAIT)).reason == "cancelled"
        with pytest.raises(RunCancelled):
            await first
        second = asyncio.create_task(graph.ainvoke({"messages": []}))
        assert (await asyncio.to_thread(session.wait_for_run, WAIT)).reason == "entry"
        session.detach("continue")
        assert [m.text for m in (await second)["messages"]] == ["hello"]


def test_no_fork_or_replay_really_asks_a_streamed_model() -> None:
    asked = []

    class Model(FakeListChatModel):
        def _stream(self, *given: Any, **more: Any) -> Any:
            asked.append(1)
            yield from super()._stream(*given, **more)

    model = Model(responses=["hello"])
    graph = one_node(lambda state: {"messages": ["".join(p.text for p in model.stream("x"))]})
    with record(store="sqlite://") as recording:
        graph.invoke({"messages": []}, {"configurable": {"thread_id": "t"}})
    with recording.session() as session:
        session.agent = graph
        stop = session.live(session.fork("@1"), timeout=WAIT)
        while stop.reason not in ("finished", "failed"):
            stop = session.cont(WAIT)
        assert stop.reason == "failed"
        assert "run it live" in stop.text
        assert len(asked) == 1
        stop = session.live(session.fork("@1", policy=Policy(model="live")), timeout=WAIT)
        while stop.reason not in ("finished", "failed"):
            stop = session.cont(WAIT)
        assert stop.reason == "finished"
        assert len(asked) == 2
    with recording.session() as session:
        session.agent = graph
        stop = session.replay(timeout=WAIT)
        while stop.reason not in ("finished", "failed"):
            stop = session.cont(WAIT)
        assert "streamed" in stop.text
        assert len(asked) == 2
    recording.close()
