"""What others are shown of a thread: copies of their own, made when they are taken out.

Hooks, tools and middleware of other people's making read the thread through these views; a model
is given the messages themselves, for a copy of all at each call would cost as much as the thread.
Nothing is copied before somebody looks at it, so a view costs the same however long the thread is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, SupportsIndex, TypeVar

from wick_graph.errors import HookError
from wick_graph.messages.copies import owned

V = TypeVar("V")


class StateView(Mapping[str, Any]):
    """The thread's state, read only: what is taken out is a copy, another one each time.

    Raises:
        HookError: Something is put into it or taken away from it.
    """

    __slots__ = ("_state",)

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        # Plain lists of copies: much code, pydantic's too, reads a list past its methods.
        return owned(self._state[name])

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
