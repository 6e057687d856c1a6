"""A server that is killed again and again: nobody innocent pays, and who is deadly is found."""

from __future__ import annotations

import json
import os
import resource
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import Served
from tests.support.postgres import with_schema
from tests.support.provider import Provider, Request
from tests.support.waiting import until
from wick_graph.client import Client
from wick_graph.errors import ServerError
from wick_graph.store import SqlSaver
from wick_graph.store.leases import MAX_CHARGES, unpacked

SIX = [f"t{n}" for n in range(6)]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the provider live for as long as a test, which starts many servers."""
    monkeypatch.setattr(Provider, "lifetime", 300.0)


class World:
    """A server, its store, and a model on loopback that answers when it is let."""

    def __init__(self, path: Path, store: str) -> None:
        self.store = store
        self.provider = Provider()
        self.open = threading.Event()
        self.mended = False
        self.asked: list[str] = []
        self.provider.say(*[self._reply] * 500)
        model = {"model": "openai:m", "base_url": self.provider.url, "api_key": "k", "retries": 0}
        file = {
            "store": store,
            "defaults": {"ttl": "never"},
            "agents": {"default": {"model": model}},
        }
        self.served = Served(path).write(agents=json.dumps(file))

    def _reply(self, request: Request) -> str:
        text = next(m["content"] for m in request.body["messages"] if m["role"] == "user")
        self.asked.append(str(text))
        if text == "deadly" and not self.mended:  # going on with this one takes the server down
            assert self.served.process is not None
            os.kill(self.served.process.pid, signal.SIGKILL)
        self.open.wait(250)
        return f"an answer to {text}"

    def ask(self, thread: str, text: str = "") -> None:
        """Begin a run that nobody waits for."""
        body = {"thread_id": thread, "messages": [{"role": "user", "content": text or thread}]}
        url = f"{self.served.url}/agents/stream"
        try:
            with httpx.stream("POST", url, json=body, timeout=30, trust_env=False) as answer:
                assert answer.status_code == 200
        except httpx.HTTPError:  # the server was killed meanwhile
            assert text == "deadly"

    def kill_when(self, asked: int) -> None:
        """Kill the server when the model was asked so often, and what waited is stored."""
        until(lambda: len(self.asked) >= asked, f"{asked} requests: {self.asked}")
        until(lambda: all(map(self.said, {*self.asked})), "what was asked is not stored")
        self.served.kill()

    def charges(self, thread: str) -> int:
        return self._tries(thread)[0]

    def is_charged_if_it_dies(self, thread: str) -> bool:
        return self._tries(thread)[1]

    def _tries(self, thread: str) -> tuple[int, bool]:
        with SqlSaver.from_url(self.store) as store, store._core.reading() as db:
            found = store._core.thread(db, thread)
            assert found is not None
            query = f"SELECT tries FROM leases WHERE thread = {found.id}"
            return unpacked(db.execute(query).fetchone()[0])

    def said(self, thread: str) -> list[str]:
        """Return a thread's texts."""
        config: Any = {"configurable": {"thread_id": thread}}
        with SqlSaver.from_url(self.store) as store:
            saved = store.get_tuple(config)
        values = {} if saved is None else saved.checkpoint["channel_values"]
        return [m.text for m in values.get("messages", [])]

    def is_done(self, thread: str) -> bool:
        with self.served.http() as http:
            info = http.get(f"/threads/{thread}").json()
        return bool(info["status"] == "idle" and info["stopped_because"] == "done")

    def close(self) -> None:
        self.open.set()
        if self.served.process is not None:
            self.served.process.kill()
            self.served.process.communicate()
        self.provider.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    store = f"sqlite:///{tmp_path}/wick.db"
    if request.param == "postgres":
        server = str(request.getfixturevalue("postgres_server"))
        store = with_schema(server, f"t_{secrets.token_hex(6)}")
    made = World(tmp_path, store)
    yield made
    made.close()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, f"sqlite:///{tmp_path}/wick.db")
    yield made
    made.close()


