"""Run one tool call to a result: look-up, check, limits, retries; errors become results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from langgraph.errors import GraphBubbleUp

from wick_graph.drive import Late, Leaves
from wick_graph.errors import ToolError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.tools.bound import UNSET, BoundTool
from wick_graph.tools.result import cap, failure, normalise

RETRY_DELAY_SECONDS: Final = 0.2
"""Pause before the first retry; each further one waits twice as long."""


async def execute(
    call: ToolCall, tool: BoundTool | None, io: Leaves, default_timeout: float | None
) -> ToolResult:
    """Run a call and return its result; a failure of any kind is a result with an error.

    Interrupts and cancellation pass through. Only tools that are declared safe to repeat are
    retried.
    """
    if tool is None:
        return failure(call, ToolError(f"unknown tool: {call.name}"))
    problem = tool.check(call.args)
    if problem is not None:
        return failure(call, ToolError(problem))
    tries = 1 + (tool.retries if tool.replay != "never" else 0)
    for attempt in range(1, tries + 1):
        if attempt > 1:
            await io.sleep(RETRY_DELAY_SECONDS * 2 ** (attempt - 2))
        result = await _once(call, tool, io, default_timeout, attempt)
        if result.error is None:
            break
    return result


async def _once(
    call: ToolCall, tool: BoundTool, io: Leaves, default_timeout: float | None, attempt: int
) -> ToolResult:
    seconds = default_timeout if tool.timeout is UNSET else tool.timeout
    ctx = replace(call.ctx, attempt=attempt, call_id=call.id)
    limiter = tool.limiter
    if limiter is not None:
        await io.either(limiter.acquire_sync, limiter.acquire)
    try:
        value = await io.timed(tool.call, tool.is_async, seconds, call.args, ctx)
        result = normalise(value, call)
    except GraphBubbleUp:
        raise
    except Late as late:
        return failure(call, ToolError(f"{call.name} {late}"))
    except Exception as error:  # whatever a tool raises goes to the model, never up
        return failure(call, error)
    finally:
        if limiter is not None:
            limiter.release()
    return _capped(result, tool.max_output)


def _capped(result: ToolResult, limit: int | None) -> ToolResult:
    if limit is None:
        return result
    changes: dict[str, Any] = {"output": cap(result.output, limit)}
    if isinstance(result.content, str):
        changes["content"] = cap(result.content, limit)
    return result.replace(**changes)
