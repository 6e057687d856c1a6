"""One thread for the leases of a process in a database, whatever the number of its tenants."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from wick_graph.constants import LEASE_SECONDS
from wick_graph.errors import StorageError
from wick_graph.machine import at_fork
from wick_graph.store.dialect import Database
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.texts import compiled

if TYPE_CHECKING:
    from wick_graph.store.connection import StoreConnection
    from wick_graph.store.leases import Lease, Leases

LOOK_SECONDS: Final = 1.0
"""Interval at which a process checks that its leases are still its own."""


def lease_seconds(core: StoreConnection) -> float:
    """Return for how long a lease holds unless it is renewed."""
    return core.lease_seconds or LEASE_SECONDS


class Keeper:
    """Renews the leases of some stores, and stops the runs that have lost theirs.

    With `elsewhere`, processes of other machines use the database too.
    """

    def __init__(self, *, elsewhere: bool) -> None:
        self._elsewhere = elsewhere
        self._lock = threading.RLock()  # a finalizer may close a store at any time
        self._stores: weakref.WeakValueDictionary[int, Leases] = weakref.WeakValueDictionary()
        """The stores, by their ids; a run keeps its own store."""
        self._end: SimpleQueue[None] | None = None
        """Ends the thread; None if none runs. A finalizer in that thread may put into it."""

    def add(self, store: Leases) -> None:
        """Keep the leases of one more store."""
        with self._lock:
            self._stores[id(store)] = store
            if self._end is None:
                end = SimpleQueue[None]()
                thread = threading.Thread(
                    target=self._run, args=(end,), name="wick-leases", daemon=True
                )
                thread.start()
                self._end = end

    def remove(self, store: Leases) -> None:
        """Let go of a store; the thread ends with the last one."""
        with self._lock:
            self._stores.pop(id(store), None)
            if self._end is not None and not self._stores:
                self._end.put(None)
                self._end = None

    def _run(self, end: SimpleQueue[None]) -> None:
        rounds = 0
        while self._is_needed(end):
            try:
                end.get(timeout=LOOK_SECONDS)
            except Empty:
                rounds = self._look(rounds + 1)
            else:
                return

    def _is_needed(self, end: SimpleQueue[None]) -> bool:
        """Return whether a store is left: one that was never closed may be gone."""
        with self._lock:
            if self._end is end and not self._stores:
                self._end = None
            return self._end is end

    def _look(self, rounds: int) -> int:
        """Look after the leases once, and return after how many rounds they were renewed."""
        renews = rounds * LOOK_SECONDS >= min(LEASE_SECONDS / 3, *self._pauses())
        failed = False
        for first, *others in self._groups(rounds):
            try:
                if renews:
                    first.renew(*others)
                else:
                    first.check_ownership(*others)
            except Exception:  # a busy or full database: the next attempt is before the end
                failed = True
                self._drop_expired((first, *others))
        return 0 if renews and not failed else rounds

    def _pauses(self) -> list[float]:
        return [LEASE_SECONDS, *(one.renews_each for one in self._kept() if one.renews_each)]

    def _kept(self) -> list[Leases]:
        return [store for ref in self._stores.valuerefs() if (store := ref()) is not None]

    def _drop_expired(self, stores: Sequence[Leases]) -> None:
        """Stop runs with leases that were not renewed in time: another machine may have them now.

        The store's clock is steady between two transactions. The other processes of a file are of
        this machine, and see that this one lives.
        """
        for store in stores if self._elsewhere else ():
            for lease in store.held():
                if store.now() > lease.until:
                    lease.lose()

    def _groups(self, rounds: int) -> list[list[Leases]]:
        """Return the stores that hold leases, together; one with a clock of its own is alone."""
        stores = self._kept()
        for store in stores:
            with suppress(StorageError):
                store.settle()
        holding = [store for store in stores if store.held()]
        shared = [store for store in holding if not store.sets_its_clock]
        at = rounds % max(1, len(shared))  # no store that is stuck is asked twice in a row
        alone = [[store] for store in holding if store.sets_its_clock]
        return [shared[at:] + shared[:at], *alone] if shared else alone


_keepers: Final[dict[str, Keeper]] = {}

at_fork(after_in_child=_keepers.clear)  # the leases belong to the parent


def keeper_for(core: StoreConnection) -> Keeper:
    """Return the keeper of a store: stores of one server and schema share one."""
    if not core.dialect.locks:
        return Keeper(elsewhere=False)
    return _keepers.setdefault(core.dialect.name, Keeper(elsewhere=True))


def all_held(*stores: Leases) -> list[Lease]:
    """Return the leases that some stores hold now.

    Each of them may be given back, or be lost, before the caller looks at it.
    """
    return [lease for store in stores for lease in store.held()]


def renew_all(core: StoreConnection, held: Sequence[Lease], until: float) -> list[Lease]:
    """Renew leases of any tenants by one statement, and return those that others have taken.

    A lease with a row in use stays as it is until the next time.
    """
    own = schema.leases.c
    mine = sql.tuple_(own.thread, own.epoch).in_([(one.thread, one.epoch) for one in held])
    free = sql.select(own.thread).where(mine, own.until > sql.literal_column("0"))
    values = statements.checked(schema.leases, {"until": sql.literal(until)})
    renewing = sql.update(schema.leases).values(**values)
    renewing = renewing.where(own.thread.in_(free.with_for_update(skip_locked=True)))
    with core.writing(alone=True) as db:
        done = renewing.returning(own.thread, own.epoch)
        renewed = {tuple(row) for row in db.execute(*compiled(done)).fetchall()}
        left = [one for one in held if (one.thread, one.epoch) not in renewed]
        taken = taken_of(db, left)
    for lease in held:
        if lease not in left:
            lease.until = until
    return taken


def taken_of(db: Database, held: Sequence[Lease]) -> list[Lease]:
    """Return the leases that others have taken."""
    if not held:
        return []
    own = schema.leases.c
    query = sql.select(own.thread, own.epoch)
    query = query.where(own.thread.in_([lease.thread for lease in held]))
    epochs = dict(db.execute(*compiled(query)).fetchall())
    return [lease for lease in held if epochs.get(lease.thread) != lease.epoch]
