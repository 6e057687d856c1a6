"""Servers on loopback that say any bytes at all, as slowly as wanted."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket, bytes], None]


def http(body: bytes = b"", status: str = "200 OK", *headers: str) -> bytes:
    """An answer with its length and any further headers."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


REACHED = http(b'{"result": "reached"}')


class Loopback:
    """What a server was asked; each connection gets one answer."""

    def __init__(self, listener: socket.socket, answer: bytes | Answer) -> None:
        self.listener = listener
        self.port = int(listener.getsockname()[1])
        self.answer = answer
        self.asked: list[bytes] = []
        """Whole requests."""
        self.broken = threading.Event()
        """A client left before the answer was out."""
        self.closing = threading.Event()

    def url(self, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}"

    def headers(self, at: int = 0) -> dict[str, str]:
        head = self.asked[at].partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return {k.lower(): v for k, _, v in (line.partition(": ") for line in head)}

    def body(self, at: int = 0) -> bytes:
        return self.asked[at].partition(b"\r\n\r\n")[2]

    def line(self, at: int = 0) -> str:
        return self.asked[at].split(b"\r\n", 1)[0].decode("latin-1")

    def serve(self, context: ssl.SSLContext | None) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(conn, context), daemon=True).start()

    def _one(self, conn: socket.socket, context: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError), conn:
            if context is not None:
                conn = context.wrap_socket(conn, server_side=True)
            asked = _request(conn)
            self.asked.append(asked)
            try:
                if callable(self.answer):
                    self.answer(conn, asked)
                else:
                    conn.sendall(self.answer)
            except OSError:
                self.broken.set()
            conn.close()


def _request(conn: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += conn.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().partition(b":")[::2] for line in head.split(b"\r\n"))
    length = int(fields.get(b"content-length", 0))
    while len(body) < length:
        body += conn.recv(65536) or b" " * length
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def loopback(
    answer: bytes | Answer = REACHED,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Loopback]:
    """Serve one answer on a loopback address until the end of the block."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(16)
        made = Loopback(listener, answer)
        thread = threading.Thread(target=made.serve, args=(tls,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.closing.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(5)
