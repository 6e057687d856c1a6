"""TodoListHook: the agent's to-do list, in the thread's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from wick_graph.constants import TODO_STATUSES
from wick_graph.core.state import Todo
from wick_graph.errors import ToolError
from wick_graph.hooks.protocol import BaseHook, HookContext, in_place
from wick_graph.messages import ToolResult
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.protocol import ToolContext

_DESCRIPTION: Final = (
    "Write the list of work for this conversation. It replaces the whole list: send every item, "
    "also those that have not changed. Use it for work of several steps, and keep the statuses "
    "true: in_progress when you begin an item, done as soon as it is finished."
)

_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "description": "The whole list, in order.",
            "items": {
                "type": "object",
                "properties": {
                    "id": {
                        "type": ["string", "integer"],
                        "description": "Names the item; numbered if it is left out.",
                    },
                    "title": {"type": "string", "description": "What is to be done."},
                    "status": {
                        "type": "string",
                        "enum": list(TODO_STATUSES),
                        "description": "pending if it is left out.",
                    },
                },
                "required": ["title"],
            },
        }
    },
    "required": ["todos"],
}


class TodoListHook(BaseHook):
    """Add the tool `write_todos`; the list outlives the run and is in every result."""

    name = "todolist"
    phases = ("before_agent",)

    def __init__(self) -> None:
        self._tools = (
            FuncTool("write_todos", _DESCRIPTION, _PARAMETERS, write_todos, replay="safe"),
        )

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the one tool."""
        return self._tools

    @in_place
    async def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Start with an empty list if there is none."""
        return {"todos": []} if "todos" not in state else None


def write_todos(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    """Replace the list.

    Raises:
        ToolError: An item has no title, or two have one id; the list stays as it was.
    """
    todos = checked(args["todos"])
    return ToolResult(
        tool_call_id=ctx.call_id,
        name=ctx.name,
        output=f"Updated {len(todos)} todo(s)",
        update={"todos": todos},
    )


def checked(items: Sequence[Mapping[str, Any]]) -> list[Todo]:
    """Return the items, each with a unique text id and a status.

    Raises:
        ToolError: An item has no title, an unknown status, or the id of another item.
    """
    given = [str(item.get("id", "")).strip() for item in items]
    for place, todo_id in enumerate(given):
        if todo_id and todo_id in given[:place]:
            raise ToolError(f"todos[{place}].id: {todo_id!r} is the id of another item")
    free = (str(number) for number in range(1, 2 * len(items) + 1) if str(number) not in given)
    return [_todo(place, item, given[place] or next(free)) for place, item in enumerate(items)]


def _todo(place: int, item: Mapping[str, Any], todo_id: str) -> Todo:
    title = item.get("title")
    if not isinstance(title, str) or not title.strip():
        raise ToolError(f"todos[{place}].title: must be a text that is not empty")
    status = item.get("status", "pending")
    if status not in TODO_STATUSES:
        raise ToolError(f"todos[{place}].status: must be one of {', '.join(TODO_STATUSES)}")
    return Todo(id=todo_id, title=title.strip(), status=status)
