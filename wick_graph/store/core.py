"""The one connection of a store: its lock, its transactions, its clock, and life after a fork."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import RLock
from typing import Any, Final

from wick_graph.errors import StorageError
from wick_graph.store import sql
from wick_graph.store.cache import ThreadCache
from wick_graph.store.rows import text_bytes
from wick_graph.store.sqlite import Synchronous, connect, explained
from wick_graph.store.worker import Worker

_KEPT: Final = 512
"""Threads whose cache is kept."""
_live: Final[weakref.WeakSet[Core]] = weakref.WeakSet()
_halted: Final[list[Core]] = []
_watching: Final[list[bool]] = []


class Core:
    """Everything mutable of a saver; its clones share one."""

    def __init__(
        self, path: Path | None, *, tenant: str, ttl: float | None, synchronous: Synchronous
    ) -> None:
        self.path = path
        self.tenant = text_bytes(tenant)
        self.ttl = ttl
        self.clock: Callable[[], float] = time.time
        self.worker = Worker()
        self.caches: OrderedDict[bytes, ThreadCache] = OrderedDict()
        self._synchronous = synchronous
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._others: Any = None
        self._others_seen = 0
        self._closed = False
        self._lost = False
        self._open()
        _watch(self)

    def now(self) -> float:
        """Return the time, in seconds since 1970; the only clock of the store."""
        return self.clock()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the database for writing; all or nothing of it is committed.

        Raises:
            StorageError: for whatever SQLite reports.
        """
        with self._lock:
            try:
                with self._transaction("BEGIN IMMEDIATE") as db:
                    yield db
            except BaseException:
                self.caches.clear()  # they know of rows that were not committed
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold one consistent view of the database.

        Raises:
            StorageError: for whatever SQLite reports.
        """
        with self._lock, self._transaction("BEGIN") as db:
            yield db

    @contextlib.contextmanager
    def idle(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection outside any transaction, for maintenance."""
        with self._lock:
            try:
                yield self._connection or self._open()
            except sqlite3.Error as error:
                raise explained(error, self.path) from error

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        db = self._connection or self._open()
        try:
            db.execute(begin)
            self._notice_others(db)
            yield db
            db.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise explained(error, self.path) from error
            raise

    def _notice_others(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._others:
            self._others = version
            self._others_seen += 1

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
            self.caches[key] = cache
            while len(self.caches) > _KEPT:
                self.caches.popitem(last=False)
        elif cache.seen_others != self._others_seen:
            cache.doubt()
            cache.seen_others = self._others_seen
        self.caches.move_to_end(key)
        return cache

    def close(self) -> None:
        """Finish what is under way and close the database; closing twice is harmless."""
        self.worker.close()
        with self._lock:
            self._closed = True
            self.caches.clear()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise StorageError("the store is closed; open it again with SqlSaver.from_url")
        if self._lost:
            raise StorageError(
                "a store in memory does not survive a fork; open one in the child, or use a file"
            )
        self._connection = connect(self.path, self._synchronous, self.now)
        return self._connection

    def before_fork(self) -> None:
        """Let no transaction go on, and no file be open, while this process is doubled.

        SQLite keeps locks of a file per process; a child that inherited them would believe that
        it holds what only its parent holds.
        """
        self._lock.acquire()
        if self.path is not None and self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._others = None

    def after_fork(self) -> None:
        """Go on in the parent; the next call opens the file again."""
        self._lock.release()

    def in_child(self) -> None:
        """Begin anew in the child."""
        self._lock = RLock()
        self.caches = OrderedDict()
        if not self._closed:
            self.worker = Worker()
        if self._connection is not None:  # in memory, and the parent's
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # never to be closed
            self._connection = None
            self._lost = True


def _watch(core: Core) -> None:
    if not _watching and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
        _watching.append(True)
    _live.add(core)


def _before() -> None:
    for core in list(_live):
        core.before_fork()
        _halted.append(core)


def _after() -> None:
    while _halted:
        _halted.pop().after_fork()


def _in_child() -> None:
    while _halted:
        _halted.pop().in_child()
