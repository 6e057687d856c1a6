"""The bridge between sync and async: one `async def` body runs with or without an event loop.

A body awaits only methods of a *bridge*. `AsyncBridge` suspends in the caller's loop. `SyncBridge`
blocks instead of suspending, so `run_to_end` drives the same body to its end with a single
`send(None)`, in the caller's thread, without a loop. Only a user's `async def` then needs a loop.
It runs on one long-lived engine loop, so that clients bound to a loop (HTTP pools) keep working
from call to call.
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
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from wick_graph.core.stopping import CURRENT, Stop, pausable, within
from wick_graph.errors import RunCancelled, WickError
from wick_graph.machine import hold_interrupt
from wick_graph.types import Firm

P = ParamSpec("P")

T = TypeVar("T")

Sync = Callable[P, T]

Async = Callable[P, Awaitable[T]]

Next = Callable[[Any], Any]


def run_to_end(body: Coroutine[Any, Any, T]) -> T:
    """Drive a body that never suspends to its end, and return its result."""
    try:
        body.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # the value of a coroutine is untyped
    body.close()
    raise WickError("an awaited call suspended without an event loop; use ainvoke or astream here")


class Late(TimeoutError):
    """A call exceeded its time limit; the call's own TimeoutError stays a TimeoutError."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds


