"""Limits of a token and of a tenant hold over all servers of a database."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.server.support import caller
from tests.support.waiting import until
from wick_graph import load
from wick_graph.server import Server
from wick_graph.service.options import Limits, ServerOptions

MINUTE = 60


@pytest.mark.parametrize("whose", ["token", "tenant"])
def test_a_server_pays_for_what_others_have_let_through(
    tmp_path: Path, postgres_url: str, whose: str
) -> None:
    limits = f"limits: {{requests_per_minute: {MINUTE}}}\n" if whose == "tenant" else ""
    text = f"store: '{postgres_url}'\n{limits}agents: {{default: {{model: 'scripted:demo'}}}}\n"
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    each = Limits(requests_per_minute=MINUTE) if whose == "token" else Limits()
    options = ServerOptions(port=0, limits=each)
    with (
        Server(load(tmp_path / "agents.yaml"), options=options) as one,
        Server(load(tmp_path / "agents.yaml"), options=options) as two,
        caller(one, "anna", "read") as http,
    ):
        key = http.headers["Authorization"]

        def wait(server: Server) -> int:
            """Ask until a server refuses; return the seconds that it then says."""
            with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as own:
                while True:
                    got = own.get("/agents", headers={"Authorization": key})
                    if got.status_code == 429:
                        return int(got.headers["Retry-After"])

        wait(one)
        wait(two)
        # alone, a bucket of one request a second has the next one after a second
        until(lambda: max(wait(one), wait(two)) > 4, "the servers do not share a limit")
