"""The event log of a run: events are numbered, and stored before readers get them.

Every number that a reader has seen is in the database. So a reader that reconnects, to this
process or another, continues exactly after it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from wick_graph.errors import ThreadBusyError, ThreadNotFoundError
from wick_graph.events import CANCELLED
from wick_graph.store import SqlSaver
from wick_graph.store.queued import BEHIND
from wick_graph.store.server_rows import StreamRow

TERMINAL: Final = frozenset({"done", "error"})
"""The event that ends a run; each run has exactly one."""

_TEXT: Final = "on_chat_model_stream"

_WAITING: Final = 256
"""Unwritten events at which the run waits for the writer."""

_TAIL: Final = 512
"""Events of a running run to keep in memory."""

_PAGES_A_SECOND: Final = 500
"""Writes of text alone by all runs of this process; with more runs, text gathers longer."""

_LONGEST: Final = 0.5
"""Most seconds that a piece of text waits for others."""

_POLL: Final = 0.125
"""Half of the seconds until a silent run of another process is polled for the first time."""

_SLOWEST: Final = 2.0
"""Most seconds between two polls without notices."""

_NOTIFIED: Final = 15.0
"""Seconds between two polls with notices; one may be lost."""

Wire = Mapping[str, Any]


class EventLog:
    """The events of one run, on their way to the database and its readers.

    `put` queues an event; `work` numbers and writes all queued events at once, then notifies the
    readers. Adjacent pieces of queued text are joined. If many runs are live, text waits a moment
    for more text; no other event waits.
    """

    _at_work: ClassVar[int] = 0
    """Event logs of this process that are being written."""

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
        """The error that stopped the writer."""

    async def put(self, event: Wire) -> None:
        """Queue an event; wait while too many are queued."""
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
        """Wake the writer, now or when text may be written again."""
        loop = asyncio.get_running_loop()
        if event["event"] != _TEXT or loop.time() >= self._due or not self._room.is_set():
            self._wake.set()
        elif self._timer is None:
            self._timer = loop.call_at(self._due, self._wake.set)

    async def work(self) -> None:
        """Write queued events until the run's last event is written."""
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
        if not new:
            return
        if any(event["event"] == _TEXT for event in new):  # only text behind text waits
            pause = min(_LONGEST, EventLog._at_work / _PAGES_A_SECOND)
            self._rest(asyncio.get_running_loop().time() + pause)
        first = self._next
        self._next += len(new)
        streams, last = self.saver.streams, self._next - 1
        ends = new[-1]["event"] in TERMINAL
        status = new[-1]["data"]["stopped_because"] if ends else None
        thread = self.row.thread_id
        await streams.run_and_tell(thread, streams.append, self.row, last, new, status)
        self._tail.extend(enumerate(new, first))
        self.ended = ends
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def since(self, after: int) -> list[tuple[int, Wire]] | None:
        """Return the written events after a number; None if they are not in memory."""
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
    def over(self) -> bool:
        """Whether no more is written: the run has ended, or the writer has stopped."""
        return self.ended or self.broken is not None

    def news(self) -> asyncio.Event:
        """Return an event that is set at the next write."""
        return self._news


class FollowedRun:
    """The events of a run of another process, read once for all that follow it here.

    A notice says that there may be new ones. Without notices the run is polled, ever slower while
    nothing happens.
    """

    def __init__(self, saver: SqlSaver, row: StreamRow, after: int) -> None:
        self._saver, self._row, self._last = saver, row, after
        self._tail: deque[tuple[int, Wire]] = deque(maxlen=_TAIL)
        self._news = asyncio.Event()
        self.readers = 0
        self.over = False
        """The run has ended and its events have been read, or they cannot be."""
        self.failure: Exception | None = None
        """Why it cannot be read any more."""
        self.task = asyncio.create_task(self._work(), name=f"follow run {row.run_id}")

    async def _work(self) -> None:
        streams, notices = self._saver.streams, self._saver.notices
        try:
            with changes(self._saver, self._row.thread_id) as changed:
                pause = _POLL
                while not self.over:
                    changed.clear()
                    found, goes_on = await streams.run(streams.look, self._row, self._last)
                    self._tail.extend(found)
                    self._last = self._tail[-1][0] if found else self._last
                    self.over = not found and not goes_on
                    if found or self.over:
                        pause = _POLL
                        self._announce()
                    elif goes_on:
                        pause = _NOTIFIED if notices.works else min(2 * pause, _SLOWEST)
                        await set_within(changed, pause)
        except Exception as error:  # each reader gets it; a run that was deleted is over
            self.failure = None if isinstance(error, ThreadNotFoundError) else error
            self.over = True
            self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def since(self, after: int) -> list[tuple[int, Wire]] | None:
        """Return the events after a number; None if they are not in memory.

        Raises:
            WickError: They cannot be read.
        """
        if self.failure is not None:
            raise self.failure
        if after >= BEHIND > self._last:
            return None  # the run has begun meanwhile
        if after >= self._last:
            return []
        if not self._tail or self._tail[0][0] > after + 1:
            return None
        return [entry for entry in self._tail if entry[0] > after]

    def news(self) -> asyncio.Event:
        """Return an event that is set when there are more, or the run is over."""
        return self._news

    def stop(self) -> None:
        """End the reading, and the streams of all that follow it."""
        self.task.cancel()
        self.over = True
        self._announce()


