"""Runs that nobody has to hold on to: begun, followed, cancelled, taken up after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from wick_graph.agent import Agent
from wick_graph.errors import ThreadBusyError, ThreadNotFoundError, WickError
from wick_graph.events import Done, Event, Failed
from wick_graph.result import Result
from wick_graph.server.log import Channel, Wire
from wick_graph.server.metrics import Metrics
from wick_graph.server.options import Limits
from wick_graph.server.problems import Problem, log, shown
from wick_graph.store import SqlSaver
from wick_graph.store.streams import RUNNING, StreamRow

Kind = Literal["message", "resume"]
_NOTHING: Final = object()
CUT_OFF: Final = "the server was restarted; the step is done again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run is to do, as it is kept for the case that the server dies."""

    agent_id: str
    kind: Kind
    messages: list[dict[str, Any]] = field(default_factory=list)
    answer: Any = _NOTHING

    def to_dict(self) -> dict[str, Any]:
        """Return it as data."""
        made: dict[str, Any] = {"agent": self.agent_id, "kind": self.kind}
        if self.kind == "message":
            return {**made, "messages": self.messages}
        return made if self.answer is _NOTHING else {**made, "answer": self.answer}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Asked:
        """Undo `to_dict`."""
        return cls(
            agent_id=data["agent"],
            kind=data["kind"],
            messages=list(data.get("messages", ())),
            answer=data.get("answer", _NOTHING),
        )

    def begin(self, agent: Agent, row: StreamRow) -> AsyncIterator[Event]:
        """Begin the run."""
        config = {"metadata": {"run_id": row.run_id}}
        if self.kind == "message":
            return agent.astream(self.messages, thread_id=row.thread_id, config=config)
        given = () if self.answer is _NOTHING else (self.answer,)
        return agent.astream_resume(row.thread_id, *given, config=config)


