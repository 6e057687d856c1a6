from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import connected
from wick_graph.store import SqlSaver
from wick_graph.store.schema import metadata

TABLES = tuple(name for name in metadata.tables if name != "clock")
Counts = Callable[[], dict[str, int]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is not about SQLite's file on both databases."""
    if "database" in metafunc.fixturenames:
        of_file = "path" in metafunc.fixturenames
        metafunc.parametrize("database", ["sqlite"] if of_file else ["sqlite", "postgres"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a SQLite database; a test that names it runs on SQLite alone."""
    return tmp_path / "store.db"


@pytest.fixture
def url(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if database == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def saver(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url, synchronous="NORMAL") as opened:
        yield opened


class Outside:
    """Another program's look into a store's database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: Any = None

    def run(self, text: str, *values: Any) -> list[Any]:
        """Run a statement of which SQLite's text is given, and commit it."""
        if self._url.startswith("sqlite"):
            db = sqlite3.connect(self._url.removeprefix("sqlite:///"), isolation_level=None)
            try:
                return db.execute(text, values).fetchall()
            finally:
                db.close()
        if self._session is None:
            self._session = connected(self._url)
        cursor = self._session.execute(text.replace("?", "%s"), values)
        found: list[Any] = cursor.fetchall() if cursor.description else []
        return found

    def count(self, table: str) -> int:
        return int(self.run(f"SELECT count(*) FROM {table}")[0][0])

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


@pytest.fixture
def outside(url: str) -> Iterator[Outside]:
    made = Outside(url)
    yield made
    made.close()


@pytest.fixture
def counts(outside: Outside) -> Counts:
    """Rows per table, as another connection sees them."""
    query = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in TABLES)
    return lambda: dict(outside.run(query))
