"""The agents behind OpenAI's chat completions API."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from fastapi import APIRouter, Header, Path, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from starlette.responses import JSONResponse

from wick_graph.errors import did_you_mean
from wick_graph.messages.validation import read_history
from wick_graph.models.call import CUT, FILTERED
from wick_graph.server import schemas
from wick_graph.server.guard import Reader, RequestContext, Runner
from wick_graph.server.routes.runs import SUSPENDED, finished, streamed
from wick_graph.server.sse import EventStream
from wick_graph.service.detached import DetachedRun, row_of
from wick_graph.service.event_log import events_after
from wick_graph.service.options import Problem, openai_error
from wick_graph.service.runs import RunRequest, with_schema
from wick_graph.store.server_rows import StreamRow

# --- Convert runs to OpenAI's JSON: whole answers, and chunks of streamed ones.


_ENDS: Final = {"done": "stop", "limit": "length", "empty": "stop", "guardrail": "content_filter"}

_EARLY: Final = {CUT: "length", FILTERED: "content_filter"}

_WAITING: Final = "interrupted"

_DONE: Final = b"data: [DONE]\n\n"


def completion(row: StreamRow, model: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's result; what OpenAI's format cannot express is under `wick`."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": answer["response"], "refusal": None},
        "logprobs": None,
        "finish_reason": _finish(answer),
    }
    return {
        **_head(row, model, "chat.completion"),
        "choices": [choice],
        "usage": usage_of(answer["usage"]),
        "wick": {key: answer[key] for key in ("thread_id", "run_id", "tool_calls", "interrupts")},
    }


def _finish(ended: Mapping[str, Any]) -> str:
    early = _EARLY.get(ended.get("reason", ""))
    return early or _ENDS.get(ended["stopped_because"], "stop")


def unanswered(row: StreamRow, interrupts: Sequence[Mapping[str, Any]]) -> Problem:
    """Return the error of a run that waits for an answer: no client may take it for one.

    It is a 422 since OpenAI's client sends a request that got 409 again.
    """
    more = {
        "code": "waiting_for_answer",
        "thread_id": row.thread_id,
        "run_id": row.run_id,
        "interrupts": list(interrupts),
    }
    text = (
        "the run has no answer yet: it waits for an approval or for the answer to a question; "
        f"decide it (GET /threads/{row.thread_id}/approvals)"
    )
    return Problem(422, text, more)


class Chunks:
    """Convert a run's events to the lines of a stream, which ends exactly once.

    Args:
        row: The run.
        model: The model name of the request.
        usage: Whether the client wants a last chunk with the usage.
        typed: Whether the answer is an output, which comes whole: pieces may turn out invalid.
    """

    def __init__(
        self,
        row: StreamRow,
        model: str,
        usage: bool,
        *,
        typed: bool = False,
    ) -> None:
        self._row = row
        self._typed = typed
        self._output: Any = None
        self._said = self._told = ""
        self._head = _head(row, model, "chat.completion.chunk")
        self._usage = usage
        if usage:
            self._head["usage"] = None
        self._asked: list[Mapping[str, Any]] = []
        self.ended = False

    def begin(self) -> bytes:
        """Return the first chunk, with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, event: Mapping[str, Any]) -> bytes:
        """Return the lines for an event; empty for most events."""
        data = event.get("data", {})
        if event["event"] == "on_chat_model_stream":
            if not self._typed:
                return self._chunk({"content": data["delta"]}) if data["delta"] else b""
            same = data.get("message_id") == self._told
            self._said = f"{self._said if same else ''}{data['delta']}"
            self._told = data.get("message_id")
        if event["event"] == "on_output":
            self._output = data["output"]
        if event["event"] == "interrupt":
            self._asked.append(data)
        if event["event"] == "error":
            return self.fail(Problem(500, data["error"]))
        return self._end(data) if event["event"] == "done" else b""

    def fail(self, problem: Problem) -> bytes:
        """End with an error, unless the stream has ended."""
        if self.ended:
            return b""
        self.ended = True
        problem.more = {
            "thread_id": self._row.thread_id,
            "run_id": self._row.run_id,
            **problem.more,
        }
        return _line(openai_error(problem))

    def _end(self, data: Mapping[str, Any]) -> bytes:
        why = data["stopped_because"]
        if why == _WAITING:
            return self.fail(unanswered(self._row, self._asked))
        self.ended = True
        given = self._output is not None and why == "done"
        whole = json.dumps(self._output, ensure_ascii=False) if given else self._said
        lines = self._chunk({"content": whole}) if whole else b""
        lines += self._chunk({}, _finish(data))
        if self._usage:
            used = usage_of(data.get("usage", {}))
            lines += _line({**self._head, "choices": [], "usage": used})
        return lines + _DONE

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _line({**self._head, "choices": [choice]})


def usage_of(usage: Mapping[str, int]) -> dict[str, int]:
    """Return tokens under OpenAI's names."""
    sent, got = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}


