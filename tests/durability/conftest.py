from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import with_schema

Furnish = Callable[[Path], Path]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what names a database on both."""
    if "database" in metafunc.fixturenames:
        metafunc.parametrize("database", ["sqlite", "postgres"])


@pytest.fixture
def url(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if database == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 't.db'}"


@pytest.fixture
def furnish(database: str, request: pytest.FixtureRequest) -> Iterator[Furnish]:
    """Make a folder for a trial, with a database of its own."""
    made: list[str] = []
    server = str(request.getfixturevalue("postgres_server")) if database == "postgres" else ""

    def furnished(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        if server:
            made.append(f"k_{secrets.token_hex(6)}")
            (folder / "url").write_text(with_schema(server, made[-1]))
        return folder

    yield furnished
    if server:
        with psycopg.connect(server, autocommit=True) as db:
            for schema in made:
                db.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
