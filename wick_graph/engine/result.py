"""The result of a run, and its thread id."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Interrupt

from wick_graph.core.usage import Cost, Usage
from wick_graph.errors import ConfigError, OutputError
from wick_graph.messages import estimate_tokens, to_wick
from wick_graph.messages.base import Lent
from wick_graph.models.call import early_end
from wick_graph.models.structured import Output, OutputT
from wick_graph.runtime.context import Run
from wick_graph.types import THREAD_ID_PATTERN, StoppedBecause

ERROR_PREFIX = "Error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[OutputT]):
    """Result of a run."""

    text: str
    """The answer, of a typed agent its output as JSON; empty if the run stopped without one."""
    thread_id: str
    """Pass it to the next call to continue the same conversation."""
    stopped_because: StoppedBecause
    reason: str = ""
    """Which limit or guardrail ended the run, or its answer before the end, in a sentence."""
    model: str
    """The model that gave the answer."""
    messages: list[BaseMessage] = field(repr=False)
    """The whole conversation, without the system prompt."""
    todos: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    """Tokens of this run."""
    thread_usage: Usage = field(default_factory=Usage)
    """Tokens of the whole thread."""
    cost: Cost | None = None
    """Cost of this run; None if no hook counts it."""
    thread_cost: Cost | None = None
    """Cost of the whole thread."""
    run_id: str = ""
    interrupts: tuple[Any, ...] = ()
    """LangGraph's `Interrupt` objects that wait for an answer."""
    structured: Any = field(default=None, repr=False)
    """The output as plain data; None without one, and of an agent that gives a text."""
    made: Any = field(default=None, repr=False, compare=False)
    """The output, or the error that `output` raises."""

    @property
    def output(self) -> OutputT:
        """The output, an object of the agent's type; of an agent without one, its text.

        Raises:
            OutputError: The run stopped without an output.
        """
        if isinstance(self.made, OutputError):
            raise self.made
        return cast(OutputT, self.made)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """List this run's tool calls: id, name, args, output, and the error of a failed call."""
        start = max((i for i, m in enumerate(self.messages) if m.type == "human"), default=-1)
        made: list[dict[str, Any]] = []
        calls: dict[str, Mapping[str, Any]] = {}
        for message in self.messages[start + 1 :]:  # providers may reuse ids in later replies
            if isinstance(message, AIMessage):
                made += [_call(call, None) for call in calls.values()]
                calls = {call["id"] or "": call for call in message.tool_calls}
            elif isinstance(message, ToolMessage) and message.tool_call_id in calls:
                made.append(_call(calls.pop(message.tool_call_id), message))
        return made + [_call(call, None) for call in calls.values()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for scripts, with the messages in wick's JSON form."""
        return {
            "thread_id": self.thread_id,
            "run_id": self.run_id,
            "response": self.text,
            **({} if self.structured is None else {"output": self.structured}),
            "stopped_because": self.stopped_because,
            **({"reason": self.reason} if self.reason else {}),
            "model": self.model,
            "messages": [to_wick(m) for m in self.messages],
            "tool_calls": self.tool_calls,
            "todos": self.todos,
            "files": self.files,
            "usage": self.usage.to_dict(),
            "thread_usage": self.thread_usage.to_dict(),
            **({} if self.cost is None else {"cost": self.cost.to_dict()}),
            **({} if self.thread_cost is None else {"thread_cost": self.thread_cost.to_dict()}),
            "interrupts": [{"id": i.id, "value": i.value} for i in self.interrupts],
        }


def result_of(
    values: Mapping[str, Any], run: Run, thread_id: str, model: str, output: Output | None = None
) -> Result[Any]:
    """Make a result from the graph's final values and the run."""
    messages = values.get("messages") or []
    if type(messages) is not Lent:  # one is this caller's own already
        messages = list(messages)
    last = messages[-1] if messages else None
    counted = values.get("cost")
    answered = isinstance(last, AIMessage) and not last.tool_calls and run.stopped != "empty"
    text = last.text if answered and last is not None else ""
    because = run.stopped or "done"
    reason = run.reason
    if because == "done" and isinstance(last, AIMessage):
        reason = early_end(last)
    found = values.get("output") if output is not None else None
    found = found if isinstance(found, Mapping) else {}  # an edit may write anything
    given = because == "done" and "data" in found
    if output is None and because == "done":
        made: Any = text
    else:
        made = _built(output, found) if output is not None and given else _missing(because)
    return Result(
        text=json.dumps(found["data"], ensure_ascii=False) if given else text,
        structured=found["data"] if given else None,
        made=made,
        thread_id=thread_id,
        stopped_because=because,
        reason=reason,
        model=run.model or model,
        messages=messages,
        todos=list(values.get("todos") or ()),
        files=dict(values.get("files") or {}),
        usage=run.usage,
        thread_usage=Usage.from_dict(values.get("usage") or {}),
        cost=Cost.of(counted, "run_") if counted else None,
        thread_cost=Cost.of(counted) if counted else None,
        run_id=run.run_id,
        interrupts=_in_order(values.get("__interrupt__") or (), messages),
    )


def spent_tokens(result: Result[Any], *, whole: bool = False) -> int:
    """Return the tokens of a run, or of its whole thread; an estimate if no provider says."""
    usage = result.thread_usage if whole else result.usage
    return usage.total_tokens or estimate_tokens(result.messages) * usage.calls


def answer_in(values: Mapping[str, Any]) -> str:
    """Return the answer in a state: its output as JSON, else the text of the last message."""
    found = values.get("output")
    if isinstance(found, Mapping) and found.keys() == {"name", "data"}:
        return json.dumps(found["data"], ensure_ascii=False)
    messages = values.get("messages") or ()
    return str(messages[-1].text) if messages else ""


def _built(output: Output, found: Mapping[str, Any]) -> Any:
    """Return the output that a thread holds, or the error of one that cannot be made."""
    try:
        return output.build(found)
    except OutputError as error:
        return error


def _missing(because: str) -> OutputError:
    return OutputError(
        f"the run gave no output, it stopped because: {because}; look at stopped_because first"
    )


def _in_order(asked: Sequence[Interrupt], messages: Sequence[BaseMessage]) -> tuple[Any, ...]:
    """Sort questions by their calls' order in the reply."""
    if len(asked) < 2:
        return tuple(asked)
    reply = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
    places = {call["id"]: at for at, call in enumerate(reply.tool_calls if reply else ())}

    def place(one: Interrupt) -> int:
        call = one.value.get("call_id") if isinstance(one.value, Mapping) else None
        return places.get(call, len(places)) if isinstance(call, str) else len(places)

    return tuple(sorted(asked, key=place))


def new_thread_id() -> str:
    """Make an unguessable thread id: `th_` and 16 hex digits."""
    return f"th_{secrets.token_hex(8)}"


def checked_thread_id(thread_id: str | None) -> str:
    """Return a caller's thread id, or a new one for None.

    Raises:
        ConfigError: It is not a text of 1 to 128 letters, digits, and `_ . : -`.
    """
    if thread_id is None:
        return new_thread_id()
    if not isinstance(thread_id, str) or not THREAD_ID_PATTERN.fullmatch(thread_id):
        shown = repr(thread_id)[:80]
        raise ConfigError(
            f"the thread id {shown} is refused; use 1 to 128 letters, digits, and _ . : -"
        )
    return thread_id


def _call(call: Mapping[str, Any], answer: ToolMessage | None) -> dict[str, Any]:
    shown = {"id": call["id"], "name": call["name"], "args": call["args"]}
    if answer is None:
        return {**shown, "output": "", "error": "not answered"}
    text = answer.text
    if answer.status == "error":
        return {**shown, "output": "", "error": text.removeprefix(ERROR_PREFIX)}
    return {**shown, "output": text}
