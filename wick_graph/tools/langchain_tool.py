"""Call LangChain tools like LangGraph's tool node: callbacks, injected arguments, Commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from langchain_core.runnables.config import ensure_config, set_config_context
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool
from langchain_core.tools.base import get_all_basemodel_annotations
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.runtime import Runtime, get_runtime
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from wick_graph.core.request import state_view
from wick_graph.errors import ConfigError, ToolError
from wick_graph.tools.protocol import ToolContext

OPTIONS_KEY: Final = "wick_graph"
"""Key of our options in a LangChain tool's `metadata`, such as `{"replay": "safe"}`."""

_OWN_ARUN: Final = (BaseTool._arun, StructuredTool._arun, Tool._arun)


@dataclass(frozen=True, slots=True)
class _Injected:
    """Parameters that the engine fills in, never the model."""

    state: dict[str, str | None]
    """Parameter to state key; None for the whole state."""
    optional: frozenset[str]
    """Parameters of `state` that have a default."""
    store: str | None
    runtime: str | None
    hidden: frozenset[str]
    """All of these, and all others marked as injected."""


class LangChainTool:
    """Adapt one LangChain tool.

    Raises:
        ConfigError: It has no JSON schema for a function call.
    """

    def __init__(self, tool: BaseTool) -> None:
        form = _form(tool)
        self._injected: Final = _read_injected(tool)
        self.tool: Final = _quiet(tool) if self._injected.runtime else tool
        self.description: Final[str] = form.get("description") or tool.description
        self.parameters: Final[dict[str, Any]] = form.get("parameters") or {}
        self.is_async: Final = (
            getattr(tool, "coroutine", None) is not None or type(tool)._arun not in _OWN_ARUN
        )
        self.closed: Final = not isinstance(tool.args_schema, dict)
        own = (tool.metadata or {}).get(OPTIONS_KEY) or {}
        self.declares: Final = SimpleNamespace(**{"return_direct": tool.return_direct, **own})

    def call(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """Run the tool: a `ToolMessage`, a `Command`, or a list of these."""
        return self.tool.invoke(self._request(args, ctx), ensure_config(ctx.config))

    async def acall(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """Run the tool in the running event loop."""
        return await self.tool.ainvoke(self._request(args, ctx), ensure_config(ctx.config))

    def _request(self, args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        # The model must not set an injected parameter.
        given = {name: value for name, value in args.items() if name not in self._injected.hidden}
        given |= self._fill(ctx)
        return {"name": self.tool.name, "args": given, "id": ctx.call_id, "type": "tool_call"}

    def _fill(self, ctx: ToolContext) -> dict[str, Any]:
        injected = self._injected
        values: dict[str, Any] = {}
        state = state_view(ctx.state)
        for name, key in injected.state.items():
            if key is None:
                values[name] = dict(state)
            elif key in state:
                values[name] = state[key]
            elif name not in injected.optional:
                raise ToolError(f"this tool needs {key!r} in the state, which lacks it")
        if not (injected.store or injected.runtime):
            return values
        runtime = runtime_of(ctx.config)
        if injected.store:
            if runtime.store is None:
                raise ToolError("this tool needs a store, and the graph was compiled without one")
            values[injected.store] = runtime.store
        if injected.runtime:
            values[injected.runtime] = ToolRuntime(
                state=dict(state),  # copies; pydantic wants a dict
                context=runtime.context,
                config=ensure_config(ctx.config),
                stream_writer=runtime.stream_writer,
                tool_call_id=ctx.call_id,
                store=runtime.store,
                execution_info=runtime.execution_info,
                server_info=runtime.server_info,
            )
        return values


def _quiet(tool: BaseTool) -> BaseTool:
    """Return a tool that has its arguments dumped without warnings.

    LangChain dumps a runtime too, and pydantic then warns of a context that the annotation
    `ToolRuntime` does not describe. The warning quotes the context, which may be a secret.
    """
    schema = tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return tool

    def model_dump(self: BaseModel, **options: Any) -> dict[str, Any]:
        return schema.model_dump(self, **{**options, "warnings": False})

    own = {"model_dump": model_dump, "__doc__": schema.__doc__, "__module__": schema.__module__}
    return tool.model_copy(update={"args_schema": type(schema.__name__, (schema,), own)})


def runtime_of(config: Any) -> Runtime[Any]:
    """Return the graph's runtime from the step's config; an empty one outside a graph."""
    with set_config_context(ensure_config(config)) as context:
        return context.run(get_runtime) or Runtime()


def _form(tool: BaseTool) -> dict[str, Any]:
    try:
        form: dict[str, Any] | None = convert_to_openai_tool(tool).get("function")
    except (PydanticUserError, TypeError, ValueError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"tool {tool.name}: its arguments have no JSON schema ({reason})"
        ) from error
    if form is None:
        raise ConfigError(
            f"tool {tool.name} takes free text instead of arguments; wrap it in a function"
        )
    return form


def _read_injected(tool: BaseTool) -> _Injected:
    schema = tool.get_input_schema()
    hints = {**_function_hints(tool), **get_all_basemodel_annotations(schema)}
    offered = (
        tool.args_schema.get("properties", {}) if isinstance(tool.args_schema, dict) else hints
    )
    state: dict[str, str | None] = {}
    store = runtime = None
    hidden: set[str] = set()
    for name, hint in hints.items():
        for mark in _marks(hint):
            hidden.add(name)
            if _is(mark, InjectedState):
                state[name] = getattr(mark, "field", None)
            elif _is(mark, InjectedStore):
                store = name
            elif _is(mark, ToolRuntime):
                runtime = name
    if "runtime" in hints and "runtime" not in offered:
        # Adapters of remote tools take it without a type hint.
        runtime = "runtime"
        hidden.add(runtime)
    fields: Mapping[str, Any] = getattr(schema, "model_fields", {})
    optional = frozenset(name for name, field in fields.items() if not field.is_required())
    return _Injected(state, optional, store, runtime, frozenset(hidden))


def _function_hints(tool: BaseTool) -> dict[str, Any]:
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return {}  # the schema's own annotations remain


def _marks(hint: Any) -> Iterator[Any]:
    """Yield the marks of injected parameters anywhere in a type hint."""
    if _is(hint, ToolRuntime):
        yield hint
    elif get_origin(hint) in (Annotated, Union, UnionType):
        first, *rest = get_args(hint)
        yield from _marks(first)
        for part in rest:
            if _is(part, InjectedToolArg):
                yield part
            else:
                yield from _marks(part)


def _is(mark: Any, kind: type) -> bool:
    mark = get_origin(mark) or mark
    return isinstance(mark, kind) or (isinstance(mark, type) and issubclass(mark, kind))
