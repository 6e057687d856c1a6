"""A thread of 10,000 turns: what making it takes, and how long a new process needs to open it.

    python benchmarks/long_thread.py [--turns 10000] [--plain]

A turn is a question, a call of a tool and an answer; `--plain` leaves the tool out. Printed is the
CPU time of all turns so far, and of the last ones, which shows that no turn costs more than those
before it. Then a process that has never seen the thread asks once more: counted is the time from
the question to the model's call, with a store that has answered another thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contenders import ALL, OURS, TOOLS
from langchain_core.messages import AIMessage, BaseMessage
from measure import parser_of, size_of
from workload import Once, Turns

MADE, OPENED = 300.0, 0.5
"""The goals, in seconds."""


class Talk(Turns):
    """Call the tool for each question, then answer."""

    def reply(self, messages: list[BaseMessage]) -> AIMessage:
        if messages[-1].type == "tool":
            return AIMessage("done " * 30)
        name = f"c{len(messages)}"
        call: Any = {"name": "look", "args": {"n": 1}, "id": name, "type": "tool_call"}
        return AIMessage("thinking " * 20, tool_calls=[call])


async def make(path: Path, turns: int, *, plain: bool) -> float:
    """Make a thread; return the seconds of CPU time."""
    first = last = time.process_time()
    step = max(turns // 10, 1)
    async with ALL[OURS](Once() if plain else Talk(), TOOLS, path) as ask:
        for number in range(1, turns + 1):
            await ask("long")
            if number % step == 0:
                now = time.process_time()
                each = (now - last) / step * 1e3
                print(f"{number:6} turns: {now - first:7.1f} s, {each:.2f} ms each", flush=True)
                last = now
    return time.process_time() - first


async def open_(path: Path) -> dict[str, float]:
    """Return the wall and the CPU time from a question to the model's call, in this process."""
    asked: list[tuple[float, float]] = []

    def now() -> None:
        asked.append((time.perf_counter(), time.process_time()))

    async with ALL[OURS](Once(on_call=now), TOOLS, path) as ask:
        await ask("other")  # what is made once per process is made
        gc.collect()
        now()
        await ask("long")
    begun, then = asked[-2:]
    return {"wall": then[0] - begun[0], "cpu": then[1] - begun[1]}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        print(json.dumps(asyncio.run(open_(options.open))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.db")
        made = asyncio.run(make(path, options.turns, plain=options.plain))
        command = [sys.executable, __file__, "--open", str(path)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        took, size = json.loads(done.stdout), size_of(path)
    print(f"{options.turns} turns: {size / 1e6:.1f} MB, {size / options.turns / 1e3:.2f} kB each")
    for what, value, goal in (("made", made, MADE), ("opened", took["cpu"], OPENED)):
        met = "met" if value <= goal else "missed"
        print(f"{what:6} in {value:8.3f} s of CPU time; goal: {goal} s, {met}")
    print(f"opened in {took['wall']:8.3f} s by the clock")


if __name__ == "__main__":
    main()
