"""Commands by name and abbreviation, their arguments, replies and help."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from wick_graph.errors import DebugError

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell


# --- The reply of a command.


@dataclass(slots=True)
class Reply:
    """One reply: lines for people, data for programs."""

    lines: list[str] = field(default_factory=list)
    data: Any = None
    stop: Any = None
    """The `Stop` that a verb ended in."""
    quits: bool = False

    @classmethod
    def of(cls, *lines: str, data: Any = None) -> Reply:
        """Make a reply from lines."""
        return cls(list(lines), data)


# --- Parse lines and arguments.


_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)

_SIGN: Final = re.compile(r"\\.|[\"'()\[\]{};]", re.DOTALL)

_QUOTES: Final = "\"'"

_CLOSES: Final = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
"""The closing sign of each opening one."""


def commands_in(text: str) -> list[str]:
    """Split a line at the semicolons outside of quotes and brackets.

    Raises:
        DebugError: A quote or bracket is never closed, and a semicolon follows it.
    """
    made: list[str] = []
    begin, opened = 0, ""
    for found in _SIGN.finditer(text):
        sign = found[0]
        if opened[-1:] in _QUOTES and opened:
            opened = opened[:-1] if sign == opened[-1] else opened
        elif sign in _CLOSES:
            opened += _CLOSES[sign]
        elif opened and sign == opened[-1]:
            opened = opened[:-1]
        elif sign == ";" and not opened:
            made.append(text[begin : found.start()])
            begin = found.end()
    rest = text[begin:]
    if opened and ";" in rest:
        raise DebugError(
            f"{opened[-1]} is missing in {rest.strip()[:80]!r}; close it, or write its command last"
        )
    return [part.strip() for part in [*made, rest] if part.strip()]


def unquoted(text: str) -> str:
    """Return an expression without quotes around it, as in a shell."""
    if _QUOTED.fullmatch(text) is None:
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def words_of(text: str) -> list[str]:
    """Split arguments as a shell does.

    Raises:
        DebugError: A quotation mark is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise DebugError(f"{text[:80]!r} cannot be read: {str(error).lower()}") from None


def json_of(text: str) -> Any:
    """Read a JSON value; other text is taken as a string, unless it begins like JSON.

    Raises:
        DebugError: It begins like JSON and is invalid.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise DebugError(f"{text[:80]!r} is no JSON: {error}") from None
        return text


def number_of(text: str, what: str = "a number") -> int:
    """Read a number.

    Raises:
        DebugError: It is not a number.
    """
    try:
        return int(text)
    except ValueError:
        raise DebugError(f"{text[:40]!r} is not {what}") from None


def needs(rest: str, what: str) -> str:
    """Return a required argument.

    Raises:
        DebugError: It is missing.
    """
    if not rest:
        raise DebugError(f"say {what}")
    return rest


# --- Ctrl-C as a request, not as an exception at any point.


@contextlib.contextmanager
def on_ctrl_c(do: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the number of presses so far, instead of a KeyboardInterrupt.

    It is called between two instructions of the block, so it may set a flag or start a thread, and
    must not wait for a lock. Outside of the main thread Python gets no signals, and this does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    presses = 0

    def pressed(number: int, frame: Any) -> None:
        nonlocal presses
        presses += 1
        do(presses)

    before = signal.signal(signal.SIGINT, pressed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- Commands by name and abbreviation, with their help.


Work = Callable[["Shell", str], Reply]

GROUPS: Final = ("run", "back", "stops", "look", "change", "compare", "files")


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    names: tuple[str, ...]
    """The name, then its abbreviations."""
    group: str
    usage: str
    help: str
    work: Work
    repeats: bool = False
    """Whether an empty line repeats it."""


class Commands:
    """All commands; a prefix of a name works if it is unique."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.all = tuple(commands)
        self._by_name: dict[str, Command] = {}
        for command in self.all:
            for name in command.names:
                assert name not in self._by_name, name
                self._by_name[name] = command

    def names(self) -> list[str]:
        """Return all names and abbreviations."""
        return sorted(self._by_name)

    def find(self, name: str, aliases: Mapping[str, str]) -> Command:
        """Return a command by its name, an abbreviation, or a prefix of its name.

        Raises:
            DebugError: There is none, or the prefix is ambiguous.
        """
        found = self._by_name.get(name)
        if found is not None:
            return found
        begun = {c.names[0] for c in self.all if c.names[0].startswith(name)} if name else set()
        if len(begun) == 1:
            return self._by_name[begun.pop()]
        if begun:
            raise DebugError(f"{name} may be {', '.join(sorted(begun))}; write more of it")
        near = difflib.get_close_matches(name, [*self._by_name, *aliases], 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else "`help` lists the commands"
        raise DebugError(f"there is no command {name[:40]!r}; {hint}")

    def overview(self) -> list[str]:
        """List the commands by group."""
        lines: list[str] = []
        for group in GROUPS:
            names = ["/".join(c.names[:2]) for c in self.all if c.group == group]
            lines += _wrapped(f"{group:<8}", names)
        lines.append("`help NAME` tells of one, `help positions` and `help expressions` of these;")
        lines.append("an empty line repeats the last step")
        return lines


def _wrapped(head: str, names: list[str], width: int = 96) -> list[str]:
    lines, line = [], head
    for name in names:
        if len(line) + len(name) + 2 > width:
            lines.append(line)
            line = " " * len(head)
        line += f"  {name}"
    return [*lines, line]
