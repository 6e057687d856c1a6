"""What workers cost a caller: the wait for a run's first event, the lag of events, take-overs.

    python benchmarks/fleet.py [--runs 200] [--rounds 10]

Two servers and two workers over one PostgreSQL, each in a process of its own; beside them a server
that executes its runs itself. The first event is timed from the request on, each in a new thread.
The lag is that of a tool's result, which says when it was made, at a server that does not execute
the run. A take-over is timed from the death of a worker, or from its SIGTERM, to the next call of
its run at the other one. Counted are the connections of all these processes.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from measure import parser_of

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.server.support import Served  # noqa: E402
from tests.support.postgres import connected, running, with_schema  # noqa: E402
from tests.worker.support import Fleet  # noqa: E402

TICK: Final = '''
import os, time
from pathlib import Path
from wick_graph import tool

@tool(replay="safe")
def tick(n: str) -> str:
    """Say when this is, and write down by whom."""
    with open(Path(__file__).parent / "ticks", "a") as file:
        file.write(f"{os.getpid()} {time.time()}\\n")
    time.sleep(float(n))
    return f"{time.time()}"
'''


@contextmanager
def fleet_at(
    server: str, folder: Path, mode: str, *, lease: float = 30, steps: int = 0
) -> Iterator[Fleet]:
    """Make a fleet whose agent answers at once, or calls the tool `tick` in so many steps."""
    folder.mkdir()
    made = Fleet(folder, with_schema(server, folder.name), lease)
    (folder / "tools.py").write_text(TICK)
    about = json.loads((folder / "agents.yaml").read_text())
    about["agents"]["default"]["tools"] = ["tools:tick"]
    about["workers"]["mode"] = mode
    if steps:
        call = {"calls": [{"tool": "tick", "args": {"n": "0.1"}}]}
        (folder / "steps.yaml").write_text(json.dumps({"steps": [*[call] * steps, "Done."]}))
        about["agents"]["default"] |= {"model": "scripted:steps.yaml", "max_iterations": steps + 2}
    (folder / "agents.yaml").write_text(json.dumps(about))
    try:
        yield made
    finally:
        made.close()


def events(served: Served, method: str, path: str, **more: Any) -> Iterator[tuple[float, Any]]:
    """Yield events as they arrive, each with its time."""
    with served.http() as http, http.stream(method, path, **more) as got:
        got.raise_for_status()
        for line in got.iter_lines():
            if line.startswith("data: "):
                yield time.time(), json.loads(line[6:])


def asked(thread: str, text: str) -> dict[str, Any]:
    """Return the body of a request."""
    return {"thread_id": thread, "messages": [{"role": "user", "content": text}]}


def first_events(served: Served, runs: int) -> list[float]:
    """Time the first events of so many runs, one after the other."""
    took = []
    for number in range(-5, runs):  # the first ones warm up
        began = time.time()
        told = events(served, "POST", "/agents/stream", json=asked(f"f{number}", "Hello"))
        at, _ = next(told)
        for _ in told:
            pass
        took += [at - began] if number >= 0 else []
    return took


def lags(fleet: Fleet, runs: int) -> list[float]:
    """Time how late results of tools come to a server that does not execute them."""
    late = []
    for number in range(runs):
        fleet.ask("Go.", f"l{number}")
        path = f"/threads/l{number}/events"
        for at, event in events(fleet.servers[-1], "GET", path):
            if event.get("event") == "on_tool_end":
                late.append(at - float(event["data"]["output"]))
            if event.get("event") == "done":
                break
    return late


def take_over(fleet: Fleet, number: int, how: signal.Signals) -> float:
    """Time from a signal to a worker until the other one goes on with its run."""
    ticks = fleet.path / "ticks"
    ticks.unlink(missing_ok=True)
    fleet.ask("Go.", f"k{how}{number}")

    def by() -> list[list[str]]:
        return [line.split() for line in ticks.read_text().splitlines()] if ticks.exists() else []

    while len(by()) < 3:
        time.sleep(0.01)
    owner = int(by()[-1][0])
    victim = next(one for one in fleet.workers if one.pid == owner)
    began = time.time()
    victim.send_signal(how)
    while not (others := [at for pid, at in by() if int(pid) != owner]):
        time.sleep(0.01)
    victim.wait()
    fleet.work()
    with fleet.servers[0].http() as http:
        http.post(f"/threads/k{how}{number}/cancel")
    return float(others[0]) - began


def show(what: str, values: Sequence[float], unit: float = 1e3) -> None:
    """Print the median and the 99th percentile."""
    ordered = sorted(values)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    middle = statistics.median(ordered)
    name = "ms" if unit == 1e3 else "s"
    load = os.getloadavg()[0]
    print(
        f"{what:44} p50 {middle * unit:7.1f} {name}  p99 {last * unit:7.1f} {name}  "
        f"({len(ordered)}; load {load:.1f})",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with running() as server, tempfile.TemporaryDirectory() as folder:
        with fleet_at(server, Path(folder, "embedded"), "embedded") as alone:
            show("first event, a server by itself", first_events(alone.serve(), given.runs))
        with fleet_at(server, Path(folder, "external"), "external") as fleet:
            fleet.serve()
            fleet.work()
            show("first event, by a worker", first_events(fleet.servers[0], given.runs))
        with fleet_at(server, Path(folder, "stopped"), "external", steps=18) as fleet:
            fleet.serve()
            fleet.serve()
            fleet.work()
            show("a result of a tool at another server", lags(fleet, given.rounds))
            fleet.work()
            with connected(fleet.url) as db:
                row = db.execute("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL")
                found = row.fetchone()
            assert found is not None
            print(f"connections of two servers and two workers: {found[0] - 1}", flush=True)
            stopped = [take_over(fleet, n, signal.SIGTERM) for n in range(given.rounds)]
            show("a take-over after SIGTERM (lease 30 s)", stopped, 1)
        with fleet_at(server, Path(folder, "killed"), "external", lease=3, steps=18) as fleet:
            fleet.serve()
            fleet.work()
            fleet.work()
            killed = [take_over(fleet, n, signal.SIGKILL) for n in range(given.rounds)]
            show("a take-over after a kill (lease 3 s)", killed, 1)


if __name__ == "__main__":
    main()
