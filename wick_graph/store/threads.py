"""Threads: their facts, their TTL, and the sweeper that deletes expired ones."""

from __future__ import annotations

import builtins
import logging
import math
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

from wick_graph.errors import StorageError, ThreadBusyError, ThreadNotFoundError
from wick_graph.store.checkpoint_list import CheckpointHistory
from wick_graph.store.checkpoint_read import Row, find, wrote
from wick_graph.store.codec import Codec
from wick_graph.store.connection import StoreConnection, is_alive, note_time
from wick_graph.store.dialect import Database
from wick_graph.store.later import cleanup, copying, schema, sql, statements
from wick_graph.store.leases import Lease, check, check_free
from wick_graph.store.row_format import bytes_text, pack_id, text_bytes
from wick_graph.store.texts import Prepared, compiled
from wick_graph.types import THREAD_ID_PATTERN

if TYPE_CHECKING:
    from sqlalchemy.sql.elements import ColumnElement

# --- Deleting expired threads, on request only.


_MARKED: Final = 500
"""The most threads that one transaction marks."""

_log: Final = logging.getLogger(__name__)


def sweep(core: StoreConnection) -> list[str]:
    """Delete every thread that was idle for longer than its TTL, and return the ids.

    Expired items of the long-term store are deleted too.
    If the clock was set since the last use of the store, nothing is deleted, and idle time starts
    to count again.
    """
    with core.writing(alone=True) as db:
        off = note_time(db, core.now(), core.steady())
    if off is not None:
        _log.warning(
            "the clock differs by %.0f s from the time that has passed, so nothing is swept this "
            "time, and the idle time of threads counts from now on",
            off,
        )
        return []
    cleanup.remove(core.writing, _unfinished(core))
    gone: list[str] = []
    alive: set[int] = set()
    while (found := _mark_some_deleted(core, alive)) is not None:
        cleanup.remove(core.writing, found)
        gone += found.values()
    dropped = False
    while _drop_memories(core):
        dropped = True
    if gone or dropped:
        _shrink(core)
    return gone


def _drop_memories(core: StoreConnection) -> int:
    """Delete some expired items of the long-term store, and return how many."""
    own, now = schema.memories.c, statements.Now()
    some = sql.select(own.rid).where(own.tenant == core.tenant, own.expires <= now)
    some = some.where(statements.SINCE + own.ttl <= now).limit(cleanup.BATCH)
    some = some.with_for_update(skip_locked=True)  # a writer has them; to wait could deadlock
    with core.writing(alone=True) as db:
        gone = sql.delete(schema.memories).where(own.rid.in_(some))
        return db.execute(*compiled(gone)).rowcount


def _unfinished(core: StoreConnection) -> list[int]:
    with core.reading() as db:
        return cleanup.marked_deleted(db)


def expired(core: StoreConnection) -> tuple[ColumnElement[bool], ...]:
    """Select what a sweep deletes: expired threads, unless a live run, a question or a pin stays.

    A running thread counts as dead when its lease is over, unless a server is to end its run.
    """
    own, lease, run, now = schema.threads.c, schema.leases.c, schema.streams.c, statements.Now()
    over = sql.select(lease.thread).where(lease.until <= now)
    dead = sql.and_(own.status == "running", own.id.in_(over))
    return (
        own.tenant == core.tenant,
        own.expires_at <= now,
        statements.SINCE + own.ttl <= now,
        own.pinned == 0,
        sql.or_(own.status.not_in(("running", "waiting", cleanup.GONE)), dead),
        ~sql.exists().where(run.thread == own.id, run.ended.is_(None)),
    )


def _mark_some_deleted(core: StoreConnection, alive: set[int]) -> dict[int, str] | None:
    """Mark expired threads as deleted, after a check in the same transaction; None if none is left.

    A clock that jumps makes leases look expired. If the owner is a live process of this machine,
    its run goes on: the thread is added to `alive`, and stays.
    """
    with core.writing(alone=True) as db:
        own = schema.threads.c
        query = sql.select(own.id, own.thread, own.status).where(*expired(core))
        query = query.where(own.id.not_in(alive)).limit(_MARKED)
        rows = db.execute(*compiled(query.with_for_update(skip_locked=True))).fetchall()
        held = {row[0] for row in rows if row[2] == "running" and _is_held_here(db, row[0])}
        alive |= held
        found = {number: key for number, key, _ in rows if number not in held}
        cleanup.mark_deleted(db, found)
        cleanup.drop_about(db, core.tenant, found.values())
        for key in found.values():
            core.caches.pop(key, None)
    return {number: bytes_text(key) for number, key in found.items()} if rows else None


