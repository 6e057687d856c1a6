"""Routes of runs in LangGraph's form: start, wait, stream, join, cancel, list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BeforeValidator, Field
from starlette.responses import JSONResponse

from wick_graph.engine.agent import Agent
from wick_graph.server import schemas
from wick_graph.server.guard import Answerer, Reader, RequestContext, Runner
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.server.protocols.langgraph.asking import (
    AskForm,
    BatchForm,
    Mode,
    modes_of,
    start,
)
from wick_graph.server.protocols.langgraph.following import (
    Place,
    agent_name,
    entries,
    runs_after,
    waiting,
)
from wick_graph.server.protocols.langgraph.frames import Frames, error_of
from wick_graph.server.sse import EventStream, JsonStream, named_frame
from wick_graph.service.event_log import TERMINAL, Wire
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import StreamRow

router: Final = APIRouter(prefix="/langgraph", tags=["langgraph"])

_SSE: Final[Any] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}}
}

ModeQuery = Annotated[
    list[Mode | Literal[""]] | None, Query(description="The modes of the stream; of the run's own.")
]

LastId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=64,
        description="Continue after this event; -1 is the beginning.",
    ),
]

Disconnect = Annotated[bool, Query(description="Cancel it when its reader goes away.")]

Select = Annotated[list[shapes.RunField] | None, Query(description="Only these fields.")]


def _no_verb(given: Any) -> Any:
    if given in ("wait", "stream", "crons"):
        raise Problem(405, "method not allowed", headers={"Allow": "POST"})
    return given


RunIdPath = Annotated[schemas.RunIdPath, BeforeValidator(_no_verb)]


# --- Streams of runs.


async def stream_of(
    context: RequestContext,
    row: StreamRow,
    form_modes: frozenset[str],
    last: str | None,
    *,
    inner: bool = False,
    cancel: bool = False,
) -> EventStream:
    """Answer with a run's frames after the last one that the client names."""
    agent = await context.agent(agent_name(row))
    after = Place.read(last)

    async def pieces() -> AsyncIterator[bytes | None]:
        async for piece in _pieces(context, row, agent, form_modes, after, inner=inner):
            yield piece

    async def left() -> None:
        if cancel:
            await context.tenant.runs.cancel(row.thread_id, row.run_id)

    limits = context.options.limits
    headers = _headers(row, "stream")
    return EventStream(
        pieces, ping=limits.ping, send_timeout=limits.send, left=left, headers=headers
    )


async def _pieces(
    context: RequestContext,
    row: StreamRow,
    agent: Agent,
    modes: frozenset[str],
    after: Place,
    *,
    inner: bool = False,
) -> AsyncIterator[bytes | None]:
    """Yield the frames of a run; only the last one of an entry has its place as its id."""
    frames = Frames(row, modes, guest=agent.spec.guest, inner=inner)
    if after.event < row.first:
        yield named_frame(None, "metadata", {"run_id": row.run_id, "thread_id": row.thread_id})
    async for entry in entries(context, row, agent, after, steps=frames.needs_steps):
        if entry is None:
            yield None
            continue
        if entry.state is not None:
            made = frames.step(entry.state)
        elif entry.event is not None and entry.event["event"] in TERMINAL:
            made = frames.last(entry.event, await waiting(agent, row, entry.event))
        else:
            assert entry.event is not None
            made = frames.of(entry.event)
        if entry.is_new:
            context.service.metrics_of(context.caller.tenant).sent()
            for i, (name, data) in enumerate(made):
                is_last = i == len(made) - 1
                yield named_frame(str(entry.place) if is_last else None, name, data)


def _headers(row: StreamRow, follow: str) -> dict[str, str]:
    """Name a run, and where to follow it; the paths are below the address of the API."""
    path = f"/threads/{row.thread_id}/runs/{row.run_id}"
    return {"Content-Location": path, "Location": f"{path}/{follow}"}


def _waited(
    context: RequestContext,
    row: StreamRow,
    make: Callable[[], AsyncIterator[bytes | None]],
    *,
    cancel: bool,
) -> JsonStream:
    async def left() -> None:
        if cancel:
            await context.tenant.runs.cancel(row.thread_id, row.run_id)

    limits = context.options.limits
    return JsonStream(
        make, ping=limits.ping, send_timeout=limits.send, left=left, headers=_headers(row, "join")
    )


