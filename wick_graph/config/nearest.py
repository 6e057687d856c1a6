"""The one place that guesses what a misspelt word was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 64
"""Characters; comparing costs the square of the length, and no name of ours is longer."""


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Find the candidate that looks most like a word, without regard to case.

    Returns None when nothing is close enough to be worth suggesting.
    """
    if len(word) > _LONGEST:
        return None
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Phrase the nearest candidate as `; did you mean X?`, or return an empty text."""
    guess = nearest(word, words)
    return f"; did you mean {guess}?" if guess else ""
