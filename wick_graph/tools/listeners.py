"""Tell LangChain's callback handlers about calls of tools that are not LangChain's own.

LangChain's tools open their runs themselves. For ours it is done here, and only if a handler or
tracer listens: then a call looks the same to it, whatever the tool is made of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)
from langchain_core.tools import BaseTool

from wick_graph import keys
from wick_graph.errors import ToolError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.tools.bound import BoundTool


class Ear:
    """Holds what the handlers are to be told at the end of a call."""

    result: ToolResult | None = None


def needs_telling(tool: BoundTool, config: Mapping[str, Any]) -> bool:
    """Say whether somebody listens who would otherwise not hear of the call."""
    if isinstance(tool.source, BaseTool):
        return False
    return bool(keys.handlers_of(config))


@contextmanager
def told(tool: BoundTool, call: ToolCall, config: Any) -> Iterator[Ear]:
    """Open a tool run around a call, and close it with its result or error."""
    manager: CallbackManager = get_callback_manager_for_config(config)
    run, ear = manager.on_tool_start(*_start(tool, call), **_facts(call)), Ear()
    try:
        yield ear
    except BaseException as error:
        run.on_tool_error(error)
        raise
    if ear.result is not None and ear.result.error:
        run.on_tool_error(ToolError(ear.result.error))
    elif ear.result is not None:
        run.on_tool_end(ear.result.to_message(), name=tool.name)


@asynccontextmanager
async def atold(tool: BoundTool, call: ToolCall, config: Any) -> AsyncIterator[Ear]:
    """Open a tool run around a call; see `told`."""
    manager: AsyncCallbackManager = get_async_callback_manager_for_config(config)
    run, ear = await manager.on_tool_start(*_start(tool, call), **_facts(call)), Ear()
    try:
        yield ear
    except BaseException as error:
        await run.on_tool_error(error)
        raise
    if ear.result is not None and ear.result.error:
        await run.on_tool_error(ToolError(ear.result.error))
    elif ear.result is not None:
        await run.on_tool_end(ear.result.to_message(), name=tool.name)


def _start(tool: BoundTool, call: ToolCall) -> tuple[dict[str, Any], str]:
    return {"name": tool.name, "description": tool.description}, str(call.args)


def _facts(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "inputs": dict(call.args), "tool_call_id": call.id}
