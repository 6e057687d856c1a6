"""What a sandbox level is to the runner: what stands before a command, and what is done to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

Level = Literal["container", "bwrap", "landlock", "local"]
"""From the strongest to none: a container, namespaces, file rules, nothing at all."""
Setting = Literal["auto", "require", "bwrap", "landlock", "local"]
"""What may be asked for on this machine: a level, or the strongest that works."""

NOBODY: Final = 65_534
MEMORY_BYTES: Final = 4 * 2**30
"""Address space of one process."""
FILE_BYTES: Final = 256 * 2**20
TMP_BYTES: Final = 64 * 2**20
"""The private /tmp of a command, where it is one in memory."""
PROCESSES: Final = 256
"""Processes and threads of one command, beyond those that its user has already."""
OPEN_FILES: Final = 1_024
CPU_SECONDS: Final = 600

LIMITS: Final[Mapping[str, int]] = {
    "AS": MEMORY_BYTES,
    "FSIZE": FILE_BYTES,
    "NOFILE": OPEN_FILES,
    "CPU": CPU_SECONDS,
    "CORE": 0,
}
"""By the names that the module `resource` gives them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a command runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How one command is started; made anew for each, since it may hold open descriptors."""

    env: Mapping[str, str]
    before: tuple[str, ...] = ()
    """The program that the command's shell is an argument of."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What the process does to itself before it becomes the command; goes as JSON."""
    fds: tuple[int, ...] = ()
    """Descriptors that `before` names; whoever starts the command closes them."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A part of the working directory that a command is shown apart from it."""

    fd: int
    """Opened by name alone, so that nobody can put something else in its place."""
    path: str
    """Where it is; absolute."""
    read_only: bool
    """Else it is only kept from being renamed."""


class Sandbox(Protocol):
    """A level, made ready for one working directory."""

    @property
    def level(self) -> Level:
        """Return its name."""
        ...

    @property
    def says(self) -> str:
        """Say in one sentence what a command can and cannot do."""
        ...

    @property
    def apart(self) -> bool:
        """Say whether parts of the working directory can be shown read-only."""
        ...

    def launch(self, binds: Sequence[Bind] = (), *, probe: bool = False) -> Launch:
        """Prepare the start of one command.

        Args:
            binds: What is shown apart; their descriptors belong to the launch.
            probe: Whether the command is the one that looks if the level holds.
        """
        ...


def identity_for(workdir: str) -> Identity | None:
    """Return whom a confined command runs as; None where it is whoever runs the engine.

    Root never runs one itself: the kernel's own files belong to it also inside of a sandbox. The
    owner of the directory does, and nobody where that is root.
    """
    if os.geteuid() != 0:
        return None
    owner = os.stat(workdir)  # noqa: PTH116  (a path as text, like all here)
    if owner.st_uid == 0:
        return Identity(NOBODY, NOBODY)
    return Identity(owner.st_uid, owner.st_gid or NOBODY)


def confined(who: Identity | None, **more: Any) -> dict[str, Any]:
    """Return the plan of a command that is confined: limits, and whose it is."""
    plan: dict[str, Any] = {"limits": dict(LIMITS), "processes": PROCESSES, **more}
    if who is not None:
        plan |= {"uid": who.uid, "gid": who.gid}
    return plan
