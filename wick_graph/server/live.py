"""One run that nobody has to hold on to: what was asked for, and its way to its last event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from wick_graph.agent import Agent
from wick_graph.errors import ThreadBusyError, ThreadNotFoundError, WickError
from wick_graph.events import CANCELLED, Done, Event, Failed
from wick_graph.result import Result
from wick_graph.server.log import Channel, Wire
from wick_graph.server.problems import log, shown
from wick_graph.store.keeping.streams import StreamRow

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
    force: bool = False
    """The thread is pardoned. It was asked for once: a server that was killed keeps no order to."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as data."""
        made: dict[str, Any] = {"agent": self.agent_id, "kind": self.kind}
        if self.kind == "message":
            return {**made, "messages": self.messages}
        if self.force:
            made["force"] = True
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
        return agent.astream_resume(row.thread_id, *given, config=config, force=self.force)


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
            last = None if self.suspended else self._last(CANCELLED)
        except Exception as error:  # the input was refused late, or the store failed
            self.failure, self.status = error, "failed"
            lost = self._taken_up and isinstance(error, ThreadBusyError)
            last = None if lost else self._last(shown(error))  # another server took it up
        try:
            if last is not None:
                await _to_the_end(self._close(last, writer))
        except ThreadBusyError as error:  # another server has told the readers how it ended
            log.info("%s", error)
        except WickError as error:  # its row says that it goes on, so it is taken up again
            log.error("the end of run %s cannot be written: %s", self.row.run_id, error)
            last = None
        finally:
            if last is None:
                await _to_the_end(self._leave())
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
                    cut_off = {"error": CUT_OFF, "delay": 0}
                    await self.channel.put(self.row.tell("on_chat_model_retry", cut_off))
                if isinstance(event, Failed):
                    self.failure, self.status = event.exception, event.stopped_because
                    cancelled = event.stopped_because == "cancelled"
                    error = event.exception or WickError(event.error)
                    return self._last(CANCELLED if cancelled else shown(error))
                wire = wire_of(event)
                if isinstance(event, Done):
                    self.status, self.result = event.stopped_because, event.result
                    return wire
                await self.channel.put(wire)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # an async generator
        raise AssertionError("a run ends with an event")

    async def _leave(self) -> None:
        """Let any server take the run up."""
        streams = self.channel.saver.streams
        with contextlib.suppress(WickError):  # then it is taken up when this process is gone
            await streams.run(streams.leave, self.row)

    async def _close(self, last: Wire, writer: asyncio.Task[None]) -> None:
        await self.channel.put(last)
        await writer

    def _last(self, error: str) -> dict[str, Any]:
        return self.row.tell("error", {"error": error, "stopped_because": self.status})


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


def wire_of(event: Event) -> dict[str, Any]:
    """Return an event as readers get it."""
    made = event.to_dict()
    if isinstance(event, Done):
        ids = {"trace_id": event.run_id, "thread_id": event.thread_id}
        made["data"] = {**ids, **made.get("data", {})}
    return made


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish what must not be left half done: a cancellation that comes now comes too late."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()
