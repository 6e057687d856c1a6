"""A person at the terminal: prompt, history and completion by the standard library's readline."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from wick_graph.debug.terminal.shell import Shell
from wick_graph.errors import WickError

_LONGEST: Final = 2_000
"""Lines that the history keeps."""
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
    """Return where the history lies, by the XDG base directory specification."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "wick" / "debug_history"


@contextlib.contextmanager
def _line_editor(shell: Shell) -> Iterator[None]:
    """Use readline where Python has it."""
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
