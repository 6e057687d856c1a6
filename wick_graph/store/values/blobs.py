"""Long texts inside values, stored once per thread however often they come.

A state that holds the same long text in ever new surroundings (a system prompt that is composed
anew for each model call) would otherwise cost that text at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

HASH_BYTES: Final = 16
LONG: Final = 512
"""Bytes from which a text is stored apart."""
WORTH: Final = 1_024
"""Bytes of a value from which it is searched for long texts."""
_TEXT: Final = b"text"
_PLAIN: Final = (list, dict, tuple)
_LEVELS: Final = 16
_NARROW: Final = LONG // 4


@dataclass(frozen=True, slots=True)
class Blob:
    """Stands in a value for a text that lies elsewhere."""

    hash: bytes


def hash_of(data: bytes) -> bytes:
    """Return the hash of a text's bytes."""
    return blake2b(data, digest_size=HASH_BYTES).digest()


def key_of(hashed: bytes) -> bytes:
    """Return the key of a text's row; no other rows of that table have such keys."""
    return _TEXT + hashed


def is_text_key(key: bytes) -> bool:
    """Say whether a row of the table is a text's."""
    return key.startswith(_TEXT) and len(key) == len(_TEXT) + HASH_BYTES


def lifted(value: Any, lift: Callable[[str], Blob], levels: int = _LEVELS) -> Any:
    """Copy plain containers with a `Blob` for each long text; return the very value if none is."""
    if type(value) not in _PLAIN or not levels:
        return lift(value) if type(value) is str and _is_long(value) else value
    if type(value) is dict:
        items = [lifted(item, lift, levels - 1) for item in value.values()]
        if all(map(_same, items, value.values())):
            return value
        return dict(zip(value, items, strict=True))
    parts = [lifted(item, lift, levels - 1) for item in value]
    if all(map(_same, parts, value)):
        return value
    return parts if type(value) is list else tuple(parts)


def hashes_in(data: bytes, mark: bytes) -> Iterator[bytes]:
    """Yield everything in encoded bytes that may be a blob's key; `mark` stands before each."""
    at = data.find(mark)
    while at >= 0:
        start = at + len(mark)
        yield data[start : start + HASH_BYTES]
        at = data.find(mark, at + 1)


def _same(one: Any, other: Any) -> bool:
    return one is other


def _is_long(text: str) -> bool:
    return len(text) >= LONG or (
        len(text) >= _NARROW and len(text.encode("utf-8", "surrogatepass")) >= LONG
    )
