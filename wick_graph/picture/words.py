"""Names that users chose, made safe to draw; how wide text is in cells and pixels; numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

from wick_graph.constants import TURNING

NAME_CHARS: Final = 100
"""Characters of a name that are drawn; what is longer ends in an ellipsis."""
_BAD: Final = "\ufffd"
_VISIBLE: Final[Mapping[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\v\f\r"},
    0x7F: "\u2421",
    **dict.fromkeys([*range(0x80, 0x85), *range(0x86, 0xA0)], _BAD),
    **{code: f"\\u{code:04x}" for code in TURNING},
    **dict.fromkeys(range(0xD800, 0xE000), _BAD),
    **dict.fromkeys([0xFFFE, 0xFFFF, *range(0xFDD0, 0xFDF0)], _BAD),
}
"""Control characters as pictures of themselves; what turns the reading direction as an escape; what
XML refuses as the sign for an unknown character."""


def clean(text: object, limit: int = NAME_CHARS) -> str:
    """Bring a name to one line in which no character acts."""
    line = " ".join(str(text)[: limit * 8].translate(_VISIBLE).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def cells(text: str) -> int:
    """Count the cells of a terminal that a text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# Advance widths of printable ASCII in thousandths of the font size, from DejaVu Sans and its bold:
# no wider sans-serif font is in common use, so text set in another one fits too.
_PLAIN: Final = (
    *(318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337),
    *(636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531),
    *(1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787),
    *(603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500),
    *(500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612),
    *(635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838),
)
_BOLD: Final = (
    *(348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365),
    *(696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580),
    *(1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850),
    *(733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500),
    *(500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687),
    *(716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838),
)
_PUNCTUATION: Final = {"…": 1000, "·": 400, "→": 838, "↓": 838, "×": 838, "≤": 838, "–": 500}
_WIDE: Final = 1300
"""Emoji and signs of unknown fonts, as wide as they come."""


def pixels(text: str, size: int, *, bold: bool = False) -> int:
    """Measure the width of a text in pixels; rounded up, and never too narrow."""
    table = _BOLD if bold else _PLAIN
    total = sum(table[ord(c) - 32] if " " <= c <= "~" else _width_of(c, table) for c in text)
    return -(-total * size // 1000)


def _width_of(char: str, table: tuple[int, ...]) -> int:
    if char in _PUNCTUATION:
        return _PUNCTUATION[char]
    kind = unicodedata.category(char)
    if kind in ("Mn", "Me"):
        return 0
    if unicodedata.east_asian_width(char) in "WF":
        return _WIDE if kind == "So" else 1000
    base = unicodedata.normalize("NFD", char)[0]
    if " " <= base <= "~":
        return table[ord(base) - 32]
    return 850 if kind[0] in "LN" and ord(char) < 0x600 else _WIDE


Measure = Callable[[str], int]


def wrapped(text: str, room: int, measure: Measure) -> list[str]:
    """Break a text into lines that fit, between words where that is possible."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if measure(longer) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        while measure(word) > room and len(word) > 1:
            cut = _fitting(word, room, measure)
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return [*lines, line] if line or not lines else lines


def _fitting(word: str, room: int, measure: Measure) -> int:
    """Say how many characters of a word fit, at least one; break behind an underscore if near."""
    cut = 1
    while cut < len(word) and measure(word[: cut + 1]) <= room:
        cut += 1
    for at in range(cut, cut // 2, -1):
        if word[at - 1] in "_-.:/":
            return at
    return cut


def span(seconds: float) -> str:
    """Write a duration for people."""
    if seconds < 0.001:
        return "0 ms" if seconds <= 0 else "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def count(number: int, one: str, many: str = "") -> str:
    """Write a number with its word in the right form."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
