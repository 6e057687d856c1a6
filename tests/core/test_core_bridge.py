"""The bridge: what goes on to its end, and the engine loop, whatever happens to their waiters."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.engine.support import agent_of
from wick_graph import BaseHook, SqlSaver
from wick_graph.core.bridge import ASYNC_BRIDGE, SYNC_BRIDGE, THREADS, EngineLoop, run_to_end
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


async def test_what_a_cancelled_wrapper_wraps_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread may be on the way to the loop when the run is cancelled."""
    on_the_way, go, left = (threading.Event() for _ in range(3))
    submit, begun = asyncio.run_coroutine_threadsafe, []

    def late(*given: Any) -> Any:
        on_the_way.set()
        assert go.wait(20)
        return submit(*given)

    def wrapper(value: Any, next: Callable[[Any], Any]) -> Any:
        try:
            return next(value)
        finally:
            left.set()

    async def inner(value: Any) -> None:
        begun.append(value)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
    task = asyncio.ensure_future(ASYNC_BRIDGE.wrap(wrapper, False, "asked", inner))
    await asyncio.to_thread(on_the_way.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await asyncio.to_thread(left.wait, 20)
    assert begun == []


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


ENDS = [SystemExit(2), KeyboardInterrupt()]
"""What asyncio raises out of a running loop, beside what it gives to the waiter."""

SECONDS = 60
"""How long a test waits for what comes at once, unless it never comes."""


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_an_end_of_the_program_reaches_the_waiter_and_the_engine_loop_goes_on(
    end: BaseException,
) -> None:
    engine, begun = EngineLoop(), threading.Event()

    async def other() -> str:
        begun.set()
        while not first.done():
            await asyncio.sleep(0)
        return "done"

    async def ends(how: str) -> None:
        while not begun.is_set():
            await asyncio.sleep(0)
        if how == "in a task of its own":
            await asyncio.create_task(ends("itself"))
        raise end

    for how in ("itself", "in a task of its own"):
        first = engine.submit(ends(how))
        beside = engine.submit(other())
        assert first.exception(SECONDS) is end
        assert beside.result(SECONDS) == "done", "what runs beside it goes on"
        assert engine.submit(other()).result(SECONDS) == "done"


def test_a_new_engine_loop_follows_one_whose_thread_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, raised = EngineLoop(), list[Any]()
    monkeypatch.setattr(threading, "excepthook", lambda told: raised.append(str(told.exc_value)))

    async def here() -> tuple[Any, threading.Thread]:
        return asyncio.get_running_loop(), threading.current_thread()

    def broken() -> None:
        raise OSError("no more files")

    loop, thread = engine.submit(here()).result(SECONDS)
    loop.call_soon_threadsafe(setattr, loop, "_run_once", broken)
    thread.join(SECONDS)
    assert raised == ["no more files"]
    assert loop.is_closed()
    again, other = engine.submit(here()).result(SECONDS)
    assert again is not loop
    assert other is not thread


class Leaving(BaseHook):
    """A hook that ends the program."""

    name = "leaving"

    def __init__(self, end: BaseException) -> None:
        self.end = end

    async def after_model(self, message: Any, context: Any) -> None:
        raise self.end


@pytest.mark.parametrize("where", ["tool", "tool with a limit", "hook"])
@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_what_ends_the_program_in_async_code_leaves_a_sync_call(
    where: str, end: BaseException
) -> None:
    """As from a `def`; and the async code of other agents goes on."""

    async def leave() -> str:
        """Leave."""
        raise end

    async def stay() -> str:
        """Stay."""
        return "here"

    more: Any = {"tools": [leave], "hooks": [Leaving(end)] if where == "hook" else []}
    limit: Any = {"tool_timeout": SECONDS} if where == "tool with a limit" else {}
    first, _ = agent_of(call("leave"), "done", **more, **limit)
    assert THREADS.submit(first.invoke, "?").exception(SECONDS) is end
    second, _ = agent_of(call("stay"), "done", tools=[stay])
    assert THREADS.submit(second.invoke, "?").result(SECONDS).text == "done"
