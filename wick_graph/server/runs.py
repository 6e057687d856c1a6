"""The runs of a tenant: begun, found, cancelled, taken up after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from wick_graph.agent import Agent
from wick_graph.drive import ASYNC_LEAVES
from wick_graph.errors import StorageError, ThreadBusyError, ThreadNotFoundError, WickError
from wick_graph.events import CANCELLED, Event
from wick_graph.graph.lifecycle_turn import cancel
from wick_graph.server.live import Asked, LiveRun
from wick_graph.server.log import Channel
from wick_graph.server.metrics import Metrics
from wick_graph.server.options import Limits
from wick_graph.server.problems import Problem, log, shown
from wick_graph.store import SqlSaver
from wick_graph.store.keeping.streams import RUNNING, StreamRow

_AWAY_SECONDS: Final = 5.0
"""How long a run of another server may take to end before its row is ended for it."""
_LOOK_SECONDS: Final = 0.1


class Runs:
    """The runs of one tenant in this process."""

    def __init__(self, tenant: str, saver: SqlSaver, limits: Limits, metrics: Metrics) -> None:
        self._tenant, self._saver, self._limits = tenant, saver, limits
        self._metrics = metrics
        self.live: dict[str, LiveRun] = {}
        """By thread: one at a time goes on in each."""
        self._beginning: dict[str, asyncio.Event] = {}
        """By thread: set when a run has been begun or refused."""

    @contextlib.asynccontextmanager
    async def _alone(self, thread_id: str) -> AsyncIterator[None]:
        """Let no other run of this process begin in a thread; one that has ended is over then."""
        while (other := self._beginning.get(thread_id)) is not None:
            await other.wait()
        mine = self._beginning[thread_id] = asyncio.Event()
        try:
            run = self.live.get(thread_id)
            if run is not None and run.task is not None and run.channel.ended:
                await asyncio.wait([run.task])
            yield
        finally:
            del self._beginning[thread_id]
            mine.set()

    async def start(
        self,
        agent: Agent,
        asked: Asked,
        thread_id: str,
        key: str | None = None,
        *,
        named: bool = True,
    ) -> LiveRun | StreamRow:
        """Begin a run; return the row of an earlier one that was asked for under the same key.

        Args:
            agent: Whose run it is.
            asked: What it is to do.
            thread_id: Where.
            key: The caller's idempotency key.
            named: Whether the caller named the thread.

        Raises:
            ThreadBusyError: A run goes on in the thread.
            Problem: The key was used for something else, or too many runs go on.
        """
        async with self._alone(thread_id):
            return await self._start(agent, asked, thread_id, key, named)

    async def _start(
        self, agent: Agent, asked: Asked, thread_id: str, key: str | None, named: bool
    ) -> LiveRun | StreamRow:
        streams, request = self._saver.streams, asked.to_dict()
        where = thread_id if named else None
        hashed = None if key is None else _hash(self._tenant, key)
        if hashed is not None and (row := await streams.run(streams.by_key, hashed)) is not None:
            return self._known(row, request, where)
        if thread_id in self.live:
            raise ThreadBusyError("thread is busy")
        if len(self.live) >= self._limits.runs_per_tenant:
            raise Problem(429, "too many runs go on", headers={"Retry-After": "1"})
        run_id = str(uuid.uuid4())
        most = self._limits.threads_per_tenant
        row = await streams.run(
            streams.begin, thread_id, run_id, request, hashed, most, named=named
        )
        if row is None:
            raise Problem(429, "the tenant has too many threads; delete some")
        if row.run_id != run_id:
            return self._known(row, request, where)
        if row.first > 1:
            await streams.run(streams.trim, thread_id, self._limits.events_kept_of_runs)
        run = LiveRun(row, Channel(self._saver, row, row.first))
        return self._drive(run, asked.begin(agent, row))

    def _known(
        self, row: StreamRow, request: Mapping[str, Any], where: str | None
    ) -> LiveRun | StreamRow:
        there = row.named if where is None else where != row.thread_id
        if row.asked != request or there:
            raise Problem(409, "the Idempotency-Key was used for another request")
        return self.live[row.thread_id] if self._is_live(row) else row

    async def recover(
        self, ready: Callable[[str], Awaitable[Agent]], row: StreamRow
    ) -> LiveRun | None:
        """Take up a run that a dead server left; None where it has ended, or somebody has it.

        Nobody else is at it from when it is claimed: so where its agent cannot be had, it ends.

        Args:
            ready: Gives an agent by its id.
            row: The run.

        Raises:
            StorageError: The store cannot be used now; the run can be taken up later.
            ThreadBusyError: It goes on in another process.
            ThreadNotFoundError: Its thread was deleted.
        """
        streams = self._saver.streams
        async with self._alone(row.thread_id):
            if row.thread_id in self.live or not await streams.run(streams.claim, row):
                return None
            try:
                return await self._take_up(await ready(row.asked["agent"]), row)
            except (StorageError, ThreadBusyError, ThreadNotFoundError):
                raise
            except (WickError, Problem) as error:
                log.error("run %s cannot go on: %s", row.run_id, error)
                why = error.error if isinstance(error, Problem) else shown(error)
                await streams.run(streams.give_up, row, why)
                return None

    async def _take_up(self, agent: Agent, row: StreamRow) -> LiveRun:
        streams, asked = self._saver.streams, Asked.from_dict(row.asked)
        threads = self._saver.threads
        began = row.thread_id in await streams.run(threads.of_runs, [row.run_id])
        again = Asked(agent_id=asked.agent_id, kind="resume") if began else asked
        last = await streams.run(streams.last, row)
        channel = Channel(self._saver, row, last + 1)
        run = LiveRun(row, channel, taken_up=True, cut_off=last >= row.first)
        log.info("run %s goes on", row.run_id)
        return self._drive(run, again.begin(agent, row))

    def _drive(self, run: LiveRun, events: AsyncIterator[Event]) -> LiveRun:
        thread_id = run.row.thread_id
        self.live[thread_id] = run

        async def work() -> None:
            began = time.monotonic()
            await run.drive(events)
            self._metrics.ran(run.status, time.monotonic() - began)

        def ended(task: asyncio.Task[None]) -> None:  # also of a task that never came to run
            if self.live.get(thread_id) is run:
                del self.live[thread_id]

        run.task = asyncio.create_task(work(), name=f"run {run.row.run_id}")
        run.task.add_done_callback(ended)
        return run

    def _is_live(self, row: StreamRow) -> bool:
        run = self.live.get(row.thread_id)
        return run is not None and run.row.run_id == row.run_id

    def find(self, row: StreamRow) -> LiveRun | None:
        """Return a run, if it goes on here."""
        return self.live[row.thread_id] if self._is_live(row) else None

    async def cancel(self, thread_id: str, run_id: str | None = None) -> None:
        """End the run of a thread, or only a certain one, and wait for its end.

        It may go on in another process: that one notices within a second.
        """
        run = self.live.get(thread_id)
        if run is None or run.task is None:
            await self._cancel_elsewhere(thread_id, run_id)
        elif run_id in (None, run.row.run_id):
            run.task.cancel()
            await asyncio.wait([run.task])

    async def _cancel_elsewhere(self, thread_id: str, run_id: str | None) -> None:
        streams = self._saver.streams
        rows = await streams.run(streams.of_thread, thread_id, 1)
        row = rows[0] if rows and rows[0].status == RUNNING else None
        if run_id is None and row is None:
            await cancel(self._saver, thread_id, ASYNC_LEAVES)  # no server was asked for it
        if row is None or run_id not in (None, row.run_id):
            return
        until, told = time.monotonic() + _AWAY_SECONDS, False
        while time.monotonic() < until:
            told = told or await cancel(
                self._saver, thread_id, ASYNC_LEAVES
            )  # it may not have begun yet
            await asyncio.sleep(_LOOK_SECONDS)
            now = await streams.run(streams.get, thread_id, row.run_id)
            if now is None or now.status != RUNNING:
                return
        with contextlib.suppress(ThreadNotFoundError):
            await streams.run(streams.give_up, row, CANCELLED, "cancelled")

    async def suspend(self, seconds: float, hurry: asyncio.Event) -> None:
        """Let running runs end for a while, then stop the others where they are."""
        if tasks := [run.task for run in self.live.values() if run.task is not None]:
            ended = asyncio.ensure_future(asyncio.wait(tasks))
            waits: list[asyncio.Future[Any]] = [ended, asyncio.ensure_future(hurry.wait())]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        for run in [*self.live.values()]:
            run.suspended = True
            if run.task is not None:
                run.task.cancel()
        if left := [run.task for run in self.live.values() if run.task is not None]:
            await asyncio.wait(left)


def _hash(*parts: str) -> bytes:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).digest()
