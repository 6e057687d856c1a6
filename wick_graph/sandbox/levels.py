"""The sandbox levels `local`, `landlock` and `bwrap`, and the choice between them."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from wick_graph.errors import ConfigError
from wick_graph.sandbox import confine, plan
from wick_graph.sandbox.plan import (
    LIMITS,
    OVERFLOW_ID,
    PROCESSES,
    TMP_BYTES,
    Bind,
    Identity,
    Launch,
    Level,
    Sandbox,
    Setting,
    clean_environment,
    confined,
    find_program,
    identity_for,
    program,
    sealed_environment,
    supported,
)

# --- The level `local`: no boundary. Limits bound the cost of a command, not what it may do.


class Local:
    """Commands with the rights of this process, in one working directory."""

    level: Final[Level] = "local"
    says: Final = (
        "There is no sandbox around them: they have the rights of the program that you are part "
        "of, on its files and on the network."
    )

    def __init__(self, workdir: str) -> None:
        self._workdir: Final = workdir

    apart: Final = False

    def launch(self, binds: Sequence[Bind] = (), *, probe: bool = False) -> Launch:
        """Prepare the start of one command."""
        plan = {"limits": dict(LIMITS), "processes": PROCESSES}
        return Launch(env=clean_environment(self._workdir), plan=plan)


# --- The level `landlock`: the kernel's file rules around a command, without namespaces.
#
# The command can neither read nor change files outside the list, and can make no socket. It is
# weaker than `bwrap`: other processes are not hidden, a file's existence, size and mode stay
# visible, and its owner can change its mode.


_LEAST_ABI: Final = 6
"""The first version that confines signals and abstract sockets: Linux 6.12."""

_PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

_READ: Final = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/hosts"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki", "/etc/ssl"),
    *("/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat"),
    *("/proc/uptime", "/proc/version", "/sys/devices/system/cpu"),
)

_DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


class Landlock:
    """Landlock for one working directory.

    Args:
        workdir: The only place that a command can change.
        readable: Further folders that it can read, such as a toolchain; absolute.

    Raises:
        ConfigError: the kernel does not have Landlock, or too old a version.
    """

    level: Final[Level] = "landlock"
    says: Final = (
        "They can read this directory and the system's programs, and can change nothing but this "
        "directory and $TMPDIR, which is empty for each command; there is no network."
    )

    def __init__(self, workdir: str, readable: Sequence[str] = ()) -> None:
        self._workdir: Final = os.path.realpath(workdir)
        self._readable: Final = tuple(readable)
        version = abi()
        if version == 0:
            raise ConfigError("this kernel has no landlock, or landlock is not enabled")
        if version < _LEAST_ABI or not supported():
            raise ConfigError(
                f"landlock's version {_LEAST_ABI} is needed, on x86_64 or aarch64 (Linux 6.12); "
                f"this kernel has version {version}"
            )
        self._who: Final = identity_for(self._workdir)

    apart: Final = False

    def launch(self, binds: Sequence[Bind] = (), *, probe: bool = False) -> Launch:
        """Prepare the start of one command."""
        rules = {
            "program": [*_PROGRAMS, *self._readable],
            "read": list(_READ),
            "device": list(_DEVICES),
            "write": [self._workdir],
        }
        plan = confined(
            self._who,
            confine=str(Path(confine.__file__).resolve()),
            rules=rules,
            filter=program(namespaces=False).hex(),
            tmp=f"{tempfile.gettempdir()}/wick-{secrets.token_hex(8)}",
        )
        return Launch(env=sealed_environment(self._readable), plan=plan)


def abi() -> int:
    """Return this kernel's version of Landlock; 0 for none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError, TypeError):
        return 0
    found: int = call(confine.CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, found)


# --- The level `bwrap`: bubblewrap's namespaces around a command, with a filter and limits inside.
#
# The command sees the system's programs read-only, the working directory, and a private /tmp, /proc
# and /dev. It has no network, sees no other process, and gains no rights.


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
"""The path of the program that tries what the filter refuses, during the probe of a level."""

_LEAST_VERSION: Final = (0, 8)

_VERSION_SECONDS: Final = 10


