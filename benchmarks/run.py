"""Measure the engine side by side with its peers: same model, same tools, same disk.

    python benchmarks/run.py [--rounds 5] [--only KEY,…] [--all] [--quick]
                             [--json out.json] [--markdown out.md] [--plots folder]

Each round runs every contender once, in an order that turns from round to round, each in an empty
folder. Printed are medians, and ratios of ours to the peer of the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import growth
import plots
import report
import rows_count
import rows_felt
import rows_time
from measure import Row, parser_of

Found = Row | list[Row]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rounds: int = 5
    short: int = 25
    loop: int = 100
    long: int = 400
    tokens: int = 2_000
    threads: int = 200
    turns: int = 10
    opened: int = 200
    messages: int = 2_000
    streams: tuple[int, ...] = (200, 1_000)
    words: int = 100
    swept: int = 4_000
    listed: int = 100_000
    weighed: int = 200
    remembered: int = 500
    all: bool = False
    """Also what the table of `make bench` leaves out: what has long met its goal, and others."""


QUICK = Sizes(
    rounds=1,
    short=3,
    loop=6,
    long=16,
    tokens=50,
    threads=6,
    turns=3,
    opened=3,
    messages=24,
    streams=(3,),
    words=5,
    swept=5,
    listed=100,
    weighed=3,
    remembered=5,
    all=True,
)
"""Small enough for a test: it shows that everything runs, and measures nothing."""


def lines(sizes: Sizes) -> dict[str, Callable[[], Awaitable[Found]]]:
    """Every group of lines of the table, by the key that `--only` looks for."""
    s, n = sizes, sizes.rounds
    few = min(n, 3)

    async def starts() -> Found:
        return rows_count.starts(n)

    async def imports() -> Found:
        return rows_count.imports(n)

    async def remembered() -> Found:
        return rows_count.remembered(s.remembered)

    async def cleaning() -> Found:
        return rows_felt.cleaning(s.swept, s.listed)

    async def served() -> Found:
        made = []
        for streams in s.streams:
            goal, times = (1.0, few) if streams <= 200 else (5.0, 1)
            made += await rows_felt.served(streams, s.words, times, goal)
        return made

    return {
        "opening": lambda: rows_felt.opening(s.opened, n),
        "turn": lambda: rows_felt.turn(s.opened, n),
        "warm": lambda: rows_felt.warm(min(20, s.messages // 2), s.messages, few),
        "served": served,
        "cleaning": cleaning,
        "threads": lambda: rows_time.many(s.threads, s.turns, min(n, 2)),
        "loop": lambda: rows_time.loop(s.loop, n),
        "durable": lambda: rows_time.durable(s.loop, 0.52, n, others=s.all),
        "durable-long": lambda: rows_time.durable(s.long, 0.33, few, others=False),
        "stream": lambda: rows_time.stream(s.tokens, n, cheap=False),
        "stream-engine": lambda: rows_time.stream(s.tokens, n, cheap=True),
        "resume": lambda: rows_time.resume(s.long, few),
        "imports": imports,
        "memory": remembered,
        "disk": lambda: rows_count.disk(s.weighed, s.turns),
        **({} if not s.all else more(s, starts)),
    }


def more(sizes: Sizes, starts: Callable[[], Awaitable[Found]]) -> Any:
    """The groups of `--all`."""
    s, n = sizes, sizes.rounds
    return {
        "loop-short": lambda: rows_time.loop(s.short, n),
        "commits": lambda: rows_count.commits(s.turns),
        "flat": lambda: rows_count.flatness(s.long, n),
        "bytes": lambda: rows_count.size(s.long),
        "tools": lambda: rows_time.parallel_tools(n),
        "saver": lambda: rows_time.under_create_agent(s.long, min(n, 3)),
        "starts": starts,
    }


async def measured(sizes: Sizes, only: str) -> AsyncIterator[Row]:
    """Measure group by group."""
    for key, make in lines(sizes).items():
        if only and not any(key.startswith(one) for one in only.split(",")):
            continue
        made = await make()
        for row in made if isinstance(made, list) else [made]:
            row.load = os.getloadavg()[0]
            yield row


async def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    every = options.all or bool(options.only)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds, all=every)
    rows: list[Row] = []
    print("\n".join(report.HEAD), flush=True)
    async for row in measured(sizes, options.only):
        rows.append(row)
        print(report.markdown([row]).splitlines()[-1], flush=True)
    curves: dict[str, Any] = {}
    if options.plots or options.json:
        curves = await growth.growth(sizes.long)
    if options.json:
        made = report.document(rows, curves, sizes.rounds)
        options.json.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    if options.markdown:
        options.markdown.write_text(report.markdown(rows))
    if options.plots:
        for path in plots.draw(curves, options.plots):
            print(path)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--only", default="", help="groups whose keys begin so: warm,served")
    parser.add_argument("--all", action="store_true", help="also commits, bytes, starts, …")
    parser.add_argument("--quick", action="store_true", help="see that it runs; measures nothing")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plots", type=Path, help="a folder for the growth curves")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main())
