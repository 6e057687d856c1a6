"""Every way out of a live run: the session is told, nobody waits for ever, nothing is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.debug.support import WAIT, World
from tests.engine.support import async_door, sync_door
from tests.support.waiting import until
from wick_graph import Agent, tool
from wick_graph.core.stopping import Stop as StopAsked
from wick_graph.debug import DebugSession, Stop
from wick_graph.debug.timeline import BranchReader
from wick_graph.errors import DebugError, StorageError
from wick_graph.testing import ScriptedModel, call, calls
from wick_graph.tools import builtin

DOORS = [pytest.param("sync", id="invoke"), pytest.param("async", id="ainvoke")]


def fails(*args: Any) -> Any:
    raise StorageError("the disk is gone")


def later(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def finish(agent: Agent, thread_id: str = "t") -> list[str]:
    """Go on with a thread as another process would, and return its texts."""
    agent.resume(thread_id)
    with DebugSession.open(agent, thread_id) as session:
        return [message["content"] for message in session.inspect.state("messages", "@last")]


# --- the run ends, whatever goes wrong beside it -------------------------------------------------


def test_a_recording_that_cannot_be_read_again_keeps_nobody_waiting(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = world.agent(url, "Done.")
    with agent, DebugSession(agent) as session:
        session.run("go", thread_id="t", timeout=WAIT)
        monkeypatch.setattr(BranchReader, "timeline", fails)
        stop = session.cont(timeout=WAIT)
        assert stop.reason == "finished"
        assert any("the disk is gone" in banner for banner in session.banners)
        assert session.mode == "PAST"
        assert session.inspect.state("messages[-1].content") == "Done.", (
            "its live moments are still there"
        )


def test_a_run_that_cannot_be_attached_to_keeps_nobody_waiting(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = world.agent(url, "Done.", "Done.")
    with agent, DebugSession(agent) as session:
        monkeypatch.setattr(BranchReader, "timeline", fails)
        stop = session.run("go", thread_id="t", timeout=WAIT)
        assert (stop.reason, stop.text) == ("failed", "the disk is gone")
        monkeypatch.undo()
        assert session.run("go", thread_id="t", timeout=WAIT).reason == "entry"


def test_a_watcher_that_fails_stops_there_and_ends_no_run(world: World, url: str) -> None:
    agent, _ = world.agent(url, "Done.")
    with agent, DebugSession(agent) as session:
        session.breakpoints.log("model:request", "seen")
        session.outputs.listen(fails)
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert (stop.reason, stop.entry.what if stop.entry else "") == (
            "condition-error",
            "model.request",
        )
        assert "the disk is gone" in stop.text
        assert session.cont(timeout=WAIT).reason == "finished"
        assert session.inspect.state("messages[-1].content", "@last") == "Done."


@pytest.mark.parametrize("door", [sync_door, async_door])
@pytest.mark.parametrize("said", ["raise", "fly"])
def test_a_function_that_fails_at_a_stop_leaves_no_call_held(
    said: str, door: Any, world: World, url: str
) -> None:
    agent, _ = world.agent(url)
    with agent:
        session = DebugSession(agent)
        session.breakpoints.break_("tool:add")

        def at_stop(stop: Stop) -> str:
            if stop.reason != "breakpoint":
                return "continue"
            return str(fails()) if said == "raise" else said

        session.on_stop(at_stop)
        with pytest.raises((StorageError, DebugError), match="disk is gone|no verb"):
            door(agent, "add them", thread_id="t", debug=session)
        assert not session.held
        assert session.last_stop is not None
        assert session.last_stop.reason == "failed"
        assert agent.threads.get("t").status == "failed"


def test_a_run_that_ends_while_a_verb_waits(world: World, url: str) -> None:
    """Somebody else ends the run: whoever waits for its next stop is told."""
    going = threading.Event()

    @tool
    def endless() -> str:
        """Wait for nothing."""
        going.set()
        threading.Event().wait(WAIT)
        return "never"

    agent, _ = world.agent(url, call("endless"), "Done.", tools=[endless], hooks=[])
    with agent, DebugSession(agent) as session:
        session.run("go", thread_id="t", timeout=WAIT)
        found: list[Stop] = []
        waiting = later(lambda: found.append(session.cont(timeout=WAIT)))
        assert going.wait(WAIT)
        assert agent.cancel("t")
        waiting.join(WAIT)
        assert [stop.reason for stop in found] == ["cancelled"]
        assert session.mode == "PAST"


def test_an_async_caller_who_leaves_a_held_run_frees_the_session(world: World, url: str) -> None:
    agent, _ = world.agent(url)

    async def main(session: DebugSession) -> None:
        task = asyncio.create_task(agent.ainvoke("add them", thread_id="t", debug=session))
        await asyncio.to_thread(session.wait_for_run, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not session.held

    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add")
        asyncio.run(main(session))
        assert session.mode == "PAST"
        assert agent.threads.get("t").stopped_because == "cancelled"
        assert session.run("again", thread_id="u", timeout=WAIT).reason == "entry"


@pytest.mark.parametrize("door", DOORS)
def test_a_run_is_ended_though_other_calls_come_to_stops(door: Any, world: World, url: str) -> None:
    """Between the word to end and the end, no breakpoint holds the run once more."""
    agent, _ = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("hook:*")
        session.breakpoints.break_("tool:*")
        session.run("add them", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)
        stop = session.until("kind == 'tool'", timeout=WAIT)
        while stop.entry is not None and stop.entry.kind != "tool":
            stop = session.cont(timeout=WAIT)
        assert session.abort(timeout=WAIT).reason == "cancelled"
        assert not session.held
        assert agent.threads.get("t").stopped_because == "cancelled"
        with pytest.raises(DebugError, match="no run goes on"):
            session.abort()


def test_no_held_call_is_made_when_its_run_is_ended(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is slow to say that the run is to stop lets nothing slip through meanwhile."""
    ask = StopAsked.ask

    def slow(self: StopAsked, because: str, text: str) -> bool:
        time.sleep(0.2)
        return ask(self, because, text)

    agent, _ = world.agent(url, hooks=[])
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        monkeypatch.setattr(StopAsked, "ask", slow)
        assert session.abort(timeout=WAIT).reason == "cancelled"
        assert (2, 1) not in world.added


