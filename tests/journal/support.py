"""A run with two hooks and three parallel tools, whose every part leaves a trace."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from wick_graph import Agent, BaseHook, ModelRequest, ToolError, tool
from wick_graph.testing import ScriptedModel, calls

on_both = pytest.mark.parametrize("database", ["sqlite", "postgres"])
"""Runs a test on both databases."""
PROMPT = "You add numbers."
REMINDER = "Mind the time."


class Todo(BaseHook):
    """Write to the state, add a section and a message, change a call's arguments."""

    name = "todo"

    def before_agent(self, state: Any, ctx: Any) -> Any:
        return {"memory": {"notes": "be brief"}}

    def modify_request(self, request: ModelRequest, ctx: Any) -> Any:
        request = request.append_system("Keep a list.", source="todo")
        return request.append(HumanMessage(REMINDER, id="reminder"))

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        return next(call.replace(args={**call.args, "b": call.args["b"] + 10}))


class Guard(BaseHook):
    """Change the request around the model, judge the reply, change a result."""

    name = "guard"

    def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        return next(request.with_settings(temperature=0.3).append_system("Be careful."))

    def after_model(self, message: Any, ctx: Any) -> Any:
        return {"todos": []}

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        result = next(call)
        return result if result.error else result.replace(output=result.output + "!")


def add(a: float, b: float) -> str:
    """Add two numbers."""
    if a < 0:
        raise ToolError("negative numbers are not added")
    return f"{a + b:g}"


def steps() -> list[Any]:
    asked = [("add", {"a": a, "b": 1}) for a in (1, 2, -3)]
    return [calls(*asked), "Done."]


def agent_of(store: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = options.pop("model", None) or ScriptedModel(steps())
    options.setdefault("hooks", [Todo(), Guard()])
    options.setdefault("tools", [tool(add)])
    options.setdefault("journal", "steps")
    made = Agent("adder", model, system_prompt=PROMPT, store=store, **options)
    return made, model