def _head(row: StreamRow, model: str, kind: str) -> dict[str, Any]:
    made = int(row.started or time.time())
    return {"id": f"chatcmpl-{row.run_id}", "object": kind, "created": made, "model": model}


def _line(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":"), default=str).encode() + b"\n\n"


# --- Routes of the chat completions API.
#
# A model's name is an agent's id. Without a thread, each request carries the whole history, as
# OpenAI's clients send it. The model reads it message by message; calls without a result are
# closed, never run. With the header `X-Thread-Id` the store holds the history: once the thread has
# messages, only those after the last answer are new.


router: Final = APIRouter(tags=["openai"])

_CALL_ID: Final[Any] = {"type": "string", "minLength": 1}

_RESULT: Final[Any] = {
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {"properties": {"tool_call_id": _CALL_ID}, "required": ["tool_call_id"]},
}
"""A tool's result names its call."""


class ChatMessage(BaseModel):
    """A message in OpenAI's format."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_RESULT)
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None,
        AfterValidator(schemas.check_parts),
        WithJsonSchema({"anyOf": [schemas.TEXT, schemas.PARTS, {"type": "null"}]}),
    ] = None
    tool_calls: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        said = self.content
        if self.role in _ANSWERS or said is None or not isinstance(said, str):
            return self
        if not schemas.says_something(said):
            raise ValueError("content: must not be blank")
        return self


class StreamOptions(BaseModel):
    """What a stream contains besides the text."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool | None = False
    include_obfuscation: Literal[False] | None = None


class NamedSchema(BaseModel):
    """A JSON schema with a name for the model."""

    model_config = ConfigDict(extra="forbid", strict=True, serialize_by_alias=True)
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    form: Annotated[dict[str, Any], Field(alias="schema")] = {"type": "object"}
    strict: bool | None = None


class TextFormat(BaseModel):
    """The answer is a text."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["text"]


class ObjectFormat(BaseModel):
    """The answer is any JSON object."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["json_object"]


class SchemaFormat(BaseModel):
    """The answer is JSON of a schema."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["json_schema"]
    json_schema: NamedSchema


_SAYS_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = {
    "audio": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "max_completion_tokens": (),
    "max_tokens": (),
    "modalities": (["text"],),
    "moderation": (),
    "n": (1,),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": (),
    "seed": (),
    "service_tier": ("auto", "default"),
    "stop": ([],),
    "store": (False,),
    "temperature": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "verbosity": (),
    "web_search_options": (),
}
"""OpenAI's parameters that the server does not have, and the values, besides null, that ask for
nothing."""

_LABELS: Final = ("metadata", "prompt_cache_key", "safety_identifier", "user")
"""Parameters that mark a request in OpenAI's own records; no answer depends on them."""

_DOES: Final = ("model", "messages", "stream", "stream_options", "response_format")

_OF_MESSAGES: Final = ("role", "content", "name", "tool_calls", "tool_call_id")

_ECHOED: Final = ("annotations", "refusal")
"""Parts of an answer that clients send back with it."""


def _asks_nothing(name: str, value: Any) -> bool:
    is_bool = isinstance(value, bool)
    known = _SAYS_NOTHING.get(name, ())
    return any(value == one and is_bool is isinstance(one, bool) for one in known)


def _described(schema: dict[str, Any]) -> None:
    """Add what else a request may hold to its JSON schema, which then refuses what we refuse."""
    for name, values in _SAYS_NOTHING.items():
        schema["properties"][name] = {"enum": [*values, None]}
    for name in _LABELS:
        schema["properties"][name] = {"description": "Has no effect."}
    schema["additionalProperties"] = False


class ChatForm(BaseModel):
    """A request in OpenAI's format; what the server does not do is refused by name."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra=_described)
    model: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[
        list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=schemas.MESSAGES)
    ]
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: (
        Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None
    ) = None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer; None for a text."""
        asked = self.response_format
        if isinstance(asked, SchemaFormat):
            about = asked.json_schema
            told = {} if about.description is None else {"description": about.description}
            return {**about.form, **told, "title": about.name}
        return {"type": "object"} if isinstance(asked, ObjectFormat) else None


class OpenAIErrorText(BaseModel):
    """The error, for OpenAI's clients."""

    model_config = ConfigDict(extra="allow")
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error in OpenAI's format."""

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
    for status in (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)
}

