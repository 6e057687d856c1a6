"""The classes that a compiled graph names: in its schemas, and in the code of its nodes."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, get_args, get_type_hints

from pydantic import BaseModel

_MANY: Final = 5_000
"""Objects that are looked at in the code of one graph."""
_PARTS: Final = ("func", "afunc", "coroutine", "bound", "steps", "tools_by_name", "__wrapped__")
"""Where runnables, tools and wrappers keep the functions that they call."""
_FOREIGN: Final = frozenset(
    {"langgraph", "langchain", "langchain_core", "pydantic", "wick_graph", "nodes"}
)
"""Packages whose functions name no class of a user."""


def graph_above() -> Any:
    """Return the compiled graph for which LangGraph calls a saver; None if there is none.

    LangGraph tells a saver what a graph's schemas name only where the environment says
    `LANGGRAPH_STRICT_MSGPACK`; the graph itself is always among the callers.
    """
    main = sys.modules.get("langgraph.pregel.main")
    frame = sys._getframe(2) if main is not None else None
    for _ in range(8):
        if frame is None or main is None:
            break
        if frame.f_globals is main.__dict__:
            graph = frame.f_locals.get("self")
            if isinstance(graph, main.Pregel):
                return graph
        frame = frame.f_back
    return None


def classes_of(graph: Any) -> set[type]:
    """Return the classes that a graph and its subgraphs name: in schemas, channels and code."""
    seen: set[Any] = set()
    below = _with_subgraphs(graph)
    for one in below:
        for schema in _schemas(one):
            _walk(schema, seen)
    for named in _in_code([node for one in below for node in _nodes(one)]):
        _walk(named, seen)
    return {one for one in seen if isinstance(one, type)}


def _in_code(left: list[Any]) -> Iterator[Any]:
    """Yield the types that functions name, their annotations, and those of what they call."""
    seen: dict[int, Any] = {}
    while left and len(seen) < _MANY:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, ModuleType):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, type):
            yield thing
        else:
            left += _parts(thing)
        if isinstance(thing, FunctionType) and not _is_foreign(thing):
            yield from _hints(thing)


def _with_subgraphs(graph: Any) -> list[Any]:
    try:
        return [graph, *(below for _, below in graph.get_subgraphs(recurse=True))]
    except Exception:  # a node's code that cannot be read
        return [graph]


def _nodes(graph: Any) -> Iterable[Any]:
    """Return a graph's nodes, without LangGraph's functions around those of the user."""
    built = getattr(getattr(graph, "builder", None), "nodes", {})
    nodes: Iterable[Any] = (node.runnable for node in built.values())
    return nodes if built else getattr(graph, "nodes", {}).values()


def _schemas(graph: Any) -> Iterator[Any]:
    builder = getattr(graph, "builder", None)
    for part in ("state_schema", "input_schema", "output_schema", "context_schema"):
        yield getattr(builder, part, None)
    for node in getattr(builder, "nodes", {}).values():
        yield getattr(node, "input_schema", None)
        yield from _formats(getattr(node, "runnable", None))
    for branches in getattr(builder, "branches", {}).values():
        for branch in branches.values():
            yield getattr(branch, "input_schema", None)
    for channel in getattr(graph, "channels", {}).values():
        for part in ("ValueType", "UpdateType"):
            yield getattr(channel, part, None)


def _formats(runnable: Any) -> Iterator[Any]:
    """Yield the classes of the structured answers that an agent of LangChain's is to give.

    Its state leaves them open; they are held by the functions of its nodes.
    """
    for function in (getattr(runnable, "func", None), getattr(runnable, "afunc", None)):
        for held in _closure(function):
            if type(held).__module__.split(".")[0] == "langchain":
                yield getattr(held, "schema", None)


def _closure(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # not yet bound
            yield cell.cell_contents


def _walk(annotation: Any, seen: set[Any]) -> None:
    """Add a type and all that it names."""
    try:
        if annotation in seen:
            return
        seen.add(annotation)
    except TypeError:  # something that cannot be hashed is no class
        return
    below: Iterable[Any] = get_args(annotation)
    alias = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
    if isinstance(annotation, type) and not below and _has_fields(annotation):
        below = _hints(annotation)
    for part in (*below, alias, getattr(annotation, "__bound__", None)):
        _walk(part, seen)


def _has_fields(cls: type) -> bool:
    has = issubclass(cls, (BaseModel, tuple, dict)) or dataclasses.is_dataclass(cls)
    return has and bool(getattr(cls, "__annotations__", None))


def _hints(annotated: Any) -> Iterable[Any]:
    try:
        hints: dict[str, Any] = get_type_hints(annotated, include_extras=True)
    except Exception:  # names that only its own function knows
        hints = annotated.__annotations__
    return hints.values()


def _parts(thing: Any) -> Iterator[Any]:
    """Yield what a runnable, a tool or a function is made of."""
    if isinstance(thing, (list, tuple)):
        yield from thing
    elif isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, MethodType):
        yield thing.__func__
    elif isinstance(thing, FunctionType):
        yield getattr(thing, "__wrapped__", None)
        yield from () if _is_foreign(thing) else _mentioned(thing)
    elif not isinstance(thing, (str, bytes, int, float, type(None))):
        held = getattr(thing, "__dict__", {})
        yield from (held[part] for part in _PARTS if part in held)


def _is_foreign(function: FunctionType) -> bool:
    return str(function.__module__).split(".")[0] in _FOREIGN


def _mentioned(function: FunctionType) -> Iterator[Any]:
    yield from _closure(function)
    left = [function.__code__]
    while left:
        code = left.pop()
        left += (part for part in code.co_consts if isinstance(part, CodeType))
        for name in code.co_names:
            if (thing := function.__globals__.get(name)) is not None:
                yield thing
