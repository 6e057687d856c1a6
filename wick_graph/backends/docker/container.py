"""Containers: hardened, without a network; one command at a time in each."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from wick_graph.backends.docker.engine import OWNER, USER, Engine, owner, remove, sdk
from wick_graph.backends.guard import Guard, Seen
from wick_graph.backends.places import ExtraRoot
from wick_graph.backends.process import Output, Spool
from wick_graph.backends.protocol import GRACE_SECONDS, Executed, Stop
from wick_graph.backends.root import Root
from wick_graph.errors import ConfigError, ToolError
from wick_graph.sandbox.plan import FILE_BYTES, OPEN_FILES, OVERFLOW_ID, PROCESSES, TMP_BYTES

# --- The engine's own system call filter, narrowed: no socket that leaves the container.
#
# AF_VSOCK reaches the hypervisor from any network namespace. Docker refuses it by itself. Podman's
# filter does not, but it is a readable file, and Podman takes the path of another one.


_ALLOW: Final = "SCMP_ACT_ALLOW"

_NETLINK: Final = 16

_FAMILIES: Final = (1, 2, 10, _NETLINK)
"""UNIX, INET, INET6 and NETLINK, as at the other levels."""

_AUDIT: Final = 9
"""The protocol of NETLINK that asks for a capability."""

_CALLS: Final = frozenset({"socket", "socketcall"})
"""The second makes sockets for 32-bit programs, of a family that no filter can see."""


@contextmanager
def narrowed(path: str) -> Iterator[list[str]]:
    """Yield the options that give a container a narrower filter than the engine's, if it has any.

    Raises:
        ConfigError: the engine's own filter cannot be read.
    """
    if not path:
        yield []
        return
    try:
        profile = narrower(json.loads(Path(path).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the engine's system call filter {path} cannot be read ({type(error).__name__}); "
            "make it readable: containers need a filter for sockets"
        ) from error
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as made:
        json.dump(profile, made)
        made.flush()
        yield [f"seccomp={made.name}"]


def narrower(profile: dict[str, Any]) -> dict[str, Any]:
    """Return a filter that allows sockets of four families only."""
    kept = []
    for rule in profile["syscalls"]:
        names = [name for name in rule["names"] if name not in _CALLS]
        if names:
            kept.append({**rule, "names": names})
    return {**profile, "syscalls": [*kept, *(_allowed(family) for family in _FAMILIES)]}


def _allowed(family: int) -> dict[str, Any]:
    args = [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}]
    if family == _NETLINK:
        args.append({"index": 2, "value": _AUDIT, "op": "SCMP_CMP_NE"})
    return {"names": ["socket"], "action": _ALLOW, "args": args}


# --- One container: hardened, without a network, alive as long as the process that started it.


PREFIX: Final = "wick-sandbox"

_WAIT_FOR_THE_END: Final = ("/bin/sh", "-c", "while read -r _; do :; done")
"""The container's first process: it ends with its input, which this process holds open."""

_ENVIRONMENT: Final = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOptions:
    """The image and the limits of a container."""

    image: str = PREFIX
    """Any image with `/bin/sh`; the engine must have it."""
    workdir: str = "/workspace"
    """Where the folder appears inside; absolute."""
    memory: int = 2 * 2**30
    """Bytes of all processes together, without swap."""
    processes: int = PROCESSES
    cpus: float = 2.0


@dataclass(frozen=True, slots=True)
class PartMount:
    """A part of the folder with a mount of its own."""

    rel: str
    """Below the folder; empty for the folder itself."""
    read_only: bool
    """Otherwise the mount only prevents a rename."""
    file: tuple[int, int]
    """Device and number: a file that replaced another one needs a new mount."""
    hidden: bool = False
    """Whether an empty folder is shown in its place."""


def part_mounts(root: Root, guard: Guard, seen: Seen) -> tuple[PartMount, ...]:
    """List the parts of a folder that need their own mount.

    Raises:
        ToolError: there are too many, or a part cannot be opened.
    """
    found = []
    for rel, read_only in guard.mounts(seen):
        try:
            rel.encode()  # the engine takes UTF-8 names only
            status = root.stat(rel or ".")
        except (UnicodeEncodeError, ToolError):
            if rel in seen.tops or not read_only:
                continue
            raise
        number = (status.st_dev, status.st_ino)
        found.append(PartMount(rel, read_only, number, guard.hides(f"{root.path}/{rel}")))
    return tuple(found)


