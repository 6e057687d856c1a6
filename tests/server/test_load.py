"""Many readers, slow readers, and what must never be written down."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.server.support import CALL, Served, frames, serving
from tests.source import ROOT
from tests.support.waiting import until
from wick_graph.client import AsyncClient
from wick_graph.events import Done

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}


async def streams(url: str, count: int) -> list[str]:
    """Follow many runs at once, each in a thread of its own; return how each ended."""
    async with AsyncClient(url) as wick:

        async def one() -> str:
            last = None
            async for event in wick.stream("What is 21*2?"):
                last = event
            return last.stopped_because if isinstance(last, Done) else repr(last)

        return await asyncio.gather(*(one() for _ in range(count)))


def resident(served: Served) -> float:
    """Return the server's memory in MiB."""
    assert served.process is not None
    status = Path(f"/proc/{served.process.pid}/status").read_text("ascii")
    return int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1]) / 1024


async def test_many_streams_at_once(server: Served) -> None:
    assert set(await streams(server.url, 60)) == {"done"}


@pytest.mark.slow
async def test_a_thousand_threads_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-auth", "--requests-per-minute", "100000") as served:
        for _ in range(2):
            assert set(await streams(served.url, 500)) == {"done"}
        with served.http() as http:
            assert len(http.get("/threads", params={"limit": 500}).json()) == 500


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_streams_take_about_as_long_as_the_same_threads_in_process(tmp_path: Path) -> None:
    """A loose bound: readers, server and all else share the processors; see `make bench-server`."""
    out = tmp_path / "out.json"
    subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "server.py", "--rounds", "1", "--json", str(out)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=280,
    )
    made = json.loads(out.read_text("utf-8"))
    assert (made["streams"], made["errors"]) == (200, 0)
    assert made["ratios"]["p99"]["median"] < 4


@pytest.mark.slow
def test_N2_readers_that_stop_cost_no_memory_and_hold_nobody_up(tmp_path: Path) -> None:
    text = f"{'x' * 199} " * 2_000
    with serving(tmp_path, slow=f"chunk_delay: 0\nsteps: [{CALL}, '{text}']\n") as served:
        body = json.dumps(ASK)
        head = (
            f"POST /agents/slow/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        with served.http() as http:
            http.post("/agents/default/invoke", json=ASK)
            before = resident(served)
            asleep = []
            for _ in range(5):
                connection = socket.create_connection(("127.0.0.1", served.port))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                connection.sendall(head.encode())
                asleep.append(connection)

            def ended() -> list[str]:
                rows = http.get("/agents/traces", params={"limit": 10}).json()
                return [row["trace_id"] for row in rows if row["status"] == "done"]

            until(lambda: len(ended()) == 6, "a run waits for its reader")
            assert http.post("/agents/default/invoke", json=ASK).status_code == 200
            grown = resident(served) - before
            for connection in asleep:
                connection.close()
    assert grown < 80, f"{grown} MiB for 5 readers of a text of 0.4 MiB each"


@pytest.mark.slow
def test_D40_a_log_line_is_one_line_of_json(tmp_path: Path) -> None:
    """What a caller writes cannot begin a line of the log."""
    broken = 'steps: [{error: "RuntimeError: a\\n{\\"level\\": \\"info\\"}\\u001b[31m"}]'
    with serving(tmp_path, slow=broken) as served:
        with served.http() as http:
            http.post("/agents/slow/invoke", json=ASK)
            http.post("/agents/default/invoke", json={**ASK, "thread_id": "a\nb"})
        _, logged = served.stop()
    for line in logged.splitlines():
        assert isinstance(json.loads(line), dict)
        assert "\x1b" not in line


@pytest.mark.slow
def test_it_starts_soon(tmp_path: Path) -> None:
    """A bound that catches a hang; on a quiet machine a start takes less than 2 seconds."""
    begun = time.monotonic()
    with serving(tmp_path) as served:
        assert time.monotonic() - begun < 20
        assert httpx.get(f"{served.url}/health", trust_env=False, timeout=60).status_code == 200


@pytest.mark.slow
def test_hot_reload(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-auth", "--reload") as served:
        with served.http() as http:
            agents = (tmp_path / "agents.yaml").read_text("utf-8")
            served.write(agents=agents + "  more: {model: 'scripted:talk.yaml'}\n")
            until(lambda: http.get("/agents/more").status_code == 200, "it was not read again", 20)
            served.write(agents="agents: {broken: [")
            time.sleep(1.2)
            assert http.post("/agents/more/invoke", json=ASK).status_code == 200
        _, logged = served.stop()
    assert "the configuration was not reloaded" in logged


@pytest.mark.slow
def test_frames_are_numbered_without_a_hole_under_load(server: Served) -> None:
    with server.http() as http:
        found = frames(http.post("/agents/slow/stream", json=ASK).text)
    assert [number for number, _, _ in found] == [*range(1, len(found) + 1)]
