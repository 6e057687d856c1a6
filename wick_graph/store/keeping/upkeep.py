"""Deleting, pruning and copying threads, without an orphan row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import ormsgpack
from sqlalchemy import Table, delete, select, update
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.constants import RUN_KNOWN_SECONDS
from wick_graph.store.checkpoints import blobs_kept, calls_kept
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.checkpoints.reading import Reader, Row, ancestors
from wick_graph.store.checkpoints.strays import drop_old
from wick_graph.store.database import sql
from wick_graph.store.database.compiling import checked, compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import changing, drop_steps, erase
from wick_graph.store.database.schema import (
    LANE_BITS,
    OWNED,
    PLACES,
    checkpoints,
    digests,
    events,
    items,
    moments,
    names,
    runs,
    streams,
    threads,
    writes,
)
from wick_graph.store.keeping import journal_kept
from wick_graph.store.values.codec import Codec
from wick_graph.store.values.rows import Form, WritesBody, bytes_text, text_bytes

BATCH: Final = 1_000
"""Rows that one transaction deletes at most."""
Wanted = Callable[[list[Row]], set[int]]
"""Chooses the checkpoints that stay."""
_GONE: Final = b"\xff"
"""The tenant of threads that are being deleted; no text encodes to it."""
GONE: Final = "deleted"
"""The status of such threads."""


class Writing(Protocol):
    """How a transaction is begun."""

    def __call__(self, *, alone: bool) -> AbstractContextManager[Database]:
        """Hold the database for writing."""


def condemn(db: Database, *conditions: ColumnElement[bool]) -> list[int]:
    """Make threads invisible, so that nobody sees half of one, and return their numbers."""
    statement = select(threads.c.id).where(threads.c.tenant != _GONE, *conditions)
    found = [row[0] for row in db.execute(*compiled(statement))]
    for number in found:
        gone = update(threads).where(threads.c.id == number)
        said = {"tenant": _GONE, "thread": b"%d" % number, "status": GONE}
        gone = gone.values(**checked(threads, said))
        db.execute(*compiled(gone))
    return found


def condemned(db: Database) -> list[int]:
    """Return threads whose deletion was begun, here or by a process that died."""
    statement = select(threads.c.id).where(threads.c.tenant == _GONE)
    return [row[0] for row in db.execute(*compiled(statement))]


def remove(writing: Writing, number: int) -> None:
    """Delete everything of a condemned thread, at most `BATCH` rows at a time."""
    while True:
        with writing(alone=True) as db:
            db.execute(sql.LOCK_NUMBER, (number,))  # others may be about to remove it too
            if not _remove_some(db, number):
                return


def _remove_some(db: Database, number: int) -> bool:
    """Delete one batch; False when the thread itself is gone."""
    for table in OWNED:
        key = table.c.thread if table.name == "leases" else table.c.rid
        some = select(key).where(table.c.thread == number).limit(BATCH)
        if db.execute(*compiled(delete(table).where(key.in_(some)))).rowcount:
            return True
    if any(_remove_range(db, table, number) for table in (moments, events, digests)):
        return True
    lanes = select(names.c.id).where(names.c.thread == number).order_by(names.c.id).limit(BATCH)
    for (lane,) in db.execute(*compiled(lanes)).fetchall():
        if _remove_range(db, items, lane):
            return True
    some = select(names.c.id).where(names.c.thread == number).limit(BATCH)
    if db.execute(*compiled(delete(names).where(names.c.id.in_(some)))).rowcount:
        return True
    db.execute(*compiled(delete(threads).where(threads.c.id == number)))
    return False


def _remove_range(db: Database, table: Table, owner: int) -> bool:
    """Delete a batch of the rows whose keys begin with a number; False where none is left."""
    low = owner << LANE_BITS
    some = select(table.c.rid).where(table.c.rid.between(low, low | PLACES)).limit(BATCH)
    return db.execute(*compiled(delete(table).where(table.c.rid.in_(some)))).rowcount > 0


def delete_thread(core: Core, thread_id: str) -> bool:
    """Delete a thread with everything that is its; False if there was none."""
    with core.writing(thread_id, alone=True) as db:
        key = text_bytes(thread_id)
        found = condemn(db, threads.c.tenant == core.tenant, threads.c.thread == key)
        core.caches.pop(key, None)
    for number in found:
        remove(core.writing, number)
    return bool(found)


def keep(
    core: Core, codec: Codec, thread_id: str, wanted: Wanted, gone: Collection[bytes] = ()
) -> None:
    """Delete a thread's checkpoints except the wanted ones and what those are rebuilt from.

    `wanted` gets all rows, oldest first, and returns the keys of those to keep. Delta channels
    need the writes of ancestors: these stay, hidden, back to each channel's last stored value.
    What nothing can ask for any more goes too: calls of the ledger, long texts, what a server
    keeps of runs that are long over, and the journal of the runs that are `gone`. Items that
    nothing refers to are deleted afterwards, in bounded transactions.
    """
    with core.writing(thread_id, alone=True) as db:
        garbage = prune(core, codec, db, thread_id, wanted, gone)
    for start in range(0, len(garbage), BATCH):
        with core.writing(thread_id, alone=True) as db:
            cache = core.thread(db, thread_id)
            if cache is not None:
                drop_items(db, cache.id, garbage[start : start + BATCH])


def traced(
    core: Core,
    gone: Collection[bytes],
    tables: Sequence[Table] = (checkpoints, runs, streams),
) -> list[str]:
    """Return the threads that hold something of these runs, in these tables."""
    found: dict[str, None] = {}
    packed = [*gone]
    with core.reading() as db:
        for table in tables:
            for start in range(0, len(packed), BATCH):
                query = (
                    select(threads.c.thread)
                    .join(table, table.c.thread == threads.c.id)
                    .where(threads.c.tenant == core.tenant)
                    .where(table.c.run.in_(packed[start : start + BATCH]))
                    .distinct()
                )
                found |= dict.fromkeys(
                    bytes_text(key) for (key,) in db.execute(*compiled(query)).fetchall()
                )
    return [*found]


def prune(
    core: Core,
    codec: Codec,
    db: Database,
    thread_id: str,
    wanted: Wanted,
    gone: Collection[bytes] = (),
) -> list[int]:
    """Do what `keep` does within somebody's transaction, and return the items to be dropped."""
    cache = core.thread(db, thread_id)
    if cache is None:
        return []
    garbage = _drop_checkpoints(core, Reader(db, cache, codec, thread_id), wanted)
    journal_kept.drop_runs(db, cache.seals, cache.id, gone)
    before = core.now() - RUN_KNOWN_SECONDS
    journal_kept.drop_streams(db, cache.seals, cache.id, gone, before)
    return garbage


