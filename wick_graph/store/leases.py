"""Leases: one run at a time per thread, and a fence that stops whoever lost it.

A lease has an owner, an end, and an epoch that grows with each change of owner. Every write of a
run carries its epoch and is refused when the thread has a newer one, so a worker that was frozen
past its lease cannot commit when it wakes. A lease whose owner is a dead process of this machine
is free at once; nobody waits for its end.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Update, insert, select, update

from wick_graph import keys
from wick_graph.errors import ThreadBusyError
from wick_graph.store import sql
from wick_graph.store.core import Core
from wick_graph.store.rows import bytes_text, text_bytes
from wick_graph.store.schema import leases

LEASE_SECONDS: Final = 30.0
"""How long a lease holds without being renewed; a frozen owner is passed over after that."""
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
    lost: bool = field(default=False)
    """Another owner has taken the thread over."""
    along: Callable[[sqlite3.Connection], None] | None = field(default=None, repr=False)
    """Writes what belongs into every transaction under this lease: the run's journal."""


class Leases:
    """Take, renew and give back leases; a daemon thread renews those that are held."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._held: set[Lease] = set()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._wake = threading.Event()
        self._keeper: threading.Thread | None = None

    def take(self, thread_id: str) -> Lease:
        """Take the lease of a thread; the thread is made if there is none.

        Raises:
            ThreadBusyError: Another live owner holds it.
        """
        core, me = self._core, owner()
        with core.writing() as db:
            thread = core.thread_for_writing(db, thread_id).id
            head = db.execute(_HEAD, (thread,)).fetchone()[0]
            epoch, tries = self._turn(db, thread, thread_id, head)
            until = core.now() + LEASE_SECONDS
            values = {"owner": me, "epoch": epoch, "until": until, "tries": tries, "head": head}
            if not db.execute(*sql.compiled(_of(thread).values(**values))).rowcount:
                db.execute(*sql.compiled(insert(leases).values(thread=thread, **values)))
        lease = Lease(thread, thread_id, epoch, tries)
        self._hold(lease)
        return lease

    async def atake(self, thread_id: str) -> Lease:
        """Do `take` in the store's thread."""
        return await self._core.worker.run(self.take, thread_id)

    async def arelease(self, lease: Lease, *, tries: int = 0) -> None:
        """Do `release` in the store's thread."""
        await self._core.worker.run(self.release, lease, tries=tries)

    def release(self, lease: Lease, *, tries: int = 0) -> None:
        """Give a lease back; one that was lost is only forgotten. `tries` stays on record."""
        self._drop(lease)
        with self._core.writing() as db:
            mine = _of(lease.thread).where(leases.c.epoch == lease.epoch)
            given = db.execute(*sql.compiled(mine.values(until=0.0, tries=tries)))
            if given.rowcount and lease.along is not None:
                lease.along(db)

    def renew(self) -> None:
        """Renew every held lease; mark those that somebody else has taken."""
        with self._lock:
            held = list(self._held)
        if not held:
            return
        until = self._core.now() + LEASE_SECONDS
        with self._core.writing() as db:
            for lease in held:
                mine = _of(lease.thread).where(leases.c.epoch == lease.epoch)
                if not db.execute(*sql.compiled(mine.values(until=until))).rowcount:
                    lease.lost = True

    def _turn(
        self, db: sqlite3.Connection, thread: int, thread_id: str, head: bytes | None
    ) -> tuple[int, int]:
        """Return the next epoch, and how many owners in a row died where the thread stands now."""
        columns = (
            *(leases.c.owner, leases.c.epoch, leases.c.until),
            *(leases.c.tries, leases.c.head),
        )
        query = select(*columns).where(leases.c.thread == thread)
        row = db.execute(*sql.compiled(query)).fetchone()
        if row is None:
            return 1, 0
        holder, epoch, until, tries, stood = row
        if until > self._core.now() and is_alive(holder):
            raise ThreadBusyError(
                f"thread {thread_id} is busy: another run goes on in it; wait for its end"
            )
        if stood != head:  # it got further before it died
            return epoch + 1, 1 if until else 0
        # A lease that was given back ended at 0: whoever held any other one died with it.
        return epoch + 1, tries + 1 if until else tries

    def _hold(self, lease: Lease) -> None:
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the parent's leases are the parent's
                self._pid, self._held, self._keeper = os.getpid(), set(), None
            self._held.add(lease)
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="wick-leases", daemon=True)
                self._keeper.start()

    def _drop(self, lease: Lease) -> None:
        with self._lock:
            self._held.discard(lease)

    def _keep(self) -> None:
        while not self._wake.wait(LEASE_SECONDS / 3):
            try:
                self.renew()
            except Exception:  # a busy or full database: the next turn is before the lease's end
                continue

    def close(self) -> None:
        """End the keeper; leases that are still held end by themselves."""
        self._wake.set()


def check(db: sqlite3.Connection, lease: Lease) -> None:
    """Refuse to write for a run that lost its thread.

    Raises:
        ThreadBusyError: The thread has a newer epoch, or is gone.
    """
    row = db.execute(sql.EPOCH, (lease.thread,)).fetchone()
    if row is None or row[0] != lease.epoch:
        lease.lost = True
        raise ThreadBusyError(
            f"thread {lease.thread_id} was taken over by another run while this one stood still; "
            "nothing of this step was stored"
        )
    if lease.along is not None:
        lease.along(db)


def fence(db: sqlite3.Connection, config: Mapping[str, Any]) -> None:
    """Check the lease of the run that a config belongs to; graphs of others have none.

    Raises:
        ThreadBusyError: The run lost its thread.
    """
    lease = getattr(keys.configurable(config).get(keys.RUN), "lease", None)
    if lease is not None:
        check(db, lease)


def owner() -> bytes:
    """Name this process: its machine, its boot, its id and start, so that nobody else is it."""
    return text_bytes(f"{_boot()}/{os.getpid()}/{_started(os.getpid())}")


def is_alive(holder: bytes) -> bool:
    """Say whether an owner may still be at work; of another machine nobody can tell but by time."""
    boot, _, rest = bytes_text(holder).partition("/")
    pid, _, started = rest.partition("/")
    if boot != _boot():
        return True
    return _started(int(pid)) == started


def _of(thread: int) -> Update:
    return update(leases).where(leases.c.thread == thread)


_HEAD: Final = "SELECT max(id) FROM checkpoints WHERE thread = ?"
_boot_id: list[str] = []


def _boot() -> str:
    """Identify this boot of this machine; a random stand-in where the system has no such id."""
    if not _boot_id:
        path = Path("/proc/sys/kernel/random/boot_id")
        try:
            _boot_id.append(path.read_text(encoding="ascii").strip())
        except OSError:
            _boot_id.append(uuid.uuid4().hex)
    return _boot_id[0]


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    state, *_ = fields = stat.rpartition(")")[2].split()
    return "" if state == "Z" else fields[19]
