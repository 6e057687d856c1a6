"""The containers of one backend: launched when they are needed, one command at a time in each."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final, Literal

from wick_graph.backends.docker.box import Box, Shut
from wick_graph.errors import ConfigError

Status = Literal["idle", "launching", "launched", "error"]
_AT_ONCE: Final = 4
"""Commands of one backend that run at the same time; others wait."""


class Boxes:
    """Containers that are alike. A command gets one for itself, so that what it leaves is known.

    Args:
        make: Launches a container, given what it shows apart.
    """

    def __init__(self, make: Callable[[tuple[Shut, ...]], Box]) -> None:
        self._make: Final = make
        self._lock: Final = threading.Lock()
        self._places: Final = threading.BoundedSemaphore(_AT_ONCE)
        self._all: Final[set[Box]] = set()
        self._idle: Final[list[Box]] = []
        self._launching = 0
        self._failed = False
        self._close: Final = weakref.finalize(self, _kill, self._all)

    @property
    def status(self) -> Status:
        """Say whether a container is there; `error` after a launch that failed."""
        with self._lock:
            if self._launching:
                return "launching"
            if self._all:
                return "launched"
            return "error" if self._failed else "idle"

    def take(self, shut: tuple[Shut, ...]) -> Box:
        """Return a container in which nothing runs; it is given back by `give`.

        One that shows other things apart is killed, and another one launched.

        Raises:
            ConfigError: None can be launched.
        """
        self._places.acquire()
        try:
            while (box := self._waiting()) is not None:
                if box.shut == shut and box.runs():
                    return box
                self._forget(box)
            return self._launched(shut)
        except BaseException:
            self._places.release()
            raise

    def give(self, box: Box, *, killed: bool) -> None:
        """Take a container back, or forget one that is gone."""
        with self._lock:
            keep = not killed and box in self._all
            if keep:
                self._idle.append(box)
        if not keep:
            self._forget(box)
        self._places.release()

    def stop(self) -> None:
        """Kill all containers; a command that runs in one ends as killed."""
        with self._lock:
            boxes = list(self._all)
            self._all.clear()
            self._idle.clear()
            self._failed = False
        for box in boxes:
            box.kill()

    def _waiting(self) -> Box | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _launched(self, shut: tuple[Shut, ...]) -> Box:
        with self._lock:
            self._launching += 1
        box = None
        try:
            box = self._make(shut)
        finally:
            with self._lock:
                self._launching -= 1
                self._failed = box is None
                if box is not None:
                    self._all.add(box)
        return box

    def _forget(self, box: Box) -> None:
        with self._lock:
            self._all.discard(box)
        box.kill()


def _kill(boxes: set[Box]) -> None:
    for box in list(boxes):
        try:
            box.kill()
        except (ConfigError, OSError):  # the engine has gone before us
            return
