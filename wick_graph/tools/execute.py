"""Run one tool call to a result: look-up, check, limits, retries; errors become results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, ParentCommand, is_invalid_resume

from wick_graph import langgraph_config
from wick_graph.core.bridge import Bridge, Late, run_to_end
from wick_graph.errors import ToolError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.protocol import UNSET, ToolContext
from wick_graph.tools.result import cap, failure, normalise, read_text, with_text

# --- Call LangChain's callback handlers for tools that are not LangChain's own.
#
# LangChain's tools open their callback runs themselves. For other tools this is done here, if there
# is a handler or tracer: so a handler sees all calls alike.


class RunEnd:
    """Holds the result for the handlers at the end of a call."""

    result: ToolResult | None = None


def needs_callbacks(tool: BoundTool, config: Mapping[str, Any]) -> bool:
    """Return whether there are handlers that the tool does not call itself."""
    if isinstance(tool.source, BaseTool):
        return False
    return bool(langgraph_config.handlers_of(config))


@contextmanager
def callback_run(tool: BoundTool, call: ToolCall, config: Any) -> Iterator[RunEnd]:
    """Open a callback run around a call, and close it with its result or error."""
    manager: CallbackManager = get_callback_manager_for_config(config)
    run, end = manager.on_tool_start(*_start(tool, call), **_facts(call)), RunEnd()
    try:
        yield end
    except BaseException as error:
        run.on_tool_error(error)
        raise
    if end.result is not None and end.result.error:
        run.on_tool_error(ToolError(end.result.error))
    elif end.result is not None:
        run.on_tool_end(end.result.to_message(), name=tool.name)


@asynccontextmanager
async def acallback_run(tool: BoundTool, call: ToolCall, config: Any) -> AsyncIterator[RunEnd]:
    """Open a callback run around a call; see `callback_run`."""
    manager: AsyncCallbackManager = get_async_callback_manager_for_config(config)
    run, end = await manager.on_tool_start(*_start(tool, call), **_facts(call)), RunEnd()
    try:
        yield end
    except BaseException as error:
        await run.on_tool_error(error)
        raise
    if end.result is not None and end.result.error:
        await run.on_tool_error(ToolError(end.result.error))
    elif end.result is not None:
        await run.on_tool_end(end.result.to_message(), name=tool.name)


def _start(tool: BoundTool, call: ToolCall) -> tuple[dict[str, Any], str]:
    return {"name": tool.name, "description": tool.description}, str(call.args)


def _facts(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "inputs": dict(call.args), "tool_call_id": call.id}


RETRY_DELAY_SECONDS: Final = 0.2
"""Pause before the first retry; each further one waits twice as long."""


async def execute(
    call: ToolCall,
    tool: BoundTool | None,
    bridge: Bridge,
    default_timeout: float | None,
    *,
    checked: bool = False,
) -> ToolResult:
    """Run a call and return its result; every failure becomes a result with an error.

    `checked` means that the arguments have just been found valid.

    Interrupts and cancellation pass through. Only tools that are declared safe to repeat are
    retried.
    """
    if tool is None:
        return failure(call, ToolError(f"unknown tool: {call.name}"))
    problem = None if checked else tool.check(call.args)
    if problem is not None:
        return failure(call, ToolError(problem))
    tries = 1 + (tool.retries if tool.replay != "never" else 0)
    for attempt in range(1, tries + 1):
        if attempt > 1:
            await bridge.sleep(RETRY_DELAY_SECONDS * 2 ** (attempt - 2))
        result = await _attempt(call, tool, bridge, default_timeout, attempt)
        if result.error is None:
            break
    return result


async def _attempt(
    call: ToolCall, tool: BoundTool, bridge: Bridge, default_timeout: float | None, attempt: int
) -> ToolResult:
    """Run one attempt, within a callback run if there are handlers."""
    config = call.ctx.config
    if not needs_callbacks(tool, config):
        return await _once(call, tool, bridge, default_timeout, attempt)

    async def aattempt() -> ToolResult:
        async with acallback_run(tool, call, config) as end:
            end.result = await _once(call, tool, bridge, default_timeout, attempt)
        return end.result

    def attempt_once() -> ToolResult:
        with callback_run(tool, call, config) as end:
            end.result = run_to_end(_once(call, tool, bridge, default_timeout, attempt))
        return end.result

    return await bridge.call(attempt_once, aattempt)


async def _once(
    call: ToolCall, tool: BoundTool, bridge: Bridge, default_timeout: float | None, attempt: int
) -> ToolResult:
    seconds = default_timeout if tool.timeout is UNSET else tool.timeout
    ctx = call.ctx
    if attempt > 1 or ctx.call_id != call.id:  # a copy of so many fields is expensive
        ctx = replace(ctx, attempt=attempt, call_id=call.id, replayed=ctx.replayed or attempt > 1)
    if tool.limiter is not None:  # waiting for the limiter does not count as the tool's time
        await bridge.call(tool.limiter.acquire_sync, tool.limiter.acquire)
    try:
        value = await bridge.timed(_releasing(tool), tool.is_async, seconds, call.args, ctx)
        result = normalise(value, call)
    except ParentCommand:
        why = f"a graph that {call.name} runs sent a Command to its parent; this agent takes none"
        return failure(call, ToolError(why))
    except GraphBubbleUp:
        raise
    except asyncio.CancelledError:
        if not await bridge.cancels_itself():  # the run is cancelled, not only the tool
            raise
        return failure(call, ToolError(f"{call.name} cancelled itself"))
    except Late as late:
        return failure(call, ToolError(f"{call.name} {late}"))
    except Exception as error:  # every error of a tool goes to the model, never up
        if is_invalid_resume(
            error
        ):  # the answer to an interrupt was wrong: another one can be given
            raise
        return failure(call, error)
    return await _fitting(result, tool.max_output, ctx, bridge)


def _releasing(tool: BoundTool) -> Callable[..., Any]:
    """Release the limiter at the end of the call, in its thread: a late call still holds it."""
    limiter = tool.limiter
    if limiter is None:
        return tool.call

    def call(args: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            return tool.call(args, ctx)
        finally:
            limiter.release()

    async def acall(args: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            return await tool.call(args, ctx)
        finally:
            limiter.release()

    return acall if tool.is_async else call


async def _fitting(
    result: ToolResult, limit: int | None, ctx: ToolContext, bridge: Bridge
) -> ToolResult:
    """Shorten a result that is too long for the model; `keep` may store the whole."""
    if limit is None or max(len(result.output), len(shown := read_text(result))) <= limit:
        return result
    if ctx.keep is not None:
        kept: ToolResult = await bridge.call_user(ctx.keep, False, result, limit)
        return kept
    return with_text(result.replace(output=cap(result.output, limit)), cap(shown, limit))
