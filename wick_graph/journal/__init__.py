"""The journal: the record of a thread's runs, moment by moment, beside its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.journal.blame import Blame
    from wick_graph.journal.entry import Entry, RunRecord
    from wick_graph.journal.journal import Journal
    from wick_graph.journal.reconstruct import PendingWrite, RecordedRequest, RecordedState

__all__ = [
    "Blame",
    "Entry",
    "Journal",
    "PendingWrite",
    "RecordedRequest",
    "RecordedState",
    "RunRecord",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.journal.blame": ("Blame",),
            "wick_graph.journal.entry": ("Entry", "RunRecord"),
            "wick_graph.journal.journal": ("Journal",),
            "wick_graph.journal.reconstruct": ("PendingWrite", "RecordedRequest", "RecordedState"),
        },
    )
