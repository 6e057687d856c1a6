"""What a process does to itself before it becomes a command: file rules, and a call filter.

The program that starts commands loads this module in a process of its own. The module imports the
standard library alone, nothing of wick_graph. A command cannot undo what is done here.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Any

CREATE_RULESET = 444  # the same numbers on every Linux architecture

ADD_RULE = 445

RESTRICT_SELF = 446

PR_SET_NO_NEW_PRIVS = 38

PR_SET_SECCOMP = 22

SECCOMP_MODE_FILTER = 2

RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8

MAKE_DEVICES = 1 << 6 | 1 << 11

TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15

ALL_FILES = (1 << 16) - 1
"""All file rights of version 5; those of later versions are not used."""

ALL_NETWORK = 3

ALL_SCOPES = 3
"""Abstract sockets, and signals to processes outside."""

RIGHTS = {
    "program": EXECUTE | READ_FILE | READ_DIR,
    "read": READ_FILE | READ_DIR,
    "device": READ_FILE | WRITE_FILE | TRUNCATE,
    "write": ALL_FILES & ~MAKE_DEVICES & ~IOCTL_DEVICE,
}

OF_A_FILE = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE


def ruleset(rules: dict[str, list[str]]) -> int:
    """Open a set of rules; they forbid everything that they do not name.

    Raises:
        OSError: the kernel refuses it.
    """
    handled = struct.pack("=QQQ", ALL_FILES, ALL_NETWORK, ALL_SCOPES)
    fd = call(CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), ctypes.c_uint32(0))
    for kind, paths in rules.items():
        for path in paths:
            allow(fd, path, RIGHTS[kind])
    return fd


def allow(ruleset_fd: int, path: str, rights: int) -> None:
    """Add a rule for a path and everything below it; skip a path that does not exist."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= OF_A_FILE
        rule = struct.pack("=Qi", rights, fd)
        call(ADD_RULE, ctypes.c_int(ruleset_fd), RULE_PATH_BENEATH, rule, ctypes.c_uint32(0))
    finally:
        os.close(fd)


def restrict(ruleset_fd: int, filter: bytes) -> None:
    """Put this process and all its children under the rules and the filter, permanently.

    Raises:
        OSError: the kernel refuses; then nothing may run.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call(RESTRICT_SELF, ctypes.c_int(ruleset_fd), ctypes.c_uint32(0))
    os.close(ruleset_fd)
    refuse(filter)


def refuse(filter: bytes) -> None:
    """Put this process and all its children under a call filter, permanently.

    Raises:
        OSError: the kernel refuses; then nothing may run.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    code = ctypes.create_string_buffer(filter, len(filter))
    length = len(filter) // 8

    class Program(ctypes.Structure):
        _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    wanted = Program(length, ctypes.cast(code, ctypes.c_void_p))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(wanted))


def call(number: int, *arguments: Any) -> int:
    """Make a system call.

    Raises:
        OSError: it fails.
    """
    found: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    return checked(found)


def prctl(option: int, *arguments: int) -> None:
    """Call `prctl`.

    Raises:
        OSError: it fails.
    """
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    checked(ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(option), *words))


def checked(result: int) -> int:
    """Return a call's result; raise if it means a failure."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
