"""Go through all rows of a store: verify them, or seal them under a new key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ormsgpack
from sqlalchemy import Column, LargeBinary, Table, func, literal_column, select, update
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.errors import StorageError
from wick_graph.store import statements
from wick_graph.store.checkpoint_read import Row, body_of, spans
from wick_graph.store.cipher import Encrypted, new_mark
from wick_graph.store.cleanup import GONE
from wick_graph.store.codec import HASH_BYTES, is_text_key
from wick_graph.store.connection import StoreConnection
from wick_graph.store.dialect import Database
from wick_graph.store.digests import (
    CHECKPOINTS,
    COUNT_BITS,
    LANE_BITS,
    MASK,
    PLACES,
    WRITES,
    changing,
    checksum_of,
    columns_of,
    hash_of,
    sums_of,
    term,
)
from wick_graph.store.encryption import ID_BYTES, MARK, NOBODY
from wick_graph.store.ledger import place_of
from wick_graph.store.row_format import Context, Seals, WritesBody, bytes_text
from wick_graph.store.saver import SqlSaver
from wick_graph.store.schema import (
    ACCOUNTED,
    blobs,
    calls,
    checkpoints,
    clock,
    digests,
    events,
    facts,
    inbox,
    items,
    leases,
    memories,
    moments,
    names,
    outbox,
    runs,
    streams,
    threads,
    tokens,
    writes,
)
from wick_graph.store.statements import checked, checked_columns
from wick_graph.store.texts import compiled

# --- Changing the key of an encrypted store: everything is sealed again under the current key.
#
# Rows are changed in batches while others go on reading and writing. A row is replaced only if it
# is still the one that was read, so no write is lost. The store's own row comes last: until then
# the old key is needed, and an interrupted rotation can simply be started again.


_BATCH: Final = 200
"""The most rows that one transaction changes."""

_PASSES: Final = 3
"""The most passes over all rows, if others still write under an old key."""

_IS_THERE: Final = threads.c.status != GONE
"""Threads that are being deleted need no key any more."""

SEALED: Final = (
    (threads, threads.c.thread, threads.c.title, "title"),
    (threads, threads.c.thread, threads.c.last_error, "last_error"),
    *((table, table.c.key, table.c.body, table.name) for table in (inbox, outbox, facts, memories)),
    (memories, memories.c.key, memories.c.vectors, "vectors"),
)
"""Columns that are sealed by themselves, each with the key of its row and its name in the seal."""

Place = Callable[[Seals, int, Sequence[Any]], tuple[Context, ...]]
"""Makes a row's context from its columns, as its writers do."""


def rotate(saver: SqlSaver) -> int:
    """Seal everything under the current key, and return how many rows were changed.

    First give the new keys to all processes that have the store open. Afterwards you can remove
    the old ones.

    Raises:
        StorageError: The store is not encrypted, a row is damaged, or a process still writes under
            an old key; the old keys are still needed.
    """
    core: StoreConnection = saver._core
    sealing = core.sealing
    if not isinstance(sealing, Encrypted) or sealing.keys is None:
        raise StorageError(f"{core.dialect.name} is not encrypted; there is no key to change")
    total = 0
    for _ in range(_PASSES):
        changed = sum(_thread(core, *named) for named in _all_threads(core)) + _texts(core)
        total += changed
        if not changed:
            break
    else:
        raise StorageError(
            f"a process still writes to {core.dialect.name} under an old key; give the new keys to "
            "all processes that have it open, and try again"
        )
    return total + _mark(core, sealing)


def _all_threads(core: StoreConnection) -> list[tuple[int, bytes, bytes]]:
    """Return the number, the tenant and the id of each thread, of all tenants."""
    query = select(threads.c.id, threads.c.tenant, threads.c.thread).where(_IS_THERE)
    with core.reading() as db:
        found = db.execute(*compiled(query)).fetchall()
    return [(number, bytes(tenant), bytes(key)) for number, tenant, key in found]


