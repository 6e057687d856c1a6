"""A tool call in LangChain's terms, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command

from wick_graph.messages import ToolCall, ToolResult
from wick_graph.tools.langchain_tool import runtime_of
from wick_graph.tools.result import normalise


class CallView:
    """One call, as a middleware around it sees it."""

    def __init__(self, call: ToolCall, view: Mapping[str, Any], tool: BaseTool | None) -> None:
        self._call = call if tool is None else _seeing(call, view)
        self._given: list[tuple[Any, ToolResult]] = []
        ctx = call.ctx
        runtime = runtime_of(ctx.config)
        self.request = ToolCallRequest(
            tool_call=call.to_langchain(),
            tool=tool,
            state=view,
            runtime=ToolRuntime(
                state=cast(Any, view),
                context=runtime.context,
                config=ensure_config(ctx.config),
                stream_writer=runtime.stream_writer,
                tool_call_id=call.id,
                store=runtime.store,
                execution_info=runtime.execution_info,
                server_info=runtime.server_info,
            ),
        )

    def wanted(self, request: ToolCallRequest) -> ToolCall:
        """Return the call that a middleware passes on."""
        asked = request.tool_call
        return self._call.replace(name=asked["name"], args=dict(asked["args"]))

    def came(self, result: ToolResult) -> ToolMessage | Command[Any]:
        """Show a result as LangChain's tool node would."""
        message: ToolMessage | Command[Any] = result.to_message()
        if result.update:
            update = dict(result.update)
            update["messages"] = [*update.get("messages", ()), message]
            message = Command(update=update)
        self._given.append((message, result))
        return message

    def result(self, made: Any) -> ToolResult:
        """Read what a middleware returned; what it passed on as it came is the result itself."""
        for shown, result in self._given:
            if made is shown:
                return result
        return normalise(made, self._call)


def _seeing(call: ToolCall, view: Mapping[str, Any]) -> ToolCall:
    """Let a middleware's own tool read the fields of its middleware in the state."""
    return call.replace(ctx=replace(call.ctx, state=view))
