"""Hooks: order, onions, both styles under both doors, contracts, and what never happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import interrupt

from tests.engine.support import AsyncRecorder, Door, Recorder, add, agent_of, roles
from wick_graph import Agent, BaseHook, ModelRequest, ToolResult, Verdict
from wick_graph.errors import ConfigError, HookError, ModelError
from wick_graph.hooks import PHASES
from wick_graph.testing import ScriptedModel, call, calls


@pytest.mark.parametrize(
    "kinds",
    [
        (Recorder, Recorder),
        (AsyncRecorder, AsyncRecorder),
        (Recorder, AsyncRecorder),
        (AsyncRecorder, Recorder),
    ],
)
def test_two_hooks_and_three_parallel_tools_make_an_onion(door: Door, kinds: Any) -> None:
    log: list[str] = []
    hooks = [kinds[0]("A", log), kinds[1]("B", log)]
    asked = [("add", {"a": i, "b": 1}) for i in range(3)]
    agent, model = agent_of(calls(*asked), "ok", hooks=hooks, system_prompt="Base.")
    assert door(agent, "?").text == "ok"
    turn = ["A.modify_request", "B.modify_request", "A.model(", "B.model(", "B.model)", "A.model)"]
    assert log[:8] == ["A.before_agent", "B.before_agent", *turn]
    assert log[-6:] == turn
    ids = [c["id"] for c in model.calls[1].messages[2].tool_calls]  # type: ignore[attr-defined]  # the scripted reply
    for call_id in ids:
        own = [entry.replace(call_id, "") for entry in log if entry.endswith(call_id)]
        assert own == ["A.tool(", "B.tool(", "B.tool)", "A.tool)"]
    assert [c.system for c in model.calls] == ["Base.\n\n[A]\n\n[B]"] * 2


def test_what_hooks_inject_is_never_stored(door: Door) -> None:
    agent, _ = agent_of("ok", hooks=[Recorder("A", [])])
    result = door(agent, "?", thread_id="t")
    assert roles(result.messages) == ["human", "ai"]
    state = agent.graph.get_state({"configurable": {"thread_id": "t"}})
    assert "[A]" not in repr(state.values)


def test_a_hook_that_changes_a_message_does_not_change_the_thread(door: Door) -> None:
    class Shout(BaseHook):
        name = "shout"

        def modify_request(self, request: ModelRequest, ctx: Any) -> ModelRequest:
            message = request.messages[-1]
            message.content = "LOUD"
            return request.replace(message.id or "", message)

    agent, model = agent_of("ok", hooks=[Shout()])
    result = door(agent, "soft")
    assert model.calls[0].messages[-1].text == "LOUD"
    assert result.messages[0].text == "soft"


class _Raises(BaseHook):
    def __init__(self, phase: str) -> None:
        self.name = "bad"
        self.phase = phase

    def before_agent(self, state: Any, ctx: Any) -> Any:
        self._maybe("before_agent")

    def modify_request(self, request: Any, ctx: Any) -> Any:
        self._maybe("modify_request")
        return request

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        self._maybe("wrap_model_call")
        reply = next(request)
        self._maybe("after next")
        return reply

    def after_model(self, message: Any, ctx: Any) -> Any:
        self._maybe("after_model")

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self._maybe("wrap_tool_call")
        return next(call)

    def _maybe(self, here: str) -> None:
        if here == self.phase:
            raise RuntimeError("oops")


@pytest.mark.parametrize(
    ("phase", "kind", "text", "asked"),
    [
        pytest.param("before_agent", HookError, "hook bad BeforeAgent: oops", 0, id="L-06"),
        pytest.param("modify_request", HookError, "hook bad ModifyRequest: oops", 0, id="D-27"),
        pytest.param(
            "wrap_model_call", ModelError, "LLM call: hook bad WrapModelCall: oops", 0, id="L-14"
        ),
        pytest.param(
            "after next", ModelError, "LLM call: hook bad WrapModelCall: oops", 1, id="after-next"
        ),
        pytest.param("after_model", HookError, "hook bad AfterModel: oops", 1, id="after_model"),
        pytest.param("wrap_tool_call", HookError, "hook bad WrapToolCall: oops", 1, id="tool"),
    ],
)
def test_a_raising_hook_fails_the_run_and_not_the_thread(
    door: Door, phase: str, kind: type[Exception], text: str, asked: int
) -> None:
    script: list[Any] = [call("add", a=1, b=2), "fine"]
    hook = _Raises(phase)
    agent = Agent(model=ScriptedModel(script, cursor="fifo"), tools=[add], hooks=[hook])
    with pytest.raises(kind) as failed:
        door(agent, "a", thread_id="t")
    assert str(failed.value) == text
    info = agent.threads.get("t")
    assert (info.status, info.last_error) == ("failed", text)
    hook.phase = ""
    model = ScriptedModel(["better"], cursor="fifo")
    healed = Agent(model=model, tools=[add], store=agent.store)
    result = door(healed, "b", thread_id="t")
    assert result.text == "better"
    asked_ids = [c["id"] for m in result.messages if isinstance(m, AIMessage) for c in m.tool_calls]
    assert asked_ids == [m.tool_call_id for m in result.messages if isinstance(m, ToolMessage)]


class _Returns(BaseHook):
    name = "bad"

    def __init__(self, phase: str, value: Any) -> None:
        self.phase, self.value = phase, value

    def before_agent(self, state: Any, ctx: Any) -> Any:
        return self.value if self.phase == "before_agent" else None

    def modify_request(self, request: Any, ctx: Any) -> Any:
        return self.value if self.phase == "modify_request" else request

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        reply = next(request)
        return self.value if self.phase == "wrap_model_call" else reply

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        result = next(call)
        return self.value if self.phase == "wrap_tool_call" else result


WRONG = ["text", (1, 2, 3), (None, {"no_such_channel": 1})]


@pytest.mark.parametrize(
    ("phase", "value"),
    [
        *[("before_agent", value) for value in ["text", {"no_such_channel": 1}]],
        *[("modify_request", value) for value in [None, *WRONG]],
        *[("wrap_model_call", value) for value in [None, *WRONG]],
        *[("wrap_tool_call", value) for value in [None, *WRONG]],
    ],
)
def test_a_hook_that_returns_the_wrong_thing_is_named(door: Door, phase: str, value: Any) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "fine", hooks=[_Returns(phase, value)])
    with pytest.raises((HookError, ModelError), match="hook bad "):
        door(agent, "a")


def test_calling_next_twice_calls_the_model_twice(door: Door) -> None:
    class Twice(BaseHook):
        name = "twice"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            next(request)
            return next(request)

    agent = Agent(model=ScriptedModel(["one", "two"], cursor="fifo"), hooks=[Twice()])
    result = door(agent, "?")
    assert result.text == "two"
    assert roles(result.messages) == ["human", "ai"]


def test_a_hook_can_answer_instead_of_the_model_and_of_a_tool(door: Door) -> None:
    class Cache(BaseHook):
        name = "cache"

        async def wrap_model_call(self, request: Any, next: Any) -> Any:
            return (
                AIMessage("from the cache") if request.state["iteration"] else await next(request)
            )

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return ToolResult(tool_call_id=call.id, name=call.name, output="kept")

    agent, model = agent_of(call("add", a=1, b=2), hooks=[Cache()])
    result = door(agent, "?")
    assert [m.text for m in result.messages[2:]] == ["kept", "from the cache"]
    assert len(model.calls) == 1


def test_every_phase_may_return_an_update(door: Door) -> None:
    class Writes(BaseHook):
        name = "writes"

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return {"files": {"before_agent": "x"}}

        def modify_request(self, request: Any, ctx: Any) -> Any:
            return request, {"files": {"modify_request": "x"}}

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            return next(request), {"files": {"wrap_model_call": "x"}}

        def after_model(self, message: Any, ctx: Any) -> Any:
            return {"files": {"after_model": "x"}}

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return next(call), {"files": {f"wrap_tool_call {call.id}": "x"}}

    asked = [("add", {"a": 1, "b": 2})] * 2
    agent, _ = agent_of(calls(*asked), "ok", hooks=[Writes()])
    files = door(agent, "?").files
    assert sorted(files) == [
        "after_model",
        "before_agent",
        "modify_request",
        "wrap_model_call",
        "wrap_tool_call call_1_1",
        "wrap_tool_call call_1_2",
    ]


def test_after_model_answers_calls_and_ends_runs(door: Door) -> None:
    class Judge(BaseHook):
        name = "judge"

        def after_model(self, message: AIMessage, ctx: Any) -> Verdict:
            ids = [c["id"] or "" for c in message.tool_calls]
            return Verdict(answers={ids[0]: "not now"}) if len(ids) > 1 else Verdict(end=True)

    two = calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}))
    agent, model = agent_of(two, call("add", a=3, b=3), hooks=[Judge()])
    result = door(agent, "?")
    assert [m.text for m in result.messages if m.type == "tool"][:2] == ["not now", "4"]
    assert result.stopped_because == "done"
    assert "was ended here" in result.messages[-1].text
    model.assert_complete()


def test_calls_that_are_all_answered_go_back_to_the_model(door: Door) -> None:
    class No(BaseHook):
        name = "no"

        def after_model(self, message: AIMessage, ctx: Any) -> Verdict:
            return Verdict(answers={c["id"] or "": "no" for c in message.tool_calls})

    agent, _ = agent_of(call("add", a=1, b=1), "then not", hooks=[No()])
    assert door(agent, "?").text == "then not"


def test_a_hooks_tool_exists_at_every_step_and_wins_over_the_agents(door: Door) -> None:
    def add(a: float, b: float) -> str:
        """Add, the hook's way."""
        return "hooked"

    class Brings(BaseHook):
        name = "brings"

        def tools(self, state: Any) -> Any:
            return [add]

    agent, model = agent_of(call("add", a=1, b=1), "ok", hooks=[Brings()])
    result = door(agent, "?")
    assert result.messages[2].text == "hooked"
    assert [t["function"]["description"] for t in model.calls[0].tools] == ["Add, the hook's way."]


