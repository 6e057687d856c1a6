"""One directory, and no way out of it: every file access of tools and hooks goes through a Root."""

from __future__ import annotations

import errno
import heapq
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal, Self

from wick_graph.backends.beneath import O_PATH, Mechanism, choose, components
from wick_graph.backends.names import REASONS, decoded, encoded, plain, refused, shown, why
from wick_graph.backends.protocol import Entry, EntryType
from wick_graph.backends.replace import like_the_directory, replace_file
from wick_graph.backends.search_worker import read_at
from wick_graph.errors import ConfigError, RefusedError, ToolError

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


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
                f"the directory {shown(self.path)} cannot be opened ({why(error)}); "
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
            return decoded(item.name)

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
        with self.file(rel) as (fd, status):
            return read_at(fd, 0, min(limit, status.st_size))

    @contextmanager
    def file(self, rel: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open a file for reading: its descriptor, and what it was at that moment.

        It is refused as `read_bytes` does.
        """
        with _closing(self._open(rel, _READ)) as fd:
            status = os.fstat(fd)
            self._must_be_own_file(rel, status)
            yield fd, status

    def names(self, rel: str = ".") -> list[tuple[str, EntryType]]:
        """Return every name in the directory with what it is, sorted; faster than `list_dir`."""
        with _closing(self.open_dir(rel)) as fd, os.scandir(fd) as found:
            return sorted((decoded(item.name), _kind(item)) for item in found)

    def replace(self, rel: str, data: bytes, was: os.stat_result | None = None) -> None:
        """Write a file atomically; directories above it that are missing are made.

        A new file's mode is what the umask leaves, an old one keeps its mode without set-id bits.
        Refused over a directory, a device, a file that is read-only or somebody else's, and
        through any link, whatever the policy: what is written is where its name says.

        Args:
            rel: The file.
            data: Its new content.
            was: What it was when it was read; refused if it changed since.
        """

        def check(status: os.stat_result | None) -> None:
            self._may_replace(rel, status)
            if was is not None and (status is None or _stamp(status) != _stamp(was)):
                raise ToolError(f"{shown(rel)} changed on disk meanwhile; read it again")

        with self._parent_of(rel) as (fd, name):
            replace_file(fd, name, data, check)

    def create(self, rel: str, mode: int = 0o600) -> int:
        """Create a file of ours anew and return a descriptor to write to; the caller closes it."""
        with self._parent_of(rel) as (fd, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, mode, dir_fd=fd)

    def remove(self, rel: str) -> None:
        """Remove a file's name; one that is not there is no error."""
        parent, _, name = rel.rpartition("/")
        with _closing(self.open_dir(parent or ".")) as fd, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)

    def stat(self, rel: str) -> os.stat_result:
        """Return what the system knows about the file, without opening it for reading."""
        with _closing(self._open(rel, O_PATH)) as fd:
            return os.fstat(fd)

    def handle(self, rel: str) -> int:
        """Return a descriptor that only names a file or a directory; the caller closes it."""
        return self._open(rel, O_PATH)

    def make_dir(self, rel: str) -> None:
        """Make a directory, and those above it, where they are missing."""
        try:
            os.close(self._make_dirs(self._below(rel, encoded(rel))))
        except OSError as error:
            raise refused(rel, error, "made") from error

    def close(self) -> None:
        """Give the descriptor back; what comes later is refused. May be called twice."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Root({self.path!r}, mechanism={self.mechanism!r})"

    def _open(self, rel: str, flags: int) -> int:
        raw = encoded(rel)
        parts = self._below(rel, raw)
        if raw.endswith((b"/", b"/.")):
            flags |= os.O_DIRECTORY
        try:
            try:
                return self._opener.open(self._fd, parts, flags, self._follow)
            except FileNotFoundError:
                meant = [plain(part) for part in parts]
                if meant == parts:
                    raise
                return self._opener.open(self._fd, meant, flags, self._follow)
        except OSError as error:
            raise refused(rel, error) from error

    @contextmanager
    def _parent_of(self, rel: str) -> Iterator[tuple[int, bytes]]:
        """Open the directory of a file, made if it is missing; give it and the file's name."""
        raw = encoded(rel)
        *above, name = self._below(rel, raw) or [b".."]
        if name == b".." or raw.endswith((b"/", b"/.")):
            raise ToolError(f"{shown(rel)} is a directory; name a file in it")
        try:
            with _closing(self._make_dirs(above)) as fd:
                yield fd, _name_on_disk(fd, name)
        except OSError as error:
            raise refused(rel, error, "written") from error

    def _make_dirs(self, parts: list[bytes]) -> int:
        """Open a directory; what is missing of it is made, one component at a time."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        for there in range(len(parts), -1, -1):
            known = parts[:there]
            for form in (known, [plain(part) for part in known]):
                try:
                    fd = self._opener.open(self._fd, form, flags, follow=False)
                except FileNotFoundError:
                    continue
                return self._descend(fd, parts[there:])
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _descend(self, fd: int, missing: list[bytes]) -> int:
        try:
            if b".." in missing:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            for part in missing:
                made = False
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                    os.fsync(fd)
                    made = True
                flags = os.O_RDONLY | os.O_DIRECTORY
                fd, above = self._opener.open(fd, [part], flags, follow=False), fd
                with _closing(above):
                    if made:
                        like_the_directory(fd, above)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _may_replace(self, rel: str, status: os.stat_result | None) -> None:
        if status is None:
            return
        if stat.S_ISLNK(status.st_mode):
            raise RefusedError(f"{shown(rel)} is a symbolic link; name the file that it leads to")
        self._must_be_own_file(rel, status)
        if status.st_uid not in (self._owner, os.geteuid()):
            raise RefusedError(f"{shown(rel)} belongs to somebody else and is not replaced")
        if not status.st_mode & 0o222:
            raise ToolError(f"{shown(rel)} is read-only; its mode must be changed first")

    def _below(self, rel: str, raw: bytes) -> list[bytes]:
        if not self._close.alive:
            raise ToolError(f"the directory {shown(self.path)} was closed; open a new Root")
        parts = components(raw)
        if not raw.startswith(b"/"):
            return parts
        for prefix in self._prefixes:
            if parts[: len(prefix)] == prefix:
                return parts[len(prefix) :]
        raise RefusedError(f"{shown(rel)} {REASONS[errno.EXDEV]}, such as '.'")

    def _must_be_own_file(self, rel: str, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{shown(rel)} is a directory; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{shown(rel)} {REASONS[errno.ENXIO]}")
        if status.st_nlink > 1 and status.st_uid != self._owner:
            raise RefusedError(f"{shown(rel)} is a hard link to somebody else's file")


def _name_on_disk(directory: int, name: bytes) -> bytes:
    """Take the name literally, unless only the one with real bytes in it is there."""
    meant = plain(name)
    if meant == name or not _exists(directory, meant) or _exists(directory, name):
        return name
    return meant


def _exists(directory: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _kind(item: os.DirEntry[str]) -> EntryType:
    if item.is_symlink():
        return "symlink"
    if item.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if item.is_file(follow_symlinks=False) else "other"


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """Describe an entry; None if it went away meanwhile."""
    try:
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Entry(
        name=decoded(item.name),
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
