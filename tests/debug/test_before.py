"""What is told before something is executed, compared with what is executed then."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.debug.process import KILLS, agent_of
from tests.debug.support import WAIT, World
from tests.debug.test_durable import did, elsewhere
from wick_graph.debug import DebugSession
from wick_graph.debug.fork import Planned
from wick_graph.errors import DebugError
from wick_graph.testing import call
from wick_graph.tools import builtin

WHATS = {"node.enter": "node", "model.request": "model", "tool.call": "tool"}


def told(planned: list[Planned]) -> Counter[tuple[str, str]]:
    return Counter((one.kind, one.name) for one in planned)


def went_on(session: DebugSession, plan: Any = None) -> None:
    stop = session.live(plan, timeout=WAIT)
    while stop.reason not in ("finished", "failed", "interrupt"):
        stop = session.cont(timeout=WAIT)


def executed(session: DebugSession, after: int, first: bool = False) -> Counter[tuple[str, str]]:
    """Count what was executed after a moment; of the first superstep alone, if wanted."""
    later = [e for e in session.inspect.moments() if e.seq > after and e.what in WHATS]
    if first:
        later = [e for e in later if e.checkpoint == later[0].checkpoint]
    return Counter((WHATS[e.what], e.name) for e in later)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("tool:add if args.a == 2", id="B7-between-parallel-calls"),
        pytest.param("tool:add:after if args.a == 2", id="B7-after-one-of-them"),
        pytest.param("tools if visit == 1", id="B7-before-the-first"),
        pytest.param("model", id="B7-before-the-model"),
        pytest.param("modify_request", id="B7-before-the-request"),
    ],
)
def test_going_on_executes_what_was_told_and_no_finished_call(
    where: str, world: World, url: str
) -> None:
    agent, _ = world.agent(url)
    with agent:
        with DebugSession(agent) as session:
            session.add(f"break {where}")
            session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
            session.detach("keep")
        ended = list(world.added)
        with DebugSession.open(agent, "t") as session:
            last = session.goto("@last").entry
            assert last is not None
            planned = session.will_execute()
            went_on(session)
            assert told(planned) == executed(session, last.seq, first=True)
            calls = sum(one.kind == "tool" for one in planned)
            assert calls in (0, 3 - len(ended))
            assert all(one.side_effects for one in planned if one.kind == "tool")


@pytest.mark.parametrize("row", ["B7"])
def test_a_fork_of_a_step_that_was_left_counts_each_call_once(
    row: str, world: World, url: str
) -> None:
    agent, _ = world.agent(url)
    with agent:
        with DebugSession(agent) as session:
            session.breakpoints.break_("tool:add", "args.a == 2")
            session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
            session.detach("keep")
        agent.resume("t")
        with DebugSession.open(agent, "t") as session:
            session.until("kind == 'tool'")
            plan = session.fork()
            last = session.inspect.moments()[-1].seq
            went_on(session, plan)
            assert told(plan.will_execute) == executed(session, last)
            assert told(plan.will_execute)["tool", "add"] == 3
            assert len(world.added) == 3


@pytest.mark.parametrize("row", ["B7"])
def test_a_question_is_told_to_wait_for_its_answer(
    row: str, world: World, url: str, tmp_path: Path
) -> None:
    tools = builtin(["request_user_input"], tmp_path)
    asks = call("request_user_input", question="Which?")
    agent, _ = world.agent(url, asks, "Thanks.", hooks=[], tools=tools)
    with agent:
        agent.invoke("go", thread_id="t")
        with DebugSession.open(agent, "t") as session:
            session.goto("@last")
            [node, tool] = session.will_execute()
            assert (node.kind, tool.kind, tool.name) == ("node", "tool", "request_user_input")
            assert "waits for an answer" in tool.text
            session.goto("@1")
            assert len(session.will_execute()) > 2, "elsewhere it is about a fork"
        with DebugSession.open(agent.store, "t") as session:
            session.goto("@last")
            with pytest.raises(DebugError, match="no agent"):
                session.will_execute()


FATE = {
    "before the intent": "really called; it has side effects",
    "in the call": "was under way, and is not called again",
    "after the result": "its result is kept, and it is not called again",
}
"""What the ledger decides of the second call, whatever the journal shows of it."""


@pytest.mark.parametrize("when", [pytest.param(when, id=f"M7-{when}") for when in KILLS])
def test_a_call_that_a_crash_cut_off_is_told_of_before_it_goes_on(
    when: str, url: str, tmp_path: Path
) -> None:
    """The process is killed around its second call, between the commits of ledger and journal."""
    log = tmp_path / "log"
    assert elsewhere(when, url, log).returncode == -signal.SIGKILL
    with agent_of(url, log) as agent, DebugSession.open(agent, "t") as session:
        assert any("lost" in banner for banner in session.banners)
        seen = {(entry.what, entry.call_id) for entry in session.inspect.moments("tool")}
        assert ("tool.call", "call_1_2") in seen or when != "before the intent"
        assert ("tool.exit", "call_1_2") not in seen
        session.goto("@last")
        planned = [one for one in session.will_execute() if one.kind == "tool"]
        assert [one for one in planned if FATE[when] in one.text], planned
        before = did(log)
        went_on(session)
        assert did(log)["act 2"] == 1
        made = sum(did(log).values()) - sum(before.values()) - 1  # one model call
        assert made == sum("really called" in one.text for one in planned)
