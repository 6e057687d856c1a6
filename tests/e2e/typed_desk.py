"""Typed agents with a context and a long-term store that wait for an answer, each in another way.

`python -m tests.e2e.typed_desk PART THREAD…` plays a part with threads, in the folder with their
file: `begin` asks until they wait; `go` goes on by the door that ends the name of each, `resume`,
`stream` or `debugger`; `fork` forks what has ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph.config import get_store
from langgraph.types import interrupt

from wick_graph import Agent, ToolContext, load, tool
from wick_graph.debug import DebugSession, Policy
from wick_graph.errors import WickError
from wick_graph.events import Done, OutputDelta
from wick_graph.loading import Agents

KINDS: Final = ("approval", "question", "interrupt", "handoff", "beside", "sibling")
DOORS: Final = ("resume", "stream", "debugger")
"""Those of Python; a thread is named by its kind and its door."""

CONTEXT: Final = {"user": "ann", "key": "canary4711ofthecontext"}
BERN: Final = {"name": "Bern", "people": 134_000}


@dataclass
class Ctx:
    user: str
    key: str


@tool(replay="never")
def pay(amount: int, ctx: ToolContext) -> str:
    """Pay, and keep how much."""
    where, thread = ("paid", ctx.context.user), str(ctx.thread_id)
    paid = get_store().get(where, thread)
    before = 0 if paid is None else paid.value["amount"]
    get_store().put(where, thread, {"amount": before + amount})
    return f"{ctx.context.user} pays {amount} with a key of {len(ctx.context.key)}"


@tool(replay="safe")
def choose(ctx: ToolContext) -> str:
    """Let the frontend choose."""
    return f"{ctx.context.user} chose {interrupt({'pick': ['a', 'b']})}"


SCHEMA: Final = {
    "title": "City",
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["name", "people"],
}
FILE: Final = """\
store: sqlite:///wick.db
store_keys: file:wick.keys
long_term: {}
defaults:
  ttl: never
  tools: ['MODULE:pay', 'MODULE:choose', request_user_input]
  context: {use: 'MODULE:Ctx'}
  output: {schema: city.json}
agents:
  approval: {model: 'scripted:approval.yaml', approvals: {pay: "amount < 9"}}
  question: {model: 'scripted:question.yaml'}
  interrupt: {model: 'scripted:interrupt.yaml'}
  handoff:
    model: scripted:handoff.yaml
    approvals: {transfer_to_guide: true}
    handoffs: {guide: Knows cities.}
  beside: {model: 'scripted:beside.yaml', approvals: {pay: "amount < 9"}}
  sibling: {model: 'scripted:sibling.yaml', approvals: {pay: "amount < 9"}}
  guide: {model: 'scripted:guide.yaml'}
"""
_CITY: Final[Any] = {"calls": [{"tool": "City", "args": BERN}]}
_PAY: Final[Any] = {"tool": "pay", "args": {"amount": 5}}
_THEN: Final[Any] = [{"calls": [{"tool": "pay", "args": {"amount": 10}}]}, _CITY]
_BAD: Final[Any] = {"tool": "City", "args": {"name": "Bern", "people": -1}}
STEPS: Final[Mapping[str, Any]] = {
    "approval": [{"calls": [_PAY]}, *_THEN],
    "question": [{"calls": [{"tool": "request_user_input", "args": {"question": "Who?"}}]}, *_THEN],
    "interrupt": [{"calls": [{"tool": "choose"}]}, *_THEN],
    "handoff": [{"calls": [{"tool": "transfer_to_guide"}]}, "never"],
    "guide": ["never", *_THEN],
    "beside": [{"calls": [_BAD, _PAY], "unchecked": True}, *_THEN],
    "sibling": [{"calls": [_PAY, {"tool": "choose"}]}, *_THEN],
}
"""What each model says: it asks, pays ten, and gives the output."""

PAID: Final = {kind: 15 if kind in ("approval", "beside", "sibling") else 10 for kind in KINDS}


def answer_to(asked: Any) -> Any:
    """Return the answer to a question."""
    if "pick" in asked:
        return "b"
    return "Ann" if asked.get("kind") == "question" else {"decision": "approve"}


def answers(asked: Any) -> Any:
    return {one.id: answer_to(one.value) for one in asked}


def played(part: str, agent: Agent[Any], thread: str) -> dict[str, Any]:
    """Play a part; return what is to be seen of it."""
    door = thread.partition("-")[2]
    if part == "begin":
        result = agent.invoke("Go", thread_id=thread, context=CONTEXT)
        told_of = [{"id": one.id, "value": one.value} for one in result.interrupts]
        return {"stopped": result.stopped_because, "asked": told_of}
    if part == "fork":
        return forked(agent, thread)
    if door == "debugger":
        with DebugSession.open(agent, thread) as session:
            without = session.answer(None, timeout=60).text
            session.context = CONTEXT
            asked = agent.graph.get_state({"configurable": {"thread_id": thread}}).interrupts
            stop = session.answer(answers(asked), timeout=60)
            while stop.reason != "finished":
                stop = session.cont(timeout=60)
        return {"without": without, **told(agent.resume(thread, context=CONTEXT))}
    asked = agent.graph.get_state({"configurable": {"thread_id": thread}}).interrupts
    try:
        without = str(agent.resume(thread, answers(asked)))
    except WickError as error:
        without = str(error)
    if door == "resume":
        result = agent.resume(thread, answers(asked), context=CONTEXT)
        return {"without": without, **told(result)}
    events = [*agent.stream_resume(thread, answers(asked), context=CONTEXT)]
    assert isinstance(events[-1], Done), events[-1]
    last = [event.output for event in events if isinstance(event, OutputDelta)][-1]
    return {"without": without, "last": last, **told(events[-1].result)}


def forked(agent: Agent[Any], thread: str) -> dict[str, Any]:
    """Fork a finished thread where it gave its output, and give another one."""
    with DebugSession.open(agent, thread) as session:
        session.context = CONTEXT
        last = [e for e in session.inspect.moments() if e.what == "model.response"][-1]
        reply = {"tool_calls": [{"name": "City", "args": {**BERN, "people": 7}, "id": "own"}]}
        plan = session.fork(f"#{last.seq}", response=reply, policy=Policy(model="live"))
        stop = session.live(plan, timeout=60)
        while stop.reason != "finished":
            stop = session.cont(timeout=60)
        return {"people": session.result["output"]["data"]["people"]}


def told(result: Any) -> dict[str, Any]:
    said = [m.text for m in result.messages if m.type == "tool"]
    return {"output": result.output, "stopped": result.stopped_because, "tools": said}


def paid(agents: Agents, thread: str) -> Any:
    found = agents["approval"].spec.long_term
    item = None if found is None else found.get(("paid", "ann"), thread)
    return None if item is None else item.value["amount"]


def main(part: str, *threads: str) -> None:
    with load(Path("agents.yaml")) as agents:
        seen = {}
        for thread in threads:
            kind = thread.partition("-")[0]
            seen[thread] = played(part, agents[kind], thread)
            seen[thread]["paid"] = paid(agents, thread)
        print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
