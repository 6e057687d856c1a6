"""The plan of a confined command: its launcher, its environment, its system call filter."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

# --- What a sandbox level gives the runner: a launcher, an environment and a plan.


Level = Literal["container", "bwrap", "landlock", "local"]
"""From the strongest to none: a container, namespaces, file rules, no confinement."""

Setting = Literal["auto", "require", "bwrap", "landlock", "local"]
"""The configurable values on the host: a level, or the strongest that works."""

OVERFLOW_ID: Final = 65_534
"""The user and group without rights on the host."""

MEMORY_BYTES: Final = 4 * 2**30
"""Address space of one process."""

FILE_BYTES: Final = 256 * 2**20

TMP_BYTES: Final = 64 * 2**20
"""The private /tmp of a command, if it is in memory."""

PROCESSES: Final = 256
"""Processes and threads of one command, beyond those that its user already has."""

OPEN_FILES: Final = 1_024

CPU_SECONDS: Final = 600

LIMITS: Final[Mapping[str, int]] = {
    "AS": MEMORY_BYTES,
    "FSIZE": FILE_BYTES,
    "NOFILE": OPEN_FILES,
    "CPU": CPU_SECONDS,
    "CORE": 0,
}
"""By their names in the module `resource`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user and group that a command runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one command; new for each, since it may hold open descriptors."""

    env: Mapping[str, str]
    before: tuple[str, ...] = ()
    """The launcher: a program that takes the command's shell as its arguments."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What the process does to itself before it becomes the command; passed as JSON."""
    fds: tuple[int, ...] = ()
    """Descriptors that `before` names; the code that starts the command closes them."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A part of the working directory with a mount of its own."""

    fd: int
    """An open descriptor of the path, so that no process can swap it; -1 to show an empty folder
    in its place."""
    path: str
    """Its absolute path."""
    read_only: bool
    """Otherwise the mount only prevents a rename."""


class Sandbox(Protocol):
    """A level, prepared for one working directory."""

    @property
    def level(self) -> Level:
        """Return its name."""
        ...

    @property
    def says(self) -> str:
        """Say what a command can and cannot do, in one sentence."""
        ...

    @property
    def apart(self) -> bool:
        """Say whether parts of the working directory can be shown read-only."""
        ...

    def launch(self, binds: Sequence[Bind] = (), *, probe: bool = False) -> Launch:
        """Prepare the start of one command.

        Args:
            binds: Parts with mounts of their own; their descriptors belong to the launch.
            probe: Whether the command is the probe of the level.
        """
        ...


def identity_for(workdir: str) -> Identity | None:
    """Return the user of a confined command; None for the engine's own user.

    A command never runs as root, which owns the kernel's own files even inside a sandbox. It runs
    as the owner of the directory, or as `OVERFLOW_ID` if the owner is root.
    """
    if os.geteuid() != 0:
        return None
    owner = os.stat(workdir)  # noqa: PTH116  (a path as text, like all here)
    if owner.st_uid == 0:
        return Identity(OVERFLOW_ID, OVERFLOW_ID)
    return Identity(owner.st_uid, owner.st_gid or OVERFLOW_ID)


def confined(who: Identity | None, **more: Any) -> dict[str, Any]:
    """Return the plan of a confined command: its limits and its user."""
    plan: dict[str, Any] = {"limits": dict(LIMITS), "processes": PROCESSES, **more}
    if who is not None:
        plan |= {"uid": who.uid, "gid": who.gid}
    return plan


# --- The environment of a command: few variables, and none that changes how programs start.


_PASSED_ON: Final = ("HOME", "LANG", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER")

_SYSTEM: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def clean_environment(workdir: str) -> dict[str, str]:
    """Return the environment of a command without confinement."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith("LC_")
    }
    return {**kept, "PATH": os.pathsep.join(safe_path(workdir)) or _join(_SYSTEM), "TERM": "dumb"}


def sealed_environment(readable: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a confined command: it names no path outside.

    PATH holds the system's programs, and those of the readable folders.
    """
    programs = (f"{folder}/bin" for folder in readable)
    beside = [folder for folder in programs if os.access(folder, os.X_OK)]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("LANG", "TZ") or name.startswith("LC_")
    }
    home = {"HOME": "/tmp", "TMPDIR": "/tmp"}  # private; replaced if the level has no private one
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "TERM": "dumb"}
    return {"LANG": "C.UTF-8", **kept, **home, **quiet, "PATH": _join((*beside, *_SYSTEM))}


