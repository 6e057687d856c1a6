"""From a store's URL to its database."""

from __future__ import annotations

from wick_graph.store.database.dialect import Dialect, Synchronous
from wick_graph.store.database.postgres import postgres
from wick_graph.store.database.postgres_url import SCHEMES
from wick_graph.store.database.sqlite import Sqlite, path_of


def dialect_of(url: str, synchronous: Synchronous = "FULL", *, reads_only: bool = False) -> Dialect:
    """Return the database that a URL means; nothing is opened yet.

    One that `reads_only` is never changed, whatever rights this process has.

    Raises:
        StorageError: if it cannot be read, or is of a database that we do not know; the text never
            quotes the URL, which may hold a password.
    """
    if url.partition("://")[0] in SCHEMES:
        return postgres(url, synchronous, reads_only=reads_only)
    return Sqlite(path_of(url), synchronous, reads_only=reads_only)
