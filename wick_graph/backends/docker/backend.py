"""Files in a folder of the host, and commands in a container that sees no other folder of it."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, Self

from wick_graph.backends.docker.container import (
    STOPPED,
    Box,
    Boxes,
    BoxOptions,
    Running,
    Status,
    part_mounts,
)
from wick_graph.backends.docker.engine import Engine
from wick_graph.backends.guard import Guard, Rules
from wick_graph.backends.local import (
    LocalBackend,
    must_be_command,
    must_be_seconds,
    must_have_room,
    seconds_of,
    spool_into,
)
from wick_graph.backends.places import ExtraRoot
from wick_graph.backends.process import shell
from wick_graph.backends.protocol import (
    COMMAND_SECONDS,
    PROBE_SECONDS,
    Edited,
    Executed,
    Found,
    Listing,
    Matches,
    Stop,
    Text,
    Written,
)
from wick_graph.backends.root import Mechanism, Root
from wick_graph.errors import ConfigError, ToolError
from wick_graph.machine import user_id
from wick_graph.sandbox import Level
from wick_graph.sandbox.plan import OVERFLOW_ID

# --- Paths in the container, and paths on the host.


class Names:
    """Translate between paths of the host's folder and paths in the container."""

    def __init__(self, folder: str, shown: str) -> None:
        self._folder: Final = folder
        self._shown: Final = shown
        self._parts: Final = _parts(shown)

    def inward(self, path: str) -> str:
        """Return a path of the container as a path for the backend of the files."""
        parts = _parts(path)
        here = len(self._parts)
        if not path.startswith("/") or parts[:here] != self._parts:
            return path
        rest = "/".join(parts[here:])
        return f"{rest}/" if rest and path.endswith("/") else rest or "."

    def outward(self, path: str) -> str:
        """Return a path of the host as a path in the container."""
        if path == self._folder or path.startswith(f"{self._folder}/"):
            return self._shown + path[len(self._folder) :]
        return path

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Translate the paths in errors into paths in the container."""
        try:
            yield
        except ToolError as error:
            text = str(error).replace(self._folder, self._shown)
            if text == str(error):
                raise
            raise type(error)(text) from error.__cause__


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


_LOOK: Final = """
cat -- "$1"; echo; shift
for part; do ls -di -- "$part" | { read -r number rest; echo "$number"; }; done
"""
"""A script for `sh`: prints one file, and the inode numbers of the others."""


class DockerBackend:
    """A folder for the file tools, mounted in hardened containers for commands.

    Containers have no network, no capabilities, a read-only image, and limits on memory, processes
    and files; they run as the folder's owner and never as root. The first command launches one,
    and it ends with this process at the latest. The container engine must be on this host.

    Args:
        folder: The folder; it must exist.
        options: The image and the limits of a container.
        user: The owner's name, part of the containers' names.
        host: The engine's address; None for the environment's.
        extra_roots: As in `LocalBackend`; containers see those that exist, read-only.
        timeout: Default seconds for a command.
        rules: As in `LocalBackend`.
        symlinks: As in `LocalBackend`.
        mechanism: As in `LocalBackend`.
        ripgrep: As in `LocalBackend`.

    Raises:
        ConfigError: the folder cannot be opened, or an argument is out of range.
    """

    can_execute: Final = True
    level: Final[Level] = "container"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        options: BoxOptions | None = None,
        user: str = "local",
        host: str | None = None,
        extra_roots: Iterable[ExtraRoot] = (),
        timeout: float = COMMAND_SECONDS,
        rules: Rules | None = None,
        symlinks: Literal["deny", "inside"] = "deny",
        mechanism: Mechanism = "auto",
        ripgrep: bool = True,
    ) -> None:
        must_be_seconds(timeout)
        self.options: Final = options or BoxOptions()
        if not self.options.workdir.startswith("/") or self.options.workdir.strip("/") == "":
            raise ConfigError(
                f"workdir is {self.options.workdir!r}; for a container write an absolute path "
                "below /, such as /workspace"
            )
        extra = tuple(extra_roots)
        self._files: Final = LocalBackend(
            folder,
            extra_roots=extra,
            timeout=timeout,
            rules=rules,
            symlinks=symlinks,
            mechanism=mechanism,
            ripgrep=ripgrep,
        )
        self.folder: Final = self._files.workdir
        self.workdir: Final = "/" + self.options.workdir.strip("/")
        self.confinement: Final = (
            f"They run in a container of the image {self.options.image} and can change nothing but "
            f"{self.workdir} and /tmp; there is no network."
        )
        self.user: Final = user
        self.host: Final = host
        self._root: Final = Root(folder, mechanism=mechanism)
        self._guard: Final = Guard(self._root, rules or Rules())
        self._guard.prepare()
        self.notices: Final[tuple[str, ...]] = self._guard.notices
        self._names: Final = Names(self.folder, self.workdir)
        self._timeout: Final = timeout
        self._engine: Final = Engine(host)
        real = os.path.realpath(folder)
        self._boxes: Final = Boxes(
            lambda parts: self._checked(Box(self._engine, self.options, real, user, extra, parts))
        )

    @property
    def status(self) -> Status:
        """Return the state of the containers: `idle`, `launching`, `launched` or `error`."""
        return self._boxes.status

    @property
    def containers(self) -> list[str]:
        """List the names of the running containers."""
        return self._boxes.names

    def on_status(self, call: Callable[[Status], object]) -> None:
        """Call a function with each new state of the containers, from any thread."""
        self._boxes.on_status = call

    def launch(self) -> None:
        """Launch a container before the first command needs it.

        Raises:
            ConfigError: there is no container engine, or it cannot run a container.
        """
        parts = part_mounts(self._root, self._guard, self._guard.look(inside=False))
        self._boxes.give(self._boxes.take(parts), killed=False)

    def stop(self) -> None:
        """End all containers; running commands fail, the next launches a new one. Files stay."""
        self._boxes.stop()

    def ls(self, path: str = ".", limit: int | None = None) -> Listing:
        """List a directory, at most `limit` entries of it."""
        with self._names.translated_errors():
            return self._files.ls(self._names.inward(path), limit)

    def read(self, path: str, *, line: int = 1, lines: int | None = None, byte: int = 0) -> Text:
        """Read a window of a file from a line, counted from 1 at the offset `byte`."""
        with self._names.translated_errors():
            found = self._files.read(self._names.inward(path), line=line, lines=lines, byte=byte)
        return replace(found, path=self._names.outward(found.path))

    def asks(self, path: str) -> str:
        """Say why a person must allow a change of this file; empty if no approval is needed."""
        with self._names.translated_errors():
            return self._files.asks(self._names.inward(path))

    def write(self, path: str, data: bytes, *, allowed: bool = False) -> Written:
        """Replace a file atomically, or create it and the directories above it."""
        with self._names.translated_errors():
            done = self._files.write(self._names.inward(path), data, allowed=allowed)
        return replace(done, path=self._names.outward(done.path))

    def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        unique: bool = False,
        seen: Mapping[str, str] | None = None,
        key: str = "",
        allowed: bool = False,
    ) -> Edited:
        """Replace the first occurrence of a text; every other byte stays as it is."""
        known = {
            f"{self.folder}/{self._names.inward(name)}"
            if name.startswith(self.workdir)
            else name: d
            for name, d in (seen or {}).items()
        }
        with self._names.translated_errors():
            done = self._files.edit(
                self._names.inward(path),
                old,
                new,
                unique=unique,
                seen=known,
                key=key,
                allowed=allowed,
            )
        return replace(done, path=self._names.outward(done.path))

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Found:
        """Find files: by name anywhere below, or by relative path if there is a `/` or `**`."""
        with self._names.translated_errors():
            found = self._files.glob(pattern, self._names.inward(path), stop)
        return replace(found, files=[self._names.outward(name) for name in found.files])

    def grep(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Matches:
        """Find lines by a regular expression in RE2's syntax, in a file or below a directory."""
        with self._names.translated_errors():
            found = self._files.grep(pattern, self._names.inward(path), stop)
        matches = [replace(one, file=self._names.outward(one.file)) for one in found.matches]
        return replace(found, matches=matches)

    def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        name: str = "",
        stop: Stop | None = None,
    ) -> Executed:
        """Run a shell command in the container, and end all its processes."""
        must_be_command(command)
        seconds = seconds_of(timeout, self._timeout)
        must_have_room(self.folder)
        before = self._guard.look(inside=False)
        try:
            box = self._boxes.take(part_mounts(self._root, self._guard, before))
        except ConfigError as error:
            raise ToolError(f"the command could not be started: {error}") from error
        killed = True
        try:
            done, killed = self._run(box, shell(command), seconds, name, stop or Stop())
        except ToolError as error:
            if box.stopped:
                raise ToolError(STOPPED) from error
            raise
        finally:
            self._boxes.give(box, killed=killed)
        if box.stopped and killed:
            raise ToolError(STOPPED)
        note = self._guard.note(before, apart=True)
        return replace(done, notes=(*done.notes, note)) if note else done

    def keep(self, name: str, data: bytes) -> str:
        """Save a whole result in the backend's own folder; return its path."""
        return self._names.outward(self._files.keep(name, data))

    def keep_from(self, rules: Rules) -> None:
        """Add files and folders that govern agents.

        Raises:
            ConfigError: they lie in the folder and cannot be shown read-only.
        """
        self._files.keep_from(rules)
        self._guard.keep_from(rules)
        self._guard.prepare()

    def close(self) -> None:
        """End the containers, and close the descriptors."""
        self.stop()
        self._engine.close()
        self._files.close()
        self._root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(
        self, box: Box, program: tuple[str, ...], seconds: float, name: str, stop: Stop
    ) -> tuple[Executed, bool]:
        """Run a program; return also whether the container was killed."""
        spool = spool_into(self._root, self.workdir, name)
        running = Running(box, program, spool, stop)
        stop.then(running.kill)
        try:
            running.watch(seconds)
            done = running.result()
        except BaseException:
            running.kill()
            raise
        finally:
            running.close()
        return done, running.killed

    def _checked(self, box: Box) -> Box:
        """Check that the container has this folder and its separate mounts.

        Raises:
            ConfigError: it has another folder, for example on another host.
        """
        token = secrets.token_hex(16)
        path = self.keep(f"engine-{token[:8]}.txt", token.encode())
        parts = [f"{self.workdir}/{one.rel}".rstrip("/") for one in box.parts]
        try:
            program = shell(_LOOK, path, *parts)
            done, _ = self._run(box, program, PROBE_SECONDS, "engine", Stop())
        except BaseException:
            box.kill()
            raise
        finally:
            self._root.remove(path[len(self.workdir) + 1 :])
        # a path that was swapped for a link between the look and the mount has another number
        if done.stdout.split() != [token, *(str(one.file[1]) for one in box.parts)]:
            box.kill()
            raise ConfigError(
                f"the container does not see {self.folder} ({done.stderr.strip()[:200]}); "
                "the engine must be on this host and may need the right to read the folder"
            )
        return box


