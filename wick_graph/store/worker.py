"""One thread that does the store's work for event loops, with one hop per call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeVar

from wick_graph.errors import StorageError
from wick_graph.store.transactions import MEMBERS, Group
from wick_graph.types import Firm

P = ParamSpec("P")

T = TypeVar("T")

Awaited = Coroutine[Any, Any, T]


class Batching(Protocol):
    """A store, as the worker sees it: several jobs can share one commit."""

    def batch(self) -> AbstractContextManager[list[Group]]:
        """Put off commits until the end of the block; collect the groups of its writers."""


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    long: bool
    result: Any = None
    error: BaseException | None = None
    groups: Sequence[Group] = ()


class Worker:
    """Runs functions one after the other in a thread of its own, made at the first call.

    Jobs that wait at the same time share one commit, and no caller gets a result before it. A job
    that has started is finished even if its caller is cancelled.
    """

    def __init__(self, store: Batching) -> None:
        self._jobs = jobs = SimpleQueue[_Job | None]()
        self._store = weakref.ref(store, lambda _: jobs.put(None))  # the caller keeps it alive
        self._kept: list[_Job | None] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaited[T]:
        """Await the result of `work` without blocking the running loop.

        Raises:
            StorageError: The worker was closed.
        """
        return self._hand_in(partial(work, *args, **kwargs), long=False)

    def run_long(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaited[T]:
        """Do as `run` for work of many transactions, which share no commit with other jobs."""
        return self._hand_in(partial(work, *args, **kwargs), long=True)

    def firmly(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Firm[T]:
        """Hand in work that a cancelled waiter waits for too, without a task in between.

        Raises:
            StorageError: The worker was closed.
        """
        future: Firm[T] = Firm()
        self.give(partial(work, *args, **kwargs), future)
        return future

    async def _hand_in(self, work: Callable[[], T], *, long: bool) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.give(work, future, long=long)
        return await future

    def give(self, work: Callable[[], T], future: asyncio.Future[T], *, long: bool = False) -> None:
        """Hand in work; its result settles a future of the running loop.

        Raises:
            StorageError: The worker was closed.
        """
        with self._lock:
            if self._closed:
                raise StorageError("the store is closed; open it again")
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="wick-store", daemon=True)
                thread.start()
                self._thread = thread
            self._jobs.put(_Job(work, future.get_loop(), future, long))
            if self._store() is None:
                self._jobs.put(None)

    def close(self) -> None:
        """Finish all jobs, then end the thread."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._jobs.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        while not self._is_over():
            while jobs := self._next():
                self._do(jobs)
                del jobs

    def _is_over(self) -> bool:
        """Return whether nothing is left to do; a finalizer may use a store that is gone."""
        with self._lock:
            if self._jobs.empty():
                self._thread = None
            return self._thread is None

    def _next(self) -> list[_Job]:
        """Wait for jobs and return them, a long one alone; an empty list at the end."""
        job = self._kept.pop() if self._kept else self._jobs.get()
        if job is None:
            return []
        jobs = [job]
        while not job.long and len(jobs) < MEMBERS and not self._jobs.empty():
            job = self._jobs.get()  # no other thread takes one
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
            _run_together(store, jobs)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, own in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_resolve, own)


def _run(job: _Job) -> None:
    try:
        job.result = job.work()
    except BaseException as error:  # the caller gets it
        job.error = error


def _run_together(store: Batching, jobs: list[_Job]) -> None:
    """Run jobs with one commit; each notes the groups that it joined, which know its error."""
    try:
        with contextlib.suppress(StorageError), store.batch() as joined:
            for job in jobs:
                before = len(joined)
                _run(job)
                job.groups = joined[before:]
    except BaseException as error:  # of no database, such as a lack of memory
        for job in jobs:
            job.error = job.error or error


def _resolve(jobs: list[_Job]) -> None:
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
