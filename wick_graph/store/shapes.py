"""LangChain's messages and documents as their non-default fields, and back without validation.

Classes are encoded as numbers, and fields as single letters. Both tables are part of the file
format: add entries, never change one. A rebuilt object equals the one that was stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import is_not
from typing import Any, Final

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from pydantic import BaseModel

# --- The fields of each class.


_CLASSES: Final[dict[int, type[BaseModel]]] = {
    1: HumanMessage,
    2: AIMessage,
    3: ToolMessage,
    4: SystemMessage,
    5: ChatMessage,
    6: FunctionMessage,
    7: RemoveMessage,
    8: HumanMessageChunk,
    9: AIMessageChunk,
    10: ToolMessageChunk,
    11: SystemMessageChunk,
    12: ChatMessageChunk,
    13: FunctionMessageChunk,
    14: Document,
}

_LETTERS: Final = {
    "content": "c",
    "additional_kwargs": "k",
    "response_metadata": "r",
    "type": "t",
    "name": "n",
    "id": "i",
    "tool_calls": "u",
    "invalid_tool_calls": "v",
    "usage_metadata": "g",
    "tool_call_chunks": "h",
    "chunk_position": "p",
    "tool_call_id": "o",
    "artifact": "a",
    "status": "s",
    "role": "l",
    "metadata": "m",
    "page_content": "d",
    "example": "e",
}

ID: Final = _LETTERS["id"]

_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of one class, to write and to rebuild its objects."""

    number: int
    cls: type[BaseModel]
    fields: tuple[tuple[str, str, Any], ...]
    """Name, letter and default of each field; nothing equals the default of a required field."""
    defaults: tuple[Any, ...]
    """The same defaults."""
    fixed: dict[str, Any]
    """Each field with its immutable default, in the order of the class."""
    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    """Fields with a mutable default, made for each object."""
    names: dict[str, str]
    """By letter, the names of the fields."""
    open: bool
    """Whether the class accepts fields that it does not declare."""

    def write(self, value: BaseModel, *, with_id: bool = True) -> list[Any]:
        """Return number, non-default fields and extras; leave the id out on request."""
        held = value.__dict__
        parts: dict[str, Any] = {}
        others = map(is_not, map(held.get, self.names.values()), self.defaults)
        for name, letter, default in compress(self.fields, others):
            field = held.get(name, _MISSING)
            if field is _MISSING:
                continue
            if type(field) is type(default) and field == default:
                continue
            if with_id or letter != ID:
                parts[letter] = field
        extra = value.__pydantic_extra__
        return [self.number, parts, extra] if extra else [self.number, parts]


def _shape(number: int, cls: type[BaseModel]) -> Shape:
    fields: list[tuple[str, str, Any]] = []
    fixed: dict[str, Any] = {}
    fresh: list[tuple[str, Callable[[], Any]]] = []
    for name, info in cls.model_fields.items():
        default = info.get_default(call_default_factory=True, validated_data={})
        required = info.is_required()
        fields.append((name, _LETTERS[name], _MISSING if required else default))
        fixed[name] = None if required else default
        if isinstance(default, (list, dict)) and not required:
            fresh.append((name, type(default)))
    names = {letter: name for name, letter, _ in fields}
    extra = cls.model_config.get("extra") == "allow"
    defaults = tuple([default for _, _, default in fields])
    return Shape(number, cls, tuple(fields), defaults, fixed, tuple(fresh), names, extra)


BY_NUMBER: Final[dict[int, Shape]] = {n: _shape(n, cls) for n, cls in _CLASSES.items()}

BY_CLASS: Final[dict[type, Shape]] = {shape.cls: shape for shape in BY_NUMBER.values()}

MESSAGES: Final[dict[type, Shape]] = {
    cls: shape for cls, shape in BY_CLASS.items() if issubclass(cls, BaseMessage)
}
"""The classes of messages: their id is stored apart from the rest."""


# --- Rebuilding: a history holds hundreds of messages with values of the same few sets of fields.


_slots: Final[dict[str, Any]] = {
    name: vars(BaseModel)[f"__{name}__"].__set__
    for name in ("dict", "pydantic_fields_set", "pydantic_extra", "pydantic_private")
}

_set_dict: Final = _slots["dict"]

_set_given: Final = _slots["pydantic_fields_set"]

_set_extra: Final = _slots["pydantic_extra"]

_set_private: Final = _slots["pydantic_private"]
"""How pydantic's slots are set past its own `__setattr__`, at half the cost of `object`'s."""

_new: Final = object.__new__


@lru_cache(maxsize=256)  # a database from elsewhere may hold any fields in any order
def _plan(
    number: int, *letters: str
) -> tuple[
    type[BaseModel],
    tuple[str, ...],
    dict[str, Any],
    frozenset[str],
    tuple[tuple[str, Callable[[], Any]], ...],
    bool,
]:
    """Return the class, the fields' names, all fixed defaults, the given fields, what is fresh.

    And whether the class accepts other fields. Raise KeyError for an unknown number or letter.
    """
    shape = BY_NUMBER[number]
    names = tuple([shape.names[letter] for letter in letters])
    fresh = tuple([(name, make) for name, make in shape.fresh if name not in names])
    return shape.cls, names, shape.fixed, frozenset(names), fresh, shape.open


def rebuilt(number: int, parts: dict[str, Any], extra: dict[str, Any] | None = None) -> Any:
    """Rebuild an object from the non-default fields that `Shape.write` returned.

    Raises:
        KeyError: The class or a field is unknown.
    """
    cls, names, fixed, given, fresh, is_open = _plan(number, *parts)
    held = fixed.copy()
    held.update(zip(names, parts.values(), strict=True))
    for name, make in fresh:
        held[name] = make()
    made = _new(cls)
    _set_dict(made, held)
    _set_given(made, set(given))
    _set_extra(made, (extra or {}) if is_open else None)
    _set_private(made, None)
    return made
