"""The level `bwrap`: bubblewrap's namespaces around a command, with a filter and limits inside.

The command sees the system's programs read-only, the working directory, and a /tmp, a /proc and
a /dev of its own. It has no network, sees no other process, and gains no right.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wick_graph.errors import ConfigError
from wick_graph.sandbox import seccomp
from wick_graph.sandbox.environment import find_program, sealed_environment
from wick_graph.sandbox.plan import (
    NOBODY,
    TMP_BYTES,
    Bind,
    Identity,
    Launch,
    Level,
    confined,
    identity_for,
)

_NAMESPACES: Final = (
    *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
    *("--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_CONFIGURATION: Final = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/ld.so.conf"),
    *("/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/pki", "/etc/ssl"),
)
SOCKET_PROBE: Final = "/.wick-socket-probe"
"""Where the program lies, while the level is probed, that tries what the filter refuses."""
_LEAST_VERSION: Final = (0, 8)
_VERSION_SECONDS: Final = 10


class Bubblewrap:
    """Bubblewrap for one working directory.

    Args:
        workdir: The only place that a command can change.
        readable: Further folders that it can read, such as a toolchain; absolute.

    Raises:
        ConfigError: The program is missing or too old, or the directory cannot be shown.
    """

    level: Final[Level] = "bwrap"
    says: Final = (
        "They see this directory and the system's programs, and can change nothing but this "
        "directory and a /tmp that is empty for each command; there is no network."
    )

    def __init__(self, workdir: str, readable: Sequence[str] = ()) -> None:
        self._workdir: Final = os.path.realpath(workdir)
        self._readable: Final = tuple(readable)
        if self._workdir == "/" or not seccomp.supported():
            why = "the directory is /" if self._workdir == "/" else "there is no filter for it"
            raise ConfigError(f"bubblewrap cannot be used on this machine: {why}")
        program = find_program("bwrap", workdir)
        if program is None:
            raise ConfigError("bubblewrap is not installed (its program is called bwrap)")
        self._program: Final = program
        _must_be_new_enough(program)
        self._who: Final = identity_for(self._workdir)

    apart: Final = True

    def launch(self, binds: Sequence[Bind] = (), *, probe: bool = False) -> Launch:
        """Prepare the start of one command."""
        uid, gid = (self._who.uid, self._who.gid) if self._who else (os.geteuid(), os.getegid())
        fds = {
            "filter": _held(seccomp.program()),
            "/etc/passwd": _held(_users(Identity(uid, gid))),
            "/etc/group": _held(f"sandbox:x:{gid}:\n".encode()),
            "/etc/hosts": _held(b"127.0.0.1 localhost sandbox\n::1 localhost\n"),
        }
        options = [*_NAMESPACES, *_system(), *_files(fds)]
        options += ["--proc", "/proc", "--remount-ro", "/proc"]
        options += ["--dev", "/dev", *_memory("/dev/shm"), "--remount-ro", "/dev"]
        options += _memory("/tmp")
        for folder in self._readable:
            options += ["--ro-bind-try", folder, folder]
        options += ["--bind", self._workdir, self._workdir, "--chdir", self._workdir]
        for one in binds:
            options += ["--ro-bind-fd" if one.read_only else "--bind-fd", str(one.fd), one.path]
        if probe:
            fds["probe"] = _held(seccomp.socket_probe())
            options += ["--perms", "0555", "--ro-bind-data", str(fds["probe"]), SOCKET_PROBE]
        options += ["--remount-ro", "/", "--seccomp", str(fds["filter"])]
        fds["options"] = _held(b"".join(os.fsencode(option) + b"\0" for option in options))
        return Launch(
            env=sealed_environment(self._readable),
            before=(self._program, "--args", str(fds["options"]), "--"),
            plan=confined(self._who),
            fds=(*fds.values(), *(one.fd for one in binds)),
        )


def _system() -> list[str]:
    """Show the system's programs; a folder that is a link to one below /usr stays a link."""
    options = ["--ro-bind", "/usr", "/usr"]
    for folder in _SYSTEM:
        path = Path(folder)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()).lstrip("/"), folder]
        elif path.is_dir():
            options += ["--ro-bind", folder, folder]
    return options


def _files(fds: dict[str, int]) -> list[str]:
    options = [word for path in _CONFIGURATION for word in ("--ro-bind-try", path, path)]
    for path, fd in fds.items():
        if path.startswith("/"):
            options += ["--file", str(fd), path]
    return options


def _memory(folder: str) -> list[str]:
    return ["--size", str(TMP_BYTES), "--perms", "1777", "--tmpfs", folder]


def _users(who: Identity) -> bytes:
    lines = [f"sandbox:x:{who.uid}:{who.gid}::/tmp:/bin/sh"]
    if who.uid != NOBODY:
        lines.append(f"nobody:x:{NOBODY}:{NOBODY}::/:/bin/sh")
    return "".join(f"{line}\n" for line in lines).encode()


def _held(data: bytes) -> int:
    """Return a descriptor from which the data can be read once."""
    fd = os.memfd_create("wick")
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _must_be_new_enough(program: str) -> None:
    found = re.search(r"(\d+)\.(\d+)", said := _says(program, "--version"))
    if found is None or (int(found[1]), int(found[2])) < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise ConfigError(f"bubblewrap {least} or later is needed, this is {said.strip()[:60]!r}")
    if "--ro-bind-fd" not in _says(program, "--help"):
        raise ConfigError(
            "bubblewrap with the option --ro-bind-fd is needed (0.10, or 0.8 with its security "
            f"update), this is {said.strip()[:60]!r}"
        )


def _says(program: str, option: str) -> str:
    try:
        return subprocess.run(
            [program, option],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin"},
            timeout=_VERSION_SECONDS,
            check=False,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"bubblewrap cannot be started: {error}") from error
