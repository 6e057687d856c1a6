"""Our tables in a PostgreSQL schema: made, brought up to date, and told from anybody else's.

The table `wick_meta` says whose they are, and which release wrote them. Everything that changes the
schema is one transaction under one lock, so of several processes one does it and the others wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import BigInteger, Float, Integer, LargeBinary, SmallInteger, Table, Text
from sqlalchemy.schema import CreateIndex, CreateTable

from wick_graph.errors import StorageError
from wick_graph.store.database.migrations import MIGRATIONS, Migration
from wick_graph.store.database.postgres_db import DIALECT, Postgres
from wick_graph.store.database.postgres_url import Target
from wick_graph.store.database.schema import SCHEMA_VERSION, metadata
from wick_graph.store.database.whose import APPLICATION_ID

_TYPES: Final = {
    BigInteger: "bigint",
    Integer: "integer",
    SmallInteger: "smallint",
    LargeBinary: "bytea",
    Text: "text",
    Float: "double precision",
}
_NO_COLUMN: Final = "42703"
_VERSION: Final = "version bigint"
"""Counts the transactions that wrote to a thread: caches of other processes hold for one only."""
_FOUND: Final = """
WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname = '{schema}')
SELECT c.relname, a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attgenerated::text
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT c.relname, 'unique ' || array_to_string(array(
    SELECT a.attname FROM unnest(i.indkey) WITH ORDINALITY k(n, at)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.n ORDER BY k.at), ',')
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_index i ON i.indrelid = c.oid
WHERE i.indisunique
UNION ALL SELECT c.relname, 'trigger ' || t.tgname
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_trigger t ON t.tgrelid = c.oid
UNION ALL SELECT c.relname, 'rule ' || r.rulename
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_rewrite r ON r.ev_class = c.oid
WHERE c.relkind <> 'v'
UNION ALL SELECT c.relname, 'constraint ' || k.conname
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_constraint k ON k.conrelid = c.oid
WHERE k.contype IN ('c', 'f', 'x')
"""


def version_of(db: Postgres, target: Target, newest: int = len(MIGRATIONS) + 1) -> int:
    """Return the schema's version, 0 where nothing of ours was made yet.

    Raises:
        StorageError: somebody else's tables are there, or a newer release's; nothing was changed.
    """
    names = {name for name, _ in _found(db, target)}
    if "wick_meta" not in names:
        taken = sorted(names.intersection(metadata.tables))
        if taken:
            raise StorageError(
                f"the database {target.name} has tables of another program ({taken[0]}); "
                "name another one with ?schema="
            )
        return 0
    try:
        rows = db.script(f'SELECT application, version FROM "{target.schema}".wick_meta')
    except db.errors as error:
        if getattr(error, "sqlstate", None) != _NO_COLUMN:
            raise
        rows = []
    if len(rows) != 1 or rows[0][0] != APPLICATION_ID:
        raise StorageError(
            f"the database {target.name} belongs to another program: its wick_meta is not ours; "
            "name another one with ?schema="
        )
    version = int(rows[0][1])
    if version > newest:
        raise StorageError(
            f"the database {target.name} was written by a newer wick_graph (schema {version}, "
            f"this one knows {newest}); upgrade wick_graph"
        )
    return version


def is_read_only(db: Postgres, target: Target) -> bool:
    """Say whether this session may not write: a standby, a read-only role, or no rights."""
    held = f"has_table_privilege(to_regclass('\"{target.schema}\".threads'), 'UPDATE')"
    query = f"SELECT current_setting('transaction_read_only') = 'on' OR NOT coalesce({held}, true)"
    return bool(db.script(query)[0][0])


def prepare(
    db: Postgres,
    target: Target,
    steps: Sequence[Migration] = MIGRATIONS,
    *,
    reads_only: bool = False,
) -> None:
    """Make the tables, or bring them up to date, and compare them with ours.

    Raises:
        StorageError: as `version_of`; or they were changed by somebody else.
    """
    newest = len(steps) + 1
    if (version := version_of(db, target, newest)) != newest:
        if reads_only:
            raise StorageError(
                f"the database {target.name} has schema {version}, and nothing may be written to "
                f"it to bring it to {newest}; open it once with the right to write"
            )
        lock = f"SELECT pg_advisory_xact_lock({APPLICATION_ID}, hashtext('{target.schema}'))"
        db.script(f"BEGIN; {lock}")
        try:
            version = version_of(db, target, newest)
            for statement in statements(target.schema) if not version else ():
                db.script(statement)
            for step in steps[version - 1 :] if version else ():
                step(db)
            db.script(f'UPDATE "{target.schema}".wick_meta SET version = {newest}; COMMIT')
        except BaseException:
            if db.in_transaction:
                db.script("ROLLBACK")
            raise
    check(db, target)


def statements(schema: str) -> Iterator[str]:
    """Yield what makes a schema with our tables and indexes, in order."""
    yield f'CREATE SCHEMA IF NOT EXISTS "{schema}"'
    yield "CREATE TABLE wick_meta (application bigint NOT NULL, version integer NOT NULL)"
    yield f"INSERT INTO wick_meta VALUES ({APPLICATION_ID}, {SCHEMA_VERSION})"
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=DIALECT))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=DIALECT))
    yield f"ALTER TABLE threads ADD COLUMN {_VERSION} NOT NULL DEFAULT 0"
    yield "ALTER TABLE threads SET (fillfactor = 50)"


def check(db: Postgres, target: Target) -> None:
    """Compare the schema with ours: our tables, and nothing in them that runs by itself.

    Raises:
        StorageError: names what differs; nothing was changed.
    """
    found: dict[str, set[str]] = {}
    for name, part in _found(db, target):
        found.setdefault(name, set()).add(part)
    for name, table in metadata.tables.items():
        differing = sorted(found.get(name, set()) ^ _expected(table))
        if differing:
            what = f"{name}, {differing[0]}" if name in found else f"table {name} is missing"
            raise StorageError(
                f"the database {target.name} was changed by another program: {what}; "
                "restore a backup"
            )


def _found(db: Postgres, target: Target) -> list[tuple[str, str]]:
    rows = db.script(_FOUND.format(schema=target.schema))
    return [(str(name), str(part)) for name, part in rows]


def _expected(table: Table) -> set[str]:
    parts = {f"unique {','.join(column.name for column in table.primary_key)}"}
    for column in table.columns:
        kind = next(text for cls, text in _TYPES.items() if type(column.type) is cls)
        parts.add(f"{column.name} {kind}")
    for constraint in table.constraints:
        columns = ",".join(column.name for column in getattr(constraint, "columns", ()))
        parts.add(f"unique {columns}")
    for index in table.indexes:
        if index.unique:
            parts.add(f"unique {','.join(column.name for column in index.columns)}")
    return parts | ({_VERSION} if table.name == "threads" else set())
