"""Warnings about the file itself: who can change it, and what it gives away."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any, Final

from wick_graph.config.environment import is_literal
from wick_graph.config.places import KeyPath, key_path, one_line

_ROOT_UID: Final = 0
_SECRET_KEY: Final = re.compile(r"(?i)(?:^|[_-])(?:api_?key|token|secret|password|authorization)$")
"""Keys of free-form settings whose value is a secret."""
_PASSWORD_IN_URL: Final = re.compile(r"://[^/@\s:]*:(?P<password>[^/@\s]+)@")


def file_notices(data: Any, status: os.stat_result | None, source: str) -> tuple[str, ...]:
    """List what should worry the owner of a configuration file.

    Args:
        data: what the file says, before any variable is replaced.
        status: of the open file; None when the text came from elsewhere.
        source: what the file is called in the warnings.
    """
    if status is None or not hasattr(os, "getuid"):
        return ()
    source = one_line(source)
    secrets = [key_path(path) for path in _plain_secrets(data, ())]
    holds = f" and holds a secret in plain text ({secrets[0]})" if secrets else ""
    advice = "; write ${NAME} there" if secrets else ""
    notices: list[str] = []
    if status.st_mode & stat.S_IWOTH:
        notices.append(
            f"{source} can be changed by every user of this machine{holds}; "
            f"run chmod o-w on it{advice}"
        )
    if secrets and status.st_uid not in (os.getuid(), _ROOT_UID):
        notices.append(f"{source} belongs to another user{holds}{advice}")
    return tuple(notices)


def _plain_secrets(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _plain_secrets(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _plain_secrets(inner, (*path, index))
    elif isinstance(value, str) and _is_secret(path, value):
        yield path


def _is_secret(path: KeyPath, value: str) -> bool:
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if _SECRET_KEY.search(name):
        return is_literal(value)
    password = _PASSWORD_IN_URL.search(value)
    return password is not None and is_literal(password["password"])
