"""The allow-list of classes that may be stored, and the classes that a compiled graph names."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, Flag
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, get_args, get_type_hints
from weakref import WeakSet

from langchain_core import agents, outputs, prompt_values
from langgraph.types import PregelTask, StateSnapshot
from pydantic import BaseModel

from wick_graph.errors import StorageError

# --- The classes that a compiled graph names: in its schemas, and in the code of its nodes.


_MANY: Final = 5_000
"""The most objects that are examined in the code of one graph."""

_PARTS: Final = ("func", "afunc", "coroutine", "bound", "steps", "tools_by_name", "__wrapped__")
"""Where runnables, tools and wrappers keep the functions that they call."""

_FOREIGN: Final = frozenset(
    {"langgraph", "langchain", "langchain_core", "pydantic", "wick_graph", "nodes"}
)
"""Packages with functions that name no class of a user."""


def graph_above() -> Any:
    """Return the compiled graph for which LangGraph calls a saver; None if there is none.

    LangGraph tells a saver the classes in a graph's schemas only if the environment says
    `LANGGRAPH_STRICT_MSGPACK`. But the graph itself is always among the callers.
    """
    main = sys.modules.get("langgraph.pregel.main")
    frame = sys._getframe(2) if main is not None else None
    for _ in range(8):
        if frame is None or main is None:
            break
        if frame.f_globals.get("__name__") == main.__name__:  # or a copy: see engine/lean.py
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
    """Yield the types that functions name, in code and annotations, and those of their callees."""
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
    """Return a graph's nodes, without the functions that LangGraph puts around the user's."""
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
    """Yield the classes of the structured answers of a LangChain agent.

    Its state does not name them; the functions of its nodes hold them.
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
    """Add a type and all types that it names."""
    try:
        if annotation in seen:
            return
        seen.add(annotation)
    except TypeError:  # what cannot be hashed is no class
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


# --- Classes that may be stored: dataclasses, enums, pydantic models, named tuples.
#
# A stored object names its class by a key, `module:qualified.name`. The key is looked up only among
# the classes that this process was given, by hand (`allow=`) or by a compiled graph. Nothing is
# imported, and no class is found by a name from the database.


_LANGCHAIN: Final[tuple[type, ...]] = (
    agents.AgentAction,
    agents.AgentActionMessageLog,
    agents.AgentFinish,
    agents.AgentStep,
    outputs.ChatGeneration,
    outputs.ChatGenerationChunk,
    outputs.ChatResult,
    outputs.Generation,
    outputs.GenerationChunk,
    outputs.LLMResult,
    outputs.RunInfo,
    prompt_values.ChatPromptValue,
    prompt_values.ChatPromptValueConcrete,
    prompt_values.ImagePromptValue,
    prompt_values.StringPromptValue,
    PregelTask,
    StateSnapshot,
)

_set: Final = object.__setattr__


def key_of(cls: type) -> str:
    """Return the key of a class in stored objects."""
    return f"{cls.__module__}:{cls.__qualname__}"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a class that this process does not know, or that changed; can be stored again.

    `name` is `module:qualified.name` of its class. `data` is what was stored of it: a dict of a
    dataclass's fields, a list of a named tuple's, an enum's name; for a pydantic model its fields,
    its extra fields, and the names of the fields that were set.
    """

    name: str
    data: Any


class AllowList:
    """The classes given by hand and by graphs, and (module, name) pairs from LangGraph."""

    def __init__(self, classes: Iterable[type] = (), names: Iterable[tuple[str, str]] = ()) -> None:
        self._classes: dict[str, type] = {}
        self._given: WeakSet[type] = WeakSet()
        self._names = frozenset(names)
        self._read: WeakSet[Any] = WeakSet()
        self._unread: WeakSet[Any] = WeakSet()
        self.missed = 0
        """How often a class was not known."""
        self._take(_LANGCHAIN)
        for cls in classes:
            if not isinstance(cls, type) or kind_of(cls) is None:
                raise StorageError(
                    f"{cls!r} cannot be allowed: only dataclasses, enums, pydantic models and "
                    "named tuples can be stored"
                )
            self._take([cls])

    def extended(self, pairs: Collection[tuple[str, ...]]) -> AllowList:
        """Return this list with more pairs, or itself if it has them all."""
        names = self._names | {(pair[0], pair[1]) for pair in pairs if len(pair) >= 2}
        if names == self._names:
            return self
        made = AllowList(self._classes.values(), names)
        for module, name in names:
            cls = getattr(sys.modules.get(module), name, None)
            if isinstance(cls, type):
                made._take([cls])
        return made

    def note_graph(self, graph: Any) -> None:
        """Note a compiled graph; it is searched for classes when an unknown one comes."""
        if graph not in self._read:
            self._unread.add(graph)

    def key(self, cls: type) -> str | None:
        """Return the key of an allowed class; None for any other."""
        if cls not in self._given and kind_of(cls) is not None:
            self._look_at_graphs()
            if (cls.__module__, cls.__name__) in self._names:
                self._take([cls])
        return key_of(cls) if cls in self._given else None

    def find(self, key: str) -> type | None:
        """Return the class of a stored key; None if this process does not know it."""
        if key not in self._classes:
            self._look_at_graphs()
        found = self._classes.get(key)
        self.missed += found is None
        return found

    def _look_at_graphs(self) -> None:
        while self._unread:
            graph = self._unread.pop()
            self._read.add(graph)
            self._take(classes_of(graph))

    def _take(self, classes: Iterable[type]) -> None:
        """Allow classes; if two have the same key, objects are read back as the later one."""
        for cls in classes:
            if kind_of(cls) is not None:
                self._classes[key_of(cls)] = cls
                self._given.add(cls)


def kind_of(cls: type) -> str | None:
    """Return the kind of a class, by which its objects are stored; None if they cannot be."""
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, BaseModel):
        return "model"
    if dataclasses.is_dataclass(cls):
        return "data"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "tuple"
    return None


def take_apart(value: Any) -> Any:
    """Return the plain data of an allowed object."""
    kind = kind_of(type(value))
    if kind == "enum":
        return value.value if isinstance(value, Flag) else value.name
    if kind == "model":
        private = value.__pydantic_private__
        held = {n: value.__dict__[n] for n in type(value).model_fields if n in value.__dict__}
        parts = [held, value.__pydantic_extra__, sorted(value.__pydantic_fields_set__)]
        return [*parts, private] if private else parts
    if kind == "data":
        fields = dataclasses.fields(value)
        return {f.name: getattr(value, f.name) for f in fields if hasattr(value, f.name)}
    return list(value)


def put_together(key: str, cls: type[Any] | None, data: Any) -> Any:
    """Rebuild an allowed object without running its constructor or validators.

    Return a `StoredObject` if the class is unknown, or changed so that the data no longer fits.
    """
    if cls is None:
        return StoredObject(key, data)
    kind = kind_of(cls)
    try:
        if kind == "enum":
            return cls[data] if isinstance(data, str) else cls(data)
        if kind == "tuple":
            return cls._make(data)
        made = object.__new__(cls)
        if kind == "data":
            for name, field in data.items():
                _set(made, name, field)
            return made
        held, extra, chosen, *private = data
        _set(made, "__dict__", held)
        _set(made, "__pydantic_fields_set__", set(chosen))
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_private__", private[0] if private else None)
    except (KeyError, TypeError, ValueError, AttributeError):
        return StoredObject(key, data)
    return made
