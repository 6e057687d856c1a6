"""Paths in `glob(path, …)`: one file is compared under its plain names, however it was written."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from posixpath import join, normpath
from typing import Any, Final

_PATH: Final = re.compile(r"(?:\w*[_-])?(?:path|file|filename|folder|dir|directory)s?")
"""Names of arguments that hold paths: `path`, `file_path`, `paths`, `source_dir`."""
_PLACE: Final = re.compile(r"source|src|destination|dest|dst|target|cwd|workdir")
"""Names of arguments that hold paths, or addresses."""
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_NEEDLESS: Final = re.compile(r"/(?:\.?/)+")


def names_a_path(node: ast.expr, value: str) -> bool:
    """Say whether a part of an expression takes its value from an argument that holds a path."""
    found = (
        part.id
        if isinstance(part, ast.Name)
        else part.attr
        if isinstance(part, ast.Attribute)
        else part.value
        if isinstance(part, ast.Constant)
        else None
        for part in ast.walk(node)
    )
    names = [name for name in found if isinstance(name, str)]
    if any(map(_PATH.fullmatch, names)):
        return True
    return any(map(_PLACE.fullmatch, names)) and not _ADDRESS.match(value)


def forms(path: str, folders: Sequence[str] = ()) -> list[str]:
    """Return the plain names of the file that a path means, each without `.`, `..` and `//`.

    Args:
        path: As it was written.
        folders: Absolute names of the folder that a relative path starts from; the first is the
            usual one. A file below it has two names: relative to the folder, and absolute.
    """
    if not folders:
        return [_plain(path)]
    full = _plain(join(folders[0], path))
    for folder in map(_plain, folders):
        if full == folder:
            return [".", full]
        if full.startswith(folder.rstrip("/") + "/"):
            below = full[len(folder.rstrip("/")) + 1 :]
            return [below, *(f"{_plain(one).rstrip('/')}/{below}" for one in folders)]
    return [full]


def plain_pattern(pattern: Any) -> Any:
    """Return a pattern of paths without what no plain name has: a leading `./`, and `//`."""
    return _NEEDLESS.sub("/", pattern).removeprefix("./") if isinstance(pattern, str) else pattern


def _plain(path: str) -> str:
    plain = normpath(path)
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain
