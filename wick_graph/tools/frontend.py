"""Tools that the caller of a run has: a call is a question, and the result its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from langgraph.types import interrupt

from wick_graph.errors import ConfigError
from wick_graph.tools.arguments import check_foreign
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.toolsets import check_free

KIND: Final = "frontend_tool"
"""The kind of a question that is such a call."""


def frontend_tool(given: Mapping[str, Any]) -> FuncTool[..., Any]:
    """Make a tool of its `name`, `description` and `parameters`.

    Raises:
        ConfigError: It has the name of a built-in tool, or its schema is harmful or invalid.
    """
    name = str(given["name"])
    check_free(name)
    parameters = dict(given.get("parameters") or {})
    parameters = {"type": "object", "properties": {}, **parameters}
    try:
        check_foreign(parameters)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None

    def call(args: dict[str, Any], ctx: ToolContext) -> Any:
        asked = {"kind": KIND, "tool": name, "args": args, "call_id": ctx.call_id}
        return interrupt({**asked, "index": ctx.index})

    description = str(given.get("description") or "") or f"Runs {name} at the user's side."
    return FuncTool(name, description, parameters, call, replay="safe", timeout=None)


def is_call(question: Any) -> bool:
    """Return whether a question is a call of such a tool."""
    return isinstance(question, Mapping) and question.get("kind") == KIND


def result_text(given: Any) -> str:
    """Return a caller's result as a text: data can then never be read as a decision."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
