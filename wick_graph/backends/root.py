"""`Root`: file access confined to one directory; tools and hooks reach files through it alone."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import heapq
import os
import re
import secrets
import stat
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self

from wick_graph.backends.protocol import Entry, EntryType
from wick_graph.backends.search_worker import read_at
from wick_graph.errors import ConfigError, RefusedError, ToolError
from wick_graph.machine import (
    O_CLOEXEC,
    O_DIRECTORY,
    O_NOCTTY,
    O_NOFOLLOW,
    O_NONBLOCK,
    lock,
    must_confine,
)

# --- Names of files: from a model's text to the system's bytes, and safely back into a sentence.


_MAX_PATH_BYTES: Final = 4_095

_SHOWN_CHARS: Final = 200

_ESCAPED_BYTE: Final = re.compile(rb"\\x([89a-f][0-9a-f])")

REASONS: Final = {
    errno.ENOENT: "does not exist",
    errno.ELOOP: "is or passes through a symbolic link that is not followed here",
    errno.EXDEV: "leads outside the working directory; name a path inside it",
    errno.ENOTDIR: "uses something as a directory that is not one",
    errno.ENAMETOOLONG: "is too long for a file name",
    errno.ENXIO: "is not a regular file",
}

_FORBIDDEN: Final = frozenset({errno.ELOOP, errno.EXDEV, errno.ENXIO})
"""Errors that come from a rule of `Root`; all others are the file system's own."""


def shown(path: str) -> str:
    """Quote a path for a sentence: cut, and without characters that a terminal obeys."""
    text = ascii(path) if not path.isprintable() else f"'{path}'"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…'"


def encoded(rel: str) -> bytes:
    """Return a path as bytes.

    Raises:
        ToolError: the text is not a valid path.
    """
    if not rel:
        raise ToolError("the path is empty; write '.' for the working directory")
    if "\0" in rel:
        raise ToolError(f"{shown(rel)} has a NUL character, which no path can have")
    try:
        raw = os.fsencode(rel)
    except UnicodeEncodeError as error:
        raise ToolError(f"{shown(rel)} has a character that no path can have") from error
    if len(raw) > _MAX_PATH_BYTES:
        raise ToolError(f"{shown(rel)} {REASONS[errno.ENAMETOOLONG]}")
    return raw


def decoded(name: str) -> str:
    """Return a name from the system as text; a byte that is not UTF-8 becomes `xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def plain(part: bytes) -> bytes:
    """Return a name with its escapes replaced by the bytes."""
    return _ESCAPED_BYTE.sub(_byte, part)


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def refused(rel: str, error: OSError, done: str = "read") -> ToolError:
    """Make the error that says why a path could not be `done`."""
    kind = RefusedError if error.errno in _FORBIDDEN else ToolError
    return kind(f"{shown(rel)} {why(error, done)}")


def why(error: OSError | ValueError, done: str = "read") -> str:
    """Say why a path could not be `done`, as the rest of a sentence."""
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"may not be {done}: permission denied"
        known = REASONS.get(error.errno)
        return known or f"cannot be {'opened' if done == 'read' else done}: {error.strerror}"
    return str(error)


# --- Replace a file atomically: at any time it has the old content or the new one.
#
# The content goes to a file without a name if the system has such files (a killed process then
# leaves nothing behind), else to a temporary file in the same directory. It is synced, and renamed
# over the old file. The temporary name derives from the target, so the next write to the same
# target removes what a killed one left.


_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)

_DESCRIPTORS: Final = Path("/proc/self/fd")

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC

_NEW_MODE: Final = 0o666  # the system subtracts the umask

_TRIES: Final = 64


def replace_file(
    directory: int, name: bytes, data: bytes, check: Callable[[os.stat_result | None], None]
) -> None:
    """Write `data` as the file `name` of the open directory.

    Permissions and group of an old file are kept, set-id bits are dropped. `check` gets the status
    of the name (None if it does not exist) at the start and again just before the rename; if it
    raises, nothing changes.
    """
    old = _status(directory, name)
    check(old)
    temporary = temporary_name(name)
    fd = _nameless(directory)
    nameless = fd is not None
    if fd is None:
        fd, temporary = _named(directory, temporary)
    try:
        try:
            _fill(fd, data, old, directory)
            check(_status(directory, name))
            if nameless:
                _publish(fd, temporary, name, directory)
            else:
                _rename(temporary, name, directory)
        finally:
            os.close(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)


def temporary_name(name: bytes) -> bytes:
    """Return the temporary name of a file's next content."""
    return b".wick-" + hashlib.sha256(name).hexdigest()[:16].encode() + b".tmp"


