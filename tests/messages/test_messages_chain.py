"""The chain: builder, accessors, filters, display and estimate."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage

from tests.messages.counted import Counted
from wick_graph.messages import (
    Messages,
    PrefixEstimate,
    ToolCall,
    ai,
    estimate_tokens,
    from_record,
    go_value,
    human,
    new_messages,
    role_label,
    role_of,
    system,
    to_record,
    tool_msg,
)


def arithmetic(first: str = "Let me calculate.", key: str = "expr") -> Messages:
    """Build the sample conversation: a sum, by a tool."""
    return (
        new_messages()
        .system("You are helpful.")
        .human("What is 2+2?")
        .ai(first, ToolCall("call_1", "calculate", {key: "2+2"}))
        .tool("call_1", "calculate", "4")
        .ai("2+2 = 4")
    )


def roles(chain: list[BaseMessage]) -> list[str]:
    return [role_of(message) for message in chain]


class TestBuilder:
    def test_new_messages(self) -> None:  # C-05
        assert len(new_messages()) == 0
        assert len(new_messages(human("a"), human("b"), human("c"))) == 3

    def test_it_is_a_list(self) -> None:  # C-06
        chain = arithmetic()
        assert isinstance(chain, list)
        assert [message.content for message in chain][1] == chain[1].content == "What is 2+2?"

    def test_fluent(self) -> None:  # C-07
        chain = new_messages().system("You are helpful.").human("What is 2+2?")
        assert roles(chain) == ["system", "user"]
        assert roles(arithmetic()) == ["system", "user", "assistant", "tool", "assistant"]

    def test_add_keeps_order(self) -> None:  # C-08
        a, b = human("a"), ai("b")
        assert arithmetic().add(a, b)[-2:] == [a, b]

    def test_concat(self) -> None:  # C-09
        chain, other = arithmetic(), new_messages().human("follow-up question")
        assert len(chain.concat(other)) == len(chain) + len(other)
        assert roles(chain.concat(other))[-1] == "user"

    def test_two_chains_from_one_base_never_share(self) -> None:  # QS-13
        base = new_messages().human("0")
        one, two = base.human("1"), base.human("2")
        assert (one.last_content(), two.last_content()) == ("1", "2")
        one.append(human("3"))
        assert (len(base), len(one), len(two)) == (1, 3, 2)

    def test_slices_are_chains(self) -> None:
        assert isinstance(arithmetic()[1:3], Messages)
        assert arithmetic()[1:].human("x").len() == 5

    def test_copies_may_be_changed(self) -> None:  # QS-14
        chain = arithmetic()
        before = [to_record(message) for message in chain]
        changed = chain.copies()
        changed[0].content = "injected"
        reply = changed[2]
        assert isinstance(reply, AIMessage)
        reply.tool_calls[0]["args"]["expr"] = "0"
        assert [to_record(message) for message in chain] == before

    def test_it_survives_copy_and_pickle(self) -> None:
        chain = arithmetic()
        assert copy.deepcopy(chain) == chain
        assert pickle.loads(pickle.dumps(chain)) == chain
        assert isinstance(copy.deepcopy(chain), Messages)


class TestAccessors:
    def test_len_is_the_length(self) -> None:  # C-10
        assert arithmetic().len() == len(arithmetic()) == 5

    def test_last(self) -> None:  # C-11
        assert arithmetic().last() == ai("2+2 = 4")
        empty = new_messages().last()
        assert (role_of(empty), empty.content) == ("", "")

    def test_last_content(self) -> None:  # C-12
        assert arithmetic().last_content() == "2+2 = 4"
        assert new_messages().last_content() == ""

    def test_slice(self) -> None:  # C-13
        chain = arithmetic()
        assert type(chain.slice()) is list
        assert chain.slice() == chain
        chain.slice().clear()
        assert len(chain) == 5


class TestFilters:
    def test_by_role(self) -> None:  # C-14
        chain = arithmetic().add(ChatMessage(role="error", content="x"))
        texts = [message.content for message in chain.by_role("assistant")]
        assert texts == ["Let me calculate.", "2+2 = 4"]
        assert chain.by_role("error").len() == 1
        assert chain.by_role("nope") == Messages()

    def test_counts(self) -> None:  # C-15
        chain = arithmetic()
        counts = (
            chain.user_messages().len(),
            chain.assistant_messages().len(),
            chain.tool_messages().len(),
            chain.system_messages().len(),
        )
        assert counts == (1, 2, 1, 1)

    def test_the_original_stays(self) -> None:  # C-16
        chain = arithmetic()
        chain.user_messages().clear()
        chain.by_role("assistant").append(human("x"))
        assert chain == arithmetic()
        assert isinstance(chain.user_messages(), Messages)


SAMPLE = """\
[System]
You are helpful.

[Human]
What is 2+2?

[AI]
Let me calculate.
  → tool_call: calculate(id=call_1, args=map[expr:2+2])

[Tool: calculate (call_id=call_1)]
4

[AI]
2+2 = 4

