"""A runner as one would write it in an afternoon. Some attacks must succeed against it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def run(command: str, workdir: Path, seconds: float) -> str:
    """Let the standard library keep the time."""
    try:
        done = subprocess.run(
            command, shell=True, cwd=workdir, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    return done.stdout.decode("utf-8", "replace")
