"""The debugger's command language for terminals and programs: one line in, one reply out."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final

from wick_graph.debug.fork import Plan
from wick_graph.debug.locations import CATCHES
from wick_graph.debug.session import DebugSession
from wick_graph.debug.terminal import change_commands, look_commands, move_commands
from wick_graph.debug.terminal.registry import Command, Commands, Reply, on_ctrl_c
from wick_graph.debug.terminal.show import short
from wick_graph.debug.types import Stop
from wick_graph.engine.result import answer_in
from wick_graph.errors import DebugError, WickError
from wick_graph.picture.model import clean

# --- The debugger's command language: one line in, one reply out.


COMMANDS: Final = Commands(
    [
        *move_commands.MOVE_COMMANDS,
        *move_commands.STOP_COMMANDS,
        *look_commands.LOOK_COMMANDS,
        *change_commands.CHANGE_COMMANDS,
        *change_commands.FILE_COMMANDS,
    ]
)

HIT: Final = frozenset({"breakpoint", "watch", "catch", "condition-error", "divergence"})
"""Reasons of stops that the user set."""

_WORD: Final = re.compile(r"\s*([@#][^\s]*|[^\s@#]+)\s*(.*)", re.DOTALL)

_NAME: Final = 40
"""Characters of a tool's name in the prompt: a model may have made it up."""

_DEEPEST: Final = 20
"""Limit of nested files and command lists."""


def _no_agent() -> Any:
    raise DebugError("there is no agent here; name one: wick debug AGENT")


def _end(session: DebugSession) -> None:
    with contextlib.suppress(WickError):
        session.abort("Ctrl-C in the debugger")


def _no_export(form: str, file: Path | None) -> list[str]:
    raise DebugError("nothing can be exported from here; use wick export")


@dataclass(slots=True)
class Doors:
    """Callbacks of the command around the shell."""

    agent: Callable[[], Any] = _no_agent
    """Makes the agent when something must execute."""
    look: Callable[[], Any] = _no_agent
    """Makes the agent for a replay: real hooks, and a model that is never called."""
    export: Callable[[str, Path | None], list[str]] = _no_export
    draw: Callable[[], list[str]] = lambda: ["the graph is not known here"]
    edit: Callable[[str], str | None] = lambda text: None
    """Lets a person edit a text; returns None if unchanged."""


