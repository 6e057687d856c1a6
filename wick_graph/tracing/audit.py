"""What was refused or decided about what may be done: put on record, wherever records go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wick_graph.errors import RefusedError
from wick_graph.tracing.recorder import current_recorder

_log: Final = logging.getLogger("wick_graph.audit")


def audit(event: str, **facts: Any) -> None:
    """Note an event for those who look later: in the trace of the run, and in the log.

    The facts say who, what and why, never what a file or a result contains. The log
    `wick_graph.audit` has them at the level INFO. A recorder that fails harms nobody.
    """
    _log.info("%s %s", event, facts)
    try:
        current_recorder().record_event(event, facts)
    except Exception:
        _log.exception("the trace recorder failed; %s is not recorded", event)


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
            tool_name=getattr(ctx, "name", None),
            tool_call_id=getattr(ctx, "call_id", None),
            thread_id=getattr(ctx, "thread_id", None),
            why=str(error),
        )
        raise
