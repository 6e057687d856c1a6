"""Read a thread's journal from the database alone, unfinished runs included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any, Final, cast

from wick_graph.errors import StorageError
from wick_graph.journal.entry import GAP, Entry, RunRecord, entry_of, gap_of
from wick_graph.journal.page_format import (
    ENDS,
    KIND_OF,
    KINDS,
    LOST,
    OPENS,
    PLACE,
    PageContent,
    PageEntry,
    node_of,
    unpack_about,
    unpack_page,
)
from wick_graph.journal.value_store import unpacked
from wick_graph.store.connection import is_alive
from wick_graph.store.dialect import Database
from wick_graph.store.journal_rows import JournalRows, Page, RunRow
from wick_graph.store.row_format import unpack_id

# --- The progress of a run that its process left unfinished, and its open moments.


_OPENERS: Final = frozenset(KINDS[kind] for kind in OPENS)

_CLOSERS: Final = frozenset([*(KINDS[kind] for kind in ENDS), LOST])


@dataclass(frozen=True, slots=True)
class OpenMoment:
    """A moment that no other has ended yet."""

    code: int
    depth: int
    task: bytes | None
    """The task that it is in; None for the run itself."""


@dataclass(slots=True)
class UnfinishedRun:
    """Counters and open moments of a run, read page by page."""

    steps: int = 0
    visits: dict[str, int] = field(default_factory=dict)
    at: int = 0
    """Time of the last moment, in microseconds since the run began."""
    is_open: dict[int, OpenMoment] = field(default_factory=dict)
    """Moments that no other has ended yet."""

    def follow(self, content: PageContent) -> None:
        """Add the next page."""
        self.count(content.places)
        for at, entry in enumerate(content.entries):
            code, self.at, up, depth = entry[0], entry[1], entry[2], entry[3]
            if code in _OPENERS:
                task = content.places[entry[PLACE] - 1][1] if entry[PLACE] else None
                self.is_open[content.first + at] = OpenMoment(code, depth, task)
            elif code in _CLOSERS:
                self._end(content.first + at - up)

    def count(self, places: Iterable[list[Any]]) -> None:
        """Add visits of nodes."""
        for place in places:
            self.steps = max(self.steps, place[4])
            if (node := node_of(place)) is not None:
                self.visits[node] = max(self.visits.get(node, 0), place[5])

    def closing(self, last: int) -> list[PageEntry]:
        """Return the moments that close the open ones, innermost first."""
        made: list[PageEntry] = []
        for seq, opened in sorted(self.is_open.items(), reverse=True):
            last += 1
            kind = list(KIND_OF[opened.code])
            made.append([LOST, self.at, last - seq, opened.depth, 0, None, {"k": kind}])
        return made

    def _end(self, ended: int) -> None:
        """Close a moment, with the open ones inside it."""
        frame = self.is_open.pop(ended, None)
        if frame is not None:
            self.is_open = {
                seq: held
                for seq, held in self.is_open.items()
                if seq < ended or (frame.task is not None and held.task != frame.task)
            }


def body_of(run: RunRow) -> dict[str, Any]:
    """Return the fields in a run's row; empty if the row is damaged."""
    return {} if run.body is None else unpack_about(run.body)


def content_of(page: Page) -> PageContent | None:
    """Decode a page; None if it is damaged."""
    if page.body is None:
        return None
    try:
        return unpack_page(page.body)
    except (StorageError, ValueError, TypeError):
        return None


def follow_run(
    rows: JournalRows, db: Database, thread: int, run: RunRow, last: int
) -> UnfinishedRun:
    """Read the thread's latest run, page by page."""
    body = body_of(run)
    unfinished = UnfinishedRun(body.get("steps", 0), dict(body.get("visits") or {}))
    pages: list[PageContent] = []
    for page in rows.pages_back(db, thread, last):
        content = content_of(page)
        if page.last < body.get("first", 1):
            break
        if content is not None and content.run == run.number:  # others may run beside it
            pages.append(content)
    for content in reversed(pages):
        unfinished.follow(content)
    return unfinished


# --- Read a thread's journal: from the database alone, in any process, with no key and no
# network.


MISSING: Final = "missing"

DAMAGED: Final = "damaged"

_PAGES: Final = 64
"""Pages per read."""

_ALL: Final = 2**62
"""More moments than a thread has."""