class Threads:
    """An unbounded pool of daemon threads for blocking calls.

    A bounded pool deadlocks if a blocked caller waits for a call that waits for a free thread.
    Daemon threads let the process end while a hung tool blocks one.
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
            except (StopIteration, GeneratorExit) as exc:
                # No waiter can get it: in a coroutine the one is a return, the other its closing.
                error = RuntimeError(f"raised {type(exc).__name__}: {exc}")
            except BaseException as exc:  # a future carries whatever the call raised
                error = exc
            keep = len(self._idle) < (self._idle.maxlen or 0)
            if keep:  # before the future is done: its waiter may reuse this worker
                self._idle.append(self)
            _settle(future, result, error)
            del future, call, result, error
            if not keep:
                return


def _settle(future: Future[Any], result: Any, error: BaseException | None) -> None:
    with suppress(InvalidStateError):  # the waiter timed out and cancelled it
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class EngineLoop:
    """The loop for users' `async def` if the caller has none; recreated after a fork.

    It is also recreated if its thread has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, body: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(body, self._running())

    @property
    def is_made(self) -> bool:
        """Whether this process has made the loop."""
        return self._pid == os.getpid()

    def is_here(self) -> bool:
        """Return whether the caller runs on this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _running(self) -> asyncio.AbstractEventLoop:
        if (loop := self._alive()) is not None:
            return loop
        with self._lock:
            if (loop := self._alive()) is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run, args=(loop,), name="wick-loop", daemon=True)
                thread.start()
                self._loop, self._thread, self._pid = loop, thread, os.getpid()
            return loop

    def _alive(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop if this process has made it and its thread has not ended."""
        if self._pid != os.getpid() or self._thread is None or not self._thread.is_alive():
            return None
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop for the rest of the process, whatever its tasks raise."""
    try:
        while not loop.is_closed():
            # asyncio gives these two to the task's waiter, and raises them here too: they shall
            # end the program of the waiter, not the loop that all agents share.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
    finally:
        loop.close()


THREADS = Threads()

ENGINE_LOOP = EngineLoop()


class Bridge(Protocol):
    """The awaitable operations of a body."""

    async def call_user(self, fn: Callable[..., Any], is_async: bool, *args: Any) -> Any:
        """Call a user's function, `def` or `async def`."""

    async def wrap(self, fn: Callable[..., Any], is_async: bool, value: Any, inner: Next) -> Any:
        """Call a wrapper `fn(value, next)`; `next` runs the body `inner` in fn's own style."""

    async def timed(
        self, fn: Callable[..., Any], is_async: bool, seconds: float | None, *args: Any
    ) -> Any:
        """Call a user's function; raise `Late` after `seconds`."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def until(self, stop: Stop, body: Coroutine[Any, Any, T]) -> T:
        """Run a body until it ends or its run is asked to stop."""

    def long(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Call the form that fits the driver; for calls that may take long."""

    def call(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Call the form that fits the driver, with these arguments."""

    async def cancels_itself(self) -> bool:
        """Return whether a CancelledError comes from the called code, not from the run's end."""

    async def uninterruptible(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the form that fits the driver, to its end even if the waiter is cancelled."""


class _Canceller:
    """Cancels a task when it is called, from any thread, as long as it is open."""

    __slots__ = ("_loop", "_task", "has_cancelled", "is_open")

    def __init__(self, task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._task, self._loop = task, loop
        self.is_open, self.has_cancelled = True, False

    def __call__(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and so is the body
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.is_open:
            self.has_cancelled = self._task.cancel()


class AsyncBridge:
    """Bridge for a body in the caller's loop; blocking calls run in threads."""

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
        under_way: list[asyncio.Task[Any] | None] = []
        is_cancelled = False

        async def begun(changed: Any) -> Any:
            if is_cancelled:  # since the thread has looked
                raise RunCancelled
            under_way.append(asyncio.current_task())
            return await inner(changed)

        def blocking_next(changed: Any) -> Any:
            if is_cancelled:
                raise RunCancelled
            try:
                return asyncio.run_coroutine_threadsafe(begun(changed), loop).result()
            except CancelledError:  # this one is an Exception, which a hook might catch
                raise RunCancelled from None

        try:
            return await asyncio.wrap_future(THREADS.submit(fn, value, blocking_next))
        except asyncio.CancelledError:
            is_cancelled = True
            for task in filter(None, under_way):
                task.cancel()
            raise

    async def timed(
        self, fn: Callable[..., Any], is_async: bool, seconds: float | None, *args: Any
    ) -> Any:
        """Cancel a late `async def`; abandon the thread of a late `def`."""
        try:
            async with asyncio.timeout(seconds) as limit:
                with pausable(limit, seconds):
                    return await self.call_user(fn, is_async, *args)
        except TimeoutError:
            if seconds is not None and limit.expired():
                raise Late(seconds) from None
            raise

    async def sleep(self, seconds: float) -> None:
        """Sleep in the loop."""
        await asyncio.sleep(seconds)

    async def until(self, stop: Stop, body: Coroutine[Any, Any, T]) -> T:
        """Cancel the body when its run is asked to stop, but not the awaiting task.

        Raises:
            RunCancelled: The run was asked to stop.
        """
        task = asyncio.current_task()
        assert task is not None
        canceller = _Canceller(task, asyncio.get_running_loop())
        before = CURRENT.set(stop)
        try:
            with stop.ending(canceller):
                return await body
        except asyncio.CancelledError:
            if canceller.has_cancelled and task.cancelling() <= 1:
                raise RunCancelled from None
            raise
        finally:
            CURRENT.reset(before)
            canceller.is_open = False
            if canceller.has_cancelled:
                task.uncancel()

    def long(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Return the async form, to be awaited without a frame between."""
        return async_(*args, **kwargs)

    def call(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Return the async form, as `long` does."""
        return async_(*args, **kwargs)

    async def cancels_itself(self) -> bool:
        """Return whether a CancelledError comes from the called code, not from the run's end."""
        task = asyncio.current_task()
        return task is None or not task.cancelling()

    async def uninterruptible(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Await the async form to its end, then raise a cancellation that came meanwhile."""
        made = async_(*args, **kwargs)
        if isinstance(made, Firm):
            return await _to_its_end(made)
        task = asyncio.ensure_future(made)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:  # the task holds it and raises it below
                break
        if cancelled is not None and not task.cancelled():
            task.exception()  # mark it as retrieved: the cancellation comes first
            raise cancelled
        return task.result()


async def _to_its_end(future: Firm[T]) -> T:
    """Await what cannot be cancelled; the waiter's task raises its own cancellation after it."""
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled():
            future.exception()  # mark it as retrieved: the cancellation comes first
        raise


class SyncBridge:
    """Bridge that blocks and never suspends; for `run_to_end`."""

    async def call_user(self, fn: Callable[..., Any], is_async: bool, *args: Any) -> Any:
        """Call a `def` here; run an `async def` on the engine loop."""
        if not is_async:
            return fn(*args)
        return ENGINE_LOOP.submit(fn(*args)).result()

    async def wrap(self, fn: Callable[..., Any], is_async: bool, value: Any, inner: Next) -> Any:
        """Give a sync wrapper a `next` that drives the body, an async one an awaitable `next`."""
        if not is_async:
            return fn(value, lambda changed: run_to_end(inner(changed)))

        async def awaited_next(changed: Any) -> Any:
            # The body blocks: it must not block the loop that its own async parts need.
            return await asyncio.wrap_future(THREADS.submit(run_to_end, inner(changed)))

        return ENGINE_LOOP.submit(fn(value, awaited_next)).result()

    async def timed(
        self, fn: Callable[..., Any], is_async: bool, seconds: float | None, *args: Any
    ) -> Any:
        """Wait for at most `seconds`; without a limit a `def` runs in this thread."""
        if seconds is None:
            return await self.call_user(fn, is_async, *args)
        future = ENGINE_LOOP.submit(fn(*args)) if is_async else THREADS.submit(fn, *args)
        try:
            return within(partial(_result, future), future.done, seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise Late(seconds) from None
        finally:
            del future  # as below

    async def sleep(self, seconds: float) -> None:
        """Block for so long, or until the run is asked to stop."""
        stop = CURRENT.get()
        if stop is None:
            time.sleep(seconds)  # noqa: ASYNC251  # this driver has no loop to hold up
            return
        asked = threading.Event()
        with stop.ending(asked.set):
            asked.wait(seconds)
        stop.check()

    async def until(self, stop: Stop, body: Coroutine[Any, Any, T]) -> T:
        """Run the body; its blocking calls are abandoned when the run is asked to stop."""
        before = CURRENT.set(stop)
        try:
            return await body
        finally:
            CURRENT.reset(before)

    async def long(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the sync form, in a thread that can be abandoned if the run can be stopped."""
        stop = CURRENT.get()
        if stop is None or not stop.waits:
            return sync(*args, **kwargs)
        return _result(THREADS.submit(partial(sync, *args, **kwargs)), None)

    async def call(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the sync form."""
        return sync(*args, **kwargs)

    async def cancels_itself(self) -> bool:
        """Return True: a body that never suspends cannot be cancelled."""
        return True

    async def uninterruptible(
        self, sync: Sync[P, T], async_: Async[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the sync form to its end; a Ctrl-C that comes meanwhile is raised then."""
        held = hold_interrupt()
        try:
            return sync(*args, **kwargs)
        finally:
            if held is not None:
                held.end()


def _result(future: Future[T], seconds: float | None) -> T:
    """Wait for a result, at most so long, and only until its run is asked to stop.

    Raises:
        RunCancelled: The run was asked to stop; a running `def` stays in its abandoned thread.
    """
    stop = CURRENT.get()
    try:
        if stop is None:
            return future.result(seconds)
        with stop.ending(future.cancel):
            return future.result(seconds)
    except CancelledError:
        if stop is not None:
            stop.check()
        raise
    finally:
        del future  # it holds its error, and the error's traceback holds this frame


ASYNC_BRIDGE = AsyncBridge()

SYNC_BRIDGE = SyncBridge()
