"""The database URL of a configuration; a relative SQLite file belongs to the YAML file's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEFAULT_STORE: Final = "sqlite:///checkpoints/wick.db"


def check_store(url: str) -> str:
    """Return a database URL that has the form of one.

    Raises:
        ValueError: if it has no scheme; the text never quotes the URL, which may hold a password.
    """
    scheme, found, _ = url.partition("://")
    if not found or not scheme:
        raise ValueError(f"must be a database URL such as {DEFAULT_STORE}")
    return url


def check_keys(source: str) -> str:
    """Return a place of keys that has the form of one.

    Raises:
        ValueError: if it is neither `file:PATH` nor `env:NAME`; the text never quotes it, which may
            be a key by mistake.
    """
    kind, _, name = source.partition(":")
    if not (name and kind == "file") and not (kind == "env" and _VARIABLE.fullmatch(name)):
        raise ValueError(
            "must say where the keys are, file:PATH or env:NAME; a key never stands in this file"
        )
    return source


def resolve_keys(source: str, base_dir: Path) -> str:
    """Make the path of a relative file of keys absolute."""
    kind, _, name = source.partition(":")
    return f"file:{base_dir.absolute() / name}" if kind == "file" else source


def resolve_store(url: str, base_dir: Path) -> str:
    """Make the path of a relative SQLite URL absolute; every other URL stays as it is.

    Raises:
        ValueError: if the folder's name holds a `?`, which no SQLite URL can express.
    """
    scheme, _, rest = url.partition(":///")
    if scheme.split("+")[0] != "sqlite" or not rest:
        return url
    name, mark, query = rest.partition("?")
    if not name or name == ":memory:" or name.startswith("file:") or Path(name).is_absolute():
        return url
    path = str(base_dir.absolute() / name)
    if "?" in path:
        raise ValueError("cannot stand in a folder with a ? in its name; rename it")
    return f"{scheme}:///{path}{mark}{query}"
