"""One line of text for a moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from wick_graph.journal.entry import GAP, Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.layout import ENDS, OPENS

_ENTERS: Final = "→"
_LEAVES: Final = "←"
_POINT: Final = "·"
_LONGEST: Final = 200
"""Characters of a text or of arguments that a line shows."""
Told = Mapping[str, Any]


def line_of(journal: Journal, entry: Entry) -> str:
    """Return a moment's number, time, step and what happened, indented by its depth."""
    return line_from(entry, {} if entry.kind == GAP else journal.details(entry))


def line_from(entry: Entry, told: Told) -> str:
    """Return the line of a moment of which this is known."""
    if entry.kind == GAP:
        return f"{entry.seq:>6}  {'':>9}  {'':>5} ✕ {entry.error}"
    kind = (entry.kind, entry.phase)
    mark = _ENTERS if kind in OPENS else _LEAVES if kind in ENDS else _POINT
    if entry.status != "ok" and not entry.is_left:
        mark = "✕"
    step = f"@{entry.step}" if entry.step else ""
    time = f"+{entry.at_us / 1e6:.3f}"
    indent = "  " * entry.depth
    return f"{entry.seq:>6}  {time:>9}  {step:>5} {indent}{mark} {text_from(entry, told)}"


def text_of(journal: Journal, entry: Entry) -> str:
    """Say in words what happened at a moment."""
    return text_from(entry, journal.details(entry))


def text_from(entry: Entry, told: Told) -> str:
    """Say it of a moment of which this is known."""
    make = _TEXTS.get(entry.what)
    text = make(entry, told) if make is not None else f"{entry.what} {entry.name}".strip()
    if entry.phase == "lost":
        text = f"{entry.kind} lost: its process died"
    parts = [text]
    if entry.duration_us is not None:
        parts.append(took(entry.duration_us))
    if (change := told.get("change")) is not None:
        changed = ", ".join(key for key in change if key != "by")
        parts.append(f"[{change['by']} changed {changed}]")
    if entry.error is not None:
        parts.append("left here" if entry.is_left else entry.error)
    if (missing := told.get("missing")) is not None:
        parts.append(f"({missing})")
    return "  ".join(" ".join(part.split()) for part in parts if part)


def took(microseconds: int) -> str:
    """Show a duration."""
    if microseconds >= 1_000_000:
        return f"{microseconds / 1e6:.2f} s"
    return f"{microseconds / 1e3:.1f} ms"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _cut(text: str) -> str:
    line = " ".join(text[: _LONGEST * 2].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _json(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=str))


def _run_enter(entry: Entry, told: Told) -> str:
    given = f": {_count(told['messages'], 'message')}" if "messages" in told else ""
    branch = f", branch {told['branch']}" if told.get("branch") else ""
    return f"run of {entry.name} ({told.get('mode')}{given}{branch})"


def _run_exit(entry: Entry, told: Told) -> str:
    return f"run {told.get('stopped_because')}"


def _node_exit(entry: Entry, told: Told) -> str:
    channels: dict[str, int] = {}
    for write in told.get("writes", ()):
        channels[write["channel"]] = channels.get(write["channel"], 0) + 1
    wrote = ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in channels.items())
    return f"{entry.name}" + (f"  wrote {wrote}" if wrote else "")


def _hook(entry: Entry, told: Told) -> str:
    update = ", ".join(dict.fromkeys(write["channel"] for write in told.get("update", ())))
    return f"hook {entry.name}.{entry.hook_phase}" + (f"  wrote {update}" if update else "")


def _request(entry: Entry, told: Told) -> str:
    tools = _count(len(told.get("tools", ())), "tool")
    purpose = "" if told.get("purpose") in (None, "agent") else f" for {told['purpose']}"
    return f"model {entry.name}{purpose}: {_count(told.get('messages', 0), 'message')}, {tools}"


def _response(entry: Entry, told: Told) -> str:
    reply = told.get("reply")
    if reply is None:
        return "reply"
    calls = ", ".join(f"{call['name']}({_json(call['args'])})" for call in reply.tool_calls)
    tokens = told["usage"].get("total_tokens")
    spent = f"  {_count(tokens, 'token')}" if tokens else ""
    said = " ".join(part for part in (_cut(reply.text), calls) if part)
    return f"reply: {said or 'nothing'}{spent}"


def _route(entry: Entry, told: Told) -> str:
    return f"{told['chosen']}: {told['reason']}"


def _tool_enter(entry: Entry, told: Told) -> str:
    return f"tool {entry.name}({_json(told.get('args'))})"


def _tool_call(entry: Entry, told: Told) -> str:
    changed = f"({_json(told.get('args'))})" if told.get("changed") else ""
    return f"{entry.name} runs{changed}, replay {told.get('replay') or 'unknown'}"


def _tool_exit(entry: Entry, told: Told) -> str:
    text = told.get("error", told.get("output"))
    failed = " failed" if "error" in told else ""
    return f"tool {entry.name}{failed}" + (f": {_cut(text)}" if text else "")


def _asked(entry: Entry, told: Told) -> str:
    word = "asks" if entry.phase == "raise" else "is answered"
    return f"{entry.name or 'run'} {word}: {_json(told.get('value'))}"


def _node_enter(entry: Entry, told: Told) -> str:
    return entry.name if entry.visit == 1 else f"{entry.name} (visit {entry.visit})"


_TEXTS: Final[Mapping[str, Callable[[Entry, Told], str]]] = {
    "run.enter": _run_enter,
    "run.exit": _run_exit,
    "run.error": _run_exit,
    "node.enter": _node_enter,
    "node.exit": _node_exit,
    "hook.enter": _hook,
    "hook.exit": _hook,
    "hook.error": _hook,
    "model.request": _request,
    "model.replaced": _request,
    "model.response": _response,
    "route.taken": _route,
    "tool.enter": _tool_enter,
    "tool.call": _tool_call,
    "tool.replaced": _tool_call,
    "tool.exit": _tool_exit,
    "interrupt.raise": _asked,
    "interrupt.answer": _asked,
}
