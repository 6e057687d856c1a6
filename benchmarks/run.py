"""Measure the engine side by side with its peers: same model, same tools, same disk.

    python benchmarks/run.py [--rounds 5] [--only KEY] [--quick]
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
from measure import Row

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
    streams: tuple[int, ...] = (200,)
    words: int = 100
    swept: int = 1_000
    deep: bool = True


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
    deep=False,
)
"""Small enough for a test: it shows that everything runs, and measures nothing."""


def lines(sizes: Sizes) -> dict[str, Callable[[], Awaitable[Found]]]:
    """Every group of lines of the table, by the key that `--only` looks for."""
    s, n = sizes, sizes.rounds

    async def starts() -> Found:
        return rows_count.starts(n)

    async def cleaning() -> Found:
        return rows_felt.cleaning(s.swept, s.swept)

    async def served() -> Found:
        made = [await rows_felt.served(one, s.words, min(n, 3), 1.0) for one in s.streams]
        return [row for rows in made for row in rows]

    return {
        "opening": lambda: rows_felt.opening(s.opened, n),
        "turn": lambda: rows_felt.turn(s.opened, n),
        "warm": lambda: rows_felt.warm(min(20, s.messages // 2), s.messages, min(n, 3)),
        "served": served,
        "cleaning": cleaning,
        "loop-short": lambda: rows_time.loop(s.short, n),
        "loop": lambda: rows_time.loop(s.loop, n),
        "durable": lambda: rows_time.durable(s.loop, 0.52, n, deep=s.deep),
        "durable-long": lambda: rows_time.durable(s.long, 0.33, n, deep=False),
        "commits": lambda: rows_count.commits(s.turns),
        "flat": lambda: rows_count.flatness(s.long, n),
        "bytes": lambda: rows_count.size(s.long),
        "stream": lambda: rows_time.stream(s.tokens, n, cheap=False),
        "stream-engine": lambda: rows_time.stream(s.tokens, n, cheap=True),
        "threads": lambda: rows_time.many(s.threads, s.turns, min(n, 3)),
        "resume": lambda: rows_time.resume(s.long, n),
        "tools": lambda: rows_time.parallel_tools(n),
        "saver": lambda: rows_time.under_create_agent(s.long, min(n, 3)),
        "starts": starts,
    }


async def measured(sizes: Sizes, only: str) -> AsyncIterator[Row]:
    """Measure group by group."""
    for key, make in lines(sizes).items():
        if only and not key.startswith(only):
            continue
        made = await make()
        for row in made if isinstance(made, list) else [made]:
            row.load = os.getloadavg()[0]
            yield row


async def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds)
    rows: list[Row] = []
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
    words, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=words, epilog=rest)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--only", default="", help="groups whose key begins so")
    parser.add_argument("--quick", action="store_true", help="see that it runs; measures nothing")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plots", type=Path, help="a folder for the growth curves")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main())
