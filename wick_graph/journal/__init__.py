"""The journal: a thread's memory of its runs, moment by moment, beside its checkpoints."""

from __future__ import annotations

from wick_graph.journal.blame import Blame
from wick_graph.journal.entry import Entry, RunRecord
from wick_graph.journal.journal import Journal
from wick_graph.journal.rebuild import PendingWrite, RecordedRequest, RecordedState

__all__ = [
    "Blame",
    "Entry",
    "Journal",
    "PendingWrite",
    "RecordedRequest",
    "RecordedState",
    "RunRecord",
]
