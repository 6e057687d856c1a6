"""Step into the runs of sub-agents, which have threads of their own, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.journal.entry import Entry
from wick_graph.journal.links import begun_by

if TYPE_CHECKING:
    from wick_graph.debug.session import DebugSession


def step_into(session: DebugSession) -> DebugSession | None:
    """Open the run of the sub-agent that the present moment starts; None if it starts none.

    Raises:
        DebugError: Its thread is not in this store, or has no recording.
    """
    here, journal = session.here, session.journal
    if here is None or here.what != "agent.spawn" or journal is None or session.held:
        return None
    link = begun_by(journal, here)
    inner = type(session).open(journal.saver, link.thread_id)
    inner.goto(f"#{link.seq}")
    return inner


def returned_at(session: DebugSession) -> Entry | None:
    """Return the moment at which the sub-agent returns that the present moment starts."""
    here, journal = session.here, session.journal
    if here is None or journal is None:
        return None
    later = journal.moments(kind="agent.return", after=here.seq, branch=here.branch)
    return next((entry for entry in later if entry.fields["t"] == here.fields.get("t")), None)
