"""What one run costs a process, the database and the disk: the numbers of the capacity page.

    python benchmarks/capacity.py [--runs 200] [--at-once 20] [--disk FOLDER]

It starts a PostgreSQL server and a `wick serve` that executes runs itself, as a worker does: each
asks a scripted model, calls a tool, and streams 100 words. Counted are the processor's seconds, the
transactions, the write-ahead log and the growth of the database for each run. CPU time also counts
on a busy machine; a rate of commits does not, so `--disk` measures the flushes of a disk alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psycopg

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.server.support import AGENTS, CALL, serving  # noqa: E402
from tests.support.postgres import running, with_schema  # noqa: E402
from wick_graph.client import AsyncClient  # noqa: E402
from wick_graph.events import Done  # noqa: E402

WORDS: Final = " ".join(f"word{number}" for number in range(100))
TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Return the seconds of a processor that a process and its children have taken."""
    found = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("latin-1").rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid or int(fields[1]) == pid:
            found += (int(fields[11]) + int(fields[12])) / TICKS
    return found


def state(db: psycopg.Connection[Any], server: int) -> list[float]:
    """Return what is counted, so far."""
    db.execute("SELECT pg_stat_clear_snapshot()")
    row = db.execute(
        "SELECT xact_commit, pg_current_wal_lsn() - '0/0', pg_database_size(datname), "
        "(SELECT min(pid) FROM pg_stat_activity) FROM pg_stat_database WHERE datname = %s",
        (db.info.dbname,),
    ).fetchone()
    assert row is not None
    fields = Path(f"/proc/{db.info.backend_pid}/stat").read_text("latin-1").rpartition(")")[2]
    postmaster = int(fields.split()[1])
    return [cpu(server), cpu(postmaster), *(float(value) for value in row[:3])]


async def ask(url: str, runs: int, at_once: int) -> None:
    """Let the server execute some runs, each followed to its end."""
    turn = asyncio.Semaphore(at_once)
    async with AsyncClient(url) as client:

        async def one() -> None:
            async with turn:
                seen = [event async for event in client.stream("What is 21*2?", agent="words")]
                assert isinstance(seen[-1], Done), seen[-1]

        await asyncio.gather(*(one() for _ in range(runs)))


def flushes(folder: Path, seconds: float = 5.0) -> float:
    """Return how many flushes of 8 KB a second a folder's disk takes, one after the other."""
    with tempfile.TemporaryFile(dir=folder) as file:
        page, until, count = bytes(8_192), time.monotonic() + seconds, 0
        while time.monotonic() < until:
            os.pwrite(file.fileno(), page, 0)
            os.fdatasync(file.fileno())
            count += 1
    return count / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--disk", type=Path)
    given = parser.parse_args()
    if given.disk is not None:
        print(f"{flushes(given.disk):.0f} flushes a second")
        return
    with running() as server, tempfile.TemporaryDirectory() as folder:
        agents = AGENTS.replace("sqlite:///wick.db", json.dumps(with_schema(server, "capacity")))
        agents += "  words: {model: 'scripted:words.yaml'}\n"
        words = f"chunk_delay: 0.01\nsteps: [{CALL}, '{WORDS}']\n"
        with (
            serving(Path(folder), agents=agents, words=words) as served,
            psycopg.connect(server, autocommit=True) as db,
        ):
            assert served.process is not None
            asyncio.run(ask(served.url, given.at_once, given.at_once))  # to warm up
            time.sleep(2)  # sessions count a second late
            before = state(db, served.process.pid)
            asyncio.run(ask(served.url, given.runs, given.at_once))
            time.sleep(2)
            spent = [b - a for a, b in zip(before, state(db, served.process.pid), strict=True)]
    load = os.getloadavg()[0]
    names = ("CPU of the worker, s", "CPU of PostgreSQL, s", "commits", "log, kB", "database, kB")
    scale = (1, 1, 1, 1_000, 1_000)
    print(f"| for each of {given.runs} runs, {given.at_once} at once; load average {load:.0f} | |")
    print("|---|---|")
    for name, value, by in zip(names, spent, scale, strict=True):
        print(f"| {name} | {value / given.runs / by:.3g} |")


if __name__ == "__main__":
    main()
