"""From a store's URL to its database."""

from __future__ import annotations

from wick_graph.store.database.dialect import Dialect, Synchronous
from wick_graph.store.database.postgres import postgres
from wick_graph.store.database.postgres_url import SCHEMES
from wick_graph.store.database.sqlite import Sqlite, path_of


def dialect_of(url: str, synchronous: Synchronous = "FULL") -> Dialect:
    """Return the database that a URL means; nothing is opened yet.

    Raises:
        StorageError: if it cannot be read, or is of a database that we do not know; the text never
            quotes the URL, which may hold a password.
    """
    if url.partition("://")[0] in SCHEMES:
        return postgres(url, synchronous)
    return Sqlite(path_of(url), synchronous)
