"""The journal's part of the overlay: the time of each node, each tool and each hook."""

from __future__ import annotations

import time
from typing import Any

import pytest

from wick_graph import Agent, BaseHook
from wick_graph.messages import ToolResult
from wick_graph.picture import as_text, overlay_of, picture_of
from wick_graph.testing import ScriptedModel, calls

WAIT = 0.05


class Slow(BaseHook):
    name = "slow"

    def modify_request(self, request: Any, ctx: Any) -> Any:
        time.sleep(WAIT)
        return request


def nap() -> str:
    """Sleep a little."""
    time.sleep(WAIT)
    return "slept"


def ran(**options: Any) -> Agent:
    model = ScriptedModel([calls(("nap", {}), ("nap", {})), "Done."])
    agent = Agent("sleeper", model, tools=[nap], hooks=[Slow()], **options)
    agent.invoke("go", thread_id="t")
    return agent


@pytest.mark.parametrize("row", ["M11"])
def test_the_journal_measures_nodes_tools_and_hooks(row: str) -> None:
    with ran() as agent:
        run = overlay_of(agent.graph, "t")
        layer = run.layer("modify_request", "slow")
        assert (layer.visits, layer.errors) == (2, 0)
        assert layer.seconds is not None
        assert layer.seconds >= 2 * WAIT
        tools = run.tool("nap")
        assert tools.visits == 2
        assert tools.seconds is not None
        assert tools.seconds >= 2 * WAIT
        assert run.node("tools").seconds is not None
        assert run.notes == ("times of parallel calls are added up",)
        assert "×2" in as_text(picture_of(agent.graph).with_run(run))


def test_without_a_journal_the_checkpoints_tell_what_they_can() -> None:
    with ran(journal="off") as agent:
        run = overlay_of(agent.graph, "t")
        assert run.layers == {}
        assert run.tool("nap").seconds is None
        assert run.notes == ("times are those of whole steps",)


class Answering(BaseHook):
    """Answers the first call itself."""

    name = "answering"
    seen = 0

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self.seen += 1
        return ToolResult(call.id, call.name, "not now") if self.seen == 1 else next(call)


def test_a_call_that_a_hook_answered_ran_no_tool() -> None:
    model = ScriptedModel([calls(("nap", {}), ("nap", {})), "Done."])
    with Agent("sleeper", model, tools=[nap], hooks=[Answering()]) as agent:
        agent.invoke("go", thread_id="t")
        assert overlay_of(agent.graph, "t").tool("nap").visits == 1
