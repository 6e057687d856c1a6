"""One body, two drivers: how an `async def` runs inside a loop and outside of any.

A body awaits nothing but *leaves*. `AsyncBridge` suspends in the caller's loop. `SyncBridge`
blocks instead of suspending, so `run_to_end` can drive the same body to its end with a single
`send(None)`, in the caller's thread, with no loop at all. Only what a user wrote as `async def`
needs a loop then: it runs on one long-lived engine loop, so that clients which remember their
loop (HTTP pools) keep working from call to call.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from wick_graph.core.stopping import CURRENT, Stop, pausable, within
from wick_graph.errors import RunCancelled, WickError

T = TypeVar("T")

Next = Callable[[Any], Any]


def run_to_end(body: Coroutine[Any, Any, T]) -> T:
    """Drive a body whose leaves never suspend, and return its result."""
    try:
        body.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # the value of a coroutine is untyped
    body.close()
    raise WickError("an awaited call suspended outside of a loop; use ainvoke or astream here")


class Late(TimeoutError):
    """Say that a call took longer than it may; a call's own TimeoutError is none of these."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds


class Threads:
    """Daemon threads for blocking calls, kept for reuse, as many as are needed at once.

    A fixed pool deadlocks when a blocked caller waits for a call that waits for a place, and a
    thread that a hung tool holds must not keep the process from ending.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[_Worker] = deque(maxlen=64)

    def submit(self, fn: Callable[..., T], *args: Any) -> Future[T]:
        """Run `fn` in a thread under a copy of the caller's context variables."""
        if self._pid != os.getpid():  # after a fork the threads are gone
            self._pid = os.getpid()
            self._idle.clear()
        future: Future[T] = Future()
        context = contextvars.copy_context()
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self._idle)
        worker.take(future, lambda: context.run(fn, *args))
        return future


class _Worker:
    def __init__(self, idle: deque[_Worker]) -> None:
        self._idle = idle
        self._work: tuple[Future[Any], Callable[[], Any]] | None = None
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._loop, name="wick-worker", daemon=True).start()

    def take(self, future: Future[Any], call: Callable[[], Any]) -> None:
        self._work = (future, call)
        self._wake.release()

    def _loop(self) -> None:
        while True:
            self._wake.acquire()
            assert self._work is not None
            (future, call), self._work = self._work, None
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except StopIteration as exc:  # no future can carry it: a coroutine would end by it
                error = RuntimeError(f"raised StopIteration: {exc}")
            except BaseException as exc:  # a future carries whatever the call raised
                error = exc
            keep = len(self._idle) < (self._idle.maxlen or 0)
            if keep:  # before the future is done: whoever wakes up finds this worker idle
                self._idle.append(self)
            _settle(future, result, error)
            del future, call, result, error
            if not keep:
                return


def _settle(future: Future[Any], result: Any, error: BaseException | None) -> None:
    with suppress(InvalidStateError):  # nobody waits any more: it was cancelled when it was late
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class EngineLoop:
    """The loop for users' `async def` when the caller has none; made anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, body: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(body, self._running())

    def is_here(self) -> bool:
        """Say whether the caller is itself running on this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid == os.getpid() and self._loop is not None:
            return self._loop
        with self._lock:
            if self._pid != os.getpid() or self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="wick-loop", daemon=True).start()
                self._loop, self._pid = loop, os.getpid()
            return self._loop


THREADS = Threads()

ENGINE_LOOP = EngineLoop()


