"""Which elements of a channel a step may have changed in place: those that it wrote.

Elements that are stored are recognised by identity, so that a step costs what is new in it. An
object that was changed and written back is the same object with another content: it is encoded
again. What a reducer made of the writes is not known here; if it did not put them into the value,
one for one, it may have changed any element, and all are encoded again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from langchain_core.messages import RemoveMessage
from langgraph.types import Overwrite

FIXED: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose objects never change."""
NOTHING: Final[tuple[Any, ...]] = ()
"""The writes to a channel that did not change."""
ALL: Final = None
"""In place of suspects: any element may have changed."""
Suspects = set[int] | None
"""Ids of the objects whose identity says nothing; `ALL` if none does."""


def suspects(
    written: Sequence[Any] | None, values: Collection[Any], tail: Collection[Any], paired: bool
) -> Suspects:
    """Return which elements of a channel's value must be compared by their content.

    Args:
        written: What the step wrote to the channel; None if that is not known.
        values: The elements of the channel's value.
        tail: Those that are not known to be stored, as far as identity says.
        paired: The channel holds a dict.
    """
    if written is None:
        return ALL
    if not written:
        return set()
    elements = {id(element): element for value in written for element in _elements(value, paired)}
    ids = set(map(id, tail))
    missing = elements.keys() - ids
    if missing:
        missing -= set(map(id, values))
        new = ids - elements.keys()
        if sum(type(elements[one]) is not RemoveMessage for one in missing) > len(new):
            return ALL
    return {one for one, element in elements.items() if type(element) not in FIXED}


def _elements(value: Any, paired: bool) -> Iterable[Any]:
    if type(value) is Overwrite:
        value = value.value
    if isinstance(value, (list, tuple)):
        return value
    return value.values() if paired and isinstance(value, dict) else (value,)
