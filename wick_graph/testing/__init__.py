"""Doubles for tests: a model that plays a script, exactly.

model = ScriptedModel([call("calculate", expression="21*2"), "It is 42."])
agent = Agent(name="test", model=model, tools=["calculate"])
assert agent.invoke("What is 21*2?").text == "It is 42."
model.assert_complete()
"""

from __future__ import annotations

from wick_graph.testing.failures import (
    ScriptFailure,
    ScriptMismatch,
    UnconsumedSteps,
    UnexpectedModelCall,
)
from wick_graph.testing.lanes import Lane, When
from wick_graph.testing.model import ScriptedModel
from wick_graph.testing.record import ModelCall
from wick_graph.testing.steps import (
    Step,
    StepLike,
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
