"""A process that is killed: its unfinished moments are closed as lost, its intents are there."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from tests.journal.conftest import Opener
from tests.journal.support import agent_of, on_both
from wick_graph import Agent, BaseHook, tool
from wick_graph.testing import ScriptedModel, call, calls

pytestmark = on_both


def killed(agent_in_child: Any) -> None:
    """Fork, let the child run until it kills itself, and wait for it."""
    pid = os.fork()
    if pid == 0:
        try:
            agent_in_child()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


@tool
def fatal(n: int) -> str:
    """Take the process down at the second call."""
    if n == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"done {n}"


def run_fatally(url: str) -> Agent:
    model = ScriptedModel([call("fatal", n=1), call("fatal", n=2), "never"])
    agent, _ = agent_of(url, hooks=[], tools=[fatal], model=model)
    agent.invoke("go", thread_id="t")
    return agent


def test_a_started_side_effect_is_in_the_journal(url: str, opened: Opener) -> None:
    killed(lambda: run_fatally(url))
    journal = opened()
    started = list(journal.moments(kind="tool.call"))
    assert len(started) == 2
    assert journal.details(started[1])["args"] == {"n": 2}
    [run] = journal.runs()
    assert (run.status, run.stopped_because, run.ended) == ("lost", "lost", None)


def test_what_was_open_is_lost_innermost_first(url: str, opened: Opener) -> None:
    killed(lambda: run_fatally(url))
    journal = opened()
    seen = list(journal.moments())
    lost = [m for m in seen if m.phase == "lost"]
    assert [m.kind for m in lost] == ["tool", "tool", "node", "run"]
    by_seq = {m.seq: m for m in seen}
    closed = [by_seq[m.parent or 0].what for m in lost]
    assert closed == ["tool.call", "tool.enter", "node.enter", "run.enter"]
    assert {m.status for m in lost} == {"lost"}
    ended = {m.parent for m in seen if m.is_end}
    assert {m.seq for m in seen if m.phase in ("enter", "request", "call")} <= ended | {
        m.seq
        for m in seen
        if m.what == "tool.call" and m.step == 4  # `exit` ends it too
    }


def test_the_next_run_writes_down_what_a_reader_saw(url: str, opened: Opener) -> None:
    killed(lambda: run_fatally(url))
    before = [(m.seq, m.what, m.parent) for m in opened().moments()]
    agent, _ = agent_of(url, hooks=[], tools=[fatal], model=ScriptedModel(["fine"], cursor="fifo"))
    assert agent.invoke("again", thread_id="t").text == "fine"
    agent.close()
    journal = opened()
    after = [(m.seq, m.what, m.parent) for m in journal.moments()]
    assert after[: len(before)] == before
    first, second = journal.runs()
    assert (first.status, first.last) == ("lost", len(before))
    assert (second.status, second.first) == ("ended", len(before) + 1)
    assert journal.problems() == []


def test_steps_and_visits_go_on_counting(url: str, opened: Opener) -> None:
    killed(lambda: run_fatally(url))
    model = ScriptedModel(["fine", "well"], cursor="fifo")
    agent, _ = agent_of(url, hooks=[], tools=[fatal], model=model)
    for _ in range(2):
        agent.invoke("again", thread_id="t")
    agent.close()
    entered = list(opened().moments(kind="node.enter"))
    assert [m.step for m in entered] == list(range(1, len(entered) + 1))
    for name in {m.name for m in entered}:
        visits = [m.visit for m in entered if m.name == name]
        assert visits == list(range(1, len(visits) + 1))


def test_open_parallel_calls_and_hooks_are_lost_with_their_own_frames(
    url: str, opened: Opener
) -> None:
    done = threading.Event()

    class Quiet(BaseHook):
        name = "quiet"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return next(call)

    @tool
    def act(n: int) -> str:
        """Finish the first call; the second takes the process down after it."""
        if n == 1:
            done.set()
            return "one"
        done.wait()
        os.kill(os.getpid(), signal.SIGKILL)
        return "two"

    def work() -> None:
        model = ScriptedModel([calls(("act", {"n": 1}), ("act", {"n": 2})), "x"])
        agent, _ = agent_of(url, hooks=[Quiet()], tools=[act], model=model)
        agent.invoke("go", thread_id="t")

    killed(work)
    journal = opened()
    for moment in journal.moments():
        if moment.phase == "lost":
            opener = journal.moment(moment.parent or 0)
            assert not any(
                m.parent == opener.seq and m.is_end and m.phase != "lost"
                for m in journal.moments(after=opener.seq)
            )
    assert journal.problems() == []


def test_a_run_that_goes_on_is_no_lost_one(url: str, opened: Opener) -> None:
    seen: list[str] = []

    @tool
    def look() -> str:
        """Read the journal while the run goes on."""
        journal = opened()
        seen.extend([journal.runs()[0].status, *(m.phase for m in journal.moments())])
        return "ok"

    agent, _ = agent_of(url, hooks=[], tools=[look], model=ScriptedModel([call("look"), "x"]))
    agent.invoke("go", thread_id="t")
    agent.close()
    assert seen[0] == "running"
    assert "lost" not in seen
    assert "call" in seen
