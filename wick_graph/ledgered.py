"""What stands between the hooks and a tool: the ledger, so that nothing finished is run twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from langgraph.errors import GraphBubbleUp

from wick_graph import keys
from wick_graph.approving import unless_it_waits
from wick_graph.constants import TOO_DEEP
from wick_graph.durability import must_record_result
from wick_graph.errors import ToolError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.messages.content import is_deep
from wick_graph.runtime import NodeContext
from wick_graph.store.keeping.ledger import Ledger, Recorded, Unknown
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.execute import execute
from wick_graph.tools.result import failure

UNKNOWN: Final = (
    "interrupted, outcome unknown: the call was under way when its run ended; "
    "it may or may not have had its effect"
)


async def through_ledger(call: ToolCall, tool: BoundTool | None, ctx: NodeContext) -> ToolResult:
    """Run a call once, whatever happens: a finished one gives its recorded result.

    In a resumed run no call runs while the thread waits for a decision about it. A call that may
    be repeated needs no intent: a crash runs it again. Any other has its intent committed before it
    starts. The result is committed before anybody is told of it.

    Raises:
        ThreadBusyError: The run lost its thread; the call was not started.
    """
    if ctx.run.resumed or keys.is_resuming(ctx.config):
        result: ToolResult = await unless_it_waits(
            call, ctx, lambda allowed: _through(allowed, tool, ctx)
        )
        return result
    return await _through(call, tool, ctx)


async def _through(call: ToolCall, tool: BoundTool | None, ctx: NodeContext) -> ToolResult:
    ledger = ctx.run.ledger
    if ledger is None or tool is None or tool.check(call.args):
        call = again(call) if _may_repeat(ctx) else call
        return storable(await execute(call, tool, ctx.io, ctx.spec.tool_timeout), ledger)
    if tool.replay == "safe":
        return await _repeatable(call, tool, ctx, ledger)
    key, name, args = call.ctx.key, call.name, call.args
    verdict = await ctx.io.either(
        lambda: ledger.begin(key, name, args, tool.replay),
        lambda: ledger.abegin(key, name, args, tool.replay),
    )
    if isinstance(verdict, Recorded):
        return recorded(call, verdict.fields)
    if isinstance(verdict, Unknown):
        return failure(call, ToolError(UNKNOWN))
    return await _executed(again(call) if verdict.again else call, tool, ctx, ledger)


async def _repeatable(
    call: ToolCall, tool: BoundTool, ctx: NodeContext, ledger: Ledger
) -> ToolResult:
    """Run a call that may be repeated; only what somebody was told of is looked up and kept."""
    key, name, args = call.ctx.key, call.name, call.args
    if ctx.run.resumed:
        known = await ctx.io.either(
            lambda: ledger.begun(key, name, args), lambda: ledger.abegun(key, name, args)
        )
        if isinstance(known, Recorded):
            return recorded(call, known.fields)
        call = again(call) if known is not None or _may_repeat(ctx) else call
    if must_record_result(observed=ctx.run.observed, replay=tool.replay):
        ledger.identify(key, name, args)
    return await _executed(call, tool, ctx, ledger)


async def _executed(
    call: ToolCall, tool: BoundTool, ctx: NodeContext, ledger: Ledger
) -> ToolResult:
    key, name, args = call.ctx.key, call.name, call.args
    try:
        result = await execute(call, tool, ctx.io, ctx.spec.tool_timeout, checked=True)
    except GraphBubbleUp:
        await ctx.io.either(
            lambda: ledger.wait(key, name, args), lambda: ledger.await_(key, name, args)
        )
        raise
    result = storable(result, ledger)
    if must_record_result(observed=ctx.run.observed, replay=tool.replay):
        await _finish(call, result, ctx, ledger)
    return result


def again(call: ToolCall) -> ToolCall:
    """Let a call's tool know that it may have been run before."""
    return call.replace(ctx=replace(call.ctx, replayed=True))


def _may_repeat(ctx: NodeContext) -> bool:
    """Say whether an earlier run may have begun this run's calls, and left no note of it.

    Where the model was asked in this run, the call is its own; where a run waited for an answer,
    whatever it had begun had ended, or has left a note.
    """
    run = ctx.run
    return run.resumed and not run.waited and not run.usage.calls


async def _finish(call: ToolCall, result: ToolResult, ctx: NodeContext, ledger: Ledger) -> None:
    key, name, args, fields = call.ctx.key, call.name, call.args, written(result)
    await ctx.io.either(
        lambda: ledger.finish(key, name, args, fields),
        lambda: ledger.afinish(key, name, args, fields),
    )


def written(result: ToolResult) -> dict[str, Any]:
    """Write down a call's whole result."""
    return {
        "output": result.output,
        "error": result.error,
        "content": result.content,
        "update": None if result.update is None else dict(result.update),
        "artifact": result.artifact,
    }


def recorded(call: ToolCall, fields: Mapping[str, Any]) -> ToolResult:
    """Read a call's result back."""
    return ToolResult(tool_call_id=call.id, name=call.name, **fields)


def _deep(value: Any) -> str | None:
    """Say why a foreign store, or anybody who copies it, cannot hold a value, or None."""
    return TOO_DEEP if is_deep(value) else None


def storable(result: ToolResult, ledger: Ledger | None) -> ToolResult:
    """Replace what no store can hold, at the tool's edge, where it can still be said.

    An artifact becomes a note of what it was; a state update makes the call fail.
    """
    refusal = _deep if ledger is None else ledger.refusal
    if result.artifact is not None and (why := refusal(result.artifact)) is not None:
        kind = type(result.artifact).__name__
        result = result.replace(artifact={"not_stored": kind, "why": why})
    if result.update and (why := refusal(dict(result.update))) is not None:
        return result.replace(update=None, output="", error=f"its state update is refused: {why}")
    return result
