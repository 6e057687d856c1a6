"""Texts of statements made for one call: what those of one form share, and what they do not."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Select, bindparam, delete, func, literal, or_, select, tuple_, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from tests.support import sql
from wick_graph.store import sessions, statements, texts
from wick_graph.store import sqlite as database
from wick_graph.store.schema import leases, threads
from wick_graph.store.sessions import DIALECT
from wick_graph.store.statements import Now
from wick_graph.store.texts import Compiler, Prepared, made_text

t = threads.c


class Unknown(FunctionElement[int]):
    """A function that SQLAlchemy cannot tell from others of its class."""

    inherit_cache = False


@compiles(Unknown)
def _unknown(element: Unknown, compiler: SQLCompiler, **more: Any) -> str:
    return f"abs({compiler.process(element.clauses, **more)})"


FORMS: dict[str, Any] = {
    "values": lambda a, b: select(t.id).where(t.tenant == a, t.thread == b),
    "a value twice": lambda a, b: select(t.id).where(
        or_(t.tenant == a, t.thread == a), t.title == b
    ),
    "a list": lambda a, b: select(t.id).where(t.thread.in_([a, b, b])),
    "lists of any length": lambda a, b: select(t.id).where(
        t.thread.in_([a] * len(b)), t.title == b
    ),
    "an empty list": lambda a, b: select(t.id).where(t.thread.in_([]), t.title == a),
    "two lists": lambda a, b: select(t.id).where(
        t.thread.in_([a] * len(b)), t.id.in_([b] * len(a))
    ),
    "tuples": lambda a, b: select(t.id).where(tuple_(t.tenant, t.thread).in_([(a, b), (b, a)])),
    "nothing": lambda a, b: select(t.id).where(t.title == None if a == "x" else t.title != None),  # noqa: E711
    "no value": lambda a, b: select(func.count()).select_from(threads),
    "a page": lambda a, b: select(t.id, literal(a)).limit(len(a)).offset(len(b)),
    "the time": lambda a, b: select(t.id).where(t.last_access < Now() - len(a), t.title == b),
    "an update": lambda a, b: update(threads).values(title=a).where(t.thread == b),
    "some columns": lambda a, b: update(threads).values({"title": a} if a else {"agent": b}),
    "a deletion": lambda a, b: delete(leases).where(leases.c.thread == len(a), leases.c.epoch == b),
    "a row": lambda a, b: insert(leases).values(thread=len(a), epoch=len(b)),
    "rows": lambda a, b: insert(leases).values(
        [{"thread": n, "epoch": len(a)} for n in range(len(b))]
    ),
    "a row or another": lambda a, b: (
        insert(leases)
        .values(thread=len(a), epoch=len(b))
        .on_conflict_do_update(index_elements=["thread"], set_={"epoch": len(b) + 1})
    ),
    "of a query": lambda a, b: insert(leases).from_select(
        ["thread", "epoch"], select(t.id, literal(len(a))).where(t.title == b)
    ),
    "values that come later": lambda a, b: (
        select(t.id).where(t.tenant == bindparam("tenant"), t.title == b).params(tenant=a)
    ),
    "one name, two values": lambda a, b: select(t.id).where(
        t.tenant == bindparam("x", a), t.title == bindparam("x", a)
    ),
    "a limit alone": lambda a, b: select(t.id).where(t.title == a).limit(len(b)),
    "an offset alone": lambda a, b: select(t.id).where(t.title == a).offset(len(b)),
    "two lists and a value between": lambda a, b: select(t.id).where(
        or_(t.thread.in_([*a]), t.title == b, t.thread.in_([*b]), t.thread.in_([*a]))
    ),
    "a list with a name": lambda a, b: select(t.id).where(
        t.thread.in_(bindparam("many", [*a])), t.title == b
    ),
    "a value in the text": lambda a, b: select(t.id).where(
        t.id == bindparam("n", len(a), literal_execute=True), t.title == b
    ),
    "a value that is a list": lambda a, b: select(literal([*a], JSON), t.id).where(
        t.thread.in_([*b]), t.id == literal(len(b), JSON)
    ),
    "a call": lambda a, b: select(t.id).where(t.title == bindparam("x", callable_=lambda: a)),
    "an unknown part": lambda a, b: select(Unknown(literal(len(a))), literal(b)),
}
"""Statements of one form each, of any two texts."""

TEXTS = (("a", "b"), ("c", "d"), ("a", "bb"), ("aa", "b"), ("x", "bbb"), ("", "b"), ("a", "b"))


def of_sqlalchemy(statement: Any, dialect: Any) -> tuple[str, list[Any]]:
    made = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    return str(made), [made.params[name] for name in made.positiontup or ()]


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "dialect",
    [sqlite.dialect(paramstyle="qmark"), DIALECT],
    ids=["SQLite", "PostgreSQL"],
)
def test_each_text_is_what_sqlalchemy_makes_of_it_alone(make: Any, dialect: Any) -> None:
    compiler = Compiler(dialect)
    for first, second in TEXTS:
        statement = make(first, second)
        assert compiler.text(statement) == of_sqlalchemy(statement, dialect)


def test_forms_are_not_mixed() -> None:
    dialect = sqlite.dialect(paramstyle="qmark")
    compiler = Compiler(dialect)
    for first, second in TEXTS:
        for make in FORMS.values():
            statement = make(first, second)
            assert compiler.text(statement) == of_sqlalchemy(statement, dialect)


def test_a_form_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, made = Compiler(sqlite.dialect(paramstyle="qmark")), []
    real = Select.compile

    def compiled(*given: Any, **more: Any) -> Any:
        made.append(given)
        return real(*given, **more)

    monkeypatch.setattr(Select, "compile", compiled)
    for name in "abc":
        compiler.text(FORMS["tuples"](name, "b"))
    assert len(made) == 1


@pytest.mark.parametrize("form", ["a limit alone", "two lists and a value between", "a row"])
def test_these_forms_are_kept(form: str) -> None:
    compiler = Compiler(sqlite.dialect(paramstyle="qmark"))
    for first in "abc":
        compiler.text(FORMS[form](first, "b"))
    assert len(compiler._known) == 1


def test_no_value_is_kept() -> None:
    class Large(str):
        __slots__ = ("__weakref__",)

    compiler = Compiler(sqlite.dialect(paramstyle="qmark"))
    value = Large("large")
    compiler.text(select(t.id).where(t.title == value, t.thread.in_([value])))
    kept = weakref.ref(value)
    del value
    gc.collect()
    assert kept() is None
    assert len(compiler._known) == 1


def test_only_so_many_forms_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiler, "_MOST", 3)
    compiler = Compiler(sqlite.dialect(paramstyle="qmark"))
    for count in range(10):
        text, values = compiler.text(select(t.id).where(t.thread.in_(["x"] * count)))
        assert text.count("?") == len(values) == count
        assert len(compiler._known) <= 3


# --- texts that were made before ------------------------------------------------------------------


def another(statement: Prepared) -> Prepared:
    """Return the statement as a process has it that did not use it yet."""
    made = Prepared(statement._make, *statement.order)
    made.name = statement.name
    return made


def test_the_file_has_the_texts_that_sqlalchemy_makes() -> None:
    assert sql.FILE.read_text("utf-8") == sql.text(), f"run {sql.RENEW}"


def test_each_statement_has_a_text_in_the_file() -> None:
    for one in sql.named():
        assert made_text("sqlite", one.name) == one.compiled()
        assert made_text("postgresql", one.name) == sessions.translated(one)
    assert database.creation.__wrapped__() == database.compiled_creation()
    assert len(texts._MADE) == 2 * len(sql.named()) + 1
    assert {"statements.THREAD", "digests._ADD"} <= {one.name for one in sql.named()}


def test_sqlalchemy_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {one.name: (one.text, sessions._translated(one)) for one in sql.named()}
    for name in ("compiled", "statement"):
        monkeypatch.setattr(Prepared, name, None)
    monkeypatch.setattr(database, "compiled_creation", None)
    for one in sql.named():
        fresh = another(one)
        assert (fresh.text, sessions._translated(fresh)) == held[one.name]
    assert database.creation.__wrapped__()


def copied(folder: Path) -> Path:
    """Copy the file and the modules of its texts."""
    for name in (*(f"{one}.py" for one in texts.MADE_OF), texts.MADE_FILE):
        (folder / name).write_bytes(sql.FILE.with_name(name).read_bytes())
    return folder / texts.MADE_FILE


def test_line_ends_do_not_matter(tmp_path: Path) -> None:
    copied(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert texts.read_made(tmp_path) == texts._MADE != {}


@pytest.mark.parametrize("module", texts.MADE_OF)
def test_texts_of_another_module_are_not_used(module: str, tmp_path: Path) -> None:
    copied(tmp_path)
    file = tmp_path / f"{module}.py"
    file.write_bytes(file.read_bytes() + b"\n")
    assert texts.read_made(tmp_path) == {}
    file.unlink()  # as in a zip file
    assert texts.read_made(tmp_path) == {}


def test_a_file_that_is_not_whole_is_not_used(tmp_path: Path) -> None:
    """Many a beginning of a statement is one too, which would write a part of a row."""
    file = copied(tmp_path)
    whole = file.read_bytes()
    assert texts.read_made(tmp_path) == texts._MADE
    for size in (0, 10, 300, *range(400, len(whole), 997), len(whole) - 20):
        file.write_bytes(whole[:size])
        assert texts.read_made(tmp_path) == {}
    for other in (whole + b"\xff", whole.replace(b"tenant", b"tenants"), b"\xff" + whole):
        file.write_bytes(other)
        assert texts.read_made(tmp_path) == {}
    file.unlink()
    assert texts.read_made(tmp_path) == {}


def test_without_the_file_a_text_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    held = statements.THREAD.text
    monkeypatch.setattr(texts, "_MADE", {})
    assert another(statements.THREAD).text == statements.THREAD.compiled() == held
    assert database.creation.__wrapped__() == database.compiled_creation()