def safe_path(workdir: str) -> list[str]:
    """Return the folders of PATH to take programs from: none below the directory."""
    inside = f"{os.path.realpath(workdir)}/"
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [
        folder
        for folder in folders
        if folder.startswith("/") and not f"{os.path.realpath(folder)}/".startswith(inside)
    ]


def find_program(name: str, workdir: str) -> str | None:
    """Return the absolute path of an auxiliary program, never one below the directory."""
    inside = f"{os.path.realpath(workdir)}/"
    for folder in dict.fromkeys((*safe_path(workdir), *_SYSTEM)):
        real = os.path.realpath(Path(folder, name))
        is_file = os.path.isfile(real)  # noqa: PTH113  (False for an unreadable folder)
        if is_file and not real.startswith(inside) and os.access(real, os.X_OK):
            return real
    return None


def _join(folders: Iterable[str]) -> str:
    return os.pathsep.join(dict.fromkeys(folders))


# --- A system call filter in the kernel's form: it refuses calls that escapes begin with and
# commands do not need.
#
# The program is classic BPF over `struct seccomp_data`. It is built here, number by number, because
# it must be the same on every host. A refused call fails with EPERM, as if the right were missing.
# No filter can see the flags of `clone3`: it fails with ENOSYS, so that libraries use `clone`.


_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_X32_BIT: Final = 0x40000000

