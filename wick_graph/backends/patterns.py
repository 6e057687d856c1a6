"""What a model searches for, as RE2 expressions that a worker process compiles.

Python's own `re` never sees a pattern of a model: it backtracks, holds the interpreter's lock
meanwhile, and cannot be stopped. RE2 takes linear time, but a pattern may stand for a million
parts: repetition is bounded here, before anything is compiled, and `Worker` can be killed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wick_graph.backends.limits import MAX_PATTERN_CHARS, MAX_REPEATED
from wick_graph.errors import ToolError

_SHOWN_CHARS: Final = 100
_NO_LOOKS: Final = "look-around and back-references are not supported"
_LOOKS: Final = re.compile(r"\(\?(<?[=!]|<$)|invalid escape sequence: \\[1-9]")
_ASCII: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\f\r "}
_RUST_META: Final = frozenset("\\.+*?()|[]{}^$#&-~")
_REPETITION: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as a worker is given it."""

    given: str
    """What the model wrote; errors show it."""
    text: str
    """The RE2 expression."""
    options: Mapping[str, bool] = field(default_factory=dict)
    """Of RE2."""


def glob_pattern(pattern: str) -> Pattern:
    """Translate a glob that matches a whole relative path, or a name if it has no `/` and no `**`.

    `*` and `?` stay within a component, `**` as a component stands for any number of them,
    `[a-z]`, `[!a-z]` and `{a,b}` mean what they do in a shell, a backslash takes the next
    character literally.

    Raises:
        ToolError: The pattern is not well-formed, or leads out of the directory.
    """
    _must_be_plain(pattern)
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError(
            f"the pattern {_shown(pattern)} leads outside of the directory that is searched; "
            "write a relative one and give the directory as `path`"
        )
    return Pattern(pattern, _Glob(pattern).translate(), {"dot_nl": True})


def is_by_name(pattern: str) -> bool:
    """Say whether a glob is matched against names alone."""
    return "/" not in pattern and "**" not in pattern


def line_pattern(pattern: str) -> Pattern:
    """Take a regular expression to be searched in many lines at once; it matches within one.

    Raises:
        ToolError: The pattern is too large, or no text.
    """
    _must_be_plain(pattern)
    parts = repeated_parts(pattern)
    if parts > MAX_REPEATED:
        raise ToolError(
            f"the pattern is too large: its repetitions stand for {parts:,} parts, at most "
            f"{MAX_REPEATED:,} are searched for"
        )
    anchored = pattern
    if r"\Q" not in pattern:
        anchored = "".join({r"\A": "^", r"\z": "$"}.get(part, part) for part in _tokens(pattern))
    return Pattern(pattern, f"(?m){anchored}", {"never_nl": True})


def repeated_parts(pattern: str) -> int:
    """Count the parts that a pattern's counted repetitions stand for, those in others multiplied.

    Ends at the first count that is too large.
    """
    total, last, inside = 0, 1, 0
    groups: list[int] = []
    """Parts that each open group stands for so far."""
    here = 0
    for part in _tokens(pattern):
        counted = None if inside else _REPETITION.fullmatch(part)
        if inside:
            inside = 0 if part == "]" and inside > 1 else 1 + (part != "^" or inside > 1)
            continue
        if counted is not None:
            times = max(int(number[:9] or 0) for number in (counted[1], counted[3]))
            here, last = here + last * max(times - 1, 0), last * max(times, 1)
            total = max(total, here + sum(groups))
            if total > MAX_REPEATED:
                return total
        elif part == ")" and groups:
            here, last = here + groups.pop(), max(here, 1)
        elif part.startswith("("):
            groups.append(here)
            here = 0
        elif part not in ("*", "+", "?", "|"):
            here, last = here + 1, 1
            inside = int(part == "[")
    return total


def for_ripgrep(pattern: str) -> str | None:
    """Write a pattern of RE2 so that ripgrep means the same by it; None if that cannot be done.

    RE2 takes the classes of digits, letters and spaces for ASCII, ripgrep for Unicode, and they
    differ in what has to be escaped.
    """
    out: list[str] = []
    inside = 0  # how far a bracket is open: 1 right behind it, 2 later
    for part in _tokens(pattern):
        made = _in_class(part, inside) if inside else _outside(part)
        if made is None or (inside and part == out[-1] == "-"):  # `--` would take away
            return None
        if inside:
            inside = 0 if part == "]" and inside > 1 else 1 + (part != "^" or inside > 1)
        else:
            inside = int(part == "[")
        out.append(made)
    text = "".join(out)
    return None if "$^" in text else text  # an empty line: ripgrep's fast path passes it over


