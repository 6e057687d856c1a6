"""Durations as people write them: `30s`, `5m`, `1h`, `7d`, `1h30m`, `never`."""

from __future__ import annotations

import math
import re
from typing import Final

from wick_graph.errors import ConfigError

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}

_NUMBER: Final = r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"

_WRITTEN: Final = re.compile("".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS), re.ASCII)

_PLAIN: Final = re.compile(_NUMBER, re.ASCII)

_PARTS: Final = "".join(f"(?:{_NUMBER}{unit})?" for unit in _UNITS)

_SOME: Final = f"(?=.*[1-9])(?:{_NUMBER}|{_PARTS})"

PATTERN: Final = f"^(?:never|{_SOME})$"
"""Regular expression of a duration above 0, for JSON Schema."""

LIMIT_PATTERN: Final = f"^{_SOME}$"
"""The same without `never`."""

LONGEST_TEXT: Final = 40
"""Characters of a duration."""

LONGEST_SECONDS: Final = 36_500 * 86_400
"""A hundred years; anything longer means `never`, and overflows a date."""

_FORMS: Final = "30s, 5m, 1h, 7d, never, or a number of seconds"


def seconds(value: object) -> float | None:
    """Convert a duration from a configuration into seconds; `never` becomes None.

    Units run from long to short (`1h30m`, not `30m1h`), each once.

    Raises:
        ConfigError: it is not a duration, is negative, or is longer than a hundred years.
    """
    if isinstance(value, str):
        if value == "never":
            return None
        number = _parse(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # an int may be too large to become a float
        number = math.inf if value > LONGEST_SECONDS else float(max(value, -1))
    else:
        number = None
    if number is None or math.isnan(number) or number < 0:
        raise ConfigError(f"not a duration; write {_FORMS}")
    if number > LONGEST_SECONDS:
        raise ConfigError("longer than a hundred years; write never")
    return number


def _parse(text: str) -> float | None:
    if not text or len(text) > LONGEST_TEXT:
        return None
    if _PLAIN.fullmatch(text):
        return float(text)
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return None
    parts = zip(written.groups(), _UNITS.values(), strict=True)
    return math.fsum(float(amount) * unit for amount, unit in parts if amount)


def human(value: float | None) -> str:
    """Format seconds as `seconds` reads them, to the millisecond; None is `never`."""
    if value is None:
        return "never"
    rest = round(abs(value) * 1000)
    parts: list[str] = []
    for unit, size in _UNITS.items():
        if unit == "s":
            break
        whole, rest = divmod(rest, size * 1000)
        if whole:
            parts.append(f"{whole}{unit}")
    if rest or not parts:
        parts.append(f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return ("-" if value < 0 else "") + "".join(parts)
