"""LangGraph's channels, copied without being made anew.

To decide where the loop goes, LangGraph copies every channel of the state after each reply. Its own
copy asks the channel's type for an empty value first, and throws that away. These are the same
channels in everything else.
"""

from __future__ import annotations

from typing import Any, Self

from langgraph.channels import BaseChannel, BinaryOperatorAggregate, EphemeralValue


class Folded(BinaryOperatorAggregate[Any]):
    """A channel with a reducer."""

    __slots__ = ()

    def copy(self) -> Self:
        """Return a copy of the channel."""
        made = object.__new__(type(self))
        made.key, made.typ, made.operator = self.key, self.typ, self.operator
        made.value = self.value
        return made


class Passing(EphemeralValue[Any]):
    """A channel whose value lives for one step."""

    __slots__ = ()

    def copy(self) -> Self:
        """Return a copy of the channel."""
        made = object.__new__(type(self))
        made.key, made.typ, made.guard = self.key, self.typ, self.guard
        made.value = self.value
        return made


def quick(channel: BaseChannel[Any, Any, Any]) -> BaseChannel[Any, Any, Any]:
    """Return the quick form of an empty channel; itself where there is none."""
    if type(channel) is BinaryOperatorAggregate:
        made: BaseChannel[Any, Any, Any] = Folded(channel.typ, channel.operator)
    elif type(channel) is EphemeralValue:
        made = Passing(channel.typ, channel.guard)
    else:
        return channel
    made.key = channel.key
    return made
