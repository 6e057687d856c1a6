"""From what a configuration names to a middleware."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from wick_graph.errors import ConfigError, WickError, did_you_mean
from wick_graph.middleware.adapter import MiddlewareHook
from wick_graph.models.resolve import resolve_model

_LIBRARIES: Final = {
    "": ("langchain.agents.middleware",),
    "deepagents": ("deepagents.middleware", "deepagents.backends"),
}
"""Whose public classes can be named. A file names what these bring, and never loads other code."""
_BLOCK: Final = frozenset({"use", "args"})
_MODELS: Final = ("model", "first_model", "additional_models")
"""Parameters that take models: names in them are resolved as everywhere in the file."""


def make(name: str, args: Mapping[str, Any], base_dir: Path) -> MiddlewareHook:
    """Make a hook of a middleware that is named, with its arguments.

    Args:
        name: A public class of `langchain.agents.middleware`, or `deepagents.` and one of its.
        args: By the names of the constructor's parameters. A map of `use` and `args` alone stands
            for an object that is made in the same way.
        base_dir: What relative paths in the names of models are relative to.

    Raises:
        ConfigError: There is no such class, its arguments do not fit, or it cannot be carried over.
    """
    return MiddlewareHook(_made(name, args, base_dir))


def _made(name: str, args: Mapping[str, Any], base_dir: Path) -> Any:
    cls = _class(name)
    try:
        positional, named = _arguments(cls, args, base_dir)
        return cls(*positional, **named)
    except WickError:
        raise
    except Exception as error:  # whatever the class says of its arguments
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{name} does not take these arguments: {reason}") from error


def _class(name: str) -> Any:
    library, _, short = name.rpartition(".")
    if library not in _LIBRARIES:
        raise ConfigError(
            f"{name!r:.200} cannot be named here; take a class of langchain.agents.middleware, or "
            "deepagents. and one of its; pass all others as hooks= in Python"
        )
    known: list[str] = []
    for place in _LIBRARIES[library]:
        try:
            module = import_module(place)
        except ImportError:
            raise ConfigError(f"{name} needs {library}; install it") from None
        found = getattr(module, short, None) if short in module.__all__ else None
        if inspect.isclass(found):
            return found
        known += [n for n in module.__all__ if inspect.isclass(getattr(module, n, None))]
    raise ConfigError(f"{_LIBRARIES[library][0]} has no {short}{did_you_mean(short, known)}")


def _arguments(
    cls: Any, args: Mapping[str, Any], base_dir: Path
) -> tuple[list[Any], dict[str, Any]]:
    """Sort arguments by how the class takes them; a list may stand for positional ones."""
    values = {key: _value(key, item, base_dir) for key, item in args.items()}
    parameters = inspect.signature(cls).parameters.values()
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if rest is None or rest not in values:
        return [], values
    before = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    positional = [values.pop(name) for name in before if name in values]
    return [*positional, *values.pop(rest)], values


def _value(key: str, item: Any, base_dir: Path) -> Any:
    if isinstance(item, Mapping) and "use" in item and item.keys() <= _BLOCK:
        return _made(str(item["use"]), item.get("args") or {}, base_dir)
    if isinstance(item, list | tuple):
        return [_value(key, part, base_dir) for part in item]
    if isinstance(item, str) and key in _MODELS:
        return resolve_model(item, base_dir=base_dir).model
    return item
