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
from wick_graph.machine import O_BINARY

# --- The recorder's protocol, the current recorder, and the audit of refusals and decisions.


_audit: Final = logging.getLogger("wick_graph.audit")


class SpanHandle(Protocol):
    """A started span."""

    def set(self, key: str, value: Any) -> Self:
        """Set an attribute; return the handle, so that calls can be chained."""
        ...

    def end(self) -> None:
        """Record the span and its duration; a second call does nothing."""
        ...


class TraceRecorder(Protocol):
    """Receives the spans and events of runs, from several threads and tasks at once.

    A recorder may have an attribute `content`. If it is False, the recorder gets lengths and hashes
    of texts instead of the texts; otherwise it gets the texts, redacted.
    """

    def start_span(self, name: str) -> SpanHandle:
        """Start a span."""
        ...

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Record an event, which has no duration."""
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
        """Return a span that records nothing."""
        return _NULL_SPAN

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Record nothing."""


NULL_RECORDER: Final = NullRecorder()

_current: Final[ContextVar[TraceRecorder]] = ContextVar("wick_recorder", default=NULL_RECORDER)


@contextmanager
def recording(recorder: TraceRecorder) -> Iterator[TraceRecorder]:
    """Record every run that begins in this block, of any agent."""
    token = _current.set(recorder)
    try:
        yield recorder
    finally:
        _current.reset(token)


def current_recorder() -> TraceRecorder:
    """Return the recorder of the caller's block, or one that records nothing."""
    return _current.get()


def keeps_content(recorder: TraceRecorder) -> bool:
    """Return whether a recorder wants the texts themselves."""
    return bool(getattr(recorder, "content", True))


def audit(event: str, **facts: Any) -> None:
    """Record an audit event in the trace of the run and in the log.

    The facts say who, what and why, never the contents of a file or a result. The logger is
    `wick_graph.audit`, at the level INFO. A failing recorder never harms the run.
    """
    _audit.info("%s %s", event, facts)
    try:
        current_recorder().record_event(event, facts)
    except Exception:
        _audit.exception("the trace recorder failed; %s is not recorded", event)


@contextmanager
def refusals(ctx: Any) -> Iterator[None]:
    """Audit a tool call that a rule forbids, and raise the error again.

    Args:
        ctx: The call's `ToolContext`; None if the tool is called without an engine.
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


# --- A recorder that writes spans and events as JSON lines.


class JsonlRecorder:
    """Append spans and events as JSON lines to a file that only its owner may read.

    A span is `{"kind": "span", "name", "start", "duration_ms", "attributes"}`, an event
    `{"kind": "event", "name", "at", "attributes"}`; times are UTC in ISO form.

    Args:
        path: The file; created if it does not exist.
        content: Whether to record texts instead of their lengths and hashes.

    Raises:
        ConfigError: The file cannot be opened for writing.
    """

    def __init__(self, path: str | Path, *, content: bool = False) -> None:
        self.content = content
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | O_BINARY
        try:
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            why = error.strerror
            raise ConfigError(f"the trace file {path} cannot be opened: {why}") from error

    def start_span(self, name: str) -> _Span:
        """Start a span; it is written when it ends."""
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
        """Close the file; later spans and events are dropped."""
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