def _thread(core: StoreConnection, number: int, tenant: bytes, key: bytes) -> int:
    """Seal a thread's rows again, and return how many."""
    changed, seals = 0, core.sealing.of(number, tenant, key)
    for table, columns, place in BY_THREAD:
        changed += _rows(core, seals, number, table, table.c.thread == number, columns, place)
    with core.reading() as db:
        mine = select(names.c.id).where(names.c.thread == number)
        lanes = [row[0] for row in db.execute(*compiled(mine)).fetchall()]
    for table, columns, place in BY_RANGE:
        for owner in lanes if table is items else [number]:
            low = owner << LANE_BITS
            within = table.c.rid.between(low, low | PLACES)
            changed += _rows(core, seals, number, table, within, columns, place)
    return changed


def _rows(
    core: StoreConnection,
    seals: Seals,
    number: int,
    table: Table,
    mine: ColumnElement[bool],
    columns: Sequence[Column[Any]],
    place: Place,
) -> int:
    what, changed = f"table {table.name}", 0
    query = select(table.c.rid, table.c.body, *columns)
    query = query.where(mine, _is_old(core, table.c.body)).order_by(table.c.rid).limit(_BATCH)
    last = -1
    while True:
        with core.writing(alone=True) as db:
            db.execute(statements.LOCK_NUMBER, (number,))
            found = db.execute(*compiled(query.where(table.c.rid > last))).fetchall()
            for rid, body, *rest in found:
                context = place(seals, rid, rest)
                made = seals.seal(seals.unseal(body, what, *context), *context)
                same = (table.c.rid == rid, table.c.body == body)
                with changing(db, table, number, table.c.rid == rid):
                    db.execute(*compiled(update(table).where(*same).values(body=made)))
        changed += len(found)
        if len(found) < _BATCH:
            return changed
        last = found[-1][0]


def _texts(core: StoreConnection) -> int:
    """Seal the texts in the rows that are of no thread again, and return how many."""
    changed = 0
    for table, key, column, label in SEALED:
        number = next(iter(table.primary_key.columns))
        query = select(number, table.c.tenant, key, column).limit(_BATCH)
        query = query.where(column.is_not(None), _is_old(core, column))
        if table is threads:
            query = query.where(_IS_THERE)
        while True:
            with core.writing(alone=True) as db:
                found = db.execute(*compiled(query)).fetchall()
                for row, tenant, name, body in found:
                    context = (bytes(tenant), bytes(name), label)
                    closed = core.sealing.close(core.sealing.open(body, *context), *context)
                    made = update(table).where(number == row, column == body)
                    made = made.values(**checked(table, {column.name: closed}))
                    db.execute(*compiled(made))
            changed += len(found)
            if len(found) < _BATCH:
                break
    return changed


def _mark(core: StoreConnection, sealing: Encrypted) -> int:
    assert sealing.keys is not None
    own = (blobs.c.thread == literal_column(str(NOBODY)), blobs.c.hash == MARK)
    with core.writing(alone=True) as db:
        old = select(blobs.c.body).where(*own, _is_old(core, blobs.c.body))
        if not db.execute(*compiled(old)).fetchall():
            return 0
        made = update(blobs).where(*own).values(body=new_mark(sealing.keys, sealing))
        db.execute(*compiled(made))
    return 1


def _is_old(core: StoreConnection, column: Column[Any]) -> ColumnElement[bool]:
    keys = core.sealing.keys
    assert keys is not None
    held = func.substr(
        column, literal_column("2"), literal_column(str(ID_BYTES)), type_=LargeBinary()
    )
    condition: ColumnElement[bool] = held != keys.current
    return condition


