"""The bridge: what goes on to its end, whatever happens to its waiter."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.engine.support import agent_of
from wick_graph import SqlSaver
from wick_graph.core.bridge import ASYNC_BRIDGE, SYNC_BRIDGE, run_to_end
from wick_graph.core.stopping import CURRENT, Stop
from wick_graph.testing import call
from wick_graph.types import Firm

Begin = Callable[[], Awaitable[str]]


def nothing() -> str:
    raise AssertionError("the sync form is not called")


class Work:
    """Work that ends when it is told to, as a future or as a coroutine."""

    def __init__(self, kind: str) -> None:
        self.future: asyncio.Future[str] = Firm() if kind == "firm" else asyncio.Future()
        self.kind = kind

    def begin(self) -> Awaitable[str]:
        return self.future if self.kind == "firm" else self._wait()

    async def _wait(self) -> str:
        return await self.future


@pytest.fixture(params=["firm", "coroutine"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def waiting(work: Work, *, cancels: int = 0) -> asyncio.Task[str]:
    task = asyncio.ensure_future(ASYNC_BRIDGE.uninterruptible(nothing, work.begin))
    await asyncio.sleep(0)
    for _ in range(cancels):
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    return task


async def test_it_returns_and_raises_what_the_work_does(kind: str) -> None:
    work = Work(kind)
    task = await waiting(work)
    work.future.set_result("done")
    assert await task == "done"
    work = Work(kind)
    task = await waiting(work)
    work.future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await task


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_cancelled_waiter_waits_for_the_end(kind: str, cancels: int) -> None:
    work = Work(kind)
    task = await waiting(work, cancels=cancels)
    assert not task.done()
    assert not work.future.done()
    work.future.set_result("done")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == cancels


async def test_a_cancellation_comes_before_the_works_error(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(kind)
    task = await waiting(work, cancels=1)
    work.future.set_exception(ValueError("no"))
    with pytest.raises(asyncio.CancelledError):
        await task
    del work, task
    gc.collect()
    assert not caplog.records, "asyncio logs an error that nobody has asked for"


async def test_a_time_limit_ends_after_the_work(kind: str) -> None:
    work = Work(kind)
    asyncio.get_running_loop().call_later(0.05, work.future.set_result, "done")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ASYNC_BRIDGE.uninterruptible(nothing, work.begin)
    assert work.future.result() == "done"


async def test_a_stored_turn_makes_no_task() -> None:
    """Each costs turns of the loop; a run is its caller's task."""
    made: list[Any] = []

    def noting(loop: asyncio.AbstractEventLoop, body: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(body)
        return asyncio.Task(body, loop=loop, **options)

    with SqlSaver.from_url("sqlite://") as saver:
        agent, _ = agent_of(call("add", a=1, b=2), "3", call("add", a=1, b=2), "3", store=saver)
        await agent.graph.ainvoke({"messages": [("user", "?")]}, at("warm"))
        asyncio.get_running_loop().set_task_factory(noting)
        result = await agent.graph.ainvoke({"messages": [("user", "?")]}, at("t"))
    assert result["messages"][-1].content == "3"
    names = [body.__qualname__ for body in made]
    # LangChain makes some for a model
    assert [name for name in names if not re.search("_agenerate|on_llm|on_chat_model", name)] == []


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.mark.parametrize("waits", [False, True])
def test_a_long_call_gets_all_its_arguments_in_a_thread_too(waits: bool) -> None:
    def told(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    stop = Stop()
    stop.waits = waits
    before = CURRENT.set(stop)
    try:
        made: Any = run_to_end(SYNC_BRIDGE.long(told, told, 1, two=2))
    finally:
        CURRENT.reset(before)
    assert made == ((1,), {"two": 2})
