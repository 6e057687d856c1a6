"""The program that stands between the engine and a command, so that no process outlives the call.

Run as a script: `python -I -S reaper.py CONTROL STATUS GRACE COMMAND`. It becomes the reaper of
everything below it (Linux), so that a process which leaves its group, its session and its parent
still ends up here. It writes `exit N` or `signal N` to STATUS when the command ends, gives what
is left GRACE seconds, kills it, and ends when nothing is left. When CONTROL closes, which also
happens when the engine dies, everything ends at once.

It uses the standard library alone and imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress

SET_CHILD_SUBREAPER = 36
TERM_SECONDS = 0.2
SWEEP_SECONDS = 5.0


class Reaper:
    """One command and everything that comes of it."""

    def __init__(self, control: int, status: int) -> None:
        self.control = control
        self.status = status
        self.leader = 0
        self.ended = False
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (control, status):  # the command has no business with these
            os.set_inheritable(fd, False)

    def run(self, command: str, grace: float) -> None:
        """Run the command, and return when nothing of it is left."""
        self.leader = os.fork()
        if self.leader == 0:
            become(command)
        os.write(self.status, b"leader %d\n" % self.leader)
        devnull = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):  # so that the pipes close when the command's processes have ended
            os.dup2(devnull, stream)
        if self.wait(grace):
            with suppress(ProcessLookupError, PermissionError):
                if not self.ended:
                    os.killpg(self.leader, signal.SIGTERM)
            self.control = -1
            self.wait(0.0, time.monotonic() + TERM_SECONDS)
        self.sweep()

    def wait(self, grace: float, until: float | None = None) -> bool:
        """Wait until nothing is left or time is up; True if told to stop."""
        watched = [fd for fd in (self.woken, self.control) if fd >= 0]
        while self.reap():
            if self.ended and until is None:
                until = time.monotonic() + grace
            seconds = None if until is None else until - time.monotonic()
            if seconds is not None and seconds <= 0:
                return False
            ready, _, _ = select.select(watched, [], [], seconds)
            if self.control in ready:
                return True
            if self.woken in ready:
                os.read(self.woken, 512)
        return False

    def reap(self) -> bool:
        """Take in the children that have ended; False if none is left."""
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.leader:
                self.ended = True
                code = os.waitstatus_to_exitcode(code)
                with suppress(OSError):
                    os.write(
                        self.status, b"exit %d\n" % code if code >= 0 else b"signal %d\n" % -code
                    )

    def sweep(self) -> None:
        """Kill what is below us until nothing is; orphans come to us, round after round."""
        until = time.monotonic() + SWEEP_SECONDS
        while self.reap() and time.monotonic() < until:
            pids = children()
            with suppress(ProcessLookupError, PermissionError):
                if pids is None or not self.ended:  # else its number may be another group's
                    os.killpg(self.leader, signal.SIGKILL)
            for pid in pids or ():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)


def become(command: str) -> None:
    """Turn this forked child into the command, in a session of its own."""
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execv("/bin/sh", ["sh", "-c", command])
    finally:
        os._exit(127)


def children() -> list[int] | None:
    """Return our direct children; None where the system does not tell."""
    listed = read("/proc/thread-self/children")
    if listed is not None:
        return [int(pid) for pid in listed.split()]
    own = str(os.getpid()).encode()
    try:
        with os.scandir("/proc") as entries:
            pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError:
        return None
    return [pid for pid in pids if parent(read(f"/proc/{pid}/stat")) == own]


def parent(stat: bytes | None) -> bytes:
    """Return the parent's number in a line of /proc/PID/stat."""
    fields = (stat or b"").rpartition(b")")[2].split()
    return fields[1] if len(fields) > 1 else b""


def read(path: str) -> bytes | None:
    """Return a small file, None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        data = b""
        while part := os.read(fd, 65_536):
            data += part
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Reaper(int(sys.argv[1]), int(sys.argv[2])).run(sys.argv[4], float(sys.argv[3]))
