"""What differs between databases: opening, transactions, locks, and what errors mean."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol

from wick_graph.errors import StorageError
from wick_graph.store.texts import Prepared

Synchronous = Literal["FULL", "NORMAL"]

POSTGRES: Final = ("postgresql", "postgres", "postgresql+psycopg")
"""What a URL of a store on PostgreSQL begins with."""

Now = Callable[[], float]

ThreadRow = tuple[Any, ...]
"""Id, generation, last access and TTL of a thread. If threads are locked, also its version, which
grows with each transaction that writes to the thread."""


class Floats(bytes):
    """A `real[]` as PostgreSQL sends and takes it; psycopg's own form of one costs 2 ms."""


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """Rows that it changed."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection; statements are texts of the module `statements`, with values in their order."""

    account: Any
    """The `digests.Account` of the transaction: what it adds to the digests of threads."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def execute(self, text: str | Prepared, values: Sequence[Any] = ..., /) -> Rows:
        """Run a statement."""

    def executemany(self, text: str | Prepared, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""


class Dialect(ABC):
    """One database, as the rest of the store sees it."""

    errors: tuple[type[Exception], ...]
    """The exceptions of its driver."""
    locks: ClassVar[bool]
    """Writers work in parallel, and each locks the rows of the threads that it writes to."""
    lasts: bool
    """The data outlives the process, and a child opens it again after a fork."""

    reads_only: bool = False
    """The database cannot be written; known as soon as it is open."""

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute path of its file on this machine; none by default."""
        return ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the database in errors, without a password."""

    @abstractmethod
    def now(self) -> float:
        """Return the database's time, in seconds since 1970."""

    @abstractmethod
    def open(self, now: Now) -> Database:
        """Open the database, or make one if there is none; `now` is the store's clock.

        Raises:
            StorageError: It is foreign, newer, damaged or out of reach; nothing was changed.
        """

    @abstractmethod
    def begin(self, db: Database, now: Now, *, write: bool, light: bool = False) -> int:
        """Begin a transaction; return a number that changes whenever others have written.

        The commit of a `light` one need not wait for the disk.
        """

    @abstractmethod
    def explained(self, error: Exception) -> StorageError:
        """Turn an error of the driver into a sentence with a remedy."""

    @abstractmethod
    def is_final(self, error: BaseException) -> bool:
        """Return whether the same write would fail again, because of a value in it."""

    def look(self) -> None:
        """Raise if the database is not the one that was opened."""
        return

    def is_lost(self, db: Database) -> bool:
        """Return whether a connection can no longer be used."""
        return False

    def began(self, db: Database) -> float:
        """Return when the database server started; 0 if there is no server."""
        return 0.0

    def may_pass(self, error: BaseException) -> bool:
        """Return whether a transaction may succeed if it is tried again."""
        return False

    def find(self, db: Database, tenant: bytes, key: bytes) -> ThreadRow | None:
        """Return the row of a thread with its version, if threads are locked."""
        raise NotImplementedError

    def lock(self, db: Database, tenant: bytes, key: bytes, *, wait: bool) -> ThreadRow | None:
        """Lock a thread and increment its version; None if there is no such thread.

        Without `wait`, return None also if another transaction holds it. A transaction may wait
        only while it holds no lock, so there are no deadlocks.
        """
        raise NotImplementedError

    def alone(self, db: Database) -> None:
        """Keep others from making threads until this transaction ends."""
        return

    def make(self, db: Database, values: Sequence[Any]) -> int | None:
        """Insert a thread and return its number; None if another writer was faster."""
        raise NotImplementedError

    def version(self, db: Database) -> int:
        """Return the version of the schema in the database."""
        return int(db.execute("PRAGMA user_version").fetchone()[0])

    def shrink(self, db: Database) -> bool:
        """Give some free space back to the system; False when there is no more."""
        return False

    def problems(self, db: Database) -> list[str]:
        """Return what the database finds wrong with its pages; none if it checks them itself."""
        return []

    def direct(self) -> tuple[Any, str]:
        """Open a session for notices alone; return it and the name of their channel.

        Raises:
            StorageError: It cannot be opened.
        """
        raise NotImplementedError

    @abstractmethod
    def migrate(self) -> int:
        """Bring the tables up to the newest schema; return its number, or that of a newer one.

        Raises:
            StorageError: As in `open`, or the tables are in use; nothing was changed.
        """

    def exists(self) -> bool:
        """Return whether a store was ever made here; make nothing.

        Raises:
            StorageError: It cannot be reached.
        """
        raise NotImplementedError


OPENING: Final = threading.RLock()
"""Held while a file is checked and opened."""
