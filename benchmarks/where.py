"""Where a durable turn's time goes, by package: the profile behind what the README says.

    python benchmarks/where.py [--turns 100] [--contender wick_graph]

The profiler makes calls dearer than they are, so what counts are the shares. Time that a thread
waits (for the disk, or for the other thread) is counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from contenders import ALL, OURS, TOOLS
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
WAITS = ("poll", "acquire", "SimpleQueue", "time.sleep")
SQL = ("sqlite3", "commit")


def place_of(file: str, name: str) -> str:
    """Say to which package a function belongs."""
    if file == "~":
        if any(word in name for word in WAITS):
            return "waiting"
        return "SQLite, with the disk" if any(word in name for word in SQL) else "Python itself"
    path = file.replace("\\", "/")
    found = (title for part, title in PACKAGES if f"/{part}" in path)
    return next(found, "Python itself")


def shares(profiles: list[cProfile.Profile]) -> Counter[str]:
    """Add up the seconds of every package; a built-in's belong to who called it."""
    total: Counter[str] = Counter()
    for profile in profiles:
        table: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        for (file, _, name), (_, _, own, _, callers) in table.items():
            place = place_of(file, name)
            if place != "Python itself" or not callers:
                total[place] += own
                continue
            for (caller, _, of), (*_, spent, _) in callers.items():
                total[place_of(caller, of)] += spent
    return total


async def profiled(name: str, turns: int) -> Counter[str]:
    """Run once with a profiler in every thread."""
    made: list[cProfile.Profile] = []
    started = threading.local()

    def begin(*_: Any) -> None:
        if not hasattr(started, "profile"):
            started.profile = cProfile.Profile()
            made.append(started.profile)
            started.profile.enable()

    with tempfile.TemporaryDirectory() as folder:
        async with ALL[name](Turns(turns=3), TOOLS, Path(folder, "warm.db")) as ask:
            await ask("t")
        threading.setprofile(begin)
        async with ALL[name](Turns(turns=turns), TOOLS, Path(folder, "bench.db")) as ask:
            begin()
            await ask("t")
            started.profile.disable()
        threading.setprofile(None)
    return shares(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--contender", default=OURS, choices=sorted(ALL))
    options = parser.parse_args()
    found = asyncio.run(profiled(options.contender, options.turns))
    waited = found.pop("waiting", 0.0)
    whole = sum(found.values())
    print(f"{options.contender}: {whole / options.turns * 1e3:.2f} ms of work a turn, profiled")
    for place, spent in found.most_common():
        print(f"  {place:34} {spent / whole:5.0%}  {spent / options.turns * 1e6:7.0f} µs")
    print(f"  {'waiting, in all threads':34}        {waited / options.turns * 1e6:7.0f} µs")


if __name__ == "__main__":
    main()
