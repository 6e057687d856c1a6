"""Record every run of a block, and read the recorded runs in tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, overload

from wick_graph.core.moments import DEBUGGER, EVERYWHERE, NULL_LISTENER, Listener
from wick_graph.debug.session import DebugSession
from wick_graph.errors import DebugError, StorageError
from wick_graph.foreign.copies import open_store
from wick_graph.foreign.listener import HERE, LISTENER
from wick_graph.foreign.run import ForeignRun
from wick_graph.journal.entry import Entry, RunRecord
from wick_graph.journal.journal import Journal, line_of
from wick_graph.journal.reconstruct import RecordedRequest
from wick_graph.journal.tracebacks import message_of
from wick_graph.runtime.context import Run
from wick_graph.store.copying import transfer
from wick_graph.store.maintenance import tenant_of
from wick_graph.store.saver import SqlSaver

_log: Final = logging.getLogger(__name__)


class Recording:
    """The runs of a block, and their moments."""

    clock = None
    holds = False

    def __init__(self, store: SqlSaver | str | None = None) -> None:
        self.runs: list[tuple[str, str]] = []
        """Thread and run of each, in order of their start."""
        self.problems: list[str] = []
        """Why recordings of runs stopped; the runs went on."""
        self._store = store
        self._copies: SqlSaver | None = None
        self._refused = ""
        self._lock = threading.Lock()
        self._journals: dict[str, Journal] = {}
        self._of: dict[tuple[str, int], Journal] = {}
        self._told_by: dict[SqlSaver, Callable[[], None]] = {}

    @property
    def below(self) -> Recording:
        """The debugger of child runs: the same, so that these are recorded too."""
        return self

    def attach(self, run: Run, io: Any, spec: Any, journal: Any, saver: Any) -> Listener:
        """Attach to a starting run; the engine calls this."""
        thread = run.thread_id
        if journal is None or thread is None or not isinstance(saver, SqlSaver):
            return NULL_LISTENER
        self._note(thread, run.run_id, saver)
        listener: Listener = journal
        return listener

    def keep(self, run: ForeignRun, saver: Any) -> SqlSaver:
        """Return the store of a run of a LangGraph graph, and list the run; its seams call this.

        It is the run's own saver, or the store of copies.

        Raises:
            StorageError: The store of copies cannot be opened.
        """
        with self._lock:
            if isinstance(saver, SqlSaver):
                store = saver
            else:
                store = self._copies = self._copies or self._opened()
            self._note(run.thread_id, run.run_id, store)
        return store

    def tell(self, problem: str) -> None:
        """Note that a run could not be recorded, and warn of each cause once."""
        if problem not in self.problems:
            _log.warning("%s; the run itself goes on", problem)
        self.problems.append(problem)

    def _opened(self) -> SqlSaver:
        if not self._refused:
            try:
                return open_store(self._store)
            except Exception as error:
                self._refused = message_of(error)
        raise StorageError(self._refused)

    def _note(self, thread: str, run_id: str, saver: SqlSaver) -> None:
        self.runs.append((thread, run_id))
        self._journals[run_id] = Journal(saver, thread)
        if saver not in self._told_by and saver is not self._copies:
            self._told_by[saver] = keep = partial(self._keep, saver)
            saver.closing.append(keep)

    def close(self) -> None:
        """Close the store of copies, unless it was given open; reading is over then."""
        if self._copies is not None and not isinstance(self._store, SqlSaver):
            self._copies.close()

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
        """Return the recorded details of a moment from `moments`."""
        return self._of[entry.thread_id, entry.seq].details(entry)

    def session(self, run: int = -1) -> DebugSession:
        """Open a session over the thread of one of the runs, the last one by default.

        Raises:
            DebugError: Nothing was recorded.
        """
        self._known()
        return DebugSession.open(self._journals[self.runs[run][1]])

    def end_of(self, run: int, last: int) -> list[str]:
        """Return the end of one run as lines: one for the run, and one for each of its moments."""
        run_id = self.runs[run][1]
        return _end_of(self._journals[run_id], run_id, last)

    def stop(self) -> None:
        """Stop copying threads before their stores are closed."""
        while self._told_by:
            saver, keep = self._told_by.popitem()
            with suppress(ValueError):  # it is already closed
                saver.closing.remove(keep)

    def _keep(self, saver: SqlSaver) -> None:
        """Copy the threads of the runs from a store that closes: tests read them after it."""
        copies: dict[str, Journal] = {}
        kept = SqlSaver.from_url("sqlite://", tenant=tenant_of(saver))
        for run_id, journal in self._journals.items():
            thread = journal.thread_id
            if journal.saver is not saver:
                continue
            with suppress(Exception):  # then its store says that it is closed
                if thread not in copies:
                    transfer(saver._core, thread, kept._core, thread)
                    copies[thread] = Journal(kept, thread)
                self._journals[run_id] = copies[thread]

    def _known(self) -> dict[str, Journal]:
        if not self._journals:
            raise DebugError(
                "nothing was recorded: no run of a LangGraph graph, or of an agent with an "
                "SqlSaver as its store, began here"
            )
        return self._journals


class _Block:
    """The block in which runs are recorded, of `with` or of `async with`."""

    def __init__(self, store: SqlSaver | str | None, scope: str) -> None:
        if scope not in ("process", "context"):
            raise DebugError(f"scope must be process or context, not {scope!r:.40}")
        self._recording = Recording(store)
        self._everywhere = scope == "process"
        self._tokens: tuple[Any, Any] | None = None

    def __enter__(self) -> Recording:
        made = self._recording
        if self._tokens is not None:
            raise DebugError("this block records already; call record() again for another one")
        self._tokens = DEBUGGER.set(made), HERE.set(made)
        if self._everywhere:
            EVERYWHERE.append(made)
        LISTENER.open(made, everywhere=self._everywhere)
        return made

    def __exit__(self, *error: object) -> None:
        made, tokens, self._tokens = self._recording, self._tokens, None
        LISTENER.close(made)
        if self._everywhere:
            EVERYWHERE.remove(made)
        if tokens is not None:
            with suppress(ValueError):  # another task leaves the block, as in async fixtures
                DEBUGGER.reset(tokens[0])
                HERE.reset(tokens[1])
        made.stop()

    async def __aenter__(self) -> Recording:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()


def record(
    store: SqlSaver | str | None = None, scope: Literal["process", "context"] = "process"
) -> _Block:
    """Record every run that starts in the block: of agents, and of any LangGraph graph.

    A run on an `SqlSaver` is recorded there, with its own commits. The
    checkpoints of any other are copied, and a failing recording never fails a run: `problems`
    of the recording tells it.

    Args:
        store: An open store, or a URL, for the copies; else `checkpoints/recorded.db`.
        scope: `process` for all threads and tasks, `context` for what this one starts.

    Raises:
        DebugError: There is no such scope.
    """
    return _Block(store, scope)


def _end_of(journal: Journal, run_id: str, last: int) -> list[str]:
    """Return a run's end as lines, or why it cannot be read."""
    try:
        run = journal.run(run_id)
        moments = [*journal.moments(run_id)]
        lines = [line_of(journal, moment) for moment in moments[max(len(moments) - last, 0) :]]
    except Exception as error:  # the error of a closed store becomes the text
        return [f"run {run_id}: {error}"]
    return [f"run {run_id} of thread {run.thread_id}: {run.stopped_because or run.status}", *lines]


