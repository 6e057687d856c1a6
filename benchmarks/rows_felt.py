"""Lines of what a user or an operator feels: a turn, streams of a server, cleaning up."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from contenders import ALL, OURS, PEER, TOOLS
from measure import Row, Run, Sample, Spread, cost, rounds, row_of, timed
from rows_time import fresh
from server import script_of, streams_of
from workload import Once, Turns

from wick_graph import Agent
from wick_graph.store import SqlSaver


def opened(name: str, threads: int) -> Run:
    """From the question to the model's call, each in a new thread."""

    async def run(folder: Path) -> Sample:
        marks: list[tuple[float, float]] = []

        def now() -> None:
            marks.append((time.perf_counter(), cost()))

        wall = cpu = 0.0
        async with ALL[name](Once(on_call=now), TOOLS, folder / "bench.db") as ask:
            for _ in range(threads):
                now()
                await ask(fresh())
                (began, used), (asked, then) = marks
                wall, cpu = wall + asked - began, cpu + then - used
                marks.clear()
        return Sample(wall / threads, cpu / threads)

    return run


def turned(name: str, threads: int) -> Run:
    """Make a whole turn with one tool, each in a new thread."""

    async def run(folder: Path) -> Sample:
        async with ALL[name](Turns(turns=2), TOOLS, folder / "bench.db") as ask:

            async def work() -> None:
                for _ in range(threads):
                    await ask(fresh())

            return await timed(work, per=threads)

    return run


async def opening(threads: int, count: int) -> Row:
    found = await rounds({name: opened(name, threads) for name in (OURS, PEER)}, count)
    title = f"opening a run in a new thread ({threads})"
    return row_of("opening", title, found, ours=OURS, against=PEER, goal=1.0)


async def turn(threads: int, count: int) -> Row:
    found = await rounds({name: turned(name, threads) for name in (OURS, PEER)}, count)
    title = "a turn with one tool in a new thread"
    return row_of("turn", title, found, ours=OURS, against=PEER, goal=0.8)


async def warm(short: int, long: int, count: int) -> Row:
    """A turn in a thread of many messages ÷ one in a thread of few, in CPU time."""
    values = {}
    for name, times in ((OURS, count), (PEER, 1)):  # the peer's grows: one of it is enough
        found = []
        for _ in range(times):
            with tempfile.TemporaryDirectory() as folder:
                async with ALL[name](Once(), TOOLS, Path(folder, "bench.db")) as ask:
                    found.append(await _growth(ask, short // 2, long // 2))
        values[name] = Spread.of(found)
    return Row("warm", f"a warm turn at {long} messages ÷ at {short} (CPU)", "×", values, goal=1.3)


async def _growth(ask: Any, short: int, long: int) -> float:
    marks: list[float] = []
    for _ in range(long):
        used = time.process_time()
        await ask("one")
        marks.append(time.process_time() - used)
    width = max(short // 2, 1)
    return sorted(marks[-width:])[width // 2] / sorted(marks[short - width : short])[width // 2]


async def served(streams: int, words: int, count: int, goal: float) -> list[Row]:
    """So many streams at once of a `wick serve`: the first text, and CPU time for each piece.

    The server sends together what comes together, so its events are fewer than the pieces.
    """
    loads = [await streams_of(streams, script_of(words), words) for _ in range(count)]
    wrong = sum(one.errors for one in loads)
    title, note = f"{streams} streams of `wick serve`", f"{wrong} errors" if wrong else ""
    first = {OURS: Spread.of([one.first for one in loads])}
    each = {OURS: Spread.of([one.cpu / (streams * words) * 1e3 for one in loads])}
    return [
        Row(f"first-{streams}", f"{title}: first text, median", "s", first, goal=goal, note=note),
        Row(f"event-{streams}", f"{title}: CPU of a piece", "ms", each, goal=0.4, note=note),
    ]


def cleaning(threads: int, listed: int) -> list[Row]:
    """Sweep expired threads, and list 50 of many, in CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bench.db"
        with SqlSaver.from_url(url, synchronous="NORMAL") as saver:
            agent = Agent("bench", Once(), store=saver, ttl=3_600)
            for number in range(threads):
                agent.invoke("go", thread_id=f"old-{number}")
            later = time.time() + 7_200
            saver.clock = lambda: later
            used = time.process_time()
            gone = len(saver.sweep())
            sweep = (time.process_time() - used) / max(gone, 1) * 1e3
            agent.invoke("go", thread_id="one")
            _copy_thread(Path(folder, "bench.db"), listed)
            assert len(saver.threads.list(50)) == min(50, listed + 1)
            used = time.process_time()
            for _ in range(10):
                saver.threads.list(50)
            spent = (time.process_time() - used) / 10 * 1e3
    title = f"`threads.list(50)` of {listed} (CPU)"
    return [
        Row("sweep", f"a sweep, each of {gone} threads (CPU)", "ms", _one(sweep), goal=0.3),
        Row("list", title, "ms", _one(spent), goal=5.0),
    ]


def _copy_thread(path: Path, count: int) -> None:
    """Write the row of a thread so many times under other names: a list reads no other table."""
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(threads)")][1:]
        key, time_ = "CAST(thread || '-' || n AS BLOB)", "last_access + n / 1e3"
        other = {"thread": key, "last_access": time_}
        values = ", ".join(other.get(name, name) for name in names)
        db.execute(
            "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < ?) "
            f"INSERT INTO threads ({', '.join(names)}) "
            f"SELECT {values} FROM count, (SELECT * FROM threads ORDER BY id DESC LIMIT 1)",
            (count,),
        )
    db.close()


def _one(value: float) -> dict[str, Spread]:
    return {OURS: Spread(value, value, value)}
