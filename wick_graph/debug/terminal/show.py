"""Values and facts as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_SHORT: Final = 100

_LINE: Final = 400
"""Characters of a text in one line."""

_LONGEST: Final = 20_000
"""Characters of a printed value."""


def value_lines(value: Any) -> list[str]:
    """Show a value: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return cut(value).splitlines() or ['""']
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _SHORT and isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str, indent=2)
    return cut(text).splitlines()


def cut(text: str) -> str:
    """Show the beginning of a long text, and its length."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text):,} characters in all)"


def short(value: Any, width: int = _SHORT) -> str:
    """Show a value in one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join(text[: width * 8].split())
    return line if len(line) <= width else line[: width - 1] + "…"


def message_lines(message: Mapping[str, Any], head: str = "") -> list[str]:
    """Show a message in wick's form."""
    name = f" {message['name']}" if message.get("name") else ""
    lines = cut(str(message.get("content") or "")).splitlines()
    first = f"{head}{message.get('role', '?')}{name}: {lines[0] if lines else ''}".rstrip()
    made = [first, *(f"    {line}" for line in lines[1:])]
    for call in message.get("tool_calls") or ():
        made.append(f"    → {call.get('name')}({short(call.get('args'), _LINE)})  {call.get('id')}")
    return made


def state_lines(values: Mapping[str, Any], pending: Iterable[Mapping[str, Any]]) -> list[str]:
    """Show each channel in a line, then the writes of the running step."""
    made = [f"{name} = {brief(value)}" for name, value in sorted(values.items())]
    made += [
        f"+ {write['channel']}: {brief(write['value'])}  (written by {write['node']} at "
        f"#{write['seq']}, joins the state after the step)"
        for write in pending
    ]
    return made or ["the state is empty here"]


def brief(value: Any) -> str:
    """Show a value of the state in a line; of a list, its length and its last item."""
    if isinstance(value, list) and value:
        count = "1 item:" if len(value) == 1 else f"{len(value)} items, the last"
        return f"{count} {_item(value[-1])}"
    return '""' if value == "" else short(value)


def _item(value: Any) -> str:
    if isinstance(value, Mapping) and "role" in value:
        return short(" ".join(message_lines(value)))
    return short(value)


def change_lines(changes: Sequence[Any]) -> list[str]:
    """Show differences."""
    signs = {"add": "+", "remove": "-", "change": "~"}
    made: list[str] = []
    for change in changes:
        sign = signs.get(change.op, "?")
        if change.op == "add":
            made.append(f"{sign} {change.path}: {short(change.after, _LINE)}")
        elif change.op == "remove":
            made.append(f"{sign} {change.path}: {short(change.before, _LINE)}")
        else:
            before, after = short(change.before, _LINE), short(change.after, _LINE)
            made.append(f"{sign} {change.path}: {before} → {after}")
    return made or ["nothing changed"]


def blame_lines(parts: Sequence[Any], shown: Any) -> list[str]:
    """Show the source of each part of a request; `shown` turns a value into plain data."""
    made: list[str] = []
    for part in parts:
        sign = {"kept": " ", "added": "+", "dropped": "-"}[part.op]
        at = "" if part.seq is None else f" #{part.seq}"
        value = shown(part.value)
        if isinstance(value, Mapping) and "role" in value:
            text = short(f"{value['role']}: {value.get('content') or _calls(value)}")
        else:
            text = f"{part.name} = {short(value)}" if part.name else short(value)
        made.append(f"{sign} {part.part:<8} {part.by + at:<20} {text}")
    return made


def _calls(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    return ", ".join(f"{call['name']}({short(call['args'], 60)})" for call in calls)


def call_lines(call: Mapping[str, Any]) -> list[str]:
    """Show a tool call: the model's arguments, those for the tool, and its result."""
    made = [f"{call['name']}({short(call['args'], _LINE)})  {call['id']}"]
    before = call.get("args_before")
    if before is not None and before != call["args"]:
        made.append(f"  asked for with {short(before, _LINE)}")
    if call.get("error"):
        made += [f"  ✕ {line}" for line in cut(str(call["error"])).splitlines()]
    elif call.get("result") is not None:
        made += [f"  ← {line}" for line in value_lines(call["result"])]
    return made


def route_lines(route: Any) -> list[str]:
    """Show the router's decision and its rules."""
    made = [f"{route.chosen}: {route.reason}"]
    for rule in route.candidates:
        mark = "✓" if rule.get("result") else " "
        made.append(
            f"  {mark} {rule.get('label')}  if {rule.get('predicate')}: {short(rule.get('result'))}"
            f"  (reads {short(rule.get('reads'), 60)})"
        )
    return made


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Align columns."""
    cells = [[str(cell) if cell is not None else "" for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[at]) for row in cells), 0) for at, head in enumerate(heads)]
    lines = [heads, *cells]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in lines
    ]


_MOST: Final = 38
"""Most lines of a preview."""

_PERIOD: Final = 12
"""Most lines of a loop that is folded."""


def folded(lines: Sequence[str]) -> list[str]:
    """Fold loops, and cut what is still too long in the middle."""
    made: list[str] = []
    at = 0
    while at < len(lines):
        period, times = max(
            ((p, _times(lines, at, p)) for p in range(1, _PERIOD + 1)),
            key=lambda found: (found[0] * found[1] if found[1] > 1 else 1, -found[0]),
        )
        times = times if times > 1 else 1
        period = period if times > 1 else 1
        made += lines[at : at + period]
        if times > 1:
            last = "this" if period == 1 else f"the last {period} lines"
            made.append(f"… {last}, {times} times in all")
        at += period * times
    if len(made) <= _MOST:
        return made
    half = _MOST // 2
    return [*made[:half], f"… {len(made) - 2 * half + 1} more lines", *made[1 - half :]]


def _times(lines: Sequence[str], at: int, period: int) -> int:
    """Return how often the block of lines at a place follows itself, itself included."""
    block, times = lines[at : at + period], 1
    while len(block) == period and lines[at + times * period : at + (times + 1) * period] == block:
        times += 1
    return times
