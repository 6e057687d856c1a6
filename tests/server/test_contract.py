"""The server against its own description: every operation, all checks, nothing left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.support import serving

EXAMPLES = 50


@pytest.mark.slow
def test_N6_schemathesis_finds_nothing(tmp_path: Path) -> None:
    flags = ("--requests-per-minute", "10000000", "--model", "scripted:demo")
    with serving(tmp_path, *flags) as served:
        token = served.wick("token", "create", "--scope", "admin")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json"),
                *("--header", f"Authorization: Bearer {token}"),
                *("--checks", "all", "--max-examples", str(EXAMPLES), "--continue-on-failure"),
                *("--seed", "1", "--workers", "2", "--generation-database", ":memory:"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
        health = served.http().get("/health").json()
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert "No issues found" in done.stdout, done.stdout[-2_000:]
    assert health == {"status": "ok"}
