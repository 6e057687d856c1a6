"""A model that plays a script, exactly: `model: scripted:path.yaml`, and the double for tests."""

from __future__ import annotations

from wick_graph.models.scripted.model import ScriptedModel
from wick_graph.models.scripted.reply import (
    ModelCall,
    ScriptFailure,
    ScriptMismatch,
    UnconsumedSteps,
    UnexpectedModelCall,
)
from wick_graph.models.scripted.script import (
    Lane,
    Step,
    StepLike,
    When,
    attempts,
    call,
    calls,
    context_overflow,
    cut_stream,
    delay,
    empty,
    error,
    malformed_args,
    rate_limit,
    respond,
    text,
    timeout,
    unknown_tool,
)

__all__ = [
    "Lane",
    "ModelCall",
    "ScriptFailure",
    "ScriptMismatch",
    "ScriptedModel",
    "Step",
    "StepLike",
    "UnconsumedSteps",
    "UnexpectedModelCall",
    "When",
    "attempts",
    "call",
    "calls",
    "context_overflow",
    "cut_stream",
    "delay",
    "empty",
    "error",
    "malformed_args",
    "rate_limit",
    "respond",
    "text",
    "timeout",
    "unknown_tool",
]
