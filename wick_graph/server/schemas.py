"""Request and response models of the HTTP API, and conversions from our objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from fastapi import Path, Query
from jsonschema import Draft202012Validator
from langchain_core.messages import BaseMessage
from langgraph.types import StateSnapshot
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from wick_graph import langgraph_config
from wick_graph.backends.docker.container import Status
from wick_graph.config import AgentConfig
from wick_graph.config.fields import AGENT_ID
from wick_graph.engine.agent import Agent
from wick_graph.engine.result import Result
from wick_graph.hooks.approvals import shown_in
from wick_graph.hooks.skills import FILE
from wick_graph.messages import to_wick
from wick_graph.models.spec import parse
from wick_graph.service.skills import MOST_FILES
from wick_graph.store.server_rows import StreamRow
from wick_graph.store.threads import ThreadInfo
from wick_graph.types import THREAD_ID_PATTERN, StoppedBecause

# --- The models of requests and answers, which the OpenAPI description shows.


_THREAD = f"^{THREAD_ID_PATTERN.pattern}$"

_HOST = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9._-]{0,252})"

_PORT = (
    "(0{0,4}[1-9]|0{0,3}[1-9][0-9]|0{0,2}[1-9][0-9]{2}|0?[1-9][0-9]{3}|[1-5][0-9]{4}"
    "|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)

_PATH = r"(/(\.?[!\"$-\-/->@-\[\]-~])*\.?)?"

ADDRESS = f"^[Hh][Tt][Tt][Pp][Ss]?://{_HOST}(:{_PORT})?{_PATH}$"
"""The base address of another server; `wick_graph.tools.http` checks it."""

ThreadIdText = Annotated[str, Field(pattern=_THREAD, examples=["th_8f3a2b1c9d0e4f57"])]

ThreadIdPath = Annotated[str, Path(pattern=_THREAD, description="The conversation.")]

AgentIdPath = Annotated[
    str, Path(pattern=f"^{AGENT_ID.pattern}$", description="The agent.", examples=["default"])
]

RUN_ID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

RunIdPath = Annotated[str, Path(pattern=RUN_ID, description="The run.")]


def _no_number(value: Any) -> Any:
    """Refuse numbers, which would be read as seconds."""
    if isinstance(value, str) and not re.match(r"\d{4}-", value):
        raise ValueError("write a date and a time, as in 2025-01-31T12:00:00Z")
    return value


Limit = Annotated[int, Query(ge=1, le=500, description="The most to list.")]

Before = Annotated[
    AwareDatetime | None,
    BeforeValidator(_no_number),
    Query(description="Next page: only threads that were last used before this time."),
]

HookName = Literal[
    "tracing",
    "approvals",
    "todolist",
    "filesystem",
    "skills",
    "memory",
    "summarization",
    "budget",
]

HookNames = Annotated[list[HookName], Field(fail_fast=True)]

MESSAGES: Final = 1_000
"""Messages of one request."""


def whole(value: Any) -> Any:
    """Read 5.0 as 5, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


FROM_WHOLE = BeforeValidator(whole)
"""Write it after the bounds: the description names none that comes after it."""


def _flag(value: Any) -> Any:
    """Refuse 0 and 1, which equal a Boolean and are none in JSON."""
    if not isinstance(value, bool):
        raise PydanticCustomError("flag", "must be true or false")
    return value


FLAG = BeforeValidator(_flag)
"""For a `Literal` of a Boolean."""

VISIBLE = r"[^\s\u0000-\u001f\u007f-\u00a0\ufeff]"
"""A text that is not blank; means the same to this server and to readers of its schema."""

TEXT: dict[str, Any] = {"type": "string", "pattern": VISIBLE}

_DETAIL = ("auto", "low", "high")


def _object(**properties: Any) -> dict[str, Any]:
    needed = [name for name in properties if name != "detail"]
    made = {"type": "object", "properties": properties, "required": needed}
    return {**made, "additionalProperties": False}


