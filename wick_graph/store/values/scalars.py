"""The parts of the codec that know single values: dates, paths, odd text, exceptions."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ormsgpack import Ext


class StoredError(Exception):
    """An exception as a database keeps it: the name of its class and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name
        self.text = text

    def __repr__(self) -> str:
        return f"{self.name.rpartition('.')[2]}({self.text!r})"


def exception_parts(error: BaseException) -> list[str]:
    """Return an exception's class name and text; a broken `__str__` is no obstacle."""
    cls = type(error)
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    try:
        return [name, str(error)]
    except Exception:  # a user's __str__ may raise anything
        return [name, ""]


def text(value: str, tag: int) -> str | Ext:
    """Return text as it is, or as tagged bytes if it holds a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(tag, value.encode("utf-8", "surrogatepass"))
    return value


def moment_parts(value: datetime | time) -> list[Any]:
    """Take a date or time apart: naive ISO text, name of the zone, offset in seconds, fold."""
    offset = value.utcoffset()
    name = getattr(value.tzinfo, "key", None)
    return [
        value.replace(tzinfo=None, fold=0).isoformat(),
        name if isinstance(name, str) else None,
        None if offset is None else offset.total_seconds(),
        value.fold,
    ]


def _zone(name: str | None, offset: float | None) -> tzinfo | None:
    if name is not None:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # this machine does not know the zone; the offset is right all the same
    if offset is None:
        return None
    return timezone(timedelta(seconds=offset)) if offset else UTC


def read_datetime(parts: list[Any]) -> datetime:
    """Rebuild a datetime; a zone that this machine does not know becomes its offset."""
    return datetime.fromisoformat(parts[0]).replace(tzinfo=_zone(parts[1], parts[2]), fold=parts[3])


def read_time(parts: list[Any]) -> time:
    """Rebuild a time of day."""
    return time.fromisoformat(parts[0]).replace(tzinfo=_zone(parts[1], parts[2]), fold=parts[3])


def read_path(parts: str) -> Path:
    """Rebuild a path; it is text until somebody opens it."""
    return Path(parts)