@dataclass(slots=True)
class Shell:
    """The state of one command line."""

    session: DebugSession
    doors: Doors = field(default_factory=Doors)
    interactive: bool = False
    """Whether a person is at the terminal: Ctrl-C then pauses a run instead of ending all."""
    last_stop: Stop | None = None
    failed: bool = False
    """Whether a command was refused."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Commands that this face does not have, each with the reason."""
    frame: int = 0
    """The chosen frame, counted from the innermost."""
    plan: Plan | None = None
    """A prepared fork for `live`."""
    edits: dict[str, Any] = field(default_factory=dict)
    """Edits at the moment `edits_at`; the next `set` there adds to them."""
    edits_at: str = ""
    displays: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    scripts: dict[int, list[str]] = field(default_factory=dict)
    """Commands of breakpoints."""
    outer: list[DebugSession] = field(default_factory=list)
    """The sessions around the present replay or sub-agent."""
    _repeated: str = ""
    _collecting: int | None = None
    _depth: int = 0

    @property
    def commands(self) -> Commands:
        """All commands."""
        return COMMANDS

    @property
    def prompt(self) -> str:
        """The prompt, with mode and position."""
        if self._collecting is not None:
            return "> "
        session = self.session
        here = session.here
        if here is None:
            return f"(wdb {session.mode}) "
        what = here.what if here.kind != "tool" else f"{here.what} {clean(here.name, _NAME)}"
        return f"(wdb {session.mode} {session.position} {what}) "

    def execute(self, line: str) -> Reply:
        """Execute one command.

        Raises:
            WickError: It is refused, with the reason. User input never raises anything else.
        """
        line = line.strip()
        if self._collecting is not None:
            return self._collect(line)
        if not line:
            line = self._repeated
        if not line or line.startswith("# "):
            return Reply()
        command, rest = self._parsed(line)
        if (why := self.refused.get(command.names[0])) is not None:
            raise DebugError(why)
        self._repeated = line if command.repeats else ""
        return command.work(self, rest)

    def run(self, lines: Iterable[str]) -> Iterator[tuple[str, Reply | WickError]]:
        """Execute commands in order; a refused one does not stop the rest."""
        for line in lines:
            reply: Reply | WickError
            try:
                reply = self.execute(line)
            except WickError as error:
                self.failed = True
                reply = error
            yield line, reply
            if isinstance(reply, Reply) and reply.quits:
                return

    def all_of(self, lines: Iterable[str]) -> Reply:
        """Execute the commands of a file or a breakpoint, as one.

        Raises:
            WickError: One of them is refused.
        """
        if self._depth >= _DEEPEST:
            raise DebugError("commands run within each other without end; stop calling themselves")
        made = Reply()
        self._depth += 1
        try:
            for line in lines:
                reply = self.execute(line)
                made.lines += reply.lines
                made.stop = reply.stop or made.stop
                if reply.quits:
                    made.quits = True
                    break
        finally:
            self._depth -= 1
        return made

    def wait(self, work: Callable[[], Any]) -> Any:
        """Execute a long call; Ctrl-C asks the run to stop at its next point, twice ends it."""
        if not self.interactive:
            return work()
        with on_ctrl_c(self._pressed), ThreadPoolExecutor(1, "wick-debug") as pool:
            return pool.submit(work).result()

    def _pressed(self, presses: int) -> None:
        """Ask the run or its replay to stop or to end."""
        for session in (self.session, self.session.replayed):
            if session is None:
                continue
            if presses == 1:
                session.pause()
            else:
                Thread(target=_end, args=(session,), name="wick-debug-abort", daemon=True).start()

    def needs_agent(self) -> None:
        """Make the agent before something executes.

        Raises:
            WickError: There is none, or it cannot be built.
        """
        if self.session.agent is None:
            self.session.agent = self.doors.agent()

    @property
    def is_below(self) -> bool:
        """Whether the session is that of a sub-agent, not a replay."""
        return bool(self.outer) and self.outer[-1].replayed is not self.session

    def enter(self, session: DebugSession) -> None:
        """Enter another session."""
        self.outer.append(self.session)
        self.session, self.frame, self.plan = session, 0, None

    def leave(self) -> None:
        """Return to the session before.

        Raises:
            DebugError: There is none.
        """
        if not self.outer:
            raise DebugError("this is no replay and no sub-agent; `quit` leaves the debugger")
        self.session.close()
        self.session, self.frame, self.plan = self.outer.pop(), 0, None

    def close(self) -> None:
        """Leave all replays."""
        while self.outer:
            self.leave()

    def stopped(self, stop: Stop) -> Reply:
        """Report a stop, with the displayed expressions and the breakpoint's commands."""
        self.last_stop = stop
        self.frame, self.edits_at = 0, ""
        reply = Reply(stop=stop)
        if stop.text:
            reply.lines += stop.text.splitlines()
        if stop.entry is not None and stop.moved:
            reply.lines.append(self.session.inspect.line(stop.entry))
        if stop.reason == "finished":
            reply.lines += self._answer()
        if stop.reason == "end" and self.interactive:
            reply.lines.append("`rc` goes back; `live` really goes on, after `fork @N` from there")
        for text in self.displays:
            reply.lines.append(self._displayed(text))
        script = self.scripts.get(stop.breakpoint) if stop.breakpoint is not None else None
        if script and stop.reason in HIT:
            inner = self.all_of(script)
            reply.lines += inner.lines
            reply.stop = inner.stop or stop
            reply.quits = inner.quits
        return reply

    def collect(self, number: int) -> Reply:
        """Read the following lines, up to `end`, as a breakpoint's commands."""
        self._collecting = number
        self.scripts[number] = []
        said = f"commands of breakpoint {number}, one a line; `end` ends them"
        return Reply([said] if self.interactive else [])

    @property
    def at(self) -> str | None:
        """The place for queries; None for the cursor."""
        if not self.frame:
            return None
        frames = self.session.inspect.where()
        if self.frame >= len(frames) or frames[self.frame].seq is None:
            return None
        return f"#{frames[self.frame].seq}"

    def complete(self, line: str) -> list[str]:
        """Return completions for the last word of a line."""
        words = line.split(" ")
        if len(words) <= 1:
            found = [*COMMANDS.names(), *self.aliases]
        elif words[0] in ("help", "h"):
            found = [*COMMANDS.names(), *change_commands.TOPICS]
        else:
            try:
                command = self._parsed(" ".join(words[:-1]))[0]
            except WickError:
                return []
            closed = _CLOSED.get(command.names[0])
            found = list(closed or (*move_commands.PLACES, *self._offered(words[-1])))
        return sorted({word for word in found if word.startswith(words[-1])})

    def _offered(self, word: str) -> list[str]:
        try:
            return list(self.session.inspect.complete(word)) if word else []
        except WickError:
            return []

    def _answer(self) -> list[str]:
        """Show the last output of a finished run."""
        result = self.session.result
        return answer_in(result).splitlines() if isinstance(result, dict) else []

    def _displayed(self, text: str) -> str:
        try:
            return f"{text} = {short(self.session.value(text))}"
        except WickError as error:
            return f"{text}: {error}"

    def _parsed(self, line: str) -> tuple[Command, str]:
        found = _WORD.match(line)
        if found is None:
            raise DebugError("there is no command in this line")
        name, rest = found[1], found[2].strip()
        if name[0] in "@#" or re.fullmatch(r"b\d+@.*", line.strip()):
            return COMMANDS.find("goto", self.aliases), line.strip()
        if name in self.aliases:
            return self._parsed(f"{self.aliases[name]} {rest}".strip())
        return COMMANDS.find(name, self.aliases), rest

    def _collect(self, line: str) -> Reply:
        assert self._collecting is not None
        if line == "end":
            self._collecting = None
        elif line:
            self.scripts[self._collecting].append(line)
        return Reply()


