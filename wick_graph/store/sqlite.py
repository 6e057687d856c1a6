"""Opening a SQLite file: check its header, then let SQLite open it.

SQLite itself would switch a foreign database to WAL, or make an empty one if a file was lost. So
the store first reads the 100 bytes of the header as plain bytes, and refuses a foreign file.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
import stat
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from wick_graph import machine
from wick_graph.errors import StorageError
from wick_graph.store.dialect import OPENING, Database, Dialect, Now, Synchronous
from wick_graph.store.digests import SCHEMA_VERSION, Account, checksum_of, migrate
from wick_graph.store.later import dialect, schema, sql
from wick_graph.store.texts import Prepared, fitting, fitting_rows, made_text

# --- Check the 100 bytes of a file's header before SQLite opens it.
#
# A file that this process has open already is not checked: closing a second descriptor of it would
# drop all locks that SQLite holds for this process, and another process could then delete the
# write-ahead log that is in use.


APPLICATION_ID: Final = 0x5749434B

_MAGIC: Final = b"SQLite format 3\x00"

_HEADER: Final = 100

_LOOKS: Final = 40

_HEADER_RETRY_PAUSE: Final = 0.05

_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "fuse.rclone"}
)

_MOUNTS: Final = Path("/proc/self/mounts")

Place = tuple[int, int]
"""Device and inode, which identify a file."""

_MODE: Final = 0o644
"""SQLite's own mode of a new file, less what the process masks."""

_in_use: Final[dict[Place, set[int]]] = {}


if (bytes, sqlite3.PrepareProtocol) not in sqlite3.adapters:
    # This method returns the same object. Without an adapter, sqlite3 makes an `AttributeError`
    # inside for each value of this type that it binds, and most of ours are of it.
    sqlite3.register_adapter(bytes, bytes.__bytes__)


_execute: Final = fitting(sqlite3.Connection.execute)

_executemany: Final = fitting_rows(sqlite3.Connection.executemany)


class Connection(sqlite3.Connection):
    """A connection that marks its file as open in this process."""

    place: Place | None = None
    level: str = ""
    """How durable its next commit is, as far as it was set by `Sqlite.begin`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.account = Account()
        self.create_function("wick_checksum", -1, checksum_of, deterministic=True)

    def execute(self, text: str | Prepared, values: Any = (), /) -> sqlite3.Cursor:
        """Run a statement."""
        return _execute(self, text if isinstance(text, str) else text.made or text.text, values)

    def executemany(self, text: str | Prepared, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """Run a statement once for each row of values."""
        return _executemany(self, text if isinstance(text, str) else text.made or text.text, rows)

    def claim(self, path: Path) -> None:
        """Mark this connection's file as open."""
        place = place_of(path)
        if place is not None:
            _in_use.setdefault(place, set()).add(id(self))
            self.place = place

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._leave()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        place, self.place = self.place, None
        if place is not None:
            _in_use.setdefault(place, set()).discard(id(self))


def place_of(path: Path) -> Place | None:
    """Return a file's device and inode; None if there is no file.

    Raises:
        StorageError: The file cannot be examined.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  # on the path of every transaction
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino


def check_file_header(path: Path) -> None:
    """Refuse a file that is not ours, or that is in a place where SQLite cannot lock it.

    Check again while another process is still making the file.

    Raises:
        StorageError: The file is refused; it is unchanged.
    """
    kind = file_system(path, _mounts())
    if kind in _REMOTE:
        raise StorageError(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold; "
            "put it on a local disk"
        )
    place = place_of(path)
    if place is not None and _in_use.get(place):
        return None
    for _ in range(_LOOKS):
        try:
            return _check_file_header(path)
        except StorageError:
            if not path.with_name(path.name + "-journal").exists():
                break
            time.sleep(_HEADER_RETRY_PAUSE)
    return _check_file_header(path)


def file_system(path: Path, mounts: str) -> str:
    """Return the kind of a path's file system, by a mount table; empty if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = point == "/" or str(path) == point or str(path).startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _check_file_header(path: Path) -> None:
    """Refuse a file that is not ours, by its header alone."""
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
    _judge(path, head)


