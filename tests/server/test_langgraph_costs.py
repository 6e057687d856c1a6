"""What doors cost beside our own: stored bytes, and bytes of LangGraph's stream; no times."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.server.support import CALL, serving

ITERATIONS = 400
AGENTS = f"""\
store: sqlite:///wick.db
defaults: {{ttl: never, tools: [calculate]}}
agents:
  default: {{model: 'scripted:long.yaml', max_iterations: {ITERATIONS + 9}}}
"""
LONG = f"steps: [{', '.join([CALL] * ITERATIONS)}, It is 42.]\n"
SAID = [{"role": "user", "content": "What is 21*2?"}]
OURS: Any = ("/agents/default/stream", {"messages": SAID})
THEIRS: Any = ("/langgraph/runs/stream", {"assistant_id": "default", "input": {"messages": SAID}})


def cost(path: Path, where: str, body: dict[str, Any]) -> tuple[int, int]:
    """Run the agent once in a new folder; return the bytes sent and the bytes stored."""
    path.mkdir()
    with serving(path, agents=AGENTS, long=LONG) as served, served.http() as http:
        http.timeout = 240
        got = http.post(where, json=body)
        assert got.status_code == 200, got.text
        assert "It is 42." in got.text
        with closing(sqlite3.connect(served.path / "wick.db")) as db, db:
            pages, size = (db.execute(f"PRAGMA {p}").fetchone()[0] for p in NAMES)
    return len(got.content), pages * size


NAMES = ("page_count", "page_size")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_door_stores_and_sends_hardly_more_than_our_own(tmp_path: Path) -> None:
    sent, stored = cost(tmp_path / "ours", *OURS)
    where, body = THEIRS
    told, kept = cost(tmp_path / "theirs", where, {**body, "stream_mode": "updates"})
    assert kept <= 1.1 * stored
    assert told <= 1.3 * sent


MESSAGE: Any = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "What is 21*2?"}]}
CALL_OF_A2A: Any = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
SAID_7 = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "What is 21*2?"}]}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_ai_sdk_and_a2a_store_hardly_more_than_our_own(tmp_path: Path) -> None:
    _, stored = cost(tmp_path / "ours", *OURS)
    for name, body in (
        ("ai-sdk", {"id": "chat", "messages": [SAID_7]}),
        ("a2a", {**CALL_OF_A2A, "params": {"message": MESSAGE}}),
    ):
        _, kept = cost(tmp_path / name, f"/{name}/default", body)
        print(f"{name}: {kept} bytes, ours: {stored}")
        assert kept <= 1.1 * stored
