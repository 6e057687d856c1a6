"""How a function wants to be called: with one dictionary of arguments, or by their names."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from wick_graph.errors import ConfigError, ToolError
from wick_graph.tools.protocol import ToolContext

Execute = Callable[[dict[str, Any], ToolContext | None], Any]
"""One call, whatever the function's own form."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell whether a call gives a coroutine, also behind `partial` and `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    call = fn if inspect.isroutine(fn) else type(fn).__call__
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def takes_context(hint: Any) -> bool:
    """Tell whether a type hint asks for the `ToolContext`, also as `ToolContext | None`."""
    if hint is ToolContext:
        return True
    if get_origin(hint) in (Annotated, Union, types.UnionType):
        return any(takes_context(part) for part in get_args(hint))
    return False


def with_context(names: tuple[str, ...], ctx: ToolContext | None) -> dict[str, Any]:
    """Return the keyword arguments that carry the context.

    Raises:
        ToolError: There is no context, and a parameter needs one.
    """
    if names and ctx is None:
        raise ToolError("this tool needs a ToolContext; give one, or call the function itself")
    return dict.fromkeys(names, ctx)


def adapt(fn: Callable[..., Any], parameters: Mapping[str, Any], name: str) -> tuple[Execute, bool]:
    """Return how to call a function, and whether it refuses arguments it does not name.

    Raises:
        ConfigError: The function takes neither the schema's properties nor `args`.
    """
    declared = list(_signature(fn, name).parameters.values())
    properties = set(parameters.get("properties", {}))
    positional = [p for p in declared if p.kind in _POSITIONAL]
    takes_dict = bool(positional) and positional[0].name == "args"
    if not takes_dict and (call := _by_name(fn, declared, properties)) is not None:
        return call
    others = [p for p in declared if p.kind == p.VAR_POSITIONAL]
    needed = [
        p for p in declared if p.default is p.empty and p.kind in (*_POSITIONAL, p.KEYWORD_ONLY)
    ]
    clash = not takes_dict and any(p.name in properties for p in declared)
    if clash or not (positional or others) or len(needed) > 2:
        raise ConfigError(
            f"tool {name}: its function takes neither the arguments that the parameters name, "
            "nor (args), nor (args, ctx); rename its parameters"
        )
    if len(positional) > 1 or others:
        return (lambda args, ctx: fn(args, ctx)), False
    return (lambda args, ctx: fn(args)), False


def _by_name(
    fn: Callable[..., Any], declared: list[inspect.Parameter], properties: set[str]
) -> tuple[Execute, bool] | None:
    """Pass arguments by name, if what the schema has and what the function has go together."""
    hints = _hints(fn)
    contexts = tuple(p.name for p in declared if takes_context(hints.get(p.name)))
    mine = [p for p in declared if p.name not in contexts]
    open_ended = any(p.kind == p.VAR_KEYWORD for p in mine)
    nameable = {p.name for p in mine if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    needed = {
        p.name
        for p in mine
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if not needed <= (properties & nameable) or not (open_ended or properties <= nameable):
        return None
    return (lambda args, ctx: fn(**args, **with_context(contexts, ctx))), not open_ended


def _signature(fn: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"tool {name}: its function has no signature that can be read; wrap it in a def"
        ) from error


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}  # no hint that can be read is none that asks for a context
