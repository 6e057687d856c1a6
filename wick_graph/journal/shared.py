"""The journal of a thread in which several runs may go on at once, none with a lease.

Moments wait until a transaction writes to the thread, and are numbered only there: other runs, of
other processes too, number theirs in between. So each transaction adds one page per run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

from wick_graph.core.moments import Directive, JournalOptions, Moment
from wick_graph.errors import StorageError
from wick_graph.journal.encode import MutationGuard
from wick_graph.journal.recorder import JournalListener
from wick_graph.journal.run_start import Begun, Opening, start
from wick_graph.journal.tracebacks import message_of
from wick_graph.store.dialect import Database
from wick_graph.store.journal_rows import JournalRows
from wick_graph.store.saver import SqlSaver

_LOCK: Final = threading.Lock()


class SharedJournal:
    """The recorded runs of one thread in this process."""

    def __init__(self, rows: JournalRows) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._waiting: list[tuple[RunJournal, Moment, Any]] = []
        self._last = 0
        self.runs: set[RunJournal] = set()
        """The runs that go on."""

    def add(self, run: RunJournal, moment: Moment, taken: Any) -> None:
        """Keep a moment until the next transaction."""
        with self._lock:
            self._waiting.append((run, moment, taken))

    def along(self, db: Database, thread: int) -> None:
        """Write the new moments in the caller's transaction; an error stops their recording.

        One after which the transaction cannot go on is raised: what was not written waits on.
        """
        if self._rows.is_unsure:
            self._again(db, thread)
        while some := self._next():
            run, moments = some
            try:
                listener = self.begin(db, thread, run)
                last = max(self._rows.last(db, thread), self._last)
                with self._lock:
                    del self._waiting[: len(moments) // 2]
                self._last = listener.write(db, thread, moments, last)
            except Exception as error:  # a recording never fails a run
                if self._rows.ends_transaction(error):
                    raise
                run.fail(error)

    def _again(self, db: Database, thread: int) -> None:
        """Write what was rolled back, or stop the recording of runs that have lost moments."""
        if self._rows.is_overtaken(db, thread):
            self._last = 0
            for run in [*self.runs]:
                run.fail(StorageError("a write failed, and another process recorded meanwhile"))
        self._rows.write(db, thread)

    def _next(self) -> tuple[RunJournal, list[Any]] | None:
        """Return the first run with moments that wait, and those before any of another run."""
        with self._lock:
            self._waiting = [one for one in self._waiting if not one[0].problem]
            groups = groupby(self._waiting, lambda one: one[0])
            return next(((run, [p for one in some for p in one[1:]]) for run, some in groups), None)

    def begin(self, db: Database, thread: int, run: RunJournal) -> JournalListener:
        """Return the listener that writes a run, made at its first use."""
        if run.listener is None:
            base, begun = run.begun()
            opened = Opening(self._rows, db, thread, shared=True)
            opened.look(base)
            listener = start(opened, begun, run.options)
            listener.write_before(db)
            run.listener = listener
        return run.listener

    def flush(self) -> None:
        """Commit what is left."""
        if self._waiting or self._rows.is_unsure:
            self._rows.flush_into(self.along)

    async def aflush(self) -> None:
        """Do `flush` in the store's thread."""
        if self._waiting or self._rows.is_unsure:
            await self._rows.run_in_store(self.flush)


class RunJournal:
    """The listener that records one such run."""

    active = True
    tokens = False
    holds = False

    def __init__(
        self, begun: Callable[[], tuple[str | None, Begun]], options: JournalOptions
    ) -> None:
        """Take the checkpoint at which the run began, and how: asked for at its first commit."""
        self.begun, self.options = begun, options
        self.started_ns = time.monotonic_ns()
        self.listener: JournalListener | None = None
        self.problem = ""
        """Why the recording stopped; empty while it goes on."""
        self._guard = MutationGuard()
        self._shared: SharedJournal | None = None
        self._rows: JournalRows | None = None
        self._early: list[tuple[Moment, Any]] = []

    @property
    def is_open(self) -> bool:
        """Whether its store is known."""
        return self._shared is not None

    def open(self, saver: SqlSaver, thread_id: str) -> None:
        """Choose the store and the thread; the moments until then go there too."""
        with _LOCK:
            rows = saver.journal_rows(thread_id)
            held = rows.recorder()
            shared = held if isinstance(held, SharedJournal) else SharedJournal(rows)
            shared.runs.add(self)
            rows.set_recorder(shared)
            self._rows, self._shared = rows, shared
        for moment, taken in self._early:
            shared.add(self, moment, taken)
        self._early.clear()

    def record(self, moment: Moment) -> None:
        """Keep a moment until the next commit in the thread; never raises."""
        if self.problem:
            return
        try:
            taken = self._guard.of_moment(moment)
        except Exception as error:  # arguments of any kind
            self.fail(error)
            return
        if self._shared is None:
            self._early.append((moment, taken))
        else:
            self._shared.add(self, moment, taken)

    async def at(self, moment: Moment) -> Directive:
        """Continue."""
        return None

    def begin(self) -> JournalListener:
        """Begin to write now, and return the listener that knows the run's number and branch."""
        rows, shared, made = self._rows, self._shared, []
        assert rows is not None
        assert shared is not None

        def work(db: Database, thread: int) -> None:
            made.append(listener := shared.begin(db, thread, self))
            listener.write(db, thread, [], listener.last)  # its number is taken from now on

        rows.flush_into(work)
        return made[0]

    def flush(self) -> None:
        """Commit the recorded moments now, for a debugger that holds the run."""
        if self._shared is not None:
            self._shared.flush()

    async def aflush(self) -> None:
        """Do `flush` in the store's thread."""
        if self._shared is not None:
            await self._shared.aflush()

    def fail(self, error: BaseException) -> None:
        """Stop recording; the run goes on."""
        if not self.problem:
            why = f"{type(error).__name__}: {message_of(error)}"
            self.problem = f"the recording of a run stopped: {why}"

    def close(self) -> None:
        """Commit the rest."""
        try:
            if self._shared is not None and not self.problem:
                self._shared.flush()
        except Exception as error:
            self.fail(error)
        finally:
            self._leave()

    async def aclose(self) -> None:
        """Do `close` in the store's thread."""
        try:
            if self._shared is not None and not self.problem:
                await self._shared.aflush()
        except Exception as error:
            self.fail(error)
        finally:
            self._leave()

    def _leave(self) -> None:
        with _LOCK:
            shared, self._shared = self._shared, None
            if shared is None or self._rows is None:
                return
            shared.runs.discard(self)
            if not shared.runs:
                self._rows.set_recorder(None)
