"""LangGraph's thread protocol: commands, and streams over all runs of a thread.

An event's `seq` is its place as one number, and its `event_id` never changes: a client that comes
back after a `seq` gets what is new, and knows what it has seen already by its id.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request, Response
from langgraph.types import StateSnapshot
from pydantic import Field, ValidationError

from wick_graph.errors import ConfigError, MessageError, NothingWaitsError, ThreadBusyError
from wick_graph.server import schemas
from wick_graph.server.guard import Answerer, Reader, RequestContext
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.server.protocols.langgraph.asking import AskForm, start
from wick_graph.server.protocols.langgraph.following import (
    Entry,
    Place,
    agent_name,
    entries,
    runs_after,
    waiting,
)
from wick_graph.server.protocols.langgraph.frames import BY_STEP, NODES, Reply, result_of, usage
from wick_graph.server.sse import EventStream, named_frame
from wick_graph.service.event_log import TERMINAL, Wire
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import StreamRow

router: Final = APIRouter(prefix="/langgraph", tags=["langgraph"])

Namespace = tuple[str, ...]

Told = tuple[str, Namespace, Any]
"""An event's method, namespace and data."""


# --- What a run's events and steps are in the protocol.


class Message:
    """A reply as the events of a message: its blocks begin, grow, and end."""

    def __init__(self, run_id: str) -> None:
        self._reply = Reply(run_id)
        self._blocks: dict[Any, int] = {}

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the end of a message that its model gave up, and forget it."""
        if self._reply.is_streamed:
            yield {"event": "error", "message": "the model is asked again", "id": self._reply.key}
        self._reply.begin()
        self._blocks = {}

    def add(self, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of a piece."""
        first = not self._reply.is_streamed
        self._reply.add(data)
        if first:
            yield self._start()
        if data.get("reasoning"):
            yield from self._delta("reasoning", {"type": "reasoning", "reasoning": ""})
            delta = {"type": "reasoning-delta", "reasoning": data["reasoning"]}
            yield self._grown("reasoning", delta)
        if data["delta"]:
            yield from self._delta("text", {"type": "text", "text": ""})
            yield self._grown("text", {"type": "text-delta", "text": data["delta"]})
        for piece in data.get("calls", ()):
            index = piece.get("index")
            known = self._reply.calls[index]
            fields = {"type": "tool_call_chunk", "id": known["id"], "name": known["name"]}
            yield from self._delta(("call", index), {**fields, "args": ""})
            delta = {"type": "block-delta", "fields": {**fields, "args": known["args"]}}
            yield self._grown(("call", index), delta)

    def end(self, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of the whole reply that are left."""
        first, whole = not self._reply.is_streamed, self._reply.end(data)
        if first:
            yield self._start()
        blocks: list[tuple[Any, dict[str, Any]]] = []
        if self._reply.reasoning:
            thought = {"type": "reasoning", "reasoning": self._reply.reasoning}
            blocks.append(("reasoning", thought))
        if data["content"]:
            blocks.append(("text", {"type": "text", "text": data["content"]}))
        indices = [*self._reply.calls]
        for i, call in enumerate(whole["tool_calls"]):
            blocks.append((("call", indices[i] if i < len(indices) else f"+{i}"), call))
        for key, content in blocks:
            empty = dict(content)
            empty.update((name, "") for name in ("text", "reasoning") if name in content)
            yield from self._delta(key, empty)
            index = self._blocks[key]
            yield {"event": "content-block-finish", "index": index, "content": content}
        spent = usage(data)
        yield {"event": "message-finish", **({} if spent is None else {"usage": spent})}
        self._reply.begin()
        self._blocks = {}

    def last_words(self) -> dict[str, Any] | None:
        """Return the data of a reply that no model ends; None if there is none."""
        said = self._reply.last_words()
        return None if said is None else {**said, "message_id": self._reply.key}

    def _start(self) -> dict[str, Any]:
        about = {"langgraph_node": NODES[0]}
        return {"event": "message-start", "role": "ai", "id": self._reply.key, "metadata": about}

    def _delta(self, key: Any, empty: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if key not in self._blocks:
            self._blocks[key] = len(self._blocks)
            index = self._blocks[key]
            yield {"event": "content-block-start", "index": index, "content": empty}

    def _grown(self, key: Any, delta: dict[str, Any]) -> dict[str, Any]:
        return {"event": "content-block-delta", "index": self._blocks[key], "delta": delta}


class Projection:
    """Turns a run's events and steps into those of the protocol."""

    def __init__(self, row: StreamRow, within: Namespace = ()) -> None:
        self._row, self._within = row, within
        self._message = Message(f"{row.run_id}{'/'.join(within)}")
        self._below: dict[Namespace, Projection] = {}
        self._last: StateSnapshot | None = None

    def begin(self) -> Told:
        """Return the event that begins a run."""
        return self._lifecycle("running")

    def _lifecycle(self, event: str, **more: Any) -> Told:
        name = self._within[-1].partition(":")[0] if self._within else self._row.asked["agent"]
        return "lifecycle", self._within, {"event": event, "graph_name": name, **more}

    def of(self, event: Wire) -> Iterator[Told]:
        """Yield the events of one of ours."""
        kind, data = event["event"], event.get("data", {})
        if kind in ("on_chat_model_start", "on_chat_model_retry"):
            yield from self._messages(self._message.begin())
        elif kind == "on_chat_model_stream":
            yield from self._messages(self._message.add(data))
        elif kind == "on_chat_model_end":
            yield from self._whole(data)
        elif kind == "done" and (said := self._message.last_words()) is not None:
            yield from self._whole(said)
        elif kind == "on_tool_start":
            yield self._tool("started", event, tool_name=event.get("name"), input=data["args"])
        elif kind == "on_tool_end":
            if "error" in data:
                yield self._tool("error", event, message=data["output"])
            else:
                yield self._tool("finished", event, output=data["output"])
            yield self._update(NODES[1], result_of(event))
        elif kind == "on_output":
            yield "custom", self._within, {"name": "output", "payload": data}
        elif kind == "on_subagent":
            yield from self._child(data)

    def _messages(self, found: Iterator[dict[str, Any]]) -> Iterator[Told]:
        for data in found:
            yield "messages", self._within, data

    def _whole(self, data: Mapping[str, Any]) -> Iterator[Told]:
        whole = Reply(self._row.run_id).end(data)
        yield from self._messages(self._message.end(data))
        yield self._update(NODES[0], whole)

    def _update(self, node: str, message: Mapping[str, Any]) -> Told:
        return "updates", self._within, {"node": node, "values": {"messages": [message]}}

    def _tool(self, what: str, event: Wire, **more: Any) -> Told:
        data = {"event": f"tool-{what}", "tool_call_id": event["run_id"], **more}
        return "tools", self._within, data

    def _child(self, data: Mapping[str, Any]) -> Iterator[Told]:
        within = (*self._within, f"{'/'.join(data['path'])}:{data['cause']}")
        below, event = self._below.get(within), data["event"]
        if below is None:
            below = self._below[within] = Projection(self._row, within)
            cause = {"type": "toolCall", "tool_call_id": data["cause"]}
            yield below._lifecycle("started", cause=cause)
        if event["event"] == "done":
            yield below._lifecycle("completed")
        elif event["event"] == "error":
            yield below._lifecycle("failed", error=event["data"]["error"])
        else:
            yield from below.of(event)

    def step(self, state: StateSnapshot) -> Iterator[Told]:
        """Yield the events of a step."""
        before, self._last = self._last, state
        metadata, at = state.metadata or {}, shapes.place(state.config) or {}
        parent = shapes.place(state.parent_config)
        for task in before.tasks if before is not None else ():
            error = None if task.error is None else str(task.error)
            ended = {"id": task.id, "name": task.name, "error": error}
            yield "tasks", (), {**ended, "interrupts": [], "result": shapes.plain(task.result)}
        ids = {"id": at.get("checkpoint_id")}
        if parent is not None:
            ids["parent_id"] = parent["checkpoint_id"]
        facts = {"step": metadata.get("step"), "source": metadata.get("source")}
        yield "checkpoints", (), {**ids, **facts}
        if state.values and (before is not None or metadata.get("source") != "input"):
            yield "values", (), shapes.values(state)
        for task in state.tasks:
            yield "tasks", (), {"id": task.id, "name": task.name, "input": None, "triggers": []}

    def last(self, event: Wire, state: StateSnapshot | None) -> Iterator[Told]:
        """Yield the events of a run's end; `state` is given if it waits for an answer."""
        asked = [] if state is None else shapes.questions(self._row.thread_id, state.interrupts)
        for one in asked:  # Python's client reads `value`, that of JavaScript `payload`
            told = {"interrupt_id": one["id"], "value": one["value"], "payload": one["value"]}
            yield "input.requested", (), told
        if event["event"] == "error":
            yield self._lifecycle("failed", error=event["data"]["error"])
        else:
            yield self._lifecycle("interrupted" if asked else "completed")


# --- Streams of events.


Channel = Annotated[
    str,
    Field(
        pattern=r"^(values|updates|messages|tools|lifecycle|input|checkpoints|tasks|custom(:.{1,200})?)$"
    ),
]

Segment = Annotated[str, Field(max_length=300)]


class EventsForm(schemas.Form):
    """What a stream shows, and after which event."""

    channels: Annotated[list[Channel], Field(min_length=1, max_length=32)]
    namespaces: (
        Annotated[list[Annotated[list[Segment], Field(max_length=32)]], Field(max_length=100)]
        | None
    ) = None
    depth: Annotated[int, Field(ge=0, le=64), schemas.FROM_WHOLE] | None = None
    since: Annotated[int, Field(ge=0, le=2**53 - 1), schemas.FROM_WHOLE] | None = None

    def shows(self, told: Told) -> bool:
        """Return whether an event passes the filter."""
        method, within, data = told
        channel = "input" if method == "input.requested" else method
        named = f"custom:{data.get('name')}" if method == "custom" else channel
        if channel not in self.channels and named not in self.channels:
            return False
        if not self.namespaces:
            return True
        return any(self._is_below(within, prefix) for prefix in self.namespaces)

    def _is_below(self, within: Namespace, prefix: Sequence[str]) -> bool:
        parts = zip(within, prefix, strict=False)
        fits = all(
            one == named or (":" not in named and one.partition(":")[0] == named)
            for one, named in parts
        )
        deep = len(within) - len(prefix)
        return deep >= 0 and fits and (self.depth is None or deep <= self.depth)

    @property
    def needs_steps(self) -> bool:
        """Whether checkpoints are read."""
        return bool((BY_STEP | {"checkpoints"}).intersection(self.channels))


class Seen:
    """The ended runs that streams have told to their ends, by the channels of the stream.

    A stream without a place begins with the thread's latest run, unless the end of that was told: a
    client may open its streams before or after a run that is quick.
    """

    def __init__(self) -> None:
        self._ended: OrderedDict[tuple[str, frozenset[str]], None] = OrderedDict()

    def note(self, run_id: str, channels: Sequence[str]) -> None:
        """Note that a run's end was told."""
        self._ended[run_id, frozenset(channels)] = None
        while len(self._ended) > 10_000:
            self._ended.popitem(last=False)

    def has(self, run_id: str, channels: Sequence[str]) -> bool:
        """Return whether a run's end was told to a stream of these channels."""
        return (run_id, frozenset(channels)) in self._ended


async def _begin_at(context: RequestContext, thread_id: str, form: EventsForm, seen: Seen) -> Place:
    if form.since is not None:
        return Place.of(form.since)
    rows = await context.streams.run(context.streams.of_thread, thread_id, 1)
    if not rows:
        return Place()
    row = rows[0]
    over = not row.goes_on
    if over and (seen.has(row.run_id, form.channels) or row.ended is None or _is_old(row)):
        return Place(await context.streams.run(context.streams.last, row))
    return Place(row.first - 1)


_OLD_SECONDS: Final = 300.0


def _is_old(row: StreamRow) -> bool:
    return row.ended is not None and time.time() - row.ended > _OLD_SECONDS


async def _told(
    context: RequestContext, thread_id: str, form: EventsForm, after: Place, seen: Seen
) -> AsyncIterator[bytes | None]:
    """Yield the events of a thread's runs after a place, without an end."""
    before = after.number
    async for row in runs_after(context, thread_id, after.event):
        if row is None:
            yield None
            continue
        agent = await context.agent(agent_name(row))
        projection = Projection(row)
        own = after if after.event >= row.first else Place(row.first - 1)
        async for entry in entries(context, row, agent, own, steps=form.needs_steps):
            if entry is None:
                yield None
                continue
            made = [*_all(projection, entry)]
            if entry.event is not None and entry.event["event"] in TERMINAL:
                made += projection.last(entry.event, await waiting(agent, row, entry.event))
            if not entry.is_new:
                continue
            if entry.event is not None and entry.place.event == row.first:
                made.insert(0, projection.begin())
            yield _framed(entry, [*enumerate(made)], form, before)
            before = entry.place.number
            if entry.event is not None and entry.event["event"] in TERMINAL:
                seen.note(row.run_id, form.channels)


def _all(projection: Projection, entry: Entry) -> Iterator[Told]:
    if entry.state is not None:
        yield from projection.step(entry.state)
    elif entry.event is not None:
        yield from projection.of(entry.event)


def _framed(entry: Entry, made: Sequence[tuple[int, Told]], form: EventsForm, before: int) -> bytes:
    """Encode what an entry is; only its last event has its `seq`, the others that before."""
    shown = [(i, told) for i, told in made if form.shows(told)]
    pieces = b""
    for number, (i, (method, within, data)) in enumerate(shown):
        is_last = number == len(shown) - 1
        event = {
            "type": "event",
            "event_id": f"{entry.row.run_id}:{entry.place}:{i}",
            "seq": entry.place.number if is_last else before,
            "method": method,
            "params": {
                "namespace": list(within),
                "timestamp": round(time.time() * 1000),
                "data": data,
            },
        }
        pieces += named_frame(str(event["seq"]), "message", event)
    return pieces


@router.post(
    "/threads/{thread_id}/stream/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    request: Request, context: Reader, thread_id: schemas.ThreadIdPath, form: EventsForm
) -> Response:
    """Follow the runs of a thread, without an end."""
    await context.thread(thread_id)
    seen: Seen = request.app.state.langgraph_seen
    after = await _begin_at(context, thread_id, form, seen)

    async def pieces() -> AsyncIterator[bytes | None]:
        async for piece in _told(context, thread_id, form, after, seen):
            yield piece

    limits = context.options.limits
    return EventStream(pieces, ping=limits.ping, send_timeout=limits.send)


# --- Commands.


class OrderForm(schemas.Form):
    """A command of a client."""

    id: Annotated[int, Field(ge=0, le=2**53 - 1), schemas.FROM_WHOLE]
    method: Annotated[str, Field(max_length=100)]
    params: dict[str, Any] = Field(default={})


_CODES: Final[Mapping[int, str]] = {403: "permission_denied", 404: "no_such_run"}


@router.post("/threads/{thread_id}/commands", response_model=dict[str, Any])
async def command(context: Answerer, thread_id: schemas.ThreadIdPath, form: OrderForm) -> Any:
    """Start a run in a thread, or answer its questions."""
    if form.method == "input.respond":
        await context.thread(thread_id)
    try:
        if form.method == "run.start":
            row = await _start(context, thread_id, form.params)
        elif form.method == "input.respond":
            row = await _respond(context, thread_id, form.params)
        else:
            return _error(form, "not_supported", f"{form.method}: use the routes of the thread")
    except Problem as problem:
        if problem.status >= 429:
            raise
        return _error(form, _CODES.get(problem.status, "invalid_argument"), problem.error)
    except (ConfigError, MessageError, NothingWaitsError, ThreadBusyError) as error:
        return _error(form, "invalid_argument", str(error))
    meta = {"applied_through_seq": Place(row.first - 1).number}
    return {"type": "success", "id": form.id, "result": {"run_id": row.run_id}, "meta": meta}


def _error(form: OrderForm, code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "id": form.id, "error": code, "message": message}


def _form(params: Mapping[str, Any]) -> AskForm:
    try:
        return AskForm.model_validate({key: v for key, v in params.items() if v is not None})
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise Problem(400, f"{where}: {found['msg']}"[:500]) from None


async def _start(context: RequestContext, thread_id: str, params: Mapping[str, Any]) -> StreamRow:
    form = _form({"if_not_exists": "create", **params})
    return await start(context, form, thread_id)


async def _respond(context: RequestContext, thread_id: str, params: Mapping[str, Any]) -> StreamRow:
    several = params.get("responses")
    answers = several if isinstance(several, list) else [params]
    resume: dict[str, Any] = {}
    for one in answers:
        if not isinstance(one, Mapping) or not isinstance(one.get("interrupt_id"), str):
            raise Problem(400, "interrupt_id: name the question")
        resume[one["interrupt_id"]] = one.get("response")
    agent = await context.agent_of(thread_id)
    state = await agent.graph.aget_state(shapes.at(thread_id))
    known = {one["id"] for one in shapes.questions(thread_id, state.interrupts)}
    if unknown := {*resume} - known:
        raise Problem(400, f"interrupt_id: there is no question {min(unknown):.80}")
    orders = {key: params[key] for key in ("update", "goto") if key in params}
    asked = {"assistant_id": agent.name, "command": {"resume": resume, **orders}}
    more = {key: params[key] for key in ("config", "metadata") if key in params}
    return await start(context, _form({**asked, **more}), thread_id)
