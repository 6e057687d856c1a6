"""The one connection of a store, what is known of its threads, its clock, and life after a fork."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from wick_graph.errors import StorageError
from wick_graph.store.checkpoints.cache import ThreadCache
from wick_graph.store.checkpoints.forks_meant import MeantForks
from wick_graph.store.checkpoints.lives import Lives, Ttl
from wick_graph.store.checkpoints.steady import note_time, steady_time
from wick_graph.store.checkpoints.strays import Strays
from wick_graph.store.database import forks, sql
from wick_graph.store.database.dialect import Database, Dialect, ThreadRow
from wick_graph.store.database.group import Group
from wick_graph.store.database.transactions import Transactions, closed
from wick_graph.store.database.worker import Worker
from wick_graph.store.sealed.keyring import Keys
from wick_graph.store.sealed.sealing import Plain, Sealing, Seals, must_be_plain, sealing_of
from wick_graph.store.values.mutation import Marks
from wick_graph.store.values.rows import text_bytes

T = TypeVar("T")
_KEPT: Final = 512
"""Threads whose cache is kept."""
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Owed:
    """A lease that was given back, which the database may not know."""

    lease: Any
    epoch: int
    charges: int
    since: float = field(default_factory=time.monotonic)


class Core(Transactions):
    """Everything mutable of a saver; its clones share one."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        tenant: str,
        ttl: Ttl | Mapping[str, Ttl],
        debug: bool = False,
        keys: Keys | None = None,
        either: bool = False,
    ) -> None:
        super().__init__(dialect)
        self.tenant = text_bytes(tenant)
        self.lives = Lives(ttl)
        self.worker = Worker(self)
        self.caches: OrderedDict[bytes, ThreadCache] = OrderedDict()
        self.forks = MeantForks()
        self.strays = Strays()
        self.owed: dict[int, Owed] = {}
        """By thread: leases of this store that are nobody's any more."""
        self._debug = debug
        self._keys, self._either = keys, either
        self.sealing: Sealing = Plain()
        """How the rows are closed; known as soon as the database is open."""
        self._lost = False
        self._open()
        forks.watch(self)

    def now(self) -> float:
        """Return the time, in seconds since 1970; the only clock of the store."""
        return self.clock()

    def steady(self) -> float:
        """Return a time that nobody sets; a clock that a test sets counts as time that passes."""
        ahead = 0.0 if self.clock == self.dialect.now else self.clock() - self.dialect.now()
        return steady_time() + ahead

    def seals(self, number: int, key: bytes) -> Seals:
        """Return how the rows of a thread are closed and opened."""
        return self.sealing.of(number, self.tenant, key)

    def close_text(self, text: str | None, key: bytes, column: str) -> bytes | None:
        """Encode a text that stands in the row of a thread; None stays None."""
        return None if text is None else self.sealing.close_text(text, self.tenant, key, column)

    def open_text(self, data: bytes | None, key: bytes, column: str) -> str | None:
        """Undo `close_text`."""
        return None if data is None else self.sealing.open_text(data, self.tenant, key, column)

    def apply(
        self, thread_id: str, work: Callable[[Database], T], *, regardless: bool = False
    ) -> T:
        """Write to a thread; do it again where that helps. What was done twice must do no harm.

        Raises:
            StorageError: as `writing`.
        """
        for tries in range(1, _TRIES + 1):
            try:
                with self.writing(thread_id, regardless=regardless) as db:
                    return work(db)
            except StorageError as error:
                if tries == _TRIES or not self._may_pass(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def _may_pass(self, error: BaseException | None) -> bool:
        while error is not None:
            if isinstance(error, self._errors):
                return self.dialect.may_pass(error)
            error = error.__cause__
        return False

    def thread(self, db: Database, thread_id: str) -> ThreadCache | None:
        """Return what is known of a thread, None if the store has no such thread."""
        key = text_bytes(thread_id)
        if self._locks:
            row = self.dialect.find(db, self.tenant, key)
        else:
            row = db.execute(sql.THREAD, (self.tenant, key)).fetchone()
        if row is None:
            self.caches.pop(key, None)
            return None
        version = row[4] if self._locks else self._others_seen
        return self._cache(key, row[0], row[1], version, version)

    def thread_for_writing(self, db: Database, thread_id: str) -> ThreadCache:
        """Return what is known of a thread; make it if there is none, and note the access.

        The time of access is written at most every 1/120 of the time to live: an eviction may
        come that much early.
        """
        key = text_bytes(thread_id)
        known = self.caches.get(key)
        if known is not None and known.within is self._group:
            return known  # nobody else can have changed the row in this transaction
        now = self.now()
        if self._locks:
            row = self._locked(db, thread_id)
        else:
            row = db.execute(sql.THREAD, (self.tenant, key)).fetchone()
        if row is None:
            row = self.new_thread(db, thread_id, "idle", self.lives.of(thread_id))
        number, generation, seen, ttl = row[:4]
        if abs(now - seen) >= min(30.0, (ttl or 3600.0) / 120):
            self._note_time(db, now)
            db.execute(sql.SEEN, (now, None if ttl is None else now + ttl, number))
        if self._locks:  # the lock itself has counted the version up
            return self._cache(key, number, generation, row[4], row[4] - 1)
        return self._cache(key, number, generation, self._others_seen, self._others_seen)

    def new_thread(self, db: Database, thread_id: str, status: str, ttl: float | None) -> ThreadRow:
        """Insert a thread, unless somebody else is faster, and return its row."""
        now, key = self.now(), text_bytes(thread_id)
        self._note_time(db, now)
        until = None if ttl is None else now + ttl
        values = (self.tenant, key, status, 0, now, now, ttl, until, 0)
        if not self._locks:
            self._must_fit(db)
            return (db.execute(sql.NEW_THREAD, values).fetchone()[0], 0, now, ttl)
        number = self.dialect.make(db, values)
        self._must_fit(db)  # behind the insert, which waits for whoever marks the store
        row = self._locked(db, thread_id) if number is None else (number, 0, now, ttl, 0)
        if row is None:
            raise StorageError(f"thread {thread_id} comes and goes at the same time; try again")
        if self._group is not None:
            self._group.locked = True
            self._group.held[thread_id] = row
        return row

    def _note_time(self, db: Database, now: float) -> None:
        """Note the time of an access; where all writers would wait for one row, openings do it."""
        if not self._locks:
            note_time(db, now, self.steady())

    def _note_opening(self, db: Database) -> None:
        self.dialect.begin(db, self.now, write=True)
        note_time(db, self.now(), self.steady())
        db.execute("COMMIT")

    def _must_fit(self, db: Database) -> None:
        if self.sealing.keys is None:
            must_be_plain(db, self.dialect)

    def lock(self, db: Database, thread_id: str) -> None:
        """Lock one more thread; whoever does must name threads in their order."""
        if self._locks:
            self._locked(db, thread_id)

    def _locked(self, db: Database, thread_id: str) -> ThreadRow | None:
        """Return the row of a thread that this transaction holds, or can hold; None without one."""
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
        """Return the cache of a thread; what others wrote after `since` is not in it."""
        cache = self.caches.get(key)
        if cache is None or cache.id != number or cache.generation != generation:
            cache = ThreadCache(number, generation, seals=self.seals(number, key))
            cache.marks = Marks() if self._debug else None
            self.caches[key] = cache
            while len(self.caches) > _KEPT:
                self.caches.popitem(last=False)
        elif cache.seen_others < since:
            cache.doubt()
        cache.seen_others = version
        self.caches.move_to_end(key)
        cache.within = self._group
        return cache

    def close(self) -> None:
        """Finish what is under way and close the database; closing twice is harmless.

        Raises:
            StorageError: something that waited cannot be written; the store is closed all the
                same.
        """
        self.worker.close()
        self._flusher.close()
        with self._turn:
            try:
                if self._connection is not None:
                    self._settle(None)
                    self.pending.complain(None)
            finally:
                self._closed = True
                self.caches.clear()
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
        db = self.dialect.open(self.now)
        try:
            self.sealing = sealing_of(db, self.dialect, self.now, self._keys, either=self._either)
            if self._locks and not self.dialect.reads_only:
                self._note_opening(db)
        except BaseException:
            db.close()
            raise
        self._connection, self._others = db, None
        return db

    def _forget(self) -> None:
        self.caches.clear()

    def before_fork(self) -> None:
        """Let no transaction go on, and no file be open, while this process is doubled.

        SQLite keeps locks of a file per process; a child that inherited them would believe that
        it holds what only its parent holds.
        """
        self._turn.acquire()
        with contextlib.suppress(StorageError):
            self._settle(None)
        if self.dialect.lasts and self._connection is not None:
            with contextlib.suppress(*self._errors):
                self._connection.close()
            self._connection = None
            self._others = None

    def after_fork(self) -> None:
        """Go on in the parent; the next call opens the file again."""
        self._turn.release()

    def in_child(self) -> None:
        """Begin anew in the child; what waits is the parent's."""
        self._renew()
        self.caches = OrderedDict()
        self.strays = Strays()
        if not self._closed:
            self.worker = Worker(self)
        if self._connection is not None:  # in memory, and the parent's
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # never to be closed
            self._connection = None
            self._lost = True
