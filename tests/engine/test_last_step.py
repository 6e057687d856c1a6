"""The limit by itself: nothing else ends these runs."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from tests.engine.support import Door, agent_of, wild
from wick_graph import BaseHook, tool
from wick_graph.engine.lifecycle import STEPS_PER_ITERATION, limits
from wick_graph.errors import ConfigError
from wick_graph.testing import calls
from wick_graph.tools.bound import bind_tool
from wick_graph.tools.execute import execute

UNLIMITED: Any = {"recursion_limit": 1_000}
"""LangGraph's own limit, which would end such a run too, is far away."""


def answered(messages: list[Any]) -> bool:
    """Whether each call has its answer, in order."""
    asked = [c["id"] for m in messages if isinstance(m, AIMessage) for c in m.tool_calls]
    return asked == [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_invented_calls_end_at_the_limit_without_any_tool(door: Door, limit: int) -> None:
    """An agent without tools withholds none: only the count of the iterations ends such a run."""
    steps = [wild("invented", n=n) for n in range(limit + 3)]
    agent, model = agent_of(*steps, tools=[], max_iterations=limit)
    result = door(agent, "go on and on", config=UNLIMITED)
    assert len(model.calls) == limit
    assert result.stopped_because == "limit"
    assert answered(result.messages)
    assert result.text.startswith(f"Stopped after {limit} step")


@pytest.mark.parametrize("limit", [1, 3])
def test_a_hook_that_offers_tools_again_does_not_lengthen_a_run(door: Door, limit: int) -> None:
    """What is withheld on the last call a hook may offer again; the count ends the run."""

    class Offering(BaseHook):
        name = "offering"
        phases = ("modify_request",)

        def modify_request(self, request: Any, ctx: Any) -> Any:
            return request.with_tools(("add",))

    steps = [wild("add", a=n, b=1) for n in range(limit + 3)]
    agent, model = agent_of(*steps, hooks=[Offering()], max_iterations=limit)
    result = door(agent, "go on and on", config=UNLIMITED)
    assert len(model.calls) == limit
    assert result.stopped_because == "limit"
    assert answered(result.messages)


def test_langgraphs_own_limit_never_ends_a_run(door: Door) -> None:
    agent, model = agent_of(*[wild("add", a=n, b=1) for n in range(40)], max_iterations=40)
    result = door(agent, "go on")
    assert (len(model.calls), result.stopped_because) == (40, "limit")
    assert limits(agent.spec)["recursion_limit"] >= STEPS_PER_ITERATION * 40


def test_each_input_has_the_whole_limit(door: Door) -> None:
    steps = [wild("add", a=n, b=1) for n in range(20)]
    agent, model = agent_of(*steps, max_iterations=3)
    for turn in (1, 2):
        assert door(agent, "go on", thread_id="t").stopped_because == "limit"
        assert len(model.calls) == 3 * turn


def test_a_tool_that_may_not_be_repeated_takes_no_retries() -> None:
    with pytest.raises(ConfigError, match="only a tool that may run twice can be retried"):
        tool(replay="never", retries=2)(lambda: "no")


@pytest.mark.parametrize(("replay", "times"), [("never", 1), ("key", 3), ("safe", 3)])
def test_only_what_may_be_repeated_is_tried_again(
    replay: Any, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the tool was made of: its declaration is asked before each further try."""
    monkeypatch.setattr(sys.modules[execute.__module__], "RETRY_DELAY_SECONDS", 0.001)
    tries: list[int] = []

    def fail() -> str:
        """Fail."""
        tries.append(1)
        raise RuntimeError("no")

    bound = dataclasses.replace(bind_tool(fail, replay="safe", retries=2), replay=replay)
    agent, _ = agent_of(calls(("fail", {})), "ok", tools=[bound])
    assert agent.invoke("?").messages[2].text == "Error: RuntimeError: no"
    assert len(tries) == times
