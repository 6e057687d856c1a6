"""What each provider answers, as whole bodies: JSON, or all events of a stream at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.providers.rules import gemini_signature, sign
from tests.support import wire
from tests.support.wire import Call, Reply


@dataclass(frozen=True, kw_only=True)
class Said:
    """One reply of a model: what it thought, what it says, what it asks for."""

    text: str = ""
    calls: Sequence[Call] = ()
    thought: str = ""
    redacted: bool = False
    """A thought is sealed, beside the one that can be read."""
    refusal: str = ""


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sse(value: Mapping[str, Any], *, named: bool = True) -> bytes:
    head = f"event: {value['type']}\n".encode() if named else b""
    return head + b"data: " + _json(value) + b"\n\n"


def openai(said: Said, asked: Mapping[str, Any], usage: Mapping[str, int]) -> bytes:
    reply = Reply(text=said.text, calls=said.calls)
    if asked.get("stream"):
        return b"".join(wire.openai_events(reply, asked))
    body = json.loads(wire.openai_body(reply, asked))
    if said.refusal:
        body["choices"][0]["message"]["refusal"] = said.refusal
    return _json(body)


def ollama(said: Said, asked: Mapping[str, Any], usage: Mapping[str, int]) -> bytes:
    first = b""
    if said.thought:
        message = {"role": "assistant", "content": "", "thinking": said.thought}
        first = _json({"model": "m", "message": message, "done": False}) + b"\n"
    return first + b"".join(wire.ollama_lines(Reply(text=said.text, calls=said.calls), asked))


def anthropic(said: Said, asked: Mapping[str, Any], usage: Mapping[str, int]) -> bytes:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        signed = {"thinking": said.thought, "signature": sign(said.thought)}
        blocks.append({"type": "thinking", **signed})
    if said.redacted:
        blocks.append({"type": "redacted_thinking", "data": sign("redacted")})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    for call in said.calls:
        blocks.append(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.text)}
        )
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked["model"],
        "content": blocks,
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"output_tokens": 7, **usage},
    }
    if not asked.get("stream"):
        return _json(message)
    return b"".join(_anthropic_events(message, blocks))


def _anthropic_events(message: Mapping[str, Any], blocks: list[dict[str, Any]]) -> Iterator[bytes]:
    start = {**message, "content": [], "stop_reason": None}
    yield _sse({"type": "message_start", "message": start})
    for index, block in enumerate(blocks):
        empty, deltas = _in_pieces(block)
        yield _sse({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _sse({"type": "content_block_delta", "index": index, "delta": delta})
        yield _sse({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _sse({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    yield _sse({"type": "message_stop"})


def _in_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        pieces = wire.pieces(block["text"], 4)
        return {**block, "text": ""}, [{"type": "text_delta", "text": p} for p in pieces]
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": piece}
            for piece in wire.pieces(block["thinking"], 4)
        ]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] == "tool_use":
        pieces = wire.pieces(json.dumps(block["input"]), 4)
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces]
        return {**block, "input": {}}, deltas
    return block, []


def gemini(said: Said, asked: Mapping[str, Any], usage: Mapping[str, int]) -> bytes:
    parts: list[dict[str, Any]] = []
    if said.thought:
        parts.append({"text": said.thought, "thought": True})
    if said.text:
        parts.append({"text": said.text})
    for at, call in enumerate(said.calls):
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": json.loads(call.text)}}
        if not at:  # of parallel calls the first bears it
            part["thoughtSignature"] = gemini_signature(part)
        parts.append(part)
    content = {"role": "model", "parts": parts}
    body = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18},
        "modelVersion": "m",
        "responseId": "r1",
    }
    return _json(body)


def gemini_events(said: Said, asked: Mapping[str, Any], usage: Mapping[str, int]) -> bytes:
    return b"data: " + gemini(said, asked, usage) + b"\n\n"


def responses(said: Said, asked: Mapping[str, Any], usage: Mapping[str, int]) -> bytes:
    items: list[dict[str, Any]] = []
    mark = sign(repr(said))[:12].replace("/", "0").replace("+", "0")
    if said.thought:
        summary = [{"type": "summary_text", "text": said.thought}]
        sealed = sign(f"rs_{mark}")
        items.append(
            {
                "id": f"rs_{mark}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": sealed,
            }
        )
    part: dict[str, Any] = {"type": "refusal", "refusal": said.refusal}
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
    if said.text or said.refusal:
        items.append({"id": f"msg_{mark}", "type": "message", "role": "assistant"})
        items[-1] |= {"status": "completed", "content": [part]}
    for at, call in enumerate(said.calls):
        items.append({"id": f"fc_{mark}{at}", "type": "function_call", "call_id": call.id})
        items[-1] |= {"name": call.name, "arguments": call.text, "status": "completed"}
    counts = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    details = {"input_tokens_details": {"cached_tokens": 0}}
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": asked["model"],
        "status": "completed",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": {**counts, **details, "output_tokens_details": {"reasoning_tokens": 0}},
    }
    if not asked.get("stream"):
        return _json(body)
    events = [
        {"type": "response.created", "response": {**body, "output": [], "status": "in_progress"}},
        *_items_streamed(items),
        {"type": "response.completed", "response": body},
    ]
    numbered = ({**event, "sequence_number": n} for n, event in enumerate(events))
    return b"".join(_sse(event) for event in numbered)


def _items_streamed(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        empty = {k: [] if k in ("content", "summary") else value for k, value in item.items()}
        if item["type"] == "function_call":
            empty["arguments"] = ""
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        if item["type"] == "message":
            part = item["content"][0]
            key = "text" if part["type"] == "output_text" else "refusal"
            where = {**at, "content_index": 0}
            yield {"type": "response.content_part.added", **where, "part": {**part, key: ""}}
            if key == "text":
                for piece in wire.pieces(part["text"], 4):
                    delta = {"delta": piece, "logprobs": []}
                    yield {"type": "response.output_text.delta", **where, **delta}
            else:
                yield {"type": "response.refusal.done", **where, "refusal": part["refusal"]}
            yield {"type": "response.content_part.done", **where, "part": part}
        elif item["type"] == "function_call":
            for piece in wire.pieces(item["arguments"], 4):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        else:
            part = item["summary"][0]
            where = {**at, "summary_index": 0}
            empty_part = {**part, "text": ""}
            yield {"type": "response.reasoning_summary_part.added", **where, "part": empty_part}
            delta = {"delta": part["text"]}
            yield {"type": "response.reasoning_summary_text.delta", **where, **delta}
            yield {"type": "response.reasoning_summary_part.done", **where, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


Speaker = Callable[[Said, Mapping[str, Any], Mapping[str, int]], bytes]
SPEAKERS: Final[Mapping[str, Speaker]] = {
    "openai": openai,
    "responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "gemini events": gemini_events,
    "ollama": ollama,
}
