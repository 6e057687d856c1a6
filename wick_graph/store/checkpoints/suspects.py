"""Suspects: runs whose process died, which may have killed it, or may only have been in it.

A death says nothing of the run that caused it: every unfinished run of the process is a suspect,
and none is charged. A process then runs one suspect at a time beside its other runs, so a death
while a suspect runs alone tells something of that one, and it alone is charged. Whatever is newly
recorded in its thread clears it. A suspect that was charged waits before it is tried again.

Everything that outlives a process stands in the row of the lease:

- `until` > 0: the lease is held, or its owner died; 0: it was given back; < 0: its owner died and
  was judged, and its negative is the moment before which the run is not tried again;
- `tries`: the charges, n, of a run; ~n while it runs alone;
- `head`: a mark of what was recorded when the suspect began; NULL for all other runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import func, select

from wick_graph.store.database import sql
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema import calls, threads, writes

MAX_CHARGES: Final = 3
"""Deaths of a process while a run was alone in it, without progress, that poison its thread."""
BACKOFF_SECONDS: Final = (0.0, 1.0, 5.0)
"""How long a run waits before it is tried again, by its charges."""
POLITE_SECONDS: Final = 0.25
"""How long a suspect lets others go first, for each of its charges."""
_LOOK_SECONDS: Final = 0.1
_DEEP: Final = 16
_MARK_BYTES: Final = 12


class Suspected(Exception):
    """Signal that a thread's run is a suspect: it needs the place for suspects."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands that is to go on in a thread."""

    suspect: bool = False
    charges: int = 0
    due: float = 0.0
    """The moment before which it is not tried again, by the store's clock."""
    mark: bytes | None = None
    """What is recorded of its thread."""
    new: bool = False
    """It was charged just now: the row of the lease does not say so yet."""

    @property
    def waits(self) -> bool:
        """Whether it needs the place; one that is poisoned is refused, and needs none."""
        return self.suspect and self.charges < MAX_CHARGES


INNOCENT: Final = Standing()


def unpacked(tries: int) -> tuple[int, bool]:
    """Read `tries`: the charges, and whether the run was alone."""
    return (~tries, True) if tries < 0 else (tries, False)


def judge(
    db: Database, thread: int, row: tuple[Any, ...], *, now: float, survived: bool
) -> Standing:
    """Say how the run stands that a thread's last owner left unfinished.

    Args:
        db: The database.
        thread: The number of the thread.
        row: Its lease; nobody holds it.
        now: The time.
        survived: Whether the owner did not die: it is at work still, or the database was away.
    """
    until, tries, stood = row[2:5]
    charges, alone = unpacked(tries)
    if until == 0 and charges == 0:
        return INNOCENT
    mark = mark_of(db, thread)
    if mark != stood:  # it got further
        return Standing(suspect=until != 0, mark=mark)
    if until > 0 and alone and not survived:
        charges += 1
        due = now + BACKOFF_SECONDS[charges] if charges < MAX_CHARGES else now
        return Standing(True, charges, due, mark, new=True)
    return Standing(True, charges, max(-until, 0.0), mark)


def mark_of(db: Database, thread: int) -> bytes:
    """Digest what was recorded of a thread and of those that work for it.

    Checkpoints, writes of steps that are under way, and results of calls count; the intent of a
    call does not: it is noted before anything has happened.
    """
    seen: list[int] = [thread]
    level = [thread]
    for _ in range(_DEEP):
        level = _children(db, level)
        if not (level := [one for one in level if one not in seen]):
            break
        seen += level
    found = []
    for one in seen:
        head = db.execute(sql.HEAD_OF_ALL, (one, 1, 0)).fetchone()[0]
        written = select(func.count()).select_from(writes).where(writes.c.thread == one)
        done = select(func.count()).select_from(calls)
        done = done.where(calls.c.thread == one, calls.c.state == "done")
        counts = [db.execute(*compiled(query)).fetchone()[0] for query in (written, done)]
        found.append((one, None if head is None else bytes(head), *counts))
    return blake2b(repr(found).encode(), digest_size=_MARK_BYTES).digest()


def _children(db: Database, numbers: list[int]) -> list[int]:
    above = threads.alias()
    query = select(threads.c.id).join(
        above, (above.c.tenant == threads.c.tenant) & (above.c.thread == threads.c.parent)
    )
    query = query.where(above.c.id.in_(numbers)).order_by(threads.c.id)
    return [row[0] for row in db.execute(*compiled(query)).fetchall()]


Watched = tuple[Any, Any]
"""The leases of a store, and one of them."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A suspect that waits for the place."""

    standing: Standing
    now: Callable[[], float]
    """The store's clock."""
    since: float = field(default_factory=time.monotonic)

    def is_ready(self) -> bool:
        """Say whether it may be tried: its back-off is over, and it has let others go first."""
        polite = time.monotonic() - self.since >= POLITE_SECONDS * self.standing.charges
        return polite and self.now() >= self.standing.due


class Place:
    """The one place of a process in which a suspect runs, and the line before it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._line: list[Waiting] = []
        self._holder: Waiting | None = None
        self._watched: Watched | None = None
        self._looked = 0.0

    def join(self, waiting: Waiting) -> None:
        """Stand in line."""
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the parent's line is the parent's
                self._pid, self._line, self._holder = os.getpid(), [], None
            self._line.append(waiting)

    def enter(self, waiting: Waiting) -> bool:
        """Take the place if it is free, and nobody who was charged less waits for it too."""
        with self._lock:
            if self._holder is not None or not waiting.is_ready():
                return False
            ready = [one for one in self._line if one.is_ready()]
            if min(ready, key=lambda one: one.standing.charges) is not waiting:
                return False
            self._holder, self._watched = waiting, None
            self._line.remove(waiting)
            return True

    def watch(self, waiting: Waiting, watched: Watched) -> None:
        """Note the lease of who is in the place, and where it is found out if that got further."""
        with self._lock:
            if self._holder is waiting:
                self._watched, self._looked = watched, time.monotonic()

    def look(self) -> Watched | None:
        """Return the lease of who is in the place, if it is time to look whether that got further.

        Of those that wait one looks for all.
        """
        with self._lock:
            now = time.monotonic()
            if self._watched is None or now - self._looked < _LOOK_SECONDS:
                return None
            self._looked = now
            return self._watched

    def clear(self, watched: Watched) -> None:
        """Free the place of a run that got further: it is a suspect no more."""
        with self._lock:
            if self._watched is watched:
                self._holder = self._watched = None

    def leave(self, waiting: Waiting) -> None:
        """Leave the place, or the line."""
        with self._lock:
            if self._holder is waiting:
                self._holder = self._watched = None
            elif waiting in self._line:
                self._line.remove(waiting)


PLACE: Final = Place()
"""This process's own: a death is the whole process's, whatever stores it has open."""
