"""The agents behind the AI SDK: a chat is a thread, and a message of the assistant an exchange.

Requests and streams are those of its `DefaultChatTransport`. Clients send the whole conversation
each time; only the user's turns after the last answer, and answers to what waits, are taken.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field, ValidationError

from wick_graph.engine.agent import Agent
from wick_graph.models.call import CUT, FILTERED
from wick_graph.server import schemas
from wick_graph.server.guard import Answerer, Reader, RequestContext
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.server.protocols.langgraph.asking import AskForm, start
from wick_graph.server.protocols.parts import (
    Exchange,
    Part,
    Parts,
    content_of,
    exchanges_of,
    found_or_begun,
    streamed,
    unended,
)
from wick_graph.server.sse import EventStream
from wick_graph.service.event_log import TERMINAL, Wire
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import StreamRow

router: Final = APIRouter(prefix="/ai-sdk", tags=["ai-sdk"])

Json = dict[str, Any]

_STREAM: Final[Any] = {200: {"content": {"text/event-stream": {}}}}

_NONE: Final[Any] = {204: {"description": "Nothing runs in the chat."}}


class UseChatForm(schemas.Form):
    """A request of the AI SDK's `useChat`."""

    id: schemas.ThreadIdText
    """The chat, which is a thread."""
    messages: Annotated[list[Json], Field(min_length=1, max_length=schemas.MESSAGES)]
    trigger: Literal["submit-message"] = "submit-message"
    messageId: Annotated[str, Field(max_length=200)] | None = None
    """The message to which a stream of answers belongs."""


@router.post("/{agent_id}", response_class=Response, responses=_STREAM)
async def chat(context: Answerer, agent_id: schemas.AgentIdPath, form: UseChatForm) -> Response:
    """Say something to an agent or answer what waits, and follow the run."""
    agent = await context.agent(agent_id)
    if form.messages[-1].get("role") == "assistant":
        await context.thread(form.id)
        exchange = await _begun(
            context, agent, form, command={"resume": await _answers(agent, form)}
        )
        return _stream(context, exchange, replays=False, starts=True)
    said, metadata = _turns(form), form.messages[-1].get("metadata") or None
    asked: Json = {"input": {"messages": said}, "if_not_exists": "create", "metadata": metadata}
    exchange, starts = await found_or_begun(
        partial(_known, context, agent, form.id, said[-1]),
        partial(_begun, context, agent, form, **asked),
    )
    return _stream(context, exchange, replays=True, starts=starts)


async def _begun(
    context: RequestContext, agent: Agent, form: UseChatForm, **asked: Any
) -> Exchange:
    asked |= {"assistant_id": agent.name, "multitask_strategy": "reject"}
    row = await start(context, _read(asked), form.id)
    found = await exchanges_of(context, form.id, agent.name)
    return next((one for one in found if one.last.run_id == row.run_id), Exchange([row]))


@router.get(
    "/{agent_id}/{thread_id}/stream", response_class=Response, responses={**_STREAM, **_NONE}
)
async def resume(
    context: Reader,
    agent_id: schemas.AgentIdPath,
    thread_id: schemas.ThreadIdPath,
    ended: Annotated[bool, Query(description="Also if its run has ended meanwhile.")] = False,
) -> Response:
    """Follow the assistant's message that is being written, from its beginning."""
    agent = await context.agent(agent_id)
    await context.thread(thread_id)
    found = await exchanges_of(context, thread_id, agent.name)
    if not found or not (ended or found[-1].goes_on):
        return Response(status_code=204)
    return _stream(context, found[-1], replays=True)


# --- What is taken of a client's messages.


def _read(asked: Json) -> AskForm:
    try:
        return AskForm(**asked)
    except ValidationError as error:
        found = error.errors()[0]
        raise Problem(400, f"messages: {found['loc'][0]}: {found['msg'].lower()}") from None


def _turns(form: UseChatForm) -> list[Json]:
    """Return what the user says after the assistant's last message."""
    if form.messageId is not None:
        raise Problem(400, "messageId: an earlier message cannot be changed; send a new one")
    after = 0
    for i, one in enumerate(form.messages):
        if one.get("role") not in ("user", "system", "assistant"):
            raise Problem(400, f"messages[{i}].role: use user, system or assistant")
        after = i + 1 if one["role"] == "assistant" else after
    return [_turn(f"messages[{i}]", form.messages[i]) for i in range(after, len(form.messages))]


_FIELDS: Final = frozenset({"id", "role", "parts", "metadata"})

_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"type", "text", "state"}),
    "file": frozenset({"type", "url", "mediaType", "filename"}),
}


