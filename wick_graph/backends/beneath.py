"""Open a path below a directory descriptor so that it cannot leave it: two ways, one contract.

Both ways take components as bytes (no empty one, no `.`), honour `..` as long as it stays below,
and raise `OSError`: `EXDEV` for what leads outside, `ELOOP` for a symbolic link that the policy
does not follow. Nothing is checked first and opened later: what was resolved is what is open.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any, Final, Literal, Protocol

O_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""A descriptor to look at or to walk from; where the system has none, a plain reading one."""

_SYS_OPENAT2: Final = 437  # the same number on every Linux architecture
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_MAX_LINKS: Final = 40  # the kernel's own limit
_MAX_RACES: Final = 256
_STEP: Final = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Mechanism = Literal["auto", "openat2", "walk"]


class Opener(Protocol):
    """One way of opening below a directory."""

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
        """Open in one system call; a rename that confuses the kernel is tried again."""
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
    """Go down component by component, each opened without following a link.

    `..` returns to a descriptor that is still held, so a directory that is renamed meanwhile
    does not lead anywhere else. A link that the policy follows is read and walked like a path.
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
    """Open one component: a descriptor, or -1 and the target of the link that is there."""
    try:
        fd = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        # A link gives ELOOP, or ENOTDIR where a directory is asked for (EMLINK on BSD).
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            with suppress(OSError):
                return -1, os.readlink(part, dir_fd=directory)
        raise
    if flags & O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        return -1, os.readlink(part, dir_fd=directory)
    return fd, None


def choose(mechanism: Mechanism, root: int) -> Opener | None:
    """Return the opener that was asked for, or None if this system does not have it."""
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
