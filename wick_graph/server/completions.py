"""From our runs to OpenAI's JSON: whole answers, and the chunks of streamed ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from wick_graph.server.problems import Problem, openai_error
from wick_graph.store.keeping.streams import StreamRow

_ENDS: Final = {"done": "stop", "limit": "length", "empty": "stop", "interrupted": "stop"}
_WAITS: Final = "(the run waits for an answer; see interrupts)"
_DONE: Final = b"data: [DONE]\n\n"


def completion(row: StreamRow, model: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's end; what OpenAI's form has no place for stands under `wick`."""
    text = answer["response"] or (_WAITS if answer["interrupted"] else "")
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": None,
        "finish_reason": _ENDS.get(answer["stopped_because"], "stop"),
    }
    return {
        **_head(row, model, "chat.completion"),
        "choices": [choice],
        "usage": usage_of(answer["usage"]),
        "wick": {key: answer[key] for key in ("thread_id", "run_id", "tool_calls", "interrupts")},
    }


class Chunks:
    """Turn a run's events into the lines of a stream: one end, whatever comes.

    Args:
        row: The run.
        model: The name under which it was asked for.
        usage: Asked at the run's end, where the reader wants a last chunk with what was used.
    """

    def __init__(
        self, row: StreamRow, model: str, usage: Callable[[], Mapping[str, int]] | None
    ) -> None:
        self._head = _head(row, model, "chat.completion.chunk")
        self._usage = usage
        if usage is not None:
            self._head["usage"] = None
        self._said = False
        self.ended = False

    def begin(self) -> bytes:
        """Say who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, event: Mapping[str, Any]) -> bytes:
        """Return what an event becomes; most become nothing."""
        data = event.get("data", {})
        if event["event"] == "on_chat_model_stream":
            self._said = True
            return self._chunk({"content": data["delta"]})
        if event["event"] == "error":
            return self.fail(Problem(500, data["error"]))
        return self._end(data["stopped_because"]) if event["event"] == "done" else b""

    def fail(self, problem: Problem) -> bytes:
        """End with an error, unless the end was told."""
        if self.ended:
            return b""
        self.ended = True
        return _line(openai_error(problem))

    def _end(self, why: str) -> bytes:
        self.ended = True
        waits = why == "interrupted" and not self._said
        told = self._chunk({"content": _WAITS}) if waits else b""
        told += self._chunk({}, _ENDS.get(why, "stop"))
        if self._usage is not None:
            told += _line({**self._head, "choices": [], "usage": usage_of(self._usage())})
        return told + _DONE

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _line({**self._head, "choices": [choice]})


def usage_of(usage: Mapping[str, int]) -> dict[str, int]:
    """Return tokens under OpenAI's names."""
    sent, got = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}


def _head(row: StreamRow, model: str, kind: str) -> dict[str, Any]:
    made = int(row.started or time.time())
    return {"id": f"chatcmpl-{row.run_id}", "object": kind, "created": made, "model": model}


def _line(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":"), default=str).encode() + b"\n\n"