def _turn(where: str, message: Json) -> Json:
    """Return a message of the user in our form."""
    if unknown := next((name for name in message if name not in _FIELDS), None):
        raise Problem(400, f"{where}.{unknown:.80}: unknown field")
    blocks: list[Any] = []
    for i, part in enumerate(_listed(message.get("parts"))):
        at, kind = f"{where}.parts[{i}]", str(part.get("type"))
        if kind not in _PARTS:
            raise Problem(400, f"{at}.type: {kind:.80} is not supported")
        if unknown := next((name for name in part if name not in _PARTS[kind]), None):
            raise Problem(400, f"{at}.{unknown:.80}: not supported; leave it out")
        if not str(part.get("mediaType", "image/")).startswith("image/"):
            raise Problem(400, f"{at}.mediaType: only images are taken")
        if kind == "text" and not isinstance(part.get("text"), str):
            raise Problem(400, f"{at}.text: must be a text")
        blocks.append({"url": part.get("url")} if kind == "file" else part["text"])
    try:
        content = content_of(blocks)
    except ValueError as error:
        raise Problem(400, f"{where}.parts: {error}") from None
    return {"role": message["role"], "id": message.get("id"), "content": content}


def _listed(found: Any) -> list[Json]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


async def _known(
    context: RequestContext, agent: Agent, thread_id: str, said: Json
) -> Exchange | None:
    """Return the last exchange if this message began it: a client repeats its request."""
    found = await exchanges_of(context, thread_id, agent.name)
    if not found or said["id"] is None or said["id"] not in found[-1].message_ids:
        return None
    at = [*found[-1].message_ids].index(said["id"])
    same = found[-1].rows[0].asked["messages"][at]["content"] == said["content"]
    return found[-1] if same and found[-1].is_latest else None


async def _answers(agent: Agent, form: UseChatForm) -> Json:
    """Return the answers to all that waits, by question; those to calls are decided together."""
    state = await agent.graph.aget_state(shapes.at(form.id))
    given = [part for one in form.messages for part in _listed(one.get("parts"))]
    decided = [part.get("approval") for part in given if part.get("state") == "approval-responded"]
    known = {str(one.get("id")): one for one in decided if isinstance(one, dict)}
    outputs = {
        str(part.get("toolCallId")): part.get("output")
        for part in given
        if part.get("state") == "output-available"
    }
    if not state.interrupts:
        raise Problem(409, "messages: nothing waits for an answer; send a message of the user")
    made: Json = {}
    calls = [one for one in state.interrupts if shapes.is_approval(one.value)]
    if {one.id for one in calls} - {*known}:
        raise Problem(400, "messages: answer each call that waits for an approval")
    for one in state.interrupts:
        call = one.value.get("call_id") if isinstance(one.value, Mapping) else None
        if one not in calls and outputs.get(str(call)) is None:
            raise Problem(400, "messages: a question waits; give the output of its tool")
        if one not in calls:
            made[one.id] = outputs[str(call)]
    if calls:
        made[calls[0].id] = {"decisions": [_decision(known[one.id]) for one in calls]}
    return made


def _decision(given: Json) -> Json:
    if given.get("approved") is True:
        return {"type": "approve"}
    if given.get("approved") is False:
        return {"type": "reject", "message": given.get("reason")}
    raise Problem(400, "messages: approval.approved: must be true or false")


# --- What a run's events are in the AI SDK.


def _stream(
    context: RequestContext, exchange: Exchange, *, replays: bool, starts: bool = False
) -> EventStream:
    """Stream an exchange: all of it, or only its last run, which continues the client's message."""
    pieces = partial(_pieces, context, exchange, replays)
    made = streamed(context, exchange.last, pieces, starts=starts)
    made.headers["X-Vercel-AI-UI-Message-Stream"] = "v1"
    return made


async def _pieces(
    context: RequestContext, exchange: Exchange, replays: bool
) -> AsyncIterator[bytes | None]:
    message, last = _Message(), exchange.last
    end: Iterable[Json] | None = None
    yield _frame({"type": "start", **({"messageId": exchange.id} if replays else {})})
    async for row, event in exchange.events(context):
        if event is None:
            yield None
            continue
        made = [*message.of(row, event)]
        for told in made if replays or row is last else ():
            yield _frame(told)
        if row is last and event["event"] in TERMINAL:
            end = message.end(event)
    if end is None:
        end = [{"type": "error", "errorText": (await unended(context, last)).error}]
    for told in end:
        yield _frame(told)
    yield b"data: [DONE]\n\n"


def _frame(told: Json) -> bytes:
    return b"data: %s\n\n" % json.dumps(told, separators=(",", ":")).encode("ascii")


_ENDS: Final = {"limit": "length", "guardrail": "content-filter", "interrupted": "tool-calls"}

_EARLY: Final = {CUT: "length", FILTERED: "content-filter"}


