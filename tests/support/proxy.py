"""A proxy in front of a PostgreSQL server: it loses the answer to a commit, or cuts a client off.

A commit whose answer is lost reaches the server and is done; who asked for it sees its connection
end. Who is cut off sees nothing: what is sent waits on the way, and arrives when the cut is mended.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit

_COMMITTED = b"COMMIT\x00"
"""What the server says of a commit that is done."""


class LossyProxy:
    """Listens on the loopback; `url` leads through it."""

    def __init__(self, url: str) -> None:
        self._there, self.url_of = _address(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.commits = 0
        """Commits that went through since the last time that this was set."""
        self.lose: Callable[[int], bool] = lambda nth: False
        """Says of a commit, by its number, whether its answer gets lost."""
        self.open = {"asks": threading.Event(), "answers": threading.Event()}
        """Of each way, whether what is sent arrives."""
        self.mend()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The server's URL, through the proxy."""
        return self.url_of(self.port)

    def cut(self, *ways: str) -> None:
        """Let nothing arrive on some ways, without a word to either end."""
        for way in ways:
            self.open[way].clear()

    def mend(self) -> None:
        """Let all arrive, also what has been sent since the cut."""
        for way in self.open.values():
            way.set()

    def close(self) -> None:
        self.mend()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = _connected(self._there)
            for work in (self._ask, self._answer):
                threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                self.open["asks"].wait()
                server.sendall(data)
        _end(client, server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                self.open["answers"].wait()
                if _COMMITTED in data:
                    with self._lock:
                        self.commits += 1
                        if self.lose(self.commits):
                            break
                client.sendall(data)
        _end(client, server)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _address(url: str) -> tuple[str | tuple[str, int], Callable[[int], str]]:
    """Return where a server is, and how its URL reads with another port on the loopback."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    folder = query.pop("host", None)
    query["gssencmode"] = "disable"
    user = parts.netloc.rpartition("@")[0]

    def through(port: int) -> str:
        place = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
        return parts._replace(netloc=place, query=urlencode(query)).geturl()

    if folder is not None and folder.startswith("/"):
        return f"{folder}/.s.PGSQL.{parts.port or 5432}", through
    return (folder or parts.hostname or "127.0.0.1", parts.port or 5432), through


def _connected(there: str | tuple[str, int]) -> socket.socket:
    if isinstance(there, tuple):
        return socket.create_connection(there)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(there)
    return made
