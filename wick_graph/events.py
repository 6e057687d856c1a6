"""The events of a run's stream: a closed set, the same in Python, JSON and SSE.

    ChatModelStart   on_chat_model_start    a model call begins
    ChatModelStream  on_chat_model_stream   a piece of text, of reasoning, or of a call's arguments
    ChatModelRetry   on_chat_model_retry    the call failed, another follows; drop its pieces
    ChatModelEnd     on_chat_model_end      the whole reply
    ToolStart        on_tool_start          a tool call begins
    ToolEnd          on_tool_end            its result
    OutputDelta      on_output              the output of a typed agent, as far as it is written
    SubagentEvent    on_subagent            an event of a run that a tool call began
    Interrupted      interrupt              the run waits for an answer or at a breakpoint
    Done             done                   last: the run has ended
    Failed           error                  last: the run has failed or was cancelled

The last event is always exactly one `Done` or `Failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from wick_graph.types import StoppedBecause


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    event: ClassVar[str]
    run_id: str = ""
    """The tool call's id on tool events and on a tool call's question, else the run's id."""
    thread_id: str | None = None

    def data(self) -> dict[str, Any]:
        """Return the payload as plain data."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form: `event`, and `name`, `run_id`, `data`, `thread_id` if not empty."""
        named = {
            "event": self.event,
            "name": getattr(self, "name", ""),
            "run_id": self.run_id,
            "data": self.data(),
            "thread_id": self.thread_id,
        }
        return {key: value for key, value in named.items() if key == "event" or value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModelStart(_Event):
    """A model call begins."""

    event: ClassVar[str] = "on_chat_model_start"
    name: str
    """The model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModelStream(_Event):
    """A piece of the reply, as it comes: of its text, its reasoning, or its calls."""

    event: ClassVar[str] = "on_chat_model_stream"
    name: str
    delta: str
    """Text of the answer."""
    reasoning: str = ""
    """Text of the model's reasoning."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Pieces of calls, `{"index", "id", "name", "args"}` each; `args` is a piece of JSON."""
    message_id: str = ""
    """The reply's id, if the provider gives it with its pieces."""

    def data(self) -> dict[str, Any]:
        """Give the text under both names that readers know, and what else there is."""
        more = {"reasoning": self.reasoning, "message_id": self.message_id}
        calls = [dict(call) for call in self.calls]
        return {
            "delta": self.delta,
            "chunk": {"content": self.delta},
            **{key: value for key, value in more.items() if value},
            **({"calls": calls} if calls else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModelRetry(_Event):
    """A call failed; a retry or a fallback follows, and the pieces streamed so far are void."""

    event: ClassVar[str] = "on_chat_model_retry"
    name: str
    error: str
    delay: float
    """Seconds until the next try."""

    def data(self) -> dict[str, Any]:
        """Give the error and the pause."""
        return {"error": self.error, "delay": self.delay}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModelEnd(_Event):
    """A model call gave its reply."""

    event: ClassVar[str] = "on_chat_model_end"
    name: str
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """`{"id", "name", "args"}` each."""
    usage: Mapping[str, int] = field(default_factory=dict)
    message_id: str = ""
    """The reply's id as the model gives it."""

    def data(self) -> dict[str, Any]:
        """Give the whole reply."""
        calls = [dict(call) for call in self.tool_calls]
        told = {"message_id": self.message_id} if self.message_id else {}
        return {"content": self.content, "tool_calls": calls, "usage": dict(self.usage), **told}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart(_Event):
    """A tool call begins, after its approval; comes once for each call."""

    event: ClassVar[str] = "on_tool_start"
    name: str
    args: Mapping[str, Any]

    def data(self) -> dict[str, Any]:
        """Give the arguments under both names that readers know."""
        return {"args": dict(self.args), "input": dict(self.args)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd(_Event):
    """A tool call gave its result."""

    event: ClassVar[str] = "on_tool_end"
    name: str
    output: str
    """What the model reads."""
    error: str | None = None
    """The bare message of a failed call."""

    def data(self) -> dict[str, Any]:
        """Give the output, and the error of a call that failed."""
        failed = {"error": self.error} if self.error is not None else {}
        return {"output": self.output, **failed}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDelta(_Event):
    """The output of a typed agent as far as the model has written it; at most ten a second.

    The last one before `Done` has the whole output, as data.
    """

    event: ClassVar[str] = "on_output"
    attempt: int = 1
    """Counts the model's tries; a new one replaces what came before."""
    output: Any = None

    def data(self) -> dict[str, Any]:
        """Give the try and the data."""
        return {"attempt": self.attempt, "output": self.output}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(_Event):
    """The run waits: for an answer to `value`, or, with no value, at a breakpoint."""

    event: ClassVar[str] = "interrupt"
    interrupt_id: str = ""
    value: Any = None

    def data(self) -> dict[str, Any]:
        """Give the question, and the id to answer to."""
        return {"id": self.interrupt_id, "value": self.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEvent(_Event):
    """An event of a child's run; `run_id` is the call of this thread that began that run."""

    event: ClassVar[str] = "on_subagent"
    path: tuple[str, ...] = ()
    """The agents from the one that this thread's agent called down to the event's own."""
    cause: str = ""
    """The tool call that began the event's run, in the thread above that run."""
    inner: Any = None
    """The event, as a reader of that run gets it."""

    @property
    def name(self) -> str:
        """The agent that the event comes from."""
        return self.path[-1] if self.path else ""

    def data(self) -> dict[str, Any]:
        """Give the path, the cause and the event in its wire form."""
        return {"path": list(self.path), "cause": self.cause, "event": self.inner.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(_Event):
    """The run has ended; `result` is what `invoke` would have returned."""

    event: ClassVar[str] = "done"
    stopped_because: StoppedBecause = "done"
    reason: str = ""
    """Which limit or guardrail ended the run, or its answer before the end, in a sentence."""
    duration_ms: int = 0
    result: Any = field(default=None, repr=False, compare=False)

    def data(self) -> dict[str, Any]:
        """Give the reason and the time that the run took."""
        return {
            "stopped_because": self.stopped_because,
            "stop_reason": self.stopped_because,
            **({"reason": self.reason} if self.reason else {}),
            "total_duration_ms": self.duration_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Event):
    """The run has failed or was cancelled; the thread can be used again."""

    event: ClassVar[str] = "error"
    error: str
    stopped_because: StoppedBecause = "failed"
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    result: Any = field(default=None, repr=False, compare=False)
    """What `invoke` returns for a cancelled run; None if it raises."""

    def data(self) -> dict[str, Any]:
        """Give the message and the reason, the same in process and over HTTP."""
        return {"error": self.error, "stopped_because": self.stopped_because}


CANCELLED: Final = "run cancelled"
"""The text of the event that ends a cancelled run."""

Event: TypeAlias = (
    ChatModelStart
    | ChatModelStream
    | ChatModelRetry
    | ChatModelEnd
    | ToolStart
    | ToolEnd
    | OutputDelta
    | SubagentEvent
    | Interrupted
    | Done
    | Failed
)
