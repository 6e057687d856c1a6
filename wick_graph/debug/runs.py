"""Recorded runs as tests speak of them: what was asked, what was called, why it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from wick_graph.debug.recording import Recording
from wick_graph.debug.session import DebugSession
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry, RunRecord
from wick_graph.journal.journal import Journal
from wick_graph.journal.rebuild import RecordedRequest
from wick_graph.journal.show import line_of

_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledTool:
    """One call of a tool."""

    name: str
    args: Any
    """The arguments that reached it."""
    output: str | None
    """What it answered; None where it failed."""
    error: str | None


class RecordedRun:
    """One run, from its journal."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.journal = journal
        self.run_id = run_id

    @property
    def record(self) -> RunRecord:
        """What the journal says of the run as a whole."""
        return self.journal.run(self.run_id)

    @property
    def stopped_because(self) -> str:
        """Why it ended: `done`, `limit`, `empty`, `interrupted`, `cancelled`, `failed`, `lost`."""
        return self.record.stopped_because or self.record.status

    @property
    def model_calls(self) -> int:
        """How often a model was asked."""
        return len(self.moments("model.request"))

    @property
    def path(self) -> list[str]:
        """The nodes that were visited, in their order."""
        return [moment.name for moment in self.moments("node.enter")]

    @property
    def requests(self) -> list[RecordedRequest]:
        """What the models were sent."""
        return [self.journal.request_at(moment.seq) for moment in self.moments("model.request")]

    @property
    def tool_calls(self) -> list[CalledTool]:
        """The calls of tools, in the order in which they ended."""
        began = {moment.task: moment for moment in self.moments("tool.call")}
        return [self._call(end, began.get(end.task)) for end in self.moments("tool.exit")]

    def called(self, name: str, **args: Any) -> int:
        """Count the calls of a tool that had these arguments among theirs."""
        return sum(_has(call, name, args) for call in self.tool_calls)

    def moments(self, kind: str | None = None) -> list[Entry]:
        """List its moments, all or those of a kind such as `tool` or `tool.exit`."""
        return list(self.journal.moments(self.run_id, kind))

    def details(self, moment: Entry) -> dict[str, Any]:
        """Return what is written down of a moment."""
        return self.journal.details(moment)

    def session(self) -> DebugSession:
        """Open a debugger's session over the run's thread."""
        return DebugSession.open(self.journal)

    def lines(self, last: int | None = None) -> list[str]:
        """Tell of its moments, one a line; of the last ones alone, if so many are given."""
        moments = self.moments()
        return [line_of(self.journal, m) for m in (moments if last is None else moments[-last:])]

    def _call(self, end: Entry, call: Entry | None) -> CalledTool:
        told = self.journal.details(end)
        args = None if call is None else self.journal.details(call).get("args")
        return CalledTool(
            name=end.name, args=args, output=told.get("output"), error=told.get("error")
        )


class RecordedRuns(Sequence[RecordedRun]):
    """The runs of a block, in the order in which they began."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def last(self) -> RecordedRun:
        """The run that began last.

        Raises:
            DebugError: None has begun.
        """
        if not self:
            raise DebugError("no run has begun yet whose store is an SqlSaver")
        return self[-1]

    def report(self, last: int) -> Iterator[str]:
        """Tell of the end of each run, in any case: whatever cannot be read is said."""
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
