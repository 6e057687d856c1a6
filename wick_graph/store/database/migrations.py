"""Numbered steps from one schema to the next, the same for every database.

A SQLite file knows in `user_version` where it is, a PostgreSQL schema in its table `wick_meta`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from wick_graph.errors import StorageError
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema_2 import to_schema_2

Migration = Callable[[Database], None]

MIGRATIONS: Final[tuple[Migration, ...]] = (to_schema_2,)
"""The step at index 0 leads from schema 1 to schema 2, and so on; released steps never change."""


def migrate(
    connection: sqlite3.Connection, path: Path | None, steps: Sequence[Migration] = MIGRATIONS
) -> None:
    """Bring a database up to the newest schema, all in one transaction.

    Of several processes that come at the same time, one does it and the others wait. A process
    that dies meanwhile leaves the database as it was.

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
