"""Live runs, held at every moment of them; nothing is run again."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.debug.support import WAIT, World
from tests.support.provider import Provider
from tests.support.waiting import until
from wick_graph import Agent, ToolContext, tool
from wick_graph.core import stopping
from wick_graph.debug import DebugSession, Stop
from wick_graph.errors import DebugError
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls

DOORS = [pytest.param("sync", id="invoke"), pytest.param("async", id="ainvoke")]
ENDS = ("finished", "failed", "cancelled", "interrupt", "durable")


class HandClock:
    """The time by which runs that are debugged have limits: it passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        monkeypatch.setattr(stopping, "time", self)

    def monotonic(self) -> float:
        return self._now

    def forward(self, seconds: float) -> None:
        self._now += seconds


def stops(session: DebugSession, first: Stop, verb: str = "step") -> list[Stop]:
    """Collect every stop of a run."""
    found = [first]
    while found[-1].reason not in ENDS:
        found.append(session.verb(verb, timeout=WAIT))
    return found


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("row", ["M3"])
def test_each_moment_of_hooks_and_parallel_tools_can_be_stopped_at(
    row: str, door: Any, world: World, url: str
) -> None:
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        found = stops(session, session.run("add them", thread_id="t", door=door, timeout=WAIT))
        held = [stop.entry.seq for stop in found if stop.entry]
        recorded = [entry.seq for entry in session.inspect.moments()]
        assert held == recorded, [stop.entry for stop in found if stop.entry][-1]
        between = [stop.entry.what for stop in found if stop.entry]
        assert between.count("hook.enter") == 2 + 2 * 1 + 2 * 1 + 3 * 2 + 1
        assert found[1].mode == "LIVE stopped (volatile)"
        assert found[-1].mode == "PAST"
        assert sorted(world.added) == [(-3, 11), (1, 11), (2, 11)]
        assert session.result["messages"][-1].text == "Done."


@pytest.mark.parametrize("door", DOORS)
def test_the_second_of_three_parallel_calls_is_held_alone(
    door: Any, world: World, url: str
) -> None:
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.run("add them", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)
        stop = session.last_stop
        assert stop is not None
        assert (stop.reason, session.inspect.call()) == (
            "breakpoint",
            {
                "name": "add",
                "id": "call_1_2",
                "args": {"a": 2, "b": 11},
                "args_before": {"a": 2, "b": 1},
                "result": None,
                "error": None,
            },
        )
        assert (2, 11) not in world.added
        assert [frame.kind for frame in session.inspect.where()] == [
            *("tool", "hook", "hook", "tool", "node", "agent")
        ]
        session.edit("args", {"a": 20, "b": 2})
        assert session.cont(timeout=WAIT).reason == "finished"
        assert sorted(world.added) == [(-3, 11), (1, 11), (20, 2)]


@pytest.mark.parametrize("door", DOORS)
def test_what_is_held_can_be_changed(door: Any, world: World, url: str) -> None:
    agent, model = world.agent(url, call("add", a=1, b=1), "Done.", "Never said.")
    with agent, DebugSession(agent) as session:
        session.add("tbreak model:request")
        session.add("tbreak tool:add")
        session.add("tbreak tool:add:after")
        session.add("tbreak model:response if visit == 2")
        session.run("go", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)
        session.edit("request.system", "Be somebody else.")
        session.edit("request.settings", {"temperature": 0.9})
        assert session.cont(timeout=WAIT).reason == "breakpoint"
        assert "Be somebody else." in str(model.calls[0].messages[0].content)
        assert "not run" in session.skip("42")
        assert session.cont(timeout=WAIT).entry == session.here
        session.edit("result", {"output": "43"})
        assert session.cont(timeout=WAIT).reason == "breakpoint"
        session.edit("response", "I say so.")
        assert session.cont(timeout=WAIT).reason == "finished"
        assert world.added == []
        texts = [message["content"] for message in session.inspect.state("messages", "@last")]
        assert texts == ["go", "", "43", "I say so."]
        assert session.inspect.moments("model.replaced")


