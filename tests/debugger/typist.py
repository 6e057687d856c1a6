"""A person at the debugger's terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path
from typing import Any

from pexpect import fdpexpect

from tests.source import ROOT
from tests.support import forked

SECONDS = 120
LINES, COLUMNS = 40, 200


class Typist(fdpexpect.fdspawn):  # type: ignore[type-arg]  # it takes none at run time
    """What `pexpect.spawn` gives, of a command that is forked from a process that is loaded."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        own = {"PYTHONPATH": str(ROOT), "TERM": "dumb", "XDG_STATE_HOME": str(folder)}
        streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        self.process = forked.Popen(
            [sys.executable, "-m", "wick_graph", *arguments],
            cwd=folder,
            env={**os.environ, **own},
            start_new_session=True,
            preexec_fn=forked.take_terminal,
            **streams,
        )
        os.close(slave)
        super().__init__(master, encoding="utf-8", timeout=SECONDS)

    def sendintr(self) -> None:
        """Press Ctrl-C."""
        self.send("\x03")

    def sendeof(self) -> None:
        """Press Ctrl-D."""
        self.send("\x04")

    def wait(self) -> int:
        """Return the exit code."""
        return self.process.wait(SECONDS)

    def end(self) -> None:
        """End the command if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.close()
