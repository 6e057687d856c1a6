"""One detached run: its place among those that open, and its way to the last event.

A run opens until it waits for its model. Runs that open all at once share the processor, and all
say their first word when the last one has opened. So few of a tenant open at a time, in the order
in which they came. A run that has said its first word does nothing more until all have opened that
had come by then. It waits so once, and not for those that come later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from wick_graph.core.stopping import WATCH, Stopwatch
from wick_graph.engine.result import Result
from wick_graph.engine.streaming import PAUSE, Pause
from wick_graph.errors import ThreadBusyError, ThreadNotFoundError, WickError
from wick_graph.events import CANCELLED, Done, Event, Failed
from wick_graph.service.event_log import EventLog, Wire
from wick_graph.service.options import log, public_message
from wick_graph.store.server_rows import StreamRow

# --- The order in which runs open.


MOST: Final = 32
"""The most runs that open at a time; they share commits."""

SLOW: Final = 0.5
"""Seconds after which a run that still opens keeps no others: its hooks may wait for something."""

LOOK: Final = 0.05
"""Seconds between two looks whether the process has time for more of them."""

BUSY: Final = 0.7
"""The part of a processor from which it has none."""

_LATE: Final = 5.0
"""Seconds after which a look does not come any more."""


class Opening:
    """One run's place in the order."""

    __slots__ = ("_openings", "_timer", "number", "turn")

    def __init__(self, openings: Openings, number: int) -> None:
        self._openings, self.number = openings, number
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Give it its turn, which ends after a while in any case."""
        self.turn.set_result(None)
        self._timer = asyncio.get_running_loop().call_later(SLOW, self.end)

    def end(self) -> None:
        """End its turn: it waits for its model, or has ended; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._openings.ended(self)

    def when_others_have(self, then: Callable[[], None]) -> bool:
        """Call when all have opened that have come by now; return False if they have already."""
        return self._openings.when_opened(self._openings.newest, then)


class Openings:
    """The runs of a tenant that open, or wait for it."""

    def __init__(self) -> None:
        self.newest = 0
        """The number of the run that came last."""
        self._under_way: dict[int, Opening] = {}
        """By number, in the order in which they came; those that wait among them."""
        self._waiting: deque[Opening] = deque()
        self._opening = 0
        self._told: deque[tuple[int, Callable[[], None]]] = deque()
        """What is called when all up to a number have opened, in the order of the numbers."""
        self._looked: tuple[float, float] | None = None

    def come(self) -> Opening:
        """Take a place in the order."""
        self.newest += 1
        made = self._under_way[self.newest] = Opening(self, self.newest)
        self._waiting.append(made)
        self._next(MOST)
        if self._waiting and not self._looks():
            self._look()
        return made

    def _looks(self) -> bool:
        """Return whether a look is due; one that is long overdue was in a loop that has ended."""
        return self._looked is not None and time.monotonic() - self._looked[0] < _LATE

    def ended(self, one: Opening) -> None:
        """Note that one has opened, and begin the next."""
        if self._under_way.pop(one.number, None) is None:
            return
        if one.turn.done() and not one.turn.cancelled():
            self._opening -= 1
        self._next(MOST)
        oldest = next(iter(self._under_way), self.newest + 1)
        while self._told and self._told[0][0] < oldest:
            self._told.popleft()[1]()

    def when_opened(self, number: int, then: Callable[[], None]) -> bool:
        """Call when all up to a number have opened; return False if they have already."""
        if next(iter(self._under_way), number + 1) > number:
            return False
        self._told.append((number, then))
        return True

    def _look(self) -> None:
        """Let more open if those that do leave the processor time: their hooks wait, say."""
        now = time.monotonic(), time.process_time()
        if self._looked is not None:
            (then, used), (here, spent) = self._looked, now
            if spent - used < BUSY * (here - then):
                self._next(self._opening + MOST)
        self._looked = now if self._waiting else None
        if self._waiting:
            asyncio.get_running_loop().call_later(LOOK, self._look)

    def _next(self, most: int) -> None:
        while self._waiting and self._opening < most:
            one = self._waiting.popleft()
            if not one.turn.done():
                self._opening += 1
                one.begin()


# --- A run that does not depend on a connection.


_FIRST_WORD: Final = frozenset({"on_chat_model_stream", "on_chat_model_end"})
"""Events by which a run has said its first word, or its model has said none."""

CUT_OFF: Final = "the server was restarted; the step is done again"

_OF_A_CALL: Final = frozenset({"on_chat_model_start", "on_chat_model_stream", "on_chat_model_end"})
"""Events of a model's call; after the last of them, its reply may not have been stored."""

_AFTER_IT: Final = frozenset({"on_tool_start", "on_tool_end", "on_chat_model_retry"})
"""Events that come once the reply of a call is stored, or that void it."""


