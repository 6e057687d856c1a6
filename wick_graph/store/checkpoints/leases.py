"""Leases: one run at a time per thread, and a fence that stops whoever lost it.

A lease has an owner, an end, and an epoch that grows with each change of owner. Every write of a
run carries its epoch and is refused when the thread has a newer one, so a worker that was frozen
past its lease cannot commit when it wakes. A lease whose owner is a dead process of this machine
is free at once; nobody waits for its end.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import select

from wick_graph import keys
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.checkpoints.owners import LEASE_SECONDS, is_alive, owner
from wick_graph.store.database import sql
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema import leases

LOOK_SECONDS: Final = 1.0
"""How often a run looks whether its lease is still its own."""
_REMEMBERED: Final = 1_024
_BUSY: Final = "thread {} is busy: another run goes on in it; wait for its end, or cancel it"
_CREDIBLE: Final = 100 * LEASE_SECONDS
_MOST: Final = 2**62
"""Epochs begin anew behind this one; they are only ever compared for being the same."""
_APART: Final = 2**40
"""How far one epoch is from the next at the most."""
MAX_TRIES: Final = 3
"""Times that a run may die at one checkpoint before the thread is called poisoned."""


@dataclass(slots=True, eq=False)
class Lease:
    """A run's right to write to a thread."""

    thread: int
    thread_id: str
    epoch: int
    tries: int
    """Runs in a row that died before this one without getting further; 0 for none."""
    until: float = 0.0
    """When it ends unless it is renewed, by the store's clock."""
    clock: Callable[[], float] = field(default=time.time, repr=False)
    lost: bool = field(default=False)
    """Another owner has taken the thread over."""
    forced: bool = field(default=False)
    """That owner did so while this one was alive, because somebody cancelled its run."""
    on_stop: Callable[[str], object] | None = field(default=None, repr=False)
    """Called with a reason when the run is to stop; with an empty one when the lease is lost."""
    along: Callable[[Database], None] | None = field(default=None, repr=False)
    """Writes what belongs into every transaction under this lease: the run's journal."""

    def lose(self) -> None:
        """Note that the thread has another owner, and end what still runs under this lease."""
        if not self.lost:
            self.lost, self.forced = True, self.clock() < self.until
            if self.on_stop is not None:
                self.on_stop("")


