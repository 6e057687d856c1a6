"""Chunks of a stream put together."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk

from wick_graph.models.chunks import Pieces, merge_chunks


def piece(
    args: str | None = None,
    *,
    index: int | None = 0,
    name: str | None = None,
    id: str | None = None,
) -> AIMessageChunk:
    return AIMessageChunk(
        content="",
        tool_call_chunks=[tool_call_chunk(name=name, args=args, id=id, index=index)],
    )


def test_parallel_calls_that_come_interleaved_are_told_apart() -> None:
    message = merge_chunks(
        [
            piece("", index=0, name="add", id="c1"),
            piece("", index=1, name="mul", id="c2"),
            piece('{"a"', index=0),
            piece('{"x": [1', index=1),
            piece(": 1}", index=0),
            piece(", 2]}", index=1),
        ]
    )
    found = [(c["name"], c["args"], c["id"]) for c in message.tool_calls]
    assert found == [("add", {"a": 1}, "c1"), ("mul", {"x": [1, 2]}, "c2")]
    assert type(message).__name__ == "AIMessage"


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(
            [piece("{}", name="f", id="a"), piece("{}", name="g", id="b")], id="one-index-two-ids"
        ),
        pytest.param(
            [piece("{}", index=None, name="f", id="a"), piece("{}", index=None, name="g", id="b")],
            id="no-index",
        ),
        pytest.param(
            [
                piece("{", index=None, name="f", id="a"),
                piece("{", index=None, name="g", id="b"),
                piece("}", index=None, id="a"),
                piece("}", index=None, id="b"),
            ],
            id="only-ids",
        ),
        pytest.param(
            [
                piece("{", index=None, name="f", id="a"),
                piece("}", index=None),
                piece("{}", index=None, name="g", id="b"),
            ],
            id="neither",
        ),
        pytest.param(
            [
                piece("{", name="f", id="a"),
                piece("}", name="f", id="a"),
                piece("{}", index=1, name="g", id="b"),
            ],
            id="name-said-twice",
        ),
    ],
)
def test_calls_are_told_apart_by_whatever_the_server_gives(chunks: list[AIMessageChunk]) -> None:
    message = merge_chunks(chunks)
    assert [(c["name"], c["id"], c["args"]) for c in message.tool_calls] == [
        ("f", "a", {}),
        ("g", "b", {}),
    ]


@pytest.mark.parametrize("cut", ['{"a": 1', '{"path": "/etc', '{"a": 1,', "{"])
def test_arguments_that_are_not_whole_are_never_taken_for_whole(cut: str) -> None:
    message = merge_chunks([piece("{}", index=0, name="f", id="a"), piece(cut, index=1, name="g")])
    assert [c["name"] for c in message.tool_calls] == ["f"]
    assert [(c["name"], c["args"]) for c in message.invalid_tool_calls] == [("g", cut)]


@pytest.mark.parametrize("nothing", ["", None, "null", "  "])
def test_no_arguments_are_an_empty_object(nothing: str | None) -> None:
    assert merge_chunks([piece(nothing, name="f", id="a")]).tool_calls[0]["args"] == {}


def test_a_line_break_inside_a_text_is_taken_as_meant() -> None:
    message = merge_chunks([piece('{"text": "a\nb"}', name="f", id="a")])
    assert message.tool_calls[0]["args"] == {"text": "a\nb"}


def test_text_usage_and_metadata_are_put_together() -> None:
    usage = UsageMetadata(input_tokens=3, output_tokens=2, total_tokens=5)
    message = merge_chunks(
        [
            AIMessageChunk(content="Hel", id="lc_run--1", response_metadata={"model_name": "m"}),
            AIMessageChunk(content="lo", additional_kwargs={"reasoning_content": "be "}),
            AIMessageChunk(content="", additional_kwargs={"reasoning_content": "kind"}),
            AIMessageChunk(content="", response_metadata={"finish_reason": "stop"}, id="msg_1"),
            AIMessageChunk(
                content="",
                response_metadata={"finish_reason": "stop", "model_name": "m"},
                usage_metadata=usage,
            ),
        ]
    )
    assert message.content == "Hello"
    assert message.additional_kwargs == {"reasoning_content": "be kind"}
    assert message.response_metadata == {"finish_reason": "stop", "model_name": "m"}
    assert message.usage_metadata == usage
    assert message.id == "msg_1"


def test_an_empty_stream_is_a_broken_connection() -> None:
    with pytest.raises(ConnectionError):
        merge_chunks([])


_texts = st.text(max_size=8)
_blocks = st.one_of(
    st.builds(lambda t: {"type": "text", "text": t, "index": 0}, _texts),
    st.builds(lambda t: {"type": "thinking", "thinking": t, "index": 1}, _texts),
    st.builds(lambda t: {"type": "thinking", "signature": t, "index": 1}, _texts),
    st.builds(lambda t: {"type": "tool_use", "id": "t1", "partial_json": t, "index": 2}, _texts),
    st.builds(lambda t: {"type": "text", "text": t}, _texts),
)
# LangChain does not merge what is in one chunk, and no provider sends that
_chunk = st.lists(_blocks, min_size=1, max_size=3, unique_by=lambda b: b.get("index", id(b)))


@given(
    st.one_of(
        st.lists(_texts, min_size=1, max_size=12),
        st.lists(_chunk, min_size=1, max_size=12),
    )
)
def test_content_comes_out_as_langchain_would_have_it(contents: list[Any]) -> None:
    chunks = [AIMessageChunk(content=content) for content in contents]
    theirs = chunks[0]
    for chunk in chunks[1:]:
        theirs = theirs + chunk
    assert merge_chunks(chunks).content == theirs.content


def test_text_after_blocks_is_kept() -> None:
    block = {"type": "text", "text": "a", "index": 0}
    contents: list[Any] = ["", [block], "b", "c"]
    message = merge_chunks([AIMessageChunk(content=c) for c in contents])
    assert message.content == [block, "bc"]


def test_the_cost_grows_with_the_stream_alone() -> None:
    text = "0123456789abcdef"
    chunk = AIMessageChunk(
        content=[{"type": "text", "text": text, "index": 0}],
        additional_kwargs={"reasoning_content": text},
        tool_call_chunks=[tool_call_chunk(args=text, index=0)],
    )

    def cost(count: int) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            merge_chunks([chunk] * count)
            best = min(best, time.perf_counter() - start)
        return best

    # 100 if linear, 10,000 if quadratic; a busy machine may disturb one comparison
    assert any(cost(40_000) / cost(400) < 500 for _ in range(3))


def said(content: Any, **more: Any) -> AIMessageChunk:
    return AIMessageChunk(content=content, **more)


_SAID = st.sampled_from(
    [
        said("one "),
        said("two "),
        said(""),
        said("named", name="x"),
        said("other", id="b"),
        said("told", response_metadata={"finish_reason": "stop"}),
        said(
            "counted", usage_metadata=UsageMetadata(input_tokens=1, output_tokens=2, total_tokens=3)
        ),
        said("more", additional_kwargs={"thought": "hm"}),
        said("", tool_call_chunks=[tool_call_chunk(name="f", args="{}", id="c", index=0)]),
        said([{"type": "text", "text": "block", "index": 0}]),
    ]
)


def heard_of(chunks: list[AIMessageChunk]) -> Pieces:
    heard = Pieces()
    for chunk in chunks:
        if heard.more(chunk) is None:
            heard.keep(chunk)
    return heard


@given(st.lists(_SAID, min_size=1, max_size=12))
def test_a_reply_is_the_same_if_of_plain_text_only_the_text_is_kept(
    chunks: list[AIMessageChunk],
) -> None:
    heard = heard_of(chunks)
    kept: Any = heard.chunks()
    assert merge_chunks(kept) == merge_chunks(chunks)
    assert len(kept) <= len(chunks)


def test_a_run_of_plain_text_is_one_said() -> None:
    heard = heard_of([said(text) for text in ("a", "b", "c")])
    assert [chunk.content for chunk in heard.chunks()] == ["abc"]