class _Message:
    """Turns the events of an exchange into the chunks of one message; each result comes once."""

    def __init__(self) -> None:
        self._row: StreamRow | None = None
        self._steps = self._in_step = 0
        """Steps so far, and the chunks of the one that goes on."""
        self._calls: set[str] = set()
        self._asked: dict[str, str] = {}
        """Calls that wait for an approval, by question."""
        self._denied: set[str] = set()

    def of(self, row: StreamRow, event: Wire) -> Iterator[Json]:
        """Yield the chunks of an event, but not the end."""
        if row is not self._row:
            self._row, self._parts = row, Parts(row)
            yield from self._decided(row.asked.get("answer"))
        kind, data = event["event"], event.get("data", {})
        for part in self._parts.of(event):
            yield from self._part(part)
        if kind == "on_chat_model_start":
            yield from self._step()
        elif kind == "interrupt":
            yield from self._question(data)
        elif kind == "on_subagent" and data["event"]["event"] == "on_tool_end":
            yield from self._result(data["event"]["run_id"], data["event"]["data"])

    def end(self, event: Wire) -> Iterator[Json]:
        """Yield the last chunks."""
        data = event["data"]
        if event["event"] == "error":
            cancelled = data["stopped_because"] == "cancelled"
            yield {"type": "abort"} if cancelled else {"type": "error", "errorText": data["error"]}
            return
        if self._steps:
            yield {"type": "finish-step"}
        early = _EARLY.get(data.get("reason", ""))
        why = early or _ENDS.get(data["stopped_because"], "stop")
        yield {"type": "finish", "finishReason": why}

    def _step(self) -> Iterator[Json]:
        if self._steps and not self._in_step:
            return  # another try of the same step
        if self._steps:
            yield {"type": "finish-step"}
        self._steps += 1
        self._in_step = 0
        yield {"type": "start-step"}

    def _part(self, part: Part) -> Iterator[Json]:
        kind, key, data = part
        self._in_step = 0 if kind == "void" else self._in_step + 1
        if kind.startswith(("text-", "reasoning-")):  # the same words
            yield {"type": kind, "id": key, **data}
        elif kind == "void":
            yield {"type": "reset-step"}
        elif kind == "call-start":
            yield {"type": "tool-input-start", "toolCallId": key, "toolName": data["name"]}
        elif kind == "call-delta":
            yield {"type": "tool-input-delta", "toolCallId": key, "inputTextDelta": data["delta"]}
        elif kind == "call-ready":
            yield self._call(key, data["name"], data["args"])
        elif kind == "result":
            yield from self._result(key, data)

    def _call(self, call: str, name: str, args: Any) -> Json:
        self._calls.add(call)
        named = {"toolCallId": call, "toolName": name}
        return {"type": "tool-input-available", **named, "input": shapes.plain(args)}

    def _result(self, call: str, data: Mapping[str, Any]) -> Iterator[Json]:
        if call not in self._calls:
            return
        if call in self._denied:
            yield {"type": "tool-output-denied", "toolCallId": call}
        elif data.get("error") is not None:
            yield {"type": "tool-output-error", "toolCallId": call, "errorText": data["output"]}
        else:
            yield {"type": "tool-output-available", "toolCallId": call, "output": data["output"]}

    def _question(self, data: Mapping[str, Any]) -> Iterator[Json]:
        value = data.get("value")
        call = value.get("call_id") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(call, str):
            if data.get("id"):  # else a breakpoint
                asked = {"id": data["id"], "value": shapes.plain(value)}
                yield {"type": "data-interrupt", "id": data["id"], "data": asked}
            return
        if call not in self._calls:  # of a sub-agent
            told = {name: value[name] for name in ("question", "options") if name in value}
            args = value.get("args", told)
            yield self._call(call, value.get("tool", "request_user_input"), args)
        if shapes.is_approval(value):
            self._asked[data["id"]] = call
            why = {"reason": value["why"]} if value.get("why") else {}
            ids = {"approvalId": data["id"], "toolCallId": call}
            yield {"type": "tool-approval-request", **ids, **why}

    def _decided(self, answer: Any) -> Iterator[Json]:
        """Yield the decisions with which a run continues."""
        waiting, self._asked = self._asked, {}
        given = answer if isinstance(answer, Mapping) else {}
        if "decision" in given and len(waiting) == 1:
            given = {next(iter(waiting)): given}
        for key, call in waiting.items():
            decision = given.get(key)
            if not isinstance(decision, Mapping) or "decision" not in decision:
                continue
            rejects = decision["decision"] == "reject"
            self._denied |= {call} if rejects else set()
            why = {"reason": decision["message"]} if decision.get("message") else {}
            told = {"type": "tool-approval-response", "approvalId": key, "approved": not rejects}
            yield {**told, **why}
