"""The bytes of a row: ids, check values, bodies of checkpoints and writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, count
from typing import Any, Final

import ormsgpack
from langchain_core.messages import BaseMessage

from wick_graph.errors import StorageError
from wick_graph.store.codec import FORMAT, Codec

# --- The bytes of a row: ids, check values, and the bodies of checkpoints and writes.


CHECK_BYTES: Final = 8

MAX_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a row's body; every database and driver accepts as many."""

_FORMAT_BYTE: Final = bytes((FORMAT,))

_SOURCES: Final = frozenset({"input", "loop", "update", "fork"})

_UUID: Final = re.compile("[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_STAMP: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}(?::[0-9]{2}){2}\.[0-9]{6}\+00:00")

_NO_OFFSET: Final = timedelta(0)

_MICROSECOND: Final = timedelta(microseconds=1)

Context = bytes | int | str | None

Form = bytes | int | list[Any]
"""A stored value: its encoding, the key of the item that holds it, or a sequence of items.

A sequence is `[kind, [lane, start, count, start, count, …], [lane, …]]`; see `sharing`.
"""


def text_bytes(text: str) -> bytes:
    """Encode text for a database column, lone surrogates and NUL included."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """Undo `text_bytes`."""
    return data.decode("utf-8", "surrogatepass")


@lru_cache(maxsize=1024)
def pack_id(text: str) -> bytes:
    """Encode an id: a canonical UUID as 16 bytes, any other text in a form of another length.

    The order of UUIDs is kept. The mark 0xFF occurs in no UTF-8 text, so the two never collide.
    """
    if _UUID.fullmatch(text):
        return bytes.fromhex(text.replace("-", ""))
    data = b"\xff" + text_bytes(text)
    return data + b"\xff" if len(data) == 16 else data


def unpack_id(data: bytes) -> str:
    """Undo `pack_id`."""
    if len(data) == 16:
        text = data.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return bytes_text(data.strip(b"\xff"))


_PATHS: Final = (
    (b"~__pregel_pull, ", b"\xff"),
    (b"~__pregel_push, ", b"\xfe"),
    (b"0" * 9, b"\xfd"),
)
"""What LangGraph's paths of tasks repeat, and the bytes for it, which occur in no UTF-8 text."""


@lru_cache(maxsize=1024)
def pack_path(text: str) -> bytes:
    """Encode the path of a task; schema 7 had no short forms."""
    data = text_bytes(text)
    for long, short in _PATHS:
        data = data.replace(long, short)
    return data


@lru_cache(maxsize=1024)
def unpack_path(data: bytes) -> str:
    """Undo `pack_path`."""
    for long, short in _PATHS:
        data = data.replace(short, long)
    return bytes_text(data)


def is_source(value: object) -> bool:
    """Return whether the metadata's source has its own column."""
    return isinstance(value, str) and value in _SOURCES


def is_step(value: object) -> bool:
    """Return whether the metadata's step has its own column."""
    return type(value) is int and abs(value) < 2**62


def seal(payload: bytes, *context: Context) -> bytes:
    """Put a check value and the format byte before a body.

    The check also covers the context, which is the row's own keys. So it reveals a row that was
    moved, or that has changed columns.

    Raises:
        StorageError: The body is larger than `MAX_BYTES`.
    """
    if len(payload) > MAX_BYTES:
        raise StorageError(too_large(payload))
    payload = _FORMAT_BYTE + payload
    # Here and in `unseal`, without a call of its own: each row of a thread passes one of them.
    check = blake2b(ormsgpack.packb(context) + payload, digest_size=CHECK_BYTES)
    return check.digest() + payload


def unseal(body: bytes, what: str, *context: Context) -> bytes:
    """Return the payload of a sealed body.

    Raises:
        StorageError: The check value or the format byte is wrong; the text names `what`.
    """
    if type(body) is not bytes:
        raise StorageError(f"{what} is damaged: a row has no body; restore a backup")
    payload = body[CHECK_BYTES:]
    check = blake2b(ormsgpack.packb(context) + payload, digest_size=CHECK_BYTES)
    if body[:CHECK_BYTES] != check.digest():
        raise StorageError(f"{what} is damaged: its check value is wrong; restore a backup")
    if payload[:1] != _FORMAT_BYTE:
        raise StorageError(f"{what} has an unknown format; upgrade wick_graph")
    return payload[1:]


def too_large(payload: bytes) -> str | None:
    """Return why a body is too large to store; None if it is not."""
    if len(payload) <= MAX_BYTES:
        return None
    return (
        f"a value of {len(payload):,} bytes cannot be stored, {MAX_BYTES:,} is the most; "
        "write it to a file, and store the path"
    )


