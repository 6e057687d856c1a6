"""A2A's calls: a context is a thread, and a task an exchange, read from its runs' rows and events.

Clients of the protocol's version 1.0 and of 0.3 are served; the latter's calls are converted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from a2a import types as forms
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as old
from a2a.utils import errors
from a2a.utils.error_handlers import build_error_details
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from wick_graph import __version__
from wick_graph.engine.agent import Agent
from wick_graph.server import schemas
from wick_graph.server.guard import RequestContext
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.server.protocols.langgraph.asking import AskForm, start
from wick_graph.server.protocols.langgraph.following import waiting
from wick_graph.server.protocols.parts import (
    Exchange,
    Parts,
    content_of,
    exchanges,
    exchanges_of,
    found_or_begun,
    streamed,
)
from wick_graph.server.sse import EventStream, JsonStream
from wick_graph.service.event_log import TERMINAL, Wire
from wick_graph.service.options import problem_of
from wick_graph.store.server_rows import RUNNING, StreamRow
from wick_graph.types import THREAD_ID_PATTERN

Json = dict[str, Any]

_MODES: Final = ("text/plain", "application/json")

_ANSWER: Final = "a2a_answer"
"""The id of the message that a run answers with, in the run's metadata."""

_LISTED: Final = 1_000
"""The latest runs, among which a list of tasks is."""


