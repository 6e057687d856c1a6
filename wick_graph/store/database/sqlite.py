"""Opening a SQLite file: look at its first bytes, then let SQLite touch it.

SQLite itself would switch a foreign database to WAL, or create an empty one where a file was
lost. So whose file it is gets decided on the 100 bytes of its header, read as plain bytes.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Final, cast

try:
    import fcntl
except ImportError:  # where there are no such locks
    fcntl = None  # type: ignore[assignment]  # the same name for both

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from wick_graph.errors import StorageError
from wick_graph.store.database.dialect import Database, Dialect, Now, Synchronous
from wick_graph.store.database.fingerprint import check_schema, statements
from wick_graph.store.database.migrations import migrate
from wick_graph.store.database.reading_only import connect_to_read, may_write
from wick_graph.store.database.schema import SCHEMA_VERSION
from wick_graph.store.database.whose import (
    APPLICATION_ID,
    OPENING,
    Connection,
    Place,
    inspect,
    place_of,
)

BUSY_SECONDS: Final = 5.0
SAFE_VERSION: Final = (3, 51, 3)
_LEVELS: Final = {"NORMAL": 1, "FULL": 2}
_FINAL: Final = (
    *(sqlite3.IntegrityError, sqlite3.ProgrammingError),
    *(sqlite3.InterfaceError, sqlite3.DataError),
)
_DAMAGED: Final = ("malformed", "not a database", "disk I/O", "decode")
_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What the driver raises: its own sentence about a damaged schema may be no text."""
_LOOK_AGAIN: Final = 0.02
_PAGES: Final = 1_000
"""Free pages that are given back to the file system at once."""


def files_behind(connection: object) -> tuple[str, ...]:
    """Return the files of a connection that somebody else has opened; none if it is no such one."""
    if not isinstance(connection, sqlite3.Connection):
        return ()
    return tuple(row[2] for row in connection.execute("PRAGMA database_list") if row[2])


class Sqlite(Dialect):
    """A file, or a database in memory. One writer at a time; the others wait for it."""

    errors = _ERRORS
    locks = False

    def __init__(
        self, path: Path | None, synchronous: Synchronous = "FULL", *, reads_only: bool = False
    ) -> None:
        self.path = path
        self._reads_only = reads_only
        self.lasts = path is not None
        self._synchronous = synchronous
        self._place: Place | None = None

    @property
    def name(self) -> str:
        """The file's path."""
        return _name(self.path)

    @property
    def files(self) -> tuple[str, ...]:
        """The file, absolute; none for a database in memory."""
        return () if self.path is None else (str(self.path.absolute()),)

    def now(self) -> float:
        """Return this machine's time: the file is on it."""
        return time.time()

    def open(self, now: Now) -> Database:
        """Open the file that was opened before, or make one where there is nothing."""
        self.look()
        if self.path is not None and (self._reads_only or not may_write(self.path)):
            connection = connect_to_read(self.path)
            self.reads_only = True
        else:
            connection = connect(self.path, self._synchronous)
            self.reads_only = False
        connection.create_function("wick_now", 0, now)
        if self.path is not None and self._place is None:
            self._place = place_of(self.path)
        return connection

    def begin(self, db: Database, now: Now, *, write: bool) -> int:
        """Begin a transaction; its number is SQLite's own for changes by other connections."""
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        version: int = db.execute("PRAGMA data_version").fetchone()[0]
        return version

    def look(self) -> None:
        """Make sure that the file is still the one that was opened.

        SQLite would go on writing to a file that nobody finds any more, or make an empty one.
        """
        if self.path is None or self._place is None:
            return
        found = place_of(self.path)
        if found != self._place:
            what = "was deleted" if found is None else "was replaced by another file"
            raise StorageError(
                f"the database {self.path} {what} while it was open; put it back, or open the "
                "store again"
            )

    def explained(self, error: Exception) -> StorageError:
        """Return the sentence for an error of SQLite."""
        return explained(error, self.path)

    def is_final(self, error: BaseException) -> bool:
        """Say whether the same write would fail again."""
        return not isinstance(error, sqlite3.Error) or isinstance(error, _FINAL)

    def shrink(self, db: Database) -> bool:
        """Give some free pages back to the file system."""
        free: int = db.execute("PRAGMA freelist_count").fetchone()[0]
        # One `execute` of this pragma frees a single page; a script steps it to its end.
        cast("sqlite3.Connection", db).executescript(f"PRAGMA incremental_vacuum({_PAGES})")
        return free >= _PAGES

    def problems(self, db: Database) -> list[str]:
        """Let SQLite look through all of its pages."""
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check").fetchall()]
        return [] if found == ["ok"] else [line for text in found for line in text.splitlines()]

    def exists(self) -> bool:
        """Say whether there is a file."""
        return self.path is not None and self.path.exists()


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
            f"a {parts.drivername} store is not supported; write sqlite:///path/to/file.db or "
            "postgresql://user@host/name"
        )
    name = parts.database
    if parts.query or parts.host or (name and name.startswith("file:")):
        raise StorageError("a SQLite URL takes no host and no options; write sqlite:///path.db")
    if not name or name == ":memory:":
        return None
    try:
        return Path(name).resolve()  # once: a link that changes later changes nothing here
    except (OSError, RuntimeError, ValueError) as error:
        raise StorageError(f"the path {name!r} leads nowhere ({error}); name a file") from None


