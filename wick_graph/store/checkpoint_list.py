"""List checkpoints: in batches for LangGraph, in pages without values for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from wick_graph.errors import ThreadNotFoundError
from wick_graph.langgraph_config import (
    CHECKPOINT_ID,
    CHECKPOINT_NS,
    THREAD_ID,
    address_of,
    configurable,
)
from wick_graph.store.checkpoint_read import Reader, Row, body_of, is_before, numbers_of
from wick_graph.store.codec import Codec
from wick_graph.store.connection import StoreConnection
from wick_graph.store.dialect import Database
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.row_format import (
    Seals,
    bytes_text,
    is_source,
    is_step,
    pack_id,
    text_bytes,
    unpack_id,
)
from wick_graph.store.texts import compiled

if TYPE_CHECKING:
    from sqlalchemy.sql import Select
    from sqlalchemy.sql.elements import ColumnElement

# --- Listing checkpoints in batches: no lock is held while the caller looks at one.


_BATCH: Final = 32

_SHARING: Final = ContextVar("sharing", default=False)


@contextmanager
def sharing() -> Iterator[None]:
    """Let listed checkpoints have equal parts as the same objects; leave them unchanged.

    Without it, a history of n checkpoints makes the messages of each anew: n² in all.
    """
    before = _SHARING.set(True)
    try:
        yield
    finally:
        _SHARING.reset(before)


class Listing:
    """One enumeration of checkpoints, newest first."""

    def __init__(
        self,
        core: StoreConnection,
        codec: Codec,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._core = core
        self._codec = codec
        self._wanted = wanted or {}
        self._left = limit
        self._single = limit == 1
        self._last: Row | None = None
        self._readers: dict[str, Reader] = {}
        self._before = configurable(before).get(CHECKPOINT_ID)
        self._base = self._query(config)

    def batch(self) -> list[CheckpointTuple]:
        """Return the next checkpoints; none when there are no more."""
        found: list[CheckpointTuple] = []
        while not found and (self._left is None or self._left > 0):
            with self._core.reading() as db:
                if self._before:
                    self._base, self._before = self._older(db, pack_id(self._before)), None
                rows = db.execute(*compiled(self._page())).fetchall()
                if not rows:
                    break
                for *columns, key in rows:
                    self._last = Row(*columns)
                    self._take(db, self._last, bytes_text(key), found)
        return found

    def _take(self, db: Database, row: Row, thread_id: str, found: list[CheckpointTuple]) -> None:
        if self._left is not None and self._left <= 0:
            return
        cache = self._core.thread(db, thread_id)
        if cache is None:
            return
        reader = self._readers.get(thread_id)
        if reader is None:
            reader = Reader(db, cache, self._codec, thread_id)
            reader.made = {} if _SHARING.get() else None
        self._readers[thread_id] = reader = reader.continued(db, cache)
        if self._wanted:
            reader.body(row)  # its check value covers the metadata
            metadata = reader.metadata(row)
            if any(metadata.get(key) != value for key, value in self._wanted.items()):
                return
        found.append(made := reader.checkpoint(row))
        if self._single:  # LangGraph looks for the checkpoint to replay a subgraph from
            self._core.forks.allow((thread_id, address_of(made.config).ns), row.id)
        if self._left is not None:
            self._left -= 1

    def _page(self) -> Select[Any]:
        size = _BATCH if self._left is None or self._wanted else min(_BATCH, self._left)
        query = self._base.limit(size)
        if self._last is None:
            return query
        order = self._order()
        return query.where(order < (self._last.seq if self._of is not None else self._last.rid))

    def _order(self) -> ColumnElement[int]:
        """Return the column to order by: the numbers in one thread, the row keys across many."""
        own = schema.checkpoints.c
        return own.rid if self._of is None else own.seq

    def _older(self, db: Database, checkpoint: bytes) -> Select[Any]:
        """Select only what comes before a checkpoint."""
        if self._of is None:
            return self._base.where(is_before(checkpoint, numbers_of(db, checkpoint)))
        own = schema.threads.c
        mine = sql.select(own.id).where(own.tenant == self._core.tenant, own.thread == self._of)
        within = schema.checkpoints.c.thread == mine.scalar_subquery()
        found = numbers_of(db, checkpoint, within)
        return self._base.where(is_before(checkpoint, found))

    def _query(self, config: RunnableConfig | None) -> Select[Any]:
        asked = configurable(config)
        self._of = text_bytes(str(asked[THREAD_ID])) if THREAD_ID in asked else None
        checkpoints, names, threads = schema.checkpoints, schema.names, schema.threads
        query = (
            sql.select(*statements.COLUMNS, threads.c.thread)
            .join(threads, threads.c.id == checkpoints.c.thread)
            .where(threads.c.tenant == self._core.tenant, checkpoints.c.hidden == 0)
            .order_by(self._order().desc())
        )
        if self._of is not None:
            query = query.where(threads.c.thread == self._of)
        if asked.get(CHECKPOINT_NS) is not None:
            within = names.c.thread == threads.c.id
            named = names.c.text == text_bytes(asked[CHECKPOINT_NS])
            space = sql.select(names.c.id).where(within, names.c.scope == 0, named)
            query = query.where(checkpoints.c.ns == space.correlate(threads).scalar_subquery())
        if checkpoint := asked.get(CHECKPOINT_ID):
            query = query.where(checkpoints.c.id == pack_id(checkpoint))
        return self._filtered(query)

    def _filtered(self, query: Select[Any]) -> Select[Any]:
        """Let the database drop rows that cannot match; Python makes the full comparison."""
        own = schema.checkpoints.c
        source, step = self._wanted.get("source"), self._wanted.get("step")
        if is_source(source):
            query = query.where(own.source == source)
        if is_step(step):
            query = query.where(own.step == step)
        run = self._wanted.get("run_id")
        if type(run) is str:
            query = query.where(own.run == pack_id(run))
        return query


# --- A thread's checkpoints as a list: read in pages, and without their values.


_PAGE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """One checkpoint in a thread's history."""

    checkpoint_id: str
    parent_id: str | None
    """The checkpoint that it continues."""
    step: int | None
    """LangGraph's number: -1 for an input to a new thread, then counted up."""
    source: str | None
    """`input`, `loop`, `update` or `fork`."""
    run_id: str | None
    at: datetime


class CheckpointHistory:
    """The checkpoints of a thread's outermost graph, the newest first."""

    def __init__(
        self, core: StoreConnection, thread_id: str, limit: int | None, before: str | None
    ) -> None:
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
            own = schema.checkpoints.c
            query = (
                sql.select(*statements.COLUMNS)
                .where(own.thread == cache.id, own.hidden == 0)
                .where(own.ns == (cache.find_name(db, 0, "") or 0))
                .order_by(own.seq.desc())
                .limit(size)
            )
            if self._last is not None:
                query = query.where(own.seq < self._last)
            elif self._before is not None:
                found = numbers_of(db, self._before, own.thread == cache.id)
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
