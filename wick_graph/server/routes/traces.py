"""Traces: what was recorded of a run, as a list of spans."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from wick_graph.errors import StorageError
from wick_graph.journal import Journal
from wick_graph.server import forms
from wick_graph.server.asking import Asker, Reader
from wick_graph.server.problems import Problem
from wick_graph.store.keeping.streams import StreamRow

router: Final = APIRouter(tags=["traces"])
_SPANS: Final = 5_000


@router.get("/agents/traces")
async def list_traces(
    asker: Reader, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> list[dict[str, Any]]:
    """List the latest runs, without their spans."""
    rows = await asker.streams.run(asker.streams.latest, limit)
    return [_head(row) for row in rows]


@router.get("/agents/traces/{trace_id}")
async def show(asker: Reader, trace_id: forms.RunIdPath) -> dict[str, Any]:
    """Return a run with its spans."""
    row = await asker.streams.run(asker.streams.by_run, trace_id)
    if row is None:
        raise Problem(404, "trace not found")
    return {**_head(row), **await asker.streams.run(_spans, asker, row)}


def _head(row: StreamRow) -> dict[str, Any]:
    ended = row.ended
    return {
        "trace_id": row.run_id,
        "agent_id": row.asked["agent"],
        "thread_id": row.thread_id,
        "method": row.asked["kind"],
        "status": row.status,
        "start_time": row.started,
        "end_time": ended,
        "duration_ms": None if ended is None else round((ended - row.started) * 1000),
    }


def _spans(asker: Asker, row: StreamRow) -> dict[str, Any]:
    journal = Journal(asker.saver, row.thread_id)
    try:
        run = journal.run(row.run_id)
    except StorageError:  # nothing was recorded of it
        return {"model": None, "spans": []}
    spans = []
    for entry in journal.moments(row.run_id, limit=_SPANS):
        if not entry.is_end or entry.duration_us is None:
            continue
        end = entry.at.timestamp()
        spans.append(
            {
                "name": f"{entry.kind}: {entry.name}",
                "start_time": end - entry.duration_us / 1e6,
                "end_time": end,
                "duration_ms": entry.duration_us / 1e3,
                "metadata": {"status": entry.status, "error": entry.error, "depth": entry.depth},
            }
        )
    return {"model": run.model, "spans": spans}
