"""What must end, ends; its waiter's cancellation is raised then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from wick_graph import SqlSaver
from wick_graph.core.bridge import ASYNC_BRIDGE
from wick_graph.errors import StorageError

Way = Callable[[SqlSaver, Callable[[], Any]], Awaitable[Any]]


async def as_task(saver: SqlSaver, work: Callable[[], Any]) -> Any:
    """Wait for the store's thread in a coroutine, which takes a task."""
    return await saver.leases.atogether(work)


def as_future(saver: SqlSaver, work: Callable[[], Any]) -> Awaitable[Any]:
    return saver.leases.atogether(work)


WAYS = pytest.mark.parametrize("way", [as_task, as_future])


async def end(saver: SqlSaver, way: Way, work: Callable[[], Any]) -> Any:
    return await ASYNC_BRIDGE.uninterruptible(work, lambda: way(saver, work))


@WAYS
async def test_the_result_and_the_error_come_back(way: Way) -> None:
    def fail() -> None:
        raise ValueError("no")

    with SqlSaver.from_url("sqlite://") as saver:
        assert await end(saver, way, lambda: 3) == 3
        with pytest.raises(ValueError, match="no"):
            await end(saver, way, fail)
    with pytest.raises(StorageError, match="closed"):
        await end(saver, way, lambda: 3)


@WAYS
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 2])
async def test_it_ends_though_its_waiter_is_cancelled(way: Way, fails: bool, times: int) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        may_end.wait(30)
        ended.append("ended")
        if fails:
            raise ValueError("no")

    with SqlSaver.from_url("sqlite://") as saver:
        waiter = asyncio.create_task(end(saver, way, work))
        await asyncio.to_thread(begun.wait, 30)
        for _ in range(times):
            waiter.cancel()
            await asyncio.sleep(0)
            assert not waiter.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert ended == ["ended"]


async def test_what_the_store_does_is_awaited_without_a_task() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        before = asyncio.all_tasks()
        future = asyncio.ensure_future(as_future(saver, lambda: 3))
        assert asyncio.all_tasks() == before
        assert await future == 3
