"""The one connection of a store, the caches of its threads, its clock, and life after a fork."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from wick_graph import machine
from wick_graph.constants import LEASE_SECONDS, THREAD_TTL_SECONDS, WARM_BYTES
from wick_graph.durations import seconds
from wick_graph.errors import ConfigError, StorageError
from wick_graph.store import later, transactions
from wick_graph.store.blocks import block
from wick_graph.store.dialect import Database, Dialect, ThreadRow
from wick_graph.store.digests import erase
from wick_graph.store.encryption import Keys, Plain, Sealing, must_be_plain, sealing_of
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.notices import SILENT
from wick_graph.store.row_format import Marks, Seals, bytes_text, text_bytes
from wick_graph.store.texts import compiled
from wick_graph.store.thread_cache import AllowedBranches, ThreadCache
from wick_graph.store.transactions import TRIES, Group, Transactions, closed
from wick_graph.store.warm import Kept, WarmThreads
from wick_graph.store.worker import Worker

# --- The owner of a thread: a process with a unique name, and whether it is alive.


def owner() -> bytes:
    """Name this process by its machine, boot, id and start, so that no other has its name."""
    if not _own:
        own = f"{machine.processes()}/{os.getpid()}/{machine.started(os.getpid())}"
        _own.append(text_bytes(own))
    return _own[0]


_own: Final[list[bytes]] = []
"""The name of this process, once it is known; a fork has another one."""

machine.at_fork(after_in_child=_own.clear)


def is_alive(holder: bytes, *, elsewhere: bool = True) -> bool:
    """Return whether an owner may still be at work.

    A process of another machine cannot be checked: for it the answer is `elsewhere`.
    """
    place, _, rest = bytes_text(holder).partition("/")
    pid, started = rest.split("/")[:2]
    found = machine.lives(int(pid), started) if place == machine.processes() else None
    return elsewhere if found is None else found


def is_at_work(holder: bytes, seconds: float, lease: float = LEASE_SECONDS) -> bool:
    """Return whether a process still does what it began some seconds ago.

    A process of another machine counts as alive for as long as a lease holds.
    """
    return is_alive(holder, elsewhere=0 <= seconds < lease)


# --- Two clocks: the wall clock, which people set, and a steady one, which only runs.
#
# The wall clock measures idle time, because a store outlives the machine's boot. So the store
# records its last use by both clocks. If they disagree about the time since then, the wall clock
# was set, and idle time starts to count again. After a restart of the machine there is no steady
# time to compare with: a gap of more than an hour then counts as a clock that was set.


CLOCK_ROW: Final = 1
"""The key of the only row of `clock`."""

JUMP_SECONDS: Final = 3600.0
"""Difference of the two clocks from which the wall clock counts as set."""

_NOTE_SECONDS: Final = 1.0
"""How long a store does not note its use again; both clocks must agree that it is not longer."""


def steady_time() -> float:
    """Return the seconds since the machine started, including the time that it slept."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def note_time(db: Database, wall: float, steady: float) -> float | None:
    """Record, in the current transaction, that the store is used now.

    Returns:
        The seconds by which the wall clock was set since the last use; None if it was not.
    """
    here = text_bytes(machine.boot())
    row = db.execute(statements.LAST_USE, (CLOCK_ROW,)).fetchone()
    since = 0.0 if row is None else row[3]
    if row is not None and bytes(row[0]) == here and steady >= row[2]:
        off = wall - row[1] - (steady - row[2])
    else:  # the machine was restarted, or is another one, or this is the first use
        last = db.execute(statements.LAST_ACCESS).fetchone()[0]
        used = [at for at in (last, None if row is None else row[1]) if at is not None]
        off = wall - max(used) if used else 0.0
    jumped = abs(off) > JUMP_SECONDS
    values = (here, wall, steady, wall if jumped else since)
    db.execute(statements.NOTE_USE, (CLOCK_ROW, *values))
    return off if jumped else None


# --- Default TTLs, by thread namespace.


Ttl = str | float | None
"""A duration (`5m`, `7d`, seconds); `never` or None for no limit."""

STORES: Final = "store"
"""In place of a duration: the store's TTL for the thread's namespace."""