_SINCE_8: Final = 9
"""How many parts a body has, since schema 8, behind its version and its time."""

_VERSIONS: Final = frozenset({int, str})
"""Types that share no equal values, so a table can hold both; other versions are stored as such."""


_BELOW: Final = 100
"""How far below the first number others may be: a thread's numbers are given out together."""


def _counted_from(numbers: list[int]) -> tuple[int, bytes | list[int]]:
    """Return a number, and how far others are above it: a byte for each, if that is enough."""
    low = numbers[0] - _BELOW if numbers else 0
    return low, _small([*map((-low).__add__, numbers)])


@lru_cache(maxsize=512)
def _counted_on(low: int, above: bytes) -> list[int]:
    """Undo `_counted_from`; the list is for all who ask, so take parts of it only."""
    return [number + low for number in above]


def _small(numbers: list[int]) -> bytes | list[int]:
    """Return numbers as one byte each, if each is small enough."""
    try:
        return bytes(numbers)
    except ValueError:
        return numbers


@dataclass(slots=True)
class CheckpointBody:
    """A checkpoint without its values: versions, the nodes that saw them, and the values' forms.

    Channels and nodes are numbers of the thread's name table. A row has the numbers of all parts
    in one list, counted from about the first, and each version once; rows before schema 8 have the
    parts as they are here.
    """

    v: int
    ts: str
    versions: list[Any]
    """Channel, version, channel, version, …"""
    seen: list[Any]
    """Node, [channel, version, …], node, …"""
    values: list[Any]
    """Channel, form, channel, form, …"""
    updated: list[int] | None
    extra: bytes | None
    """Keys of the checkpoint that this release does not know."""
    seq: int | None = None
    """The number of the row, so that the check value covers it; None in rows of schema 1."""

    def dump(self) -> bytes:
        """Encode the body."""
        stamp, versions, seen, updated = _pack_time(self.ts), self.versions, self.seen, self.updated
        flats = seen[1::2]
        pairs = [*versions, *chain.from_iterable(flats)]
        marks = pairs[1::2]
        if self.seq is None or not _VERSIONS.issuperset(map(type, marks)):
            plain = (self.v, stamp, versions, seen, self.values, updated, self.extra)
            return ormsgpack.packb(plain if self.seq is None else (*plain, self.seq))
        table = dict(zip(dict.fromkeys(marks), count(), strict=False))
        numbers = [*pairs[::2], *seen[::2], *self.values[::2], *(updated or ())]
        low, above = _counted_from(numbers)
        places = _small([*map(table.__getitem__, marks)])
        sizes = _small([len(versions), *map(len, flats)])
        rest = (self.values[1::2], None if updated is None else len(updated), self.extra, self.seq)
        return ormsgpack.packb((self.v, stamp, low, above, [*table], places, sizes, *rest))

    @classmethod
    def load(cls, data: bytes) -> CheckpointBody:
        """Decode a body after its check value was verified."""
        v, stamp, *rest = ormsgpack.unpackb(data)
        if len(rest) < _SINCE_8:
            return cls(v, _unpack_time(stamp), *rest)
        low, numbers, table, marks, sizes, forms, updated, extra, seq = rest
        if type(numbers) is bytes:
            numbers = _counted_on(low, numbers)
        else:
            numbers = [number + low for number in numbers]
        at, end = len(marks), sizes[0]
        pairs: list[Any] = [None] * (2 * at)
        pairs[::2], pairs[1::2] = numbers[:at], map(table.__getitem__, marks)
        versions = pairs[:end]
        seen: list[Any] = []
        for size in sizes[1:]:
            seen += (numbers[at], pairs[end : end + size])
            at, end = at + 1, end + size
        values: list[Any] = [None] * (2 * len(forms))
        values[::2], values[1::2] = numbers[at : at + len(forms)], forms
        changed = None if updated is None else numbers[at + len(forms) :]
        return cls(v, _unpack_time(stamp), versions, seen, values, changed, extra, seq)

    def forms(self) -> Iterable[tuple[int, Form]]:
        """Yield each channel with the form of its value."""
        return zip(self.values[::2], self.values[1::2], strict=True)