@pytest.mark.slow
def test_five_kills_of_six_threads_that_wait_lose_nothing_and_poison_nobody(world: World) -> None:
    world.served.start()
    for thread in SIX:
        world.ask(thread)
    world.kill_when(6)
    for _ in range(4):
        before = len(world.asked)
        world.served.start()
        world.kill_when(before + 1)
    assert max(map(world.charges, SIX)) < MAX_CHARGES - 1, "one pays for all"
    world.open.set()
    world.served.start()
    until(lambda: all(map(world.is_done, SIX)), "six answers")
    for thread in SIX:
        assert world.said(thread) == [thread, f"an answer to {thread}"]
        assert world.charges(thread) == 0


def test_the_one_deadly_thread_among_six_is_poisoned_and_can_be_tried_again(world: World) -> None:
    world.served.start()
    for thread in SIX[:5]:
        world.ask(thread)
    until(lambda: len(world.asked) == 5, "five wait")
    world.ask("d", "deadly")
    deaths = 0
    world.open.set()
    assert world.served.process is not None
    while True:
        try:
            world.served.process.wait(3 if deaths <= MAX_CHARGES else 0.5)
        except subprocess.TimeoutExpired:  # it lives; it may be waiting before it tries again
            with suppress(httpx.HTTPError):  # it dies meanwhile
                if all(map(world.is_done, SIX[:5])) and _failed(world, "d"):
                    break
            continue
        world.served.process.communicate()
        deaths += 1
        assert deaths <= 1 + MAX_CHARGES
        world.served.start()
    assert deaths == 1 + MAX_CHARGES
    assert world.asked.count("deadly") == 1 + MAX_CHARGES
    for thread in SIX[:5]:
        assert world.said(thread) == [thread, f"an answer to {thread}"]
    with Client(world.served.url) as client:
        with pytest.raises(ServerError, match=r"poison: the process died 3 times"):
            client.resume("d")
        world.mended = True
        assert client.resume("d", force=True).text == "an answer to deadly"
    assert world.charges("d") == 0


def _failed(world: World, thread: str) -> bool:
    with world.served.http() as http:
        info = http.get(f"/threads/{thread}").json()
    return bool(info["status"] == "failed" and info["last_error"].startswith("poison"))


def test_shut_downs_never_count(on_disk: World) -> None:
    world = on_disk
    world.served.start()
    world.ask("t")
    world.kill_when(1)
    for n in range(MAX_CHARGES + 1):
        world.served.start("--drain", "0")
        until(lambda: len(world.asked) >= n + 2, "it goes on")  # noqa: B023
        assert world.served.stop()[0] == 0
    assert world.charges("t") == 0
    world.open.set()
    world.served.start()
    until(lambda: world.is_done("t"), "an answer")


def test_a_kill_while_it_shuts_down_does_not_count_either(on_disk: World) -> None:
    world = on_disk
    world.served.start()
    world.ask("t")
    world.kill_when(1)
    for n in range(MAX_CHARGES + 1):
        world.served.start("--drain", "60")
        until(lambda: len(world.asked) >= n + 2, "it goes on")  # noqa: B023
        assert world.served.process is not None
        world.served.process.send_signal(signal.SIGTERM)
        until(lambda: not world.is_charged_if_it_dies("t"), "it does not note that it ends")
        world.served.kill()
    assert world.charges("t") == 0


@pytest.mark.slow
def test_when_a_full_disk_is_over_the_thread_is_free_at_once(on_disk: World) -> None:
    """The server may write no byte more while a run ends; then it may again."""
    world = on_disk
    world.served.start()
    world.ask("t")
    until(lambda: len(world.asked) == 1, "it waits for the model")
    assert world.served.process is not None
    pid = world.served.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    world.open.set()
    time.sleep(1.5)  # the answer cannot be stored, nor that the run has ended
    assert "an answer to t" not in world.said("t")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    began = time.monotonic()
    with Client(world.served.url) as client:
        assert client.invoke("and now?", thread_id="t").text == "an answer to t"
    assert time.monotonic() - began < 25, "a lease holds for 30 s"
    assert world.said("t")[-2:] == ["and now?", "an answer to t"]
