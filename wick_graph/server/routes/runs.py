"""Routes of runs: start, follow, cancel, resume; answer open questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Response

from wick_graph import langgraph_config
from wick_graph.core.usage import Usage
from wick_graph.errors import MessageError
from wick_graph.hooks.approvals import KIND, holds_decision, read_decision, shown_in, signed
from wick_graph.messages.validation import read_input
from wick_graph.runtime.context import Run
from wick_graph.server import schemas
from wick_graph.server.guard import Answerer, Reader, RequestContext, Runner
from wick_graph.server.schemas import run_answer, stream_answer
from wick_graph.server.sse import EventStream, frame
from wick_graph.service.detached import DetachedRun, row_of
from wick_graph.service.event_log import TERMINAL, Wire, events_after
from wick_graph.service.options import OnDisconnect, Problem, problem_of
from wick_graph.service.runs import RunRequest, with_schema
from wick_graph.store.server_rows import RUNNING, StreamRow

# --- Start, follow, cancel and resume runs.


run_router: Final = APIRouter(tags=["runs"])

SUSPENDED: Final = "the run is suspended; it goes on in its thread"

_SSE: Final[Any] = {
    200: {
        "description": "Server-sent events up to `done` or `error`.",
        "content": {"text/event-stream": {}},
    }
}

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=256,
        pattern=r"^[!-~]+$",
        description="Repeating a request with the same key returns the same run.",
    ),
]

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        pattern="^[0-9]{1,10}$",
        description="Continue after this event of the thread; nothing is run again.",
    ),
]


@run_router.post("/agents/invoke", response_model=schemas.RunAnswer)
async def invoke_default(context: Runner, form: schemas.RunForm, key: Key = None) -> Any:
    """Ask the default agent and wait for the answer."""
    return await _invoke(context, None, form, key)


@run_router.post("/agents/{agent_id}/invoke", response_model=schemas.RunAnswer)
async def invoke(
    context: Runner, agent_id: schemas.AgentIdPath, form: schemas.RunForm, key: Key = None
) -> Any:
    """Ask an agent and wait for the answer."""
    return await _invoke(context, agent_id, form, key)


@run_router.post("/agents/stream", response_class=Response, responses=_SSE)
async def stream_default(
    context: Runner, form: schemas.RunForm, key: Key = None, last: LastEventId = None
) -> Response:
    """Ask the default agent and follow its run."""
    return await _stream(context, None, form, key, last)


@run_router.post("/agents/{agent_id}/stream", response_class=Response, responses=_SSE)
async def stream(
    context: Runner,
    agent_id: schemas.AgentIdPath,
    form: schemas.RunForm,
    key: Key = None,
    last: LastEventId = None,
) -> Response:
    """Ask an agent and follow its run.

    With `Last-Event-ID` and the thread's id, no run is started: the broken stream continues.
    """
    return await _stream(context, agent_id, form, key, last)


@run_router.post("/agents/resume", response_model=schemas.RunAnswer, responses=_SSE)
async def resume_default(
    context: Answerer, form: schemas.ResumeForm, key: Key = None, last: LastEventId = None
) -> Any:
    """Resume a thread."""
    return await _resume(context, None, form, key, last)


@run_router.post("/agents/{agent_id}/resume", response_model=schemas.RunAnswer, responses=_SSE)
async def resume(
    context: Answerer,
    agent_id: schemas.AgentIdPath,
    form: schemas.ResumeForm,
    key: Key = None,
    last: LastEventId = None,
) -> Any:
    """Resume a thread after an interrupt, a cancellation or a failure."""
    return await _resume(context, agent_id, form, key, last)


@run_router.get("/runs/{run_id}", response_model=schemas.StreamAnswer)
async def show(context: Reader, run_id: schemas.RunIdPath) -> Any:
    """Return the status of a run."""
    return stream_answer(await _row(context, run_id))


@run_router.get("/runs/{run_id}/events", response_class=Response, responses=_SSE)
async def events(context: Reader, run_id: schemas.RunIdPath, last: LastEventId = None) -> Response:
    """Follow a run from its beginning, or after an event."""
    return await follow(context, await _row(context, run_id), last, "continue")


@run_router.post("/runs/{run_id}/cancel", response_model=schemas.StreamAnswer)
async def cancel(context: Runner, run_id: schemas.RunIdPath) -> Any:
    """Cancel a run; one that has ended stays as it is."""
    row = await _row(context, run_id)
    if row.goes_on:
        await context.tenant.runs.cancel(row.thread_id, run_id)
    return stream_answer(await _row(context, run_id))


async def request_from(
    context: RequestContext, agent_id: str | None, form: schemas.RunForm
) -> RunRequest:
    """Check an input and make the run request of it.

    Raises:
        MessageError: A message is refused.
        Problem: There is no such agent.
    """
    messages = [message.model_dump() for message in form.messages]
    for i, message in enumerate(messages):
        said = message["content"]
        if isinstance(said, str) and not schemas.says_something(said):
            raise MessageError(f"message[{i}]: content must not be empty")
    read_input(messages)
    named = agent_id or context.tenant.agents.default_id
    agent = await context.agent(named)
    read_input(messages, allow_system=agent.allow_client_system)
    schema = form.output_schema
    with_schema(agent, schema)  # a refused one starts no run
    return RunRequest(
        agent_id=named,
        kind="message",
        messages=messages,
        context=form.context,
        output_schema=schema,
    )


async def finished(context: RequestContext, run: DetachedRun | StreamRow) -> dict[str, Any]:
    """Wait for a run's end and return its result.

    Raises:
        Problem: The run failed or was cancelled, or the server stops before its end.
    """
    if isinstance(run, StreamRow):
        return await _ended(context, run)
    assert run.task is not None
    await asyncio.wait([run.task])
    if run.result is None:
        ids = {"thread_id": run.row.thread_id, "run_id": run.row.run_id}
        if run.failure is None and run.suspended and not run.event_log.ended:
            raise Problem(503, SUSPENDED, ids, {"Retry-After": "5"})
        if run.failure is None:
            raise Problem(409, "run cancelled", ids)
        problem = problem_of(run.failure)
        raise Problem(problem.status, problem.error, {**problem.more, **ids}, problem.headers)
    return run_answer(run.result)


async def follow(
    context: RequestContext, row: StreamRow, last: str | None, on_disconnect: OnDisconnect
) -> EventStream:
    """Answer with a run's events after the last one that the client names.

    A client that names an event which never existed gets a `gap` event. One that names an event of
    an earlier run of the thread gets the run from its beginning.
    """
    streams, runs = context.streams, context.tenant.runs
    begin = row.first - 1
    after = ahead = begin if last is None else max(begin, int(last))
    if ahead > begin and ahead > await streams.run(streams.last, row):
        after = begin

    async def numbered() -> AsyncIterator[bytes | None]:
        at, is_over = after, False
        if ahead > after:
            yield _gap(row, ahead, row.first)
        live = runs.find(row)
        event_log = None if live is None else live.event_log
        async for entry in events_after(context.saver, row, after, event_log):
            if entry is not None:
                if entry[0] > at + 1:
                    yield _gap(row, at, entry[0])
                at, is_over = entry[0], entry[1]["event"] in TERMINAL
                context.service.metrics_of(context.caller.tenant).sent()
            yield None if entry is None else frame(*entry)
        if not is_over and context.service.draining:
            data = {"run_id": row.run_id, "status": RUNNING}
            yield frame(None, row.tell("suspended", data))

    headers = {"Content-Location": f"/runs/{row.run_id}/events"}
    return streamed(context, row, numbered, on_disconnect, headers)


def streamed(
    context: RequestContext,
    row: StreamRow,
    pieces: Callable[[], AsyncIterator[bytes | None]],
    on_disconnect: OnDisconnect,
    headers: Mapping[str, str],
) -> EventStream:
    """Answer with pieces of a run's stream; headers name the run and its thread."""

    async def left() -> None:
        if on_disconnect == "cancel":
            await context.tenant.runs.cancel(row.thread_id, row.run_id)

    return EventStream(
        pieces,
        ping=context.options.limits.ping,
        send_timeout=context.options.limits.send,
        left=left,
        headers={"X-Thread-Id": row.thread_id, "X-Run-Id": row.run_id, **headers},
    )


