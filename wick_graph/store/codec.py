"""The data-only codec: a closed set of types as msgpack; no class is found by a stored name.

Each type that plain msgpack lacks has a number in `Tag`; the table is part of the file format.
Lists and dicts of a subclass come back as `list` and `dict`, `bytearray` as `bytes`, and an
exception as its `repr`, as with LangGraph's savers. An object of an unknown class comes back as
`StoredObject`. Everything else comes back equal, NaN, huge integers and lone surrogates included.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from ormsgpack import Ext

from wick_graph.errors import StorageError
from wick_graph.store.allowlist import AllowList, StoredObject, key_of, put_together, take_apart
from wick_graph.store.shapes import BY_CLASS, ID, MESSAGES, rebuilt
from wick_graph.types import PlainInStore

# --- Single values: dates, paths, patterns, arrays, exceptions.


IP: Final[dict[str, Any]] = {
    cls.__name__: cls
    for cls in (
        ipaddress.IPv4Address,
        ipaddress.IPv4Interface,
        ipaddress.IPv4Network,
        ipaddress.IPv6Address,
        ipaddress.IPv6Interface,
        ipaddress.IPv6Network,
    )
}


def read_pattern(parts: list[Any]) -> re.Pattern[Any]:
    """Compile a regular expression again."""
    return re.compile(parts[0], parts[1])


def exception_text(error: BaseException) -> str:
    """Return the text that an exception is stored as: its `repr`, as in LangGraph's savers."""
    try:
        return repr(error)
    except Exception:  # a user's __repr__ may raise anything
        return f"{type(error).__name__}()"


def read_exception(parts: str | list[str]) -> str:
    """Return an exception's text; older rows hold the name of its class and its message."""
    return parts if isinstance(parts, str) else f"{parts[0].rpartition('.')[2]}({parts[1]!r})"


def text(value: str, tag: int) -> str | Ext:
    """Return text as it is, or as tagged bytes if it holds a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(tag, value.encode("utf-8", "surrogatepass"))
    return value


def moment_parts(value: datetime | time) -> list[Any]:
    """Split a date or time into naive ISO text, name of the zone, offset in seconds, and fold."""
    offset = value.utcoffset()
    name = getattr(value.tzinfo, "key", None)
    return [
        value.replace(tzinfo=None, fold=0).isoformat(),
        name if isinstance(name, str) else None,
        None if offset is None else offset.total_seconds(),
        value.fold,
    ]


def _zone(name: str | None, offset: float | None) -> tzinfo | None:
    if name is not None:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # this machine does not know the zone; the offset is still right
    if offset is None:
        return None
    return timezone(timedelta(seconds=offset)) if offset else UTC


def read_datetime(parts: list[Any]) -> datetime:
    """Rebuild a datetime; a zone that this machine does not know becomes its offset."""
    return datetime.fromisoformat(parts[0]).replace(tzinfo=_zone(parts[1], parts[2]), fold=parts[3])


def read_time(parts: list[Any]) -> time:
    """Rebuild a time of day."""
    return time.fromisoformat(parts[0]).replace(tzinfo=_zone(parts[1], parts[2]), fold=parts[3])


def read_path(parts: str) -> Path:
    """Rebuild a path, without opening it."""
    return Path(parts)


# --- Compressed contents; decompression is bounded, because a file may come from elsewhere.


MAX_UNFOLDED: Final = 64 * 2**20
"""The most bytes of a content that is compressed; longer ones are stored as they are."""


def fold(data: bytes, level: int) -> bytes | None:
    """Compress a content; None if it is too long, or would not get shorter."""
    if len(data) > MAX_UNFOLDED:
        return None
    memory = 5 if len(data) < 4_096 else zlib.DEF_MEM_LEVEL  # zlib clears it: half of the work
    folding = zlib.compressobj(level, memLevel=memory)
    small = folding.compress(data) + folding.flush()
    return small if len(small) < len(data) else None


def unfold(small: bytes) -> bytes:
    """Undo `fold`.

    Raises:
        StorageError: It unfolds to more than `MAX_UNFOLDED`.
        zlib.error: It is damaged.
    """
    unfolding = zlib.decompressobj()
    data = unfolding.decompress(small, MAX_UNFOLDED + 1)
    if len(data) > MAX_UNFOLDED:
        raise StorageError(
            f"a compressed value unfolds to more than {MAX_UNFOLDED // 2**20} MiB, which "
            "wick_graph never writes; do not use this store"
        )
    if not unfolding.eof:
        raise zlib.error("incomplete data")
    return data


# --- Long texts inside values, stored once per thread.
#
# A state may hold the same long text in ever new surroundings, such as a system prompt that is
# composed again for each model call. Each step would then store that text again.


HASH_BYTES: Final = 16

LONG: Final = 512
"""Bytes from which a text is stored apart."""

WORTH: Final = 1_024
"""Size of a value from which it is searched for long texts."""

_TEXT: Final = b"text"

_CONTAINERS: Final = (list, dict, tuple)

_LEVELS: Final = 16

_NARROW: Final = LONG // 4


@dataclass(frozen=True, slots=True)
class Blob:
    """A reference, inside a value, to a text that is stored apart."""

    hash: bytes


def hash_of(data: bytes) -> bytes:
    """Return the hash of a text's bytes."""
    return blake2b(data, digest_size=HASH_BYTES).digest()