class TtlRules:
    """Default TTLs by namespace: the part of a thread's id before its first colon."""

    def __init__(self, ttl: Ttl | Mapping[str, Ttl]) -> None:
        given = ttl if isinstance(ttl, Mapping) else {"": ttl}
        self._by_namespace = {name: _seconds(life) for name, life in given.items()}
        if (wrong := next((name for name in given if ":" in name), None)) is not None:
            raise ConfigError(f"ttl: the namespace {wrong!r:.80} has a colon; leave it out")
        self._default = self._by_namespace.get("", float(THREAD_TTL_SECONDS))

    def chosen(self, ttl: str | float | None, thread_id: str, *known: float | None) -> float | None:
        """Return the TTL that a caller asked for, or the store's own.

        A `known` one, which the thread has, goes before the store's for all namespaces.
        """
        if ttl != STORES:
            return None if ttl is None else float(ttl)
        namespace, colon, _ = thread_id.partition(":")
        ruled = colon and namespace in self._by_namespace
        return self.of(thread_id) if ruled or not known else known[0]

    def of(self, thread_id: str) -> float | None:
        """Return the seconds that an idle thread is kept; None for no limit."""
        namespace, colon, _ = thread_id.partition(":")
        return self._by_namespace.get(namespace, self._default) if colon else self._default


def _seconds(ttl: Ttl) -> float | None:
    return None if ttl is None else seconds(ttl)


# --- Writes without a stored checkpoint: it comes in a moment, or its commit has failed.
#
# LangGraph saves in the background, so writes may be stored before the checkpoint that they name.
# If it never comes they belong to nothing, and are deleted as soon as it cannot come any more.


class Strays:
    """The writes that this process stored before their checkpoint; mostly there are none."""

    def __init__(self) -> None:
        self._early: dict[int, set[tuple[int, bytes]]] = {}
        """By thread, the namespaces and ids of checkpoints."""

    def __bool__(self) -> bool:
        return bool(self._early)

    def note(self, thread: int, ns: int, checkpoint: bytes) -> None:
        """Note writes under a checkpoint that is not stored."""
        self._early.setdefault(thread, set()).add((ns, checkpoint))

    def sweep(self, db: Database, thread: int, before: tuple[int, bytes] | None = None) -> None:
        """Delete writes without a checkpoint: all of a thread when its run ends, or older ones.

        `before` is a checkpoint that is being stored: no older one of its namespace comes after
        it. A place with nothing left to delete is forgotten. The others are checked again, because
        the transaction may fail.
        """
        early = self._early.get(thread, set())
        for ns, checkpoint in [*early]:
            if before is not None and (ns != before[0] or checkpoint >= before[1]):
                continue
            stray = db.execute(statements.STRAY, (thread, ns, checkpoint)).fetchone()
            if stray is None or not _erase(db, thread, ns, checkpoint):
                early.discard((ns, checkpoint))
        if not early:
            self._early.pop(thread, None)


def drop_old(
    db: Database, thread: int, stored: Iterable[tuple[int, bytes]], root: int | None
) -> int:
    """Delete a thread's writes if their checkpoint is not stored and cannot come any more.

    It cannot if its namespace, or the outermost graph, `root`, has a newer checkpoint. Returns how
    many writes were deleted.
    """
    known, latest, dropped = set(stored), dict[int, bytes](), 0
    for ns, checkpoint in known:
        latest[ns] = max(checkpoint, latest.get(ns, b""))
    newest = b"" if root is None else latest.get(root, b"")
    own = schema.writes.c
    query = sql.select(own.ns, own.checkpoint).where(own.thread == thread).distinct()
    for ns, found in db.execute(*compiled(query)).fetchall():
        checkpoint = bytes(found)
        if (ns, checkpoint) not in known and checkpoint < max(newest, latest.get(ns, b"")):
            dropped += _erase(db, thread, ns, checkpoint)
    return dropped


def drop_unborn(db: Database, thread: int) -> None:
    """Delete the writes of a checkpoint that was never stored, because its process died.

    They may be stored before it. No run reads them, and it does not come any more.
    """
    own, step = schema.writes.c, schema.checkpoints.c
    stored = sql.exists().where(step.thread == thread, step.ns == own.ns, step.id == own.checkpoint)
    erase(db, schema.writes, thread, own.thread == thread, ~stored, step=0)


