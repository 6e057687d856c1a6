"""`ctx.replayed` is true whenever a call runs again, and false the first time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from wick_graph import Agent, BaseHook, ToolContext, ToolError, tool
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call

REPLAY = ["safe", "key", "never"]


class Seen:
    """What each start of the tool was told, in a file that survives a crash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def note(self, ctx: ToolContext) -> int:
        with self.path.open("a") as file:
            file.write("again\n" if ctx.replayed else "first\n")
        return len(self.told)

    @property
    def told(self) -> list[str]:
        return self.path.read_text().split()


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "seen")


def agent_of(url: Any, act: Any, **more: Any) -> Agent:
    return Agent(model=ScriptedModel([call("act"), "ok", "ok"]), tools=[act], store=url, **more)


def acting(seen: Seen, replay: str, work: Callable[[int], str], **options: Any) -> Any:
    @tool(replay=replay, **options)  # type: ignore[call-overload,untyped-decorator]  # a word of three
    def act(ctx: ToolContext) -> str:
        """Do it; the first time something comes in between."""
        return work(seen.note(ctx))

    return act


@pytest.mark.parametrize("replay", ["safe", "key"])
def test_after_a_crash(url: str, seen: Seen, replay: str) -> None:
    def work(n: int) -> str:
        if n == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    act = acting(seen, replay, work)
    if (pid := os.fork()) == 0:
        agent_of(url, act).invoke("?", thread_id="t")
    os.waitpid(pid, 0)
    with agent_of(url, act) as agent:
        assert agent.resume("t").text == "ok"
    assert seen.told == ["first", "again"]


@pytest.mark.parametrize("replay", REPLAY)
def test_after_an_interrupt_that_the_tool_raised(url: str, seen: Seen, replay: str) -> None:
    act = acting(seen, replay, lambda n: str(interrupt("may I?")))
    with agent_of(url, act) as agent:
        assert agent.invoke("?", thread_id="t").stopped_because == "interrupted"
        assert agent.resume("t", "yes").text == "ok"
    assert seen.told == ["first", "again"]


@pytest.mark.parametrize("replay", REPLAY)
async def test_after_an_interrupt_in_the_async_door(url: str, seen: Seen, replay: str) -> None:
    act = acting(seen, replay, lambda n: str(interrupt("may I?")))
    with agent_of(url, act) as agent:
        await agent.ainvoke("?", thread_id="t")
        assert (await agent.aresume("t", "yes")).text == "ok"
    assert seen.told == ["first", "again"]


def test_after_an_interrupt_in_a_store_of_others(seen: Seen) -> None:
    act = acting(seen, "safe", lambda n: str(interrupt("may I?")))
    with agent_of(InMemorySaver(), act) as agent:
        agent.invoke("?", thread_id="t")
        assert agent.resume("t", "yes").text == "ok"
    assert seen.told == ["first", "again"]


@pytest.mark.parametrize("replay", REPLAY)
def test_an_approval_before_the_tool_is_no_run_of_it(url: str, seen: Seen, replay: str) -> None:
    class Ask(BaseHook):
        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            interrupt("may it?")
            return next(call)

    with agent_of(url, acting(seen, replay, lambda n: "done"), hooks=[Ask()]) as agent:
        agent.invoke("?", thread_id="t")
        assert agent.resume("t", "yes").text == "ok"
    assert seen.told == ["first"]


@pytest.mark.parametrize("replay", ["safe", "key"])
def test_at_a_further_attempt(url: str, seen: Seen, replay: str) -> None:
    def work(n: int) -> str:
        if n == 1:
            raise ToolError("not yet")
        return "done"

    with agent_of(url, acting(seen, replay, work, retries=1)) as agent:
        assert agent.invoke("?", thread_id="t").text == "ok"
    assert seen.told == ["first", "again"]


def test_when_a_hook_calls_it_once_more(url: str, seen: Seen) -> None:
    class Twice(BaseHook):
        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            next(call)
            return next(call)

    with agent_of(url, acting(seen, "safe", lambda n: "done"), hooks=[Twice()]) as agent:
        assert agent.invoke("?", thread_id="t").text == "ok"
    assert seen.told == ["first", "again"]


@pytest.mark.parametrize("replay", ["safe", "key"])
def test_after_a_cancelled_run(url: str, seen: Seen, replay: str) -> None:
    holder: list[Agent] = []

    def work(n: int) -> str:
        if n == 1:
            raise KeyboardInterrupt
        return "done"

    with agent_of(url, acting(seen, replay, work)) as agent:
        holder.append(agent)
        with pytest.raises(KeyboardInterrupt):
            agent.invoke("?", thread_id="t")
        assert agent.resume("t").text == "ok"
    assert seen.told == ["first", "again"]


def test_the_next_turn_of_a_resumed_run_is_a_first_time(url: str, seen: Seen) -> None:
    act = acting(seen, "safe", lambda n: str(interrupt("may I?")) if n < 3 else "done")
    model = ScriptedModel([call("act"), call("act"), "ok"])
    with Agent(model=model, tools=[act], store=url) as agent:
        agent.invoke("?", thread_id="t")
        agent.resume("t", "yes")
    assert seen.told == ["first", "again", "first"]


def test_in_a_child_that_is_resumed_with_its_parent(url: str, seen: Seen) -> None:
    act = acting(seen, "safe", lambda n: str(interrupt("may I?")))
    child = Agent("child", ScriptedModel([call("act"), "from below"]), tools=[act], store=url)
    below = delegation({"child": Subagent(child, "works")})
    model = ScriptedModel([call("delegate_to_agent", agent="child", task="do"), "ok"])
    with child, Agent(model=model, tools=[below], store=url) as agent:
        asked = agent.invoke("?", thread_id="t")
        assert asked.stopped_because == "interrupted", asked
        assert agent.resume("t", "yes").text == "ok"
    assert seen.told == ["first", "again"]
