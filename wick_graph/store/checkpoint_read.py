"""Find checkpoint rows, and rebuild checkpoint tuples from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from wick_graph.errors import StorageError
from wick_graph.langgraph_config import Address
from wick_graph.store import codec
from wick_graph.store.codec import Codec
from wick_graph.store.dialect import Database
from wick_graph.store.digests import LANE_BITS
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.row_format import (
    DELTA,
    DICT,
    LIST,
    CheckpointBody,
    Context,
    Form,
    Seals,
    WritesBody,
    bytes_text,
    pack_id,
    unpack_id,
    unpack_path,
)
from wick_graph.store.texts import compiled
from wick_graph.store.thread_cache import Known, ThreadCache, learn, read_items
from wick_graph.store.warm import (
    Decoded,
    Kept,
    added_ranges,
    collector_put_off,
    ranges_of,
    read_kept,
)
from wick_graph.types import MessageList

if TYPE_CHECKING:
    from sqlalchemy.sql.elements import ColumnElement

_NO_LIST: Final[tuple[list[int], list[Any]]] = ([], [])

_PAGE: Final = 128

_MANY: Final = 8
"""Length of a list from which the places of its items are learned only when they are needed."""


class Row(NamedTuple):
    """A row of `checkpoints`: the columns of `statements.COLUMNS`."""

    rid: int
    thread: int
    ns: int
    id: bytes
    parent: bytes | None
    source: str | None
    step: int | None
    run: bytes | None
    meta: bytes | None
    body: bytes
    seq: int
    """Its number in the thread."""

    def context(self) -> tuple[Context, ...]:
        """Return the columns that the body's check value covers besides the body."""
        return (*self[1:9],)


def body_of(row: Row, seals: Seals, what: str) -> CheckpointBody:
    """Decode a checkpoint's body after verifying its check value.

    Raises:
        StorageError: The row is damaged, or its number was changed.
    """
    body = CheckpointBody.load(seals.unseal(row.body, what, *row.context()))
    if body.seq is not None and body.seq != row.seq:
        raise StorageError(f"{what} is damaged: a checkpoint's number is wrong; restore a backup")
    return body


