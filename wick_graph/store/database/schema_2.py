"""From schema 1 to schema 2: numbers for checkpoints, digests of threads, checksums of rows.

A thread whose clock once stepped back goes on from what was stored last. What is written here is
the schema of its release, and does not follow later ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from wick_graph.store.database.compiling import checksum_of
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import MASK, row_hash, term

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
"""By id, as schema 1 had it; but by row where a clock stepped back and ids contradict the rows."""
_STEP_OF: Final = {
    "checkpoints": "SELECT c.rid, b.seq FROM checkpoints c JOIN checkpoints b "
    "ON b.thread = c.thread AND b.ns = c.ns AND b.id = c.parent",
    "writes": "SELECT w.rid, c.seq FROM writes w JOIN checkpoints c "
    "ON c.thread = w.thread AND c.ns = w.ns AND c.id = w.checkpoint",
}


def to_schema_2(db: Database) -> None:
    """Add the columns and tables, and fill them from the rows as they are."""
    is_sqlite = isinstance(db, sqlite3.Connection)
    for statement in _made(is_sqlite):
        db.execute(statement)
    fill(db)
    db.execute("CREATE UNIQUE INDEX checkpoints_seq ON checkpoints (thread, seq)")
    db.execute("CREATE UNIQUE INDEX checkpoints_head ON checkpoints (thread, ns, seq)")


def fill(db: Database) -> None:
    """Number the checkpoints, and compute the digests and checksums of rows of schema 1."""
    is_sqlite = isinstance(db, sqlite3.Connection)
    db.execute(_NUMBERS)
    if is_sqlite:
        for table, columns in _CHECKED.items():
            _add_checksums(db, table, columns)
    _add_digests(db, "?" if is_sqlite else "%s")


def _made(is_sqlite: bool) -> Iterator[str]:
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
            if thread:  # else it is the store's own row, or one that belongs to nobody
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
