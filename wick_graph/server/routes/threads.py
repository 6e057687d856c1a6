"""Routes of threads: list, show, fork, pin, delete, cancel; their runs, events and journal."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic_core import to_json

from wick_graph import langgraph_config
from wick_graph.engine.result import new_thread_id
from wick_graph.journal import Journal
from wick_graph.server import schemas
from wick_graph.server.guard import Reader, RequestContext, Runner
from wick_graph.server.routes.runs import LastEventId, follow
from wick_graph.server.schemas import Before, Limit, state_answer, stream_answer, thread_answer
from wick_graph.service.options import Problem

router: Final = APIRouter(tags=["threads"])

_PAGE_BYTES: Final = 16 * 2**20
"""Bytes of a history after which a page ends."""

_STEPS: Final = 10
"""Steps of a history in memory at once; each has copies of all messages up to it."""


def encoded(step: Any, **more: Any) -> bytes:
    """Write a step as JSON; bytes as base64, and what JSON has no form for as its text."""
    shown = {**state_answer(step), **more}
    return to_json(shown, inf_nan_mode="null", bytes_mode="base64", serialize_unknown=True)


@router.get("/threads", response_model=list[schemas.ThreadAnswer])
async def list_threads(
    context: Reader,
    limit: Limit = 50,
    before: Before = None,
    agent: Annotated[
        str | None, Query(max_length=200, description="Only threads of this agent.")
    ] = None,
    status: Annotated[
        Literal["idle", "running", "waiting", "failed"] | None,
        Query(description="Only threads in this state."),
    ] = None,
) -> Any:
    """List threads, the most recently used first."""
    found = await context.saver.threads.alist(limit, before, agent, status)
    return [thread_answer(info) for info in found]


@router.get("/threads/{thread_id}", response_model=schemas.ThreadAnswer)
async def show(context: Reader, thread_id: schemas.ThreadIdPath) -> Any:
    """Describe a thread."""
    return thread_answer(await context.thread(thread_id))


@router.delete("/threads/{thread_id}", status_code=204, response_class=Response)
async def delete(context: Runner, thread_id: schemas.ThreadIdPath) -> Response:
    """Delete a thread and all its data; refused while it has a run, also one that is queued."""
    await context.thread(thread_id)
    await context.tenant.runs.delete(thread_id)
    return Response(status_code=204)


@router.get("/threads/{thread_id}/state", response_model=dict[str, Any])
async def state(context: Reader, thread_id: schemas.ThreadIdPath) -> Any:
    """Return a thread's latest state."""
    agent = await context.agent_of(thread_id)
    found = await agent.graph.aget_state(_at(thread_id))
    return Response(encoded(found, thread_id=thread_id), media_type="application/json")


@router.get("/threads/{thread_id}/history", response_model=list[dict[str, Any]])
async def history(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    limit: Limit = 20,
    before: Annotated[
        str | None,
        Query(min_length=1, max_length=128, description="Next page: only steps before this one."),
    ] = None,
) -> Any:
    """Return a thread's steps, the latest first; `before` continues after a page.

    A page has fewer steps than `limit` if they are large.
    """
    agent = await context.agent_of(thread_id)
    config = _at(thread_id)
    page: Any = None
    if before is not None:
        await _check_step(context, thread_id, before)
        page = _at(thread_id, before)
    made: list[bytes] = []
    size = 0
    while len(made) < limit and size <= _PAGE_BYTES:
        some = min(_STEPS, limit - len(made))
        found = [s async for s in agent.graph.aget_state_history(config, before=page, limit=some)]
        for step in found:
            made.append(await asyncio.to_thread(encoded, step))
            size += len(made[-1])
        if len(found) < some:
            break
        page = found[-1].config
    return Response(b"[" + b",".join(made) + b"]", media_type="application/json")


@router.post("/threads/{thread_id}/fork", response_model=schemas.ThreadAnswer, status_code=201)
async def fork(context: Runner, thread_id: schemas.ThreadIdPath, form: schemas.ForkForm) -> Any:
    """Fork a thread: copy it with its history under another id."""
    await context.thread(thread_id)
    target = form.thread_id or new_thread_id()
    if await context.saver.threads.aget(target) is not None:
        raise Problem(409, "thread exists")
    if form.checkpoint_id is not None:
        await _check_step(context, thread_id, form.checkpoint_id)
    await context.saver.threads.afork(thread_id, target, form.checkpoint_id)
    return thread_answer(await context.thread(target))


@router.post("/threads/{thread_id}/pin", response_model=schemas.ThreadAnswer)
async def pin(context: Runner, thread_id: schemas.ThreadIdPath, form: schemas.PinForm) -> Any:
    """Pin a thread, so that it never expires, or unpin it."""
    await context.saver.threads.apin(thread_id, form.pinned)
    return thread_answer(await context.thread(thread_id))


@router.post("/threads/{thread_id}/cancel", response_model=schemas.ThreadAnswer)
async def cancel(context: Runner, thread_id: schemas.ThreadIdPath) -> Any:
    """Cancel the run of a thread, on any server; does nothing if there is none."""
    await context.thread(thread_id)
    await context.tenant.runs.cancel(thread_id)
    return thread_answer(await context.thread(thread_id))


@router.get("/threads/{thread_id}/runs", response_model=list[schemas.StreamAnswer])
async def list_runs(context: Reader, thread_id: schemas.ThreadIdPath, limit: Limit = 50) -> Any:
    """List a thread's runs, the latest first."""
    await context.thread(thread_id)
    found = await context.streams.run(context.streams.of_thread, thread_id, limit)
    return [stream_answer(row) for row in found]


@router.get(
    "/threads/{thread_id}/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    context: Reader, thread_id: schemas.ThreadIdPath, last: LastEventId = None
) -> Response:
    """Follow the latest run of a thread from its beginning, or after an event."""
    await context.thread(thread_id)
    rows = await context.streams.run(context.streams.of_thread, thread_id, 1)
    if not rows:
        raise Problem(404, "the thread has no run with events")
    return await follow(context, rows[0], last, "continue")


@router.get("/threads/{thread_id}/journal")
async def journal(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    run: Annotated[
        str | None, Query(pattern=schemas.RUN_ID, description="Only moments of this run.")
    ] = None,
    after: Annotated[
        int, Query(ge=0, le=2**32 - 1, description="Next page: only moments after this number.")
    ] = 0,
    limit: Limit = 200,
) -> list[dict[str, Any]]:
    """Return the journal of a thread: the moments of its runs."""
    named = (await context.thread(thread_id)).agent
    if named in context.tenant.agents and (await context.agent(named)).spec.guest:
        raise Problem(409, f"{named} is a LangGraph graph; its runs are not recorded")
    found = Journal(context.saver, thread_id)

    def read() -> list[dict[str, Any]]:
        if run is not None and all(known.run_id != run for known in found.runs()):
            raise Problem(404, "run not found")
        return [found.to_dict(entry) for entry in found.moments(run, after=after, limit=limit)]

    return await context.streams.run(read)


async def _check_step(context: RequestContext, thread_id: str, checkpoint_id: str) -> None:
    agent = await context.agent_of(thread_id)
    at = _at(thread_id, checkpoint_id)
    if (await agent.graph.aget_state(at)).created_at is None:
        raise Problem(404, "checkpoint not found")


def _at(thread_id: str, checkpoint_id: str | None = None) -> Any:
    step = {} if checkpoint_id is None else {langgraph_config.CHECKPOINT_ID: checkpoint_id}
    return langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}, **step
    )
