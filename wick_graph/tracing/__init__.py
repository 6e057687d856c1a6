"""Traces: recorders for the spans of model and tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.tracing.otel import OtelRecorder
    from wick_graph.tracing.recorder import (
        NULL_RECORDER,
        JsonlRecorder,
        SpanHandle,
        TraceRecorder,
        audit,
        current_recorder,
        keeps_content,
        recording,
        refusals,
    )

__all__ = [
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
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.tracing.otel": ("OtelRecorder",),
            "wick_graph.tracing.recorder": (
                "JsonlRecorder",
                "NULL_RECORDER",
                "SpanHandle",
                "TraceRecorder",
                "audit",
                "current_recorder",
                "keeps_content",
                "recording",
                "refusals",
            ),
        },
    )