def _judge(path: Path, head: bytes) -> None:
    if len(head) < _HEADER or not head.startswith(_MAGIC):
        raise StorageError(
            f"{path} is not a SQLite database, or its header is damaged; name another file"
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
        raise StorageError(f"{path} is damaged: its header is not valid; restore a backup")
    if changed != valid_for or path.with_name(path.name + "-wal").exists():
        return  # a checkpoint may be half done, by a process that died: the log has the rest
    if (size := path.stat().st_size) < pages * page:  # after the look for the log
        raise StorageError(
            f"{path} is damaged: it has {size} of {pages * page} bytes; restore a backup"
        )


# --- The schema of a database: our tables and indexes, and nothing that runs by itself.
#
# Our own statements would execute a trigger, a view, a generated column or a constraint of a
# prepared file. So everything in the schema is compared with what this release makes.


_ALIVE: Final = re.compile(
    r"\b(check|generated|collate|default|references|virtual|strict|without)\b", re.IGNORECASE
)
"""Words that do not occur in our own tables."""


SCHEMA: Final = "schema"
"""The name of the text of all statements that make the schema."""

BETWEEN: Final = "\n;\n"
"""What is between two of them."""


@cache
def creation() -> tuple[str, ...]:
    """Return the statements that make our tables and indexes, in order."""
    made = made_text("sqlite", SCHEMA)
    return compiled_creation() if made is None else tuple(made.split(BETWEEN))


def compiled_creation() -> tuple[str, ...]:
    """Make those statements."""
    made: list[Any] = []
    for table in schema.metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made += [sql.schema.CreateTable(table), *map(sql.schema.CreateIndex, indexes)]
    return tuple(str(one.compile(dialect=dialect.dialect())).strip() for one in made)


def check_schema(connection: sqlite3.Connection, path: Path | None) -> None:
    """Compare a database's schema with ours.

    Raises:
        StorageError: It differs; the text names the first difference. Nothing in the file was run
            or changed.
    """
    try:
        rows = _rows(connection)
        if rows == _new()[0]:
            return
        found = _schema(connection, rows)
    except (TypeError, ValueError, AttributeError):  # invalid names and texts
        raise StorageError(_no_schema(path)) from None
    expected = _expected()
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            what = "is missing" if name not in found else "is not wick_graph's"
            raise StorageError(
                f"{path or 'the database in memory'} was changed by another program: {name} "
                f"{what}; restore a backup"
            )


def _no_schema(path: Path | None) -> str:
    where = path or "the database in memory"
    return f"{where} is damaged: its schema cannot be read; restore a backup"


@cache
def _expected() -> dict[str, frozenset[str]]:
    rows, content = _new()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        return _schema(connection, rows)


_Row = tuple[str, str, str, str | None]
"""An object of a schema: its kind, its name, its table, and the text that made it."""


def _rows(connection: sqlite3.Connection) -> list[_Row]:
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE "
        "'sqlite~_stat%' ESCAPE '~' AND name <> 'sqlite_sequence' ORDER BY type, name"
    ).fetchall()


def _schema(connection: sqlite3.Connection, rows: list[_Row]) -> dict[str, frozenset[str]]:
    """Describe each object of a schema, without the parts of its text that may differ."""
    return {
        f"{kind} {name}": frozenset(_parts(connection, kind, name, table, text or ""))
        for kind, name, table, text in rows
    }


