"""`Last-Event-ID: N` gives exactly N+1, N+2, …: for every N, from memory and from pages alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import Served, frames
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.service import event_log
from wick_graph.service.event_log import EventLog, events_after
from wick_graph.store import SqlSaver, cleanup
from wick_graph.store.server_rows import ServerRuns

RUNS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
ASKED = {"agent": "default", "kind": "message", "messages": []}
ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
DONE = {"event": "done", "data": {"stopped_because": "done"}}
EVENTS = 40
TAIL = 7
"""Events in memory: fewer than a run has, so that readers go back and forth between the two."""


def event(number: int) -> dict[str, Any]:
    return {"event": "on_tool_start", "data": {"number": number}}


@pytest.fixture
async def logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[EventLog, asyncio.Task[None]]]:
    """The second run of a thread; the first one had three events."""
    monkeypatch.setattr(event_log, "_TAIL", TAIL)
    monkeypatch.setattr(cleanup, "_PAGES", 2)
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as saver:
        streams = saver.streams
        for run in RUNS:
            row = await streams.run(streams.begin, "t", run, ASKED)
            assert row is not None
            log = EventLog(saver, row, row.first)
            work = asyncio.create_task(log.work())
            if run == RUNS[0]:
                for number in (1, 2):
                    await log.put(event(number))
                await log.put(DONE)
                await asyncio.wait_for(work, 60)
        assert log.row.first == 4
        yield log, work
        work.cancel()
        await asyncio.wait([work])


async def write(log: EventLog, first: int, last: int) -> None:
    """Write events in pages of several sizes."""
    size = 0
    while first <= last:
        size = size % 5 + 1
        until = min(first + size, last + 1)
        for number in range(first, until):
            await log.put(event(number))
        while not log._tail or log._tail[-1][0] < until - 1:
            await log.news().wait()
        first = until


async def told(log: EventLog, after: int, live: EventLog | None, count: int) -> list[int]:
    """Read so many events behind a number; each says itself which one it is."""
    found: list[int] = []
    async with asyncio.timeout(60):
        async for entry in events_after(log.saver, log.row, after, live):
            if entry is not None:
                number, what = entry
                assert what["data"].get("number", number) == number
                found.append(number)
            if len(found) >= count:
                break
    return found


async def test_every_number_gives_the_next_ones_while_the_run_goes_on(
    logs: tuple[EventLog, asyncio.Task[None]],
) -> None:
    log, _ = logs
    first, last = log.row.first, log.row.first + EVENTS - 1
    await write(log, first, last)
    for after in range(first - 1, last):
        wanted = [*range(after + 1, last + 1)]
        assert await told(log, after, log, len(wanted)) == wanted


async def test_every_number_gives_the_next_ones_of_what_memory_holds(
    logs: tuple[EventLog, asyncio.Task[None]],
) -> None:
    """The tail has all that follows a number, or says that it has not."""
    log, _ = logs
    first, last = log.row.first, log.row.first + EVENTS - 1
    await write(log, first, last)
    for after in range(first - 1, last + 1):
        found = log.since(after)
        if after < last - TAIL:
            assert found is None
        else:
            assert [number for number, _ in found or ()] == [*range(after + 1, last + 1)]


async def test_every_number_gives_the_next_ones_after_the_end(
    logs: tuple[EventLog, asyncio.Task[None]],
) -> None:
    log, work = logs
    first, last = log.row.first, log.row.first + EVENTS
    await write(log, first, last - 1)
    await log.put(DONE)
    await asyncio.wait_for(work, 60)
    for after in range(first - 1, last):
        wanted = [*range(after + 1, last + 1)]
        for live in (log, None):  # a reader who was there, and one of another process
            assert await told(log, after, live, EVENTS + 9) == wanted


async def test_readers_who_come_while_the_run_goes_on_miss_and_repeat_nothing(
    logs: tuple[EventLog, asyncio.Task[None]],
) -> None:
    """One comes behind each number as soon as it is there, and one before any is."""
    log, work = logs
    first, last = log.row.first, log.row.first + EVENTS
    readers = [asyncio.create_task(told(log, first - 1, log, EVENTS + 9))]
    for number in range(first, last):
        await write(log, number, number)
        readers.append(asyncio.create_task(told(log, number, log, EVENTS + 9)))
    await log.put(DONE)
    await asyncio.wait_for(work, 60)
    for after, reader in enumerate(readers, first - 1):
        assert await reader == [*range(after + 1, last + 1)]


# --- over HTTP -----------------------------------------------------------------------------------


def numbers(text: str) -> list[int | None]:
    return [number for number, _, _ in frames(text)]


@pytest.mark.slow
def test_every_way_to_ask_again_takes_every_number(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        whole, thread = frames(first.text), first.headers["x-thread-id"]
        run, body = first.headers["x-run-id"], {**ASK, "thread_id": thread}
        for number in range(len(whole)):
            head = {"Last-Event-ID": str(number)}
            again = (
                http.get(f"/runs/{run}/events", headers=head),
                http.get(f"/threads/{thread}/events", headers=head),
                http.post("/agents/default/stream", json=body, headers=head),
            )
            for answer in again:
                assert frames(answer.text) == whole[number:], (number, answer.url)
        assert len(http.get(f"/threads/{thread}/runs").json()) == 1


def test_every_number_of_a_live_run_gives_the_next_ones(server: Served) -> None:
    """Readers come behind each of the first events while the run is still talking."""
    found: dict[int, str] = {}

    def follow(path: str, number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as own:
            found[number] = own.get(path, headers={"Last-Event-ID": str(number)}).text

    readers: list[threading.Thread] = []
    with server.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        path, seen = got.headers["content-location"], ""
        for line in got.iter_lines():
            seen += line + "\n"
            if line.startswith("id: ") and len(readers) < 24:
                number = int(line.removeprefix("id: ")) - 1
                readers.append(threading.Thread(target=follow, args=(path, number)))
                readers[-1].start()
        for reader in readers:
            reader.join(60)
    whole = frames(seen)
    assert [number for number, _, _ in whole] == [*range(1, len(whole) + 1)]
    assert sorted(found) == [*range(24)]
    for number, text in found.items():
        assert frames(text) == whole[number:], number


# --- what a reader has seen is written, and a run ends once ---------------------------------------


async def test_readers_are_told_of_nothing_that_is_not_written(
    logs: tuple[EventLog, asyncio.Task[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, work = logs
    first = log.row.first
    await write(log, first, first)

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(ServerRuns, "append", full)
    reader = asyncio.create_task(told(log, first, log, EVENTS))
    await log.put(event(first + 1))
    with pytest.raises(StorageError, match="the disk is full"):
        await asyncio.wait_for(work, 60)
    assert await reader == []


async def test_a_run_has_one_end(logs: tuple[EventLog, asyncio.Task[None]]) -> None:
    """One that another server ended is not ended again, nor does it say more."""
    log, work = logs
    streams, first = log.saver.streams, log.row.first
    await write(log, first, first)
    await streams.run(streams.give_up, log.row, "it was given up")
    await log.put(DONE)
    with pytest.raises(ThreadBusyError):
        await asyncio.wait_for(work, 60)
    found = await streams.run(streams.read, "t", first - 1, log.row)
    assert [what["event"] for _, what in found] == ["on_tool_start", "error"]
    row = await streams.run(streams.get, "t", log.row.run_id)
    assert row is not None
    assert row.status == "failed"
