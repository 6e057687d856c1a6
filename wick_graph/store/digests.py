"""Digests of threads, and the numbered migrations from one schema to the next."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from operator import add
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

import ormsgpack

from wick_graph.errors import StorageError
from wick_graph.store.dialect import Database
from wick_graph.store.later import dialect, schema, sql
from wick_graph.store.texts import Prepared, compiled, name_texts

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.sql.elements import ColumnElement

# --- Digests of threads: sums over their rows, which reveal missing and foreign rows.
#
# A row's own check value shows that the row is whole. It does not reveal a row that is gone, is an
# older version, or was copied from another database. So each row also has a hash, made of its check
# value and of the columns that this does not cover. Each transaction adds the hashes of the rows
# that it writes to the sums of the thread, and subtracts those of the rows that it deletes. A sum's
# low bits count the rows.
#
# The sums are kept per step. The writes under a checkpoint, and the checkpoints that continue it,
# are counted at that checkpoint's number. Everything else is counted at any step of the
# transaction, because only the total of a thread is compared.


LANE_BITS: Final = 32
"""An item's key is `lane << LANE_BITS | place`."""

PLACES: Final = (1 << LANE_BITS) - 1
"""The highest place in a lane."""

BITS: Final = 62

MASK: Final = (1 << BITS) - 1
"""Sums are taken modulo 2**62, so that two of them can be added in any database."""

COUNT_BITS: Final = 20
"""Low bits of a sum, which count rows."""

_eight: Final = Struct("<Q").unpack_from

_HASH: Final = (1 << BITS - COUNT_BITS) - 1

HASHED: Final = {
    "names": ("id", "thread", "scope", "text"),
    "checkpoints": ("seq", "hidden"),
    "writes": (),
    "items": (),
    "blobs": ("hash", "size"),
    "calls": ("key", "name", "args", "state", "epoch", "tries", "started", "ended"),
    "runs": ("number", "run", "branch", "status", "started", "ended"),
    "moments": (),
    "streams": ("run", "status", "started", "ended", "first", "key"),
    "events": (),
}
"""The columns of each table that its body's check value does not cover; do not reorder them."""

_AT: Final = {table: at for at, table in enumerate(HASHED)}

NAMES, CHECKPOINTS, WRITES, ITEMS, BLOBS, CALLS, RUNS, MOMENTS, STREAMS, EVENTS = range(len(HASHED))


def _add() -> Any:
    own, mask = schema.digests.c, cast("Any", sql.literal_column(str(MASK)))
    given: dict[str, Any] = {name: sql.bindparam(name) for name in HASHED}
    row = dialect.insert(schema.digests).values(rid=sql.bindparam("r"), **given)
    sums = {name: (own[name] + row.excluded[name]).bitwise_and(mask) for name in HASHED}
    return row.on_conflict_do_update(index_elements=["rid"], set_=sums)


_ADD: Final = Prepared(_add, "r", *HASHED)


