"""Wait until what a call gave is where another process finds it: no crash can take it away then."""

from __future__ import annotations

from typing import Any

from tests.support.waiting import until
from wick_graph.store import SqlSaver


def until_written(url: str, *texts: str, thread: str = "t") -> None:
    """Wait until a step's writes have results with these texts."""
    config: Any = {"configurable": {"thread_id": thread}}
    with SqlSaver.from_url(url) as store:

        def written() -> bool:
            last = store.get_tuple(config)
            said = repr(last.pending_writes) if last else ""
            return all(text in said for text in texts)

        until(written, "it was never recorded")


def until_done(url: str, calls: int = 1) -> None:
    """Wait until the ledger knows that so many calls are done."""
    with SqlSaver.from_url(url) as store:
        until(lambda: done_in(store) >= calls, "it was never recorded")


def done_in(store: SqlSaver) -> int:
    """Count the calls that a store's ledger knows to be done."""
    with store._core.reading() as db:
        states = db.execute("SELECT state FROM calls").fetchall()
    return sum(state == "done" for (state,) in states)
