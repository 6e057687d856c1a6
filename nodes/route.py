"""route: the next step after a reply. Not a node: the labelled conditional edges of `model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Send

from wick_graph.messages.base import RECORD_ROLES, role_of

TOOLS: Final = "route: tools"

END_LABEL: Final = "route: end"


@dataclass(frozen=True, slots=True)
class Decision:
    """Where to go, and why."""

    label: Literal["route: tools", "route: end"]
    reason: str
    calls: tuple[dict[str, Any], ...] = ()
    """The input of each tool task: the call, its index in the reply, and its ledger key."""


class Candidate(NamedTuple):
    """One rule of the decision, and its result."""

    label: str
    predicate: str
    result: bool
    reads: str
    """The channel that it reads."""


def decide(state: Mapping[str, Any]) -> Decision:
    """Decide from the state alone, with any last message, an edited one included."""
    if stopped := state.get("stop_reason"):
        return Decision(END_LABEL, _reason(stopped, None))
    reply, answered = _reply(state.get("messages") or ())
    reason = _reason(None, reply)
    if reply is None or not reply.tool_calls:
        return Decision(END_LABEL, reason)
    calls = tuple(
        sent
        for i in range(len(reply.tool_calls))
        if (sent := sent_for(reply, i))["id"] not in answered
    )
    return Decision(TOOLS, reason, calls)


def _reason(stopped: Any, reply: AIMessage | None) -> str:
    if stopped:
        return f"stop_reason is {stopped}"
    if reply is None:
        return "the last message is no reply of the model"
    calls = len(reply.tool_calls)
    return f"the reply calls {calls} tool(s)" if calls else "the reply calls no tool"


def route(state: Mapping[str, Any]) -> str | list[Send]:
    """Turn the decision into LangGraph's terms: one `Send` per open call, or the end's label.

    A reply with all calls answered sends an empty task to `tools`, and the loop continues there.
    """
    decision = decide(state)
    if decision.label == END_LABEL:
        return END_LABEL
    return [Send("tools", sent) for sent in decision.calls] or [Send("tools", {})]


def explain(state: Mapping[str, Any]) -> tuple[str, tuple[Candidate, ...]]:
    """Return the reason of the decision, and its rules; the first true one decides."""
    stopped, (reply, _) = state.get("stop_reason"), _reply(state.get("messages") or ())
    calls = len(reply.tool_calls) if reply is not None else 0
    rules = (
        Candidate(END_LABEL, "a stop_reason is set", bool(stopped), "stop_reason"),
        Candidate(END_LABEL, "the last message is no reply", reply is None, "messages"),
        Candidate(END_LABEL, "the reply calls no tool", not calls, "messages"),
        Candidate(TOOLS, "the reply calls tools", calls > 0, "messages"),
    )
    return _reason(stopped, reply), rules


def _reply(messages: Sequence[BaseMessage]) -> tuple[AIMessage | None, set[str]]:
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message, answered
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif role_of(message) not in RECORD_ROLES:  # records of calls follow them
            break
    return None, answered


def sent_for(reply: AIMessage, index: int) -> dict[str, Any]:
    """Return the input of a call's task: the call, its index in the reply, its ledger key."""
    call = reply.tool_calls[index]
    mark = reply.response_metadata.get("wick") or {}
    # A manually written reply has no step; its own id distinguishes its calls.
    sent = {
        "id": call["id"] or "",
        "name": call["name"],
        "args": call["args"],
        "index": index,
        "key": f"{mark.get('step') or reply.id}:{index}",
    }
    bad = (mark.get("bad") or {}).get(call["id"])
    return {**sent, "bad": bad} if bad else sent
