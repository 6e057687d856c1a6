"""Deleting, pruning and copying threads, without an orphan row."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import ormsgpack
from sqlalchemy import delete, select, update
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.errors import StorageError
from wick_graph.store import blobs_kept, journal_rows, sql
from wick_graph.store.cache import PLACES, ThreadCache
from wick_graph.store.codec import Codec
from wick_graph.store.core import Core
from wick_graph.store.reading import Reader, Row, ancestors
from wick_graph.store.rows import CheckpointBody, Form, WritesBody, seal, text_bytes, unseal
from wick_graph.store.schema import LANE_BITS, OWNED, checkpoints, items, names, threads, writes

BATCH: Final = 1_000
"""Rows that one transaction deletes at most."""
_GONE: Final = b"\xff"
"""The tenant of threads that are being deleted; no text encodes to it."""


class Writing(Protocol):
    """How a transaction is begun."""

    def __call__(self, *, alone: bool) -> AbstractContextManager[sqlite3.Connection]:
        """Hold the database for writing."""


def condemn(db: sqlite3.Connection, *conditions: ColumnElement[bool]) -> list[int]:
    """Make threads invisible, so that nobody sees half of one, and return their numbers."""
    statement = select(threads.c.id).where(threads.c.tenant != _GONE, *conditions)
    found = [row[0] for row in db.execute(*sql.compiled(statement))]
    for number in found:
        gone = update(threads).where(threads.c.id == number)
        gone = gone.values(tenant=_GONE, thread=b"%d" % number, status="deleted")
        db.execute(*sql.compiled(gone))
    return found


def condemned(db: sqlite3.Connection) -> list[int]:
    """Return threads whose deletion was begun, here or by a process that died."""
    statement = select(threads.c.id).where(threads.c.tenant == _GONE)
    return [row[0] for row in db.execute(*sql.compiled(statement))]


def remove(writing: Writing, number: int) -> None:
    """Delete everything of a condemned thread, at most `BATCH` rows at a time."""
    while True:
        with writing(alone=True) as db:
            if not _remove_some(db, number):
                return


def _remove_some(db: sqlite3.Connection, number: int) -> bool:
    """Delete one batch; False when the thread itself is gone."""
    for table in OWNED:
        key = table.c.thread if table.name == "leases" else table.c.rid
        some = select(key).where(table.c.thread == number).limit(BATCH)
        if db.execute(*sql.compiled(delete(table).where(key.in_(some)))).rowcount:
            return True
    if journal_rows.remove_some(db, number, BATCH):
        return True
    lanes = select(names.c.id).where(names.c.thread == number).order_by(names.c.id).limit(BATCH)
    for (lane,) in db.execute(*sql.compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        some = select(items.c.rid).where(items.c.rid.between(low, low | PLACES)).limit(BATCH)
        if db.execute(*sql.compiled(delete(items).where(items.c.rid.in_(some)))).rowcount:
            return True
    some = select(names.c.id).where(names.c.thread == number).limit(BATCH)
    if db.execute(*sql.compiled(delete(names).where(names.c.id.in_(some)))).rowcount:
        return True
    db.execute(*sql.compiled(delete(threads).where(threads.c.id == number)))
    return False


def delete_thread(core: Core, thread_id: str) -> bool:
    """Delete a thread with everything that is its; False if there was none."""
    with core.writing(alone=True) as db:
        key = text_bytes(thread_id)
        found = condemn(db, threads.c.tenant == core.tenant, threads.c.thread == key)
        core.caches.pop(key, None)
    for number in found:
        remove(core.writing, number)
    return bool(found)


def keep(core: Core, codec: Codec, thread_id: str, wanted: Callable[[list[Row]], set[int]]) -> None:
    """Delete a thread's checkpoints except the wanted ones and what those are rebuilt from.

    `wanted` gets all rows, oldest first, and returns the keys of those to keep. Delta channels
    need the writes of ancestors: these stay, hidden, back to each channel's last stored value.
    Items that nothing refers to any more are deleted afterwards, in bounded transactions.
    """
    with core.writing(alone=True) as db:
        cache = core.thread(db, thread_id)
        if cache is None:
            return
        rows = _all_rows(db, cache.id)
        kept = wanted([row for row, hidden in rows if not hidden])
        if len(kept) == len(rows):
            return
        reader = Reader(db, cache, codec, thread_id)
        needed = _needed(db, reader, [row for row, _ in rows if row.rid in kept])
        for row, hidden in rows:
            if row.rid not in kept and row.rid not in needed:
                _drop(db, row)
            elif row.rid not in kept and not hidden:
                _hide(db, row)
        garbage = _garbage(db, reader)
        blobs_kept.drop(db, cache.id, frozenset(garbage))
        db.execute(sql.GENERATION, (1, cache.id))
        core.caches.pop(text_bytes(thread_id), None)
    for start in range(0, len(garbage), BATCH):
        with core.writing(alone=True) as db:
            db.executemany(sql.DELETE_ITEMS, [(r, r) for r in garbage[start : start + BATCH]])


def _all_rows(db: sqlite3.Connection, number: int) -> list[tuple[Row, bool]]:
    statement = (
        select(*sql.COLUMNS, checkpoints.c.hidden)
        .where(checkpoints.c.thread == number)
        .order_by(checkpoints.c.id)
    )
    return [(Row(*row[:-1]), bool(row[-1])) for row in db.execute(*sql.compiled(statement))]


def _drop(db: sqlite3.Connection, row: Row) -> None:
    own = (
        writes.c.thread == row.thread,
        writes.c.ns == row.ns,
        writes.c.checkpoint == row.id,
    )
    db.execute(*sql.compiled(delete(writes).where(*own)))
    db.execute(*sql.compiled(delete(checkpoints).where(checkpoints.c.rid == row.rid)))


def _hide(db: sqlite3.Connection, row: Row) -> None:
    hidden = update(checkpoints).where(checkpoints.c.rid == row.rid).values(hidden=1)
    db.execute(*sql.compiled(hidden))


def _needed(db: sqlite3.Connection, reader: Reader, kept: Iterable[Row]) -> set[int]:
    """Return the ancestors from which delta channels of kept checkpoints are rebuilt."""
    needed: set[int] = set()
    for row in kept:
        open_channels = _unstored(reader, row)
        for ancestor in ancestors(db, row) if open_channels else ():
            needed.add(ancestor.rid)
            stored = {channel for channel, _ in reader.body(ancestor).forms()}
            open_channels -= stored
            if not open_channels:
                break
    return needed


def _unstored(reader: Reader, row: Row) -> set[int]:
    """Return the delta channels of which a checkpoint holds no value."""
    counted = reader.metadata(row).get("counters_since_delta_snapshot") or {}
    stored = {channel for channel, _ in reader.body(row).forms()}
    numbers = (reader.cache.find_name(reader.db, row.ns, channel) for channel in counted)
    return {number for number in numbers if number is not None} - stored


def _garbage(db: sqlite3.Connection, reader: Reader) -> list[int]:
    """Return the keys of a thread's items that no checkpoint and no write refers to."""
    number = reader.cache.id
    live: list[tuple[int, int]] = []
    for row, _ in _all_rows(db, number):
        forms = [form for _, form in reader.body(row).forms()]
        if row.meta is not None:
            forms.append(ormsgpack.unpackb(row.meta))
        for form in forms:
            live += _spans(form)
    for *keys, sealed in db.execute(*sql.compiled(_writes_of(number))):
        body = unseal(sealed, f"table writes of thread {reader.thread_id!r}", *keys)
        for _, _, form in WritesBody.load(body).entries():
            live += _spans(form)
    starts, ends = _merged(live)
    used: set[int] = set()
    unused: list[int] = []
    for rid, base in _items_of(db, number):
        at = bisect_right(starts, rid) - 1
        if at >= 0 and rid <= ends[at]:
            if base is not None:
                used.add(base)
        else:
            unused.append(rid)
    return [rid for rid in unused if rid not in used]