"""


class TestDisplay:
    @pytest.mark.parametrize(
        ("role", "label"),
        [
            ("system", "System"),
            ("user", "Human"),
            ("assistant", "AI"),
            ("tool", "Tool"),
            ("agent_call", "agent_call"),
            ("hacker", "hacker"),
        ],
    )
    def test_labels(self, role: str, label: str) -> None:  # P-01
        assert role_label(role) == label

    def test_the_sample(self, capsys: pytest.CaptureFixture[str]) -> None:  # P-02, P-04, P-05
        assert arithmetic().pretty_print() == SAMPLE
        assert capsys.readouterr().out == ""

    def test_a_call_without_a_text_has_no_blank_line(self) -> None:  # P-03
        assert arithmetic("").pretty_print() == SAMPLE.replace("Let me calculate.\n", "")

    def test_str_is_the_same(self) -> None:  # P-06
        assert str(arithmetic()) == f"{arithmetic()}" == SAMPLE

    def test_other_roles_and_empty_chains(self) -> None:
        assert (
            new_messages(ChatMessage(role="error", content="x")).pretty_print() == "[error]\nx\n\n"
        )
        assert new_messages().pretty_print() == ""
        assert new_messages(tool_msg("c", "t", "")).pretty_print() == "[Tool: t (call_id=c)]\n\n"

    def test_a_call_that_is_no_json_is_shown_as_it_came(self) -> None:
        broken: Any = {"id": "c", "name": "t", "args": "{", "error": None}
        shown = Messages([AIMessage("", invalid_tool_calls=[broken])]).pretty_print()
        assert shown == "[AI]\n  → invalid_tool_call: t(id=c, args={)\n\n"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ({}, "map[]"),
            ({"b": "x", "a": 1}, "map[a:1 b:x]"),
            ({"m": {"k": [1, "two", None]}}, "map[m:map[k:[1 two <nil>]]]"),
            ([], "[]"),
            (("a", "b"), "[a b]"),
            (True, "true"),
            (False, "false"),
            (None, "<nil>"),
            (4.0, "4"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (-0.0, "-0"),
            (100000.0, "100000"),
            (1000000.0, "1e+06"),
            (123456789.0, "1.23456789e+08"),
            (-1234567.5, "-1.2345675e+06"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (0.1 + 0.2, "0.30000000000000004"),
            (float("nan"), "NaN"),
            (float("inf"), "+Inf"),
            (float("-inf"), "-Inf"),
            (1000000, "1000000"),
            ("é 😀", "é 😀"),
        ],
    )
    def test_go_value(self, value: Any, text: str) -> None:  # D-20
        assert go_value(value) == text


class TestEstimate:
    def test_the_sample_counts_twelve(self) -> None:  # P-07
        assert arithmetic(key="expression").estimate_tokens() == 12

    @pytest.mark.parametrize(
        ("message", "tokens"),
        [
            pytest.param(human("abc"), 0, id="P-07-floor"),
            pytest.param(human("abcd"), 1, id="P-07-four"),
            pytest.param(human("é" * 8), 2, id="D-45-letters"),
            pytest.param(human("😀" * 8), 2, id="D-45-emoji"),
            pytest.param(ai("", ToolCall("c", "t", {"a": 1})), 0, id="P-07-no-raw"),
            pytest.param(ai("", ToolCall("c", "t", {"a": 1}, '{"a": 1}')), 2, id="M-10"),
            pytest.param(
                ai("abc", ToolCall("c", "t", {}, "1234567"), ToolCall("d", "t", {}, "123")),
                1,
                id="P-07-floor-per-part",
            ),
        ],
    )
    def test_one_message(self, message: BaseMessage, tokens: int) -> None:
        assert estimate_tokens([message]) == tokens

    def test_a_reply_of_a_model_counts_its_arguments_after_a_reload(self) -> None:
        reply = ai("", ToolCall("c", "t", {"a": "é", "b": 1}, "x" * 400))
        reply.response_metadata["wick"] = {"step": "s"}
        assert estimate_tokens([reply]) == 100
        reloaded = from_record(to_record(reply))
        assert estimate_tokens([reloaded]) == len('{"a":"é","b":1}') // 4

    def test_arguments_without_json_form_are_counted_too(self) -> None:
        reply = ai("", ToolCall("c", "t", {"a": {1, 2}}))
        reply.response_metadata["wick"] = {}
        assert estimate_tokens([reply]) == len("{'a': {1, 2}}") // 4

    def test_the_cached_form_follows_every_change(self) -> None:
        cached = PrefixEstimate()
        chain = arithmetic()
        steps: list[list[BaseMessage]] = [
            chain,
            chain,
            chain.human("a longer follow-up question"),
            [system("a new and much longer prompt"), *chain[1:]],
            chain[:2],
            [],
            [*chain, *chain],
        ]
        assert [cached.tokens(step) for step in steps] == [estimate_tokens(step) for step in steps]

    def test_the_cached_form_looks_only_at_what_is_new(self) -> None:
        old = Counted(content="some text")
        cached = PrefixEstimate()
        assert cached.tokens([old]) == 2
        reads = old.reads
        assert reads > 0
        assert cached.tokens([old, human("abcd")]) == 3
        assert old.reads == reads
