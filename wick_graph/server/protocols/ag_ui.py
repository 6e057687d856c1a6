"""The agents behind AG-UI: a request is a run, and its stream the run's events.

Clients send the whole conversation each time. Only the user's turns after the last answer are new,
and a request with the id of an earlier run follows that run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
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
from wick_graph.server.protocols.parts import RUNS, Part, Parts, found_or_begun, unended
from wick_graph.server.sse import EventStream
from wick_graph.service.event_log import TERMINAL, Wire, events_after
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import StreamRow
from wick_graph.tools import frontend

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


class FrontendTool(BaseModel):
    """A tool that the page has; a call of it is an interrupt, and the page's result its answer."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=10_000)] = ""
    parameters: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class RunAgentInput(BaseModel):
    """A request for a run; the agent's state is its own."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)
    thread_id: schemas.ThreadIdText
    run_id: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[list[dict[str, Any]], Field(max_length=schemas.MESSAGES)]
    resume: Annotated[list[ResumeEntry], Field(max_length=100)] | None = None
    protocol_version: str | None = None
    parent_run_id: str | None = None
    tools: Annotated[list[FrontendTool], Field(max_length=64)] | None = None
    state: Unsupported = None
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
    asked = (context, agent, form)
    row, _ = await found_or_begun(partial(_known, *asked), partial(_started, *asked))
    limits = context.options.limits
    shown = {str(one.get("id")) for one in form.messages if one.get("role") == "tool"}

    async def pieces() -> AsyncIterator[bytes | None]:
        async for told in _told(context, agent, row, form.run_id):
            if told and told["type"] == "TOOL_CALL_RESULT" and told["messageId"] in shown:
                continue  # a client that comes again would show it twice
            yield None if told is None else b"data: %s\n\n" % json.dumps(told).encode("ascii")

    headers = {"X-Thread-Id": row.thread_id, "X-Run-Id": row.run_id}
    return EventStream(pieces, ping=limits.ping, send_timeout=limits.send, headers=headers)


async def _known(context: RequestContext, agent: Agent, form: RunAgentInput) -> StreamRow | None:
    rows = await context.streams.run(context.streams.of_thread, form.thread_id, RUNS)
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
    tools = [one.model_dump(exclude={"metadata"}) for one in form.tools or ()]
    _check_tools(agent, tools)
    resume = form.resume or await _results(context, agent, form)
    if resume:
        await context.thread(form.thread_id)
        state = await agent.graph.aget_state(shapes.at(form.thread_id))
        asked["command"] = {"resume": _answers(state, resume)}
    else:
        said = [*map(_said, form.messages)]
        asked |= {"input": {"messages": said}, "if_not_exists": "create"}
    made = AskForm(**asked, multitask_strategy="reject")
    return await start(context, made, form.thread_id, frontend_tools=tools)


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its pictures in our form; what is no picture stays as it is."""
    content = message.get("content")
    return {**message, "content": [*map(_block, content)]} if isinstance(content, list) else message


def _block(given: Any) -> Any:
    found = given if isinstance(given, Mapping) else {}
    kind, source = found.get("type"), found.get("source")
    if kind == "image" and isinstance(source, Mapping) and source.get("type") in ("data", "url"):
        found = {"mimeType": source.get("mimeType"), source["type"]: source.get("value")}
    elif kind != "binary" or not str(found.get("mimeType")).startswith("image/"):
        return given
    url = found.get("url") or f"data:{found.get('mimeType')};base64,{found.get('data') or ''}"
    return {"type": "image_url", "image_url": {"url": url}}


def _check_tools(agent: Agent, tools: list[dict[str, Any]]) -> None:
    """Refuse tools that the agent has, or that the model cannot be shown.

    Raises:
        Problem: One of them is refused.
    """
    own = agent.spec.toolbox.at({}) if tools else {}
    for index, one in enumerate(tools):
        taken = one["name"] in own or one["name"] in [known["name"] for known in tools[:index]]
        if taken or agent.spec.guest:
            why = "there is a tool of that name" if taken else "a graph takes no more tools"
            raise Problem(400, f"tools[{index}].name: {why}")
        frontend.frontend_tool(one)