def _is_held_here(db: Database, thread: int) -> bool:
    """Return whether a live process of this machine holds a thread."""
    row = db.execute(statements.HOLDER, (thread,)).fetchone()
    return row is not None and row[1] > 0 and is_alive(bytes(row[0]), elsewhere=False)


def _shrink(core: StoreConnection) -> None:
    """Give free pages back, a part at a time."""
    more = True
    while more:
        with core.idle() as db:
            more = core.dialect.shrink(db)


class Sweeper:
    """A daemon thread that sweeps at an interval while the `with` block lasts.

    It logs an error of the store, and goes on with the next sweep.
    """

    def __init__(self, core: StoreConnection, interval: float) -> None:
        if not interval > 0:
            raise StorageError("the interval of a sweeper must be above 0 seconds")
        self._core = core
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wick-sweeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                gone = sweep(self._core)
            except StorageError as error:
                _log.warning("a sweep failed: %s", error)
            else:
                _log.info("swept %d expired threads", len(gone))


# --- The API of threads.


ThreadStatus = Literal["idle", "running", "waiting", "failed"]

End = Literal["idle", "waiting", "failed"]

_ENDS: Final[tuple[End, ...]] = get_args(End)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """The facts of one thread; times are in UTC."""

    thread_id: str
    agent: str | None
    status: str
    """`idle`, `running`, `waiting` (for an answer) or `failed`."""
    title: str | None
    parent: str | None
    """The thread that made this one."""
    created: datetime
    last_access: datetime
    expires_at: datetime | None
    """When a sweep may delete it; None if never."""
    pinned: bool
    stopped_because: str | None
    last_error: str | None
    steps: int
    """Checkpoints in all namespaces."""


