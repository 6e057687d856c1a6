"""Move threads between stores as files, and repair a damaged store."""

from __future__ import annotations

import sqlite3
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Table, select

from wick_graph.errors import StorageError
from wick_graph.store.cleanup import GONE, all_rows
from wick_graph.store.codec import BLOB_MARK, HASH_BYTES, Codec, hashes_in, is_text_key
from wick_graph.store.connection import StoreConnection
from wick_graph.store.copying import save_sound, transfer
from wick_graph.store.dialect import Database
from wick_graph.store.digests import fill
from wick_graph.store.encryption import Keys, check_keys
from wick_graph.store.row_format import bytes_text
from wick_graph.store.saver import SqlSaver, dialect_of
from wick_graph.store.schema import (
    blobs,
    calls,
    checkpoints,
    facts,
    inbox,
    items,
    memories,
    metadata,
    outbox,
    threads,
    tokens,
    writes,
)
from wick_graph.store.sqlite import Sqlite
from wick_graph.store.statements import checked, checked_columns
from wick_graph.store.texts import compiled
from wick_graph.store.verify import SEALED, Finding, Progress, Report, ThreadRows, same_checksum

# --- Files of threads from elsewhere: checked before they are opened as a store.


MAX_FILE_BYTES: Final = 4 * 2**30

_MADE_UP: Final = """
SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')
OR (type = 'table' AND rootpage = 0) UNION ALL
SELECT m.name FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c
WHERE m.type = 'table' AND c.hidden > 1
"""
"""Views, triggers, virtual tables, computed columns: a few bytes of them can make endless rows."""


def check_arrived(file: Path) -> None:
    """Refuse a file that is empty or too large, or that computes its content.

    Whether it is a store is checked later.

    Raises:
        StorageError: The file is refused.
    """
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{file} is no regular file; name the file of an export")
    if not status.st_size:  # opening it would make a store of it
        raise StorageError(f"{file} is empty; name the file of an export")
    if status.st_size > MAX_FILE_BYTES:
        raise StorageError(
            f"{file} has more than {MAX_FILE_BYTES // 2**30} GiB; export less at once"
        )
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            db.text_factory = bytes  # a name may be invalid text
            found = db.execute(_MADE_UP).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):  # SQLite's error may quote invalid text too
        return
    if found is not None:
        name = _text(found[0] or b"")
        raise StorageError(
            f"{file} computes content ({name!r:.80}), which no export does; do not use it"
        )


# --- A thread as a file: exported to a database of its own, and imported from one.


def export_thread(
    saver: SqlSaver, thread_id: str, path: str | Path, *, plain: bool = False
) -> None:
    """Write a thread to a file: a SQLite database that any `SqlSaver` of its tenant opens.

    It holds everything of the thread: checkpoints, the ledger of its calls, its journal. If the
    store is encrypted, the file is encrypted with the same keys, unless it is to be `plain`.

    Raises:
        ThreadNotFoundError: There is no such thread; no file is made.
        StorageError: The file exists already.
    """
    file = Path(path)
    if file.exists():
        raise StorageError(f"{file} is there already; choose another name, or delete it first")
    known: Any = saver.threads.get(thread_id)
    made = False
    try:
        if known is not None:
            made = True
        keys = None if plain else saver._core.sealing.keys
        url = _url(file) if made else "sqlite://"
        with SqlSaver.from_url(url, keys=keys, tenant=tenant_of(saver)) as other:
            transfer(saver._core, thread_id, other._core, thread_id)
    except BaseException:
        if made:
            for name in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)
        raise


