"""What goes on at once: requests, runs, tenants and servers that meet in one place."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, SLOW, TALK, Served, frames
from wick_graph.config import load_config
from wick_graph.errors import StorageError, ThreadBusyError, ThreadNotFoundError
from wick_graph.server import Limits, ServerOptions, Service, create_app
from wick_graph.server.guard import RequestContext
from wick_graph.server.protocols.langgraph import asking as langgraph_asking
from wick_graph.server.protocols.langgraph import threads as langgraph_threads
from wick_graph.server.recordings import Recordings, Session
from wick_graph.server.routes import page_stream
from wick_graph.service import service
from wick_graph.service.event_log import TERMINAL
from wick_graph.service.options import Problem, public_message
from wick_graph.service.runs import Runs
from wick_graph.store import SqlSaver
from wick_graph.store.server_rows import ServerRuns

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
ASKED = {"agent": "default", "kind": "message", **ASK}
RUN = "11111111-1111-4111-8111-111111111111"


def made(path: Path) -> Service:
    (path / "agents.yaml").write_text(AGENTS, "utf-8")
    (path / "talk.yaml").write_text(TALK, "utf-8")
    (path / "slow.yaml").write_text(TALK, "utf-8")
    return Service(load_config(path / "agents.yaml"))


async def test_D35_two_requests_for_one_thread_at_the_same_moment(server: Served) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30, trust_env=False) as http:
        for number in range(5):
            body = {**ASK, "thread_id": f"double-{number}"}
            got = await asyncio.gather(
                *(http.post("/agents/default/stream", json=body) for _ in range(4))
            )
            assert {answer.status_code for answer in got} <= {200, 409}
            won = [frames(answer.text) for answer in got if answer.status_code == 200]
            assert won
            for told in won:  # each run goes to its end: nobody else's request cut it off
                assert [name for _, name, _ in told if name in TERMINAL] == ["done"]


def test_D35_what_is_cancelled_twice_or_deleted_while_it_runs(endless: Served) -> None:
    with endless.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        thread, run = got.headers["x-thread-id"], got.headers["x-run-id"]
        next(got.iter_lines())
        refused = http.delete(f"/threads/{thread}")
        assert (refused.status_code, refused.json()) == (409, {"error": "thread is busy"})
        ends = [http.post(f"/runs/{run}/cancel").json()["status"] for _ in range(2)]
        assert ends == ["cancelled", "cancelled"]
        assert http.delete(f"/threads/{thread}").status_code == 204


def test_a_thread_is_free_as_soon_as_its_end_was_told(shared: Served) -> None:
    with shared.http() as http:
        for _ in range(5):
            with http.stream("POST", "/agents/default/stream", json=ASK) as got:
                body = {**ASK, "thread_id": got.headers["x-thread-id"]}
                next(line for line in got.iter_lines() if line == "event: done")
                assert http.post("/agents/default/invoke", json=body).status_code == 200


def test_a_run_s_events_are_its_own(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        body = {**ASK, "thread_id": first.headers["x-thread-id"]}
        second = http.post("/agents/default/stream", json=body)
        again = http.get(second.headers["content-location"], headers={"Last-Event-ID": "2"})
    assert frames(again.text) == frames(second.text)


def test_the_last_event_and_the_run_s_end_are_written_as_one(tmp_path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        row = store.streams.begin("t", RUN, ASKED)
        assert row is not None
        store.streams.append(row, row.first, [{"event": "done"}], "done")
        ended = store.streams.get("t", RUN)
        assert (ended is not None and ended.status) == "done"
        assert store.streams.running() == []


async def test_two_servers_take_up_one_run_once(tmp_path: Path) -> None:
    one, two = made(tmp_path), made(tmp_path)
    try:
        for number in range(4):
            run_id = RUN[:-1] + str(number)
            streams = one.local.saver.streams
            row = await streams.run(streams.begin, f"t{number}", run_id, ASKED)
            assert row is not None
            await two.recover()
            assert not two.local.runs.live  # the other one is at it
            await streams.run(streams.leave, row)
            await asyncio.gather(one.recover(), two.recover())
            for at in (one, two):
                if tasks := [run.task for run in at.local.runs.live.values() if run.task]:
                    await asyncio.wait(tasks)
            told = await streams.run(streams.read, f"t{number}", 0)
            assert [e["event"] for _, e in told if e["event"] in TERMINAL] == ["done"]
            now = await streams.run(streams.get, f"t{number}", run_id)
            assert (now is not None and now.status) == "done"
    finally:
        one.local.close()
        two.local.close()


@pytest.mark.parametrize("agent", ["default", "unknown"])
async def test_a_run_of_another_server_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """Neither where its agent cannot be built here, nor where nobody here knows it."""
    one, two = made(tmp_path), made(tmp_path)
    try:
        streams = one.local.saver.streams
        row = await streams.run(streams.begin, "t", RUN, {**ASKED, "agent": agent})
        assert row is not None

        async def broken(agent_id: str) -> Any:
            raise Problem(500, "the agent cannot be built")

        monkeypatch.setattr(two.local.agents, "ready", broken)
        for left in (False, True):
            if left:
                await streams.run(streams.leave, row)
            await two.recover()
            now = await streams.run(streams.get, "t", RUN)
            mine = left and agent == "default"  # then nobody else is at it
            assert (now is not None and now.status) == ("failed" if mine else "running")
        told = await streams.run(streams.read, "t", 0)
        assert [e["data"]["error"] for _, e in told] == ["the agent cannot be built"] * mine
    finally:
        one.local.close()
        two.local.close()


async def test_what_is_wrong_with_one_tenant_keeps_nobody_from_being_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = made(tmp_path)
    recovered = []

    async def recover(tenant: service.Tenant, runs: set[str]) -> None:
        recovered.append(tenant.name)
        raise StorageError("a page is damaged")

    orphans = [("anna", "t1", "r1"), ("bert", "t2", "r2")]
    monkeypatch.setattr(ServerRuns, "orphans", lambda streams: orphans)
    monkeypatch.setattr(service.Tenant, "recover", recover)
    async with served.running():
        assert recovered == ["anna", "bert"]


async def test_a_tenant_stays_open_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_TENANTS", 2)
    served = made(tmp_path)

    async def opened(name: str) -> Any:
        async with served.using(name) as tenant:
            return tenant

    async with served.using("anna") as anna:
        for name in ("bert", "carl", "dora"):
            await opened(name)
        assert await anna.saver.threads.alist() == []
        assert await opened("anna") is anna
    tenants = await asyncio.gather(*(opened("emil") for _ in range(8)))
    assert len({id(tenant) for tenant in tenants}) == 1
    assert served.open_tenants() <= 2
    assert await opened("anna") is not anna
    async with served.running():
        pass


def test_a_resumed_run_has_a_key_too(shared: Served) -> None:
    answer = {"decision": "approve"}
    with shared.client() as wick:
        thread = wick.invoke("What is 21*2?", agent="careful").thread_id
        one, two = (wick.resume(thread, answer, idempotency_key="approved") for _ in range(2))
        *_, last = wick.stream_resume(thread, answer, idempotency_key="approved")
    assert one.text == two.text == "It is 42."
    assert one.run_id == two.run_id == last.run_id


@pytest.mark.slow
async def test_D37_a_tenant_has_so_many_threads_and_runs(tmp_path: Path) -> None:
    made(tmp_path).local.close()
    limits = Limits(threads_per_tenant=2, runs_per_tenant=1)
    (tmp_path / "slow.yaml").write_text(SLOW, "utf-8")
    served = Service(
        load_config(tmp_path / "agents.yaml"), ServerOptions(auth=False, limits=limits)
    )
    door = httpx.ASGITransport(create_app(served))
    async with (
        served.running(),
        httpx.AsyncClient(transport=door, base_url="http://127.0.0.1", timeout=30) as http,
    ):
        run = asyncio.create_task(
            http.post("/agents/slow/invoke", json={**ASK, "thread_id": "one"})
        )
        while not served.local.runs.live:
            await asyncio.sleep(0.01)
        busy = await http.post("/agents/default/invoke", json={**ASK, "thread_id": "two"})
        said = {"error": "the tenant has too many runs; wait for one to end"}
        assert (busy.status_code, busy.json()) == (429, said)
        assert "retry-after" in busy.headers
        assert (await run).status_code == 200
        two = await http.post("/agents/default/invoke", json={**ASK, "thread_id": "two"})
        assert two.status_code == 200
        three = await http.post("/agents/default/invoke", json={**ASK, "thread_id": "three"})
        assert three.status_code == 429
        assert "too many threads" in three.json()["error"]
        again = await http.post("/agents/default/invoke", json={**ASK, "thread_id": "two"})
        assert again.status_code == 200


@contextlib.asynccontextmanager
async def asking(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    door = httpx.ASGITransport(create_app(service))
    async with httpx.AsyncClient(transport=door, base_url="http://127.0.0.1") as http:
        yield http


def open_made(path: Path) -> Service:
    made(path).close()
    return Service(load_config(path / "agents.yaml"), ServerOptions(auth=False))


@contextlib.asynccontextmanager
async def alone(path: Path) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """Open a service without tokens, and a client of it."""
    service = open_made(path)
    try:
        async with asking(service) as http:
            yield service, http
    finally:
        service.close()


async def test_a_run_that_comes_while_its_thread_is_deleted_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_made(tmp_path)
    real = Runs.must_rest

    async def late(runs: Runs, thread_id: str) -> None:
        await real(runs, thread_id)
        with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as other:  # as a server does it
            await other.streams.run(other.streams.begin, thread_id, run, ASKED)

    try:
        async with asking(one) as http:
            for number, (method, path, status, said) in enumerate(
                [
                    ("DELETE", "/threads/t0", 409, {"error": "thread is busy"}),
                    ("DELETE", "/langgraph/threads/t1", 409, {"error": "thread is busy"}),
                    ("POST", "/langgraph/threads/prune", 200, {"pruned_count": 0}),
                ]
            ):
                thread_id, run = f"t{number}", RUN[:-1] + str(number)
                body = {"thread_id": thread_id}
                assert (await http.post("/langgraph/threads", json=body)).status_code == 200
                monkeypatch.setattr(Runs, "must_rest", late)
                form = {"thread_ids": [thread_id]} if method == "POST" else None
                got = await http.request(method, path, json=form)
                monkeypatch.setattr(Runs, "must_rest", real)
                assert (got.status_code, got.json()) == (status, said)
                streams = one.local.saver.streams
                assert await streams.run(streams.get, thread_id, run) is not None
    finally:
        one.close()


async def test_a_thread_that_is_deleted_while_all_are_searched_or_pruned_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone(tmp_path) as (one, http):
        for name in ("a", "b"):
            body = {**ASK, "thread_id": name}
            assert (await http.post("/agents/default/invoke", json=body)).status_code == 200

        async def gone(context: RequestContext, thread_id: str) -> Any:
            if thread_id == "a":
                await context.saver.threads.adelete("a")
            return await found(context, thread_id)

        found = RequestContext.agent_of
        monkeypatch.setattr(RequestContext, "agent_of", gone)
        got = await http.post("/langgraph/threads/search", json={})
        assert [one["thread_id"] for one in got.json()] == ["b"]

        real = Runs.must_rest

        async def swept(runs: Runs, thread_id: str) -> None:
            await real(runs, thread_id)
            await one.local.saver.threads.adelete(thread_id)

        monkeypatch.setattr(Runs, "must_rest", swept)
        got = await http.post("/langgraph/threads/prune", json={"thread_ids": ["b"]})
        assert (got.status_code, got.json()) == (200, {"pruned_count": 0})


async def test_a_run_that_came_after_the_cancelled_one_is_not_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Runs.cancel
    async with alone(tmp_path) as (one, http):
        body = {**ASK, "thread_id": "t"}

        async def late(runs: Runs, thread_id: str, run_id: str | None = None) -> None:
            await real(runs, thread_id, run_id)
            monkeypatch.setattr(Runs, "cancel", real)
            assert (await http.post("/agents/default/invoke", json=body)).status_code == 200

        slow = {"assistant_id": "slow", "input": ASK, "if_not_exists": "create"}
        (tmp_path / "slow.yaml").write_text(SLOW, "utf-8")
        run = (await http.post("/langgraph/threads/t/runs", json=slow)).json()["run_id"]
        monkeypatch.setattr(Runs, "cancel", late)
        path = f"/langgraph/threads/t/runs/{run}/cancel?action=rollback"
        assert (await http.post(path)).status_code == 200
        state = (await http.get("/langgraph/threads/t/state")).json()["values"]
        assert state["messages"][-1]["content"] == "It is 42."


@pytest.mark.parametrize(
    "path",
    [
        f"/runs/{RUN}/events",
        f"/langgraph/threads/t/runs/{RUN}/stream",
        "/langgraph/threads/t/stream",
        "/ui/api/v1/stream?follow=run:0:t",
        "/ui/api/v1/stream?follow=moments:0:t",
    ],
)
async def test_a_stream_ends_when_its_thread_is_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    one = open_made(tmp_path)
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as other:
        try:
            await other.streams.run(other.streams.begin, "t", RUN, ASKED)
            async with asking(one) as http:
                got = asyncio.create_task(http.get(path))
                await asyncio.sleep(0.5)  # it is followed; if not yet, there is less to see
                assert not got.done()
                await other.threads.adelete("t")
                assert (await asyncio.wait_for(got, 30)).status_code == 200
            assert [record.getMessage() for record in caplog.records] == []
        finally:
            one.close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/ag-ui/default", {"threadId": "t", "runId": "r", "messages": []}),
        ("GET", "/ai-sdk/default/t/stream", None),
    ],
)
async def test_a_door_s_stream_says_that_its_thread_was_deleted(
    tmp_path: Path, method: str, path: str, body: Any
) -> None:
    one, asked = open_made(tmp_path), {**ASKED, "labels": {"metadata": {"ag_ui_run": "r"}}}
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as other:
        try:
            await other.streams.run(other.streams.begin, "t", RUN, asked)
            async with asking(one) as http:
                got = asyncio.create_task(http.request(method, path, json=body))
                await asyncio.sleep(0.5)
                assert not got.done()
                await other.threads.adelete("t")
                text = (await asyncio.wait_for(got, 30)).text
            assert "the thread was deleted" in text
            assert "goes on" not in text
        finally:
            one.close()


async def test_a_reader_that_leaves_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    reader = asyncio.create_task(page_stream._first([asyncio.Event()]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


def test_a_run_without_its_thread_does_not_blame_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert public_message(ThreadNotFoundError("there is no thread t")) == "thread not found"
    assert public_message(ThreadBusyError("thread t was taken over")) == "thread is busy"
    assert not caplog.records


async def test_a_command_to_a_session_that_is_closed_meanwhile_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_made(tmp_path)
    real = Recordings.session

    def closed(recordings: Recordings, tenant: str, name: str) -> Session:
        found = real(recordings, tenant, name)
        recordings._sessions.pop(name)
        found.close().join()  # as another request does it
        return found

    try:
        async with asking(one) as http:
            http.headers["Origin"] = "http://127.0.0.1"
            made = (await http.post("/ui/api/v1/sessions", json={"agent": "default"})).json()
            monkeypatch.setattr(Recordings, "session", closed)
            got = await http.post(f"/ui/api/v1/sessions/{made['session']}", json={"line": "next"})
            assert (got.status_code, got.json()) == (404, {"error": "session not found"})
    finally:
        one.close()


async def test_an_answer_that_is_sent_twice_at_once_is_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, twice = RequestContext.check_waiting_agent, list[httpx.Response]()
    async with alone(tmp_path) as (one, http):
        body = {**ASK, "thread_id": "t"}
        waits = (await http.post("/agents/careful/invoke", json=body)).json()["interrupts"]
        answer = {"thread_id": "t", "answer": {waits[0]["id"]: {"decision": "approve"}}}

        async def send() -> httpx.Response:
            key = {"Idempotency-Key": "k"}
            return await http.post("/agents/careful/resume", json=answer, headers=key)

        async def late(*args: Any) -> None:
            monkeypatch.setattr(RequestContext, "check_waiting_agent", real)
            await real(*args)
            twice.append(await send())

        monkeypatch.setattr(RequestContext, "check_waiting_agent", late)
        twice.append(await send())
        assert [got.status_code for got in twice] == [200, 200]
        assert twice[0].json()["run_id"] == twice[1].json()["run_id"]


async def test_many_that_wait_for_a_slow_agent_leave_the_others_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, begun, goes_on = open_made(tmp_path), asyncio.Event(), threading.Event()
    agents, loop = one.local.agents, asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))
    made = agents._made.pop("default")

    def build(agent_id: str) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(30)
        return made

    monkeypatch.setattr(agents, "_build", build)
    try:
        many = [asyncio.create_task(agents.ready("default")) for _ in range(9)]
        await begun.wait()
        many.pop().cancel()  # who leaves ends it for no other
        await asyncio.wait_for(asyncio.to_thread(int), 10)
        goes_on.set()
        assert {*await asyncio.gather(*many)} == {made}
        assert await agents.ready("default") is made
    finally:
        goes_on.set()
        one.close()


SAID: dict[str, Any] = {"id": "m", "role": "user"}
A2A = {"messageId": "m", "contextId": "t", "role": "ROLE_USER", "parts": [{"text": "What?"}]}


@pytest.mark.parametrize(
    ("door", "body"),
    [
        ("ag-ui", {"threadId": "t", "runId": "r", "messages": [{**SAID, "content": "What?"}]}),
        (
            "ai-sdk",
            {"id": "t", "messages": [{**SAID, "parts": [{"type": "text", "text": "What?"}]}]},
        ),
        ("a2a", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": A2A}}),
    ],
)
async def test_a_message_that_a_client_sends_twice_at_once_is_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, body: Any
) -> None:
    """The second one looks for the first one's run before it is there."""
    real, twice = langgraph_asking._check_head, list[httpx.Response]()
    async with alone(tmp_path) as (one, http):

        async def send() -> None:
            version = {"A2A-Version": "1.0"}
            twice.append(await http.post(f"/{door}/default", json=body, headers=version))

        async def late(*args: Any) -> None:
            monkeypatch.setattr(langgraph_asking, "_check_head", real)
            await send()
            await real(*args)

        monkeypatch.setattr(langgraph_asking, "_check_head", late)
        await send()
        first, second = twice
        assert (first.status_code, second.status_code) == (200, 200), second.text
        assert first.headers["X-Run-Id"] == second.headers["X-Run-Id"]
        assert "It is 42." in second.text


