"""One run at a time per thread: busy threads, dead owners, frozen ones, and crash loops."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded import until_written
from wick_graph import Agent, SqlSaver, ToolContext, tool
from wick_graph.constants import LEASE_SECONDS
from wick_graph.errors import RunError, ThreadBusyError
from wick_graph.store import leases
from wick_graph.testing import ScriptedModel, call, calls


def agent_of(url: str, *steps: Any, tools: Any = ()) -> Agent:
    return Agent(model=ScriptedModel(list(steps)), tools=tools, store=url)


def in_child(work: Any) -> int:
    """Run a function in a forked child and return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return status


def die() -> str:
    """Take the process down."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def test_a_second_run_on_a_thread_is_told_that_it_is_busy(url: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> str:
        """Wait."""
        inside.set()
        go_on.wait(60)
        return "held"

    with agent_of(url, call("hold"), "ok", "more", tools=[hold]) as agent:
        running = threading.Thread(target=lambda: agent.invoke("?", thread_id="t"))
        running.start()
        assert inside.wait(60)
        with pytest.raises(ThreadBusyError, match="thread t is busy"):
            agent.invoke("me too", thread_id="t")
        go_on.set()
        running.join(60)
        result = agent.invoke("now", thread_id="t")
        assert [m.text for m in result.messages] == ["?", "", "held", "ok", "now", "more"]


def test_a_dead_owners_thread_is_free_at_once(url: str) -> None:
    script = [call("die"), "ok"]
    in_child(lambda: agent_of(url, *script, tools=[die]).invoke("?", thread_id="t"))
    with agent_of(url, *script, tools=[die]) as agent:
        started = time.monotonic()
        result = agent.resume("t")
        assert time.monotonic() - started < 25  # a lease holds for 30 s
    assert result.text == "ok"
    assert "outcome unknown" in result.messages[2].text
    assert result.tool_calls[0]["error"].startswith("interrupted, outcome unknown")


def test_a_new_message_after_a_crash_says_so_too(url: str) -> None:
    script = [calls(("die", {}), ("act", {})), "ok"]

    def act() -> str:
        """Do something."""
        return "acted"

    in_child(lambda: agent_of(url, *script, tools=[die, act]).invoke("?", thread_id="t"))
    with agent_of(url, *script, tools=[die, act]) as agent:
        result = agent.invoke("hello?", thread_id="t")
        assert [m.type for m in result.messages] == ["human", "ai", "tool", "tool", "human", "ai"]
        assert result.messages[2].text.startswith("Error: ")


@pytest.mark.sisters
def test_a_crash_loop_ends_as_poison_and_a_new_message_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BACKOFF_SECONDS", (0.0, 0.0, 0.0))
    lives: list[int] = []

    @tool(replay="safe")
    def deadly() -> str:
        """Take the process down, each time."""
        return die()

    script = [call("deadly"), "ok"]
    in_child(lambda: agent_of(url, *script, tools=[deadly]).invoke("?", thread_id="t"))
    for _ in range(leases.MAX_CHARGES):  # the first death charged nobody
        status = in_child(lambda: agent_of(url, *script, tools=[deadly]).resume("t"))
        lives.append(status)
    assert all(os.WIFSIGNALED(status) for status in lives)
    with agent_of(url, *script, tools=[deadly]) as agent:
        for _ in range(2):  # asking again does not help
            with pytest.raises(RunError, match="poison: the process died 3 times"):
                agent.resume("t")
        info = agent.threads.get("t")
        assert (info.status, info.last_error[:6]) == ("failed", "poison")
        assert agent.invoke("leave it", thread_id="t").text == "ok"


def test_a_frozen_owner_cannot_commit_after_a_takeover(url: str) -> None:
    """Stop a worker inside a tool, take its thread over, let it wake: nothing of it is stored."""
    passed = mmap.mmap(-1, 8)  # what both processes have as the time that has passed

    def now() -> float:
        return time.time() + float(struct.unpack("d", passed[:])[0])

    @tool(replay="never")
    def freeze() -> str:
        """Stand still, with all threads, until woken."""
        os.kill(os.getpid(), signal.SIGSTOP)
        return "the zombie's result"

    script = [call("freeze"), "said the zombie"]
    pid = os.fork()
    if pid == 0:
        try:
            with agent_of(url, *script, tools=[freeze]) as zombie:
                zombie.store.clock = now  # type: ignore[union-attr]
                zombie.invoke("?", thread_id="t")
        except ThreadBusyError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    passed[:] = struct.pack("d", LEASE_SECONDS + 1)
    with agent_of(url, *script, tools=[freeze]) as agent:
        store = agent.store
        assert isinstance(store, SqlSaver)
        store.clock = now
        result = agent.resume("t")
        assert result.text == "said the zombie"
        assert "outcome unknown" in result.messages[2].text
        os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        messages = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
        assert [m.text for m in messages] == [m.text for m in result.messages]


def test_a_finished_call_is_not_run_again_after_its_own_crash(url: str, tmp_path: Path) -> None:
    """Die after the result was recorded and before the step was committed."""
    effects = tmp_path / "effects"

    @tool(replay="never")
    def act() -> str:
        """Have an effect."""
        with effects.open("a") as file:
            file.write("x")
        return "acted"

    @tool(replay="never")
    def die_later() -> str:
        """Wait for the sibling's result, then take the process down."""
        until_written(url, "acted")
        return die()

    script = [calls(("act", {}), ("die_later", {})), "ok"]
    in_child(lambda: agent_of(url, *script, tools=[act, die_later]).invoke("?", thread_id="t"))
    with agent_of(url, *script, tools=[act, die_later]) as agent:
        result = agent.resume("t")
    assert effects.read_text() == "x"
    assert [m.text[:7] for m in result.messages[2:]] == ["acted", "Error: ", "ok"]


def test_a_call_with_a_key_is_repeated_under_the_same_key(url: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    @tool(replay="key")
    def pay(ctx: ToolContext) -> str:
        """Pay once."""
        first = not seen.exists()
        with seen.open("a") as file:
            file.write(f"{ctx.key} {ctx.replayed}\n")
        return die() if first else "paid"

    script = [call("pay"), "ok"]
    in_child(lambda: agent_of(url, *script, tools=[pay]).invoke("?", thread_id="t"))
    with agent_of(url, *script, tools=[pay]) as agent:
        assert agent.resume("t").messages[2].text == "paid"
    (first, was), (second, again) = (line.split() for line in seen.read_text().splitlines())
    assert first == second
    assert (was, again) == ("False", "True")
