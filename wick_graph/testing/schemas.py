"""Scripted tool calls must be calls that the bound tools accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from wick_graph.testing.draft import DraftCall
from wick_graph.testing.failures import ScriptMismatch
from wick_graph.testing.record import tool_name


def check_call(call: DraftCall, tools: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ScriptMismatch` unless the call names a bound tool and fits its schema."""
    tool = next((t for t in tools if tool_name(t) == call.name), None)
    if tool is None:
        bound = ", ".join(map(tool_name, tools)) or "none"
        raise ScriptMismatch(
            f"the script calls {call.name}, which is not bound (bound: {bound}): "
            "bind it, or mark the step unchecked=True"
        )
    schema = tool.get("function", {}).get("parameters")
    problem = _problem(call.args or {}, schema) if isinstance(schema, Mapping) else None
    if problem:
        raise ScriptMismatch(
            f"the script calls {call.name}({call.raw}), but {problem}: "
            "correct the arguments, or mark the step unchecked=True"
        )


def _problem(args: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    found = next(Draft202012Validator(schema).iter_errors(dict(args)), None)
    if found is not None:
        where = ".".join(map(str, found.absolute_path))
        return f"{where}: {found.message}" if where else str(found.message)
    known = schema.get("properties")
    # JSON schema lets unknown names through; in a script they are slips of the pen
    if known and not schema.keys() & {"additionalProperties", "patternProperties"}:
        unknown = [name for name in args if name not in known]
        if unknown:
            return f"it has no argument {unknown[0]!r} (it has: {', '.join(known)})"
    return None
