from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.support import Door, async_door, sync_door
from tests.store.conftest import Outside
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver

Opener = Callable[..., Journal]


@pytest.fixture(params=[sync_door, async_door], ids=["invoke", "ainvoke"])
def door(request: pytest.FixtureRequest) -> Door:
    chosen: Door = request.param
    return chosen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a SQLite database; a test that names it runs on SQLite alone."""
    return tmp_path / "store.db"


@pytest.fixture
def database() -> str:
    """The database of tests that are not `on_both`."""
    return "sqlite"


@pytest.fixture
def url(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if database == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def outside(url: str) -> Iterator[Outside]:
    """Another program's look into the database."""
    made = Outside(url)
    yield made
    made.close()


@pytest.fixture
def opened(url: str) -> Iterator[Opener]:
    """Open the journal of a thread from its file, by a saver of its own."""
    savers: list[SqlSaver] = []

    def read(thread_id: str = "t") -> Journal:
        savers.append(SqlSaver.from_url(url))
        return Journal(savers[-1], thread_id)

    yield read
    for saver in savers:
        saver.close()
