"""What the thread commands tell about a thread: as data, as a row, and line by line."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from wick_graph.cli import output
from wick_graph.cli.asking import headline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wick_graph.store import SqlSaver, ThreadInfo

_WORDS: Final = 60
"""Characters of a first message that stand in for a title."""


def state_of(store: SqlSaver, thread_id: str) -> tuple[Mapping[str, Any], list[Any]]:
    """Read a thread's last state, and the questions that wait for an answer."""
    from wick_graph import keys
    from wick_graph.graph.answers import waiting

    config: Any = keys.with_configurable(None, **{keys.THREAD_ID: thread_id})
    saved = store.get_tuple(config)
    if saved is None:
        return {}, []
    asked = [interrupt.value for interrupt in waiting(saved)]
    return saved.checkpoint["channel_values"], asked


def _title(store: SqlSaver, info: ThreadInfo) -> str:
    """Give a thread's title, or the first words that a person wrote in it."""
    if info.title:
        return info.title
    values, _ = state_of(store, info.thread_id)
    said = (message.text for message in values.get("messages") or () if message.type == "human")
    return output.shorten(next(said, ""), _WORDS)


def facts_of(store: SqlSaver, info: ThreadInfo) -> dict[str, Any]:
    """Give what a listing says about a thread as plain data."""
    return {
        "thread_id": info.thread_id,
        "agent": info.agent,
        "title": _title(store, info),
        "status": info.status,
        "stopped_because": info.stopped_because,
        "last_error": info.last_error,
        "parent": info.parent,
        "created": _written(info.created),
        "last_access": _written(info.last_access),
        "expires_at": None if info.expires_at is None else _written(info.expires_at),
        "pinned": info.pinned,
        "steps": info.steps,
    }


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def as_row(facts: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    """Write the cells of a listing."""
    return (
        facts["thread_id"],
        facts["agent"] or "-",
        _status(facts),
        str(facts["steps"]),
        _near(datetime.fromisoformat(facts["last_access"]), now, 1),
        _expiry(facts, now, 1),
        facts["title"],
    )


def as_lines(
    facts: Mapping[str, Any], waits_for: list[Any], now: datetime
) -> list[tuple[str, str]]:
    """Write all facts as pairs of name and value; what is empty is left out."""
    used = facts["usage"]
    tokens = (
        f"{used.get('input_tokens', 0)} read, {used.get('output_tokens', 0)} written, "
        f"in {used.get('calls', 0)} model calls"
    )
    lines = [
        ("thread", facts["thread_id"]),
        ("title", facts["title"]),
        ("agent", facts["agent"]),
        ("status", _status(facts)),
        ("last error", facts["last_error"]),
        ("waits for", "; ".join(map(headline, waits_for))),
        ("parent", facts["parent"]),
        ("created", _when(facts["created"], now, 2)),
        ("last used", _when(facts["last_access"], now, 2)),
        ("expires", _expiry(facts, now, 2)),
        ("steps", str(facts["steps"])),
        ("tokens", tokens if used else ""),
    ]
    return [(name, " ".join(value.split())) for name, value in lines if value]


def _status(facts: Mapping[str, Any]) -> str:
    why = facts["stopped_because"]
    plain = why in (None, "done", facts["status"]) or facts["status"] in ("running", "waiting")
    return str(facts["status"]) if plain else f"{facts['status']} ({why})"


def _expiry(facts: Mapping[str, Any], now: datetime, parts: int) -> str:
    if facts["pinned"]:
        return "never (pinned)"
    if facts["status"] in ("running", "waiting"):
        return f"not while {facts['status']}"
    return "never" if facts["expires_at"] is None else _when(facts["expires_at"], now, parts)


def _when(written: str, now: datetime, parts: int) -> str:
    """Write a moment absolutely, in local time, and relative to now."""
    moment = datetime.fromisoformat(written)
    return f"{moment.astimezone():%Y-%m-%d %H:%M} ({_near(moment, now, parts)})"


def _near(moment: datetime, now: datetime, parts: int) -> str:
    distance = (moment - now).total_seconds()
    return f"in {_span(distance, parts)}" if distance >= 0 else f"{_span(-distance, parts)} ago"


def _span(seconds: float, most: int) -> str:
    """Write a span in its largest units, at most so many of them, rounded down."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    rest, parts = int(seconds), list[str]()
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
        if len(parts) == most:
            break
    return "".join(part for part in parts if not part.startswith("0")) or "0s"
