"""The order in which the runs of a tenant open, and what it keeps nobody from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, SLOW, TALK, frames
from wick_graph.config import load_config
from wick_graph.server import Limits, ServerOptions, Service, create_app
from wick_graph.service import detached
from wick_graph.service.detached import Opening, Openings
from wick_graph.service.event_log import EventLog
from wick_graph.service.runs import RunRequest

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# --- The order alone.


async def test_few_open_at_a_time_in_the_order_in_which_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detached, "MOST", 2)
    order, begun = Openings(), list[int]()

    async def run(number: int) -> Opening:
        mine = order.come()
        await mine.begin()
        begun.append(number)
        return mine

    tasks = [asyncio.create_task(run(number)) for number in range(5)]
    await settled()
    assert begun == [0, 1]
    (await tasks[1]).end()
    (await tasks[1]).end()  # a second time, which lets nobody in
    await settled()
    assert begun == [0, 1, 2]
    for task in tasks:
        (await task).end()
    assert begun == [0, 1, 2, 3, 4]


async def test_who_has_opened_waits_for_those_that_had_come_and_no_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detached, "MOST", 1)
    order = Openings()
    first, second, third = order.come(), order.come(), order.come()
    await first.begin()
    first.end()
    waiting = asyncio.create_task(first.let_others())
    await settled()
    late = order.come()
    second.end()
    await settled()
    assert not waiting.done(), "the third has not opened"
    third.end()
    await settled()
    assert waiting.done()
    assert late.turn.done(), "and it is the late one's turn"
    await asyncio.wait_for(late.let_others(), 1)


async def test_a_waiting_run_that_is_cancelled_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detached, "MOST", 1)
    order = Openings()
    first, gone, last = order.come(), order.come(), order.come()
    task = asyncio.create_task(gone.begin())
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.end()
    await asyncio.wait_for(last.begin(), 1)
    last.end()
    await asyncio.wait_for(first.let_others(), 1)


async def test_a_run_that_opens_slowly_keeps_others_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detached, "MOST", 1)
    monkeypatch.setattr(detached, "SLOW", 0.01)
    order = Openings()
    order.come()  # held by a hook
    await asyncio.wait_for(order.come().begin(), 5)


# --- At a server.


def served(path: Path, **limits: int) -> Service:
    for name, text in (("agents", AGENTS), ("talk", TALK), ("slow", SLOW)):
        (path / f"{name}.yaml").write_text(text, "utf-8")
    options = ServerOptions(auth=False, limits=Limits(**limits))
    return Service(load_config(path / "agents.yaml"), options)


def client(service: Service) -> httpx.AsyncClient:
    door = httpx.ASGITransport(create_app(service))
    return httpx.AsyncClient(transport=door, base_url="http://127.0.0.1", timeout=60)


async def ask(http: httpx.AsyncClient, agent: str, names: Sequence[str]) -> list[httpx.Response]:
    """Ask in each thread at the same moment."""
    bodies = [{**ASK, "thread_id": name} for name in names]
    return await asyncio.gather(
        *(http.post(f"/agents/{agent}/stream", json=body) for body in bodies)
    )


NAMES = [f"t{number}" for number in range(6)]


async def test_all_say_their_first_word_before_one_calls_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "MOST", 1)
    monkeypatch.setattr(detached, "SLOW", 60)
    seen: list[tuple[str, str]] = []
    put = EventLog.put

    async def noting(self: EventLog, event: Any) -> None:
        seen.append((self.row.thread_id, event["event"]))
        await put(self, event)

    monkeypatch.setattr(EventLog, "put", noting)
    service = served(tmp_path)
    async with service.running(), client(service) as http:
        got = await ask(http, "default", NAMES)
    assert all(frames(one.text)[-1][1] == "done" for one in got)
    words = [name for name, event in seen if event == "on_chat_model_stream"]
    assert list(dict.fromkeys(words)) == NAMES
    last = max(seen.index((name, "on_chat_model_stream")) for name in NAMES)
    assert last < min(seen.index((name, "on_tool_start")) for name in NAMES)


async def test_those_that_wait_count_as_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many at the same moment were all let in, because none of them had begun."""
    monkeypatch.setattr(detached, "MOST", 1)
    service = served(tmp_path, runs_per_tenant=2)
    async with service.running(), client(service) as http:
        got = await ask(http, "slow", NAMES)
        assert sorted(one.status_code for one in got) == [200, 200, 429, 429, 429, 429]
        assert all(frames(one.text)[-1][1] == "done" for one in got if one.status_code == 200)
        assert (await ask(http, "default", NAMES[:1]))[0].status_code == 200


async def test_a_server_that_stops_refuses_those_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "MOST", 1)
    monkeypatch.setattr(detached, "SLOW", 60)
    held = asyncio.Event()
    begin = RunRequest.begin

    def holding(self: RunRequest, *args: Any) -> Any:
        events = begin(self, *args)

        async def later() -> Any:
            await held.wait()
            async for event in events:
                yield event

        return later()

    monkeypatch.setattr(RunRequest, "begin", holding)
    service = served(tmp_path)
    async with client(service) as http:
        async with service.running():
            asked = asyncio.create_task(ask(http, "default", NAMES[:3]))
            while service.local.runs.count < 3:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.2, held.set)
        answers = [(one.status_code, one.text) for one in await asked]
    assert [status for status, _ in answers] == [200, 503, 503]
    assert "the server is stopping" in answers[1][1]