def test_a_tool_registered_in_before_agent_is_refused_with_the_way_that_works(door: Door) -> None:
    class Old(BaseHook):
        name = "old"

        def before_agent(self, state: Any, ctx: Any) -> None:
            ctx.register_tool(add)

    agent, _ = agent_of("never", hooks=[Old()])
    with pytest.raises(HookError, match=r"return it from the hook's tools\(state\)"):
        door(agent, "?")


def test_a_hook_cannot_swallow_an_interrupt(door: Door) -> None:
    def ask() -> str:
        """Ask somebody."""
        return str(interrupt("sure?"))

    class Greedy(BaseHook):
        name = "greedy"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            try:
                return next(call)
            except Exception:
                return ToolResult(tool_call_id=call.id, name=call.name, output="swallowed")

    agent, _ = agent_of(call("ask"), "ok", tools=[ask], hooks=[Greedy()])
    result = door(agent, "?", thread_id="t")
    assert result.stopped_because == "interrupted"
    assert [i.value for i in result.interrupts] == ["sure?"]
    assert agent.threads.get("t").status == "waiting"
    assert agent.resume("t", "yes").text == "ok"


class _Quiet(BaseHook):
    name = "quiet"
    phases = ("before_agent",)

    def before_agent(self, state: Any, ctx: Any) -> None: ...


