"""What is different between two values of JSON-like data, as a list of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from wick_graph.debug.paths import Path, write_path

Op = Literal["add", "remove", "change"]
MOST: Final = 1_000
"""Changes that are listed."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    path: str
    op: Op
    before: Any
    after: Any


def differences(before: Any, after: Any, path: Path = ()) -> list[Change]:
    """List what is different, the smallest parts that differ; at most `MOST`."""
    found: list[Change] = []
    for change in _changes(before, after, path):
        found.append(change)
        if len(found) >= MOST:
            break
    return found


def _changes(before: Any, after: Any, path: Path) -> Iterator[Change]:
    if before is after or before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    else:
        yield Change(write_path(path), "change", before, after)


def _of_objects(
    before: Mapping[str, Any], after: Mapping[str, Any], path: Path
) -> Iterator[Change]:
    for key in [*before, *(key for key in after if key not in before)]:
        here = (*path, key)
        if key not in after:
            yield Change(write_path(here), "remove", before[key], None)
        elif key not in before:
            yield Change(write_path(here), "add", None, after[key])
        else:
            yield from _changes(before[key], after[key], here)


def _of_lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Change]:
    """Compare lists: what both begin and end with is the same, and what stands between differs."""
    start = _same(before, after)
    stop = _same(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - stop], after[start : len(after) - stop]
    for at in range(max(len(old), len(new))):
        here = (*path, start + at)
        if at >= len(new):
            yield Change(write_path(here), "remove", old[at], None)
        elif at >= len(old):
            yield Change(write_path(here), "add", None, new[at])
        else:
            yield from _changes(old[at], new[at], here)


def _same(one: list[Any], other: list[Any]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a is not b and a != b:
            break
        count += 1
    return count
