"""What servers tell each other: the readers at another server ask the database little."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psycopg
import pytest

from tests.server.support import AGENTS, Served, frames, serving
from tests.support.postgres import with_schema
from wick_graph.service.event_log import TERMINAL

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
SILENT = "chunk_delay: 600\nsteps: ['one two three']\n"


@pytest.fixture(scope="module")
def pair(
    postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, Served, str]]:
    """Two servers in processes of their own, one PostgreSQL database, and its URL."""
    folder = tmp_path_factory.mktemp("pair")
    url = with_schema(postgres_server, f"t_{secrets.token_hex(6)}")
    agents = AGENTS.replace("sqlite:///wick.db", json.dumps(url))
    agents += "  silent: {model: 'scripted:silent.yaml'}\n"
    with serving(folder, agents=agents, silent=SILENT) as one:
        two = Served(folder)
        try:
            yield one, two.start(), postgres_server
        finally:
            if two.process is not None:
                two.kill()


def transactions(db: psycopg.Connection[Any]) -> int:
    """Count the transactions of the database since it began."""
    db.execute("SELECT pg_stat_clear_snapshot()")
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
    row = db.execute(query, (db.info.dbname,)).fetchone()
    assert row is not None
    return int(row[0])


async def a_second(db: psycopg.Connection[Any]) -> float:
    """Return the transactions of a second, with our two."""
    before, since = transactions(db), time.monotonic()
    await asyncio.sleep(1)
    return (transactions(db) - before) / (time.monotonic() - since)


async def test_a_hundred_readers_of_a_silent_run_share_its_query(
    pair: tuple[Served, Served, str],
) -> None:
    one, two, server = pair
    most = httpx.Limits(max_connections=None)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(
            httpx.AsyncClient(base_url=one.url, timeout=60, trust_env=False)
        )
        there = await stack.enter_async_context(
            httpx.AsyncClient(base_url=two.url, timeout=60, trust_env=False, limits=most)
        )
        run = await stack.enter_async_context(
            here.stream("POST", "/agents/silent/stream", json=ASK)
        )
        await anext(run.aiter_lines())

        async def read() -> str:
            async with there.stream("GET", run.headers["content-location"]) as got:
                ready.release()
                return "\n".join([line async for line in got.aiter_lines()])

        ready = asyncio.Semaphore(0)
        readers = [asyncio.create_task(read()) for _ in range(100)]
        for _ in readers:
            await ready.acquire()
        with psycopg.connect(server, autocommit=True) as db:
            for _ in range(60):  # each asks for itself at first, and sessions count late
                if (spent := await a_second(db)) <= 10:
                    break
            rest = [await a_second(db) for _ in range(4)]
        assert sum(rest) / len(rest) <= 10, f"{spent}, then {rest} transactions in a second"
        cancelled = await there.post(f"/runs/{run.headers['x-run-id']}/cancel")
        assert cancelled.json()["status"] == "cancelled"
        told = await asyncio.gather(*readers)
    ends = [[name for _, name, _ in frames(text) if name in TERMINAL] for text in told]
    assert ends == [["error"]] * 100
