"""Whatever a tool gives back or raises becomes one result, and never an exception."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException
from langgraph.types import Command, Send
from pydantic import BaseModel, TypeAdapter, ValidationError

from wick_graph.constants import MAX_RESULT_CHARS
from wick_graph.core.redaction import Redactor
from wick_graph.errors import ToolError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.tools import cap, failure, normalise

CALL = ToolCall(id="call_1", name="look", args={})


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    label: str | None = None


@dataclasses.dataclass
class Pair:
    a: int
    b: list[int]


class Opaque:
    def __str__(self) -> str:
        return "opaque thing"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "output"),
    [
        pytest.param("text", "text", id="text"),
        pytest.param("", "", id="empty-text"),
        pytest.param("Error: not raised", "Error: not raised", id="text-of-an-error"),
        pytest.param(None, "(no output)", id="none"),
        pytest.param({"a": [1, None, True], "é": "ü"}, '{"a":[1,null,true],"é":"ü"}', id="Q-M12"),
        pytest.param([], "[]", id="empty-list"),
        pytest.param(
            [{"type": "file", "name": "x"}], '[{"type":"file","name":"x"}]', id="no-block"
        ),
        pytest.param(("a", 1), '["a",1]', id="tuple"),
        pytest.param({3}, "[3]", id="set"),
        pytest.param(3, "3", id="int"),
        pytest.param(0.5, "0.5", id="float"),
        pytest.param(True, "true", id="bool"),
        pytest.param(b"a\xff", "a\\xff", id="bytes"),
        pytest.param(Colour.RED, '"red"', id="enum"),
        pytest.param(Point(x=1), '{"x":1,"label":null}', id="model"),
        pytest.param(Pair(1, [2]), '{"a":1,"b":[2]}', id="dataclass"),
        pytest.param({"t": datetime.date(2024, 1, 2)}, '{"t":"2024-01-02"}', id="date"),
        pytest.param(decimal.Decimal("1.10"), '"1.10"', id="decimal"),
        pytest.param({1: uuid.UUID(int=0)}, f'{{"1":"{uuid.UUID(int=0)}"}}', id="uuid"),
        pytest.param(pathlib.PurePosixPath("/a"), '"/a"', id="path"),
        pytest.param({"o": Opaque()}, '{"o":"opaque thing"}', id="opaque"),
        pytest.param("half \ud800 pair", "half \ufffd pair", id="surrogate"),
    ],
)
def test_values_become_text(value: Any, output: str) -> None:
    assert normalise(value, CALL) == ToolResult("call_1", "look", output)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": ["\ud800"]}, 2**70])
def test_odd_values_become_text_that_can_be_encoded(value: Any) -> None:
    result = normalise(value, CALL)
    assert result.error is None
    assert result.output.encode()


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [_deep(5_000), _circular(), Hostile(), {"a": Hostile()}])
def test_what_cannot_be_written_is_a_failure(value: Any) -> None:
    result = normalise(value, CALL)
    assert (result.tool_call_id, result.name, result.output) == ("call_1", "look", "")
    assert result.error


def test_a_result_keeps_what_it_carries_and_gets_the_call() -> None:
    given_ = ToolResult("other", "other", "out", update={"todos": []}, artifact=3)
    assert normalise(given_, CALL) == ToolResult(
        "call_1", "look", "out", update={"todos": []}, artifact=3
    )
    failed = normalise(ToolResult("", "", "", error="gone"), CALL)
    assert failed.to_message().content == "Error: gone"
    assert normalise(ToolResult("", "", ""), CALL).output == ""


def test_a_tool_message_gives_text_artifact_and_blocks() -> None:
    assert normalise(ToolMessage("hi", tool_call_id="x", artifact=[1]), CALL) == ToolResult(
        "call_1", "look", "hi", artifact=[1]
    )
    blocks: list[str | dict[str, Any]] = [
        {"type": "text", "text": "see "},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    result = normalise(ToolMessage(blocks, tool_call_id="call_1"), CALL)
    assert (result.output, result.content) == ("see ", blocks)
    assert result.to_message().content == blocks


@pytest.mark.parametrize("text", ["no such row", "Error: no such row"])
def test_a_tool_message_of_an_error_is_a_failure(text: str) -> None:
    result = normalise(ToolMessage(text, tool_call_id="call_1", status="error"), CALL)
    assert (result.output, result.error) == ("", "no such row")
    assert result.to_message().content == "Error: no such row"


def answer(text: str = "done") -> ToolMessage:
    return ToolMessage(text, tool_call_id="call_1")


@pytest.mark.parametrize(
    ("value", "output", "update"),
    [
        pytest.param(
            Command(update={"messages": [answer()], "todos": [1]}), "done", {"todos": [1]}, id="one"
        ),
        pytest.param(Command(update={"messages": answer()}), "done", None, id="no-list"),
        pytest.param(
            Command(update=[("messages", [answer()]), ("a", 1)]), "done", {"a": 1}, id="pairs"
        ),
        pytest.param(Command(update=[answer()]), "done", None, id="messages-only"),
        pytest.param(Command(update={"a": 1}), "(no output)", {"a": 1}, id="no-answer"),
        pytest.param(Command(), "(no output)", None, id="nothing"),
        pytest.param([Command(update={"a": 1}), answer()], "done", {"a": 1}, id="list"),
        pytest.param(
            [Command(update={"a": 1, "messages": [answer()]}), Command(update={"b": 2})],
            "done",
            {"a": 1, "b": 2},
            id="two-commands",
        ),
    ],
)
def test_commands(value: Any, output: str, update: Any) -> None:
    result = normalise(value, CALL)
    assert (result.error, result.output, result.update) == (None, output, update)


def test_other_messages_of_a_command_stay_an_update() -> None:
    note, reply = HumanMessage("note"), AIMessage("thought")
    result = normalise(Command(update={"messages": [note, answer(), reply]}), CALL)
    assert result.output == "done"
    assert result.update == {"messages": [note, reply]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Command(goto="elsewhere"), "Command with goto"),
        (Command(goto=[Send("x", {})]), "Command with goto"),
        (Command(graph=Command.PARENT, update={"a": 1}), "this agent runs in none"),
        (Command(graph="other", update={"a": 1}), "Command with graph"),
        (Command(resume=1), "Command with resume"),
        (Command(update="text"), "with a str as its update"),
        ([answer(), answer()], "answered one call 2 times"),
        ([Command(update={"a": 1}), Command(update={"a": 2})], "updates 'a' twice"),
        (Command(update={"messages": [ToolMessage("x", tool_call_id="z")]}), "not its own"),
    ],
)
def test_commands_that_are_refused(value: Any, words: str) -> None:
    result = normalise(value, CALL)
    assert words in (result.error or "")
    assert result.update is None


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("broken")


def _validation_error() -> ValidationError:
    try:
        TypeAdapter(dict[str, int]).validate_python({"a": "x"})
    except ValidationError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(ToolError("not found"), "not found", id="D-05"),
        pytest.param(ToolException("not found"), "not found", id="tool-exception"),
        pytest.param(ValueError("bad"), "ValueError: bad", id="other"),
        pytest.param(KeyError("k"), "KeyError: 'k'", id="key"),
        pytest.param(ZeroDivisionError(), "ZeroDivisionError", id="no-text"),
        pytest.param(ToolError(""), "the tool failed and did not say why", id="blank"),
        pytest.param(ToolError("Error: twice"), "twice", id="prefix"),
        pytest.param("timed out after 3 s", "timed out after 3 s", id="text"),
        pytest.param("", "the tool failed and did not say why", id="blank-text"),
        pytest.param(Speechless(), "Speechless", id="broken-text"),
        pytest.param(ToolError("a\ud800"), "a\ufffd", id="surrogate"),
    ],
)
def test_failures(error: Any, text: str) -> None:
    result = failure(CALL, error)
    assert result == ToolResult("call_1", "look", "", error=text)
    assert result.to_message().content == f"Error: {text}"
    assert result.to_message().status == "error"


def test_a_validation_error_is_one_line() -> None:
    text = failure(CALL, _validation_error()).error or ""
    assert text.startswith("ValidationError: a: Input should be a valid integer")
    assert "\n" not in text
    assert "http" not in text


def test_a_long_error_is_cut() -> None:
    error = failure(CALL, ToolError("x" * 1_000_000)).error or ""
    assert len(error) < 5_000


# --- the cap


def test_the_cap_at_its_default() -> None:
    exact = "a" * MAX_RESULT_CHARS
    assert cap(exact, MAX_RESULT_CHARS) == exact
    text = "h" * 2_000 + "m" * 76_001 + "t" * 2_000
    assert cap(text, MAX_RESULT_CHARS) == (
        "h" * 2_000 + "\n\n... (truncated 76001 characters) ...\n\n" + "t" * 2_000
    )


def test_a_small_cap_scales_head_and_tail() -> None:
    text = "h" * 500 + "m" * 8_000 + "t" * 500
    assert cap(text, 1_000) == (
        "h" * 500 + "\n\n... (truncated 8000 characters) ...\n\n" + "t" * 500
    )


def test_no_cap() -> None:
    text = "x" * 200_000
    assert cap(text, None) is text


TEXT = st.text(alphabet="aé😀\n\u0301", max_size=6_000) | st.integers(0, 9_000).map(
    lambda n: "😀é" * n
)


@given(TEXT, st.integers(0, 9_000))
def test_a_cap_never_makes_a_text_longer(text: str, limit: int) -> None:
    cut = cap(text, limit)
    assert len(cut) <= len(text)
    cut.encode()
    if len(text) <= limit:
        assert cut == text
    if cut != text:
        head = tail = min(2_000, limit // 2)
        assert cut.startswith(text[:head] + "\n\n... (truncated ")
        assert cut.endswith(" characters) ...\n\n" + text[len(text) - tail :])
        gone = int(cut[head:].split("(truncated ")[1].split(" ")[0])
        assert gone == len(text) - head - tail


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
        max_leaves=20,
    )
)
def test_any_json_value_gives_a_result(value: Any) -> None:
    result = normalise(value, CALL)
    assert result.error is None
    result.output.encode()
    if isinstance(value, dict | list):
        json.loads(result.output)


def test_an_error_shows_no_secret() -> None:
    secret, plain = "sk-" + "a1B2" * 8, "an unremarkable word"
    for error in (RuntimeError(f"refused: {secret}"), ToolError(f"refused: {secret}")):
        text = failure(CALL, error).error
        assert text is not None
        assert secret not in text
        assert "[redacted: OpenAI key]" in text
    redactor = Redactor()
    redactor.learn([plain])
    assert redactor.text(f"it is {plain}.") == "it is [redacted: known secret]."
    assert redactor.found(plain) == ["known secret"]
