"""Transactions on the one connection of a store; writers that come together share a commit."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator

from wick_graph.errors import StorageError
from wick_graph.store.flusher import Flusher
from wick_graph.store.group import SECONDS, Group, is_final
from wick_graph.store.pending import Apply, Pending


class Transactions(ABC):
    """Hands the connection to one caller at a time."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._others: int | None = None
        self._others_seen = 0
        """Grows when another connection has written."""
        self._closed = False
        self._renew()

    def _renew(self) -> None:
        """Begin with nothing under way, as after a fork."""
        self.pending = Pending()
        self._lock = threading.RLock()
        self._gate = threading.Lock()
        self._waiting = 0
        self._group: Group | None = None
        self._local = threading.local()
        self._flusher = Flusher(self)

    @abstractmethod
    def _open(self) -> sqlite3.Connection:
        """Open the database, or raise why that cannot be."""

    @abstractmethod
    def _look(self) -> None:
        """Raise if the database is not the one that was opened."""

    @abstractmethod
    def _forget(self) -> None:
        """Forget what is known of rows: some were not committed."""

    @abstractmethod
    def _explained(self, error: sqlite3.Error) -> StorageError:
        """Return the sentence for an error of the database."""

    @contextlib.contextmanager
    def writing(
        self, thread_id: str | None = None, *, alone: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Hold the database for writing; all or nothing of it is committed when this is left.

        Writers that come at the same time share one commit, unless one asks to be `alone`. What
        waits is committed along.

        Raises:
            StorageError: for whatever SQLite reports; for what waited for this thread and cannot
                be written.
        """
        with self._turn():
            if alone:
                self._commit()
            group = self._join()
            try:
                with self._member(group) as db:
                    self.pending.complain(thread_id)
                    yield db
            except BaseException:
                if not group.settled and not self._may_wait(group):
                    self._commit()
                raise
            if alone or not self._may_wait(group):
                self._commit()
            done = None if group.settled else group.follow()
        self._follow(group, done)

    @contextlib.contextmanager
    def reading(self, thread_id: str | None = None) -> Iterator[sqlite3.Connection]:
        """Hold one consistent view of the database; of one thread, if it is named.

        Raises:
            StorageError: as `writing`.
        """
        with self._turn():
            self._settle(thread_id)
            self.pending.complain(thread_id)
            db = self._begin("BEGIN")
            try:
                yield db
            except sqlite3.Error as error:
                raise self._explained(error) from error
            finally:
                _end(db)

    @contextlib.contextmanager
    def idle(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection outside any transaction, for maintenance."""
        with self._turn():
            self._settle(None)
            try:
                yield self._connection or self._open()
            except sqlite3.Error as error:
                raise self._explained(error) from error

    def flush(self) -> None:
        """Commit everything that waits.

        Raises:
            StorageError: for whatever SQLite reports; what waits then still waits.
        """
        with self._turn():
            self._settle(None)

    def later(self, thread_id: str, entry: Apply) -> None:
        """Let an entry wait for the next commit.

        Raises:
            StorageError: the store is closed; what waited for this thread cannot be written.
        """
        if self._closed:
            raise closed()
        self.pending.complain(thread_id)
        self.pending.add(thread_id, entry)
        self._flusher.wake()

    @contextlib.contextmanager
    def batch(self) -> Iterator[list[Group]]:
        """Let this thread's writers go on without their commit; it is made at the end.

        Yields the groups they joined; each must be checked when the batch is over.
        """
        joined: list[Group] = []
        self._local.joined = joined
        try:
            yield joined
        finally:
            self._local.joined = None
            if joined and not joined[-1].settled:
                with self._turn():
                    self._commit()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the database; whoever holds it sees that somebody waits."""
        with self._gate:
            self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            with self._gate:
                self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()

    def _join(self) -> Group:
        """Enter the open group, or begin one; write what waits."""
        group = self._group
        if group is None:
            self._begin("BEGIN IMMEDIATE")
            group = self._group = Group()
        if self.pending.since is not None:
            self._write_pending(group)
        return group

    def _begin(self, statement: str) -> sqlite3.Connection:
        db = self._connection or self._open()
        self._look()
        try:
            db.execute(statement)
            version = db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            _end(db)
            raise self._explained(error) from error
        if version != self._others:
            self._others = version
            self._others_seen += 1
        return db

    def _write_pending(self, group: Group) -> None:
        taken = self.pending.take()
        group.taken.append(taken)
        group.members += 1
        for thread_id, entries in taken.items():
            try:
                with self._member(group) as db:
                    for entry in entries:
                        entry(db)
            except Exception as error:
                if not is_final(error.__cause__ or error):
                    raise
                taken[thread_id] = []
                self.pending.fail(thread_id, error)
            except BaseException:
                self._fail(group, StorageError("the process was interrupted; try again"))
                raise

    @contextlib.contextmanager
    def _member(self, group: Group) -> Iterator[sqlite3.Connection]:
        """Write as a member of a group; an error takes back this member's writes alone."""
        db = self._connection
        assert db is not None
        apart = group.members > 0
        try:
            if apart:
                db.execute("SAVEPOINT member")
            yield db
            if apart:
                db.execute("RELEASE member")
            group.members += 1
        except BaseException as error:
            self._forget()  # caches know of rows that were not committed
            fatal = isinstance(error, sqlite3.Error) and not is_final(error)
            cause = self._explained(error) if isinstance(error, sqlite3.Error) else None
            if fatal or not apart or not db.in_transaction:
                self._fail(group, cause)
            else:
                db.execute("ROLLBACK TO member")
                db.execute("RELEASE member")
            if cause is not None:
                raise cause from error
            raise

    def _may_wait(self, group: Group) -> bool:
        """Say whether a group's commit can be left to somebody who comes after."""
        if group.is_full:
            return False
        return self._waiting > 0 or getattr(self._local, "joined", None) is not None

    def _commit(self) -> None:
        """Commit the open group, if there is one; its members learn of an error."""
        group, db = self._group, self._connection
        if group is None or db is None:
            return
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(group, self._explained(error))
        else:
            self._group = None
            group.settle()

    def _fail(self, group: Group, error: StorageError | None) -> None:
        """Give a group up: nothing of it is stored, and what had waited waits again."""
        if group.settled:
            return
        self._group = None
        self._forget()
        if self._connection is not None:
            _end(self._connection)
        for taken in reversed(group.taken):
            self.pending.put_back({k: v for k, v in taken.items() if v})
        group.settle(error)

    def _settle(self, thread_id: str | None) -> None:
        """Commit the open group and what waits for a thread, before somebody reads."""
        if self.pending.holds(thread_id):
            group = self._join()
            self._commit()
            group.check()
        else:
            self._commit()

    def _follow(self, group: Group, done: threading.Event | None) -> None:
        """Wait until the group is committed, unless the end of a batch looks after that."""
        joined = getattr(self._local, "joined", None)
        if joined is not None:
            joined.append(group)
            return
        while done is not None and not done.wait(SECONDS):
            with self._turn():  # the one who was to commit it was interrupted
                if self._group is group:
                    self._commit()
        group.check()


def _end(db: sqlite3.Connection) -> None:
    """End a transaction of which nothing is to be kept."""
    with contextlib.suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def closed() -> StorageError:
    """Return the error of a store that was closed."""
    return StorageError("the store is closed; open it again with SqlSaver.from_url")
