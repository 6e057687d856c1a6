"""The modules that make statements in SQL; each is imported when a name of it is used.

SQLAlchemy is a seventh of the import of an agent. A run on a SQLite file seldom needs it: the texts
of its statements are in `made.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import Later
from wick_graph.store.texts import Statements

if TYPE_CHECKING:
    import sqlalchemy as sql
    from sqlalchemy.dialects import sqlite as dialect

    from wick_graph.store import cleanup, copying, schema, statements
else:
    sql, dialect = Later("sqlalchemy"), Later("sqlalchemy.dialects.sqlite")
    cleanup, copying = Later("wick_graph.store.cleanup"), Later("wick_graph.store.copying")
    schema = Later("wick_graph.store.schema")
    statements = Statements("wick_graph.store.statements")

__all__ = ["cleanup", "copying", "dialect", "schema", "sql", "statements"]
