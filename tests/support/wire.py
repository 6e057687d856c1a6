"""What a model provider says on the wire: bodies and streams in three protocols."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call that the provider's model makes; a text as `args` is sent as it is."""

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        return self.args if isinstance(self.args, str) else json.dumps(self.args)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of the provider, and what goes wrong with it."""

    text: str = ""
    calls: Sequence[Call] = ()
    finish: str | None = None
    """Why the reply ended; by default what fits, and with "" nobody says."""
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    )
    piece: int = 4
    """Characters in one event of a stream."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = "scripted failure"
    """Message of a reply whose status is not 200."""
    error_fields: Mapping[str, Any] = field(default_factory=dict)
    """More of the error: its `code` and `type`."""
    body: bytes | None = None
    """Sent instead of anything else, as `content_type`."""
    content_type: str = "application/json"
    done: bool = True
    """Whether a stream says `[DONE]`."""
    cut_after: int | None = None
    """Bytes of the body after which the connection ends."""
    clean_cut: bool = False
    """A cut that looks like the proper end of the body."""
    delay: float = 0.0
    """Seconds before the first byte."""
    gap: float = 0.0
    """Seconds between two events of a stream."""
    broken_after: int | None = None
    """Events of a stream after which an error event comes and the stream ends."""

    @property
    def reason(self) -> str:
        if self.finish is not None:
            return self.finish
        return "tool_calls" if self.calls else "stop"


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def failure(reply: Reply) -> bytes:
    fields = {"message": reply.error, "type": "scripted", "code": None, **reply.error_fields}
    return _json({"error": fields})


def openai_body(reply: Reply, asked: Mapping[str, Any]) -> bytes:
    """A whole chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}}
            for c in reply.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": reply.reason or None}
    body = _frame(asked, "chat.completion") | {"choices": [choice]}
    return _json(body | ({"usage": dict(reply.usage)} if reply.usage else {}))


def openai_events(reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
    """A chat completion as server-sent events; parallel calls come interleaved."""
    frame = _frame(asked, "chat.completion.chunk")

    def event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _sse(frame | {"choices": [choice]})

    yield event({"role": "assistant", "content": ""})
    for piece in pieces(reply.text, reply.piece):
        yield event({"content": piece})
    for at, call in enumerate(reply.calls):
        head = {"index": at, "id": call.id, "type": "function"}
        yield event({"tool_calls": [head | {"function": {"name": call.name, "arguments": ""}}]})
    split = [pieces(call.text, reply.piece) for call in reply.calls]
    for row in itertools.zip_longest(*split):
        for at, piece in enumerate(row):
            if piece is not None:
                yield event({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    if reply.reason:
        yield event({}, reply.reason)
    if reply.usage and (asked.get("stream_options") or {}).get("include_usage"):
        yield _sse(frame | {"choices": [], "usage": dict(reply.usage)})
    if reply.done:
        yield b"data: [DONE]\n\n"


def anthropic_body(reply: Reply, asked: Mapping[str, Any]) -> bytes:
    """A whole message."""
    content: list[dict[str, Any]] = []
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(c.text)}
        for c in reply.calls
    ]
    return _json(_anthropic_frame(reply, asked) | {"content": content})


def anthropic_events(reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
    """A message as server-sent events."""

    def event(kind: str, **data: Any) -> bytes:
        return f"event: {kind}\n".encode() + _sse({"type": kind, **data})

    start = _anthropic_frame(reply, asked) | {"content": [], "stop_reason": None}
    start["usage"] = start["usage"] | {"output_tokens": 1}
    yield event("message_start", message=start)
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if reply.text:
        texts = [{"type": "text_delta", "text": p} for p in pieces(reply.text, reply.piece)]
        blocks.append(({"type": "text", "text": ""}, texts))
    for call in reply.calls:
        parts = [
            {"type": "input_json_delta", "partial_json": p} for p in pieces(call.text, reply.piece)
        ]
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        blocks.append((block, parts))
    for index, (block, deltas) in enumerate(blocks):
        yield event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ended = {"stop_reason": anthropic_reason(reply), "stop_sequence": None}
    yield event("message_delta", delta=ended, usage=_anthropic_frame(reply, asked)["usage"])
    yield event("message_stop")


def ollama_lines(reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
    """A chat as lines of JSON; calls come whole, as Ollama sends them."""
    frame = {"model": asked.get("model"), "created_at": "2026-01-01T00:00:00Z"}
    for piece in pieces(reply.text, reply.piece):
        message = {"role": "assistant", "content": piece}
        yield _json(frame | {"message": message, "done": False}) + b"\n"
    for call in reply.calls:
        function = {"name": call.name, "arguments": json.loads(call.text)}
        asking = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        yield _json(frame | {"message": asking, "done": False}) + b"\n"
    read, written = _tokens(reply)
    counts = {"prompt_eval_count": read, "eval_count": written}
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    yield _json(frame | last | counts) + b"\n"


def anthropic_reason(reply: Reply) -> str | None:
    """Anthropic's word for the reason of an end."""
    words = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "": None}
    return words.get(reply.reason, reply.reason)


def stream_error(reply: Reply) -> bytes:
    """An error event in the middle of an OpenAI stream."""
    return b"data: " + failure(reply) + b"\n\n"


def _frame(asked: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": kind,
        "created": int(time.time()),
        "model": asked.get("model", "unnamed"),
    }


def _anthropic_frame(reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
    read, written = _tokens(reply)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked.get("model", "unnamed"),
        "stop_reason": anthropic_reason(reply),
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def _tokens(reply: Reply) -> tuple[int, int]:
    usage = reply.usage or {}
    return usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sse(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"