class Box:
    """A running container with one folder of the host."""

    def __init__(
        self,
        engine: Engine,
        options: BoxOptions,
        folder: str,
        user: str,
        extra: Sequence[ExtraRoot] = (),
        parts: tuple[PartMount, ...] = (),
    ) -> None:
        self.engine: Final = engine
        self.parts: Final = parts
        name = f"{PREFIX}-{user}-{secrets.token_hex(4)}"
        is_rootless, path = engine.facts()
        who = _identity(is_rootless, folder)
        doing = f"creating a container of the image {options.image!r}"
        with engine.speaking(doing) as client, narrowed(path) as filters:
            self._container: Final[Any] = client.containers.create(
                options.image,
                name=name,
                labels={OWNER: owner(), USER: user},
                user=who,
                mounts=_mounts(folder, options.workdir, extra, parts),
                working_dir=options.workdir,
                security_opt=["no-new-privileges", *filters],
                **_hardened(options),
            )
        self._input: Any = None
        self.stopped = False
        """Whether a person has stopped it, not a command's own end."""
        try:
            with engine.speaking(f"starting the container {name}"):
                self._input = self._container.attach_socket(params={"stdin": 1, "stream": 1})
                self._container.start()
        except BaseException:
            self.kill()
            raise

    @property
    def id(self) -> str:
        """Return the engine's id of it."""
        return str(self._container.id)

    @property
    def name(self) -> str:
        """Return its name for the engine."""
        return str(self._container.name)

    def processes(self) -> int:
        """Count its processes, including the first."""
        with self.engine.speaking("looking at the container's processes"):
            return len(self._container.top().get("Processes") or ())

    def runs(self) -> bool:
        """Say whether it exists and runs."""
        errors = sdk().errors
        try:
            self._container.reload()
        except errors.APIError:
            return False
        return bool(self._container.status == "running")

    def kill(self) -> None:
        """End it with all its processes; may be called more than once."""
        remove(self._container)
        held, self._input = self._input, None
        if held is not None:
            close_stream(held)


def stream_of(held: Any) -> socket.socket:
    """Return the socket below the SDK's stream object."""
    found: socket.socket = getattr(held, "_sock", held)
    return found


def read_ahead(held: Any) -> bytes:
    """Return the bytes that a buffer above the socket has read after the response's headers.

    The socket must not block.
    """
    response = getattr(held, "_response", None)
    above = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    return b"" if above is None else bytes(above.peek())


def close_stream(held: Any) -> None:
    """Close a stream of the SDK: first the response that reads from it, then its socket."""
    below, response = stream_of(held), getattr(held, "_response", None)
    if response is not None:
        with suppress(OSError, ValueError):
            response.close()
    for one in (held, below):
        with suppress(OSError):
            one.close()


def _hardened(options: BoxOptions) -> dict[str, Any]:
    """Return the restrictions and the limits of a container."""
    types = sdk().types
    ulimits = {"core": 0, "fsize": FILE_BYTES, "nofile": OPEN_FILES, "nproc": 4 * PROCESSES}
    return {
        "entrypoint": list(_WAIT_FOR_THE_END),
        "command": [],
        "environment": dict(_ENVIRONMENT),
        "hostname": "sandbox",
        "stdin_open": True,
        "auto_remove": True,
        "use_config_proxy": False,
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "tmpfs": {"/tmp": f"rw,nosuid,nodev,size={TMP_BYTES},mode=1777"},
        "mem_limit": options.memory,
        "memswap_limit": options.memory,
        "pids_limit": options.processes,
        "nano_cpus": int(min(options.cpus, os.cpu_count() or 1) * 1_000_000_000),
        "ulimits": [types.Ulimit(name=name, soft=n, hard=n) for name, n in ulimits.items()],
        "log_config": types.LogConfig(type="none"),
    }


def _mounts(
    folder: str, workdir: str, extra: Sequence[ExtraRoot], parts: Sequence[PartMount]
) -> list[Any]:
    """Mount the folder, and read-only the extra roots under their own paths."""
    mount = sdk().types.Mount
    whole = any(not one.rel for one in parts)
    shown = [mount(workdir, folder, type="bind", read_only=whole)]
    for part in parts:
        if part.rel:
            inside, here = f"{workdir}/{part.rel}", f"{folder}/{part.rel}"
            if part.hidden:
                shown.append(mount(inside, None, type="tmpfs", read_only=True))
            else:
                shown.append(mount(inside, here, type="bind", read_only=part.read_only))
    for root in extra:
        below = root.path == folder or root.path.startswith(f"{folder}/")
        if not below and os.path.exists(root.path):  # noqa: PTH110  (a path as text)
            shown.append(mount(root.path, root.path, type="bind", read_only=True))
    return shown