async def result_of(context: RequestContext, row: StreamRow, *, cancel: bool = False) -> Response:
    """Answer with the values at the end of a run, when it has ended."""
    agent = await context.agent(agent_name(row))

    async def pieces() -> AsyncIterator[bytes | None]:
        last: Wire | None = None
        async for entry in entries(context, row, agent, Place(), steps=False):
            yield None
            last = last if entry is None else entry.event
        if last is None or last["event"] not in TERMINAL:
            return  # the server stops; the client comes back
        if last["event"] == "error":
            yield _json({"__error__": error_of(last)})
            return
        state = await agent.graph.aget_state(shapes.at(row.thread_id))
        made = shapes.values(state)
        if last["data"]["stopped_because"] == "interrupted":
            made["__interrupt__"] = shapes.questions(row.thread_id, state.interrupts)
        yield _json(made)

    return _waited(context, row, pieces, cancel=cancel)


def _json(value: Any) -> bytes:
    return bytes(JSONResponse(value).body)


# --- Routes.


async def _row(context: RequestContext, thread_id: str, run_id: str) -> StreamRow:
    await context.thread(thread_id)
    row = await context.streams.run(context.streams.get, thread_id, run_id)
    if row is None:
        raise Problem(404, "run not found")
    return row


async def _create(context: RequestContext, form: AskForm, thread_id: str | None) -> Response:
    run = await start(context, form, thread_id)
    return JSONResponse(shapes.run(run), headers=_headers(run, "stream"))


async def _wait(context: RequestContext, form: AskForm, thread_id: str | None) -> Response:
    run = await start(context, form, thread_id)
    how = form.on_disconnect or context.options.on_disconnect
    return await result_of(context, run, cancel=how == "cancel")


async def _stream(context: RequestContext, form: AskForm, thread_id: str | None) -> Response:
    modes, inner = modes_of(form.stream_mode), form.stream_subgraphs
    run = await start(context, form, thread_id)
    how = form.on_disconnect or context.options.on_disconnect
    return await stream_of(context, run, modes, None, inner=inner, cancel=how == "cancel")


@router.post("/threads/{thread_id}/runs", response_model=dict[str, Any])
async def create(context: Answerer, thread_id: schemas.ThreadIdPath, form: AskForm) -> Any:
    """Start a run in a thread."""
    return await _create(context, form, thread_id)


@router.post("/threads/{thread_id}/runs/wait", response_model=dict[str, Any])
async def wait(context: Answerer, thread_id: schemas.ThreadIdPath, form: AskForm) -> Any:
    """Start a run in a thread, and return the values at its end."""
    return await _wait(context, form, thread_id)


@router.post("/threads/{thread_id}/runs/stream", response_class=Response, responses=_SSE)
async def stream(context: Answerer, thread_id: schemas.ThreadIdPath, form: AskForm) -> Response:
    """Start a run in a thread, and follow it."""
    return await _stream(context, form, thread_id)


@router.post("/runs", response_model=dict[str, Any])
async def create_alone(context: Runner, form: AskForm) -> Any:
    """Start a run in a new thread."""
    return await _create(context, form, None)


@router.post("/runs/wait", response_model=dict[str, Any])
async def wait_alone(context: Runner, form: AskForm) -> Any:
    """Start a run in a new thread, and return the values at its end."""
    return await _wait(context, form, None)


@router.post("/runs/stream", response_class=Response, responses=_SSE)
async def stream_alone(context: Runner, form: AskForm) -> Response:
    """Start a run in a new thread, and follow it."""
    return await _stream(context, form, None)


@router.post("/runs/batch", response_model=list[dict[str, Any]])
async def batch(
    context: Answerer, forms: Annotated[list[BatchForm], Field(min_length=1, max_length=50)]
) -> Any:
    """Start several runs; those before a refused one have begun."""
    made = []
    for form in forms:
        if form.thread_id is None:
            context.require("run")
        run = await start(context, form, form.thread_id)
        made.append(shapes.run(run))
    return made


@router.get("/threads/{thread_id}/runs", response_model=list[dict[str, Any]])
async def list_runs(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    limit: schemas.Limit = 10,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Left out at first.")] = 0,
    status: Annotated[str | None, Query(max_length=20, description="Only those.")] = None,
    select: Select = None,
) -> Any:
    """List the runs of a thread, the latest first."""
    await context.thread(thread_id)
    most = offset + limit if status is None else 10_000
    rows = await context.streams.run(context.streams.of_thread, thread_id, most)
    made = [shapes.run(row) for row in rows]
    fitting = [one for one in made if status in (None, one["status"])]
    return [shapes.picked(one, select) for one in fitting[offset : offset + limit]]


@router.get("/threads/{thread_id}/runs/{run_id}", response_model=dict[str, Any])
async def show(context: Reader, thread_id: schemas.ThreadIdPath, run_id: RunIdPath) -> Any:
    """Describe a run."""
    return shapes.run(await _row(context, thread_id, run_id))


