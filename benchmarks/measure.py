"""Rounds, clocks and counts."""

from __future__ import annotations

import argparse
import gc
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Run = Callable[[Path], Awaitable["Sample"]]
"""One round of one contender, in an empty folder of its own."""


@dataclass(frozen=True)
class Sample:
    """What one round took, in seconds; `cpu` in bytecodes while they are counted."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Spread:
    """A column of samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Row:
    """One line of the table: who took how much, and how ours stands to a peer."""

    key: str
    title: str
    unit: str
    values: dict[str, Spread]
    """Per contender."""
    cpu: dict[str, Spread] = field(default_factory=dict)
    ratio: Spread | None = None
    """Ours over the peer, round by round."""
    cpu_ratio: Spread | None = None
    against: str = ""
    goal: float | None = None
    note: str = ""
    by: str = "cpu"
    """What a goal of a ratio is about: `cpu`, or `wall` for what waits."""
    load: float = 0.0
    """The machine's load average when it was measured; other work makes wall times longer."""

    @property
    def held(self) -> float | None:
        """What the goal is about: a ratio, or the value itself where there is no peer."""
        ratio = self.cpu_ratio if self.by == "cpu" and self.cpu_ratio else self.ratio
        if ratio is not None:
            return ratio.median
        return next(iter(self.values.values())).median if self.values else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        return None if self.goal is None or self.held is None else self.held <= self.goal

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "held": self.held, "met": self.met}


async def timed(work: Callable[[], Awaitable[Any]], per: int = 1) -> Sample:
    """Run once and divide by how many things were done."""
    gc.collect()
    wall, cpu = time.perf_counter(), cost()
    await work()
    return Sample((time.perf_counter() - wall) / per, (cost() - cpu) / per)


_counting: list[Bytecodes] = []


def cost() -> float:
    """Return the CPU time of this process so far; while bytecodes are counted, their number."""
    return _counting[-1].total() if _counting else time.process_time()


class Bytecodes:
    """Counts the bytecodes that Python runs in this thread and in those that begin meanwhile.

    Counts do not depend on the machine or on what else runs there, as times do. What C code does
    within a bytecode, and what the kernel does, is not in them.
    """

    def __enter__(self) -> Bytecodes:
        self._counts: list[list[int]] = []
        self._local = threading.local()
        threading.settrace(self._called)
        sys.settrace(self._called)
        _counting.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _counting.remove(self)
        threading.settrace(None)  # type: ignore[arg-type]  # as Python's documentation has it
        sys.settrace(None)

    def total(self) -> int:
        """Return how many there have been, in all threads."""
        return sum(count[0] for count in self._counts)

    def _called(self, frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._counter()

    def _counter(self) -> Any:
        found = getattr(self._local, "found", None)
        if found is None:
            count = [0]
            self._counts.append(count)

            def found(frame: Any, event: str, arg: Any) -> Any:
                if event == "opcode":
                    count[0] += 1
                return found

            self._local.found = found
        return found


async def rounds(runs: Mapping[str, Run], count: int) -> dict[str, list[Sample]]:
    """Run all contenders so many times, in an order that turns; the first round warms up."""
    found: dict[str, list[Sample]] = {name: [] for name in runs}
    names = list(runs)
    for i in range(count + 1):
        shift = i % len(names)
        for name in names[shift:] + names[:shift]:
            with tempfile.TemporaryDirectory() as folder:
                sample = await runs[name](Path(folder))
            if i:
                found[name].append(sample)
    return found


def row_of(
    key: str,
    title: str,
    found: Mapping[str, list[Sample]],
    *,
    ours: str,
    against: str,
    goal: float | None,
    unit: str = "ms",
    note: str = "",
    by: str = "cpu",
) -> Row:
    """Make a line of rounds; the first contender's ratio to the second is the line's."""
    factor = {"ms": 1e3, "µs": 1e6, "s": 1.0}[unit]
    pairs = list(zip(found[ours], found[against], strict=True)) if against in found else []
    return Row(
        key,
        title,
        unit,
        {name: Spread.of([s.wall * factor for s in column]) for name, column in found.items()},
        {name: Spread.of([s.cpu * factor for s in column]) for name, column in found.items()},
        Spread.of([mine.wall / theirs.wall for mine, theirs in pairs]) if pairs else None,
        Spread.of([mine.cpu / theirs.cpu for mine, theirs in pairs]) if pairs else None,
        against,
        goal,
        note,
        by,
    )


@contextmanager
def counted_commits() -> Iterator[list[int]]:
    """Count the commits of every SQLite connection that is opened meanwhile, in any thread."""
    count = [0]
    connect = sqlite3.connect

    def seen(statement: str) -> None:
        count[0] += statement.strip().upper().startswith("COMMIT")

    def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*args, **kwargs)
        made.set_trace_callback(seen)
        return made

    sqlite3.connect = watched  # type: ignore[assignment]
    try:
        yield count
    finally:
        sqlite3.connect = connect


def size_of(path: Path) -> int:
    """Return the bytes of a database once its write-ahead log is merged."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser that a script's docstring describes: its first line, and the rest below."""
    words, _, rest = (text or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=words, epilog=rest)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser
