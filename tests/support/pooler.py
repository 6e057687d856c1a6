"""A real pgbouncer before a test's PostgreSQL server, in the mode that a test asks for."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.waiting import until

BOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

needs_bouncer = pytest.mark.skipif(
    BOUNCER is None, reason="pgbouncer is missing: apt-get install pgbouncer"
)


@contextmanager
def pooled(url: str, mode: str, size: int) -> Iterator[str]:
    """Run a pgbouncer with `size` sessions before the server of a URL; give the URL through it."""
    assert BOUNCER is not None
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    (host,), (schema,) = asked["host"], asked["schema"]
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="wick-pooler-") as folder:
        Path(folder).chmod(0o755)
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={host} user=postgres\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\n"
        )
        settings.chmod(0o644)
        user = Path(host).owner() if os.geteuid() == 0 else None  # it refuses to run as root
        bouncer = subprocess.Popen([BOUNCER, "-q", str(settings)], user=user)
        try:
            until(lambda: _answers(port) or bouncer.poll() is not None, "pgbouncer answers")
            assert bouncer.poll() is None
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres?schema={schema}"
        finally:
            bouncer.kill()
            bouncer.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
