"""Time and bytes of a durable run with its journal at each level.

    python benchmarks/journal.py [--turns 100] [--rounds 7] [--hooks 0] [--door async]

Each round runs every level once, on a new database of its own, in an order that turns from round
to round. Printed are medians: wall time, CPU time of the process, bytes of the file once the
write-ahead log is merged, and their ratios to `off`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from workload import Turns, look

from wick_graph import Agent, BaseHook, SqlSaver, tool

LEVELS = ("off", "steps", "full")
QUESTION = {"messages": [("user", "go")]}


class Passing(BaseHook):
    """Take part in every phase and change one thing: the system prompt."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def modify_request(self, request: Any, ctx: Any) -> Any:
        return request.append_system(f"Mind what {self.name} says.", source=self.name)

    async def wrap_model_call(self, request: Any, next: Any) -> Any:
        return await next(request)

    async def wrap_tool_call(self, call: Any, next: Any) -> Any:
        return await next(call)


def agent_of(level: Any, turns: int, hooks: int, saver: SqlSaver) -> Agent:
    return Agent(
        model=Turns(turns=turns),
        tools=[tool(look)],
        hooks=[Passing(f"hook{i}") for i in range(hooks)],
        store=saver,
        max_iterations=turns + 1,
        journal=level,
    )


def measure(level: str, options: argparse.Namespace, path: Path) -> tuple[float, float, int]:
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        graph = agent_of(level, options.turns, options.hooks, saver).graph
        config: Any = {"configurable": {"thread_id": "t"}}
        wall, cpu = time.perf_counter(), time.process_time()
        if options.door == "sync":
            graph.invoke(QUESTION, config)
        else:
            asyncio.run(graph.ainvoke(QUESTION, config))
        spent = time.perf_counter() - wall, time.process_time() - cpu
    return *spent, path.stat().st_size


def report(found: dict[str, list[tuple[float, float, int]]]) -> Sequence[str]:
    middle = {
        level: [statistics.median(column) for column in zip(*rows, strict=True)]
        for level, rows in found.items()
    }
    base = middle["off"]
    lines = [f"{'level':6} {'wall ms':>9} {'':>6} {'cpu ms':>9} {'':>6} {'bytes':>9}"]
    for level, (wall, cpu, size) in middle.items():
        lines.append(
            f"{level:6} {wall * 1e3:9.1f} {wall / base[0]:5.2f}× {cpu * 1e3:9.1f} "
            f"{cpu / base[1]:5.2f}× {size:9.0f} {size / base[2]:5.2f}×"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hooks", type=int, default=0)
    parser.add_argument("--door", choices=("async", "sync"), default="async")
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.rounds + 1):
            shift = i % len(LEVELS)
            for level in LEVELS[shift:] + LEVELS[:shift]:
                made = measure(level, options, Path(folder, f"{level}{i}.db"))
                if i:  # the first round warms up
                    found[level].append(made)
    print("\n".join(report({level: found[level] for level in LEVELS})))


if __name__ == "__main__":
    main()
