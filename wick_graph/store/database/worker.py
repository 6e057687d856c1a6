"""One thread that does the store's work for event loops, one hop per call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeVar

from wick_graph.errors import StorageError
from wick_graph.store.database.group import MEMBERS, Group

P = ParamSpec("P")
T = TypeVar("T")


class Batching(Protocol):
    """What lets several jobs share one commit."""

    def batch(self) -> AbstractContextManager[list[Group]]:
        """Put off commits until the end of the block; collect what they are part of."""


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    long: bool
    result: Any = None
    error: BaseException | None = None
    groups: list[Group] = field(default_factory=list)


class Worker:
    """Run functions one after the other in a thread of its own, made at the first call.

    Those that wait at the same time share one commit, and nobody hears of a result before it. A
    call that was started is finished even if the one who waits for it is cancelled.
    """

    def __init__(self, store: Batching) -> None:
        self._store = weakref.ref(store)  # who hands work in keeps it alive
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._kept: list[_Job | None] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await the result of `work` without holding up the running loop.

        Raises:
            StorageError: if the worker was closed.
        """
        return await self._hand_in(lambda: work(*args, **kwargs), long=False)

    async def run_long(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do as `run` for work of many transactions, with which nobody shares a commit."""
        return await self._hand_in(lambda: work(*args, **kwargs), long=True)

    async def _hand_in(self, work: Callable[[], T], *, long: bool) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise StorageError("the store is closed; open it again")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="wick-store", daemon=True)
                self._thread.start()
            self._jobs.put(_Job(work, loop, future, long))
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
        while jobs := self._next():
            self._do(jobs)
            del jobs

    def _next(self) -> list[_Job]:
        """Wait for a job, and take what else is there; a long one is alone. None are the end."""
        job = self._kept.pop() if self._kept else self._jobs.get()
        if job is None:
            return []
        jobs = [job]
        while not job.long and len(jobs) < MEMBERS:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is None or job.long:
                self._kept.append(job)
                break
            jobs.append(job)
        return jobs

    def _do(self, jobs: list[_Job]) -> None:
        store = self._store() if len(jobs) > 1 else None
        if store is None:
            for job in jobs:
                _run(job)
        else:
            with contextlib.suppress(StorageError), store.batch() as joined:
                for job in jobs:
                    before = len(joined)
                    _run(job)
                    job.groups = joined[before:]
        told: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            told.setdefault(job.loop, []).append(job)
        for loop, own in told.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_tell, own)


def _run(job: _Job) -> None:
    try:
        job.result = job.work()
    except BaseException as error:  # it belongs to the one who waits
        job.error = error


def _tell(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        error = job.error
        for group in job.groups:
            try:
                group.check()
            except StorageError as failed:
                error = error or failed
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(job.result)
