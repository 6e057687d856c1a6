"""Transactions on the one connection of a store; concurrent writers share a commit.

If other processes may write at the same time (`Dialect.locks`), a transaction locks the row of
each thread that it writes to. It waits for a row only while it holds none: if a group holds some
and cannot have another at once, it is committed first.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Protocol, TypeVar

from wick_graph.errors import StorageError
from wick_graph.machine import HeldInterrupt, at_fork, hold_interrupt
from wick_graph.store.blocks import block
from wick_graph.store.commit_policy import DeferredWrites, Entry, Flusher
from wick_graph.store.dialect import OPENING, Database, Dialect, ThreadRow

# --- Writers that share one commit, and its error.


MEMBERS: Final = 64
"""The most writers that share one commit."""

TRIES: Final = 4
"""How often something is tried, if its error may pass."""

SECONDS: Final = 0.02
"""Age at which a commit waits for no further writers."""


class Group:
    """One transaction's writers."""

    __slots__ = (
        "_done",
        "after",
        "callers",
        "error",
        "held",
        "light",
        "locked",
        "members",
        "number",
        "settled",
        "started",
        "taken",
    )

    def __init__(self, number: int, *, light: bool = False) -> None:
        self.number = number
        self.light = light
        """Its commit may be lost with the machine's power, unless a later one is durable."""
        self.members = 0
        """How many have written: callers, and the deferred writes of each thread."""
        self.callers = 0
        self.started = time.monotonic()
        self.taken: list[dict[str, list[Entry]]] = []
        """The deferred writes that are committed with it."""
        self.locked = False
        """It holds locks on rows of threads, so it may not wait for another."""
        self.held: dict[str, ThreadRow] = {}
        """The rows of the locked threads, as this transaction sees them."""
        self.after: list[Callable[[], object]] = []
        """What is called when it is committed."""
        self.error: StorageError | None = None
        self.settled = False
        self._done: threading.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether the commit must not wait any longer."""
        return self.members >= MEMBERS or time.monotonic() - self.started > SECONDS

    def follow(self) -> threading.Event:
        """Return the event that is set after the commit; call this while you hold the database."""
        if self._done is None:
            self._done = threading.Event()
        return self._done

    def settle(self, error: StorageError | None = None) -> None:
        """Tell all members how the commit went."""
        self.taken, self.held, self.after = [], {}, []
        self.error = error
        self.settled = True
        if self._done is not None:
            self._done.set()

    def check(self) -> None:
        """Raise the error of the commit, if it failed.

        Raises:
            StorageError: The commit failed; each member gets an exception of its own.
        """
        if self.error is not None:
            raise StorageError(str(self.error)) from self.error


# --- Stores before and after a fork, and at the end of the process.


class ForkHandler(Protocol):
    """What is called around a fork, and at the end of the process."""

    def before_fork(self) -> None:
        """Pause."""

    def after_fork(self) -> None:
        """Resume in the parent."""

    def in_child(self) -> None:
        """Start afresh in the child."""

    def flush(self) -> None:
        """Commit deferred writes, because the process ends."""


_live: Final[weakref.WeakSet[ForkHandler]] = weakref.WeakSet()

_halted: Final[list[ForkHandler]] = []

_watching: Final[list[bool]] = []


def register_fork_handlers(store: ForkHandler) -> None:
    """Call a store around every fork and at the end of the process; hold it weakly."""
    if not _watching:
        atexit.register(_at_exit)
        at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
        _watching.append(True)
    _live.add(store)


def _at_exit() -> None:
    for store in list(_live):
        with contextlib.suppress(StorageError):
            store.flush()


def _before() -> None:
    for store in list(_live):
        store.before_fork()
        _halted.append(store)
    OPENING.acquire()


def _after() -> None:
    OPENING.release()
    while _halted:
        _halted.pop().after_fork()


def _in_child() -> None:
    OPENING.release()
    while _halted:
        _halted.pop().in_child()


# --- The database, in the hands of one caller at a time.


T = TypeVar("T")


_LOOK_SECONDS: Final = 0.1
"""How often the main thread, while it waits for another one, looks whether Ctrl-C has come."""


class DatabaseLock:
    """A reentrant lock on the database; its holder can see how many wait for it.

    While the main thread has it, a first Ctrl-C waits: no transaction is left half begun.
    """

    __slots__ = ("_depth", "_gate", "_held", "_lock", "_owner", "waiting")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._gate = threading.Lock()
        self._owner = 0
        """The thread that has it; 0 if none has."""
        self._depth = 0
        self._held: HeldInterrupt | None = None
        self.waiting = 0

    def acquire(self, *, holds: bool = True) -> None:
        """Wait for the database; the holder may acquire it again.

        With `holds` false, no Ctrl-C waits.
        """
        if self._owner != threading.get_ident():
            held = hold_interrupt(of_python=True) if holds else None
            try:
                if not self._lock.acquire(blocking=False):
                    self._wait(held)
            except BaseException:
                if held is not None:
                    held.end()
                raise
            self._owner, self._held = threading.get_ident(), held
        self._depth += 1

    def let_interrupt(self) -> None:
        """Let no Ctrl-C wait for what follows: it may take long, and leaves nothing half done."""
        if self._depth == 1 and self._held is not None:
            held, self._held = self._held, None
            held.end()

    def _wait(self, held: HeldInterrupt | None) -> None:
        with self._gate:
            self.waiting += 1
        try:
            while not self._lock.acquire(timeout=-1 if held is None else _LOOK_SECONDS):
                if held is not None and held.has_come():
                    held.end()
        finally:
            with self._gate:
                self.waiting -= 1

    def release(self) -> None:
        """Release the database."""
        self._depth -= 1
        if self._depth:
            return
        held, self._held = self._held, None
        self._owner = 0
        self._lock.release()
        if held is not None:
            held.end()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Transactions(ABC):
    """Hands the connection to one caller at a time."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.clock: Callable[[], float] = dialect.now
        self._errors = dialect.errors
        self._locks = dialect.locks
        self._connection: Database | None = None
        self._others: int | None = None
        self._others_seen = 0
        """Grows each time that another connection is found to have written."""
        self._closed = False
        self.member = 0
        """The number of the member that writes now."""
        self._as_one = False
        """The writers of a block are one member, which writes now."""
        self._lightly = False
        """What is written now needs no commit that outlives a loss of power."""
        self._numbers = count(1)
        self._renew()

    def _renew(self) -> None:
        """Start with nothing under way, as after a fork."""
        self.deferred = DeferredWrites()
        self._db_lock = DatabaseLock()
        self._group: Group | None = None
        self._local = threading.local()
        self._flusher = Flusher()

    @abstractmethod
    def _open(self) -> Database:
        """Open the database, or raise why that is impossible."""

    @abstractmethod
    def _forget(self) -> None:
        """Clear the caches: they know rows that were not committed."""

    @abstractmethod
    def _lock_row(self, group: Group, db: Database, thread_id: str, *, wait: bool) -> bool:
        """Lock a thread's row for a group; False if there is no row, or it is not free at once."""

    def _may_pass(self, error: BaseException | None) -> bool:
        while error is not None:
            if isinstance(error, self._errors):
                return self.dialect.may_pass(error)
            error = error.__cause__
        return False

    def _explained(self, error: Exception) -> StorageError:
        made = self.dialect.explained(error)
        made.__cause__ = error
        return made

    @block
    def writing(
        self, thread_id: str | None = None, *, alone: bool = False, regardless: bool = False
    ) -> Iterator[Database]:
        """Hold the database for writing; commit all or nothing at the end of the block.

        Name the thread that you write to. Concurrent writers share one commit, unless one asks to
        be `alone`. Deferred writes are committed too. If those of the thread cannot be written,
        the block does not run; with `regardless` it runs, and the error comes after it.

        Raises:
            StorageError: The database reports an error, or deferred writes of this thread cannot
                be written.
        """
        self._must_be_writable()
        with self._db_lock:
            if self._as_one and self._connection is not None:
                yield self._connection
                return
            if alone:
                self._commit()
            group = self._join(thread_id)
            try:
                with self._member(group, caller=True) as db:
                    if not regardless:
                        self.deferred.raise_deferred_error(thread_id)
                    yield db
                self.deferred.raise_deferred_error(thread_id)
            except BaseException as error:
                if not group.settled and not self._may_wait(group):
                    self._commit()
                if isinstance(error, StorageError):
                    self.deferred.raise_deferred_error(thread_id)  # it is older, and raised once
                raise
            if alone or not self._may_wait(group):
                self._commit()
            done = None if group.settled or self._joined is not None else group.follow()
        self._follow(group, done)

    @block
    def as_one(self, thread_id: str) -> Iterator[None]:
        """Let the writers of the block, all to this thread, be one: all of them write, or none.

        Raises:
            StorageError: As in `writing`.
        """
        with self.writing(thread_id):
            self._as_one = True
            try:
                yield
            finally:
                self._as_one = False

    @property
    def _joined(self) -> list[Group] | None:
        """The groups that this thread's batch has joined; None outside a batch."""
        return getattr(self._local, "joined", None)

    def _must_be_writable(self) -> None:
        if self.dialect.reads_only:
            raise StorageError(
                f"{self.dialect.name} is open for reading only, so nothing can be written to it; "
                "give this user the right to write to it and to its folder"
            )

    @block
    def reading(self, thread_id: str | None = None) -> Iterator[Database]:
        """Hold one consistent view of the database, or of the thread that you name.

        Without a thread you see what is durable, even if a full disk keeps deferred writes out.

        Raises:
            StorageError: As in `writing`.
        """
        with self._db_lock:
            try:
                self._settle(thread_id)
                self.deferred.raise_deferred_error(thread_id)
            except StorageError:
                if thread_id is not None:
                    raise
            db = self._begin(write=False)
            try:
                self._db_lock.let_interrupt()
                yield db
            except self._errors as error:
                raise self._explained(error) from error
            finally:
                self._end(db)

    @block
    def idle(self) -> Iterator[Database]:
        """Hold the connection outside any transaction, for maintenance."""
        with self._db_lock:
            self._settle(None)
            self._db_lock.let_interrupt()
            try:
                yield self._connection or self._open()
            except self._errors as error:
                raise self._explained(error) from error

    def flush(self) -> None:
        """Commit all deferred writes.

        Raises:
            StorageError: The database reports an error; the writes then stay deferred.
        """
        with self._db_lock:
            self._settle(None)

    def later(self, entry: Entry) -> None:
        """Defer a write until the next commit.

        Raises:
            StorageError: The store is closed, or earlier deferred writes of this thread cannot be
                written.
        """
        if self._closed:
            raise closed()
        self._must_be_writable()
        self.deferred.add(entry)
        self._flusher.wake(self)
        self.deferred.raise_deferred_error(entry.at.thread_id)

    @block
    def batch(self) -> Iterator[list[Group]]:
        """Let the writers of this thread go on without their commit, and commit at the end.

        Yields the groups that they joined; check each when the batch is over. A batch within a
        batch is a part of it.
        """
        outer = self._joined
        if outer is not None:
            yield outer
            return
        joined: list[Group] = []
        self._local.joined = joined
        try:
            yield joined
        finally:
            self._local.joined = None
            if self._group is not None:  # also a group that is not in `joined`: its member failed
                with self._db_lock:
                    self._commit()

    def together(self, work: Callable[[], T], *, light: bool = False) -> T:
        """Do several things with one commit.

        No other thread reads or commits between them: else the first could fail alone. If `work`
        fails by an error that is not the database's, its earlier writes are committed all the same.
        A `light` commit does not wait for the disk; the next one that does makes it durable too.

        Raises:
            StorageError: As in `writing`, or the commit failed.
        """
        with self._db_lock, self.batch() as joined:
            before, self._lightly = len(joined), light
            try:
                made = work()
            finally:
                self._lightly = False
        for group in joined[before:]:
            group.check()
        return made

    def _join(self, thread_id: str | None = None) -> Group:
        """Enter the open group, or begin one; write deferred writes; lock the thread."""
        group = self._enter(thread_id)
        if not self._locks or thread_id is None or self._hold(group, thread_id):
            return group
        self._commit()
        group = self._enter(thread_id)
        self._hold(group, thread_id)
        return group

    def _enter(self, first: str | None) -> Group:
        while True:
            group, waits = self._group, self.deferred.since is not None
            light = self._lightly and not waits
            if group is not None and group.light and not light:
                self._commit()
                group = None
            if group is None:
                self._begin(write=True, light=light)
                group = self._group = Group(next(self._numbers), light=light)
            if waits:
                self._write_deferred(group, first)
            if not group.settled:
                return group

    def _hold(self, group: Group, thread_id: str) -> bool:
        """Lock a thread for a group; False if the group must be committed first."""
        if thread_id in group.held:
            return True
        db = self._connection
        assert db is not None
        wait = not group.locked
        try:
            return self._lock_row(group, db, thread_id, wait=wait) or wait
        except self._errors as error:
            cause = self._explained(error)
            self._fail(group, cause)
            raise cause from error

    def _begin(self, *, write: bool, light: bool = False) -> Database:
        tries = TRIES
        while True:
            tries -= 1
            if self._connection is not None and self._connection.in_transaction:
                self._end(self._connection)  # a reader was interrupted at its end
            if self._connection is None:  # the server may be away for long
                self._db_lock.let_interrupt()
            try:
                db = self._connection or self._open()
            except StorageError as error:
                if tries and self._may_pass(error):
                    continue
                raise
            self.dialect.look()
            try:
                version = self.dialect.begin(db, self.clock, write=write, light=light)
            except self._errors as error:
                self._end(db)
                if tries and self._connection is None:  # it was lost while nothing was under way
                    continue
                raise self._explained(error) from error
            if version != self._others:
                self._others = version
                self._others_seen += 1
            return db

    def _write_deferred(self, group: Group, first: str | None) -> None:
        """Write deferred writes; those of a locked thread wait on, unless the thread is `first`."""
        taken = self.deferred.take()
        group.taken.append(taken)
        held_up: dict[str, list[Entry]] = {}
        try:
            for thread_id in sorted(taken, key=lambda name: name != first):
                if group.settled:
                    return
                if self._locks and not self._hold_for_deferred(group, thread_id, first):
                    held_up[thread_id], taken[thread_id] = taken[thread_id], []
                else:
                    self._write_entries(group, thread_id, taken)
        finally:
            self.deferred.put_back(held_up)

    def _write_entries(self, group: Group, thread_id: str, taken: dict[str, list[Entry]]) -> None:
        """Write a thread's deferred writes, up to the first one that no database can hold.

        Later ones build on it and are lost with it. If the whole transaction was rolled back, the
        earlier ones wait again.
        """
        while (entries := taken[thread_id]) and not group.settled:
            try:
                with self._member(group) as db:
                    for at, entry in enumerate(entries):
                        try:
                            entry.apply(db)
                        except Exception as error:
                            if self.dialect.is_final(error.__cause__ or error):
                                taken[thread_id] = entries[:at]
                                ours = isinstance(error, self._errors)
                                self.deferred.fail(
                                    entry.at, self._explained(error) if ours else error
                                )
                            raise
                return
            except Exception:
                if taken[thread_id] is entries:
                    raise
            except BaseException:
                self._fail(group, StorageError("the process was interrupted; try again"))
                raise

    def _hold_for_deferred(self, group: Group, thread_id: str, first: str | None) -> bool:
        if thread_id == first or thread_id in group.held:
            return self._hold(group, thread_id)
        group.locked = True  # never wait for the lock of a thread that is not the caller's
        return self._hold(group, thread_id)

    def when_committed(self, call: Callable[[], object]) -> None:
        """Call this when what the member has written that writes now is committed."""
        if self._group is not None:
            self._group.after.append(call)

    @block
    def _member(self, group: Group, *, caller: bool = False) -> Iterator[Database]:
        """Write as a member of a group; an error rolls back this member's writes alone.

        If no other caller counts on the transaction, all of it is rolled back, and deferred writes
        wait again. A savepoint would cost each commit more than its rows.
        """
        db = self._connection
        assert db is not None
        apart = group.callers > 0 if caller else group.members > 0
        counted = db.account.mark() if apart else None
        called = len(group.after)
        self.member += 1
        try:
            if apart:
                db.execute("SAVEPOINT member")
            yield db
            if apart:
                db.execute("RELEASE member")
            group.members += 1
            group.callers += caller
        except BaseException as error:
            self._forget()  # the caches know rows that were not committed
            group.held.clear()
            del group.after[called:]
            ours = isinstance(error, self._errors)
            fatal = ours and not self.dialect.is_final(error)
            cause = self._explained(error) if isinstance(error, self._errors) else None
            if fatal or not apart or not db.in_transaction:
                self._fail(group, cause or StorageError("the transaction was cut off; try again"))
            else:
                db.account.restore(counted)
                db.execute("ROLLBACK TO member")
                db.execute("RELEASE member")
            if cause is not None:
                raise cause from error
            raise

    def _may_wait(self, group: Group) -> bool:
        """Return whether a later writer, or the end of this thread's batch, commits this group."""
        if self._joined is not None:
            return True
        return not group.is_full and self._db_lock.waiting > 0

    def _commit(self) -> None:
        """Commit the open group, if there is one; its members get the error."""
        group, db = self._group, self._connection
        if group is None or db is None:
            return
        try:
            db.account.write(db)
            db.execute("COMMIT")
        except self._errors as error:
            self._fail(group, self._explained(error))
        except BaseException:
            self._fail(group, StorageError("the process was interrupted; try again"))
            raise
        else:
            self._group = None
            for call in group.after:
                call()
            group.settle()

    def _fail(self, group: Group, error: StorageError | None) -> None:
        """Roll a group back; its deferred writes wait again."""
        if group.settled:
            return
        self._group = None
        self._forget()
        if self._connection is not None:
            self._connection.account.forget()
            self._end(self._connection)
        for taken in reversed(group.taken):
            self.deferred.put_back({k: v for k, v in taken.items() if v})
        group.settle(error)

    def _settle(self, thread_id: str | None) -> None:
        """Commit the open group and a thread's deferred writes, before a read."""
        if not self.deferred.holds(thread_id):
            return self._commit()
        for first in [thread_id] if thread_id is not None else [None, *self.deferred.threads()]:
            if self.deferred.holds(first):
                group = self._join(first)
                self._commit()
                group.check()
        return None

    def _follow(self, group: Group, done: threading.Event | None) -> None:
        """Wait until the group is committed, unless a batch commits it at its end."""
        joined = self._joined
        if joined is not None:
            joined.append(group)
            return
        while done is not None and not done.wait(SECONDS):
            with self._db_lock:  # the writer that was to commit it was interrupted
                self._commit()  # any open group: its writers left the commit to those who wait
        group.check()

    def _end(self, db: Database) -> None:
        """End a transaction and roll back what is not committed; close a lost connection."""
        with contextlib.suppress(*self._errors):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if self.dialect.is_lost(db):
            db.close()
            self._forget()
            self._connection = self._others = None


def closed() -> StorageError:
    """Return the error of a store that was closed."""
    return StorageError("the store is closed; open it again with SqlSaver.from_url")