def _writes_of(number: int) -> Any:
    columns = (writes.c.thread, writes.c.ns, writes.c.checkpoint, writes.c.task, writes.c.path)
    return select(*columns, writes.c.body).where(writes.c.thread == number)


def _items_of(db: sqlite3.Connection, number: int) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    lanes = select(names.c.id).where(names.c.thread == number)
    for (lane,) in db.execute(*sql.compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        own = select(items.c.rid, items.c.base).where(items.c.rid.between(low, low | PLACES))
        found += db.execute(*sql.compiled(own)).fetchall()
    return found


def _spans(form: Form) -> Iterable[tuple[int, int]]:
    """Yield the first and last key of every range that a form refers to."""
    if isinstance(form, int):
        yield form, form
    elif isinstance(form, list):
        for lane, *ranges in form[1:]:
            for start, count in zip(ranges[::2], ranges[1::2], strict=True):
                first = lane << LANE_BITS | start
                yield first, first + count - 1


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    starts: list[int] = []
    ends: list[int] = []
    for first, last in sorted(set(spans)):
        if ends and first <= ends[-1] + 1:
            ends[-1] = max(ends[-1], last)
        else:
            starts.append(first)
            ends.append(last)
    return starts, ends


def copy_thread(core: Core, source: str, target: str) -> None:
    """Copy all checkpoints and writes of a thread to a new one.

    Raises:
        StorageError: if the target has checkpoints already.
    """
    with core.writing(alone=True) as db:
        old = core.thread(db, source)
        if old is None:
            return
        new = core.thread_for_writing(db, target)
        if old.id == new.id or db.execute(sql.COUNT_STEPS, (new.id, 0)).fetchone()[0]:
            raise StorageError(f"thread {target!r} exists already; copy to a new thread id")
        _Copy(db, old, new, source).run()
        core.caches.pop(text_bytes(target), None)


class _Copy:
    """Renumbers a thread's rows."""

    def __init__(
        self, db: sqlite3.Connection, old: ThreadCache, new: ThreadCache, thread_id: str
    ) -> None:
        self._db = db
        self._old = old.id
        self._new = new.id
        self._what = f"thread {thread_id!r}"
        old.scope(db, 0)
        self._lanes: dict[int, int] = {0: 0}
        named = [
            (number, scope, text)
            for scope, numbers in (old.names or {}).items()
            for text, number in numbers.items()
        ]
        for number, scope, text in sorted(named):
            self._lanes[number] = new.name(db, self._lanes[scope], text)

    def run(self) -> None:
        for number in self._lanes:
            self._items(number)
        blobs_kept.copy(self._db, self._old, self._new)
        for row, hidden in _all_rows(self._db, self._old):
            self._checkpoint(row, hidden)
        for *keys, sealed in self._db.execute(*sql.compiled(_writes_of(self._old))).fetchall():
            body = WritesBody.load(unseal(sealed, self._what, *keys))
            parts = ((i, self._lanes[c], self._form(form)) for i, c, form in body.entries())
            body.flat = [part for entry in parts for part in entry]
            moved = (self._new, self._lanes[keys[1]], *keys[2:])
            self._db.execute(sql.PUT_WRITES, (*moved, seal(body.dump(), *moved)))
        journal_rows.copy(self._db, self._old, self._new)

    def _items(self, lane: int) -> None:
        low = lane << LANE_BITS
        own = select(items).where(items.c.rid.between(low, low | PLACES))
        rows: Sequence[Any] = self._db.execute(*sql.compiled(own)).fetchall()
        made = []
        for rid, base, sealed in rows:
            payload = unseal(sealed, self._what, rid, base)
            key, under = self._rid(rid), None if base is None else self._rid(base)
            made.append((key, under, seal(payload, key, under)))
        self._db.executemany(sql.NEW_ITEM, made)

    def _checkpoint(self, row: Row, hidden: bool) -> None:
        body = CheckpointBody.load(unseal(row.body, self._what, *row.context()))
        lanes = self._lanes
        body.versions = self._flat(body.versions)
        body.seen = [
            part
            for node, seen in zip(body.seen[::2], body.seen[1::2], strict=True)
            for part in (lanes[node], self._flat(seen))
        ]
        pairs = ((lanes[channel], self._form(form)) for channel, form in body.forms())
        body.values = [part for pair in pairs for part in pair]
        body.updated = body.updated and [lanes[channel] for channel in body.updated]
        meta = row.meta
        if meta is not None:
            meta = ormsgpack.packb(self._form(ormsgpack.unpackb(meta)))
        context = (self._new, lanes[row.ns], *row[3:8])
        sealed = seal(body.dump(), *context, meta)
        self._db.execute(sql.PUT, (*context, int(hidden), meta, sealed))

    def _flat(self, versions: list[Any]) -> list[Any]:
        pairs = zip(versions[::2], versions[1::2], strict=True)
        return [part for channel, version in pairs for part in (self._lanes[channel], version)]

    def _form(self, form: Form) -> Form:
        if isinstance(form, int):
            return self._rid(form)
        if isinstance(form, list):
            return [form[0], *([self._lanes[lane], *ranges] for lane, *ranges in form[1:])]
        return form

    def _rid(self, rid: int) -> int:
        return self._lanes[rid >> LANE_BITS] << LANE_BITS | rid & PLACES
