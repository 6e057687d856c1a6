"""What differs between databases: how one is opened, begun and locked, and what its errors mean."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol

from wick_graph.errors import StorageError

Synchronous = Literal["FULL", "NORMAL"]

Now = Callable[[], float]

ThreadRow = tuple[Any, ...]
"""Id, generation, last access and time to live of a thread; where threads are locked, also its
version, which grows with each transaction that writes to the thread."""


class Rows(Protocol):
    """What a statement found."""

    @property
    def rowcount(self) -> int:
        """Rows that it changed."""

    def fetchone(self) -> Any:
        """Return the next row, None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection. Statements are texts of the module `sql`, with values in their order."""

    account: Any
    """What the transaction adds to the digests of threads: a `digests.Account`."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def execute(self, text: str, values: Sequence[Any] = ..., /) -> Rows:
        """Run a statement."""

    def executemany(self, text: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""


class Dialect(ABC):
    """One database, as the rest of the store sees it."""

    errors: tuple[type[Exception], ...]
    """What its driver raises."""
    locks: ClassVar[bool]
    """Writers go side by side, and each locks the rows of the threads that it writes to."""
    lasts: bool
    """What is stored outlives the process, and a child opens it again after a fork."""

    reads_only: bool = False
    """The database may not be written; known as soon as it is open."""

    @property
    def files(self) -> tuple[str, ...]:
        """The file that it is in on this machine, absolute; none by default."""
        return ()

    @property
    @abstractmethod
    def name(self) -> str:
        """What the database is called in errors; never with a password."""

    @abstractmethod
    def now(self) -> float:
        """Return the database's time, in seconds since 1970."""

    @abstractmethod
    def open(self, now: Now) -> Database:
        """Open the database, or make one where there is nothing; `now` is the store's clock.

        Raises:
            StorageError: it is foreign, newer, damaged or out of reach; nothing was changed.
        """

    @abstractmethod
    def begin(self, db: Database, now: Now, *, write: bool) -> int:
        """Begin a transaction; the number returned differs when others have written anywhere."""

    @abstractmethod
    def explained(self, error: Exception) -> StorageError:
        """Return the sentence for an error of the driver."""

    @abstractmethod
    def is_final(self, error: BaseException) -> bool:
        """Say whether the same write would fail again: a value, not the database, is the cause."""

    def look(self) -> None:
        """Raise if the database is not the one that was opened."""
        return

    def is_lost(self, db: Database) -> bool:
        """Say whether a connection is of no use any more."""
        return False

    def began(self, db: Database) -> float:
        """Return when the database was last started, 0 where it is no program of its own."""
        return 0.0

    def may_pass(self, error: BaseException) -> bool:
        """Say whether a transaction may go well if it is simply tried again."""
        return False

    def find(self, db: Database, tenant: bytes, key: bytes) -> ThreadRow | None:
        """Return the row of a thread with its version, where threads are locked."""
        raise NotImplementedError

    def lock(self, db: Database, tenant: bytes, key: bytes, *, wait: bool) -> ThreadRow | None:
        """Lock a thread and count its version up; None if there is no such thread.

        Without `wait`, it is None too if somebody else holds it. Only who holds nothing may wait:
        so nobody ever waits in a circle.
        """
        raise NotImplementedError

    def alone(self, db: Database) -> None:
        """Let nobody else make a thread until this transaction ends; one writer at a time is so."""
        return

    def make(self, db: Database, values: Sequence[Any]) -> int | None:
        """Insert a thread and return its number; None if somebody else was faster."""
        raise NotImplementedError

    def shrink(self, db: Database) -> bool:
        """Give some free space back to the system; False when there is no more."""
        return False

    def problems(self, db: Database) -> list[str]:
        """Return what the database says is wrong with its pages; some look by themselves."""
        return []

    def exists(self) -> bool:
        """Say whether a store was ever made here; nothing is made, and nothing is opened for long.

        Raises:
            StorageError: it cannot be reached.
        """
        raise NotImplementedError


OPENING: Final = threading.RLock()
"""Held while a file is looked at and opened."""
