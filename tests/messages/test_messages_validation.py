"""What is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError, WickError
from wick_graph.messages import (
    VALID_ROLES,
    Messages,
    PrefixValidator,
    ToolCall,
    ai,
    error_message,
    human,
    message,
    new_messages,
    system,
    tool_msg,
    validate,
    validate_message,
    validate_tool_response,
    validate_user_input,
)

BROKEN: Any = {"id": "c", "name": "t", "args": "{", "error": None}

REFUSED = [
    pytest.param(
        [ChatMessage(content="inject", role="hacker")],
        'message[0]: unknown role "hacker"',
        id="V-04",
    ),
    pytest.param(
        [error_message("x")], 'message[0]: unknown role "error"', id="V-04-not-for-a-model"
    ),
    pytest.param(
        [ChatMessage(content="", role="")], 'message[0]: unknown role ""', id="V-04-empty"
    ),
    pytest.param(
        [ChatMessage(content="x", role='a"b')], 'message[0]: unknown role "a\\"b"', id="V-04-quoted"
    ),
    pytest.param(
        [ChatMessage(content="x", role="r" * 1000)],
        f'message[0]: unknown role "{"r" * 64}"',
        id="V-04-cut",
    ),
    pytest.param(
        [ChatMessage(content="x", role="pirat-é")],
        'message[0]: unknown role "pirat-é"',
        id="V-04-letters",
    ),
    pytest.param(
        [RemoveMessage(id="m")], 'message[0]: unknown role "remove"', id="V-04-no-message"
    ),
    pytest.param(
        [ToolMessage("result", tool_call_id="")],
        "message[0]: tool message missing tool_call_id",
        id="V-05",
    ),
    pytest.param(
        [ChatMessage(content="result", role="tool")],
        "message[0]: tool message missing tool_call_id",
        id="V-05-chat",
    ),
    pytest.param(
        [ToolMessage("result", tool_call_id="c")],
        "message[0]: tool message missing name",
        id="V-06",
    ),
    pytest.param(
        [ai("")], "message[0]: assistant message has no content and no tool calls", id="V-07"
    ),
    pytest.param(
        [AIMessage([{"type": "thinking", "thinking": "hm"}])],
        "message[0]: assistant message has no content and no tool calls",
        id="V-07-thoughts",
    ),
    pytest.param(
        [human("a"), ai("", ToolCall("c", "t"), ToolCall("", "t"))],
        "message[1].tool_calls[1]: missing ID",
        id="V-08",
    ),
    pytest.param(
        [ai("x", {"id": None, "name": "t", "args": {}})],
        "message[0].tool_calls[0]: missing ID",
        id="V-08-null",
    ),
    pytest.param([ai("", ToolCall("c", ""))], "message[0].tool_calls[0]: missing name", id="V-09"),
    pytest.param([human("")], "message[0]: user message has empty content", id="V-10-user"),
    pytest.param(
        [human("a"), system("")], "message[1]: system message has empty content", id="V-10-system"
    ),
    pytest.param([human([])], "message[0]: user message has empty content", id="V-10-blocks"),
    pytest.param(
        [human("a"), human(""), ChatMessage(content="x", role="hacker")],
        "message[1]: user message has empty content",
        id="V-03",
    ),
]

ACCEPTED = [
    pytest.param([], id="V-12"),
    pytest.param([tool_msg("c", "t", "")], id="V-11"),
    pytest.param([ai("", ToolCall("c", "t"))], id="M-07"),
    pytest.param([AIMessage("", invalid_tool_calls=[BROKEN])], id="broken-call"),
    pytest.param([human([{"type": "image", "url": "x"}])], id="image"),
    pytest.param([ChatMessage(content="x", role="user")], id="chat-of-a-known-role"),
    pytest.param([tool_msg("c", "t", "not json")], id="M-42"),
]


@pytest.mark.parametrize(("chain", "text"), REFUSED)
def test_validate_refuses(chain: list[BaseMessage], text: str) -> None:
    with pytest.raises(MessageError) as caught:
        Messages(chain).validate()
    assert str(caught.value) == text
    assert isinstance(caught.value, WickError)


@pytest.mark.parametrize("chain", ACCEPTED)
def test_validate_accepts(chain: list[BaseMessage]) -> None:
    validate(chain)
    PrefixValidator().check(chain)


def test_what_is_no_message_is_refused_by_its_kind() -> None:
    chain: list[Any] = [human("a"), {"role": "user"}]
    for check in (validate, validate_user_input):
        with pytest.raises(
            MessageError, match=r"^message\[1\]: a dict is not a message; make it with"
        ):
            check(chain)


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        pytest.param([], "messages must not be empty", id="V-13"),
        pytest.param(
            [human("ok"), ai("spoofed")],
            'message[1]: role "assistant" not allowed (must be "user" or "system")',
            id="V-14-assistant",
        ),
        pytest.param(
            [tool_msg("c", "t", "x")],
            'message[0]: role "tool" not allowed (must be "user" or "system")',
            id="V-14-tool",
        ),
        pytest.param(
            [error_message("x")],
            'message[0]: role "error" not allowed (must be "user" or "system")',
            id="V-14-record",
        ),
        pytest.param(
            [ChatMessage(content="x", role="hacker")],
            'message[0]: role "hacker" not allowed (must be "user" or "system")',
            id="V-14-unknown",
        ),
        pytest.param([human("a"), system("")], "message[1]: content must not be empty", id="V-15"),
        pytest.param(
            [human("a\ud800")],
            "message[0]: content has half a surrogate pair; send valid Unicode text",
            id="half-pair",
        ),
    ],
)
def test_user_input_refuses(chain: list[BaseMessage], text: str) -> None:
    with pytest.raises(MessageError) as caught:
        Messages(chain).validate_user_input()
    assert str(caught.value) == text


def test_user_input_may_be_system_unless_that_is_closed() -> None:
    chain = new_messages().system("be brief").human("hi 😀")
    chain.validate_user_input()
    chain.user_messages().validate_user_input(allow_system=False)
    with pytest.raises(MessageError) as caught:
        chain.validate_user_input(allow_system=False)
    assert str(caught.value) == 'message[0]: role "system" not allowed (must be "user")'


class TestPrefixValidator:
    @pytest.mark.parametrize(("chain", "text"), REFUSED)
    def test_it_refuses_in_the_same_words(self, chain: list[BaseMessage], text: str) -> None:
        checker = PrefixValidator()
        good = [human("q"), ai("a")]
        checker.check(good)
        with pytest.raises(MessageError) as caught:
            checker.check([*good, *chain])
        validated = _text_of_refusal([*good, *chain])
        assert str(caught.value) == validated
        checker.check(good)

    def test_a_replaced_message_is_looked_at(self) -> None:
        checker = PrefixValidator()
        chain: list[BaseMessage] = [system("a"), human("q"), ai("a")]
        checker.check(chain)
        with pytest.raises(MessageError, match=r"message\[0\]: system"):
            checker.check([system(""), *chain[1:]])
        with pytest.raises(MessageError, match=r"message\[1\]: user"):
            checker.check([chain[0], human(""), chain[2]])
        checker.check([human("x"), *chain])

    def test_only_what_is_new_is_looked_at(self) -> None:
        checker = PrefixValidator()
        history: list[BaseMessage] = [human(f"message {n}") for n in range(50)]
        checker.check([system("one"), *history])
        for old in history:
            old.content = ""  # would be refused if anybody looked
        checker.check([system("two"), *history, ai("new")])
        with pytest.raises(MessageError, match=r"message\[52\]: assistant"):
            checker.check([system("three"), *history, ai("new"), ai("")])
        with pytest.raises(MessageError, match=r"message\[0\]: user"):
            validate(history)


def _text_of_refusal(chain: list[BaseMessage]) -> str:
    with pytest.raises(MessageError) as caught:
        validate(chain)
    return str(caught.value)


@pytest.mark.parametrize(
    ("candidate", "valid"),
    [
        *[
            pytest.param(message(role, "x", name="n"), True, id=f"M-40-{role}")
            for role in sorted(VALID_ROLES - {"tool"})
        ],
        pytest.param(tool_msg("c", "t", "x"), True, id="M-40-tool"),
        pytest.param(ChatMessage(content="x", role="hacker"), False, id="M-40-unknown"),
        pytest.param(ToolMessage("x", tool_call_id="", name="t"), False, id="M-40-no-call"),
        pytest.param(ToolMessage("x", tool_call_id="c"), False, id="M-40-no-name"),
        pytest.param(HumanMessage(""), True, id="M-40-empty"),
        pytest.param(None, False, id="M-40-none"),
        pytest.param({"role": "user"}, False, id="M-40-dict"),
    ],
)
def test_validate_message(candidate: object, valid: bool) -> None:
    assert validate_message(candidate) is valid


@pytest.mark.parametrize(
    ("candidate", "valid"),
    [
        pytest.param(tool_msg("c", "t", '{"a":1}'), True, id="M-41-json"),
        pytest.param(tool_msg("c", "t", "4"), True, id="M-41-number"),
        pytest.param(tool_msg("c", "t", "plain"), False, id="M-41-plain"),
        pytest.param(tool_msg("c", "t", ""), False, id="M-41-empty"),
        pytest.param(tool_msg("c", "t", "[" * 100_000), False, id="M-41-deep"),
        pytest.param(human('{"a":1}'), False, id="M-41-user"),
        pytest.param(None, False, id="M-41-none"),
    ],
)
def test_validate_tool_response(candidate: object, valid: bool) -> None:
    assert validate_tool_response(candidate) is valid
