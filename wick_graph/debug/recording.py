"""Record every run of a block, whatever its agent's own level is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from wick_graph.debug.session import DebugSession
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.show import line_of
from wick_graph.moments import DEBUGGER, NULL_PORT, Port
from wick_graph.runtime import Run
from wick_graph.store.saver import SqlSaver

KEPT: Final = 25
"""Moments of each run that can still be told of once its store is closed."""


class Recording:
    """The runs of a block, and their moments."""

    clock = None

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []
        """Thread and run of each, in the order in which they began."""
        self._journals: dict[str, Journal] = {}
        self._of: dict[tuple[str, int], Journal] = {}
        self._ends: dict[str, list[str]] = {}
        self._told_by: list[tuple[SqlSaver, Callable[[], None]]] = []

    @property
    def below(self) -> Recording:
        """What a run begins is recorded too."""
        return self

    def attach(self, run: Run, io: Any, spec: Any, journal: Any, saver: Any) -> Port:
        """Take part in a run that begins; the engine calls this."""
        thread = run.thread_id
        if journal is None or thread is None or not isinstance(saver, SqlSaver):
            return NULL_PORT
        self.runs.append((thread, run.run_id))
        self._journals[run.run_id] = Journal(saver, thread)
        keep = partial(self._keep, run.run_id)
        self._told_by.append((saver, keep))
        saver.closing.append(keep)
        port: Port = journal
        return port

    def moments(self, kind: str | None = None) -> list[Entry]:
        """List the moments of all runs, all or those of a kind such as `tool` or `tool.exit`.

        Raises:
            DebugError: Nothing was recorded.
        """
        found: list[Entry] = []
        for run_id, journal in self._known().items():
            for entry in journal.moments(run_id, kind):
                self._of[entry.thread_id, entry.seq] = journal
                found.append(entry)
        return found

    def details(self, entry: Entry) -> dict[str, Any]:
        """Return what is written down of a moment that `moments` gave."""
        return self._of[entry.thread_id, entry.seq].details(entry)

    def session(self, run: int = -1) -> DebugSession:
        """Open a session over the thread of one of the runs, the last one by default.

        Raises:
            DebugError: Nothing was recorded.
        """
        self._known()
        return DebugSession.open(self._journals[self.runs[run][1]])

    def end_of(self, run: int, last: int = KEPT) -> list[str]:
        """Tell of the end of one of the runs, one line for it and one for each of its moments.

        Once the run's store is closed, its last `KEPT` moments are told of.
        """
        run_id = self.runs[run][1]
        head, *lines = self._ends.get(run_id) or _end_of(self._journals[run_id], run_id, last)
        return [head, *lines[max(len(lines) - last, 0) :]]

    def stop(self) -> None:
        """Ask no store any more to tell of its runs before it is closed."""
        while self._told_by:
            saver, keep = self._told_by.pop()
            with suppress(ValueError):  # it is closed already
                saver.closing.remove(keep)

    def _keep(self, run_id: str) -> None:
        self._ends[run_id] = _end_of(self._journals[run_id], run_id, KEPT)

    def _known(self) -> dict[str, Journal]:
        if not self._journals:
            raise DebugError("nothing was recorded: no run began here whose store is an SqlSaver")
        return self._journals


@contextmanager
def record() -> Iterator[Recording]:
    """Record every run that is begun in the block, in its agent's own store."""
    made = Recording()
    before = DEBUGGER.set(made)
    try:
        yield made
    finally:
        DEBUGGER.reset(before)
        made.stop()


def _end_of(journal: Journal, run_id: str, last: int) -> list[str]:
    """Tell of a run's end; where it cannot be read, say why."""
    try:
        run = journal.run(run_id)
        moments = [*journal.moments(run_id)]
        lines = [line_of(journal, moment) for moment in moments[max(len(moments) - last, 0) :]]
    except Exception as error:  # a store that is closed says of its end whatever it can
        return [f"run {run_id}: {error}"]
    return [f"run {run_id} of thread {run.thread_id}: {run.stopped_because or run.status}", *lines]
