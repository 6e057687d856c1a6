"""tools: one tool call, wrapped in the hooks' layers. Each call of a reply is a task of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from wick_graph import langgraph_config
from wick_graph.core.moments import Abort, Moment, Replace, Skip, notify
from wick_graph.core.request import state_view
from wick_graph.core.state import private_update, problem
from wick_graph.errors import ToolError
from wick_graph.hooks.onion import Onion
from wick_graph.hooks.protocol import Tripwire
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.messages.base import owned
from wick_graph.runtime.context import NodeContext
from wick_graph.runtime.tool_ledger import Gate, Next, again, bound_by, execute_once, has_begun
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.result import failure


async def tools(sent: Mapping[str, Any], ctx: NodeContext) -> list[tuple[str, Any]]:
    """Run one call, and write its result or its error as a tool message.

    Raises:
        HookError: A hook around the call broke its contract. Interrupts and cancellation pass,
            too; any other failure becomes the tool message.
    """
    if not sent:
        return []
    made = _Sent(sent, ctx, langgraph_config.read_state(ctx.config, ctx.spec.channels), [])
    call = _call(made)
    listener = ctx.listener
    updates: list[tuple[str, Any]] = []
    if listener.active:
        await notify(listener, Moment("tool", "enter", call.name, {"args": call.args}, call.id))
    try:
        run = _onion(made, updates, call.id) if ctx.spec.hooks.wrap_tool_call else made.run
        run = bound_by(ctx.run.bound, ctx, run) if ctx.run.bound else run
        result: ToolResult = await run(call)
    except BaseException as error:
        if listener.active:
            listener.record(Moment("tool", "error", call.name, {"error": error}, call.id))
        if isinstance(error, Tripwire):
            refused = failure(call, ToolError("a guardrail has ended the run"))
            error.writes += [*updates, ("messages", [refused.to_message()])]
        raise
    # A hook may have changed the call on its way in; the answer is to the model's call.
    if (result.tool_call_id, result.name) != (call.id, call.name):
        result = result.replace(tool_call_id=call.id, name=call.name)
    result = _private(result)
    wrong = problem(result.update, ctx.spec.channels) if result.update else None
    if wrong is not None:
        result = failure(call, ToolError(f"the tool's state update is refused: {wrong}"))
    if listener.active:
        said = await notify(
            listener, Moment("tool", "exit", call.name, {"result": result}, call.id)
        )
        result = said.value if isinstance(said, Replace) else result
    update = dict(result.update or {})
    beside = update.pop("messages", [])
    messages = [*(beside if isinstance(beside, list) else [beside]), result.to_message()]
    return [*updates, *update.items(), ("messages", messages)]


def _onion(made: _Sent, updates: list[tuple[str, Any]], call_id: str) -> Next:
    """Wrap a call in the hooks' layers."""
    ctx = made.ctx
    onion = Onion(
        layers=ctx.spec.hooks.wrap_tool_call,
        base=made.run,
        bridge=ctx.bridge,
        listener=ctx.listener,
        takes=ToolCall,
        gives=ToolResult,
        updates=updates,
        call_id=call_id,
    )
    return onion.run


def _private(result: ToolResult) -> ToolResult:
    """Return a result that shares no data with a tool or a hook."""
    if result.content is result.artifact is result.update is None:
        return result
    update = private_update(result.update) if result.update else result.update
    content = result.content if isinstance(result.content, str) else owned(result.content)
    artifact = result.artifact
    if isinstance(
        artifact, list | dict
    ):  # other objects belong to the program and stay as they are
        artifact = owned(artifact)
    return result.replace(update=update, content=content, artifact=artifact)


async def _execute(call: ToolCall, sent: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    """The innermost layer: the tool itself."""
    if sent.get("bad"):
        return failure(call, ToolError(sent["bad"]))
    tool = ctx.tools(call.ctx.state).get(call.name)
    listener = ctx.listener
    call = _still_allowed(call)
    if not listener.active:
        made = await execute_once(call, tool, ctx)
        return _private(made) if ctx.spec.hooks.wrap_tool_call else made
    data = {"args": call.args, "key": sent["key"], "replay": tool.replay if tool else None}
    data["begun"] = await has_begun(call, ctx)
    said = await notify(
        listener, Moment("tool", "call", call.name, {**data, "call": call}, call.id)
    )
    if isinstance(said, Abort):
        raise ToolError(f"stopped before the call: {said.reason}")
    if isinstance(said, Replace):
        call = said.value if isinstance(said.value, ToolCall) else call.replace(args=said.value)
        listener.record(Moment("tool", "replaced", call.name, {**data, "args": call.args}, call.id))
        call = _still_allowed(call)
    given = isinstance(said, Skip)
    result: ToolResult = (
        said.value if isinstance(said, Skip) else await execute_once(call, tool, ctx)
    )
    if ctx.spec.hooks.wrap_tool_call:  # else it equals that of `exit`
        result = _private(result)
        data = {"result": result, "given": given}
        await notify(listener, Moment("tool", "return", call.name, data, call.id))
    return result


def _still_allowed(call: ToolCall) -> ToolCall:
    """Withdraw an approval if the arguments have changed since."""
    ctx = call.ctx
    if ctx.allowed is None or ctx.allowed == call.args:
        return call
    return call.replace(ctx=replace(ctx, allowed=None))


class _Sent(NamedTuple):
    """One call as the model sent it."""

    sent: Mapping[str, Any]
    ctx: NodeContext
    state: Mapping[str, Any]
    ran: list[str]  # the call's id, each time that it has run; the call itself holds this

    async def run(self, call: ToolCall) -> ToolResult:
        """Run the call as the hooks pass it on; they may do so more than once."""
        self.ran.append(call.id)
        return await _execute(again(call) if len(self.ran) > 1 else call, self.sent, self.ctx)

    def check(self, args: Any) -> str | None:
        """Return what is wrong with arguments for the tool."""
        return self.sent.get("bad") or (None if (tool := _tool(self)) is None else tool.check(args))

    def schema(self) -> Mapping[str, Any] | None:
        """Return the tool as the model sees it."""
        return None if (tool := _tool(self)) is None else tool.schema


def _tool(made: _Sent) -> BoundTool | None:
    return made.ctx.tools(made.state).get(made.sent["name"])


def _call(made: _Sent) -> ToolCall:
    sent, ctx = made.sent, made.ctx
    context = ToolContext(
        call_id=sent["id"],
        name=sent["name"],
        key=sent["key"],
        index=sent["index"],
        attempt=1,
        thread_id=ctx.run.thread_id or langgraph_config.thread_of(ctx.config),
        run_id=ctx.run.run_id,
        agent=ctx.spec.name,
        state=state_view(made.state),
        config=ctx.config,
        check=made.check,
        told=made.schema,
        folders=ctx.spec.hooks.folders,
        gate=Gate(ctx),
    )
    return ToolCall(id=sent["id"], name=sent["name"], args=owned(sent["args"]), ctx=context)
