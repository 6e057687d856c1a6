"""Where a value stands in its file, and how an error says so: `agents.yaml:12: agents.x.model`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from wick_graph.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the top of the file; `()` is the file itself."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN: Final = 40
"""Characters of a strange key that an error shows."""
_STEPS: Final = 12
"""Steps of a path that an error shows; no block of ours lies deeper."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Lines of one file by key path, with what stands elsewhere than it seems to."""

    source: str
    """What the file is called in errors."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """First line of each key and list item, counted from 1."""
    written_at: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Prefixes that the file spells differently: a key taken from `defaults:`, a single agent."""

    def origin(self, path: KeyPath) -> KeyPath:
        """Translate a path of the loaded configuration into the path in the file."""
        for length in (3, 2):
            prefix = self.written_at.get(path[:length])
            if prefix is not None and len(path) >= length:
                return prefix + path[length:]
        return path

    def line(self, path: KeyPath) -> int | None:
        """Find the line of a path or, for what is missing, of the nearest block around it."""
        here = self.origin(path)
        while here and here not in self.lines:
            here = here[:-1]
        return self.lines.get(here)

    def sentence(self, path: KeyPath, text: str) -> str:
        """Put file, line and key path in front of a text."""
        line = self.line(path)
        where = one_line(self.source) + ("" if line is None else f":{line}")
        keys = key_path(self.origin(path))
        return f"{where}: {keys}: {text}" if keys else f"{where}: {text}"

    def error(self, path: KeyPath, text: str) -> ConfigError:
        """Make the error for one path; the caller raises it."""
        return ConfigError(self.sentence(path, text))


def key_path(path: KeyPath) -> str:
    """Spell a path as people do: `agents.default.tools[0]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{show_key(step)}" for step in path]
    if len(parts) > _STEPS:
        parts[_STEPS:] = ["…"]
    return "".join(parts).removeprefix(".")


def show_key(key: str) -> str:
    """Show a key on one line: as it is if it is ordinary, else quoted, escaped and cut."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    return json.dumps(key if len(key) <= _SHOWN else key[:_SHOWN] + "…", ensure_ascii=True)


def one_line(text: str) -> str:
    """Escape what would break a sentence out of its line."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
