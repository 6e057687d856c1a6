"""Leases: one run at a time in a thread, its fence, and runs of a process that died."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, TypeVar

from wick_graph import langgraph_config
from wick_graph.constants import LEASE_SECONDS
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.store.commit_policy import COMMIT_NOW, LATE_SECONDS, WAIT_SECONDS, CommitPolicy
from wick_graph.store.connection import (
    Owed,
    StoreConnection,
    drop_unborn,
    is_alive,
    owner,
)
from wick_graph.store.dialect import Database
from wick_graph.store.keeper import (
    LOOK_SECONDS,
    Keeper,
    all_held,
    keeper_for,
    lease_seconds,
    renew_all,
    taken_of,
)
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.row_format import pack_id, text_bytes
from wick_graph.store.texts import compiled
from wick_graph.store.warm import Kept
from wick_graph.types import Firm

T = TypeVar("T")

# --- Suspects: unfinished runs of a process that died. Each may have killed it, or only been in it.
#
# The death of a process does not show which run caused it: every unfinished run is a suspect, and
# none is charged. The next process runs one suspect at a time beside its other runs. If it dies
# meanwhile, that suspect alone is charged. A new record in its thread clears a suspect. A suspect
# that was charged waits before it is tried again.
#
# The row of the lease holds everything that outlives a process:
#
# - `until` > 0: the lease is held, or its owner died; 0: it was given back; < 0: its owner died and
#   was judged, and `-until` is the moment before which the run is not tried again;
# - `tries`: the charges, n, of a run; ~n while it runs alone;
# - `head`: a mark of what was recorded when the suspect began; NULL for all other runs.


MAX_CHARGES: Final = 3
"""A thread is poisoned after so many deaths with its run as the only suspect, without progress."""

BACKOFF_SECONDS: Final = (0.0, 1.0, 5.0)
"""Seconds before a run is tried again, by its charges."""

POLITE_SECONDS: Final = 0.25
"""Seconds for which a suspect lets others go first, per charge."""

_LOOK_SECONDS: Final = 0.1

_DEEP: Final = 16

_MARK_BYTES: Final = 12


class Suspected(Exception):
    """Signal that a thread's run is a suspect: it needs the slot for suspects."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What the last run of a thread is suspected of, when a run continues it."""

    suspect: bool = False
    charges: int = 0
    due: float = 0.0
    """The moment before which it is not tried again, by the store's clock."""
    mark: bytes | None = None
    """A digest of what its thread has recorded."""
    new: bool = False
    """It was charged just now; the row of the lease does not say so yet."""

    @property
    def needs_slot(self) -> bool:
        """Whether it needs the slot; a poisoned run is refused, and needs none."""
        return self.suspect and self.charges < MAX_CHARGES


INNOCENT: Final = Suspicion()


def unpacked(tries: int) -> tuple[int, bool]:
    """Return the charges in `tries`, and whether the run was alone."""
    return (~tries, True) if tries < 0 else (tries, False)


def judge(
    db: Database, thread: int, row: tuple[Any, ...], *, now: float, survived: bool
) -> Suspicion:
    """Judge the run that a thread's last owner left unfinished.

    Args:
        db: The database.
        thread: The number of the thread.
        row: Its lease, which has no holder.
        now: The time.
        survived: Whether the owner is not to blame: it is alive, or the database was away.
    """
    until, tries, stood = row[2:5]
    charges, alone = unpacked(tries)
    if until == 0 and charges == 0:
        return INNOCENT
    mark = mark_of(db, thread)
    if mark != stood:  # it got further
        return Suspicion(suspect=until != 0, mark=mark)
    if until > 0 and alone and not survived:
        charges += 1
        due = now + BACKOFF_SECONDS[charges] if charges < MAX_CHARGES else now
        return Suspicion(True, charges, due, mark, new=True)
    return Suspicion(True, charges, max(-until, 0.0), mark)


