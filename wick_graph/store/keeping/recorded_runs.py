"""Recorded runs, found without knowing their thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, select

from wick_graph.store.checkpoints.core import Core
from wick_graph.store.database.compiling import prepared
from wick_graph.store.database.schema import runs, threads
from wick_graph.store.values.rows import bytes_text, pack_id, text_bytes, unpack_id

_b = bindparam
_RUNS: Final = (
    select(threads.c.thread, runs.c.run, runs.c.status)
    .add_columns(runs.c.started, runs.c.ended)
    .join(threads, threads.c.id == runs.c.thread)
    .where(threads.c.tenant == _b("tenant"))
)
_BY_ID: Final = prepared(
    _RUNS.where(runs.c.run == _b("r")).order_by(runs.c.started.desc()), "tenant", "r"
)
_LATEST: Final = prepared(
    _RUNS.order_by(runs.c.started.desc(), runs.c.rid.desc()).limit(_b("n")).offset(_b("o")),
    *("tenant", "n", "o"),
)
_BELOW: Final = prepared(
    _RUNS.where(
        threads.c.parent == _b("p"), runs.c.started >= _b("low"), runs.c.started <= _b("high")
    ).order_by(runs.c.started),
    *("tenant", "p", "low", "high"),
)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Where a run is recorded, and when it ran."""

    thread_id: str
    run_id: str
    status: str
    started: float
    ended: float | None
    """None while it goes on, and where its process died."""


class RecordedRuns:
    """The recorded runs of a tenant, over all its threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def by_id(self, run_id: str) -> RecordedRun | None:
        """Return a run; the latest part of one that a crash cut in two."""
        found = self._all(_BY_ID, pack_id(run_id))
        return found[0] if found else None

    def latest(self, limit: int) -> list[RecordedRun]:
        """Return the runs that began last."""
        return self._all(_LATEST, limit, 0)

    def below(self, thread_id: str, since: float, until: float) -> list[RecordedRun]:
        """Return the runs of a thread's children that began between two times."""
        return self._all(_BELOW, text_bytes(thread_id), since, until)

    def _all(self, query: Any, *values: Any) -> list[RecordedRun]:
        with self._core.reading() as db:
            rows: Sequence[Any] = db.execute(query, (self._core.tenant, *values)).fetchall()
        return [
            RecordedRun(bytes_text(thread), unpack_id(run), status, started, ended)
            for thread, run, status, started, ended in rows
        ]
