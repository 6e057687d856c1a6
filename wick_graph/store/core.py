"""The one connection of a store, what is known of its threads, its clock, and life after a fork."""

from __future__ import annotations

import contextlib
import ctypes
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wick_graph.errors import StorageError
from wick_graph.store import forks, sql
from wick_graph.store.cache import ThreadCache
from wick_graph.store.forks_meant import MeantForks
from wick_graph.store.mutation import Marks
from wick_graph.store.rows import text_bytes
from wick_graph.store.sqlite import Synchronous, connect, explained
from wick_graph.store.transactions import Transactions, closed
from wick_graph.store.whose import place_of
from wick_graph.store.worker import Worker

_KEPT: Final = 512
"""Threads whose cache is kept."""


class Core(Transactions):
    """Everything mutable of a saver; its clones share one."""

    def __init__(
        self,
        path: Path | None,
        *,
        tenant: str,
        ttl: float | None,
        synchronous: Synchronous,
        debug: bool = False,
    ) -> None:
        super().__init__()
        self.path = path
        self.tenant = text_bytes(tenant)
        self.ttl = ttl
        self.clock: Callable[[], float] = time.time
        self.worker = Worker(self)
        self.caches: OrderedDict[bytes, ThreadCache] = OrderedDict()
        self.forks = MeantForks()
        self._synchronous = synchronous
        self._debug = debug
        self._lost = False
        self._place: tuple[int, int] | None = None
        self._open()
        forks.watch(self)

    def now(self) -> float:
        """Return the time, in seconds since 1970; the only clock of the store."""
        return self.clock()

    def thread(self, db: sqlite3.Connection, thread_id: str) -> ThreadCache | None:
        """Return what is known of a thread, None if the store has no such thread."""
        key = text_bytes(thread_id)
        row = db.execute(sql.THREAD, (self.tenant, key)).fetchone()
        if row is None:
            self.caches.pop(key, None)
            return None
        return self._cache(key, row[0], row[1])

    def thread_for_writing(self, db: sqlite3.Connection, thread_id: str) -> ThreadCache:
        """Return what is known of a thread; make it if there is none, and note the access.

        The time of access is written at most every 1/120 of the time to live: an eviction may
        come that much early.
        """
        key = text_bytes(thread_id)
        known = self.caches.get(key)
        if known is not None and known.within is self._group:
            return known  # nobody else can have changed the row in this transaction
        now = self.now()
        row = db.execute(sql.THREAD, (self.tenant, key)).fetchone()
        if row is None:
            until = None if self.ttl is None else now + self.ttl
            values = (self.tenant, key, "idle", 0, now, now, self.ttl, until, 0)
            made = db.execute(sql.NEW_THREAD, values).fetchone()[0]
            return self._cache(key, made, 0)
        number, generation, seen, ttl = row
        if abs(now - seen) >= min(30.0, (ttl or 3600.0) / 120):
            db.execute(sql.SEEN, (now, None if ttl is None else now + ttl, number))
        return self._cache(key, number, generation)

    def _cache(self, key: bytes, number: int, generation: int) -> ThreadCache:
        cache = self.caches.get(key)
        if cache is None or cache.id != number or cache.generation != generation:
            cache = ThreadCache(number, generation, seen_others=self._others_seen)
            cache.marks = Marks() if self._debug else None
            self.caches[key] = cache
            while len(self.caches) > _KEPT:
                self.caches.popitem(last=False)
        elif cache.seen_others != self._others_seen:
            cache.doubt()
            cache.seen_others = self._others_seen
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
        with self._lock:
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

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise closed()
        if self._lost:
            raise StorageError(
                "a store in memory does not survive a fork; open one in the child, or use a file"
            )
        self._look()
        self._connection = connect(self.path, self._synchronous, self.now)
        if self.path is not None and self._place is None:
            self._place = place_of(self.path)
        return self._connection

    def _look(self) -> None:
        """Make sure that the file is still the one that was opened.

        SQLite would go on writing to a file that nobody finds any more, or make an empty one.
        """
        if self.path is None or self._place is None:
            return
        found = place_of(self.path)
        if found != self._place:
            what = "was deleted" if found is None else "was replaced by another file"
            raise StorageError(
                f"the database {self.path} {what} while it was open; put it back, or open the "
                "store again"
            )

    def _forget(self) -> None:
        self.caches.clear()

    def _explained(self, error: sqlite3.Error) -> StorageError:
        return explained(error, self.path)

    def before_fork(self) -> None:
        """Let no transaction go on, and no file be open, while this process is doubled.

        SQLite keeps locks of a file per process; a child that inherited them would believe that
        it holds what only its parent holds.
        """
        self._lock.acquire()
        with contextlib.suppress(StorageError):
            self._settle(None)
        if self.path is not None and self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._others = None

    def after_fork(self) -> None:
        """Go on in the parent; the next call opens the file again."""
        self._lock.release()

    def in_child(self) -> None:
        """Begin anew in the child; what waits is the parent's."""
        self._renew()
        self.caches = OrderedDict()
        if not self._closed:
            self.worker = Worker(self)
        if self._connection is not None:  # in memory, and the parent's
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # never to be closed
            self._connection = None
            self._lost = True
