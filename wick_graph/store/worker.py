"""One thread that does the store's work for event loops, one hop per call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from wick_graph.errors import StorageError

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Worker:
    """Run functions one after the other in a thread of its own, made at the first call.

    A call that was started is finished even if the one who waits for it is cancelled.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await the result of `work` without holding up the running loop.

        Raises:
            StorageError: if the worker was closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise StorageError("the store is closed; open it again")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="wick-store", daemon=True)
                self._thread.start()
            self._jobs.put((lambda: work(*args, **kwargs), loop, future))
        return await future

    def close(self) -> None:
        """Finish what was handed in, then end the thread."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._jobs.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, loop, future = job
            settle: Callable[[asyncio.Future[Any], Any], None]
            try:
                result = work()
                settle = _succeed
            except BaseException as error:  # it belongs to the one who waits
                result, settle = error, _fail
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, future, result)
            del job, work, loop, future, result


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