def _erase(db: Database, thread: int, ns: int, checkpoint: bytes) -> int:
    """Delete the writes under a checkpoint unless it is stored; return how many there were."""
    own, step = schema.writes.c, schema.checkpoints.c
    mine = (own.thread == thread, own.ns == ns, own.checkpoint == checkpoint)
    stored = sql.exists().where(step.thread == thread, step.ns == ns, step.id == checkpoint)
    return erase(db, schema.writes, thread, *mine, ~stored, step=0)


T = TypeVar("T")

_KEPT: Final = 512
"""The most threads with a cache."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A lease that was given back, though the database may not know."""

    lease: Any
    charges: int
    since: float = field(default_factory=time.monotonic)


class Recorder(Protocol):
    """Adds the moments of recorded runs to a transaction; never raises."""

    def along(self, db: Database, thread: int) -> None:
        """Write the new moments of the thread with this number."""


class StoreConnection(Transactions):
    """A saver's connection with all its mutable state; the saver's clones share it."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        tenant: str,
        ttl: Ttl | Mapping[str, Ttl],
        debug: bool = False,
        keys: Keys | None = None,
        accept_plain: bool = False,
        warm_bytes: int = WARM_BYTES,
    ) -> None:
        later.load()
        self.warm = WarmThreads(warm_bytes)
        super().__init__(dialect)
        self.tenant = text_bytes(tenant)
        self.ttl_rules = TtlRules(ttl)
        self.lease_seconds: float | None = None
        """How long a lease holds, if it is not the default; the same in all processes."""
        self.worker = Worker(self)
        self.caches: OrderedDict[bytes, ThreadCache] = OrderedDict()
        self.forks = AllowedBranches()
        self.notices = SILENT
        """Tells other processes what has changed; a server sets it."""
        self.strays = Strays()
        self.owed: dict[tuple[int, int], Owed] = {}
        """By thread and epoch, leases of this store that are given back."""
        self.recorders: dict[str, Recorder] = {}
        """By thread, what adds the moments of recorded runs to each transaction in it."""
        self.step: tuple[Any, Any] | None = None
        """The member of a transaction that wrote last, and its `StepTransaction`."""
        self._born: tuple[bytes, int, float, float | None] = (b"", 0, 0.0, None)
        """The thread that was made last, by which member, when, and until when it is kept."""
        self._noted = -math.inf, -math.inf
        """When this store noted its use last, by both clocks."""
        self._plain_at = -1
        """The state of the database at which it was seen to be plain."""
        self._debug = debug
        self._keys, self._accept_plain = keys, accept_plain
        self.sealing: Sealing = Plain()
        """How rows are sealed; known as soon as the database is open."""
        self._lost = False
        self._open()
        transactions.register_fork_handlers(self)

    def now(self) -> float:
        """Return the store's time, in seconds since 1970."""
        return self.clock()

    def steady(self) -> float:
        """Return the steady time; a clock that a test sets counts as time that passes."""
        ahead = 0.0 if self.clock == self.dialect.now else self.clock() - self.dialect.now()
        return steady_time() + ahead

    def seals(self, number: int, key: bytes) -> Seals:
        """Return how the rows of a thread are sealed and opened."""
        return self.sealing.of(number, self.tenant, key)

    def close_text(self, text: str | None, key: bytes, column: str) -> bytes | None:
        """Encode a text for the row of a thread; None stays None."""
        if text is None:
            return None
        return self.sealing.close(text_bytes(text), self.tenant, key, column)

    def open_text(self, data: bytes | None, key: bytes, column: str) -> str | None:
        """Undo `close_text`."""
        if data is None:
            return None
        return bytes_text(self.sealing.open(data, self.tenant, key, column))

    def apply(
        self, thread_id: str | None, work: Callable[[Database], T], *, regardless: bool = False
    ) -> T:
        """Write to a thread, or to none, and retry errors that may pass; `work` must repeat safely.

        Raises:
            StorageError: As in `writing`.
        """
        for tries in range(1, TRIES + 1):
            try:
                with self.writing(thread_id, regardless=regardless) as db:
                    return work(db)
            except StorageError as error:
                if tries == TRIES or not self._may_pass(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def thread(self, db: Database, thread_id: str) -> ThreadCache | None:
        """Return the cache of a thread; None if the store has no such thread."""
        key = text_bytes(thread_id)
        if self._locks:
            row = self.dialect.find(db, self.tenant, key)
        else:
            row = db.execute(statements.THREAD, (self.tenant, key)).fetchone()
        if row is None:
            self.caches.pop(key, None)
            return None
        version = row[4] if self._locks else self._others_seen
        return self._cache(key, row[0], row[1], version, version)

    @block
    def keeping(self, cache: ThreadCache, thread_id: str) -> Iterator[Kept]:
        """Take what is kept of a thread's messages; keep it again unless the block fails."""
        key = text_bytes(thread_id)
        kept = self.warm.take(key, cache.id, cache.generation)
        yield kept
        self.warm.put(key, kept)

    def thread_for_writing(self, db: Database, thread_id: str) -> ThreadCache:
        """Return the cache of a thread; make the thread if there is none, and note the access.

        The time of access is written at most every 1/120 of the TTL: a thread may be swept that
        much early.
        """
        key = text_bytes(thread_id)
        known = self.caches.get(key)
        if known is not None and self.knows_now(known):
            return known  # the row cannot have changed within this transaction
        now = self.now()
        if self._locks:
            row = self._locked(db, thread_id)
        else:
            row = db.execute(statements.THREAD, (self.tenant, key)).fetchone()
        made = row is None
        if row is None:
            row = self.new_thread(db, thread_id, "idle", self.ttl_rules.of(thread_id))
        number, generation, seen, ttl = row[:4]
        if abs(now - seen) >= min(30.0, (ttl or 3600.0) / 120):
            self._note_time(db, now)
            db.execute(statements.SEEN, (now, None if ttl is None else now + ttl, number))
        if self._locks:  # the lock itself has incremented the version
            return self._cache(key, number, generation, row[4], row[4] - 1)
        cache = self._cache(key, number, generation, self._others_seen, self._others_seen)
        if not made:
            cache.epoch = row[4]
        else:
            cache.begin_empty()
            self._born = key, self.member, row[2], None if ttl is None else row[2] + ttl
        return cache

    def born_now(self, key: bytes) -> tuple[float, float | None] | None:
        """Return when a thread was made and until when it is kept, if who writes now has made it.

        Other members of the transaction may have written to it.
        """
        name, member, made, until = self._born
        return (made, until) if (name, member) == (key, self.member) else None

    def knows_now(self, cache: ThreadCache) -> bool:
        """Return whether a cache is up to date in the open transaction."""
        return self._group is not None and cache.within == self._group.number

    def new_thread(self, db: Database, thread_id: str, status: str, ttl: float | None) -> ThreadRow:
        """Insert a thread, unless another writer is faster, and return its row."""
        now, key = self.now(), text_bytes(thread_id)
        self._note_time(db, now)
        until = None if ttl is None else now + ttl
        values = (self.tenant, key, status, 0, now, now, ttl, until, 0)
        if not self._locks:
            self.must_fit(db)
            return (db.execute(statements.NEW_THREAD, values).fetchone()[0], 0, now, ttl)
        number = self.dialect.make(db, values)
        self.must_fit(db)  # after the insert, which waits for a process that marks the store
        row = self._locked(db, thread_id) if number is None else (number, 0, now, ttl, 0)
        if row is None:
            raise StorageError(
                f"thread {thread_id} was made and deleted at the same moment; try again"
            )
        if self._group is not None:
            self._group.locked = True
            self._group.held[thread_id] = row
        return row

    def _note_time(self, db: Database, now: float) -> None:
        """Note the time of an access; if writers would wait for that row, only openings do it."""
        if self._locks:
            return
        steady, (wall, last) = self.steady(), self._noted
        if not (0 <= now - wall < _NOTE_SECONDS and 0 <= steady - last < _NOTE_SECONDS):
            self._noted = now, steady
            note_time(db, now, steady)

    def _note_opening(self, db: Database) -> None:
        self.dialect.begin(db, self.now, write=True)
        note_time(db, self.now(), self.steady())
        db.execute("COMMIT")

    def must_fit(self, db: Database) -> None:
        """Check, before a plain row is written, that no process has marked the store as encrypted.

        Raises:
            StorageError: One has.
        """
        if self.sealing.keys is None and (self._locks or self._plain_at != self._others_seen):
            must_be_plain(db, self.dialect)
            self._plain_at = self._others_seen

    def lock(self, db: Database, thread_id: str) -> None:
        """Lock one more thread; callers must name threads in sorted order."""
        if self._locks:
            self._locked(db, thread_id)

    def _locked(self, db: Database, thread_id: str) -> ThreadRow | None:
        """Lock a thread for this transaction, and return its row; None if there is none."""
        group = self._group
        assert group is not None
        if thread_id not in group.held:
            self._lock_row(group, db, thread_id, wait=True)
        return group.held.get(thread_id)

    def _lock_row(self, group: Group, db: Database, thread_id: str, *, wait: bool) -> bool:
        row = self.dialect.lock(db, self.tenant, text_bytes(thread_id), wait=wait)
        if row is None:
            return False
        group.locked = True
        group.held[thread_id] = row
        return True

    def _cache(
        self, key: bytes, number: int, generation: int, version: int, since: int
    ) -> ThreadCache:
        """Return the cache of a thread, without what others wrote after `since`."""
        cache = self.caches.get(key)
        if cache is None or cache.id != number or cache.generation != generation:
            cache = ThreadCache(number, generation, seals=self.seals(number, key))
            cache.marks = Marks() if self._debug else None
            self.caches[key] = cache
            while len(self.caches) > _KEPT:
                self.caches.popitem(last=False)
        elif cache.seen_others not in (since, version):  # a restored backup has a lower version
            cache.invalidate_shared()
        cache.seen_others = version
        self.caches.move_to_end(key)
        cache.within = 0 if self._group is None else self._group.number
        cache.epoch = None
        return cache

    def close(self) -> None:
        """Finish what is under way and close the database; closing twice is harmless.

        Raises:
            StorageError: Deferred writes cannot be written; the store is closed all the same.
        """
        self.worker.close()
        self._flusher.close()
        with self._db_lock:
            try:
                if self._connection is not None:
                    self._settle(None)
                    self.deferred.raise_deferred_error(None)
            finally:
                self._closed = True
                self._forget()
                self.warm.clear()
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None

    def _open(self) -> Database:
        if self._closed:
            raise closed()
        if self._lost:
            raise StorageError(
                "a store in memory does not survive a fork; open one in the child, or use a file"
            )
        dialect, own = self.dialect, weakref.ref(self)  # no collector sees what SQLite holds

        def now() -> float:
            store = own()  # none in a finalizer that still uses the store
            return dialect.now() if store is None else store.now()

        db = dialect.open(now)
        try:
            self.sealing = sealing_of(
                db, self.dialect, self.now, self._keys, accept_plain=self._accept_plain
            )
            if self._locks and not self.dialect.reads_only:
                self._note_opening(db)
        except self._errors as error:
            db.close()
            raise self._explained(error) from error
        except BaseException:
            db.close()
            raise
        self._connection, self._others = db, None
        return db

    def _forget(self) -> None:
        self.caches.clear()
        self.step = None
        self._noted = -math.inf, -math.inf
        self._born = b"", 0, 0.0, None

    def before_fork(self) -> None:
        """End the transaction and close the file before the process forks.

        SQLite keeps the locks of a file per process: a child that inherits them would believe that
        it holds what only its parent holds.
        """
        self._db_lock.acquire(holds=False)
        with contextlib.suppress(StorageError):
            self._settle(None)
        if self.dialect.lasts and self._connection is not None:
            with contextlib.suppress(*self._errors):
                self._connection.close()
            self._connection = None
            self._others = None

    def after_fork(self) -> None:
        """Resume in the parent; the next call opens the file again."""
        self._db_lock.release()

    def in_child(self) -> None:
        """Start afresh in the child; deferred writes belong to the parent."""
        self._renew()
        self.caches, self.step = OrderedDict(), None
        self.warm.clear()
        self.strays = Strays()
        if not self._closed:
            self.worker = Worker(self)
        if self._connection is not None:  # in memory, and owned by the parent
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # never close it
            self._connection = None
            self._lost = True
