"""What the commands print: answers on standard output, everything else on standard error.

Text of models and tools is never read as markup. Its control characters are made visible, so that
it cannot move the cursor or set colours. This holds on a terminal and in every listing, since a
pipe may end at a terminal too. Only an answer goes into a pipe unchanged.
"""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import typer

from wick_graph.constants import TURNING
from wick_graph.errors import ConfigError, HookError, RunError, StorageError, ToolError, WickError

FAILED: Final = 1
"""Exit code: the run, or the database, failed."""

REFUSED: Final = 2
"""Exit code: the command line or the configuration is wrong; nothing was done."""

CANCELLED: Final = 130
"""Exit code after Ctrl-C, as in shells."""

TERMINATED: Final = 143
"""Exit code after SIGTERM, as in shells."""

PIPE_CLOSED: Final = 141
"""Exit code if the reader of standard output has left, as in shells."""

_WIDE: Final = 100_000

_LEAST: Final = 12
"""Least width of a table's last column, however narrow the terminal is."""

_NOT_A_TERMINAL: Final = 120

_VISIBLE: Final[Mapping[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    ord("\r"): "",
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}
"""Control characters, each with a visible stand-in that a terminal does not obey."""

_ESCAPED: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *TURNING)}
"""Those that JSON leaves as they are."""

_LISTED: Final = {**_VISIBLE, **{code: f"\\u{code:04x}" for code in TURNING}}
"""As above, with the marks that reverse text: an answer may be Arabic, but a name would lie."""


def prepare() -> None:
    """Write UTF-8 into pipes and files, and never fail on a character that cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        if stream.isatty():
            reconfigure(errors="backslashreplace")
        else:
            reconfigure(encoding="utf-8", errors="backslashreplace")


_THRESHOLD: Final = 50_000
"""New objects before the garbage collector looks at them: imports make many, and hardly a cycle."""


def spare_collections() -> None:
    """Let the garbage collector of a process of our own look less often."""
    gc.set_threshold(_THRESHOLD, *gc.get_threshold()[1:])


def settle() -> None:
    """Let it pass over our libraries once they are loaded: a process ends with two looks at all.

    A user's objects come later: what they hold in cycles, such as a file, is collected at the end.
    """
    if gc.get_threshold()[0] == _THRESHOLD and not gc.get_freeze_count():  # else not our process
        gc.freeze()


def silence() -> None:
    """Discard further output: its reader has left."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:  # noqa: PTH123  # a device
                os.dup2(nothing.fileno(), stream.fileno())


def no_dash(file: Path | None) -> Path | None:
    """Refuse `-` as a file to write: elsewhere it is standard input, never a name.

    Raises:
        ConfigError: The file is `-`.
    """
    if file == Path("-"):
        raise ConfigError("- is no name for a file; name the file to write")
    return file


def unicode(word: str) -> str:
    """Return an argument or a typed line as text: a locale without UTF-8 leaves its bytes in it."""
    try:
        return os.fsencode(word).decode()
    except UnicodeError:  # it is text, or no text at all
        return word


def safe(text: str) -> str:
    """Make control characters visible; line ends and tabs stay."""
    return text.translate(_LISTED)


def shorten(text: str, width: int) -> str:
    """Shorten a text to one line of at most `width` characters."""
    line = safe(" ".join(text[: width * 8].split()))
    return line if len(line) <= width else line[: max(width - 1, 1)] + "…"


def line_width() -> int:
    """Return the width of a line on standard error."""
    if not is_terminal(sys.stderr):
        return _NOT_A_TERMINAL
    return max(shutil.get_terminal_size().columns, 40)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def write(text: str) -> None:
    """Write an answer to standard output at once: unchanged into a pipe, safe on a terminal.

    Raises:
        BrokenPipeError: The reader has left.
        StorageError: The output is a file, and cannot be written.
    """
    _put(text.translate(_VISIBLE) if is_terminal(sys.stdout) else text)


def _put(text: str) -> None:
    if sys.stdout is None:
        raise BrokenPipeError
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise StorageError(f"the output cannot be written: {why}; send it elsewhere") from error


def print_line(text: str = "") -> None:
    """Write a line to standard output with control characters made visible."""
    write(safe(text) + "\n")


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write one JSON value with control characters escaped; other objects become their text."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    write(text.translate(_ESCAPED) + "\n")