def import_thread(
    saver: SqlSaver,
    path: str | Path,
    thread_id: str | None = None,
    *,
    to: str | None = None,
    keys: Keys | str | None = None,
) -> str:
    """Import a thread from a file that `export_thread` wrote, or from any store's file.

    Args:
        saver: The store to import into.
        path: The file.
        thread_id: The thread to import; not needed if the file holds only one.
        to: Its new id; by default it keeps its own.
        keys: The keys of an encrypted file; by default those of `saver`.

    Returns:
        The id of the imported thread.

    Raises:
        StorageError: The file cannot be read, or the id is taken.
        ThreadNotFoundError: The file holds no such thread.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"there is no file {file}; export a thread first")
    check_arrived(file)
    with _opened(file, check_keys(keys) or saver._core.sealing.keys, tenant_of(saver)) as other:
        if thread_id is None:
            infos = other.threads.list(limit=2)
            if len(infos) != 1:
                count = "no thread" if not infos else "several threads"
                raise StorageError(f"{file} holds {count}; name the one to import")
            thread_id = infos[0].thread_id
        transfer(other._core, thread_id, saver._core, to or thread_id)
    return to or thread_id


def tenant_of(saver: SqlSaver) -> str:
    """Return the tenant of a saver."""
    return bytes_text(saver._core.tenant)


def _opened(file: Path, keys: Keys | None, wanted: str) -> SqlSaver:
    """Open a file, encrypted or not, as the wanted tenant, or else as the only one in it.

    Raises:
        StorageError: It holds threads of several tenants, and none of the wanted one.
    """
    core = StoreConnection(
        dialect_of(_url(file)), tenant=wanted, ttl=None, keys=keys, accept_plain=True
    )
    saver = SqlSaver(core, Codec())
    try:
        with core.reading() as db:
            query = select(threads.c.tenant).where(threads.c.status != GONE).distinct()
            found = {bytes(name) for (name,) in db.execute(*compiled(query)).fetchall()}
        if found and core.tenant not in found:
            if len(found) > 1:
                raise StorageError(
                    f"{file} holds threads of {len(found)} tenants, and none of {wanted}; open "
                    "the store as one of them: SqlSaver.from_url(..., tenant=...)"
                )
            core.tenant = found.pop()
    except BaseException:
        saver.close()
        raise
    return saver


def _url(file: Path) -> str:
    return f"sqlite:///{file.absolute()}"


# --- `repair`: save what is sound of a damaged store into a new one.
#
# The damaged store is only read. First all rows that SQLite can reach are copied. Then each thread
# is saved with its complete steps: those with every row present and unchanged.


_PAGE: Final = 500

_FAR: Final = 1 << 62

_WRONG: Final = (StorageError, ValueError, TypeError, IndexError, KeyError, OverflowError)


@dataclass(slots=True, kw_only=True)
class Repaired:
    """What was saved, and what was lost."""

    threads: int = 0
    steps: int = 0
    lost: list[Finding] = field(default_factory=list)


def repair(
    url: str, to: str, *, keys: Keys | str | None = None, progress: Progress | None = None
) -> Repaired:
    """Save what is sound of a store into a new one; the store itself is only read.

    Args:
        url: The damaged store.
        to: The URL of the new store, which must be empty.
        keys: The keys of both stores.
        progress: Called after each thread.

    Raises:
        StorageError: The damaged store cannot be read, or the new one is not empty.
    """
    made = Repaired()
    with _readable(url, made) as source:
        core = StoreConnection(dialect_of(source), tenant="local", ttl=None, keys=check_keys(keys))
        with closing(core), closing(_empty(to, keys)) as target:
            _without_threads(core, target, made)
            with core.reading() as db:
                query = select(threads.c.id, threads.c.tenant, threads.c.thread)
                query = query.where(threads.c.status != GONE).order_by(threads.c.id)
                found = db.execute(*compiled(query)).fetchall()
            for at, (number, tenant, key) in enumerate(found):
                _thread(core, target, number, bytes(tenant), bytes(key), made)
                if progress is not None:
                    progress(at + 1, len(found))
    return made


_OF_NO_THREAD: Final = (tokens, inbox, outbox, facts, memories)


def _empty(url: str, keys: Keys | str | None) -> StoreConnection:
    core = StoreConnection(dialect_of(url), tenant="local", ttl=None, keys=check_keys(keys))
    with core.reading() as db:
        for table in (threads, *_OF_NO_THREAD):
            query = select(next(iter(table.c))).limit(1)
            if db.execute(*compiled(query)).fetchone() is not None:
                core.close()
                raise StorageError(f"{core.dialect.name} is not empty; name a new database")
    return core


def _without_threads(core: StoreConnection, target: StoreConnection, made: Repaired) -> None:
    """Copy the rows that are of no thread, without those that were changed."""
    for table in _OF_NO_THREAD:
        columns = checked_columns(table)
        query = select(table.c.checksum, *columns).order_by(table.c.rid)
        with core.reading() as db, target.writing(alone=True) as to:
            for checksum, *values in db.execute(*compiled(query)).fetchall():
                try:
                    if not (core.dialect.locks or same_checksum(checksum, values)):
                        raise StorageError(f"a row of {table.name} was changed")
                    names = (column.name for column in columns)
                    row = _sealed(core, target, table, dict(zip(names, values, strict=True)))
                except _WRONG as error:
                    made.lost.append(Finding(what=str(error), table=table.name))
                    continue
                to.execute(*compiled(table.insert().values(**checked(table, row, new=True))))


def _sealed(
    core: StoreConnection, target: StoreConnection, table: Table, row: dict[str, Any]
) -> dict[str, Any]:
    """Seal a row for another store, which may have another secret."""
    made = dict(row)
    for of, key, column, label in SEALED:
        if of is table and row[column.name] is not None:
            context = (bytes(row["tenant"]), bytes(row[key.name]), label)
            data = core.sealing.open(bytes(row[column.name]), *context)
            made[column.name] = target.sealing.close(data, *context)
    return made


def _thread(
    core: StoreConnection,
    target: StoreConnection,
    number: int,
    tenant: bytes,
    key: bytes,
    made: Repaired,
) -> None:
    """Save the sound steps of one thread."""
    core.tenant = target.tenant = tenant
    core.caches.clear()
    name = key.decode("utf-8", "backslashreplace")
    report = Report()
    try:
        with core.reading() as db:
            thread_id = bytes_text(key)
            rows = ThreadRows(core, db, number, tenant, key)
            rows.check(report)
            lost_text = any(one.table == "blobs" for one in report.findings)
            sound = _Sound(db, rows, lost_text)
            save_sound(core, db, target, thread_id, sound)
            kept, lost = sound.counts()
    except _WRONG as error:
        made.lost += [*report.findings, Finding(what=f"the thread: {error}", thread=name)]
        return
    made.lost += report.findings
    made.threads += 1
    made.steps += kept
    if lost:
        what = f"{lost} of {kept + lost} steps are left out"
        made.lost.append(Finding(what=what, table="checkpoints", thread=name))


class _Sound:
    """The rows of a thread that are saved."""

    def __init__(self, db: Database, rows: ThreadRows, lost_text: bool) -> None:
        whole, broken = rows.whole, rows.incomplete
        if lost_text:
            self._leave_out(db, rows)
        every = [row for row, _ in all_rows(db, rows.number)]
        steps = {
            row.rid: (row.ns, row.id)
            for row in every
            if row.rid in whole[checkpoints] and (checkpoints, row.rid) not in broken
        }
        self._counts = len(steps), len(every) - len(steps)
        own = writes.c
        query = select(own.rid, own.ns, own.checkpoint, own.task).where(own.thread == rows.number)
        places = {*steps.values()}
        pending = {
            (ns, at, task)
            for rid, ns, at, task in db.execute(*compiled(query)).fetchall()
            if rid in whole[writes] and (writes, rid) not in broken and (ns, at) in places
        }
        query = select(calls.c.rid, calls.c.key).where(calls.c.thread == rows.number)
        ledger = {key for rid, key in db.execute(*compiled(query)) if rid in whole[calls]}
        self._sound: dict[Table, Collection[Any]] = {
            **whole,
            checkpoints: steps,
            writes: pending,
            calls: ledger,
        }

    def __call__(self, table: Table, key: Any) -> bool:
        return key in self._sound[table]

    def counts(self) -> tuple[int, int]:
        """Return the numbers of steps that are saved, and that are not."""
        return self._counts

    def _leave_out(self, db: Database, rows: ThreadRows) -> None:
        """Count items without their long texts as damaged, and with them their steps."""
        texts = {key[-HASH_BYTES:] for key in rows.whole[blobs] if is_text_key(key)}
        for rid, body in rows.bodies(items):
            if any(hashed not in texts for hashed in hashes_in(body, BLOB_MARK)):
                rows.whole[items].discard(rid)
        rows.check_references()


# --- The rows of a file that can be reached.


@contextmanager
def _readable(url: str, made: Repaired) -> Iterator[str]:
    """Yield the URL of a readable database: for a file, of a copy with its readable rows."""
    dialect = dialect_of(url, reads_only=True)
    if not isinstance(dialect, Sqlite) or dialect.path is None:
        yield url
        return
    if not dialect.path.exists():
        raise StorageError(f"there is no database {dialect.path}; name one that is there")
    with tempfile.TemporaryDirectory(prefix="wick-") as folder:
        copied, reached = Path(folder) / "as-it-is.db", Path(folder) / "reached.db"
        for end in ("", "-wal"):
            held = dialect.path.with_name(dialect.path.name + end)
            if held.exists():
                copied.with_name(copied.name + end).write_bytes(held.read_bytes())
        fresh = dialect_of(f"sqlite:///{reached}")
        with closing(fresh.open(fresh.now)) as to:
            try:
                with closing(sqlite3.connect(copied, isolation_level=None)) as source:
                    source.text_factory = _text
                    _reach(source, to, made)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise StorageError(
                    f"{dialect.path} cannot be read at all ({error}); restore a backup"
                ) from error
        yield f"sqlite:///{reached}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


_SINCE: Final = {"digests": 2, "clock": 2, "inbox": 3, "outbox": 3, "facts": 3, "memories": 4}
"""The schemas that brought tables; the others have been there from the first."""


def _reach(source: sqlite3.Connection, to: Any, made: Repaired) -> None:
    """Copy all rows that can be read."""
    version = int(source.execute("PRAGMA user_version").fetchone()[0])
    to.execute("BEGIN IMMEDIATE")
    for table in metadata.sorted_tables:
        found = [row[1] for row in source.execute(f"PRAGMA table_info({table.name})")]
        columns = [column.name for column in table.c if column.name in found]
        if not columns:
            if version >= _SINCE.get(table.name, 1):
                made.lost.append(Finding(what="the table cannot be found", table=table.name))
            continue
        marks = ", ".join("?" * len(columns))
        put = f"INSERT OR IGNORE INTO {table.name} ({', '.join(columns)}) VALUES ({marks})"
        key = next(iter(table.primary_key.columns)).name
        for row in _rows(source, table.name, key, columns, made):
            to.execute(put, row)
    if version == 1:
        fill(to)
    to.execute("COMMIT")


def _rows(
    source: sqlite3.Connection, table: str, key: str, columns: list[str], made: Repaired
) -> Iterator[Any]:
    """Yield a table's rows in the order of their keys; skip those that cannot be read."""
    query = f"SELECT {key}, {', '.join(columns)} FROM {table} WHERE {key} >= ? ORDER BY {key}"
    at, leap, size = -1, 0, _PAGE
    while at < _FAR:
        try:
            found = source.execute(f"{query} LIMIT {size}", (at,)).fetchall()
        except sqlite3.Error as error:
            if not leap and size == 1:
                made.lost.append(Finding(what=f"rows cannot be read: {error}", table=table))
            if size > 1:
                size = 1
            else:
                leap = leap * 2 or 1
                at += leap
            continue
        yield from (row[1:] for row in found)
        if len(found) < size:
            return
        at, leap = found[-1][0] + 1, 0