# --- One backend for each user, made on first use, with its own folder and containers.


_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Sandboxes:
    """The users' backends; no two users share a folder or a container.

    Args:
        folder: Where the users' folders are; made if it is missing.
        options: The image and the limits of a container.
        host: The engine's address; None for the environment's.
        timeout: Default seconds for a command.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        options: BoxOptions | None = None,
        host: str | None = None,
        timeout: float = COMMAND_SECONDS,
    ) -> None:
        self._folder: Final = Path(folder)
        self._options: Final = options
        self._host: Final = host
        self._timeout: Final = timeout
        self._lock: Final = threading.Lock()
        self._made: Final[dict[str, DockerBackend]] = {}

    def get(self, user: str) -> DockerBackend:
        """Return a user's backend; the first command launches its container.

        Raises:
            ConfigError: the name cannot be part of a container's name.
        """
        if _USER.fullmatch(user) is None:
            raise ConfigError(
                f"the user {user!r} cannot have a container: take letters, digits, '_', '.' and "
                "'-', at most 63 of them"
            )
        with self._lock:
            if user not in self._made:
                folder = self._folder / user
                make_folder(folder)
                self._made[user] = DockerBackend(
                    folder,
                    options=self._options,
                    user=user,
                    host=self._host,
                    timeout=self._timeout,
                )
            return self._made[user]

    def create(self, user: str) -> DockerBackend:
        """Return a user's backend with a running container.

        Raises:
            ConfigError: it cannot be launched.
        """
        backend = self.get(user)
        backend.launch()
        return backend

    def stop(self, user: str) -> None:
        """End a user's containers; files stay, and the next command launches a new one."""
        if (backend := self._made.get(user)) is not None:
            backend.stop()

    def restart(self, user: str) -> DockerBackend:
        """End a user's containers and launch one.

        Raises:
            ConfigError: it cannot be launched.
        """
        self.stop(user)
        return self.create(user)

    def status(self, user: str) -> Status:
        """Return the state of the user's containers."""
        backend = self._made.get(user)
        return "idle" if backend is None else backend.status

    def close(self) -> None:
        """End all containers."""
        with self._lock:
            backends = list(self._made.values())
            self._made.clear()
        for backend in backends:
            backend.close()


def make_folder(folder: Path) -> None:
    """Make a folder for a container; root gives it to the user that containers run as."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if user_id() == 0:
        os.chown(folder, OVERFLOW_ID, OVERFLOW_ID)
