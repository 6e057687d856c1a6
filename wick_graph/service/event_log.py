"""A thread's events as a reader gets them: numbered, written down before anybody is told.

A number that a reader has seen is in the database. So a reader who comes back, to this process or
to the next one, goes on exactly behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Final

from wick_graph.errors import ThreadBusyError
from wick_graph.events import CANCELLED
from wick_graph.store import SqlSaver
from wick_graph.store.server_rows import RUNNING, StreamRow

TERMINAL: Final = frozenset({"done", "error"})
"""The event that ends a run; each run has exactly one."""

_TEXT: Final = "on_chat_model_stream"

_WAITING: Final = 256
"""Events that wait to be written before the run waits."""

_TAIL: Final = 512
"""Events of a running run that are kept in memory."""

_PAGES_A_SECOND: Final = 500
"""That the runs of this process write of text alone: the more runs, the longer pieces gather."""

_LONGEST: Final = 0.5
"""Seconds that a piece of text waits for others at most."""

_POLL: Final = 0.25
"""Seconds between two looks at a run that goes on in another process."""

Wire = Mapping[str, Any]


class EventLog:
    """The events of one run, from the run to the database and its readers.

    `put` numbers an event and takes it over; `work` writes what came, as much at once as there
    is, and then tells the readers. Pieces of text that wait together become one piece; where many
    runs go on, text that comes soon after other text waits a moment for more. Nothing else waits.
    """

    _at_work: ClassVar[int] = 0
    """The channels of this process that write."""

    def __init__(self, saver: SqlSaver, row: StreamRow, next_number: int) -> None:
        self.saver, self.row = saver, row
        self._next = next_number
        self._new: list[dict[str, Any]] = []
        self._tail: deque[tuple[int, Wire]] = deque(maxlen=_TAIL)
        self._wake = asyncio.Event()
        self._due = 0.0
        """When text may be written again, by the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._news = asyncio.Event()
        self.ended = False
        """The last event is written."""
        self.broken: BaseException | None = None
        """Why nothing can be written any more."""

    async def put(self, event: Wire) -> None:
        """Take over an event; wait while too many are on their way."""
        await self._room.wait()
        if self.broken is not None:
            raise self.broken
        last = self._new[-1] if self._new else None
        if last is not None and _joins(last, event):
            _join(last, event)
        else:
            self._new.append({**event})
        if len(self._new) >= _WAITING:
            self._room.clear()
        self._call(event)

    def _call(self, event: Wire) -> None:
        """Wake the writer, or let it be woken when text may be written again."""
        loop = asyncio.get_running_loop()
        if event["event"] != _TEXT or loop.time() >= self._due or not self._room.is_set():
            self._wake.set()
        elif self._timer is None:
            self._timer = loop.call_at(self._due, self._wake.set)

    async def work(self) -> None:
        """Write what comes until the run's last event is written."""
        EventLog._at_work += 1
        try:
            while not self.ended:
                await self._wake.wait()
                self._wake.clear()
                await self._write()
        except BaseException as error:
            self.broken = error
            raise
        finally:
            EventLog._at_work -= 1
            self._rest(0.0)
            self._room.set()
            self._announce()

    def _rest(self, until: float) -> None:
        self._due = until
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self) -> None:
        new, self._new = self._new, []
        self._room.set()
        pause = min(_LONGEST, EventLog._at_work / _PAGES_A_SECOND)
        self._rest(asyncio.get_running_loop().time() + pause)
        if not new:
            return
        first = self._next
        self._next += len(new)
        streams, last = self.saver.streams, self._next - 1
        ends = new[-1]["event"] in TERMINAL
        status = new[-1]["data"]["stopped_because"] if ends else None
        await streams.run(streams.append, self.row, last, new, status)
        self._tail.extend(enumerate(new, first))
        self.ended = ends
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def since(self, after: int) -> list[tuple[int, Wire]] | None:
        """Return the written events behind a number, None where they are not in memory."""
        if after >= self._next - 1:
            return []
        if not self._tail or self._tail[0][0] > after + 1:
            return None
        return [entry for entry in self._tail if entry[0] > after]

    @property
    def overtaken(self) -> bool:
        """Whether another server has ended the run; its end is in the database."""
        return isinstance(self.broken, ThreadBusyError)

    @property
    def stopped(self) -> bool:
        """Whether nothing is written any more, here or elsewhere, until the run is taken up."""
        return self.broken is not None and not self.overtaken

    def news(self) -> asyncio.Event:
        """Return what is set when more is written."""
        return self._news


async def events_after(
    saver: SqlSaver, row: StreamRow, after: int, event_log: EventLog | None
) -> AsyncIterator[tuple[int, Wire] | None]:
    """Yield a run's events behind a number, to its last one; None is a pause.

    Follows a run of this process as it goes, and one of another process by looking again. Where
    the last event of a run that has ended is no longer kept, it is made from what the row says.
    """
    streams, over = saver.streams, False
    while True:
        if event_log is not None and event_log.overtaken:
            event_log = None
        over = over or (event_log is not None and event_log.ended)
        news = event_log.news() if event_log is not None else None
        stopped = event_log is not None and event_log.stopped
        found = event_log.since(after) if event_log is not None else None
        if found is None:
            found = await streams.run(streams.read, row.thread_id, after, row)
        for number, event in found:
            after = number
            yield number, event
            if event["event"] in TERMINAL:
                return
        if found:
            continue
        if over and (end := await _end(saver, row, after)) is not None:
            yield end
        if over or stopped:
            return
        yield None
        if news is not None:
            await news.wait()
        else:  # its end may come between two looks
            over = await _has_ended(saver, row)
            await asyncio.sleep(0 if over else _POLL)


async def _has_ended(saver: SqlSaver, row: StreamRow) -> bool:
    now = await saver.streams.run(saver.streams.get, row.thread_id, row.run_id)
    return now is None or now.status != RUNNING


async def _end(saver: SqlSaver, row: StreamRow, after: int) -> tuple[int, Wire] | None:
    """Make the last event of a run whose events are no longer kept; None if it was seen."""
    streams = saver.streams
    now = await streams.run(streams.get, row.thread_id, row.run_id)
    if now is None or now.status == RUNNING:
        return None
    number, failed = await streams.run(streams.last, row), now.status in ("cancelled", "failed")
    data: dict[str, Any] = {"stopped_because": now.status}
    if failed:
        gone = f"the run has ended: {now.status}; its events are no longer kept"
        data["error"] = CANCELLED if now.status == "cancelled" else gone
    else:
        spent = 1000 * ((now.ended or now.started) - now.started)
        data |= {"stop_reason": now.status, "total_duration_ms": round(spent)}
        data |= {"trace_id": row.run_id, "thread_id": row.thread_id}
    event = row.tell("error" if failed else "done", data)
    return (number, event) if number > after else None


def _joins(last: Wire, event: Wire) -> bool:
    return event["event"] == _TEXT == last["event"] and last.get("name") == event.get("name")


def _join(last: dict[str, Any], event: Wire) -> None:
    text = last["data"]["delta"] + event["data"]["delta"]
    last["data"] = {"delta": text, "chunk": {"content": text}}