async def _invoke(
    context: RequestContext, agent_id: str | None, form: schemas.RunForm, key: str | None
) -> Any:
    request = await request_from(context, agent_id, form)
    return await finished(
        context, await context.begin(request, form.thread_id, key, waits=form.on_busy == "queue")
    )


async def _stream(
    context: RequestContext,
    agent_id: str | None,
    form: schemas.RunForm,
    key: str | None,
    last: str | None,
) -> Response:
    request = await request_from(context, agent_id, form)
    how = form.on_disconnect or context.options.on_disconnect
    if last is not None and form.thread_id is not None:
        return await _again(context, request, form.thread_id, last, how)
    run = await context.begin(request, form.thread_id, key, waits=form.on_busy == "queue")
    return await follow(context, row_of(run), None, how)


async def _again(
    context: RequestContext, request: RunRequest, thread_id: str, last: str, how: OnDisconnect
) -> Response:
    """Follow the run of the thread that the client has not seen to its end."""
    streams = context.streams
    await context.thread(thread_id)
    request = await context.with_context(await context.agent(request.agent_id), request, thread_id)
    rows = await streams.run(streams.of_thread, thread_id)
    known = [row for row in rows if row.asked == request.as_asked(row).to_dict()]
    fitting = [row for row in known if row.first <= int(last) + 1]
    if not fitting:
        raise Problem(409, "Last-Event-ID: the thread has no such run with that event")
    return await follow(context, fitting[0], last, how)


