"""The journal as a listener: it numbers what happens, and its pages go with the run's own commits.

Nothing is written by the journal itself while a run goes on. The store calls `along` in each
transaction under the run's lease: a step's checkpoint, a tool call's intent, its result, the
end of the run. So what was recorded is committed with what it is about, at no commit more.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any, Final

import ormsgpack

from wick_graph.journal.layout import pack_page
from wick_graph.journal.shelf import Shelf
from wick_graph.journal.taking import Taking
from wick_graph.journal.writing import Counters, Writer
from wick_graph.moments import Directive, JournalLevel, Moment
from wick_graph.store.checkpoints.leases import Lease
from wick_graph.store.database.dialect import Database
from wick_graph.store.keeping.journal_rows import Batch, JournalRows, RunRow

_log: Final = logging.getLogger(__name__)
_ENDS: Final = {("run", "exit"), ("run", "error")}


class JournalPort:
    """Records one run of a thread."""

    active = True
    tokens = False
    holds = False

    def __init__(
        self,
        rows: JournalRows,
        lease: Lease,
        *,
        level: JournalLevel,
        writer: Writer,
        shelf: Shelf,
        run: RunRow,
        about: dict[str, Any],
        last: int,
        before: Batch | None = None,
        taking: Taking | None = None,
    ) -> None:
        self._rows = rows
        self._lease = lease
        self._full = level == "full"
        self._writer = writer
        self._shelf = shelf
        self._run = run
        self._about = about
        self._last = last
        self._before = before
        """What the run before left to be written: its unfinished moments, and its row."""
        self._taking = taking or Taking()
        self._dirty = True
        """The run's row is to be written."""
        self._waiting: list[tuple[Moment, Any]] = []
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The number of the last moment."""
        return self._last

    def row(self) -> RunRow:
        """Return the run's row as it will be written."""
        return replace(self._run, body=ormsgpack.packb(self._about))

    def counters(self) -> Counters:
        """Return how far the branch had come when the run began."""
        return Counters(self._about["steps"], dict(self._about["visits"]))

    def keep(self, name: str, value: Any) -> bool:
        """Keep data with the run's row from its next commit on, and say whether it is kept.

        Nothing is where it holds a secret, is too large, or has no form.
        """
        with self._lock:
            whole = self._shelf.holds_whole(value)
            self._about[name] = self._shelf.keep(value) if whole else b""
            self._dirty = True
        return whole

    @property
    def run(self) -> RunRow:
        """The run's row."""
        return self._run

    def record(self, moment: Moment) -> None:
        """Number a moment and keep it until the next commit."""
        piece = moment.phase == "chunk" and moment.kind == "model"
        with self._lock:
            if not piece or self._full:
                self._last += 1
                moment.seq = self._last
            self._waiting.append((moment, self._taking.of_moment(moment)))

    async def at(self, moment: Moment) -> Directive:
        """Go on."""
        return None

    def along(self, db: Database) -> None:
        """Write what was recorded since the last time, in somebody's transaction."""
        if not self._waiting and not self._dirty:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
            batch = self._batch(waiting)
            before, self._before = self._before, None
        if before is not None:
            self._rows.write(db, self._lease.thread, before)
        self._rows.write(db, self._lease.thread, batch)

    def flush(self) -> None:
        """Commit now what was recorded, for somebody who stops here and looks."""
        self._rows.flush(self.along)

    async def aflush(self) -> None:
        """Do `flush` in the store's thread."""
        await self._rows.aflush(self.along)

    def _batch(self, waiting: list[tuple[Moment, Any]]) -> Batch:
        writer, batch = self._writer, Batch()
        first = next((moment.seq for moment, _ in waiting if moment.seq), 0)
        writer.begin(first)
        for moment, taken in waiting:
            self._write(moment, taken)
        if writer.entries:
            content = pack_page(self._run.number, first, writer.places, writer.entries)
            batch.page = first + len(writer.entries) - 1, content
        batch.blobs = self._shelf.take()
        if len(seen := self._shelf.mask.seen) > len(self._about.get("secrets", ())):
            self._about["secrets"], self._dirty = [*seen], True
        if self._dirty:
            self._run.body = ormsgpack.packb(self._about)
            batch.run, self._dirty = self._run, False
        return batch

    def _write(self, moment: Moment, taken: Any) -> None:
        """Write a moment down; an error of the journal is logged, and never ends a run."""
        if moment.phase == "chunk" and moment.kind == "model":
            self._writer.count_chunk(moment)
        if not moment.seq:
            return
        try:
            self._writer.add(moment, taken)
        except Exception:
            _log.exception("a moment was not recorded: %s %s", moment.kind, moment.phase)
            self._writer.gap(moment)
        if (moment.kind, moment.phase) in _ENDS:
            self._close(moment)

    def _close(self, moment: Moment) -> None:
        counters = self._writer.counters
        self._about |= {
            "last": moment.seq,
            "steps": counters.steps,
            "visits": counters.visits,
            "stopped": moment.data.get("stopped_because") or "done",
        }
        self._run.status = "failed" if moment.phase == "error" else "ended"
        self._run.ended = self._rows.now()
        self._dirty = True
