"""Copying threads: within a database, as forks, and from one database to another.

A copy has everything of its thread: checkpoints, pending writes, items, long texts, the ledger of
tool calls and the journal. Rows are renumbered and sealed again. Ids of checkpoints and tasks stay
the same, so that a copy knows which calls have run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ormsgpack
from sqlalchemy import Table, select, update

from wick_graph.errors import StorageError, ThreadNotFoundError
from wick_graph.store import cleanup, journal_rows, statements
from wick_graph.store.checkpoint_read import Row, body_of
from wick_graph.store.cleanup import all_rows, drop_items, prune, writes_of
from wick_graph.store.codec import Codec
from wick_graph.store.connection import StoreConnection
from wick_graph.store.dialect import Database
from wick_graph.store.digests import (
    CALLS,
    CHECKPOINTS,
    ITEMS,
    LANE_BITS,
    PLACES,
    WRITES,
    erase,
    row_hash,
)
from wick_graph.store.ledger import place_of
from wick_graph.store.row_format import Form, WritesBody, pack_id, text_bytes
from wick_graph.store.schema import (
    blobs,
    calls,
    checkpoints,
    items,
    threads,
    writes,
)
from wick_graph.store.statements import checked
from wick_graph.store.texts import Prepared, compiled
from wick_graph.store.thread_cache import ThreadCache

_FACTS: Final = (
    *(threads.c.agent, threads.c.title, threads.c.pinned, threads.c.ttl),
    *(threads.c.status, threads.c.stopped_because, threads.c.last_error),
)

_TEXTS: Final = ("title", "last_error")


def copy_thread(core: StoreConnection, source: str, target: str) -> None:
    """Copy all of a thread to a new one, its facts included.

    Raises:
        StorageError: The target has checkpoints already.
    """
    with core.writing(min(source, target), alone=True) as db:
        old = core.thread(db, source)
        if old is not None:
            facts = _facts(core, db, old.id, source) | _parent(db, old.id)
            new = _copied(core, db, old, source, target)
            _note(core, db, new, target, facts)


def transfer(core: StoreConnection, source: str, other: StoreConnection, target: str) -> None:
    """Copy a thread to another database, with its title, agent and status.

    Raises:
        ThreadNotFoundError: There is no such thread.
        StorageError: The target exists already.
    """
    with core.reading(source) as held, other.writing(target, alone=True) as to:
        db: Any = _Source(core, held)
        old = core.thread(db, source)
        if old is None:
            raise _unknown(source)
        new = other.thread_for_writing(to, target)
        _refuse_taken(to, False, new, target)
        _Copy(db, to, old, new, source).run()
        facts = _facts(core, db, old.id, source) | _parent(db, old.id)
        _note(other, to, new.id, target, facts)
        other.caches.pop(text_bytes(target), None)


def save_sound(
    core: StoreConnection,
    held: Database,
    other: StoreConnection,
    thread_id: str,
    sound: Callable[[Table, Any], bool],
) -> None:
    """Copy the rows of a thread that are `sound`, by table and key, to another database.

    Raises:
        StorageError: The thread exists there already.
    """
    with other.writing(thread_id, alone=True) as to:
        db: Any = _Source(core, held)
        old = core.thread(db, thread_id)
        if old is None:
            raise _unknown(thread_id)
        new = other.thread_for_writing(to, thread_id)
        _refuse_taken(to, False, new, thread_id)
        _Copy(db, to, old, new, thread_id, sound).run()
        query = select(threads.c.created).where(threads.c.id == old.id)
        ((created,),) = db.execute(*compiled(query)).fetchall()
        facts = _facts(core, db, old.id, thread_id) | _parent(db, old.id) | {"created": created}
        _note(other, to, new.id, thread_id, facts)
        other.caches.pop(text_bytes(thread_id), None)


class _Rows(list[Any]):
    def fetchall(self) -> list[Any]:
        return self

    def fetchone(self) -> Any:
        return self.pop(0) if self else None


class _Source:
    """A database while another one is written: what it cannot read is no error of the other."""

    def __init__(self, core: StoreConnection, db: Database) -> None:
        self._dialect, self._db = core.dialect, db

    def execute(self, text: str | Prepared, values: Sequence[Any] = (), /) -> _Rows:
        try:
            return _Rows(self._db.execute(text, values).fetchall())
        except self._dialect.errors as error:
            raise self._dialect.explained(error) from error


def _all(table: Table, key: Any) -> bool:
    return True


def fork_thread(
    core: StoreConnection, codec: Codec, source: str, target: str, checkpoint: str | None = None
) -> None:
    """Make a thread that continues a checkpoint of another; by default its latest.

    This is one transaction: a process that dies meanwhile leaves no half fork behind.

    Raises:
        ThreadNotFoundError: There is no such thread.
        StorageError: It has no such checkpoint, or the target exists already.
    """
    with core.reading(source) as db:  # commits deferred writes; a wrong name makes no row
        if core.thread(db, source) is None:
            raise _unknown(source)
    with core.writing(min(source, target), alone=True) as db:
        old = core.thread(db, source)
        if old is None:
            raise _unknown(source)
        at, followed, facts = None, False, _facts(core, db, old.id, source)
        if checkpoint is not None:
            rows = [row for row, hidden in all_rows(db, old.id) if not hidden]
            home = old.find_name(db, 0, "")
            at = _find(rows, home, source, checkpoint)
            if at == [row.id for row in rows if row.ns == home][-1]:
                at = None  # as without a name: it may wait, within a graph that its step runs
            else:
                behind = {row.source for row in rows if row.parent == at}
                facts |= _stood("idle", "interrupted" if "loop" in behind else "done")
                followed = bool(behind)
        new = _copied(core, db, old, source, target)
        if followed:  # the writes that led to its child: the fork makes its own
            mine = (writes.c.thread == new, writes.c.checkpoint == at)
            erase(db, writes, new, *mine)
        if at is not None:
            _cut(core, codec, db, target, at)
        facts |= {"title": target, "parent": text_bytes(source)}
        _note(core, db, new, target, facts)


def _copied(core: StoreConnection, db: Database, old: ThreadCache, source: str, target: str) -> int:
    """Copy a thread in the caller's transaction, and return the number of the new one."""
    core.lock(db, max(source, target))
    new = core.thread_for_writing(db, target)
    _refuse_taken(db, old.id == new.id, new, target)
    _Copy(db, db, old, new, source).run()
    core.caches.pop(text_bytes(target), None)
    return new.id


