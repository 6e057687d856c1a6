"""The parts of the codec that know single values: dates, paths, patterns, arrays, exceptions."""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ormsgpack import Ext

IP: Final[dict[str, Any]] = {
    cls.__name__: cls
    for cls in (
        ipaddress.IPv4Address,
        ipaddress.IPv4Interface,
        ipaddress.IPv4Network,
        ipaddress.IPv6Address,
        ipaddress.IPv6Interface,
        ipaddress.IPv6Network,
    )
}


def read_pattern(parts: list[Any]) -> re.Pattern[Any]:
    """Compile a regular expression again."""
    return re.compile(parts[0], parts[1])


def exception_text(error: BaseException) -> str:
    """Return what stands for an exception, as with LangGraph's savers: its `repr`."""
    try:
        return repr(error)
    except Exception:  # a user's __repr__ may raise anything
        return f"{type(error).__name__}()"


def read_exception(parts: str | list[str]) -> str:
    """Return an exception's text; older rows hold the name of its class, and its message."""
    return parts if isinstance(parts, str) else f"{parts[0].rpartition('.')[2]}({parts[1]!r})"


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
