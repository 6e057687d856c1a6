"""What hooks may do beyond one call: calls of their own, ends of a run, phases without a hop."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.engine.support import Door, add, agent_of, wild
from wick_graph import Agent, BaseHook, ModelRequest, Verdict
from wick_graph.errors import HookError, ModelError
from wick_graph.hooks import in_place
from wick_graph.testing import Lane, ScriptedModel, When, call, text


class Asks(BaseHook):
    """Ask the model something of its own before each call."""

    name = "asks"

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.said: list[str] = []

    @in_place
    async def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        asked = ModelRequest.of([HumanMessage("Which language?")], state=request.state)
        reply = await next(replace(asked, ctx=request.ctx, purpose="guess"))
        self.said.append(reply.text)
        return await next(request.append_system(f"Answer in {reply.text}."))


def test_a_hook_may_ask_the_model_itself(door: Door) -> None:
    lanes = [
        Lane("g", [text("French", usage=(5, 1))], when=When(purpose="guess"), cursor="fifo"),
        Lane("m", [text("Oui.", usage=(7, 2))], when=When(purpose="agent")),
    ]
    hook = Asks()
    model = ScriptedModel(lanes=lanes)
    result = door(Agent(model=model, hooks=[hook]), "?")
    assert (result.text, hook.said) == ("Oui.", ["French"])
    assert model.calls[1].system == "Answer in French."
    assert (result.usage.calls, result.usage.total_tokens) == (2, 15)
    assert [m.type for m in result.messages] == ["human", "ai"]
    assert hook.threads == [threading.main_thread().name], "no thread and no loop of its own"


@pytest.mark.parametrize("change", [{"purpose": "guess"}, {"model": object()}])
def test_what_the_overlay_cannot_keep_is_refused_where_it_would_be_lost(
    door: Door, change: dict[str, Any]
) -> None:
    class Sets(BaseHook):
        name = "sets"

        def modify_request(self, request: ModelRequest, ctx: Any) -> ModelRequest:
            return replace(request, **change)

    agent, _ = agent_of("never", hooks=[Sets()])
    with pytest.raises(HookError, match="do that in wrap_model_call"):
        door(agent, "?")


class Ends(BaseHook):
    name = "ends"

    def __init__(self, how: str, reason: Any) -> None:
        self.how, self.reason = how, reason

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        reply = next(request)
        return (reply, {"stop_reason": self.reason}) if self.how == "wrap" else reply

    def after_model(self, message: Any, ctx: Any) -> Any:
        if self.how == "verdict":
            return Verdict(end=True, because=self.reason)
        return {"stop_reason": self.reason} if self.how == "update" else None


@pytest.mark.parametrize("how", ["wrap", "verdict", "update"])
def test_a_hook_may_end_a_run_with_a_reason(door: Door, how: str) -> None:
    agent, model = agent_of(call("add", a=1, b=2), "never", tools=[add], hooks=[Ends(how, "limit")])
    result = door(agent, "?", thread_id="t")
    assert result.stopped_because == "limit"
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai"]
    assert "was ended here" in result.messages[2].text
    assert len(model.calls) == 1
    assert agent.threads.get("t").stopped_because == "limit"


@pytest.mark.parametrize("how", ["wrap", "update"])
def test_a_reason_that_nobody_knows_is_refused(door: Door, how: str) -> None:
    agent, _ = agent_of("ok", hooks=[Ends(how, "bored")])
    with pytest.raises((HookError, ModelError), match="stop_reason must be one of done, limit"):
        door(agent, "?")


@pytest.mark.parametrize((), [pytest.param(id="D-46")])
def test_tools_may_come_and_go_within_a_run(door: Door) -> None:
    class Opens(BaseHook):
        name = "opens"

        def tools(self, state: Any) -> Any:
            return [add] if state.get("files") else []

        def after_model(self, message: Any, ctx: Any) -> Any:
            return {"files": {"opened": "yes"}}

    steps = [wild("add", a=1, b=2), call("add", a=1, b=2), "ok"]
    agent, model = agent_of(*steps, tools=[], hooks=[Opens()])
    result = door(agent, "?")
    assert [c.tool_names for c in model.calls] == [(), ("add",), ("add",)]
    assert [m.text for m in result.messages if m.type == "tool"] == ["3", "3"]
