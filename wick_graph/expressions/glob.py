"""Match a text against a pattern of `*`, `?` and `[…]`, in bounded time and without regex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wick_graph.errors import ExpressionError

MAX_PATTERN: Final = 1_000
"""Characters of a pattern."""
_PER_STEP: Final = 64
"""Characters that are compared for one step of a budget."""

_Fits = Callable[[str], bool]
Spend = Callable[[int], None]


def glob_match(text: str, pattern: str, spend: Spend | None = None) -> bool:
    """Say whether a whole text fits a pattern; upper and lower case differ.

    `*` stands for any characters, `/` included, `?` for one, `[a-z]` for one of these and `[!a-z]`
    for one of all others. A `[` that is never closed stands for itself.

    Args:
        text: What is matched.
        pattern: At most `MAX_PATTERN` characters.
        spend: Told of the steps that it takes; may raise.

    Raises:
        ExpressionError: The pattern is too long.
    """
    parts = _parts(pattern)
    at, part, after_star, resume, steps = 0, 0, -1, 0, 0
    while at < len(text):
        steps += 1
        if spend is not None and steps % _PER_STEP == 0:
            spend(1)
        step = parts[part] if part < len(parts) else None
        if part < len(parts) and step is None:
            part += 1
            after_star, resume = part, at
        elif step is not None and step(text[at]):
            at, part = at + 1, part + 1
        elif after_star >= 0:  # the last star takes one character more
            resume += 1
            at, part = resume, after_star
        else:
            return False
    return all(step is None for step in parts[part:])


def _parts(pattern: str) -> list[_Fits | None]:
    """Read a pattern into tests for one character each; None is a star."""
    if len(pattern) > MAX_PATTERN:
        raise ExpressionError(f"the pattern has more than {MAX_PATTERN:,} characters")
    parts: list[_Fits | None] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        end = pattern.find("]", at + 2 + (pattern[at + 1 : at + 2] == "!")) if char == "[" else -1
        if end > 0:
            parts.append(_one_of(pattern[at + 1 : end]))
            at = end
        elif char != "*":
            parts.append(_any_char if char == "?" else char.__eq__)
        elif not parts or parts[-1] is not None:
            parts.append(None)
        at += 1
    return parts


def _any_char(char: str) -> bool:
    return True


def _one_of(listed: str) -> _Fits:
    wanted = not listed.startswith("!")
    listed = listed if wanted else listed[1:]
    ranges: list[tuple[str, str]] = []
    while listed:
        if len(listed) >= 3 and listed[1] == "-":
            ranges.append((listed[0], listed[2]))
            listed = listed[3:]
        else:
            ranges.append((listed[0], listed[0]))
            listed = listed[1:]
    return lambda char: any(low <= char <= high for low, high in ranges) is wanted