_CLOSED: Final[dict[str, tuple[str, ...]]] = {
    "info": tuple(look_commands.TOPICS),
    "export": change_commands.FORMS,
    "catch": CATCHES,
}


# --- A person at the terminal: prompt, history and completion by the standard library's
# readline.


_LONGEST: Final = 2_000
"""Lines in the history."""

_DELIMITERS: Final = " \t\n"


def talk(shell: Shell, write: Callable[[str], None], complain: Callable[[str], None]) -> None:
    """Read commands until `quit` or the end of the input."""
    shell.interactive = True
    with _line_editor(shell):
        while True:
            try:
                line = input(shell.prompt)
            except EOFError:
                write("")
                return
            except KeyboardInterrupt:
                write("")
                continue
            try:
                reply = shell.execute(line)
            except WickError as error:
                complain(str(error))
                continue
            except KeyboardInterrupt:
                complain("cancelled")
                continue
            for said in reply.lines:
                write(said)
            if reply.quits:
                return


def history_file() -> Path:
    """Return the history file, by the XDG base directory specification."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "wick" / "debug_history"


@contextlib.contextmanager
def _line_editor(shell: Shell) -> Iterator[None]:
    """Use readline if Python has it."""
    try:
        import readline  # noqa: PLC0415  # not every platform has it
    except ImportError:
        yield
        return
    path = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_LONGEST)
    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(_Completer(shell, readline))
    editline = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(path)
            path.chmod(0o600)


class _Completer:
    def __init__(self, shell: Shell, readline: Any) -> None:
        self._shell = shell
        self._readline = readline
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._found = self._shell.complete(line.lstrip())
        return self._found[state] if state < len(self._found) else None


# --- The machine interface: a command a line in, a JSON object a line out.
#
# A line is a command, or `{"id": …, "command": "…"}`. Each is answered with
# `{"id", "ok", "lines", "data", "stop", "position", "mode"}`, or with `"ok": false` and `"error"`.
# Output of the session comes as `{"event": "output", "text": …}`.


def answer(shell: Shell, line: str) -> tuple[dict[str, Any], bool]:
    """Execute one line, and return its reply and whether the session is over."""
    number: Any = None
    try:
        number, command = _command(line)
        reply = shell.execute(command)
    except WickError as error:
        shell.failed = True
        return refused(error, number), False
    return {"id": number, **reply_data(shell, reply)}, reply.quits


def refused(error: WickError, number: Any = None) -> dict[str, Any]:
    """Return an error as data."""
    return {"id": number, "ok": False, "error": str(error), "code": error.code}


def reply_data(shell: Shell, reply: Reply) -> dict[str, Any]:
    """Return a reply as data."""
    session = shell.session
    return {
        "ok": True,
        "lines": reply.lines,
        "data": reply.data,
        "stop": None if reply.stop is None else stop_of(reply.stop),
        "position": None if session.here is None else str(session.position),
        "mode": session.mode,
    }


def stop_of(stop: Any) -> dict[str, Any]:
    """Return a stop as data."""
    return {
        "reason": stop.reason,
        "position": str(stop.position),
        "mode": stop.mode,
        "breakpoint": stop.breakpoint,
        "text": stop.text,
        "moved": stop.moved,
        "seq": None if stop.entry is None else stop.entry.seq,
    }


def output_of(output: Any) -> dict[str, Any]:
    """Return output of the session as data."""
    return {"event": "output", "kind": output.kind, "seq": output.seq, "text": output.text}


def _command(line: str) -> tuple[Any, str]:
    if not line.lstrip().startswith("{"):
        return None, line
    try:
        given = json.loads(line)
        return given.get("id"), str(given["command"])
    except (ValueError, KeyError, AttributeError) as error:
        raise DebugError('a line is a command, or {"id": …, "command": "…"}') from error