def test_a_stop_at_a_failure_is_not_lost_in_the_end_of_its_run(world: World, url: str) -> None:
    """Nothing can be held there, so the run ends at once; the session stands at the failure."""
    agent, _ = world.agent(url, model=ScriptedModel([]), hooks=[])
    with agent, DebugSession(agent) as session:
        session.breakpoints.catch("model-error")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        until(lambda: session.mode == "PAST" and not session.held, "the run never ended")
        stop = session.last_stop
        assert stop is not None
        assert (stop.reason, stop.entry.what if stop.entry else "") == ("catch", "model.error")
        stop = session.cont(timeout=WAIT)
        assert (stop.reason, stop.entry.what if stop.entry else "") == ("failed", "run.error")
        assert "LLM call" in stop.text


# --- pausing -------------------------------------------------------------------------------------


def test_pausing_what_does_not_run_is_forgotten(world: World, url: str) -> None:
    agent, _ = world.agent(url, "Done.", "Done.")
    with agent, DebugSession(agent) as session:
        assert not session.pause()
        with pytest.raises(DebugError, match="nothing runs"):
            session.verb("pause")
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert stop.reason == "finished", "an old request does not stop a later run"
        session.run("go", thread_id="t", timeout=WAIT)
        assert not session.pause(), "it is held already"
        assert session.cont(timeout=WAIT).reason == "finished"


def test_waiting_for_a_run_that_never_stops_ends_with_it(world: World, url: str) -> None:
    agent, _ = world.agent(url, "Done.")
    with agent, DebugSession(agent) as session:
        session.on_stop(lambda stop: "continue")
        running = later(lambda: agent.invoke("go", thread_id="t", debug=session))
        running.join(WAIT)
        assert session.wait_for_run(WAIT).reason == "finished"
        with pytest.raises(DebugError, match="no run was held"):
            DebugSession().wait_for_run(0.01)


# --- other branches, other stores ----------------------------------------------------------------


def test_a_run_stays_on_the_branch_that_is_looked_at(world: World, url: str) -> None:
    agent, _ = world.agent(url, call("add", a=1, b=1), "Done.", "Otherwise.")
    agent.invoke("go", thread_id="t")
    with agent, DebugSession.open(agent, "t") as session:
        session.goto("@6")
        session.live(session.fork(), timeout=WAIT)
        assert (session.branch, session.mode) == (1, "FORK")
        with pytest.raises(DebugError, match="a run goes on on branch b1"):
            session.choose(0)
        with pytest.raises(DebugError, match="a run goes on on branch b1"):
            session.goto("b0@1")
        assert session.choose(1).mode == "FORK"
        assert session.cont(timeout=WAIT).reason == "finished"
        assert {entry.branch for entry in session.inspect.moments() if entry.step > 6} <= {1}
        assert session.choose(0).entry is not None
        assert {entry.branch for entry in session.inspect.moments()} == {0}