def connect(path: Path | None, synchronous: Synchronous) -> Connection:
    """Open a database of ours, or make one where there is nothing.

    Raises:
        StorageError: if the file is foreign, newer, damaged or no file, which is then unchanged.
    """
    if synchronous not in _LEVELS:
        raise StorageError(f"synchronous must be FULL or NORMAL, not {synchronous!r}")
    with OPENING:
        if path is not None:
            inspect(path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"the folder of {path} cannot be made: {error.strerror}"
                ) from error
            _make(path)
        return _connected(path, synchronous)


def _connected(path: Path | None, synchronous: Synchronous) -> Connection:
    try:
        connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        try:
            if path is not None:
                connection.claim(path)
            _prepare(connection, path, synchronous)
        except BaseException:
            connection.close()
            raise
    except _ERRORS as error:
        raise explained(error, path) from error
    return connection


def advice(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str | None:
    """Return a sentence for users of a SQLite with a known defect, None for a good one."""
    if version >= SAFE_VERSION:
        return None
    return (
        f"SQLite {'.'.join(map(str, version))} can damage a database that several processes write "
        f"to at once, in rare cases; {'.'.join(map(str, SAFE_VERSION))} cannot, so upgrade it "
        "where several processes share a database"
    )


def explained(error: Exception, path: Path | None) -> StorageError:
    """Return the sentence for an error of SQLite."""
    place, text = _name(path), str(error)
    if "locked" in text or "busy" in text:
        advice = "another process keeps it locked; try again"
    elif "full" in text:
        advice = "the disk is full; free some space and try again"
    elif "readonly" in text or "unable to open" in text:
        advice = "check its permissions and its folder"
    elif any(word in text for word in _DAMAGED):
        advice = "it is damaged; restore a backup"
    else:
        advice = "see the cause"
    return StorageError(f"{place} failed ({text}): {advice}")


def _name(path: Path | None) -> str:
    return f"the database {path}" if path else "the database in memory"


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
    migrate(connection, path)
    check_schema(connection, path)
    if path is not None and _with_log(connection) != "wal":
        raise StorageError(f"{path} cannot use a write-ahead log; put it on a local disk")
    run(f"PRAGMA synchronous={synchronous}")
    if run("PRAGMA synchronous").fetchone()[0] != _LEVELS[synchronous]:
        raise StorageError("SQLite does not accept the setting for synchronous; use another build")


def _with_log(connection: sqlite3.Connection) -> str:
    """Switch to a write-ahead log; SQLite itself does not wait here for who reads meanwhile."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN)


def _create(connection: sqlite3.Connection, path: Path | None) -> None:
    """Make the tables in one transaction, unless another process was faster."""
    run = connection.execute
    run("PRAGMA auto_vacuum=INCREMENTAL")
    run("BEGIN EXCLUSIVE")
    try:
        if run("PRAGMA user_version").fetchone()[0] == 0:
            if run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StorageError(f"{path} holds tables of another program; name another file")
            for statement in statements():
                run(statement)
            run(f"PRAGMA application_id={APPLICATION_ID}")
            run(f"PRAGMA user_version={SCHEMA_VERSION}")
        run("COMMIT")
    except BaseException:
        if connection.in_transaction:
            run("ROLLBACK")
        raise
