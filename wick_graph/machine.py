"""What systems do differently: the one module that asks for what Windows does not have.

It looks for functions and flags, not for the name of a system, so that a system in between gets
what it can. Nothing fails at import: what cannot work is refused where it is used.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

from wick_graph.errors import ConfigError


def _module(name: str) -> Any:
    """Import a module of the standard library; None if this system does not have it."""
    try:
        return import_module(name)
    except ImportError:
        return None


_fcntl: Final = _module("fcntl")

_termios: Final = _module("termios")

_msvcrt: Final = _module("msvcrt")


# --- Files: flags, confinement to a folder, owners, locks.


O_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Without it, Windows would write other line ends."""

O_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)

O_NOCTTY: Final[int] = getattr(os, "O_NOCTTY", 0)

O_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)

O_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)

O_CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)

_CONFINES: Final = bool(
    _fcntl and O_DIRECTORY and O_NOFOLLOW and O_NONBLOCK and os.open in os.supports_dir_fd
)


def must_confine() -> None:
    """Refuse to work on files for a model where a path could lead out of its folder.

    Raises:
        ConfigError: This system cannot open a file below an open folder.
    """
    if not _CONFINES:
        raise ConfigError(
            f"this system ({sys.platform}) cannot confine file tools and commands to a folder; "
            "leave out backend, ls, skills and memory, or run wick_graph on Linux or macOS (on "
            "Windows: in WSL or a container)"
        )


def user_id() -> int | None:
    """Return the number of the user that this process acts for; None if users have none."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def lock(file: int, *, wait: bool) -> bool:
    """Lock an open file until it is closed or its process ends.

    Returns:
        Whether it is locked now; without `wait`, False if another one has locked it.
    """
    try:
        if _fcntl is not None:
            _fcntl.flock(file, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
        elif _msvcrt is not None:
            os.lseek(file, 0, os.SEEK_SET)
            _msvcrt.locking(file, _msvcrt.LK_LOCK if wait else _msvcrt.LK_NBLCK, 1)
        else:
            return False
    except OSError:
        if wait:
            raise
        return False
    return True


REPLACES_OPEN_FILES: Final = _fcntl is not None
"""Whether a file can be replaced while it is open."""


# --- Processes: a name that no other process has, whether one lives, how to end one.
#
# Linux tells when a process started. Elsewhere each process keeps a file locked while it lives.


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")

_KNOWS_STARTS: Final = sys.platform == "linux"

_OLD_SECONDS: Final = 24 * 3600.0
"""Age at which the file of an ended process is removed; no lease holds for so long."""

_kept: Final[list[str]] = []
"""The identity of what numbers processes, once it is known."""

_marks: Final[dict[int, str]] = {}
"""The name of this process's file, by the process's number: a fork has another one."""

_files: Final[list[int]] = []


def boot() -> str:
    """Identify this boot of the machine, the same in all containers; elsewhere the machine."""
    return _boot_id() or f"on {socket.gethostname()}"


@functools.cache
def _boot_id() -> str:
    """Return the system's own name of this boot, which no process outlives; empty without one."""
    if _KNOWS_STARTS:
        with suppress(OSError):
            return _BOOT.read_text(encoding="ascii").strip()
    return ""


def processes() -> str:
    """Identify what gives processes their numbers: containers share a boot, but not these."""
    if not _kept:
        found = boot()
        if _KNOWS_STARTS:
            try:
                found = f"{found}-{Path('/proc/self/ns/pid').stat().st_ino}"
            except OSError:
                found = uuid.uuid4().hex
        _kept.append(found)
    return _kept[0]


