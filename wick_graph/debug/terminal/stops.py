"""Commands about stops: breakpoints, watches, catches and log points."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wick_graph.debug import locations
from wick_graph.debug.breakpoints import Breakpoint, BreakpointSet
from wick_graph.debug.locations import CATCHES
from wick_graph.debug.terminal.registry import Command
from wick_graph.debug.terminal.reply import Reply
from wick_graph.debug.terminal.words import needs, number_of
from wick_graph.errors import DebugError, WickError

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell

PLACES: Final = (*locations.PLACES, "tool:*", "hook:*", "agent:*")
"""Locations that are offered for every agent."""
_CODE: Final = re.compile(r"\S+\.py:\d")
"""A line of Python code: whose it is, the agent knows."""
_MANY: Final = 200
"""Lines of a log point's past that are shown at once."""


def _add(word: str) -> Callable[[Shell, str], Reply]:
    def work(shell: Shell, rest: str) -> Reply:
        if not rest and word == "break":
            return _list(shell)
        if not rest:
            raise DebugError(f"say where: `help {word}` shows the form")
        session = shell.session
        if session.breakpoints.outline is None and _CODE.match(rest):
            with suppress(WickError):  # the breakpoint says that it needs one
                session.breakpoints.outline = shell.doors.look()
        made = session.add(f"{word} {rest}")
        if made.note:
            shell.session.breakpoints.delete(made.number)
            raise DebugError(f"{made.location} is never reached: {made.note}")
        lines = [line_of(made)]
        if word == "log":
            lines += _past(shell, made.number)
        return Reply(lines, data={"number": made.number, "spec": made.spec})

    return work


def _past(shell: Shell, number: int) -> list[str]:
    """Tell what a log point says of everything that was recorded already."""
    said = [output.text for output in shell.session.inspect.past_log(number)]
    if len(said) > _MANY:
        return [*said[:_MANY], f"… and {len(said) - _MANY} more"]
    return said


def _list(shell: Shell) -> Reply:
    every = list(shell.session.breakpoints)
    if not every:
        return Reply.of("there are no breakpoints; `break tool:*` makes one", data=[])
    data = [{"number": b.number, "spec": b.spec, "enabled": b.enabled} for b in every]
    return Reply([line_of(made) for made in every], data=data)


def line_of(made: Breakpoint) -> str:
    """Show a breakpoint."""
    parts = [f"{made.number:>3}  {made.spec}"]
    if not made.enabled:
        parts.append("(disabled)")
    if made.ignore:
        parts.append(f"(ignored {made.ignore} more times)")
    if made.hits:
        parts.append(f"(hit {made.hits} times)")
    if made.note:
        parts.append(f"({made.note})")
    return " ".join(parts)


def _each(change: Callable[[BreakpointSet, int], None], done: str) -> Callable[[Shell, str], Reply]:
    def work(shell: Shell, rest: str) -> Reply:
        wanted = [number_of(word, "a breakpoint's number") for word in rest.split()]
        numbers = wanted or [made.number for made in shell.session.breakpoints]
        for number in numbers:
            change(shell.session.breakpoints, number)
            if change is BreakpointSet.delete:
                shell.scripts.pop(number, None)
        count = "1 breakpoint" if len(numbers) == 1 else f"{len(numbers)} breakpoints"
        return Reply.of(f"{done} {count}", data=numbers)

    return work


def _condition(shell: Shell, rest: str) -> Reply:
    number, _, text = needs(rest, "which breakpoint: condition N [EXPR]").partition(" ")
    at = number_of(number, "a breakpoint's number")
    shell.session.breakpoints.condition(at, text.strip().removeprefix("if ") or None)
    return Reply([line_of(_one(shell, at))])


def _ignore(shell: Shell, rest: str) -> Reply:
    words = rest.split()
    if len(words) != 2:
        raise DebugError("write `ignore N COUNT`")
    at = number_of(words[0], "a breakpoint's number")
    shell.session.breakpoints.ignore(at, number_of(words[1]))
    return Reply([line_of(_one(shell, at))])


def _one(shell: Shell, number: int) -> Breakpoint:
    found = next((made for made in shell.session.breakpoints if made.number == number), None)
    if found is None:
        raise DebugError(f"there is no breakpoint {number}; `info breaks` lists them")
    return found


def _commands(shell: Shell, rest: str) -> Reply:
    every = list(shell.session.breakpoints)
    if not rest and every:
        return shell.collect(every[-1].number)
    number = number_of(needs(rest, "which breakpoint: commands N"), "a breakpoint's number")
    return shell.collect(_one(shell, number).number)


def _hits(shell: Shell, rest: str) -> Reply:
    number = number_of(needs(rest, "which breakpoint: hits N"), "a breakpoint's number")
    found = shell.session.inspect.hits(number)
    lines = [shell.session.inspect.line(entry) for entry in found] or ["it would stop nowhere"]
    return Reply(lines, data=[entry.seq for entry in found])


def _save(shell: Shell, rest: str) -> Reply:
    word, _, name = rest.partition(" ")
    if word != "breakpoints" or not name.strip():
        raise DebugError("write `save breakpoints FILE`")
    lines = shell.session.breakpoints.specs()
    path = Path(name.strip())
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        why = getattr(error, "strerror", None) or "that is no name of a file"
        raise DebugError(f"{path} cannot be written: {why}; name another file") from error
    return Reply.of(f"wrote {len(lines)} to {path}; `source {path}` sets them again")


_FORM: Final = (
    "LOC is a node (`tools`, `model:exit`), tool:NAME, tool:NAME:after, hook:NAME, model:request, "
    "model:response, route:LABEL, agent:NAME, handoff, interrupt, retry, compact, run, or "
    "FILE:LINE (`tools.py:12`, `agents.yaml:14`); * stands for any name"
)
COMMANDS: Final = (
    Command(
        ("break", "b"),
        "stops",
        "break LOC [if EXPR] [hit N]",
        f"stop there; {_FORM}",
        _add("break"),
    ),
    Command(("tbreak", "tb"), "stops", "tbreak LOC [if EXPR]", "stop there once", _add("tbreak")),
    Command(
        ("watch", "wa"),
        "stops",
        "watch CHANNEL[.path] [if EXPR]",
        "stop after it was written; backwards, this finds who wrote it",
        _add("watch"),
    ),
    Command(
        ("catch",), "stops", "catch WHAT [if EXPR]", f"stop at {', '.join(CATCHES)}", _add("catch")
    ),
    Command(
        ("log", "dprintf"),
        "stops",
        'log LOC "text {expr}" [if EXPR]',
        "say something there and go on; of what is recorded it is said at once",
        _add("log"),
    ),
    Command(("condition", "cond"), "stops", "condition N [EXPR]", "change a condition", _condition),
    Command(("ignore",), "stops", "ignore N COUNT", "pass it so many times", _ignore),
    Command(
        ("enable", "en"),
        "stops",
        "enable [N…]",
        "switch on",
        _each(BreakpointSet.enable, "enabled"),
    ),
    Command(
        ("disable", "dis"),
        "stops",
        "disable [N…]",
        "switch off",
        _each(BreakpointSet.disable, "disabled"),
    ),
    Command(
        ("delete", "d"), "stops", "delete [N…]", "remove", _each(BreakpointSet.delete, "deleted")
    ),
    Command(
        ("commands",), "stops", "commands [N]", "do the lines up to `end` at each stop", _commands
    ),
    Command(("hits",), "stops", "hits N", "list where it would have stopped", _hits),
    Command(("save",), "stops", "save breakpoints FILE", "write them to a file", _save),
)
