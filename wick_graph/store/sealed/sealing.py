"""How rows are closed and opened: with a check value, or encrypted where keys were given.

A store says of itself, in one row that belongs to no thread, whether it is encrypted. Which of the
two it is gets decided when it is opened, and holds for all of its rows: neither is ever taken for
the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import select

from wick_graph.errors import StorageError
from wick_graph.store.database import sql
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database, Dialect, Now
from wick_graph.store.database.schema import threads
from wick_graph.store.sealed.keyring import Keys
from wick_graph.store.values import rows

NOBODY: Final = 0
"""The number that no thread has; the store's own row bears it."""
MARK: Final = b"seal"
"""The key of the row that says that a store is encrypted."""
_BEFORE: Final = rows.CHECK_BYTES + 1
_MISSING: Final = (
    "an encrypted store needs cryptography, which is not installed; install wick-graph[encrypt]"
)


@dataclass(frozen=True, slots=True)
class Seals:
    """How the rows of one thread are closed and opened; the plain form calls `rows` directly."""

    seal: Callable[..., bytes]
    """Close a payload; what follows is the context, the keys of the very row."""
    unseal: Callable[..., bytes]
    """Open a row: the sealed bytes, what to call it in an error, and the same context."""
    content: Callable[..., bytes]
    """As `unseal`; a plain row is not checked, and may be damaged."""
    mark: Callable[[bytes], bytes]
    """Cover a hash of content, of 16 bytes, that stands in a column of its own."""
    unmark: Callable[[bytes], bytes]
    """Undo `mark`."""
    hides: bool
    """Nothing of a value may stand outside of a sealed row."""


class Sealing(Protocol):
    """How a store's rows are closed."""

    @property
    def keys(self) -> Keys | None:
        """The keys; None where nothing is encrypted."""

    def of(self, thread: int, tenant: bytes, key: bytes) -> Seals:
        """Return the way of a thread's rows, by its number, and by whose it is and its id."""

    def close_text(self, text: str, *context: rows.Context) -> bytes:
        """Encode a text that stands in a row of `threads`."""

    def open_text(self, data: bytes, *context: rows.Context) -> str:
        """Undo `close_text`; raises StorageError for what was tampered with."""


def _content(sealed: bytes, what: str, *context: rows.Context) -> bytes:
    return sealed[_BEFORE:]


def _same(hashed: bytes) -> bytes:
    return hashed


PLAIN: Final = Seals(rows.seal, rows.unseal, _content, _same, _same, False)
"""Check values alone."""


class Plain:
    """A store without keys."""

    keys: Keys | None = None

    def of(self, thread: int, tenant: bytes, key: bytes) -> Seals:
        """Return the one way there is."""
        return PLAIN

    def close_text(self, text: str, *context: rows.Context) -> bytes:
        """Encode a text as it is."""
        return rows.text_bytes(text)

    def open_text(self, data: bytes, *context: rows.Context) -> str:
        """Decode a text."""
        return rows.bytes_text(data)


def check_keys(keys: Keys | str | None) -> Keys | None:
    """Return the keys to open a store with, before anything is opened or made.

    Raises:
        StorageError: they cannot be read, or the library is not installed.
    """
    if keys is None:
        return None
    found = Keys.of(keys)
    _cipher()
    return found


def sealing_of(
    db: Database, dialect: Dialect, now: Now, keys: Keys | None, *, either: bool = False
) -> Sealing:
    """Find out how an open store's rows are closed; a new one is marked as encrypted.

    Args:
        db: Its connection, with no transaction under way.
        dialect: What it is.
        now: The store's clock.
        keys: What is to open it; None for a store that is not encrypted.
        either: Whether a store that is not encrypted is welcome too, though there are keys.

    Raises:
        StorageError: it is encrypted and no key fits, or it is not and there are keys; nothing was
            changed.
    """
    try:
        marked = _marked(db)
        if marked is None and keys is not None and not either and not dialect.reads_only:
            marked = _mark(db, dialect, now, keys)
    except dialect.errors as error:
        raise dialect.explained(error) from error
    if marked is None:
        if keys is None or either:
            return Plain()
        raise StorageError(
            f"{dialect.name} is not encrypted, and keys were given for it; open it without keys, "
            "or name a new database and import the threads there"
        )
    if keys is None:
        raise _locked(dialect)
    opened: Sealing = _cipher().Encrypted(marked, keys, dialect.name)
    return opened


def must_be_plain(db: Database, dialect: Dialect) -> None:
    """Refuse a new thread in plain rows where the store was marked after it was opened here.

    Raises:
        StorageError: somebody who has keys has opened the store too, while it was empty.
    """
    if _marked(db) is not None:
        raise _locked(dialect)


def _locked(dialect: Dialect) -> StorageError:
    return StorageError(
        f"{dialect.name} is encrypted, and no keys were given for it; name them with keys=, "
        "or with store_keys: in agents.yaml"
    )


def _marked(db: Database) -> bytes | None:
    row = db.execute(sql.BLOB, (NOBODY, MARK)).fetchone()
    return None if row is None else bytes(row[0])


def _mark(db: Database, dialect: Dialect, now: Now, keys: Keys) -> bytes | None:
    """Mark a store as encrypted that never held a thread; None for any other."""
    if _is_used(db):
        return None
    dialect.begin(db, now, write=True)
    try:
        dialect.alone(db)
        if not _is_used(db):
            made = _cipher().new_mark(keys)
            db.execute(sql.NEW_BLOB, (NOBODY, MARK, len(made), made))
        found = _marked(db)  # somebody else may have been faster
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return found


def _is_used(db: Database) -> bool:
    return db.execute(*compiled(select(threads.c.id).limit(1))).fetchone() is not None


def _cipher() -> Any:
    try:
        from wick_graph.store.sealed import cipher  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise StorageError(_MISSING) from None
    return cipher
