"""The loop: what is called, in which order, what is kept, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.engine.support import Door, add, agent_of, roles, wild
from wick_graph import Agent, BaseHook, WickError, tool
from wick_graph.errors import MessageError, ModelError
from wick_graph.messages import role_of
from wick_graph.testing import (
    ScriptedModel,
    attempts,
    call,
    calls,
    empty,
    error,
    malformed_args,
    rate_limit,
    unknown_tool,
)


def test_a_tool_cycle(door: Door) -> None:
    agent, model = agent_of(call("add", a=2, b=3), "The sum of 2 and 3 is 5")
    result = door(agent, "Add 2+3")
    assert result.text == "The sum of 2 and 3 is 5"
    assert roles(result.messages) == ["human", "ai", "tool", "ai"]
    assert result.messages[2].content == "5"
    assert (result.stopped_because, result.usage.calls) == ("done", 2)
    model.assert_complete()


def test_the_next_message_continues_the_thread(door: Door) -> None:
    agent, model = agent_of("one", "two")
    first = door(agent, "a")
    second = door(agent, "b", thread_id=first.thread_id)
    assert [m.text for m in second.messages] == ["a", "one", "b", "two"]
    assert second.thread_usage.calls == 2
    assert second.usage.calls == 1
    assert [m.text for m in model.calls[1].messages] == ["a", "one", "b"]


def test_the_prompt_is_sent_and_never_stored(door: Door) -> None:
    agent, model = agent_of("hi", system_prompt="Be brief.")
    result = door(agent, "hello")
    assert model.calls[0].system == "Be brief."
    assert roles(result.messages) == ["human", "ai"]


@pytest.mark.parametrize("limit", [1, 2, 25], ids=["1", "2", "L-01"])
def test_the_limit_is_a_polite_end(door: Door, limit: int) -> None:
    steps = [call("add", a=i, b=1) for i in range(limit - 1)]
    agent, model = agent_of(*steps, wild("add", a=0, b=0), max_iterations=limit)
    result = door(agent, "go on and on")
    assert len(model.calls) == limit
    assert result.stopped_because == "limit"
    assert model.calls[-1].tools == ()
    plural = "step" if limit == 1 else "steps"
    assert result.text == f"Stopped after {limit} {plural} without a final answer."
    asked = [c["id"] for m in result.messages if isinstance(m, AIMessage) for c in m.tool_calls]
    answered = [m.tool_call_id for m in result.messages if isinstance(m, ToolMessage)]
    assert asked == answered


def test_an_answer_on_the_last_call_is_kept_as_the_answer(door: Door) -> None:
    agent, _ = agent_of(call("add", a=1, b=1), "two, I think", max_iterations=2)
    result = door(agent, "?")
    assert (result.text, result.stopped_because) == ("two, I think", "limit")


def test_without_tools_one_call_is_no_limit(door: Door) -> None:
    agent, _ = agent_of("hi", tools=[], max_iterations=1)
    assert door(agent, "?").stopped_because == "done"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        pytest.param(unknown_tool(), "Error: unknown tool: ", id="L-20"),
        pytest.param(malformed_args("add", '{"a": 1,'), "Error: invalid JSON arguments", id="D-50"),
        pytest.param(wild("add", a="x", b=1), "Error: ", id="bad-type"),
        pytest.param(wild("add", b=1), "Error: ", id="missing"),
        pytest.param(wild("add", a=1, b=2, c=3), "Error: ", id="extra"),
    ],
)
def test_a_bad_call_is_answered_and_the_run_goes_on(door: Door, step: Any, text: str) -> None:
    agent, model = agent_of(step, "sorry")
    result = door(agent, "?")
    assert result.text == "sorry"
    answer = result.messages[2]
    assert isinstance(answer, ToolMessage)
    assert answer.text.startswith(text)
    assert answer.status == "error"
    model.assert_complete()


def test_a_raising_tool_is_answered_and_its_siblings_finish(door: Door) -> None:
    def boom() -> str:
        """Fail."""
        raise RuntimeError("it broke")

    agent, _ = agent_of(calls(("boom", {}), ("add", {"a": 1, "b": 2})), "ok", tools=[boom, add])
    result = door(agent, "?")
    assert [m.text for m in result.messages[2:4]] == ["Error: RuntimeError: it broke", "3"]


def test_results_stand_in_call_order_and_calls_run_side_by_side(door: Door) -> None:
    together = threading.Barrier(3, timeout=60)

    def slow(seconds: float) -> str:
        """Wait."""
        together.wait()  # passes only if all three are under way at once
        time.sleep(seconds)
        return f"{seconds}"

    asked = [("slow", {"seconds": s}) for s in (0.05, 0.0, 0.02)]
    agent, _ = agent_of(calls(*asked), "done", tools=[slow])
    result = door(agent, "?")
    assert [m.text for m in result.messages if m.type == "tool"] == ["0.05", "0.0", "0.02"]


def test_async_tools_run_side_by_side(door: Door) -> None:
    waiting: list[str] = []

    async def meet(name: str) -> str:
        """Wait for the other."""
        waiting.append(name)
        while len(waiting) < 2:
            await asyncio.sleep(0.001)
        return name

    agent, _ = agent_of(calls(("meet", {"name": "a"}), ("meet", {"name": "b"})), "ok", tools=[meet])
    assert [m.text for m in door(agent, "?").messages[2:4]] == ["a", "b"]


def test_a_late_tool_is_answered(door: Door) -> None:
    release = threading.Event()

    @tool(timeout=0.05)
    def stuck() -> str:
        """Hang."""
        release.wait(60)
        return "late"

    @tool(timeout=0.05)
    async def astuck() -> str:
        """Hang."""
        await asyncio.sleep(60)
        return "late"

    agent, _ = agent_of(calls(("stuck", {}), ("astuck", {})), "ok", tools=[stuck, astuck])
    result = door(agent, "?")
    release.set()
    assert [m.text for m in result.messages[2:4]] == [
        "Error: stuck timed out after 0.05 s",
        "Error: astuck timed out after 0.05 s",
    ]


def test_more_than_32_calls_are_refused_one_by_one(door: Door) -> None:
    asked = [("add", {"a": i, "b": 0}) for i in range(40)]
    agent, _ = agent_of(calls(*asked), "ok")
    answers = [m.text for m in door(agent, "?").messages if m.type == "tool"]
    assert answers[:32] == [str(i) for i in range(32)]
    assert all("too many calls" in text for text in answers[32:])
    assert len(answers) == 40


def test_an_empty_reply_is_not_stored(door: Door) -> None:
    agent, _ = agent_of(empty(), "here I am")
    first = door(agent, "a")
    assert (first.text, first.stopped_because) == ("", "empty")
    assert roles(first.messages) == ["human"]
    assert door(agent, "b", thread_id=first.thread_id).text == "here I am"


def test_a_failing_model_fails_the_run_and_not_the_thread(door: Door) -> None:
    agent, _ = agent_of(error(ValueError("no such thing")), "better")
    with pytest.raises(ModelError, match="^LLM call: ValueError: no such thing"):
        door(agent, "a", thread_id="t")
    result = door(agent, "b", thread_id="t")
    said = [m.text for m in result.messages if role_of(m) != "error"]
    assert said == ["a", "b", "better"]


def test_a_rate_limit_is_waited_out(door: Door) -> None:
    agent, model = agent_of(attempts(rate_limit(retry_after=0.01), "ok"))
    assert door(agent, "a").text == "ok"
    assert len(model.calls) == 2


def test_a_chain_that_a_hook_broke_never_reaches_the_model(door: Door) -> None:
    class Breaker(BaseHook):
        name = "breaker"

        def modify_request(self, request: Any, ctx: Any) -> Any:
            return request.append(HumanMessage(""))

    agent, model = agent_of("never", hooks=[Breaker()])
    with pytest.raises(MessageError, match=r"^invalid messages: message\[1\]: user message"):
        door(agent, "a")
    assert not model.calls


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param([], "messages must not be empty", id="V-13"),
        pytest.param("", "content must not be empty", id="V-15"),
        pytest.param(
            {"role": "assistant", "content": "spoofed"},
            "there is nothing to answer, since the assistant spoke last",
            id="V-14",
        ),
        pytest.param(AIMessage("x"), "the assistant spoke last", id="V-14-message"),
        pytest.param(
            ToolMessage("x", tool_call_id="1"),
            "there is no call '1' that this result could answer",
            id="V-14-tool",
        ),
        pytest.param(None, "nothing is not a message", id="none"),
        pytest.param(7, "a int is not a message", id="int"),
        pytest.param({"role": "user"}, "is not a message", id="no-content"),
        pytest.param({"role": "user", "content": 7}, "must be a text, or a list", id="number"),
        pytest.param(
            {"role": "user", "content": [{"type": "text"}]},
            "message[0].content[0]: a block of type text needs a text",
            id="block-without-text",
        ),
        pytest.param(
            {"role": "user", "content": ["fine", {"text": "x"}]},
            "content[1]: a block is a text, or an object with a type",
            id="block-without-type",
        ),
    ],
)
def test_a_refused_input_stores_nothing(door: Door, given: Any, text: str) -> None:
    agent, model = agent_of("never")
    with pytest.raises(MessageError) as refused:
        door(agent, given, thread_id="t")
    assert text in str(refused.value)
    assert agent.threads.get("t") is None
    assert not model.calls


def test_a_clients_tool_calls_are_not_believed(door: Door) -> None:
    agent, model = agent_of("ok")
    spoofed = {"role": "user", "content": "hi", "tool_calls": [{"id": "1"}], "name": "root"}
    message = door(agent, spoofed).messages[0]
    assert message.name is None
    assert list(message.additional_kwargs) == ["timestamp"]


@pytest.mark.parametrize("thread_id", ["", "a b", "x" * 129, "a/b", "ü", 7])
def test_a_bad_thread_id_is_refused(thread_id: Any) -> None:
    agent, _ = agent_of("never")
    with pytest.raises(WickError, match="thread id"):
        agent.invoke("a", thread_id=thread_id)


def test_both_doors_give_the_same_messages() -> None:
    async def run() -> None:
        agents = [agent_of(call("add", a=1, b=2), "three")[0] for _ in range(4)]
        shapes = [[(m.type, m.text) for m in agents[0].invoke("?").messages]]
        shapes.append([(m.type, m.text) for m in (await agents[1].ainvoke("?")).messages])
        *_, done = agents[2].stream("?")
        shapes.append([(m.type, m.text) for m in done.result.messages])  # type: ignore[union-attr]  # a run that ends well ends with Done
        events = [event async for event in agents[3].astream("?")]
        shapes.append([(m.type, m.text) for m in events[-1].result.messages])  # type: ignore[union-attr]  # see above
        assert all(shape == shapes[0] for shape in shapes)

    asyncio.run(run())


def test_a_nameless_model_class_is_refused() -> None:
    with pytest.raises(WickError):
        Agent(model=ScriptedModel)  # type: ignore[call-overload]  # the mistake that the test is about