def _tokens(pattern: str) -> list[str]:
    """Split into escapes, repetitions, named classes, openings of named groups, and characters."""
    return re.findall(
        r"\\[pP]\{[^}]*\}|\\[pP].|\\x\{[^}]*\}|\\x..|\\.|\{\d+(?:,\d*)?\}|\[:\^?\w+:\]"
        r"|\(\?P?<\w+>|.",
        pattern,
        re.DOTALL,
    )


def _outside(part: str) -> str | None:
    if part.startswith("(?<"):
        return f"(?P{part[2:]}"
    if part in ("{", "}", "]"):
        return f"\\{part}"
    if not part.startswith("\\"):
        return part
    letter = part[1]
    if letter.lower() in _ASCII:
        return f"[{'^' if letter.isupper() else ''}{_ASCII[letter.lower()]}]"
    if letter in "bB":
        return f"(?-u:{part})"
    if letter in "Az":
        return "^" if letter == "A" else "$"
    return _escape(part)


def _in_class(part: str, inside: int) -> str | None:
    if part in ("[", "&", "~") or (part == "]" and inside == 1):
        return f"\\{part}"
    if part.startswith("(") or (part.startswith("{") and len(part) > 1):
        return part
    if not part.startswith("\\"):
        return part
    letter = part[1]
    if letter.lower() in _ASCII:
        return f"[^{_ASCII[letter.lower()]}]" if letter.isupper() else _ASCII[letter.lower()]
    return None if letter in "bBAz" else _escape(part)


def _escape(part: str) -> str | None:
    letter = part[1]
    if letter in "pPx" or letter in "aftrv":
        return part
    if letter.isalnum():  # \Q, \C, octal numbers, and \n, which no line has
        return None
    return part if letter in _RUST_META else letter


class _Glob:
    """Translate a glob, character by character."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._braces = 0

    def translate(self) -> str:
        """Return the RE2 expression."""
        out = []
        while self._at < len(self._text):
            out.append(self._next())
        if self._braces:
            raise self._error("a { is never closed")
        return "".join(out)

    def _next(self) -> str:
        rest = self._text[self._at :]
        starts = self._at == 0 or self._text[self._at - 1] == "/"
        if starts and rest.startswith("**/"):
            self._at += 3
            return "(?:.*/)?"
        if starts and rest == "**":
            self._at += 2
            return ".*"
        char = rest[0]
        self._at += 1
        if char == "*":
            return "[^/]*"
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._bracket()
        if char == "\\":
            return self._literal()
        return self._brace(char) if char in "{}," else re.escape(char)

    def _literal(self) -> str:
        if self._at == len(self._text):
            raise self._error("it ends with a backslash")
        self._at += 1
        return re.escape(self._text[self._at - 1])

    def _brace(self, char: str) -> str:
        if char == "{":
            self._braces += 1
            return "(?:"
        if not self._braces:
            return re.escape(char)
        if char == ",":
            return "|"
        self._braces -= 1
        return ")"

    def _bracket(self) -> str:
        negated = self._text[self._at : self._at + 1] in ("!", "^")
        start = self._at + negated
        end = self._text.find("]", start + 1)
        if end < 0:
            raise self._error("a [ is never closed")
        self._at = end + 1
        body = "".join(
            c if c == "-" or c.isalnum() else re.escape(c) for c in self._text[start:end]
        )
        return f"[{'^/' if negated else ''}{body}]"

    def _error(self, problem: str) -> ToolError:
        return ToolError(f"the pattern {_shown(self._text)} is no valid glob: {problem}")


def _must_be_plain(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(
            f"the pattern is too large: {len(pattern):,} characters, "
            f"at most {MAX_PATTERN_CHARS:,} are searched for"
        )
    if "\0" in pattern:
        raise ToolError("the pattern has a NUL character, which no text file has")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise ToolError("the pattern has half of a surrogate pair; write valid text") from None


def refused(given: str, reason: str) -> str:
    """Say why RE2 does not take a pattern."""
    if "repetition size" in reason or "too large" in reason or "nest" in reason:
        return f"the pattern is too large: {_cut(reason)}"
    if _LOOKS.search(reason) or (reason.endswith("(?P") and "(?P=" in given):
        return f"{_NO_LOOKS} in the pattern {_shown(given)}; write it without"
    return f"the pattern {_shown(given)} is not valid: {_cut(reason)}"


def _shown(pattern: str) -> str:
    return ascii(_cut(pattern)) if not pattern.isprintable() else f"'{_cut(pattern)}'"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
