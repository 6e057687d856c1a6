"""Attacks on the clients that libraries use for addresses of callers."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from wick_graph.errors import WickError
from wick_graph.web import Client, transport
from wick_graph.web.transport import clients


class Answers(BaseHTTPRequestHandler):
    """Answer by path, and note what came."""

    came: ClassVar[list[dict[str, str]]] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.came.append({key.lower(): value for key, value in self.headers.items()})
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"x" * 3_000 if "long" in self.path else b"plain"
        self.send_response(302 if "moved" in self.path else 200)
        if "gzip" in self.path:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        if "moved" in self.path:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def posted(rules: Client, url: str, how: str, **more: Any) -> tuple[int, str]:
    plain, async_ = clients(rules, {"Authorization": "Bearer own"})
    if how == "sync":
        with plain:
            got = plain.post(url, **more)
            return got.status_code, got.text

    async def asked() -> tuple[int, str]:
        async with async_:
            got = await async_.post(url, **more)
            return got.status_code, got.text

    return asyncio.run(asked())


BOTH = pytest.mark.parametrize("how", ["sync", "async"])


@BOTH
def test_the_caller_s_headers_are_sent_and_no_others(
    origin: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    Answers.came.clear()
    secret = {"Authorization": "Bearer env", "OpenAI-Organization": "env", "Cookie": "env"}
    rules = Client(allow=[origin])
    assert posted(rules, f"{origin}/v1", how, json={}, headers=secret) == (200, "plain")
    (came,) = Answers.came
    assert came.pop("authorization") == "Bearer own"
    assert sorted(came) == [
        "accept", "accept-encoding", "connection", "content-length", "content-type", "host"
    ]  # fmt: skip
    assert "env" not in str(came)


@BOTH
@pytest.mark.parametrize("path", ["gzip", "long"])
def test_an_answer_is_plain_and_bounded(
    origin: str, how: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 1_000)
    with pytest.raises(WickError, match="is encoded|is longer than 1000 bytes"):
        posted(Client(allow=[origin]), f"{origin}/{path}", how, json={})


@BOTH
def test_a_redirect_is_not_followed(origin: str, how: str) -> None:
    assert posted(Client(allow=[origin]), f"{origin}/moved", how, json={})[0] == 302


@BOTH
def test_each_request_is_checked_and_goes_where_it_was_checked(
    origin: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may lead elsewhere at the next look-up."""
    looked: list[Any] = []
    port = int(origin.rpartition(":")[2])
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "model.example":
            return real(host, *args, **kwargs)
        looked.append(host)
        address = "127.0.0.1" if len(looked) % 2 else "10.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    url = f"http://model.example:{port}/v1"
    rules = Client(allow=[origin])
    assert posted(rules, url, how, json={}) == (200, "plain")
    with pytest.raises(WickError, match=r"its address 10\.0\.0\.1 is private"):
        posted(rules, url, how, json={})
    assert len(looked) == 2


@BOTH
@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1", "[::1]", "10.0.0.1"])
def test_no_private_address_is_reached(how: str, host: str) -> None:
    with pytest.raises(WickError, match="is refused"):
        posted(Client(), f"http://{host}/v1", how, json={})