_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledTool:
    """One call of a tool."""

    name: str
    args: Any
    """The arguments as the tool got them."""
    output: str | None
    """Its output; None if it failed."""
    error: str | None


class RecordedRun:
    """One run, from its journal."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.journal = journal
        self.run_id = run_id

    @property
    def record(self) -> RunRecord:
        """The journal's record of the run."""
        return self.journal.run(self.run_id)

    @property
    def stopped_because(self) -> str:
        """Why it ended: as `StoppedBecause` says, or `lost`."""
        return self.record.stopped_because or self.record.status

    @property
    def model_calls(self) -> int:
        """Number of model calls."""
        return len(self.moments("model.request"))

    @property
    def path(self) -> list[str]:
        """The visited nodes, in order."""
        return [moment.name for moment in self.moments("node.enter")]

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests to the models."""
        return [self.journal.request_at(moment.seq) for moment in self.moments("model.request")]

    @property
    def tool_calls(self) -> list[CalledTool]:
        """The tool calls, in order of their end."""
        began = {moment.task: moment for moment in self.moments("tool.call")}
        return [self._call(end, began.get(end.task)) for end in self.moments("tool.exit")]

    def called(self, name: str, **args: Any) -> int:
        """Count the calls of a tool with these arguments among theirs."""
        return sum(_has(call, name, args) for call in self.tool_calls)

    def moments(self, kind: str | None = None) -> list[Entry]:
        """List its moments, all or those of a kind such as `tool` or `tool.exit`."""
        return list(self.journal.moments(self.run_id, kind))

    def details(self, moment: Entry) -> dict[str, Any]:
        """Return the recorded details of a moment."""
        return self.journal.details(moment)

    def session(self) -> DebugSession:
        """Open a debugger's session over the run's thread."""
        return DebugSession.open(self.journal)

    def lines(self, last: int | None = None) -> list[str]:
        """Return its moments as lines; only the last ones, if a number is given."""
        moments = self.moments()
        return [line_of(self.journal, m) for m in (moments if last is None else moments[-last:])]

    def _call(self, end: Entry, call: Entry | None) -> CalledTool:
        told = self.journal.details(end)
        args = None if call is None else self.journal.details(call).get("args")
        return CalledTool(
            name=end.name, args=args, output=told.get("output"), error=told.get("error")
        )


class RecordedRuns(Sequence[RecordedRun]):
    """The runs of a block, in order of their start."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def last(self) -> RecordedRun:
        """The run that started last.

        Raises:
            DebugError: None has started.
        """
        if not self:
            raise DebugError(
                "no run is recorded yet; begin one, of an agent with an SqlSaver as its store "
                "(the default), not with store=False"
            )
        return self[-1]

    def report(self, last: int) -> Iterator[str]:
        """Return the ends of all runs as lines; unreadable parts are named."""
        for at in range(len(self)):
            yield from self._recording.end_of(at, last)

    def __len__(self) -> int:
        return len(self._recording.runs)

    @overload
    def __getitem__(self, at: int) -> RecordedRun: ...
    @overload
    def __getitem__(self, at: slice) -> list[RecordedRun]: ...
    def __getitem__(self, at: int | slice) -> RecordedRun | list[RecordedRun]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        _, run_id = self._recording.runs[at]
        journal = self._recording.session(at).journal
        assert journal is not None
        return RecordedRun(journal, run_id)


def _has(call: CalledTool, name: str, args: dict[str, Any]) -> bool:
    if call.name != name:
        return False
    given = call.args if isinstance(call.args, dict) else {}
    return all(given.get(key, _MISSING) == value for key, value in args.items())