def _parts(data: str) -> dict[str, dict[str, Any]]:
    """Describe the blocks of a content; `data` is the pattern of image data."""
    url = f"^(https?://[!-~]+|data:image/[a-zA-Z0-9.+-]+;base64,{data})$"
    picture = _object(url={"type": "string", "pattern": url}, detail={"enum": [*_DETAIL]})
    return {
        "text": _object(type={"const": "text"}, text=TEXT),
        "image_url": _object(type={"const": "image_url"}, image_url=picture),
    }


_DIGIT: Final = "[A-Za-z0-9+/]"

_PARTS: Final = _parts(f"{_DIGIT}+={{0,2}}")
"""For the check: the exact pattern takes 50 ms a megabyte, and messages decode the data."""

PARTS: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [*_parts(f"({_DIGIT}{{4}})*{_DIGIT}{{2}}({_DIGIT}[A-Za-z0-9+/=]|==)").values()]
    },
}
"""A content of texts and images, as OpenAI's clients write it.

Other blocks are refused: a block that a model's client cannot read would make every later call of
the thread fail.
"""


def check_parts(content: Any) -> Any:
    """Check a list of content blocks; pass anything else on unchecked.

    Raises:
        ValueError: A block is refused.
    """
    if content == []:
        raise ValueError("must not be empty")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        form = _PARTS.get(kind) if isinstance(kind, str) else None
        if form is None:
            raise ValueError(f"a block's type is one of {', '.join(_PARTS)}")
        if part.keys() == {"type", "text"} and isinstance(part["text"], str):
            if not says_something(part["text"]):
                raise ValueError("a block of type text: its text must not be blank")
            continue  # the common case; a schema takes ten times as long
        for error in Draft202012Validator(form).iter_errors(part):
            raise ValueError(f"a block of type {kind}: {error.message:.200}")
        if str(part.get("image_url", {}).get("url")).endswith("\n"):  # `$` matches before it
            raise ValueError("a block of type image_url: its url ends with a line break")
    return content


def says_something(text: str) -> bool:
    """Return whether a text has visible characters."""
    return re.search(VISIBLE, text) is not None


class Form(BaseModel):
    """A request's body; the first unknown field ends the check with an error."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, given: Any) -> Any:
        """Drop all unknown fields but the first: an error for each would take seconds."""
        if not isinstance(given, dict) or len(given) <= len(cls.model_fields):
            return given
        unknown = next((key for key in given if key not in cls.model_fields), None)
        return {k: v for k, v in given.items() if k == unknown or k in cls.model_fields}


class Answer(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(extra="allow")


class MessageForm(Form):
    """One message of the caller."""

    role: Annotated[str, WithJsonSchema({"type": "string", "enum": ["user", "system"]})]
    """Who speaks: `user` or `system`."""
    content: Annotated[
        str | Annotated[list[dict[str, Any]], Field(fail_fast=True)],
        AfterValidator(check_parts),
        WithJsonSchema({"anyOf": [TEXT, PARTS]}),
    ]
    """A text, or blocks of text and images as OpenAI's clients write them."""


class RunForm(Form):
    """Input of a run."""

    messages: Annotated[list[MessageForm], Field(fail_fast=True, min_length=1, max_length=MESSAGES)]
    """What the caller says; the thread has the earlier messages."""
    thread_id: ThreadIdText | None = None
    """The thread to continue; a new one by default."""
    context: dict[str, Any] | None = None
    """Of the agent's context schema; the store keeps it encrypted until the run has ended."""
    trace: bool | None = None
    """Accepted and ignored: every run is recorded."""
    output_schema: dict[str, Any] | None = None
    """The JSON schema of an object to give in place of a text; by default what the agent gives."""
    on_disconnect: Literal["continue", "cancel"] | None = None
    """What to do with the run when the client of its stream disconnects."""
    on_busy: Literal["reject", "queue"] = "reject"
    """What to do if another run goes on in the thread; to queue behind it needs workers."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"messages": [{"role": "user", "content": "What is 21*2?"}]}]
        },
    )


class ResumeForm(Form):
    """The thread to resume, and the answer that it waits for."""

    thread_id: ThreadIdText
    """The thread that waits or was cut off."""
    answer: Any = None
    """The answer to an interrupt; a mapping of interrupt ids to answers if several wait."""
    context: dict[str, Any] | None = None
    """As for a run; by default that of the thread's last run."""
    force: bool = False
    """Resume even if the thread is poisoned, because its runs crashed the server."""
    stream: bool = False
    """Whether to stream the run as server-sent events."""
    on_disconnect: Literal["continue", "cancel"] | None = None
    """What to do with the run when the client of its stream disconnects."""