def is_in_a_call(events: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether these last events of a run end within a model's call, or just behind it."""
    kinds = [event["event"] for event in events if event["event"] in _OF_A_CALL | _AFTER_IT]
    return bool(kinds) and kinds[-1] in _OF_A_CALL


class DetachedRun:
    """A run in this process that does not depend on a client connection."""

    def __init__(
        self,
        row: StreamRow,
        event_log: EventLog,
        *,
        recovered: bool = False,
        cut_off: bool = False,
        opening: Opening | None = None,
    ) -> None:
        self.row, self.event_log = row, event_log
        self._opening = opening
        """Its place in the order of openings; None for a run that opens beside all others."""
        self._pause, self._clock = Pause(), Stopwatch()
        self.recovered, self._cut_off = recovered, cut_off
        self.result: Result | None = None
        self.failure: BaseException | None = None
        self.status = "running"
        self.suspended = False
        """Whether the server has suspended the run; it resumes after a restart."""
        self.draining = False
        """Whether the run is suspended before its next model call."""
        self.first = asyncio.Event()
        """Set at the run's first event or its end."""
        self.task: asyncio.Task[None] | None = None

    async def drive(self, events: AsyncIterator[Event]) -> None:
        """Put the run's events into the log; log its end even if it fails or is cancelled."""
        writer = asyncio.create_task(self.event_log.work())
        PAUSE.set(self._pause)
        WATCH.set(self._clock)
        last: Wire | None = None
        try:
            last = await self._pass_on(events)
        except asyncio.CancelledError:
            self.status = "cancelled"
            last = None if self.suspended else self._last(CANCELLED)
        except Exception as error:  # the input was refused late, or the store failed
            self.failure, self.status = error, "failed"
            lost = self.recovered and isinstance(error, ThreadBusyError)
            last = None if lost else self._last(public_message(error))  # another server has the run
        try:
            if last is not None:
                await _to_the_end(self._close(last, writer))
        except ThreadBusyError as error:  # another server has written its end
            log.info("%s", error)
        except WickError as error:  # its row says that it is running, so it will be recovered
            log.error("the end of run %s cannot be written: %s", self.row.run_id, error)
            last = None
        finally:
            self.let_go()
            if last is None:
                await _to_the_end(self._leave())
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await writer
            self.first.set()

    async def _void(self, kind: str) -> None:
        """Say that the pieces of a call are void if it is made again, before its first event."""
        if not self._cut_off or kind not in _OF_A_CALL | _AFTER_IT:
            return
        self._cut_off = False
        if kind in _OF_A_CALL:
            cut_off = {"error": CUT_OFF, "delay": 0}
            await self.event_log.put(self.row.tell("on_chat_model_retry", cut_off))

    async def _pass_on(self, events: AsyncIterator[Event]) -> Wire:
        try:
            if self.waits and self._opening is not None:
                await self._opening.turn
                await self._must_go_on()
            async for event in events:
                self.first.set()
                failed = event.exception if isinstance(event, Failed) else None
                if self.recovered and isinstance(failed, ThreadBusyError):
                    raise failed
                if isinstance(event, Failed):
                    self.failure, self.status = event.exception, event.stopped_because
                    cancelled = event.stopped_because == "cancelled"
                    error = event.exception or WickError(event.error)
                    return self._last(CANCELLED if cancelled else public_message(error))
                wire = wire_of(event)
                if isinstance(event, Done):
                    self.status, self.result = event.stopped_because, event.result
                    return wire
                await self._void(wire["event"])
                await self.event_log.put(wire)
                if self._opening is not None:
                    self._open(self._opening, wire["event"])
                if self.draining and wire["event"] == "on_chat_model_start":
                    self._suspend()  # all steps before it are stored
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # an async generator
        raise AssertionError("a run ends with an event")

    @property
    def waits(self) -> bool:
        """Whether it waits to open, and so has written nothing to its thread."""
        return self._opening is not None and not self._opening.turn.done()

    async def _must_go_on(self) -> None:
        """Stop if it was cancelled from elsewhere while it waited, which no notice says."""
        streams, row = self.event_log.saver.streams, self.row
        now = await streams.run(streams.get, row.thread_id, row.run_id)
        if now is None or not now.goes_on:
            raise asyncio.CancelledError

    def let_go(self) -> None:
        """Keep no other run from opening: this one has ended, or will never begin."""
        if self._opening is not None:
            self._opening.end()

    def _open(self, opening: Opening, event: str) -> None:
        """End its turn when it waits for the model; hold it behind its first word for others."""
        opening.end()
        if event in _FIRST_WORD:
            self._opening = None
            if opening.when_others_have(self._go_on):
                self._clock.hold()
                self._pause.hold()

    def _go_on(self) -> None:
        self._clock.go()
        self._pause.go()

    def rest(self) -> None:
        """Suspend the run when the calls that are under way have ended."""
        self.draining = True
        if not self.first.is_set():  # nothing is under way
            self._suspend()

    def _suspend(self) -> None:
        if not self.suspended and self.task is not None:
            self.suspended = True
            self.task.cancel()

    async def _leave(self) -> None:
        """Let any server recover the run."""
        streams = self.event_log.saver.streams
        with contextlib.suppress(WickError):  # then it is recovered after this process ends
            await streams.run(streams.leave, self.row)

    async def _close(self, last: Wire, writer: asyncio.Task[None]) -> None:
        await self.event_log.put(last)
        await writer

    def _last(self, error: str) -> dict[str, Any]:
        return self.row.tell("error", {"error": error, "stopped_because": self.status})


def row_of(run: DetachedRun | StreamRow) -> StreamRow:
    """Return the row of a run, wherever it goes on."""
    return run.row if isinstance(run, DetachedRun) else run


async def wait_for_start(run: DetachedRun, seconds: float = 0.5) -> None:
    """Wait for a run's first event or its end, for `seconds` at most.

    Raises:
        ThreadBusyError: Another process has the thread.
        ThreadNotFoundError: There is nothing to resume.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await run.first.wait()
    if isinstance(run.failure, ThreadBusyError | ThreadNotFoundError) and run.result is None:
        raise run.failure


def wire_of(event: Event) -> dict[str, Any]:
    """Convert an event to the form that readers get."""
    made = event.to_dict()
    if isinstance(event, Done):
        more: dict[str, Any] = {"trace_id": event.run_id, "thread_id": event.thread_id}
        if event.result is not None:  # for who reads the result from the store
            more["usage"] = event.result.usage.to_dict()
        made["data"] = {**more, **made.get("data", {})}
    return made


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish some work even if the current task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()
