"""A model that plays a script exactly: `model: scripted:path.yaml`, and a double for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
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

if not TYPE_CHECKING:
    _REPLY = (
        "ModelCall",
        "ScriptFailure",
        "ScriptMismatch",
        "UnconsumedSteps",
        "UnexpectedModelCall",
    )
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.models.scripted.model": ("ScriptedModel",),
            "wick_graph.models.scripted.reply": _REPLY,
            "wick_graph.models.scripted.script": (*({*__all__} - {"ScriptedModel", *_REPLY}),),
        },
    )
