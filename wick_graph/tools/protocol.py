"""What a tool is, and what it is told about the call that it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable

from wick_graph.messages import ToolResult


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
    """What asks a person about the call (`wick_graph.approving.Gate`); None outside of a run."""
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
