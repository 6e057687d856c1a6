"""A thread's checkpoints as a list: read in pages, and without their values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import select

from wick_graph.errors import ThreadNotFoundError
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.checkpoints.reading import Row, body_of, is_before, numbers_of
from wick_graph.store.database import sql
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.schema import checkpoints
from wick_graph.store.sealed.sealing import Seals
from wick_graph.store.values.rows import pack_id, unpack_id

_PAGE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """What a list of checkpoints says about one."""

    checkpoint_id: str
    parent_id: str | None
    """The checkpoint that it continues."""
    step: int | None
    """LangGraph's number: -1 for an input to a new thread, then counted up."""
    source: str | None
    """`input`, `loop`, `update` or `fork`."""
    run_id: str | None
    at: datetime


class Past:
    """The checkpoints of one thread's outermost graph, the newest first."""

    def __init__(self, core: Core, thread_id: str, limit: int | None, before: str | None) -> None:
        self._core = core
        self._thread_id = thread_id
        self._left = limit
        self._before = None if before is None else pack_id(before)
        self._last: int | None = None

    def __iter__(self) -> Iterator[StepInfo]:
        while page := self._page():
            yield from page

    async def __aiter__(self) -> AsyncIterator[StepInfo]:
        while page := await self._core.worker.run(self._page):
            for one in page:
                yield one

    def _page(self) -> list[StepInfo]:
        size = _PAGE if self._left is None else min(_PAGE, self._left)
        if size <= 0:
            return []
        with self._core.reading(self._thread_id) as db:
            cache = self._core.thread(db, self._thread_id)
            if cache is None:
                raise ThreadNotFoundError(
                    f"there is no thread {self._thread_id!r}; list the threads to see them"
                )
            query = (
                select(*sql.COLUMNS)
                .where(checkpoints.c.thread == cache.id, checkpoints.c.hidden == 0)
                .where(checkpoints.c.ns == (cache.find_name(db, 0, "") or 0))
                .order_by(checkpoints.c.seq.desc())
                .limit(size)
            )
            if self._last is not None:
                query = query.where(checkpoints.c.seq < self._last)
            elif self._before is not None:
                found = numbers_of(db, self._before, checkpoints.c.thread == cache.id)
                query = query.where(is_before(self._before, found))
            rows = [Row(*row) for row in db.execute(*compiled(query)).fetchall()]
        if rows:
            self._last = rows[-1].seq
        if self._left is not None:
            self._left -= len(rows)
        return [self._info(row, cache.seals) for row in rows]

    def _info(self, row: Row, seals: Seals) -> StepInfo:
        what = f"table checkpoints of thread {self._thread_id!r}"
        body = body_of(row, seals, what)
        return StepInfo(
            checkpoint_id=unpack_id(row.id),
            parent_id=None if row.parent is None else unpack_id(row.parent),
            step=row.step,
            source=row.source,
            run_id=None if row.run is None else unpack_id(row.run),
            at=datetime.fromisoformat(body.ts),
        )
