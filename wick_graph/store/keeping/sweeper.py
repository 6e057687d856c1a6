"""Deleting threads whose time is up; only where somebody asks for it."""

from __future__ import annotations

import logging
import threading
from typing import Final, Self

from sqlalchemy import ColumnElement, and_, or_, select

from wick_graph.errors import StorageError
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.checkpoints.owners import is_alive
from wick_graph.store.checkpoints.steady import SINCE, note_time
from wick_graph.store.database import sql
from wick_graph.store.database.compiling import Now, compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema import leases, threads
from wick_graph.store.keeping import upkeep
from wick_graph.store.values.rows import bytes_text

_KEPT: Final = ("running", "waiting", upkeep.GONE)
_DEAD: Final = select(leases.c.thread).where(leases.c.until <= Now())
_log: Final = logging.getLogger(__name__)


def sweep(core: Core) -> list[str]:
    """Delete every thread that is idle for longer than its time to live, and return the ids.

    Where the clock was set since the store was used last, nothing is deleted, and idle time counts
    anew from now on.
    """
    with core.writing(alone=True) as db:
        off = note_time(db, core.now(), core.steady())
    if off is not None:
        _log.warning(
            "the clock is %.0f s apart from the time that has passed, so nothing is swept this "
            "time, and the idle time of threads counts from now on",
            off,
        )
        return []
    gone: list[str] = []
    alive: set[int] = set()
    for number in _unfinished(core):
        upkeep.remove(core.writing, number)
    while (found := _condemn_one(core, alive)) is not None:
        number, thread_id = found
        if number not in alive:
            upkeep.remove(core.writing, number)
            gone.append(thread_id)
    if gone:
        _shrink(core)
    return gone


def _unfinished(core: Core) -> list[int]:
    with core.reading() as db:
        return upkeep.condemned(db)


def expired(core: Core) -> tuple[ColumnElement[bool], ...]:
    """Say which threads a sweep deletes: idle ones, and those whose run died with its process."""
    dead = and_(threads.c.status == "running", threads.c.id.in_(_DEAD))
    return (
        threads.c.tenant == core.tenant,
        threads.c.expires_at <= Now(),
        SINCE + threads.c.ttl <= Now(),
        threads.c.pinned == 0,
        or_(threads.c.status.not_in(_KEPT), dead),
    )


def _condemn_one(core: Core, alive: set[int]) -> tuple[int, str] | None:
    """Take one expired thread; its state is looked at in the transaction that takes it.

    A clock that jumps makes leases look over. The run of a process that lives on this machine goes
    on all the same: its thread joins those that are known to be `alive`, and stays.
    """
    with core.writing(alone=True) as db:
        query = select(threads.c.id, threads.c.thread, threads.c.status).where(*expired(core))
        query = query.where(threads.c.id.not_in(alive)).limit(1).with_for_update(skip_locked=True)
        row = db.execute(*compiled(query)).fetchone()
        if row is None:
            return None
        number, key, status = row
        if status == "running" and _is_held_here(db, number):
            alive.add(number)
        else:
            core.caches.pop(key, None)
            upkeep.condemn(db, threads.c.id == number)
        return number, bytes_text(key)


def _is_held_here(db: Database, thread: int) -> bool:
    """Say whether a process of this machine lives that took a thread and did not give it back."""
    row = db.execute(sql.HOLDER, (thread,)).fetchone()
    return row is not None and row[1] > 0 and is_alive(bytes(row[0]), elsewhere=False)


def _shrink(core: Core) -> None:
    """Give free pages back, some at a time."""
    more = True
    while more:
        with core.idle() as db:
            more = core.dialect.shrink(db)


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