def blob_key(hashed: bytes) -> bytes:
    """Return the key of a text's row; no other row of the table has such a key."""
    return _TEXT + hashed


def is_text_key(key: bytes) -> bool:
    """Return whether a key of the table is that of a text."""
    return key.startswith(_TEXT) and len(key) == len(_TEXT) + HASH_BYTES


def lifted(value: Any, lift: Callable[[str], Blob], levels: int = _LEVELS) -> Any:
    """Copy plain containers with a `Blob` for each long text; return the value itself if none."""
    if type(value) not in _CONTAINERS or not levels:
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
    """Yield all that may be a blob's key in encoded bytes: what follows each `mark`."""
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


# --- numpy's arrays and scalars as data; numpy is not needed until one is read.


NAME: Final = "numpy:ndarray"
"""The name of the `StoredObject` that replaces an array if numpy is not installed."""


def array_parts(value: Any) -> list[Any] | None:
    """Split a numpy array or scalar into type, shape (None for a scalar) and bytes.

    Return None for anything else, and for arrays of Python objects or of records.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return None
    if value.dtype.hasobject or value.dtype.names is not None:
        return None
    shape = list(value.shape) if type(value) is numpy.ndarray else None
    return [value.dtype.str, shape, value.tobytes()]


def read(data: list[Any]) -> Any:
    """Rebuild an array or scalar; without numpy, return a `StoredObject`."""
    kind, shape, body = data
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        return StoredObject(NAME, data)
    flat = numpy.frombuffer(body, dtype=numpy.dtype(kind))
    return flat[0] if shape is None else flat.reshape(shape).copy()


FORMAT: Final = 1
"""The first byte of everything that is stored."""

NIL: Final = b"\xc0"
"""None, encoded: most writes only tell which node comes next."""

MAX_DEPTH: Final = 200
"""The most levels of lists and dicts in a value."""

MAX_NESTED: Final = 60
"""The most levels of other types (messages, tuples, sends) in it; each costs stack when read."""

BLOB_MARK: Final = b"\xd8\x1a"
"""The bytes before a blob's key in encoded values."""

_END: Final = object()

_END_MARK: Final = b"\xd4\x7f\x00"

_SHORT_TEXT: Final = 0xD9

_EXT_8: Final = 0xC7

_EXT_16: Final = 0xC8

_EXTS: Final = frozenset({_EXT_8, _EXT_16})
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
    KEYED = 30
    END = 127


