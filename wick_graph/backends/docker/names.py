"""Paths as commands in the container know them, and as files of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from wick_graph.errors import ToolError


class Names:
    """Translate between a folder of this machine and the place where it appears."""

    def __init__(self, folder: str, shown: str) -> None:
        self._folder: Final = folder
        self._shown: Final = shown
        self._parts: Final = _parts(shown)

    def inward(self, path: str) -> str:
        """Return a path of the container's as one that the files' own backend takes."""
        parts = _parts(path)
        here = len(self._parts)
        if not path.startswith("/") or parts[:here] != self._parts:
            return path
        rest = "/".join(parts[here:])
        return f"{rest}/" if rest and path.endswith("/") else rest or "."

    def outward(self, path: str) -> str:
        """Return a path of this machine as the container knows it."""
        if path == self._folder or path.startswith(f"{self._folder}/"):
            return self._shown + path[len(self._folder) :]
        return path

    @contextmanager
    def told(self) -> Iterator[None]:
        """Have errors speak of the container's paths."""
        try:
            yield
        except ToolError as error:
            text = str(error).replace(self._folder, self._shown)
            if text == str(error):
                raise
            raise type(error)(text) from error.__cause__


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
