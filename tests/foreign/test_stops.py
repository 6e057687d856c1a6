"""One table of breakpoints over other people's graphs: equal stops live and past, at both doors."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from tests.debug.support import WAIT
from tests.foreign.graphs import (
    GRAPHS,
    Made,
    add,
    calls,
    closure,
    commands,
    config,
    fail,
    loop,
    model,
    react,
    retried,
    subgraph,
)
from wick_graph.debug import DebugSession, hears, record
from wick_graph.errors import DebugError

OVER = ("finished", "failed", "interrupt", "end", "cancelled")


def tools(saver: Any) -> Made:
    """One call that succeeds, and one that fails, each by itself."""
    first, second = calls(("add", {"a": 1, "b": 2})), calls(("fail", {"why": "no"}))
    second.tool_calls[0]["id"] = "c1"
    bound = model(first, second, "done")
    made: Any = StateGraph(MessagesState)
    made.add_node("think", lambda s: {"messages": [bound.invoke(s["messages"])]})
    made.add_node("do", ToolNode([add, fail], handle_tool_errors=True))
    made.add_edge(START, "think").add_edge("do", "think")
    made.add_conditional_edges(
        "think", lambda s: "do" if s["messages"][-1].tool_calls else END, ["do", END]
    )
    return Made(made.compile(checkpointer=saver), [{"messages": [("user", "sum")]}])


def breaks(saver: Any) -> Made:
    made: Any = StateGraph(MessagesState)
    made.add_node("one", lambda s: {}).add_node("two", lambda s: s["none"])
    made.add_edge(START, "one").add_edge("one", "two")
    return Made(made.compile(checkpointer=saver), [{"messages": []}])


def no_model(saver: Any) -> Made:
    return Made(create_agent(model(), checkpointer=saver), [{"messages": [("user", "hi")]}])


TABLE: list[tuple[Any, str, list[str]]] = [
    (loop, "break a", ["node.enter a"] * 3),
    (loop, "break a:exit", ["node.exit a"] * 3),
    (loop, "break node:b", ["node.enter b"] * 3),
    (loop, "break node:*:exit hit %2", ["node.exit b"] * 3),
    (loop, "break a if n == 1", ["node.enter a"]),
    (loop, "break b hit 2", ["node.enter b"]),
    (loop, "tbreak b", ["node.enter b"]),
    (loop, "break b if visit > 1 hit >=2", ["node.enter b"]),
    (loop, "break route", ["route.taken"] * 3),
    (loop, "break route:a", ["route.taken"] * 2),
    (loop, "break route:__end__", ["route.taken"]),
    (loop, "watch n", ["node.exit a"] * 3),
    (loop, "watch log if len(log) > 3", ["node.exit b", "node.exit a", "node.exit b"]),
    (loop, "watch log[0]", ["node.exit a"]),
    (loop, "break run:exit", ["run.exit"]),
    (loop, "catch error", []),
    (loop, "break a if args.nothing == 1 hit 1", ["node.enter a"] * 3),
    (tools, "break think if len(messages) > 1", ["node.enter think"] * 2),
    (tools, "break do", ["node.enter do"] * 2),
    (tools, "break tool:add", ["tool.enter add"]),
    (tools, "break tool:*", ["tool.enter add", "tool.enter fail"]),
    (tools, "break tool:add if args.b == 2", ["tool.enter add"]),
    (tools, "break tool:add if args.b == 3", []),
    (tools, "break tool:add:after", ["tool.exit add"]),
    (tools, "break tool:* if error", ["tool.error fail"]),
    (tools, "catch tool-error", ["tool.error fail"]),
    (tools, "catch error", ["tool.error fail"]),
    (tools, "break model:request if len(request.messages) > 2", ["model.request"] * 2),
    (tools, "break model:response hit 3", ["model.response"]),
    (tools, "watch messages if len(messages) == 3", ["node.exit do"]),
    (react, "break hook:Prompting", ["hook.enter Prompting"] * 2),
    (react, "break hook:P*.wrap_model_call:exit hit 2", ["hook.exit Prompting"]),
    (react, "break hook:Doubling", ["hook.enter Doubling"]),
    (react, "break tool:add if args.a == 2", ["tool.enter add"]),
    (react, "break Counting.before_model", ["node.enter Counting.before_model"] * 2),
    (react, "break model:request if 'brief' in request.system", ["model.request"] * 2),
    (subgraph, "break node:inner/ask", ["node.enter inner/ask"]),
    (subgraph, "break interrupt", ["interrupt.raise inner/ask"]),
    (subgraph, "catch interrupt", ["interrupt.raise inner/ask"]),
    (closure, "break node:deep", ["node.enter outer/deep"]),
    (commands, "break inner:exit", ["node.exit inner"]),
    (commands, "break last", ["node.enter last"]),
    (retried, "break retry", ["node.retry flaky"] * 2),
    (retried, "catch retry hit 2", ["node.retry flaky"]),
    (breaks, "catch error", ["node.error two"]),
    (breaks, "break two:exit", ["node.error two"]),
    (no_model, "catch model-error", ["model.error"]),
]
ROWS = [pytest.param(*row, id=f"{row[0].__name__}-{row[1]}") for row in TABLE]


def collected(session: DebugSession, stop: Any) -> list[str]:
    found = []
    while stop.reason not in OVER:
        assert stop.breakpoint == 1
        named = stop.entry.kind in ("node", "tool", "hook", "interrupt")
        found.append(f"{stop.entry.what} {stop.entry.name}" if named else stop.entry.what)
        stop = session.cont(timeout=WAIT)
    return found


@pytest.mark.parametrize(("make", "spec", "expected"), ROWS)
def test_the_same_stops_live_and_past(make: Any, spec: str, expected: list[str]) -> None:
    graph = make(InMemorySaver())
    with record(store="sqlite://") as recording:
        try:
            graph.graph.invoke(graph.inputs[0], {"configurable": {"thread_id": "t"}})
        except (KeyError, RuntimeError, StopIteration):
            assert make in (breaks, no_model)
    with recording.session() as past:
        assert past.add(spec).spec == spec
        assert collected(past, past.cont()) == expected
    recording.close()
    for door in ("sync", "async"):
        graph = make(InMemorySaver())
        with DebugSession(graph.graph, store="sqlite://") as live:
            live.add(spec)
            begun: Any = {"thread_id": "t", "door": door, "stop_on_entry": False, "timeout": WAIT}
            assert collected(live, live.run(graph.inputs[0], **begun)) == expected, door


@pytest.mark.parametrize("door", ["sync", "async"])
def test_what_is_held_is_changed_or_skipped(door: Any) -> None:
    graph = react(InMemorySaver())
    with DebugSession(graph.graph, store="sqlite://") as session:
        session.add("break model:request hit 1")
        session.add("break tool:add")
        session.add("break tool:add:after")
        session.add("break model:exit hit 2")
        begun: Any = {"thread_id": "t", "door": door, "stop_on_entry": False, "timeout": WAIT}
        assert session.run("sum", **begun).breakpoint == 1
        session.edit("request.system", "You subtract.")
        assert session.cont(WAIT).breakpoint == 2
        assert session.value("args") == {"a": 2, "b": 2}
        session.edit("args", {"a": 20, "b": 2})
        assert session.cont(WAIT).breakpoint == 3
        assert session.value("output") == "22"
        session.edit("result", "minus 18")
        assert session.cont(WAIT).breakpoint == 4
        session.edit("writes.messages", [{"role": "assistant", "content": "No."}])
        assert session.cont(WAIT).reason == "finished"
        texts = [message.text for message in session.result["messages"]]
        assert texts == ["sum", "", "minus 18", "No."]
        assert [c.by for c in session.why("messages[3].content", "@last")][:1] == ["model"]


def test_calls_are_skipped() -> None:
    graph = react(None)
    with DebugSession(graph.graph, store="sqlite://") as session:
        session.add("break model:request hit 2")
        session.add("break tool:add")
        begun: Any = {"stop_on_entry": False, "timeout": WAIT}
        assert session.run("sum", **begun).breakpoint == 2
        session.skip("nothing")
        assert session.cont(WAIT).breakpoint == 1
        session.skip("By hand.")
        assert session.cont(WAIT).reason == "finished"
        assert [m.text for m in session.result["messages"]][2:] == ["nothing", "By hand."]


async def test_an_async_run_that_is_held_does_not_hold_its_loop() -> None:
    made: Any = StateGraph(MessagesState)

    async def say(state: MessagesState) -> Any:
        return {"messages": [("ai", "hello")]}

    made.add_node("say", say).add_edge(START, "say")
    graph = made.compile()
    with DebugSession(graph, store="sqlite://") as session:
        session.add("break say")
        with hears(session):
            running = asyncio.create_task(graph.ainvoke({"messages": []}))
            assert (await asyncio.to_thread(session.wait_for_run, WAIT)).reason == "entry"
            assert (await asyncio.to_thread(session.cont, WAIT)).breakpoint == 1
            until, ticks, slowest = time.monotonic() + 5, 0, 0.0
            while time.monotonic() < until:
                before = time.monotonic()
                await asyncio.sleep(0.01)
                slowest, ticks = max(slowest, time.monotonic() - before), ticks + 1
            assert not running.done()
            assert ticks > 100
            assert slowest < 2
            await asyncio.to_thread(session.detach, "continue")
            assert [m.text for m in (await running)["messages"]] == ["hello"]


def test_a_run_is_ended_and_left_for_later() -> None:
    graph = loop(InMemorySaver())
    with DebugSession(graph.graph, store="sqlite://") as session:
        session.add("break b")
        session.run({"n": 0}, thread_id="t", stop_on_entry=False, timeout=WAIT)
        left = session.detach("keep", timeout=WAIT)
        assert left is not None
        assert left.reason == "durable"
        assert graph.ran == {"a": 1}
        assert session.mode == "LIVE stopped (durable)"
        stop = session.live(timeout=WAIT)
        while stop.breakpoint != 1:
            stop = session.cont(WAIT)
        assert session.abort(timeout=WAIT).reason == "cancelled"
        assert graph.ran == {"a": 1}
    alone = loop(None)
    with DebugSession(alone.graph, store="sqlite://") as session:
        session.run({"n": 0}, timeout=WAIT)
        with pytest.raises(DebugError, match="no store"):
            session.detach("keep")


async def test_a_run_is_made_on_the_loop_of_its_saver() -> None:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        graph, given = (made := GRAPHS["send"](saver)).graph, made.inputs[0]
        many = [graph.ainvoke(given, config()) for _ in range(20)]
        await asyncio.gather(*many)  # they wait for the saver's lock, which then has its loop

        def debugged() -> tuple[str, Any]:
            with DebugSession(graph, store="sqlite://") as session:
                session.run(given, door="async", timeout=WAIT)
                return session.cont(timeout=WAIT).reason, session.error

        assert await asyncio.to_thread(debugged) == ("finished", None)
        with (
            DebugSession(graph, store="sqlite://") as session,
            pytest.raises(DebugError, match="to_thread"),
        ):
            session.run(given, timeout=WAIT)