class JournalReader:
    """The moments and runs of one thread, in order, optionally only up to one moment."""

    def __init__(self, rows: JournalRows, upto: int | None = None) -> None:
        self.thread_id = rows.thread_id
        self.rows = rows
        self._upto = _ALL if upto is None else upto
        self._runs: dict[int, RunRecord] = {}
        self._read: dict[int | bytes, Any] = {}
        """Moments by number and blobs by hash, while equal parts are shared."""

    def runs(self) -> list[RunRecord]:
        """Return the thread's runs, the oldest first."""
        with self.reading() as db:
            thread = self.rows.thread(db)
            return self._load_runs(db, thread)

    def known_runs(self) -> list[RunRecord]:
        """Return the runs as they were read last."""
        return list(self._runs.values()) or self.runs()

    def run(self, wanted: int | str) -> RunRecord:
        """Return a run by its number or its id."""
        for run in reversed(self.runs()):
            if wanted in (run.number, run.run_id):
                return run
        raise StorageError(f"thread {self.thread_id!r} has no run {wanted}; list its runs")

    def moments(
        self,
        run: int | str | None = None,
        kind: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        *,
        branch: int | None = None,
    ) -> Iterator[Entry]:
        """Yield moments in order, some pages at a time; see `Journal.moments`."""
        of = None if run is None else self.run(run)
        start = after or 0
        if of is not None:
            start = max(start, of.first - 1)
        left = limit
        for entry in self._entries(start):
            if of is not None and of.last is not None and entry.seq > of.last:
                return
            if not _fits(entry, of, kind, branch) or (after is not None and entry.seq <= after):
                continue
            if left is not None:
                if left <= 0:
                    return
                left -= 1
            yield entry

    def backwards(self, before: int | None = None) -> Iterator[Entry]:
        """Yield moments from the end, or from before one, to the beginning."""
        sharing = self.rows.is_sharing and before is not None and before - 1 <= self._upto
        while sharing and before is not None and (held := self._read.get(before - 1)) is not None:
            yield cast("Entry", held)
            before -= 1
        with self.reading() as db:
            thread = self.rows.thread(db)
            self._load_runs(db, thread)
            last = self.rows.last(db, thread)
            virtual = self._unclosed(db, thread, last)
        top = self._upto if before is None else min(self._upto, before - 1)
        if virtual is not None:
            for at in range(len(virtual.entries) - 1, -1, -1):
                if virtual.first + at <= top:
                    yield self._entry(virtual, at)
        yield from self._down(min(last, top))

    def _down(self, top: int) -> Iterator[Entry]:
        """Yield moments from one downwards; `damaged` is the end of unreadable pages."""
        damaged: int | None = None
        most = 1  # nearly all look for a near moment
        while top > 0:
            with self.reading() as db:
                back = self.rows.pages_back(db, self.rows.thread(db), top, most)
                pages = list(islice(back, most))
            most = min(2 * most, _PAGES)
            for page in pages or [Page(0, None)]:
                content = content_of(page) if page.last else PageContent(0, 1, [], [])
                if content is None:
                    damaged, top = damaged or min(page.last, top), min(page.last, top) - 1
                    continue
                if page.last < top or damaged is not None:
                    why = MISSING if damaged is None else DAMAGED
                    yield gap_of(self.thread_id, page.last + 1, damaged or top, why, self._now())
                    damaged, top = None, page.last
                for at in range(top - content.first, -1, -1):
                    yield self._entry(content, at)
                top = min(top, content.first - 1)

    def moment(self, seq: int) -> Entry:
        """Return one moment by its number."""
        if self.rows.is_sharing and (known := self._read.get(seq)) is not None:
            return cast("Entry", known)
        found = next(self._entries(seq - 1), None) if seq > 0 else None
        if found is None:
            raise StorageError(
                f"thread {self.thread_id!r} has no moment {seq}; its last one is {self.last()}"
            )
        if found.kind == GAP:
            raise StorageError(f"moment {seq} cannot be read: {found.error}")
        return found

    def last(self) -> int:
        """Return the number of the last moment, 0 if there is none."""
        with self.reading() as db:
            thread = self.rows.thread(db)
            last = self.rows.last(db, thread)
            self._load_runs(db, thread)
            virtual = self._unclosed(db, thread, last)
        return min(self._upto, last if virtual is None else last + len(virtual.entries))

    def problems(self) -> list[str]:
        """List damaged and missing parts of the journal, one sentence each."""
        found = [f"run {run.number} is damaged" for run in self.runs() if run.damaged]
        return found + [entry.error or "" for entry in self._entries(0) if entry.kind == GAP]

    def size(self) -> int:
        """Return the size of the journal's content in bytes."""
        with self.reading() as db:
            return self.rows.size(db, self.rows.thread(db))

    def value(self, reference: bytes) -> Any:
        """Return the value of a reference in a moment's fields."""
        return unpacked(self.rows.codec, reference, self._blob)

    def _blob(self, hashed: bytes) -> bytes:
        sharing = self.rows.is_sharing
        if sharing and hashed in self._read:
            return cast("bytes", self._read[hashed])
        with self.reading() as db:
            found = self.rows.blob(db, self.rows.thread(db), hashed)
        if sharing:
            self._read[hashed] = found
        return found

    def secret(self) -> bytes:
        """Return the secret of the thread's request keys."""
        with self.reading() as db:
            return self.rows.secret(db, self.rows.thread(db)) or b""

    def run_of(self, entry: Entry) -> RunRecord:
        """Return the run of a moment, also of one from another reader."""
        if entry.run not in self._runs:
            self.runs()
        return self._runs.get(entry.run) or self._unlisted(entry.run)

    def reading(self) -> AbstractContextManager[Database]:
        """Hold one consistent view of the thread."""
        view: AbstractContextManager[Database] = self.rows.reading()
        return view

    def _entries(self, after: int) -> Iterator[Entry]:
        found, upto = self._following(after), self._upto
        return found if upto == _ALL else takewhile(lambda entry: entry.seq <= upto, found)

    def _following(self, after: int) -> Iterator[Entry]:
        """Yield the moments after one."""
        expected, most = after + 1, 1  # nearly all look for a near moment
        while True:
            with self.reading() as db:
                thread = self.rows.thread(db)
                self._load_runs(db, thread)
                pages = self.rows.pages(db, thread, expected - 1, most)
                virtual = None if pages else self._unclosed(db, thread, expected - 1)
            most = min(2 * most, _PAGES)
            for page in pages:
                yield from self._page(page, expected)
                expected = page.last + 1
            if virtual is not None:
                for at in range(len(virtual.entries)):
                    yield self._entry(virtual, at)
            if not pages:
                return

    def _page(self, page: Page, expected: int) -> Iterator[Entry]:
        content = content_of(page)
        if content is None:
            yield gap_of(self.thread_id, expected, page.last, DAMAGED, self._now())
            return
        if content.first > expected:
            yield gap_of(self.thread_id, expected, content.first - 1, MISSING, self._now())
        for at in range(max(expected - content.first, 0), len(content.entries)):
            yield self._entry(content, at)

    def _unclosed(self, db: Database, thread: int, last: int) -> PageContent | None:
        """Return the moments with which the next run will close the last one, if that died."""
        if last != self.rows.last(db, thread):
            return None
        row = self.rows.last_run(db, thread)
        if row is None or row.status != "running" or self._runs[row.number].status != "lost":
            return None
        entries = follow_run(self.rows, db, thread, row, last).closing(last)
        return PageContent(row.number, last + 1, [], entries) if entries else None

    def _entry(self, content: PageContent, at: int) -> Entry:
        run = self._runs.get(content.run)
        made = entry_of(content, at, self._unlisted(content.run) if run is None else run)
        if self.rows.is_sharing:
            self._read[made.seq] = made
        return made

    def _unlisted(self, number: int) -> RunRecord:
        """Return a substitute for a run's missing row."""
        self._runs[number] = run = record_of(self.thread_id, _unknown(number), "lost")
        return run

    def _load_runs(self, db: Database, thread: int) -> list[RunRecord]:
        rows = self.rows.run_rows(db, thread)
        alive = bool(rows) and rows[-1].status == "running" and self.rows.is_running(db, thread)
        made = []
        for row in rows:
            by = body_of(row).get("by") if row.status == "running" else None
            lives = (alive and row is rows[-1]) if by is None else is_alive(by)
            dead = row.status == "running" and not lives
            made.append(record_of(self.thread_id, row, "lost" if dead else row.status))
        self._runs = {run.number: run for run in made}
        return made

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.rows.now(), UTC)


