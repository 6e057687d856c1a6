"""Steps and what a caller gets from them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from tests.testing.scripted_doors import DOORS, ask
from wick_graph.errors import ConfigError
from wick_graph.testing import (
    ModelCall,
    ScriptedModel,
    StepLike,
    attempts,
    call,
    calls,
    context_overflow,
    cut_stream,
    delay,
    malformed_args,
    respond,
    text,
    timeout,
    unknown_tool,
)

every_door = pytest.mark.parametrize("door", DOORS)


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@every_door
async def test_a_text_is_an_answer(door: str) -> None:
    message = await ask(ScriptedModel(["Good morning to you."]), "hi", door)
    assert message.content == "Good morning to you."
    assert message.tool_calls == []
    assert message.response_metadata["model_name"] == "scripted"
    assert message.response_metadata["finish_reason"] == "stop"


@every_door
async def test_several_calls_come_in_one_reply_after_its_text(door: str) -> None:
    step = calls(("add", {"a": 1, "b": -2}), ("add", {"a": 3}), text="Let me add.")
    message = await ask(ScriptedModel([step]).bind_tools([add]), "hi", door)
    assert message.content == "Let me add."
    assert [(c["name"], c["args"]) for c in message.tool_calls] == [
        ("add", {"a": 1, "b": -2}),
        ("add", {"a": 3}),
    ]
    assert message.response_metadata["finish_reason"] == "tool_calls"


STEPS: list[StepLike] = [
    text("one two  three\nfour "),
    text("", chunks=["on", "e tw", "o"]),
    calls(("add", {"a": 1}), ("add", {"a": 2, "b": 3}), text="both"),
    calls(("add", {"a": 1}, "my_id"), id="msg_mine", usage=(7, 5)),
    calls(("free", {"ä": ["x", {"y": None}], "n": 1.5}), unchecked=True),
    unknown_tool(),
    malformed_args("add", '{"a": }'),
    AIMessage(content=[{"type": "text", "text": "in a block"}]),
    text("counted", usage={"input_tokens": 3, "output_tokens": 4}),
    text(""),
]


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("door", DOORS[1:])
async def test_every_door_gives_the_same_message(step: StepLike, door: str) -> None:
    want = await ask(ScriptedModel([step]).bind_tools([add]), "hi", "invoke")
    got = await ask(ScriptedModel([step]).bind_tools([add]), "hi", door)
    for message in (want, got):  # the stream's parser gives no reason
        for bad in message.invalid_tool_calls:
            bad["error"] = None
    assert got.model_dump(exclude={"additional_kwargs"}) == want.model_dump(
        exclude={"additional_kwargs"}
    )


def test_a_text_streams_word_by_word() -> None:
    chunks = [c.content for c in ScriptedModel(["three little words"]).stream("hi")]
    assert [c for c in chunks if c] == ["three", " little", " words"]


def test_given_chunks_are_kept() -> None:
    chunks = [c.content for c in ScriptedModel([text(chunks=["thr", "ee li"])]).stream("hi")]
    assert [c for c in chunks if c] == ["thr", "ee li"]


def test_chunks_that_are_not_the_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not add up"):
        text("abc", chunks=["a", "b"])


def test_arguments_stream_in_pieces_under_their_index() -> None:
    step = calls(("add", {"a": 12, "b": 3}), ("add", {"a": 4}))
    pieces: list[Any] = [
        piece
        for chunk in ScriptedModel([step]).bind_tools([add]).stream("hi")
        if isinstance(chunk, AIMessageChunk)
        for piece in chunk.tool_call_chunks
    ]
    assert {piece["index"] for piece in pieces} == {0, 1}
    for index, args in enumerate(({"a": 12, "b": 3}, {"a": 4})):
        mine = [piece for piece in pieces if piece["index"] == index]
        assert mine[0]["name"] == "add"
        assert mine[0]["id"] == f"call_1_{index + 1}"
        assert len(mine) > 3
        assert json.loads("".join(piece["args"] or "" for piece in mine)) == args


def test_usage_is_estimated_from_four_characters_a_token() -> None:
    message = ScriptedModel(["x" * 9]).invoke([HumanMessage("y" * 40)])
    assert message.usage_metadata == {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}


def test_ids_are_the_same_every_time_and_differ_between_turns() -> None:
    def run() -> list[str]:
        model = ScriptedModel([call("add", a=1), calls(("add", {"a": 2}), ("add", {"a": 3})), "z"])
        thread: list[AIMessage | HumanMessage] = [HumanMessage("hi")]
        for _ in range(3):
            thread.append(model.bind_tools([add]).invoke(thread))
        ids = [str(m.id) for m in thread[1:]]
        return ids + [
            str(c["id"]) for m in thread if isinstance(m, AIMessage) for c in m.tool_calls
        ]

    ids = run()
    assert ids == ["msg_1", "msg_2", "msg_3", "call_1_1", "call_2_1", "call_2_2"]
    assert run() == ids


def test_what_a_caller_does_to_a_reply_does_not_change_the_script() -> None:
    model = ScriptedModel([calls(("free", {"a": [1]}), unchecked=True)])
    model.invoke("hi").tool_calls[0]["args"]["a"].append(99)
    assert model.invoke("hi").tool_calls[0]["args"] == {"a": [1]}


def test_arguments_that_json_cannot_say_are_refused() -> None:
    with pytest.raises(ConfigError, match="add cannot be written as JSON"):
        call("add", a=object())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda: calls(), "at least one", id="no-calls"),
        pytest.param(lambda: delay(1, attempts("x")), "inside attempts", id="delayed-attempts"),
        pytest.param(lambda: delay(1, context_overflow(1)), "one answer", id="delayed-overflow"),
        pytest.param(lambda: cut_stream(1, timeout()), "only cut a text", id="cut-fault"),
        pytest.param(lambda: cut_stream(1, delay(1, "x")), "only cut a text", id="cut-delay"),
    ],
)
def test_steps_that_make_no_sense_are_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_a_function_cannot_give_several_steps() -> None:
    with pytest.raises(ConfigError, match="one step"):
        ScriptedModel([respond(lambda seen: attempts("x"))]).invoke("hi")


def test_a_function_may_fail_on_purpose() -> None:
    with pytest.raises(ContextOverflowError):
        ScriptedModel([respond(lambda seen: context_overflow(0))]).invoke("hi")


def test_a_step_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="not int"):
        ScriptedModel([1])  # type: ignore[list-item]  # the mistake under test


@every_door
async def test_a_function_sees_the_call_and_chooses_the_step(door: str) -> None:
    def choose(seen: ModelCall) -> StepLike:
        assert seen.last is not None
        return f"{seen.last.text} with {seen.tool_names} at {seen.settings['temperature']}"

    model = ScriptedModel([respond(choose)]).bind_tools([add])
    message = await ask(model, "hello", door, temperature=0.5)
    assert message.content == "hello with ('add',) at 0.5"


@pytest.mark.parametrize("door", ["ainvoke", "astream"])
async def test_a_coroutine_function_may_wait_for_the_test(door: str) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def choose(seen: ModelCall) -> StepLike:
        asked.set()
        await go.wait()
        return delay(0, "after that")

    task = asyncio.create_task(ask(ScriptedModel([respond(choose)]), "hi", door))
    await asked.wait()
    assert not task.done()
    go.set()
    assert (await task).content == "after that"


def test_a_coroutine_function_needs_an_async_caller() -> None:
    async def choose(seen: ModelCall) -> StepLike:
        return "never"

    with pytest.raises(ConfigError, match="ainvoke"):
        ScriptedModel([respond(choose)]).invoke("hi")


@every_door
async def test_a_delayed_step_takes_its_time(door: str) -> None:
    started = time.monotonic()
    message = await ask(ScriptedModel([delay(0.05, "late")]), "hi", door)
    assert message.content == "late"
    assert time.monotonic() - started >= 0.05


async def test_a_delay_holds_up_its_own_task_only() -> None:
    with pytest.raises(TimeoutError):  # a thread that slept could not be called off
        await asyncio.wait_for(ScriptedModel([delay(3600, "never")]).ainvoke("hi"), 0.01)


@pytest.mark.parametrize(("chunk_delay", "between"), [(None, False), (0, True)])
async def test_a_chunk_delay_gives_others_their_turn(
    chunk_delay: float | None, between: bool
) -> None:
    seen: list[str] = []

    async def read() -> None:
        model = ScriptedModel(["a b c d"], chunk_delay=chunk_delay)
        async for chunk in model.astream("hi"):
            seen.append(str(chunk.content))

    async def beat() -> None:
        for _ in range(3):
            seen.append("beat")
            await asyncio.sleep(0)

    await asyncio.gather(read(), beat())
    assert "".join(chunk for chunk in seen if chunk != "beat") == "a b c d"
    assert ("beat" in seen[seen.index("a") : seen.index(" d")]) is between


def test_calls_from_many_threads_are_all_answered_and_counted() -> None:
    model = ScriptedModel(["same for all"])
    gate = threading.Barrier(8)
    answers: list[str] = []

    def run() -> None:
        gate.wait()
        answers.extend(str(model.invoke("hi").content) for _ in range(25))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["same for all"] * 200
    assert sorted(c.number for c in model.calls) == list(range(200))


def test_the_window_of_the_model_can_be_set() -> None:
    model = ScriptedModel(["x"], profile={"max_input_tokens": 1234})
    assert model.profile == {"max_input_tokens": 1234}


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="stpes"):
        ScriptedModel(stpes=["x"])
