"""The data-only codec: a closed set of types as msgpack, nothing rebuilt by a name.

Every type that plain msgpack lacks has a number in `Tag`; the table is part of the file format.
Lists and dicts of a subclass come back as `list` and `dict`, `bytearray` as `bytes`, an exception
as its `repr`, as with LangGraph's savers; an object of a class that is not known as `StoredObject`.
Everything else comes back equal, NaN, huge integers and lone surrogates included.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from ormsgpack import Ext

from wick_graph.errors import StorageError
from wick_graph.store.values import arrays, compact, scalars
from wick_graph.store.values.allow import (
    AllowList,
    StoredObject,
    key_of,
    put_together,
    take_apart,
)
from wick_graph.store.values.blobs import Blob

FORMAT: Final = 1
"""The first byte of everything that is stored."""
MAX_DEPTH: Final = 200
"""Levels of lists and dicts that a value may have."""
MAX_NESTED: Final = 60
"""Levels of other types (messages, tuples, sends) among them; each costs stack when read."""
BLOB_MARK: Final = b"\xd8\x1a"
"""What stands before a blob's key in encoded bytes."""
_END: Final = object()
_END_MARK: Final = b"\xd4\x7f\x00"
_SHORT_TEXT: Final = 0xD9
_EXT_8: Final = 0xC7
_EXT_16: Final = 0xC8
"""How msgpack marks a text, and an extension, with its length in one byte or in two."""
_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_BASES: Final[tuple[type[Any], ...]] = (list, dict, str, bytes, int, float)
_PLAIN: Final = frozenset({type(None), bool, float, bytes})
Texts = Callable[[bytes], str]


class Tag(IntEnum):
    """The numbers of the types that msgpack lacks; never change one."""

    TUPLE = 1
    SET = 2
    FROZENSET = 3
    DEQUE = 4
    TEXT = 5
    INT = 6
    PAIRS = 7
    DATETIME = 8
    DATE = 9
    TIME = 10
    TIMEDELTA = 11
    UUID = 12
    DECIMAL = 13
    PATH = 14
    COMPACT = 16
    SEND = 18
    INTERRUPT = 19
    COMMAND = 20
    OVERWRITE = 21
    DELTA = 22
    EXCEPTION = 23
    TIMEOUT = 24
    ALLOWED = 25
    BLOB = 26
    PATTERN = 27
    IP = 28
    ARRAY = 29
    END = 127


_END_TAG: Final = int(Tag.END)