def say(text: str, *, dim: bool = False) -> None:
    """Write a line to standard error with control characters made visible."""
    if sys.stderr is None:
        return
    line = safe(text)
    if dim and is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        line = f"\x1b[2m{line}\x1b[0m"
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Write an error to standard error; each line begins with the command's name."""
    for line in text.splitlines() or [""]:
        say(f"wick: {line}")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write aligned columns; on a terminal the last one is cut to fit the line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [
        [Text(" ".join(safe(cell).split()), overflow="ellipsis") for cell in row] for row in rows
    ]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    columns = zip(headers, *cells, strict=True)
    whole = [max(len(header), *(cell.cell_len for cell in col)) for header, *col in columns]
    whole[-1] = _LEAST
    for header, least in zip(headers, whole, strict=True):
        made.add_column(header, no_wrap=True, overflow="ellipsis", min_width=least)
    for row in cells:
        made.add_row(*row)
    width = _WIDE
    if is_terminal(sys.stdout):
        width = max(shutil.get_terminal_size().columns, sum(whole) + 2 * len(whole))
    drawn, styled = io.StringIO(), is_terminal(sys.stdout)
    plain: Any = {"markup": False, "highlight": False, "emoji": False}
    Console(file=drawn, force_terminal=styled, width=width, **plain).print(made)
    _put("".join(line.rstrip() + "\n" for line in drawn.getvalue().splitlines()))


def exit_code(error: BaseException) -> int:
    """Return the exit code for what ended a command before or after its run.

    A database that fails (its error has a cause) is a failure. One that is refused, because it is
    foreign or has an unreadable address, is a wrong configuration.
    """
    if isinstance(error, HookError | RunError | ToolError):
        return FAILED
    if isinstance(error, StorageError) and error.__cause__ is not None:
        return FAILED
    return REFUSED if isinstance(error, WickError) else FAILED


def sentence(error: BaseException) -> str:
    """Describe an error in one sentence; point to `--debug` if it may be a bug here."""
    if isinstance(error, WickError):
        return str(error) or type(error).__name__
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"unexpected error ({what}); run it again with --debug to see where it comes from"


def report(error: BaseException) -> None:
    """Write an error to standard error; with `--debug`, add its traceback."""
    if Debug.on:
        for part in traceback.format_exception(error):
            for line in part.rstrip("\n").split("\n"):
                say(line)
    complain(sentence(error))


class Debug:
    """Whether to show tracebacks; a process runs one command at a time."""

    on = False

    @staticmethod
    def switch(value: bool) -> bool:
        """Store the `--debug` flag of a command."""
        Debug.on = Debug.on or value
        return value


@dataclass(slots=True)
class Named:
    """What one command line names: agents in Python, a file, or neither."""

    target: str | None = None
    """Agents in Python, as `module:name`, instead of those of a file."""
    file: bool = False
    """Whether it names the file."""
    agents: Any = None
    """The agents of the target, once they are loaded."""


NAMED: Final[ContextVar[Named]] = ContextVar("wick_named")
"""What the running command names; each has its own."""


def _take_target(value: str | None) -> str | None:
    NAMED.get().target = value or NAMED.get().target
    return value


def take_file(context: typer.Context, value: Path) -> Path:
    """Note whether the command line names the file."""
    source = context.get_parameter_source("config")
    NAMED.get().file = source is not None and source.name == "COMMANDLINE"
    return value


APP: Final[Any] = typer.Option(
    "--app",
    metavar="TARGET",
    help="Agents made in Python: module:name or file.py:name, instead of the file.",
    callback=_take_target,
    is_eager=True,
    show_default=False,
)

CONFIG: Final[Any] = typer.Option(
    "--config",
    "-c",
    metavar="PATH",
    help="Configuration file.",
    callback=take_file,
    show_default=True,
)

AS_JSON: Final[Any] = typer.Option("--json", help="Print JSON.")

DEBUG: Final[Any] = typer.Option(
    "--debug", help="Show the traceback of an error.", callback=Debug.switch, is_eager=True
)

MODEL: Final[Any] = typer.Option(
    "--model", "-m", metavar="SPEC", help="Use this model instead (provider:model)."
)

TRUST: Final[Any] = typer.Option(
    "--trust", help="Trust the programs and code that the file starts, for this command."
)

RESULT_AS_JSON: Final[Any] = typer.Option(
    "--json", help="Print the result as JSON; with --stream, one event per line."
)

CONTEXT: Final[Any] = typer.Option(
    "--context", metavar="FILE", help="A JSON file with the context that the agent needs."
)

STREAM: Final[Any] = typer.Option(
    "--stream/--no-stream", help="Show the answer as it arrives.  [default: on, off with --json]"
)


# --- SIGTERM as a polite Ctrl-C: the run closes, its thread can continue, and the exit code says
# so.


@dataclass
class Ended:
    """Which signal asked the process to end, if any."""

    code: int = CANCELLED


@contextmanager
def terminable() -> Iterator[Ended]:
    """Treat SIGTERM like Ctrl-C within the block; a second one acts at once."""
    ended = Ended()

    def on_term(number: int, frame: Any) -> None:
        ended.code = TERMINATED
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = signal.signal(signal.SIGTERM, on_term)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