@dataclass(slots=True)
class WritesBody:
    """All writes of one task, flat: index, channel, form, and so on."""

    flat: list[Any] = field(default_factory=list)

    def dump(self) -> bytes:
        """Encode the body."""
        return ormsgpack.packb(self.flat)

    @classmethod
    def load(cls, data: bytes) -> WritesBody:
        """Decode a body after its check value was verified."""
        return cls(ormsgpack.unpackb(data))

    def entries(self) -> Iterable[tuple[int, int, Form]]:
        """Yield the index, the channel and the form of each write."""
        flat = self.flat
        return zip(flat[::3], flat[1::3], flat[2::3], strict=True)

    def put(self, index: int, channel: int, form: Form) -> None:
        """Add a write; one with a negative index replaces the earlier one."""
        if index < 0 and index in self.flat[::3]:
            self.merge(WritesBody([index, channel, form]))
        else:
            self.flat += (index, channel, form)

    def merge(self, later: WritesBody) -> bool:
        """Add later writes: those with a negative index replace, others only fill gaps.

        Return whether anything changed.
        """
        held = {index: (channel, form) for index, channel, form in self.entries()}
        before = dict(held)
        for index, channel, form in later.entries():
            if index < 0 or index not in held:
                held[index] = (channel, form)
        self.flat = [part for index, rest in held.items() for part in (index, *rest)]
        return held != before


def _pack_time(text: str) -> int | str:
    """Shorten a time stamp that LangGraph wrote; any other stays text."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return text
    usual = moment.microsecond and _STAMP.fullmatch(text)  # a fifth of the cost of `isoformat`
    if not usual and (moment.utcoffset() != _NO_OFFSET or moment.isoformat() != text):
        return text
    return (moment - _EPOCH) // _MICROSECOND


def _unpack_time(stamp: int | str) -> str:
    return stamp if isinstance(stamp, str) else (_EPOCH + stamp * _MICROSECOND).isoformat()


# --- Debug mode: find elements that were changed in place and not written.
#
# Elements are recognised by identity, which makes a step cheap. If a step writes an element, it is
# compared with what is stored. If an element is only changed in place, it is not saved again. Debug
# mode encodes and compares all elements at every step.


_KEPT: Final = 200_000

_CHANGEABLE: Final = (list, dict, set, bytearray)


class Marks:
    """Digests of the elements of a thread's values, as they were saved."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, bytes]] = {}

    def check(
        self,
        codec: Codec,
        values: Iterable[Any],
        channel: str,
        changed: Collection[int] | None = (),
    ) -> None:
        """Compare elements with their earlier digests, and note new ones.

        Elements with ids in `changed` are saved again, and may differ; None means all.

        Raises:
            StorageError: An element was changed in place; the text names the first one.
        """
        for index, value in enumerate(values):
            if not isinstance(value, _CHANGEABLE) and not hasattr(value, "__dict__"):
                continue
            mark = blake2b(b"".join(codec.split(value)), digest_size=16).digest()
            known = self._seen.get(id(value))
            saved = changed is None or id(value) in changed
            if known is None or known[0] is not value or saved:
                if len(self._seen) >= _KEPT:
                    self._seen.clear()
                self._seen[id(value)] = (value, mark)
            elif known[1] != mark:
                raise StorageError(
                    f"{_named(value)} at index {index} of channel {channel!r} was changed in place "
                    "after it was saved and never written; return it from the node that changes it"
                )


def _named(value: Any) -> str:
    if isinstance(value, BaseMessage):
        return f"message {value.id!r}"
    return f"the {type(value).__name__}"


_BEFORE: Final = CHECK_BYTES + 1


@dataclass(frozen=True, slots=True)
class Seals:
    """How the rows of one thread are sealed and opened."""

    seal: Callable[..., bytes]
    """Seal a payload; the further arguments are the context, the keys of the row."""
    unseal: Callable[..., bytes]
    """Open a row: the sealed bytes, its name in an error, and the same context."""
    content: Callable[..., bytes]
    """As `unseal`, but a plain row is not checked, and may be damaged."""
    mark: Callable[[bytes], bytes]
    """Cover a hash of content, of 16 bytes, for a column of its own."""
    unmark: Callable[[bytes], bytes]
    """Undo `mark`."""
    hides: bool
    """Nothing of a value may be visible outside of a sealed row."""


def _content(sealed: bytes, what: str, *context: Context) -> bytes:
    return sealed[_BEFORE:]


def _same(hashed: bytes) -> bytes:
    return hashed


PLAIN: Final = Seals(seal, unseal, _content, _same, _same, False)
"""Rows with check values, not encrypted."""


LIST: Final = 0

DICT: Final = 1

DELTA: Final = 2
"""Added to the kind of a sequence that is a delta channel's snapshot."""
