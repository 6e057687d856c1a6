"""The protocol of a tool: its declared options, and the context of a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, Protocol, get_args, runtime_checkable

from wick_graph import langgraph_config
from wick_graph.constants import MAX_RESULT_CHARS
from wick_graph.errors import ConfigError
from wick_graph.messages import ToolResult
from wick_graph.types import Replay

# --- A tool, and the context of its call.


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""Not declared: the engine's default applies. None means no limit."""


def _nothing_wrong(args: Any) -> str | None:
    return None


def _nothing_told() -> None:
    return None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Facts about one call. A function gets it in any parameter annotated with this class."""

    call_id: str
    """The model's id of the call."""
    name: str
    key: str
    """The call's key in the ledger. It stays the same if the call is repeated, so a tool that
    declares `replay="key"` can use it as an idempotency key."""
    index: int
    """The call's place in its reply, from 0."""
    attempt: int
    """1 for the first attempt."""
    thread_id: str | None
    run_id: str | None
    agent: str
    state: Mapping[str, Any] = field(repr=False)
    """The thread's state at the time of the call; read only."""
    config: Any = field(repr=False)
    """LangChain's `RunnableConfig` of the step."""
    replayed: bool = False
    """Whether the call may have run before: after a crash, a failure or a cancelled run, after an
    interrupt of the tool, in a further attempt, or if a hook calls it again."""
    allowed: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The arguments with which a person has approved this call; None without an approval."""
    check: Callable[[Any], str | None] = field(default=_nothing_wrong, repr=False, compare=False)
    """Return what is wrong with arguments for the named tool; None if nothing is."""
    told: Callable[[], Mapping[str, Any] | None] = field(
        default=_nothing_told, repr=False, compare=False
    )
    """Return the tool as the model sees it: name, description, schema; None without a tool."""
    folders: Sequence[str] = field(default=(), repr=False, compare=False)
    """Absolute names of the working directory of the agent's file tools; empty without them."""
    gate: Any = field(default=None, repr=False, compare=False)
    """Asks a person about the call (`wick_graph.runtime.tool_ledger.Gate`); None outside a run."""
    keep: Callable[[ToolResult, int], ToolResult] | None = field(default=None, repr=False)
    """Shortens a result with more code points than the tool may show; a hook that keeps long
    results sets it. Without it the middle is cut out and lost."""

    @property
    def context(self) -> Any:
        """The caller's context, of the agent's `context_schema`; None without one."""
        return langgraph_config.context_of(self.config)

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the conversation is held: `channel`, `chat_id`, `sender_id`; empty elsewhere."""
        return self.state.get("origin") or {}


@runtime_checkable
class Tool(Protocol):
    """A tool: anything with a name, a description, parameters and `execute`.

    Optional attributes control its calls: `replay`, `timeout`, `retries`, `concurrency`,
    `max_output` (see `ToolOptions`). `execute` may omit its second parameter and may be
    `async def`. It raises an exception to signal a failure; `ToolError` has a text for the model.
    """

    @property
    def name(self) -> str:
        """The tool's name for the model: letters, digits, `_` and `-`, at most 64."""
        ...

    @property
    def description(self) -> str:
        """The tool's description for the model; never empty."""
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


# --- Options that a tool declares besides its name and its schema.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Options that tell the engine how to run a tool's calls.

    Raises:
        ConfigError: A value is out of its range, or `retries` is set for a tool that may not run
            twice.
    """

    replay: Replay = "never"
    """What to do with a call that was running at a crash: `safe` repeats it, `key` repeats it
    with the same `ToolContext.key`, `never` tells the model that the outcome is unknown.
    """
    timeout: float | Unset | None = UNSET
    """Seconds; None for no limit."""
    retries: int = 0
    """Further attempts after an error; only if `replay` is `safe` or `key`."""
    concurrency: int | None = None
    """Concurrent calls of this tool in this process; None for no limit."""
    max_output: int | None = MAX_RESULT_CHARS
    """Code points of the result that the model sees; None for all."""
    return_direct: bool = False
    """Whether the result is the answer: a run ends with it if all its last calls are of such
    tools and none failed."""

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
    """Read an object's options from its attributes; `changes` override them."""
    values = {name: getattr(source, name) for name in _NAMES if hasattr(source, name)}
    return ToolOptions(**{**values, **(changes or {})})


def _seconds(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {value!r}")