_END_TAG: Final = int(Tag.END)

KEYS: Final[dict[int, tuple[str, ...]]] = {
    0: (
        *("input_tokens", "output_tokens", "total_tokens"),
        *("cache_read", "cache_write", "reasoning", "calls"),
    ),
    1: ("stamp", "system", "tools", "settings", "withheld", "messages"),
    2: ("messages",),
}
"""The keys of dicts that checkpoints repeat, in their order; never change one. A new one needs a
new schema, which keeps out the releases that cannot read it."""

_NUMBERS: Final = {keys: number for number, keys in KEYS.items()}


class Codec:
    """Encodes values and decodes them; implements LangGraph's serializer protocol."""

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
            StorageError: The type or the version is another one, or the bytes are damaged.
        """
        kind, body = data
        if kind != "wick" or body[:1] != bytes((FORMAT,)):
            raise StorageError(f"unknown format {kind!r}: wick_graph did not store this value")
        return self.unpack(body[1:])

    def pack(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            StorageError: A type is neither in the closed set nor on the allow-list (the text says
                how to allow it), or the value is nested deeper than `MAX_DEPTH`.
        """
        try:
            return ormsgpack.packb(value, default=self._default, option=_OPTIONS)
        except (TypeError, RecursionError):
            # The slow way handles what ormsgpack refuses, or raises the reason.
            if (hidden := _hidden.pop(threading.get_ident(), None)) is not None:
                raise hidden from None
        try:
            return self._slow(value, 0, 0)
        except RecursionError:
            raise _too_deep() from None

    def pack_keyed(self, value: Any) -> bytes | None:
        """Encode a dict of known keys without them; None for any other value."""
        number = _NUMBERS.get(tuple(value)) if type(value) is dict else None
        if number is None:
            return None
        return self.pack(Ext(Tag.KEYED, self.pack([number, *value.values()])))

    def unpack(self, data: bytes, texts: Texts | None = None) -> Any:
        """Decode one value; `texts` finds the texts that are stored apart from it.

        Raises:
            StorageError: The bytes are not exactly one value of the closed set.
        """
        failed: list[BaseException] = []

        def extended(tag: int, body: bytes) -> Any:
            if tag == _END_TAG:
                return _END
            try:
                return self._read(tag, body, texts)
            except BaseException as error:
                failed.append(error)  # ormsgpack hides what a hook raises
                raise

        whole = b"\x92" + data + _END_MARK
        try:
            value, end = ormsgpack.unpackb(whole, ext_hook=extended)
        except (ValueError, RecursionError) as error:
            if failed:
                known = isinstance(failed[0], StorageError) or _must_leave(failed[0])
                raise failed[0] if known else _damaged(error) from error
            _raise_interrupt(whole, extended)
            raise _damaged(error) from error
        if end is not _END:
            raise _damaged("trailing bytes")
        return value

    def split(self, value: Any) -> tuple[bytes, bytes]:
        """Encode a value as head and core: a message's id, and everything else."""
        shape = MESSAGES.get(type(value))
        if shape is None:
            return b"", self.pack(value)
        name = value.id
        if name is None:
            return b"", self.pack(Ext(Tag.COMPACT, self.pack(shape.write(value))))
        parts = self.pack(shape.write(value, with_id=False))
        return self.pack(name), self.pack(Ext(Tag.COMPACT, parts))

    def join(self, head: bytes, core: bytes, texts: Texts | None = None) -> Any:
        """Undo `split`."""
        value = self.unpack(core, texts)
        if head:
            value.__dict__["id"] = self.unpack(head)
            value.__pydantic_fields_set__.add("id")
        return value

    def joined(self, items: Iterable[Any]) -> tuple[list[Any], list[int]]:
        """Undo `split` for many at once: tuples of head, core and more.

        Returns:
            The values, and the indexes of those that `join` must rebuild, which are None here: all
            but messages with an id and of plain data, which nearly all are.
        """
        made: list[Any] = []
        left: list[int] = []
        add, unpackb, tag = made.append, ormsgpack.unpackb, int(Tag.COMPACT)
        for item in items:
            head, core = item[0], item[1]
            if head and head[0] == _SHORT_TEXT and head[1] == len(head) - 2 and core[0] in _EXTS:
                long = core[0] == _EXT_16
                start, size = (4, core[1] << 8 | core[2]) if long else (3, core[1])
                if core[start - 1] == tag and start + size == len(core):
                    try:
                        number, parts = unpackb(core[start:])
                        parts[ID] = head[2:].decode()
                        add(rebuilt(number, parts))
                        continue
                    except ValueError:
                        pass  # it holds more than plain data, or fields of its own
            left.append(len(made))
            add(None)
        return made, left

    def _default(self, other: Any) -> Any:
        try:
            return self._extend(other, lambda part: self._fast(part, 1))
        except BaseException as error:
            _note_hidden(error)
            raise

    def _fast(self, value: Any, nested: int) -> bytes:
        """Encode a part with ormsgpack alone; raise TypeError if that is impossible."""
        if nested > MAX_NESTED:
            raise TypeError

        def default(other: Any) -> Any:
            try:
                return self._extend(other, lambda part: self._fast(part, nested + 1))
            except BaseException as error:
                _note_hidden(error)
                raise

        return ormsgpack.packb(value, default=default, option=_OPTIONS)

    def _slow(self, value: Any, depth: int, nested: int) -> bytes:
        if nested > MAX_NESTED:
            raise _too_deep()
        return ormsgpack.packb(self._careful(value, depth, nested), option=_OPTIONS)

    def _careful(self, value: Any, depth: int, nested: int) -> Any:
        """Rewrite a value so that ormsgpack can encode it as it is."""
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
            return text(value, Tag.TEXT)
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
        shape = BY_CLASS.get(kind)
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
            return Ext(Tag.EXCEPTION, pack(exception_text(value)))
        if isinstance(value, PurePath):
            return Ext(Tag.PATH, pack(str(value)))
        array = array_parts(value)
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
            return rebuilt(*parts)
        if tag == Tag.ALLOWED:
            return put_together(parts[0], self.allow.find(parts[0]), parts[1])
        reader = _READERS.get(tag)
        if reader is None:
            raise StorageError(f"unknown format: a stored value has the unknown tag {tag}")
        return reader(parts)


