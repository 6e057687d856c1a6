"""What a database must consist of: our tables and indexes, and nothing that runs by itself.

A trigger, a view, a generated column or a constraint in a prepared file would be executed by our
own statements. So everything in the schema is compared with what this release makes.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy.dialects import sqlite as dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from wick_graph.errors import StorageError
from wick_graph.store.database.schema import metadata

_ALIVE: Final = re.compile(
    r"\b(check|generated|collate|default|references|virtual|strict|without)\b", re.IGNORECASE
)
"""Words that our own tables do without."""


def statements() -> Iterator[str]:
    """Yield what makes our tables and indexes, in order."""
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect.dialect()))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect.dialect()))


def check_schema(connection: sqlite3.Connection, path: Path | None) -> None:
    """Compare a database's schema with ours.

    Raises:
        StorageError: names what differs; nothing of the file was run or changed.
    """
    try:
        found = _schema(connection)
    except (TypeError, ValueError, AttributeError):  # names and texts that are none
        raise StorageError(
            f"{path or 'the database in memory'} is damaged: its schema cannot be read; "
            "restore a backup"
        ) from None
    expected = _expected()
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            what = "is missing" if name not in found else "is not wick_graph's"
            raise StorageError(
                f"{path or 'the database in memory'} was changed by another program: {name} "
                f"{what}; restore a backup"
            )


@cache
def _expected() -> dict[str, frozenset[str]]:
    connection = sqlite3.connect(":memory:")
    try:
        for statement in statements():
            connection.execute(statement)
        return _schema(connection)
    finally:
        connection.close()


def _schema(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Describe every object of a schema; what its text may say freely is left out."""
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite~_stat%' ESCAPE '~' AND name <> 'sqlite_sequence'"
    ).fetchall()
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