def _identity(is_rootless: bool, folder: str) -> str:
    """Return the user of its processes: the folder's owner, and never root on the host."""
    if is_rootless:
        return "0:0"  # this is the engine's own user outside
    status = os.stat(folder)  # noqa: PTH116  (a path as text)
    return f"{status.st_uid or OVERFLOW_ID}:{status.st_gid or OVERFLOW_ID}"


# --- The containers of one backend: launched when needed, with one command at a time in each.


Status = Literal["idle", "launching", "launched", "error"]

STOPPED: Final = (
    "the container was stopped meanwhile; what the command changed in the folder stays, and the "
    "next command gets a new container"
)

_AT_ONCE: Final = 4
"""Commands of one backend that run at the same time; others wait."""


class Boxes:
    """A pool of equal containers. Each command gets its own, so that its leftovers are known.

    Args:
        make: Launches a container with the given separate mounts.
    """

    def __init__(self, make: Callable[[tuple[PartMount, ...]], Box]) -> None:
        self._make: Final = make
        self._lock: Final = threading.Lock()
        self._places: Final = threading.BoundedSemaphore(_AT_ONCE)
        self._all: Final[set[Box]] = set()
        self._idle: Final[list[Box]] = []
        self._launching = 0
        self._stops = 0
        self._failed = False
        self._told: Status = "idle"
        self.on_status: Callable[[Status], object] = lambda status: None
        """Called with each new state of the pool; it must be quick."""
        self._close: Final = weakref.finalize(self, _kill, self._all)

    @property
    def status(self) -> Status:
        """Return the state of the pool; `error` after a failed launch."""
        with self._lock:
            return self._now()

    @property
    def names(self) -> list[str]:
        """List the names of the containers."""
        with self._lock:
            return sorted(box.name for box in self._all)

    def _now(self) -> Status:
        if self._launching:
            return "launching"
        if self._all:
            return "launched"
        return "error" if self._failed else "idle"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the pool; report its state if that has changed."""
        with self._lock:
            yield
            if (now := self._now()) != self._told:
                self._told = now
                self.on_status(now)

    def take(self, parts: tuple[PartMount, ...]) -> Box:
        """Return an idle container; `give` returns it to the pool.

        A container with other mounts is killed, and a new one launched.

        Raises:
            ConfigError: none can be launched.
        """
        self._places.acquire()
        try:
            while (box := self._waiting()) is not None:
                if box.parts == parts and box.runs():
                    return box
                self._forget(box)
            return self._launched(parts)
        except BaseException:
            self._places.release()
            raise

    def give(self, box: Box, *, killed: bool) -> None:
        """Return a container to the pool, or drop one that is gone."""
        with self._lock:
            keep = not killed and box in self._all
            if keep:
                self._idle.append(box)
        if not keep:
            self._forget(box)
        self._places.release()

    def stop(self) -> None:
        """Kill all containers, also one that is being launched; their commands fail."""
        with self._changing():
            boxes = list(self._all)
            self._all.clear()
            self._idle.clear()
            self._failed = False
            self._stops += 1
        for box in boxes:
            box.stopped = True
        for box in boxes:
            box.kill()

    def _waiting(self) -> Box | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _launched(self, parts: tuple[PartMount, ...]) -> Box:
        with self._changing():
            self._launching += 1
            before = self._stops
        box = None
        try:
            box = self._make(parts)
        finally:
            with self._changing():
                self._launching -= 1
                stopped = self._stops != before
                self._failed = box is None and not stopped
                if box is not None and not stopped:
                    self._all.add(box)
        if stopped:
            box.kill()
            raise ConfigError("the container was stopped before it ran; try again")
        return box

    def _forget(self, box: Box) -> None:
        with self._changing():
            self._all.discard(box)
        box.kill()


def _kill(boxes: set[Box]) -> None:
    for box in list(boxes):
        try:
            box.kill()
        except (ConfigError, OSError):  # the engine has already gone
            return


# --- Run one command in a container, bounded in time, memory and disk; it leaves no process.


TIMED_OUT: Final = 124

KILLED: Final = 137

_READ_BYTES: Final = 2**16

_LOOK_SECONDS: Final = 0.1

_END_SECONDS: Final = 5.0

_HEAD: Final = 8

_NAMES: Final = {0: "stdout", 1: "stdout", 2: "stderr"}


class Frames:
    """Split the engine's stream into both outputs."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._head = bytearray()
        self._left = 0
        self._name = "stdout"

    def feed(self, data: bytes) -> bool:
        """Add data; return False if the command wrote too much."""
        view = memoryview(data)
        while view:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                if not self._output.feed(self._name, bytes(part)):
                    return False
                continue
            need = _HEAD - len(self._head)
            self._head += view[:need]
            view = view[need:]
            if len(self._head) == _HEAD:
                self._name = _NAMES.get(self._head[0], "stderr")
                self._left = int.from_bytes(self._head[4:], "big")
                self._head.clear()
        return True


