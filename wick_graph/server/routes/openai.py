"""The agents behind OpenAI's chat completions: for clients that speak nothing else.

A model's name is an agent's id. Without a thread the whole history comes with each request, as
OpenAI's clients send it; with the header `X-Thread-Id` the thread is ours, and of the messages only
those after the last answer are new.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import JSONResponse, Response

from wick_graph.server import forms
from wick_graph.server.asking import Asker, Reader, Runner
from wick_graph.server.completions import Chunks, completion
from wick_graph.server.live import Asked, LiveRun
from wick_graph.server.log import events_after
from wick_graph.server.problems import Problem
from wick_graph.server.routes.runs import SUSPENDED, begin, finished, streamed
from wick_graph.server.sse import EventStream

router: Final = APIRouter(tags=["openai"])


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
        AfterValidator(forms.check_parts),
        WithJsonSchema({"anyOf": [forms.TEXT, forms.PARTS, {"type": "null"}]}),
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


class OpenAIErrorText(BaseModel):
    """What is wrong, for OpenAI's clients."""

    model_config = ConfigDict(extra="allow")
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error in OpenAI's form."""

    model_config = ConfigDict(extra="allow")
    error: OpenAIErrorText


class ModelAnswer(BaseModel):
    """An agent as a model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "wick"


class ModelsAnswer(BaseModel):
    """The agents as models."""

    object: Literal["list"] = "list"
    data: list[ModelAnswer]


_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": OpenAIError}
    for status in (400, 401, 403, 404, 408, 409, 413, 415, 429, 500, 503)
}
_ANSWER: Final[Any] = {
    200: {
        "description": "A completion, or its pieces as server-sent events.",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
}


@router.get("/v1/models", response_model=ModelsAnswer, responses=_ERRORS)
async def models(asker: Reader) -> Any:
    """List the agents as models."""
    return ModelsAnswer(data=[ModelAnswer(id=key) for key in asker.tenant.agents])


@router.get("/v1/models/{model}", response_model=ModelAnswer, responses=_ERRORS)
async def model(asker: Reader, model: Annotated[str, Path(examples=["default"])]) -> Any:
    """Describe an agent as a model."""
    _check(asker, model)
    return ModelAnswer(id=model)


@router.post("/v1/chat/completions", response_class=Response, responses={**_ERRORS, **_ANSWER})
async def complete(
    asker: Runner,
    form: ChatForm,
    thread_id: Annotated[forms.ThreadIdText | None, Header(alias="X-Thread-Id")] = None,
) -> Response:
    """Ask an agent in OpenAI's form."""
    _check(asker, form.model)
    messages = _new(form.messages) if thread_id else _all(form.messages)
    if not any(message["role"] == "user" for message in messages):
        raise Problem(409, "messages: there is nothing that the user says")
    asked = Asked(agent_id=form.model, kind="message", messages=messages)
    run = await begin(asker, asked, thread_id)
    assert isinstance(run, LiveRun)
    headers = {"X-Thread-Id": run.row.thread_id, "X-Run-Id": run.row.run_id}
    if form.stream:
        usage = form.stream_options is not None and form.stream_options.include_usage
        return _stream(asker, run, Chunks(run.row, form.model, _used(run) if usage else None))
    answer = await finished(asker, run)
    return JSONResponse(completion(run.row, form.model, answer), headers=headers)


def _check(asker: Asker, model: str) -> None:
    if model not in asker.tenant.agents:
        more = {"param": "model", "code": "model_not_found"}
        raise Problem(404, f"the model {model!r:.80} does not exist", more)


def _used(run: LiveRun) -> Callable[[], Mapping[str, int]]:
    return lambda: {} if run.result is None else run.result.usage.to_dict()


def _stream(asker: Asker, run: LiveRun, chunks: Chunks) -> EventStream:
    async def pieces() -> AsyncIterator[bytes | None]:
        yield chunks.begin()
        async for entry in events_after(asker.saver, run.row, run.row.first - 1, run.channel):
            if entry is not None:
                asker.service.metrics.events += 1
            yield None if entry is None else chunks.of(entry[1])
        yield chunks.fail(Problem(503, SUSPENDED))

    return streamed(asker, run.row, pieces, asker.options.on_disconnect, {})


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
