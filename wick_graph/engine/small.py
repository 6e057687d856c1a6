"""Containers of a run that mostly hold nothing, or one thing, while its model thinks.

An empty deque takes 760 bytes, and so does each exit stack and queue that is made of one.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Final

MANY: Final = 64
"""From so many things on, a deque is quicker."""


class Few(list[Any]):
    """A queue of a few things."""

    __slots__ = ()

    def popleft(self) -> Any:
        """Remove and return the first one."""
        return self.pop(0)


class ExitStack(contextlib.ExitStack):
    """A stack of a few callbacks."""

    def __init__(self) -> None:
        self._exit_callbacks = Few()


class AsyncExitStack(contextlib.AsyncExitStack):
    """A stack of a few callbacks."""

    def __init__(self) -> None:
        self._exit_callbacks = Few()


class WeakMethod:
    """A method that does not keep its object; `weakref`'s own makes a function for each."""

    __slots__ = ("_function", "_owner")

    def __init__(self, method: Any) -> None:
        self._owner, self._function = weakref.ref(method.__self__), method.__func__

    def __call__(self) -> Callable[..., Any] | None:
        """Return the method; None if its object is gone."""
        owner = self._owner()
        return None if owner is None else MethodType(self._function, owner)


def own_names(kind: type[Any]) -> tuple[str, ...]:
    """Return what objects of a class declare to hold, as slots of a subclass.

    A dict takes five times as much, and is not shared between objects of more than 30 names.
    """
    declared = (name for base in kind.__mro__ for name in vars(base).get("__annotations__", ()))
    return tuple(name for name in dict.fromkeys(declared) if not hasattr(kind, name))
