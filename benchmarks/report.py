"""The numbers as JSON and as a Markdown table."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from measure import Row, Spread

_PEERS = ("langgraph", "langchain", "langgraph-checkpoint-sqlite", "deepagents")


def about() -> dict[str, Any]:
    """Say what was measured on, without naming the machine."""
    packages = {}
    for name in (*_PEERS, "wick-graph"):
        try:
            packages[name] = version(name)
        except ModuleNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "packages": packages,
    }


def document(rows: Sequence[Row], curves: dict[str, Any], count: int) -> dict[str, Any]:
    """Make what `--json` writes."""
    made = [row.to_dict() for row in rows]
    return {"about": about(), "rounds": count, "rows": made, "growth": curves}


HEAD = (
    "| what | ours | held against | CPU ratio (min–max) | wall ratio | goal | | load | others |",
    "|---|---|---|---|---|---|---|---|---|",
)


def markdown(rows: Sequence[Row]) -> str:
    """Make the table: ours, the one it is held against, the ratio, the goal, and the others."""
    return "\n".join([*HEAD, *(_line(row) for row in rows)]) + "\n"


def _line(row: Row) -> str:
    shown = row.cpu if row.by == "cpu" and row.cpu else row.values
    names = list(shown)
    ours, against = names[0], row.against
    others = [name for name in names if name not in (ours, against)]
    cells = [
        row.title + (f" ({row.note})" if row.note else ""),
        _value(shown[ours], row.unit),
        f"{against} {_value(shown[against], row.unit)}" if against else "–",
        _spread(row.cpu_ratio or row.ratio),
        f"{row.ratio.median:.2f}×" if row.cpu_ratio and row.ratio else "–",
        _goal(row),
        {True: "met", False: "missed", None: ""}[row.met],
        f"{row.load:.1f}",
        ", ".join(f"{name} {_value(shown[name], row.unit)}" for name in others) or "–",
    ]
    return "| " + " | ".join(cells) + " |"


def _value(spread: Spread, unit: str) -> str:
    value = spread.median
    if unit == "B":
        return f"{value / 1e6:.2f} MB"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".strip()


def _spread(ratio: Spread | None) -> str:
    if ratio is None:
        return "–"
    if ratio.low == ratio.high:
        return f"{ratio.median:.3f}×"
    return f"{ratio.median:.2f}× ({ratio.low:.2f}–{ratio.high:.2f})"


def _goal(row: Row) -> str:
    if row.goal is None:
        return "–"
    sign = "×" if row.ratio is not None else ""
    number = f"{row.goal:.2f}".rstrip("0").rstrip(".")
    return f"≤ {number}{sign}"