class Reader:
    """Rebuilds the values of one thread; a reader reads each item once.

    Each occurrence of a value is decoded separately, so callers may change what they get.
    """

    def __init__(self, db: Database, cache: ThreadCache, codec: Codec, thread_id: str) -> None:
        self.db = db
        self.cache = cache
        self.thread_id = thread_id
        self._codec = codec
        self._items: dict[int, tuple[bytes, bytes]] = {}
        self._long_texts: dict[bytes, str] = {}
        self.made: dict[int, Any] | None = None
        """If set, each element is decoded once, and callers must not change what they get."""
        self._lists: dict[int, tuple[list[int], list[Any]]] = {}
        """The list of each lane that was decoded last, and its ranges, if `made` is set."""
        self._learning = False
        self._text_chars = 0
        """Of the long texts that were asked for, each time counted."""

    def continued(self, db: Database, cache: ThreadCache) -> Reader:
        """Return this reader, with what it has read, for a new transaction."""
        if cache.id != self.cache.id or cache.generation != self.cache.generation:
            return Reader(db, cache, self._codec, self.thread_id)
        self.db, self.cache = db, cache
        return self

    def body(self, row: Row) -> CheckpointBody:
        """Decode a checkpoint's body after verifying its check value."""
        return body_of(row, self.cache.seals, self._what("checkpoints"))

    def metadata(self, row: Row) -> dict[str, Any]:
        """Rebuild a checkpoint's metadata."""
        made: dict[str, Any] = {}
        if row.source is not None:
            made["source"] = row.source
        if row.step is not None:
            made["step"] = row.step
        if row.meta is not None:
            made.update(self.value(ormsgpack.unpackb(row.meta)))
        if row.run is not None:
            made["run_id"] = unpack_id(row.run)
        return made

    @collector_put_off()
    def checkpoint(
        self, row: Row, *, remember: bool = False, kept: Kept | None = None, of: str = ""
    ) -> CheckpointTuple:
        """Rebuild a checkpoint with its pending writes.

        With `remember`, the next `put` recognises the lists that this returns. `kept` are messages
        of the channel `of` that are not read again.
        """
        body = self.body(row)
        text = self._text
        self._learning = remember
        values: dict[str, Any] = {}
        for number, form in body.forms():
            name = text(number)
            if kept is not None and name == of and self._is_kept(kept, form):
                values[name] = self._lent(number, kept)
                continue
            values[name] = value = self.value(form)
            if remember:
                self._remember(number, form, value)
        checkpoint: dict[str, Any] = {
            "v": body.v,
            "ts": body.ts,
            "id": unpack_id(row.id),
            "channel_values": values,
            "channel_versions": self._versions(body.versions),
            "versions_seen": {
                text(node): self._versions(seen)
                for node, seen in zip(body.seen[::2], body.seen[1::2], strict=True)
            },
            "updated_channels": body.updated and [text(number) for number in body.updated],
        }
        if body.extra is not None:
            checkpoint.update(self._codec.unpack(body.extra))
        if remember:
            space = self.cache.space(row.ns)
            space.warm = True
            space.written = space.saved = None  # a run or an update begins by reading
        return CheckpointTuple(
            self._config(row.ns, row.id),
            _as_checkpoint(checkpoint),
            _as_metadata(self.metadata(row)),
            None if row.parent is None else self._config(row.ns, row.parent),
            self.writes(row.ns, row.id),
        )

    def writes(
        self, ns: int, checkpoint: bytes, channels: frozenset[str] | None = None
    ) -> list[PendingWrite]:
        """Return the writes under a checkpoint, in the order in which a run applies them."""
        found: list[tuple[tuple[str, str, int], str, Form]] = []
        where, unseal = (self.cache.id, ns, checkpoint), self.cache.seals.unseal
        for task, path, sealed in self.db.execute(statements.WRITES, where):
            body = unseal(sealed, self._what("writes"), *where, task, path)
            name = unpack_id(task)
            for index, channel, form in WritesBody.load(body).entries():
                text = self._text(channel)
                if channels is None or text in channels:
                    found.append((writes_sort_key(unpack_path(path), name, index), text, form))
        found.sort(key=lambda entry: entry[0])
        return [(key[1], channel, self.value(form)) for key, channel, form in found]

    def stored(self, row: Row, channels: Collection[str]) -> dict[str, Any]:
        """Return the values that a checkpoint holds of these channels."""
        named = ((self._text(number), form) for number, form in self.body(row).forms())
        return {name: self.value(form) for name, form in named if name in channels}

    def value(self, form: Form) -> Any:
        """Rebuild a value from its form."""
        if isinstance(form, bytes):
            return self._codec.unpack(form)
        if isinstance(form, int):
            return self._elements(form, form)[0]
        kind = form[0]
        elements: list[Any] = []
        for flat in form[1:]:
            elements += self._of_lane(flat)
        value: Any = dict(elements) if kind & DICT else elements
        return _DeltaSnapshot(value) if kind & DELTA else value

    def warm(self, row: Row) -> None:
        """Learn the places of a checkpoint's content, without decoding it."""
        for _, form in self.body(row).forms():
            for span in spans(form):
                for item in read_items(self.db, self.cache, *span, self.thread_id):
                    learn(self.cache, item)
        self.cache.space(row.ns).warm = True

    def _is_kept(self, kept: Kept, form: Form) -> bool:
        """Bring kept messages up to a form; False if they cannot be."""
        if not isinstance(form, list) or form[0] != LIST or len(form) != 2:
            return False
        if not self.cache.has_kept:  # what is kept was not learned for this cache
            self.cache.has_kept = True
            if kept.messages and not self._is_still(kept):
                kept.forget()
                self.cache.forget_places()
            self.cache.note_unlearned(ranges_of(kept.form[1]))
        return read_kept(kept, form, self._decoded)

    def _is_still(self, kept: Kept) -> bool:
        """Return whether the last kept message is in its place: a restored backup may lack it."""
        last = [high for _, high in ranges_of(kept.form[1])][-1]
        try:
            return bool(self._decoded(last, last)[0][0] == kept.messages[-1])
        except StorageError:
            return False

    def _lent(self, number: int, kept: Kept) -> MessageList:
        """Return kept messages in a list of its own, which the next `put` recognises."""
        value = MessageList(kept.messages, kept.messages.places)
        known = Known(None, value, kept.form[1][1:], set(), kept.ids)
        self.cache.lane(number).remember(known)
        if self.cache.marks is not None:
            self.cache.marks.check(self._codec, value, self._text(number))
        return value

    def _decoded(self, first: int, last: int) -> Decoded:
        """Rebuild the elements of a range of keys, and count their bytes.

        An element with an object of an unknown class counts as None: the next run's graph may know
        the class, so it is not kept.
        """
        made, sizes = list[Any](), list[int]()
        allow = self._codec.allow
        for page in _pages(self._contents(first, last)):
            values, left = self._codec.joined(page)
            bytes_ = [len(item[0]) + len(item[1]) for item in page]
            for at in left:
                self._text_chars, missed = 0, allow.missed
                head, core = page[at][:2]
                value = self._codec.join(head, core, self._long_text)
                values[at] = value if allow.missed == missed else None
                bytes_[at] += self._text_chars
            made += values
            sizes += bytes_
        return made, sizes

    def _contents(self, first: int, last: int) -> Iterable[Any]:
        """Return tuples of head, core and more; of many that were not read yet, hold none."""
        if last - first < _MANY or any(first <= rid <= last for rid in self._items):
            return map(self._load(first, last).__getitem__, range(first, last + 1))
        if self._learning:
            self.cache.note_unlearned([(first, last)])
        return read_items(self.db, self.cache, first, last, self.thread_id)

    def _of_lane(self, flat: list[int]) -> list[Any]:
        """Rebuild the elements of a lane's ranges; only the new ones, if those before are held."""
        old, held = self._lists.get(flat[0], _NO_LIST)
        ranges = added_ranges(old, flat)
        if ranges is None:
            held, ranges = [], list(ranges_of(flat))
        elements = held + [one for span in ranges for one in self._elements(*span)]
        if self.made is not None and len(elements) >= len(self._lists.get(flat[0], _NO_LIST)[1]):
            self._lists[flat[0]] = flat, elements  # a write is shorter than its channel
        return elements

    def _elements(self, first: int, last: int) -> list[Any]:
        made, rids = self.made, range(first, last + 1)
        if made is not None and all(map(made.__contains__, rids)):
            return [*map(made.__getitem__, rids)]
        items = self._load(first, last)
        new = [*rids] if made is None else [rid for rid in rids if rid not in made]
        values, left = self._codec.joined(map(items.__getitem__, new))
        for at in left:
            values[at] = self._codec.join(*items[new[at]], self._long_text)
        if made is None:
            return values
        made |= zip(new, values, strict=True)
        return [*map(made.__getitem__, rids)]

    def _load(self, first: int, last: int) -> dict[int, tuple[bytes, bytes]]:
        """Read the items of a range of keys that were not read yet; return all that were."""
        items = self._items
        missing = [rid for rid in range(first, last + 1) if rid not in items]
        if missing:
            first_missing, last_missing = missing[0], missing[-1]
            learning = self._learning
            if learning and len(missing) > _MANY:
                self.cache.note_unlearned([(first_missing, last_missing)])
                learning = False
            span = first_missing, last_missing  # an error must not hold on to the open query
            for item in read_items(self.db, self.cache, *span, self.thread_id):
                if item[2] not in items:
                    items[item[2]] = item[:2]
                    if learning:
                        learn(self.cache, item)
        return items

    def _long_text(self, hashed: bytes) -> str:
        """Return a text that is stored apart from the values that it occurs in."""
        text = self._long_texts.get(hashed)
        if text is None:
            key = codec.blob_key(hashed)
            row = self.db.execute(statements.BLOB, (self.cache.id, key)).fetchone()
            if row is None:
                raise StorageError(
                    f"{self._what('blobs')} is damaged: a text is missing; restore a backup"
                )
            data = self.cache.seals.unseal(row[0], self._what("blobs"), "blobs", hashed)
            text = self._long_texts[hashed] = bytes_text(data)
        self._text_chars += len(text)
        return text

    def _remember(self, number: int, form: Form, value: Any) -> None:
        if not isinstance(form, list) or len(form) != 2 or form[1][0] != number:
            return
        held = value.value if form[0] & DELTA else value
        paired = isinstance(held, dict)
        keys, values = list(held) if paired else None, list(held.values() if paired else held)
        known = Known(keys, values, form[1][1:])
        self.cache.lane(number).remember(known)
        if self.cache.marks is not None:
            self.cache.marks.check(self._codec, known.values, self._text(number))

    def _versions(self, flat: list[Any]) -> dict[str, Any]:
        text = self._text
        return {text(number): v for number, v in zip(flat[::2], flat[1::2], strict=True)}

    def _text(self, number: int) -> str:
        try:
            return self.cache.text(self.db, number)
        except KeyError:
            raise StorageError(
                f"{self._what('names')} is damaged: a name is missing; restore a backup"
            ) from None

    def _config(self, ns: int, checkpoint: bytes) -> RunnableConfig:
        return Address(self.thread_id, self._text(ns), unpack_id(checkpoint)).config()

    def _what(self, table: str) -> str:
        return f"table {table} of thread {self.thread_id!r}"


