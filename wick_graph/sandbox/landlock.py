"""The level `landlock`: the kernel's file rules around a command, where there are no namespaces.

Files outside of what is listed can be neither read nor changed, and no socket can be made. It is
less than `bwrap`: other processes are not hidden, and a file's existence, size and mode stay
visible, and its mode can be changed by whoever owns it.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wick_graph.errors import ConfigError
from wick_graph.sandbox import confine, seccomp
from wick_graph.sandbox.environment import sealed_environment
from wick_graph.sandbox.plan import Bind, Launch, Level, confined, identity_for

_LEAST_ABI: Final = 6
"""The first one that keeps signals and abstract sockets in: Linux 6.12."""
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
        ConfigError: The kernel does not have it, or too little of it.
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
            raise ConfigError("this kernel has no landlock, or it is not switched on")
        if version < _LEAST_ABI or not seccomp.supported():
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
            filter=seccomp.program(namespaces=False).hex(),
            tmp=f"{tempfile.gettempdir()}/wick-{secrets.token_hex(8)}",
        )
        return Launch(env=sealed_environment(self._readable), plan=plan)


def abi() -> int:
    """Return the version of landlock that this kernel has; 0 for none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError, TypeError):
        return 0
    found: int = call(confine.CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, found)