def _status(directory: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _nameless(directory: int) -> int | None:
    if not _TMPFILE or not _DESCRIPTORS.is_dir():
        return None
    try:
        return os.open(".", _TMPFILE | os.O_WRONLY | os.O_CLOEXEC, _NEW_MODE, dir_fd=directory)
    except OSError:  # not supported here; a real problem comes again with a name
        return None


def _named(directory: int, temporary: bytes) -> tuple[int, bytes]:
    """Create the temporary file; first remove one that no living process writes."""
    try:
        left = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        left = -1
    except OSError:  # a link, or unreadable
        left = -1
        os.unlink(temporary, dir_fd=directory)
    if left >= 0:
        try:
            if lock(left, wait=False):
                os.unlink(temporary, dir_fd=directory)
            else:
                temporary = temporary[:-4] + secrets.token_hex(4).encode() + b".tmp"
        finally:
            os.close(left)
    fd = os.open(temporary, _NEW, _NEW_MODE, dir_fd=directory)
    lock(fd, wait=False)
    return fd, temporary


def like_the_directory(fd: int, directory: int) -> None:
    """Give a file that root makes to the directory's owner: commands there run as that user."""
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        if owner.st_uid != 0:
            with suppress(PermissionError):
                os.fchown(fd, owner.st_uid, owner.st_gid)


def _fill(fd: int, data: bytes, old: os.stat_result | None, directory: int) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    if old is None:
        like_the_directory(fd, directory)
    else:
        made = os.fstat(fd)
        if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
            with suppress(PermissionError):
                os.fchown(fd, old.st_uid, old.st_gid)
        os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
    os.fsync(fd)


def _publish(fd: int, temporary: bytes, name: bytes, directory: int) -> None:
    """Give a nameless file its name through the temporary one: only a rename replaces."""
    source = str(_DESCRIPTORS / str(fd))
    for _ in range(_TRIES):
        try:
            os.link(source, temporary, dst_dir_fd=directory, follow_symlinks=True)
            _rename(temporary, name, directory)
        except FileExistsError:  # left by a killed process, or another process is just here
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
        except FileNotFoundError:  # another process took it for a leftover
            continue
        else:
            return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _rename(old: bytes, new: bytes, directory: int) -> None:
    os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory)


# --- Open a path below a directory descriptor without leaving it: two mechanisms, one contract.
#
# Both take components as bytes (no empty one, no `.`), follow `..` as long as it stays below, and
# raise `OSError`: `EXDEV` for a path that leads outside, `ELOOP` for a symbolic link that the
# policy does not follow. There is no check before the open: the resolved file is the open file.


O_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY | O_NONBLOCK)
"""Flags of a descriptor for `stat` and walks; a plain read if the system lacks O_PATH."""

_SYS_OPENAT2: Final = 437  # the same number on every Linux architecture

_RESOLVE_NO_MAGICLINKS: Final = 0x02

_RESOLVE_NO_SYMLINKS: Final = 0x04

_RESOLVE_BENEATH: Final = 0x08

_MAX_LINKS: Final = 40  # the kernel's own limit

_MAX_RACES: Final = 256

_STEP: Final = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC

Mechanism = Literal["auto", "openat2", "walk"]


