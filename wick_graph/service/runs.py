"""The runs of a tenant, which do not depend on connections, and their metrics."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import uuid
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from langchain_core.messages import HumanMessage

from wick_graph.core.bridge import ASYNC_BRIDGE
from wick_graph.engine.agent import Agent
from wick_graph.engine.thread_turn import cancel
from wick_graph.errors import (
    ConfigError,
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
    WickError,
)
from wick_graph.events import CANCELLED, Event
from wick_graph.service.detached import DetachedRun, Openings, is_in_a_call, row_of
from wick_graph.service.event_log import EventLog, changes, followed, let_go, set_within
from wick_graph.service.metrics import Metrics
from wick_graph.service.options import Limits, Problem, log, public_message
from wick_graph.store import SqlSaver
from wick_graph.store.notices import topic
from wick_graph.store.server_rows import QUEUED, StreamRow
from wick_graph.tools.arguments import check_foreign
from wick_graph.tools.frontend import frontend_tool
from wick_graph.tracing.otel import carried, current_traceparent

if TYPE_CHECKING:
    from wick_graph.config import LimitsConfig


# --- What a run is to do.


Kind = Literal["message", "resume"]

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is to do; stored, so that the run can be recovered after a crash."""

    agent_id: str
    kind: Kind
    messages: list[dict[str, Any]] = field(default_factory=list)
    answer: Any = _NOTHING
    context: dict[str, Any] | None = None
    """The caller's context, as JSON; the store must be encrypted."""
    force: bool = False
    """Resume even if the thread is poisoned. Not kept for a recovery after a crash."""
    output_schema: dict[str, Any] | None = None
    """The JSON schema of the output for this run, in place of the agent's own."""
    frontend_tools: list[dict[str, Any]] = field(default_factory=list)
    """Tools that the caller has, by name, description and parameters; an answer keeps them."""
    labels: Mapping[str, Any] | None = None
    """What a door keeps with the run for its clients; `ids` are those of the messages."""

    def to_dict(self) -> dict[str, Any]:
        """Return the request as data."""
        made: dict[str, Any] = {"agent": self.agent_id, "kind": self.kind}
        if self.output_schema is not None:
            made["output_schema"] = self.output_schema
        if self.frontend_tools:
            made["frontend_tools"] = self.frontend_tools
        if self.labels:
            made["labels"] = dict(self.labels)
        if self.context is not None:
            made["context"] = self.context
        if self.kind == "message":
            return {**made, "messages": self.messages}
        if self.force:
            made["force"] = True
        return made if self.answer is _NOTHING else {**made, "answer": self.answer}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunRequest:
        """Undo `to_dict`."""
        return cls(
            agent_id=data["agent"],
            kind=data["kind"],
            messages=list(data.get("messages", ())),
            answer=data.get("answer", _NOTHING),
            output_schema=data.get("output_schema"),
            context=data.get("context"),
            frontend_tools=list(data.get("frontend_tools", ())),
            labels=data.get("labels"),
        )

    def as_asked(self, row: StreamRow) -> RunRequest:
        """Return an answer with the caller's tools and the output that a run was asked for."""
        if self.kind == "message" or row.asked["agent"] != self.agent_id:
            return self
        tools = self.frontend_tools or list(row.asked.get("frontend_tools", ()))
        return replace(self, frontend_tools=tools, output_schema=row.asked.get("output_schema"))

    def begin(self, agent: Agent, row: StreamRow, debug: Any = None) -> AsyncIterator[Event]:
        """Begin the run; a debug session can hold it."""
        agent = with_schema(agent, self.output_schema)
        if self.frontend_tools:
            agent = agent.with_tools([*map(frontend_tool, self.frontend_tools)])
        more: dict[str, Any] = {
            "config": {"metadata": {"run_id": row.run_id}},
            "context": self.context,
            "debug": debug,
        }
        if self.kind == "message":
            ids = (self.labels or {}).get("ids") or [None] * len(self.messages)
            messages = [*map(_with_id, self.messages, ids)]
            return agent.astream(messages, thread_id=row.thread_id, **more)
        given = () if self.answer is _NOTHING else (self.answer,)
        return agent.astream_resume(row.thread_id, *given, force=self.force, **more)


def _with_id(message: dict[str, Any], key: str | None) -> Any:
    """Return a user's message with the id that its client gave it."""
    if key is None or message["role"] != "user":
        return message
    return HumanMessage(message["content"], id=key)