_waits: Final[WeakKeyDictionary[SqlSaver, set[asyncio.Event]]] = WeakKeyDictionary()
"""By store: what is set when a thread may have changed."""

_Followed = dict[tuple[int, str], FollowedRun]

_followed: Final[WeakKeyDictionary[SqlSaver, _Followed]] = WeakKeyDictionary()
"""By store, loop and run: the runs of other processes that have readers here."""


def followed(saver: SqlSaver) -> list[FollowedRun]:
    """Return the runs of other processes that are followed here."""
    return [*_followed.get(saver, {}).values()]


def let_go(saver: SqlSaver) -> None:
    """End the streams that follow what other processes do; this one stops."""
    for run in followed(saver):
        run.stop()
    for event in _waits.get(saver, ()):
        event.set()


@contextmanager
def following(saver: SqlSaver, row: StreamRow, after: int) -> Iterator[FollowedRun]:
    """Follow a run of another process together with its other readers here."""
    runs = _followed.setdefault(saver, {})
    key = id(asyncio.get_running_loop()), row.run_id
    if key not in runs or runs[key].failure is not None:
        runs[key] = FollowedRun(saver, row, after)
    run = runs[key]
    run.readers += 1
    try:
        yield run
    finally:
        run.readers -= 1
        if not run.readers:
            run.stop()
            if runs.get(key) is run:
                del runs[key]


@contextmanager
def changes(saver: SqlSaver, thread_id: str) -> Iterator[asyncio.Event]:
    """Give an event that is set when a thread's runs, or their events, may have changed."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()

    def told() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(event.set)

    waits = _waits.setdefault(saver, set())
    waits.add(event)
    try:
        with saver.notices.listening(saver.streams.topic(thread_id), told):
            yield event
    finally:
        waits.discard(event)


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, for some seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


Page = list[tuple[int, Wire]]


async def events_after(
    saver: SqlSaver, row: StreamRow, after: int, event_log: EventLog | None
) -> AsyncIterator[tuple[int, Wire] | None]:
    """Yield a run's events after a number up to the last one; None is a pause.

    Follows a run of this process live, and one of another process by notices and rows. If the last
    event of an ended run is no longer kept, it is rebuilt from the run's row.
    """
    async with aclosing(_pages(saver, row, after, event_log)) as pages:
        async for page in pages:
            for entry in page:
                yield entry
            if not page:
                yield None
            elif page[-1][1]["event"] in TERMINAL:
                return
            else:
                after = page[-1][0]
    if (end := await _end(saver, row, after)) is not None:
        yield end


async def _pages(
    saver: SqlSaver, row: StreamRow, after: int, source: EventLog | FollowedRun | None
) -> AsyncGenerator[Page]:
    """Yield a run's events after a number in pages; an empty one is a pause."""
    with ExitStack() as stack:
        while True:
            if isinstance(source, EventLog) and source.overtaken:
                source = None
            news, over, page = None, False, None
            if source is not None:
                news, over, page = source.news(), source.over, source.since(after)
            if page is None:
                try:
                    page, goes_on = await saver.streams.run(saver.streams.look, row, after)
                except ThreadNotFoundError:  # it was deleted meanwhile
                    return
                over = over or not goes_on
            if page:
                yield page
                after = page[-1][0]
                continue
            if over:
                return
            yield page or []
            if news is not None:
                await news.wait()
            else:
                source = stack.enter_context(following(saver, row, after))


