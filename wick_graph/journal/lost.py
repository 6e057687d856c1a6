"""What a run left behind whose process died: how far it came, and what it had begun."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import ormsgpack

from wick_graph.errors import StorageError
from wick_graph.journal.layout import (
    ENDS,
    KIND_OF,
    KINDS,
    LOST,
    OPENS,
    PLACE,
    Entry,
    PageContent,
    node_of,
    unpack_page,
)
from wick_graph.store.database.dialect import Database
from wick_graph.store.keeping.journal_rows import JournalRows, Page, RunRow

_OPENERS: Final = frozenset(KINDS[kind] for kind in OPENS)
_CLOSERS: Final = frozenset([*(KINDS[kind] for kind in ENDS), LOST])


@dataclass(frozen=True, slots=True)
class Opened:
    """A moment that began something."""

    code: int
    depth: int
    task: bytes | None
    """The task that it is in; None for the run itself."""


@dataclass(slots=True)
class Trail:
    """A run, followed from its first page to its last."""

    steps: int = 0
    visits: dict[str, int] = field(default_factory=dict)
    at: int = 0
    """When the last moment was, in microseconds since the run began."""
    is_open: dict[int, Opened] = field(default_factory=dict)
    """Moments that nothing has ended yet."""

    def follow(self, content: PageContent) -> None:
        """Take in the next page."""
        self.count(content.places)
        for at, entry in enumerate(content.entries):
            code, self.at, up, depth = entry[0], entry[1], entry[2], entry[3]
            if code in _OPENERS:
                task = content.places[entry[PLACE] - 1][1] if entry[PLACE] else None
                self.is_open[content.first + at] = Opened(code, depth, task)
            elif code in _CLOSERS:
                self._end(content.first + at - up)

    def count(self, places: Iterable[list[Any]]) -> None:
        """Take in visits of nodes."""
        for place in places:
            self.steps = max(self.steps, place[4])
            if (node := node_of(place)) is not None:
                self.visits[node] = max(self.visits.get(node, 0), place[5])

    def closing(self, last: int) -> list[Entry]:
        """Return the moments that close what is open, the innermost first."""
        made: list[Entry] = []
        for seq, opened in sorted(self.is_open.items(), reverse=True):
            last += 1
            kind = list(KIND_OF[opened.code])
            made.append([LOST, self.at, last - seq, opened.depth, 0, None, {"k": kind}])
        return made

    def _end(self, ended: int) -> None:
        """Close a frame, with what it holds open inside of it."""
        frame = self.is_open.pop(ended, None)
        if frame is not None:
            self.is_open = {
                seq: held
                for seq, held in self.is_open.items()
                if seq < ended or (frame.task is not None and held.task != frame.task)
            }


def body_of(run: RunRow) -> dict[str, Any]:
    """Return what a run's row says of it; nothing where the row is damaged."""
    return {} if run.body is None else dict(ormsgpack.unpackb(run.body))


def content_of(page: Page) -> PageContent | None:
    """Decode a page; None where it is damaged."""
    if page.body is None:
        return None
    try:
        return unpack_page(page.body)
    except (StorageError, ValueError, TypeError):
        return None


def trail_of(rows: JournalRows, db: Database, thread: int, run: RunRow, last: int) -> Trail:
    """Follow the thread's latest run."""
    told = body_of(run)
    trail = Trail(told.get("steps", 0), dict(told.get("visits") or {}))
    pages: list[PageContent] = []
    for page in rows.pages_back(db, thread, last):
        content = content_of(page)
        if content is not None and content.run != run.number:
            break
        if content is not None:
            pages.append(content)
    for content in reversed(pages):
        trail.follow(content)
    return trail