_hidden: Final[dict[int, BaseException]] = {}
"""What left a hook of ormsgpack, which hides it, and must leave `pack`; by thread."""


def _must_leave(error: BaseException) -> bool:
    """Return whether an error says nothing of the value that was at hand, such as Ctrl-C."""
    return isinstance(error, MemoryError) or not isinstance(error, Exception)


def _note_hidden(error: BaseException) -> None:
    if _must_leave(error):
        _hidden[threading.get_ident()] = error


def _raise_interrupt(data: bytes, hook: Callable[[int, bytes], Any]) -> None:
    """Raise KeyboardInterrupt if it was that which kept a value from being decoded.

    Python may raise it at the first step of a hook, before the hook can note it. Then the same
    bytes can be decoded now; damage would stay.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return
    try:
        ormsgpack.unpackb(data, ext_hook=hook)
    except (ValueError, RecursionError):
        return
    raise KeyboardInterrupt


def _plainer(value: Any) -> Any:
    """Return the plain value that a subclass is stored as, or an object of ours."""
    if isinstance(value, PlainInStore):  # such as the answer to a question of a user's own graph
        return value.to_dict()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, Enum) and not hasattr(value, "_fields"):
        for plain in _BASES:
            if isinstance(value, plain):
                return plain(value)
    raise _refused(type(value))


def _pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _stored_form(value: StoredObject) -> tuple[int, Any]:
    """Return the stored form of an object of an unknown class."""
    return (
        (Tag.ARRAY, value.data)
        if value.name == NAME
        else (
            Tag.ALLOWED,
            [value.name, value.data],
        )
    )


def _deque(value: Any) -> tuple[int, Any]:
    return Tag.DEQUE, [list(value), value.maxlen]


def _keyed(parts: list[Any]) -> dict[str, Any]:
    keys = KEYS.get(parts[0])
    if keys is None:
        raise StorageError(
            f"unknown format: a stored dict has the unknown keys {parts[0]}; upgrade wick_graph"
        )
    return dict(zip(keys, parts[1:], strict=True))


def _as_list(tag: int) -> Callable[[Iterable[Any]], tuple[int, Any]]:
    return lambda value: (tag, list(value))


_WRITERS: Final[dict[type, Callable[[Any], tuple[int, Any]]]] = {
    tuple: _as_list(Tag.TUPLE),
    set: _as_list(Tag.SET),
    frozenset: _as_list(Tag.FROZENSET),
    deque: _deque,
    int: lambda v: (Tag.INT, v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True)),
    datetime: lambda v: (Tag.DATETIME, moment_parts(v)),
    date: lambda v: (Tag.DATE, v.toordinal()),
    time: lambda v: (Tag.TIME, moment_parts(v)),
    timedelta: lambda v: (Tag.TIMEDELTA, [v.days, v.seconds, v.microseconds]),
    UUID: lambda v: (Tag.UUID, v.bytes),
    Decimal: lambda v: (Tag.DECIMAL, str(v)),
    Send: lambda v: (Tag.SEND, [v.node, v.arg, *([v.timeout] if v.timeout else [])]),
    TimeoutPolicy: lambda v: (Tag.TIMEOUT, [v.run_timeout, v.idle_timeout, v.refresh_on]),
    Interrupt: lambda v: (Tag.INTERRUPT, [v.value, v.id, v.response_schema]),
    Command: lambda v: (Tag.COMMAND, [v.graph, v.update, v.resume, v.goto]),
    Overwrite: lambda v: (Tag.OVERWRITE, v.value),
    _DeltaSnapshot: lambda v: (Tag.DELTA, v.value),
    StoredObject: _stored_form,
    re.Pattern: lambda v: (Tag.PATTERN, [v.pattern, v.flags]),
    **{cls: lambda v: (Tag.IP, [type(v).__name__, str(v)]) for cls in IP.values()},
    Blob: lambda v: (Tag.BLOB, v.hash),
}

_READERS: Final[dict[int, Callable[[Any], Any]]] = {
    Tag.TUPLE: tuple,
    Tag.SET: set,
    Tag.FROZENSET: frozenset,
    Tag.DEQUE: lambda p: deque(p[0], p[1]),
    Tag.PAIRS: _pairs,
    Tag.DATETIME: read_datetime,
    Tag.DATE: date.fromordinal,
    Tag.TIME: read_time,
    Tag.TIMEDELTA: lambda p: timedelta(*p),
    Tag.DECIMAL: Decimal,
    Tag.PATH: read_path,
    Tag.SEND: lambda p: Send(p[0], p[1], timeout=p[2] if len(p) > 2 else None),
    Tag.TIMEOUT: lambda p: TimeoutPolicy(run_timeout=p[0], idle_timeout=p[1], refresh_on=p[2]),
    Tag.INTERRUPT: lambda p: Interrupt(p[0], p[1], response_schema=p[2]),
    Tag.COMMAND: lambda p: Command(graph=p[0], update=p[1], resume=p[2], goto=p[3]),
    Tag.OVERWRITE: Overwrite,
    Tag.DELTA: _DeltaSnapshot,
    Tag.EXCEPTION: read_exception,
    Tag.PATTERN: read_pattern,
    Tag.IP: lambda p: IP[p[0]](p[1]),
    Tag.ARRAY: read,
    Tag.KEYED: _keyed,
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
