"""One session and several Python threads, which wait, look, pause, end and leave at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.debug.support import WAIT, World, three_calls
from tests.debug.test_fork import rows_of
from tests.debug.test_leaving import DOORS, later
from tests.support.waiting import until
from wick_graph import tool
from wick_graph.core.stopping import Stop as StopAsked
from wick_graph.debug import DebugSession, Stop
from wick_graph.debug.gate import HeldCall
from wick_graph.debug.live import LiveRun
from wick_graph.errors import DebugError
from wick_graph.testing import ScriptedModel, call, calls


class Gated:
    """A tool that says that it began, and waits until the test lets it end."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    def slow(self) -> str:
        """Wait until the test says so."""
        self.began.set()
        assert self.go_on.wait(WAIT)
        return "slept"


def repeat(work: Callable[[], Any], until: threading.Event) -> tuple[threading.Thread, list[Any]]:
    """Do something in a thread over and over; collect what it raises."""
    raised: list[Any] = []

    def all_the_time() -> None:
        while not until.is_set():
            try:
                work()
            except Exception as error:  # it is what the test is about
                raised.append(error)
                return

    return later(all_the_time), raised


@pytest.mark.parametrize("door", DOORS)
def test_other_threads_look_on_while_a_run_is_stepped(door: Any, world: World, url: str) -> None:
    agent, _ = world.agent(url, *three_calls(), *three_calls())
    agent.invoke("before", thread_id="t")
    over = threading.Event()

    def look() -> None:
        assert session.mode
        assert session.position
        here = session.here
        if here is not None:
            assert session.inspect.line(here)
        assert session.inspect.where()
        session.inspect.tokens()
        session.inspect.moments("tool")
        assert session.last_stop is None or session.last_stop.position

    with agent, DebugSession.open(agent, "t") as session:
        watchers = [repeat(look, over) for _ in range(2)]
        stop = session.run("add them", thread_id="t", door=door, timeout=WAIT)
        while stop.mode != "PAST":
            stop = session.step(timeout=WAIT)
        over.set()
        for thread, raised in watchers:
            thread.join(WAIT)
            assert raised == []
        assert stop.reason == "finished"
        positions = [session.goto(f"#{e.seq}").position for e in session.inspect.moments()]
        assert len(set(positions)) == len(positions), "each moment has a name of its own"


@pytest.mark.slow
def test_pausing_without_end_loses_no_stop(world: World, url: str) -> None:
    """Somebody presses Ctrl-C all the time; each press stops the run once, and it still ends."""
    agent, _ = world.agent(url)
    over = threading.Event()
    with agent, DebugSession(agent) as session:
        thread, raised = repeat(session.pause, over)
        stop = session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        reasons = [stop.reason]
        while stop.reason == "pause":
            stop = session.cont(timeout=WAIT)
            reasons.append(stop.reason)
        over.set()
        thread.join(WAIT)
        assert (raised, reasons[-1]) == ([], "finished")
        assert sorted(world.added) == [(-3, 11), (1, 11), (2, 11)]


