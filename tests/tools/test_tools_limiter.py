"""A limiter keeps its promise among threads, loops, cancellations and forks."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable

import pytest

from wick_graph.errors import ConfigError
from wick_graph.tools import Limiter


class Gauge:
    """Count who is inside, and the most that ever were."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.entries = 0

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            self.entries += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1


def all_free(limiter: Limiter) -> bool:
    """Every permit can be had at once, and not one more."""
    got = [limiter.acquire_sync(timeout=0) for _ in range(limiter.n)]
    extra = limiter.acquire_sync(timeout=0)
    for _ in got:
        limiter.release()
    return all(got) and not extra


def in_threads(*targets: Callable[[], None]) -> None:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def waiting(limiter: Limiter) -> int:
    return int(repr(limiter).partition("waiting=")[2].rstrip(")"))


@pytest.mark.parametrize("n", [1, 3])
def test_threads_and_loops_share_one_count(n: int) -> None:
    limiter, gauge = Limiter(n), Gauge()

    def plain() -> None:
        for _ in range(100):
            with limiter, gauge:
                os.sched_yield()

    async def one() -> None:
        for _ in range(25):
            async with limiter:
                with gauge:
                    await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(4)))

    in_threads(plain, plain, lambda: asyncio.run(many()), lambda: asyncio.run(many()))
    assert gauge.entries == 400
    assert gauge.most <= n
    assert all_free(limiter)


async def test_who_waits_longest_is_first() -> None:
    limiter, order = Limiter(1), list[int]()
    await limiter.acquire()

    async def enter(i: int) -> None:
        async with limiter:
            order.append(i)

    tasks = []
    for i in range(5):
        tasks.append(asyncio.create_task(enter(i)))
        await asyncio.sleep(0)
    late = asyncio.create_task(enter(5))
    limiter.release()
    await asyncio.gather(*tasks, late)
    assert order == [0, 1, 2, 3, 4, 5]


async def test_nobody_overtakes_a_waiter() -> None:
    limiter = Limiter(1)
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release()
    assert not limiter.acquire_sync(timeout=0)
    await waiter
    limiter.release()
    assert all_free(limiter)


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    limiter = Limiter(1)
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert waiting(limiter) == 1
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert waiting(limiter) == 0
    limiter.release()
    assert all_free(limiter)


async def test_a_permit_that_meets_a_cancellation_goes_to_the_next() -> None:
    limiter = Limiter(1)
    await limiter.acquire()
    first = asyncio.create_task(limiter.acquire())
    second = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release()  # granted to the first, which has not run yet
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 60)
    limiter.release()
    assert all_free(limiter)


async def test_cancellations_at_random_moments_lose_nothing() -> None:
    limiter, gauge = Limiter(2), Gauge()

    async def one(i: int) -> None:
        async with limiter:
            with gauge:
                for _ in range(i % 4):
                    await asyncio.sleep(0)

    for round_ in range(50):
        tasks = [asyncio.create_task(one(i)) for i in range(8)]
        for _ in range(round_ % 7):
            await asyncio.sleep(0)
        for task in tasks[round_ % 3 :: 2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert gauge.inside == 0
    assert gauge.most <= 2
    assert all_free(limiter)


def test_a_timed_out_thread_leaves_the_queue() -> None:
    limiter = Limiter(1)
    with limiter:
        assert not limiter.acquire_sync(timeout=0.01)
        assert waiting(limiter) == 0
    assert all_free(limiter)


def test_a_loop_that_is_gone_does_not_keep_the_permit() -> None:
    limiter = Limiter(1)
    limiter.acquire_sync()
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(start())
    loop.close()
    limiter.release()
    assert all_free(limiter)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # left pending on purpose
    del task
    gc.collect()
    assert all_free(limiter)


def test_a_permit_sent_to_a_loop_that_stops_comes_back() -> None:
    limiter = Limiter(1)
    limiter.acquire_sync()
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(start())
    limiter.release()  # the loop is open, so the permit is on its way; it never runs again
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # left pending on purpose
    del task, loop
    gc.collect()
    assert all_free(limiter)


def test_in_a_forked_child_all_permits_are_free() -> None:
    limiter = Limiter(2)
    limiter.acquire_sync()
    child = os.fork()
    if child == 0:
        os._exit(0 if all_free(limiter) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    limiter.release()
    assert all_free(limiter)


def test_an_error_inside_gives_the_permit_back() -> None:
    limiter = Limiter(1)
    with pytest.raises(KeyError), limiter:
        raise KeyError
    assert all_free(limiter)


def test_no_permits_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Limiter(0)