_REFUSED: Final[dict[str, tuple[int | None, int | None]]] = {
    # name: (x86_64, aarch64)
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

_REACHING: Final[dict[str, tuple[int, int]]] = {
    # They reach other processes of the host without a file or a signal.
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "process_madvise": (440, 440),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
}
"""Also refused if a command has no namespaces around it."""

_ON_ONESELF: Final[dict[str, tuple[int, int, tuple[int, ...]]]] = {
    # name: (x86_64, aarch64, required first arguments: the number 0 is the calling process)
    "ioprio_set": (251, 30, (1, 0)),
    "prlimit64": (302, 261, (0,)),
    "sched_setaffinity": (203, 122, (0,)),
    "sched_setattr": (314, 274, (0,)),
    "sched_setparam": (142, 118, (0,)),
    "sched_setscheduler": (144, 119, (0,)),
    "setpriority": (141, 140, (0, 0)),
}
"""Without namespaces, refused for any process except the calling one."""

_SOCKET: Final = (41, 198)

_SOCKETPAIR: Final = (53, 199)

_UNIX: Final = 1

_FAMILIES: Final = (_UNIX, 2, 10, 16)
"""UNIX, INET, INET6 and NETLINK: those that a network namespace confines. AF_VSOCK, for one,
reaches the hypervisor."""

VSOCK: Final = 40

_CLONE: Final = (56, 220)

_CLONE3: Final = (435, 435)

_IOCTL: Final = (16, 29)

_NEW_NAMESPACES: Final = 0x7E020000
"""NS, CGROUP, UTS, IPC, USER, PID, NET; `clone` cannot make a new time namespace."""

_TIOCSTI: Final = 0x5412

_TIOCLINUX: Final = 0x541C

_LOAD: Final = 0x20

_JUMP_EQUAL: Final = 0x15

_JUMP_AT_LEAST: Final = 0x35

_JUMP_ANY_BIT: Final = 0x45

_RETURN: Final = 0x06

_ALLOW: Final = 0x7FFF0000

_ERRNO: Final = 0x00050000

_EPERM: Final = 1

_ENOSYS: Final = 38

_AT_NUMBER: Final = 0

_AT_ARCHITECTURE: Final = 4

_AT_FIRST_ARGUMENT: Final = 16

_AT_SECOND_ARGUMENT: Final = 24

_REFUSE: Final = (_RETURN, 0, 0, _ERRNO | _EPERM)

_PERMIT: Final = (_RETURN, 0, 0, _ALLOW)

_ELF_HEADERS: Final = 64 + 56

_NO_SECTIONS: Final = (0, 0, 64, 56, 1, 0, 0, 0)

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand."""


def supported(machine: str = "") -> bool:
    """Say whether there is a filter for this processor."""
    return (machine or platform.machine()) in _AUDIT


def program(machine: str = "", *, namespaces: bool = True) -> bytes:
    """Build the filter.

    Args:
        machine: `x86_64` or `aarch64`; the host's own if it is empty.
        namespaces: Whether the command has namespaces around it. It may then make the sockets
            that a network namespace confines. Without namespaces it can make only connected
            pairs, and reach no other process.

    Raises:
        KeyError: there is no filter for the processor; see `supported`.
    """
    machine = machine or platform.machine()
    which = tuple(_AUDIT).index(machine)
    refused = [numbers[which] for numbers in _REFUSED.values()]
    code = _head(machine)
    code += _number_is(_CLONE3[which], [(_RETURN, 0, 0, _ERRNO | _ENOSYS)])
    code += _number_is(
        _CLONE[which],
        [
            (_LOAD, 0, 0, _AT_FIRST_ARGUMENT),
            (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES),
            _REFUSE,
            _PERMIT,
        ],
    )
    code += _number_is(
        _IOCTL[which],
        [
            (_LOAD, 0, 0, _AT_SECOND_ARGUMENT),  # the low half: the kernel ignores the rest
            (_JUMP_EQUAL, 1, 0, _TIOCSTI),
            (_JUMP_EQUAL, 0, 1, _TIOCLINUX),
            _REFUSE,
            _PERMIT,
        ],
    )
    code += _number_is(_SOCKETPAIR[which], _family(_FAMILIES if namespaces else (_UNIX,)))
    if namespaces:
        code += _number_is(_SOCKET[which], _family(_FAMILIES))
    else:
        refused += [numbers[which] for numbers in _REACHING.values()]
        for *numbers, wanted in _ON_ONESELF.values():
            code += _number_is(numbers[which], _arguments(wanted))
    code += _one_of([number for number in refused if number is not None])
    return b"".join(struct.pack("=HBBI", *one) for one in code)


def socket_probe(machine: str = "", family: int = VSOCK) -> bytes:
    """Build a program that makes a socket and exits with the error's number.

    Its exit code is 1 (EPERM) if a filter refuses the family. It is a few instructions of machine
    code, because a sandbox may hold no other program.
    """
    machine = machine or platform.machine()
    if machine == "x86_64":
        code = b"\xbf" + struct.pack("<I", family)  # edi = family
        code += b"\xbe\x01\0\0\0\x31\xd2\xb8\x29\0\0\0\x0f\x05"  # socket(edi, 1, 0)
        code += b"\xf7\xd8\x89\xc7\xb8\x3c\0\0\0\x0f\x05"  # exit(-eax)
    else:
        words = (
            0xD2800000 | family << 5,  # x0 = family
            *(0xD2800021, 0xD2800002, 0xD28018C8, 0xD4000001),  # socket(x0, 1, 0)
            *(0xCB0003E0, 0xD2800BA8, 0xD4000001),  # exit(-x0)
        )
        code = struct.pack("<8I", *words)
    size = _ELF_HEADERS + len(code)
    kind = {"x86_64": 62, "aarch64": 183}[machine]
    at = 0x400000
    header = b"\x7fELF\2\1\1".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, kind, 1, at + _ELF_HEADERS, 64, *_NO_SECTIONS)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, at, at, size, size, 0x10000)
    return header + segment + code


def _family(allowed: Sequence[int]) -> list[Instruction]:
    """Allow sockets of these families only."""
    count = len(allowed)
    found = [(_JUMP_EQUAL, count - at, 0, family) for at, family in enumerate(allowed)]
    return [(_LOAD, 0, 0, _AT_FIRST_ARGUMENT), *found, _REFUSE, _PERMIT]


def _arguments(wanted: Sequence[int]) -> list[Instruction]:
    """Allow a call with these first arguments; the kernel reads their low halves."""
    found: list[Instruction] = []
    for at, value in enumerate(wanted):
        found += [
            (_LOAD, 0, 0, _AT_FIRST_ARGUMENT + 8 * at),
            (_JUMP_EQUAL, 1, 0, value),
            _REFUSE,
        ]
    return [*found, _PERMIT]


def _head(machine: str) -> list[Instruction]:
    """Refuse calls of other architectures, and leave the number in the accumulator."""
    head = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT[machine]),
        _REFUSE,
        (_LOAD, 0, 0, _AT_NUMBER),
    ]
    if machine == "x86_64":
        head += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    return head


def _number_is(number: int, then: list[Instruction]) -> list[Instruction]:
    return [(_JUMP_EQUAL, 0, len(then), number), *then]


def _one_of(numbers: Sequence[int]) -> list[Instruction]:
    """Refuse these calls and allow all others."""
    count = len(numbers)
    found = [(_JUMP_EQUAL, count - at, 0, number) for at, number in enumerate(sorted(numbers))]
    return [*found, _PERMIT, _REFUSE]