def spans(form: Form) -> Iterable[tuple[int, int]]:
    """Yield the first and the last key of each range that a form refers to."""
    if isinstance(form, int):
        yield form, form
    elif isinstance(form, list):
        for lane, *ranges in form[1:]:
            for start, count in zip(ranges[::2], ranges[1::2], strict=True):
                first = lane << LANE_BITS | start
                yield first, first + count - 1


def _pages(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield items in lists of so many that what they are made of is soon free again."""
    rest = iter(items)
    while page := list(islice(rest, _PAGE)):
        yield page


def find_anywhere(db: Database, cache: ThreadCache, checkpoint_id: str) -> Row | None:
    """Return the row of a checkpoint of the outermost graph, or of a subgraph."""
    found = find(db, cache, "", checkpoint_id)
    if found is not None:
        return found
    row = db.execute(statements.NAMESPACE, (cache.id, pack_id(checkpoint_id))).fetchone()
    if row is not None:
        row = db.execute(statements.EXACT, (cache.id, row[0], pack_id(checkpoint_id), 0)).fetchone()
    return None if row is None else Row(*row)


def find(db: Database, cache: ThreadCache, ns: str, checkpoint_id: str | None) -> Row | None:
    """Return a checkpoint's row: the one with this id, or the latest of the namespace."""
    number = cache.find_name(db, 0, ns)
    if number is None:
        return None
    if checkpoint_id:
        row = db.execute(statements.EXACT, (cache.id, number, pack_id(checkpoint_id), 0)).fetchone()
    else:
        row = db.execute(statements.LATEST, (cache.id, number, 0, 1, 0)).fetchone()
    return None if row is None else Row(*row)


def numbers_of(db: Database, checkpoint: bytes, *where: ColumnElement[bool]) -> dict[int, int]:
    """Return, by thread, the number of a checkpoint in any namespace."""
    own = schema.checkpoints.c
    query = sql.select(own.thread, sql.func.min(own.seq))
    query = query.where(own.id == checkpoint, *where).group_by(own.thread)
    return dict(db.execute(*compiled(query)).fetchall())


def is_before(checkpoint: bytes, numbers: Mapping[int, int]) -> ColumnElement[bool]:
    """Select the checkpoints before one: by its number, or by its id if it is not stored."""
    own = schema.checkpoints.c
    known = (sql.and_(own.thread == thread, own.seq < seq) for thread, seq in numbers.items())
    return sql.or_(*known, sql.and_(own.thread.not_in([*numbers]), own.id < checkpoint))


def wrote(db: Database, cache: ThreadCache, row: Row, channel: str) -> bool:
    """Return whether there is a write to a channel under a checkpoint; read no value."""
    number = cache.find_name(db, row.ns, channel)
    where = (cache.id, row.ns, row.id)
    for task, path, sealed in db.execute(statements.WRITES, where):
        body = cache.seals.unseal(sealed, "table writes", *where, task, path)
        if any(written == number for _, written, _ in WritesBody.load(body).entries()):
            return True
    return False


def ancestors(db: Database, row: Row) -> Iterable[Row]:
    """Yield the parents of a checkpoint, the nearest first, hidden ones included."""
    seen = {row.id}
    parent = row.parent
    while parent is not None and parent not in seen:
        found = db.execute(statements.EXACT, (row.thread, row.ns, parent, 1)).fetchone()
        if found is None:
            return
        row = Row(*found)
        yield row
        seen.add(row.id)
        parent = row.parent


def _as_checkpoint(made: dict[str, Any]) -> Checkpoint:
    return made  # type: ignore[return-value]  # built from what `put` was given


def _as_metadata(made: dict[str, Any]) -> CheckpointMetadata:
    return made  # type: ignore[return-value]  # as above


# --- The history of delta channels: one walk up the parents for all channels.


def delta_history(
    reader: Reader | None, row: Row | None, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return, by channel, the writes on the path to a checkpoint, and the value they start from.

    For each channel the walk ends at the nearest ancestor that stores a value of it. The writes
    under that ancestor still count: they led to its child.
    """
    steps: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
    result: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    left = set(channels)
    if reader is None or row is None:
        return result
    for ancestor in ancestors(reader.db, row):
        if not left:
            break
        found: dict[str, list[PendingWrite]] = {}
        for write in reader.writes(ancestor.ns, ancestor.id, frozenset(left)):
            found.setdefault(write[1], []).append(write)
        for channel, written in found.items():
            steps[channel].append(written)
        for channel, value in reader.stored(ancestor, left).items():
            result[channel]["seed"] = value
            left.discard(channel)
    for channel, backwards in steps.items():
        for written in reversed(backwards):
            result[channel]["writes"] += written
    return result
