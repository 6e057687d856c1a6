"""Where a moment stands, as people write it: `@12`, `@12.3`, `b1@12`, `t42/b1@12`, `#57`.

`@12` is the entry of step 12, the twelfth visit of a node, and `@12.3` the third moment in it.
`@-3` counts steps from the end; `@first`, `@last` and `@error` are what they say. A moment outside
of all nodes has its number alone, as in `#57`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry

_FORM: Final = re.compile(
    r"(?:(?P<thread>[A-Za-z0-9_.:-]{1,128})/)?(?:b(?P<branch>\d{1,9}))?"
    r"(?:@(?P<word>first|last|error)|@(?P<step>-?\d{1,9})(?:\.(?P<part>\d{1,9}))?|#(?P<seq>\d{1,12}))"
)
FORMS: Final = "@12, @12.3, @-1, @first, @last, @error, #57, or b1@12"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a thread's recording."""

    thread: str | None = None
    branch: int | None = None
    word: str | None = None
    """`first`, `last` or `error`."""
    step: int | None = None
    part: int | None = None
    """The moment within its step, from 1."""
    seq: int | None = None

    @classmethod
    def read(cls, text: str) -> Position:
        """Read a position.

        Raises:
            DebugError: It is none.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise DebugError(f"{text[:80]!r} is no position; write {FORMS}")
        numbers = {
            name: None if found[name] is None else int(found[name])
            for name in ("branch", "step", "part", "seq")
        }
        return cls(thread=found["thread"], word=found["word"], **numbers)

    def __str__(self) -> str:
        """Write it in full."""
        thread = f"{self.thread}/" if self.thread else ""
        branch = "" if self.branch is None else f"b{self.branch}"
        if self.seq is not None:
            return f"{thread}{branch}#{self.seq}"
        if self.word is not None:
            return f"{thread}{branch}@{self.word}"
        part = f".{self.part}" if self.part not in (None, 1) else ""
        return f"{thread}{branch}@{self.step}{part}"


class Steps:
    """Knows which moments each step of a recording has."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._seen = 0
        self._of: dict[int, list[int]] = {}

    def of(self, step: int) -> list[int]:
        """Return the places of a step's moments; empty where there is no such step."""
        for at in range(self._seen, len(self._entries)):
            if self._entries[at].step:
                self._of.setdefault(self._entries[at].step, []).append(at)
        self._seen = len(self._entries)
        return self._of.get(step, [])

    @property
    def last(self) -> int:
        """The number of the last step, 0 if there is none."""
        self.of(0)
        return max(self._of, default=0)

    def position(self, at: int, thread: str | None, branch: int) -> Position:
        """Say where the moment at a place stands."""
        entry = self._entries[at]
        if not entry.step:
            return Position(thread, branch, seq=entry.seq)
        return Position(thread, branch, step=entry.step, part=self.of(entry.step).index(at) + 1)

    def place(self, wanted: Position) -> int:
        """Return the place of a step's moment.

        Raises:
            DebugError: There is none.
        """
        step = wanted.step or 0
        if step < 0:
            step += self.last + 1
        held = self.of(step) if step > 0 else []
        if not held:
            raise DebugError(f"there is no step {wanted.step}; the last one is @{self.last}")
        part = 1 if wanted.part is None else wanted.part
        if not 1 <= part <= len(held):
            raise DebugError(
                f"step @{step} has {len(held)} moments, and no {part}; write @{step}.1"
            )
        return held[part - 1]
