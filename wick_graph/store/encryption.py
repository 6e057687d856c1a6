"""Encryption at rest: the keys of a store, and the sealing of its rows."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from wick_graph.errors import StorageError, missing_extra
from wick_graph.machine import user_id
from wick_graph.store import row_format
from wick_graph.store.dialect import Database, Dialect, Now
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.row_format import PLAIN, Seals
from wick_graph.store.texts import compiled

# --- The keys of an encrypted store: their sources and ids.
#
# A key is 32 random bytes, written as base64, one per line. The first is the current one: it
# encrypts everything new. The others still open what was encrypted with them. The id of a key is
# computed from the key itself, so no file can name one wrongly.


KEY_BYTES: Final = 32

ID_BYTES: Final = 4

_OTHERS: Final = 0o077

_LARGEST: Final = 65_536
"""The most bytes of a file of keys."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_MAKE: Final = "make one with `wick store key`"


class Keys:
    """One key or several; the first is the current one. `repr` shows only their ids."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        """Take keys of 32 random bytes each.

        Raises:
            StorageError: There is none, one is not valid, or two are the same.
        """
        made: dict[bytes, bytes] = {}
        for key in keys:
            _check(key)
            if id_of(key) in made:
                raise StorageError("the store's keys hold one key twice; keep one")
            made[id_of(key)] = key
        if not made:
            raise StorageError(f"the store's keys are empty; {_MAKE}")
        self.by_id: Mapping[bytes, bytes] = MappingProxyType(made)
        self.current: bytes = next(iter(made))
        """The id of the key that encrypts everything new."""

    @classmethod
    def of(cls, source: Keys | str) -> Keys:
        """Read the keys that `file:PATH` or `env:NAME` names.

        Raises:
            StorageError: They cannot be read, or are not valid; no error ever quotes a key.
        """
        if isinstance(source, Keys):
            return source
        kind, _, name = source.partition(":")
        if kind == "file" and name:
            return cls.from_file(name)
        if kind == "env" and name:
            return cls.from_environment(name)
        raise StorageError("the store's keys cannot be found; name them as file:PATH or env:NAME")

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file that only its owner may read (mode 0600 or less).

        Raises:
            StorageError: As in `of`, or others may read the file.
        """
        file = Path(path)
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise StorageError(f"the file of keys {file} is no regular file")
                if user_id() is not None and status.st_mode & _OTHERS:
                    mode = stat.S_IMODE(status.st_mode)
                    raise StorageError(
                        f"the file of keys {file} may be used by others (mode {mode:04o}); "
                        f"run chmod 600 {file}, and treat its keys as leaked"
                    )
                data = opened.read(_LARGEST + 1)
        except OSError as error:
            raise StorageError(
                f"the file of keys {file} cannot be read: {error.strerror}; {_MAKE}"
            ) from None
        if len(data) > _LARGEST:
            raise StorageError(f"{file} is too large for a file of keys; name another file")
        return cls(_parsed(data.decode("utf-8", "replace"), f"the file of keys {file}"))

    @classmethod
    def from_environment(cls, name: str) -> Self:
        """Read an environment variable.

        Raises:
            StorageError: As in `of`.
        """
        if not _NAME.fullmatch(name):
            raise StorageError(
                "the store's keys cannot be found; name them as env:NAME, with the name of a "
                "variable, not its value"
            )
        text = os.environ.get(name)
        if not text:
            raise StorageError(
                f"the environment variable {name} is not set, but must hold the store's keys; "
                f"{_MAKE}"
            )
        return cls(_parsed(text, f"the environment variable {name}"))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, the current one first."""
        return tuple(key.hex() for key in self.by_id)

    def __repr__(self) -> str:
        return f"Keys({', '.join(self.ids)})"

    def __reduce__(self) -> str:
        raise TypeError("keys cannot be copied; they stay in the process that read them")


def id_of(key: bytes) -> bytes:
    """Return the id of a key: each row holds it, and it reveals nothing of the key."""
    return hmac.digest(key, b"wick_graph key id", "sha256")[:ID_BYTES]


def new_key() -> str:
    """Make a key, in its written form."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")


def add_key(path: str | Path) -> None:
    """Put a new key before those of a file, or into a new file that only its owner can read.

    Raises:
        StorageError: The file cannot be written, or is no file of keys.
    """
    file = Path(path)
    rest = b""
    if file.exists():
        Keys.from_file(file)
        rest = file.read_bytes()
    made = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(new_key().encode("ascii") + b"\n" + rest)
            opened.flush()
            os.fsync(opened.fileno())
        made.replace(file)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise StorageError(f"the file of keys {file} cannot be written: {error.strerror}") from None


