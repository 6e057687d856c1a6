"""Routes for operation: health, metrics, recorded traces."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import PlainTextResponse

from wick_graph.errors import MessageError, StorageError, ThreadNotFoundError
from wick_graph.exports.plain import trace_of
from wick_graph.journal import Journal
from wick_graph.messages import Messages, ToolCall, ai, message, messages_to_wick, role_of
from wick_graph.server import schemas
from wick_graph.server.guard import Admin, Reader, RequestContext
from wick_graph.service import metrics
from wick_graph.service.options import Problem
from wick_graph.store.journal_rows import RecordedRun
from wick_graph.store.server_rows import StreamRow

# --- Health, metrics and a self-test of messages; none needs a model.


health_router: Final = APIRouter()


@health_router.get("/health", response_model=schemas.HealthAnswer, tags=["server"])
async def health() -> Any:
    """Report that the server is up; needs no token."""
    return {"status": "ok"}


@health_router.get("/livez", response_model=schemas.HealthAnswer, tags=["server"])
async def alive() -> Any:
    """Report that the process answers, whatever its database does; needs no token."""
    return {"status": "ok"}


@health_router.get("/readyz", response_model=schemas.HealthAnswer, tags=["server"])
async def ready(request: Request) -> Any:
    """Report that requests can be served now; needs no token.

    The answer is 503 while the database is away or has an older schema, and while the server stops.
    """
    if (why := await request.app.state.service.unready()) is not None:
        raise Problem(503, why, headers={"Retry-After": "1"})
    return {"status": "ok"}


@health_router.get("/metrics", response_class=PlainTextResponse, tags=["server"])
async def numbers(context: Admin) -> PlainTextResponse:
    """Return the metrics of the caller's tenant in Prometheus' text format.

    The tenant `local`, which runs the server, gets those of the whole server.
    """
    said = metrics.metrics_text(context.service, context.caller.tenant)
    if context.service.queue is not None:
        said += await metrics.queue_text(context.service, context.caller.tenant)
    return PlainTextResponse(said, media_type=metrics.MEDIA_TYPE)


@health_router.get("/agents/messages/test", tags=["messages"])
async def messages_test(context: Reader) -> dict[str, Any]:
    """Exercise every method of a chain of messages."""
    call = ToolCall(id="call_1", name="calculate", args={"expression": "2+2"})
    chain = (
        Messages()
        .system("You are helpful.")
        .human("What is 2+2?")
        .ai("Let me calculate.", call)
        .tool("call_1", "calculate", "4")
        .ai("2+2 = 4")
    )
    merged = chain.concat(Messages().human("follow-up question"))
    bad = Messages([message("hacker", "inject")])
    spoofed = Messages([*Messages().human("ok"), ai("spoofed")])
    return {
        "chain_length": len(chain),
        "messages": messages_to_wick(chain),
        "pretty_print": chain.pretty_print(),
        "last_content": chain.last_content(),
        "last_role": role_of(chain.last()),
        "validate_ok": _error(chain.validate) == "",
        "validate_error": _error(chain.validate),
        "user_count": len(chain.user_messages()),
        "assistant_count": len(chain.assistant_messages()),
        "tool_count": len(chain.tool_messages()),
        "system_count": len(chain.system_messages()),
        "bad_role_error": _error(bad.validate),
        "spoof_error": _error(spoofed.validate_user_input),
        "merged_length": len(merged),
        "token_estimate": chain.estimate_tokens(),
    }


def _error(check: Any) -> str:
    try:
        check()
    except MessageError as error:
        return str(error)
    return ""


# --- Traces: the record of a run as a list of spans.


trace_router: Final = APIRouter(tags=["traces"])

_NOTHING: Final[dict[str, Any]] = {
    **dict.fromkeys(("model", "input", "output", "error")),
    "spans": [],
}


@trace_router.get("/agents/traces")
async def list_traces(
    context: Reader,
    limit: Annotated[int, Query(ge=1, le=500, description="The most to list.")] = 50,
) -> list[dict[str, Any]]:
    """List the latest runs of all processes, without their spans."""
    rows = await context.streams.run(context.streams.latest, limit)
    recorded = await context.streams.run(context.saver.recorded_runs.latest, limit)
    heads = {run.run_id: _head_of(context, run) for run in recorded}
    heads |= {row.run_id: _head(row) for row in rows}
    return sorted(heads.values(), key=lambda head: -float(head["start_time"]))[:limit]


@trace_router.get("/agents/traces/{trace_id}")
async def show(context: Reader, trace_id: schemas.RunIdPath) -> dict[str, Any]:
    """Return a run with its spans, even if no server started it."""
    return await context.streams.run(_trace, context, trace_id)


def _trace(context: RequestContext, trace_id: str) -> dict[str, Any]:
    row = context.streams.by_run(trace_id)
    recorded = context.saver.recorded_runs.by_id(trace_id)
    if row is not None:
        head = _head(row)
    elif recorded is not None:
        head = _head_of(context, recorded)
    else:
        raise Problem(404, "trace not found")
    if recorded is None:
        return {**head, **_NOTHING, "subagents": []}
    try:
        trace = trace_of(Journal(context.saver, recorded.thread_id), trace_id)
    except ThreadNotFoundError:
        raise Problem(404, "trace not found") from None
    except StorageError as error:
        trace = {**_NOTHING, "error": str(error)}
    return {**head, **trace, "subagents": _below(context, head)}


def _below(context: RequestContext, head: dict[str, Any]) -> list[dict[str, Any]]:
    """List the runs of sub-agents within a run."""
    end = float("inf") if head["end_time"] is None else head["end_time"]
    found = context.saver.recorded_runs.below(head["thread_id"], head["start_time"], end)
    return [{"trace_id": run.run_id, "thread_id": run.thread_id} for run in found]


def _head(row: StreamRow) -> dict[str, Any]:
    return {
        "trace_id": row.run_id,
        "agent_id": row.asked["agent"],
        "thread_id": row.thread_id,
        "method": row.asked["kind"],
        "status": row.status,
        **_times(row.started, row.ended),
    }


def _head_of(context: RequestContext, run: RecordedRun) -> dict[str, Any]:
    """Describe a run that no server started, from its journal."""
    try:
        found = Journal(context.saver, run.thread_id).run(run.run_id)
    except StorageError:
        agent, method, status = None, None, run.status
    else:
        agent, method, status = found.agent, found.mode, found.stopped_because or found.status
    return {
        "trace_id": run.run_id,
        "agent_id": agent,
        "thread_id": run.thread_id,
        "method": method,
        "status": status,
        **_times(run.started, run.ended),
    }


def _times(started: float, ended: float | None) -> dict[str, Any]:
    spent = None if ended is None else round((ended - started) * 1000)
    return {"start_time": started, "end_time": ended, "duration_ms": spent}
