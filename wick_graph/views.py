"""What others are shown of a thread: copies of their own, made when they are taken out.

Hooks, tools, middleware and models of other people's making read the thread through these views.
Nothing is copied before somebody looks at it, so a view costs the same however long the thread is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, SupportsIndex, TypeVar

from langchain_core.messages import BaseMessage

from wick_graph.errors import HookError
from wick_graph.messages.copies import owned, private

V = TypeVar("V")
MESSAGES: Final = "messages"


class PrivateList(list[BaseMessage]):
    """A list of messages that belongs to its holder, as do the messages in it.

    It begins with messages of the thread, and exchanges each for a copy when it is first taken
    out. The holder may change the list and the copies; the thread never changes with them.
    """

    __slots__ = ("_base",)

    def __init__(self, messages: Sequence[BaseMessage] = ()) -> None:
        super().__init__(messages)
        self._base: Sequence[BaseMessage] = messages
        """What stood in each place at first, which is not this list's own."""

    def _own(self, at: int) -> BaseMessage:
        message = super().__getitem__(at)
        if at < len(self._base) and message is self._base[at]:
            message = private(message)
            super().__setitem__(at, message)
        return message

    def __iter__(self) -> Iterator[BaseMessage]:
        at = 0
        while at < len(self):
            yield self._own(at)
            at += 1

    def __reversed__(self) -> Iterator[BaseMessage]:
        return (self._own(at) for at in range(len(self) - 1, -1, -1))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._own(at) for at in range(*index.indices(len(self)))]
        at = index.__index__()
        return self._own(at + len(self) if -len(self) <= at < 0 else at)

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> Any:
        return [*self] * times

    __rmul__ = __mul__

    def copy(self) -> list[BaseMessage]:
        """Return a plain list of the same copies."""
        return [*self]

    __copy__ = copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, ([*self],)


def _settled(name: str) -> Callable[..., Any]:
    """Make a method of `list` that moves elements: first each of them becomes the list's own."""
    change = getattr(list, name)

    def method(self: PrivateList, *args: Any, **options: Any) -> Any:
        for _ in self:
            pass
        self._base = ()
        return change(self, *args, **options)

    method.__name__, method.__doc__ = name, change.__doc__
    return method


for _name in ("insert", "pop", "remove", "sort", "reverse", "clear"):
    setattr(PrivateList, _name, _settled(_name))
for _name in ("__setitem__", "__delitem__", "__imul__"):
    setattr(PrivateList, _name, _settled(_name))


class StateView(Mapping[str, Any]):
    """The thread's state, read only: what is taken out is a copy, another one each time.

    Raises:
        HookError: Something is put into it or taken away from it.
    """

    __slots__ = ("_state",)

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        value = self._state[name]
        if name == MESSAGES and isinstance(value, list):
            return PrivateList(value)
        return owned(value)

    def __contains__(self, name: object) -> bool:
        return name in self._state

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"StateView({dict(self)!r})"

    def __or__(self, other: Any) -> Any:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> dict[str, Any]:
        """Return a dict of copies."""
        return dict(self)

    __copy__ = copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise HookError("the state is read only; return what is to change as a state update")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = setdefault = clear = _refuse


def state_view(state: Mapping[str, Any]) -> StateView:
    """Show a state to somebody who may not change it."""
    return state if isinstance(state, StateView) else StateView(state)


def raw(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state behind a view: the thread's own values, which nobody may change."""
    return state._state if isinstance(state, StateView) else state


def peek(state: Mapping[str, Any], name: str, default: V | None = None) -> Any | V | None:
    """Read one value of a state as it is; for code of ours, which changes nothing."""
    return raw(state).get(name, default)
