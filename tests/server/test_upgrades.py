"""Servers are replaced one by one by those of the next release, and back again, under load."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, Served, serving
from tests.support.postgres import connected
from tests.support.waiting import until
from wick_graph.store import SqlSaver
from wick_graph.store.digests import SCHEMA_VERSION
from wick_graph.store.verify import verify

NEXT = "tests.support.next_release"
ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}


class Load:
    """Callers behind a balancer: who finds a server gone or stopping asks the other one."""

    def __init__(self, *servers: Served) -> None:
        self.up = [served.url for served in servers]
        self.answered: list[str] = []
        """The threads of the runs that were answered."""
        self.shown: list[Any] = []
        """Everything else that callers got."""
        self._keys = itertools.count()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(3)]

    def _ask(self) -> None:
        while not self._ended.is_set():
            key = f"call-{next(self._keys)}"
            for turn in itertools.count():
                url = self.up[turn % len(self.up)]
                try:
                    got = httpx.post(
                        f"{url}/agents/default/invoke",
                        json=ASK,
                        headers={"Idempotency-Key": key},
                        timeout=120,
                        trust_env=False,
                    )
                except httpx.TransportError:
                    continue
                if got.status_code == 503 and "stopping" in got.text:
                    continue
                break
            body = got.json() if got.status_code == 200 else {}
            if body.get("stopped_because") == "done":
                self.answered.append(body["thread_id"])
            else:
                self.shown.append((got.status_code, got.text))

    def more(self, count: int = 6) -> None:
        """Wait for some more answers."""
        before = len(self.answered)
        until(lambda: self.shown or len(self.answered) >= before + count, "runs are answered")
        assert self.shown == []

    def replace(self, old: Served, program: str) -> Served:
        """Start a server of a release in place of another one."""
        new = Served(old.path, program=program).start()
        self.up = [url for url in (*self.up, new.url) if url != old.url]
        old.stop()
        self.more()
        return new

    def __enter__(self) -> Load:
        for one in self._threads:
            one.start()
        self.more()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for one in self._threads:
            one.join()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_releases_serve_side_by_side(postgres_url: str, tmp_path: Path) -> None:
    agents = AGENTS.replace("sqlite:///wick.db", json.dumps(postgres_url))
    with serving(tmp_path, agents=agents) as one:
        two = Served(tmp_path).start()
        try:
            with Load(one, two) as load:
                said = Served(tmp_path, program=NEXT).wick("store", "migrate")
                assert said == f"the store has schema {SCHEMA_VERSION + 1}"
                load.more()
                for program in (NEXT, "wick_graph", NEXT):
                    one = load.replace(one, program)
                    two = load.replace(two, program)
        finally:
            for served in (one, two):
                if served.process is not None and served.process.poll() is None:
                    served.kill()
    assert load.shown == []
    with SqlSaver.from_url(postgres_url) as saver:
        assert verify(saver).is_whole
    with connected(postgres_url) as db:
        of_next = db.execute("SELECT count(*) FROM threads WHERE region = 'eu'").fetchall()
        of_this = db.execute("SELECT count(*) FROM threads WHERE region IS NULL").fetchall()
    assert of_next > [(0,)]
    assert of_this > [(0,)]