async def test_metadata_that_two_requests_add_at_once_is_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, path = langgraph_threads._metadata, "/langgraph/threads/t"
    async with alone(tmp_path) as (one, http):
        assert (await http.post("/langgraph/threads", json={"thread_id": "t"})).status_code == 200

        async def late(context: RequestContext, thread_id: str) -> dict[str, Any]:
            monkeypatch.setattr(langgraph_threads, "_metadata", real)
            found = await real(context, thread_id)
            await http.patch(path, json={"metadata": {"a": 1}})
            return found

        monkeypatch.setattr(langgraph_threads, "_metadata", late)
        await http.patch(path, json={"metadata": {"b": 2}})
        metadata = (await http.get(path)).json()["metadata"]
        assert {"a": 1, "b": 2}.items() <= metadata.items()


async def test_the_stream_of_a_thread_goes_on_behind_a_run_of_a_removed_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with alone(tmp_path) as (one, http):
        mine = {"agent_id": "mine", "model": "scripted:demo"}
        assert (await http.post("/agents", json=mine)).status_code == 201
        body = {**ASK, "thread_id": "t"}
        for agent in ("mine", "default"):
            got = await http.post(f"/agents/{agent}/invoke", json=body)
            assert got.status_code == 200
        assert (await http.delete("/agents/mine")).status_code == 204
        path, begin = "/langgraph/threads/t/stream", {"Last-Event-ID": "-1"}
        stream = asyncio.create_task(http.get(path, headers=begin))
        await asyncio.sleep(0.5)
        await one.local.saver.threads.adelete("t")
        assert "It is 42." in (await asyncio.wait_for(stream, 30)).text
        assert [record.getMessage() for record in caplog.records] == []