def card_of(agent: Agent, address: str, *, auth: bool) -> Json:
    """Return the card of an agent, for clients of both versions."""
    said = f"The agent {agent.name}."
    made = forms.AgentCard(
        name=agent.name,
        description=said,
        version=__version__,
        capabilities=forms.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain", "image/*"],
        default_output_modes=_MODES,
        skills=[forms.AgentSkill(id=agent.name, name=agent.name, description=said, tags=["agent"])],
    )
    for version in ("1.0", "0.3"):
        made.supported_interfaces.add(
            url=address, protocol_binding="JSONRPC", protocol_version=version
        )
    if auth:
        made.security_schemes["token"].http_auth_security_scheme.scheme = "bearer"
        made.security_requirements.add().schemes["token"].SetInParent()
    older = conversions.to_compat_agent_card(made).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    newer = MessageToDict(made)
    schemes = older.get("securitySchemes", {})
    both = {
        name: {**schemes[name], **one} for name, one in newer.get("securitySchemes", {}).items()
    }
    return {**older, **newer, **({"securitySchemes": both} if both else {})}


# --- Calls, in the forms of both versions.


@dataclass(frozen=True, slots=True)
class Call:
    """A call of JSON-RPC to an agent."""

    context: RequestContext
    agent: Agent
    method: str
    params: Json
    id: str | int | None

    async def answer(self) -> Response:
        """Answer the call.

        Raises:
            Problem: The token does not allow it, or the server cannot do it now.
        """
        try:
            name, request = self._read()
            answer: Response = await _METHODS[name][1](self, request)
            return answer
        except errors.A2AError as error:
            return JSONResponse(self.failed(error))
        except Exception as error:
            problem = problem_of(error)
            if problem.status not in _KINDS:
                raise
            return JSONResponse(self.failed(_KINDS[problem.status](problem.error)))

    def _read(self) -> tuple[str, Any]:
        """Return the name of the method in 1.0, and its parameters."""
        name = _OLD_NAMES.get(self.method, self.method)
        if name in _PUSH:
            raise errors.PushNotificationNotSupportedError
        if name not in _METHODS:
            raise errors.MethodNotFoundError(f"method: {self.method} is not supported")
        try:
            if name == self.method:
                made = ParseDict(self.params, _METHODS[name][0]())
                if made.tenant:
                    raise errors.InvalidParamsError("params.tenant: not supported; leave it out")
                return name, made
            model, convert = _OLD[self.method]
            body = {"jsonrpc": "2.0", "id": self.id or 0, "method": self.method}
            read = model.model_validate({**body, "params": self.params})
            _check_known("params", self.params, read.model_dump(by_alias=True)["params"])
            return name, convert(read)
        except (ParseError, AttributeError, TypeError) as error:
            raise errors.InvalidParamsError(f"params: {str(error).partition(chr(10))[0]}") from None
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(str(step) for step in found["loc"])
            raise errors.InvalidParamsError(f"{where}: {found['msg'].lower()}") from None
        except ValueError as error:
            raise errors.InvalidParamsError(f"params: {error}") from None

    @property
    def is_old(self) -> bool:
        """Whether the client speaks 0.3."""
        return self.method in _OLD

    def failed(self, error: errors.A2AError) -> Json:
        """Return the answer of a call that is refused."""
        code = errors.JSON_RPC_ERROR_CODE_MAP.get(type(error), -32603)
        told = {"code": code, "message": str(error), "data": build_error_details(error)}
        return {"jsonrpc": "2.0", "id": self.id, "error": told}

    def done(self, result: Any) -> Json:
        """Return the answer of a call with a task or an event."""
        if not self.is_old:
            return {"jsonrpc": "2.0", "id": self.id, "result": MessageToDict(result)}
        if isinstance(result, forms.SendMessageResponse):
            result = result.task
        if isinstance(result, forms.Task):
            made: Any = conversions.to_compat_task(result)
        else:
            made = conversions.to_compat_stream_response(result, self.id).result
        told = made.model_dump(mode="json", by_alias=True, exclude_none=True)
        if told["kind"] == "status-update" and told["status"]["state"] == "input-required":
            told["final"] = True
        return {"jsonrpc": "2.0", "id": self.id, "result": told}

    async def task(self, task_id: str) -> Exchange:
        """Return a task.

        Raises:
            TaskNotFoundError: This tenant has none of that id with this agent.
        """
        is_id = re.fullmatch(schemas.RUN_ID, task_id) is not None
        streams = self.context.streams
        row = await streams.run(streams.by_run, task_id) if is_id else None
        found = [] if row is None else await self.tasks_in(row.thread_id)
        made = next((one for one in found if one.id == task_id), None)
        if made is None:
            raise errors.TaskNotFoundError
        return made

    async def tasks_in(self, thread_id: str) -> list[Exchange]:
        """Return the tasks of a thread, the oldest first."""
        return await exchanges_of(self.context, thread_id, self.agent.name)


def _check_known(where: str, given: Any, read: Any) -> None:
    """Refuse a field that was not read.

    Raises:
        InvalidParamsError: It names the first one.
    """
    if isinstance(given, dict) and isinstance(read, dict):
        for name, value in given.items():
            if name not in read:
                raise errors.InvalidParamsError(f"{where}.{name:.80}: not supported; leave it out")
            _check_known(f"{where}.{name}", value, read[name])
    elif isinstance(given, list) and isinstance(read, list):
        for i, value in enumerate(given):
            _check_known(f"{where}[{i}]", value, read[i])


_KINDS: Final[Mapping[int, Callable[[str], errors.A2AError]]] = {
    400: errors.InvalidParamsError,
    404: errors.TaskNotFoundError,
    409: errors.UnsupportedOperationError,
}
"""What an error answer is in JSON-RPC; the others are HTTP's."""


# --- Send a message: it begins a task, or answers one that waits.


async def _send(call: Call, request: Any) -> Response:
    exchange, starts = await _begun(call, request)
    wanted = request.configuration

    async def pieces() -> AsyncIterator[bytes | None]:
        view = _View(exchange)
        async for row, event in exchange.events(call.context):
            if event is None:
                yield None
                continue
            await view.seen(call, row, event)
        task = _with_history(view.task(), wanted)
        told = call.done(forms.SendMessageResponse(task=task))
        yield json.dumps(told).encode()

    if wanted.return_immediately:
        task = _with_history(_View(exchange).task(), wanted)
        return JSONResponse(call.done(forms.SendMessageResponse(task=task)))
    return streamed(call.context, exchange.last, pieces, JsonStream, starts=starts)


async def _send_streaming(call: Call, request: Any) -> Response:
    exchange, starts = await _begun(call, request)
    return _followed(call, exchange, exchange.last, request.configuration, starts=starts)


async def _begun(call: Call, request: Any) -> tuple[Exchange, bool]:
    """Start the run of a message, or find it again; say whether it was started."""
    message = request.message
    _check_message(message, request.configuration)
    return await found_or_begun(partial(_known, call, message), partial(_started, call, message))


async def _known(call: Call, message: Any) -> Exchange | None:
    """Return the task that a message has begun or answered before.

    Raises:
        A2AError: It can do neither.
    """
    thread_id = message.context_id
    if not message.task_id:
        if thread_id and not THREAD_ID_PATTERN.fullmatch(thread_id):
            raise errors.InvalidParamsError("message.contextId: use letters, digits and _.:-")
        found = await call.tasks_in(thread_id) if thread_id else []
        ids = ((one, (*one.message_ids, *_answers_of(one))) for one in found)
        return next((one for one, known in ids if message.message_id in known), None)
    task = await call.task(message.task_id)
    if thread_id not in ("", task.last.thread_id):
        raise errors.InvalidParamsError("message.contextId: the task is of another context")
    if message.message_id in _answers_of(task):
        return task
    if _state_of(task) != forms.TaskState.TASK_STATE_INPUT_REQUIRED:
        raise errors.UnsupportedOperationError("message.taskId: the task does not wait")
    return None


async def _started(call: Call, message: Any) -> Exchange:
    given = call.params["message"]
    metadata = {**(call.params.get("metadata") or {}), **(given.get("metadata") or {})}
    asked: Json = {"assistant_id": call.agent.name, "multitask_strategy": "reject"}
    thread_id: str | None = message.context_id or None
    if message.task_id:
        thread_id = (await call.task(message.task_id)).last.thread_id
        asked["command"] = {"resume": _answer(given.get("parts") or [])}
        asked["metadata"] = {**metadata, _ANSWER: message.message_id}
    else:
        said = {"role": "user", "id": message.message_id, "content": _content(message.parts)}
        asked |= {"input": {"messages": [said]}, "if_not_exists": "create"}
        asked["metadata"] = metadata or None
    row = await start(call.context, AskForm(**asked), thread_id)
    found = await call.tasks_in(row.thread_id)
    return next((one for one in found if one.last.run_id == row.run_id), Exchange([row]))


def _answers_of(task: Exchange) -> list[str]:
    """Return the ids of the messages that have answered a task: one of them is no new answer."""
    labels = [row.asked.get("labels", {}).get("metadata", {}) for row in task.rows[1:]]
    return [one[_ANSWER] for one in labels if _ANSWER in one]


def _check_message(message: Any, wanted: Any) -> None:
    if wanted.HasField("task_push_notification_config"):
        raise errors.PushNotificationNotSupportedError(
            "configuration.taskPushNotificationConfig: push notifications are not supported"
        )
    if wanted.history_length < 0:
        raise errors.InvalidParamsError("configuration.historyLength: must not be negative")
    modes = [*wanted.accepted_output_modes]
    if modes and not any(mode in ("*/*", "text/*", "text", *_MODES) for mode in modes):
        raise errors.ContentTypeNotSupportedError(
            "configuration.acceptedOutputModes: the agent gives text/plain"
        )
    for name in ("extensions", "reference_task_ids"):
        if getattr(message, name):
            said = "".join(part.title() if i else part for i, part in enumerate(name.split("_")))
            raise errors.InvalidParamsError(f"message.{said}: not supported; leave it out")
    if not message.message_id or len(message.message_id) > 200:
        raise errors.InvalidParamsError("message.messageId: give an id of at most 200 characters")
    if message.role != forms.Role.ROLE_USER:
        raise errors.InvalidParamsError("message.role: only users speak")


def _content(parts: Any) -> Any:
    """Return the parts of a message as a content in our form."""
    blocks: list[Any] = []
    for i, part in enumerate(parts):
        kind, media = part.WhichOneof("content"), part.media_type
        if kind == "text":
            blocks.append(part.text)
        elif kind in ("raw", "url") and media.startswith("image/"):
            data = f"data:{media};base64,{base64.b64encode(part.raw).decode()}"
            blocks.append({"url": part.url or data})
        else:
            raise errors.InvalidParamsError(f"message.parts[{i}]: only texts and images are taken")
    try:
        return content_of(blocks)
    except ValueError as error:
        raise errors.InvalidParamsError(f"message.parts: {error}") from None


def _answer(parts: list[Json]) -> Any:
    """Return an answer: the data of one part, or a text; numbers stay as they were written."""
    if len(parts) == 1 and parts[0].get("data") is not None:
        return parts[0]["data"]
    if not parts or any(not part.get("text") for part in parts):
        raise errors.InvalidParamsError("message.parts: answer with texts, or with one data part")
    return "\n".join(str(part["text"]) for part in parts)


# --- Show, list, follow and cancel tasks.


async def _get(call: Call, request: Any) -> Response:
    view = await _seen(call, await call.task(request.id))
    return JSONResponse(call.done(_with_history(view.task(), request)))


async def _list(call: Call, request: Any) -> Response:
    size = request.page_size if request.HasField("page_size") else 50
    if not 1 <= size <= 100:
        raise errors.InvalidParamsError("params.pageSize: use 1 to 100")
    streams = call.context.streams
    if request.context_id:
        await call.context.thread(request.context_id)
        found = await call.tasks_in(request.context_id)
    else:
        by_thread: dict[str, list[StreamRow]] = {}
        for row in await streams.run(streams.latest, _LISTED):
            by_thread.setdefault(row.thread_id, []).append(row)
        every = (one for rows in by_thread.values() for one in exchanges(rows))
        found = [one for one in every if one.rows[0].asked["agent"] == call.agent.name]
    after = request.status_timestamp_after.ToNanoseconds() / 1e9
    fitting = [
        one
        for one in found
        if request.status in (0, _state_of(one)) and _changed(one.last) >= after
    ]
    fitting.sort(key=_order, reverse=True)
    made = forms.ListTasksResponse(page_size=size, total_size=len(fitting))
    rest = [one for one in fitting if _is_after(request.page_token, one)]
    for one in rest[:size]:
        view = await _seen(call, one) if request.include_artifacts else _View(one)
        made.tasks.append(_with_history(view.task(), request))
    if len(rest) > size:
        made.next_page_token = "{}_{}".format(*_order(rest[size - 1]))
    shown = MessageToDict(made, always_print_fields_with_no_presence=True)
    return JSONResponse({"jsonrpc": "2.0", "id": call.id, "result": shown})


def _order(task: Exchange) -> tuple[float, str]:
    return _changed(task.last), task.id


def _is_after(token: str, task: Exchange) -> bool:
    """Return whether a task comes after the last one of a page."""
    changed, _, key = token.partition("_")
    try:
        return not token or _order(task) < (float(changed), key)
    except ValueError:
        raise errors.InvalidParamsError("params.pageToken: it is of no page") from None


async def _subscribe(call: Call, request: Any) -> Response:
    exchange = await call.task(request.id)
    if not exchange.goes_on and _state_of(exchange) != forms.TaskState.TASK_STATE_INPUT_REQUIRED:
        raise errors.UnsupportedOperationError("the task has ended; get it")
    return _followed(call, exchange, None, None)


async def _cancel(call: Call, request: Any) -> Response:
    call.context.require("run")
    exchange = await call.task(request.id)
    if not exchange.goes_on:
        raise errors.TaskNotCancelableError("no run of the task goes on")
    await call.context.tenant.runs.cancel(exchange.last.thread_id, exchange.last.run_id)
    return JSONResponse(call.done((await _seen(call, await call.task(request.id))).task()))


def _followed(
    call: Call, exchange: Exchange, since: StreamRow | None, wanted: Any, *, starts: bool = False
) -> EventStream:
    """Stream a task as it is, then what changes.

    Args:
        call: The call.
        exchange: The task.
        since: The run from which each event is new to the client; None if those so far are not.
        wanted: How much of the history to give.
        starts: Whether the call has started its last run.
    """

    def frame(**event: Any) -> bytes:
        told = json.dumps(call.done(forms.StreamResponse(**event)), separators=(",", ":"))
        return f"data: {told}\n\n".encode("ascii")

    async def pieces() -> AsyncIterator[bytes | None]:
        view, begun = _View(exchange), False
        async for row, event in exchange.events(call.context):
            if not begun and (event is None or row is since):
                begun = True
                yield frame(task=_with_history(view.task(), wanted))
            if event is None:
                yield None
                continue
            for name, update in await view.seen(call, row, event):
                if begun:
                    yield frame(**{name: update})
        if not begun:
            yield frame(task=_with_history(view.task(), wanted))

    return streamed(call.context, exchange.last, pieces, starts=starts)


# --- What the runs of an exchange are as a task.


_STATES: Final[Mapping[str, str]] = {
    "running": "TASK_STATE_WORKING",
    "interrupted": "TASK_STATE_INPUT_REQUIRED",
    "cancelled": "TASK_STATE_CANCELED",
    "failed": "TASK_STATE_FAILED",
    "guardrail": "TASK_STATE_REJECTED",
}


def _state_of(exchange: Exchange) -> Any:
    """Return the state of a task; a question that a later message has passed over is closed."""
    status = exchange.last.status
    if status == "interrupted" and not exchange.is_latest:
        status = "cancelled"
    return forms.TaskState.Value(_STATES.get(status, "TASK_STATE_COMPLETED"))


def _changed(row: StreamRow) -> float:
    return row.started if row.ended is None else row.ended


async def _seen(call: Call, exchange: Exchange) -> _View:
    """Return a task as its events so far make it."""
    view = _View(exchange)
    async for row, event in exchange.events(call.context):
        if event is None:
            break
        await view.seen(call, row, event)
    return view


def _with_history(task: Any, wanted: Any) -> Any:
    """Return a task with as much history as the client wants."""
    if wanted is not None and wanted.HasField("history_length"):
        if wanted.history_length < 0:
            raise errors.InvalidParamsError("historyLength: must not be negative")
        del task.history[: max(0, len(task.history) - wanted.history_length)]
    return task


class _View:
    """A task, as the events that it has seen make it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._ids: Json = {"task_id": exchange.id, "context_id": exchange.last.thread_id}
        self._row: StreamRow | None = None
        self._artifacts: dict[str, Any] = {}
        self._reply = ""
        """The reply that the answer's text comes from."""
        self._output: Any = None
        self._status: Any = forms.TaskStatus(state=_state_of(exchange))
        self._status.timestamp.FromNanoseconds(int(_changed(exchange.last) * 1e9))

    def task(self) -> Any:
        """Return the task."""
        first = self._exchange.rows[0]
        made = forms.Task(id=self._ids["task_id"], context_id=self._ids["context_id"])
        made.status.CopyFrom(self._status)
        made.artifacts.extend(self._artifacts.values())
        made.metadata.update(first.asked.get("labels", {}).get("metadata", {}))
        ids = self._exchange.message_ids
        for i, said in enumerate(first.asked["messages"]):
            key = (ids[i] if i < len(ids) else None) or f"{first.run_id}-{i}"
            message = made.history.add(message_id=key, role=forms.Role.ROLE_USER, **self._ids)
            content = said["content"]
            blocks = [{"text": content}] if isinstance(content, str) else content
            message.parts.extend(forms.Part(text=b["text"]) for b in blocks if "text" in b)
        return made

    async def seen(self, call: Call, row: StreamRow, event: Wire) -> list[tuple[str, Any]]:
        """Take an event, and return the updates that it makes."""
        if row is not self._row:
            self._row, self._parts = row, Parts(row)
        made = []
        for kind, key, data in self._parts.of(event):
            if kind == "text-delta":
                made.append(self._said(key, data["delta"]))
            elif kind == "void" and key == self._reply:
                self._reply = ""
                made.append(self._put("answer", forms.Part(text="")))
        if event["event"] == "on_output":
            self._output = event["data"]["output"]
        if row is self._exchange.last and event["event"] in TERMINAL:
            made += await self._end(call, row, event)
        return made

    def _said(self, reply: str, delta: str) -> tuple[str, Any]:
        """Add to the answer, which is the last reply with a text."""
        is_more, self._reply = reply == self._reply, reply
        return self._put("answer", forms.Part(text=delta), is_more=is_more)

    def _put(self, name: str, part: Any, *, is_more: bool = False) -> tuple[str, Any]:
        if is_more:
            self._artifacts[name].parts[0].text += part.text
        else:
            self._artifacts[name] = forms.Artifact(artifact_id=name, name=name, parts=[part])
        artifact = forms.Artifact(artifact_id=name, name=name, parts=[part])
        event = forms.TaskArtifactUpdateEvent(artifact=artifact, append=is_more, **self._ids)
        return "artifact_update", event

    async def _end(self, call: Call, row: StreamRow, event: Wire) -> list[tuple[str, Any]]:
        data, made = event["data"], []
        if self._output is not None:
            part = forms.Part()
            ParseDict(shapes.plain(self._output), part.data)
            made.append(self._put("output", part))
        if row.status == RUNNING:  # when it was read
            self._status.timestamp.GetCurrentTime()
        why = data["stopped_because"]
        state = _STATES.get(why, "TASK_STATE_COMPLETED")
        self._status.state = forms.TaskState.Value(state)
        if why == "interrupted" and not self._exchange.is_latest:
            self._status.state = _state_of(self._exchange)
        asked = await waiting(call.agent, row, event) if self._exchange.is_latest else None
        why_early = data.get("error") or data.get("reason")
        if asked is not None or why_early:
            told = self._status.message
            told.MergeFrom(forms.Message(role=forms.Role.ROLE_AGENT, **self._ids))
            told.message_id = f"{row.run_id}-end"
            if asked is None:
                told.parts.add(text=why_early)
            else:
                told.parts.extend(_questions(row.thread_id, asked.interrupts))
        status = forms.TaskStatusUpdateEvent(status=self._status, **self._ids)
        return [*made, ("status_update", status)]


def _questions(thread_id: str, interrupts: Any) -> Iterator[Any]:
    """Yield the parts of a message about what waits: a text for people, data for programs."""
    found = shapes.questions(thread_id, interrupts)
    lines = []
    for one in found:
        value: Json = (
            one["value"] if isinstance(one["value"], dict) else {"question": str(one["value"])}
        )
        for asked in value.get("action_requests", ()):
            called = f"{asked['name']}({json.dumps(asked['args'])})"
            lines.append(f"May it call {called}? {asked['description']}".strip())
        if "question" in value:
            lines.append(str(value["question"]))
    yield forms.Part(text="\n".join(lines) or "It waits for an answer.")
    part = forms.Part()
    ParseDict({"interrupts": found}, part.data)
    yield part


_METHODS: Final[Mapping[str, tuple[Any, Any]]] = {
    "SendMessage": (forms.SendMessageRequest, _send),
    "SendStreamingMessage": (forms.SendMessageRequest, _send_streaming),
    "GetTask": (forms.GetTaskRequest, _get),
    "ListTasks": (forms.ListTasksRequest, _list),
    "SubscribeToTask": (forms.SubscribeToTaskRequest, _subscribe),
    "CancelTask": (forms.CancelTaskRequest, _cancel),
}

_OLD_NAMES: Final[Mapping[str, str]] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/cancel": "CancelTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
}

_OLD: Final[Mapping[str, tuple[Any, Any]]] = {
    "message/send": (old.SendMessageRequest, conversions.to_core_send_message_request),
    "message/stream": (old.SendStreamingMessageRequest, conversions.to_core_send_message_request),
    "tasks/get": (old.GetTaskRequest, conversions.to_core_get_task_request),
    "tasks/resubscribe": (
        old.TaskResubscriptionRequest,
        conversions.to_core_subscribe_to_task_request,
    ),
    "tasks/cancel": (old.CancelTaskRequest, conversions.to_core_cancel_task_request),
}

_PUSH: Final = frozenset(
    f"{verb}TaskPushNotificationConfig{s}"
    for verb, s in (("Create", ""), ("Get", ""), ("List", "s"), ("Delete", ""))
)
