"""What a thread keeps of a task that its agent gave to another one: the request, and its end.

The records bear the id of the tool call that they belong to. A model reads the call and its result
in their place, so it is told of nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from langchain_core.messages import BaseMessage, ChatMessage

from wick_graph.messages import agent_call, agent_response, error_message, timestamp_of
from wick_graph.redact import REDACTOR
from wick_graph.tools.protocol import ToolContext

if TYPE_CHECKING:
    from wick_graph.result import Result


def request(
    ctx: ToolContext, name: str, task: str, task_id: str, at: datetime | None = None
) -> ChatMessage:
    """Make the record of a task for the agent `name`; its id is made of the task's."""
    return agent_call(
        task,
        name,
        caller=ctx.agent,
        task_id=task_id,
        tool_call_id=ctx.call_id,
        message_id=f"{task_id}/call",
        timestamp=at,
    )


def response(ctx: ToolContext, name: str, text: str, task_id: str, result: Result) -> ChatMessage:
    """Make the record of a task's answer, with the seconds from the task to the answer.

    Both times are read from the thread in which the task was worked on, so a call that is
    repeated after a crash records the same.
    """
    began, ended = began_at(result), _ended_at(result.messages)
    spent = None if began is None or ended is None else max((ended - began).total_seconds(), 0.0)
    return agent_response(
        text,
        name,
        task_id=task_id,
        completion_time=spent,
        tool_call_id=ctx.call_id,
        message_id=response_id(task_id),
        timestamp=ended,
    )


def failure(ctx: ToolContext, name: str, error: BaseException | str, task_id: str) -> ChatMessage:
    """Make the record of a task that failed."""
    kind = {"error_type": type(error).__name__} if isinstance(error, BaseException) else {}
    return error_message(
        REDACTOR.text(str(error)),
        name,
        tool_call_id=ctx.call_id,
        metadata={**kind, "caller": ctx.agent, "task_id": task_id},
        message_id=response_id(task_id),
    )


def response_id(task_id: str) -> str:
    """Return the id of the record of what came of a task."""
    return f"{task_id}/response"


def began_at(result: Result) -> datetime | None:
    """Return when a task was given to the agent that worked on it."""
    return next((timestamp_of(m) for m in result.messages if m.type == "human"), None)


def _ended_at(messages: Sequence[BaseMessage]) -> datetime | None:
    return timestamp_of(messages[-1]) if messages else None
