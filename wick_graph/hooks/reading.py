"""What the hooks that load files ask of the place where the files are."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from wick_graph.backends import Entry, FileSystem


@runtime_checkable
class Reader(Protocol):
    """Read below one directory and nowhere else; a `Root` is one.

    Every refusal is a `ToolError`. A path is never handed to a shell.
    """

    def read_bytes(self, rel: str, limit: int) -> bytes:
        """Return the file's first `limit` bytes."""
        ...

    def scan_dir(self, rel: str = ".", limit: int | None = None) -> tuple[list[Entry], int]:
        """Return the first `limit` entries by name, and how many there are."""
        ...


class BackendReader:
    """Read what the tools of a backend may read, by the same paths."""

    def __init__(self, backend: FileSystem) -> None:
        self._backend = backend

    def read_bytes(self, rel: str, limit: int) -> bytes:
        """Return the file's first `limit` bytes; what is not UTF-8 comes as U+FFFD."""
        return self._backend.read(rel).text.encode("utf-8", "replace")[:limit]

    def scan_dir(self, rel: str = ".", limit: int | None = None) -> tuple[list[Entry], int]:
        """Return the first `limit` entries by name, and how many there are."""
        listing = self._backend.ls(rel, limit)
        return listing.entries, listing.total


def reader_of(backend: FileSystem | Reader) -> Reader:
    """Return what reads the files of a backend; a `Reader`, such as a `Root`, reads by itself."""
    return backend if isinstance(backend, Reader) else BackendReader(backend)


def is_missing(error: BaseException) -> bool:
    """Say whether a refusal means only that there is no such file or directory."""
    return isinstance(error.__cause__, FileNotFoundError)