def _plainly(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return (*row,)


def _call(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return place_of(seals, *row)


def _stream(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return ("stream", *row)


def _blob(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    thread, key = row
    return ("blobs", key[-HASH_BYTES:]) if is_text_key(key) else (thread, key)


def _item(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return (rid, *row)


def _moment(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return ("moments", rid)


def _event(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return ("events", rid)


_w = writes.c

BY_THREAD: Final[tuple[tuple[Table, tuple[Column[Any], ...], Place], ...]] = (
    (checkpoints, statements.COLUMNS[1:9], _plainly),
    (
        writes,
        (_w.thread, _w.ns, _w.checkpoint, _w.task, _w.path),
        _plainly,
    ),
    (calls, (calls.c.thread, calls.c.key, calls.c.args), _call),
    (runs, (runs.c.thread, runs.c.number), _plainly),
    (streams, (streams.c.thread, streams.c.run), _stream),
    (blobs, (blobs.c.thread, blobs.c.hash), _blob),
)

BY_RANGE: Final[tuple[tuple[Table, tuple[Column[Any], ...], Place], ...]] = (
    (items, (items.c.base,), _item),
    (moments, (), _moment),
    (events, (), _event),
)


# --- `verify`: check that everything that was stored is still there, and unchanged.
#
# There are four checks: the database checks its own pages; each row is compared with its check
# value or checksum; the rows of each thread with the thread's digests; and the references of steps
# with the rows that are there. Nothing is changed, and each thread is read in one consistent view.


Progress = Callable[[int, int], None]
"""Called after each thread with the number of threads read, and of all threads."""

_PLACES: Final = {table: (columns, place) for table, columns, place in (*BY_THREAD, *BY_RANGE)}

_RANGES: Final = (moments, events, digests)

_MOST: Final = 1 << 31
"""The keys of rows have no room for more lanes or threads than this."""

_WRONG: Final = (StorageError, ValueError, TypeError, IndexError, OverflowError, UnicodeError)
"""The errors that decoding a damaged row may raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    what: str
    """A sentence."""
    table: str | None = None
    thread: str | None = None
    step: int | None = None
    """The number of a checkpoint in its thread."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What `verify` found."""

    threads: int = 0
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify(saver: SqlSaver, progress: Progress | None = None) -> Report:
    """Read the whole store, of all tenants, and report what is damaged, missing or foreign.

    Raises:
        StorageError: The database cannot be read at all.
    """
    return _Verifying(saver._core).run(progress)


class _Verifying:
    def __init__(self, core: StoreConnection) -> None:
        self._core = core
        self.report = Report()

    def run(self, progress: Progress | None) -> Report:
        with self._core.idle() as db:
            for said in self._core.dialect.problems(db):
                self._find(f"the database reports: {said}")
        known = self._known()
        for at, (number, (tenant, key)) in enumerate(known.items()):
            try:
                with self._core.reading() as db:
                    one = ThreadRows(self._core, db, number, tenant, key)
                    one.check(self.report)
            except StorageError as error:
                self._find(str(error), thread=_name_of_key(key))
            self.report.threads += 1
            if progress is not None:
                progress(at + 1, len(known))
        return self.report

    def _known(self) -> dict[int, tuple[bytes, bytes]]:
        """Check the rows that belong to no thread, or to a missing one; return the threads."""
        known: dict[int, tuple[bytes, bytes]] = {}
        gone: set[int] = set()
        try:
            with self._core.reading() as db:
                query = select(threads.c.id, threads.c.tenant, threads.c.thread, threads.c.status)
                for number, tenant, key, status in db.execute(*compiled(query)).fetchall():
                    if status == GONE:
                        gone.add(number)
                    elif type(tenant) is type(key) is bytes:
                        known[number] = tenant, key
                    else:
                        self._find(f"thread {key!r:.80} has no valid name", table="threads")
                        gone.add(number)
                for table in (threads, leases, tokens, clock, inbox, outbox, facts, memories):
                    self._checksums(db, table, known)
                self._texts(db)
                self._strays(db, {*known, *gone, NOBODY})
        except StorageError as error:
            self._find(str(error), table="threads")
        return known

    def _checksums(self, db: Database, table: Table, known: dict[int, tuple[bytes, bytes]]) -> None:
        """Compare rows with their checksums, unless the database checks its own pages."""
        if self._core.dialect.locks:
            return
        key = next(iter(table.primary_key.columns))
        query = select(key, table.c.checksum, *checked_columns(table))
        for number, checksum, *values in db.execute(*compiled(query)).fetchall():
            self.report.rows += 1
            if not same_checksum(checksum, values):
                thread = known.get(number, (b"", b""))[1] if table in (threads, leases) else b""
                what = f"a row of {table.name} was changed: its checksum is wrong"
                self._find(what, table=table.name, thread=_name_of_key(thread) or None)

    def _texts(self, db: Database) -> None:
        """Open the sealed texts of rows that are of no thread."""
        if self._core.sealing.keys is None:
            return
        for table, key, column, label in SEALED:
            query = select(table.c.tenant, key, column).where(column.is_not(None))
            if table is threads:
                query = query.where(_IS_THERE)
            for tenant, name, body in db.execute(*compiled(query)).fetchall():
                try:
                    self._core.sealing.open(body, bytes(tenant), bytes(name), label)
                except _WRONG as error:
                    self._find(str(error).removesuffix("; restore a backup"), table=table.name)

    def _strays(self, db: Database, there: set[int]) -> None:
        """Find rows of missing threads."""
        lanes = dict(db.execute(*compiled(select(names.c.id, names.c.thread))).fetchall())
        for table in (*(table for table, *_ in BY_THREAD), leases, names):
            found = db.execute(*compiled(select(table.c.thread).distinct())).fetchall()
            self._lost(table, {row[0] for row in found} - there)
        for table in (*_RANGES, items):
            owners = _owners(db, table)
            if table is items:
                unnamed = owners - lanes.keys()
                if unnamed:
                    what = f"rows of items belong to no channel: names {sorted(unnamed)[:5]}"
                    self._find(f"{what} are missing", table="names")
            else:
                self._lost(table, owners - there)
        if max([0, *lanes], default=0) >= _MOST or max(there) >= _MOST:
            self._find("a number is larger than any that was given", table="names")

    def _lost(self, table: Table, missing: set[Any]) -> None:
        if missing:
            what = f"rows of {table.name} belong to threads that are missing"
            self._find(f"{what}: {sorted(missing, key=str)[:5]}", table="threads")

    def _find(self, what: str, **where: Any) -> None:
        self.report.findings.append(Finding(what=what, **where))


class ThreadRows:
    """One thread's rows in one view of the database, checked one by one."""

    def __init__(
        self, core: StoreConnection, db: Database, number: int, tenant: bytes, key: bytes
    ) -> None:
        self._core = core
        self.db = db
        self.number = number
        self.name = _name_of_key(key)
        self.seals: Seals = core.sealing.of(number, tenant, key)
        found = select(names.c.id).where(names.c.thread == number)
        self.lanes = [row[0] for row in db.execute(*compiled(found)).fetchall()]
        self.whole: dict[Table, set[Any]] = {table: set() for table in ACCOUNTED}
        """The keys of rows that are as they were written; for blobs, their hashes."""
        self.bases: dict[int, int] = {}
        """For items that repeat the content of another one, the key of that one."""
        self.incomplete: set[tuple[Table, int]] = set()
        """Checkpoints and pending writes that refer to missing or damaged rows."""
        self._report = Report()

    def check(self, report: Report) -> None:
        """Check all rows of the thread."""
        self._report = report
        steps = self._steps()
        sums = self._sums()
        actual = {step: [0] * len(ACCOUNTED) for step in (0, *sums)}
        for at, table in enumerate(ACCOUNTED):
            try:
                for key, row in self.rows(table):
                    step = steps.get((at, key), 0)
                    own = actual.setdefault(step, [0] * len(ACCOUNTED))
                    own[at] += term(hash_of(table, row))
            except self._core.dialect.errors as error:
                self._find(table, f"cannot be read: {error}")
        self._compare(sums, actual)
        self._references()

    def rows(self, table: Table) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Yield the rows of a table: the key, and the columns that the hash is made of."""
        context, place = _PLACES.get(table, ((), None))
        key = table.c.id if table is names else table.c.rid
        wanted = columns_of(table)
        query = select(key, *context, *wanted)
        for where in self._mine(table):
            for number, *row in self.db.execute(*compiled(query.where(where))):
                self._report.rows += 1
                own = row[len(context) :]
                if table is items and row[0] is not None:
                    self.bases[number] = row[0]
                if place is None or self._opens(table, place, number, row[: len(context)], own[-1]):
                    self.whole[table].add(_key(table, number, own))
                yield number, own

    def _opens(self, table: Table, place: Any, rid: int, row: Any, body: Any) -> bool:
        if body is None:
            return True
        try:
            self.seals.unseal(body, f"table {table.name}", *place(self.seals, rid, row))
        except _WRONG as error:
            said = str(error).removesuffix("; restore a backup")
            self._find(table, f"row {rid}: {said}", step=self._step_at(table, rid))
            return False
        return True

    def _mine(self, table: Table) -> list[Any]:
        if table is items:
            lows = [lane << LANE_BITS for lane in self.lanes]
        elif table in (moments, events):
            lows = [self.number << LANE_BITS]
        else:
            return [table.c.thread == self.number]
        return [table.c.rid.between(low, low | PLACES) for low in lows]

    def _steps(self) -> dict[tuple[int, int], int]:
        """Return the step at which each checkpoint and each row of writes is counted."""
        query = select(*(checkpoints.c[name] for name in ("rid", "ns", "id", "parent", "seq")))
        own = self.db.execute(*compiled(query.where(checkpoints.c.thread == self.number)))
        rows = own.fetchall()
        self._seqs = {(ns, bytes(key)): seq for _, ns, key, _, seq in rows if type(key) is bytes}
        found = {(CHECKPOINTS, rid): self._seqs.get((ns, up), 0) for rid, ns, _, up, _ in rows}
        self._own_step = {rid: seq for rid, *_, seq in rows}
        query = select(*(writes.c[name] for name in ("rid", "ns", "checkpoint")))
        for rid, ns, at in self.db.execute(*compiled(query.where(writes.c.thread == self.number))):
            found[WRITES, rid] = self._seqs.get((ns, at), 0)
        self._under = {rid: step for (table, rid), step in found.items() if table == WRITES}
        return found

    def _step_at(self, table: Table, rid: int) -> int | None:
        if table is checkpoints:
            return self._own_step.get(rid)
        return self._under.get(rid) if table is writes else None

    def _sums(self) -> dict[int, list[int]]:
        """Return the stored sums by step; report those that no release writes."""
        stored = sums_of(self.db, self.number)
        known = {0, *self._seqs.values()}
        for step, sums in stored.items():
            if step not in known:
                self._find(checkpoints, "a sum is stored for a step that does not exist", step=step)
            for at, table in enumerate(ACCOUNTED):
                if type(sums[at]) is not int or not 0 <= sums[at] <= MASK:
                    self._find(table, "its stored sum is not a sum", step=step or None)
                    sums[at] = sums[at] & MASK if type(sums[at]) is int else 0
        return stored

    def _compare(self, sums: dict[int, list[int]], actual: dict[int, list[int]]) -> None:
        """Compare the sums; if those of a table differ, report the step."""
        for at, table in enumerate(ACCOUNTED):
            off = sum(own[at] for own in sums.values()) - sum(own[at] for own in actual.values())
            if off & MASK == 0:
                continue
            differ = [
                step
                for step, own in sorted(actual.items())
                if table in (checkpoints, writes)
                and (sums.get(step, [0] * len(ACCOUNTED))[at] - own[at] - off) & MASK == 0
            ]
            self._find(table, _describe(off), step=differ[0] if len(differ) == 1 else None)

    def _references(self) -> None:
        """Check that everything that steps and pending writes refer to is there."""
        query = select(*statements.COLUMNS).where(checkpoints.c.thread == self.number)
        for found in self.db.execute(*compiled(query)).fetchall():
            row = Row(*found)
            if row.rid in self.whole[checkpoints] and not self._is_complete(row):
                self.incomplete.add((checkpoints, row.rid))
        under_way = self._is_under_way()
        columns = (writes.c.rid, *_PLACES[writes][0], writes.c.body)
        query = select(*columns).where(writes.c.thread == self.number)
        for rid, *keys, body in self.db.execute(*compiled(query)).fetchall():
            seq = self._seqs.get((keys[1], keys[2]))
            if seq is None:
                if not (under_way and self._may_come(keys[1], keys[2])):
                    what = f"row {rid} of writes belongs to a checkpoint that is gone"
                    self._find(checkpoints, what)
            elif rid not in self.whole[writes] or self._are_complete(body, keys, seq):
                continue
            self.incomplete.add((writes, rid))

    def _is_under_way(self) -> bool:
        """Return whether a run may be storing a step, or was killed while it did."""
        query = select(leases.c.until).where(leases.c.thread == self.number)
        row = self.db.execute(*compiled(query)).fetchone()
        return row is None or row[0] != 0

    def _may_come(self, ns: Any, checkpoint: Any) -> bool:
        """Return whether a checkpoint is newer than those stored: its writes may be stored first.

        The sums show whether a stored one is missing.
        """
        newest = max((key for own, key in self._seqs if own == ns), default=b"")
        return type(checkpoint) is bytes and checkpoint > newest

    def bodies(self, table: Table) -> Iterator[tuple[int, bytes]]:
        """Yield the key and the opened body of each row that is whole."""
        context, place = _PLACES[table]
        query = select(table.c.rid, *context, table.c.body)
        for where in self._mine(table):
            for rid, *row, body in self.db.execute(*compiled(query.where(where))):
                if rid in self.whole[table]:
                    yield rid, self.seals.unseal(body, table.name, *place(self.seals, rid, row))

    def check_references(self) -> None:
        """Check the references of steps again, after more rows were counted as damaged."""
        self._references()

    def _is_complete(self, row: Row) -> bool:
        """Return whether everything that a checkpoint refers to is there and whole."""
        try:
            body = body_of(row, self.seals, "table checkpoints")
            forms = [form for _, form in body.forms()]
            forms += [] if row.meta is None else [ormsgpack.unpackb(row.meta)]
            channels = {channel for channel, _ in body.forms()}
        except _WRONG as error:
            self._find(checkpoints, str(error).removesuffix("; restore a backup"), step=row.seq)
            return False
        return self._is_there(forms, channels | {row.ns}, row.seq)

    def _are_complete(self, sealed: bytes, keys: Sequence[Any], step: int) -> bool:
        entries = [*WritesBody.load(self.seals.unseal(sealed, "table writes", *keys)).entries()]
        channels = {channel for _, channel, _ in entries}
        return self._is_there([form for *_, form in entries], channels, step)

    def _is_there(self, forms: list[Any], channels: set[int], step: int) -> bool:
        there = self.whole[items]
        gone = {
            rid
            for form in forms
            for first, last in spans(form)
            for rid in range(first, last + 1)
            if rid not in there or self.bases.get(rid, rid) not in there
        }
        if gone:
            what = f"{len(gone)} items that the step refers to are missing or damaged"
            self._find(items, what, step=step)
        if lost := channels.difference(self.lanes):
            self._find(names, f"{len(lost)} names that the step refers to are missing", step=step)
        return not (gone or lost)

    def _find(self, table: Table, what: str, step: int | None = None) -> None:
        name = table.name
        self._report.findings.append(Finding(what=what, table=name, thread=self.name, step=step))


def _key(table: Table, number: int, row: Sequence[Any]) -> Any:
    return row[0] if table.name == "blobs" else number


def _describe(off: int) -> str:
    """Describe a difference between two sums."""
    count = off & (1 << COUNT_BITS) - 1
    if count == 0:
        return "a row is not the one that was written: it is damaged, older or from elsewhere"
    if count < 1 << COUNT_BITS - 1:
        return f"{count} row{'s are' if count > 1 else ' is'} missing"
    extra = (1 << COUNT_BITS) - count
    return f"{extra} row{'s were' if extra > 1 else ' was'} added by another program"


def same_checksum(checksum: Any, values: Sequence[Any]) -> bool:
    """Return whether a row of `checked_columns` is as it was written."""
    try:
        return bool(checksum == checksum_of(*values))
    except _WRONG:
        return False


def _owners(db: Database, table: Table) -> set[int]:
    """Return the numbers that the keys of a table begin with, without reading all of them."""
    found: set[int] = set()
    at = -(1 << 62)
    while row := db.execute(
        *compiled(select(table.c.rid).where(table.c.rid >= at).order_by(table.c.rid).limit(1))
    ).fetchone():
        owner = row[0] >> LANE_BITS
        found.add(owner)
        if owner >= _MOST - 1:
            break
        at = owner + 1 << LANE_BITS
    return found


def _name_of_key(key: bytes) -> str:
    try:
        return bytes_text(key)
    except UnicodeError:
        return key.decode("utf-8", "backslashreplace")
