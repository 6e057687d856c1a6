"""LangChain's messages and documents as their non-default fields, and back without validation.

Numbers stand for classes and single letters for fields; both tables are part of the file format,
so entries are added and never changed. A rebuilt object equals the one that was stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
_MISSING: Final = object()
_set: Final = object.__setattr__


@dataclass(frozen=True, slots=True)
class Shape:
    """How one class is written and rebuilt."""

    number: int
    cls: type[BaseModel]
    fields: tuple[tuple[str, str, Any], ...]
    """Name, letter and default of every field; a required field has a default nothing equals."""
    fixed: dict[str, Any]
    """Every field with its immutable default, in the order of the class."""
    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    """Fields whose default must be made anew for each object."""
    names: dict[str, str]
    """Letters to names."""
    open: bool
    """Whether the class takes fields that it does not declare."""

    def write(self, value: BaseModel, *, with_id: bool = True) -> list[Any]:
        """Return number, non-default fields and extras; leave the id out on request."""
        held = value.__dict__
        parts: dict[str, Any] = {}
        for name, letter, default in self.fields:
            field = held.get(name, _MISSING)
            if field is default or field is _MISSING:
                continue
            if type(field) is type(default) and field == default:
                continue
            if with_id or letter != "i":
                parts[letter] = field
        extra = value.__pydantic_extra__
        return [self.number, parts, extra] if extra else [self.number, parts]

    def read(self, parts: dict[str, Any], extra: dict[str, Any] | None = None) -> Any:
        """Rebuild an object from its non-default fields; raises KeyError for an unknown letter."""
        held = self.fixed.copy()
        for fresh, make in self.fresh:
            held[fresh] = make()
        names, given = self.names, set()
        for letter, field in parts.items():
            name = names[letter]
            held[name] = field
            given.add(name)
        made = self.cls.__new__(self.cls)
        _set(made, "__dict__", held)
        _set(made, "__pydantic_fields_set__", given)
        _set(made, "__pydantic_extra__", (extra or {}) if self.open else None)
        _set(made, "__pydantic_private__", None)
        return made


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
    return Shape(number, cls, tuple(fields), fixed, tuple(fresh), names, extra)


BY_NUMBER: Final[dict[int, Shape]] = {n: _shape(n, cls) for n, cls in _CLASSES.items()}
BY_CLASS: Final[dict[type, Shape]] = {shape.cls: shape for shape in BY_NUMBER.values()}
MESSAGES: Final[dict[type, Shape]] = {
    cls: shape for cls, shape in BY_CLASS.items() if issubclass(cls, BaseMessage)
}
"""The classes whose objects carry an id that is kept beside the rest."""