def _cut(core: StoreConnection, codec: Codec, db: Database, thread_id: str, at: bytes) -> None:
    """Keep of a copy only what led to a checkpoint, in the transaction that makes the copy."""
    gone: set[bytes] = set()

    def wanted(rows: list[Row]) -> set[int]:
        home = next(row.ns for row in rows if row.id == at)
        own = {row.id: row for row in rows if row.ns == home}
        upto = own[at].seq
        kept = {row.rid for row in rows if row.ns != home and row.seq <= upto}
        row = own.get(at)
        while row is not None:
            kept.add(row.rid)
            row = None if row.parent is None else own.get(row.parent)
        runs = {row.run for row in rows if row.rid in kept}
        gone.update(row.run for row in rows if row.run is not None and row.run not in runs)
        return kept

    garbage = prune(core, codec, db, thread_id, wanted, gone)
    cache = core.thread(db, thread_id)
    assert cache is not None
    drop_items(db, cache.id, garbage)


def _unknown(thread_id: str) -> ThreadNotFoundError:
    return ThreadNotFoundError(f"there is no thread {thread_id}; list the threads to see them")


def _find(rows: list[Row], home: int | None, source: str, checkpoint: str) -> bytes:
    try:
        at = pack_id(checkpoint)
    except ValueError:
        at = b""
    if not any(row.id == at and row.ns == home for row in rows):
        raise StorageError(
            f"thread {source} has no checkpoint {checkpoint!r:.60}; list its history to find one"
        )
    return at


def _refuse_taken(db: Database, same: bool, new: ThreadCache, target: str) -> None:
    if same or db.execute(statements.COUNT_STEPS, (new.id, 0)).fetchone()[0]:
        raise StorageError(f"thread {target!r} exists already; copy to a new thread id")


def _facts(core: StoreConnection, db: Database, number: int, thread_id: str) -> dict[str, Any]:
    """Read the facts of a thread; a copy of a running one counts as interrupted."""
    row = db.execute(*compiled(select(*_FACTS).where(threads.c.id == number))).fetchone()
    facts = dict(zip((column.name for column in _FACTS), row, strict=True))
    key = text_bytes(thread_id)
    facts |= {name: core.open_text(facts[name], key, name) for name in _TEXTS}
    return facts | (_stood("idle", "interrupted") if facts["status"] == "running" else {})


def _parent(db: Database, number: int) -> dict[str, Any]:
    """Read the parent of a thread: its rules may bind the thread, and so its copy."""
    row = db.execute(*compiled(select(threads.c.parent).where(threads.c.id == number))).fetchone()
    assert row is not None
    return {"parent": row[0]}


def _stood(status: str, because: str) -> dict[str, Any]:
    return {"status": status, "stopped_because": because, "last_error": None}


