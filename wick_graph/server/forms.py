"""What requests and answers look like: the models behind the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from wick_graph.config.fields import AGENT_ID
from wick_graph.types import THREAD_ID_PATTERN, StoppedBecause

_THREAD = f"^{THREAD_ID_PATTERN.pattern}$"
_ADDRESS = r"^https://([a-z][a-z0-9]{0,20}\.)+(com|org|net)(/[a-z0-9]{1,20}){0,3}$"
"""What is certainly taken; which other addresses are, is the client's to decide."""
ThreadIdText = Annotated[str, Field(pattern=_THREAD, examples=["th_8f3a2b1c9d0e4f57"])]
ThreadIdPath = Annotated[str, Path(pattern=_THREAD, description="The conversation.")]
AgentIdPath = Annotated[
    str, Path(pattern=f"^{AGENT_ID.pattern}$", description="The agent.", examples=["default"])
]
RUN_ID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
RunIdPath = Annotated[str, Path(pattern=RUN_ID, description="The run.")]
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


def _whole(value: Any) -> Any:
    """Take 5.0 for 5, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


FROM_WHOLE = BeforeValidator(_whole)


VISIBLE = r"[^\s\u0000-\u001f\u007f-\u00a0\ufeff]"
"""In a text that says something; the same to this server and to who reads its description."""


class Form(BaseModel):
    """A request's body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(extra="allow")


class MessageForm(Form):
    """One message of the caller."""

    role: Annotated[str, WithJsonSchema({"type": "string", "enum": ["user", "system"]})]
    content: Annotated[
        str | list[dict[str, Any]],
        WithJsonSchema({"type": "string", "pattern": VISIBLE}),
    ]


class RunForm(Form):
    """What an agent is asked."""

    messages: Annotated[list[MessageForm], Field(min_length=1)]
    thread_id: ThreadIdText | None = None
    """The conversation to go on with; a new one by default."""
    trace: bool | None = None
    """Accepted and ignored: every run is recorded."""
    on_disconnect: Literal["continue", "cancel"] | None = None
    """What becomes of the run when the reader of its stream leaves."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"messages": [{"role": "user", "content": "What is 21*2?"}]}]
        },
    )


class ResumeForm(Form):
    """Where to go on, and the answer that was waited for."""

    thread_id: ThreadIdText
    answer: Any = None
    """What an interrupt asked for; a mapping of interrupt ids where several wait."""
    stream: bool = False
    on_disconnect: Literal["continue", "cancel"] | None = None


class RespondForm(Form):
    """A decision on one question."""

    status: Literal["answered", "denied", "cancelled"] = "answered"
    response: Any = None
    metadata: dict[str, Any] | None = None


class ForkForm(Form):
    """Where a copy of a thread branches off."""

    thread_id: ThreadIdText | None = None
    """The copy's id; a new one by default."""
    checkpoint_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The step up to which it is copied; the latest by default."""


class PinForm(Form):
    """Whether a thread is kept."""

    pinned: bool = True


class HooksForm(Form):
    """Hooks to switch on and off, for the caller's tenant."""

    add: list[HookName] = Field(default_factory=list)
    remove: list[HookName] = Field(default_factory=list)


class ToolForm(Form):
    """A tool that another server runs."""

    name: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")]
    description: Annotated[str, Field(max_length=4_000, pattern=VISIBLE)]
    parameters: dict[str, Any] = Field(default_factory=dict)
    """A JSON schema of the arguments."""
    callback_url: Annotated[str, WithJsonSchema({"type": "string", "pattern": _ADDRESS})]
    agent_id: str | None = None
    """The one agent that has it; every agent by default."""


class UploadForm(Form):
    """A file to write."""

    path: Annotated[str, Field(min_length=1, max_length=4_096)]
    content: str
    agent_id: str | None = None


class ErrorAnswer(Answer):
    """Why a request was not met."""

    error: str


class CallAnswer(Answer):
    """A tool call of a run."""

    id: str
    name: str
    args: dict[str, Any]
    output: str
    error: str | None = None


class RunAnswer(Answer):
    """The end of a run."""

    trace_id: str
    run_id: str
    thread_id: str
    response: str
    stopped_because: StoppedBecause
    tool_calls: list[CallAnswer]
    todos: list[dict[str, Any]]
    files: dict[str, Any]
    structured_response: None = None
    interrupted: bool
    interrupted_tool: str | None
    interrupted_args: dict[str, Any] | None
    interrupts: list[dict[str, Any]]


class AgentAnswer(Answer):
    """An agent."""

    agent_id: str
    name: str
    model: str
    system_prompt: str
    """At most 120 characters of it."""
    tools: list[str]
    hooks: list[str]
    subagents: list[str]
    backend_type: str | None
    skills: list[str]
    memory: list[str]
    has_interrupt_on: bool
    max_iterations: int


class ThreadAnswer(Answer):
    """A thread."""

    thread_id: str
    agent: str | None
    status: str
    title: str | None
    parent: str | None
    created: str
    last_access: str
    expires_at: str | None
    pinned: bool
    stopped_because: str | None
    last_error: str | None
    steps: int


class StreamAnswer(Answer):
    """A run of a thread, as the server knows it."""

    run_id: str
    thread_id: str
    agent_id: str
    status: str
    started: float
    ended: float | None
    first_event: int


class HealthAnswer(Answer):
    """The server is up."""

    status: Literal["ok"] = "ok"