def _parts(
    connection: sqlite3.Connection, kind: str, name: str, table: str, text: str
) -> Iterator[str]:
    yield f"of {table}"
    if kind == "table":
        for column in connection.execute(f"PRAGMA table_xinfo({_quoted(name)})"):
            yield f"column {column[1:]}"
        yield from (f"word {word.lower()}" for word in _ALIVE.findall(text))
    elif kind == "index":
        for column in connection.execute(f"PRAGMA index_xinfo({_quoted(name)})"):
            yield f"key {column}"
        if text:
            yield re.sub(r'[\s"]+', " ", text).strip().lower()
    else:
        yield text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# --- A SQLite file that cannot be written is opened for reading.
#
# SQLite needs a file beside the database to share a write-ahead log. If it cannot make one, a
# database without a log is opened as immutable, and a database with a log is copied. A database of
# an older schema is copied too, and the copy is brought up to date.


_BUSY_SECONDS: Final = 5.0


def may_write(path: Path) -> bool:
    """Return whether this process may write to a database, or make one."""
    if not path.exists():
        return True
    beside = [path.with_name(path.name + end) for end in ("-wal", "-shm")]
    folder = os.access(path.parent, os.W_OK | os.X_OK)
    return os.access(path, os.W_OK) and (folder or all(os.access(p, os.W_OK) for p in beside))


def connect_to_read(path: Path) -> Connection:
    """Open a file of ours without changing it.

    Raises:
        StorageError: There is no such file, or it is foreign, newer or damaged.
    """
    with OPENING:
        if not path.exists():
            raise StorageError(f"there is no database {path}; name one that is there")
        check_file_header(path)
        try:
            connection = _opened(path)
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA cell_size_check=ON")
            check_schema(connection, path)
        except UnicodeDecodeError as error:  # of SQLite's message, which quotes the schema
            raise StorageError(_no_schema(path)) from error
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
    """Copy a database to a temporary one, and bring that to the newest schema."""
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


BUSY_SECONDS: Final = 5.0

SAFE_VERSION: Final = (3, 51, 3)

_LEVELS: Final = {"NORMAL": 1, "FULL": 2}

_FINAL: Final = (
    *(sqlite3.IntegrityError, sqlite3.ProgrammingError),
    *(sqlite3.InterfaceError, sqlite3.DataError),
)

_DAMAGED: Final = ("malformed", "not a database", "disk I/O", "decode")

_UNWRITTEN: Final = ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")
"""The disk or a quota took no more; what is stored is sound."""

_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The driver's exceptions; its own message about a damaged schema may be invalid text."""

_PAGES: Final = 1_000
"""The number of free pages that are given back to the file system at a time."""


def files_behind(connection: object) -> tuple[str, ...]:
    """Return the files of another program's SQLite connection; none for any other object."""
    if not isinstance(connection, sqlite3.Connection):
        return ()
    return tuple(row[2] for row in connection.execute("PRAGMA database_list") if row[2])