def _note(
    core: StoreConnection, db: Database, number: int, thread_id: str, facts: dict[str, Any]
) -> None:
    now, key = core.now(), text_bytes(thread_id)
    facts |= {name: core.close_text(facts[name], key, name) for name in _TEXTS}
    until = None if facts["ttl"] is None else now + facts["ttl"]
    noted = update(threads).where(threads.c.id == number)
    facts |= {"last_access": now, "expires_at": until}
    db.execute(*compiled(noted.values(**checked(threads, facts))))


class _Copy:
    """Copies a thread's rows under new numbers."""

    def __init__(
        self,
        db: Database,
        to: Database,
        old: ThreadCache,
        new: ThreadCache,
        thread_id: str,
        sound: Callable[[Table, Any], bool] = _all,
    ) -> None:
        self._sound = sound
        self._db = db
        self._to = to
        self._old = old.id
        self._new = new.id
        self._what = f"thread {thread_id!r}"
        self._from, self._into = old.seals, new.seals
        old.scope(db, 0)
        self._lanes: dict[int, int] = {0: 0}
        self._seqs: dict[tuple[int, bytes], int] = {}
        """The numbers of the checkpoints, by namespace and id."""
        named = [
            (number, scope, text)
            for scope, numbers in (old.names or {}).items()
            for text, number in numbers.items()
        ]
        for number, scope, text in sorted(named):
            self._lanes[number] = new.name(to, self._lanes[scope], text)

    def run(self) -> None:
        for number in self._lanes:
            self._items(number)
        texts = [key for key in cleanup.keys(self._db, self._old) if self._sound(blobs, key)]
        cleanup.copy(self._db, self._from, self._old, self._to, self._into, self._new, texts)
        for row, hidden in all_rows(self._db, self._old):
            if self._sound(checkpoints, row.rid):
                self._checkpoint(row, hidden)
        for *keys, sealed in self._db.execute(*compiled(writes_of(self._old))).fetchall():
            step = self._seqs.get((keys[1], bytes(keys[2])))
            if step is None or not self._sound(writes, (keys[1], *keys[2:4])):
                continue  # writes without their checkpoint belong to nothing
            body = WritesBody.load(self._from.unseal(sealed, self._what, *keys))
            parts = ((i, self._lanes[c], self._form(form)) for i, c, form in body.entries())
            body.flat = [part for entry in parts for part in entry]
            moved = (self._new, self._lanes[keys[1]], *keys[2:])
            made = self._into.seal(body.dump(), *moved)
            self._to.execute(statements.PUT_WRITES, (*moved, made))
            self._to.account.add_body(WRITES, self._new, made, step)
        self._calls()
        journal_rows.copy(self._db, self._from, self._old, self._to, self._into, self._new)

    def _calls(self) -> None:
        """Copy the ledger: a call that ran in the source does not run again in the copy."""
        own = select(*(column for column in calls.c if column.name not in ("rid", "thread")))
        found = self._db.execute(*compiled(own.where(calls.c.thread == self._old)))
        old, new = self._from, self._into
        for key, name, marked, *rest, sealed in found.fetchall():
            if not self._sound(calls, key):
                continue
            args, body = new.mark(old.unmark(marked)), sealed
            if sealed is not None:
                body = old.unseal(sealed, self._what, *place_of(old, self._old, key, marked))
                body = new.seal(body, *place_of(new, self._new, key, args))
            self._to.execute(statements.PUT_CALL, (self._new, key, name, args, *rest, body))
            self._to.account.add(CALLS, self._new, row_hash((key, name, args, *rest), body))

    def _items(self, lane: int) -> None:
        low = lane << LANE_BITS
        own = select(items).where(items.c.rid.between(low, low | PLACES))
        rows: Sequence[Any] = self._db.execute(*compiled(own)).fetchall()
        made = []
        for rid, base, sealed in rows:
            if not self._sound(items, rid):
                continue
            payload = self._from.unseal(sealed, self._what, rid, base)
            key, under = self._rid(rid), None if base is None else self._rid(base)
            made.append((key, under, self._into.seal(payload, key, under)))
        self._to.executemany(statements.NEW_ITEM, made)
        for _, _, body in made:
            self._to.account.add_body(ITEMS, self._new, body)

    def _checkpoint(self, row: Row, hidden: bool) -> None:
        body = body_of(row, self._from, self._what)
        body.seq = row.seq
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
        sealed = self._into.seal(body.dump(), *context, meta)
        self._to.execute(statements.PUT, (*context, int(hidden), meta, sealed, row.seq))
        self._seqs[row.ns, row.id] = row.seq
        step = 0 if row.parent is None else self._seqs.get((row.ns, row.parent), 0)
        hashed = row_hash((row.seq, int(hidden)), sealed)
        self._to.account.add(CHECKPOINTS, self._new, hashed, step)

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
