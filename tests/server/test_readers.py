"""Those who send or take nothing: they are cut off, and nobody else waits for them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, CALL, Served, serving
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("readers")  # they share a server

ASK: Any = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
PIECE = 20_000
PIECES = 200
SEND = 1.0


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that waits a second for its readers, with an agent that says much."""
    agents = AGENTS + "  big: {model: 'scripted:big.yaml'}\n"
    text = ("x" * (PIECE - 1) + " ") * PIECES
    flags = ("--no-auth", "--send-timeout", str(SEND), "--header-timeout", "1")
    path = tmp_path_factory.mktemp("impatient")
    big = f"chunk_delay: 0\nsteps: [{CALL}, '{text}']\n"
    with serving(path, *flags, agents=agents, big=big) as served:
        with served.http() as http:
            got = http.post("/agents/big/invoke", json={**ASK, "thread_id": "told"})
            assert got.status_code == 200
        yield served


def ask(served: Served, method: str, path: str, body: Any = None) -> socket.socket:
    """Send a request, and read nothing of its answer."""
    sent = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(sent)}"]
    lines += ["Content-Type: application/json", "", ""]
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", served.port))
    connection.sendall("\r\n".join(lines).encode() + sent)
    return connection


def is_held(served: Served, connection: socket.socket) -> bool:
    """Say whether the server holds its end of a connection, as the system sees it."""
    ends = [f":{port:04X}" for port in (served.port, connection.getsockname()[1])]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return any(row[1].endswith(ends[0]) and row[2].endswith(ends[1]) for row in rows)


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("POST", "/agents/big/stream", ASK, id="N2-stream"),
        pytest.param(
            "POST", "/v1/chat/completions", {**ASK, "model": "big", "stream": True}, id="N2-openai"
        ),
        pytest.param("GET", "/threads/told/state", None, id="N2-answer"),
    ],
)
def test_N2_a_reader_that_stops_is_cut_off(
    impatient: Served, method: str, path: str, body: Any
) -> None:
    with closing(ask(impatient, method, path, body)) as connection:
        assert is_held(impatient, connection)
        until(lambda: not is_held(impatient, connection), "a reader that sleeps is kept", 30)
    with impatient.http() as http:

        def at_work() -> list[Any]:
            found = http.get("/threads", params={"agent": "big"}).json()
            return [thread for thread in found if thread["status"] != "idle"]

        until(lambda: not at_work(), "a run waits for its reader")


@pytest.mark.slow
def test_N2_a_reader_that_is_slow_is_not_cut_off(impatient: Served) -> None:
    with closing(ask(impatient, "GET", "/threads/told/state")) as connection:
        got, begun = 0, time.monotonic()
        while time.monotonic() - begun < 4 * SEND:
            time.sleep(SEND / 10)
            got += len(connection.recv(40_000))
        while got < PIECE * PIECES:
            got += len(connection.recv(1_000_000))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_N2_N4_nobody_waits_for_those_who_do_nothing(impatient: Served) -> None:
    """A loose bound: on a busy machine a request takes what it takes."""
    with impatient.http() as http:
        alone = p99(http)
        with ExitStack() as opened:
            for _ in range(300):
                half = socket.create_connection(("127.0.0.1", impatient.port), 30)
                opened.enter_context(closing(half)).sendall(b"GET /health HTTP/1.1\r\nHost:")
            for _ in range(50):
                opened.enter_context(closing(ask(impatient, "GET", "/threads/told/state")))
            time.sleep(2 * SEND)
            beside = p99(http)
    assert beside < 2 * alone + 0.1, f"{beside:.3f} s beside them, {alone:.3f} s alone"


def p99(http: httpx.Client) -> float:
    """Return what all but one of a hundred requests stay below, in seconds."""
    took = []
    for _ in range(100):
        begun = time.perf_counter()
        assert http.get("/agents").status_code == 200
        took.append(time.perf_counter() - begun)
    return sorted(took)[98]
