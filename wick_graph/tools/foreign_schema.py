"""Refuse schemas from outside that could hang, bloat or misdirect the check of arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from wick_graph.errors import ConfigError

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_PARTS: Final = 10_000
"""Subschemas, each counted as often as references lead to it: what a check may have to visit."""
MAX_DEPTH: Final = 60

_NAMED: Final = ("properties", "$defs", "definitions", "dependentSchemas")
"""Keywords that hold schemas under names of the schema's own choice."""
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE: Final = (
    *("items", "additionalItems", "additionalProperties", "unevaluatedItems", "contains", "if"),
    *("unevaluatedProperties", "propertyNames", "not", "then", "else"),
)
_REFUSED: Final = {
    "pattern": "regular expressions of others can take for ever",
    "patternProperties": "regular expressions of others can take for ever",
    "$dynamicRef": "only plain references into the schema itself are followed",
    "$recursiveRef": "only plain references into the schema itself are followed",
    "$id": "only plain references into the schema itself are followed",
    "id": "only plain references into the schema itself are followed",
}


def check_foreign(parameters: Mapping[str, Any]) -> None:
    """Refuse a schema that was not written by the one who runs the agent, unless it is harmless.

    Raises:
        ConfigError: It is no JSON, larger than 64 KiB, uses `pattern` or `patternProperties`,
            refers out of itself or in a circle, or unfolds to more than 10,000 parts.
    """
    try:
        size = len(json.dumps(parameters))
    except (TypeError, ValueError, RecursionError):
        raise ConfigError("the parameters are no JSON") from None
    if size > MAX_SCHEMA_BYTES:
        raise ConfigError(f"the parameters are larger than {MAX_SCHEMA_BYTES // 1024} KiB")
    _Weigher(parameters).weigh(parameters, ())


class _Weigher:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root: Final = root
        self._known: Final[dict[int, int]] = {}

    def weigh(self, schema: Any, above: tuple[int, ...]) -> int:
        """Count the parts that a schema unfolds to."""
        if not isinstance(schema, Mapping):
            return 1
        me = id(schema)
        if me in above:
            raise ConfigError("the parameters refer to themselves in a circle")
        if len(above) >= MAX_DEPTH:
            raise ConfigError(f"the parameters are nested more than {MAX_DEPTH} deep")
        if me not in self._known:
            _check_keywords(schema)
            parts = [*_inside(schema), *self._referred(schema)]
            self._known[me] = 1 + sum(self.weigh(part, (*above, me)) for part in parts)
        if self._known[me] > MAX_PARTS:
            raise ConfigError(f"the parameters unfold to more than {MAX_PARTS} parts")
        return self._known[me]

    def _referred(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        if "$ref" not in schema:
            return
        ref = schema["$ref"]
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise ConfigError(
                f"the parameters refer to {ref!r:.200}; only references into the schema itself, "
                "such as '#/$defs/name', are followed"
            )
        found: Any = self._root
        for part in ref[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise ConfigError(f"the parameters refer to {ref!r:.200}, which is not in them")
            found = found[key]
        yield found


def _check_keywords(schema: Mapping[str, Any]) -> None:
    for keyword, why in _REFUSED.items():
        if isinstance(schema.get(keyword), str | Mapping):
            raise ConfigError(f"the parameters use {keyword!r}: {why}; leave it out")


def _inside(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _NAMED:
        held = schema.get(keyword)
        if isinstance(held, Mapping):
            yield from held.values()
    for keyword in _LISTED:
        held = schema.get(keyword)
        if isinstance(held, list):
            yield from held
    for keyword in _SINGLE:
        if isinstance(schema.get(keyword), Mapping):
            yield schema[keyword]
