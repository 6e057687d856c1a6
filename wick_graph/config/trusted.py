"""Which files of agents a person has trusted to start programs: their hashes, kept for the user.

It lies outside of every project, so that no project can say of itself that it is trusted.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from wick_graph.config.schema import AgentsFile
from wick_graph.errors import ConfigError

VARIABLE: Final = "WICK_TRUST"
"""Hashes that are trusted wherever the file lies; for machines at which nobody sits."""
_MOST_BYTES: Final = 2**20


def trust_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return the user's folder in which trust is kept."""
    env = os.environ if env is None else env
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "wick_graph"


def digest_of(file: AgentsFile) -> str:
    """Return the hash of what a file starts; empty if it starts nothing."""
    return file.starts.digest(file.base_dir) if file.starts else ""


def is_trusted(file: AgentsFile, digest: str) -> bool:
    """Say whether a person has trusted what the file starts, in this very form."""
    if not digest or digest in re.split(r"[\s,]+", os.environ.get(VARIABLE, "")):
        return True
    return file.path is not None and _read().get(_name(file.path)) == digest


def trust(file: AgentsFile, digest: str) -> Path:
    """Keep that a person trusts what the file starts; return where it is kept.

    Raises:
        ConfigError: It cannot be kept.
    """
    if file.path is None:
        raise ConfigError("a configuration without a file cannot be trusted; save it in one")
    folder = trust_folder()
    known = {**_read(), _name(file.path): digest}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, made = tempfile.mkstemp(dir=folder)  # only its owner may read it
        with os.fdopen(fd, "w", encoding="utf-8") as out:
            json.dump(known, out, indent=1, sort_keys=True)
        Path(made).replace(folder / "trusted.json")
    except OSError as error:
        raise ConfigError(
            f"trust cannot be kept in {folder} ({error.strerror}); set {VARIABLE}={digest}"
        ) from error
    return folder / "trusted.json"


def _name(path: Path) -> str:
    return os.path.realpath(path)


def _read() -> dict[str, str]:
    """Read what is trusted; a file that others could have written says nothing."""
    with suppress(OSError, ValueError), (trust_folder() / "trusted.json").open("rb") as file:
        status = os.fstat(file.fileno())
        others = stat.S_IWGRP | stat.S_IWOTH
        if status.st_uid != os.geteuid() or status.st_mode & others:
            return {}
        found = json.loads(file.read(_MOST_BYTES))
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}