class Opener(Protocol):
    """A mechanism that opens paths below a directory."""

    name: str

    def open(self, root: int, parts: Sequence[bytes], flags: int, follow: bool) -> int:
        """Return a new descriptor of the file at `parts` below the descriptor `root`."""
        ...


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


class Openat2:
    """Let the kernel confine the path: `openat2(2)` of Linux 5.6 and later."""

    name = "openat2"

    def open(self, root: int, parts: Sequence[bytes], flags: int, follow: bool) -> int:
        """Open in one system call; try again if a concurrent rename confuses the kernel."""
        resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
        if not follow:
            resolve |= _RESOLVE_NO_SYMLINKS
        how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
        path = b"/".join(parts) or b"."
        code = errno.EAGAIN
        for _ in range(_MAX_RACES):
            fd: int = _syscall()(
                ctypes.c_long(_SYS_OPENAT2),
                ctypes.c_int(root),
                ctypes.c_char_p(path),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(code, os.strerror(code))


class Walk:
    """Descend component by component, each opened without following a link.

    `..` returns to a descriptor that is still open, so a concurrent rename of a directory cannot
    lead elsewhere. A link that the policy follows is read and walked like a path.
    """

    name = "walk"

    def open(self, root: int, parts: Sequence[bytes], flags: int, follow: bool) -> int:
        """Open the last component from the descriptor of its directory."""
        links = 0
        queue = deque(parts)
        held = [os.open(".", _STEP, dir_fd=root)]
        with ExitStack() as closing:
            closing.callback(_close, held)
            while queue:
                part = queue.popleft()
                if part == b"..":
                    _up(held)
                    continue
                fd, target = _step(held[-1], part, flags if not queue else _STEP)
                if target is not None:
                    links += 1
                    _may_follow(target, follow, links)
                    queue.extendleft(reversed(components(target)))
                elif queue:
                    held.append(fd)
                else:
                    return fd
            return os.open(".", flags | os.O_CLOEXEC, dir_fd=held[-1])


def components(path: bytes) -> list[bytes]:
    """Split a path, without empty components and `.`."""
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _close(held: list[int]) -> None:
    for fd in held:
        os.close(fd)


def _up(held: list[int]) -> None:
    if len(held) == 1:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    os.close(held.pop())


def _may_follow(target: bytes, follow: bool, links: int) -> None:
    if not follow or links > _MAX_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.startswith(b"/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def _step(directory: int, part: bytes, flags: int) -> tuple[int, bytes | None]:
    """Open one component; return a descriptor, or -1 and the target if it is a link."""
    try:
        fd = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        # A link gives ELOOP, or ENOTDIR with O_DIRECTORY (EMLINK on BSD).
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            with suppress(OSError):
                return -1, os.readlink(part, dir_fd=directory)
        raise
    if flags & O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        return -1, os.readlink(part, dir_fd=directory)
    return fd, None


def choose(mechanism: Mechanism, root: int) -> Opener | None:
    """Return the opener of a mechanism, or None if this system does not have it."""
    if mechanism == "walk":
        return Walk()
    if _works(root):
        return Openat2()
    return Walk() if mechanism == "auto" else None


def _works(root: int) -> bool:
    """Try once: old kernels, other systems and some sandboxes lack the call."""
    if not hasattr(os, "O_PATH"):
        return False
    try:
        os.close(Openat2().open(root, (), O_PATH | os.O_DIRECTORY, follow=False))
    except (OSError, AttributeError):
        return False
    return True


_READ: Final = os.O_RDONLY | O_NONBLOCK | O_NOCTTY


class _Held:
    """An open directory; it is closed when nothing refers to it any more."""

    def __init__(self, path: str) -> None:
        self.fd: Final = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.fd)


class Root:
    """Hold a directory open and reach only files below it.

    Paths are relative to the directory, or absolute and inside it; `..` is allowed as long as it
    stays inside; `~` and `$` have no meaning. The directory stays the one that the Root opened,
    even if another one gets its name later. Safe for use by several threads until it is closed;
    every refusal is a `ToolError` of one sentence.

    Args:
        path: The directory; links on the way to it are followed.
        symlinks: `deny` refuses every path with a symbolic link in it, `inside` follows relative
            links that stay below the directory.
        mechanism: `auto` takes `openat2` if the system has it, else `walk`.

    Raises:
        ConfigError: the directory cannot be opened, or the system lacks the mechanism.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        symlinks: Literal["deny", "inside"] = "deny",
        mechanism: Mechanism = "auto",
    ) -> None:
        self.path: Final = os.path.abspath(path)  # noqa: PTH100  (resolve() would follow links)
        """The absolute path of the directory when it was opened."""
        must_confine()
        try:
            top = _Held(self.path)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the directory {shown(self.path)} cannot be opened ({why(error)}); "
                "name one that exists and is readable"
            ) from error
        opener = choose(mechanism, top.fd)
        if opener is None:
            raise ConfigError(f"{mechanism} does not work on this system; use mechanism='auto'")
        self._opener: Final = opener
        self._follow: Final = symlinks == "inside"
        self._owner: Final = os.fstat(top.fd).st_uid
        self._tops: Final = [top]
        """The directory; nothing once it is closed. What goes on then still has it: else its
        number could be another directory's by the time of the next open."""
        names = {os.fsencode(self.path), os.fsencode(os.path.realpath(self.path))}
        self._prefixes: Final = [components(name) for name in names]
        self._real: Final = os.path.realpath(self.path)
        self._hides: Callable[[str], bool] | None = None

    def hiding(self, hides: Callable[[str], bool]) -> Root:
        """Return this directory without what `hides` names, given absolute paths without links.

        Both share one descriptor; what is hidden can be neither listed nor opened.
        """
        made = copy(self)
        made._hides = hides
        return made

    @property
    def mechanism(self) -> str:
        """Return the name of the mechanism in use."""
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
            seen = counted(self._shown(fd, rel, found))
            if limit is None:
                chosen = sorted(seen, key=by_name)
            else:
                chosen = heapq.nsmallest(limit, seen, key=by_name)
            return [entry for item in chosen if (entry := _entry(item))], total

    def read_bytes(self, rel: str, limit: int) -> bytes:
        """Return the first `limit` bytes of the file, within its present size.

        A pipe, a device or a socket is refused at once, without waiting. So is a file with a
        second hard link that does not belong to the directory's owner.
        """
        with self.file(rel) as (fd, status):
            return read_at(fd, 0, min(limit, status.st_size))

    @contextmanager
    def file(self, rel: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open a file for reading; yield its descriptor and its status at that time.

        It refuses the same files as `read_bytes`.
        """
        with _closing(self._open(rel, _READ)) as fd:
            status = os.fstat(fd)
            self._must_be_own_file(rel, status)
            yield fd, status

    def names(self, rel: str = ".") -> list[tuple[str, EntryType]]:
        """Return every name in the directory with its type, sorted; faster than `list_dir`."""
        with _closing(self.open_dir(rel)) as fd, os.scandir(fd) as found:
            return sorted((decoded(item.name), _kind(item)) for item in self._shown(fd, rel, found))

    def replace(self, rel: str, data: bytes, was: os.stat_result | None = None) -> None:
        """Write a file atomically, and make the missing directories above it.

        A new file's mode follows the umask, an old file keeps its mode without set-id bits.
        Refused for a directory, a device, a read-only file, a file of another owner, and through
        any link, whatever the policy: the file is written where its name says.

        Args:
            rel: The file.
            data: Its new content.
            was: Its status when it was read; refused if it has changed since.
        """

        def check(status: os.stat_result | None) -> None:
            self._may_replace(rel, status)
            if was is not None and (status is None or _stamp(status) != _stamp(was)):
                raise ToolError(f"{shown(rel)} changed on disk meanwhile; read it again")

        with self._parent_of(rel) as (fd, name):
            replace_file(fd, name, data, check)

    def create(self, rel: str, mode: int = 0o600) -> int:
        """Replace a file with a new one; return a descriptor to write to. The caller closes it."""
        with self._parent_of(rel) as (fd, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, mode, dir_fd=fd)

    def remove(self, rel: str) -> None:
        """Remove a file; a missing one is not an error."""
        parent, _, name = rel.rpartition("/")
        with _closing(self.open_dir(parent or ".")) as fd, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)

    def stat(self, rel: str) -> os.stat_result:
        """Return a file's status without opening it for reading."""
        with _closing(self._open(rel, O_PATH)) as fd:
            return os.fstat(fd)

    def handle(self, rel: str) -> int:
        """Return an O_PATH descriptor of a file or a directory; the caller closes it."""
        return self._open(rel, O_PATH)

    def make_dir(self, rel: str) -> None:
        """Make a directory, and those above it, if they are missing."""
        try:
            os.close(self._make_dirs(self._below(rel, encoded(rel))))
        except OSError as error:
            raise refused(rel, error, "made") from error

    def close(self) -> None:
        """Close the directory; later calls are refused. May be called twice."""
        self._tops.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Root({self.path!r}, mechanism={self.mechanism!r})"

    def _open(self, rel: str, flags: int) -> int:
        fd = self._opened(rel, flags)
        try:
            if self._hides is not None and self._hides(self._path_of(fd, rel)):
                raise RefusedError(f"{shown(rel)} is hidden from tools")
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _top(self) -> _Held:
        for top in self._tops:
            return top
        raise ToolError(f"the directory {shown(self.path)} was closed; open a new Root")

    def _path_of(self, fd: int, rel: str) -> str:
        """Return the path of an open file without links, as if the directory kept its name."""
        held = self._top()
        try:
            path, top = (str((_DESCRIPTORS / str(one)).readlink()) for one in (fd, held.fd))
        except OSError:  # a system without /proc
            return os.path.realpath(os.path.join(self._real, rel))  # noqa: PTH118  (as text)
        return self._real + path[len(top) :] if top != "/" else path

    def _shown(
        self, fd: int, rel: str, found: Iterator[os.DirEntry[str]]
    ) -> Iterator[os.DirEntry[str]]:
        if self._hides is None:
            return found
        hides, folder = self._hides, self._path_of(fd, rel)
        return (item for item in found if not hides(f"{folder}/{item.name}"))

    def _opened(self, rel: str, flags: int) -> int:
        raw = encoded(rel)
        parts, top = self._below(rel, raw), self._top()
        if raw.endswith((b"/", b"/.")):
            flags |= os.O_DIRECTORY
        try:
            try:
                return self._opener.open(top.fd, parts, flags, self._follow)
            except FileNotFoundError:
                meant = [plain(part) for part in parts]
                if meant == parts:
                    raise
                return self._opener.open(top.fd, meant, flags, self._follow)
        except OSError as error:
            raise refused(rel, error) from error

    @contextmanager
    def _parent_of(self, rel: str) -> Iterator[tuple[int, bytes]]:
        """Open the directory of a file, or make it; yield it and the file's name."""
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
        """Open a directory; make the missing parts, one component at a time."""
        flags, top = os.O_RDONLY | os.O_DIRECTORY, self._top()
        for there in range(len(parts), -1, -1):
            known = parts[:there]
            for form in (known, [plain(part) for part in known]):
                try:
                    fd = self._opener.open(top.fd, form, flags, follow=False)
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
            raise RefusedError(f"{shown(rel)} belongs to another user and is not replaced")
        if not status.st_mode & 0o222:
            raise ToolError(f"{shown(rel)} is read-only; its mode must be changed first")

    def _below(self, rel: str, raw: bytes) -> list[bytes]:
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
            raise RefusedError(f"{shown(rel)} is a hard link to another user's file")


def _name_on_disk(directory: int, name: bytes) -> bytes:
    """Take the name literally, unless only the name with real bytes exists."""
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
    """Describe an entry; None if it was removed meanwhile."""
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