def _fits(entry: Entry, run: RunRecord | None, kind: str | None, branch: int | None) -> bool:
    if kind is not None and kind not in (entry.kind, entry.what):
        return False
    if entry.kind == GAP:
        return True
    if run is not None and entry.run != run.number:
        return False
    return branch is None or entry.branch == branch


def _unknown(number: int) -> RunRow:
    return RunRow(
        number=number, run=b"\xff", branch=0, status="lost", started=0.0, ended=None, body=None
    )


def record_of(thread_id: str, row: RunRow, status: str) -> RunRecord:
    """Decode a run's row."""
    body = body_of(row)
    base = body.get("base")
    return RunRecord(
        thread_id=thread_id,
        number=row.number,
        run_id=unpack_id(row.run),
        branch=row.branch,
        status=status,
        stopped_because="lost" if status == "lost" else body.get("stopped"),
        mode=body.get("mode", ""),
        started=datetime.fromtimestamp(row.started, UTC),
        ended=None if row.ended is None else datetime.fromtimestamp(row.ended, UTC),
        agent=body.get("agent", ""),
        model=body.get("model", ""),
        level=body.get("level", ""),
        first=body.get("first", 1),
        last=body.get("last"),
        base=None if base is None else unpack_id(base),
        hooks=tuple(body.get("hooks") or ()),
        shape=body.get("shape") or {},
        end=None if body.get("end") is None else unpack_id(body["end"]),
        graph_hash=body.get("graph", ""),
        code_hash=body.get("code", ""),
        versions=body.get("versions") or {},
        damaged=not body,
        redact=tuple(body.get("redact") or ()),
        secrets=tuple((length, mark) for length, mark in body.get("secrets") or ()),
    )
