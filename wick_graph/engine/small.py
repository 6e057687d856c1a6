"""Containers of a run that mostly hold nothing, or one thing, while its model thinks.

An empty deque takes 760 bytes, and so does each exit stack and queue that is made of one.
"""

from __future__ import annotations

import contextlib
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
