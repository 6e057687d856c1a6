"""Listing checkpoints in batches, so that no lock is held while the caller looks at one."""

from __future__ import annotations

from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from sqlalchemy import select
from sqlalchemy.sql import Select
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.keys import CHECKPOINT_ID, CHECKPOINT_NS, THREAD_ID, configurable
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.checkpoints.reading import Reader, Row, is_before, numbers_of
from wick_graph.store.database import sql
from wick_graph.store.database.address import address_of
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema import checkpoints, names, threads
from wick_graph.store.values.codec import Codec
from wick_graph.store.values.rows import bytes_text, is_source, is_step, pack_id, text_bytes

_BATCH: Final = 32


class Listing:
    """One enumeration of checkpoints, newest first."""

    def __init__(
        self,
        core: Core,
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
        self._readers[thread_id] = reader = reader.continued(db, cache)
        if self._wanted:
            reader.body(row)  # its check value covers the metadata
            metadata = reader.metadata(row)
            if any(metadata.get(key) != value for key, value in self._wanted.items()):
                return
        found.append(made := reader.checkpoint(row))
        if self._single:  # how LangGraph looks for the checkpoint from which a subgraph replays
            self._core.forks.ask((thread_id, address_of(made.config).ns), row.id)
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
        """Return what is newest: in one thread its numbers, among many the order of the rows."""
        return checkpoints.c.rid if self._of is None else checkpoints.c.seq

    def _older(self, db: Database, checkpoint: bytes) -> Select[Any]:
        """Leave what comes before a checkpoint."""
        if self._of is None:
            return self._base.where(is_before(checkpoint, numbers_of(db, checkpoint)))
        mine = select(threads.c.id).where(
            threads.c.tenant == self._core.tenant, threads.c.thread == self._of
        )
        found = numbers_of(db, checkpoint, checkpoints.c.thread == mine.scalar_subquery())
        return self._base.where(is_before(checkpoint, found))

    def _query(self, config: RunnableConfig | None) -> Select[Any]:
        asked = configurable(config)
        self._of = text_bytes(str(asked[THREAD_ID])) if THREAD_ID in asked else None
        query = (
            select(*sql.COLUMNS, threads.c.thread)
            .join(threads, threads.c.id == checkpoints.c.thread)
            .where(threads.c.tenant == self._core.tenant, checkpoints.c.hidden == 0)
            .order_by(self._order().desc())
        )
        if self._of is not None:
            query = query.where(threads.c.thread == self._of)
        if asked.get(CHECKPOINT_NS) is not None:
            within = names.c.thread == threads.c.id
            named = names.c.text == text_bytes(asked[CHECKPOINT_NS])
            space = select(names.c.id).where(within, names.c.scope == 0, named)
            query = query.where(checkpoints.c.ns == space.correlate(threads).scalar_subquery())
        if checkpoint := asked.get(CHECKPOINT_ID):
            query = query.where(checkpoints.c.id == pack_id(checkpoint))
        return self._filtered(query)

    def _filtered(self, query: Select[Any]) -> Select[Any]:
        """Let the database drop what cannot match; the comparison proper is made in Python."""
        source, step = self._wanted.get("source"), self._wanted.get("step")
        if is_source(source):
            query = query.where(checkpoints.c.source == source)
        if is_step(step):
            query = query.where(checkpoints.c.step == step)
        run = self._wanted.get("run_id")
        if type(run) is str:
            query = query.where(checkpoints.c.run == pack_id(run))
        return query
