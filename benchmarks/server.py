"""Many streams at once through a real `wick serve`, beside the same threads in one process.

    python benchmarks/server.py [--streams 200] [--rounds 3] [--words 100] [--json out.json]

Each round starts a server on an empty folder, asks it for so many streams at the same moment, and
runs the same agent on as many threads in this process, with a database of its own; which comes
first turns from round to round. Both warm up with one stream. A stream's time is that from the
question to the last event. Printed are its median and 99th percentile, the CPU time of the process
that runs the agents, and their ratios, round by round. The reader of the streams needs a processor
of its own: with fewer than two idle ones the ratio says little.

`--floor` asks, instead, a server without an engine: uvicorn sends each reader the bytes of one
recorded stream at the model's pace. That is what the same reader, events and sockets cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
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

import httpx
from measure import Spread, parser_of
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
class Followed:
    """One stream, followed to its end."""

    seconds: float
    first: float
    events: int
    good: bool


@dataclass(frozen=True)
class Load:
    """What so many streams took, in seconds."""

    p50: float
    p99: float
    wall: float
    cpu: float
    """Of the process that runs the agents."""
    errors: int
    first: float
    """Until a stream's first text, the median."""
    events: int
    """Of all streams, as their readers got them."""

    @classmethod
    def of(cls, found: Sequence[Followed], wall: float, cpu: float) -> Load:
        ordered = sorted(one.seconds for one in found)
        last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        errors = sum(not one.good for one in found)
        first = statistics.median(one.first for one in found)
        events = sum(one.events for one in found)
        return cls(statistics.median(ordered), last, wall, cpu, errors, first, events)


Ask = Callable[[int], AsyncIterator[Any]]
Way = Callable[[Path, int, int], Coroutine[Any, Any, Load]]


async def load(ask: Ask, count: int, words: int, cpu: Callable[[], float]) -> Load:
    """Follow so many streams at once to their ends; one that says too little is an error."""

    async def one(number: int) -> Followed:
        begun, pieces, last, events, first = time.perf_counter(), "", None, 0, 0.0
        try:
            async for event in ask(number):
                last, events = event, events + 1
                if isinstance(event, ChatModelStream):
                    pieces += event.delta
                    first = first or time.perf_counter() - begun
        except Exception as error:
            print(f"stream {number}: {error!r}", file=sys.stderr)
        good = isinstance(last, Done) and last.stopped_because == "done"
        took = time.perf_counter() - begun
        return Followed(took, first or took, events, good and pieces.endswith(f"word{words - 1}"))

    await one(0)
    wall, spent = time.perf_counter(), cpu()
    found = await asyncio.gather(*(one(number) for number in range(1, count + 1)))
    wall, spent = time.perf_counter() - wall, cpu() - spent
    return Load.of(found, wall, spent)


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


async def without_engine(folder: Path, count: int, words: int) -> Load:
    """Ask a server that sends each reader the same recorded bytes."""
    with serving(folder) as (url, _):
        async with httpx.AsyncClient(timeout=60) as http:
            asked = {"messages": [{"role": "user", "content": QUESTION}]}
            said = await http.post(f"{url}/agents/default/stream", json=asked)
    said.raise_for_status()
    await asyncio.to_thread(Path(folder, "stream.txt").write_bytes, said.content)
    with serving(folder, (__file__, "--replay")) as (url, pid):
        async with AsyncClient(url) as wick:
            return await load(lambda _: wick.stream(QUESTION), count, words, lambda: cpu_of(pid))


def replay() -> None:
    """Serve the recorded stream of this folder; a piece of text comes after 10 ms."""
    import uvicorn  # noqa: PLC0415  # only here

    recorded = Path("stream.txt").read_bytes().split(b"\n\n")
    frames = [one + b"\n\n" for one in recorded if one]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        while (await receive()).get("more_body"):
            pass
        head = [(b"content-type", b"text/event-stream"), (b"x-thread-id", b"t")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for frame in frames:
            if b"word" in frame:
                await asyncio.sleep(0.01)
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    port = listening.getsockname()[1]
    print(f"serving nothing on http://127.0.0.1:{port}, ", file=sys.stderr, flush=True)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
    server.run(sockets=[listening])


SERVE = (
    "-m",
    "wick_graph",
    "serve",
    "--port",
    "0",
    "--no-auth",
    "--requests-per-minute",
    "1000000",
)


@contextmanager
def serving(folder: Path, words: Sequence[str] = SERVE) -> Iterator[tuple[str, int]]:
    """Serve a folder; yield the address and the process."""
    root = Path(__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, *words],
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


def script_of(words: int) -> str:
    """Make the script of a model: a call of a tool, then so many words, one in 10 ms."""
    text = " ".join(f"word{number}" for number in range(words))
    return f"chunk_delay: 0.01\nsteps: [{CALL}, '{text}']\n"


def _write(folder: Path, script: str) -> None:
    Path(folder, "agents.yaml").write_text(AGENTS, "utf-8")
    Path(folder, "talk.yaml").write_text(script, "utf-8")


async def streams_of(streams: int, script: str, words: int) -> Load:
    """Ask a server on an empty folder for so many streams at once."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), script)
        return await over_http(Path(folder), streams, words)


def measured(streams: int, rounds: int, words: int) -> list[dict[str, Load]]:
    """Run both, round by round."""
    script = script_of(words)
    ways: list[tuple[str, Way]] = [("in process", in_process), ("over HTTP", over_http)]
    found: list[dict[str, Load]] = []
    for number in range(rounds):
        loads = {}
        for name, way in ways if number % 2 == 0 else ways[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                _write(Path(folder), script)
                loads[name] = asyncio.run(way(Path(folder), streams, words))
            show(name, loads[name])
        found.append(loads)
    return found


def show(name: str, took: Load) -> None:
    each = took.cpu / max(took.events, 1) * 1e3
    print(
        f"{name:10}  first {took.first:6.2f} s  p50 {took.p50:6.2f} s  p99 {took.p99:6.2f} s  "
        f"wall {took.wall:6.2f} s  CPU {took.cpu:6.2f} s, {each:.2f} ms an event  "
        f"errors {took.errors}",
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
    parser = parser_of(__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=100, help="of each answer; each is a piece")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--floor", action="store_true", help="a server without an engine")
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        replay()
        return
    if options.floor:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), script_of(options.words))
            show(
                "no engine",
                asyncio.run(without_engine(Path(folder), options.streams, options.words)),
            )
        return
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
