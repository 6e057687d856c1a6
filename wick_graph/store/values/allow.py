"""Classes whose objects may be stored: dataclasses, enums, pydantic models, named tuples.

A stored object names its class by a key, `module:qualified.name`. The key is looked up among the
classes that this process was given, by hand (`allow=`) or by a compiled graph, and nowhere else:
nothing is imported or found by a name because a database says so.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any, Final
from weakref import WeakSet

from langchain_core import agents, outputs, prompt_values
from langgraph.types import PregelTask, StateSnapshot
from pydantic import BaseModel

from wick_graph.errors import StorageError
from wick_graph.store.values import named

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
    """Return the key under which objects of a class are stored."""
    return f"{cls.__module__}:{cls.__qualname__}"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object whose class this process does not know, or no longer fits; it can be stored again.

    `name` is `module:qualified.name` of its class. `data` is what was stored of it: a dict of a
    dataclass's fields, a list of a named tuple's, an enum's name; of a pydantic model the fields,
    the extra ones, and the names of those that were set.
    """

    name: str
    data: Any


class AllowList:
    """Classes given by hand, by graphs, and (module, name) pairs that LangGraph collected."""

    def __init__(self, classes: Iterable[type] = (), names: Iterable[tuple[str, str]] = ()) -> None:
        self._classes: dict[str, type] = {}
        self._given: WeakSet[type] = WeakSet()
        self._names = frozenset(names)
        self._read: WeakSet[Any] = WeakSet()
        self._unread: WeakSet[Any] = WeakSet()
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
        """Take in a compiled graph; what it names is looked at when a class is unknown."""
        if graph not in self._read:
            self._unread.add(graph)

    def key(self, cls: type) -> str | None:
        """Return the key of an allowed class, None for any other."""
        if cls not in self._given and kind_of(cls) is not None:
            self._look_at_graphs()
            if (cls.__module__, cls.__name__) in self._names:
                self._take([cls])
        return key_of(cls) if cls in self._given else None

    def find(self, key: str) -> type | None:
        """Return the class of a stored key; None if this process was not given it."""
        if key not in self._classes:
            self._look_at_graphs()
        return self._classes.get(key)

    def _look_at_graphs(self) -> None:
        while self._unread:
            graph = self._unread.pop()
            self._read.add(graph)
            self._take(named.classes_of(graph))

    def _take(self, classes: Iterable[type]) -> None:
        """Allow classes; of two that have one key, objects are read back as the later one."""
        for cls in classes:
            if kind_of(cls) is not None:
                self._classes[key_of(cls)] = cls
                self._given.add(cls)


def kind_of(cls: type) -> str | None:
    """Say how objects of a class are taken apart; None if they cannot be."""
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

    A class that is not known, or that changed so that the data no longer fits it, makes a
    `StoredObject`.
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
