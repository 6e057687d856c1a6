"""Doubles for tests: a model that plays a script, exactly.

from wick_graph import Agent
from wick_graph.testing import ScriptedModel, call
from wick_graph.tools import calculate

model = ScriptedModel([call("calculate", expression="21*2"), "It is 42."])
agent = Agent(model=model, tools=[calculate])
assert agent.invoke("What is 21*2?").text == "It is 42."
model.assert_complete()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.exports.testfile import replay_file
    from wick_graph.models.scripted import (
        Lane,
        ModelCall,
        ScriptedModel,
        ScriptFailure,
        ScriptMismatch,
        Step,
        StepLike,
        UnconsumedSteps,
        UnexpectedModelCall,
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
    from wick_graph.testing.recorded import RecordingModel, ReplayModel
    from wick_graph.testing.typed import respond_object

__all__ = [
    "Lane",
    "ModelCall",
    "RecordingModel",
    "ReplayModel",
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
    "replay_file",
    "respond",
    "respond_object",
    "text",
    "timeout",
    "unknown_tool",
]

if not TYPE_CHECKING:
    _RECORDED = ("RecordingModel", "ReplayModel")
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.exports.testfile": ("replay_file",),
            "wick_graph.models.scripted": (
                *({*__all__} - {"replay_file", "respond_object", *_RECORDED}),
            ),
            "wick_graph.testing.recorded": _RECORDED,
            "wick_graph.testing.typed": ("respond_object",),
        },
    )
