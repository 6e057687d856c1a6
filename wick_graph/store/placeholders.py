"""Numbered placeholders of SQLite (`?1`) for the Pythons that warn of each.

Python 3.12.0 to 3.12.3 take them for names, and warn whenever a statement with them is run; Ubuntu
24.04 has 3.12.3. Later ones do not (CPython issue 117995).
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

_NUMBER: Final = re.compile(r"\?(\d+)")

_WARNS: Final = (3, 12) <= sys.version_info < (3, 12, 4)

Run = Callable[..., sqlite3.Cursor]
"""Runs a text on a connection with values, or with rows of values."""


def fitting(run: Run, *, warns: bool = _WARNS) -> Run:
    """Return what runs a statement without a warning: on most Pythons `run` itself."""
    if not warns:
        return run

    def plainly(connection: Any, text: str, values: Any) -> sqlite3.Cursor:
        plain, order = _plain(text)
        return run(connection, plain, [values[at] for at in order] if order else values)

    return plainly


def fitting_rows(run: Run, *, warns: bool = _WARNS) -> Run:
    """Return what runs a statement for many rows without a warning, as `fitting` does."""
    if not warns:
        return run

    def plainly(connection: Any, text: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        plain, order = _plain(text)
        if order:
            rows = ([row[at] for at in order] for row in rows)
        return run(connection, plain, rows)

    return plainly


@lru_cache(maxsize=1_024)
def _plain(text: str) -> tuple[str, list[int]]:
    """Return a text with `?` in place of numbers, and the index of the value of each.

    Our texts have values in no other form, so a `?` with a number is never part of a text in it.
    """
    order = [int(number) - 1 for number in _NUMBER.findall(text)]
    return (_NUMBER.sub("?", text), order) if order else (text, [])
