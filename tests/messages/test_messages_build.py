"""Roles, constructors, copies, calls and results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError
from wick_graph.messages import (
    LLM_ROLES,
    RECORD_ROLES,
    ROLE_AGENT_CALL,
    ROLE_AGENT_RESPONSE,
    ROLE_ASSISTANT,
    ROLE_ERROR,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    VALID_ROLES,
    ToolCall,
    ToolResult,
    agent_call,
    agent_response,
    ai,
    clean_text,
    copy_message,
    error_message,
    has_content,
    human,
    message,
    metadata_of,
    new_call_id,
    role_of,
    sanitise_tool_name,
    system,
    text_of,
    timestamp_of,
    to_record,
    tool_msg,
    user_input_role,
    valid_role,
)

HALF = "\ud83d"
"""The first half of a surrogate pair."""


@pytest.mark.parametrize(
    ("role", "valid"),
    [
        *[pytest.param(role, True, id=f"M-05-{role}") for role in sorted(LLM_ROLES)],
        *[pytest.param(role, False, id=f"M-05-{role}") for role in sorted(RECORD_ROLES)],
        pytest.param("", False, id="M-05-empty"),
        pytest.param("User", False, id="M-05-case"),
        pytest.param("function", False, id="M-05-function"),
        pytest.param("hacker", False, id="V-01"),
        pytest.param(None, False, id="M-05-none"),
        pytest.param(["user"], False, id="M-05-list"),
    ],
)
def test_valid_role(role: object, valid: bool) -> None:
    assert valid_role(role) is valid


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        pytest.param("user", True, id="V-02-user"),
        pytest.param("system", True, id="V-02-system"),
        pytest.param("assistant", False, id="V-02-assistant"),
        pytest.param("tool", False, id="V-02-tool"),
        pytest.param("error", False, id="V-02-error"),
        pytest.param("agent_call", False, id="V-02-agent_call"),
        pytest.param(None, False, id="V-02-none"),
        pytest.param(["user"], False, id="V-02-list"),
    ],
)
def test_user_input_role(role: object, allowed: bool) -> None:
    assert user_input_role(role) is allowed


def test_role_constants_are_the_words_on_the_wire() -> None:
    names = (ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL)
    assert names == ("system", "user", "assistant", "tool")
    assert set(names) == LLM_ROLES
    assert {*names, ROLE_ERROR, ROLE_AGENT_CALL, ROLE_AGENT_RESPONSE} == VALID_ROLES
    assert len(VALID_ROLES) == 7


@pytest.mark.parametrize(
    ("made", "role"),
    [
        (HumanMessage("x"), "user"),
        (AIMessage("x"), "assistant"),
        (AIMessageChunk(content="x"), "assistant"),
        (SystemMessage("x"), "system"),
        (ToolMessage("x", tool_call_id="c"), "tool"),
        (ChatMessage(content="x", role="error"), "error"),
        (ChatMessage(content="x", role="user"), "user"),
        (ChatMessage(content="x", role="hacker"), "hacker"),
        (RemoveMessage(id="m"), "remove"),
    ],
)
def test_role_of_any_langchain_message(made: BaseMessage, role: str) -> None:
    assert role_of(made) == role


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(human("hi"), HumanMessage("hi"), id="C-01"),
        pytest.param(system("be kind"), SystemMessage("be kind"), id="C-02"),
        pytest.param(ai("x"), AIMessage("x"), id="C-03-no-calls"),
        pytest.param(
            ai("", ToolCall("a", "ls", {"path": "."}), {"id": "b", "name": "cat", "args": {}}),
            AIMessage(
                "",
                tool_calls=[
                    {"id": "a", "name": "ls", "args": {"path": "."}},
                    {"id": "b", "name": "cat", "args": {}},
                ],
            ),
            id="C-03-two-calls",
        ),
        pytest.param(
            tool_msg("c1", "ls", "[]"),
            ToolMessage("[]", tool_call_id="c1", name="ls"),
            id="C-04",
        ),
        pytest.param(
            human("x", id="m1", name="ada"), HumanMessage("x", id="m1", name="ada"), id="id"
        ),
    ],
)
def test_constructors_make_langchain_messages(made: BaseMessage, expected: BaseMessage) -> None:
    assert type(made) is type(expected)
    assert made == expected


def test_raw_arguments_are_noted_by_call_and_only_where_there_are_some() -> None:
    assert ai("x", ToolCall("c1", "add", {})).additional_kwargs == {}
    made = ai("", ToolCall("c1", "add", {"a": 1}, '{"a": 1}'), ToolCall("c2", "add", {}))
    assert made.additional_kwargs == {"raw_args": {"c1": '{"a": 1}'}}


class TestKeywordConstruction:
    """`message`: any role, with an id and a time."""

    def test_a_role_is_all_that_is_needed(self) -> None:  # M-1
        made = message("assistant", name="weather_agent")
        assert (made.content, made.name) == ("", "weather_agent")
        assert metadata_of(made) == {}

    def test_ids_are_unique_and_a_given_one_is_kept(self) -> None:  # M-2
        assert len({message("user", "x").id for _ in range(1000)}) == 1000
        assert message("user", "x", message_id="m1").id == "m1"

    def test_the_time_is_the_time_of_creation_in_utc(self) -> None:  # M-3
        before = datetime.now(UTC)
        made = timestamp_of(message("user", "x"))
        assert made is not None
        assert before <= made <= datetime.now(UTC)
        assert made.utcoffset() == timedelta(0)

    def test_a_given_time_is_taken_over(self) -> None:
        moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert timestamp_of(message("user", "x", timestamp=moment)) == moment
        assert timestamp_of(message("user", "x", timestamp="2026-01-31T13:00:00+01:00")) == moment
        naive = datetime(2026, 1, 31, 12)  # naive on purpose: it is local time
        assert timestamp_of(message("user", "x", timestamp=naive)) == naive.astimezone(UTC)

    def test_metadata_is_a_copy_and_never_none(self) -> None:  # M-4
        notes = {"deep": {"list": [1]}}
        made = message("user", "x", metadata=notes)
        notes["deep"]["list"].append(2)
        metadata_of(made)["deep"]["list"].append(3)
        assert metadata_of(made) == {"deep": {"list": [1]}}
        assert metadata_of(HumanMessage("x")) == {}
        assert metadata_of(HumanMessage("x", additional_kwargs={"metadata": None})) == {}

    @pytest.mark.parametrize("role", sorted(VALID_ROLES))
    def test_every_role_has_its_class(self, role: str) -> None:  # M-6, M-63
        made = message(role, "x", name="n", tool_call_id="c1" if role == "tool" else None)
        assert role_of(made) == role
        assert isinstance(made, ChatMessage) is (role in RECORD_ROLES)

    @pytest.mark.parametrize("extra", [{}, {"type": "function"}], ids=["untyped", "typed"])
    def test_nested_calls_are_read_with_and_without_a_type(self, extra: dict[str, str]) -> None:
        call = {"id": "c1", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        made = message("assistant", "", tool_calls=[{**call, **extra}])  # M-5, M-7
        assert isinstance(made, AIMessage)
        assert made.tool_calls == [
            {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}, "type": "tool_call"}
        ]

    def test_a_tool_message_carries_name_and_call(self) -> None:  # M-8
        made = message("tool", '{"t": 72}', name="get_weather", tool_call_id="c1")
        assert isinstance(made, ToolMessage)
        assert (made.name, made.tool_call_id) == ("get_weather", "c1")

    @pytest.mark.parametrize(
        ("make", "given", "text"),
        [
            (message, {"tool_calls": [ToolCall("a", "b")]}, "tool_calls"),
            (message, {"tool_call_id": "c1"}, "tool_call_id"),
            (message, {"timestamp": "yesterday"}, "not a time"),
            (message, {"timestamp": "0001-01-01T00:00:00+14:00"}, "not a time"),
            (message, {"timestamp": 7}, "not a time"),
            (message, {"metadata": "x"}, "metadata are a str"),
            (message, {"role": 7}, "a role is a int"),
            (message, {"content": 7}, "HumanMessage is malformed: content"),
            (message, {"role": "error", "content": 7}, "ChatMessage is malformed: content"),
            (message, {"role": "tool", "name": 7}, "ToolMessage is malformed: name"),
            (message, {"name": 7}, "malformed: name"),
            (human, {"content": None}, "malformed: content"),
            (system, {"content": 7}, "malformed: content"),
            (ai, {"content": 7}, "malformed: content"),
            (tool_msg, {"tool_call_id": None, "output": "x"}, "malformed: tool_call_id"),
        ],
    )
    def test_what_a_message_cannot_hold_is_refused_in_one_line(
        self, make: Callable[..., BaseMessage], given: dict[str, Any], text: str
    ) -> None:
        complete: dict[Callable[..., BaseMessage], dict[str, Any]] = {
            message: {"role": "user", "content": "x"},
            tool_msg: {"name": "t"},
        }
        with pytest.raises(MessageError, match=text) as caught:
            make(**{**complete.get(make, {}), **given})
        assert "\n" not in str(caught.value)

    def test_an_unreadable_time_counts_as_none(self) -> None:
        assert timestamp_of(HumanMessage("x", additional_kwargs={"timestamp": "soon"})) is None
        assert timestamp_of(HumanMessage("x")) is None


def test_agents_talk_in_pairs_with_one_task() -> None:  # M-9, M-10
    call = agent_call("Research this", "researcher", caller="orchestrator")
    task = metadata_of(call)["task_id"]
    answer = agent_response("Done.", "researcher", task_id=task, completion_time=2.5)
    assert (call.role, call.name, call.content) == ("agent_call", "researcher", "Research this")
    assert metadata_of(call) == {"caller": "orchestrator", "task_id": task}
    assert (answer.role, answer.name) == ("agent_response", "researcher")
    assert metadata_of(answer) == {"task_id": task, "completion_time": 2.5}
    assert call.id != answer.id


class TestErrorMessage:
    def test_it_tells_type_text_agent_and_time(self) -> None:  # M-60
        made = error_message(ValueError("bad input"), "researcher")
        notes = metadata_of(made)
        assert (made.role, made.content, made.name) == ("error", "bad input", "researcher")
        assert notes["error_type"] == "ValueError"
        assert datetime.fromisoformat(notes["timestamp"]) == timestamp_of(made)

    def test_it_is_never_blank(self) -> None:
        assert error_message(ValueError()).content == "ValueError"

    def test_it_takes_a_text(self) -> None:
        made = error_message("out of luck", tool_call_id="c1", metadata={"task_id": "t"})
        notes = metadata_of(made)
        assert (notes["error_type"], notes["tool_call_id"], notes["task_id"]) == (
            "Error",
            "c1",
            "t",
        )

    @pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
    def test_what_is_no_failure_goes_on(self, kind: type[BaseException]) -> None:  # M-62
        with pytest.raises(kind):
            error_message(kind())


class TestCopies:
    """Changing a copy never leaks."""

    def test_a_naive_change_stays_in_the_copy(self) -> None:  # QS-14, M-11
        call = ToolCall("c1", "write", {"path": "a", "deep": {"list": [1]}})
        original = ai([{"type": "text", "text": "hi"}], call, id="m1")
        original.response_metadata["usage"] = {"tokens": 1}
        before = to_record(original)
        twin = copy_message(original)
        assert isinstance(twin.content, list)
        assert isinstance(twin.content[0], dict)
        twin.content[0]["text"] += " injected"
        twin.tool_calls[0]["args"]["deep"]["list"].append(2)
        twin.tool_calls.append(twin.tool_calls[0])
        twin.response_metadata["usage"]["tokens"] = 99
        twin.additional_kwargs["x"] = 1
        twin.name = "other"
        assert to_record(original) == before
        assert twin.id == "m1"

    def test_changes_are_applied(self) -> None:
        assert copy_message(human("a", id="m1"), content="b", id=None) == HumanMessage("b")

    def test_an_artifact_is_handed_on_as_it_is(self) -> None:
        handle = open  # something that has no copy of its own
        made = ToolMessage("x", tool_call_id="c1", artifact=handle)
        assert copy_message(made).artifact is handle

    def test_a_constructor_takes_no_part_of_what_it_is_given(self) -> None:
        args: dict[str, Any] = {"deep": {"list": [1]}}
        blocks: list[str | dict[Any, Any]] = [{"type": "text", "text": "a"}]
        made = ai(blocks, ToolCall("c1", "t", args))
        args["deep"]["list"].append(2)
        blocks.append("b")
        assert made.tool_calls[0]["args"] == {"deep": {"list": [1]}}
        assert made.content == [{"type": "text", "text": "a"}]


class TestContent:
    @pytest.mark.parametrize(
        ("content", "text", "says"),
        [
            ("", "", False),
            (" ", " ", True),
            ([], "", False),
            ([""], "", False),
            (["a", {"type": "text", "text": "b"}], "ab", True),
            ([{"type": "text", "text": ""}], "", False),
            ([{"type": "text"}], "", False),
            ([{"type": "image_url", "image_url": {"url": "x"}}], "", True),
            ([{"type": "thinking", "thinking": "hm"}], "", False),
            ([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a"}], "a", True),
        ],
    )
    def test_text_and_whether_there_is_content(self, content: Any, text: str, says: bool) -> None:
        made = HumanMessage(content)
        assert (text_of(made), has_content(made)) == (text, says)

    @pytest.mark.parametrize(
        ("dirty", "clean"),
        [
            ("plain", "plain"),
            ("é😀", "é😀"),
            (f"a{HALF}b", "a\ufffdb"),
            ("\ud83d\ude00", "😀"),
            ("\udcff", "\ufffd"),
        ],
    )
    def test_clean_text_can_be_encoded(self, dirty: str, clean: str) -> None:
        assert clean_text(dirty) == clean
        clean.encode()


class TestToolCall:
    FORMS = (
        {"id": "c1", "name": "f", "args": {"x": [1]}},
        {"id": "c1", "name": "f", "args": {"x": [1]}, "type": "tool_call"},
        {"id": "c1", "name": "f", "arguments": {"x": [1]}},
        {"id": "c1", "name": "f", "arguments": '{"x": [1]}'},
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": [1]}'}},
        {"id": "c1", "function": {"name": "f", "arguments": {"x": [1]}}},
    )

    @pytest.mark.parametrize("form", FORMS)
    def test_it_is_read_from_every_form(self, form: dict[str, Any]) -> None:  # M-7, M-11
        call = ToolCall.of(form)
        assert (call.id, call.name, call.args) == ("c1", "f", {"x": [1]})
        call.args["x"].append(2)
        assert ToolCall.of(form).args == {"x": [1]}

    def test_it_is_read_from_a_langchain_message(self) -> None:
        call = ToolCall("c1", "f", {"x": 1})
        assert ToolCall.of(ai("", call).tool_calls[0]) == call
        assert ToolCall.of(call) is call

    def test_a_json_text_is_kept_as_the_model_wrote_it(self) -> None:  # M-10
        call = ToolCall.of({"id": "c", "name": "f", "arguments": '{ "x" :1}'})
        assert call.raw_args == '{ "x" :1}'
        assert call.to_dict() == {"id": "c", "name": "f", "args": {"x": 1}}

    @pytest.mark.parametrize(
        "form",
        [{}, {"id": None, "name": None, "args": None}, {"arguments": None}, {"arguments": " "}],
    )
    def test_what_is_absent_is_empty(self, form: dict[str, Any]) -> None:
        call = ToolCall.of(form)
        assert (call.id, call.name, call.args) == ("", "", {})

    @pytest.mark.parametrize(
        ("form", "text"),
        [
            (["c1"], "a tool call is a list"),
            ({"id": 7}, "id is a int"),
            ({"id": "c", "name": ["f"]}, "name is a list"),
            ({"id": "c", "name": "f", "args": "{}"}, "args are a str"),
            ({"id": "c", "name": "f", "arguments": "[1]"}, "arguments are a list"),
            ({"id": "c", "name": "f", "arguments": "{"}, "not valid JSON"),
            ({"id": "c", "name": "f", "arguments": '{"x": NaN}'}, "NaN"),
            ({"id": "c", "name": "f", "args": {1: 2}}, "key that is not a text"),
            ({"id": "c", "function": "f"}, "function is not an object"),
            ({"id": "c", "name": "f", "arguments": '{"x":' + "[" * 100_000}, "nested too deeply"),
        ],
    )
    def test_a_wrong_shape_is_refused(self, form: Any, text: str) -> None:
        with pytest.raises(MessageError, match=text):
            ToolCall.of(form)

    def test_it_dumps_three_keys(self) -> None:  # M-09
        call = ToolCall("c1", "f", {"x": {"y": 1}}, "raw", ctx=object())
        dumped = call.to_dict()
        assert list(dumped) == ["id", "name", "args"]
        dumped["args"]["x"]["y"] = 2
        assert call.args == {"x": {"y": 1}}

    def test_ctx_is_no_part_of_its_value(self) -> None:
        assert ToolCall("a", "b", ctx=1) == ToolCall("a", "b", ctx=2)
        assert "ctx" not in repr(ToolCall("a", "b", ctx=1))

    def test_arguments_too_deep_to_copy_are_refused(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"x": deep}
        with pytest.raises(MessageError, match="nested too deeply"):
            ToolCall.of({"id": "c", "name": "f", "args": deep})

    def test_replace_leaves_the_original(self) -> None:
        call = ToolCall("a", "b", {"x": 1})
        assert call.replace(args={"x": 2}) == ToolCall("a", "b", {"x": 2})
        assert call.args == {"x": 1}


class TestToolResult:
    def test_a_success_dumps_no_error(self) -> None:  # M-12
        result = ToolResult("call_grep01", "grep", '{"matches":[],"truncated":false}')
        assert result.to_dict() == {
            "tool_call_id": "call_grep01",
            "name": "grep",
            "output": '{"matches":[],"truncated":false}',
        }
        assert result.replace(error="").to_dict() == result.to_dict()

    def test_a_failure_dumps_it(self) -> None:  # M-16
        result = ToolResult("call_edit01", "edit_file", "", "old_text not found in file")
        assert result.to_dict() == {
            "tool_call_id": "call_edit01",
            "name": "edit_file",
            "output": "",
            "error": "old_text not found in file",
        }

    @pytest.mark.parametrize(
        ("result", "content", "status"),
        [
            pytest.param(ToolResult("c", "t", "out"), "out", "success", id="M-13"),
            pytest.param(ToolResult("c", "t", ""), "", "success", id="V-11"),
            pytest.param(ToolResult("c", "t", "", "no"), "Error: no", "error", id="D-05"),
            pytest.param(
                ToolResult("c", "t", "half", "no"), "Error: no", "error", id="D-05-output"
            ),
            pytest.param(
                ToolResult("c", "t", "", "unknown tool: x"),
                "Error: unknown tool: x",
                "error",
                id="D-05-unknown",
            ),
            pytest.param(ToolResult("c", "t", "", "Error: no"), "Error: no", "error", id="prefix"),
            pytest.param(
                ToolResult("c", "t", "a png", content=[{"type": "image", "base64": "eA=="}]),
                [{"type": "image", "base64": "eA=="}],
                "success",
                id="blocks",
            ),
            pytest.param(ToolResult("c", "t", f"a{HALF}"), "a\ufffd", "success", id="half-pair"),
            pytest.param(
                ToolResult("c", "t", "", content=[f"a{HALF}", {"type": "text", "text": HALF}]),
                ["a\ufffd", {"type": "text", "text": "\ufffd"}],
                "success",
                id="half-pair-in-blocks",
            ),
        ],
    )
    def test_what_the_model_reads(self, result: ToolResult, content: Any, status: str) -> None:
        made = result.to_message()
        assert (made.content, made.status) == (content, status)
        assert (made.tool_call_id, made.name) == ("c", "t")

    def test_an_artifact_goes_along(self) -> None:
        artifact = object()
        assert ToolResult("c", "t", "x", artifact=artifact).to_message().artifact is artifact


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        pytest.param("functions.get_weather", "get_weather", id="M-50"),
        pytest.param("my_functions.x", "my_functions_x", id="M-50-not-leading"),
        pytest.param("functions.functions.x", "functions_x", id="M-50-once"),
        pytest.param("a.b c", "a_b_c", id="M-51"),
        pytest.param("größe-1", "gr__e-1", id="M-51-letters"),
        pytest.param("plain_Name-1", "plain_Name-1", id="M-51-plain"),
        pytest.param("", "", id="M-51-empty"),
    ],
)
def test_tool_names(raw: str, clean: str) -> None:
    assert sanitise_tool_name(raw) == clean
    assert sanitise_tool_name(clean) == clean  # M-52: however often it is made


def test_a_generated_call_id_has_its_form() -> None:  # D-49
    made = new_call_id()
    assert made.startswith("call_")
    assert len(bytes.fromhex(made.removeprefix("call_"))) == 6
    assert made != new_call_id()
