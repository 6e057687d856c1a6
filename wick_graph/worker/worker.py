"""A worker: fetches jobs, verifies and claims their runs, and gives them back when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from procrastinate import jobs
from procrastinate.connector import BaseAsyncConnector
from procrastinate.manager import JobManager

from wick_graph.errors import ThreadBusyError, ThreadNotFoundError, WickError
from wick_graph.service.detached import DetachedRun
from wick_graph.service.options import log
from wick_graph.service.runs import PLACED
from wick_graph.service.service import Service, Tenant
from wick_graph.store.leases import Asking
from wick_graph.store.server_rows import QUARANTINED, RUNNING, StreamRow
from wick_graph.worker.queue import RunQueue, ids_in

CHARGES: Final = 2
"""A run that was charged with so many deaths of processes goes on in a process of its own."""

_SWEEP: Final = 1.0
"""Seconds between two sweeps."""

_PAUSES: Final = (0.02, 0.5)
"""The first and the longest pause before an idle worker looks for jobs without a notice."""

_AWAY: Final = 1.0
"""Seconds before a worker without its database tries again."""

_UNKNOWN: Final = 5.0
"""Seconds before a job is tried again, if this worker lacks its agent."""

_KILLED: Final = "the run ended its own process, also in a process that ran nothing else"


class _Connector(BaseAsyncConnector):
    """Lets procrastinate use the sessions that all stores of the process share."""

    def __init__(self, queue: RunQueue) -> None:
        self._queue = queue

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        await self.execute_query_all_async(query, **arguments)

    async def execute_query_one_async(self, query: str, **arguments: Any) -> dict[str, Any]:
        return (await self.execute_query_all_async(query, **arguments))[0]

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        queue = self._queue
        return await queue.saver.streams.run(queue.query, query, arguments)


class Worker:
    """Executes runs of all tenants, or of some, until it is stopped.

    Args:
        service: The agents; it executes no runs of its own.
        queue: The queue.
        slots: The most runs at a time.
        tenants: The names of tenants; None for all.
        alone: The command that executes one run in a process of its own: the run's tenant and id
            are added to it.
    """

    def __init__(
        self,
        service: Service,
        queue: RunQueue,
        *,
        slots: int | None = None,
        tenants: Collection[str] | None = None,
        alone: Sequence[str] = (),
    ) -> None:
        self._service, self._queue, self._alone = service, queue, alone
        settings = service.file.workers
        self._slots, self._tenants = slots or settings.slots, tenants and sorted(tenants)
        self._lease, self._heartbeat = settings.lease, settings.heartbeat
        self._jobs = JobManager(_Connector(queue))
        self._id: int | None = None
        """This worker's number in the queue; None before it is registered, or if it was pruned."""
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: set[int] = set()
        """The jobs that this worker works on."""

    @property
    def free(self) -> int:
        """The slots without a run."""
        return self._slots - len(self._tasks)

    def wake(self) -> None:
        """Look for jobs now."""
        self._wake.set()

    def stop(self) -> None:
        """Fetch no more jobs, and give the runs back; a second call ends all calls at once."""
        if self._stop.is_set():
            self._service.stop_now.set()
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Work until `stop` is called; a database that is away is waited for."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._service.recovers, self._service.gives_back = False, True
        self._service.slots = self._slots
        told = partial(loop.call_soon_threadsafe, self.wake)
        try:
            async with self._service.running():
                with self._service.notices.listening(PLACED, told):
                    keepers = [
                        self._keep(self._beat, self._heartbeat),
                        self._keep(self._lead, _SWEEP),
                    ]
                    kept = [asyncio.create_task(keeper) for keeper in keepers]
                    await self._fetch()
                for task in kept:
                    task.cancel()
                await asyncio.gather(*kept, return_exceptions=True)
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await self._leave()

    # --- The queue.

    async def _fetch(self) -> None:
        soon, latest = _PAUSES
        pause = soon
        while not self._stop.is_set():
            self._wake.clear()
            job = None
            if self.free > 0:
                job = await self._patiently(self._next_job)
            if job is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                pause = min(2 * pause, latest)
                continue
            pause = soon
            task = asyncio.create_task(self._serve(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._wake.set())

    async def _next_job(self) -> jobs.Job | None:
        if self._id is None:
            self._id = await self._jobs.register_worker()
        job = await self._jobs.fetch_job(self._tenants, self._id)
        if job is not None and job.id is not None:
            self._active.add(job.id)
        return job

    async def _patiently(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Call a function; after an error, register anew and wait a moment."""
        try:
            return await work()
        except Exception as error:  # the database is away, or this worker was pruned
            if self._id is not None:
                log.warning("the queue cannot be used now: %s", error)
            self._id = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AWAY):
                    await self._stop.wait()
            return None

    async def _keep(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # the next time may succeed
                log.warning("the queue cannot be kept now: %s", error)
            await asyncio.sleep(seconds)

    async def _beat(self) -> None:
        queue, number = self._queue, self._id
        if number is not None:
            await self._jobs.update_heartbeat(number)
            await queue.saver.streams.run(queue.forget, number, {*self._active})

    async def _lead(self) -> None:
        """Sweep, if no other worker does."""
        queue, number = self._queue, self._id
        if number is None:
            return
        beat = 2 * self._heartbeat
        if await queue.saver.streams.run(queue.sweep, number, beat, self._lease):
            self._wake.set()
            queue.tell()

    async def _leave(self) -> None:
        with contextlib.suppress(Exception):  # the sweep of another worker does it
            if self._id is not None:
                await self._jobs.unregister_worker(self._id)

    # --- One job.

    async def _serve(self, job: jobs.Job) -> None:
        """Execute the run of a job; the job is finished only if the run's row says so."""
        try:
            done = await self._execute(job)
        except Exception as error:  # the run's row is as it was, so the sweep adds another job
            log.error("a job failed: %s", error)
            done = False
        assert job.id is not None
        with contextlib.suppress(Exception):  # the sweep deletes what is left of it
            if done:
                await self._jobs.finish_job(job, jobs.Status.SUCCEEDED, delete_job=True)
        self._active.discard(job.id)

    async def _execute(self, job: jobs.Job) -> bool:
        ids = ids_in(job.task_kwargs)
        if ids is None:
            return True
        name, thread_id, run_id = ids
        if not await self._queue.saver.streams.run(self._queue.knows, *ids):
            return True  # it has ended, or the job is forged
        async with self._service.using(name) as tenant:
            streams = tenant.saver.streams
            row = await streams.run(streams.get, thread_id, run_id)
            if row is None or not row.goes_on:
                return True
            if row.asked["agent"] not in tenant.agents:
                await tenant.refresh(now=True)  # it may have been added just now
            if row.asked["agent"] not in tenant.agents:
                await self._later(job)  # a worker with another file knows it
                return False
            try:
                return await self._go_on(tenant, row)
            except (ThreadBusyError, ThreadNotFoundError):
                return True  # another process has it: this job is a double

    async def _go_on(self, tenant: Tenant, row: StreamRow) -> bool:
        leases, streams = tenant.saver.leases, tenant.saver.streams
        if row.status == RUNNING and row.external:
            asking = Asking(begins=row.run_id)
            if (await leases.ajudge(row.thread_id, asking)).charges >= CHARGES:
                await streams.run(streams.quarantine, row)
                found = await streams.run(streams.get, row.thread_id, row.run_id)
                row = found or row
        if row.status == QUARANTINED and self._alone:
            return await self._in_quarantine(tenant, row)
        run = await tenant.runs.recover(tenant.agents.ready, row)
        if run is not None and run.task is not None:
            await asyncio.wait([run.task])
            return await self._settle(tenant, run)
        return True

    async def _settle(self, tenant: Tenant, run: DetachedRun) -> bool:
        """Place the tenant's next run; return whether this one has ended here."""
        if run.event_log.ended:
            await self._queue.place(tenant.name)
            return True
        if run.suspended:
            await self._give_back(tenant, run.row)
        return False

    async def _give_back(self, tenant: Tenant, row: StreamRow) -> None:
        """Let others go on at once."""
        queue = self._queue
        with contextlib.suppress(WickError):  # the sweep does it
            await queue.saver.streams.run(queue.requeue, [(tenant.name, row.thread_id, row.run_id)])
            queue.tell()

    async def _later(self, job: jobs.Job) -> None:
        await self._jobs.retry_job(job, retry_at=self._queue.later(_UNKNOWN))

    # --- Quarantine: a run that killed processes goes on in one that runs nothing else.

    async def _in_quarantine(self, tenant: Tenant, row: StreamRow) -> bool:
        streams = tenant.saver.streams
        if await streams.run(streams.claim, row) is None:  # so that no other worker begins it too
            return True
        log.warning("run %s goes on alone in a process of its own", row.run_id)
        ids = (tenant.name, row.thread_id, row.run_id, streams.server)
        child = await asyncio.create_subprocess_exec(*self._alone, *ids, start_new_session=True)
        ended = asyncio.create_task(child.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        code = await ended
        now = await streams.run(streams.get, row.thread_id, row.run_id)
        if now is None or not now.goes_on:
            await self._queue.place(tenant.name)
            return True
        if code < 0 and code != -signal.SIGTERM:
            await streams.run_and_tell(now.thread_id, streams.give_up, now, _KILLED, dead=True)
            self._service.metrics_of(tenant.name).count("dead")
            await self._queue.place(tenant.name)
            return True
        await streams.run(streams.leave, row)
        await self._give_back(tenant, row)
        return False


async def alone(
    service: Service, tenant_name: str, thread_id: str, run_id: str, instead_of: str
) -> None:
    """Execute one run of another worker, and nothing else; SIGTERM gives it back."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    service.recovers, service.gives_back = False, True
    async with service.running(), service.using(tenant_name) as tenant:
        streams = tenant.saver.streams
        row = await streams.run(streams.get, thread_id, run_id)
        if row is None or not row.goes_on:
            return
        run = await tenant.runs.recover(tenant.agents.ready, row, instead_of)
        if run is not None and run.task is not None:
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait([run.task, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
