from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wick_graph.store import SqlSaver

TABLES = (
    *("threads", "names", "checkpoints", "writes", "items", "calls", "leases"),
    *("runs", "moments", "blobs"),
)
Counts = Callable[[], dict[str, int]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def saver(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url, synchronous="NORMAL") as opened:
        yield opened


@pytest.fixture
def counts(path: Path) -> Counts:
    """Rows per table, as another connection sees them."""

    def count() -> dict[str, int]:
        db = sqlite3.connect(path)
        try:
            return {
                table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES
            }
        finally:
            db.close()

    return count
