"""What going on with a thread executes that stands in the middle of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from wick_graph.journal.entry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A task that is still to be run, or to be run again."""

    node: str
    step: int
    """Its step, if it was begun; 0 otherwise."""
    name: str
    """The tool of its call, or the model that it asks; empty for other nodes."""
    asks: bool
    """It waits for an answer, and only then goes on."""
    under_way: bool
    """Its call was begun and is not known to have ended."""
    recorded: bool
    """Its call had ended: the result is kept, and the call is not made again."""
    replay: str


def left_of(state: Any, entries: Sequence[Entry], spec: Any) -> Iterator[Left]:
    """Yield the tasks of a thread's next step that are not over; those that are keep their results.

    Args:
        state: LangGraph's `StateSnapshot` of the thread.
        entries: What is recorded, the moments of these tasks among it.
        spec: The agent that would run them.
    """
    calls = _sent_calls(state.values.get("messages") or (), state.tasks)
    known = spec.toolbox.at(state.values)
    for task in state.tasks:
        call = calls.pop(0) if task.name == "tools" and calls else ""
        if task.result is not None:
            continue
        seen = _last_visit(task.id, entries)
        whats = {entry.what for entry in seen}
        name = next((entry.tool for entry in seen if entry.tool), call)
        began = "tool.call" in whats or "model.request" in whats
        ended = "tool.exit" in whats or "model.response" in whats
        tool = known.get(name)
        yield Left(
            node=task.name,
            step=seen[0].step if seen else 0,
            name=spec.model.name if task.name == "model" else name,
            asks=bool(task.interrupts),
            under_way=began and not ended and not seen[-1].is_left,
            recorded=task.name == "tools" and ended,
            replay="never" if tool is None else tool.replay,
        )


def text_of(left: Left) -> str:
    """Say what becomes of a task's call."""
    what = "model" if left.node == "model" else "tool"
    if left.asks:
        return f"{what} {left.name}: waits for an answer, and is run again from its start with it"
    if left.recorded:
        return f"{what} {left.name}: its result is kept, and it is not called again"
    if left.node == "model":
        return f"model {left.name}: really asked"
    if left.under_way and left.replay == "never":
        return (
            f"tool {left.name}: was under way, and is not called again; "
            "the model is told that nobody knows what came of it"
        )
    again = ", once more: it was under way" if left.under_way else ""
    effects = "" if left.replay == "safe" else "; it has side effects"
    return f"tool {left.name}: really called{again}{effects}"


def _last_visit(task: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the moments of a task's last visit, in their order."""
    own = [entry for entry in entries if entry.task == task]
    begins = [at for at, entry in enumerate(own) if entry.what == "node.enter"]
    return own[begins[-1] :] if begins else []


def _sent_calls(messages: Sequence[Any], tasks: Sequence[Any]) -> list[str]:
    """Return the tools that the tasks of a step call, in their order: one task for each call.

    Calls that were answered with the reply itself have no task; those that a task has answered by
    now are shown in the state already.
    """
    results = [task.result for task in tasks if isinstance(task.result, dict)]
    made = [message for result in results for message in result.get("messages") or ()]
    by_task = {message.tool_call_id for message in made if isinstance(message, ToolMessage)}
    answered = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            calls = message.tool_calls
            return [call["name"] for call in calls if call["id"] not in answered - by_task]
    return []