class Leases:
    """Take, renew and give back leases; a daemon thread renews those that are held."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._held: set[Lease] = set()
        self._given: OrderedDict[int, int] = OrderedDict()
        """Epochs of leases that are nobody's, by thread: a full disk may not let that in, and of a
        lease that was taken the answer may be lost on its way."""
        self._nonce = secrets.token_hex(4).encode()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._wake = threading.Event()
        self._keeper: threading.Thread | None = None

    def take(
        self,
        thread_id: str,
        *,
        force: bool = False,
        ready: Callable[[Lease], object] | None = None,
    ) -> Lease:
        """Take the lease of a thread; the thread is made if there is none.

        With `force` it is taken from a live owner too: the fence then stops that one's writes.
        `ready` is called before anybody else can find the lease, and ask its run to stop.

        Raises:
            ThreadBusyError: Another live owner holds it.
        """
        taken: Lease | None = None
        try:
            with self._core.writing(thread_id) as db:
                taken = self._taken(db, thread_id, force)
        except StorageError:  # the commit may have got there all the same: then it is given back
            if taken is not None:
                self._give(taken)
            raise
        if ready is not None:
            ready(taken)
        self._hold(taken)
        return taken

    def wrest(self, thread_id: str, epoch: int) -> Lease | None:
        """Take a thread from the live owner that holds it under an epoch; None if that one left."""
        with self._core.writing(thread_id) as db:
            if self._holding(db, thread_id) != epoch:
                return None
            lease = self._taken(db, thread_id, True)
        self._hold(lease)
        return lease

    def _taken(self, db: Database, thread_id: str, force: bool) -> Lease:
        core = self._core
        thread = core.thread_for_writing(db, thread_id).id
        head = db.execute(sql.HEAD_OF_ALL, (thread, 1, 0)).fetchone()[0]
        epoch, tries = self._turn(db, thread, thread_id, head, force)
        until = core.now() + LEASE_SECONDS
        lease = Lease(thread, thread_id, epoch, tries, until=until, clock=core.now)
        db.execute(sql.PUT_LEASE, (thread, self._name(), epoch, until, tries, head))
        return lease

    def _holding(self, db: Database, thread_id: str) -> int | None:
        thread = self._core.thread(db, thread_id)
        row = None if thread is None else db.execute(sql.LEASE, (thread.id,)).fetchone()
        return row[1] if row is not None and _holds(self._core, row[0], row[2]) else None

    def together(self, work: Callable[[], None]) -> None:
        """Do what belongs to taking or giving back a lease with one commit."""
        self._core.together(work)

    async def atogether(self, work: Callable[[], None]) -> None:
        """Do `together` in the store's thread, in one hop."""
        await self._core.worker.run(self._core.together, work)

    def epoch(self, thread_id: str) -> int | None:
        """Return the epoch under which a live owner holds a thread; None if it is free."""
        with self._core.reading() as db:
            return self._holding(db, thread_id)

    async def aepoch(self, thread_id: str) -> int | None:
        """Do `epoch` in the store's thread."""
        return await self._core.worker.run(self.epoch, thread_id)

    def ask_to_stop(self, thread_id: str, why: str, epoch: int | None = None) -> bool:
        """Ask the run of this process that holds a thread to stop; False if none does.

        With an epoch, only the run that took the thread with it is asked.
        """
        with self._lock:
            held = [
                lease
                for lease in self._held
                if lease.thread_id == thread_id and epoch in (None, lease.epoch)
            ]
        asked = [lease.on_stop for lease in held if not lease.lost and lease.on_stop is not None]
        for stop in asked:
            stop(why)
        return bool(asked)

    def release(self, lease: Lease, *, tries: int = 0) -> None:
        """Give a lease back; one that was lost is only forgotten. `tries` stays on record."""
        self._drop(lease)
        self._give(lease)
        with self._core.writing(lease.thread_id) as db:
            given = db.execute(sql.END_LEASE, (0.0, tries, lease.thread, lease.epoch))
            if given.rowcount and lease.along is not None:
                lease.along(db)

    def renew(self) -> None:
        """Renew every held lease; mark those that somebody else has taken."""
        with self._lock:
            held = list(self._held)
        if not held:
            return
        lost: list[Lease] = []
        until = self._core.now() + LEASE_SECONDS
        with self._core.writing(alone=True) as db:
            for lease in held:
                if db.execute(sql.RENEW_LEASE, (until, lease.thread, lease.epoch)).rowcount:
                    lease.until = until
                else:
                    lost.append(lease)
        for lease in lost:
            if lease in self._held:  # else it was given back meanwhile
                lease.lose()

    def look(self) -> None:
        """Notice leases that somebody else has taken; their runs are ended."""
        with self._lock:
            held = {lease.thread: lease for lease in self._held}
        if not held:
            return
        query = select(leases.c.thread, leases.c.epoch).where(leases.c.thread.in_(list(held)))
        with self._core.reading() as db:
            epochs = dict(db.execute(*compiled(query)).fetchall())
        for thread, lease in held.items():
            if epochs.get(thread) != lease.epoch:
                lease.lose()

    def _turn(
        self,
        db: Database,
        thread: int,
        thread_id: str,
        head: bytes | None,
        force: bool,
    ) -> tuple[int, int]:
        """Return the next epoch, and how many owners in a row died where the thread stands now."""
        row = db.execute(sql.LEASE, (thread,)).fetchone()
        if row is None:
            return _after(0), 0
        holder, epoch, until, tries, stood = row
        if self._given.get(thread) == epoch and holder == self._name():
            until = 0.0  # this saver's own; nobody else may ever have written that it is free
        following = _after(epoch)
        if _holds(self._core, holder, until):
            if force:  # it is alive, and is told to stop: nothing died
                return following, tries
            raise ThreadBusyError(_BUSY.format(thread_id))
        if stood != head:  # it got further before it died
            return following, 1 if until else 0
        # A lease that was given back ended at 0: whoever held any other one died with it.
        return following, tries + 1 if until else tries

    def _hold(self, lease: Lease) -> None:
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the parent's leases are the parent's
                self._pid, self._held, self._keeper = os.getpid(), set(), None
            self._held.add(lease)
            self._given.pop(lease.thread, None)
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="wick-leases", daemon=True)
                self._keeper.start()

    def _name(self) -> bytes:
        """Name this saver among those of all processes."""
        return owner() + b"/" + self._nonce

    def _give(self, lease: Lease) -> None:
        """Note that a lease is nobody's, whatever the database may say."""
        self._given[lease.thread] = lease.epoch
        while len(self._given) > _REMEMBERED:
            self._given.popitem(last=False)

    def _drop(self, lease: Lease) -> None:
        with self._lock:
            self._held.discard(lease)

    def _keep(self) -> None:
        turn = 0
        while not self._wake.wait(LOOK_SECONDS):
            turn += 1
            try:
                if turn * LOOK_SECONDS >= LEASE_SECONDS / 3:
                    turn = 0
                    self.renew()
                else:
                    self.look()
            except Exception:  # a busy or full database: the next turn is before the lease's end
                continue

    def close(self) -> None:
        """End the keeper; leases that are still held end by themselves."""
        self._wake.set()


