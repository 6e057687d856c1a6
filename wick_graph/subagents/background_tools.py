"""The tools by which a model gives tasks away, as it reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wick_graph.subagents.tasks import START, UPDATE
from wick_graph.tools.func import FuncTool


@dataclass(frozen=True, slots=True)
class _Row:
    verb: str
    name: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]


_TEXT: Final = {"type": "string", "minLength": 1}
_ONE: Final = {"task_id": {"type": "string", "description": "As start_async_task gave it"}}
_AWAITED: Final = {
    "task_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "mode": {"type": "string", "enum": ["all", "any"]},
    "max_wait_seconds": {"type": "number", "exclusiveMinimum": 0},
}
_ROWS: Final = (
    _Row(
        "start",
        START,
        "Let another agent work on a task while you go on. It knows nothing of this conversation. "
        "Await or check the task later.",
        {"agent": {}, "task": {**_TEXT, "description": "The whole task"}},
        ("agent", "task"),
    ),
    _Row(
        "check", "check_async_task", "Say how a task stands, with its output.", _ONE, ("task_id",)
    ),
    _Row(
        "update",
        UPDATE,
        "Give a task that is under way more instructions. Its agent reads them when it has "
        "answered what it was told before, and its last answer counts.",
        {**_ONE, "instructions": _TEXT},
        ("task_id", "instructions"),
    ),
    _Row("list", "list_async_tasks", "List the tasks that you have started.", {}, ()),
    _Row(
        "wait",
        "await_async_tasks",
        "Wait for tasks to end: for all of them, or for any.",
        _AWAITED,
        ("task_ids",),
    ),
    _Row("cancel", "cancel_async_task", "End a task.", _ONE, ("task_id",)),
)


def tools_for(
    descriptions: Mapping[str, str], doing: Mapping[str, Callable[..., Any]]
) -> tuple[FuncTool[..., Any], ...]:
    """Make the tools.

    Args:
        descriptions: What each agent is good for.
        doing: What does the work, by the tool's verb: `start`, `check` and so on.
    """
    listed = "\n".join(f"- {name}: {text}" for name, text in descriptions.items())
    who = {"type": "string", "enum": list(descriptions), "description": "Who is to do it"}
    made = []
    for row in _ROWS:
        known = {"agent": who} if "agent" in row.properties else {}
        schema = {
            "type": "object",
            "properties": {**row.properties, **known},
            "required": list(row.required),
        }
        text = f"{row.description}\n{listed}" if known else row.description
        # replay: a call that is repeated finds its task where it stood
        made.append(
            FuncTool(
                row.name,
                text,
                schema,
                doing[row.verb],
                agents=descriptions if known else None,
                replay="safe",
                timeout=None,
            )
        )
    return tuple(made)
