"""What the commands print: answers on standard output, everything about them on standard error.

A model's or a tool's text is shown as it is, never read as markup. Its control characters are made
visible, so that it cannot move the cursor or set colours: on a terminal, and in whatever is a
listing, since a pipe ends at a terminal too. Only an answer goes into a pipe as it came.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TextIO

import typer

from wick_graph.constants import TURNING
from wick_graph.errors import HookError, RunError, StorageError, ToolError, WickError

FAILED: Final = 1
"""Exit code: the run, or the database, failed."""

REFUSED: Final = 2
"""Exit code: the command line or the configuration is wrong; nothing was done."""

CANCELLED: Final = 130
"""Exit code after Ctrl-C, as shells have it."""

TERMINATED: Final = 143
"""Exit code after SIGTERM, as shells have it."""

PIPE_CLOSED: Final = 141
"""Exit code when the reader of standard output has left, as shells have it."""

_WIDE: Final = 100_000

_LEAST: Final = 12
"""Characters of a table's last column that are shown however narrow the terminal is."""

_NOT_A_TERMINAL: Final = 120

_VISIBLE: Final[Mapping[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    ord("\r"): "",
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}
"""Control characters as pictures of themselves; a terminal obeys none of these."""

_ESCAPED: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *TURNING)}
"""Those that JSON leaves as they are."""

_LISTED: Final = {**_VISIBLE, **{code: f"\\u{code:04x}" for code in TURNING}}
"""In a listing, what turns the direction of reading too: an answer may be Arabic, a name lies."""


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


def silence() -> None:
    """Drop what is still to be written where nobody reads any more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:  # noqa: PTH123  # a device
                os.dup2(nothing.fileno(), stream.fileno())


def safe(text: str) -> str:
    """Make what a terminal obeys visible; line ends and tabs stay."""
    return text.translate(_LISTED)


def shorten(text: str, width: int) -> str:
    """Bring a text to one line of at most `width` characters."""
    line = safe(" ".join(text[: width * 8].split()))
    return line if len(line) <= width else line[: max(width - 1, 1)] + "…"


def line_width() -> int:
    """Characters that a line on standard error may have."""
    if not is_terminal(sys.stderr):
        return _NOT_A_TERMINAL
    return max(shutil.get_terminal_size().columns, 40)


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether a person reads this stream."""
    return stream is not None and not stream.closed and stream.isatty()


def write(text: str) -> None:
    """Write an answer to standard output at once: as it is into a pipe, made safe on a terminal.

    Raises:
        BrokenPipeError: The reader has left.
    """
    if sys.stdout is None:
        raise BrokenPipeError
    sys.stdout.write(text.translate(_VISIBLE) if is_terminal(sys.stdout) else text)
    sys.stdout.flush()


def print_line(text: str = "") -> None:
    """Write a line to standard output, control characters made visible."""
    write(safe(text) + "\n")


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write one JSON value, control characters escaped; what has no form there becomes its text."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    write(text.translate(_ESCAPED) + "\n")


def say(text: str, *, dim: bool = False) -> None:
    """Write a line to standard error, control characters made visible."""
    if sys.stderr is None:
        return
    line = safe(text)
    if dim and is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        line = f"\x1b[2m{line}\x1b[0m"
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Write an error to standard error, each of its lines with the command's name in front."""
    for line in text.splitlines() or [""]:
        say(f"wick: {line}")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write aligned columns; on a terminal the last one is cut so that a row fits its line."""
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
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as drawn:
        console.print(made)
    for line in drawn.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def exit_code(error: BaseException) -> int:
    """Give the exit code for what ended a command before or after its run.

    A database that fails (its error has a cause) is a failure; one that is refused, because it is
    somebody else's or has an unreadable address, is a wrong configuration.
    """
    if isinstance(error, HookError | RunError | ToolError):
        return FAILED
    if isinstance(error, StorageError) and error.__cause__ is not None:
        return FAILED
    return REFUSED if isinstance(error, WickError) else FAILED


def sentence(error: BaseException) -> str:
    """Say in one sentence what went wrong; name `--debug` where it may be a defect of ours."""
    if isinstance(error, WickError):
        return str(error) or type(error).__name__
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"unexpected error ({what}); run it again with --debug to see where it comes from"


def report(error: BaseException) -> None:
    """Write an error to standard error, under `--debug` with its traceback."""
    if Debug.on:
        for part in traceback.format_exception(error):
            for line in part.rstrip("\n").split("\n"):
                say(line)
    complain(sentence(error))


class Debug:
    """Whether tracebacks are shown; one command runs in a process at a time."""

    on = False

    @staticmethod
    def switch(value: bool) -> bool:
        """Take over the flag of a command."""
        Debug.on = Debug.on or value
        return value


CONFIG: Final[Any] = typer.Option(
    "--config", "-c", metavar="PATH", help="The file of agents.", show_default=True
)

AS_JSON: Final[Any] = typer.Option("--json", help="Print JSON.")

DEBUG: Final[Any] = typer.Option(
    "--debug", help="Show the traceback of an error.", callback=Debug.switch, is_eager=True
)

MODEL: Final[Any] = typer.Option(
    "--model", "-m", metavar="SPEC", help="Use this model: provider:model."
)

TRUST: Final[Any] = typer.Option(
    "--trust", help="Start the programs and the code that the file names, trusted before or not."
)

RESULT_AS_JSON: Final[Any] = typer.Option(
    "--json", help="Print the result as JSON; with --stream, each event a line."
)

STREAM: Final[Any] = typer.Option(
    "--stream/--no-stream", help="Show the answer as it comes (unless --json is given)."
)


# --- SIGTERM as a polite Ctrl-C: the run is closed, its thread can go on, and the exit code
# tells.


@dataclass
class Ended:
    """How the process was asked to end, if it was."""

    code: int = CANCELLED


@contextmanager
def terminable() -> Iterator[Ended]:
    """Let SIGTERM do within the block what Ctrl-C does; a second one does it at once."""
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
