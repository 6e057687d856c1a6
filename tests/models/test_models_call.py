"""Binding before a call, and what is made of its reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.runnables import RunnableBinding
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from wick_graph.errors import ModelError
from wick_graph.models.call import bind, ensure_whole, is_empty, normalise_reply
from wick_graph.models.chunks import merge_chunks

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
_NEW_ID = re.compile(r"call_[0-9a-f]{12}")


def openai_model() -> ChatOpenAI:
    return ChatOpenAI(model="m", api_key=SecretStr("k"), base_url="http://127.0.0.1:1/v1")


def anthropic_model() -> ChatAnthropic:
    return ChatAnthropic(model_name="claude-x", api_key=SecretStr("k"))  # type: ignore[call-arg]  # defaults


def kwargs_of(bound: Any) -> Mapping[str, Any]:
    assert isinstance(bound, RunnableBinding)
    return bound.kwargs


def test_tools_and_settings_are_bound() -> None:
    settings = {"temperature": 0.5, "tool_choice": "add"}
    given = kwargs_of(bind(openai_model(), [TOOL], withheld=False, settings=settings))
    assert given["tools"] == [TOOL]
    assert given["temperature"] == 0.5
    assert given["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_nothing_to_bind_leaves_the_model_itself() -> None:
    model = openai_model()
    assert bind(model, [], withheld=False, settings={"tool_choice": "add"}) is model


def test_withheld_tools_are_not_bound() -> None:
    settings = {"temperature": 0.0, "tool_choice": "add"}
    given = kwargs_of(bind(openai_model(), [TOOL], withheld=True, settings=settings))
    assert given == {"temperature": 0.0}


def test_anthropic_is_shown_withheld_tools_and_told_not_to_call_them() -> None:
    settings = {"tool_choice": "any", "max_tokens": 9}
    given = kwargs_of(bind(anthropic_model(), [TOOL], withheld=True, settings=settings))
    assert [tool["name"] for tool in given["tools"]] == ["add"]
    assert given["tool_choice"] == {"type": "none"}
    assert given["max_tokens"] == 9


def test_ollama_takes_the_settings_of_a_call_as_its_own() -> None:
    model = ChatOllama(model="m", base_url="http://127.0.0.1:1", temperature=0.9)
    bound = bind(model, [TOOL], withheld=False, settings={"temperature": 0.1, "max_tokens": 5})
    assert isinstance(bound, RunnableBinding)
    assert isinstance(bound.bound, ChatOllama)
    assert (bound.bound.temperature, bound.bound.num_predict) == (0.1, 5)
    assert set(bound.kwargs) == {"tools"}
    assert (model.temperature, model.num_predict) == (0.9, None)


def test_a_model_that_cannot_call_tools_is_refused() -> None:
    model = GenericFakeChatModel(messages=iter(["x"]))
    with pytest.raises(ModelError, match="GenericFakeChatModel cannot call tools"):
        bind(model, [TOOL], withheld=False, settings={})


def test_a_sound_reply_is_kept_as_it_is() -> None:
    message = AIMessage("a", tool_calls=[tool_call(name="f", args={"x": 1}, id="c1")])
    assert normalise_reply(message) == (message, {})


@pytest.mark.parametrize("ids", [("", "c"), (None, "c"), ("c", "c"), ("old", "c")])
def test_calls_get_ids_of_their_own(ids: tuple[str | None, str]) -> None:
    calls = [tool_call(name="f", args={}, id=i) for i in ids]
    message, bad = normalise_reply(AIMessage("", tool_calls=calls), taken={"old"})
    made = [str(call["id"]) for call in message.tool_calls]
    assert not bad
    assert len(set(made)) == 2
    kept = [old for old, new in zip(ids, made, strict=True) if old == new]
    assert kept == ["c"]
    assert sum(bool(_NEW_ID.fullmatch(new)) for new in made) == 1


@pytest.mark.parametrize(
    ("said", "kept"),
    [("functions.add", "add"), ("a b", "a_b"), ("", "unnamed"), ("x" * 200, "x" * 64)],
)
def test_names_are_made_fit(said: str, kept: str) -> None:
    message, _ = normalise_reply(AIMessage("", tool_calls=[tool_call(name=said, args={}, id="c")]))
    assert message.tool_calls[0]["name"] == kept


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        pytest.param('{"a": 1', "Expecting", id="not-whole"),
        pytest.param("add 1", "Expecting value", id="no-json"),
        pytest.param("[1]", "an object is needed, not a list", id="list"),
        pytest.param('"x"', "an object is needed, not a str", id="text"),
        pytest.param('{"a": NaN}', "NaN is not a JSON value", id="nan"),
        pytest.param('{"a":' * 50_000, "", id="deep"),
        pytest.param('{"a": ' + "9" * 5_000 + "}", "", id="huge-number"),
    ],
)
def test_a_call_with_bad_arguments_is_kept_to_be_answered(raw: str, says: str) -> None:
    given = AIMessage(
        "",
        tool_calls=[tool_call(name="f", args={}, id="c1")],
        invalid_tool_calls=[invalid_tool_call(name="functions.g", args=raw, id="", error="long")],
    )
    message, bad = normalise_reply(given)
    assert [c["name"] for c in message.tool_calls] == ["f", "g"]
    assert message.invalid_tool_calls == []
    call_id = str(message.tool_calls[1]["id"])
    assert message.tool_calls[1]["args"] == {}
    assert list(bad) == [call_id]
    assert bad[call_id].startswith("invalid JSON arguments: ")
    assert says in bad[call_id]
    assert len(bad[call_id]) < 500
    assert message.response_metadata["raw_args"] == {call_id: raw}


def test_arguments_that_only_langchain_found_bad_are_taken() -> None:
    given = AIMessage(
        "", invalid_tool_calls=[invalid_tool_call(name="f", args='{"a": 1}', id="c", error=None)]
    )
    message, bad = normalise_reply(given)
    assert (message.tool_calls[0]["args"], bad) == ({"a": 1}, {})


def test_bad_calls_of_a_stream_keep_their_place() -> None:
    parts = [("f", "{}"), ("g", "{"), ("h", "{}")]
    chunks = [
        AIMessageChunk(
            content="", tool_call_chunks=[tool_call_chunk(name=n, args=a, id=n, index=i)]
        )
        for i, (n, a) in enumerate(parts)
    ]
    message, bad = normalise_reply(merge_chunks(chunks))
    assert [c["id"] for c in message.tool_calls] == ["f", "g", "h"]
    assert list(bad) == ["g"]


def test_a_chunk_is_read_as_strictly_as_a_stream() -> None:
    chunk = AIMessageChunk(
        content="", tool_call_chunks=[tool_call_chunk(name="f", args='{"a": 1', id="c")]
    )
    assert chunk.tool_calls, "LangChain completes what is not whole"
    message, bad = normalise_reply(chunk)
    assert type(message) is AIMessage
    assert list(bad) == ["c"]


@pytest.mark.parametrize(
    "ended",
    [{"finish_reason": "length"}, {"stop_reason": "max_tokens"}, {"finish_reason": "MAX_TOKENS"}],
)
def test_the_last_call_of_a_reply_that_was_cut_at_its_limit_is_not_run(
    ended: dict[str, str],
) -> None:
    calls = [tool_call(name="f", args={"a": 1}, id=i) for i in ("c1", "c2")]
    _, bad = normalise_reply(AIMessage("", tool_calls=calls, response_metadata=ended))
    assert list(bad) == ["c2"]
    assert "length limit" in bad["c2"]


def test_whole_calls_of_a_reply_that_was_cut_are_run() -> None:
    given = AIMessage(
        "",
        tool_calls=[tool_call(name="f", args={"a": 1}, id="c1")],
        invalid_tool_calls=[invalid_tool_call(name="g", args='{"a', id="c2", error=None)],
        response_metadata={"finish_reason": "length"},
    )
    _, bad = normalise_reply(given)
    assert list(bad) == ["c2"]
    assert "length limit" in bad["c2"]


def test_only_the_broken_call_of_a_streamed_reply_that_was_cut_is_refused() -> None:
    parts = [("g", "{"), ("f", "{}")]
    chunks = [
        AIMessageChunk(
            content="", tool_call_chunks=[tool_call_chunk(name=n, args=a, id=n, index=i)]
        )
        for i, (n, a) in enumerate(parts)
    ]
    ended = AIMessageChunk(content="", response_metadata={"finish_reason": "length"})
    _, bad = normalise_reply(merge_chunks([*chunks, ended]))
    assert list(bad) == ["g"]


def test_blocks_of_calls_are_named_like_their_calls() -> None:
    content: list[str | dict[str, Any]] = [
        {"type": "text", "text": "hm"},
        {"type": "tool_use", "id": "c", "name": "functions.f", "input": {}},
        {"type": "tool_use", "id": "c", "name": "g", "input": {}},
    ]
    calls = [tool_call(name="functions.f", args={}, id="c"), tool_call(name="g", args={}, id="c")]
    message, _ = normalise_reply(AIMessage(content=content, tool_calls=calls))
    blocks = [b for b in message.content if isinstance(b, dict) and b["type"] == "tool_use"]
    assert [(b["id"], b["name"]) for b in blocks] == [
        (c["id"], c["name"]) for c in message.tool_calls
    ]
    assert len({b["id"] for b in blocks}) == 2
    assert content[1] == {"type": "tool_use", "id": "c", "name": "functions.f", "input": {}}


def test_content_that_is_null_becomes_empty() -> None:
    given = AIMessage("")
    given.content = None  # type: ignore[assignment]  # what some adapters leave behind
    assert normalise_reply(given)[0].content == ""
    assert is_empty(given)


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        pytest.param(AIMessage(""), True, id="nothing"),
        pytest.param(AIMessage(" \n"), True, id="blanks"),
        pytest.param(AIMessage([]), True, id="no-blocks"),
        pytest.param(AIMessage([{"type": "text", "text": ""}]), True, id="empty-block"),
        pytest.param(AIMessage([{"type": "thinking", "thinking": "hm"}]), True, id="thought-only"),
        pytest.param(AIMessage("x"), False, id="text"),
        pytest.param(AIMessage([{"type": "text", "text": "x"}]), False, id="block"),
        pytest.param(AIMessage([{"type": "image", "url": "x"}]), False, id="image"),
        pytest.param(
            AIMessage("", tool_calls=[tool_call(name="f", args={}, id="c")]), False, id="call"
        ),
        pytest.param(
            AIMessage(
                "",
                invalid_tool_calls=[invalid_tool_call(name="f", args="{", id="c", error=None)],
            ),
            False,
            id="bad-call",
        ),
    ],
)
def test_a_reply_without_text_and_calls_is_empty(message: AIMessage, empty: bool) -> None:
    assert is_empty(message) is empty


def test_a_reply_that_came_to_its_end_is_whole() -> None:
    said = {"model_provider": "openai", "finish_reason": "stop"}
    for message in (AIMessage("x", response_metadata=said), AIMessage("from elsewhere")):
        assert ensure_whole(message) is message


def test_a_reply_whose_end_never_came_is_worth_another_attempt() -> None:
    with pytest.raises(ConnectionError, match="cut off"):
        ensure_whole(AIMessage("x", response_metadata={"model_provider": "openai"}))
