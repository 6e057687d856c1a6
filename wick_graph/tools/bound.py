"""`BoundTool`, the form to which every tool is adapted for the engine."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

from langchain_core.tools import BaseTool

from wick_graph.errors import ConfigError, ToolError
from wick_graph.messages.base import portable_tool_name, sanitise_tool_name
from wick_graph.tools.arguments import ArgumentCheck
from wick_graph.tools.function_tool import FuncTool, Options
from wick_graph.tools.langchain_tool import LangChainTool
from wick_graph.tools.limiter import Limiter
from wick_graph.tools.protocol import ToolContext, Unset, options_of
from wick_graph.tools.signature import adapt, is_async
from wick_graph.types import Replay

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BoundTool:
    """A tool that can be offered to a model and called."""

    name: str
    description: str
    parameters: dict[str, Any] = field(repr=False)
    replay: Replay
    timeout: float | Unset | None
    max_output: int | None
    """Code points of the output; None never cuts it."""
    return_direct: bool
    """Whether the result is the answer, without another model call."""
    retries: int
    concurrency: int | None
    is_async: bool
    call: Callable[[dict[str, Any], ToolContext], Any] = field(repr=False)
    """Run the tool on arguments that passed `check`; returns a coroutine if `is_async`."""
    check: Callable[[Any], str | None] = field(repr=False)
    """Return what is wrong with the arguments, for the model; None if nothing is."""
    schema: dict[str, Any] = field(repr=False)
    """The tool in OpenAI's function format, as every chat model's `bind_tools` takes it."""
    limiter: Limiter | None = field(repr=False)
    """Limits concurrent calls if `concurrency` is set."""
    source: Any = field(repr=False)
    """The object from which it was made."""


def bind_tool(source: Any, **changes: Unpack[Options]) -> BoundTool:
    """Adapt a tool: one of ours, a function, a LangChain tool, or an object with its parts.

    Args:
        source: The tool; a `BoundTool` is returned unchanged if there are no changes.
        **changes: Options that override the tool's own (see `ToolOptions`).

    Raises:
        ConfigError: It is not a tool, or lacks a name, a description or a valid schema.
    """
    if isinstance(source, BoundTool):
        if not changes:
            return source
        source = source.source
    parts = _parts(source)
    name = _usable_name(parts)
    try:
        options = options_of(parts.declares, changes)
        check = ArgumentCheck(parts.parameters, closed=parts.closed)
    except ConfigError as error:
        raise ConfigError(f"tool {name}: {error}") from error
    parameters = {"type": "object", "properties": {}, **parts.parameters}
    rename = parts.rename
    function = {"name": name, "description": parts.description, "parameters": parameters}
    return BoundTool(
        name=name,
        description=parts.description,
        parameters=parameters,
        replay=options.replay,
        timeout=options.timeout,
        max_output=options.max_output,
        return_direct=options.return_direct,
        retries=options.retries,
        concurrency=options.concurrency,
        is_async=parts.is_async,
        call=parts.call if parts.is_async else _plain(parts.call, name),
        check=(lambda args: check(rename(args))) if rename else check,
        schema={"type": "function", "function": function},
        limiter=_limiter(parts.declares, options.concurrency),
        source=source,
    )


def bind_tools(sources: Iterable[Any]) -> list[BoundTool]:
    """Adapt several tools.

    Raises:
        ConfigError: One of them is not a tool, or two have the same name.
    """
    bound = [bind_tool(source) for source in sources]
    seen: set[str] = set()
    for made in bound:
        if made.name in seen:
            raise ConfigError(f"two tools are called {made.name}; rename one of them")
        seen.add(made.name)
    return bound


@dataclass(frozen=True, slots=True)
class _Parts:
    name: Any
    description: Any
    parameters: Mapping[str, Any]
    call: Callable[[dict[str, Any], ToolContext], Any]
    is_async: bool
    closed: bool
    declares: object
    """The object with the options."""
    rename: Callable[[Any], Any] | None = None
    """Renames arguments from their aliases."""


def _parts(source: Any) -> _Parts:
    if inspect.isfunction(source) or inspect.ismethod(source):
        source = FuncTool.from_function(source)
    if isinstance(source, FuncTool):
        return _of_function(source)
    if isinstance(source, BaseTool):
        return _of_langchain(source)
    return _of_object(source)


def _of_function(source: FuncTool[Any, Any]) -> _Parts:
    return _Parts(
        name=source.name,
        description=source.description,
        parameters=source.parameters,
        call=source.execute,
        is_async=source.is_async,
        closed=source.closed,
        declares=source,
        rename=lambda args: source.renamed(args) if isinstance(args, dict) else args,
    )


def _of_langchain(source: BaseTool) -> _Parts:
    adapted = LangChainTool(source)
    return _Parts(
        name=source.name,
        description=adapted.description,
        parameters=adapted.parameters,
        call=adapted.acall if adapted.is_async else adapted.call,
        is_async=adapted.is_async,
        closed=adapted.closed,
        declares=adapted.declares,
    )


def _of_object(source: Any) -> _Parts:
    """Adapt an object with the four parts, as attributes or as methods without arguments."""
    parts = ("name", "description", "parameters", "execute")
    missing = [part for part in parts if not hasattr(source, part)]
    if missing or inspect.isclass(source):
        raise ConfigError(_refusal(source, missing))
    name, description, parameters = (_value(source, part) for part in parts[:3])
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"tool {name}: parameters must be a JSON schema of type object")
    call, closed = adapt(source.execute, parameters, str(name))
    return _Parts(
        name=name,
        description=description,
        parameters=parameters,
        call=call,
        is_async=is_async(source.execute),
        closed=closed,
        declares=source,
    )


def _value(source: Any, part: str) -> Any:
    value = getattr(source, part)
    return value() if callable(value) else value


def _refusal(source: Any, missing: list[str]) -> str:
    if inspect.isclass(source) and not missing:
        return f"{source.__name__} is a class, not a tool; pass an instance: {source.__name__}()"
    if isinstance(source, str):
        return (
            f"{source!r:.80} is a name, not a tool; pass the tool itself, "
            "or make built-in ones with wick_graph.tools.builtin"
        )
    lacks = f" (it has no {' and no '.join(missing)})" if len(missing) < 4 else ""
    return (
        f"{source!r:.80} is not a tool{lacks}; pass a function, a LangChain tool, "
        "or an object with name, description, parameters and execute"
    )


def _usable_name(parts: _Parts) -> str:
    name = sanitise_tool_name(parts.name) if isinstance(parts.name, str) else ""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"the tool name {parts.name!r:.80} is not usable; "
            "take 1 to 64 letters, digits, '_' and '-'"
        )
    if not isinstance(parts.description, str) or not parts.description.strip():
        raise ConfigError(f"tool {name} has no description; say what it does, for the model")
    return portable_tool_name(name)


def _limiter(declares: object, concurrency: int | None) -> Limiter | None:
    """Return the tool's own limiter, which all its bindings share, or make one."""
    own = getattr(declares, "limiter", None)
    if isinstance(own, Limiter) and own.n == concurrency:
        return own
    return Limiter(concurrency) if concurrency else None


def _plain(
    call: Callable[[dict[str, Any], ToolContext], Any], name: str
) -> Callable[[dict[str, Any], ToolContext], Any]:
    """Refuse a coroutine from a function not declared `async def`: it would never be awaited."""

    def called(args: dict[str, Any], ctx: ToolContext) -> Any:
        value = call(args, ctx)
        if inspect.iscoroutine(value):
            value.close()
            raise ToolError(f"tool {name} returned a coroutine; declare its function async def")
        return value

    return called