@router.get("/threads/{thread_id}/runs/{run_id}/join", response_model=dict[str, Any])
async def join(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    run_id: RunIdPath,
    cancel_on_disconnect: Disconnect = False,
) -> Any:
    """Return the values at the end of a run."""
    if cancel_on_disconnect:
        context.require("run")
    row = await _row(context, thread_id, run_id)
    return await result_of(context, row, cancel=cancel_on_disconnect)


@router.get("/threads/{thread_id}/runs/{run_id}/stream", response_class=Response, responses=_SSE)
async def join_stream(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    run_id: RunIdPath,
    stream_mode: ModeQuery = None,
    cancel_on_disconnect: Disconnect = False,
    last: LastId = None,
) -> Response:
    """Follow a run, from its beginning or after an event."""
    if cancel_on_disconnect:
        context.require("run")
    row = await _row(context, thread_id, run_id)
    named = [mode for mode in stream_mode or () if mode]
    modes = modes_of(named or row.asked.get("labels", {}).get("stream_mode") or ["values"])
    inner = bool(row.asked.get("labels", {}).get("stream_subgraphs"))
    return await stream_of(context, row, modes, last, inner=inner, cancel=cancel_on_disconnect)


Action = Annotated[Literal["interrupt", "rollback"], Query(description="What is left of it.")]


@router.post("/threads/{thread_id}/runs/{run_id}/cancel", response_model=dict[str, Any])
async def cancel(
    context: Runner,
    thread_id: schemas.ThreadIdPath,
    run_id: RunIdPath,
    action: Action = "interrupt",
    wait: Annotated[bool, Query(description="It always waits for the end.")] = False,
) -> Any:
    """Cancel a run; with `rollback`, remove what it has written to the thread."""
    await _cancel(context, await _row(context, thread_id, run_id), action)
    return shapes.run(await _row(context, thread_id, run_id))


async def _cancel(context: RequestContext, row: StreamRow, action: str) -> None:
    if not row.goes_on:
        return
    await context.tenant.runs.cancel(row.thread_id, row.run_id)
    if action == "rollback":
        await context.saver.threads.awithdraw(row.thread_id, row.run_id)


class CancelSome(schemas.Form):
    """Which runs of a thread to cancel."""

    thread_id: schemas.ThreadIdText
    run_ids: Annotated[
        list[Annotated[str, Field(pattern=schemas.RUN_ID)]], Field(min_length=1, max_length=100)
    ]


class CancelAll(schemas.Form):
    """Cancel what goes on, in one thread or in all."""

    thread_id: schemas.ThreadIdText | None = None
    status: Literal["pending", "running", "all"]


@router.post("/runs/cancel", status_code=204, response_class=Response)
async def cancel_many(
    context: Runner, form: CancelSome | CancelAll, action: Action = "interrupt"
) -> Response:
    """Cancel several runs."""
    if isinstance(form, CancelSome):
        rows = [await _row(context, form.thread_id, run_id) for run_id in form.run_ids]
    else:
        running = await context.streams.run(context.streams.running)
        wanted = [row for row in running if form.thread_id in (None, row.thread_id)]
        rows = [] if form.status == "pending" else wanted
    for row in rows:
        await _cancel(context, row, action)
    return Response(status_code=204)


@router.delete("/threads/{thread_id}/runs/{run_id}", status_code=204, response_class=Response)
async def delete(context: Runner, thread_id: schemas.ThreadIdPath, run_id: RunIdPath) -> Response:
    """Refuse to delete a run: the record of a thread is deleted as a whole."""
    await _row(context, thread_id, run_id)
    raise Problem(403, "a run is part of its thread's record; delete the thread")


@router.get("/threads/{thread_id}/stream", response_class=Response, responses=_SSE)
async def join_thread(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    stream_mode: Annotated[
        list[Literal["run_modes"]] | None, Query(description="Each run by its own modes.")
    ] = None,
    last: LastId = None,
) -> Response:
    """Follow all runs of a thread, without an end."""
    await context.thread(thread_id)
    rows = await context.streams.run(context.streams.of_thread, thread_id, 1)
    ended = rows[0] if rows and not rows[0].goes_on else None
    now = await context.streams.run(context.streams.last, ended) if ended else 0
    after = Place.read(last) if last is not None else Place(now)

    async def pieces() -> AsyncIterator[bytes | None]:
        async for row in runs_after(context, thread_id, after.event):
            if row is None:
                yield None
                continue
            try:
                agent = await context.agent(agent_name(row))
            except Problem:  # it was removed; the thread's other runs are followed
                continue
            labels: Mapping[str, Any] = row.asked.get("labels", {})
            modes = modes_of(labels.get("stream_mode", ["values"]))
            own = after if after.event >= row.first else Place()
            async for piece in _pieces(context, row, agent, modes, own):
                yield piece

    limits = context.options.limits
    return EventStream(pieces, ping=limits.ping, send_timeout=limits.send)
