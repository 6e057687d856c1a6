"""The parent program of a command: no process of the command outlives the call.

Run as a script: `python -I -S reaper.py CONTROL STATUS GRACE PLAN PROGRAM ARGUMENTS…`. It becomes
the reaper of everything below it (Linux), so that a process which leaves its group, its session
and its parent still ends up here. When the command ends, the reaper writes `exit N` or `signal N`
to STATUS, gives the remaining processes GRACE seconds, kills them, and ends. When CONTROL closes,
also because the engine dies, everything ends at once.

PLAN is a JSON object with what the command's process does to itself first: `limits`, `processes`,
`uid` and `gid`, `rules` and `filter` with the module that applies them (`confine`), and `tmp`, a
private folder to make. If a step fails, nothing runs, and STATUS says `failed`.

It imports the standard library alone, nothing of wick_graph.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from typing import Any

with suppress(ImportError):  # on Windows; nothing starts this program there
    import resource

SET_CHILD_SUBREAPER = 36

TERM_SECONDS = 0.2

SWEEP_SECONDS = 5.0


class Reaper:
    """One command and all its processes."""

    def __init__(self, control: int, status: int) -> None:
        self.control = control
        self.status = status
        self.leader = 0
        self.ended = False
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (control, status):  # the command must not have these
            os.set_inheritable(fd, False)

    def run(self, program: list[str], grace: float, plan: dict[str, Any]) -> None:
        """Run the command; return when none of its processes is left."""
        folder = own_folder(plan) if plan.get("tmp") else None
        try:
            self.leader = os.fork()
            if self.leader == 0:
                become(program, plan, self.status)
            os.write(self.status, b"leader %d\n" % self.leader)
            devnull = os.open(os.devnull, os.O_RDWR)
            for stream in (1, 2):  # so that the pipes close when the command's processes end
                os.dup2(devnull, stream)
            if self.wait(grace):
                with suppress(ProcessLookupError, PermissionError):
                    if not self.ended:
                        os.killpg(self.leader, signal.SIGTERM)
                self.control = -1
                self.wait(0.0, time.monotonic() + TERM_SECONDS)
            self.sweep()
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def wait(self, grace: float, until: float | None = None) -> bool:
        """Wait until no process is left or time is up; True if CONTROL has closed."""
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
        """Reap the children that have ended; False if none is left."""
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
        """Kill all descendants, round after round: orphans become children of this process."""
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


def become(program: list[str], plan: dict[str, Any], status: int) -> None:
    """Turn this forked child into the command, in its own session."""
    try:
        os.setsid()
        confine(plan)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execv(program[0], program)
    except BaseException as error:
        os.write(status, b"failed 1\n")
        os.write(2, f"{error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def confine(plan: dict[str, Any]) -> None:
    """Apply the plan to this process; steps that open files come before the loss of rights."""
    rules = None
    confining: Any = None
    if "rules" in plan:
        confining = load(plan["confine"])
        folder = os.environ["TMPDIR"]
        rules = confining.ruleset({**plan["rules"], "write": [*plan["rules"]["write"], folder]})
    uid = plan.get("uid", os.getuid())
    limits = dict(plan.get("limits", {}))
    if "processes" in plan and sys.platform == "linux":
        limits["NPROC"] = plan["processes"] + running(uid)
    for name, most in limits.items():
        limit(getattr(resource, f"RLIMIT_{name}"), most)
    if "uid" in plan:
        os.setgroups([])
        os.setgid(plan["gid"])
        os.setuid(uid)
    if rules is not None:
        confining.restrict(rules, bytes.fromhex(plan["filter"]))


def limit(which: int, most: int) -> None:
    """Lower a limit; keep it if it is lower already."""
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def running(uid: int) -> int:
    """Count a user's present threads: the kernel's limit covers all of them."""
    count = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == uid:
                    with os.scandir(f"/proc/{entry.name}/task") as threads:
                        count += sum(1 for _ in threads)
    return count


def own_folder(plan: dict[str, Any]) -> str:
    """Make the command's folder for temporary files, and set it in the environment."""
    folder = str(plan["tmp"])
    os.mkdir(folder, 0o700)  # noqa: PTH102  (pathlib costs this script its start)
    if "uid" in plan:
        os.chown(folder, plan["uid"], plan["gid"])
    os.environ["TMPDIR"] = os.environ["HOME"] = folder
    return folder


def load(path: str) -> Any:
    """Load a file of Python by its path."""
    spec = importlib.util.spec_from_file_location("confine", path)
    if spec is None or spec.loader is None:
        raise OSError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def children() -> list[int] | None:
    """Return the direct children; None if the system does not tell."""
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
    what = json.loads(sys.argv[4])
    Reaper(int(sys.argv[1]), int(sys.argv[2])).run(sys.argv[5:], float(sys.argv[3]), what)
