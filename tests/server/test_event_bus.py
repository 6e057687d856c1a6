"""The event bus over HTTP: what changes in a tenant, in order, resumable, for this tenant only."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.server.support import Served, caller
from tests.support.waiting import until
from wick_graph import Agent, Server
from wick_graph.server import Limits, ServerOptions
from wick_graph.service.event_log import EventBus
from wick_graph.testing import ScriptedModel

ASK: Any = {"messages": [{"role": "user", "content": "Hello."}]}
SECONDS = 60.0


class Follower:
    """A reader of the stream in a thread of its own."""

    def __init__(self, http: httpx.Client, last: int | str | None = None) -> None:
        self.events: Queue[tuple[int, str, Any]] = Queue()
        self.pings, self.ended = 0, threading.Event()
        self._http, self._last = http, last
        self._answer: httpx.Response | None = None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        headers = {} if self._last is None else {"Last-Event-ID": str(self._last)}
        number, name = 0, ""
        try:
            with self._http.stream("GET", "/agents/events", headers=headers) as answer:
                self._answer = answer
                if answer.status_code == 503:  # it came back while the server ended
                    return
                assert answer.status_code == 200, answer.read()
                assert answer.headers["content-type"].startswith("text/event-stream")
                for line in answer.iter_lines():
                    key, _, value = line.partition(": ")
                    if key == "id":
                        number = int(value)
                    elif key == "event":
                        name = value
                    elif key == "data":
                        told = json.loads(value)
                        assert told["event"] == name
                        self.events.put((number, name, told["data"]))
                    elif line == ": ping":
                        self.pings += 1
        except (httpx.HTTPError, httpx.StreamError):
            pass
        finally:
            self.ended.set()

    def next(self) -> tuple[int, str, Any]:
        return self.events.get(timeout=SECONDS)

    def names(self, count: int) -> list[str]:
        return [self.next()[1] for _ in range(count)]


@contextmanager
def following(http: httpx.Client, last: int | str | None = None) -> Iterator[Follower]:
    made = Follower(http, last)
    if last is None:
        assert made.next()[1] == "connected"
    # One that expects no event might end before the reader has asked, and close what it asks with.
    until(lambda: made._answer is not None or made.ended.is_set(), "the server answers")
    yield made


def agents() -> dict[str, Agent]:
    return {"default": Agent("default", ScriptedModel(["Hello!"] * 99))}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tokens, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("bus"))
        options = ServerOptions(port=0, limits=Limits(ping=0.2, drain=1.0))
        with Server(agents(), options=options) as made:
            yield made


@pytest.fixture
def anna(server: Server) -> Iterator[httpx.Client]:
    with caller(server, "anna") as http:
        yield http


def add(http: httpx.Client, agent_id: str = "mine") -> None:
    made = http.post("/agents", json={"agent_id": agent_id, "model": "scripted:demo"})
    assert made.status_code == 201, made.text


def test_agents_hooks_and_tools_are_told(anna: httpx.Client) -> None:
    with following(anna) as told:
        add(anna)
        anna.patch("/agents/mine/hooks", json={"remove": ["todolist"]})
        tool = {"name": "far", "description": "Far.", "callback_url": "https://tools.example.com"}
        assert anna.post("/agents/tools/register", json=tool).is_success
        assert anna.delete("/agents/tools/deregister/far").is_success
        assert anna.delete("/agents/mine").is_success
        seen = [told.next() for _ in range(5)]
    assert {name for _, name, _ in seen} == {"config_changed"}
    assert [data for _, _, data in seen] == [
        {"agent_id": "mine", "change": "added"},
        {"agent_id": "mine", "change": "changed"},
        {"agent_id": None, "tool": "far", "change": "added"},
        {"agent_id": None, "tool": "far", "change": "removed"},
        {"agent_id": "mine", "change": "removed"},
    ]
    numbers = [number for number, _, _ in seen]
    assert numbers == sorted({*numbers})


def test_runs_are_told_with_their_ids(anna: httpx.Client) -> None:
    with following(anna) as told:
        done = anna.post("/agents/default/invoke", json=ASK).json()
        ids = {key: done[key] for key in ("run_id", "thread_id")} | {"agent_id": "default"}
        assert told.next()[1:] == ("run_started", {**ids, "recovered": False})
        assert told.next()[1:] == ("run_finished", {**ids, "stopped_because": "done"})


def test_what_is_refused_changes_nothing_and_is_not_told(anna: httpx.Client) -> None:
    with following(anna) as told:
        add(anna)
        again = anna.post("/agents", json={"agent_id": "mine", "model": "scripted:demo"})
        assert again.status_code == 409
        assert anna.delete("/agents/default").status_code == 409
        assert anna.delete("/agents/mine").is_success
        assert [told.next()[2]["change"] for _ in range(2)] == ["added", "removed"]


def test_a_reader_comes_back_after_any_event(anna: httpx.Client) -> None:
    with following(anna) as told:
        for number in range(3):
            add(anna, f"own-{number}")
            anna.delete(f"/agents/own-{number}")
        seen = [told.next() for _ in range(6)]
    for at, (number, _, _) in enumerate(seen):
        with following(anna, number) as again:
            assert [again.next() for _ in seen[at + 1 :]] == seen[at + 1 :]
            assert again.events.empty()


def test_a_reader_that_saw_no_event_comes_back_too(anna: httpx.Client) -> None:
    first = Follower(anna).next()
    add(anna)
    anna.delete("/agents/mine")
    with following(anna, first[0]) as again:
        assert [again.next()[2]["change"] for _ in range(2)] == ["added", "removed"]


@pytest.mark.parametrize("last", [1, 10**15])
def test_a_number_that_is_not_kept_is_a_gap(anna: httpx.Client, last: int) -> None:
    add(anna)
    anna.delete("/agents/mine")
    with following(anna, last) as told:
        _, name, data = told.next()
        assert (name, data["after"]) == ("gap", last)
        assert told.next()[0] == data["next"]


@pytest.mark.parametrize("last", ["", "x", "-1", "1.5", "9" * 17])
def test_a_wrong_number_is_refused(anna: httpx.Client, last: str) -> None:
    got = anna.get("/agents/events", headers={"Last-Event-ID": last})
    assert got.status_code == 400, got.text


def test_a_tenant_sees_its_own_alone(server: Server, anna: httpx.Client) -> None:
    with caller(server, "bert") as bert, following(bert) as his, following(anna) as hers:
        add(anna, "annas")
        anna.post("/agents/default/invoke", json=ASK)
        add(bert, "berts")
        assert his.next()[2] == {"agent_id": "berts", "change": "added"}
        assert his.events.empty()
        assert hers.names(3) == ["config_changed", "run_started", "run_finished"]
        with following(bert, 1) as old:  # an old number brings nothing of another tenant either
            assert old.next()[1] == "gap"
            assert "annas" not in str(old.next())
        anna.delete("/agents/annas")
        bert.delete("/agents/berts")


@pytest.mark.parametrize("scope", ["read", "run", "approve"])
def test_the_right_to_read_is_enough(server: Server, scope: str) -> None:
    with caller(server, "carl", scope) as http, following(http):
        pass
    assert httpx.get(f"{server.url}/agents/events", trust_env=False, timeout=60).status_code == 401


def test_a_revoked_token_gets_no_further_events(server: Server, anna: httpx.Client) -> None:
    tokens = server.service.tokens
    before = {one.id for one in tokens.list("anna")}
    with caller(server, "anna", "read") as http, following(http) as told:
        add(anna)
        assert told.next()[2]["change"] == "added"
        for one in tokens.list("anna"):
            if one.id not in before:
                assert tokens.revoke(one.id)
        anna.delete("/agents/mine")
        assert told.ended.wait(SECONDS)
        assert told.events.empty()


def test_a_silent_stream_has_pings(anna: httpx.Client) -> None:
    with following(anna) as told:
        until(lambda: told.pings > 1, "there were no pings")


def test_an_end_of_the_server_ends_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Server(agents(), port=0, auth=False) as made:
        http = httpx.Client(base_url=made.url, timeout=SECONDS, trust_env=False)
        told = Follower(http)
        assert told.next()[1] == "connected"
        server: Any = made._use
        server._server.config.timeout_graceful_shutdown = 60  # 5 s may pass on a busy machine
        began = time.monotonic()
    assert told.ended.wait(SECONDS)
    assert time.monotonic() - began < 30, "it waited for a connection that did not end"
    http.close()


@pytest.mark.slow
def test_wick_serve_tells_what_a_reloaded_file_changes(tmp_path: Path) -> None:
    text = "store: sqlite:///wick.db\nagents:\n"
    one = "  {name}: {{model: 'scripted:demo', max_iterations: {n}}}\n"
    served = Served(tmp_path, ("--no-auth", "--reload"))
    served.write(agents=text + one.format(name="a", n=3) + one.format(name="b", n=3)).start()
    with served.http() as http, following(http) as told:
        served.write(agents=text + one.format(name="a", n=4) + one.format(name="c", n=3))
        seen = {tuple(told.next()[2].values()) for _ in range(3)}
        assert seen == {("b", "removed"), ("a", "changed"), ("c", "added")}
        code, _ = served.stop()
    assert code == 0
    assert told.ended.wait(SECONDS)


async def test_a_mounted_server_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server, sent = Server(agents(), auth=False), asyncio.Queue[Any]()
    scope = {
        **{"type": "http", "method": "GET", "path": "/wick/agents/events", "root_path": ""},
        **{"query_string": b"", "scheme": "http", "http_version": "1.1"},
        **{"headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)},
    }
    app = FastAPI(lifespan=server.lifespan)
    app.mount("/wick", server.app)
    async with app.router.lifespan_context(app):
        asking = asyncio.create_task(app(scope, asyncio.Event().wait, sent.put))  # type: ignore[arg-type]
        assert (await sent.get())["status"] == 200
        assert b"event: connected" in (await sent.get())["body"]
        server.service.local.bus.tell("config_changed", agent_id="x", change="added")
        assert b'"agent_id":"x"' in (await sent.get())["body"]
    await asyncio.wait_for(asking, SECONDS)  # an end of the server ends it


# --- the bus itself


def read(bus: EventBus, after: int | None, most: int) -> list[Any]:
    async def gathered() -> list[Any]:
        found = []
        async for entry in bus.follow(after):
            found.append(entry)
            if entry is None or len(found) == most:
                return found
        return found

    return asyncio.run(gathered())


def test_the_memory_of_a_bus_is_bounded() -> None:
    bus = EventBus()
    for number in range(5_000):
        bus.tell("config_changed", agent_id=str(number), change="added")
    found = read(bus, 0, 10_000)
    assert found[-1] is None
    assert found[0][1]["event"] == "gap"
    assert len(found) == 1 + 512 + 1
    assert found[-2][1]["data"]["agent_id"] == "4999"
    assert read(bus, found[0][0], 1)[0] == found[1], "the number of a gap is before the first"


def test_numbers_grow_from_one_process_to_the_next() -> None:
    before = EventBus()
    for _ in range(10):
        before.tell("x")
    last = read(before, 0, 100)[-2][0]
    time.sleep(0.02)
    assert read(EventBus(), None, 1)[0][0] > last


def test_any_thread_may_tell() -> None:
    bus = EventBus()

    async def gathered() -> list[Any]:
        found: list[Any] = []

        def tell() -> None:
            for _ in range(50):
                bus.tell("x")

        threads = [threading.Thread(target=tell) for _ in range(4)]
        async for entry in bus.follow(None):
            if entry is None:
                continue
            if not found:
                for thread in threads:
                    thread.start()
            found.append(entry)
            if len(found) == 201:
                return found
        return found

    found = asyncio.run(gathered())
    numbers = [number for number, _ in found]
    assert numbers == sorted({*numbers})


def test_a_slow_reader_misses_the_oldest_and_is_told() -> None:
    bus = EventBus()

    async def gathered() -> list[Any]:
        found: list[Any] = []
        async for entry in bus.follow(None):
            if entry is None:
                return found
            if len(found) == 0:
                for _ in range(2_000):
                    bus.tell("x")
            found.append(entry)
        return found

    found = asyncio.run(gathered())
    assert [event["event"] for _, event in found[:3]] == ["connected", "gap", "x"]
    assert len(found) == 2 + 512