def _drop_checkpoints(core: Core, reader: Reader, wanted: Wanted) -> list[int]:
    db, number = reader.db, reader.cache.id
    rows = all_rows(db, number)
    stored = ((row.ns, row.id) for row, _ in rows)
    strays = drop_old(db, number, stored, reader.cache.find_name(db, 0, ""))
    kept = wanted([row for row, hidden in rows if not hidden])
    if len(kept) == len(rows) and not strays:
        return []
    needed = _needed(db, reader, [row for row, _ in rows if row.rid in kept])
    for row, hidden in rows:
        if row.rid not in kept and row.rid not in needed:
            _drop(db, row)
        elif row.rid not in kept and not hidden:
            _hide(db, row)
    garbage = _garbage(db, reader)
    unused = frozenset(garbage)
    seals = reader.cache.seals
    blobs_kept.drop(db, seals, number, unused)
    calls_kept.drop(db, seals, number, unused, _bodies(db, reader))
    db.execute(sql.GENERATION, (1, number))
    core.caches.pop(text_bytes(reader.thread_id), None)
    return garbage


def _bodies(db: Database, reader: Reader) -> Iterator[bytes]:
    """Yield what a thread's checkpoints and pending writes hold themselves."""
    what, unseal = f"thread {reader.thread_id!r}", reader.cache.seals.unseal
    for row, _ in all_rows(db, reader.cache.id):
        yield unseal(row.body, what, *row.context())
    for *keys, sealed in db.execute(*compiled(writes_of(reader.cache.id))).fetchall():
        yield unseal(sealed, what, *keys)


def drop_items(db: Database, thread: int, garbage: list[int]) -> None:
    """Delete items of a thread that nothing refers to any more."""
    for start in range(0, len(garbage), BATCH):
        erase(db, items, thread, items.c.rid.in_(garbage[start : start + BATCH]))


def all_rows(db: Database, number: int) -> list[tuple[Row, bool]]:
    """Return a thread's checkpoints, oldest first, and whether each is hidden."""
    statement = (
        select(*sql.COLUMNS, checkpoints.c.hidden)
        .where(checkpoints.c.thread == number)
        .order_by(checkpoints.c.seq)
    )
    return [(Row(*row[:-1]), bool(row[-1])) for row in db.execute(*compiled(statement))]


def _drop(db: Database, row: Row) -> None:
    own = (
        writes.c.thread == row.thread,
        writes.c.ns == row.ns,
        writes.c.checkpoint == row.id,
    )
    erase(db, writes, row.thread, *own)
    erase(db, checkpoints, row.thread, checkpoints.c.rid == row.rid)
    drop_steps(db, row.thread, [row.seq])


def _hide(db: Database, row: Row) -> None:
    hidden = update(checkpoints).where(checkpoints.c.rid == row.rid).values(hidden=1)
    with changing(db, checkpoints, row.thread, checkpoints.c.rid == row.rid):
        db.execute(*compiled(hidden))


def _needed(db: Database, reader: Reader, kept: Iterable[Row]) -> set[int]:
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


def _garbage(db: Database, reader: Reader) -> list[int]:
    """Return the keys of a thread's items that no checkpoint and no write refers to."""
    number = reader.cache.id
    live: list[tuple[int, int]] = []
    for row, _ in all_rows(db, number):
        forms = [form for _, form in reader.body(row).forms()]
        if row.meta is not None:
            forms.append(ormsgpack.unpackb(row.meta))
        for form in forms:
            live += spans(form)
    for *keys, sealed in db.execute(*compiled(writes_of(number))):
        what = f"table writes of thread {reader.thread_id!r}"
        body = reader.cache.seals.unseal(sealed, what, *keys)
        for _, _, form in WritesBody.load(body).entries():
            live += spans(form)
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


def writes_of(number: int) -> Any:
    """Select a thread's pending writes, with what their check values cover."""
    columns = (writes.c.thread, writes.c.ns, writes.c.checkpoint, writes.c.task, writes.c.path)
    return select(*columns, writes.c.body).where(writes.c.thread == number)


def _items_of(db: Database, number: int) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    lanes = select(names.c.id).where(names.c.thread == number)
    for (lane,) in db.execute(*compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        own = select(items.c.rid, items.c.base).where(items.c.rid.between(low, low | PLACES))
        found += db.execute(*compiled(own)).fetchall()
    return found


def spans(form: Form) -> Iterable[tuple[int, int]]:
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
