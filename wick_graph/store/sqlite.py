"""Opening a SQLite file: look at its first bytes, then let SQLite touch it.

SQLite itself would switch a foreign database to WAL, or create an empty one where a file was
lost. So whose file it is gets decided on the 100 bytes of its header, read as plain bytes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

try:
    import fcntl
except ImportError:  # where there are no such locks
    fcntl = None  # type: ignore[assignment]  # the same name for both

from sqlalchemy import make_url
from sqlalchemy.dialects import sqlite as dialect
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import CreateIndex, CreateTable

from wick_graph.errors import StorageError
from wick_graph.store.schema import SCHEMA_VERSION, metadata

APPLICATION_ID: Final = 0x5749434B
BUSY_SECONDS: Final = 5.0
Synchronous = Literal["FULL", "NORMAL"]
_LEVELS: Final = {"NORMAL": 1, "FULL": 2}
_MAGIC: Final = b"SQLite format 3\x00"
_HEADER: Final = 100
_LOOKS: Final = 40
_LOOK_AGAIN: Final = 0.05


def path_of(url: str) -> Path | None:
    """Return the file that a database URL means, None for a database in memory.

    Raises:
        StorageError: if it is no SQLite URL, or one with options.
    """
    try:
        parts = make_url(url)
    except ArgumentError:
        raise StorageError(
            "the store's URL cannot be read; write sqlite:///path/to/file.db"
        ) from None
    if parts.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise StorageError(
            f"a {parts.drivername} store is not supported; write sqlite:///path/to/file.db"
        )
    name = parts.database
    if parts.query or parts.host or (name and name.startswith("file:")):
        raise StorageError("a SQLite URL takes no host and no options; write sqlite:///path.db")
    if not name or name == ":memory:":
        return None
    return Path(os.path.abspath(name))  # noqa: PTH100 - resolve() would follow links


def connect(
    path: Path | None, synchronous: Synchronous, now: Callable[[], float]
) -> sqlite3.Connection:
    """Open a database of ours, or make one where there is nothing.

    `now` becomes the SQL function `wick_now()`, the store's only clock.

    Raises:
        StorageError: if the file is foreign, newer, damaged or no file, which is then unchanged.
    """
    if synchronous not in _LEVELS:
        raise StorageError(f"synchronous must be FULL or NORMAL, not {synchronous!r}")
    if path is not None:
        _inspect_patiently(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"the folder of {path} cannot be made: {error.strerror}") from error
        _make(path)
    try:
        connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _prepare(connection, path, synchronous)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise explained(error, path) from error
    connection.create_function("wick_now", 0, now)
    return connection


def explained(error: sqlite3.Error, path: Path | None) -> StorageError:
    """Return the sentence for an error of SQLite."""
    place = f"the database {path}" if path else "the database in memory"
    text = str(error)
    if "locked" in text or "busy" in text:
        advice = "another process keeps it locked; try again"
    elif "full" in text:
        advice = "the disk is full; free some space and try again"
    elif "readonly" in text or "unable to open" in text:
        advice = "check its permissions and its folder"
    elif "malformed" in text or "not a database" in text or "disk I/O" in text:
        advice = "it is damaged; restore a backup"
    else:
        advice = "see the cause"
    return StorageError(f"{place} failed ({text}): {advice}")


def place_of(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from any other, None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino


def _inspect_patiently(path: Path) -> None:
    """Look again while another process is still making the file."""
    for _ in range(_LOOKS):
        try:
            return _inspect(path)
        except StorageError:
            if not path.with_name(path.name + "-journal").exists():
                break
            time.sleep(_LOOK_AGAIN)
    return _inspect(path)


def _inspect(path: Path) -> None:
    """Refuse a file that is not ours, on its header alone."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise StorageError(f"{path} is {kind}; name a file for the database")
        if status.st_size == 0:
            return
        with path.open("rb") as file:
            head = file.read(_HEADER)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    _judge(path, head, status.st_size)