class Running:
    """One running command in a container."""

    def __init__(self, box: Box, program: Sequence[str], spool: Spool, stop: Stop) -> None:
        self._box = box
        self._stop = stop
        self._lock = threading.Lock()
        self.output = Output(spool)
        self.killed = False
        """The container and all its processes are gone."""
        self.timed_out = False
        try:
            with box.engine.speaking("starting the command") as client:
                made = client.api.exec_create(box.id, list(program), stdin=False, tty=False)
                self._id: str = made["Id"]
                self._stream: Any = client.api.exec_start(self._id, socket=True)
        except ConfigError as error:
            raise ToolError(f"the command could not be started: {error}") from error

    def kill(self) -> None:
        """End the container; may be called from any thread, more than once."""
        with self._lock:
            first, self.killed = not self.killed, True
        if first:
            self._box.kill()

    def watch(self, timeout: float) -> None:
        """Read until the command has ended and its background processes had their grace."""
        until = time.monotonic() + timeout
        sock = stream_of(self._stream)
        sock.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            frames = Frames(self.output)
            if not frames.feed(read_ahead(self._stream)):
                self.kill()
            at_end = self._read(selector, frames, until)
            if not at_end and time.monotonic() < until and not self._leaves_something():
                self._read(selector, frames, time.monotonic() + _END_SECONDS)  # a slow engine
        if time.monotonic() >= until and not self.killed and self._code(0.0) is None:
            self.timed_out = True
            self.kill()

    def _read(self, selector: selectors.BaseSelector, frames: Frames, until: float) -> bool:
        """Read until time is up or the command has ended; True at the stream's end."""
        sock = stream_of(self._stream)
        look, ended = time.monotonic() + _LOOK_SECONDS, False
        while (now := time.monotonic()) < until and not self.killed:
            if selector.select(min(_LOOK_SECONDS, until - now)):
                data = _received(sock)
                if data == b"":
                    return True
                if data is not None and not frames.feed(data):
                    self.kill()
            if not ended and now >= look:
                look = now + _LOOK_SECONDS
                ended = not self._inspect()["Running"]
                until = min(until, time.monotonic() + GRACE_SECONDS) if ended else until
        return self.killed

    def result(self) -> Executed:
        """Return how the command ended; kill a container in which processes still run."""
        code = KILLED if self.killed else self._code(_END_SECONDS)
        if not self.killed and (code is None or self._leaves_something()):
            self.kill()
        return Executed(
            **self.output.close(),
            exit_code=TIMED_OUT if self.timed_out else KILLED if code is None else code,
            timed_out=self.timed_out,
            notes=tuple(self.output.notes(self._stop.is_set())),
            level="container",
        )

    def close(self) -> None:
        """Close the stream."""
        close_stream(self._stream)

    def _leaves_something(self) -> bool:
        try:
            return self._box.processes() > 1
        except ConfigError:
            return True

    def _code(self, seconds: float) -> int | None:
        """Wait for the exit code; None if the command still runs after that time."""
        until = time.monotonic() + seconds
        while True:
            found = self._inspect()
            if not found["Running"]:
                return int(found["ExitCode"] or 0)
            if time.monotonic() >= until:
                return None
            time.sleep(_LOOK_SECONDS / 10)

    def _inspect(self) -> dict[str, Any]:
        try:
            with self._box.engine.speaking("looking at the command") as client:
                found: dict[str, Any] = client.api.exec_inspect(self._id)
                return found
        except ConfigError:  # the container is gone: killed, or it has killed itself
            self.killed = True
            return {"Running": False, "ExitCode": KILLED}


def _received(sock: socket.socket) -> bytes | None:
    """Return received data, an empty text at the end, None if nothing has come yet."""
    try:
        return sock.recv(_READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
