"""What survives the process: stops that are kept, runs that are killed, recordings of others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.debug.process import agent_of
from tests.debug.support import WAIT, World
from tests.support import forked
from wick_graph.debug import DebugSession
from wick_graph.errors import DebugError
from wick_graph.testing import call
from wick_graph.tools import builtin

ROOT = Path(__file__).parents[2]


def elsewhere(what: str, url: str, log: Path) -> subprocess.CompletedProcess[str]:
    """Do it in another process, which knows no key and no proxy."""
    known = ("PATH", "HOME", "LANG", "VIRTUAL_ENV")
    env = {name: os.environ[name] for name in known if name in os.environ}
    command = [sys.executable, "-m", "tests.debug.process", what, url, str(log)]
    return forked.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False
    )


def did(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines())


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("what", "status"),
    [
        pytest.param("keep", 0, id="M7-kept"),
        pytest.param("kill", -signal.SIGKILL, id="M7-killed"),
        pytest.param("exit", 7, id="M7-ended"),
    ],
)
def test_a_stop_is_gone_on_with_in_another_process(
    what: str, status: int, url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    first = elsewhere(what, url, log)
    assert first.returncode == status, first.stderr
    assert did(log)["act 2"] == 0
    with agent_of(url, log) as agent, DebugSession.open(agent, "t") as session:
        info = agent.threads.get("t")
        if what == "keep":
            assert "durable" in first.stdout
        if what != "kill":
            assert (info.status, info.stopped_because) == ("waiting", "interrupted")
            assert session.mode == "PAST"
            assert session.goto("@last").mode == "LIVE stopped (durable)"
        before = [entry.seq for entry in session.inspect.moments()]
        session.breakpoints.break_("tool:act", "args.n == 2")
        session.live(timeout=WAIT)
        assert session.cont(timeout=WAIT).reason == "breakpoint"
        assert session.cont(timeout=WAIT).reason == "finished"
        assert session.inspect.state("messages[-1].content", "@last") == "Done."
        assert [entry.seq for entry in session.inspect.moments()][: len(before)] == before
    done = did(log)
    assert done["model"] == 2
    assert done["act 2"] == 1
    # A call that was under way when its process was killed may have had its effect: not again.
    assert all(done[f"act {n}"] <= 1 for n in (1, 3))
    if what != "kill":
        assert (done["act 1"], done["act 3"]) == (1, 1)


@pytest.mark.parametrize("row", ["M7"])
def test_an_interrupt_is_answered_after_a_restart(
    row: str, world: World, url: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"hooks": [], "tools": builtin(["request_user_input"], tmp_path)}
    asks = call("request_user_input", question="Which one?")
    agent, model = world.agent(url, asks, "Thanks.", **options)
    with agent, DebugSession(agent) as session:
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert stop.reason == "interrupt"
        session.goto("@first")
        session.add("catch interrupt")
        assert session.cont().reason == "catch"
        assert "Which one?" in session.inspect.line(session.inspect.moments("interrupt.raise")[0])
    again, _ = world.agent(url, model=model, **options)
    with again, DebugSession.open(again, "t") as session:
        assert session.answer("the red one", timeout=WAIT).reason == "entry"
        assert session.cont(timeout=WAIT).reason == "finished"
        assert session.inspect.state("messages[-1].content", "@last") == "Thanks."
        assert session.inspect.state("messages[2].content", "@last").count("the red one") == 1


@pytest.mark.sisters(2)
@pytest.mark.parametrize("door", ["sync", "async"])
@pytest.mark.parametrize(
    "where",
    [
        "before_agent",
        "hook:todo.modify_request",
        "model:request",
        "model:response",
        "hook:guard.wrap_model_call:exit",
        "model:exit",
        "hook:guard.wrap_tool_call",
        "tool:add",
        "tool:add:after",
        "tools:exit",
    ],
)
def test_whatever_is_kept_loses_and_repeats_nothing(
    where: str, door: str, world: World, url: str
) -> None:
    agent, model = world.agent(url, call("add", a=1, b=1), "Done.")
    with agent:
        session = DebugSession(agent)
        session.breakpoints.break_(where)
        stop = session.run("go", thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)  # type: ignore[arg-type]  # one of the two
        assert stop.reason == "breakpoint"
        kept = session.detach("keep")
        assert kept is not None
        assert kept.reason == "durable"
        assert session.mode == "LIVE stopped (durable)"
        assert agent.threads.get("t").status == "waiting"
    again, _ = world.agent(url, model=model)
    with again, DebugSession.open(again, "t") as session:
        session.live(timeout=WAIT)
        assert session.cont(timeout=WAIT).reason == "finished"
        texts = [message["content"] for message in session.inspect.state("messages", "@last")]
    assert texts == ["go", "", "12!", "Done."]
    assert world.added == [(1, 11)]
    assert len(model.calls) == 2


def test_a_finished_thread_has_nothing_to_go_on_with(world: World, url: str) -> None:
    agent, _ = world.agent(url)
    with agent:
        agent.invoke("add them", thread_id="t")
        with DebugSession.open(agent, "t") as session, pytest.raises(DebugError, match="finished"):
            session.live(timeout=WAIT)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["B3"])
def test_a_thread_that_another_process_recorded_answers_everything(
    row: str, url: str, tmp_path: Path
) -> None:
    """The default level, no key, no network, nothing executed."""
    log = tmp_path / "log"
    assert elsewhere("record", url, log).returncode == 0
    before = did(log)
    with DebugSession.open(url, "t") as session:
        session.add("break tool:* if error")
        stop = session.cont()
        assert (stop.reason, (session.inspect.call() or {})["error"]) == (
            "breakpoint",
            "ValueError: three is too many",
        )
        assert [frame.kind for frame in session.inspect.where()] == ["tool", "node", "agent"]
        [cause, *_] = session.why("messages[-1].content")
        assert cause.text.startswith("messages[-1].content  written @")
        session.reverse_cont()
        request = session.request()
        assert request.exact
        assert [message["content"] for message in request.messages] == ["Act.", "go"]
    assert did(log) == before


@pytest.mark.slow
def test_a_fork_that_was_left_keeps_its_edits_and_its_policy(url: str, tmp_path: Path) -> None:
    """What was said to be answered from the recording, or by hand, is so in any process."""
    log = tmp_path / "log"
    assert elsewhere("record", url, log).returncode == 0
    before = did(log)
    with agent_of(url, log) as agent, DebugSession.open(agent, "t") as session:
        session.breakpoints.break_("tool:act", "args.n == 2")
        session.cont()
        plan = session.fork(result="by hand")
        assert session.live(plan, timeout=WAIT, in_place=True).mode == "FORK"
        session.detach("keep", timeout=WAIT)
    with agent_of(url, log) as agent, DebugSession.open(agent, "t") as session:
        stop = session.live(timeout=WAIT)
        assert stop.mode == "FORK"
        session.cont(timeout=WAIT)
        texts = [message["content"] for message in session.inspect.state("messages", "@last")]
        assert texts[2:] == ["did 1", "by hand", "Error: ValueError: three is too many", "Done."]
        assert session.branch == 1
    assert did(log) == before + Counter(model=1), "only the model is asked something new"


def test_a_run_that_is_left_has_no_error(world: World, url: str) -> None:
    agent, model = world.agent(url, call("add", a=1, b=1), "Done.")
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:add")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        session.detach("keep", timeout=WAIT)
        left = [session.inspect.line(entry) for entry in session.inspect.moments() if entry.is_left]
        assert left
        assert all("left here" in line and "✕" not in line for line in left)
        assert not any(
            "GraphInterrupt" in session.inspect.line(entry) for entry in session.inspect.moments()
        )
        with pytest.raises(DebugError, match="no error is recorded"):
            session.goto("@error")
    again, _ = world.agent(url, model=model)
    with again, DebugSession.open(again, "t") as session:
        assert session.verb("next_error").reason == "end"
