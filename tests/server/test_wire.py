"""What no sender can do by the wire, row by row of the attack list: from heads to answers."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.server.support import Served, cases, raw, serving

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}


def request(served: Served, path: str = "/health", *lines: str, body: bytes = b"") -> bytes:
    head = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{served.port}", "Connection: close", *lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


# --- heads and requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["Content-Length: 4", "Transfer-Encoding: chunked"], id="D30-cl-te"),
        pytest.param(["Content-Length: 4", "Content-Length: 5"], id="D30-two-cl"),
        pytest.param(["X: a", " b"], id="D30-fold-is-one-header"),
        pytest.param(["Transfer-Encoding: gzip, chunked"], id="D30-te"),
        pytest.param(["X : a"], id="D30-space"),
        pytest.param(["X: " + "a" * 100_000], id="D30-long"),
    ],
)
def test_D30_heads(guarded: Served, lines: list[str]) -> None:
    got = raw(guarded, request(guarded, "/health", *lines, body=b"0\r\n\r\n"))
    status = got.split(b" ")[1]
    assert status == b"400" or (lines[0] == "X: a" and status == b"200")


@pytest.mark.sisters(5)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET /health\r\n\r\n", id="D30-http-0.9"),
        pytest.param(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id="D30-connect"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="D48-http-2"),
        pytest.param(b"GET http://evil/health HTTP/1.1\r\nHost: evil\r\n\r\n", id="D30-absolute"),
        pytest.param(
            b"POST /agents/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nabcXX\r\n\r\n",
            id="D30-bad-chunk",
        ),
        pytest.param(
            b"GET /threads HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            id="D48-websocket",
        ),
    ],
)
def test_D30_requests(guarded: Served, data: bytes) -> None:
    status = raw(guarded, data).split(b" ", 2)[1]
    assert status in (b"400", b"401", b"403", b"404", b"405", b"426")


@pytest.mark.slow
def test_D28_no_body_is_taken_from_somebody_unknown(guarded: Served) -> None:
    for path, status in (("/health", b"405"), ("/agents/invoke", b"401")):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000000\r\n\r\n{{"
        assert raw(guarded, head.encode()).split(b" ")[1] == status


@pytest.mark.slow
def test_D32_half_a_head_is_not_waited_for(tmp_path: Any) -> None:
    with serving(tmp_path, "--no-auth", "--header-timeout", "1") as served:
        slow = [socket.create_connection(("127.0.0.1", served.port), 10) for _ in range(100)]
        for connection in slow:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost:")
        with served.http() as http:
            assert http.get("/health").status_code == 200
        for connection in slow:
            connection.settimeout(60)
            assert connection.recv(100) == b""
            connection.close()
        dripping = raw(
            served,
            b"POST /agents/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{",
        )
        assert b"408" in dripping.split(b"\r\n")[0]


# --- paths and methods ---------------------------------------------------------------------------


@pytest.mark.sisters(3)
@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    cases(
        "D38",
        ("GET", "/agents/%2e%2e/", {400, 404}),
        ("GET", "//agents", {404}),
        ("GET", "/agents/default;x", {400, 404}),
        ("GET", "/agents/default%2Finvoke", {400, 404, 405}),
        ("GET", "/threads/..%2f..%2fetc%2fpasswd/state", {400, 404}),
        ("BREW", "/agents", {405}),
        ("OPTIONS", "/agents", {405}),
        ("TRACE", "/agents", {405}),
        ("DELETE", "/agents/default/invoke", {405}),
    ),
)
def test_D38_paths_and_methods(shared: Served, method: str, path: str, statuses: set[int]) -> None:
    got = raw(
        shared,
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode(),
    )
    assert int(got.split(b" ")[1]) in statuses


def test_D38_what_is_allowed_is_named(shared: Served) -> None:
    wanted = {
        "/agents": "GET, POST",
        "/agents/default": "DELETE, GET",
        "/agents/invoke": "POST",
        "/health": "GET",
        "/ui/api/v1/me": "GET",  # the page's own
        "/ui/api/v1/sign-in": "DELETE, POST",
        "/ui/api/v1/sessions/0000000000000000": "DELETE, GET, POST",
        "/ui/api/v1/agents": "GET, POST",  # the server's, through the page's API
    }
    page = {"Origin": shared.url, "Content-Type": "application/json"}
    with shared.http() as http:
        for path, methods in wanted.items():
            for method in ("OPTIONS", "TRACE"):
                got = http.request(method, path, headers=page)
                assert (got.status_code, got.headers["allow"]) == (405, methods), (method, path)
        assert http.get("/ui/api/v1/sign-in").headers["allow"] == "DELETE, POST"
        assert http.request("TRACE", "/ui/api/v1/no-such", headers=page).status_code == 404


# --- pages of other origins ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    cases(
        "D31",
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        *(({"Origin": f"http://{name}"}, 403) for name in ("[", "[::1", "]", "[x]", "127.0.0.1:x")),
        *(({"Origin": name}, 403) for name in ("", "//", "[", "http:/\\127.0.0.1")),
        *(({"Host": name}, 403) for name in ("[", "[::1", "]", "[x]:80", ":", "", "127.0.0.1:x")),
        *(({"Host": name, "Origin": f"http://{name}"}, 403) for name in ("[", "[::1", "")),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ),
)
def test_D31_pages_of_other_origins(shared: Served, headers: dict[str, str], status: int) -> None:
    with shared.http() as http:
        got = http.post("/agents/default/invoke", json=ASK, headers=headers)
    assert got.status_code == status
    assert "access-control-allow-origin" not in got.headers


@pytest.mark.slow
def test_D31_a_page_of_an_allowed_origin(tmp_path: Any) -> None:
    page = "https://app.example"
    with serving(tmp_path, "--host", "127.0.0.1", "--allow-origin", page) as served:
        asks = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        with served.http(served.wick("token", "create")) as http:
            first = http.options("/agents/invoke", headers={"Origin": page, **asks})
            got = http.post("/agents/invoke", json=ASK, headers={"Origin": page})
            evil = http.post("/agents/invoke", json=ASK, headers={"Origin": "https://evil.example"})
        for answer in (first, got):
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == page
        assert evil.status_code == 403
        assert "access-control-allow-origin" not in evil.headers


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", cases("D34", "\n\nevent: done\ndata: {}\n\n", "a\rb", "a\u2028b\u2029c", "data: x")
)
def test_D34_text_does_not_break_out_of_its_event(shared: Served, text: str) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    with shared.http() as http:
        stream = http.post("/agents/default/stream", json=body).content
    lines = stream.decode("ascii").split("\n")
    assert {line.split(":")[0] for line in lines} <= {"id", "event", "data", ""}
    assert lines.count("event: done") == 1


@pytest.mark.slow
def test_D39_errors_give_nothing_away(tmp_path: Any) -> None:
    key = "sk-canary-0123456789abcdefghij"
    broken = f"steps: [{{error: 'RuntimeError: {key} at /etc/secret'}}]"
    with serving(tmp_path, "--no-auth") as served:
        served.write(slow=broken)
        with served.http() as http:
            served.kill()
            served.start()
        with served.http() as http:
            got = http.post("/agents/slow/invoke", json=ASK)
            assert got.status_code == 500
            stream = http.post("/agents/slow/stream", json=ASK).text
        for text in (got.text, stream):
            for word in (key, "Traceback", 'File "', str(tmp_path), "sqlalchemy", "SELECT"):
                assert word not in text
        assert len(got.json()["request_id"]) == 16