class Sqlite(Dialect):
    """A file, or a database in memory; one writer at a time, and the others wait."""

    errors = _ERRORS
    locks = False
    wait = BUSY_SECONDS
    """How long a transaction waits for those of other connections, in seconds."""

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
        """Return the time of this machine, which has the file."""
        return time.time()

    def migrate(self) -> int:
        """Bring the file up to the newest schema, as opening does; return its number."""
        self.open(self.now).close()
        return SCHEMA_VERSION

    def open(self, now: Now) -> Database:
        """Open the file that was opened before, or make one if there is none."""
        self.look()
        if self.path is not None and (self._reads_only or not may_write(self.path)):
            connection = connect_to_read(self.path)
            self.reads_only = True
        else:
            connection = connect(self.path, self._synchronous, self.wait)
            self.reads_only = False
        connection.create_function("wick_now", 0, now)
        if self.path is not None and self._place is None:
            self._place = place_of(self.path)
        return connection

    def begin(self, db: Database, now: Now, *, write: bool, light: bool = False) -> int:
        """Begin a transaction; return SQLite's number for changes by other connections.

        The log is not flushed at the end of a light one. The next flush takes all of the log.
        """
        own, level = cast("Connection", db), "NORMAL" if light else self._synchronous
        if write and level != (own.level or self._synchronous):
            own.level = "unknown"  # an interrupt may come between
            own.execute(f"PRAGMA synchronous={level}")
            own.level = level
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        version: int = db.execute("PRAGMA data_version").fetchone()[0]
        return version

    def look(self) -> None:
        """Make sure that the file is still the one that was opened.

        SQLite would go on writing to a file that was deleted, or make an empty one.
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
        """Turn an error of SQLite into a sentence with a remedy."""
        return explained(error, self.path)

    def is_final(self, error: BaseException) -> bool:
        """Return whether the same write would fail again."""
        return not isinstance(error, sqlite3.Error) or isinstance(error, _FINAL)

    def shrink(self, db: Database) -> bool:
        """Give some free pages back to the file system."""
        free: int = db.execute("PRAGMA freelist_count").fetchone()[0]
        # `execute` of this pragma frees a single page; a script runs it to its end.
        cast("sqlite3.Connection", db).executescript(f"PRAGMA incremental_vacuum({_PAGES})")
        return free >= _PAGES

    def problems(self, db: Database) -> list[str]:
        """Let SQLite check all of its pages."""
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check").fetchall()]
        return [] if found == ["ok"] else [line for text in found for line in text.splitlines()]

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self.path is not None and self.path.exists()


_PLAIN: Final = re.compile(r"sqlite://(?:/([^?#%@]+))?")
"""URLs that SQLAlchemy need not take apart."""


def path_of(url: str) -> Path | None:
    """Return the file of a database URL; None for a database in memory.

    Raises:
        StorageError: It is not a SQLite URL, or has options.
    """
    plain = _PLAIN.fullmatch(url)
    name = plain[1] if plain is not None else _parsed(url)
    if name and name.startswith("file:"):
        raise StorageError(_OPTIONS)
    if not name or name == ":memory:":
        return None
    try:
        found = Path.home() / name[2:] if name.startswith("~/") else Path(name)
        return found.resolve()  # only once: later changes of a link have no effect
    except (OSError, RuntimeError, ValueError) as error:
        raise StorageError(f"the path {name!r} cannot be resolved ({error}); name a file") from None


_OPTIONS: Final = "a SQLite URL takes no host and no options; write sqlite:///path.db"


def _parsed(url: str) -> str | None:
    """Return what a URL names, which may be quoted."""
    try:
        parts = sql.make_url(url)
    except (sql.exc.ArgumentError, ValueError):
        raise StorageError(
            "the store's URL cannot be read; write sqlite:///path/to/file.db"
        ) from None
    if parts.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise StorageError(
            f"a {parts.drivername} store is not supported; write sqlite:///path/to/file.db or "
            "postgresql://user@host/name"
        )
    if parts.query or parts.host:
        raise StorageError(_OPTIONS)
    return parts.database


def connect(path: Path | None, synchronous: Synchronous, wait: float = BUSY_SECONDS) -> Connection:
    """Open a database of ours, or make one if there is none.

    `wait` is how long it waits for other connections, in seconds.

    Raises:
        StorageError: The file is foreign, newer, damaged or not a file; it is unchanged.
    """
    if synchronous not in _LEVELS:
        raise StorageError(f"synchronous must be FULL or NORMAL, not {synchronous!r}")
    with OPENING:
        if path is not None:
            check_file_header(path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                what = f"the folder of {path} cannot be made: {error.strerror}"
                raise StorageError(what) from error
            _make(path)
        return _connected(path, synchronous, wait)


def _connected(path: Path | None, synchronous: Synchronous, wait: float) -> Connection:
    try:
        connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=wait,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        try:
            if path is not None:
                connection.claim(path)
            _prepare(connection, path, synchronous, wait)
        except BaseException:
            connection.close()
            raise
    except _ERRORS as error:
        raise explained(error, path) from error
    return connection


def advice(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str | None:
    """Return a warning if this version of SQLite has a known defect; None if it has not."""
    if version >= SAFE_VERSION:
        return None
    return (
        f"SQLite {'.'.join(map(str, version))} can, in rare cases, damage a database that several "
        "processes write to at once; if several processes share a database, upgrade SQLite to "
        f"{'.'.join(map(str, SAFE_VERSION))}"
    )


def explained(error: Exception, path: Path | None) -> StorageError:
    """Turn an error of SQLite into a sentence with a remedy."""
    place, text = _name(path), str(error)
    if "locked" in text or "busy" in text:
        advice = "another process keeps it locked; try again"
    elif "full" in text or getattr(error, "sqlite_errorname", "") in _UNWRITTEN:
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
    """Make a new database in one step, if there is no file or an empty one.

    A process that is killed while it makes the file in place would leave one that belongs to no
    program.
    """
    if path.exists() and path.stat().st_size:
        return
    made = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        # An empty file's mode stays: it may be private.
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _MODE
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(_new()[1])
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, path)  # never replaces a file
        except FileExistsError:
            _replace_empty(path, made)
        except OSError:  # a file system without links
            path.touch()
            _replace_empty(path, made)
    except OSError as error:
        raise StorageError(f"the database {path} cannot be made: {error.strerror}") from error
    finally:
        made.unlink(missing_ok=True)


@cache
def _new() -> tuple[list[_Row], bytes]:
    """Return the schema of a new file, and its content, which are the same each time."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _create(connection, None)
        return _rows(connection), connection.serialize()


