"""Runs are opened in the order of their requests, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from wick_graph.service import runs
from wick_graph.service.event_log import EventLog
from wick_graph.service.runs import Openings


async def test_a_few_are_opened_at_a_time_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_OPENING_SECONDS", 60.0)
    openings, entered = Openings(), list[int]()
    leaves: list[Callable[[], None]] = []

    async def enter(number: int) -> None:
        leaves.append(await openings.enter())
        entered.append(number)

    count = runs._OPENINGS + 2
    tasks = [asyncio.create_task(enter(number)) for number in range(count)]
    while EventLog.opening != 2:
        await asyncio.sleep(0)
    assert entered == list(range(runs._OPENINGS))
    leaves[0]()
    leaves[0]()  # its place is free already
    await tasks[runs._OPENINGS]
    assert EventLog.opening == 1
    tasks[-1].cancel()
    await asyncio.wait(tasks)
    assert EventLog.opening == 0
    for leave in leaves[1:]:
        leave()
    assert entered == list(range(runs._OPENINGS + 1))


async def test_a_run_that_waits_for_something_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "_OPENINGS", 1)
    monkeypatch.setattr(runs, "_OPENING_SECONDS", 0.01)
    openings = Openings()
    first = await openings.enter()
    second = await asyncio.wait_for(openings.enter(), 60)
    first()  # its time was over: no second place is free
    monkeypatch.setattr(runs, "_OPENING_SECONDS", 60.0)
    second()
    third = await asyncio.wait_for(openings.enter(), 60)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(openings.enter(), 0.05)
    third()