def _after(epoch: int) -> int:
    """Choose the next epoch, which nobody chooses again.

    A taking whose commit failed counts as held by whoever tried, until its run is closed: by
    chance alone may the next owner's epoch be the same.
    """
    return (epoch if epoch < _MOST else 0) + 1 + secrets.randbelow(_APART)


def check(db: Database, lease: Lease) -> None:
    """Refuse to write for a run that lost its thread.

    Raises:
        ThreadBusyError: The thread has a newer epoch, or is gone.
    """
    if not holds(db, lease):
        lease.lose()
        raise ThreadBusyError(
            f"thread {lease.thread_id} was taken over by another run while this one stood still; "
            "nothing of this step was stored"
        )
    if lease.along is not None:
        lease.along(db)


def holds(db: Database, lease: Lease) -> bool:
    """Say whether a thread is still a lease's, whether or not its run has noticed."""
    row = db.execute(sql.EPOCH, (lease.thread,)).fetchone()
    return row is not None and row[0] == lease.epoch


def check_free(core: Core, db: Database, thread: int, thread_id: str) -> None:
    """Refuse where a live owner holds a thread.

    Raises:
        ThreadBusyError: It does.
    """
    row = db.execute(sql.HOLDER, (thread,)).fetchone()
    if row is not None and _holds(core, *row):
        raise ThreadBusyError(_BUSY.format(thread_id))


def _holds(core: Core, holder: bytes, until: float) -> bool:
    """Say whether a lease holds; one that ends later than any was taken for is nobody's."""
    return 0 < until - core.now() < _CREDIBLE and is_alive(holder)


def lease_of(config: Mapping[str, Any]) -> Lease | None:
    """Return the lease of the run that a config belongs to; graphs of others have none."""
    return getattr(keys.configurable(config).get(keys.RUN), "lease", None)


def fence(core: Core, db: Database, lease: Lease | None, thread: int, thread_id: str) -> None:
    """Check a writer's lease.

    Who has none (a graph of others, `update_state` from outside) may write where no run goes on:
    else that run would find the thread changed under its feet, and die of it.

    Raises:
        ThreadBusyError: The run lost its thread, or has none and another one goes on there.
    """
    if lease is not None:
        check(db, lease)
    else:
        check_free(core, db, thread, thread_id)
