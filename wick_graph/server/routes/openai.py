"""The agents behind OpenAI's chat completions: for clients that speak nothing else.

A model's name is an agent's id. Without a thread the whole history comes with each request, as
OpenAI's clients send it; with the header `X-Thread-Id` the thread is ours, and of the messages only
those after the last answer are new.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import JSONResponse, Response, StreamingResponse

from wick_graph.errors import WickError
from wick_graph.result import new_thread_id
from wick_graph.server import forms
from wick_graph.server.asking import Asker, Reader, Runner
from wick_graph.server.log import events_after
from wick_graph.server.problems import Problem, problem_of
from wick_graph.server.routes.runs import begin, finished
from wick_graph.server.runs import Asked, LiveRun
from wick_graph.server.sse import HEADERS

router: Final = APIRouter(tags=["openai"])
_ENDS: Final = {"done": "stop", "limit": "length", "empty": "stop", "interrupted": "stop"}


def _not_blank(content: Any) -> Any:
    said = re.search(forms.VISIBLE, content) if isinstance(content, str) else content
    if content is not None and not said:
        raise ValueError("must not be blank")
    return content


class ChatMessage(BaseModel):
    """A message in OpenAI's form."""

    model_config = ConfigDict(extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | list[dict[str, Any]] | None,
        AfterValidator(_not_blank),
        WithJsonSchema({"anyOf": [{"type": "string", "pattern": forms.VISIBLE}, {"type": "null"}]}),
    ] = None


class StreamOptions(BaseModel):
    """What a stream tells beside the text."""

    model_config = ConfigDict(extra="allow", strict=True)
    include_usage: bool = False


class ChatForm(BaseModel):
    """A request in OpenAI's form; settings of the model are the agent's, and ignored here."""

    model_config = ConfigDict(extra="allow", strict=True)
    model: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool = False
    stream_options: StreamOptions | None = None


@router.get("/v1/models")
async def models(asker: Reader) -> dict[str, Any]:
    """List the agents as models."""
    shared = {"object": "model", "created": 0, "owned_by": "wick"}
    return {"object": "list", "data": [{"id": key, **shared} for key in asker.tenant.agents]}


class OpenAIError(BaseModel):
    """An error in OpenAI's form, or in ours where the request did not get that far."""

    model_config = ConfigDict(extra="allow")
    error: dict[str, Any] | str


_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": OpenAIError} for status in (400, 401, 403, 404, 408, 409, 413, 415, 429, 500)
}
_ANSWER: Final[Any] = {
    200: {
        "description": "A completion, or its pieces as server-sent events.",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
}


@router.post(
    "/v1/chat/completions",
    response_class=Response,
    responses={**_ERRORS, 503: _ERRORS[500], **_ANSWER},
)
async def complete(
    asker: Runner,
    form: ChatForm,
    thread_id: Annotated[forms.ThreadIdText | None, Header(alias="X-Thread-Id")] = None,
) -> Response:
    """Ask an agent in OpenAI's form."""
    try:
        if form.model not in asker.tenant.agents:
            raise Problem(404, f"the model {form.model!r:.80} does not exist")
        messages = _new(form.messages) if thread_id else _all(form.messages)
        if not any(message["role"] == "user" for message in messages):
            raise Problem(409, "messages: there is nothing that the user says")
        asked = Asked(agent_id=form.model, kind="message", messages=messages)
        run = await begin(asker, asked, thread_id or new_thread_id())
        assert isinstance(run, LiveRun)
        headers = {"X-Thread-Id": run.row.thread_id, "X-Run-Id": run.row.run_id}
        if form.stream:
            usage = form.stream_options is not None and form.stream_options.include_usage
            pieces = _pieces(asker, run, form.model, usage=usage)
            headers = {**HEADERS, **headers}
            return StreamingResponse(pieces, media_type="text/event-stream", headers=headers)
        answer = await finished(asker, run)
    except (Problem, WickError) as error:
        problem = problem_of(error)
        return JSONResponse(_error(problem.status, problem.error), problem.status, problem.headers)
    return JSONResponse(_completion(run, form.model, answer), headers=headers)


def _new(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return what comes after the last answer: the rest is in the thread."""
    last = max((i for i, m in enumerate(messages) if m.role in _ANSWERS), default=-1)
    return _said(messages[last + 1 :]) or _all(messages)


def _all(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the whole history; what was answered is told in the caller's words."""
    last = max((i for i, m in enumerate(messages) if m.role in _ANSWERS), default=-1)
    if last < 0:
        return _said(messages)
    told = [m for m in messages[: last + 1] if m.role not in _SYSTEM and m.content]
    shown = [f"{m.role}: {_text(m)}" for m in told]
    past = {"role": "user", "content": "The conversation so far:\n" + "\n".join(shown)}
    rules = [m for m in messages[: last + 1] if m.role in _SYSTEM]
    return [*_said(rules), past, *_said(messages[last + 1 :])]


_SYSTEM: Final = ("system", "developer")
_ANSWERS: Final = ("assistant", "tool")


def _said(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages in our form; one without content says nothing."""
    roles = ("system" if message.role in _SYSTEM else "user" for message in messages)
    said = zip(roles, messages, strict=True)
    return [{"role": role, "content": m.content} for role, m in said if m.content is not None]


def _text(message: ChatMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _completion(run: LiveRun, model: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    text = answer["response"]
    if answer["interrupted"]:
        text = text or "(the run waits for an answer; see interrupts)"
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _ENDS.get(answer["stopped_because"], "stop"),
    }
    return {
        **_head(run, model, "chat.completion"),
        "choices": [choice],
        "usage": _usage(answer["usage"]),
        "wick": {key: answer[key] for key in ("thread_id", "run_id", "tool_calls", "interrupts")},
    }


async def _pieces(asker: Asker, run: LiveRun, model: str, *, usage: bool) -> AsyncIterator[bytes]:
    head = _head(run, model, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _line({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    async for entry in events_after(asker.saver, run.row, run.row.first - 1, run.channel):
        if entry is None:
            continue
        event = entry[1]
        if event["event"] == "on_chat_model_stream":
            yield chunk({"content": event["data"]["delta"]})
        elif event["event"] == "error":
            yield _line(_error(500, event["data"]["error"]))
            return
        elif event["event"] == "done":
            yield chunk({}, _ENDS.get(event["data"]["stopped_because"], "stop"))
    if not run.channel.ended:
        yield _line(_error(503, "the run is suspended; it goes on in its thread"))
        return
    if usage and run.result is not None:
        yield _line({**head, "choices": [], "usage": _usage(run.result.usage.to_dict())})
    yield b"data: [DONE]\n\n"


def _head(run: LiveRun, model: str, kind: str) -> dict[str, Any]:
    made = int(run.row.started or time.time())
    return {"id": f"chatcmpl-{run.row.run_id}", "object": kind, "created": made, "model": model}


def _usage(usage: Mapping[str, int]) -> dict[str, int]:
    sent, got = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}


def _error(status: int, text: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def _line(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":"), default=str).encode() + b"\n\n"
