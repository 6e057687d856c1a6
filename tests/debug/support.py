"""Recorded runs and live ones, with hooks and parallel tools whose every call is counted."""

from __future__ import annotations

from typing import Any

from tests.journal.support import PROMPT, Guard, Todo
from wick_graph import Agent, ToolError, tool
from wick_graph.testing import ScriptedModel, calls

WAIT: Any = 60
"""Seconds after which a test that waits for a stop gives up."""


class World:
    """What tools did."""

    def __init__(self) -> None:
        self.added: list[tuple[float, float]] = []

    def add(self, a: float, b: float) -> str:
        """Add two numbers."""
        self.added.append((a, b))
        if a < 0:
            raise ToolError("negative numbers are not added")
        return f"{a + b:g}"

    def agent(self, store: Any, *steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
        script = list(steps) or three_calls()
        model = options.pop("model", None) or ScriptedModel(script)
        options.setdefault("hooks", [Todo(), Guard()])
        options.setdefault("tools", [tool(self.add)])
        return Agent("adder", model, system_prompt=PROMPT, store=store, **options), model


def three_calls() -> list[Any]:
    asked = [("add", {"a": a, "b": 1}) for a in (1, 2, -3)]
    return [calls(*asked), "Done."]