async def _end(saver: SqlSaver, row: StreamRow, after: int) -> tuple[int, Wire] | None:
    """Rebuild the last event of a run if its events are no longer kept; None if it was seen."""
    streams = saver.streams
    now = await streams.run(streams.get, row.thread_id, row.run_id)
    if now is None or now.goes_on:
        return None
    number, failed = await streams.run(streams.last, now), now.status in ("cancelled", "failed")
    data: dict[str, Any] = {"stopped_because": now.status}
    if failed:
        gone = f"the run has ended: {now.status}; its events are no longer kept"
        data["error"] = CANCELLED if now.status == "cancelled" else gone
    else:
        spent = 1000 * ((now.ended or now.started) - now.started)
        data |= {"stop_reason": now.status, "total_duration_ms": round(spent)}
        data |= {"trace_id": row.run_id, "thread_id": row.thread_id}
    event = row.tell("error" if failed else "done", data)
    return (number, event) if number > after or after >= BEHIND else None


def _joins(last: Wire, event: Wire) -> bool:
    if event["event"] != _TEXT or last["event"] != _TEXT or last.get("name") != event.get("name"):
        return False
    return bool(last["data"].get("message_id") == event["data"].get("message_id"))


def _join(last: dict[str, Any], event: Wire) -> None:
    """Add a piece to the one before; nothing that a piece says is lost."""
    old, new = last["data"], event["data"]
    text = old["delta"] + new["delta"]
    last["data"] = {**old, **new, "delta": text, "chunk": {"content": text}}
    for name in ("reasoning", "calls"):
        if name in old and name in new:
            last["data"][name] = old[name] + new[name]


# --- The event bus of a tenant: changes of its agents, runs and containers.
#
# The latest events are in memory. Readers fetch them, so a slow reader delays no other: it misses
# the oldest ones, and gets a `gap` event.


_KEPT: Final = 512
"""Latest events of a tenant to keep in memory."""

Numbered = tuple[int | None, Wire]


class EventBus:
    """The latest events of one tenant in this process.

    Their numbers grow, also from one server process to the next: a number is the time in
    milliseconds, or the next free one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[tuple[int, Wire]] = deque()
        self._last = self._gone = time.time_ns() // 1_000_000
        """The last number that was given, and the last one that is not kept."""
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False

    def tell(self, event: str, **data: Any) -> None:
        """Add an event; any thread may call this."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1_000_000)
            if len(self._kept) == _KEPT:
                self._gone = self._kept.popleft()[0]
            self._kept.append((self._last, {"event": event, "data": data}))
            self._wake()

    def close(self) -> None:
        """End the streams of all readers."""
        with self._lock:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        for news, loop in self._readers.items():
            with suppress(RuntimeError):  # the reader's loop has ended
                loop.call_soon_threadsafe(news.set)

    async def follow(self, after: int | None) -> AsyncIterator[Numbered | None]:
        """Yield the events after a number, or a `connected` event and those from now on.

        None is a pause. A `gap` event comes first if some of them are no longer kept.
        """
        news = asyncio.Event()
        with self._lock:
            self._readers[news] = asyncio.get_running_loop()
            at = self._last if after is None else after
        try:
            if after is None:
                yield at, {"event": "connected", "data": {}}
            while True:
                news.clear()
                with self._lock:
                    found, over = self._since(at), self._closed
                for number, event in found:
                    at = at if number is None else number
                    yield number, event
                if over and not found:
                    return
                if not found:
                    yield None
                    await news.wait()
        finally:
            with self._lock:
                del self._readers[news]

    def after(self, number: int | None) -> tuple[int, list[Wire]]:
        """Return the last number, and the events after one; `connected` alone for None."""
        with self._lock:
            if number is None:
                return self._last, [{"event": "connected", "data": {}}]
            return self._last, [event for _, event in self._since(number)]

    def _since(self, after: int) -> list[Numbered]:
        """List the events after a number; the first is a `gap` if some of them are not kept."""
        first = self._kept[0][0] if self._kept else self._last + 1
        if self._gone <= after <= self._last:
            return [entry for entry in self._kept if entry[0] > after]
        gap: Wire = {"event": "gap", "data": {"after": after, "next": first}}
        # its number is the one before the first event that is kept: no reader misses it again
        return [(self._gone, gap), *self._kept]
