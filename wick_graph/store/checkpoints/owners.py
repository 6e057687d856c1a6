"""Who holds a thread: a process, named so that nobody else is it, and whether it is alive."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

from wick_graph.store.values.rows import bytes_text, text_bytes

LEASE_SECONDS: Final = 30.0
"""How long a lease holds without being renewed; a frozen owner is passed over after that."""


def owner() -> bytes:
    """Name this process: its machine, its boot, its id and start, so that nobody else is it."""
    return text_bytes(f"{_boot()}/{os.getpid()}/{_started(os.getpid())}")


def is_alive(holder: bytes, *, elsewhere: bool = True) -> bool:
    """Say whether an owner may still be at work.

    Of another machine nobody can tell but by time; of that the answer is `elsewhere`.
    """
    boot, _, rest = bytes_text(holder).partition("/")
    pid, started = rest.split("/")[:2]
    if boot != _boot():
        return elsewhere
    return _started(int(pid)) == started


def is_at_work(holder: bytes, seconds: float) -> bool:
    """Say whether a process is still at what it began some seconds ago.

    One of another machine is believed for as long as a lease holds.
    """
    return is_alive(holder, elsewhere=0 <= seconds < LEASE_SECONDS)


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Identify this boot of this machine, in all of its containers; this process if it cannot."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return _boot()


_boot_id: list[str] = []


def _boot() -> str:
    """Identify this boot of this machine, and where its process ids mean what they mean here.

    Containers of one machine share its boot, but not their process ids. A random stand-in where
    the system has no such ids.
    """
    if not _boot_id:
        try:
            space = Path("/proc/self/ns/pid").stat().st_ino
            _boot_id.append(f"{_BOOT.read_text(encoding='ascii').strip()}-{space}")
        except OSError:
            _boot_id.append(uuid.uuid4().hex)
    return _boot_id[0]


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    state, *_ = fields = stat.rpartition(")")[2].split()
    return "" if state == "Z" else fields[19]
