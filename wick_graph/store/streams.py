"""What a server was asked for, and what its readers were told: rows beside a thread's own.

Events of a thread are numbered from 1. They are kept in pages, one for each write; a reader who
lost its connection, or whose server was killed, goes on behind the last number that it saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

from sqlalchemy import delete, func, insert, select, update

from wick_graph.errors import ThreadNotFoundError
from wick_graph.store import sql
from wick_graph.store.core import Core
from wick_graph.store.leases import check_free
from wick_graph.store.rows import bytes_text, pack_id, seal, text_bytes, unpack_id, unseal
from wick_graph.store.schema import LANE_BITS, events, streams, threads

PLACES: Final = (1 << LANE_BITS) - 1
RUNNING: Final = "running"
P = ParamSpec("P")
T = TypeVar("T")
_PAGES: Final = 32
"""Pages that are read at once."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """A run that a server was asked for."""

    thread_id: str
    run_id: str
    status: str
    """`running`, or why it stopped."""
    started: float
    ended: float | None
    first: int
    """The number of its first event."""
    asked: Mapping[str, Any]
    """What was asked for, as data."""


class Streams:
    """The streams of a store's threads; `run` does any of its methods in the store's thread."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def check_free(self, thread_id: str) -> None:
        """Refuse where a run goes on in a thread, in any process.

        Raises:
            ThreadBusyError: One does.
            ThreadNotFoundError: There is no such thread.
        """
        with self._core.reading(thread_id) as db:
            check_free(self._core, db, self._thread(db, thread_id), thread_id)

    def tenants(self) -> list[str]:
        """Name the tenants of the database that have runs which have not ended."""
        going_on = streams.c.status == RUNNING
        return self._tenants(threads.join(streams, streams.c.thread == threads.c.id), going_on)

    def tenants_to_sweep(self) -> list[str]:
        """Name the tenants of the database that have threads whose time is up."""
        return self._tenants(threads, threads.c.expires_at <= sql.Now())

    def _tenants(self, source: Any, condition: Any) -> list[str]:
        query = select(threads.c.tenant).select_from(source).where(condition).distinct()
        with self._core.reading() as db:
            found = db.execute(*sql.compiled(query)).fetchall()
        return sorted(bytes_text(name) for (name,) in found if name != b"\xff")

    def give_up(self, row: StreamRow, error: str) -> None:
        """End a run that nobody can go on with; its readers are told why."""
        with self._core.writing(row.thread_id) as db:
            self._cut(db, self._thread(db, row.thread_id), row, "failed", error)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do one of these methods in the store's thread."""
        return await self._core.worker.run(work, *args, **kwargs)

    def begin(
        self,
        thread_id: str,
        run_id: str,
        asked: Mapping[str, Any],
        key: bytes | None = None,
        most_threads: int | None = None,
    ) -> StreamRow | None:
        """Note that a run begins; the row of an earlier one if the key was used before.

        What a dead server left running in the thread ends here: its readers are told so.

        Returns:
            None where the thread would be new, and its tenant has as many as it may have.

        Raises:
            ThreadBusyError: Another run goes on in the thread.
        """
        core = self._core
        with core.writing(thread_id) as db:
            if key is not None and (known := self._one(db, streams.c.key == key)) is not None:
                return known
            if most_threads is not None and self._is_full(db, thread_id, most_threads):
                return None
            thread = core.thread_for_writing(db, thread_id).id
            check_free(core, db, thread, thread_id)
            self._supersede(db, thread)
            first = self._last(db, thread) + 1
            now = core.now()
            values = {
                "thread": thread,
                "run": pack_id(run_id),
                "status": RUNNING,
                "started": now,
                "first": first,
                "key": key,
                "body": seal(_packed(asked), "stream", thread, pack_id(run_id)),
            }
            db.execute(*sql.compiled(insert(streams).values(**values)))
        return StreamRow(
            thread_id=thread_id,
            run_id=run_id,
            status=RUNNING,
            started=now,
            ended=None,
            first=first,
            asked=asked,
        )

    def append(
        self, row: StreamRow, last: int, told: Sequence[Event], status: str | None = None
    ) -> None:
        """Write events of a run, the last of which has this number.

        Args:
            row: The run.
            last: The number.
            told: The events.
            status: Why the run stopped, where its last event is among them: both are written, or
                neither, so a run that is taken up again never ends a second time.

        Raises:
            ThreadNotFoundError: The thread was deleted meanwhile.
        """
        with self._core.writing(row.thread_id) as db:
            thread = self._thread(db, row.thread_id)
            rid = thread << LANE_BITS | last
            body = seal(_packed(list(told)), "events", rid)
            db.execute(*sql.compiled(insert(events).values(rid=rid, body=body)))
            if status is not None:
                self._end(db, thread, row, status)

    def trim(self, thread_id: str, keep: int) -> None:
        """Forget the events of all but the last runs of a thread."""
        with self._core.writing(thread_id) as db:
            thread = self._thread(db, thread_id)
            query = (
                select(streams.c.first)
                .where(streams.c.thread == thread)
                .order_by(streams.c.first.desc())
                .limit(1)
                .offset(keep - 1)
            )
            row = db.execute(*sql.compiled(query)).fetchone()
            if row is not None:
                low = thread << LANE_BITS
                old = events.c.rid.between(low, low | (row[0] - 1))
                db.execute(*sql.compiled(delete(events).where(old)))

    def get(self, thread_id: str, run_id: str) -> StreamRow | None:
        """Return a run of a thread."""
        with self._core.reading(thread_id) as db:
            return self._one(db, streams.c.run == pack_id(run_id), self._is(thread_id))

    def by_run(self, run_id: str) -> StreamRow | None:
        """Return a run, whatever thread it is of."""
        with self._core.reading() as db:
            return self._one(db, streams.c.run == pack_id(run_id))

    def by_key(self, key: bytes) -> StreamRow | None:
        """Return the run that was asked for under a hashed idempotency key."""
        with self._core.reading() as db:
            return self._one(db, streams.c.key == key)

    def of_thread(self, thread_id: str, limit: int = 100) -> list[StreamRow]:
        """Return a thread's runs, the newest first."""
        with self._core.reading(thread_id) as db:
            query = self._query().where(self._is(thread_id)).order_by(streams.c.first.desc())
            return [_row(row) for row in db.execute(*sql.compiled(query.limit(limit))).fetchall()]

    def latest(self, limit: int) -> list[StreamRow]:
        """Return the runs that began last, of all threads."""
        with self._core.reading() as db:
            query = self._query().order_by(streams.c.started.desc(), streams.c.rid.desc())
            return [_row(row) for row in db.execute(*sql.compiled(query.limit(limit))).fetchall()]

    def running(self) -> list[StreamRow]:
        """Return the runs that have not ended, the oldest first."""
        with self._core.reading() as db:
            query = self._query().where(streams.c.status == RUNNING).order_by(streams.c.started)
            return [_row(row) for row in db.execute(*sql.compiled(query)).fetchall()]

    def last(self, thread_id: str) -> int:
        """Return the number of a thread's last event, 0 if it has none.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        with self._core.reading(thread_id) as db:
            return self._last(db, self._thread(db, thread_id))

    def read(self, thread_id: str, after: int) -> list[tuple[int, Event]]:
        """Return events behind a number, at most some pages of them, with their numbers.

        Raises:
            ThreadNotFoundError: There is no such thread.
            StorageError: A page is damaged.
        """
        found: list[tuple[int, Event]] = []
        with self._core.reading(thread_id) as db:
            low = self._thread(db, thread_id) << LANE_BITS
            mine = events.c.rid.between(low + after + 1, low | PLACES)
            query = select(events.c.rid, events.c.body).where(mine).order_by(events.c.rid)
            for rid, body in db.execute(*sql.compiled(query.limit(_PAGES))).fetchall():
                page = json.loads(unseal(body, "a page of events", "events", rid))
                start = (rid & PLACES) - len(page) + 1
                found += [(start + i, e) for i, e in enumerate(page) if start + i > after]
        return found

    # --- inside a transaction --------------------------------------------------------------------

    def _thread(self, db: Any, thread_id: str) -> int:
        thread = self._core.thread(db, thread_id)
        if thread is None:
            raise ThreadNotFoundError(f"there is no thread {thread_id!r}")
        return thread.id

    def _is_full(self, db: Any, thread_id: str, most: int) -> bool:
        """Say whether a thread would be one too many for its tenant."""
        if self._core.thread(db, thread_id) is not None:
            return False
        query = select(func.count()).where(threads.c.tenant == self._core.tenant)
        row = db.execute(*sql.compiled(query)).fetchone()
        return bool(row is not None and row[0] >= most)

    def _supersede(self, db: Any, thread: int) -> None:
        query = self._query().where(streams.c.thread == thread, streams.c.status == RUNNING)
        for row in map(_row, db.execute(*sql.compiled(query)).fetchall()):
            self._cut(db, thread, row, "cancelled", "the run was cut off, and a new message came")

    def _cut(self, db: Any, thread: int, row: StreamRow, status: str, error: str) -> None:
        rid = thread << LANE_BITS | (self._last(db, thread) + 1)
        told = {
            "event": "error",
            "run_id": row.run_id,
            "data": {"error": error, "stopped_because": status},
            "thread_id": row.thread_id,
        }
        body = seal(_packed([told]), "events", rid)
        db.execute(*sql.compiled(insert(events).values(rid=rid, body=body)))
        self._end(db, thread, row, status)

    def _end(self, db: Any, thread: int, row: StreamRow, status: str) -> None:
        mine = (streams.c.thread == thread, streams.c.run == pack_id(row.run_id))
        ended = {"status": status, "ended": self._core.now()}
        db.execute(*sql.compiled(update(streams).where(*mine).values(**ended)))

    def _last(self, db: Any, thread: int) -> int:
        low = thread << LANE_BITS
        query = select(func.max(events.c.rid)).where(events.c.rid.between(low, low | PLACES))
        row = db.execute(*sql.compiled(query)).fetchone()
        return 0 if row is None or row[0] is None else row[0] & PLACES

    def _query(self) -> Any:
        columns = (streams.c.run, streams.c.status, streams.c.started, streams.c.ended)
        return (
            select(threads.c.thread, *columns, streams.c.first, streams.c.thread, streams.c.body)
            .join(threads, threads.c.id == streams.c.thread)
            .where(threads.c.tenant == self._core.tenant)
        )

    def _is(self, thread_id: str) -> Any:
        return threads.c.thread == text_bytes(thread_id)

    def _one(self, db: Any, *where: Any) -> StreamRow | None:
        row = db.execute(*sql.compiled(self._query().where(*where))).fetchone()
        return None if row is None else _row(row)


def _row(row: Sequence[Any]) -> StreamRow:
    key, run, status, started, ended, first, thread, body = row
    asked = json.loads(unseal(body, "a row of streams", "stream", thread, run))
    return StreamRow(
        thread_id=bytes_text(key),
        run_id=unpack_id(run),
        status=status,
        started=started,
        ended=ended,
        first=first,
        asked=asked,
    )


def _packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")
