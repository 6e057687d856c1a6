"""A process of Linux that lacks what Python lacks on Windows, to run wick_graph in.

Run as a script: `python -m tests.support.windows MODULE ARGUMENTS…`. It loads the standard library
and the libraries that wick_graph uses as they are; then the modules, functions and flags that
Windows does not have are gone, and what differs fails as it does there: names of files, links, and
files that are open. `msvcrt` has real locks. wick_graph is loaded after that.
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

MODULES: Final = (
    *("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty", "readline", "syslog"),
    *("crypt", "nis", "ossaudiodev", "spwd", "curses", "_curses"),
)

NAMES: Final = re.compile(
    r"O_(?!RDONLY|WRONLY|RDWR|APPEND|CREAT|EXCL|TRUNC)\w+|(sched|SCHED|posix|RTLD|GRND)_\w+"
    r"|(get|set)(e|re|res|s|p)?[ug]id|[gs]etp(grp|riority)|[gs]etgroups|getgrouplist|initgroups"
    r"|fork(pty)?|kill(pg)|register_at_fork|wait(3|4|id)?|W[A-Z]+|P_(PID|PGID|ALL|PIDFD)|getsid"
    r"|setsid|pidfd_open|[fl]?chown|lchmod|chroot|mkfifo|mknod|nice|openpty|pipe2|uname|f?statvfs"
    r"|p?(read|write)v|pread|pwrite|sendfile|sync|fdatasync|memfd_create|eventfd\w*|splice|lockf"
    r"|copy_file_range|\w+xattr|fchdir|f?pathconf|sysconf|confstr|ctermid|ttyname|tc[gs]etpgrp"
    r"|getloadavg|fchmod|fwalk"
)
"""What the documentation of `os` gives as not available on Windows."""

SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV")

LIBRARIES: Final = (
    *("asyncio", "concurrent.futures", "ctypes", "email.message", "getpass", "http.client"),
    *("logging.handlers", "multiprocessing.context", "platform", "sqlite3", "subprocess", "ssl"),
    *("tempfile", "urllib.request", "uuid", "webbrowser", "zipfile", "zoneinfo"),
    *("anyio._backends._asyncio", "fastapi", "httpx", "jsonschema", "langchain.agents", "mcp"),
    *("langgraph.graph", "mcp.server", "mcp.client.stdio", "ormsgpack", "pydantic"),
    *("rich.console", "rich.live", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite"),
    *("starlette.responses", "typer", "typer.testing", "uvicorn.lifespan.on", "yaml"),
    *("uvicorn.protocols.http.h11_impl", "uvicorn.loops.asyncio", "cryptography.hazmat.primitives"),
)

_RESERVED: Final = re.compile(r'[<>:"|?*\x00-\x1f]|[. ]$|^(con|nul|aux|prn)(\.|$)', re.IGNORECASE)


class _Missing:
    """Refuse to import what Windows does not have."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def become(libraries: Sequence[str] = LIBRARIES) -> None:
    """Take away from this process what Windows does not have."""
    for name in libraries:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    assert not any(name.partition(".")[0] == "wick_graph" for name in sys.modules)
    _with_locks()
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing())
    for name in dir(os):
        if NAMES.fullmatch(name):
            delattr(os, name)
    for name in dir(signal):
        if re.match(r"SIG[A-Z]", name) and name not in SIGNALS:
            delattr(signal, name)
    for name in ("pthread_sigmask", "pthread_kill", "setitimer", "sigwait", "alarm", "pause"):
        delattr(signal, name)
    for name in [name for name in dir(time) if name.startswith(("CLOCK_", "clock_", "tzset"))]:
        delattr(time, name)
    for name in ("SO_REUSEPORT", "send_fds", "recv_fds"):
        delattr(socket, name)
    for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        group.clear()
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        os.environ.pop(name, None)
    subprocess.Popen.kill = subprocess.Popen.terminate  # type: ignore[method-assign]  # as there
    _with_its_library()
    _with_its_files()
    sys.platform = "win32"
    warnings.filterwarnings("error", category=EncodingWarning, module="wick_graph")


def _with_locks() -> None:
    import fcntl  # noqa: PLC0415  # before it is gone

    locks: Any = types.ModuleType("msvcrt")
    locks.LK_LOCK, locks.LK_NBLCK, locks.LK_UNLCK = 1, 2, 0
    exclusive, at_once, off = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN
    flock = fcntl.flock

    def locking(file: int, mode: int, count: int) -> None:
        assert count > 0
        how = {1: exclusive, 2: exclusive | at_once, 0: off}[mode]
        try:
            flock(file, how)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    locks.locking = locking
    sys.modules["msvcrt"] = locks


def _with_its_library() -> None:
    """Let the standard library, which looks at `sys.platform`, find what it calls there."""
    loops, system, files = (importlib.import_module(one) for one in ("asyncio", "os", "shutil"))
    vars(loops)["ProactorEventLoop"] = loops.SelectorEventLoop
    vars(system)["process_cpu_count"] = system.cpu_count
    vars(subprocess)["_USE_POSIX_SPAWN"] = False
    vars(files)["_winapi"] = types.SimpleNamespace(NeedCurrentDirectoryForExePath=lambda _: False)


def _with_its_files() -> None:
    """Refuse names, links and changes of open files that Windows refuses."""
    listdir, stat = os.listdir, os.stat

    def is_open(path: Any) -> bool:
        with suppress(OSError):
            found = stat(path)
            for one in listdir("/proc/self/fd"):
                with suppress(OSError):
                    held = stat(f"/proc/self/fd/{one}")
                    if (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino):
                        return True
        return False

    def must_be_closed(path: Any) -> None:
        if is_open(path):
            raise PermissionError(13, "the file is open in this process", path)

    def must_be_valid(path: Any) -> None:
        if isinstance(path, int):
            return
        parts = os.fsdecode(path).split("/")
        if any(_RESERVED.search(part) for part in parts if part not in (".", "..")):
            raise OSError(22, "Invalid argument", path)

    def closed(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **named: Any) -> Any:
            for path in args[:2]:
                must_be_closed(path)
            return call(*args, **named)

        return checked

    def valid(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any, *args: Any, **named: Any) -> Any:
            must_be_valid(path)
            return call(path, *args, **named)

        return checked

    def rename(old: Any, new: Any) -> None:
        must_be_closed(old)
        if os.path.exists(new):  # noqa: PTH110  # os.replace is for that
            raise FileExistsError(17, "File exists", new)
        replace(old, new)

    def symlink(*args: Any, **named: Any) -> None:
        raise OSError(22, "a required privilege is not held by the client")

    own: Any = os
    replace = os.replace
    own.unlink, own.remove, own.replace = closed(os.unlink), closed(os.remove), closed(os.replace)
    own.rename, own.symlink = rename, symlink
    own.open, own.mkdir = valid(os.open), valid(os.mkdir)
    builtins.open = io.open = valid(open)


if __name__ == "__main__":
    become()
    sys.argv[:] = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
