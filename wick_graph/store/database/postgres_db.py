"""A psycopg connection that takes the store's statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.sql import Executable, Insert
from sqlalchemy.sql.compiler import SQLCompiler

from wick_graph.store.database.compiling import Text, statement_of
from wick_graph.store.database.dialect import Rows
from wick_graph.store.database.digests import Account

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

DIALECT: Final = PGDialect(paramstyle="format")  # type: ignore[no-untyped-call]  # not typed there
_texts: Final[dict[str, str]] = {}


def compiled(statement: Executable) -> tuple[str, list[Any], list[str]]:
    """Return the text of a statement, its values, and the names of its parameters, in order."""
    if isinstance(statement, Insert):
        statement = statement.inline()  # nobody asks for keys that were not named
    made = statement.compile(  # type: ignore[attr-defined]  # Executable lacks it in the stubs
        dialect=DIALECT, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(made, SQLCompiler)
    names = list(made.positiontup or ())
    return str(made), [made.params[name] for name in names], names


class Postgres:
    """One session. Statements are translated once; bytes go and come as they are."""

    def __init__(self, raw: Connection[Any]) -> None:
        self.raw = raw
        self.account = Account()
        self.errors: tuple[type[Exception], ...] = (raw.Error,)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, be it a failed one."""
        return not self.raw.closed and self.raw.info.transaction_status.value in (1, 2, 3)

    def execute(self, text: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement, with SQLite's text or as it was made for one call."""
        known = _texts.get(text)
        if known is None:
            if isinstance(text, Text):
                own, values, _ = compiled(text.statement)
                return self._run(own, values)
            known = _texts[str(text)] = _translated(text)
        return self._run(known, values)

    def executemany(self, text: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each row, without waiting in between."""
        known = _texts.get(text) or _translated(text)
        self.raw.cursor().executemany(known, rows)

    def script(self, text: str) -> list[Any]:
        """Run several statements without values in one round trip; return the last one's rows."""
        cursor = self.raw.execute(text, prepare=False)
        while cursor.nextset():
            pass
        return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        """Close the session; closing twice is harmless."""
        self.raw.close()

    def _run(self, text: str, values: Sequence[Any]) -> Cursor[Any]:
        made: Cursor[Any] = self.raw.execute(text, values or None, binary=True)
        return made


def _translated(text: str) -> str:
    """Return PostgreSQL's text for a prepared statement; any other text is the same for both."""
    found = statement_of(text)
    if found is None:
        return text
    statement, order = found
    own, _, names = compiled(statement)
    assert names == list(order), (names, order)
    return own
