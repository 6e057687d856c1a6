"""The modules that make statements in SQL, which are imported when a store is opened.

SQLAlchemy is a seventh of the import of an agent, and one without a store never needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from wick_graph.lazy import Later
from wick_graph.store.texts import Prepared

if TYPE_CHECKING:
    import sqlalchemy as sql
    from sqlalchemy.dialects import sqlite as dialect

    from wick_graph.store import cleanup, copying, schema, statements
else:
    sql, dialect = Later("sqlalchemy"), Later("sqlalchemy.dialects.sqlite")
    cleanup, copying = Later("wick_graph.store.cleanup"), Later("wick_graph.store.copying")
    schema = Later("wick_graph.store.schema")
    statements = Later("wick_graph.store.statements")

_ALL: Final = (
    *("sqlalchemy", "sqlalchemy.dialects.sqlite", "wick_graph.store.schema"),
    *("wick_graph.store.statements", "wick_graph.store.cleanup", "wick_graph.store.copying"),
)


def load() -> None:
    """Import all of them, so that no later call of a store waits for an import, or fails by one.

    A run's thread may import parts of SQLAlchemy too, or fork, or be interrupted in the middle, and
    another release may be installed meanwhile.
    """
    for name in _ALL:
        import_module(name)
    own = vars(import_module("wick_graph.store.statements"))
    # a turn asks for eighty of these: a name of the module itself would be looked for each time
    vars(statements).update({name: one for name, one in own.items() if type(one) is Prepared})


__all__ = ["cleanup", "copying", "dialect", "load", "schema", "sql", "statements"]
