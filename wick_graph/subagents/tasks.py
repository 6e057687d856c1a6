"""What a conversation tells of the tasks that it has begun."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

START: Final = "start_async_task"
UPDATE: Final = "update_async_task"
IN_BLOCK: Final = 10
"""Tasks of one status that a request tells of."""
_KNOWN: Final = 100
_WIDTH: Final = 100
_HEADING: Final = "## Background tasks"
_GUIDE: Final = (
    "Read an output with check_async_task or await_async_tasks. Do not start again what is under "
    "way, and do not answer the user from a task that has not ended."
)


@dataclass(frozen=True, slots=True)
class Note:
    """More instructions for a task, given after it was begun."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """One task, as the conversation tells of it."""

    id: str
    agent: str
    text: str
    notes: tuple[Note, ...] = field(default=(), compare=False)


def tasks_in(messages: Iterable[BaseMessage]) -> list[Task]:
    """Read from a conversation which tasks it has begun, the newest hundred."""
    asked: dict[str, Mapping[str, Any]] = {}
    found: dict[str, Task] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            asked = {call["id"] or "": call["args"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and message.name in (START, UPDATE):
            with suppress(ValueError, KeyError, TypeError):  # it says of an error, not of a task
                _read(asked[message.tool_call_id], json.loads(message.text), found)
    return list(found.values())[-_KNOWN:]


def _read(args: Mapping[str, Any], said: Mapping[str, Any], found: dict[str, Task]) -> None:
    """Take up what a call was answered."""
    task_id = said["task_id"]
    if "agent" in said:
        found[task_id] = Task(task_id, args["agent"], args["task"])
    elif said["accepted"]:
        task = found[task_id]
        note = Note(said["update_id"], args["instructions"])
        found[task_id] = replace(task, notes=(*task.notes, note))


def block(stands: Sequence[tuple[Task, str]]) -> str:
    """Say for the model how its tasks stand, the newest ten of each status."""
    lines = [_HEADING]
    for status in dict.fromkeys(status for _, status in stands):
        of_it = [task for task, stood in stands if stood == status]
        lines += [
            f"- {status}: {task.id} ({task.agent}) {_short(task.text)}"
            for task in of_it[-IN_BLOCK:]
        ]
        if len(of_it) > IN_BLOCK:
            lines.append(f"- {status}: {len(of_it) - IN_BLOCK} older; list_async_tasks lists them")
    return "\n".join([*lines, _GUIDE])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