class RespondForm(Form):
    """A decision on one question."""

    status: Literal["answered", "denied", "cancelled"] = "answered"
    """Whether the question is answered, denied or cancelled."""
    response: Any = None
    """The answer, which `answered` needs: `approve`, `reject` or another decision about a call, as
    an object; or what a graph asks for."""
    metadata: dict[str, Any] | None = None
    """Facts that a client sends along; they are accepted, and not kept."""


class ForkForm(Form):
    """Where to fork a thread."""

    thread_id: ThreadIdText | None = None
    """The fork's id; a new one by default."""
    checkpoint_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The last step to copy; the latest by default."""


class PinForm(Form):
    """Whether to pin a thread."""

    pinned: bool = True
    """Whether the thread stays although it is idle."""


class HooksForm(Form):
    """Hooks to switch on and off, for the caller's tenant."""

    add: HookNames = Field(default_factory=list)
    """Hooks to switch on."""
    remove: HookNames = Field(default_factory=list)
    """Hooks to switch off."""


class ToolForm(Form):
    """A tool that another server runs."""

    name: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")]
    """The name by which the model calls it."""
    description: Annotated[str, Field(max_length=4_000, pattern=VISIBLE)]
    """What it does, for the model."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """A JSON schema of the arguments."""
    callback_url: Annotated[str, WithJsonSchema({"type": "string", "pattern": ADDRESS})]
    """The base address of the server that runs it."""
    agent_id: str | None = None
    """The agent that gets it; every agent by default."""


class UploadForm(Form):
    """A file to write."""

    path: Annotated[str, Field(min_length=1, max_length=4_096)]
    """The path in the agent's folder."""
    content: str
    """The whole text."""
    agent_id: str | None = None
    """The agent that has the folder; the default agent if none is named."""


def _few(files: Any) -> Any:
    """Refuse too many files before each of them is checked."""
    if isinstance(files, dict) and len(files) > MOST_FILES:
        many = "there are more than {most} files; leave some out"
        raise PydanticCustomError("files", many, {"most": MOST_FILES})
    return files


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


class SkillForm(Form):
    """A skill: its files as texts by path, or a zip archive in base64."""

    files: (
        Annotated[
            dict[str, str],
            Field(max_length=MOST_FILES, json_schema_extra={"required": [FILE]}),
            BeforeValidator(_few),
        ]
        | None
    ) = None
    """Texts by path; `SKILL.md` is among them."""
    archive: str | None = None
    """A zip archive in base64."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_given("files"), _given("archive")]})

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.files is None) is (self.archive is None):
            raise PydanticCustomError("skill", "send either files or archive")
        return self


class ContainerForm(Form):
    """What to do with an agent's containers."""

    action: Literal["stop", "restart"]
    """`stop` ends them; `restart` starts new ones as well."""


class ErrorAnswer(Answer):
    """Why a request failed."""

    error: str
    """The fault, then the remedy."""


class CallAnswer(Answer):
    """A tool call of a run."""

    id: str
    """The model's id of the call."""
    name: str
    """The tool."""
    args: dict[str, Any]
    """Its arguments."""
    output: str
    """What it returned, as text."""
    error: str | None = None
    """Why it failed; null if it did not."""


