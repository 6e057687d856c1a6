"""`wick acp` in a process of its own, and ACP's Python client as its editor."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from acp import schema
from acp.client.connection import ClientSideConnection

from tests.server.support import AGENTS as SERVED
from tests.server.support import SECONDS, SLOW, TALK
from tests.source import ROOT
from tests.support import forked

AGENTS = (
    SERVED
    + """\
  writer:
    model: scripted:writes.yaml
    backend: {type: local, workdir: .}
    approvals: {write_file: true}
  asks:
    model: scripted:asks.yaml
    tools: [request_user_input]
"""
)
WRITES = """\
steps:
- text: I plan.
  calls:
  - tool: write_todos
    args: {todos: [{title: Write it, status: in_progress}, {title: Read it}]}
  - {tool: write_file, args: {path: notes.md, content: Hello}}
- It is written.
"""
ASKS = """\
steps:
- calls: [{tool: request_user_input, args: {question: Which one, options: [a, b]}}]
- You chose.
"""


class Editor:
    """ACP's client; it notes what it is shown, and decides as it is told."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.asked: list[tuple[Any, list[str]]] = []
        self.decide: Callable[[Any], str | None] = lambda call: "approve"
        self._news = asyncio.Event()
        self.silent = False
        self.server: ClientSideConnection

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.shown.append(update)
        self._news.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, [one.kind for one in options]))
        self._news.set()
        if self.silent:
            await asyncio.Event().wait()
        chosen = self.decide(tool_call)
        outcome: Any = schema.DeniedOutcome(outcome="cancelled")
        if chosen is not None:
            outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn: Any) -> None:
        """Nothing is to be done."""

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until something that was shown makes a condition hold."""
        async with asyncio.timeout(SECONDS):
            while not (found := holds()):
                self._news.clear()
                await self._news.wait()
        return found

    def kinds(self) -> list[str]:
        """List the kinds of what was shown; pieces of one message count once."""
        found: list[str] = []
        for one in self.shown:
            kind = one.session_update
            if not (kind.endswith("chunk") and found[-1:] == [kind]):
                found.append(kind)
        return found

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.shown if one.session_update == kind)

    def calls(self) -> dict[str, list[str]]:
        """Return the statuses of each call, in the order of time."""
        found: dict[str, list[str]] = {}
        for one in self.shown:
            if one.session_update.startswith("tool_call"):
                found.setdefault(one.tool_call_id, []).append(one.status)
        return found


def write(path: Path, **texts: str) -> None:
    """Write YAML files of agents."""
    own = {"agents": AGENTS, "talk": TALK, "slow": SLOW, "writes": WRITES, "asks": ASKS}
    for name, text in {**own, **texts}.items():
        (path / f"{name}.yaml").write_text(text, "utf-8")


class Process:
    """`wick acp` in a folder: its process, and its streams."""

    def __init__(self, path: Path, *args: str) -> None:
        self.path = path
        with (path / "stderr.txt").open("ab") as stderr:
            self.made = forked.Popen(
                [sys.executable, "-m", "wick_graph", "acp", *args],
                cwd=path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    async def streams(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**26)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self.made.stdout)
        way, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, self.made.stdin
        )
        return asyncio.StreamWriter(way, protocol, None, loop), reader

    def complaints(self) -> str:
        return (self.path / "stderr.txt").read_text("utf-8")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.made.kill()
        self.made.wait(SECONDS)

    async def left(self) -> int:
        """Leave it, as an editor that is closed; return its exit code."""
        assert self.made.stdin is not None
        self.made.stdin.close()
        return await self.ended()

    async def ended(self) -> int:
        """Return its exit code."""
        return await asyncio.to_thread(self.made.wait, SECONDS)


@asynccontextmanager
async def editing(path: Path, *args: str) -> AsyncIterator[tuple[Editor, Any, Process]]:
    """Open an editor on `wick acp`; both are gone afterwards."""
    process, editor = Process(path, *args), Editor()
    writer, reader = await process.streams()
    server = ClientSideConnection(lambda _: cast("Any", editor), writer, reader)
    try:
        try:
            await server.initialize(protocol_version=1)
        except ConnectionError:
            raise AssertionError(process.complaints()) from None
        yield editor, server, process
    finally:
        await server.close()
        writer.close()
        process.kill()


def said(text: str) -> list[Any]:
    return [schema.TextContentBlock(type="text", text=text)]
