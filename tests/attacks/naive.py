"""File tools as one would write them in an afternoon. Some attacks must succeed against these."""

from __future__ import annotations

import os
import re
from pathlib import Path


class LexicalFiles:
    """Compare the text of the path with the directory, then open it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> bytes:
        full = Path(os.path.normpath(self.root / path))
        if not full.is_relative_to(self.root):
            raise PermissionError(path)
        return full.read_bytes()


class ResolvingFiles:
    """Resolve the path, compare, then open it without following a last link."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def read(self, path: str) -> bytes:
        full = (self.root / path).resolve()
        if not full.is_relative_to(self.root):
            raise PermissionError(path)
        fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            return file.read()


def grep(pattern: str, text: str) -> bool:
    """Search with Python's own engine."""
    return re.search(pattern, text) is not None
