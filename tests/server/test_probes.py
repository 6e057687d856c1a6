"""What an orchestrator asks a server: whether it lives, and whether it can be used now."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.server.test_notices import transactions
from tests.support.postgres import connected
from tests.support.waiting import until
from wick_graph import load
from wick_graph.server import Server
from wick_graph.service.options import ServerOptions


def test_a_server_is_ready_while_its_database_has_its_schema(
    tmp_path: Path, postgres_url: str
) -> None:
    text = f"store: '{postgres_url}'\nagents: {{default: {{model: 'scripted:demo'}}}}\n"
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    options = ServerOptions(port=0)
    with (
        Server(load(tmp_path / "agents.yaml"), options=options) as server,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http,
        connected(postgres_url) as db,
    ):
        assert http.get("/agents").status_code == 401  # the probes need no token

        def asked(path: str) -> tuple[int, str | None]:
            got = http.get(path)
            return got.status_code, got.json().get("error")

        assert asked("/livez") == asked("/readyz") == (200, None)
        row = db.execute("UPDATE wick_meta SET version = version - 1 RETURNING version").fetchone()
        assert row is not None
        unusable = (503, "the database cannot be used")
        until(lambda: asked("/readyz") == unusable, "an old schema is ready")
        assert asked("/livez") == (200, None)
        db.execute("UPDATE wick_meta SET version = version + 1")
        until(lambda: asked("/readyz") == (200, None), "the server is not ready again")

        before = transactions(db)
        for _ in range(100):
            assert asked("/readyz")[0] == 200
        assert transactions(db) - before < 100  # strangers share a check of a second

        server.service.draining = True
        assert asked("/readyz") == (503, "the server is stopping")
        assert asked("/livez") == (200, None)
        server.service.draining = False
