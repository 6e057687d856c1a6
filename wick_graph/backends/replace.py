"""Put new content in a file's place, so that at every instant it is the old or the new one.

The content is written to a file without a name where the system has such files (a killed process
then leaves nothing behind), else to a temporary one in the same directory; it is synced, and
renamed over the old one. The temporary name belongs to the target, so the next write to the same
target clears away what a killed one left.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)
_DESCRIPTORS: Final = Path("/proc/self/fd")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_MODE: Final = 0o666  # the system takes the umask away from it
_TRIES: Final = 64


def replace_file(
    directory: int, name: bytes, data: bytes, check: Callable[[os.stat_result | None], None]
) -> None:
    """Write `data` as the file `name` of the open directory.

    Permissions and group of an old file are kept, set-id bits are dropped. `check` is given what
    is under the name (None if nothing is), first of all and again just before the rename; what it
    raises leaves everything as it was.
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
    """Return the name under which a file's next content may lie for a moment."""
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
    except OSError:  # this file system has none; a real problem comes up again with a name
        return None


def _named(directory: int, temporary: bytes) -> tuple[int, bytes]:
    """Create the temporary file; one that no living process writes is cleared away first."""
    try:
        left = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        left = -1
    except OSError:  # a link, or what may not be read
        left = -1
        os.unlink(temporary, dir_fd=directory)
    if left >= 0:
        try:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(temporary, dir_fd=directory)
        except BlockingIOError:
            temporary = temporary[:-4] + secrets.token_hex(4).encode() + b".tmp"
        finally:
            os.close(left)
    fd = os.open(temporary, _NEW, _NEW_MODE, dir_fd=directory)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd, temporary


def like_the_directory(fd: int, directory: int) -> None:
    """Let what root makes belong to the directory's owner: commands there run as that user."""
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
    """Give a nameless file its name, by way of the temporary one: only a rename replaces."""
    source = str(_DESCRIPTORS / str(fd))
    for _ in range(_TRIES):
        try:
            os.link(source, temporary, dst_dir_fd=directory, follow_symlinks=True)
            _rename(temporary, name, directory)
        except FileExistsError:  # left by a killed process, or another one is at this very point
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
        except FileNotFoundError:  # another process took it for a left one
            continue
        else:
            return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _rename(old: bytes, new: bytes, directory: int) -> None:
    os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory)
