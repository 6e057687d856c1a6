"""Messages that this process has read, kept between the runs of a thread.

A run reads its thread's head, and from the database only the items that are not kept yet. What is
kept was decoded from committed rows, for one thread number and generation: numbers never come
again, and whatever removes rows begins a new generation. Both are read in the transaction that
reads the head, so a run never finds anything older than that head. A backup that is restored
meanwhile has old numbers and generations: once others wrote, the last kept message is compared with
its row.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from langchain_core.messages import BaseMessage

from wick_graph.constants import WARM_BYTES
from wick_graph.errors import ConfigError
from wick_graph.machine import at_fork
from wick_graph.store.digests import LANE_BITS
from wick_graph.types import MessageList

Sequence_ = list[Any]
"""A sequence's form in one lane: `[kind, [lane, start, count, …]]`."""

Decoded = tuple[list[Any], list[int]]
"""Messages, and the bytes of each as encoded."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Kept:
    """The messages of one thread: only code that changes no message may get them."""

    thread: int
    generation: int
    form: Sequence_ = field(default_factory=lambda: [0, []])
    messages: MessageList = field(default_factory=MessageList)
    ids: set[int] = field(default_factory=set)
    """The ids of the objects."""
    sizes: list[int] = field(default_factory=list)
    """Bytes of each message as encoded."""
    size: int = 0
    """Bytes of all."""

    def missing(self, form: Sequence_) -> list[tuple[int, int]] | None:
        """Return the ranges of keys behind the kept messages; None if a form is no longer list."""
        return added_ranges(self.form[1], form[1])

    def by_key(self) -> dict[int, tuple[Any, int]]:
        """Return the messages with their sizes by the keys of their items."""
        keys = (key for low, high in ranges_of(self.form[1]) for key in range(low, high + 1))
        return dict(zip(keys, zip(self.messages, self.sizes, strict=True), strict=True))

    def extend(self, form: Sequence_, messages: list[Any], sizes: list[int]) -> None:
        """Add messages behind the kept ones."""
        self.messages.push_all(messages)
        self.ids.update(map(id, messages))
        self.sizes += sizes
        self.size += sum(sizes)
        self.form = form

    def forget(self) -> None:
        """Forget the messages and their places."""
        self.clear()
        self.form = [0, []]

    def clear(self) -> None:
        """Forget the messages; a list that a run got stays as it is."""
        self.messages, self.ids, self.sizes, self.size = MessageList(), set(), [], 0


def added_ranges(old: list[int], new: list[int]) -> list[tuple[int, int]] | None:
    """Return the ranges of a lane's keys that are new in a list; None if it goes on otherwise."""
    at = len(old)
    if not at:
        return list(ranges_of(new))
    if old[:-1] != new[: at - 1] or len(new) < at or new[at - 1] < old[-1]:
        return None
    first = new[at - 2] + old[-1]
    return list(ranges_of([new[0], first, new[at - 1] - old[-1], *new[at:]]))


def ranges_of(flat: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last key of each range of a lane, without empty ones."""
    low = flat[0] << LANE_BITS if flat else 0
    for start, count in zip(flat[1::2], flat[2::2], strict=True):
        if count:
            yield low | start, low | start + count - 1


Read = Callable[[int, int], Decoded]
"""Reads and decodes the items of a range of keys."""


def read_kept(kept: Kept, form: Sequence_, read: Read) -> bool:
    """Bring kept messages up to a form; False if the list holds something else than messages."""
    ranges = kept.missing(form)
    known: dict[int, tuple[Any, int]] = {}
    if ranges is None:  # a fork, or a list without removed messages
        ranges, known = list(ranges_of(form[1])), kept.by_key()
    messages, sizes = list[Any](), list[int]()
    for first, last in ranges:
        keys = range(first, last + 1)
        if known and all(map(known.__contains__, keys)):
            made, lengths = [None] * len(keys), [0] * len(keys)
        else:
            made, lengths = read(first, last)
        for at, key in enumerate(keys if known else ()):
            if key in known:
                made[at], lengths[at] = known[key]
        messages += made
        sizes += lengths
    if not all(issubclass(kind, BaseMessage) for kind in set(map(type, messages))):
        return False
    if None in set(map(attrgetter("id"), messages)):
        return False
    if known:
        kept.clear()
    kept.extend(form, messages, sizes)
    return True


class WarmThreads:
    """The kept messages of a store's threads, up to so many bytes; the least used go first."""

    def __init__(self, limit: int = WARM_BYTES) -> None:
        if type(limit) is not int or limit < 0:
            raise ConfigError(f"warm_bytes is a number of bytes, 0 for none, not {limit!r:.80}")
        self.limit = limit
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self.size = 0

    def take(self, key: bytes, thread: int, generation: int) -> Kept:
        """Remove and return what is kept of a thread; new if that is nothing, or out of date."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size -= kept.size
            if kept.thread == thread and kept.generation == generation:
                return kept
        return Kept(thread, generation)

    def put(self, key: bytes, kept: Kept) -> None:
        """Keep the messages of a thread, unless they alone are too large."""
        if kept.size > self.limit:
            return
        self._kept[key] = kept
        self.size += kept.size
        while self.size > self.limit:
            self.size -= self._kept.popitem(last=False)[1].size

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)


# --- The garbage collector, while many messages are read.


class _Collector:
    """Puts the garbage collector off while at least one thread asks for it."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._asking = 0
        self._was_on = False

    def put_off(self) -> None:
        """Put it off, unless it is off already."""
        with self._lock:
            self._asking += 1
            if self._asking == 1:
                self._was_on = gc.isenabled()
                gc.disable()

    def go_on(self) -> None:
        """Let it go on once no thread asks any more."""
        with self._lock:
            self._asking = max(self._asking - 1, 0)
            if not self._asking and self._was_on:
                self._was_on = False
                gc.enable()

    def leave_parent(self) -> None:
        """Let it go on in a fork: who asked is not in it, and may have held the lock."""
        was_on = self._was_on
        self._begin_anew()
        if was_on:
            gc.enable()


_COLLECTOR: Final = _Collector()

at_fork(after_in_child=_COLLECTOR.leave_parent)


@contextmanager
def collector_put_off() -> Iterator[None]:
    """Put the garbage collector off while much is made that stays; several threads may do so.

    It would look through all of that again and again and free nothing of it, which is a quarter of
    the time in which a thread of 8,000 messages is read.
    """
    try:
        _COLLECTOR.put_off()
        yield
    finally:  # also if an interrupt came first: to go on too early does no harm
        _COLLECTOR.go_on()