class Bubblewrap:
    """Bubblewrap for one working directory.

    Args:
        workdir: The only place that a command can change.
        readable: Further folders that it can read, such as a toolchain; absolute.

    Raises:
        ConfigError: the program is missing or too old, or the directory cannot be mounted.
    """

    level: Final[Level] = "bwrap"
    says: Final = (
        "They see this directory and the system's programs, and can change nothing but this "
        "directory and a /tmp that is empty for each command; there is no network."
    )

    def __init__(self, workdir: str, readable: Sequence[str] = ()) -> None:
        self._workdir: Final = os.path.realpath(workdir)
        self._readable: Final = tuple(readable)
        if self._workdir == "/" or not plan.supported():
            why = "the directory is /" if self._workdir == "/" else "there is no filter for it"
            raise ConfigError(f"bubblewrap cannot be used on this host: {why}")
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
            "filter": _held(plan.program()),
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
            if one.fd < 0:
                options += ["--perms", "0555", "--tmpfs", one.path, "--remount-ro", one.path]
                continue
            options += ["--ro-bind-fd" if one.read_only else "--bind-fd", str(one.fd), one.path]
        if probe:
            fds["probe"] = _held(plan.socket_probe())
            options += ["--perms", "0555", "--ro-bind-data", str(fds["probe"]), SOCKET_PROBE]
        options += ["--remount-ro", "/", "--seccomp", str(fds["filter"])]
        fds["options"] = _held(b"".join(os.fsencode(option) + b"\0" for option in options))
        return Launch(
            env=sealed_environment(self._readable),
            before=(self._program, "--args", str(fds["options"]), "--"),
            plan=confined(self._who),
            fds=(*fds.values(), *(one.fd for one in binds if one.fd >= 0)),
        )


def _system() -> list[str]:
    """Mount the system's programs; a folder that is a link into /usr stays a link."""
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
    if who.uid != OVERFLOW_ID:
        lines.append(f"nobody:x:{OVERFLOW_ID}:{OVERFLOW_ID}::/:/bin/sh")
    return "".join(f"{line}\n" for line in lines).encode()


def _held(data: bytes) -> int:
    """Return a descriptor to read the data from once."""
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


# --- The choice of a sandbox level: the configured one, or the strongest that works on this host.
#
# A level counts as working only after a command has run in it and found itself confined. The
# choice never falls back to a weaker level silently.


Try = Callable[[Sandbox], str]
"""Run a probe in a level; return what is wrong, or an empty text if the level confines."""

PROBE: Final = f"""
cd -- "$1" 2>/dev/null || {{ echo "it cannot reach the directory"; exit; }}
[ -w /proc/sys/kernel/core_pattern ] && {{ echo "it can write the kernel's own files"; exit; }}
[ "$2" = landlock ] && ls / >/dev/null 2>&1 && {{ echo "it can list /"; exit; }}
[ "$2" != bwrap ] || {{ {SOCKET_PROBE}; [ $? = 1 ]; }} || {{ echo "it can make any socket"; exit; }}
[ -w . ] && echo confined || echo "confined, without writing"
"""
"""A script for `sh`; its arguments are the directory and the level. It writes nothing."""

HOLDS: Final = "confined"
"""The first word of the probe's output if a level confines."""

_MAKERS: Final[Mapping[str, Callable[[str, Sequence[str]], Sandbox]]] = {
    "bwrap": Bubblewrap,
    "landlock": Landlock,
}


def choose(
    setting: Setting, workdir: str, readable: Sequence[str], works: Try
) -> tuple[Sandbox | None, str]:
    """Return the level, or None and why there is none.

    Args:
        setting: A level by name; `auto` for the strongest that works, or none if none does;
            `require` for the strongest, or an error if none works.
        workdir: The directory in which commands run.
        readable: Further folders that they can read.
        works: Runs the probe.

    Raises:
        ConfigError: the configured level does not work on this host, or `require` finds none.
    """
    if setting not in get_args(Setting):
        raise ConfigError(
            f"execute must be None or one of {', '.join(get_args(Setting))}, not {setting!r}"
        )
    if setting == "local":
        return Local(workdir), ""
    names = [setting] if setting in _MAKERS else list(_MAKERS)
    missing = []
    for name in names:
        try:
            found = _MAKERS[name](workdir, readable)
        except ConfigError as error:
            missing.append(f"{name}: {error}")
            continue
        if not (wrong := works(found)):
            return found, ""
        missing.append(f"{name}: {wrong}")
    why = "; ".join(missing)
    if setting == "auto":
        return None, why
    what = f"the level {setting}" if setting in _MAKERS else "any sandbox"
    raise ConfigError(f"commands cannot be run in {what} here ({why})")