async def _resume(
    context: RequestContext,
    agent_id: str | None,
    form: schemas.ResumeForm,
    key: str | None,
    last: str | None,
) -> Any:
    if agent_id is None:
        agent = await context.agent_of(form.thread_id)
    else:
        agent = await context.agent(agent_id)
        await context.thread(form.thread_id)
    decides = holds_decision(form.answer)
    context.require("approve" if decides else "run")
    answer = signed(form.answer, context.caller.who) if decides else form.answer
    given: dict[str, Any] = {} if answer is None else {"answer": answer}
    given |= {"force": form.force, "context": form.context}
    request = RunRequest(agent_id=agent.name, kind="resume", **given)
    how = form.on_disconnect or context.options.on_disconnect
    if form.stream and last is not None:
        return await _again(context, request, form.thread_id, last, how)
    try:
        await context.check_waiting_agent(form.thread_id, agent)
        if decides:
            await _check_open(context, form.thread_id, form.answer)
    except Problem:
        if await context.tenant.runs.of_key(key) is None:  # a repeated answer waits no more
            raise
    run = await context.begin(request, form.thread_id, key)
    if form.stream:
        return await follow(context, row_of(run), None, how)
    return await finished(context, run)


async def _check_open(context: RequestContext, thread_id: str, answer: Any) -> None:
    """Check that the questions which an answer decides on still wait; else it starts no run.

    Raises:
        Problem: One of them does not wait.
    """
    if "decision" not in answer:
        waiting = {found["interrupt_id"] for found in await _waiting(context, thread_id)}
        if not answer.keys() <= waiting:
            raise Problem(409, "another decision was made already; look at what still waits")


async def _ended(context: RequestContext, row: StreamRow) -> dict[str, Any]:
    """Wait for a run that an earlier request started, and return its result."""
    last: Wire = {}
    live = context.tenant.runs.find(row)
    event_log = None if live is None else live.event_log
    async for entry in events_after(context.saver, row, row.first - 1, event_log):
        last = last if entry is None else entry[1]
    if last.get("event") != "done":
        ids = {"thread_id": row.thread_id, "run_id": row.run_id}
        if (error := last.get("data", {}).get("error")) is None:
            raise Problem(503, SUSPENDED, ids, {"Retry-After": "5"})
        raise Problem(409, error, ids)
    agent = with_schema(await context.agent(row.asked["agent"]), row.asked.get("output_schema"))
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: row.thread_id}
    )
    mine = {"run_id": row.run_id}
    run = Run(run_id=row.run_id, thread_id=row.thread_id)
    run.stopped = last["data"]["stopped_because"]
    run.usage = Usage.from_dict(last["data"].get("usage", {}))
    found = [s async for s in agent.graph.aget_state_history(config, filter=mine, limit=1)]
    if not found and row.asked["kind"] == "resume":  # there was nothing to resume
        found = [await agent.graph.aget_state(config)]
    for state in found:
        values = {**state.values, "__interrupt__": state.interrupts}
        return run_answer(agent.read_result(values, run))
    raise Problem(409, "the run's steps were pruned", {"thread_id": row.thread_id})


