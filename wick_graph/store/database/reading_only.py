"""A SQLite file that may not be written is opened for reading.

SQLite needs a file beside the database to share a write-ahead log. Where none can be made, a
database without a log is read as one that nobody changes, and of one with a log a copy is read. A
copy is also made of a database of an older schema, which is brought up to date there.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from wick_graph.errors import StorageError
from wick_graph.store.database.fingerprint import check_schema
from wick_graph.store.database.migrations import migrate
from wick_graph.store.database.schema import SCHEMA_VERSION
from wick_graph.store.database.whose import OPENING, Connection, inspect

_BUSY_SECONDS: Final = 5.0


def may_write(path: Path) -> bool:
    """Say whether this process may write to a database, or make one."""
    if not path.exists():
        return True
    beside = [path.with_name(path.name + end) for end in ("-wal", "-shm")]
    folder = os.access(path.parent, os.W_OK | os.X_OK)
    return os.access(path, os.W_OK) and (folder or all(os.access(p, os.W_OK) for p in beside))


def connect_to_read(path: Path) -> Connection:
    """Open a file of ours; it is not changed.

    Raises:
        StorageError: There is no such file, or it is foreign, newer or damaged.
    """
    with OPENING:
        if not path.exists():
            raise StorageError(f"there is no database {path}; name one that is there")
        inspect(path)
        try:
            connection = _opened(path)
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA cell_size_check=ON")
            check_schema(connection, path)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"the database {path} cannot be read ({error}); check its permissions, or restore "
                "a backup"
            ) from error
        return connection


def _opened(path: Path) -> Connection:
    for how in ("mode=ro", "immutable=1"):
        if how == "immutable=1" and _has_log(path):
            break
        try:
            connection = _connect(f"{path.as_uri()}?{how}")
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            continue
        if version == SCHEMA_VERSION:
            connection.claim(path)
            return connection
        with closing(connection):
            return _copied(connection, path)
    with tempfile.TemporaryDirectory(prefix="wick-") as folder:
        held = Path(folder) / path.name
        shutil.copyfile(path, held)
        if _has_log(path):
            shutil.copyfile(_log(path), _log(held))
        with closing(_connect(held.as_uri())) as connection:
            return _copied(connection, path)


def _copied(source: Connection, path: Path) -> Connection:
    """Copy a database to a temporary one of this process, of the newest schema."""
    made = _connect("")
    source.backup(made)
    migrate(made, path)
    return made


def _connect(name: str) -> Connection:
    return sqlite3.connect(
        name,
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _has_log(path: Path) -> bool:
    log = _log(path)
    return log.exists() and log.stat().st_size > 0
