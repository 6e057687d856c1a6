"""What a recorder of traces is, where a run finds it, and how refusals and decisions reach it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, Self

from wick_graph.errors import RefusedError

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
