"""What a thread keeps in memory: one whose run has ended, and one whose model is thinking.

    python benchmarks/memory.py [--threads 500] [--warm 0]

Each contender is measured in a process of its own: by how much its memory grows (resident pages,
after a garbage collection and after the C library gave free pages back), for each thread. An idle
thread has ended ten turns with a tool; a live one waits for its model's first reply. `--warm` is
ours alone: the bytes of read messages that the store may keep; the goals hold with none.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from contenders import ALL, OURS, PEER, TOOLS, wick
from measure import parser_of
from workload import Turns

TURNS = 10
FIRST = 100
"""Threads before the measured ones: they fill caches, and make what a process makes once."""


class Gate:
    """Holds those who ask, and counts them."""

    def __init__(self) -> None:
        self.opened, self.inside, self.changed = asyncio.Event(), 0, asyncio.Event()

    async def pass_(self) -> None:
        self.inside += 1
        self.changed.set()
        await self.opened.wait()

    async def holds(self, count: int) -> None:
        """Wait until it holds so many."""
        while self.inside < count:
            self.changed.clear()
            await self.changed.wait()


class Held(Turns):
    """Answer when a gate opens."""

    gate: Any

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        await self.gate.pass_()
        return await super()._agenerate(*args, **kwargs)


def resident() -> int:
    """Return the bytes of this process that are in memory, once all that is free is given back."""
    for _ in range(3):
        gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def measured(name: str, threads: int, warm: int) -> dict[str, float]:
    """Return the bytes of an idle and of a live thread of one contender, in this process."""
    gate = Gate()
    open_, more = (wick, {"warm_bytes": warm}) if name == OURS else (ALL[name], {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.db")
        async with open_(Turns(turns=TURNS), TOOLS, path, **more) as ask:
            for number in range(FIRST):
                await ask(f"first-{number}")
            before = resident()
            for number in range(threads):
                await ask(f"idle-{number}")
            idle = resident() - before
        async with open_(Held(turns=2, gate=gate), TOOLS, path, **more) as ask:
            runs = [asyncio.ensure_future(ask(f"some-{number}")) for number in range(FIRST)]
            await gate.holds(FIRST)
            before = resident()
            runs += [asyncio.ensure_future(ask(f"live-{number}")) for number in range(threads)]
            await gate.holds(FIRST + threads)
            live = resident() - before
            gate.opened.set()
            await asyncio.gather(*runs)
    return {"idle": max(idle, 0) / threads, "live": max(live, 0) / threads}


def in_process(name: str, threads: int, warm: int = 0) -> dict[str, float]:
    """Measure one contender in a process of its own."""
    sizes = ["--threads", str(threads), "--warm", str(warm)]
    command = [sys.executable, __file__, *sizes, "--here", name]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(made.stdout)
    return found


def in_processes(threads: int, warm: int = 0) -> dict[str, dict[str, float]]:
    """Measure ours and the peer."""
    return {name: in_process(name, threads, warm) for name in (OURS, PEER)}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(asyncio.run(measured(options.here, options.threads, options.warm))))
        return
    for name, kinds in in_processes(options.threads, options.warm).items():
        print(f"{name:14}", *(f"{kind} {size / 1e3:6.1f} kB" for kind, size in kinds.items()))


if __name__ == "__main__":
    main()