def mark_of(db: Database, thread: int) -> bytes:
    """Digest what was recorded of a thread and of the threads that work for it.

    Checkpoints, writes of unfinished steps and results of calls count. The intent of a call does
    not: it is recorded before anything has happened.
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
        head = db.execute(statements.HEAD_OF_ALL, (one, 1, 0)).fetchone()[0]
        writes, calls, count = schema.writes, schema.calls, sql.select(sql.func.count())
        written = count.select_from(writes).where(writes.c.thread == one)
        done = count.select_from(calls).where(calls.c.thread == one, calls.c.state == "done")
        counts = [db.execute(*compiled(query)).fetchone()[0] for query in (written, done)]
        found.append((one, None if head is None else bytes(head), *counts))
    return blake2b(repr(found).encode(), digest_size=_MARK_BYTES).digest()


def _children(db: Database, numbers: list[int]) -> list[int]:
    threads, above = schema.threads, schema.threads.alias()
    query = sql.select(threads.c.id).join(
        above, (above.c.tenant == threads.c.tenant) & (above.c.thread == threads.c.parent)
    )
    query = query.where(above.c.id.in_(numbers)).order_by(threads.c.id)
    return [row[0] for row in db.execute(*compiled(query)).fetchall()]


Watched = tuple[Any, Any]
"""The leases of a store, and the lease of the suspect that is in the slot."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A suspect that waits for the slot."""

    suspicion: Suspicion
    now: Callable[[], float]
    """The store's clock."""
    since: float = field(default_factory=time.monotonic)

    def is_ready(self) -> bool:
        """Return whether it may be tried: its back-off is over, and it has let others go first."""
        polite = time.monotonic() - self.since >= POLITE_SECONDS * self.suspicion.charges
        return polite and self.now() >= self.suspicion.due


class SuspectSlot:
    """The one slot of a process in which a suspect runs, and the queue for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._line: list[Waiting] = []
        self._holder: Waiting | None = None
        self._watched: Watched | None = None
        self._looked = 0.0

    def join(self, waiting: Waiting) -> None:
        """Join the queue."""
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the queue belongs to the parent
                self._pid, self._line, self._holder = os.getpid(), [], None
            self._line.append(waiting)

    def enter(self, waiting: Waiting) -> bool:
        """Take the slot if it is free and no other suspect in the queue has fewer charges."""
        with self._lock:
            if self._holder is not None or not waiting.is_ready():
                return False
            ready = [one for one in self._line if one.is_ready()]
            if min(ready, key=lambda one: one.suspicion.charges) is not waiting:
                return False
            self._holder, self._watched = waiting, None
            self._line.remove(waiting)
            return True

    def watch(self, waiting: Waiting, watched: Watched) -> None:
        """Note the lease of the suspect in the slot, and the leases that show its progress."""
        with self._lock:
            if self._holder is waiting:
                self._watched, self._looked = watched, time.monotonic()

    def look(self) -> Watched | None:
        """Return the lease of the suspect in the slot, if its progress is due for a check.

        One of the waiting suspects checks for all of them.
        """
        with self._lock:
            now = time.monotonic()
            if self._watched is None or now - self._looked < _LOOK_SECONDS:
                return None
            self._looked = now
            return self._watched

    def clear(self, watched: Watched) -> None:
        """Free the slot of a run that made progress: it is no longer a suspect."""
        with self._lock:
            if self._watched is watched:
                self._holder = self._watched = None

    def leave(self, waiting: Waiting) -> None:
        """Leave the slot, or the queue."""
        with self._lock:
            if self._holder is waiting:
                self._holder = self._watched = None
            elif waiting in self._line:
                self._line.remove(waiting)


PLACE: Final = SuspectSlot()
"""The slot of this process; one for all its stores, because they die together."""


# --- Leases: one run at a time per thread, and a fence that stops a run that lost its lease.
#
# A lease has an owner, an end, and an epoch that grows with each change of owner. Every write of a
# run carries its epoch and is refused if the thread has a newer one. So a worker that was frozen
# past its lease cannot commit when it wakes. If the owner is a dead process of this machine, its
# lease is free at once.


_BUSY: Final = "thread {} is busy: another run goes on in it; wait for its end, or cancel it"

_CREDIBLE: Final = 100 * LEASE_SECONDS

_MOST: Final = 2**62
"""Epochs start again after this one; they are compared for equality only."""

_APART: Final = 2**40
"""The largest distance from one epoch to the next."""


@dataclass(slots=True, eq=False)
class Lease:
    """A run's right to write to a thread."""

    thread: int
    thread_id: str
    epoch: int
    charges: int = 0
    """Deaths of a process with this run as the only suspect, since its last progress."""
    mark: bytes | None = field(default=None, repr=False)
    """A digest of what the thread had recorded when this run began; None if it is no suspect."""
    place: Waiting | None = field(default=None, repr=False)
    """The run's hold on the suspects' slot of this process; None if it is no suspect."""
    until: float = 0.0
    """When it ends unless it is renewed, by the store's clock."""
    clock: Callable[[], float] = field(default=time.time, repr=False)
    lost: bool = field(default=False)
    """Another owner has taken the thread over."""
    forced: bool = field(default=False)
    """The new owner took the thread from a live run, because that run was cancelled."""
    on_stop: Callable[[str], object] | None = field(default=None, repr=False)
    """Called with a reason to stop the run, or with an empty text if the lease is lost."""
    before_commit: Callable[[Database], None] | None = field(default=None, repr=False)
    """Adds the run's journal to every transaction under this lease."""
    names: tuple[str, ...] = field(default=(), repr=False)
    """The channels and nodes that nearly every turn names in its rows; a hint."""
    ending: Callable[[Database], None] | None = field(default=None, repr=False)
    """Writes how the run ended, with the end of the lease."""

    def lose(self) -> None:
        """Note that the thread has another owner, and stop the run."""
        if not self.lost:
            self.lost, self.forced = True, self.clock() < self.until
            self.leave_place()
            if (stop := self.on_stop) is not None:
                stop("")

    def leave_place(self) -> None:
        """Let another suspect of this process go on."""
        if self.place is not None:
            PLACE.leave(self.place)


