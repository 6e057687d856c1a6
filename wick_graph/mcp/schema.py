"""The schema of a tool that a server describes, without what could hang the check of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wick_graph.tools.foreign_schema import check_foreign

_NAMED: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_LITERAL: Final = frozenset({"enum", "const", "default", "examples"})
_LEFT_OUT: Final = frozenset({"pattern", "patternProperties", "$id", "id", "$schema"})


def plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without its regular expressions: the server checks those by itself.

    Raises:
        ConfigError: It refers out of itself or in a circle, or is too large.
    """
    made: dict[str, Any] = _without(schema)
    check_foreign(made)
    return made


def _without(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: _without(item) for name, item in value.items()}
        elif key in _LITERAL:
            out[key] = value
        elif key not in _LEFT_OUT:
            out[key] = _without(value)
    return out