class Threads:
    """The threads of a store; each `a…` method does the same in the store's thread."""

    def __init__(self, core: StoreConnection, codec: Codec) -> None:
        self._core = core
        self._codec = codec

    def get(self, thread_id: str) -> ThreadInfo | None:
        """Return a thread and note the access; None if there is no such thread.

        Raises:
            StorageError: The thread id is not valid; so in every method here but `look`.
        """
        _key(thread_id)
        return self.look(thread_id)

    def look(self, thread_id: str) -> ThreadInfo | None:
        """Do as `get` for a thread of another graph too: its id may be any text."""
        key = text_bytes(thread_id)
        if self._core.dialect.reads_only:
            with self._core.reading(thread_id) as db:
                return self._info(db, key)
        with self._core.writing(thread_id) as db:
            self._touch(db, key)
            return self._info(db, key)

    def list(
        self,
        limit: int = 50,
        before: datetime | None = None,
        agent: str | None = None,
        status: ThreadStatus | None = None,
    ) -> builtins.list[ThreadInfo]:
        """Return threads, the most recently used first; `before` continues after a page."""
        until = math.inf if before is None else before.timestamp()
        asked = {"agent": None if agent is None else text_bytes(agent), "status": status}
        given = {name: value for name, value in asked.items() if value is not None}
        values = (self._core.tenant, *given.values(), until, limit)
        with self._core.reading() as db:
            rows = db.execute(_listed(*given), values).fetchall()
        return [self._row_info(row) for row in rows]

    def ids_from(self, start: str, limit: int = 10) -> builtins.list[str]:
        """Return the ids that begin with a text, in order."""
        first = _key(start)
        after = first + b"\x7f"  # no id has this character, or a later one
        own = schema.threads.c
        query = sql.select(own.thread).where(
            own.tenant == self._core.tenant, own.thread >= first, own.thread < after
        )
        with self._core.reading() as db:
            rows = db.execute(*compiled(query.order_by(own.thread).limit(limit)))
            return [bytes_text(bytes(row[0])) for row in rows]

    def delete(self, thread_id: str, *, idle: bool = False) -> bool:
        """Delete a thread with all its rows; False if there was none.

        Args:
            thread_id: The thread.
            idle: Delete it only if no run goes on in it, and none is queued.

        Raises:
            ThreadBusyError: It is not idle.
        """
        _key(thread_id)

        def must_be_idle(db: Database, thread: int) -> None:
            check_free(self._core, db, thread, thread_id)
            run = schema.streams.c
            mine = sql.select(run.run).where(run.thread == thread, run.ended.is_(None))
            if db.execute(*compiled(mine.limit(1))).fetchone() is not None:
                raise ThreadBusyError(f"thread {thread_id} is busy: a run of it goes on")

        return cleanup.delete_thread(self._core, thread_id, *[must_be_idle] * idle)

    def open(
        self,
        thread_id: str,
        *,
        agent: str,
        ttl: str | float | None,
        run_id: str,
        title: str | None = None,
        lease: Lease | None = None,
        resumes: bool = False,
    ) -> ThreadInfo | None:
        """Begin a run: make the thread if needed, set it to `running`, set its TTL.

        A ttl of `store` means the namespace's, what the thread has, or the store's default, in this
        order. The title is for a thread that has none yet. A run that
        `resumes` does not change the thread's agent.

        Returns:
            The thread as it was before, with the end of its last run; None if it is new.

        Raises:
            ThreadBusyError: The run has lost its thread already.
        """
        key, core = _key(thread_id), self._core
        with core.writing(thread_id) as db:
            born = core.born_now(key)
            if lease is not None and (born is None or core.caches[key].id != lease.thread):
                check(core, db, lease)  # else both were made by this write
            if born is not None:
                made, until = born
                before = (key, None, "idle", None, None, made, made, until, False, None, None, 0)
            else:
                before = db.execute(statements.INFO, (core.tenant, key)).fetchone()
            known = () if before is None else (_life(before),)
            now, ttl = core.now(), core.ttl_rules.chosen(ttl, thread_id, *known)
            until = None if ttl is None else now + ttl
            named = core.close_text(title, key, "title")
            if before is None:
                core.new_thread(db, thread_id, "running", ttl)
            if before is None or not before[-1]:
                core.forks.note_head((thread_id, ""), found=False)
            owner = before[1] if resumes and before is not None else None
            mine = (owner or text_bytes(agent), "running", named, now, ttl, until, pack_id(run_id))
            db.execute(statements.OPEN, (*mine, core.tenant, key))
        return None if before is None else self._row_info(before)

    def close(
        self,
        thread_id: str,
        *,
        status: End,
        stopped_because: str,
        error: str | None = None,
    ) -> None:
        """End a run that has no lease; a thread that was deleted meanwhile stays as it is."""
        write = self._ending(thread_id, status, stopped_because, error)
        with self._core.writing(thread_id) as db:
            write(db)

    def note_end(
        self, lease: Lease, *, status: End, stopped_because: str, error: str | None = None
    ) -> None:
        """Note how the run of a lease ends; it is written when the lease is given back.

        Both are one write: a thread never stays `running` without an owner. If the thread has
        another owner by then, neither is written.
        """
        lease.ending = self._ending(lease.thread_id, status, stopped_because, error)

    def _ending(
        self, thread_id: str, status: End, stopped_because: str, error: str | None
    ) -> Callable[[Database], None]:
        if status not in _ENDS:
            raise StorageError(f"a run cannot end as {status!r}; use idle, waiting or failed")
        key, core = _key(thread_id), self._core

        def write(db: Database) -> None:
            now = core.now()
            text = core.close_text(error, key, "last_error")
            mine = (status, now, now, stopped_because, text)
            db.execute(statements.CLOSE, (*mine, core.tenant, key))

        return write

    def has_writes(self, thread_id: str, channel: str) -> bool:
        """Return whether the latest checkpoint has a pending write to a channel."""
        with self._core.writing(thread_id) as db:  # in the transaction that begins a run
            cache = self._core.thread_for_writing(db, thread_id)
            row = find(db, cache, "", None)
            return row is not None and wrote(db, cache, row, channel)

    def touch(self, thread_id: str) -> None:
        """Note an access to a thread.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        key = _key(thread_id)
        with self._core.writing(thread_id) as db:
            if not self._touch(db, key):
                raise _unknown(thread_id)

    def pin(self, thread_id: str, on: bool = True) -> None:
        """Keep a thread from being swept; with `on=False`, let it be swept again.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        key = _key(thread_id)
        with self._core.writing(thread_id) as db:
            if not self._update(db, key, {"pinned": int(on)}):
                raise _unknown(thread_id)

    def rename(self, thread_id: str, title: str | None) -> None:
        """Give a thread another title; None lets its next run choose one.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        key = _key(thread_id)
        with self._core.writing(thread_id) as db:
            named = self._core.close_text(title, key, "title")
            if not self._update(db, key, {"title": named}):
                raise _unknown(thread_id)

    def adopt(self, thread_id: str, parent: str) -> None:
        """Note that a thread works for another one.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        key = _key(thread_id)
        with self._core.writing(thread_id) as db:
            if not self._update(db, key, {"parent": _key(parent)}):
                raise _unknown(thread_id)

    def fork(self, source: str, target: str, checkpoint_id: str | None = None) -> ThreadInfo:
        """Make a thread that continues a checkpoint of another; by default its latest.

        The fork gets a copy of the past, with the ledger and the journal: no finished call runs
        again in it, and the outcome of one that was under way is unknown.

        Raises:
            ThreadNotFoundError: There is no thread `source`.
            StorageError: It has no such checkpoint, or `target` exists already.
        """
        _key(target)
        copying.fork_thread(self._core, self._codec, source, target, checkpoint_id)
        made = self.get(target)
        assert made is not None
        return made

    def keep_latest(self, thread_id: str, count: int) -> None:
        """Delete all but the latest checkpoints of each namespace; the state does not change.

        Those of a graph that a step ran go with the step.

        Raises:
            StorageError: `count` is below 1.
        """
        if count < 1:
            raise StorageError(f"at least 1 checkpoint must be kept, not {count}")
        names = self._namespaces(thread_id)

        def latest(rows: builtins.list[Row]) -> set[int]:
            by_ns: dict[str, builtins.list[Row]] = {}
            for row in rows:
                by_ns.setdefault(names.get(row.ns, str(row.ns)), []).append(row)
            first = by_ns[""][-count:][0].seq if "" in by_ns else 0
            return {
                row.rid
                for ns, own in by_ns.items()
                for row in own[-count:]
                if ":" not in ns or row.seq > first
            }

        cleanup.prune_thread(self._core, self._codec, thread_id, latest)

    def withdraw(self, thread_id: str, run_id: str | None = None) -> None:
        """Delete the checkpoints since the last input, and its own; the journal and events stay.

        With a run's id, nothing is deleted if the last step is not this run's.
        """
        names = self._namespaces(thread_id)

        def before(rows: builtins.list[Row]) -> set[int]:
            # a graph that a hook or a call has run has inputs in a namespace of its own
            own = [at for at, row in enumerate(rows) if names.get(row.ns) == ""]
            inputs = [at for at in own if rows[at].source == "input"]
            if run_id is not None and own and rows[own[-1]].run != pack_id(run_id):
                inputs = []
            return {row.rid for row in rows[: max(inputs, default=len(rows))]}

        cleanup.prune_thread(self._core, self._codec, thread_id, before)

    def _namespaces(self, thread_id: str) -> dict[int, str]:
        """Return a thread's namespaces by their numbers; one with a colon belongs to a task."""
        with self._core.reading(thread_id) as db:
            cache = self._core.thread(db, thread_id)
            names = {} if cache is None else cache.scope(db, 0)
            return {number: text for text, number in names.items()}

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return the bytes of content of each thread, by purpose."""
        return cleanup.sizes(self._core)

    def vacuum(self) -> None:
        """Give the space of deleted threads back to the file system."""
        cleanup.vacuum(self._core)

    def due(self) -> builtins.list[str]:
        """List the threads that a sweep would delete now."""
        own = schema.threads.c
        query = sql.select(own.thread).where(*expired(self._core)).order_by(own.id)
        with self._core.reading() as db:
            return [bytes_text(key) for (key,) in db.execute(*compiled(query))]

    def history(
        self, thread_id: str, limit: int | None = None, before: str | None = None
    ) -> CheckpointHistory:
        """Return a thread's checkpoints, the newest first, for `for` or `async for`.

        They are read in pages. `before` is the id of a checkpoint; the list begins after it.
        """
        _key(thread_id)
        return CheckpointHistory(self._core, thread_id, limit, before)

    def of_runs(self, run_ids: Collection[str]) -> builtins.list[str]:
        """Return the threads that hold checkpoints of these runs."""
        return cleanup.threads_of_runs(self._core, [*map(pack_id, run_ids)], (schema.checkpoints,))

    async def aget(self, thread_id: str) -> ThreadInfo | None:
        """Do `get` in the store's thread."""
        return await self._core.worker.run(self.get, thread_id)

    async def alist(
        self,
        limit: int = 50,
        before: datetime | None = None,
        agent: str | None = None,
        status: ThreadStatus | None = None,
    ) -> builtins.list[ThreadInfo]:
        """Do `list` in the store's thread."""
        return await self._core.worker.run(self.list, limit, before, agent, status)

    async def adelete(self, thread_id: str, *, idle: bool = False) -> bool:
        """Do `delete` in the store's thread."""
        return await self._core.worker.run(self.delete, thread_id, idle=idle)

    async def aopen(
        self,
        thread_id: str,
        *,
        agent: str,
        ttl: str | float | None,
        run_id: str,
        title: str | None = None,
    ) -> ThreadInfo | None:
        """Do `open` in the store's thread."""
        return await self._core.worker.run(
            self.open, thread_id, agent=agent, ttl=ttl, run_id=run_id, title=title
        )

    async def aclose(
        self,
        thread_id: str,
        *,
        status: End,
        stopped_because: str,
        error: str | None = None,
    ) -> None:
        """Do `close` in the store's thread."""
        await self._core.worker.run(
            self.close, thread_id, status=status, stopped_because=stopped_because, error=error
        )

    async def afork(self, source: str, target: str, checkpoint_id: str | None = None) -> ThreadInfo:
        """Do `fork` in the store's thread."""
        return await self._core.worker.run_long(self.fork, source, target, checkpoint_id)

    async def akeep_latest(self, thread_id: str, count: int) -> None:
        """Do `keep_latest` in the store's thread."""
        await self._core.worker.run_long(self.keep_latest, thread_id, count)

    async def awithdraw(self, thread_id: str, run_id: str | None = None) -> None:
        """Do `withdraw` in the store's thread."""
        await self._core.worker.run_long(self.withdraw, thread_id, run_id)

    async def arename(self, thread_id: str, title: str | None) -> None:
        """Do `rename` in the store's thread."""
        await self._core.worker.run(self.rename, thread_id, title)

    async def aadopt(self, thread_id: str, parent: str) -> None:
        """Do `adopt` in the store's thread."""
        await self._core.worker.run(self.adopt, thread_id, parent)

    async def adue(self) -> builtins.list[str]:
        """Do `due` in the store's thread."""
        return await self._core.worker.run(self.due)

    async def atouch(self, thread_id: str) -> None:
        """Do `touch` in the store's thread."""
        await self._core.worker.run(self.touch, thread_id)

    async def apin(self, thread_id: str, on: bool = True) -> None:
        """Do `pin` in the store's thread."""
        await self._core.worker.run(self.pin, thread_id, on)

    def _update(self, db: Database, key: bytes, values: dict[str, Any]) -> bool:
        own = schema.threads.c
        changed = statements.checked(schema.threads, values)
        statement = sql.update(schema.threads).values(**changed)
        statement = statement.where(own.tenant == self._core.tenant, own.thread == key)
        return db.execute(*compiled(statement)).rowcount > 0

    def _touch(self, db: Database, key: bytes) -> bool:
        now = self._core.now()
        return db.execute(statements.TOUCH, (now, now, self._core.tenant, key)).rowcount > 0

    def _info(self, db: Database, key: bytes) -> ThreadInfo | None:
        row = db.execute(statements.INFO, (self._core.tenant, key)).fetchone()
        return None if row is None else self._row_info(row)

    def _row_info(self, row: tuple[Any, ...]) -> ThreadInfo:
        key, agent, status, title, parent, created, seen, until, pinned, because, error, steps = row
        return ThreadInfo(
            thread_id=bytes_text(key),
            agent=_text(agent),
            status=status,
            title=self._core.open_text(title, bytes(key), "title"),
            parent=_text(parent),
            created=_moment(created),
            last_access=_moment(seen),
            expires_at=None if until is None else _moment(until),
            pinned=bool(pinned),
            stopped_because=because,
            last_error=self._core.open_text(error, bytes(key), "last_error"),
            steps=steps,
        )


@cache
def _listed(*filters: str) -> Prepared:
    """Return the statement of a list, for a tenant, values of filters, a time and a limit."""
    if not filters:
        return statements.LIST
    return Prepared(lambda: statements.listed(*filters), "tenant", *filters, "until", "most")


def _life(row: tuple[Any, ...]) -> float | None:
    """Return the TTL of a thread, from its row of `THREAD_COLUMNS`."""
    *_, seen, until, _pinned, _because, _error, _steps = row
    return None if until is None else float(until - seen)


def _key(thread_id: str) -> bytes:
    if not isinstance(thread_id, str) or not THREAD_ID_PATTERN.fullmatch(thread_id):
        raise StorageError(
            "a thread id has 1 to 128 letters, digits or the characters _ . : -; choose another"
        )
    return text_bytes(thread_id)


def _unknown(thread_id: str) -> ThreadNotFoundError:
    return ThreadNotFoundError(f"there is no thread {thread_id!r}; list the threads to see them")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes_text(data)
