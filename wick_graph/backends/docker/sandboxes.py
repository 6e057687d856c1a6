"""One backend for each user: made when it is asked for, with a folder and containers of its own."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Final

from wick_graph.backends.docker.backend import DockerBackend
from wick_graph.backends.docker.box import BoxOptions
from wick_graph.backends.docker.boxes import Status
from wick_graph.backends.limits import COMMAND_SECONDS
from wick_graph.errors import ConfigError
from wick_graph.sandbox.plan import NOBODY

_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Sandboxes:
    """The users' backends; no two users share a folder or a container.

    Args:
        folder: Where the users' folders are; made if it is missing.
        options: The image, and what a container may cost.
        host: The engine's address; None for what the environment says.
        timeout: Seconds that a command may take if the call does not say.
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
        """Return a user's backend; its container is launched by the first command.

        Raises:
            ConfigError: The name cannot stand in a container's name.
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
        """Return a user's backend, its container running.

        Raises:
            ConfigError: It cannot be launched.
        """
        backend = self.get(user)
        backend.launch()
        return backend

    def stop(self, user: str) -> None:
        """End a user's containers; files stay, and the next command launches one anew."""
        if (backend := self._made.get(user)) is not None:
            backend.stop()

    def restart(self, user: str) -> DockerBackend:
        """End a user's containers and launch one.

        Raises:
            ConfigError: It cannot be launched.
        """
        self.stop(user)
        return self.create(user)

    def status(self, user: str) -> Status:
        """Say whether a container of the user runs."""
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
    """Make a folder for a container; root gives a new one away, since no container runs as root."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