def _parsed(text: str, where: str) -> Iterable[bytes]:
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("#")[0].replace(",", " ").split():
            try:
                key = base64.b64decode(word, validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if len(key) != KEY_BYTES:
                raise StorageError(
                    f"{where} holds no key in line {number}: a key is {KEY_BYTES} random bytes as "
                    f"base64, and no passphrase; {_MAKE}"
                )
            yield key


def _check(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise StorageError(f"a key of the store has {KEY_BYTES} bytes; {_MAKE}")
    if len(set(key)) < KEY_BYTES // 4 or all(32 <= byte < 127 for byte in key):
        raise StorageError(f"a key of the store is text or a pattern, not random bytes; {_MAKE}")


# --- Sealing rows: with a check value, or encrypted if keys were given.
#
# One row of the store, which belongs to no thread, marks it as encrypted. The store reads the mark
# when it opens, and applies it to all rows: a plain row is never taken for an encrypted one.


NOBODY: Final = 0
"""The thread number of the store's own row; no thread has it."""

MARK: Final = b"seal"
"""The key of the row that marks a store as encrypted."""

_MISSING: Final = missing_extra("an encrypted store", "cryptography", "encrypt")


class Sealing(Protocol):
    """How a store's rows are sealed."""

    @property
    def keys(self) -> Keys | None:
        """The keys; None if nothing is encrypted."""

    def of(self, thread: int, tenant: bytes, key: bytes) -> Seals:
        """Return how a thread's rows are sealed, by its number, tenant and id."""

    def close(self, data: bytes, *context: row_format.Context) -> bytes:
        """Seal a column of `threads` or of a table of no thread; a table or column comes last."""

    def open(self, data: bytes, *context: row_format.Context) -> bytes:
        """Undo `close`; raise StorageError if the data was tampered with."""


class Plain:
    """A store without keys."""

    keys: Keys | None = None

    def of(self, thread: int, tenant: bytes, key: bytes) -> Seals:
        """Return the plain form."""
        return PLAIN

    def close(self, data: bytes, *context: row_format.Context) -> bytes:
        """Return the data as it is."""
        if (why := row_format.too_large(data)) is not None:
            raise StorageError(why)
        return data

    def open(self, data: bytes, *context: row_format.Context) -> bytes:
        """Return the data."""
        return bytes(data)


def check_keys(keys: Keys | str | None) -> Keys | None:
    """Return the keys to open a store with, before anything is opened or made.

    Raises:
        StorageError: They cannot be read, or the library is not installed.
    """
    if keys is None:
        return None
    found = Keys.of(keys)
    _cipher()
    return found


def sealing_of(
    db: Database, dialect: Dialect, now: Now, keys: Keys | None, *, accept_plain: bool = False
) -> Sealing:
    """Return how an open store's rows are sealed; mark a new store as encrypted.

    Args:
        db: Its connection, with no transaction under way.
        dialect: Its database.
        now: The store's clock.
        keys: The keys to open it with; None for a store that is not encrypted.
        accept_plain: Whether to accept a store that is not encrypted although there are keys.

    Raises:
        StorageError: It is encrypted and no key fits, or it is not and there are keys; nothing was
            changed.
    """
    try:
        marked = _marked(db)
        if marked is None and keys is not None and not accept_plain and not dialect.reads_only:
            marked = _mark(db, dialect, now, keys)
    except dialect.errors as error:
        raise dialect.explained(error) from error
    if marked is None:
        if keys is None or accept_plain:
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
    """Refuse a new thread in plain rows if the store was marked after this process opened it.

    Raises:
        StorageError: A process with keys has opened the store too, while it was empty.
    """
    if _marked(db) is not None:
        raise _locked(dialect)


def _locked(dialect: Dialect) -> StorageError:
    return StorageError(
        f"{dialect.name} is encrypted, and no keys were given for it; name them with keys=, "
        "or with store_keys: in agents.yaml"
    )


def _marked(db: Database) -> bytes | None:
    row = db.execute(statements.BLOB, (NOBODY, MARK)).fetchone()
    return None if row is None else bytes(row[0])


def _mark(db: Database, dialect: Dialect, now: Now, keys: Keys) -> bytes | None:
    """Mark a store as encrypted if it holds nothing; return None if it does."""
    if _is_used(db):
        return None
    dialect.begin(db, now, write=True)
    try:
        dialect.alone(db)
        if not _is_used(db):
            made = _cipher().new_mark(keys)
            db.execute(statements.NEW_BLOB, (NOBODY, MARK, len(made), made))
        found = _marked(db)  # another process may have been faster
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return found


def _is_used(db: Database) -> bool:
    tables = (schema.threads, schema.inbox, schema.outbox, schema.facts, schema.memories)
    rows = (sql.select(next(iter(table.c))).limit(1) for table in tables)
    return any(db.execute(*compiled(row)).fetchone() is not None for row in rows)


def _cipher() -> Any:
    try:
        from wick_graph.store import cipher  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise StorageError(_MISSING) from None
    return cipher