class LiveRun:
    """A run that goes on in this process."""

    def __init__(
        self, row: StreamRow, channel: Channel, *, taken_up: bool = False, cut_off: bool = False
    ) -> None:
        self.row, self.channel = row, channel
        self._taken_up, self._cut_off = taken_up, cut_off
        self.result: Result | None = None
        self.failure: BaseException | None = None
        self.status = "running"
        self.suspended = False
        """The server is going down; the run goes on when it is back."""
        self.first = asyncio.Event()
        """It has got somewhere, or has ended."""
        self.task: asyncio.Task[None] | None = None

    async def drive(self, events: AsyncIterator[Event]) -> None:
        """Pass events on until the last one; write why the run stopped."""
        writer = asyncio.create_task(self.channel.work())
        last: Wire | None = None
        try:
            last = await self._pass_on(events)
        except asyncio.CancelledError:
            self.status = "cancelled"
            last = None if self.suspended else self._last("run cancelled")
        except Exception as error:  # the input was refused late, or the store failed
            self.failure, self.status = error, "failed"
            lost = self._taken_up and isinstance(error, ThreadBusyError)
            last = None if lost else self._last(shown(error))  # another server took it up
        try:
            if last is not None:
                await _to_the_end(self._close(last, writer))
        except WickError as error:  # its row says that it goes on, so it is taken up again
            log.error("the end of run %s cannot be written: %s", self.row.run_id, error)
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await writer
            self.first.set()

    async def _pass_on(self, events: AsyncIterator[Event]) -> Wire:
        try:
            async for event in events:
                self.first.set()
                failed = event.exception if isinstance(event, Failed) else None
                if self._taken_up and isinstance(failed, ThreadBusyError):
                    raise failed
                if self._cut_off:
                    self._cut_off = False
                    await self.channel.put(_cut_off(self.row))
                if isinstance(event, Failed):
                    self.failure, self.status = event.exception, event.stopped_because
                    cancelled = event.stopped_because == "cancelled"
                    error = event.exception or WickError(event.error)
                    return self._last("run cancelled" if cancelled else shown(error))
                wire = wire_of(event)
                if isinstance(event, Done):
                    self.result, self.status = event.result, event.stopped_because
                    return wire
                await self.channel.put(wire)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # an async generator
        raise AssertionError("a run ends with an event")

    async def _close(self, last: Wire, writer: asyncio.Task[None]) -> None:
        await self.channel.put(last)
        await writer

    def _last(self, error: str) -> dict[str, Any]:
        return {
            "event": "error",
            "run_id": self.row.run_id,
            "data": {"error": error, "stopped_because": self.status},
            "thread_id": self.row.thread_id,
        }


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
        self, agent: Agent, asked: Asked, thread_id: str, key: str | None = None
    ) -> LiveRun | StreamRow:
        """Begin a run; return the row of an earlier one that was asked for under the same key.

        Raises:
            ThreadBusyError: A run goes on in the thread.
            Problem: The key was used for something else, or too many runs go on.
        """
        async with self._alone(thread_id):
            return await self._start(agent, asked, thread_id, key)

    async def _start(
        self, agent: Agent, asked: Asked, thread_id: str, key: str | None
    ) -> LiveRun | StreamRow:
        streams, request = self._saver.streams, asked.to_dict()
        hashed = None if key is None else _hash(self._tenant, asked.agent_id, key)
        if hashed is not None and (row := await streams.run(streams.by_key, hashed)) is not None:
            return self._known(row, request)
        if thread_id in self.live:
            raise ThreadBusyError("thread is busy")
        if len(self.live) >= self._limits.runs_per_tenant:
            raise Problem(429, "too many runs go on", headers={"Retry-After": "1"})
        run_id = str(uuid.uuid4())
        most = self._limits.threads_per_tenant
        row = await streams.run(streams.begin, thread_id, run_id, request, hashed, most)
        if row is None:
            raise Problem(429, "the tenant has too many threads; delete some")
        if row.run_id != run_id:
            return self._known(row, request)
        if row.first > 1:
            await streams.run(streams.trim, thread_id, self._limits.events_kept_of_runs)
        run = LiveRun(row, Channel(self._saver, row, row.first))
        return self._drive(run, asked.begin(agent, row))

    def _known(self, row: StreamRow, request: Mapping[str, Any]) -> LiveRun | StreamRow:
        if row.asked != request:
            raise Problem(409, "the Idempotency-Key was used for another request")
        return self.live[row.thread_id] if self._is_live(row) else row

    async def recover(self, agent: Agent, row: StreamRow) -> LiveRun | None:
        """Take up a run that a dead server left; None where it has ended, or somebody has it.

        Raises:
            ThreadBusyError: It goes on in another process.
            ThreadNotFoundError: Its thread was deleted.
        """
        streams = self._saver.streams
        async with self._alone(row.thread_id):
            now = await streams.run(streams.get, row.thread_id, row.run_id)
            if row.thread_id in self.live or now is None or now.status != RUNNING:
                return None
            await streams.run(streams.check_free, row.thread_id)
            return await self._take_up(agent, row)

    async def _take_up(self, agent: Agent, row: StreamRow) -> LiveRun:
        streams, asked = self._saver.streams, Asked.from_dict(row.asked)
        threads = self._saver.threads
        began = row.thread_id in await streams.run(threads.of_runs, [row.run_id])
        again = Asked(agent_id=asked.agent_id, kind="resume") if began else asked
        last = await streams.run(streams.last, row.thread_id)
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

    async def cancel(self, thread_id: str) -> bool:
        """End the run of a thread and wait for its end; False if none goes on here."""
        run = self.live.get(thread_id)
        if run is None or run.task is None:
            return False
        run.task.cancel()
        await asyncio.wait([run.task])
        return True

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


def wire_of(event: Event) -> dict[str, Any]:
    """Return an event as readers get it."""
    made = event.to_dict()
    if isinstance(event, Done):
        ids = {"trace_id": event.run_id, "thread_id": event.thread_id}
        made["data"] = {**ids, **made.get("data", {})}
    return made


def _cut_off(row: StreamRow) -> dict[str, Any]:
    return {
        "event": "on_chat_model_retry",
        "run_id": row.run_id,
        "data": {"error": CUT_OFF, "delay": 0},
        "thread_id": row.thread_id,
    }


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish what must not be left half done: a cancellation that comes now comes too late."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()


def _hash(*parts: str) -> bytes:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).digest()


async def reaches(run: LiveRun, seconds: float = 0.5) -> None:
    """Wait until a run got somewhere, a while at most.

    Raises:
        ThreadBusyError: Another process had the thread.
        ThreadNotFoundError: There is nothing to go on with.
        WickError: What was asked for is refused.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await run.first.wait()
    if isinstance(run.failure, ThreadBusyError | ThreadNotFoundError) and run.result is None:
        raise run.failure