def test_edits_that_do_not_fit_are_refused(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("model:request")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        for target, value in [
            ("args", {}),
            ("result", "x"),
            ("writes.todos", []),
            ("request.nothing", 1),
            ("request.messages", "text"),
            ("request.settings", []),
            ("fish", 1),
            ("response", 7),
        ]:
            with pytest.raises(DebugError):
                session.edit(target, value)
        session.reverse_step()
        assert session.mode == "PAST"
        with pytest.raises(DebugError, match="fork"):
            session.edit("response", "x")
        session.step(timeout=WAIT)
        with pytest.raises(DebugError, match="nothing is asked"):
            session.accept("live")
        session.abort()


def test_writes_of_a_node_can_be_changed(world: World, url: str) -> None:
    agent, _ = world.agent(url, "Done.")
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("model:exit")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        todo = {"id": "1", "title": "look", "status": "pending"}
        session.edit("writes.todos", [todo])
        session.cont(timeout=WAIT)
        assert session.inspect.state("todos", "@last") == [todo]


def test_the_past_of_a_held_run_can_be_looked_at(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add", "args.a == -3")
        session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        there = session.here
        assert session.prevturn().entry == session.inspect.locate("@3.3")
        assert session.mode == "PAST"
        assert session.request().messages[-1]["content"] == "Mind the time."
        # the other two calls, which run beside it, may have ended
        assert session.why("messages[-1]", there)[0].by in ("model", "tool:add")
        assert session.inspect.route().chosen == "route: tools"
        back = session.goto(f"#{there.seq if there else 0}")
        assert back.mode == "LIVE stopped (volatile)"
        assert session.cont(timeout=WAIT).reason == "finished"
        assert len(world.added) == 3


def test_live_and_recorded_stops_are_the_same(world: World, url: str) -> None:
    specs = ["break hook:guard", "break route:tools", "watch todos", "catch tool-error"]
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        for spec in specs:
            session.add(spec)
        stop = session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        live = [(one.position, one.breakpoint) for one in stops(session, stop, "cont")][:-1]
        with DebugSession.open(agent, "t") as past:
            for spec in specs:
                past.add(spec)
            found = []
            while (stop := past.cont()).reason != "end":
                found.append((stop.position, stop.breakpoint))
        assert found == live


@pytest.mark.parametrize("door", DOORS)
def test_a_function_says_how_to_go_on(door: Any, world: World, url: str) -> None:
    agent, _ = world.agent(url)
    seen: list[str] = []
    with agent:
        session = DebugSession(agent)
        session.breakpoints.break_("tool:add")

        async def asked(stop: Stop) -> str:
            seen.append(f"{stop.reason} {stop.entry.what if stop.entry else ''}")
            return "until kind == 'route'" if len(seen) == 1 else "continue"

        session.on_stop(asked)
        if door == "sync":
            result = agent.invoke("add them", thread_id="t", debug=session)
        else:
            result = asyncio.run(agent.ainvoke("add them", thread_id="t", debug=session))
        assert result.text == "Done."
        assert seen[:2] == ["entry run.enter", "until route.taken"]
        assert seen[2:] == ["breakpoint tool.call"] * 3
        assert session.last_stop is not None
        assert session.last_stop.reason == "finished"


@pytest.mark.parametrize("door", DOORS)
def test_the_graph_itself_takes_a_session(door: Any, world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent:
        session = DebugSession(agent)
        session.on_stop(lambda stop: "finish")
        config: Any = {"configurable": {"thread_id": "t"}}
        given = {"messages": [("user", "add them")]}
        if door == "sync":
            values = agent.graph.invoke(given, config, debug=session)
        else:
            values = asyncio.run(agent.graph.ainvoke(given, config, debug=session))
        assert values["messages"][-1].text == "Done."
        assert session.here is not None
        assert session.here.what == "run.exit"


def test_another_thread_steers_a_run_and_pauses_it(world: World, url: str) -> None:
    going, go_on = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Wait until the test says so."""
        going.set()
        assert go_on.wait(WAIT)
        return "slept"

    model = ScriptedModel([call("slow"), "Done."])
    agent, _ = world.agent(url, model=model, tools=[slow], hooks=[])
    with agent:
        session = DebugSession(agent)
        results: list[Any] = []
        worker = threading.Thread(
            target=lambda: results.append(agent.invoke("go", thread_id="t", debug=session))
        )
        worker.start()
        assert session.wait_for_run(WAIT).reason == "entry"
        with pytest.raises(DebugError, match="goes on after"):
            session.cont(timeout=0.2)
        assert going.wait(WAIT)
        assert session.mode == "LIVE running"
        session.pause()
        go_on.set()
        stop = session.wait(WAIT)
        assert (stop.reason, stop.entry.what if stop.entry else "") == ("pause", "tool.exit")
        assert session.cont(timeout=WAIT).reason == "finished"
        worker.join(WAIT)
        assert results[0].text == "Done."


@pytest.mark.sisters
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async-def"])
@pytest.mark.parametrize("row", ["B12"])
def test_time_stands_still_while_a_run_is_held(
    row: str,
    is_async: bool,
    door: Any,
    world: World,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call under way, and the whole run, have shorter limits than the stop is; none expires."""
    clock = HandClock(monkeypatch)
    started, finish = threading.Event(), threading.Event()

    def work() -> str:
        """Wait until the test says so."""
        started.set()
        assert finish.wait(WAIT)
        return "in time"

    async def awork() -> str:
        """Wait until the test says so."""
        started.set()
        while not finish.is_set():
            await asyncio.sleep(0.01)
        return "in time"

    made = tool(name="slow", timeout=0.1, replay="safe")
    slow = made(awork) if is_async else made(work)

    @tool
    def other(ctx: ToolContext) -> str:
        """Begin once the slow one has."""
        return "other"

    model = ScriptedModel([calls(("slow", {}), ("other", {})), "Done."])
    agent = Agent("a", model, tools=[slow, other], store=url, deadline=0.2)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:other")
        session.run("go", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)
        assert started.wait(WAIT)
        clock.forward(1.0)
        time.sleep(0.5)  # longer than both limits, for a clock that nobody holds
        finish.set()
        assert session.cont(timeout=WAIT).reason == "finished"
        texts = [
            m["content"] for m in session.inspect.state("messages", "@last") if m["role"] == "tool"
        ]
        assert texts == ["in time", "other"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("row", ["M3"])
def test_what_a_sub_agent_does_stands_still_too(row: str, door: Any, url: str) -> None:
    began, go_on = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Wait until the test says so."""
        began.set()
        assert go_on.wait(WAIT)
        return "slow"

    @tool
    def other() -> str:
        """End once the sub-agent works."""
        assert began.wait(WAIT)
        return "other"

    below = ScriptedModel([call("slow"), "From below."])
    with Agent("child", below, tools=[slow], store=url) as child:
        given = ("delegate_to_agent", {"agent": "child", "task": "?"})
        script = ScriptedModel([calls(given, ("other", {}), unchecked=True), "Done."])
        tools = [other, delegation({"child": Subagent(child, "Is slow")})]
        agent = Agent("a", script, tools=tools, store=url)
        with agent, DebugSession(agent) as session:
            session.breakpoints.break_("tool:other:after")
            session.run("go", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)
            go_on.set()
            until(lambda: session.below.waiting > 0, "the sub-agent was never held")
            assert len(below.calls) == 1
            assert session.cont(timeout=WAIT).reason == "finished", session.error
            assert (session.below.waiting, len(below.calls)) == (0, 2)
            told = session.inspect.state("messages", "@last")
            texts = [m["content"] for m in told if not m["role"].startswith("agent_")]
            assert texts[2:] == ["From below.", "other", "Done."]
            [held] = [info for info in agent.threads.list() if info.parent == "t"]
            with DebugSession.open(agent, held.thread_id) as inner:
                assert inner.until("kind == 'tool'").moved, "it has a recording of its own"


@pytest.mark.parametrize("row", ["M3"])
def test_a_sub_agent_is_ended_with_the_run_that_is_held(row: str, url: str) -> None:
    child = Agent("child", ScriptedModel(["From below."]), store=url)
    given = ("delegate_to_agent", {"agent": "child", "task": "?"})
    script = ScriptedModel([calls(given, given, unchecked=True), "Done."])
    agent = Agent("a", script, tools=[delegation({"child": Subagent(child, "Is")})], store=url)
    with child, agent, DebugSession(agent) as session:
        session.add("tbreak handoff hit 2")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert session.abort(timeout=WAIT).reason == "cancelled"
        assert session.below.waiting == 0
        assert not [info for info in agent.threads.list() if info.status == "running"]


@pytest.mark.parametrize("row", ["B12"])
def test_a_thread_is_not_forgotten_while_it_is_held(row: str, world: World, url: str) -> None:
    """Its time to live is over long before the stop is, and before somebody goes on with it."""
    agent, model = world.agent(url, ttl=0.05)
    with agent:
        session = DebugSession(agent)
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        time.sleep(0.1)
        assert agent.store.sweep() == []  # type: ignore[union-attr]  # it is ours
        session.close()
        time.sleep(0.1)
        assert agent.store.sweep() == [], "a durable stop waits"  # type: ignore[union-attr]
        assert agent.resume("t").text == "Done."
        time.sleep(0.1)
        assert agent.store.sweep() == ["t"]  # type: ignore[union-attr]


@pytest.mark.sisters
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("row", ["B12"])
def test_a_models_time_limit_counts_no_stop(
    row: str, door: Any, provider: Provider, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a provider may take begins with its call and ends with its answer; both are held."""
    clock = HandClock(monkeypatch)
    said: dict[float, str] = {}
    for limit in (1.5, 6.0, 24.0):  # a call on a busy machine may take longer than the first
        provider.say("Done.")
        said[limit] = held_for_longer(limit, clock, provider, door, url)
        if said[limit] == "Done.":
            return
    raise AssertionError(said)


def held_for_longer(limit: float, clock: HandClock, provider: Provider, door: Any, url: str) -> str:
    """Hold a run before its model call and after it, each time for longer than a call may take."""
    told = {"provider": "openai", "model": "m", "base_url": provider.url, "api_key": "none"}
    agent = Agent("a", {**told, "timeout": f"{limit}s", "retries": 0}, store=url, deadline=0.2)
    with agent, DebugSession(agent) as session:
        session.add("break model:request")
        session.add("break model:response")
        stop = session.run("go", thread_id=f"{limit}", door=door, stop_on_entry=False, timeout=WAIT)
        for _ in range(2):
            clock.forward(1.0)
            time.sleep(limit + 0.1)
            if stop.reason == "breakpoint":
                stop = session.cont(timeout=WAIT)
        if stop.reason != "finished":
            return f"{stop.reason}: {session.error}"
        return str(session.inspect.state("messages[-1].content", "@last"))


def test_limits_expire_where_nothing_is_held(world: World, url: str) -> None:
    over = threading.Event()

    @tool(timeout=0.2)
    def endless() -> str:
        """Take too long."""
        over.wait(WAIT)
        return "late"

    model = ScriptedModel([call("endless"), "Done."])
    agent = Agent("a", model, tools=[endless], store=url)
    with agent, DebugSession(agent) as session:
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        over.set()
        assert "timed out" in session.inspect.state("messages[2].content", "@last")


def test_a_run_that_is_ended_leaves_its_thread_usable(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert session.abort().reason == "cancelled"
        assert agent.threads.get("t").stopped_because == "cancelled"
        assert (2, 11) not in world.added
        with pytest.raises(DebugError, match="no run goes on"):
            session.abort()


def test_a_run_that_is_left_goes_on_alone(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    done = threading.Event()
    with agent:
        session = DebugSession(agent)
        session.breakpoints.break_("model:request")

        def work() -> None:
            agent.invoke("add them", thread_id="t", debug=session)
            done.set()

        threading.Thread(target=work).start()
        session.wait_for_run(WAIT)
        session.detach("continue")
        assert done.wait(WAIT)
        assert len(world.added) == 3


def test_a_run_that_fails_says_why(world: World, url: str) -> None:
    agent, _ = world.agent(url, model=ScriptedModel([]), hooks=[])
    with agent, DebugSession(agent) as session:
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert stop.reason == "failed"
        assert "LLM call" in stop.text
        assert session.verb("prev_error").entry is not None
        session.goto("@first")
        session.add("catch model-error")
        assert session.cont().entry is not None
        assert session.here is not None
        assert session.here.what == "model.error"


def test_without_a_store_of_ours_runs_can_be_held_too(world: World) -> None:
    agent, _ = world.agent(False)
    session = DebugSession(agent)
    found = stops(session, session.run("add them", timeout=WAIT))
    assert found[-1].reason == "finished"
    assert session.journal is None
    assert len(session.inspect.moments()) == 62
    assert session.request("@3.3").messages[0]["role"] == "system"


def test_one_session_holds_one_run(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.run("add them", thread_id="t", timeout=WAIT)
        with pytest.raises(DebugError, match="a run goes on"):
            session.run("again", thread_id="u", timeout=WAIT)
        with pytest.raises(DebugError, match="holds another run"):
            agent.invoke("again", thread_id="u", debug=session)
        session.abort()


def test_a_session_without_an_agent_runs_nothing(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent:
        agent.invoke("add them", thread_id="t")
        with (
            DebugSession.open(agent.store, "t") as session,
            pytest.raises(DebugError, match="no agent"),
        ):
            session.live()
