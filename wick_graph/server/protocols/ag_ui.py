"""The agents behind AG-UI: a request is a run, and its stream the run's events.

Clients send the whole conversation each time. Only the user's turns after the last answer are new,
and a request with the id of an earlier run follows that run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Response
from langgraph.types import StateSnapshot
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from wick_graph.engine.agent import Agent
from wick_graph.server import schemas
from wick_graph.server.guard import Answerer, RequestContext
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.server.protocols.langgraph.asking import AskForm, Unsupported, start
from wick_graph.server.protocols.langgraph.following import messages_in, waiting
from wick_graph.server.sse import EventStream
from wick_graph.service.event_log import TERMINAL, Wire, events_after
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import StreamRow

router: Final = APIRouter(tags=["ag-ui"])

_RUN: Final = "ag_ui_run"
"""The client's id of a run, in the run's metadata."""

Told = dict[str, Any]


class ResumeEntry(BaseModel):
    """The answer to a question."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)
    interrupt_id: Annotated[str, Field(max_length=200)]
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: dict[str, Any] | None = None


class RunAgentInput(BaseModel):
    """A request for a run; the agent's tools and state are its own."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)
    thread_id: schemas.ThreadIdText
    run_id: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[list[dict[str, Any]], Field(max_length=schemas.MESSAGES)]
    resume: Annotated[list[ResumeEntry], Field(max_length=100)] | None = None
    protocol_version: str | None = None
    parent_run_id: str | None = None
    state: Unsupported = None
    tools: Unsupported = None
    context: Unsupported = None
    forwarded_props: Unsupported = None


@router.post(
    "/ag-ui/{agent_id}",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def run(context: Answerer, agent_id: schemas.AgentIdPath, form: RunAgentInput) -> Response:
    """Run an agent, and follow the run."""
    agent = await context.agent(agent_id)
    row = await _known(context, agent, form) or await _started(context, agent, form)
    limits = context.options.limits

    async def pieces() -> AsyncIterator[bytes | None]:
        async for told in _told(context, agent, row, form.run_id):
            yield None if told is None else b"data: %s\n\n" % json.dumps(told).encode("ascii")

    headers = {"X-Thread-Id": row.thread_id, "X-Run-Id": row.run_id}
    return EventStream(pieces, ping=limits.ping, send_timeout=limits.send, headers=headers)


_RUNS: Final = 1_000
"""The latest runs of a thread, among which a request's may be."""


async def _known(context: RequestContext, agent: Agent, form: RunAgentInput) -> StreamRow | None:
    rows = await context.streams.run(context.streams.of_thread, form.thread_id, _RUNS)
    named = ((row, row.asked.get("labels", {}).get("metadata", {})) for row in rows)
    found = next((row for row, labels in named if labels.get(_RUN) == form.run_id), None)
    if found is None:
        return None
    context.require("read")
    if found.asked["agent"] != agent.name:
        raise Problem(409, "runId: it is a run of another agent; use a new one")
    return found


async def _started(context: RequestContext, agent: Agent, form: RunAgentInput) -> StreamRow:
    asked: dict[str, Any] = {"assistant_id": agent.name, "metadata": {_RUN: form.run_id}}
    if form.resume:
        await context.thread(form.thread_id)
        state = await agent.graph.aget_state(shapes.at(form.thread_id))
        asked["command"] = {"resume": _answers(state, form.resume)}
    else:
        asked |= {"input": {"messages": form.messages}, "if_not_exists": "create"}
    return await start(context, AskForm(**asked, multitask_strategy="reject"), form.thread_id)


def _answers(state: StateSnapshot, given: list[ResumeEntry]) -> dict[str, Any]:
    """Return the answers by question; those to calls are decided together."""
    known = {one.interrupt_id: one for one in given}
    calls = [one for one in state.interrupts if shapes.is_approval(one.value)]
    if {*known} != {one.id for one in state.interrupts}:
        raise Problem(400, "resume: answer each question that waits, and no other")
    made: dict[str, Any] = {
        one.id: known[one.id].payload for one in state.interrupts if one not in calls
    }
    if calls:
        made[calls[0].id] = {"decisions": [_decision(known[one.id], one.value) for one in calls]}
    return made