async def _results(context: RequestContext, agent: Agent, form: RunAgentInput) -> list[ResumeEntry]:
    """Return the results of the calls that wait for the page, which clients send as messages.

    Raises:
        Problem: A message of the user follows them.
    """
    told: dict[str, Any] = {}
    for one in form.messages:
        if one.get("role") == "tool":
            told[str(one.get("toolCallId"))] = one.get("content")
    if not told or await context.saver.threads.aget(form.thread_id) is None:
        return []
    state = await agent.graph.aget_state(shapes.at(form.thread_id))
    calls = {
        one.value["call_id"]: one.id for one in state.interrupts if frontend.is_call(one.value)
    }
    found = [
        ResumeEntry.model_validate(
            {"interruptId": key, "status": "resolved", "payload": told[call]}
        )
        for call, key in calls.items()
        if call in told
    ]
    if found and form.messages[-1].get("role") == "user":
        raise Problem(400, "messages: send the results of the tools first, then the new message")
    return found


def _answers(state: StateSnapshot, given: list[ResumeEntry]) -> dict[str, Any]:
    """Return the answers by question; those to calls are decided together."""
    known = {one.interrupt_id: one for one in given}
    calls = [one for one in state.interrupts if shapes.is_approval(one.value)]
    if {*known} != {one.id for one in state.interrupts}:
        raise Problem(400, "resume: answer each question that waits, and no other")
    made: dict[str, Any] = {
        one.id: _result(known[one.id]) if frontend.is_call(one.value) else known[one.id].payload
        for one in state.interrupts
        if one not in calls
    }
    if calls:
        made[calls[0].id] = {"decisions": [_decision(known[one.id], one.value) for one in calls]}
    return made


def _result(given: ResumeEntry) -> str:
    if given.status == "cancelled":
        return "the user cancelled this call; it was not run"
    return frontend.result_text(given.payload)


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
    parts = Parts(row)
    live = context.tenant.runs.find(row)
    log = None if live is None else live.event_log
    yield {"type": "RUN_STARTED", **ids}
    async for entry in events_after(context.saver, row, row.first - 1, log):
        if entry is None:
            yield None
            continue
        _, event = entry
        context.service.metrics_of(context.caller.tenant).sent()
        for part in parts.of(event):
            for told in _parts(part):
                yield told
        if event["event"] in TERMINAL:
            for told in await _end(agent, row, event):
                yield {**told, **ids} if told["type"] == "RUN_FINISHED" else told
            return
    why = await unended(context, row)
    code = "suspended" if why.status == 503 else "failed"
    yield {"type": "RUN_ERROR", "message": why.error, "code": code}


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
    end: list[Told] = [{"type": "RUN_FINISHED", "outcome": outcome}]
    if data.get("reason"):  # the answer may look whole
        end[0]["result"] = {key: data[key] for key in ("stopped_because", "reason")}
    if data["stopped_because"] == "guardrail":  # the thread may not keep its answer; the page does
        return end
    return [{"type": "MESSAGES_SNAPSHOT", "messages": messages}, *end]


def _question(found: Any) -> Told:
    value = found.value
    if frontend.is_call(value):
        own = {"tool": value["tool"], "args": shapes.plain(value["args"]), "frontend": True}
        where = {"toolCallId": value["call_id"], "metadata": own}
        return {"id": found.id, "reason": "tool_call", "message": "", **where}
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


def _parts(part: Part) -> Iterator[Told]:
    """Yield AG-UI's events for a part."""
    kind, key, data = part
    if kind == "reasoning-start":
        yield {"type": "REASONING_START", "messageId": key}
        yield {"type": "REASONING_MESSAGE_START", "messageId": key, "role": "reasoning"}
    elif kind == "reasoning-end":
        yield {"type": "REASONING_MESSAGE_END", "messageId": key}
        yield {"type": "REASONING_END", "messageId": key}
    elif kind == "text-start":
        yield {"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"}
    elif kind == "call-start":
        named = {"toolCallName": data["name"], "parentMessageId": data["reply"]}
        yield {"type": "TOOL_CALL_START", "toolCallId": key, **named}
    elif kind == "result":
        result = {"messageId": _result_id(key), "toolCallId": key, "role": "tool"}
        yield {"type": "TOOL_CALL_RESULT", **result, "content": data["output"]}
    elif kind in _PLAIN:
        name, of = _PLAIN[kind]
        yield {"type": name, of: key, **data}


_PLAIN: Final[Mapping[str, tuple[str, str]]] = {
    "reasoning-delta": ("REASONING_MESSAGE_CONTENT", "messageId"),
    "text-delta": ("TEXT_MESSAGE_CONTENT", "messageId"),
    "text-end": ("TEXT_MESSAGE_END", "messageId"),
    "call-delta": ("TOOL_CALL_ARGS", "toolCallId"),
    "call-end": ("TOOL_CALL_END", "toolCallId"),
}
