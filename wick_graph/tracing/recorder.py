"""Span recorders: the protocol, JSON lines, and the audit log."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, Self

from wick_graph.errors import ConfigError, RefusedError

# --- What a recorder of traces is, where a run finds it, and how refusals and decisions reach
# it.


_audit: Final = logging.getLogger("wick_graph.audit")


class SpanHandle(Protocol):
    """One span that has begun."""

    def set(self, key: str, value: Any) -> Self:
        """Note a fact; returns the handle, so that calls can be chained."""
        ...

    def end(self) -> None:
        """Record the span and how long it took; a second time does nothing."""
        ...


class TraceRecorder(Protocol):
    """Takes the spans and events of runs, from several threads and tasks at once.

    A recorder may have an attribute `content`: False if it wants to know how long texts were and
    what their hashes are, and not what they said. Without the attribute it gets them, redacted.
    """

    def start_span(self, name: str) -> SpanHandle:
        """Begin a span."""
        ...

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Note something that has no duration."""
        ...


class _NullSpan:
    def set(self, key: str, value: Any) -> Self:
        return self

    def end(self) -> None:
        pass


_NULL_SPAN: Final = _NullSpan()


class NullRecorder:
    """Record nothing."""

    def start_span(self, name: str) -> _NullSpan:
        """Return a span that forgets everything."""
        return _NULL_SPAN

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Forget it."""


NULL_RECORDER: Final = NullRecorder()

_current: Final[ContextVar[TraceRecorder]] = ContextVar("wick_recorder", default=NULL_RECORDER)


@contextmanager
def recording(recorder: TraceRecorder) -> Iterator[TraceRecorder]:
    """Record every run that begins in this block, whichever agent's it is."""
    token = _current.set(recorder)
    try:
        yield recorder
    finally:
        _current.reset(token)


def current_recorder() -> TraceRecorder:
    """Return the recorder of the block that the caller runs in, or one that records nothing."""
    return _current.get()


def keeps_content(recorder: TraceRecorder) -> bool:
    """Say whether a recorder wants texts themselves."""
    return bool(getattr(recorder, "content", True))


def audit(event: str, **facts: Any) -> None:
    """Note an event for those who look later: in the trace of the run, and in the log.

    The facts say who, what and why, never what a file or a result contains. The log
    `wick_graph.audit` has them at the level INFO. A recorder that fails harms nobody.
    """
    _audit.info("%s %s", event, facts)
    try:
        current_recorder().record_event(event, facts)
    except Exception:
        _audit.exception("the trace recorder failed; %s is not recorded", event)


@contextmanager
def refusals(ctx: Any) -> Iterator[None]:
    """Note what a rule forbids to a tool's call; the error goes on its way.

    Args:
        ctx: The call's `ToolContext`; None where a tool is called without an engine.
    """
    try:
        yield
    except RefusedError as error:
        audit(
            "file.refused",
            tool_name=None if ctx is None else ctx.name,
            tool_call_id=None if ctx is None else ctx.call_id,
            thread_id=None if ctx is None else ctx.thread_id,
            why=str(error),
        )
        raise


# --- A recorder that writes each span and event as a line of JSON.


class JsonlRecorder:
    """Append to a file that only its owner may read; each line is a whole one.

    A span is `{"kind": "span", "name", "start", "duration_ms", "attributes"}`, an event
    `{"kind": "event", "name", "at", "attributes"}`; times are UTC in ISO form.

    Args:
        path: The file; it is made if it is not there.
        content: Whether texts themselves are recorded, and not their lengths and hashes alone.

    Raises:
        ConfigError: The file cannot be opened for writing.
    """

    def __init__(self, path: str | Path, *, content: bool = False) -> None:
        self.content = content
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            why = error.strerror
            raise ConfigError(f"the trace file {path} cannot be opened: {why}") from error

    def start_span(self, name: str) -> _Span:
        """Begin a span; it is written when it ends."""
        return _Span(self, name)

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Write an event."""
        at = datetime.now(UTC).isoformat()
        self.write({"kind": "event", "name": name, "at": at, "attributes": dict(metadata)})

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line in one call, so that lines of several processes do not mix."""
        text = json.dumps(line, ensure_ascii=False, default=str, separators=(",", ":"))
        data = (text + "\n").encode("utf-8", "replace")
        with self._lock:
            if self._fd >= 0:
                os.write(self._fd, data)

    def close(self) -> None:
        """Close the file; what comes later is not recorded."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Span:
    def __init__(self, recorder: JsonlRecorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._start = datetime.now(UTC).isoformat()
        self._began = time.perf_counter()
        self._attributes: dict[str, Any] = {}
        self._ended = False

    def set(self, key: str, value: Any) -> Self:
        self._attributes[key] = value
        return self

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._recorder.write(
            {
                "kind": "span",
                "name": self._name,
                "start": self._start,
                "duration_ms": round((time.perf_counter() - self._began) * 1000, 3),
                "attributes": self._attributes,
            }
        )
