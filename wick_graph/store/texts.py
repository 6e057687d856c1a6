"""Texts of statements in SQL: of those that are prepared, and of those made for one call.

A text is in SQLite's dialect, so it costs SQLite nothing more. Another database has one of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import BindParameter
    from sqlalchemy.sql import Executable
    from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler


@cache
def _sqlite() -> Any:
    """Return SQLite's dialect; the import of SQLAlchemy waits until a text must be made."""
    return import_module("sqlalchemy.dialects.sqlite").dialect(paramstyle="qmark")


# --- Texts that were made before a process needs them: SQLAlchemy takes half a millisecond for one.


Language = Literal["sqlite", "postgresql"]

MADE_OF: Final = ("digests", "schema", "sessions", "sqlite", "statements", "texts")
"""The modules that make the texts in `made.sql`."""

MADE_FILE: Final = "made.sql"

MARK: Final = "\n--: "
"""What the name of a text begins with; its text is in the lines below."""


def digest_of(folder: Path, body: str) -> str:
    """Return a digest of texts and of the modules in a folder that make them.

    Raises:
        OSError: They are not files here.
    """
    digest = blake2b(body.encode(), digest_size=16)
    for name in MADE_OF:
        digest.update((folder / f"{name}.py").read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def read_made(folder: Path) -> Mapping[str, str]:
    """Return the texts of `made.sql`; none if they or a module that makes them were changed."""
    try:
        head, _, body = (folder / MADE_FILE).read_text("utf-8").partition(MARK)
        if head.split()[-1:] != [digest_of(folder, body)]:
            return {}
    except (OSError, ValueError):
        return {}
    parts = (part.partition("\n") for part in body.split(MARK))
    return {name: text.rstrip() for name, _, text in parts}


_MADE: Final = read_made(Path(__file__).parent)
"""Read with the modules: a later release may replace the files while they are in use."""


def made_text(language: Language, name: str) -> str | None:
    """Return a text that was made before, by its name; None if there is none, or it may be old."""
    return _MADE.get(f"{language} {name}")


def name_texts(module: str, names: Mapping[str, object]) -> None:
    """Give the prepared statements of a module their names, so that their texts can be found."""
    for name, value in names.items():
        if type(value) is Prepared:
            value.name = f"{module.rpartition('.')[2]}.{name}"


class Prepared:
    """A statement with an order of its parameters; made and compiled at its first use.

    One with a name in `made.sql` is not: its text is there.
    """

    __slots__ = ("_make", "made", "name", "order")

    def __init__(self, make: Callable[[], Executable], *order: str) -> None:
        self._make = make
        self.made: str | None = None
        """The text, once it was asked for."""
        self.order = order
        self.name = ""

    @property
    def statement(self) -> Executable:
        """The statement behind the text."""
        return self._make()

    @property
    def text(self) -> str:
        """The text in SQLite's dialect."""
        if self.made is None:
            self.made = made_text("sqlite", self.name) or self.compiled()
        return self.made

    def compiled(self) -> str:
        """Make the text in SQLite's dialect."""
        statement: Any = self.statement
        made = statement.compile(dialect=_sqlite())
        named, text = list(made.positiontup or ()), str(made)
        if named == list(self.order):
            return text
        assert set(named) == set(self.order), (named, self.order)
        head, *rest = text.split("?")  # a parameter that occurs twice is given once
        pairs = zip(named, rest, strict=True)
        return head + "".join(f"?{self.order.index(name) + 1}{part}" for name, part in pairs)


class StatementText(str):
    """The text of a statement that was made for one call, with the statement."""

    __slots__ = ("statement",)
    statement: Executable


_Place = tuple[int | None, Any]
"""Of a value in a text, or of the values of a list: the parameter of the statement, or None and a
constant of the dialect."""


class Compiler:
    """Makes texts of statements; statements of one form share what is made of the first.

    SQLAlchemy's engine does so too. A text takes a millisecond, its form a tenth of that.
    """

    _MOST: Final = 1_000

    def __init__(self, dialect: Any) -> None:
        self._dialect = dialect
        self._known: dict[Any, tuple[str, list[_Place]]] = {}

    def text(self, statement: Any) -> tuple[str, list[Any]]:
        """Return the text of a statement and the values of its parameters, in order."""
        form = statement._generate_cache_key()  # None if it has a part that SQLAlchemy cannot tell
        if form and any(form[2:]):
            form = None  # SQLAlchemy 2.1 keeps values of `params()` there, not in the parameters
        given = [] if form is None else form.bindparams
        lists = {at: _items(one) for at, one in enumerate(given) if one.expanding}
        key = form and (form.key, *map(len, lists.values()))
        if known := self._known.get(key):
            text, places = known
            values: list[Any] = []
            for at, constant in places:
                if at is None:
                    values.append(constant)
                elif at in lists:
                    values += lists[at]
                else:
                    values.append(given[at].effective_value)
            return text, values
        made = statement.compile(dialect=self._dialect)
        state = made.construct_expanded_state()
        if form and (found := _places(made, state, given)) is not None:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[key] = state.statement, found
        return state.statement, [state.parameters[name] for name in state.positiontup]


def _items(parameter: BindParameter[Any]) -> list[Any]:
    """Return the values of a list, those of tuples in a row."""
    value: Any = parameter.effective_value
    return [*chain.from_iterable(value)] if parameter.type._is_tuple_type else [*value]


def _places(
    made: SQLCompiler, state: ExpandedState, given: Sequence[BindParameter[Any]]
) -> list[_Place] | None:
    """Return the places of a text's values; None if only this statement can have the text."""
    known = {one.key: at for at, one in enumerate(given)}
    if len(known) < len({id(one) for one in given}) or any(one.literal_execute for one in given):
        return None  # two of one name, or a value in the text
    lists = {names[0]: name for name, names in state.parameter_expansion.items() if names}
    rest = {item for names in state.parameter_expansion.values() for item in names} - {*lists}
    places: list[_Place] = []
    for name in state.positiontup or ():
        if name in rest:
            continue
        one = made.binds[lists.get(name, name)]
        if one.key in known:
            places.append((known[one.key], None))
        elif type(one.value) is int and one.value < 1:
            places.append((None, one.value))  # SQLite's for a limit without an offset, or the other
        else:
            return None
    return places


@cache
def _compiler() -> Compiler:
    return Compiler(_sqlite())


def compiled(statement: Executable) -> tuple[str, list[Any]]:
    """Return the text of a statement and the values of its parameters, in order."""
    made, values = _compiler().text(statement)
    text = StatementText(made)
    text.statement = statement
    return text, values


# --- Numbered placeholders (`?1`), for the Pythons that warn of each.
#
# Python 3.12.0 to 3.12.3 (Ubuntu 24.04 has it) take them for names, and warn whenever a statement
# with them is run. Later ones do not: CPython issue 117995.


_NUMBER: Final = re.compile(r"\?(\d+)")

_WARNS: Final = (3, 12) <= sys.version_info < (3, 12, 4)

Run = Callable[..., "sqlite3.Cursor"]
"""Runs a text on a connection with values, or with rows of values."""


def fitting(run: Run, *, warns: bool = _WARNS) -> Run:
    """Return what runs a statement without a warning: on most Pythons `run` itself."""
    if not warns:
        return run

    def plainly(connection: Any, text: str, values: Any) -> sqlite3.Cursor:
        plain, order = _plain(text)
        return run(connection, plain, [values[at] for at in order] if order else values)

    return plainly


def fitting_rows(run: Run, *, warns: bool = _WARNS) -> Run:
    """Return what runs a statement for many rows without a warning, as `fitting` does."""
    if not warns:
        return run

    def plainly(connection: Any, text: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        plain, order = _plain(text)
        if order:
            rows = ([row[at] for at in order] for row in rows)
        return run(connection, plain, rows)

    return plainly


@lru_cache(maxsize=1_024)
def _plain(text: str) -> tuple[str, list[int]]:
    """Return a text with `?` in place of numbers, and the index of the value of each.

    Our texts have values in no other form, so a `?` with a number is never part of a text in it.
    """
    order = [int(number) - 1 for number in _NUMBER.findall(text)]
    return (_NUMBER.sub("?", text), order) if order else (text, [])