class RunAnswer(Answer):
    """The result of a run."""

    trace_id: str
    """The id of the run's trace; the run's id."""
    run_id: str
    """The run."""
    thread_id: str
    """Its thread; name it to go on."""
    response: str
    """The agent's answer."""
    stopped_because: StoppedBecause
    """Why the run stopped."""
    reason: str = ""
    """Which limit or guardrail ended the run, or its answer before the end, in a sentence."""
    tool_calls: list[CallAnswer]
    """The calls of this run, in order."""
    todos: list[dict[str, Any]]
    """The agent's list of tasks."""
    files: dict[str, Any]
    """Files of the state."""
    structured_response: Any = None
    """The output of an agent that gives one, as data; else null."""
    interrupted: bool
    """Whether the run waits for an answer."""
    interrupted_tool: str | None
    """The tool that waits for approval."""
    interrupted_args: dict[str, Any] | None
    """The arguments of that call."""
    interrupts: list[dict[str, Any]]
    """All that the run waits for, with their ids."""


class AgentAnswer(Answer):
    """An agent."""

    agent_id: str
    """The id in paths."""
    name: str
    """Its name."""
    model: str
    """The model, as `provider:name`."""
    system_prompt: str
    """At most 120 characters of it."""
    tools: list[str]
    """The names of its tools."""
    hooks: list[str]
    """The names of its hooks, outermost first."""
    subagents: list[str]
    """The agents that it can give tasks to."""
    backend_type: str | None
    """Where commands run: `local` or `docker`; null without a backend."""
    skills: list[str]
    """Folders of skills."""
    memory: list[str]
    """Files of memory."""
    has_interrupt_on: bool
    """Whether calls of it may need approval."""
    max_iterations: int
    """Model calls of one run at most."""
    error: str | None
    """Why it has no tools and hooks here: it cannot be built; null for any other."""


class SkillAnswer(Answer):
    """A skill that the tenant has uploaded."""

    name: str
    """The name."""
    description: str
    """When to use it, from its front matter."""
    files: dict[str, int]
    """Its files by path, with their sizes in bytes."""


class SkillFiles(Answer):
    """The files of a skill."""

    name: str
    """The name."""
    files: dict[str, str | None]
    """Texts by path; null for a file that is not text."""


class ContainerAction(Answer):
    """What was done with an agent's containers, and their state afterwards."""

    agent_id: str
    """The agent."""
    action: Literal["stop", "restart"]
    """What was asked for."""
    container_status: Status
    """The state of its containers together."""


class ContainerAnswer(Answer):
    """The containers of an agent."""

    agent_id: str
    """The agent."""
    container_status: Status
    """Their state together."""
    containers: list[str]
    """Their names for the engine."""


class ThreadAnswer(Answer):
    """A thread."""

    thread_id: str
    """The thread."""
    agent: str | None
    """The agent that wrote it last."""
    status: str
    """`idle`, `running`, `waiting` or `failed`."""
    title: str | None
    """Its first question, shortened, or a name that a person gave it."""
    parent: str | None
    """The thread that it is a fork of."""
    created: str
    """When it began."""
    last_access: str
    """When it was last read or written."""
    expires_at: str | None
    """When it is removed if it stays idle; null if never."""
    pinned: bool
    """Whether it stays although it is idle."""
    stopped_because: str | None
    """Why its last run stopped."""
    last_error: str | None
    """The error of its last run."""
    steps: int
    """Checkpoints that it has."""


class StreamAnswer(Answer):
    """A run of a thread, as the server knows it."""

    run_id: str
    """The run."""
    thread_id: str
    """Its thread."""
    agent_id: str
    """Its agent."""
    status: str
    """`queued`, `running`, `quarantined`, or why it stopped."""
    started: float
    """Seconds since 1970."""
    ended: float | None
    """Seconds since 1970; null if it runs."""
    first_event: int
    """The number of its first event that is kept."""


class HealthAnswer(Answer):
    """The server is up."""

    status: Literal["ok"] = "ok"


# --- Convert our objects to the JSON of answers.


_PROMPT: Final = 120


