"""What a PostgreSQL URL says: where the server is, which schema is ours, what may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from wick_graph.errors import StorageError

SCHEMES: Final = ("postgresql", "postgres", "postgresql+psycopg")
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_TIMEOUT: Final = re.compile(r"[0-9]+(ms|s|min)?")
_MISSING: Final = (
    "a PostgreSQL store needs psycopg, which is not installed; install wick-graph[postgres]"
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a store is."""

    conninfo: str = field(repr=False)
    schema: str
    timeout: str
    """Longest time of one statement."""
    name: str
    """The place for people: neither user nor password."""
    secrets: tuple[str, ...] = field(repr=False)

    def redacted(self, text: str) -> str:
        """Return a text of the driver without the URL's secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())


def driver() -> Any:
    """Import psycopg.

    Raises:
        StorageError: it is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise StorageError(_MISSING) from None
    return psycopg


def target_of(url: str) -> Target:
    """Read `postgresql://user:password@host:port/name?schema=wick`; libpq knows further options.

    Raises:
        StorageError: if it cannot be read; the text never quotes the URL, which may hold a
            password.
    """
    psycopg = driver()
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema, timeout = options.pop("schema", "wick"), options.pop("statement_timeout", "30s")
    if not _SCHEMA.fullmatch(schema):
        raise StorageError("the schema of a PostgreSQL store must be a plain name of letters")
    if not _TIMEOUT.fullmatch(timeout):
        raise StorageError("statement_timeout takes a time such as 30s or 500ms")
    query = urlencode(options, quote_via=quote)
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    try:
        known = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.Error:
        raise StorageError(
            "the store's URL cannot be read; write postgresql://user:password@host:5432/name"
        ) from None
    host, port = known.get("host") or "localhost", known.get("port") or "5432"
    name = f"{known.get('dbname') or known.get('user') or ''} at {host}:{port} (schema {schema})"
    secrets = {str(known[key]) for key in ("password", "sslpassword") if known.get(key)}
    secrets |= {quote(secret, safe="") for secret in secrets}
    if parts.password:
        secrets.add(parts.password)
    return Target(conninfo, schema, timeout, name, tuple(sorted(secrets, key=len, reverse=True)))
