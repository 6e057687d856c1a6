"""One directory, and no way out of it: every file access of tools and hooks goes through a Root."""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

from wick_graph.backends.beneath import O_PATH, Mechanism, choose, components
from wick_graph.errors import ConfigError, ToolError

_MAX_PATH_BYTES: Final = 4_095
_SHOWN_CHARS: Final = 200
_ESCAPED_BYTE: Final = re.compile(rb"\\x([89a-f][0-9a-f])")
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_REASONS: Final = {
    errno.ENOENT: "does not exist",
    errno.ELOOP: "is or passes through a symbolic link that is not followed here",
    errno.EXDEV: "leads outside the working directory; name a path inside it",
    errno.ENOTDIR: "uses something as a directory that is none",
    errno.EACCES: "may not be read: permission denied",
    errno.EPERM: "may not be read: permission denied",
    errno.ENAMETOOLONG: "is too long for a file name",
    errno.ENXIO: "is not a regular file",
}

EntryType = Literal["file", "dir", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    """As it is on disk; a byte that is not UTF-8 is written `\\xNN` and can be named that way."""
    type: EntryType
    """Links are named as links; devices, pipes and sockets are `other`."""
    size: int
    """Bytes of a file; 0 for everything else."""


class Root:
    """Hold a directory open and reach only what is below it.

    Paths are relative to the directory, or absolute and inside it; `..` may be used as long as it
    stays inside; `~` and `$` mean nothing. The directory is the one that was there when the Root
    was made, also if its name is given to another one later. Safe for use by several threads
    until it is closed; every refusal is a `ToolError` of one sentence.

    Args:
        path: The directory; links on the way to it are followed.
        symlinks: `deny` refuses every path that has a symbolic link in it, `inside` follows
            relative links that stay below the directory.
        mechanism: `auto` takes `openat2` where the system has it, else `walk`.

    Raises:
        ConfigError: The directory cannot be opened, or the mechanism does not exist here.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        symlinks: Literal["deny", "inside"] = "deny",
        mechanism: Mechanism = "auto",
    ) -> None:
        self.path: Final = os.path.abspath(path)  # noqa: PTH100  (resolve() would follow links)
        """The absolute path under which the directory was opened."""
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the directory {shown(self.path)} cannot be opened ({_why(error)}); "
                "name one that exists and may be read"
            ) from error
        self._close = weakref.finalize(self, os.close, self._fd)
        opener = choose(mechanism, self._fd)
        if opener is None:
            self.close()
            raise ConfigError(f"{mechanism} does not work on this system; use mechanism='auto'")
        self._opener: Final = opener
        self._follow: Final = symlinks == "inside"
        self._owner: Final = os.fstat(self._fd).st_uid
        names = {os.fsencode(self.path), os.fsencode(os.path.realpath(self.path))}
        self._prefixes: Final = [components(name) for name in names]

    @property
    def mechanism(self) -> str:
        """Say which of the two mechanisms is at work."""
        return self._opener.name

    def open_dir(self, rel: str) -> int:
        """Return a descriptor of the directory, which the caller closes."""
        return self._open(rel, os.O_RDONLY | os.O_DIRECTORY)

    def list_dir(self, rel: str = ".") -> list[Entry]:
        """Return every entry of the directory, sorted by name."""
        return self.scan_dir(rel)[0]

    def scan_dir(self, rel: str = ".", limit: int | None = None) -> tuple[list[Entry], int]:
        """Return the first `limit` entries by name, and how many there are in all."""
        total = 0

        def counted(found: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
            nonlocal total
            for item in found:
                total += 1
                yield item

        def by_name(item: os.DirEntry[str]) -> str:
            return _decoded(item.name)

        with _closing(self.open_dir(rel)) as fd, os.scandir(fd) as found:
            if limit is None:
                chosen = sorted(counted(found), key=by_name)
            else:
                chosen = heapq.nsmallest(limit, counted(found), key=by_name)
            return [entry for item in chosen if (entry := _entry(item))], total

    def read_bytes(self, rel: str, limit: int) -> bytes:
        """Return the file's first `limit` bytes, of the size it has now.

        A pipe, a device or a socket is refused at once and never waited for. So is a file with a
        second hard link that belongs to somebody else than the directory.
        """
        with _closing(self._open(rel, _READ)) as fd:
            status = os.fstat(fd)
            self._must_be_own_file(rel, status)
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(min(limit, status.st_size))

    def stat(self, rel: str) -> os.stat_result:
        """Return what the system knows about the file, without opening it for reading."""
        with _closing(self._open(rel, O_PATH)) as fd:
            return os.fstat(fd)

    def close(self) -> None:
        """Give the descriptor back; what comes later is refused. May be called twice."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Root({self.path!r}, mechanism={self.mechanism!r})"

    def _open(self, rel: str, flags: int) -> int:
        if not self._close.alive:
            raise ToolError(f"the directory {shown(self.path)} was closed; open a new Root")
        raw = _encoded(rel)
        parts = self._below(rel, raw)
        if raw.endswith((b"/", b"/.")):
            flags |= os.O_DIRECTORY
        try:
            try:
                return self._opener.open(self._fd, parts, flags, self._follow)
            except FileNotFoundError:
                plain = [_ESCAPED_BYTE.sub(_byte, part) for part in parts]
                if plain == parts:
                    raise
                return self._opener.open(self._fd, plain, flags, self._follow)
        except OSError as error:
            raise ToolError(f"{shown(rel)} {_why(error)}") from error

    def _below(self, rel: str, raw: bytes) -> list[bytes]:
        parts = components(raw)
        if not raw.startswith(b"/"):
            return parts
        for prefix in self._prefixes:
            if parts[: len(prefix)] == prefix:
                return parts[len(prefix) :]
        raise ToolError(f"{shown(rel)} {_REASONS[errno.EXDEV]}, such as '.'")

    def _must_be_own_file(self, rel: str, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{shown(rel)} is a directory; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{shown(rel)} {_REASONS[errno.ENXIO]}")
        if status.st_nlink > 1 and status.st_uid != self._owner:
            raise ToolError(f"{shown(rel)} is a hard link to somebody else's file")


def shown(path: str) -> str:
    """Quote a path for a sentence: cut, and with nothing in it that a terminal would obey."""
    text = ascii(path) if not path.isprintable() else f"'{path}'"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…'"


def _encoded(rel: str) -> bytes:
    if not rel:
        raise ToolError("the path is empty; write '.' for the working directory")
    if "\0" in rel:
        raise ToolError(f"{shown(rel)} has a NUL character, which no path can have")
    try:
        raw = os.fsencode(rel)
    except UnicodeEncodeError as error:
        raise ToolError(f"{shown(rel)} has a character that no path can have") from error
    if len(raw) > _MAX_PATH_BYTES:
        raise ToolError(f"{shown(rel)} {_REASONS[errno.ENAMETOOLONG]}")
    return raw


def _decoded(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return _REASONS.get(error.errno) or f"cannot be opened: {error.strerror}"
    return str(error)


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """Describe an entry; None if it went away meanwhile."""
    try:
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Entry(
        name=_decoded(item.name),
        type=_type(status.st_mode),
        size=status.st_size if stat.S_ISREG(status.st_mode) else 0,
    )


def _type(mode: int) -> EntryType:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "symlink" if stat.S_ISLNK(mode) else "other"


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
