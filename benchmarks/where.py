"""Where a durable turn's time goes, by package: the profile behind what the documents say.

    python benchmarks/where.py [--turns 100] [--runs 1] [--contender wick_graph]

`--turns 2 --runs 50` is a whole turn with one tool, each in a new thread. Counted is the CPU time
of each thread, so other work on the machine moves the shares little, and what waits counts nothing.
The profiler makes calls dearer than they are, so what counts are the shares. The calls of functions
are the same in each run.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from contenders import ALL, OURS, TOOLS
from measure import parser_of
from workload import Turns

PACKAGES = (
    ("wick_graph/store", "ours: store"),
    ("wick_graph/journal", "ours: journal"),
    ("wick_graph/", "ours: engine"),
    ("langgraph/", "LangGraph"),
    ("langchain_core/", "LangChain core"),
    ("langchain/", "LangChain agents and middleware"),
    ("aiosqlite/", "aiosqlite"),
    ("asyncio/", "asyncio"),
    ("benchmarks/", "the scripted model and the tool"),
)
SQL = ("sqlite3", "commit")


def place_of(file: str, name: str) -> str:
    """Say to which package a function belongs."""
    if file == "~":
        return "SQLite, with the disk" if any(word in name for word in SQL) else "Python itself"
    path = file.replace("\\", "/")
    found = (title for part, title in PACKAGES if f"/{part}" in path)
    return next(found, "Python itself")


def shares(profiles: list[cProfile.Profile]) -> tuple[Counter[str], Counter[str]]:
    """Add up the seconds and the calls of every package; a built-in's belong to who called it."""
    total: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for profile in profiles:
        table: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        for (file, _, name), (_, count, own, _, callers) in table.items():
            place = place_of(file, name)
            if place != "Python itself" or not callers:
                total[place] += own
                calls[place] += count
                continue
            for (caller, _, of), (times, _, spent, _) in callers.items():
                total[place_of(caller, of)] += spent
                calls[place_of(caller, of)] += times
    return total, calls


async def profiled(name: str, turns: int, runs: int) -> tuple[Counter[str], Counter[str]]:
    """Run so many new threads of so many turns, with a profiler in every thread."""
    made: list[cProfile.Profile] = []
    started = threading.local()

    def begin(*_: Any) -> None:
        if not hasattr(started, "profile"):
            started.profile = cProfile.Profile(time.thread_time)
            made.append(started.profile)
            started.profile.enable()

    with tempfile.TemporaryDirectory() as folder:
        async with ALL[name](Turns(turns=3), TOOLS, Path(folder, "warm.db")) as ask:
            await ask("t")
        threading.setprofile(begin)
        async with ALL[name](Turns(turns=turns), TOOLS, Path(folder, "bench.db")) as ask:
            begin()
            for number in range(runs):
                await ask(f"t{number}")
            started.profile.disable()
        threading.setprofile(None)
    return shares(made)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--contender", default=OURS, choices=sorted(ALL))
    options = parser.parse_args()
    found, calls = asyncio.run(profiled(options.contender, options.turns, options.runs))
    whole, each = sum(found.values()), options.turns * options.runs
    print(f"{options.contender}: {whole / each * 1e3:.2f} ms of CPU time a turn, profiled")
    for place, spent in found.most_common():
        print(f"  {place:34} {spent / whole:5.0%}  {calls[place] / each:7.0f} calls")


if __name__ == "__main__":
    main()
