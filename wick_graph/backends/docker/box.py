"""One container: hardened, without a network, alive as long as the process that started it."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from wick_graph.backends.docker.engine import OWNER, USER, Engine, owner, remove, sdk
from wick_graph.backends.docker.filters import narrowed
from wick_graph.backends.guard import Guard, Seen
from wick_graph.backends.places import ExtraRoot
from wick_graph.backends.root import Root
from wick_graph.errors import ToolError
from wick_graph.sandbox.plan import FILE_BYTES, NOBODY, OPEN_FILES, PROCESSES, TMP_BYTES

PREFIX: Final = "wick-sandbox"
_WAIT_FOR_THE_END: Final = ("/bin/sh", "-c", "while read -r _; do :; done")
"""The container's first process: it ends when its input does, which this process holds open."""
_ENVIRONMENT: Final = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOptions:
    """What a container is made of, and what it may cost."""

    image: str = PREFIX
    """Any image with `/bin/sh`; it must be on the engine."""
    workdir: str = "/workspace"
    """Where the folder appears inside; absolute."""
    memory: int = 2 * 2**30
    """Bytes of all processes together, and no swap beyond them."""
    processes: int = PROCESSES
    cpus: float = 2.0


@dataclass(frozen=True, slots=True)
class Shut:
    """A part of the folder that is shown apart."""

    rel: str
    """Below the folder; empty for the folder itself."""
    read_only: bool
    """Else it is only kept from being renamed."""
    file: tuple[int, int]
    """Device and number: a file that took another one's place is not shut any more."""


def shut_in(root: Root, guard: Guard, seen: Seen) -> tuple[Shut, ...]:
    """Say what of a folder is to be shown apart.

    Raises:
        ToolError: There is too much of it, or a part cannot be opened.
    """
    found = []
    for rel, read_only in guard.shut(seen):
        try:
            rel.encode()  # the engine takes no other names
            status = root.stat(rel or ".")
        except (UnicodeEncodeError, ToolError):
            if rel in seen.tops or not read_only:
                continue
            raise
        found.append(Shut(rel, read_only, (status.st_dev, status.st_ino)))
    return tuple(found)


class Box:
    """A running container, and one folder of this machine in it."""

    def __init__(
        self,
        engine: Engine,
        options: BoxOptions,
        folder: str,
        user: str,
        extra: Sequence[ExtraRoot] = (),
        shut: tuple[Shut, ...] = (),
    ) -> None:
        self.engine: Final = engine
        self.shut: Final = shut
        name = f"{PREFIX}-{user}-{secrets.token_hex(4)}"
        who = _identity(engine, folder)
        doing = f"creating a container of the image {options.image!r}"
        with engine.speaking(doing) as client, narrowed(engine) as filters:
            self._container: Final[Any] = client.containers.create(
                options.image,
                name=name,
                labels={OWNER: owner(), USER: user},
                user=who,
                mounts=_mounts(folder, options.workdir, extra, shut),
                working_dir=options.workdir,
                security_opt=["no-new-privileges", *filters],
                **_hardened(options),
            )
        self._input: Any = None
        try:
            with engine.speaking(f"starting the container {name}"):
                self._input = self._container.attach_socket(params={"stdin": 1, "stream": 1})
                self._container.start()
        except BaseException:
            self.kill()
            raise

    @property
    def id(self) -> str:
        """Return the engine's name for it."""
        return str(self._container.id)

    def processes(self) -> int:
        """Count what runs in it, its first process included."""
        with self.engine.speaking("looking at the container's processes"):
            return len(self._container.top().get("Processes") or ())

    def runs(self) -> bool:
        """Say whether it is there and running."""
        errors = sdk().errors
        try:
            self._container.reload()
        except errors.APIError:
            return False
        return bool(self._container.status == "running")

    def kill(self) -> None:
        """End it with all that runs in it; may be called more than once."""
        remove(self._container)
        held, self._input = self._input, None
        if held is not None:
            close_stream(held)


def stream_of(held: Any) -> socket.socket:
    """Return the socket below what the SDK gives for a stream."""
    found: socket.socket = getattr(held, "_sock", held)
    return found


def read_ahead(held: Any) -> bytes:
    """Return what came together with the response's headers, and lies above the socket.

    Whoever reads a header from a buffered stream may have read more than that. The socket must
    not block.
    """
    response = getattr(held, "_response", None)
    above = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    return b"" if above is None else bytes(above.peek())


def close_stream(held: Any) -> None:
    """Close a stream of the SDK: the response that reads from it first, then its socket."""
    below, response = stream_of(held), getattr(held, "_response", None)
    if response is not None:
        with suppress(OSError, ValueError):
            response.close()
    for one in (held, below):
        with suppress(OSError):
            one.close()


def _hardened(options: BoxOptions) -> dict[str, Any]:
    """Return what a container may not do and may not use up."""
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
    folder: str, workdir: str, extra: Sequence[ExtraRoot], shut: Sequence[Shut]
) -> list[Any]:
    """Show the folder, and read-only what tools may read beside it, under its own path."""
    mount = sdk().types.Mount
    whole = any(not one.rel for one in shut)
    shown = [mount(workdir, folder, type="bind", read_only=whole)]
    for part in shut:
        if part.rel:
            inside, here = f"{workdir}/{part.rel}", f"{folder}/{part.rel}"
            shown.append(mount(inside, here, type="bind", read_only=part.read_only))
    for root in extra:
        below = root.path == folder or root.path.startswith(f"{folder}/")
        if not below and os.path.exists(root.path):  # noqa: PTH110  (a path as text)
            shown.append(mount(root.path, root.path, type="bind", read_only=True))
    return shown


def _identity(engine: Engine, folder: str) -> str:
    """Return whom its processes run as: the folder's owner, and never root on this machine."""
    if engine.is_rootless():
        return "0:0"  # this is the engine's own user outside
    status = os.stat(folder)  # noqa: PTH116  (a path as text)
    return f"{status.st_uid or NOBODY}:{status.st_gid or NOBODY}"
