"""The command `wick` in a process of its own: with pipes, or with a terminal to type at."""

from __future__ import annotations

import importlib
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from tests.source import ROOT
from tests.support import forked
from wick_graph.cli.app import call
from wick_graph.config import code
from wick_graph.store import SqlSaver, ThreadInfo

SECONDS = 120


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Folder:
    """A folder with an agents.yaml, and the processes that are started in it."""

    path: Path

    def write(self, **texts: str) -> Folder:
        """Write YAML files."""
        for name, text in texts.items():
            (self.path / f"{name}.yaml").write_text(text, "utf-8")
        return self

    @property
    def store(self) -> SqlSaver:
        return SqlSaver.from_url(f"sqlite:///{self.path}/checkpoints/wick.db")

    def thread(self, thread_id: str = "mine") -> ThreadInfo:
        """Return what is known of a thread."""
        with self.store as store:
            found = store.threads.get(thread_id)
        assert found is not None
        return found

    def messages(self, *kinds: str, thread_id: str = "mine") -> list[tuple[str, str]]:
        """Return kind and text of a thread's messages, of these kinds alone if any is named."""
        config: Any = {"configurable": {"thread_id": thread_id}}
        with self.store as store:
            saved = store.get_tuple(config)
        assert saved is not None
        found = saved.checkpoint["channel_values"]["messages"]
        return [(m.type, m.text) for m in found if not kinds or m.type in kinds]

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "WICK_MODEL"))}
        nowhere = "http://127.0.0.1:1"
        own = {"PYTHONPATH": str(ROOT), "OLLAMA_HOST": nowhere, "COLUMNS": "100", "NO_COLOR": "1"}
        return {**kept, **own, "TERM": "dumb", "INPUTRC": "/dev/null"}

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "wick_graph"]

    def start(self, *args: str, script: str = "", **more: Any) -> subprocess.Popen[bytes]:
        """Start the command, or a Python script of the folder."""
        command = [sys.executable, script] if script else self.command
        return forked.Popen([*command, *args], cwd=self.path, env=self.env, **more)

    def wick(self, *args: str) -> Ended:
        """Run a command with nobody at its ends."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        piped: Any = pipes
        with self.start(*args, **piped) as process:
            out, err = process.communicate(b"", timeout=SECONDS)
        return Ended(process.returncode, out.decode(), err.decode())

    def at_terminal(self, *args: str, script: str = "") -> Terminal:
        """Start a command with a terminal on all its streams."""
        master, slave = pty.openpty()
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        own: Any = {"start_new_session": True, "preexec_fn": forked.take_terminal, **streams}
        process = self.start(*args, script=script, **own)
        os.close(slave)
        return Terminal(master, process)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Work in the folder; forget its modules afterwards."""
        path, place = sys.path[:], Path.cwd()
        beside = code._BESIDE.hashes, code._BESIDE.roots
        os.chdir(self.path)
        try:
            yield
        finally:
            os.chdir(place)
            sys.path[:] = path
            code._BESIDE.hashes, code._BESIDE.roots = beside
            for name, module in [*sys.modules.items()]:
                if str(getattr(module, "__file__", "")).startswith(f"{self.path}/"):
                    del sys.modules[name]
            importlib.invalidate_caches()


@dataclass
class Inside(Folder):
    """A folder whose commands run in this process: for all that does not need another one."""

    captured: pytest.CaptureFixture[str]

    def wick(self, *args: str) -> Ended:
        """Run a command with nobody at its ends, as the first one of its process."""
        with self.entered():
            self.captured.readouterr()
            return Ended(call(args), *self.captured.readouterr())


class Terminal:
    """A person's view of a running command."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self.shown = ""
        self._read = 0

    def press(self, text: str) -> None:
        """Type, with control characters for keys such as Ctrl-C."""
        os.write(self._master, text.encode())

    def interrupt(self, text: str) -> str:
        """Press Ctrl-C at a prompt until a text is shown.

        Once is not always enough: readline does not see one that comes just before it waits.
        """
        for _ in range(6):
            self.press("\x03")
            until = time.monotonic() + SECONDS / 10
            while text not in self.shown[self._read :] and self._more(until):
                pass
            if text in self.shown[self._read :]:
                break
        return self.wait_for(text)

    def wait_for(self, text: str) -> str:
        """Read until a text is shown, and return what was shown since the last time."""
        until = time.monotonic() + SECONDS
        while (at := self.shown.find(text, self._read)) < 0:
            if not self._more(until):
                raise AssertionError(f"{text!r} was not shown: {self.shown[self._read :]!r}")
        found = self.shown[self._read : at + len(text)]
        self._read = at + len(text)
        return found

    def end(self) -> tuple[int, str]:
        """Read to the end; return the exit code and what was shown since the last time."""
        until = time.monotonic() + SECONDS
        while self._more(until):
            pass
        return self.process.wait(SECONDS), self.shown[self._read :]

    def _more(self, until: float) -> bool:
        if not select.select([self._master], [], [], max(until - time.monotonic(), 0))[0]:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._master)
