"""Go through the files below a directory, in order, without following links and within bounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from wick_graph.backends.guard import OWN_FOLDER
from wick_graph.backends.limits import MAX_DEPTH, SKIPPED_DIRS
from wick_graph.backends.protocol import Stop
from wick_graph.backends.root import Root
from wick_graph.errors import ToolError

_LOOK_EVERY: Final = 256  # names between two looks at the clock


@dataclass(slots=True)
class Walk:
    """One walk: what it may cost, and what it passed over."""

    root: Root
    seconds: float
    stop: Stop = field(default_factory=Stop)
    passed: Counter[str] = field(default_factory=Counter)
    """What was not looked at, counted by reason."""
    cut: bool = False
    """The walk ended early, or did not go into everything."""
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends = time.monotonic() + self.seconds

    def is_over(self) -> bool:
        """Say whether time is up or nobody waits any more."""
        if self.stop.is_set() or time.monotonic() > self._ends:
            self.cut = True
            self.passed["time"] = 1
            return True
        return False

    def left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._ends - time.monotonic())

    def files(self, rel: str) -> Iterator[str]:
        """Yield the regular files below a directory as paths relative to it, sorted.

        Raises:
            ToolError: The directory itself cannot be listed.
        """
        pending: list[tuple[str, int]] = [("", 0)]
        seen = 0
        while pending:
            below, depth = pending.pop()
            try:
                names = self.root.names(f"{rel}/{below}" if below else rel)
            except (ToolError, OSError):
                if not below:
                    raise
                self.passed["directories that cannot be read"] += 1
                continue
            deeper: list[tuple[str, int]] = []
            for name, kind in names:
                seen += 1
                if seen % _LOOK_EVERY == 0 and self.is_over():
                    return
                if kind == "file":
                    yield below + name
                elif kind == "dir":
                    self._enter(f"{below}{name}/", name, depth, deeper)
                else:
                    self.passed["symbolic links" if kind == "symlink" else "special files"] += 1
            pending.extend(reversed(deeper))
            if self.is_over():
                return

    def _enter(self, path: str, name: str, depth: int, deeper: list[tuple[str, int]]) -> None:
        if name == OWN_FOLDER:
            return
        if name in SKIPPED_DIRS:
            self.passed["directories such as .git and node_modules"] += 1
        elif depth >= MAX_DEPTH:
            self.passed[f"directories more than {MAX_DEPTH} deep"] += 1
            self.cut = True
        else:
            deeper.append((path, depth + 1))

    def notes(self) -> tuple[str, ...]:
        """Say what was passed over."""
        found = [f"{n:,} {what}" for what, n in self.passed.items() if what != "time"]
        said = [f"not searched: {', '.join(found)}"] if found else []
        if self.passed["time"]:
            said.append(f"the search was stopped after {self.seconds:g} s; name a directory below")
        return tuple(said)
