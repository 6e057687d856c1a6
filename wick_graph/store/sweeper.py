"""Deleting threads whose time is up; only where somebody asks for it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from types import TracebackType
from typing import Final, Self

from sqlalchemy import func, select

from wick_graph.errors import StorageError
from wick_graph.store import sql, upkeep
from wick_graph.store.core import Core
from wick_graph.store.rows import bytes_text
from wick_graph.store.schema import threads

_KEPT: Final = ("running", "waiting", "deleted")
_PAGES: Final = 1_000
"""Free pages that are given back to the file system at once."""
_log: Final = logging.getLogger(__name__)


def sweep(core: Core) -> list[str]:
    """Delete every thread that is idle for longer than its time to live, and return the ids."""
    gone: list[str] = []
    for number in _unfinished(core):
        upkeep.remove(core.writing, number)
    while (found := _condemn_one(core)) is not None:
        number, thread_id = found
        upkeep.remove(core.writing, number)
        gone.append(thread_id)
    if gone:
        _shrink(core)
    return gone


def _unfinished(core: Core) -> list[int]:
    with core.reading() as db:
        return upkeep.condemned(db)


def _condemn_one(core: Core) -> tuple[int, str] | None:
    """Take one expired thread; its state is looked at in the transaction that takes it."""
    expired = (
        threads.c.tenant == core.tenant,
        threads.c.expires_at <= func.wick_now(),
        threads.c.pinned == 0,
        threads.c.status.not_in(_KEPT),
    )
    with core.writing(alone=True) as db:
        query = select(threads.c.id, threads.c.thread).where(*expired).limit(1)
        row = db.execute(*sql.compiled(query)).fetchone()
        if row is None:
            return None
        core.caches.pop(row[1], None)
        upkeep.condemn(db, threads.c.id == row[0])
        return row[0], bytes_text(row[1])


def _shrink(core: Core) -> None:
    """Give free pages back, some at a time."""
    free = _PAGES
    while free >= _PAGES:
        with core.idle() as db:
            free = _free_pages(db)
            # One `execute` of this pragma frees a single page; a script steps it to its end.
            db.executescript(f"PRAGMA incremental_vacuum({_PAGES})")


def _free_pages(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA freelist_count").fetchone()[0])


class Sweeper:
    """A daemon thread that sweeps at an interval, for as long as the `with` block lasts.

    An error of the store is logged, and the next sweep comes all the same.
    """

    def __init__(self, core: Core, interval: float) -> None:
        if not interval > 0:
            raise StorageError("the interval of a sweeper must be above 0 seconds")
        self._core = core
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wick-sweeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                gone = sweep(self._core)
            except StorageError as error:
                _log.warning("a sweep failed: %s", error)
            else:
                _log.info("swept %d expired threads", len(gone))
