"""Provider dictionaries, filters, chains of related messages, failures as messages."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)
from langchain_core.messages import ToolCall as ToolCallDict
from langgraph.errors import GraphInterrupt

from wick_graph.errors import MessageError
from wick_graph.messages import (
    VALID_ROLES,
    MessageChain,
    Processors,
    ToolCall,
    agent_call,
    agent_response,
    ai,
    error_message,
    errors_as_messages,
    filter_messages,
    forward,
    from_response_dict,
    human,
    message,
    metadata_of,
    process_for_llm,
    process_llm_response,
    refuse_agent_call,
    role_of,
    timestamp_of,
    to_llm_dict,
    tool_msg,
)


class TestToLlmDict:
    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            pytest.param(
                message("assistant", "I'll help you with that.", name="helper_agent"),
                {
                    "role": "assistant",
                    "content": "I'll help you with that.",
                    "name": "helper_agent",
                },
                id="M-20",
            ),
            pytest.param(
                ai("", ToolCall("call_123", "search", {"q": "é"})),
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "call_123",
                            "type": "function",
                            "function": {"name": "search", "arguments": '{"q": "é"}'},
                        }
                    ],
                },
                id="M-21",
            ),
            pytest.param(
                tool_msg("c1", "get_weather", "{}"),
                {"role": "tool", "content": "{}", "name": "get_weather", "tool_call_id": "c1"},
                id="M-22",
            ),
            pytest.param(
                message("user", "x", metadata={"a": 1}, message_id="m1"),
                {"role": "user", "content": "x"},
                id="M-23",
            ),
            pytest.param(human("x"), {"role": "user", "content": "x"}, id="M-24"),
            pytest.param(
                agent_call("Research it", "researcher_agent", caller="orchestrator_agent"),
                {"role": "user", "content": "[Request from orchestrator_agent]: Research it"},
                id="M-29",
            ),
            pytest.param(
                message("agent_call", "do"),
                {"role": "user", "content": "[Request from unknown]: do"},
                id="M-30",
            ),
            pytest.param(
                agent_response("ok", "worker", task_id="t"),
                {"role": "user", "content": "[Response from worker]: ok"},
                id="response",
            ),
            pytest.param(
                error_message("boom", "worker"),
                {"role": "user", "content": "[Error from worker]: boom"},
                id="error",
            ),
            pytest.param(
                error_message("boom"),
                {"role": "user", "content": "[Error from unknown]: boom"},
                id="error-of-nobody",
            ),
        ],
    )
    def test_samples(self, made: BaseMessage, expected: dict[str, Any]) -> None:
        assert to_llm_dict(made) == expected
        assert process_for_llm(made) == expected
        json.dumps(to_llm_dict(made))

    def test_text_beside_calls_is_kept(self) -> None:  # M-21
        made = to_llm_dict(ai("hi", ToolCall("c", "t")))
        assert (made["content"], len(made["tool_calls"])) == ("hi", 1)

    @pytest.mark.parametrize("role", sorted(VALID_ROLES))
    def test_it_never_sends_a_record(self, role: str) -> None:
        made = message(role, "x", name="n", tool_call_id="c" if role == "tool" else None)
        assert to_llm_dict(made)["role"] in {"system", "user", "assistant", "tool"}

    def test_a_role_nobody_knows_is_refused(self) -> None:
        with pytest.raises(MessageError, match='unknown role "hacker"'):
            to_llm_dict(ChatMessage(content="x", role="hacker"))


NESTED = {
    "id": "c1",
    "type": "function",
    "function": {"name": "functions.get_weather", "arguments": '{"city": "Paris"}'},
}


class TestFromResponseDict:
    def test_the_sample(self) -> None:  # M-25
        response = {"role": "assistant", "content": "Here's what I found...", "tool_calls": None}
        for processor in (None, process_llm_response):
            made = from_response_dict(response, processor)
            assert isinstance(made, AIMessage)
            assert (made.content, made.tool_calls) == ("Here's what I found...", [])
            assert made.id
            assert timestamp_of(made) is not None

    def test_defaults_stand_in_for_null(self) -> None:  # M-26
        made = from_response_dict(
            {"role": None, "name": None, "id": None, "content": None},
            default_id="m1",
            default_name="bot",
        )
        assert (role_of(made), made.id, made.name, made.content) == ("assistant", "m1", "bot", "")
        given = from_response_dict(
            {"role": "user", "content": "x", "name": "ada", "message_id": "m2"},
            default_id="m1",
            default_name="bot",
        )
        assert (role_of(given), given.id, given.name) == ("user", "m2", "ada")
        assert role_of(from_response_dict({"content": "x"}, default_role="system")) == "system"

    def test_a_processor_returns_a_dictionary_or_a_message(self) -> None:  # M-27
        def upper(data: dict[str, Any]) -> dict[str, Any]:
            data["content"] = data["content"].upper()
            return data

        source = {"content": "x"}
        assert from_response_dict(source, upper).content == "X"
        assert source == {"content": "x"}
        done = human("done")
        assert from_response_dict(source, lambda _: done) is done

    def test_a_processor_that_returns_something_else(self) -> None:  # M-27
        wrong: Any = lambda _: "text"  # noqa: E731  # wrong on purpose
        with pytest.raises(TypeError, match="returned a str"):
            from_response_dict({"content": "x"}, wrong)

    def test_calls_are_ingested_once_and_for_all(self) -> None:  # M-7, M-50, M-52
        made = from_response_dict({"content": None, "tool_calls": [NESTED]})
        assert isinstance(made, AIMessage)
        assert made.tool_calls[0]["name"] == "get_weather"
        assert made.additional_kwargs["raw_args"] == {"c1": '{"city": "Paris"}'}

    def test_missing_and_repeated_ids_are_made(self) -> None:  # D-49
        calls = [{**NESTED, "id": given} for given in ("c1", "c1", "", None)]
        made = from_response_dict({"tool_calls": calls})
        assert isinstance(made, AIMessage)
        ids = [call["id"] for call in made.tool_calls]
        assert ids[0] == "c1"
        assert len(set(ids)) == 4
        assert all(str(made_id).startswith("call_") for made_id in ids[1:])

    def test_a_call_that_is_no_json_is_kept_as_broken(self) -> None:
        broken = {"id": "c2", "function": {"name": "functions.t", "arguments": '{"a": '}}
        made = from_response_dict({"tool_calls": [NESTED, broken]})
        assert isinstance(made, AIMessage)
        assert len(made.tool_calls) == 1
        (kept,) = made.invalid_tool_calls
        assert (kept["id"], kept["name"], kept["args"]) == ("c2", "t", '{"a": ')
        assert "not valid JSON" in str(kept["error"])

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ({"tool_calls": "c1"}, "tool_calls is a str"),
            ({"tool_calls": ["c1"]}, "a tool call is a str"),
            ({"tool_calls": [{"function": "f"}]}, "function is not an object"),
            ({"tool_calls": [{"args": 7}]}, "args are a int"),
            ({"role": 7}, "a role is a int"),
            ({"content": 7}, "malformed: content"),
            ({"metadata": "x"}, "metadata are a str"),
            ({"timestamp": 7}, "not a time"),
            ({"id": ["m"]}, "malformed: id"),
        ],
    )
    def test_a_wrong_shape_is_refused(self, data: dict[str, Any], text: str) -> None:
        with pytest.raises(MessageError, match=text):
            from_response_dict(data)

    def test_notes_and_time_are_taken_over(self) -> None:
        made = from_response_dict(
            {
                "role": "tool",
                "content": "x",
                "tool_call_id": "c1",
                "name": "t",
                "metadata": {"a": 1},
                "timestamp": "2026-01-31T12:00:00+00:00",
            }
        )
        assert isinstance(made, ToolMessage)
        assert (made.tool_call_id, metadata_of(made)) == ("c1", {"a": 1})
        assert timestamp_of(made) == datetime(2026, 1, 31, 12, tzinfo=UTC)


class TestProcessors:
    @pytest.mark.parametrize(
        ("response", "content", "calls"),
        [
            ({"content": "x"}, "x", 0),
            ({"content": None}, "", 0),
            ({"tool_calls": [NESTED]}, "", 1),
            ({"tool_calls": [NESTED], "content": None}, "", 1),
            ({"tool_calls": [NESTED], "content": "x", "role": "user"}, "x", 1),
        ],
    )
    def test_input_sample(self, response: dict[str, Any], content: str, calls: int) -> None:
        made = process_llm_response(response)  # M-28
        assert isinstance(made, AIMessage)
        assert (made.content, len(made.tool_calls)) == (content, calls)

    def test_content_is_required_without_calls(self) -> None:  # M-28
        with pytest.raises(MessageError, match="neither content nor tool_calls"):
            process_llm_response({"role": "assistant"})

    def test_one_agents_processors_are_its_own(self) -> None:  # M-31
        loud = Processors(outbound=lambda made: {"role": "user", "content": f"{made.content}!"})
        assert loud.outbound(human("x"))["content"] == "x!"
        assert Processors().outbound(human("x"))["content"] == "x"
        assert loud.inbound({"content": "x"}).content == "x"  # type: ignore[union-attr]  # a message


class TestFilter:
    START = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def messages(self) -> list[BaseMessage]:
        return [
            message(
                "user" if n % 2 else "assistant",
                str(n),
                name="ada" if n < 2 else None,
                timestamp=self.START + timedelta(hours=n),
            )
            for n in range(4)
        ]

    @pytest.mark.parametrize(
        ("criteria", "kept"),
        [
            pytest.param({}, "0123", id="M-43-none"),
            pytest.param({"role": "user"}, "13", id="M-43-role"),
            pytest.param({"name": "ada"}, "01", id="M-43-name"),
            pytest.param({"name": None}, "23", id="M-43-nameless"),
            pytest.param({"role": "user", "name": "ada"}, "1", id="M-43-and"),
            pytest.param({"after": START + timedelta(hours=1)}, "23", id="M-43-strict"),
            pytest.param({"after": START, "role": "assistant"}, "2", id="M-43-after-and-role"),
            pytest.param({"after": None}, "0123", id="M-43-no-time"),
            pytest.param({"colour": "red"}, "0123", id="M-43-unknown"),
        ],
    )
    def test_criteria(self, criteria: dict[str, Any], kept: str) -> None:
        filtered = filter_messages(self.messages(), **criteria)
        assert "".join(str(made.content) for made in filtered) == kept

    def test_the_list_is_new(self) -> None:  # M-44
        messages = self.messages()
        assert filter_messages(messages) is not messages
        assert filter_messages(messages) == messages

    def test_a_naive_time_is_local(self) -> None:  # M-45
        local = (self.START + timedelta(hours=1)).astimezone().replace(tzinfo=None)
        filtered = filter_messages([*self.messages(), human("no time")], after=local)
        assert [made.content for made in filtered] == ["2", "3"]


class TestMessageChain:
    def test_it_follows_by_the_first_id(self) -> None:  # M-46
        first = message("user", "q", message_id="m1")
        chain = MessageChain(first)
        stored = chain.add_response(message("assistant", "a", metadata={"k": 1}))
        assert chain.chain_id == "m1"
        assert metadata_of(stored) == {"k": 1, "chain_id": "m1"}
        assert [made.content for made in chain.get_chain()] == ["q", "a"]
        chain.get_chain().clear()
        assert len(chain.get_chain()) == 2

    def test_one_message_in_two_chains(self) -> None:  # M-47
        one, two = (MessageChain(message("user", name)) for name in ("1", "2"))
        shared = ai("a", id="m9")
        in_one, in_two = one.add_response(shared), two.add_response(shared)
        assert metadata_of(in_one)["chain_id"] == one.chain_id != two.chain_id
        assert metadata_of(in_two)["chain_id"] == two.chain_id
        assert shared.additional_kwargs == {}
        assert in_one.id == "m9"

    def test_a_first_message_without_an_id_gets_one(self) -> None:
        first = human("q")
        assert MessageChain(first).chain_id
        assert first.id is None


def test_forwarding_keeps_the_id() -> None:  # M-61
    made = message("user", "q")
    assert forward(made).id == made.id
    assert forward(made) is not made
    assert forward(made, name="relay").name == "relay"


class TestErrorsAsMessages:
    async def test_failures_come_back_as_messages(self) -> None:  # M-60
        @errors_as_messages("researcher")
        def now(text: str) -> str:
            if not text:
                raise ValueError("nothing to do")
            return text

        @errors_as_messages("researcher")
        async def later(text: str) -> str:
            return now.__wrapped__(text)  # type: ignore[attr-defined, no-any-return]  # functools.wraps

        assert (now("x"), await later("x")) == ("x", "x")
        for failed in (now(""), await later("")):
            assert (role_of(failed), failed.content, failed.name) == (
                "error",
                "nothing to do",
                "researcher",
            )
            assert metadata_of(failed)["error_type"] == "ValueError"

    async def test_cancellation_goes_on(self) -> None:  # M-62
        started = asyncio.Event()

        @errors_as_messages()
        async def forever() -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(forever())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_interrupts_go_on(self) -> None:
        @errors_as_messages()
        def now() -> None:
            raise GraphInterrupt

        @errors_as_messages()
        async def later() -> None:
            raise GraphInterrupt

        with pytest.raises(GraphInterrupt):
            now()
        with pytest.raises(GraphInterrupt):
            await later()


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        pytest.param({"known": ()}, "Target agent 'b' not found.", id="M-64-found"),
        pytest.param(
            {"allowed": ("c",), "depth": 9},
            "Agent 'a' is not allowed to call agent 'b'.",
            id="M-64-allowed",
        ),
        pytest.param(
            {"depth": 5, "interactions": 99},
            "Maximum invocation depth (5) reached.",
            id="M-64-depth",
        ),
        pytest.param(
            {"interactions": 10}, "Maximum interaction count (10) reached.", id="M-64-interactions"
        ),
        pytest.param({"depth": 4, "interactions": 9, "allowed": ("b",)}, None, id="M-64-may"),
        pytest.param({"max_depth": 1, "max_interactions": 1}, None, id="M-64-first-call"),
    ],
)
def test_who_may_call_whom(limits: dict[str, Any], text: str | None) -> None:
    refusal = refuse_agent_call("b", **{"caller": "a", "known": ("a", "b"), **limits})
    assert (None if refusal is None else refusal.content) == text
    assert refusal is None or role_of(refusal) == "error"


def test_a_human_message_of_langchain_needs_nothing_of_ours() -> None:
    assert to_llm_dict(HumanMessage("x", id="m", additional_kwargs={"timestamp": "t"})) == {
        "role": "user",
        "content": "x",
    }


def test_a_call_with_bad_arguments_is_kept_with_what_the_model_wrote() -> None:
    bad: InvalidToolCall = {
        "type": "invalid_tool_call",
        "id": "c2",
        "name": "look",
        "args": '{"a": ',
        "error": None,
    }
    good: ToolCallDict = {"type": "tool_call", "id": "c1", "name": "add", "args": {"a": 1}}
    made = to_llm_dict(AIMessage("", tool_calls=[good], invalid_tool_calls=[bad]))
    assert [call["id"] for call in made["tool_calls"]] == ["c1", "c2"]
    function = {"name": "look", "arguments": '{"a": '}
    assert made["tool_calls"][1] == {"type": "function", "id": "c2", "function": function}
    again = from_response_dict(made)
    assert isinstance(again, AIMessage)
    assert [call["args"] for call in again.invalid_tool_calls] == ['{"a": ']


def test_a_call_that_the_engine_kept_without_its_bad_arguments_shows_them() -> None:
    call: ToolCallDict = {"type": "tool_call", "id": "c1", "name": "add", "args": {}}
    kept = AIMessage("", tool_calls=[call], response_metadata={"raw_args": {"c1": "{no"}})
    assert to_llm_dict(kept)["tool_calls"][0]["function"]["arguments"] == "{no"


def test_a_name_is_made_acceptable_for_providers() -> None:
    assert to_llm_dict(AIMessage("Hi", name="Clerk No. 1"))["name"] == "Clerk_No__1"


def test_messages_are_filtered_by_both_ends_of_a_span() -> None:
    hours = [f"2026-01-01T0{n}:00:00+00:00" for n in range(4)]
    chain = [message("user", str(n), timestamp=at) for n, at in enumerate(hours)]
    found = filter_messages([*chain, AIMessage("undated")], after=hours[0], before=hours[3])
    assert [m.text for m in found] == ["1", "2"]


def test_names_of_tools_lose_their_prefix_in_calls_and_results() -> None:
    call = {"id": "c", "function": {"name": "functions.get weather", "arguments": "{}"}}
    made = message("assistant", tool_calls=[call])
    assert isinstance(made, AIMessage)
    assert made.tool_calls[0]["name"] == "get_weather"
    assert message("tool", "5", name="functions.get", tool_call_id="c").name == "get"
    assert message("user", "hi", name="functions.ada").name == "functions.ada"