async def _row(context: RequestContext, run_id: str) -> StreamRow:
    row = await context.streams.run(context.streams.by_run, run_id)
    if row is None:
        raise Problem(404, "run not found")
    return row


def _gap(row: StreamRow, seen: int, next_number: int) -> bytes:
    return frame(None, row.tell("gap", {"after": seen, "next": next_number}))


# --- Open questions of threads, and answers to them.


approval_router: Final = APIRouter(tags=["approvals"])

_WORDS: Final = ("approve", "reject")
"""The decisions that need nothing else, and may be a text."""

RequestId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_.:-]{1,128}~[A-Za-z0-9_.:-]{1,128}$",
        description="The thread's id, a tilde, and the question's id.",
    ),
]


@approval_router.get("/threads/{thread_id}/approvals")
async def approvals(context: Reader, thread_id: schemas.ThreadIdPath) -> list[dict[str, Any]]:
    """List the open questions of a thread."""
    return await _waiting(context, thread_id)


@approval_router.get("/agents/hitl/{request_id}")
async def question(context: Reader, request_id: RequestId) -> dict[str, Any]:
    """Return one question."""
    return await _question(context, request_id)


@approval_router.post("/agents/hitl/{request_id}/respond")
async def respond(
    context: Answerer, request_id: RequestId, form: schemas.RespondForm
) -> dict[str, Any]:
    """Answer one question and resume the run."""
    asked = await _question(context, request_id)
    context.require("approve" if asked["kind"] == KIND else "run")
    answer = _decision(asked, form)
    if holds_decision(answer):
        context.require("approve")
        answer = signed(answer, context.caller.who)
    agent = await context.agent_of(asked["thread_id"])
    await context.check_waiting_agent(asked["thread_id"], agent)
    request = RunRequest(agent_id=agent.name, kind="resume", answer={asked["interrupt_id"]: answer})
    run = await context.begin(request, asked["thread_id"])
    result = await finished(context, run)
    return {"id": request_id, "status": form.status, "run": result}


def _decision(asked: Mapping[str, Any], form: schemas.RespondForm) -> Any:
    """Return the answer to a question; to one about a call, nothing but a decision is one.

    Raises:
        Problem: There is no answer, or it is not a decision.
    """
    if form.status == "answered" and "response" not in form.model_fields_set:
        raise Problem(400, "response is required: it is the answer")
    if asked["kind"] != KIND:
        return form.response if form.status == "answered" else f"({form.status})"
    if form.status != "answered":
        message = form.response if isinstance(form.response, str) else ""
        return {"decision": "reject", "message": message}
    answer = {"decision": form.response} if form.response in _WORDS else form.response
    if isinstance(problem := read_decision(answer), str):
        raise Problem(400, f"{problem}; as a text, the response is approve or reject")
    return answer


async def _question(context: RequestContext, request_id: str) -> dict[str, Any]:
    thread_id, _, interrupt_id = request_id.rpartition("~")
    for found in await _waiting(context, thread_id):
        if found["interrupt_id"] == interrupt_id:
            return found
    raise Problem(404, "there is no such question, or it was answered")


async def _waiting(context: RequestContext, thread_id: str) -> list[dict[str, Any]]:
    agent = await context.agent_of(thread_id)
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}
    )
    state = await agent.graph.aget_state(config)
    return [_asked(thread_id, i.id, i.value, state.created_at) for i in state.interrupts]


def _asked(thread_id: str, interrupt_id: str, value: Any, since: str | None) -> dict[str, Any]:
    value = shown_in(thread_id, value)
    known = value if isinstance(value, Mapping) else {}
    return {
        "id": f"{thread_id}~{interrupt_id}",
        "thread_id": thread_id,
        "interrupt_id": interrupt_id,
        "kind": known.get("kind", "question"),
        "prompt": known.get("question") or known.get("why") or (value if not known else None),
        "options": known.get("options", []),
        "value": value,
        "status": "pending",
        "response": None,
        "created_at": since,
        "updated_at": since,
    }
