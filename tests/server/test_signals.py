"""What signals do: running steps end or are kept, readers are told, and nothing is lost."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import CALL, Served, frames, serving
from tests.support.waiting import until

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
LONG = f"chunk_delay: 0.1\nsteps: [{CALL}, '{' '.join(f'word{i}' for i in range(30))}']\n"
RUNS = 3


class Reader:
    """A stream that was begun, and what it has told."""

    def __init__(self, http: httpx.Client) -> None:
        self._door = http.stream("POST", "/agents/slow/stream", json=ASK)
        self._got = self._door.__enter__()
        self.run, self.path = (self._got.headers[k] for k in ("x-run-id", "content-location"))
        self._lines = self._got.iter_lines()
        self.told = next(self._lines) + "\n"

    def rest(self) -> str:
        self.told += "\n".join(self._lines)
        self._door.__exit__(None, None, None)
        return self.told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "drain"),
    [
        pytest.param((signal.SIGTERM,), "0.2", id="D46-SIGTERM"),
        pytest.param((signal.SIGTERM, signal.SIGTERM), "60", id="D46-SIGTERM-twice"),
        pytest.param((signal.SIGHUP,), "0.2", id="D46-SIGHUP"),
    ],
)
def test_D46_a_signal_suspends_and_nothing_is_lost(
    tmp_path: Path, signals: tuple[signal.Signals, ...], drain: str
) -> None:
    with serving(tmp_path, "--no-auth", "--drain", drain, slow=LONG) as served:
        port, process = served.port, served.process
        assert process is not None
        with served.http() as http, served.http() as other:
            readers = [Reader(http) for _ in range(RUNS)]
            begun = time.monotonic()
            for sig in signals:
                process.send_signal(sig)
                if len(signals) > 1:
                    until(lambda: refuses(other), "it takes runs on")
            told = [frames(reader.rest()) for reader in readers]
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert time.monotonic() - begun < 30  # not the minute that it might have waited
        for reader, seen in zip(readers, told, strict=True):
            number, name, data = seen[-1]
            assert (number, name) == (None, "suspended")
            assert json.loads(data)["run_id"] == reader.run
        served.start(port=port)
        with served.http() as http:
            for reader, seen in zip(readers, told, strict=True):
                whole = frames(http.get(reader.path).text)
                assert whole[: len(seen) - 1] == seen[:-1]
                assert [number for number, _, _ in whole] == [*range(1, len(whole) + 1)]
                assert [name for _, name, _ in whole].count("on_tool_start") == 1
                assert [name for _, name, _ in whole if name in ("done", "error")] == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [("/agents/slow/invoke", ASK), ("/v1/chat/completions", {**ASK, "model": "slow"})],
)
def test_D46_who_waits_for_a_suspended_run_is_told_where_it_goes_on(
    tmp_path: Path, path: str, body: Any
) -> None:
    with serving(tmp_path, "--no-auth", "--drain", "0.2", slow=LONG) as served:
        port, process = served.port, served.process
        assert process is not None
        with served.http() as http, ThreadPoolExecutor(1) as pool, served.http() as other:
            asked = pool.submit(http.post, path, json=body)
            until(lambda: other.get("/threads").json(), "no run has begun")
            process.send_signal(signal.SIGTERM)
            answer = asked.result(60)
        process.communicate(timeout=60)
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert "the run is suspended; it goes on in its thread" in answer.text
        told = answer.json()
        run = (told["error"] if path.startswith("/v1") else told)["run_id"]
        served.start(port=port)
        with served.http() as http:
            assert frames(http.get(f"/runs/{run}/events").text)[-1][1] == "done"


def test_D46_who_follows_a_run_of_another_server_is_let_go(tmp_path: Path) -> None:
    """A server that records runs for workers has no others."""
    endless = f"chunk_delay: 0.1\nsteps: ['{'word ' * 400}']\n"
    with serving(tmp_path, slow=endless) as one:
        two = Served(tmp_path, ("--no-auth", "--drain", "0.2")).start()
        try:
            with one.http() as http, two.http() as other, ThreadPoolExecutor(2) as pool:
                reader, key = Reader(http), {"Idempotency-Key": "followed"}
                pool.submit(http.post, "/agents/slow/invoke", json=ASK, headers=key)
                until(lambda: len(other.get("/threads").json()) > 1, "no second run has begun")
                asked = pool.submit(other.post, "/agents/slow/invoke", json=ASK, headers=key)
                with other.stream("GET", reader.path) as followed:
                    lines = followed.iter_lines()
                    told = next(lines)
                    time.sleep(0.5)  # the other one waits, too
                    code, log = two.stop()
                    told += "\n" + "\n".join(lines)
                assert frames(told)[-1][1] == "suspended"
                assert (asked.result(60).status_code, code) == (503, 0)
                assert "Traceback" not in log
                for run in (reader.run, asked.result(60).json()["run_id"]):
                    assert http.get(f"/runs/{run}").json()["status"] == "running"
                    http.post(f"/runs/{run}/cancel")
        finally:
            two.stop()


def test_D46_who_follows_a_thread_at_rest_is_let_go(tmp_path: Path) -> None:
    with serving(tmp_path) as served, served.http() as http:
        http.post("/agents/default/invoke", json={**ASK, "thread_id": "t"})
        with http.stream("GET", "/langgraph/threads/t/stream") as followed:
            lines = followed.iter_lines()
            next(lines)
            code, log = served.stop()
            assert [*lines][-1] == ""  # it ends, and is not cut off
        assert (code, "Traceback" in log) == (0, False)


def refuses(http: httpx.Client) -> bool:
    try:
        got = http.post("/agents/invoke", json=ASK)
    except httpx.HTTPError:  # it is gone already
        return True
    return got.status_code == 503 and "retry-after" in got.headers


@pytest.mark.slow
def test_D46_SIGPIPE_is_nothing(server: Served) -> None:
    assert server.process is not None
    with server.http() as http:
        server.process.send_signal(signal.SIGPIPE)
        assert http.post("/agents/invoke", json=ASK).status_code == 200
