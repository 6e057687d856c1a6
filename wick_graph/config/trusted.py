"""Which files of agents a person has trusted to start programs: their hashes, kept for the user.

It lies outside of every project, so that no project can say of itself that it is trusted.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from wick_graph.config import reach
from wick_graph.config.control import trust_folder
from wick_graph.config.places import one_line
from wick_graph.config.schema import AgentsFile
from wick_graph.errors import ConfigError

VARIABLE: Final = "WICK_TRUST"
"""Hashes that are trusted wherever the file lies; for machines at which nobody sits."""
_MOST_BYTES: Final = 2**20


def digest_of(file: AgentsFile) -> str:
    """Return the hash of what a file starts; empty if it starts nothing.

    The first hash is kept with the file: a later start is refused if it is another one by then.

    Raises:
        ConfigError: There is too much of it, or a part of it can be written by tools.
    """
    if not file.starts:
        return ""
    found = reach.looked_through(file)
    digest = reach.digest(file, found)
    if file.vouched is None:
        file.vouch(digest, found)
    return digest


def is_trusted(file: AgentsFile, digest: str) -> bool:
    """Say whether a person has trusted what the file starts, in this very form."""
    if not digest or digest in re.split(r"[\s,]+", os.environ.get(VARIABLE, "")):
        return True
    return file.path is not None and _read().get(_name(file.path)) == digest


def must_be_unchanged(file: AgentsFile) -> None:
    """Refuse to start again what has changed since a person trusted it.

    Raises:
        ConfigError: It has, and nobody has trusted it as it is now.
    """
    if (known := file.vouched) is None:
        return
    found = reach.looked_through(known.file)
    now = reach.digest(known.file, found)
    if now != known.digest and not is_trusted(known.file, now):
        changed = reach.first_change(known.found, found)
        raise ConfigError(
            f"what {file.source} starts is not what was trusted ({one_line(changed)} has changed "
            "since); look at it, say wick trust, and start again, or name under data: what the "
            "server writes"
        )


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