def checksum_of(*values: Any) -> int:
    """Compute what SQLite's function `wick_checksum` returns."""
    digest = blake2b(ormsgpack.packb(values), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def row_hash(columns: Sequence[Any], body: bytes | None) -> int:
    """Return the hash of a row, from its body's check value or tag and the columns beside it."""
    made = 0
    if body is not None:
        made = int.from_bytes(body[:8], "little") ^ int.from_bytes(body[-8:], "little")
    if columns:
        packed = ormsgpack.packb(tuple(columns))
        made ^= _eight(blake2b(packed, digest_size=8).digest())[0]
    return made


def term(hashed: int) -> int:
    """Return what a row adds to its sum."""
    return (hashed & _HASH) << COUNT_BITS | 1


Sums = defaultdict[int, list[int]]
"""Additions to the sums of each table, by row of `digests` or by thread."""

_zeros: Final = ([0] * len(HASHED)).copy


def _added(layers: Iterable[Sums]) -> Sums:
    found: Sums = defaultdict(_zeros)
    for layer in layers:
        for key, sums in layer.items():
            found[key] = [*map(add, found[key], sums)] if key in found else sums
    return found


class Account:
    """What the current transaction adds to the digests of threads; call `write` before its end.

    Rows that belong to no step are counted at any step of their thread.
    """

    __slots__ = ("_marked", "_rows", "_threads")

    def __init__(self) -> None:
        self._rows: Sums = defaultdict(_zeros)
        self._threads: Sums = defaultdict(_zeros)
        """The additions that may be counted at any step."""
        self._marked: list[tuple[Sums, Sums]] = []
        """Those before each mark; they are added up once, at the end."""

    def add(self, table: int, thread: int, hashed: int, step: int | None = None) -> None:
        """Count a written row; `step` is the number of the checkpoint that it belongs to."""
        sums = self._threads[thread] if step is None else self._rows[thread << LANE_BITS | step]
        sums[table] += (hashed & _HASH) << COUNT_BITS | 1

    def add_all(self, table: int, thread: int, rows: Iterable[Sequence[Any]]) -> None:
        """Count written rows without bodies, which may be counted at any step."""
        # `row_hash` and `term`, inlined: a new thread has one for each name
        packed = map(ormsgpack.packb, rows)
        hashes = [_eight(blake2b(each, digest_size=8).digest())[0] & _HASH for each in packed]
        self._threads[thread][table] += (sum(hashes) << COUNT_BITS) + len(hashes)

    def add_body(self, table: int, thread: int, body: bytes, step: int | None = None) -> None:
        """Count a written row with a check value that covers all its columns."""
        # `row_hash` and `term`, inlined: this is on the path of every step
        hashed = _eight(body)[0] ^ _eight(body, len(body) - 8)[0]
        sums = self._threads[thread] if step is None else self._rows[thread << LANE_BITS | step]
        sums[table] += (hashed & _HASH) << COUNT_BITS | 1

    def remove(self, table: int, thread: int, hashed: int, step: int | None = None) -> None:
        """Subtract a row that was deleted, or is about to be replaced."""
        sums = self._threads[thread] if step is None else self._rows[thread << LANE_BITS | step]
        sums[table] -= term(hashed)

    def move(self, thread: int, sums: Sequence[int]) -> None:
        """Move the counts of a deleted step to the thread itself."""
        own = self._rows[thread << LANE_BITS]
        own[:] = map(add, own, sums)

    def write(self, db: Database) -> None:
        """Add all counts to the rows of `digests`."""
        rows, others = self._rows, self._threads
        if self._marked:
            layers = [*self._marked, (rows, others)]
            rows, others = (_added(sums) for sums in zip(*layers, strict=True))
        steps = {rid >> LANE_BITS: rid for rid in rows}
        for thread, sums in others.items():
            rid = steps.get(thread, thread << LANE_BITS)
            rows[rid] = [*map(add, rows[rid], sums)] if rid in rows else sums
        self.forget()
        if rows:
            db.executemany(_ADD, [(rid, *map(MASK.__and__, rows[rid])) for rid in rows])

    def mark(self) -> int:
        """Return a state that `restore` can go back to."""
        self._marked.append((self._rows, self._threads))
        self._rows, self._threads = defaultdict(_zeros), defaultdict(_zeros)
        return len(self._marked)

    def restore(self, mark: int) -> None:
        """Forget what was counted since the mark, because none of it was stored."""
        self._rows, self._threads = defaultdict(_zeros), defaultdict(_zeros)
        del self._marked[mark:]

    def forget(self) -> None:
        """Forget all counts, because the transaction is over."""
        self._rows, self._threads = defaultdict(_zeros), defaultdict(_zeros)
        self._marked = []


def _row(table: Table, key: str, parameter: str) -> Any:
    mine = (table.c.thread == sql.bindparam("t"), table.c[key] == sql.bindparam(parameter))
    return sql.select(*columns_of(table)).where(*mine)


RUN_ROW: Final = Prepared(lambda: _row(schema.runs, "number", "n"), "t", "n")

CALL_ROW: Final = Prepared(lambda: _row(schema.calls, "key", "k"), "t", "k")
"""The columns that such a row's hash is made of; on the path of every turn."""

STREAM_ROW: Final = Prepared(lambda: _row(schema.streams, "run", "r"), "t", "r")
"""So is that of a server's run; on the path of each of these."""

name_texts(__name__, globals())

# --- Off the path of every step.


def hashes(db: Database, table: Table, *where: ColumnElement[bool]) -> list[int]:
    """Return the hashes of rows as they are stored."""
    found = db.execute(*compiled(sql.select(*columns_of(table)).where(*where))).fetchall()
    return [hash_of(table, row) for row in found]


def columns_of(table: Table) -> list[ColumnElement[Any]]:
    """Return the columns that a row's hash is made of; the body, if there is one, is last."""
    body = [table.c.body] if "body" in table.c else []
    return [*(table.c[name] for name in HASHED[table.name]), *body]


def hash_of(table: Table, row: Sequence[Any]) -> int:
    """Return the hash of a row of `columns_of`."""
    if "body" not in table.c or not isinstance(row[-1], bytes | None):  # damage changes types
        return row_hash(row, None)
    return row_hash(row[:-1], row[-1])


def erase(
    db: Database, table: Table, thread: int, *where: ColumnElement[bool], step: int | None = None
) -> int:
    """Delete rows of a thread, and return how many there were."""
    account, at = db.account, _AT[table.name]
    found = hashes(db, table, *where)
    for hashed in found:
        account.remove(at, thread, hashed, step)
    db.execute(*compiled(sql.delete(table).where(*where)))
    return len(found)


@contextmanager
def changing(
    db: Database, table: Table, thread: int, *where: ColumnElement[bool]
) -> Iterator[None]:
    """Account for rows of a thread that the block changes or makes."""
    with _changing(db, _AT[table.name], thread, lambda: hashes(db, table, *where)):
        yield


@contextmanager
def changing_run(db: Database, thread: int, run: bytes) -> Iterator[None]:
    """Account for the row of a server's run, which the block changes or makes."""

    def found() -> list[int]:
        rows = db.execute(STREAM_ROW, (thread, run)).fetchall()
        return [row_hash(row[:-1], row[-1]) for row in rows]

    with _changing(db, STREAMS, thread, found):
        yield


@contextmanager
def _changing(db: Database, at: int, thread: int, found: Callable[[], list[int]]) -> Iterator[None]:
    account = db.account
    for hashed in found():
        account.remove(at, thread, hashed)
    yield
    for hashed in found():
        account.add(at, thread, hashed)


def drop_steps(db: Database, thread: int, steps: Iterable[int]) -> None:
    """Delete the digests of deleted steps; their remaining counts move to the thread."""
    db.account.write(db)
    own = schema.digests.c
    for step in steps:
        rid = thread << LANE_BITS | step
        query = sql.select(*(own[name] for name in HASHED)).where(own.rid == rid)
        for sums in db.execute(*compiled(query)).fetchall():
            # a damaged sum stays wrong, for `verify` to report
            db.account.move(thread, [one if type(one) is int else 0 for one in sums])
            db.execute(*compiled(sql.delete(schema.digests).where(own.rid == rid)))


def sums_of(db: Database, thread: int) -> dict[int, list[int]]:
    """Return the sums of a thread's steps, by table."""
    low, own = thread << LANE_BITS, schema.digests.c
    query = sql.select(own.rid, *(own[name] for name in HASHED))
    query = query.where(own.rid.between(low, low | PLACES))
    return {row[0] & PLACES: list(row[1:]) for row in db.execute(*compiled(query)).fetchall()}


# --- From schema 1 to schema 2: numbers for checkpoints, digests of threads, checksums of rows.
#
# If a clock stepped back, its thread continues what was stored last. The names here are those of
# schema 2, and do not follow later ones.


_LANE_BITS: Final = 32

_ROWS: Final = 500

_HASHED: Final = {
    "names": ("id", "thread", "scope", "text"),
    "checkpoints": ("seq", "hidden"),
    "writes": (),
    "items": (),
    "blobs": ("hash", "size"),
    "calls": ("key", "name", "args", "state", "epoch", "tries", "started", "ended"),
    "runs": ("number", "run", "branch", "status", "started", "ended"),
    "moments": (),
    "streams": ("run", "status", "started", "ended", "first", "key"),
    "events": (),
}

_CHECKED: Final = {
    "threads": (
        *("tenant", "thread", "agent", "status", "title", "parent", "pinned", "created"),
        *("last_access", "ttl", "expires_at", "generation", "run", "stopped_because"),
        "last_error",
    ),
    "leases": ("thread", "owner", "epoch", "until", "tries", "head"),
    "tokens": ("tenant", "token", "hash", "name", "scopes", "created", "expires", "revoked"),
}

_NUMBERS: Final = """
UPDATE checkpoints SET seq = numbered.n FROM (
    SELECT rid AS r, row_number() OVER (PARTITION BY thread ORDER BY
        CASE WHEN thread IN (
            SELECT thread FROM (
                SELECT thread, id,
                lag(id) OVER (PARTITION BY thread, ns ORDER BY rid) AS before FROM checkpoints
            ) AS pairs WHERE before > id
        ) THEN rid END, id, rid
    ) AS n FROM checkpoints
) AS numbered WHERE numbered.r = checkpoints.rid
"""
"""By id, as in schema 1; but by row if a clock stepped back, so that ids contradict the rows."""

_STEP_OF: Final = {
    "checkpoints": "SELECT c.rid, b.seq FROM checkpoints c JOIN checkpoints b "
    "ON b.thread = c.thread AND b.ns = c.ns AND b.id = c.parent",
    "writes": "SELECT w.rid, c.seq FROM writes w JOIN checkpoints c "
    "ON c.thread = w.thread AND c.ns = w.ns AND c.id = w.checkpoint",
}


def to_schema_2(db: Database) -> None:
    """Add the columns and tables, and fill them from the rows as they are."""
    is_sqlite = isinstance(db, sqlite3.Connection)
    for statement in _new_tables(is_sqlite):
        db.execute(statement)
    fill(db)
    db.execute("CREATE UNIQUE INDEX checkpoints_seq ON checkpoints (thread, seq)")
    db.execute("CREATE UNIQUE INDEX checkpoints_head ON checkpoints (thread, ns, seq)")


def fill(db: Database) -> None:
    """Number the checkpoints, and compute the digests and checksums of the rows of schema 1."""
    is_sqlite = isinstance(db, sqlite3.Connection)
    db.execute(_NUMBERS)
    if is_sqlite:
        for table, columns in _CHECKED.items():
            _add_checksums(db, table, columns)
    _add_digests(db, "?" if is_sqlite else "%s")


def _new_tables(is_sqlite: bool) -> Iterator[str]:
    key, blob = ("INTEGER", "BLOB") if is_sqlite else ("BIGINT", "BYTEA")
    yield "ALTER TABLE checkpoints ADD COLUMN seq BIGINT"
    for table in _CHECKED:
        yield f"ALTER TABLE {table} ADD COLUMN checksum BIGINT"
    sums = ", ".join(f"{table} BIGINT NOT NULL" for table in _HASHED)
    yield f"CREATE TABLE digests (rid {key} NOT NULL, {sums}, PRIMARY KEY (rid))"
    yield (
        f"CREATE TABLE clock (rid {key} NOT NULL, boot {blob} NOT NULL, wall FLOAT NOT NULL, "
        "steady FLOAT NOT NULL, since FLOAT NOT NULL, checksum BIGINT, PRIMARY KEY (rid))"
    )


def to_schema_3(db: Database) -> None:
    """Add the tables of the gateway."""
    is_sqlite = isinstance(db, sqlite3.Connection)
    key, blob = (
        ("INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "BLOB")
        if is_sqlite
        else ("BIGSERIAL NOT NULL PRIMARY KEY", "BYTEA")
    )
    own = f"rid {key}, tenant {blob} NOT NULL, key {blob} NOT NULL"
    body = f"body {blob} NOT NULL, checksum BIGINT, UNIQUE (tenant, key)"
    state = f"state TEXT NOT NULL, server {blob} NOT NULL, tries INTEGER NOT NULL"
    db.execute(
        f"CREATE TABLE inbox ({own}, chat {blob} NOT NULL, {state}, received FLOAT NOT NULL, "
        f"ended FLOAT, {body})"
    )
    db.execute(
        f"CREATE TABLE outbox ({own}, chat {blob} NOT NULL, turn {blob}, {state}, "
        f"due FLOAT NOT NULL, created FLOAT NOT NULL, ended FLOAT, {body})"
    )
    db.execute(f"CREATE TABLE facts ({own}, changed FLOAT NOT NULL, {body})")
    db.execute("CREATE INDEX inbox_state ON inbox (tenant, state, chat)")
    db.execute("CREATE INDEX outbox_state ON outbox (tenant, state, chat)")
    db.execute("CREATE INDEX outbox_turn ON outbox (turn)")


def to_schema_4(db: Database) -> None:
    """Add the table of the long-term store."""
    is_sqlite = isinstance(db, sqlite3.Connection)
    key, blob = (
        ("INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "BLOB")
        if is_sqlite
        else ("BIGSERIAL NOT NULL PRIMARY KEY", "BYTEA")
    )
    db.execute(
        f"CREATE TABLE memories (rid {key}, tenant {blob} NOT NULL, key {blob} NOT NULL, "
        "created FLOAT NOT NULL, updated FLOAT NOT NULL, ttl FLOAT, expires FLOAT, "
        f"body {blob} NOT NULL, vectors {blob}, checksum BIGINT, UNIQUE (tenant, key))"
    )
    db.execute("CREATE INDEX memories_expires ON memories (tenant, expires)")


def to_schema_5(db: Database) -> None:
    """Add the index of lists of threads; let the one of expired threads begin with the tenant."""
    db.execute("DROP INDEX IF EXISTS threads_expiry")
    db.execute("CREATE INDEX threads_expiry ON threads (tenant, expires_at)")
    db.execute("CREATE INDEX threads_recent ON threads (tenant, last_access, id)")


def to_schema_6(db: Database) -> None:
    """Add PostgreSQL's columns of vectors; those that are stored stay as they are, and are scanned.

    In SQLite nothing changes.
    """
    if not isinstance(db, sqlite3.Connection):
        db.execute("ALTER TABLE memories ADD COLUMN dims integer, ADD COLUMN floats real[]")
        db.execute("ALTER TABLE memories ALTER COLUMN floats SET STORAGE EXTERNAL")


def to_schema_7(db: Database) -> None:
    """Add what the queue of workers needs: columns of `streams`, and PostgreSQL's indexes."""
    key = "BLOB" if isinstance(db, sqlite3.Connection) else "BYTEA"
    db.execute(f"ALTER TABLE streams ADD COLUMN tenant {key}")
    db.execute("ALTER TABLE streams ADD COLUMN placed FLOAT")
    if not isinstance(db, sqlite3.Connection):
        for index in QUEUE_INDEXES:
            db.execute(index)


def to_schema_8(db: Database) -> None:
    """Change no row: the number keeps out releases that cannot read the shorter new ones."""


QUEUE_INDEXES: Final = (
    "CREATE INDEX streams_open ON streams (thread, rid) WHERE ended IS NULL",
    "CREATE INDEX streams_queue ON streams (tenant, placed, rid) "
    "WHERE ended IS NULL AND tenant IS NOT NULL",
)
"""PostgreSQL's indexes of unfinished runs; a SQLite file has no workers."""


def _add_checksums(db: Database, table: str, columns: Sequence[str]) -> None:
    key = "thread" if table == "leases" else "id" if table == "threads" else "rid"
    found = db.execute(f"SELECT {key}, {', '.join(columns)} FROM {table}").fetchall()
    rows = [(checksum_of(*row[1:]), row[0]) for row in found]
    db.executemany(f"UPDATE {table} SET checksum = ? WHERE {key} = ?", rows)


def _add_digests(db: Database, mark: str) -> None:
    sums: dict[tuple[int, int], list[int]] = {}
    lanes = dict(db.execute("SELECT id, thread FROM names").fetchall())
    for at, (table, columns) in enumerate(_HASHED.items()):
        steps = dict(db.execute(_STEP_OF[table]).fetchall()) if table in _STEP_OF else {}
        for key, thread, *row in _rows(db, table, columns):
            if table in ("items", "moments", "events"):
                thread = key >> _LANE_BITS
                thread = lanes.get(thread, 0) if table == "items" else thread
            body = row.pop() if table != "names" else None
            if thread:  # otherwise it is the store's own row, or one that belongs to no thread
                own = sums.setdefault((thread, steps.get(key, 0)), [0] * len(_HASHED))
                own[at] += term(row_hash(row, body))
    places = ", ".join([mark] * (1 + len(_HASHED)))
    rows = [
        (thread << _LANE_BITS | step, *(one & MASK for one in own))
        for (thread, step), own in sums.items()
    ]
    db.executemany(f"INSERT INTO digests VALUES ({places})", rows)


def _rows(db: Database, table: str, columns: Sequence[str]) -> Iterable[Any]:
    """Yield the rows of a table: key, thread, what is hashed."""
    key = "id" if table == "names" else "rid"
    thread = "rid" if table in ("items", "moments", "events") else "thread"
    wanted = [key, thread, *columns, *(() if table == "names" else ("body",))]
    query, last = f"SELECT {', '.join(wanted)} FROM {table}", -1
    while found := db.execute(f"{query} WHERE {key} > {last} ORDER BY {key} LIMIT {_ROWS}"):
        page = found.fetchall()
        yield from page
        if len(page) < _ROWS:
            return
        last = page[-1][0]


# --- Numbered steps from one schema to the next, the same for every database.
#
# A SQLite file has its version in `user_version`, a PostgreSQL schema in its table `wick_meta`.


SCHEMA_VERSION: Final = 8

OLDEST_BESIDE: Final = 8
"""The oldest schema with programs that may work in PostgreSQL with this one. A schema that only
adds keeps it; what a schema no longer uses, the next one drops, and then raises it."""

Migration = Callable[[Database], None]

MIGRATIONS: Final[tuple[Migration, ...]] = (
    *(to_schema_2, to_schema_3, to_schema_4, to_schema_5, to_schema_6, to_schema_7),
    to_schema_8,
)
"""The step at index 0 leads from schema 1 to schema 2, and so on; never change a released step."""


def migrate(
    connection: sqlite3.Connection, path: Path | None, steps: Sequence[Migration] = MIGRATIONS
) -> None:
    """Bring a database up to the newest schema in one transaction.

    If several processes come at the same time, one does it and the others wait. A process that
    dies meanwhile leaves the database as it was.

    Raises:
        StorageError: A step failed, or the schema is newer than this release knows.
    """
    newest = len(steps) + 1
    if _version(connection) == newest:
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = _version(connection)
        if version > newest:
            raise StorageError(
                f"{path} was written by a newer wick_graph (schema {version}, this one knows "
                f"{newest}); upgrade wick_graph"
            )
        for step in steps[version - 1 :]:
            step(cast("Database", connection))
        connection.execute(f"PRAGMA user_version={newest}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
