"""Many streams at once through a real `wick serve`, beside the same threads in one process.

    python benchmarks/server.py [--streams 200] [--rounds 3] [--words 100] [--json out.json]

Each round starts a server on an empty folder, asks it for so many streams at the same moment, and
runs the same agent on as many threads in this process, with a database of its own; which comes
first turns from round to round. Both warm up with one stream. A stream's time is that from the
question to the last event. Printed are its median and 99th percentile, the CPU time of the process
that runs the agents, and their ratios, round by round. The reader of the streams needs a processor
of its own: with fewer than two idle ones the ratio says little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure import Spread
from report import about

from wick_graph.client import AsyncClient
from wick_graph.config import load_config
from wick_graph.events import ChatModelStream, Done
from wick_graph.loading import Agents

GOAL = 1.5
QUESTION = "What is 21*2?"
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: never, tools: [calculate]}
agents:
  default: {model: 'scripted:talk.yaml'}
"""
CALL = "{text: Let me see., calls: [{tool: calculate, args: {expression: 21*2}}]}"


@dataclass(frozen=True)
class Load:
    """What so many streams took, in seconds."""

    p50: float
    p99: float
    wall: float
    cpu: float
    """Of the process that runs the agents."""
    errors: int

    @classmethod
    def of(cls, seconds: Sequence[float], wall: float, cpu: float, errors: int) -> Load:
        ordered = sorted(seconds)
        last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return cls(statistics.median(ordered), last, wall, cpu, errors)


Ask = Callable[[int], AsyncIterator[Any]]
Way = Callable[[Path, int, int], Coroutine[Any, Any, Load]]


async def load(ask: Ask, count: int, words: int, cpu: Callable[[], float]) -> Load:
    """Follow so many streams at once to their ends; one that says too little is an error."""

    async def one(number: int) -> tuple[float, bool]:
        begun, pieces, last = time.perf_counter(), "", None
        try:
            async for event in ask(number):
                last = event
                pieces += event.delta if isinstance(event, ChatModelStream) else ""
        except Exception as error:
            print(f"stream {number}: {error!r}", file=sys.stderr)
        good = isinstance(last, Done) and last.stopped_because == "done"
        return time.perf_counter() - begun, good and pieces.endswith(f"word{words - 1}")

    await one(0)
    wall, spent = time.perf_counter(), cpu()
    found = await asyncio.gather(*(one(number) for number in range(1, count + 1)))
    wall, spent = time.perf_counter() - wall, cpu() - spent
    return Load.of([took for took, _ in found], wall, spent, sum(not good for _, good in found))


async def in_process(folder: Path, count: int, words: int) -> Load:
    """Run the threads here."""
    with Agents(load_config(folder / "agents.yaml")) as agents:
        agent = agents["default"]

        def ask(number: int) -> AsyncIterator[Any]:
            return agent.astream(QUESTION, thread_id=f"t{number}")

        return await load(ask, count, words, time.process_time)


async def over_http(folder: Path, count: int, words: int) -> Load:
    """Run the threads behind a server."""
    with serving(folder) as (url, pid):
        async with AsyncClient(url) as wick:

            def ask(number: int) -> AsyncIterator[Any]:
                return wick.stream(QUESTION, thread_id=f"t{number}")

            return await load(ask, count, words, lambda: cpu_of(pid))


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve a folder; yield the address and the process."""
    root = Path(__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "wick_graph", "serve", "--port", "0", "--no-auth"),
            *("--requests-per-minute", "1000000"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"^serving .* on (http://\S+),", line):
                yield found[1], process.pid
                return
        raise SystemExit(f"the server did not start:\n{said}")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU time that another process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(streams: int, rounds: int, words: int) -> list[dict[str, Load]]:
    """Run both, round by round."""
    text = " ".join(f"word{number}" for number in range(words))
    script = f"chunk_delay: 0.01\nsteps: [{CALL}, '{text}']\n"
    ways: list[tuple[str, Way]] = [("in process", in_process), ("over HTTP", over_http)]
    found: list[dict[str, Load]] = []
    for number in range(rounds):
        loads = {}
        for name, way in ways if number % 2 == 0 else ways[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "agents.yaml").write_text(AGENTS, "utf-8")
                Path(folder, "talk.yaml").write_text(script, "utf-8")
                loads[name] = asyncio.run(way(Path(folder), streams, words))
            show(name, loads[name])
        found.append(loads)
    return found


def show(name: str, took: Load) -> None:
    print(
        f"{name:10}  p50 {took.p50:6.2f} s  p99 {took.p99:6.2f} s  wall {took.wall:6.2f} s  "
        f"CPU {took.cpu:6.2f} s  errors {took.errors}",
        flush=True,
    )


def document(found: list[dict[str, Load]], streams: int, words: int) -> dict[str, Any]:
    """Make what `--json` writes: the loads, and the ratios HTTP ÷ in process."""
    ratios: dict[str, Any] = {}
    for key in ("p50", "p99", "wall", "cpu"):
        pairs = [(getattr(r["over HTTP"], key), getattr(r["in process"], key)) for r in found]
        ratios[key] = asdict(Spread.of([http / here for http, here in pairs]))
    errors = sum(took.errors for loads in found for took in loads.values())
    rounds = [{name: asdict(took) for name, took in loads.items()} for loads in found]
    return {
        "about": about(),
        "streams": streams,
        "words": words,
        "rounds": rounds,
        "ratios": ratios,
        "goal": GOAL,
        "errors": errors,
        "met": not errors and ratios["p99"]["median"] <= GOAL,
    }


def main() -> None:
    words, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=words, epilog=rest)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=100, help="of each answer; each is a piece")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measured(options.streams, options.rounds, options.words)
    made = document(found, options.streams, options.words)
    for key, ratio in made["ratios"].items():
        print(
            f"{key:4} HTTP ÷ in process: {ratio['median']:.2f}× "
            f"({ratio['low']:.2f}–{ratio['high']:.2f})"
        )
    print(f"goal: p99 ≤ {GOAL}×, no error: {'met' if made['met'] else 'missed'}")
    if options.json:
        options.json.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
