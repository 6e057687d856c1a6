"""Traces: what listens to the spans of model and tool calls, and where a run finds it."""

from __future__ import annotations

from wick_graph.tracing.jsonl import JsonlRecorder
from wick_graph.tracing.otel import OtelRecorder
from wick_graph.tracing.recorder import (
    NULL_RECORDER,
    SpanHandle,
    TraceRecorder,
    audit,
    current_recorder,
    keeps_content,
    recording,
    refusals,
)

__all__ = (
    "NULL_RECORDER",
    "JsonlRecorder",
    "OtelRecorder",
    "SpanHandle",
    "TraceRecorder",
    "audit",
    "current_recorder",
    "keeps_content",
    "recording",
    "refusals",
)
