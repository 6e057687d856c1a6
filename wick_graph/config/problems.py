"""From pydantic's errors to sentences with a file, a line and a key path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wick_graph.config.fields import UNION_TAGS
from wick_graph.config.guests import McpServerConfig, MiddlewareConfig, SubagentConfig
from wick_graph.config.places import KeyPath, Places, one_line
from wick_graph.config.schema import (
    AgentConfig,
    AgentsFile,
    BackendConfig,
    BudgetConfig,
    JournalConfig,
    MemoryConfig,
    ModelConfig,
    ModelTarget,
    RetentionConfig,
    SearchConfig,
    SkillsConfig,
)
from wick_graph.errors import ConfigError, did_you_mean

_MOST: Final = 20
"""Errors that are told one by one."""

_BLOCKS: Final[Mapping[str, type[BaseModel]]] = {
    "defaults": AgentConfig,
    "model": ModelConfig,
    "fallbacks": ModelTarget,
    "backend": BackendConfig,
    "skills": SkillsConfig,
    "memory": MemoryConfig,
    "middleware": MiddlewareConfig,
    "mcp_servers": McpServerConfig,
    "subagents": SubagentConfig,
    "retention": RetentionConfig,
    "search": SearchConfig,
    "budget": BudgetConfig,
    "journal": JournalConfig,
}

_REFUSED: Final = frozenset({"hooks", "class_path"})
"""Keys under which a file would name code to load; no file may."""

_SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": lambda _: "is missing; add it",
    "string_type": lambda _: "must be text; put it in quotes if it is",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda ctx: f"must have at most {ctx['max_length']} characters",
    "too_short": lambda _: "must not be empty",
    "too_long": lambda ctx: f"must have at most {ctx['max_length']} entries",
    "int_type": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "bool_type": lambda _: "must be true or false",
    "tuple_type": lambda _: "must be a list",
    "dict_type": lambda _: "must be a block of keys",
    "model_type": lambda _: "must be a block of keys",
    "literal_error": lambda ctx: "must be " + ctx["expected"].replace("'", ""),
    "greater_than": lambda ctx: f"must be more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"must be {ctx['ge']:g} or more",
    "less_than_equal": lambda ctx: f"must be {ctx['le']:g} or less",
    "value_error": lambda ctx: str(ctx["error"]),
}


def config_error(error: ValidationError, places: Places, *, within: KeyPath = ()) -> ConfigError:
    """Make one error of all that pydantic found: a line for each, in the order of the file.

    The text never holds a value of the file.

    Args:
        error: what pydantic raised.
        places: where things stand.
        within: path of the block that was validated, if it is not the whole file.
    """
    found: dict[KeyPath, tuple[int, KeyPath, ErrorDetails]] = {}
    for details in error.errors(include_url=False, include_input=False):
        path = within + _in_file(details)
        found.setdefault(places.origin(path), (places.line(path) or 0, path, details))
    ordered = sorted(found.values(), key=lambda entry: entry[0])
    lines = [
        places.sentence(path, _text(path, details, places)) for _, path, details in ordered[:_MOST]
    ]
    if len(ordered) > _MOST:
        lines.append(f"{one_line(places.source)}: {len(ordered) - _MOST} more; correct these first")
    return ConfigError("\n".join(lines))


def _in_file(details: ErrorDetails) -> KeyPath:
    """Take pydantic's own steps out of a location: the form of a model, the mark of a key."""
    path = tuple(step for step in details["loc"] if step not in UNION_TAGS)
    of_a_key = len(path) == 3 and path[::2] == ("agents", "[key]")
    # an unknown key may be called [key] itself
    return path[:2] if of_a_key and details["type"] == "value_error" else path


def _text(path: KeyPath, details: ErrorDetails, places: Places) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        return _unknown(path, places)
    if path == ("agents",) and kind in ("missing", "too_short"):
        return "needs at least one agent, as agents: {default: {model: auto}}"
    sentence = _SENTENCES.get(kind)
    return sentence(details.get("ctx", {})) if sentence else "is not valid here"


def _unknown(path: KeyPath, places: Places) -> str:
    key, parent = str(path[-1]), path[:-1]
    if key in _REFUSED:
        return "code is never loaded from a configuration file; pass hooks= in Python"
    if not parent and key in AgentConfig.model_fields:
        return "unknown key here; move it under agents.<id> or defaults"
    keys = list(_block(parent).model_fields)
    if parent and len(places.origin(path)) == 1 and places.lines:
        # the file is one agent: its keys and the file's own stand side by side
        if key in AgentsFile.model_fields:
            return "is of use only beside agents:"
        keys += AgentsFile.model_fields
    return "unknown key" + (did_you_mean(key, keys) or f"; valid keys: {', '.join(keys)}")


def _block(parent: KeyPath) -> type[BaseModel]:
    if not parent:
        return AgentsFile
    if len(parent) == 2 and parent[0] == "agents":
        return AgentConfig
    names = (step for step in reversed(parent) if isinstance(step, str) and step in _BLOCKS)
    return _BLOCKS[next(names, "defaults")]