def with_schema(agent: Agent, schema: Mapping[str, Any] | None) -> Agent:
    """Return an agent that gives an output of a JSON schema; itself without one.

    Raises:
        ConfigError: The schema cannot be used.
    """
    if schema is None:
        return agent
    try:
        check_foreign(schema)
    except ConfigError as error:
        raise ConfigError(f"output_schema: {error}") from None
    return agent.with_output(schema)


class Queue(Protocol):
    """Where the runs go that workers execute."""

    limits: Callable[[], LimitsConfig]
    """Returns the limits of tenants."""
    tell: Callable[[], object]
    """Wakes the workers."""

    def waiting(self, tenant: str) -> int:
        """Return how many runs of a tenant may wait."""

    async def place(self, tenant: str) -> None:
        """Give waiting runs of a tenant to the workers; never raises."""


# --- The runs of a tenant: start, find, cancel, recover after a crash.


PLACED: Final = topic("queue")
"""The topic of notices about new jobs."""

_AWAY_SECONDS: Final = 5.0
"""Seconds for another server to end its run before its row is ended here."""

_LOOK_SECONDS: Final = 0.1

_LATELY: Final = 32
"""The last events that tell where a crash cut a run off; `read` returns as many pages."""

_LATEST: Final = 20
"""Latest runs of a thread among which one says where the files of its agent are."""

_ELSEWHERE: Final = (
    "the files of this thread are on another machine; give its backend a workdir on a mount that "
    "all machines share, and say shared: true"
)