def run_answer(result: Result) -> dict[str, Any]:
    """Return the result of a run."""
    asked = [{"id": i.id, "value": i.value} for i in result.interrupts]
    first: Any = asked[0]["value"] if asked else None
    first = first if isinstance(first, Mapping) else {}
    waiting = result.stopped_because == "interrupted"
    return {
        "trace_id": result.run_id,
        "run_id": result.run_id,
        "thread_id": result.thread_id,
        "response": result.text,
        "stopped_because": result.stopped_because,
        **({"reason": result.reason} if result.reason else {}),
        "model": result.model,
        "tool_calls": result.tool_calls,
        "todos": result.todos,
        "files": result.files,
        "usage": result.usage.to_dict(),
        "thread_usage": result.thread_usage.to_dict(),
        "structured_response": result.structured,
        "interrupted": waiting,
        "interrupted_tool": first.get("tool") if waiting else None,
        "interrupted_args": first.get("args") if waiting else None,
        "interrupts": asked,
        **({} if result.cost is None else {"cost": result.cost.to_dict()}),
    }


def agent_answer(
    agent_id: str, agent: Agent | None, config: AgentConfig, error: str | None = None
) -> dict[str, Any]:
    """Describe an agent, or why there is none."""
    prompt, spec = config.system_prompt, None if agent is None else agent.spec
    return {
        "agent_id": agent_id,
        "name": config.name,
        "model": parse(config.model_spec()).name if spec is None else spec.model.name,
        "system_prompt": prompt if len(prompt) <= _PROMPT else prompt[:_PROMPT] + "...",
        "tools": [] if spec is None else [*spec.toolbox.at({})],
        "hooks": [] if spec is None else [*spec.hooks.names],
        "subagents": [*getattr(config, "subagents", ())],
        "backend_type": None if config.backend is None else config.backend.type,
        "skills": [*(config.skills.paths if config.skills else ())],
        "memory": [*(config.memory.paths if config.memory else ())],
        "has_interrupt_on": bool(config.approvals),
        "max_iterations": config.max_iterations if spec is None else spec.max_iterations,
        "error": error,
    }


def thread_answer(info: ThreadInfo) -> dict[str, Any]:
    """Describe a thread."""
    return {
        "thread_id": info.thread_id,
        "agent": info.agent,
        "status": info.status,
        "title": info.title,
        "parent": info.parent,
        "created": _written(info.created),
        "last_access": _written(info.last_access),
        "expires_at": _written(info.expires_at),
        "pinned": info.pinned,
        "stopped_because": info.stopped_because,
        "last_error": info.last_error,
        "steps": info.steps,
    }


def stream_answer(row: StreamRow) -> dict[str, Any]:
    """Describe a run."""
    return {
        "run_id": row.run_id,
        "thread_id": row.thread_id,
        "agent_id": row.asked["agent"],
        "status": row.status,
        "started": row.started,
        "ended": row.ended,
        "first_event": row.first,
    }


def state_answer(state: StateSnapshot) -> dict[str, Any]:
    """Describe a step of a thread: its state, and the next nodes."""
    values = dict(state.values)
    messages = values.pop("messages", ())
    at, before = (
        langgraph_config.configurable(state.config),
        langgraph_config.configurable(state.parent_config),
    )
    return {
        "thread_id": at.get(langgraph_config.THREAD_ID),
        "checkpoint_id": at.get(langgraph_config.CHECKPOINT_ID),
        "parent_checkpoint_id": before.get(langgraph_config.CHECKPOINT_ID),
        "created_at": state.created_at,
        "next": [*state.next],
        "step": (state.metadata or {}).get("step"),
        "messages": [to_wick(m) if isinstance(m, BaseMessage) else m for m in messages],
        "values": {key: value for key, value in values.items() if key != "request"},
        "interrupts": [
            {"id": i.id, "value": shown_in(at.get(langgraph_config.THREAD_ID), i.value)}
            for i in state.interrupts
        ],
    }


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()