def _fill(connection: sqlite3.Connection) -> None:
    """Fill a new database in memory: its pages take 3 % of the time of the statements."""
    with closing(sqlite3.connect(":memory:")) as whole:
        whole.deserialize(_new()[1])  # the copy may grow beyond what such a one may
        whole.backup(connection)


def _replace_empty(path: Path, made: Path) -> None:
    """Replace an empty file with a new database, unless another process was faster.

    Where an open file cannot be replaced, the first connection makes the tables in the empty one.
    """
    if not machine.REPLACES_OPEN_FILES:
        return
    with path.open("rb") as file:
        machine.lock(file.fileno(), wait=True)
        status = os.fstat(file.fileno())
        if place_of(path) == (status.st_dev, status.st_ino) and not status.st_size:
            made.replace(path)


def _prepare(
    connection: sqlite3.Connection, path: Path | None, synchronous: Synchronous, wait: float
) -> None:
    run = connection.execute
    run("PRAGMA trusted_schema=OFF")
    run("PRAGMA cell_size_check=ON")
    if path is None:
        _fill(connection)
    else:
        if run("PRAGMA user_version").fetchone()[0] == 0:
            _create(connection, path)
        migrate(connection, path)
        check_schema(connection, path)
        if _with_log(connection, wait) != "wal":
            raise StorageError(f"{path} cannot use a write-ahead log; put it on a local disk")
    run(f"PRAGMA synchronous={synchronous}")
    if run("PRAGMA synchronous").fetchone()[0] != _LEVELS[synchronous]:
        raise StorageError("SQLite does not accept the setting for synchronous; use another build")


def _with_log(connection: sqlite3.Connection, wait: float) -> str:
    """Switch to a write-ahead log; SQLite itself does not wait for readers here."""
    until = time.monotonic() + wait
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _create(connection: sqlite3.Connection, path: Path | None) -> None:
    """Make the tables in one transaction, unless another process was faster."""
    run = connection.execute
    run("PRAGMA auto_vacuum=INCREMENTAL")
    run("BEGIN EXCLUSIVE")
    try:
        if run("PRAGMA user_version").fetchone()[0] == 0:
            if run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StorageError(f"{path} holds tables of another program; name another file")
            for statement in creation():
                run(statement)
            run(f"PRAGMA application_id={APPLICATION_ID}")
            run(f"PRAGMA user_version={SCHEMA_VERSION}")
        run("COMMIT")
    except BaseException:
        if connection.in_transaction:
            run("ROLLBACK")
        raise
