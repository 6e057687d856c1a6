"""What a command answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Reply:
    """One answer, for people as lines and for programs as data."""

    lines: list[str] = field(default_factory=list)
    data: Any = None
    stop: Any = None
    """The `Stop` that a verb ended in."""
    quits: bool = False

    @classmethod
    def of(cls, *lines: str, data: Any = None) -> Reply:
        """Answer with lines."""
        return cls(list(lines), data)
