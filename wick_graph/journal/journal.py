"""`Journal`: what a thread's runs did, and what stood behind each moment."""

from __future__ import annotations

from wick_graph.journal.blame import Blaming
from wick_graph.journal.details import Details
from wick_graph.journal.recorded import Recorded


class Journal(Blaming, Details, Recorded):
    """The journal of one thread.

        journal = Journal(saver, "th_…")
        for moment in journal.moments(kind="tool"):
            print(moment.seq, moment.what, journal.details(moment))

    `request_at`, `state_at` and `blame` answer for any moment. Everything comes from the database:
    no model, no tool and no hook is called.
    """
