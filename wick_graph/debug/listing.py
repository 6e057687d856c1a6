"""Moments of a live run as entries, in the form in which they will be read from the journal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from wick_graph.journal.entry import Entry, RunRecord, entry_of
from wick_graph.journal.facts import Maker
from wick_graph.journal.frames import CALL, TOOL, Frame, Visit
from wick_graph.journal.layout import PHASE_CODES, PageContent
from wick_graph.journal.port import JournalPort
from wick_graph.journal.reading import record_of
from wick_graph.journal.writing import Counters, Writer
from wick_graph.moments import Moment
from wick_graph.runtime import Run

_ERROR = 2_000
"""Characters of an error's text."""
Fields = dict[str, Any]


class _Bare:
    """Makes of each moment only what an entry itself shows."""

    def __init__(self) -> None:
        self.hooks: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.makers: dict[tuple[str, str], Maker] = {
            ("hook", "enter"): _of_hook,
            ("hook", "exit"): _of_hook,
            ("hook", "error"): _of_hook,
            ("tool", "enter"): _of_call,
            ("tool", "exit"): _of_result,
            ("tool", "error"): _of_error,
            ("node", "error"): _of_error,
            ("model", "error"): _of_error,
            ("model", "retry"): _of_error,
            ("model", "fallback"): _of_error,
            ("run", "error"): _of_error,
        }


class Listing:
    """Numbers and nests the moments of one run as its journal does."""

    def __init__(self, run: Run, journal: JournalPort | None, agent: str, last: int) -> None:
        counters = Counters() if journal is None else journal.counters()
        bare: Any = _Bare()
        self._last = last
        self._writer: Writer | None = None
        self._bare, self._counters = bare, counters
        if journal is None:
            self.record = _record_of(run, agent, last)
        else:
            self.record = record_of(run.thread_id or "", journal.row(), "running")

    def entry(self, moment: Moment) -> Entry | None:
        """Return a moment's entry; None for one that is not recorded, such as a piece of text."""
        if moment.kind == "model" and moment.phase == "chunk" and not moment.seq:
            return None
        if self._writer is None:
            self._writer = Writer(self._bare, self._counters, moment.at_ns)
        if not moment.seq:
            moment.seq = self._last + 1
        self._last = moment.seq
        writer = self._writer
        writer.begin(moment.seq)
        writer.add(moment, None)
        content = PageContent(self.record.number, moment.seq, writer.places, writer.entries)
        return entry_of(content, 0, self.record)


def _record_of(run: Run, agent: str, last: int) -> RunRecord:
    return RunRecord(
        thread_id=run.thread_id or "",
        number=1,
        run_id=run.run_id,
        branch=0,
        status="running",
        stopped_because=None,
        mode="input",
        started=datetime.now(UTC),
        ended=None,
        agent=agent,
        model=run.model,
        level="off",
        first=last + 1,
        last=None,
        base=None,
        hooks=(),
        graph_hash="",
        code_hash="",
        versions={},
    )


def _of_hook(moment: Moment, visit: Visit, frame: Frame) -> Fields:
    fields: Fields = {"p": PHASE_CODES[moment.data["phase"]]}
    if moment.phase == "error":
        fields |= _said(moment.data["value"])
    return fields


def _of_call(moment: Moment, visit: Visit, frame: Frame) -> Fields:
    visit.place[CALL], visit.place[TOOL] = moment.call_id, moment.name
    return {}


def _of_result(moment: Moment, visit: Visit, frame: Frame) -> Fields:
    return {"z": True} if moment.data["result"].error else {}


def _of_error(moment: Moment, visit: Visit, frame: Frame) -> Fields:
    return _said(moment.data.get("error"))


def _said(error: Any) -> Fields:
    return {} if error is None else {"e": [type(error).__name__, str(error)[:_ERROR]]}