def test_what_has_no_store_cannot_be_kept(world: World) -> None:
    agent, _ = world.agent(False)
    session = DebugSession(agent)
    session.breakpoints.break_("tool:add")
    session.run("add them", stop_on_entry=False, timeout=WAIT)
    with pytest.raises(DebugError, match="no store"):
        session.detach("keep")
    assert session.held
    session.close()
    assert session.last_stop is not None
    assert session.last_stop.reason == "cancelled"


def test_an_edit_that_is_not_gone_on_with_is_said_to_be_lost(world: World, url: str) -> None:
    agent, model = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add", "args.a == 2")
        stop = session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        session.edit("args", {"a": 100, "b": 1})
        session.detach("keep", timeout=WAIT)
        assert stop.entry is not None
        assert [(out.kind, out.seq) for out in session.outputs] == [("note", stop.entry.seq)]
        assert "is not kept" in session.outputs[0].text
    agent, _ = world.agent(url, model=model)
    with agent:
        agent.resume("t")
    assert sorted(world.added) == [(-3, 11), (1, 11), (2, 11)]


# --- closing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", ["close", "with", "raise"])
def test_a_session_that_is_closed_keeps_its_run(
    how: str, door: Any, world: World, url: str
) -> None:
    agent, model = world.agent(url)

    def leave(session: DebugSession) -> None:
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.run("add them", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)
        if how == "raise":
            raise KeyError(how)

    session = DebugSession(agent)
    if how == "close":
        leave(session)
        session.close()
    elif how == "with":
        with session:
            leave(session)
    else:
        with pytest.raises(KeyError), session:
            leave(session)
    assert not session.held
    assert agent.threads.get("t").stopped_because == "interrupted"
    agent.close()
    again, _ = world.agent(url, model=model)
    with again:
        assert finish(again)[-1] == "Done."
    assert sorted(world.added) == [(-3, 11), (1, 11), (2, 11)]
    session.close()


def test_a_run_of_somebody_else_goes_on_when_the_session_is_closed(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    results: list[Any] = []
    with agent:
        with DebugSession(agent) as session:
            session.breakpoints.break_("tool:add")
            running = later(
                lambda: results.append(agent.invoke("add them", thread_id="t", debug=session))
            )
            session.wait_for_run(WAIT)
        running.join(WAIT)
        assert results[0].text == "Done."
    assert len(world.added) == 3


def test_a_replay_is_closed_with_its_session(world: World, url: str) -> None:
    agent, model = world.agent(url)
    agent.invoke("add them", thread_id="t")
    with agent:
        with DebugSession.open(agent, "t") as session:
            other, _ = world.agent(False, "?", model=ScriptedModel(["?"]), tools=[], hooks=[])
            assert session.replay(agent=other, timeout=WAIT).reason == "divergence"
            child = session.replayed
            assert child is not None
            assert child.held
        assert not child.held
    assert len(model.calls) == 2


# --- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["resume", "aresume", "stream_resume", "astream_resume"])
def test_going_on_can_be_debugged_too(door: str, world: World, url: str, tmp_path: Any) -> None:
    options: dict[str, Any] = {"hooks": [], "tools": builtin(["request_user_input"], tmp_path)}
    script = call("request_user_input", question="Which one?"), "Thanks."
    agent, _ = world.agent(url, *script, **options)
    with agent:
        agent.invoke("go", thread_id="t")
        session = DebugSession(agent)
        seen: list[str] = []

        def at_stop(stop: Stop) -> str:
            seen.append(stop.entry.what if stop.entry else "")
            return "turn"

        session.on_stop(at_stop)

        async def each() -> list[Any]:
            return [one async for one in agent.astream_resume("t", "red", debug=session)]

        if door == "resume":
            agent.resume("t", "red", debug=session)
        elif door == "aresume":
            asyncio.run(agent.aresume("t", "red", debug=session))
        elif door == "stream_resume":
            list(agent.stream_resume("t", "red", debug=session))
        else:
            asyncio.run(each())
        assert seen == ["run.enter", "model.request"]
        assert session.inspect.state("messages[-1].content", "@last") == "Thanks."


def test_two_sessions_on_one_thread(world: World, url: str) -> None:
    """The second one is told that the thread is taken; the first one goes on unharmed."""
    agent, _ = world.agent(url, calls(("add", {"a": 1, "b": 1})), "Done.")
    with agent, DebugSession(agent) as one, DebugSession(agent) as other:
        one.run("go", thread_id="t", timeout=WAIT)
        stop = other.run("go", thread_id="t", timeout=WAIT)
        assert (stop.reason, other.held) == ("failed", False)
        assert "another run" in stop.text
        assert one.held
        assert one.cont(timeout=WAIT).reason == "finished"
        assert world.added == [(1, 11)]
        with DebugSession.open(agent, "t") as third:
            assert third.goto("@last").entry is not None
            assert third.inspect.state("messages[-1].content") == "Done."
