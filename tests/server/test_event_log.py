"""What a run's log writes, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wick_graph.service import event_log
from wick_graph.service.event_log import EventLog, events_after
from wick_graph.store import SqlSaver

RUN = "11111111-1111-4111-8111-111111111111"
ASKED = {"agent": "default", "kind": "message", "messages": []}
START = {"event": "on_chat_model_start", "data": {}}
DONE = {"event": "done", "data": {"stopped_because": "done"}}


def text(delta: str) -> dict[str, Any]:
    return {"event": "on_chat_model_stream", "name": "m", "data": {"delta": delta}}


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as saver:
        row = await saver.streams.run(saver.streams.begin, "t", RUN, ASKED)
        assert row is not None
        yield EventLog(saver, row, 1)


def text_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let text behind text wait for longer than a test."""
    monkeypatch.setattr(EventLog, "_at_work", 1_000)
    monkeypatch.setattr(event_log, "_LONGEST", 600.0)
    monkeypatch.setattr(event_log, "_PAGES_A_SECOND", 1)


async def test_text_gathers_where_many_runs_go_on(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_waits(monkeypatch)
    work = asyncio.create_task(log.work())
    news = log.news()
    await log.put(text("first"))
    await asyncio.wait_for(news.wait(), 60)
    news = log.news()
    for number in range(50):
        await log.put(text(f" {number}"))
        await asyncio.sleep(0)
    assert not news.is_set()  # it waits for more
    await log.put(DONE)  # this does not wait, nor what came before it
    await asyncio.wait_for(work, 60)
    told = [entry[1] async for entry in events_after(log.saver, log.row, 0, None) if entry]
    assert [event["event"] for event in told] == ["on_chat_model_stream"] * 2 + ["done"]
    assert told[1]["data"]["delta"] == "".join(f" {number}" for number in range(50))


async def test_the_first_text_waits_for_nothing_that_was_told_before(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_waits(monkeypatch)
    work = asyncio.create_task(log.work())
    for event in (START, text("first")):
        news = log.news()
        await log.put(event)
        await asyncio.wait_for(news.wait(), 60)
    await log.put(DONE)
    await asyncio.wait_for(work, 60)


async def test_text_that_gathers_is_written_when_its_time_has_come(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventLog, "_at_work", 1_000)
    monkeypatch.setattr(event_log, "_LONGEST", 0.05)
    work = asyncio.create_task(log.work())
    for delta in ("a", "b"):
        news = log.news()
        await log.put(text(delta))
        await asyncio.wait_for(news.wait(), 60)
    assert [event["data"]["delta"] for _, event in log.since(0) or ()] == ["a", "b"]
    await log.put(DONE)
    await asyncio.wait_for(work, 60)
    assert EventLog._at_work == 1_000


async def test_what_is_no_text_is_written_at_once(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_waits(monkeypatch)
    work = asyncio.create_task(log.work())
    for event in (text("x"), START, DONE):
        news = log.news()
        await log.put(event)
        await asyncio.wait_for(news.wait(), 60)
    await work
    assert len(log.since(0) or ()) == 3


async def test_joined_pieces_lose_nothing(log: EventLog) -> None:
    def piece(delta: str, reply: str = "r1", **more: Any) -> dict[str, Any]:
        data = {"delta": delta, "chunk": {"content": delta}, "message_id": reply, **more}
        return {"event": "on_chat_model_stream", "name": "m", "data": data}

    begun, rest = {"index": 0, "id": "c1", "name": "add", "args": '{"a'}, {"args": '": 1}'}
    await log.put(piece("", reasoning="I thi"))
    await log.put(piece("a"))
    await log.put(piece("", reasoning="nk", calls=[begun]))
    await log.put(piece("b", calls=[rest]))
    await log.put(piece("c", "r2"))
    await log.put(DONE)
    await asyncio.wait_for(log.work(), 60)
    first, second = (event for _, event in log.since(0) or () if event["event"] != "done")
    assert first == piece("ab", reasoning="I think", calls=[begun, rest])
    assert second["data"]["message_id"] == "r2"


async def test_a_reader_who_has_seen_all_does_not_wait_for_more(log: EventLog) -> None:
    work = asyncio.create_task(log.work())
    await log.put(DONE)
    await asyncio.wait_for(work, 60)
    assert log.ended
    told = events_after(log.saver, log.row, 1, log)
    async with asyncio.timeout(60):
        assert [entry async for entry in told if entry] == []
