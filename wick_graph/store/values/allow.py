"""The user's own classes that may be stored: dataclasses, enums, pydantic models, named tuples.

A stored object names its class by a key, `module:qualified.name`. The key is looked up in this
list and nowhere else: nothing is imported because a database says so.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterable
from enum import Enum, Flag
from typing import Any, Final

from pydantic import BaseModel

from wick_graph.errors import StorageError

_set: Final = object.__setattr__


def key_of(cls: type) -> str:
    """Return the key under which objects of a class are stored."""
    return f"{cls.__module__}:{cls.__qualname__}"


class AllowList:
    """Classes given by hand, and (module, name) pairs that LangGraph collected from a graph."""

    def __init__(self, classes: Iterable[type] = (), names: Iterable[tuple[str, str]] = ()) -> None:
        self._classes: dict[str, type] = {}
        self._names = frozenset(names)
        for cls in classes:
            if not isinstance(cls, type) or kind_of(cls) is None:
                raise StorageError(
                    f"{cls!r} cannot be allowed: only dataclasses, enums, pydantic models and "
                    "named tuples can be stored"
                )
            self._classes[key_of(cls)] = cls

    def extended(self, pairs: Collection[tuple[str, ...]]) -> AllowList:
        """Return this list with more pairs, or itself if it has them all."""
        names = self._names | {(pair[0], pair[1]) for pair in pairs if len(pair) >= 2}
        return self if names == self._names else AllowList(self._classes.values(), names)

    def key(self, cls: type) -> str | None:
        """Return the key of an allowed class, None for any other."""
        key = key_of(cls)
        if self._classes.get(key) is cls:
            return key
        if (cls.__module__, cls.__name__) in self._names and kind_of(cls) is not None:
            self._classes[key] = cls
            return key
        return None

    def find(self, key: str) -> type:
        """Return the class of a stored key.

        Raises:
            StorageError: if the list does not hold it.
        """
        found = self._classes.get(key)
        if found is None and (found := self._loaded(key)) is not None:
            self._classes[key] = found
        if found is None:
            name = key.rpartition(":")[2]
            raise StorageError(
                f"a stored value is a {key!r}, which is not allowed here; "
                f"open the store with allow=[{name}]"
            )
        return found

    def _loaded(self, key: str) -> type | None:
        module, _, path = key.partition(":")
        if (module, path.rpartition(".")[2]) not in self._names:
            return None
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        return found if isinstance(found, type) and kind_of(found) is not None else None


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


def put_together(cls: type[Any], data: Any) -> Any:
    """Rebuild an allowed object without running its constructor or validators.

    Raises:
        StorageError: if the class changed so that the data no longer fits it.
    """
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
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            f"a stored {cls.__name__} no longer fits its class ({error}); "
            "restore the old fields or delete the thread"
        ) from error
    return made
