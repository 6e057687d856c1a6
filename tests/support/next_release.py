"""The program `wick` of a release that does not exist yet: its PostgreSQL schema adds to ours."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, LargeBinary, Table

from wick_graph.cli.app import main
from wick_graph.store import postgres, schema
from wick_graph.store.connection import StoreConnection
from wick_graph.store.dialect import Database


def expand(db: Database) -> None:
    """Add a column that it writes, one that has a default, and a table."""
    db.execute("ALTER TABLE threads ADD COLUMN region bytea")
    db.execute("ALTER TABLE streams ADD COLUMN priority bigint NOT NULL DEFAULT 1")
    db.execute("CREATE TABLE regions (rid bigint PRIMARY KEY, body bytea NOT NULL)")


def become() -> None:
    """Be that release, in this process."""
    schema.threads.append_column(Column("region", LargeBinary))
    schema.streams.append_column(Column("priority", BigInteger, nullable=False))
    Table(
        *("regions", schema.metadata),
        Column("rid", BigInteger, primary_key=True, autoincrement=False),
        Column("body", LargeBinary, nullable=False),
    )
    this: Any = postgres
    this.SCHEMA_VERSION += 1
    this.MIGRATIONS = (*this.MIGRATIONS, expand)
    core_class: Any = StoreConnection
    make = StoreConnection.new_thread

    def new_thread(core: StoreConnection, db: Database, *given: Any) -> Any:
        row = make(core, db, *given)
        db.execute(f"UPDATE threads SET region = 'eu' WHERE id = {int(row[0])}")
        return row

    core_class.new_thread = new_thread


if __name__ == "__main__":
    become()
    main()
