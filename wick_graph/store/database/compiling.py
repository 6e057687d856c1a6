"""How the text of a statement is made, and the clock that statements read.

The text is SQLite's, which costs SQLite nothing more. A database that speaks otherwise finds the
statement behind a text with `statement_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import ormsgpack
from sqlalchemy import BigInteger, Float, Table, cast, null
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


class Checksum(FunctionElement[int]):
    """The checksum of a row's other columns; NULL where the database checks its own pages."""

    type = BigInteger()
    inherit_cache = True


@compiles(Checksum, "sqlite")
def _sqlite_checksum(element: Checksum, compiler: SQLCompiler, **more: Any) -> str:
    return f"wick_checksum({compiler.process(element.clauses, **more)})"


@compiles(Checksum, "postgresql")
def _postgres_checksum(element: Checksum, compiler: SQLCompiler, **_: Any) -> str:
    return "NULL"


def checksum_of(*values: Any) -> int:
    """Compute what SQLite's function `wick_checksum` returns."""
    digest = blake2b(ormsgpack.packb(values), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def checked(table: Table, values: Mapping[str, Any], *, new: bool = False) -> dict[str, Any]:
    """Add a row's checksum to what is written to it; `new` where there is no row yet."""
    own = [values.get(column.name, null() if new else column) for column in checked_columns(table)]
    typed = [
        cast(value, Float) if isinstance(column.type, Float) else value
        for column, value in zip(checked_columns(table), own, strict=True)
    ]
    return {**values, "checksum": Checksum(*typed)}


def checked_columns(table: Table) -> list[Any]:
    """Return the columns that a row's checksum covers: not the number the database chose."""
    return [column for column in table.c if column.name not in ("id", "rid", "checksum")]


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
    """Return the text of a statement whose parameters are given in this order."""
    made = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]  # as above
    assert isinstance(made, SQLCompiler)
    named, text = list(made.positiontup or ()), str(made)
    if named != list(order):  # a parameter that occurs twice is given once
        assert set(named) == set(order), (named, order)
        head, *rest = text.split("?")
        pairs = zip(named, rest, strict=True)
        text = head + "".join(f"?{order.index(name) + 1}{part}" for name, part in pairs)
    _statements[text] = statement, order
    return text


def statement_of(text: str) -> tuple[Executable, tuple[str, ...]] | None:
    """Return the statement behind a prepared text and the order of its parameters."""
    return _statements.get(text)
