"""Lines that are counted, or measured of one contender over its own run."""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memory
from contenders import ALL, ON_OURS, OURS, PEER, SAFE, SILENT, TOOLS
from measure import Row, Sample, Spread, counted_commits, row_of, size_of
from workload import Turns

Gauge = Callable[[], float]


async def commits(turns: int) -> list[Row]:
    """Count commits: of one run, less what a run of one turn costs."""
    found: dict[str, float] = {}
    for name in (OURS, SAFE, PEER):
        count = [await _commits_of(name, n) for n in (2, turns + 2)]
        found[name] = (count[1] - count[0]) / turns
    rows = []
    for key, name, goal in (("commits", OURS, 4.0), ("commits-safe", SAFE, 3.0)):
        values = {who: Spread(found[who], found[who], found[who]) for who in (name, PEER)}
        kind = "a `safe` tool" if name == SAFE else "an undeclared tool"
        rows.append(Row(key, f"commits of a turn with {kind}", "", values, goal=goal))
    return rows


async def _commits_of(name: str, turns: int) -> int:
    with tempfile.TemporaryDirectory() as folder, counted_commits() as count:
        async with ALL[name](Turns(turns=turns), TOOLS, Path(folder, "bench.db")) as ask:
            before = count[0]
            await ask("t")
            return count[0] - before


async def per_step(name: str, turns: int, gauge: Gauge) -> list[float]:
    """Return what a gauge rose by from each model call to the next."""
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Turns(turns=turns, on_call=lambda: marks.append(gauge()))
        async with ALL[name](model, TOOLS, Path(folder, "bench.db")) as ask:
            await ask("t")
    return [after - before for before, after in itertools.pairwise(marks)]


async def flatness(turns: int, count: int) -> Row:
    """Compare what late steps cost with what early ones do, in CPU time."""
    values = {}
    for name in (OURS, PEER):
        found = []
        for _ in range(count):
            steps = await per_step(name, turns, time.process_time)
            width = max(turns // 16, 4)
            early = statistics.median(steps[turns // 16 : turns // 16 + width])
            found.append(statistics.median(steps[-width:]) / early)
        values[name] = Spread.of(found)
    title = f"CPU of a turn: number {turns} ÷ number {max(turns // 16, 1)}"
    return Row("flat", title, "×", values, goal=1.2)


async def size(turns: int) -> list[Row]:
    """Compare what is on disk at the end."""
    names = (OURS, SILENT, ON_OURS, PEER)
    found = {name: float(await size_after(name, turns)) for name in names}

    def row(key: str, title: str, ours: str, against: str, goal: float) -> Row:
        values = {name: Spread(found[name], found[name], found[name]) for name in (ours, against)}
        part = found[ours] / found[against]
        ratio = Spread(part, part, part)
        return Row(key, title, "B", values, ratio=ratio, against=against, goal=goal)

    return [
        row("bytes", f"bytes after {turns} turns", OURS, PEER, 1 / 50),
        row("saver-bytes", f"`create_agent`, bytes after {turns} turns", ON_OURS, PEER, 1 / 50),
        row("journal-bytes", f"bytes with the journal, {turns} turns", OURS, SILENT, 1.5),
    ]


async def size_after(name: str, turns: int) -> int:
    """Run once and weigh the database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.db")
        async with ALL[name](Turns(turns=turns), TOOLS, path) as ask:
            await ask("t")
        return size_of(path)


async def disk(threads: int, turns: int) -> Row:
    """Weigh many threads of few turns, with the journal, for each turn."""
    values = {}
    for name in (OURS, PEER):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "bench.db")
            async with ALL[name](Turns(turns=turns), TOOLS, path) as ask:
                for number in range(threads):
                    await ask(f"t{number}")
            weight = size_of(path) / threads / turns / 1e3
        values[name] = Spread(weight, weight, weight)
    title = f"disk of a turn, {threads} threads of {turns} turns, with the journal"
    return Row("disk", title, "kB", values, goal=4.5)


def remembered(threads: int) -> list[Row]:
    """Weigh what an idle and a live thread keep in memory."""
    found = memory.in_processes(threads)
    rows = []
    for kind, goal in (("idle", 50), ("live", 60)):
        values = {name: found[name][kind] / 1e3 for name in found}
        spreads = {name: Spread(value, value, value) for name, value in values.items()}
        rows.append(Row(f"memory-{kind}", f"memory of a thread, {kind}", "kB", spreads, goal=goal))
    return rows


IMPORTS = {
    OURS: "from wick_graph import Agent",
    PEER: "from langchain.agents import create_agent",
    "LangGraph and SQLAlchemy": "import langgraph.graph, sqlalchemy",
    "python": "pass",
}


def imports(count: int) -> Row:
    """Import an agent's class in a fresh process beside the peer's, in CPU time of the process."""
    found: dict[str, list[Sample]] = {name: [] for name in IMPORTS}
    env = {**os.environ}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # it would compile each module anew, each time
    for number in range(count + 1):
        for name, code in IMPORTS.items():
            wall, used = time.perf_counter(), _of_children()
            subprocess.run([sys.executable, "-c", code], env=env, check=True)
            sample = Sample(time.perf_counter() - wall, _of_children() - used)
            if number:
                found[name].append(sample)
    bare = min(one.cpu for one in found.pop("python"))
    less = {
        name: [Sample(one.wall, one.cpu - bare) for one in column] for name, column in found.items()
    }
    title, note = "`from wick_graph import Agent`", "CPU less Python's own"
    return row_of("import-agent", title, less, ours=OURS, against=PEER, goal=1.15, note=note)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def starts(count: int) -> list[Row]:
    """Time what a fresh process needs before it does anything, less what Python itself needs."""
    programs: dict[str, list[str]] = {
        "python": ["-c", "pass"],
        "import": ["-c", "import wick_graph"],
        "help": ["-m", "wick_graph", "--help"],
    }
    found: dict[str, list[float]] = {key: [] for key in programs}
    for i in range(count + 1):
        for key, arguments in programs.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            if i:
                found[key].append((time.perf_counter() - started) * 1e3)
    bare = statistics.median(found["python"])
    less = [ms - bare for ms in found["import"]]
    note = "LangChain is not imported" if not _imports_langchain() else "LangChain IS imported"
    return [
        Row("import", "`import wick_graph`", "ms", {OURS: Spread.of(less)}, goal=150, note=note),
        Row("help", "`wick --help`", "ms", {OURS: Spread.of(found["help"])}, goal=300),
    ]


def _imports_langchain() -> bool:
    code = "import sys, wick_graph; print(any(m.startswith('langchain') for m in sys.modules))"
    made: Any = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return str(made.stdout).strip() == "True"