class _Unlisted(_Quiet):
    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request


class _Phases(BaseHook):
    name = "odd"
    phases = ("before_lunch",)  # type: ignore[assignment]  # the mistake that the test is about


@pytest.mark.parametrize(
    ("hooks", "text"),
    [
        pytest.param([_Unlisted()], "has a method modify_request but does not list", id="D-10"),
        pytest.param([_Phases()], "lists the phase 'before_lunch'", id="unknown-phase"),
        pytest.param([_Quiet], r"write _Quiet\(\)", id="class"),
        pytest.param([_Quiet(), _Quiet()], "two hooks are named 'quiet'", id="doubled"),
        pytest.param([object()], "it has no name", id="no-hook"),
    ],
)
def test_a_wrong_hook_is_refused_when_the_agent_is_made(hooks: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        agent_of("never", hooks=hooks)


def test_hooks_that_override_nothing_cost_no_step_and_no_layer() -> None:
    bare, _ = agent_of(call("add", a=1, b=1), "ok")
    hooked, _ = agent_of(call("add", a=1, b=1), "ok", hooks=[BaseHook() for _ in range(6)])
    steps = []
    for agent in (bare, hooked):
        agent.invoke("?", thread_id="t")
        config: Any = {"configurable": {"thread_id": "t"}}
        steps.append(len(list(agent.graph.get_state_history(config))))
    assert steps[0] == steps[1]
    assert all(not hooked.spec.hooks.layers(phase) for phase in PHASES)


@pytest.mark.slow
def test_nested_sync_hooks_do_not_starve_each_other() -> None:
    """Sixty runs at once, each with three blocked threads of sync layers: a pool would hang."""
    log: list[str] = []
    hooks = [Recorder(name, log) for name in "ABC"]
    agent, _ = agent_of(call("add", a=1, b=1), "ok", hooks=hooks)

    async def run() -> list[Any]:
        return [*await asyncio.gather(*(agent.ainvoke("?") for _ in range(60)))]

    assert [r.text for r in asyncio.run(run())] == ["ok"] * 60
