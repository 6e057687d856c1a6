"""The machine interface: a command a line in, a JSON object a line out.

A line is a command, or `{"id": …, "command": "…"}`. Each is answered with
`{"id", "ok", "lines", "data", "stop", "position", "mode"}`, or with `"ok": false` and `"error"`.
What the session says by itself comes as `{"event": "output", "text": …}`.
"""

from __future__ import annotations

import json
from typing import Any

from wick_graph.debug.terminal.reply import Reply
from wick_graph.debug.terminal.shell import Shell
from wick_graph.errors import DebugError, WickError


def answer(shell: Shell, line: str) -> tuple[dict[str, Any], bool]:
    """Do one line, and return its answer and whether the session is over."""
    number: Any = None
    try:
        number, command = _command(line)
        reply = shell.execute(command)
    except WickError as error:
        shell.failed = True
        return refused(error, number), False
    return {"id": number, **told(shell, reply)}, reply.quits


def refused(error: WickError, number: Any = None) -> dict[str, Any]:
    """Return a refusal as data."""
    return {"id": number, "ok": False, "error": str(error), "code": error.code}


def told(shell: Shell, reply: Reply) -> dict[str, Any]:
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
    """Return what the session says by itself."""
    return {"event": "output", "kind": output.kind, "seq": output.seq, "text": output.text}


def _command(line: str) -> tuple[Any, str]:
    if not line.lstrip().startswith("{"):
        return None, line
    try:
        given = json.loads(line)
        return given.get("id"), str(given["command"])
    except (ValueError, KeyError, AttributeError) as error:
        raise DebugError('a line is a command, or {"id": …, "command": "…"}') from error
