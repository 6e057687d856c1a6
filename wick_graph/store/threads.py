"""The door to threads: who they are, what became of them, how long they stay."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import func, select, update
from sqlalchemy.sql import Select

from wick_graph.errors import StorageError, ThreadNotFoundError
from wick_graph.store import sql, upkeep
from wick_graph.store.core import Core
from wick_graph.store.rows import bytes_text, pack_id, text_bytes
from wick_graph.store.schema import checkpoints, threads
from wick_graph.types import THREAD_ID_PATTERN

ThreadStatus = Literal["idle", "running", "waiting", "failed"]
_ENDS: Final = ("idle", "waiting", "failed")
_SOME: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """What a listing says about a thread; times are in UTC."""

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
    """The threads of a store; every method has an `a…` twin that works in the store's thread."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def get(self, thread_id: str) -> ThreadInfo | None:
        """Return a thread and note that it was accessed; None if there is no such thread.

        Raises:
            StorageError: for an impossible thread id, as every method here.
        """
        key = _key(thread_id)
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
        query = self._query().order_by(threads.c.last_access.desc(), threads.c.id.desc())
        if before is not None:
            query = query.where(threads.c.last_access < before.timestamp())
        if agent is not None:
            query = query.where(threads.c.agent == text_bytes(agent))
        if status is not None:
            query = query.where(threads.c.status == status)
        with self._core.reading() as db:
            return [_row_info(row) for row in db.execute(*sql.compiled(query.limit(limit)))]

    def delete(self, thread_id: str) -> bool:
        """Delete a thread with everything that is its; False if there was none."""
        _key(thread_id)
        return upkeep.delete_thread(self._core, thread_id)

    def open(
        self,
        thread_id: str,
        *,
        agent: str,
        ttl: float | None,
        run_id: str,
        title: str | None = None,
    ) -> ThreadInfo | None:
        """Begin a run: make the thread if needed, set it to `running`, set its time to live.

        A title that is not given stays what it was.

        Returns:
            The thread as it was before, with how its last run ended; None if it is new.
        """
        key, core = _key(thread_id), self._core
        with core.writing(thread_id) as db:
            now = core.now()
            until = None if ttl is None else now + ttl
            named = None if title is None else text_bytes(title)
            before = db.execute(sql.INFO, (core.tenant, key)).fetchone()
            if before is None:
                values = (core.tenant, key, "running", 0, now, now, ttl, until, 0)
                db.execute(sql.NEW_THREAD, values)
            mine = (text_bytes(agent), "running", named, now, ttl, until, pack_id(run_id))
            db.execute(sql.OPEN, (*mine, core.tenant, key))
        return None if before is None else _row_info(before)

    def close(
        self,
        thread_id: str,
        *,
        status: Literal["idle", "waiting", "failed"],
        stopped_because: str,
        error: str | None = None,
    ) -> None:
        """End a run. A thread that was deleted meanwhile stays deleted."""
        if status not in _ENDS:
            raise StorageError(f"a run cannot end as {status!r}; use idle, waiting or failed")
        key, core = _key(thread_id), self._core
        text = None if error is None else text_bytes(error)
        with core.writing(thread_id) as db:
            now = core.now()
            mine = (status, now, now, stopped_because, text)
            db.execute(sql.CLOSE, (*mine, core.tenant, key))

    def touch(self, thread_id: str) -> None:
        """Note that a thread was accessed.

        Raises:
            ThreadNotFoundError: if there is no such thread.
        """
        with self._core.writing() as db:
            if not self._touch(db, _key(thread_id)):
                raise _unknown(thread_id)

    def pin(self, thread_id: str, on: bool = True) -> None:
        """Keep a thread from being swept, or give it free again.

        Raises:
            ThreadNotFoundError: if there is no such thread.
        """
        with self._core.writing() as db:
            if not self._update(db, _key(thread_id), {"pinned": int(on)}):
                raise _unknown(thread_id)

    def of_runs(self, run_ids: Collection[str]) -> builtins.list[str]:
        """Return the threads that hold checkpoints of these runs."""
        found: dict[str, None] = {}
        packed = [pack_id(run) for run in run_ids]
        with self._core.reading() as db:
            for start in range(0, len(packed), _SOME):
                query = (
                    select(threads.c.thread)
                    .join(checkpoints, checkpoints.c.thread == threads.c.id)
                    .where(threads.c.tenant == self._core.tenant)
                    .where(checkpoints.c.run.in_(packed[start : start + _SOME]))
                    .distinct()
                )
                for (key,) in db.execute(*sql.compiled(query)):
                    found[bytes_text(key)] = None
        return [*found]

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

    async def adelete(self, thread_id: str) -> bool:
        """Do `delete` in the store's thread."""
        return await self._core.worker.run(self.delete, thread_id)

    async def aopen(
        self,
        thread_id: str,
        *,
        agent: str,
        ttl: float | None,
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
        status: Literal["idle", "waiting", "failed"],
        stopped_because: str,
        error: str | None = None,
    ) -> None:
        """Do `close` in the store's thread."""
        await self._core.worker.run(
            self.close, thread_id, status=status, stopped_because=stopped_because, error=error
        )

    async def atouch(self, thread_id: str) -> None:
        """Do `touch` in the store's thread."""
        await self._core.worker.run(self.touch, thread_id)

    async def apin(self, thread_id: str, on: bool = True) -> None:
        """Do `pin` in the store's thread."""
        await self._core.worker.run(self.pin, thread_id, on)

    def _update(self, db: sqlite3.Connection, key: bytes, values: dict[str, Any]) -> bool:
        mine = (threads.c.tenant == self._core.tenant, threads.c.thread == key)
        statement = update(threads).where(*mine).values(**values)
        return db.execute(*sql.compiled(statement)).rowcount > 0

    def _touch(self, db: sqlite3.Connection, key: bytes) -> bool:
        now = func.wick_now()
        return self._update(db, key, {"last_access": now, "expires_at": now + threads.c.ttl})

    def _info(self, db: sqlite3.Connection, key: bytes) -> ThreadInfo | None:
        row = db.execute(sql.INFO, (self._core.tenant, key)).fetchone()
        return None if row is None else _row_info(row)

    def _query(self) -> Select[Any]:
        return select(*sql.THREAD_COLUMNS).where(threads.c.tenant == self._core.tenant)


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


def _row_info(row: tuple[Any, ...]) -> ThreadInfo:
    key, agent, status, title, parent, created, seen, until, pinned, because, error, steps = row
    return ThreadInfo(
        thread_id=bytes_text(key),
        agent=_text(agent),
        status=status,
        title=_text(title),
        parent=_text(parent),
        created=_moment(created),
        last_access=_moment(seen),
        expires_at=None if until is None else _moment(until),
        pinned=bool(pinned),
        stopped_because=because,
        last_error=_text(error),
        steps=steps,
    )
