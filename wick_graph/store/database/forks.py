"""Stores before and after a fork, and at the end of the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Final, Protocol

from wick_graph.errors import StorageError
from wick_graph.store.database.whose import OPENING


class Forked(Protocol):
    """What must know of a fork."""

    def before_fork(self) -> None:
        """Stand still."""

    def after_fork(self) -> None:
        """Go on in the parent."""

    def in_child(self) -> None:
        """Begin anew in the child."""

    def flush(self) -> None:
        """Commit what waits, because the process ends."""


_live: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()
_halted: Final[list[Forked]] = []
_watching: Final[list[bool]] = []


def watch(store: Forked) -> None:
    """Tell a store of every fork and of the end; it is held weakly."""
    if not _watching:
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
        _watching.append(True)
    _live.add(store)


def _at_exit() -> None:
    for store in list(_live):
        with contextlib.suppress(StorageError):
            store.flush()


def _before() -> None:
    for store in list(_live):
        store.before_fork()
        _halted.append(store)
    OPENING.acquire()


def _after() -> None:
    OPENING.release()
    while _halted:
        _halted.pop().after_fork()


def _in_child() -> None:
    OPENING.release()
    while _halted:
        _halted.pop().in_child()