def _decision(given: ResumeEntry, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return LangChain's decision, which a payload may also be."""
    payload = given.payload if isinstance(given.payload, Mapping) else {}
    if given.status == "resolved" and "type" in payload:
        return dict(payload)
    if given.status == "cancelled" or payload.get("approved") is False:
        return {"type": "reject", "message": payload.get("message")}
    if payload.get("approved") is not True:
        raise Problem(400, 'resume.payload: answer {"approved": true} or false')
    if (args := payload.get("editedArgs")) is not None:
        return {"type": "edit", "edited_action": {"name": asked["tool"], "args": args}}
    return {"type": "approve"}


# --- What a run's events are in AG-UI.


async def _told(
    context: RequestContext, agent: Agent, row: StreamRow, run_id: str
) -> AsyncIterator[Told | None]:
    ids = {"threadId": row.thread_id, "runId": run_id}
    projection = _Projection(row)
    live = context.tenant.runs.find(row)
    log = None if live is None else live.event_log
    yield {"type": "RUN_STARTED", **ids}
    async for entry in events_after(context.saver, row, row.first - 1, log):
        if entry is None:
            yield None
            continue
        _, event = entry
        context.service.metrics_of(context.caller.tenant).sent()
        for told in projection.of(event):
            yield told
        if event["event"] in TERMINAL:
            for told in await _end(agent, row, event):
                yield {**told, **ids} if told["type"] == "RUN_FINISHED" else told


async def _end(agent: Agent, row: StreamRow, event: Wire) -> list[Told]:
    data = event["data"]
    if event["event"] == "error" and data["stopped_because"] != "cancelled":
        return [{"type": "RUN_ERROR", "message": data["error"], "code": data["stopped_because"]}]
    state = await agent.graph.aget_state(shapes.at(row.thread_id))
    messages = [made for one in messages_in(state) if (made := _message(one)) is not None]
    asked = await waiting(agent, row, event)
    outcome: Told = {"type": "cancelled" if event["event"] == "error" else "success"}
    if asked is not None:
        outcome = {"type": "interrupt", "interrupts": [*map(_question, asked.interrupts)]}
    return [
        {"type": "MESSAGES_SNAPSHOT", "messages": messages},
        {"type": "RUN_FINISHED", "outcome": outcome},
    ]


def _question(found: Any) -> Told:
    value = found.value
    if not shapes.is_approval(value):
        text = value if isinstance(value, str) else (value or {}).get("question", "")
        return {"id": found.id, "reason": "input_required", "message": str(text)}
    return {
        "id": found.id,
        "reason": "tool_call",
        "message": value.get("why") or "",
        "toolCallId": value["call_id"],
        "metadata": {"tool": value["tool"], "args": shapes.plain(value["args"])},
    }


def _message(message: Any) -> Told | None:
    made: Told = {"id": message.id or "", "content": message.text}
    if message.type == "human":
        return {**made, "role": "user"}
    if message.type == "tool":
        named = {"id": _result_id(message.tool_call_id), "toolCallId": message.tool_call_id}
        return {**made, "role": "tool", **named}
    if message.type != "ai":
        return None
    calls = [
        {
            "id": call["id"] or "",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for call in message.tool_calls
    ]
    return {**made, "role": "assistant", **({"toolCalls": calls} if calls else {})}


def _result_id(call: str) -> str:
    """Return the id of a result's message; the events do not tell the one in the store."""
    return f"result-{call}"


class _Projection:
    """Turns a run's events into those of AG-UI; each part begins once, and ends."""

    def __init__(self, row: StreamRow) -> None:
        self._run_id = row.run_id
        self._count = 0
        self._begin()

    def _begin(self) -> None:
        self._count += 1
        self._key = ""
        self._open: dict[str, Told] = {}
        """What has begun and not ended: kind, and its last event."""
        self._calls: dict[Any, str] = {}
        self._has_text = False

    def of(self, event: Wire) -> Iterator[Told]:
        """Yield the events of one of ours."""
        kind, data = event["event"], event.get("data", {})
        if kind in ("on_chat_model_start", "on_chat_model_retry", "error"):
            yield from self._close()
            self._begin()
        elif kind == "on_chat_model_stream":
            yield from self._piece(data)
        elif kind == "on_chat_model_end":
            yield from self._whole(data)
        elif kind == "on_tool_end":
            call = event["run_id"]
            result = {"messageId": _result_id(call), "toolCallId": call, "role": "tool"}
            yield {"type": "TOOL_CALL_RESULT", **result, "content": data["output"]}

    def _name(self, data: Mapping[str, Any]) -> str:
        """Return the reply's id."""
        if not self._key:
            self._key = data.get("message_id") or f"run-{self._run_id}-{self._count}"
        return self._key

    def _piece(self, data: Mapping[str, Any]) -> Iterator[Told]:
        key = self._name(data)
        if thought := data.get("reasoning"):
            yield from self._reasoning(f"{key}-reasoning", thought)
        if data["delta"]:
            yield from self._text(key, data["delta"])
        for piece in data.get("calls", ()):
            yield from self._call(key, piece)

    def _reasoning(self, key: str, delta: str) -> Iterator[Told]:
        own = {"messageId": key}
        if "reasoning" not in self._open:
            self._open["reasoning"] = own
            yield {"type": "REASONING_START", **own}
            yield {"type": "REASONING_MESSAGE_START", **own, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", **own, "delta": delta}

    def _text(self, key: str, delta: str) -> Iterator[Told]:
        yield from self._close("reasoning")
        if "text" not in self._open:
            self._open["text"] = {"messageId": key}
            yield {"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"}
        self._has_text = True
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": key, "delta": delta}

    def _call(self, key: str, piece: Mapping[str, Any]) -> Iterator[Told]:
        index = piece.get("index")
        if index not in self._calls:
            if not piece.get("id") or not piece.get("name"):
                return  # the whole reply tells it
            yield from self._close("reasoning", "text")
            call = self._calls[index] = str(piece["id"])
            self._open[call] = {"toolCallId": call}
            named = {"toolCallName": piece["name"], "parentMessageId": key}
            yield {"type": "TOOL_CALL_START", "toolCallId": call, **named}
        if piece.get("args"):
            call = self._calls[index]
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": piece["args"]}

    def _whole(self, data: Mapping[str, Any]) -> Iterator[Told]:
        key = self._name(data)
        if data["content"] and not self._has_text:
            yield from self._text(key, data["content"])
        for call in data["tool_calls"]:
            if call["id"] not in self._calls.values():
                args = json.dumps(call["args"])
                yield from self._call(key, {**call, "index": ("whole", call["id"]), "args": args})
        yield from self._close()
        self._begin()

    def _close(self, *kinds: str) -> Iterator[Told]:
        for kind in kinds or [*self._open]:
            own = self._open.pop(kind, None)
            if own is None:
                continue
            if kind == "reasoning":
                yield {"type": "REASONING_MESSAGE_END", **own}
                yield {"type": "REASONING_END", **own}
            else:
                ended = "TEXT_MESSAGE_END" if kind == "text" else "TOOL_CALL_END"
                yield {"type": ended, **own}
