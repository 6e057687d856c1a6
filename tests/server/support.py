"""A real server in a process of its own, on loopback, to be asked, killed and started again."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.source import ROOT
from tests.support import forked
from wick_graph.cli.app import call
from wick_graph.client import Client
from wick_graph.server import Server

SECONDS = 120
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: never, tools: [calculate]}
agents:
  default: {model: 'scripted:talk.yaml', max_iterations: 9}
  slow: {model: 'scripted:slow.yaml'}
  careful:
    model: scripted:talk.yaml
    approvals: {calculate: true}
"""
CALL = "{text: Let me see., calls: [{tool: calculate, args: {expression: 21*2}}]}"
TALK = f"steps: [{', '.join([CALL, 'It is 42.'] * 6)}]\n"
SLOW = f"chunk_delay: 0.02\nsteps: [{CALL}, '{' '.join(f'word{i}' for i in range(120))}']\n"
ENDLESS = f"chunk_delay: 0.02\nsteps: [{CALL}, '{' '.join(f'word{i}' for i in range(4_000))}']\n"
"""For a run that a test ends: it goes on for longer than any test."""
START_SECONDS = 200


@dataclass
class Served:
    """A folder with agents, and the server over it."""

    path: Path
    args: tuple[str, ...] = ("--no-auth",)
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    url: str = ""
    said: str = ""
    program: str = "wick_graph"
    """The module that is run."""

    def write(self, **texts: str) -> Served:
        """Write YAML files."""
        for name, text in texts.items():
            (self.path / f"{name}.yaml").write_text(text, "utf-8")
        return self

    def start(self, *more: str, port: int = 0) -> Served:
        """Start the server and wait until it answers."""
        command = [sys.executable, "-m", self.program, "serve", "--port", str(port)]
        self.process = forked.Popen(
            [*command, *self.args, *more],
            cwd=self.path,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.env},
        )
        assert self.process.stderr is not None
        seen = []
        late = threading.Timer(START_SECONDS, self.process.send_signal, [signal.SIGABRT])
        late.start()  # it says then where each of its threads is, and ends
        try:
            for line in self.process.stderr:
                seen.append(line)
                if found := re.search(r"^serving .* on (http://\S+), (.*)$", line):
                    self.url, self.said = found[1], line.strip()
                    return self
        finally:
            late.cancel()
        self.process.communicate()  # which closes its pipe
        raise AssertionError("".join(seen))

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        """Kill it, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=SECONDS)

    def stop(self, sig: int = signal.SIGTERM) -> tuple[int, str]:
        """End it by a signal; return its exit code and what it wrote."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(sig)
        _, rest = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, rest

    def wick(self, *args: str) -> str:
        """Run another command in the folder; what only reads and writes files, in this process."""
        if args[0] == "token" and not self.env:
            with chdir(self.path), redirect_stdout(io.StringIO()) as said_here:
                assert call(args) == 0, args
            return said_here.getvalue().strip()
        done = forked.run(
            [sys.executable, "-m", self.program, *args],
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.env},
        )
        assert done.returncode == 0, done.stderr
        said: str = done.stdout
        return said.strip()

    def client(self, token: str | None = None, **more: Any) -> Client:
        return Client(self.url, token, **more)

    def http(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS, trust_env=False)


@contextmanager
def serving(
    path: Path, *args: str, env: dict[str, str] | None = None, **texts: str
) -> Iterator[Served]:
    """Serve a folder with some agents, in this environment; the server is gone afterwards."""
    served = Served(path, args or ("--no-auth",), env or {})
    served.write(**{"agents": AGENTS, "talk": TALK, "slow": SLOW, **texts})
    try:
        yield served.start()
    finally:
        if served.process is not None:
            served.process.kill()
            served.process.communicate()


def frames(text: str) -> list[tuple[int | None, str, str]]:
    """Split a stream into events: number, name, data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
        if fields:
            number = int(fields["id"]) if "id" in fields else None
            found.append((number, fields["event"], fields["data"]))
    return found


def raw(served: Served, data: bytes) -> bytes:
    """Send bytes and return the head of the answer, with what has come of its body."""
    with socket.create_connection(("127.0.0.1", served.port), SECONDS) as connection:
        connection.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got and (piece := connection.recv(65536)):
            got += piece
        return got


def cases(row: str, *values: Any) -> list[Any]:
    """Name cases by the row of the attack list that they belong to."""
    each = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*one, id=f"{row}-{number}") for number, one in enumerate(each)]


@contextmanager
def caller(server: Server, tenant: str, scope: str = "admin") -> Iterator[httpx.Client]:
    """Ask a server in this process as one of its tenants."""
    headers = {"Authorization": f"Bearer {server.token(tenant=tenant, scope=scope)}"}
    with httpx.Client(
        base_url=server.url, headers=headers, timeout=SECONDS, trust_env=False
    ) as http:
        yield http
