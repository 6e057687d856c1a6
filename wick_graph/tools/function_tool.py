"""Make tools from functions."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from wick_graph.errors import ConfigError
from wick_graph.tools.limiter import Limiter
from wick_graph.tools.protocol import ToolContext, ToolOptions, Unset
from wick_graph.tools.signature import Execute, adapt, is_async, read_signature
from wick_graph.types import Replay

P = ParamSpec("P")

R = TypeVar("R")


class Options(TypedDict, total=False):
    """The keyword arguments of `ToolOptions`."""

    replay: Replay
    timeout: float | Unset | None
    retries: int
    concurrency: int | None
    max_output: int | None
    return_direct: bool


class FuncTool(Generic[P, R]):
    """A function as a tool, with a name, a description and a JSON schema.

    If the function's first parameter is named `args`, it gets all arguments as a dictionary, and
    the `ToolContext` as its second parameter, if any. Any other function gets the arguments by
    name, and the context in a parameter annotated with it. It may be `async def`. The tool can be
    called like the function.

    Args:
        name: The tool's name for the model.
        description: The tool's description for the model.
        parameters: A JSON schema of type `object`.
        fn: The function.
        aliases: Alternative argument names, each with the real name.
        agents: The agents to which it delegates, with their descriptions.
        **options: See `ToolOptions`.

    Raises:
        ConfigError: The function cannot be called with these arguments, or an option is wrong.
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        fn: Callable[P, R],
        *,
        aliases: Mapping[str, str] | None = None,
        agents: Mapping[str, str] | None = None,
        _adapted: tuple[Execute, bool] | None = None,
        **options: Unpack[Options],
    ) -> None:
        functools.update_wrapper(self, fn)
        self.name: Final = name
        self.description: Final = description
        self.parameters: Final = dict(parameters)
        self.fn: Final = fn
        self.aliases: Final = dict(aliases or {})
        self.agents: Final = dict(agents or {})
        self.is_async: Final = is_async(fn)
        self._execute, self.closed = _adapted or adapt(fn, parameters, name)
        checked = ToolOptions(**options)
        self.replay: Final = checked.replay
        self.timeout: Final = checked.timeout
        self.retries: Final = checked.retries
        self.concurrency: Final = checked.concurrency
        self.limiter: Final = Limiter(checked.concurrency) if checked.concurrency else None
        """Shared by all agents with this tool."""
        self.max_output: Final = checked.max_output
        self.return_direct: Final = checked.return_direct

    @classmethod
    def from_function(
        cls,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        aliases: Mapping[str, str] | None = None,
        scope: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> FuncTool[P, R]:
        """Make a tool; read what is not given from the function's name, hints and docstring."""
        signature = read_signature(fn, scope)
        call = cast(Callable[..., Any], fn)
        return cls(
            name or str(getattr(fn, "__name__", "")),
            signature.description if description is None else description,
            signature.parameters,
            fn,
            aliases=aliases,
            _adapted=((lambda args, ctx: call(**signature.arguments(args, ctx))), True),
            **options,
        )

    def execute(self, args: dict[str, Any], ctx: ToolContext | None = None) -> Any:
        """Call the function with valid arguments; return a coroutine if it is async.

        Raises:
            ToolError: An argument cannot be converted to its declared type.
        """
        return self._execute(self.renamed(args), ctx)

    def renamed(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments under the names of the schema."""
        found = {old: new for old, new in self.aliases.items() if old in args and new not in args}
        return {found.get(name, name): value for name, value in args.items()} if found else args

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


@overload
def tool(fn: Callable[P, R], /) -> FuncTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    aliases: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> Callable[[Callable[P, R]], FuncTool[P, R]]: ...


def tool(
    fn: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    aliases: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> FuncTool[P, R] | Callable[[Callable[P, R]], FuncTool[P, R]]:
    """Make a tool from a function: `@tool`, or `@tool(replay="safe", timeout=5)`.

    The schema comes from the type hints, the description from the docstring, the descriptions of
    the arguments from its `Args` section.

    Raises:
        ConfigError: A parameter's type has no JSON schema, there is no description, or an option
            is wrong.
    """
    scope = sys._getframe(1).f_locals  # a parameter's class may be local to the caller

    def make(fn: Callable[P, R]) -> FuncTool[P, R]:
        made = FuncTool.from_function(
            fn, name=name, description=description, aliases=aliases, scope=scope, **options
        )
        if not made.description.strip():
            raise ConfigError(
                f"tool {made.name} has no description; "
                "give the function a docstring or pass description="
            )
        return made

    return make if fn is None else make(fn)
