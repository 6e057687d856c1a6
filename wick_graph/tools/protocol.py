"""The protocol of a tool: its declared options, and the context of a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, Protocol, get_args, runtime_checkable

from wick_graph.constants import MAX_RESULT_CHARS
from wick_graph.errors import ConfigError
from wick_graph.messages import ToolResult
from wick_graph.types import Replay

# --- What a tool is, and what it is told about the call that it answers.


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""Nothing was declared, so the engine's default holds; None means that there is no limit."""


def _nothing_wrong(args: Any) -> str | None:
    return None


def _nothing_told() -> None:
    return None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Facts about one call. A function gets it in any parameter that is annotated with it."""

    call_id: str
    """The id under which the model knows the call."""
    name: str
    key: str
    """The call's key in the ledger: the same when the call is repeated, so fit for use as an
    idempotency key by a tool that declares `replay="key"`."""
    index: int
    """The call's place in the reply that asked for it, from 0."""
    attempt: int
    """1 for the first attempt."""
    thread_id: str | None
    run_id: str | None
    agent: str
    state: Mapping[str, Any] = field(repr=False)
    """The thread's state when the call was made; read only."""
    config: Any = field(repr=False)
    """LangChain's `RunnableConfig` of the step."""
    replayed: bool = False
    """True where the call runs again, or may: after a crash, a failure or a cancelled run, after an
    interrupt that the tool raised, at a further attempt, or because a hook calls it once more."""
    allowed: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The arguments with which a person has allowed this very call; None where nobody was asked."""
    check: Callable[[Any], str | None] = field(default=_nothing_wrong, repr=False, compare=False)
    """Say what is wrong with arguments for the tool that the model named; None if nothing is."""
    told: Callable[[], Mapping[str, Any] | None] = field(
        default=_nothing_told, repr=False, compare=False
    )
    """Give what the model is told of the tool: name, description, schema. None if there is none."""
    folders: Sequence[str] = field(default=(), repr=False, compare=False)
    """Absolute names of the folder that the agent's file tools start from; empty without them."""
    gate: Any = field(default=None, repr=False, compare=False)
    """What asks a person about the call (`wick_graph.runtime.tool_ledger.Gate`); None outside of a
    run."""
    keep: Callable[[ToolResult, int], ToolResult] | None = field(default=None, repr=False)
    """What a hook that keeps long results makes of one that has more code points than its tool
    may show; without it the middle is cut out and lost."""


@runtime_checkable
class Tool(Protocol):
    """Anything with a name, a description, parameters and `execute` is a tool.

    Optional attributes say how it may be called: `replay`, `timeout`, `retries`, `concurrency`,
    `max_output` (see `ToolOptions`). `execute` may leave out its second parameter, and may be
    `async def`. It signals a failure by raising; `ToolError` carries a text for the model.
    """

    @property
    def name(self) -> str:
        """What the model calls it by: letters, digits, `_` and `-`, at most 64."""
        ...

    @property
    def description(self) -> str:
        """What the model is told about it; never empty."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The arguments as a JSON schema of type `object`."""
        ...

    def execute(self, args: dict[str, Any], ctx: ToolContext, /) -> Any:
        """Run the call.

        Returns:
            Text, anything that can be written as JSON, a `ToolResult`, or a LangChain
            `ToolMessage` or `Command`.
        """
        ...


# --- How a tool may be called: what it declares beside its name and its schema.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Declare what the engine may do with a tool's calls.

    Raises:
        ConfigError: A value is out of its range, or `retries` is set for a tool that may not run
            twice.
    """

    replay: Replay = "never"
    """What may happen to a call that was under way at a crash: `safe` runs it again, `key` runs
    it again with the same `ToolContext.key`, `never` tells the model that the outcome is unknown.
    """
    timeout: float | Unset | None = UNSET
    """Seconds; None for no limit."""
    retries: int = 0
    """Further attempts after an error; only where `replay` is `safe` or `key`."""
    concurrency: int | None = None
    """Calls of this tool that may run at once in this process; None for no limit."""
    max_output: int | None = MAX_RESULT_CHARS
    """Code points of the result that the model sees; None for all of them."""
    return_direct: bool = False
    """The result is the answer: a run whose last calls are all of such tools ends with it, unless
    one of them failed."""

    def __post_init__(self) -> None:
        if self.replay not in get_args(Replay):
            raise ConfigError(f"replay must be safe, never or key, not {self.replay!r}")
        if not (self.timeout is None or self.timeout is UNSET or _seconds(self.timeout)):
            raise ConfigError(
                f"timeout must be a number of seconds above 0, or None, not {self.timeout!r}"
            )
        _at_least("retries", self.retries, 0)
        if self.concurrency is not None:
            _at_least("concurrency", self.concurrency, 1)
        if self.max_output is not None:
            _at_least("max_output", self.max_output, 1)
        if not isinstance(self.return_direct, bool):
            raise ConfigError(f"return_direct must be true or false, not {self.return_direct!r}")
        if self.retries and self.replay == "never":
            raise ConfigError(
                "only a tool that may run twice can be retried; "
                "declare replay='safe' or replay='key', or leave retries at 0"
            )


_NAMES: Final = tuple(field.name for field in fields(ToolOptions))


def options_of(source: object, changes: Mapping[str, Any] | None = None) -> ToolOptions:
    """Read the options that an object has as attributes; `changes` come before them."""
    values = {name: getattr(source, name) for name in _NAMES if hasattr(source, name)}
    return ToolOptions(**{**values, **(changes or {})})


def _seconds(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {value!r}")
