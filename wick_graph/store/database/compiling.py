"""How the text of a statement is made, and the clock that statements read.

The text is SQLite's, which costs SQLite nothing more. A database that speaks otherwise finds the
statement behind a text with `statement_of`.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Float
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_DIALECT: Final = sqlite.dialect(paramstyle="qmark")
_statements: Final[dict[str, tuple[Executable, tuple[str, ...]]]] = {}


class Now(FunctionElement[float]):
    """The database's time, in seconds since 1970: the store's only clock."""

    type = Float()
    inherit_cache = True


POSTGRES_NOW: Final = (
    "coalesce(nullif(current_setting('wick.now', true), '')::float8, "
    "extract(epoch FROM clock_timestamp())::float8)"
)


@compiles(Now, "sqlite")
def _sqlite_now(element: Now, compiler: SQLCompiler, **_: Any) -> str:
    return "wick_now()"


@compiles(Now, "postgresql")
def _postgres_now(element: Now, compiler: SQLCompiler, **_: Any) -> str:
    return POSTGRES_NOW


class Text(str):
    """The text of a statement that was made for one call; it knows its statement."""

    __slots__ = ("statement",)
    statement: Executable


def compiled(statement: Executable) -> tuple[str, list[Any]]:
    """Return the text of a statement and the values of its parameters, in order."""
    made = statement.compile(  # type: ignore[attr-defined]  # Executable lacks it in the stubs
        dialect=_DIALECT, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(made, SQLCompiler)
    values = made.params
    text = Text(made)
    text.statement = statement
    return text, [values[name] for name in made.positiontup or ()]


def prepared(statement: Executable, *order: str) -> str:
    """Return the text of a statement whose parameters stand in the given order."""
    made = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]  # as above
    assert isinstance(made, SQLCompiler)
    assert made.positiontup == list(order), (made.positiontup, order)
    text = str(made)
    _statements[text] = statement, order
    return text


def statement_of(text: str) -> tuple[Executable, tuple[str, ...]] | None:
    """Return the statement behind a prepared text and the order of its parameters."""
    return _statements.get(text)