@pytest.mark.parametrize("door", DOORS)
def test_everybody_who_waits_is_told_of_the_end(
    door: Any, world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread waits for a verb, one for any stop; a third one ends the run under both."""
    gated, ask = Gated(), StopAsked.ask

    def asked(self: StopAsked, because: str, text: str) -> bool:
        found = ask(self, because, text)
        gated.go_on.set()
        return found

    agent, _ = world.agent(url, call("slow"), "Done.", tools=[tool(gated.slow)], hooks=[])
    with agent, DebugSession(agent) as session:
        session.run("go", thread_id="t", door=door, timeout=WAIT)
        found: list[Stop] = []
        waiting = [
            later(lambda: found.append(session.cont(timeout=WAIT))),
            later(lambda: found.append(session.wait(timeout=WAIT))),
        ]
        assert gated.began.wait(WAIT)
        until(lambda: session.mode == "LIVE running", "nobody went on")
        monkeypatch.setattr(StopAsked, "ask", asked)
        assert session.abort("enough", timeout=WAIT).reason == "cancelled"
        for thread in waiting:
            thread.join(WAIT)
        assert {stop.reason for stop in found} <= {"cancelled", "entry"}
        assert "cancelled" in {stop.reason for stop in found}
        assert (session.held, session.mode) == (False, "PAST")


def test_what_is_being_left_stays_so_though_somebody_goes_on(world: World, url: str) -> None:
    """`cont` from another thread, between the word to keep the run and its end, changes nothing."""
    gated = Gated()

    def other() -> str:
        """End once the slow one has begun."""
        assert gated.began.wait(WAIT)
        return "other"

    tools = [tool(gated.slow), tool(other), tool(world.add)]
    script = calls(("slow", {}), ("other", {})), call("add", a=2, b=1), "Done."
    agent, _ = world.agent(url, *script, tools=tools, hooks=[])
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:other:after")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        left: list[Stop | None] = []
        leaving = later(lambda: left.append(session.detach("keep", timeout=WAIT)))
        until(lambda: not session.held, "nothing was let go")
        going_on = later(lambda: session.cont(timeout=WAIT))
        time.sleep(0.1)
        gated.go_on.set()
        leaving.join(WAIT)
        going_on.join(WAIT)
        assert [stop.reason if stop else None for stop in left] == ["durable"]
        assert session.mode == "LIVE stopped (durable)"
        assert world.added == []
        assert agent.threads.get("t").stopped_because == "interrupted"


def without_moments(url: str) -> dict[str, set[Any]]:
    """Leave out what the held run's own journal may still be writing behind it."""
    return {table: rows for table, rows in rows_of(url).items() if table != "moments"}


def test_nothing_is_begun_or_written_while_a_run_is_held(world: World, url: str) -> None:
    """A fork that changes the state, an answer, an input: each is refused before it does so."""
    script: Any = [call("add", a=1, b=1), "Done.", call("add", a=2, b=1), "Again.", "Otherwise."]
    agent, _ = world.agent(url, *script, hooks=[])
    agent.invoke("go", thread_id="t")
    with agent, DebugSession.open(agent, "t") as session:
        plan = session.fork("@4", state={"iteration": 7})
        session.breakpoints.break_("tool:add")
        stop = session.run("again", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert stop.reason == "breakpoint"
        before = without_moments(url)
        refused: list[Callable[[], Any]] = [
            lambda: session.live(plan),
            session.live,
            lambda: session.answer("yes"),
            lambda: session.run("a third"),
        ]
        for ask in refused:
            with pytest.raises(DebugError, match="a run goes on in this session"):
                ask()
        assert without_moments(url) == before
        assert (str(session.position), session.held) == (stop.position, True)
        assert session.last_stop == stop
        assert session.cont(timeout=WAIT).reason == "finished"
        assert session.live(plan, timeout=WAIT).mode == "FORK"


def test_a_run_that_fails_before_it_is_attached_to_changes_nothing(world: World, url: str) -> None:
    """A thread that waits in its store still does when another session has it."""
    agent, model = world.agent(url)
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        session.detach("keep", timeout=WAIT)
    again, _ = world.agent(url, model=model)
    with again, DebugSession.open(again, "t") as one, DebugSession.open(again, "t") as other:
        other.goto("@last")
        assert one.live(timeout=WAIT).reason == "entry"
        failed = other.live(timeout=WAIT)
        assert (failed.reason, failed.mode) == ("failed", "LIVE stopped (durable)")
        assert other.error is not None
        assert "another run" in failed.text
        assert one.cont(timeout=WAIT).reason == "finished"
        assert other.wait(timeout=WAIT) == failed
    assert sorted(world.added) == [(-3, 11), (1, 11), (2, 11)]


def test_a_function_may_leave_or_end_the_run_that_it_is_called_in(world: World, url: str) -> None:
    agent, _ = world.agent(
        url, model=ScriptedModel([calls(("add", {"a": 1, "b": 1})), "Done."] * 2)
    )
    with agent:
        session = DebugSession(agent)
        session.breakpoints.break_("tool:add")
        seen: list[str] = []

        def leave(stop: Stop) -> None:
            seen.append(stop.reason)
            session.detach("continue")

        session.on_stop(leave)
        assert agent.invoke("go", thread_id="t", debug=session).text == "Done."
        assert seen == ["entry"]
        assert session.wait_for_run(WAIT).reason == "finished"

        def end(stop: Stop) -> str:
            seen.append(stop.reason)
            if stop.reason != "entry":
                later(lambda: session.abort("enough"))
                until(lambda: session.mode == "LIVE running", "the run was never told to end")
            return "continue"

        session.on_stop(end)
        assert agent.invoke("go", thread_id="u", debug=session).stopped_because == "cancelled"
        assert seen == ["entry", "entry", "breakpoint"]
        assert len(world.added) == 1
        assert session.mode == "PAST"


def test_a_call_that_was_about_to_wait_is_not_made_when_its_run_is_ended(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls were noted as held, and had not begun to wait when `abort` came."""
    noted, passed = threading.Event(), threading.Event()
    should_hold, ask = LiveRun.should_hold, StopAsked.ask

    def late(self: LiveRun, held: HeldCall) -> bool:
        leads = self.last_stop is not None and self.last_stop.entry == held.entry
        if leads or not self.held:
            return should_hold(self, held)
        noted.set()
        until(lambda: not self.held, "nobody ended the run")
        found = should_hold(self, held)
        passed.set()
        return found

    def slow(self: StopAsked, because: str, text: str) -> bool:
        passed.wait(WAIT)
        time.sleep(0.3)  # a call that is not held is made meanwhile
        return ask(self, because, text)

    agent, _ = world.agent(url, hooks=[])
    with agent, DebugSession(agent) as session:
        session.add("tbreak tool:add")
        # Real timing cannot hit the few instructions between the note and the wait.
        monkeypatch.setattr(LiveRun, "should_hold", late)
        monkeypatch.setattr(StopAsked, "ask", slow)
        session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert noted.wait(WAIT)
        assert session.abort(timeout=WAIT).reason == "cancelled"
        assert passed.is_set()
        assert world.added == []
