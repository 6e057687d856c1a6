"""Tools that a tenant's admin registers: their calls reach nothing on or around the server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.support import serving
from wick_graph.errors import RefusedError
from wick_graph.tools import HTTPTool

pytestmark = pytest.mark.xdist_group("callbacks")  # they share a server

ASK = {"messages": [{"role": "user", "content": "What is the weather?"}]}
TALK = json.dumps(
    {
        "steps": [
            {"calls": [{"tool": "weather", "args": {"city": "Oslo"}}], "unchecked": True},
            "I do not know.",
        ]
    }
)


class Listener:
    """Counts who comes to a port of this machine."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.came = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.came += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("callbacks")
    with serving(folder, "--host", "127.0.0.1", talk=TALK) as served:
        token = served.wick("token", "create", "--tenant", "anna", "--scope", "admin")
        with served.http(token) as http:
            yield http


@pytest.mark.sisters
@pytest.mark.parametrize(
    "address",
    [
        pytest.param(address, id=f"{row}-{address}")
        for row, addresses in {
            "D1": ("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0.0.0.0", "127.0.0.2"),
            "D2": ("[::1]", "[::]", "[::ffff:127.0.0.1]"),
            "D3": ("localhost", "LOCALHOST", "localhost."),
            "D5": ("169.254.169.254", "100.64.0.1", "10.0.0.1", "192.168.0.1", "[fd00:ec2::254]"),
        }.items()
        for address in addresses
    ],
)
def test_a_call_to_what_is_private_is_refused(
    admin: httpx.Client, listener: Listener, address: str
) -> None:
    url = f"http://{address}:{listener.port}"
    tool = {"name": "weather", "description": "Say what it is.", "callback_url": url}
    made = admin.post("/agents/tools/register", json={**tool, "parameters": {"type": "object"}})
    gone = admin.delete("/agents/tools/deregister/weather")
    if made.status_code == 200:  # not every resolver knows each spelling; the next one may
        assert "cannot be found" in made.json()["health"]
        assert address.endswith(".")
    else:
        assert made.status_code == 409, made.text
        assert "is refused: its address" in made.json()["error"]
        assert gone.status_code == 404, "it was not registered"
    assert listener.came == 0


def test_a_name_that_leads_inside_later_is_refused_at_the_call(
    admin: httpx.Client, listener: Listener
) -> None:
    """What a name stands for is looked up at each call: the one at registration says nothing."""
    tool = HTTPTool("weather", "W", {"type": "object"}, f"http://localhost:{listener.port}")
    with pytest.raises(RefusedError, match="is loopback"):
        asyncio.run(tool.client.send("GET", tool.callback_url))
    assert listener.came == 0