def _judge(path: Path, head: bytes, size: int) -> None:
    if len(head) < _HEADER or not head.startswith(_MAGIC):
        raise StorageError(
            f"{path} is not a SQLite database, or its beginning is damaged; name another file"
        )
    page = struct.unpack_from(">H", head, 16)[0]
    page = 65_536 if page == 1 else page
    changed, pages = struct.unpack_from(">II", head, 24)
    version, owner = (struct.unpack_from(">I", head, at)[0] for at in (60, 68))
    valid_for = struct.unpack_from(">I", head, 92)[0]
    if owner != APPLICATION_ID:
        raise StorageError(
            f"{path} belongs to another program (application id {owner:#010x}); name another file"
        )
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{path} was written by a newer wick_graph (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade wick_graph"
        )
    if version < 1 or page < 512 or page & (page - 1):
        raise StorageError(f"{path} is damaged: its header makes no sense; restore a backup")
    if changed == valid_for and size < pages * page:
        raise StorageError(
            f"{path} is damaged: it has {size} of {pages * page} bytes; restore a backup"
        )


def _make(path: Path) -> None:
    """Put a whole new database in the place of nothing, or of an empty file, in one step.

    Made in place it would be half there for a moment, and a process killed in that moment would
    leave a file that is nobody's.
    """
    if path.exists() and path.stat().st_size:
        return
    made = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        connection = sqlite3.connect(made, isolation_level=None)
        try:
            _create(connection, made)
        finally:
            connection.close()
        try:
            os.link(made, path)  # never takes another's place
        except FileExistsError:
            _replace_empty(path, made)
        except OSError:  # a file system without links
            path.touch()
            _replace_empty(path, made)
    except (sqlite3.Error, OSError) as error:
        text = str(error) if isinstance(error, sqlite3.Error) else error.strerror
        raise StorageError(f"the database {path} cannot be made: {text}") from error
    finally:
        made.unlink(missing_ok=True)
        made.with_name(made.name + "-journal").unlink(missing_ok=True)


def _replace_empty(path: Path, made: Path) -> None:
    """Take the place of an empty file, which means a new database, unless somebody was faster."""
    with path.open("rb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        status = os.fstat(file.fileno())
        if place_of(path) == (status.st_dev, status.st_ino) and not status.st_size:
            made.replace(path)


def _prepare(connection: sqlite3.Connection, path: Path | None, synchronous: Synchronous) -> None:
    run = connection.execute
    run(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    run("PRAGMA trusted_schema=OFF")
    run("PRAGMA cell_size_check=ON")
    if run("PRAGMA user_version").fetchone()[0] == 0:
        _create(connection, path)
    if path is not None and run("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
        raise StorageError(f"{path} cannot use a write-ahead log; put it on a local disk")
    run(f"PRAGMA synchronous={synchronous}")
    if run("PRAGMA synchronous").fetchone()[0] != _LEVELS[synchronous]:
        raise StorageError("SQLite does not accept the setting for synchronous; use another build")


def _create(connection: sqlite3.Connection, path: Path | None) -> None:
    """Make the tables in one transaction, unless another process was faster."""
    run = connection.execute
    run("PRAGMA auto_vacuum=INCREMENTAL")
    run("BEGIN EXCLUSIVE")
    try:
        if run("PRAGMA user_version").fetchone()[0] == 0:
            if run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StorageError(f"{path} holds tables of another program; name another file")
            for table in metadata.sorted_tables:
                run(str(CreateTable(table).compile(dialect=dialect.dialect())))
                for index in sorted(table.indexes, key=lambda index: str(index.name)):
                    run(str(CreateIndex(index).compile(dialect=dialect.dialect())))
            run(f"PRAGMA application_id={APPLICATION_ID}")
            run(f"PRAGMA user_version={SCHEMA_VERSION}")
        run("COMMIT")
    except BaseException:
        if connection.in_transaction:
            run("ROLLBACK")
        raise