class Bridge(Protocol):
    """What a body may await."""

    async def call_user(self, fn: Callable[..., Any], is_async: bool, *args: Any) -> Any:
        """Call what a user wrote, `def` or `async def`."""

    async def wrap(self, fn: Callable[..., Any], is_async: bool, value: Any, inner: Next) -> Any:
        """Call a wrapper `fn(value, next)`; `next` runs the body `inner` in fn's own style."""

    async def timed(
        self, fn: Callable[..., Any], is_async: bool, seconds: float | None, *args: Any
    ) -> Any:
        """Call what a user wrote; raise `Late` when it takes longer."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def until(self, stop: Stop, body: Coroutine[Any, Any, T]) -> T:
        """Run a body until it ends, or until somebody asks its run to stop."""

    async def long(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Call the form that fits the driver, of something that may take long."""

    async def call(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Call the form that fits the driver, of something that has both."""

    async def cancels_itself(self) -> bool:
        """Say whether a CancelledError comes from what was called, and not from the run's end."""

    async def uninterruptible(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Do the same, to its end even if the waiter is cancelled meanwhile."""


class AsyncBridge:
    """Bridge for a body that runs in the caller's loop; blocking calls go to threads."""

    async def call_user(self, fn: Callable[..., Any], is_async: bool, *args: Any) -> Any:
        """Await an `async def`, or run a `def` in a thread."""
        if is_async:
            return await fn(*args)
        return await asyncio.wrap_future(THREADS.submit(fn, *args))

    async def wrap(self, fn: Callable[..., Any], is_async: bool, value: Any, inner: Next) -> Any:
        """Give an async wrapper the body itself, a sync one a `next` that blocks its thread."""
        if is_async:
            return await fn(value, inner)
        loop = asyncio.get_running_loop()
        under_way: list[Future[Any]] = []
        cancelled = threading.Event()

        def blocking_next(changed: Any) -> Any:
            if cancelled.is_set():
                raise RunCancelled
            under_way.append(asyncio.run_coroutine_threadsafe(inner(changed), loop))
            try:
                return under_way[-1].result()
            except CancelledError:  # this one is an Exception; a hook must not take it for one
                raise RunCancelled from None

        try:
            return await asyncio.wrap_future(THREADS.submit(fn, value, blocking_next))
        except asyncio.CancelledError:
            cancelled.set()
            for future in under_way:
                future.cancel()
            raise

    async def timed(
        self, fn: Callable[..., Any], is_async: bool, seconds: float | None, *args: Any
    ) -> Any:
        """Cancel an `async def` that is late; leave the thread of a `def` that is late."""
        try:
            async with asyncio.timeout(seconds) as limit:
                with pausable(limit, seconds):
                    return await self.call_user(fn, is_async, *args)
        except TimeoutError:
            if seconds is not None and limit.expired():
                raise Late(seconds) from None
            raise

    async def sleep(self, seconds: float) -> None:
        """Let the loop go on meanwhile."""
        await asyncio.sleep(seconds)

    async def until(self, stop: Stop, body: Coroutine[Any, Any, T]) -> T:
        """Cancel the body when its run is to stop; who awaits it is not cancelled by that.

        Raises:
            RunCancelled: Somebody asked the run to stop.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        state = {"open": True, "cancelled": False}

        def cancel() -> None:
            if state["open"]:
                state["cancelled"] = task.cancel()

        def end() -> None:
            with suppress(RuntimeError):  # the loop is closed, and the body with it
                loop.call_soon_threadsafe(cancel)

        before = CURRENT.set(stop)
        try:
            with stop.ending(end):
                return await body
        except asyncio.CancelledError:
            if state["cancelled"] and task.cancelling() <= 1:
                raise RunCancelled from None
            raise
        finally:
            CURRENT.reset(before)
            state["open"] = False
            if state["cancelled"]:
                task.uncancel()

    async def long(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Await the async form."""
        return await async_()

    async def call(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Await the async form."""
        return await async_()

    async def cancels_itself(self) -> bool:
        """Say whether a CancelledError comes from what was called, and not from the run's end."""
        task = asyncio.current_task()
        return task is None or not task.cancelling()

    async def uninterruptible(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Await the async form to its end; a cancellation meanwhile is raised afterwards."""
        task = asyncio.ensure_future(async_())
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:  # it is in the task, and raised from there
                break
        if cancelled is not None and not task.cancelled():
            task.exception()  # looked at: the cancellation goes before it
            raise cancelled
        return task.result()


class SyncBridge:
    """Bridge that block and never suspend; for `run_to_end`."""

    async def call_user(self, fn: Callable[..., Any], is_async: bool, *args: Any) -> Any:
        """Call a `def` here; run an `async def` on the engine loop."""
        if not is_async:
            return fn(*args)
        return ENGINE_LOOP.submit(fn(*args)).result()

    async def wrap(self, fn: Callable[..., Any], is_async: bool, value: Any, inner: Next) -> Any:
        """Give a sync wrapper a `next` that drives the body, an async one a `next` to await."""
        if not is_async:
            return fn(value, lambda changed: run_to_end(inner(changed)))

        async def awaited_next(changed: Any) -> Any:
            # The body blocks: it must not do so on the loop that its own async parts need.
            return await asyncio.wrap_future(THREADS.submit(run_to_end, inner(changed)))

        return ENGINE_LOOP.submit(fn(value, awaited_next)).result()

    async def timed(
        self, fn: Callable[..., Any], is_async: bool, seconds: float | None, *args: Any
    ) -> Any:
        """Wait for at most `seconds`; without a limit a `def` runs here."""
        if seconds is None:
            return await self.call_user(fn, is_async, *args)
        future = ENGINE_LOOP.submit(fn(*args)) if is_async else THREADS.submit(fn, *args)
        try:
            return within(lambda left: _result(future, left), future.done, seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise Late(seconds) from None

    async def sleep(self, seconds: float) -> None:
        """Block, until then or until the run is to stop."""
        stop = CURRENT.get()
        if stop is None:
            time.sleep(seconds)  # noqa: ASYNC251  # this driver has no loop to hold up
            return
        asked = threading.Event()
        with stop.ending(asked.set):
            asked.wait(seconds)
        stop.check()

    async def until(self, stop: Stop, body: Coroutine[Any, Any, T]) -> T:
        """Run the body; what it waits for is left when its run is to stop."""
        before = CURRENT.set(stop)
        try:
            return await body
        finally:
            CURRENT.reset(before)

    async def long(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Call the sync form; in a thread that can be left, where somebody may ask to stop."""
        stop = CURRENT.get()
        if stop is None or not stop.waits:
            return sync()
        return _result(THREADS.submit(sync), None)

    async def call(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Call the sync form."""
        return sync()

    async def cancels_itself(self) -> bool:
        """Say yes: nobody can cancel a body that never suspends."""
        return True

    async def uninterruptible(self, sync: Callable[[], T], async_: Callable[[], Awaitable[T]]) -> T:
        """Call the sync form."""
        return sync()


def _result(future: Future[T], seconds: float | None) -> T:
    """Wait for a result, at most so long, and no longer than its run goes on.

    Raises:
        RunCancelled: The run is to stop; a `def` that was called goes on in its thread, unheard.
    """
    stop = CURRENT.get()
    if stop is None:
        return future.result(seconds)
    try:
        with stop.ending(future.cancel):
            return future.result(seconds)
    except CancelledError:
        stop.check()
        raise


ASYNC_BRIDGE = AsyncBridge()

SYNC_BRIDGE = SyncBridge()
