"""Doubles for tests: a model that plays a script, exactly.

from wick_graph import Agent
from wick_graph.testing import ScriptedModel, call
from wick_graph.tools.calculate import calculate

model = ScriptedModel([call("calculate", expression="21*2"), "It is 42."])
agent = Agent(model=model, tools=[calculate])
assert agent.invoke("What is 21*2?").text == "It is 42."
model.assert_complete()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from wick_graph.exports.rerun import replay_file
    from wick_graph.journal.doubles import RecordingModel, ReplayModel

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
    "text",
    "timeout",
    "unknown_tool",
]

_ELSEWHERE: Final = {
    "RecordingModel": "wick_graph.journal.doubles",
    "ReplayModel": "wick_graph.journal.doubles",
    "replay_file": "wick_graph.exports.rerun",
}
"""Doubles that need the engine; they are loaded when somebody asks for them."""


def __getattr__(name: str) -> Any:
    home = _ELSEWHERE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
