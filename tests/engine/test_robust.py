"""What a thread survives: cancellation at any instant, values of the wrong kind, odd doors."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.types import Command

from tests.engine.support import Door, add, agent_of
from wick_graph import Agent, BaseHook
from wick_graph.engine import lifecycle, thread_turn
from wick_graph.errors import ConfigError, HookError, MessageError, ThreadNotFoundError
from wick_graph.events import Failed
from wick_graph.nodes.before_agent import unsound
from wick_graph.testing import ScriptedModel, call, calls, respond


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def echo() -> ScriptedModel:
    return ScriptedModel([respond(lambda c: f"heard {c.messages[-1].text}")] * 200, cursor="fifo")


# LangGraph, cancelled between making a save and awaiting it, drops the coroutine with a warning.
dropped = [
    pytest.mark.filterwarnings("ignore:.*AsyncPregelLoop:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .AsyncPregelLoop:RuntimeWarning"),
]


@dropped[0]
@dropped[1]
@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_run_cancelled_at_any_instant_gives_its_thread_back(where: str, tmp_path: Any) -> None:
    store = None if where == "memory" else f"sqlite:///{tmp_path / 't.db'}"

    async def run() -> None:
        with Agent(model=echo(), store=store) as agent:
            for i in range(30):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(agent.ainvoke("x", thread_id=f"t{i}"), 0.0005 * i)
            for i in range(30):
                assert (await agent.ainvoke("y", thread_id=f"t{i}")).text == "heard y"

    asyncio.run(run())


@dropped[0]
@dropped[1]
def test_a_reader_who_leaves_at_once_gives_the_thread_back() -> None:
    async def run() -> None:
        agent = Agent(model=echo())
        for i in range(5):
            stream: Any = agent.astream("x", thread_id=f"t{i}")
            task = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await stream.aclose()
            assert (await agent.ainvoke("y", thread_id=f"t{i}")).text == "heard y"

    asyncio.run(run())


# Closed by hand, the tasks and generators of LangGraph's loop end out of their order, and say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_coroutine_that_is_closed_gives_the_thread_back() -> None:
    loop = asyncio.new_event_loop()

    class Forever(BaseHook):
        name = "forever"

        async def before_agent(self, state: Any, ctx: Any) -> Any:
            if len(state["messages"]) == 1:
                await forever

    forever = asyncio.Future[None](loop=loop)

    async def run() -> None:
        agent = Agent(model=echo(), hooks=[Forever()])
        body = agent.graph.ainvoke({"messages": [("user", "x")]}, on("t"))
        while (waits := body.send(None)) is not forever:  # it is no task, so this awaits for it
            if waits is not None:
                waits._asyncio_future_blocking = False
                await asyncio.wait([waits])
        with contextlib.suppress(RuntimeError):  # what Python 3.13 says of generators within it
            body.close()
        del body
        assert (await agent.ainvoke("y", thread_id="t")).text == "heard y"

    with contextlib.closing(loop):
        loop.run_until_complete(run())


@pytest.mark.parametrize("way", ["ainvoke", "astream", "graph"])
def test_a_tool_that_raises_what_closes_coroutines_gives_the_thread_back(way: str) -> None:
    async def odd() -> str:
        """Raise what nobody asked for."""
        await asyncio.sleep(0)
        raise GeneratorExit

    async def run() -> None:
        agent, _ = agent_of(call("odd"), "ok", tools=[odd])
        with contextlib.suppress(GeneratorExit):
            if way == "ainvoke":
                await agent.ainvoke("?", thread_id="t")
            elif way == "graph":
                await agent.graph.ainvoke({"messages": [("user", "?")]}, on("t"))
            else:
                events = [event async for event in agent.astream("?", thread_id="t")]
                assert isinstance(events[-1], Failed)
        assert (await agent.ainvoke("again", thread_id="t")).text == "ok"

    asyncio.run(run())


def test_cancellation_reaches_through_a_sync_hook() -> None:
    log: list[str] = []
    inside = threading.Event()

    class Slow(BaseHook):
        name = "slow"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            try:
                result = next(call)
            except Exception:
                log.append("taken for an error")
                raise
            log.append("went on after the cancellation")
            return result

    async def wait() -> str:
        """Wait."""
        inside.set()
        await asyncio.sleep(60)
        return "never"

    async def run() -> None:
        agent, _ = agent_of(call("wait"), "ok", tools=[wait], hooks=[Slow()])
        task = asyncio.create_task(agent.ainvoke("?", thread_id="t"))
        while not inside.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)
        assert (await agent.ainvoke("again", thread_id="t")).text == "ok"

    asyncio.run(run())
    assert log == []


def test_a_stop_iteration_is_an_error_like_any_other(door: Door) -> None:
    def empty() -> str:
        """Take the next of nothing."""
        return next(iter([]))

    class Empty(BaseHook):
        name = "empty"

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return next(iter([]))

    agent, _ = agent_of(call("empty"), "ok", tools=[empty])
    assert "StopIteration" in door(agent, "?").messages[2].text
    hooked, _ = agent_of("never", hooks=[Empty()])
    with pytest.raises(HookError, match="hook empty BeforeAgent"):
        door(hooked, "?")


def test_a_tool_that_cancels_itself_is_a_failed_tool(door: Door) -> None:
    async def odd() -> str:
        """Raise what nobody asked for."""
        raise asyncio.CancelledError

    agent, _ = agent_of(call("odd"), "ok", tools=[odd])
    result = door(agent, "?")
    assert result.messages[2].text.startswith("Error: ")
    assert result.text == "ok"


UPDATES: list[dict[str, Any]] = [
    {"usage": {"a": "b"}},
    {"todos": 7},
    {"files": [1]},
    {"messages": [AIMessage("")]},
    {"messages": [HumanMessage("")]},
    {"no_such_channel": 1},
]


@pytest.mark.parametrize("update", UPDATES, ids=str)
def test_a_wrong_update_of_a_tool_fails_the_call_alone(door: Door, update: Any) -> None:
    def writes() -> Any:
        """Write to the state."""
        return Command(update=update)

    agent, _ = agent_of(call("writes"), "ok", "fine", tools=[writes])
    result = door(agent, "?", thread_id="t")
    assert result.messages[2].text.startswith("Error: the tool's state update is refused")
    assert door(agent, "more", thread_id="t").text == "fine"


@pytest.mark.parametrize("update", UPDATES, ids=str)
def test_a_wrong_update_of_a_hook_fails_the_run_alone(door: Door, update: Any) -> None:
    class Writes(BaseHook):
        name = "writes"

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return update

    agent, _ = agent_of("never", hooks=[Writes()])
    with pytest.raises(HookError, match="hook writes BeforeAgent"):
        door(agent, "?", thread_id="t")
    healed, _ = agent_of("fine", store=agent.store)
    assert door(healed, "more", thread_id="t").text == "fine"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"messages": []},
        {"messages": [HumanMessage("x")], "files": [1]},
        {"messages": [HumanMessage("x")], "todos": 7},
        {"messages": [HumanMessage("\ud800")]},
        {"messages": 5},
        "x",
        5,
    ],
    ids=str,
)
def test_a_refused_input_of_the_graph_stores_nothing(given: Any) -> None:
    agent, _ = agent_of("fine")
    with pytest.raises((MessageError, ThreadNotFoundError)):
        agent.graph.invoke(given, on("t"))
    assert agent.threads.list() == []
    assert agent.invoke("more", thread_id="t").text == "fine"


@pytest.mark.parametrize("thread", ["bad id", "a\n", "ü", ""])
def test_a_refused_thread_id_stores_nothing_and_locks_nothing(thread: str) -> None:
    agent, _ = agent_of("fine")
    for _ in range(2):
        with pytest.raises(ConfigError, match="thread id"):
            agent.graph.invoke({"messages": [("user", "x")]}, on(thread))
    assert agent.threads.list() == []


def test_going_on_with_nothing_is_refused_in_one_sentence() -> None:
    agent, _ = agent_of("fine")
    with pytest.raises(ThreadNotFoundError, match="there is no thread nobody to go on with"):
        agent.resume("nobody")
    assert agent.threads.list() == []


@pytest.mark.parametrize("door", ["resume", "aresume"])
def test_going_on_with_a_thread_that_was_just_deleted_is_refused(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = agent_of("fine")
    agent.invoke("?", thread_id="t")
    acquire = thread_turn.acquire_thread

    async def late(*given: Any) -> None:
        agent.threads.delete("t")
        await acquire(*given)

    monkeypatch.setattr(lifecycle, "acquire_thread", late)
    with pytest.raises(ThreadNotFoundError, match="there is no thread t to go on with"):
        _ = agent.resume("t") if door == "resume" else asyncio.run(agent.aresume("t"))
    assert agent.threads.list() == []


def test_an_answer_to_a_finished_thread_changes_nothing() -> None:
    agent, _ = agent_of("done")
    agent.invoke("?", thread_id="t")
    agent.resume("t")
    info = agent.threads.get("t")
    assert (info.status, info.stopped_because) == ("idle", "done")


def test_answers_to_calls_that_nobody_made_are_left_out() -> None:
    agent, model = agent_of(call("add", a=1, b=2), "three", "fine")
    first = agent.invoke("?", thread_id="t")
    asker = first.messages[1].id or ""
    agent.graph.update_state(on("t"), {"messages": [RemoveMessage(asker)]}, as_node="model")
    orphan = {"messages": [HumanMessage("x"), ToolMessage("lost", tool_call_id="nobody", name="n")]}
    made = agent.graph.invoke(orphan, on("t"))
    assert not any(isinstance(m, ToolMessage) for m in model.calls[-1].messages)
    assert not any(isinstance(m, ToolMessage) for m in made["messages"]), "the thread has none"


def asks(*ids: str | None) -> AIMessage:
    made: Any = [{"name": "add", "args": {}, "id": one, "type": "tool_call"} for one in ids]
    return AIMessage("").model_copy(update={"tool_calls": made})


def answer(call_id: str) -> ToolMessage:
    return ToolMessage("3", tool_call_id=call_id, name="add")


@pytest.mark.parametrize(
    ("chain", "dangling", "orphans"),
    [
        ([], [], []),
        ([asks("a"), answer("a")], [], []),
        ([asks("a", "b"), answer("b"), answer("a")], [], []),
        ([asks("a")], [(0, 0)], []),
        ([asks("a", "b", "c"), answer("b")], [(0, 0), (0, 2)], []),
        ([asks("a"), asks("a"), answer("a")], [(0, 0)], []),
        ([asks("a"), answer("a"), asks("a")], [(2, 0)], []),  # answered in an earlier turn
        ([asks("a"), answer("a"), HumanMessage("x"), asks("a", "b")], [(3, 0), (3, 1)], []),
        ([asks(None)], [(0, 0)], []),
        ([asks(None), answer("")], [(0, 0)], []),
        ([asks("a", None), answer("a"), answer("b")], [(0, 1)], [2]),
        ([asks("a"), answer("a"), answer("b")], [], [2]),
        ([answer("a"), asks("a"), answer("a")], [], [0]),
        ([asks("a"), answer("a"), HumanMessage("x"), answer("a")], [], [3]),  # not its turn
        ([asks("a"), HumanMessage("x"), answer("a")], [(0, 0)], [2]),
        ([asks("a"), answer("a"), AIMessage("so"), answer("a")], [], [3]),
        ([asks("a"), answer("a"), answer("a")], [], []),  # the model gets the first
    ],
)
def test_calls_without_answers_and_answers_without_calls_are_found(
    chain: list[Any], dangling: list[tuple[int, int]], orphans: list[int]
) -> None:
    places = {id(message): at for at, message in enumerate(chain)}
    calls_, answers = unsound(chain)
    assert [(places[id(reply)], at) for reply, at in calls_] == dangling
    assert [places[id(one)] for one in answers] == orphans


@pytest.mark.parametrize("way", ["batch", "abatch", "pipe", "events"])
def test_langchains_own_doors_do_not_shorten_a_run(way: str) -> None:
    steps = [call("add", a=i, b=1) for i in range(12)]
    agent, _ = agent_of(*steps, "done")
    given: Any = {"messages": [HumanMessage("?")]}

    async def events() -> Any:
        last: Any = None
        async for event in agent.graph.astream_events(given, on("t"), version="v2"):
            last = event
        return last["data"]["output"]

    made: Any = {
        "batch": lambda: agent.graph.batch([given], [on("t")])[0],
        "abatch": lambda: asyncio.run(agent.graph.abatch([given], [on("t")]))[0],
        "pipe": lambda: (RunnableLambda(lambda x: x) | agent.graph).invoke(given, on("t")),
        "events": lambda: asyncio.run(events()),
    }[way]()
    assert made["messages"][-1].text == "done"


def test_a_thread_id_in_the_config_is_the_threads_id() -> None:
    agent, _ = agent_of("one", "two")
    assert agent.invoke("a", config=on("mine")).thread_id == "mine"
    with pytest.raises(ConfigError, match="two thread ids"):
        agent.invoke("b", config=on("mine"), thread_id="other")


def test_a_sub_agent_called_with_its_callers_config_keeps_to_its_own_store() -> None:
    inner, _ = agent_of("from the inside")
    made: list[str] = []

    def delegate(task: str, config: Any = None) -> str:
        """Ask the other agent."""
        result = inner.invoke(task, config=outer.graph.config)
        made.append(result.thread_id)
        return result.text

    outer, _ = agent_of(call("delegate", task="x"), "ok", tools=[delegate])
    outer.invoke("?", thread_id="t")
    assert inner.threads.get(made[0]) is not None
    assert [t.thread_id for t in outer.threads.list()] == ["t"]


def test_calls_are_told_apart_where_a_provider_uses_its_ids_again() -> None:
    twice = [calls(("add", {"a": n, "b": 1}, "c0")) for n in (1, 2)]
    agent, _ = agent_of(*twice, "ok")
    assert [c["output"] for c in agent.invoke("?").tool_calls] == ["2", "3"]


def test_a_failed_tool_is_an_error_to_callback_handlers(door: Door) -> None:
    heard: list[str] = []

    class Ear(BaseCallbackHandler):
        def on_tool_end(self, *args: Any, **kwargs: Any) -> None:
            heard.append("end")

        def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
            heard.append(str(error))

    def boom() -> str:
        """Fail."""
        raise ValueError("broken")

    agent, _ = agent_of(call("boom"), "ok", tools=[boom])
    door(agent, "?", config={"callbacks": [Ear()]})
    assert heard == ["ValueError: broken"]


def test_a_long_thread_stays_usable_and_time_is_bounded() -> None:
    agent, _ = agent_of(*[call("add", a=i, b=1) for i in range(99)], "end", max_iterations=200)
    started = time.monotonic()
    result = agent.invoke("?")
    assert result.text == "end"
    assert len(result.messages) == 200
    assert time.monotonic() - started < 60
    assert add(1, 2) == "3"
