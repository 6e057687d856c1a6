"""`chrome`: a thread's runs as a timeline in the trace event format, for Perfetto.

Perfetto misdraws slices of one lane that overlap without nesting, and shows non-ASCII characters in
names as escapes. So overlapping work gets a lane of its own, and names are ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from wick_graph.exports.plain import Hider, plain
from wick_graph.journal import Entry, Journal
from wick_graph.journal.entry import GAP
from wick_graph.journal.page_format import OPENS

_PID: Final = 1

_POINTS: Final = ("interrupt.raise", "interrupt.answer", "model.retry", "model.fallback")

_NEAR: Final = 0.001
"""Microseconds between an arrow's start and its slice's end, so that it starts inside."""

Made = dict[str, Any]


@dataclass(slots=True)
class _Slice:
    opener: Entry
    end: Entry
    start: float
    stop: float
    lane: int = 0


@dataclass(slots=True)
class _Lane:
    """Open slices of a lane: their task, and a stack of ends."""

    task: str | None = None
    ends: list[float] = field(default_factory=list)

    def takes(self, piece: _Slice) -> bool:
        """Return whether the next slice, in order of starts, fits here."""
        while self.ends and self.ends[-1] <= piece.start:
            self.ends.pop()
        return not self.ends or (self.task == piece.opener.task and piece.stop <= self.ends[-1])

    def take(self, piece: _Slice) -> None:
        """Add a slice."""
        self.task = piece.opener.task
        self.ends.append(piece.stop)


def as_chrome(journal: Journal, hider: Hider, run: int | str | None = None) -> str:
    """Return the timeline as JSON.

    Raises:
        StorageError: The thread has no such run.
    """
    entries = [entry for entry in journal.moments(run) if entry.kind != GAP]
    made = _Timeline(journal, hider, entries)
    events = [*made.slices(), *made.arrows(), *made.points(), *made.tokens(), *made.names()]
    whole = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"thread": journal.thread_id},
    }
    return json.dumps(whole, ensure_ascii=False) + "\n"


class _Timeline:
    def __init__(self, journal: Journal, hider: Hider, entries: list[Entry]) -> None:
        self._journal = journal
        self._hider = hider
        self._entries = entries
        self._zero = entries[0].at if entries else None
        self._slices = self._placed()
        self._by_seq = {piece.opener.seq: piece for piece in self._slices}

    def slices(self) -> Iterator[Made]:
        """Yield the slices: moments with a duration."""
        for piece in self._slices:
            kind = piece.opener.kind
            yield {
                "ph": "X",
                "name": _name(piece.opener),
                "cat": kind,
                "ts": piece.start,
                "dur": piece.stop - piece.start,
                "pid": _PID,
                "tid": piece.lane,
                "args": self._args(piece),
            }

    def arrows(self) -> Iterator[Made]:
        """Yield an arrow from each reply to each of its calls."""
        model: _Slice | None = None
        count = 0
        for piece in self._slices:
            if piece.opener.what != "node.enter":
                continue
            if piece.opener.name == "model":
                model = piece
            elif piece.opener.name == "tools" and model is not None:
                count += 1
                both = {"name": "dispatch", "cat": "dispatch", "id": count, "pid": _PID}
                leaves = max(model.start, model.stop - _NEAR)
                yield {"ph": "s", "ts": leaves, "tid": model.lane, **both}
                yield {"ph": "f", "bp": "e", "ts": piece.start, "tid": piece.lane, **both}

    def points(self) -> Iterator[Made]:
        """Yield points: questions, answers, retries, and all errors."""
        for entry in self._entries:
            failed = entry.is_end and entry.is_bad
            if entry.what in _POINTS or failed:
                yield {
                    "ph": "i",
                    "name": _ascii(f"{entry.what} {entry.name}".strip()),
                    "cat": entry.kind,
                    "ts": self._ts(entry),
                    "pid": _PID,
                    "tid": self._lane_of(entry),
                    "s": "t",
                    "args": {"seq": entry.seq, "error": self._hider.value(entry.error)},
                }

    def tokens(self) -> Iterator[Made]:
        """Yield the total of tokens over time."""
        read = written = 0
        for entry in self._entries:
            if entry.what == "model.response":
                usage = self._journal.details(entry).get("usage") or {}
                read += usage.get("input_tokens") or 0
                written += usage.get("output_tokens") or 0
                spent = {"input": read, "output": written}
                at = self._ts(entry)
                yield {"ph": "C", "name": "tokens", "ts": at, "pid": _PID, "args": spent}

    def names(self) -> Iterator[Made]:
        """Yield the names of the process and the lanes."""
        thread = _ascii(self._journal.thread_id)
        yield _meta("process_name", 0, f"thread {thread}")
        for lane in sorted({piece.lane for piece in self._slices}):
            called = "runs" if lane == 0 else "graph" if lane == 1 else f"side by side {lane}"
            yield _meta("thread_name", lane, called)

    def _placed(self) -> list[_Slice]:
        openers = {e.seq: e for e in self._entries if (e.kind, e.phase) in OPENS}
        found = [
            _Slice(openers[entry.parent], entry, self._ts(openers[entry.parent]), self._ts(entry))
            for entry in self._entries
            if entry.is_end and entry.parent in openers
        ]
        found.sort(key=lambda piece: (piece.start, -piece.stop, piece.opener.seq))
        lanes = [_Lane()]
        homes: dict[str | None, int] = {}
        for piece in found:
            task = piece.opener.task
            first = 0 if task is None else homes.get(task, 1)
            piece.lane = _free(lanes, piece, first)
            homes.setdefault(task, piece.lane)
            lanes[piece.lane].take(piece)
        return found

    def _ts(self, entry: Entry) -> float:
        assert self._zero is not None
        return round((entry.at - self._zero).total_seconds() * 1e6, 3)

    def _lane_of(self, entry: Entry) -> int:
        piece = self._by_seq.get(entry.parent or 0)
        return 0 if piece is None else piece.lane

    def _args(self, piece: _Slice) -> Made:
        opener, end = piece.opener, piece.end
        made = {
            "seq": opener.seq,
            "run": opener.run,
            "step": opener.step or None,
            "call_id": opener.call_id,
            "error": end.error,
        }
        details = {**self._journal.details(opener), **self._journal.details(end)}
        for name in ("args", "output", "error", "usage", "stopped_because"):
            if name in details:
                made[name] = details[name]
        kept = {name: value for name, value in made.items() if value is not None}
        plain_args: Made = plain(self._hider.value(kept))
        return plain_args


def _free(lanes: list[_Lane], piece: _Slice, first: int) -> int:
    at = first
    while True:
        while at >= len(lanes):
            lanes.append(_Lane())
        if lanes[at].takes(piece):
            return at
        at += 1


def _name(entry: Entry) -> str:
    if entry.kind == "hook":
        return _ascii(f"{entry.name}.{entry.hook_phase}")
    if entry.kind == "node":
        return _ascii(entry.name)
    return _ascii(f"{entry.kind} {entry.name}".strip())


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode("ascii")


def _meta(what: str, lane: int, name: str) -> Made:
    return {"ph": "M", "name": what, "pid": _PID, "tid": lane, "args": {"name": name}}