@dataclass(slots=True)
class Writer:
    """The writer of a run: the engine puts it into the run's config and keeps it up to date."""

    lease: Lease | None = None
    policy: CommitPolicy = COMMIT_NOW
    keeps: str = ""
    """The channel of messages that the next read may take from what is kept; reset by it."""
    kept: Kept | None = None
    """What was kept of it; None if nothing is."""
    fresh: bool = False
    """The lease is of a thread without a checkpoint, and nothing was read or written since."""
    input_waits: bool = False
    """The checkpoint of the input is committed with the next one."""
    told: object = None
    """The list of allowed classes that the run's graph is noted in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The terms on which a run asks for its thread."""

    force: bool = False
    """Take the thread from a live owner too; the fence then stops the owner's writes."""
    over: int | None = None
    """Do so only if the owner has the thread under this epoch."""
    begins: str | None = None
    """The id of a run that brings a new input; None if it continues the thread."""
    pardon: bool = False
    """Forget the charges of the run."""
    part: bool = False
    """The run is part of another run of this process, which is judged in its place."""
    place: Waiting | None = None
    """The run's hold on the suspects' slot."""


class Leases:
    """Takes, renews and gives back leases; a daemon thread renews those that are held."""

    def __init__(self, core: StoreConnection) -> None:
        self._core = core
        self._held: set[Lease] = set()
        self._shutting_down = False
        """The process shuts down on purpose: no run is charged with its end."""
        self._nonce = secrets.token_hex(4).encode()
        self._lock = threading.RLock()  # as the keeper's
        self._pid = os.getpid()
        self._keeper: Keeper | None = None

    def acquire(
        self,
        thread_id: str,
        asking: Asking = Asking(),
        *,
        force: bool = False,
        ready: Callable[[Lease], object] | None = None,
        judged: bool = False,
    ) -> Lease:
        """Take the lease of a thread, and make the thread if there is none.

        With `force`, take it from a live owner too; the fence then stops the owner's writes.
        `ready` is called before a caller can find the lease and ask its run to stop.

        Raises:
            ThreadBusyError: Another live owner holds it.
            Suspected: `judged` is asked for, and the run is a suspect without the slot.
        """
        taken: Lease | None = None
        asking = replace(asking, force=True) if force else asking
        try:
            with self._core.writing(thread_id) as db:
                taken = self._acquired(db, thread_id, asking, judged)
        except BaseException:  # the commit may have succeeded all the same: give the lease back
            if taken is not None:
                self.give_up(taken, taken.charges)
            raise
        if ready is not None:
            ready(taken)
        self._hold(taken)
        return taken

    def force_acquire(self, thread_id: str, epoch: int) -> Lease | None:
        """Take a thread from the live owner that holds it under an epoch; None if it has left."""
        with self._core.writing(thread_id) as db:
            if self._holding(db, thread_id) != epoch:
                return None
            lease = self._acquired(db, thread_id, Asking(force=True), False)
        self._hold(lease)
        return lease

    def _acquired(self, db: Database, thread_id: str, asking: Asking, judged: bool) -> Lease:
        core = self._core
        cache = core.thread_for_writing(db, thread_id)
        thread, new = cache.id, cache.is_first("lease")
        row = None if new else db.execute(statements.LEASE, (thread,)).fetchone()
        suspicion = self._suspicion(db, thread, thread_id, row, asking)
        alone = asking.place is not None and suspicion.suspect and not self._shutting_down
        if judged and suspicion.needs_slot and not (asking.place or asking.part):
            raise Suspected
        lease = Lease(
            thread,
            thread_id,
            _next_epoch(0 if row is None else row[1]),
            suspicion.charges,
            mark=suspicion.mark if alone else None,
            place=asking.place,
            until=core.now() + lease_seconds(core),
            clock=core.now,
        )
        tries = ~suspicion.charges if alone else suspicion.charges
        values = (self._name(), lease.epoch, lease.until, tries, suspicion.mark)
        db.execute(statements.PUT_LEASE, (thread, *values))
        cache.epoch = lease.epoch
        return lease

    def _suspicion(
        self, db: Database, thread: int, thread_id: str, row: Any, asking: Asking
    ) -> Suspicion:
        """Judge the run that the last owner of a thread left.

        Raises:
            ThreadBusyError: A live owner holds it.
        """
        if row is None:
            return INNOCENT
        row = self._known(db, thread, tuple(row))
        holder, epoch, until, tries, _ = row
        held = is_held(self._core, holder, until)
        if held and not asking.force and asking.over != epoch:
            raise ThreadBusyError(_BUSY.format(thread_id))
        if until != 0:
            drop_unborn(db, thread)
        if held or (until == 0 and tries == 0):  # alive, and asked to stop: nothing died
            return INNOCENT
        if asking.begins is not None and not self._began(db, thread, asking.begins):
            return INNOCENT  # a new run: the last one is abandoned
        suspicion = self._judged(db, thread, row)
        return replace(suspicion, charges=0, due=0.0, new=False) if asking.pardon else suspicion

    def _known(self, db: Database, thread: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Write the end of a run that this saver has ended, if the database may not know it.

        All other rows are returned as they are.
        """
        owed = self._core.owed.get((thread, row[1]))
        if owed is None:
            return row
        self._write_end(db, owed.lease, owed.charges)
        return (*row[:2], 0.0, owed.charges, row[4])

    def _began(self, db: Database, thread: int, run_id: str) -> bool:
        """Return whether a run is the last that began in a thread."""
        query = sql.select(schema.threads.c.run).where(schema.threads.c.id == thread)
        row = db.execute(*compiled(query)).fetchone()
        return row is not None and row[0] is not None and bytes(row[0]) == pack_id(run_id)

    def _judged(self, db: Database, thread: int, row: tuple[Any, ...]) -> Suspicion:
        now, since = self._core.now(), row[2] - lease_seconds(self._core)
        # A process of another machine cannot be checked: it counts as dead.
        survived = is_alive(row[0], elsewhere=False) or self._core.dialect.began(db) > since
        return judge(db, thread, row, now=now, survived=survived)

    def judge(self, thread_id: str, asking: Asking) -> Suspicion:
        """Judge the last run of a thread, and record a new charge.

        Raises:
            ThreadBusyError: A live owner holds the thread.
        """
        with self._core.writing(thread_id) as db:
            thread = self._core.thread_for_writing(db, thread_id).id
            row = db.execute(statements.LEASE, (thread,)).fetchone()
            suspicion = self._suspicion(db, thread, thread_id, row, asking)
            if suspicion.new:
                values = (-suspicion.due, suspicion.charges, suspicion.mark)
                db.execute(statements.PUT_LEASE, (thread, *row[:2], *values))
        return suspicion

    async def ajudge(self, thread_id: str, asking: Asking) -> Suspicion:
        """Do `judge` in the store's thread."""
        return await self._core.worker.run(self.judge, thread_id, asking)

    def now(self) -> float:
        """Return the store's time."""
        return self._core.now()

    def has_progressed(self, lease: Lease) -> bool:
        """Return whether a suspect's thread has recorded anything since its run began."""
        with self._core.reading() as db:
            return mark_of(db, lease.thread) != lease.mark

    async def ahas_progressed(self, lease: Lease) -> bool:
        """Do `has_progressed` in the store's thread."""
        return await self._core.worker.run(self.has_progressed, lease)

    def note_shutdown(self) -> None:
        """Note that this process shuts down on purpose: no run is charged with its end."""
        self._shutting_down = True
        with self._lock:
            held = [lease for lease in self._held if lease.mark is not None]
        for lease in held:
            with self._core.writing(lease.thread_id) as db:
                db.execute(statements.SPARE_LEASE, (lease.charges, lease.thread, lease.epoch))

    async def anote_shutdown(self) -> None:
        """Do `note_shutdown` in the store's thread."""
        await self._core.worker.run(self.note_shutdown)

    def _holding(self, db: Database, thread_id: str) -> int | None:
        thread = self._core.thread(db, thread_id)
        row = None if thread is None else db.execute(statements.LEASE, (thread.id,)).fetchone()
        return row[1] if row is not None and is_held(self._core, row[0], row[2]) else None

    def opening(self, thread_id: str) -> AbstractContextManager[None]:
        """Let the taking of a lease, and all that the run's opening writes, be one write."""
        return self._core.as_one(thread_id)

    def together(self, work: Callable[[], T], *, light: bool = False) -> T:
        """Take or give back a lease, with all that belongs to it, in one commit.

        If `work` fails after it has taken a lease, the lease stays taken: give it back. A `light`
        commit does not wait for the disk.
        """
        return self._core.together(work, light=light)

    def atogether(self, work: Callable[[], T], *, light: bool = False) -> Firm[T]:
        """Do `together` in the store's thread, in one hop."""
        return self._core.worker.firmly(self._core.together, work, light=light)

    def epoch(self, thread_id: str) -> int | None:
        """Return the epoch of a thread's live owner; None if the thread is free."""
        with self._core.reading() as db:
            return self._holding(db, thread_id)

    async def aepoch(self, thread_id: str) -> int | None:
        """Do `epoch` in the store's thread."""
        return await self._core.worker.run(self.epoch, thread_id)

    def ask_to_stop(self, thread_id: str, why: str, epoch: int | None = None) -> bool:
        """Ask the run of this process that holds a thread to stop; False if none does.

        With an epoch, ask only the run that took the thread under it.
        """
        with self._lock:
            held = [lease for lease in self._held if lease.thread_id == thread_id]
        held = [lease for lease in held if epoch in (None, lease.epoch)]
        asked = [lease.on_stop for lease in held if not lease.lost]
        for stop in filter(None, asked):
            stop(why)
        return any(asked)

    def release(self, lease: Lease, *, charges: int = 0) -> None:
        """Give a lease back; a lost one is only forgotten. `charges` stay on record.

        This store treats it as free at once. If the database refuses the write, the store tries
        again later.
        """
        self.give_up(lease, charges)
        self._end(lease, charges)

    def give_up(self, lease: Lease, charges: int) -> None:
        """Treat a lease as given back, even if the database does not know it.

        A full disk may refuse the write, and the answer to a taking may be lost.
        """
        self._core.owed[lease.thread, lease.epoch] = Owed(lease, charges)
        with self._lock:
            self._held.discard(lease)
        lease.leave_place()

    def _end(self, lease: Lease, charges: int) -> None:
        with self._core.writing(lease.thread_id) as db:
            self._write_end(db, lease, charges)

    def _write_end(self, db: Database, lease: Lease, charges: int) -> None:
        given = db.execute(statements.END_LEASE, (0.0, charges, lease.thread, lease.epoch))
        if not given.rowcount:
            return
        if lease.ending is not None:
            lease.ending(db)
        if lease.before_commit is not None:
            lease.before_commit(db)
        if self._core.strays:
            self._core.strays.sweep(db, lease.thread)
        self._core.step = None
        cache = self._core.caches.get(text_bytes(lease.thread_id))
        if cache is not None and cache.marks is None:
            cache.rest()

    def note_released(self, lease: Lease) -> None:
        """Note that the database knows that a lease was given back: its commit has succeeded."""
        lease.on_stop = None  # it holds the run, which holds the lease
        self._core.owed.pop((lease.thread, lease.epoch), None)

    def settle(self, *, at_once: bool = False) -> None:
        """Give back leases that the database does not know to be free; keep those it refuses.

        A commit may still be under way, so a lease waits a moment first, unless `at_once`.
        """
        before = time.monotonic() - (0.0 if at_once else LOOK_SECONDS / 2)
        owed = {place: one for place, one in [*self._core.owed.items()] if one.since <= before}
        if not owed:
            return
        with suppress(StorageError):
            with self._core.reading() as db:
                own = schema.leases.c
                query = sql.select(own.thread, own.epoch)
                query = query.where(own.thread.in_({thread for thread, _ in owed}), own.until > 0)
                held = {tuple(row) for row in db.execute(*compiled(query)).fetchall()}
            for place, one in owed.items():
                if place in held:
                    self._end(one.lease, one.charges)
                self.note_released(one.lease)

    @property
    def renews_each(self) -> float | None:
        """The seconds between two renewals, if the lease has not its default length."""
        return self._core.lease_seconds and self._core.lease_seconds / 3

    @property
    def sets_its_clock(self) -> bool:
        """Whether another clock than the database's counts in this store."""
        return self._core.clock != self._core.dialect.now

    def held(self) -> list[Lease]:
        """Return the leases that are held now."""
        with self._lock:
            return [*self._held]

    def renew(self, *others: Leases) -> None:
        """Renew every lease of this store and of others in its database; note those taken away."""
        if held := all_held(self, *others):
            lost = renew_all(self._core, held, self._core.now() + lease_seconds(self._core))
            still = all_held(self, *others)  # the others were given back meanwhile
            for lease in filter(still.__contains__, lost):
                lease.lose()

    def check_ownership(self, *others: Leases) -> None:
        """Find leases that another owner has taken, and stop their runs."""
        if held := all_held(self, *others):
            with self._core.reading() as db:
                lost = taken_of(db, held)
            for lease in lost:
                lease.lose()

    def _hold(self, lease: Lease) -> None:
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the leases belong to the parent
                self._pid, self._held, self._keeper = os.getpid(), set(), None
            self._held.add(lease)
            if self._keeper is None:
                keeper = keeper_for(self._core)
                keeper.add(self)
                self._keeper = keeper

    def _name(self) -> bytes:
        """Return a name of this saver that no other process or saver has."""
        return owner() + b"/" + self._nonce

    def close(self) -> None:
        """Leave the keeper and give back what is owed; held leases expire by themselves."""
        with self._lock:
            keeper, self._keeper = self._keeper, None
        if keeper is not None and self._pid == os.getpid():
            keeper.remove(self)
        self.settle(at_once=True)


def _next_epoch(epoch: int) -> int:
    """Choose the next epoch at random, so that no owner gets the same one again.

    A run may believe that it holds a thread though the commit of its lease failed. Only by chance
    does the next owner get the same epoch.
    """
    return (epoch if epoch < _MOST else 0) + 1 + secrets.randbelow(_APART)


def check(core: StoreConnection, db: Database, lease: Lease) -> None:
    """Refuse a write of a run that lost its thread.

    Raises:
        ThreadBusyError: The thread has a newer epoch, or is gone.
    """
    if _epoch_of(core, db, lease) != lease.epoch:
        lease.lose()
        raise ThreadBusyError(
            f"thread {lease.thread_id} was taken over by another run while this one was stalled; "
            "nothing of this step was stored"
        )
    if lease.before_commit is not None:
        lease.before_commit(db)


def _epoch_of(core: StoreConnection, db: Database, lease: Lease) -> int | None:
    """Return the epoch of a lease's thread, which no one else changes within a transaction."""
    cache = core.caches.get(text_bytes(lease.thread_id))
    if cache is not None and cache.id == lease.thread and core.knows_now(cache) and cache.epoch:
        return cache.epoch
    row = db.execute(statements.EPOCH, (lease.thread,)).fetchone()
    return None if row is None else row[0]


def check_free(core: StoreConnection, db: Database, thread: int, thread_id: str) -> None:
    """Refuse a write if a live owner holds the thread.

    Raises:
        ThreadBusyError: A live owner holds it.
    """
    row = db.execute(statements.LEASE, (thread,)).fetchone()
    if row is None or (thread, row[1]) in core.owed:
        return
    if is_held(core, row[0], row[2]):
        raise ThreadBusyError(_BUSY.format(thread_id))


def is_held(core: StoreConnection, holder: bytes, until: float) -> bool:
    """Return whether a lease holds; one that ends later than any can be taken for does not."""
    return 0 < until - core.now() < _CREDIBLE and is_alive(holder)


def writer_of(
    config: Mapping[str, Any], began_from: str | None
) -> tuple[Lease | None, CommitPolicy]:
    """Return the lease and the policy under which a superstep is written.

    Other graphs have neither. LangGraph may save a step after the next, which has its own policy.
    """
    writer = (config.get(langgraph_config.CONFIGURABLE) or {}).get(langgraph_config.WRITER)
    if not isinstance(writer, Writer):
        return None, COMMIT_NOW
    policy, writer.fresh = writer.policy, False
    return writer.lease, policy if policy.began_from == began_from else COMMIT_NOW


def keeper_of(config: Mapping[str, Any]) -> tuple[Writer | None, str]:
    """Return the run's writer if this is its own read of its thread, and the channel to keep."""
    asked = langgraph_config.configurable(config)
    writer = asked.get(langgraph_config.WRITER)
    if not isinstance(writer, Writer) or not writer.keeps or writer.lease is None:
        return None, ""
    channel, writer.keeps = writer.keeps, ""
    mine = asked.get(langgraph_config.THREAD_ID) == writer.lease.thread_id
    return (writer if mine and not asked.get(langgraph_config.CHECKPOINT_NS) else None), channel


def is_fresh(config: Mapping[str, Any], at: langgraph_config.Address) -> bool:
    """Return whether a run asks for the head of its own thread, which has none; only once."""
    writer = langgraph_config.configurable(config).get(langgraph_config.WRITER)
    if not isinstance(writer, Writer) or not writer.fresh or writer.lease is None:
        return False
    writer.fresh = False
    return at == (writer.lease.thread_id, "", None) and not writer.lease.lost


def late_seconds(config: Mapping[str, Any]) -> float:
    """Return how long a step waits for its own writes: in a user's graph it may have none."""
    given = config.get(langgraph_config.CONFIGURABLE) or {}
    if given.get(langgraph_config.DURABILITY) != "sync":
        return 0.0
    return LATE_SECONDS if isinstance(given.get(langgraph_config.WRITER), Writer) else WAIT_SECONDS


def waits_for_first_step(
    config: Mapping[str, Any], at: langgraph_config.Address, source: object
) -> bool:
    """Return whether a checkpoint is an input's that the run's first step is committed with."""
    writer = (config.get(langgraph_config.CONFIGURABLE) or {}).get(langgraph_config.WRITER)
    if source != "input" or at.ns or not isinstance(writer, Writer) or not writer.input_waits:
        return False
    return writer.lease is not None and late_seconds(config) > 0.0


def fence(
    core: StoreConnection, db: Database, lease: Lease | None, thread: int, thread_id: str
) -> None:
    """Check a writer's lease.

    A writer without one (another graph, or `update_state` from outside) may write only if no run
    goes on in the thread: that run would fail when it finds the thread changed.

    Raises:
        ThreadBusyError: The run lost its thread, or it has no lease and another run goes on there.
    """
    if lease is not None:
        check(core, db, lease)
    else:
        check_free(core, db, thread, thread_id)
    if (recorder := core.recorders.get(thread_id)) is not None:
        recorder.along(db, thread)