def identity() -> str:
    """Return what tells this machine, or this container, from others; it survives a restart."""
    try:
        own = Path("/etc/machine-id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        own = ""
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{own}/{socket.gethostname()}").hex


def started(pid: int) -> str:
    """Return what tells a process from earlier ones of its number; empty if it is unknown."""
    if not _KNOWS_STARTS:
        return _own_mark() if pid == os.getpid() else ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    state, *_ = fields = stat.rpartition(")")[2].split()
    return "" if state == "Z" else fields[19]


def lives(pid: int, mark: str) -> bool | None:
    """Return whether the process with this number and mark lives; None if that is unknown."""
    if _KNOWS_STARTS:
        return started(pid) == mark
    if mark == _own_mark():
        return True
    if not mark.isalnum():
        return None
    try:
        file = os.open(_marked(mark), os.O_RDWR | O_NOFOLLOW | O_NONBLOCK)
    except OSError:
        return None
    try:
        return not lock(file, wait=False)
    finally:
        os.close(file)


def _own_mark() -> str:
    """Return this process's mark; the first call makes its file."""
    pid = os.getpid()
    if pid not in _marks:
        mark = _marks.setdefault(pid, uuid.uuid4().hex)
        with suppress(OSError):  # then others cannot see whether it lives
            file = os.open(_marked(mark), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            lock(file, wait=False)
            _files.append(file)
        at_fork(after_in_child=_let_go)
        atexit.register(_unmark, pid)
        _remove_old()
    return _marks[pid]


def _marked(mark: str) -> Path:
    return Path(tempfile.gettempdir(), f"wick_graph-{mark}.alive")


def _let_go() -> None:
    """Close the files of the parent, which a child would keep locked."""
    while _files:
        os.close(_files.pop())


def _unmark(pid: int) -> None:
    if pid == os.getpid():
        _let_go()
        with suppress(OSError):
            _marked(_marks[pid]).unlink()


def _remove_old() -> None:
    """Remove the files of processes that were killed long ago."""
    with suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob("wick_graph-*.alive"):
            with suppress(OSError):
                old = time.time() - path.lstat().st_mtime > _OLD_SECONDS
                if old and lives(0, path.stem.partition("-")[2]) is False:
                    path.unlink()


def is_number_in_use(pid: int) -> bool:
    """Return whether a process may have this number."""
    if not hasattr(os, "killpg"):  # a signal 0 would be Ctrl-C there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end_group(pid: int, *, at_once: bool) -> None:
    """End a process and its group; where there are no groups, the process alone."""
    number = getattr(signal, "SIGKILL", signal.SIGTERM) if at_once else signal.SIGTERM
    with suppress(ProcessLookupError, PermissionError):
        getattr(os, "killpg", os.kill)(pid, number)


def at_fork(**calls: Callable[[], object]) -> None:
    """Register as `os.register_at_fork` does, if the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)


@contextmanager
def on_hangup(call: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call a function when the terminal closes, if the system has a signal for that."""
    number = getattr(signal, "SIGHUP", None)
    if number is None:
        yield
        return
    before = signal.signal(number, call)
    try:
        yield
    finally:
        signal.signal(number, before)


Handler = Callable[[int, FrameType | None], object]

_get: Final[Callable[[int], Any]] = vars(signal.getsignal).get("__wrapped__", signal.getsignal)
"""Python's own function; what is around it makes enumerations of numbers, and takes far longer."""

_put: Final[Callable[[int, Any], Any]] = vars(signal.signal).get("__wrapped__", signal.signal)


class HeldInterrupt:
    """Lets a first Ctrl-C wait for an end; a second one is raised at once.

    Python raises KeyboardInterrupt in the main thread between any two steps: also in the middle of
    a commit, or between taking a lease and knowing of it.
    """

    __slots__ = ("_came", "_handler", "_is_over")

    def __init__(self, handler: Handler) -> None:
        self._handler, self._is_over = handler, False
        self._came: list[tuple[int, FrameType | None]] = []
        _held.append(self)
        _put(signal.SIGINT, self._later)

    def _later(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))
        if not self._is_over and len(self._came) > 1:  # who asks twice does not want to wait
            self._came.clear()
            self.put_back()
            self._handler(number, frame)

    def has_come(self) -> bool:
        """Return whether one waits."""
        return bool(self._came)

    def put_back(self) -> None:
        """Put the handler back; a Ctrl-C that waits comes with `end`."""
        self._is_over = True
        if self in _held:
            _held.remove(self)
            _put(signal.SIGINT, self._handler)

    def end(self) -> None:
        """Put the handler back, and call it if a Ctrl-C waits."""
        self.put_back()
        came, self._came = self._came, []
        for number, frame in came:
            self._handler(number, frame)


_held: Final[list[HeldInterrupt]] = []
"""What lets Ctrl-C wait now, the last one first to end."""


def hold_interrupt(*, of_python: bool = False) -> HeldInterrupt | None:
    """Let a first Ctrl-C wait until `end`; None outside the main thread, which alone gets it.

    A second one does not wait. Within what lets one wait already, return None too: that also counts
    how many have come. With `of_python`, hold it only if it raises KeyboardInterrupt: no handler of
    the program is set.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return None
    handler = _get(signal.SIGINT)
    if isinstance(getattr(handler, "__self__", None), HeldInterrupt):
        return None
    fits = handler is signal.default_int_handler if of_python else callable(handler)
    return HeldInterrupt(handler) if fits else None


def _put_all_back() -> None:
    """Put handlers back in the child of a thread that forked while the main thread held them."""
    while _held:
        _held[-1].put_back()


at_fork(after_in_child=_put_all_back)


# --- Sockets.


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 picks a free one.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port} ({error.strerror or error})") from None


def reserve(made: socket.socket) -> None:
    """Let a socket take an address that is free: also one just left, never another server's."""
    exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)  # Windows shares with SO_REUSEADDR
    made.setsockopt(socket.SOL_SOCKET, exclusive or socket.SO_REUSEADDR, 1)


def unsent(connection: int) -> int:
    """Return how many bytes the system holds that a client has not read; 0 if it does not say."""
    queued = bytearray(4)
    if _fcntl is not None and _termios is not None:
        with suppress(OSError, AttributeError):
            _fcntl.ioctl(connection, _termios.TIOCOUTQ, queued)
    return int.from_bytes(queued, sys.byteorder)