class Runs:
    """The runs of one tenant in this process."""

    def __init__(
        self,
        tenant: str,
        saver: SqlSaver,
        limits: Limits,
        metrics: Metrics,
        tell: Callable[..., None],
        queue: Queue | None = None,
    ) -> None:
        self._queue = queue
        self._tenant, self._saver, self._limits = tenant, saver, limits
        self._metrics = metrics
        self._tell = tell
        """Puts an event on the tenant's bus."""
        self.live: dict[str, DetachedRun] = {}
        """By thread; each has at most one."""
        self.holders: dict[str, Callable[[], Any]] = {}
        """By thread with a debug session: returns it if it is to hold the next run, else None."""
        self.machine: Callable[[str], str] = lambda agent_id: ""
        """Returns the machine that has the files of an agent; empty if all have them."""
        self._openings = Openings()
        self._coming = 0
        """Runs that are not live yet and were counted."""
        self._beginning: dict[str, asyncio.Event] = {}
        """By thread, and by key: set when a run has been started or refused."""

    @contextlib.asynccontextmanager
    async def _alone(self, thread_id: str) -> AsyncIterator[None]:
        """Exclude other starts in a thread; wait until a run that has ended is closed."""
        while (other := self._beginning.get(thread_id)) is not None:
            await other.wait()
        mine = self._beginning[thread_id] = asyncio.Event()
        try:
            run = self.live.get(thread_id)
            if run is not None and run.task is not None and run.event_log.ended:
                await asyncio.wait([run.task])
            yield
        finally:
            del self._beginning[thread_id]
            mine.set()

    @property
    def count(self) -> int:
        """How many go on here, and how many are about to."""
        return len(self.live) + self._coming

    @property
    def is_external(self) -> bool:
        """Whether workers execute the runs."""
        return self._queue is not None

    async def start(
        self,
        agent: Agent,
        request: RunRequest,
        thread_id: str,
        key: str | None = None,
        *,
        named: bool = True,
        waits: bool = False,
    ) -> DetachedRun | StreamRow:
        """Start a run; return the row of an earlier one with the same key, or of a queued run.

        Args:
            agent: The agent to run.
            request: What to do.
            thread_id: The thread to run in.
            key: The caller's idempotency key.
            named: Whether the caller named the thread.
            waits: Whether to wait for other runs of the thread; this needs workers.

        Raises:
            ThreadBusyError: The thread has a running run.
            Problem: The key was used for another request, or there are too many runs or threads.
        """
        if self._queue is not None:
            return await self._admit(self._queue, request, thread_id, key, named, waits)
        if waits:
            raise Problem(400, "on_busy: queue needs workers; see workers: in agents.yaml")
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._alone(thread_id))
            if key is not None:  # of the same requests at the same moment, one is counted
                await stack.enter_async_context(self._alone(f"key {key}"))
            return await self._start(agent, request, thread_id, key, named)

    async def _admit(
        self,
        queue: Queue,
        request: RunRequest,
        thread_id: str,
        key: str | None,
        named: bool,
        waits: bool,
    ) -> StreamRow:
        """Record a run for the workers; its row is the truth, and the queue may lose its job."""
        streams, where = self._saver.streams, thread_id if named else None
        if (row := await self.of_key(key)) is not None:
            return row_of(self._known(row, request, where))
        if await streams.run(streams.waiting) >= queue.waiting(self._tenant):
            raise Problem(429, "the tenant has too many waiting runs", headers={"Retry-After": "1"})
        request = await self._as_asked(request, thread_id)
        data, hashed = request.to_dict(), self._hash(key)
        run_id, most = str(uuid.uuid4()), self._limits.threads_per_tenant
        more: Any = {"named": named, "waits": waits, "traceparent": current_traceparent()}
        row = await streams.run(streams.admit, thread_id, run_id, data, hashed, most, **more)
        if row is None:
            raise Problem(429, "the tenant has too many threads; delete some")
        if row.run_id != run_id:
            return row_of(self._known(row, request, where))
        await queue.place(self._tenant)
        return row

    async def _start(
        self, agent: Agent, request: RunRequest, thread_id: str, key: str | None, named: bool
    ) -> DetachedRun | StreamRow:
        streams, where = self._saver.streams, thread_id if named else None
        if (row := await self.of_key(key)) is not None:
            return self._known(row, request, where)
        if thread_id in self.live:
            raise ThreadBusyError("thread is busy")
        if self.count >= self._limits.runs_per_tenant:
            raise Problem(
                429,
                "the tenant has too many runs; wait for one to end",
                headers={"Retry-After": "1"},
            )
        self._coming += 1
        try:
            request = await self._as_asked(request, thread_id)
            data, hashed = request.to_dict(), self._hash(key)
            run_id, most = str(uuid.uuid4()), self._limits.threads_per_tenant
            more: dict[str, Any] = {"named": named}
            more["machine"] = await self._files(thread_id, request.agent_id)
            row = await streams.run_and_tell(
                thread_id, streams.begin, thread_id, run_id, data, hashed, most, **more
            )
            if row is None:
                raise Problem(429, "the tenant has too many threads; delete some")
            if row.run_id != run_id:
                return self._known(row, request, where)
            if row.first > 1:
                await streams.run(streams.trim, thread_id, self._limits.events_kept_of_runs)
            debug = self._holder(thread_id)
            events = request.begin(agent, row, debug)
            opening = None if debug is not None else self._openings.come()
            run = DetachedRun(row, EventLog(self._saver, row, row.first), opening=opening)
            return self._drive(run, events)
        finally:
            self._coming -= 1

    async def of_key(self, key: str | None) -> StreamRow | None:
        """Return the run of an idempotency key, if there is one."""
        hashed, streams = self._hash(key), self._saver.streams
        return None if hashed is None else await streams.run(streams.by_key, hashed)

    def _hash(self, key: str | None) -> bytes | None:
        if key is None:
            return None
        parts = f"{self._tenant}\n{key}"
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).digest()

    async def _as_asked(self, request: RunRequest, thread_id: str) -> RunRequest:
        """Return a request as the run was asked that wrote the thread's last step.

        In a fork that run is of another thread, and a later run may have been refused.
        """
        if request.kind == "message":
            return request
        streams, wrote = self._saver.streams, None
        with contextlib.suppress(ThreadNotFoundError):
            async for step in self._saver.threads.history(thread_id, 1):
                wrote = step.run_id
        if wrote is not None:
            row = await streams.run(streams.by_run, wrote)
        else:  # a person has edited the thread, or it has no step yet
            row = next(iter(await streams.run(streams.of_thread, thread_id, 1)), None)
        return request if row is None else request.as_asked(row)

    def _known(
        self, row: StreamRow, request: RunRequest, where: str | None
    ) -> DetachedRun | StreamRow:
        there = row.named if where is None else where != row.thread_id
        if row.asked != request.as_asked(row).to_dict() or there:
            raise Problem(409, "the Idempotency-Key was used for another request")
        return self.live[row.thread_id] if self._is_live(row) else row

    async def recover(
        self, ready: Callable[[str], Awaitable[Agent]], row: StreamRow, instead_of: str = ""
    ) -> DetachedRun | None:
        """Recover a run of a dead server; None if it has ended or another process has it.

        Claiming the run excludes all others, so it is ended here if its agent cannot be built.

        Args:
            ready: Returns an agent by its id.
            row: The run.
            instead_of: The server that gives the run to this process.

        Raises:
            StorageError: The store cannot be used now; the run can be recovered later.
            ThreadBusyError: Another process has the run.
            ThreadNotFoundError: Its thread was deleted.
        """
        streams = self._saver.streams
        async with self._alone(row.thread_id):
            claimed = None
            if row.thread_id not in self.live:
                claimed = await streams.run_and_tell(row.thread_id, streams.claim, row, instead_of)
            if claimed is None:
                return None
            if row.server not in ("", streams.server):
                self._metrics.count("take_overs")
            row = claimed
            try:
                agent = await ready(row.asked["agent"])
                machine = await self._files(row.thread_id, row.asked["agent"])
                if machine != row.machine:
                    row = replace(row, machine=machine)
                    await streams.run(streams.note_machine, row)
                return await self._continue(agent, row)
            except (StorageError, ThreadBusyError, ThreadNotFoundError):
                raise
            except (WickError, Problem) as error:
                log.error("run %s cannot continue: %s", row.run_id, error)
                why = error.error if isinstance(error, Problem) else public_message(error)
                await streams.run_and_tell(row.thread_id, streams.give_up, row, why)
                return None

    async def _continue(self, agent: Agent, row: StreamRow) -> DetachedRun:
        streams, request = self._saver.streams, RunRequest.from_dict(row.asked)
        threads = self._saver.threads
        began = row.thread_id in await streams.run(threads.of_runs, [row.run_id])
        again = request
        if began:
            again = replace(request, kind="resume", messages=[], answer=_NOTHING, force=False)
        last = await streams.run(streams.last, row)
        if row.external and last < row.first and row.first > 1:
            await streams.run(streams.trim, row.thread_id, self._limits.events_kept_of_runs)
        event_log = EventLog(self._saver, row, last + 1)
        run = DetachedRun(row, event_log, recovered=True, cut_off=await self._in_a_call(row, last))
        log.info("run %s continues", row.run_id)
        with carried(row.traceparent):  # its task keeps the span
            return self._drive(run, again.begin(agent, row, self._holder(row.thread_id)))

    async def _in_a_call(self, row: StreamRow, last: int) -> bool:
        """Return whether a run was cut off within a model's call, by what it told last."""
        after = max(row.first - 1, last - _LATELY)
        if last <= after:
            return False
        streams = self._saver.streams
        try:
            told = await streams.run(streams.read, row.thread_id, after, row)
        except StorageError:  # a damaged page is its readers' matter; the run goes on
            return False
        return is_in_a_call(event for _, event in told)

    async def _files(self, thread_id: str, agent_id: str) -> str:
        """Return the machine with the files of a thread's agent, which is this one or any.

        Raises:
            Problem: The files are on another machine.
        """
        if not (here := self.machine(agent_id)):
            return ""
        streams = self._saver.streams
        for row in await streams.run(streams.of_thread, thread_id, _LATEST):
            if row.machine and row.asked["agent"] == agent_id:
                if row.machine != here:
                    raise Problem(409, _ELSEWHERE)
                break
        return here

    def _holder(self, thread_id: str) -> Any:
        found = self.holders.get(thread_id)
        return None if found is None else found()

    def _drive(self, run: DetachedRun, events: AsyncIterator[Event]) -> DetachedRun:
        row = run.row
        thread_id = row.thread_id
        self.live[thread_id] = run
        names = {"run_id": row.run_id, "thread_id": thread_id, "agent_id": row.asked["agent"]}
        self._tell("run_started", **names, recovered=run.recovered)

        async def work() -> None:
            began = time.monotonic()
            with self._saver.notices.listening(self._cancelled(thread_id), self._check_soon()):
                await run.drive(events)
            busy = run.recovered and isinstance(run.failure, ThreadBusyError)
            if busy or run.event_log.overtaken:
                self._metrics.count("leases_lost")
            self._metrics.ran(run.status, time.monotonic() - began)

        def ended(task: asyncio.Task[None]) -> None:  # also for a task that never started
            run.let_go()
            if self.live.get(thread_id) is run:
                del self.live[thread_id]
            if run.event_log.ended:
                self._tell("run_finished", **names, stopped_because=run.status)
            else:  # after a restart, or on another server, it goes on
                self._tell("run_suspended", **names)

        run.task = asyncio.create_task(work(), name=f"run {run.row.run_id}")
        run.task.add_done_callback(ended)
        return run

    def _cancelled(self, thread_id: str) -> str:
        return self._saver.streams.topic(thread_id, "cancel")

    def _check_soon(self) -> Callable[[], None]:
        """Return what looks, called in any thread, whether the runs here still own their threads.

        A notice may be forged, so it is only a reason to look.
        """
        loop, run = asyncio.get_running_loop(), self._saver.streams.run

        async def check() -> None:
            with contextlib.suppress(WickError):  # the next look is within a second
                await run(self._saver.leases.check_ownership)

        def soon() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                asyncio.run_coroutine_threadsafe(check(), loop)

        return soon

    def _is_live(self, row: StreamRow) -> bool:
        run = self.live.get(row.thread_id)
        return run is not None and run.row.run_id == row.run_id

    def find(self, row: StreamRow) -> DetachedRun | None:
        """Return a run if it is live in this process."""
        return self.live[row.thread_id] if self._is_live(row) else None

    async def must_rest(self, thread_id: str) -> None:
        """Refuse to change or delete a thread while it has a run, also one that waits for a worker.

        Raises:
            ThreadBusyError: It has one.
        """
        run, streams = self.live.get(thread_id), self._saver.streams
        if run is not None and run.task is not None and run.event_log.ended:
            await asyncio.wait([run.task])
            run = None
        has_lease = await self._saver.leases.aepoch(thread_id) is not None
        if run is not None or has_lease or [*await streams.run(streams.open_in, thread_id)]:
            raise ThreadBusyError("thread is busy")

    async def delete(self, thread_id: str) -> bool:
        """Delete a thread that has no run; False if there was none.

        Raises:
            ThreadBusyError: It has one.
        """
        await self.must_rest(thread_id)
        return await self._saver.threads.adelete(thread_id, idle=True)  # one may have come

    async def cancel(self, thread_id: str, run_id: str | None = None) -> None:
        """Cancel the run of a thread, or only the given one, and wait for its end.

        If another process has the run, a notice tells it; without one, it looks each second.
        """
        run = self.live.get(thread_id)
        if run is None or run.task is None:
            await self._cancel_elsewhere(thread_id, run_id)
        elif run_id in (None, run.row.run_id):
            run.task.cancel()
            await asyncio.wait([run.task])

    async def _cancel_elsewhere(self, thread_id: str, run_id: str | None) -> None:
        streams = self._saver.streams
        going_on = await streams.run(streams.open_in, thread_id)
        if run_id is None and not going_on:
            await cancel(self._saver, thread_id, ASYNC_BRIDGE)  # no server started it
        row = next((one for one in going_on if run_id in (None, one.run_id)), None)
        if row is None:
            return
        ends = partial(streams.give_up, row, CANCELLED, "cancelled")
        if row.status == QUEUED and await streams.run_and_tell(thread_id, ends, waits=True):
            return
        until, cancelled = time.monotonic() + _AWAY_SECONDS, False
        with changes(self._saver, thread_id) as changed:
            while time.monotonic() < until:
                changed.clear()
                if not cancelled and await cancel(self._saver, thread_id, ASYNC_BRIDGE):
                    cancelled = True  # before, it may not have begun yet
                    self._saver.notices.tell(self._cancelled(thread_id))
                await set_within(changed, _LOOK_SECONDS)
                now = await streams.run(streams.get, thread_id, row.run_id)
                if now is None or not now.goes_on:
                    return
        with contextlib.suppress(ThreadNotFoundError):
            await streams.run_and_tell(thread_id, streams.give_up, row, CANCELLED, "cancelled")

    async def suspend(self, seconds: float, stop_now: asyncio.Event, *, soon: bool = False) -> None:
        """Give live runs some seconds to end, or `soon` their calls, then suspend the others.

        Runs of other processes that are followed here have as long, then their readers are let go.
        """
        for run in [*self.live.values()] if soon else ():
            run.rest()
        tasks = [run.task for run in self.live.values() if run.task is not None]
        if tasks := [*tasks, *(one.task for one in followed(self._saver))]:
            ended = asyncio.ensure_future(asyncio.wait(tasks))
            waits: list[asyncio.Future[Any]] = [ended, asyncio.ensure_future(stop_now.wait())]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        for run in [*self.live.values()]:
            run.suspended = True
            if run.task is not None:
                run.task.cancel()
        if left := [run.task for run in self.live.values() if run.task is not None]:
            await asyncio.wait(left)
        let_go(self._saver)
