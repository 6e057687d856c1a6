"""TracingHook: a span around every model call and every tool call."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp

from wick_graph.constants import TRACE_PREVIEW_CHARS
from wick_graph.core.redaction import REDACTOR, Redactor
from wick_graph.core.request import ModelRequest
from wick_graph.core.usage import cost_in, usage_of
from wick_graph.hooks.protocol import BaseHook, HookContext, in_place
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.tracing import (
    NULL_RECORDER,
    SpanHandle,
    TraceRecorder,
    current_recorder,
    keeps_content,
    recording,
)

TRUNCATED: Final = "...(truncated)"

_SCANNED_CHARS: Final = 200_000
"""Characters of a long text to search for secrets before its beginning is shown."""

_SECRET_CHARS: Final = 20_000
"""Longest secret: so many characters at the end of the search may be part of one."""

_log: Final = logging.getLogger(__name__)


class TracingHook(BaseHook):
    """Record `llm.call` and `tool.call`; without a recorder it does nothing.

    The recorder is that of the `tracing.recording` block in which the run was started, else the
    hook's own. A failing recorder is logged and never harms the run. Everything recorded is
    redacted; only a recorder that wants content gets texts.

    Args:
        recorder: For runs that were started outside any such block.
        redactor: Recognises secrets.
    """

    name = "tracing"
    phases = ("wrap_model_call", "wrap_tool_call")

    def __init__(
        self, recorder: TraceRecorder = NULL_RECORDER, *, redactor: Redactor = REDACTOR
    ) -> None:
        self._recorder = recorder
        self._redactor = redactor

    @in_place
    async def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        """Record the call, including the inner hooks."""
        span = self._start("llm.call", request.ctx)
        if span is None:
            return await next(request)
        span.set("message_count", len(request.messages) + bool(request.system_text))
        try:
            reply = await next(request)
        except BaseException as error:
            span.failed("error", error)
            raise
        else:
            span.reply(reply)
            return reply
        finally:
            span.end()

    @in_place
    async def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        """Record the call, including the inner hooks."""
        span = self._start("tool.call", call.ctx)
        if span is None:
            return await next(call)
        if current_recorder() is NULL_RECORDER:  # the inner layers record there too
            with recording(self._recorder):
                return await self._recorded(span, call, next)
        return await self._recorded(span, call, next)

    async def _recorded(self, span: _Span, call: ToolCall, next: Any) -> Any:
        span.set("tool_name", call.name)
        span.set("tool_call_id", call.id)
        span.value("tool_args", call.args)
        try:
            result = await next(call)
        except BaseException as error:
            span.failed("tool_error", error)
            raise
        else:
            span.result(result)
            return result
        finally:
            span.end()

    def _start(self, name: str, ctx: Any) -> _Span | None:
        recorder = current_recorder()
        if recorder is NULL_RECORDER:
            recorder = self._recorder
        if recorder is NULL_RECORDER:
            return None
        try:
            handle = recorder.start_span(name)
        except Exception:
            _log.exception("the trace recorder failed; %s is not recorded", name)
            return None
        span = _Span(handle, self._redactor, keeps_content(recorder))
        for key in ("agent", "thread_id", "run_id"):
            span.set(key, getattr(ctx, key, None))
        if isinstance(ctx, HookContext):
            span.set("model", ctx.model_name)
        return span


class _Span:
    """A recorder's span that never raises, and records only redacted data."""

    def __init__(self, handle: SpanHandle, redactor: Redactor, content: bool) -> None:
        self._handle = handle
        self._redactor = redactor
        self._content = content

    def set(self, key: str, value: Any) -> None:
        if value is None:
            return
        try:
            self._handle.set(key, value)
        except Exception:
            _log.exception("the trace recorder failed at %s", key)

    def end(self) -> None:
        try:
            self._handle.end()
        except Exception:
            _log.exception("the trace recorder failed at the end of a span")

    def text(self, name: str, text: str) -> None:
        """Record a text's length, and its hash or its beginning."""
        self.set(f"{name}_length", len(text))
        if self._content:
            self.set(f"{name}_preview", self.preview(text))
        elif text:
            self.set(f"{name}_hash", _digest(text))

    def value(self, name: str, value: Any) -> None:
        """Record arguments, or only their hash."""
        if self._content:
            self.set(name, _shortened(self._redactor.value(value)))
        else:
            self.set(f"{name}_hash", _digest(repr(value)))

    def preview(self, text: str) -> str:
        more = len(text) > _SCANNED_CHARS
        hidden = self._redactor.text(text[:_SCANNED_CHARS])
        return _cut(hidden[:-_SECRET_CHARS] if more else hidden, more)

    def failed(self, key: str, error: BaseException) -> None:
        if isinstance(error, GraphBubbleUp):  # the run waits for an answer: nothing has failed
            self.set("interrupted", True)
            return
        self.set("error_type", type(error).__name__)
        text = str(error)
        self.set(key, self.preview(f"{type(error).__name__}: {text}" if text else repr(error)))

    def reply(self, reply: AIMessage) -> None:
        """Record a model's reply."""
        self.text("content", reply.text)
        self.set("tool_calls_count", len(reply.tool_calls))
        self.set("tool_calls", [call["name"] for call in reply.tool_calls])
        metadata = reply.response_metadata
        self.set("provider", metadata.get("model_provider"))
        self.set("response_model", metadata.get("model_name"))
        self.set("finish_reason", metadata.get("finish_reason") or metadata.get("stop_reason"))
        self.set("response_id", reply.id)
        used = usage_of(reply)
        self.set("input_tokens", used.input_tokens)
        self.set("output_tokens", used.output_tokens)
        self.set("cache_read_tokens", used.cache_read)
        self.set("cache_write_tokens", used.cache_write)
        cost = cost_in(reply)
        self.set("cost_usd", None if cost is None else float(cost.usd))

    def result(self, result: ToolResult) -> None:
        """Record a tool's result."""
        self.text("output", result.output)
        if result.error is not None:
            self.set("error_type", "tool_error")
            self.set("tool_error", self.preview(result.error))


def _cut(text: str, more: bool = False) -> str:
    if len(text) <= TRACE_PREVIEW_CHARS and not more:
        return text
    return text[:TRACE_PREVIEW_CHARS] + TRUNCATED


def _shortened(value: Any) -> Any:
    """Return arguments with every text cut to a preview."""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