class Codec:
    """Turn values into bytes and back; also LangGraph's serializer protocol."""

    def __init__(self, allow: AllowList | None = None) -> None:
        self.allow = allow or AllowList()

    def with_msgpack_allowlist(self, pairs: Collection[tuple[str, ...]]) -> Codec:
        """Return a codec that also accepts the classes of these (module, name) pairs."""
        allow = self.allow.extended(pairs)
        return self if allow is self.allow else Codec(allow)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode for LangGraph's interface; the type is always `wick`."""
        return "wick", bytes((FORMAT,)) + self.pack(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode what `dumps_typed` made.

        Raises:
            StorageError: for any other type, version or damaged bytes.
        """
        kind, body = data
        if kind != "wick" or body[:1] != bytes((FORMAT,)):
            raise StorageError(f"unknown format {kind!r}: this is no value that wick_graph stored")
        return self.unpack(body[1:])

    def pack(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            StorageError: for a type outside the closed set and the allow-list, naming it and
                saying how to allow it; for nesting deeper than `MAX_DEPTH`.
        """
        try:
            return ormsgpack.packb(value, default=self._default, option=_OPTIONS)
        except (TypeError, RecursionError):
            pass  # the slow way handles what ormsgpack refuses, and says why it cannot
        try:
            return self._slow(value, 0, 0)
        except RecursionError:
            raise _too_deep() from None

    def unpack(self, data: bytes, texts: Texts | None = None) -> Any:
        """Decode one value; `texts` finds the texts that are stored apart from it.

        Raises:
            StorageError: if the bytes are not exactly one value of the closed set.
        """
        failed: list[StorageError] = []

        def extended(tag: int, body: bytes) -> Any:
            if tag == _END_TAG:
                return _END
            try:
                return self._read(tag, body, texts)
            except StorageError as error:
                failed.append(error)  # ormsgpack hides what a hook raises
                raise

        try:
            value, end = ormsgpack.unpackb(b"\x92" + data + _END_MARK, ext_hook=extended)
        except (ValueError, RecursionError) as error:
            raise failed[0] if failed else _damaged(error) from error
        if end is not _END:
            raise _damaged("trailing bytes")
        return value

    def split(self, value: Any) -> tuple[bytes, bytes]:
        """Encode a value as head and core: a message's id, and all the rest."""
        shape = compact.MESSAGES.get(type(value))
        if shape is None:
            return b"", self.pack(value)
        name = value.id
        if name is None:
            return b"", self.pack(Ext(Tag.COMPACT, self.pack(shape.write(value))))
        parts = self.pack(shape.write(value, with_id=False))
        return self.pack(name), self.pack(Ext(Tag.COMPACT, parts))

    def join(self, head: bytes, core: bytes, texts: Texts | None = None) -> Any:
        """Rebuild what `split` took apart."""
        start = _message_start(core) if head else 0
        try:  # a history is read message by message: what can be left out counts
            parts = ormsgpack.unpackb(core[start:]) if start else None
        except ValueError:  # it holds more than plain data
            parts = None
        if parts is None:
            value = self.unpack(core, texts)
        else:
            value = compact.BY_NUMBER[parts[0]].read(*parts[1:])
        if head:
            short = head[0] == _SHORT_TEXT and head[1] == len(head) - 2
            value.__dict__["id"] = head[2:].decode() if short else self.unpack(head)
            value.__pydantic_fields_set__.add("id")
        return value

    def _default(self, other: Any) -> Any:
        return self._extend(other, lambda part: self._fast(part, 1))

    def _fast(self, value: Any, nested: int) -> bytes:
        """Encode a part with ormsgpack alone; raises TypeError where it cannot."""
        if nested > MAX_NESTED:
            raise TypeError
        return ormsgpack.packb(
            value,
            default=lambda other: self._extend(other, lambda part: self._fast(part, nested + 1)),
            option=_OPTIONS,
        )

    def _slow(self, value: Any, depth: int, nested: int) -> bytes:
        if nested > MAX_NESTED:
            raise _too_deep()
        return ormsgpack.packb(self._careful(value, depth, nested), option=_OPTIONS)

    def _careful(self, value: Any, depth: int, nested: int) -> Any:
        """Rewrite a value so that ormsgpack takes it as it is."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if depth > MAX_DEPTH:
            raise _too_deep()
        if kind is list:
            out = []
            for item in value:
                out.append(self._careful(item, depth + 1, nested))
            return out
        if kind is dict:
            return self._careful_dict(value, depth + 1, nested)
        if kind is str:
            return scalars.text(value, Tag.TEXT)
        if kind is int and -(2**63) <= value < 2**64:
            return value
        made = self._extend(value, lambda part: self._slow(part, depth + 1, nested + 1))
        return made if type(made) is Ext else self._careful(made, depth, nested)

    def _careful_dict(self, value: dict[Any, Any], depth: int, nested: int) -> Any:
        names = [self._careful(key, depth, nested + 1) for key in value]
        if all(type(name) is str for name in names):
            items = value.values()
            return {
                name: self._careful(item, depth, nested)
                for name, item in zip(names, items, strict=True)
            }
        if nested >= MAX_NESTED:
            raise _too_deep()
        pairs: list[Any] = []
        for name, item in zip(names, value.values(), strict=True):
            pairs += (name, self._careful(item, depth, nested + 1))
        return Ext(Tag.PAIRS, ormsgpack.packb(pairs, option=_OPTIONS))

    def _extend(self, value: Any, pack: Callable[[Any], bytes]) -> Any:
        """Return a value of a type that msgpack lacks as tagged bytes, or as a plainer value."""
        kind = type(value)
        shape = compact.BY_CLASS.get(kind)
        if shape is not None:
            return Ext(Tag.COMPACT, pack(shape.write(value)))
        writer = _WRITERS.get(kind)
        if writer is not None:
            tag, parts = writer(value)
            return Ext(tag, parts if isinstance(parts, bytes) else pack(parts))
        key = self.allow.key(kind)
        if key is not None:
            return Ext(Tag.ALLOWED, pack([key, take_apart(value)]))
        if isinstance(value, BaseException):
            return Ext(Tag.EXCEPTION, pack(scalars.exception_text(value)))
        if isinstance(value, PurePath):
            return Ext(Tag.PATH, pack(str(value)))
        array = arrays.parts(value)
        return _plainer(value) if array is None else Ext(Tag.ARRAY, pack(array))

    def _read(self, tag: int, body: bytes, texts: Texts | None) -> Any:
        if tag == Tag.TEXT:
            return body.decode("utf-8", "surrogatepass")
        if tag == Tag.INT:
            return int.from_bytes(body, "little", signed=True)
        if tag == Tag.UUID:
            return UUID(bytes=body)
        if tag == Tag.BLOB and texts is not None:
            return texts(body)
        parts = self.unpack(body, texts)
        if tag == Tag.COMPACT:
            return compact.BY_NUMBER[parts[0]].read(*parts[1:])
        if tag == Tag.ALLOWED:
            return put_together(parts[0], self.allow.find(parts[0]), parts[1])
        reader = _READERS.get(tag)
        if reader is None:
            raise StorageError(f"unknown format: a stored value has the unknown tag {tag}")
        return reader(parts)


def _message_start(core: bytes) -> int:
    """Return where the parts of a message begin if that is all these bytes are, else 0."""
    if core[0] == _EXT_8 and core[2] == Tag.COMPACT and core[1] == len(core) - 3:
        return 3
    long = core[0] == _EXT_16 and core[3] == Tag.COMPACT
    return 4 if long and int.from_bytes(core[1:3]) == len(core) - 4 else 0


def _plainer(value: Any) -> Any:
    """Return the plain value that a subclass is stored as."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, Enum) and not hasattr(value, "_fields"):
        for plain in _BASES:
            if isinstance(value, plain):
                return plain(value)
    raise _refused(type(value))


def _pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _again(value: StoredObject) -> tuple[int, Any]:
    """Return what an object was stored as."""
    return (
        (Tag.ARRAY, value.data)
        if value.name == arrays.NAME
        else (
            Tag.ALLOWED,
            [value.name, value.data],
        )
    )


def _deque(value: Any) -> tuple[int, Any]:
    return Tag.DEQUE, [list(value), value.maxlen]


def _as_list(tag: int) -> Callable[[Iterable[Any]], tuple[int, Any]]:
    return lambda value: (tag, list(value))


_WRITERS: Final[dict[type, Callable[[Any], tuple[int, Any]]]] = {
    tuple: _as_list(Tag.TUPLE),
    set: _as_list(Tag.SET),
    frozenset: _as_list(Tag.FROZENSET),
    deque: _deque,
    int: lambda v: (Tag.INT, v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True)),
    datetime: lambda v: (Tag.DATETIME, scalars.moment_parts(v)),
    date: lambda v: (Tag.DATE, v.toordinal()),
    time: lambda v: (Tag.TIME, scalars.moment_parts(v)),
    timedelta: lambda v: (Tag.TIMEDELTA, [v.days, v.seconds, v.microseconds]),
    UUID: lambda v: (Tag.UUID, v.bytes),
    Decimal: lambda v: (Tag.DECIMAL, str(v)),
    Send: lambda v: (Tag.SEND, [v.node, v.arg, *([v.timeout] if v.timeout else [])]),
    TimeoutPolicy: lambda v: (Tag.TIMEOUT, [v.run_timeout, v.idle_timeout, v.refresh_on]),
    Interrupt: lambda v: (Tag.INTERRUPT, [v.value, v.id, v.response_schema]),
    Command: lambda v: (Tag.COMMAND, [v.graph, v.update, v.resume, v.goto]),
    Overwrite: lambda v: (Tag.OVERWRITE, v.value),
    _DeltaSnapshot: lambda v: (Tag.DELTA, v.value),
    StoredObject: _again,
    re.Pattern: lambda v: (Tag.PATTERN, [v.pattern, v.flags]),
    **{cls: lambda v: (Tag.IP, [type(v).__name__, str(v)]) for cls in scalars.IP.values()},
    Blob: lambda v: (Tag.BLOB, v.hash),
}
_READERS: Final[dict[int, Callable[[Any], Any]]] = {
    Tag.TUPLE: tuple,
    Tag.SET: set,
    Tag.FROZENSET: frozenset,
    Tag.DEQUE: lambda p: deque(p[0], p[1]),
    Tag.PAIRS: _pairs,
    Tag.DATETIME: scalars.read_datetime,
    Tag.DATE: date.fromordinal,
    Tag.TIME: scalars.read_time,
    Tag.TIMEDELTA: lambda p: timedelta(*p),
    Tag.DECIMAL: Decimal,
    Tag.PATH: scalars.read_path,
    Tag.SEND: lambda p: Send(p[0], p[1], timeout=p[2] if len(p) > 2 else None),
    Tag.TIMEOUT: lambda p: TimeoutPolicy(run_timeout=p[0], idle_timeout=p[1], refresh_on=p[2]),
    Tag.INTERRUPT: lambda p: Interrupt(p[0], p[1], response_schema=p[2]),
    Tag.COMMAND: lambda p: Command(graph=p[0], update=p[1], resume=p[2], goto=p[3]),
    Tag.OVERWRITE: Overwrite,
    Tag.DELTA: _DeltaSnapshot,
    Tag.EXCEPTION: scalars.read_exception,
    Tag.PATTERN: scalars.read_pattern,
    Tag.IP: lambda p: scalars.IP[p[0]](p[1]),
    Tag.ARRAY: arrays.read,
}


def _damaged(why: object) -> StorageError:
    return StorageError(f"unknown format: a stored value cannot be read ({why})")


def _too_deep() -> StorageError:
    return StorageError(
        f"a value nested deeper than {MAX_DEPTH} levels cannot be stored; flatten it"
    )


def _refused(cls: type) -> StorageError:
    name = key_of(cls).replace(":", ".")
    return StorageError(
        f"a {name} cannot be stored: if it is a dataclass, enum, pydantic model or named tuple, "
        f"allow it with SqlSaver.from_url(..., allow=[{cls.__name__}]); otherwise store plain data"
    )
