"""LangGraph's channels with a faster copy.

For the routing decision, LangGraph copies every channel of the state after each reply, and for each
run those of the graph. Its own copy first creates an empty value of the channel's type, and
discards it. In all else these are the same channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from langgraph.channels import BaseChannel, BinaryOperatorAggregate, EphemeralValue
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from wick_graph.langgraph_config import TASKS

MISSING: Final = EphemeralValue(object).value
"""LangGraph's mark of a channel without a value."""

STEP_NAMES: Final = (
    *("__start__", "__input__", "before_agent", "modify_request", "model", "tools"),
    *("branch:to:before_agent", "branch:to:modify_request", "branch:to:model", TASKS),
    *("messages", "request", "usage", "iteration", "stop_reason"),
)
"""The nodes and channels that the rows of a turn name; a new thread gets them together."""

_COPIED: Final = frozenset({list, dict, set})

_EMPTY: Final = _COPIED | {str, int, float, bool, tuple}
"""Types with a known empty value; immutable ones are shared."""

_PLAIN: Final = frozenset({list, str, int, float, bool, tuple, type(None)})
"""Types without an `Overwrite` among their values."""


class FastReducerChannel(BinaryOperatorAggregate[Any]):
    """A channel with a reducer."""

    __slots__ = ()

    def copy(self) -> Self:
        """Return a copy of the channel."""
        made = object.__new__(type(self))
        made.key, made.typ, made.operator = self.key, self.typ, self.operator
        made.value = self.value
        return made

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return the channel with a stored value; an empty one without it."""
        held = type(self.value)
        if isinstance(checkpoint, _DeltaSnapshot) or self.value or held not in _EMPTY:
            return super().from_checkpoint(checkpoint)
        made = self.copy()
        if checkpoint is not MISSING:
            made.value = checkpoint
        elif held in _COPIED:
            made.value = held()
        return made

    def update(self, values: Sequence[Any]) -> bool:
        """Reduce the values of a step; one that LangGraph must look into takes its own way."""
        if len(values) == 1 and type(values[0]) in _PLAIN and self.value is not MISSING:
            self.value = self.operator(self.value, values[0])
            return True
        return super().update(values)


class FastEphemeralChannel(EphemeralValue[Any]):
    """A channel with a value for one step."""

    __slots__ = ()

    def copy(self) -> Self:
        """Return a copy of the channel."""
        made = object.__new__(type(self))
        made.key, made.typ, made.guard = self.key, self.typ, self.guard
        made.value = self.value
        return made


def with_fast_copy(channel: BaseChannel[Any, Any, Any]) -> BaseChannel[Any, Any, Any]:
    """Return an empty channel with a faster copy; itself if its type has none."""
    if type(channel) is BinaryOperatorAggregate:
        made: BaseChannel[Any, Any, Any] = FastReducerChannel(channel.typ, channel.operator)
    elif type(channel) is EphemeralValue:
        made = FastEphemeralChannel(channel.typ, channel.guard)
    else:
        return channel
    made.key = channel.key
    return made