_ANSWER: Final[Any] = {
    200: {
        "description": "A completion, or its chunks as server-sent events.",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
}


@router.get("/v1/models", response_model=ModelsAnswer, responses=_ERRORS)
async def models(context: Reader) -> Any:
    """List the agents as models."""
    return ModelsAnswer(data=[ModelAnswer(id=key) for key in context.tenant.agents])


@router.get("/v1/models/{model}", response_model=ModelAnswer, responses=_ERRORS)
async def model(
    context: Reader, model: Annotated[str, Path(description="An agent's id.", examples=["default"])]
) -> Any:
    """Describe an agent as a model."""
    _check(context, model)
    return ModelAnswer(id=model)


@router.post("/v1/chat/completions", response_class=Response, responses={**_ERRORS, **_ANSWER})
async def complete(
    context: Runner,
    form: ChatForm,
    thread_id: Annotated[
        schemas.ThreadIdText | None,
        Header(alias="X-Thread-Id", description="The thread that holds the history."),
    ] = None,
) -> Response:
    """Ask an agent in OpenAI's format."""
    _must_be_doable(form)
    _check(context, form.model)
    messages = await _messages(context, form, thread_id)
    schema = form.output_schema
    agent = with_schema(await context.agent(form.model), schema)
    typed = agent.spec.output is not None
    request = RunRequest(
        agent_id=form.model, kind="message", messages=messages, output_schema=schema
    )
    run = await context.begin(request, thread_id)
    row = row_of(run)
    headers = {"X-Thread-Id": row.thread_id, "X-Run-Id": row.run_id}
    if form.stream:
        usage = form.stream_options is not None and bool(form.stream_options.include_usage)
        return _stream(context, run, Chunks(row, form.model, usage, typed=typed))
    try:
        answer = await finished(context, run)
        if answer["interrupted"]:
            raise unanswered(row, answer["interrupts"])
    except Problem as problem:
        problem.headers = {**headers, **problem.headers, **_ONCE}
        raise
    return JSONResponse(completion(row, form.model, answer), headers=headers)


_ONCE: Final = {"x-should-retry": "false"}
"""OpenAI's clients obey it: to send the request again would run the agent again."""


def _must_be_doable(form: ChatForm) -> None:
    """Refuse what a request asks for and the server does not do.

    Raises:
        Problem: It names the parameter.
    """
    for name, value in (form.model_extra or {}).items():
        if name in _LABELS or value is None or _asks_nothing(name, value):
            continue
        if name not in _SAYS_NOTHING:
            hint = did_you_mean(name, (*_DOES, *_LABELS, *_SAYS_NOTHING))
            raise _refused(name, f"unknown parameter{hint or '; leave it out'}")
        raise _refused(name, "not supported; leave it out (settings and tools are the agent's own)")
    for i, message in enumerate(form.messages):
        for name, value in (message.model_extra or {}).items():
            if value is not None and name not in (*_OF_MESSAGES, *_ECHOED):
                hint = did_you_mean(name, _OF_MESSAGES) or "; leave it out"
                raise _refused(f"messages[{i}].{name}", f"not supported{hint}")


def _refused(name: str, why: str) -> Problem:
    more = {"param": name[:200], "code": "unsupported_parameter"}
    return Problem(400, f"{name[:200]}: {why}", more)


def _check(context: RequestContext, model: str) -> None:
    if model not in context.tenant.agents:
        more = {"param": "model", "code": "model_not_found"}
        raise Problem(404, f"the model {model!r:.80} does not exist", more)


def _stream(context: RequestContext, run: DetachedRun | StreamRow, chunks: Chunks) -> EventStream:
    row, log = row_of(run), run.event_log if isinstance(run, DetachedRun) else None

    async def pieces() -> AsyncIterator[bytes | None]:
        yield chunks.begin()
        async for entry in events_after(context.saver, row, row.first - 1, log):
            if entry is not None:
                context.service.metrics_of(context.caller.tenant).sent()
            yield None if entry is None else chunks.of(entry[1])
        yield chunks.fail(Problem(503, SUSPENDED))

    return streamed(context, row, pieces, context.options.on_disconnect, {})


async def _messages(
    context: RequestContext, form: ChatForm, thread_id: str | None
) -> list[dict[str, Any]]:
    """Return the messages that are new to the thread; all of them, if it is empty.

    Raises:
        MessageError: A model cannot continue these messages.
        Problem: There is no user message, or a result answers an unknown call.
    """
    given: Sequence[ChatMessage] = form.messages
    known = None if thread_id is None else await context.saver.threads.aget(thread_id)
    if known is not None and known.steps:
        last = max((i for i, m in enumerate(given) if m.role in _ANSWERS), default=-1)
        given = given[last + 1 :]
    messages = [made for message in given if (made := _said(message)) is not None]
    if not any(message["role"] == "user" for message in messages):
        raise Problem(409, "messages: there is no new message of the user")
    agent = await context.agent(form.model)
    _, elsewhere = read_history(messages, allow_system=agent.allow_client_system)
    if elsewhere:
        call = elsewhere[0].tool_call_id
        raise Problem(400, f"messages: there is no call {call!r:.80} for this result")
    return messages


_SYSTEM: Final = ("system", "developer")

_ANSWERS: Final = ("assistant", "tool")


def _said(message: ChatMessage) -> dict[str, Any] | None:
    """Return a message in our format; None if it is empty."""
    if message.role not in _ANSWERS:
        role = "system" if message.role in _SYSTEM else "user"
        return None if message.content is None else {"role": role, "content": message.content}
    made: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.tool_calls:
        made["tool_calls"] = message.tool_calls
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    return made if made["content"] or len(made) > 2 else None
