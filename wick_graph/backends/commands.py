"""Commands in one directory, at the sandbox level that was chosen when it was opened."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from wick_graph.backends import keep, process
from wick_graph.backends.capture import Spool
from wick_graph.backends.guard import Guard, Seen
from wick_graph.backends.limits import (
    LEAST_FREE_BYTES,
    LEAST_FREE_PART,
    MAX_COMMAND_BYTES,
    MAX_COMMAND_SECONDS,
    PROBE_SECONDS,
)
from wick_graph.backends.protocol import Executed, Stop
from wick_graph.backends.root import Root
from wick_graph.errors import ConfigError, ToolError
from wick_graph.sandbox import HOLDS, PROBE, Launch, Sandbox, Setting, choose


class Commands:
    """Run commands in a directory, or say why none are run.

    Args:
        workdir: The directory; it must exist.
        setting: A level, `auto`, or `require`; see `wick_graph.sandbox`.
        guard: What commands leave alone.
        readable: Further folders that a confined command can read; absolute.
        timeout: Seconds that a command may take if the call does not say.

    Raises:
        ConfigError: The level does not work here, or an argument is out of range.
    """

    def __init__(
        self,
        workdir: str,
        setting: Setting,
        *,
        guard: Guard | None = None,
        readable: Sequence[str] = (),
        timeout: float,
    ) -> None:
        must_be_seconds(timeout)
        for folder in readable:
            if not folder.startswith("/"):
                raise ConfigError(f"the readable folder {folder!r} is not absolute; make it so")
        self._workdir: Final = workdir
        self._timeout: Final = timeout
        self._said = ""
        sandbox, missing = choose(setting, workdir, readable, self._probe)
        self.sandbox: Final[Sandbox | None] = sandbox
        self._guard: Final = guard
        self.check()
        self.notice: Final = self._notice(missing)
        """What a person must know beyond the level, such as why there is none."""

    def check(self) -> None:
        """Refuse a level that cannot hold what governs agents.

        Raises:
            ConfigError: A part of it lies in the directory, and cannot be shown read-only.
        """
        if self.sandbox is not None and self._guard is not None:
            guard, apart = self._guard, self.sandbox.apart
            guard.prepare() if apart else guard.must_be_apart(self.sandbox.level)

    def run(
        self, command: str, *, timeout: float | None, spool: Spool, stop: Stop | None
    ) -> Executed:
        """Run a shell command; nothing of it is left when this returns.

        Raises:
            ToolError: It is no command, or could not be started.
        """
        if self.sandbox is None:
            raise ToolError(self.notice)
        must_be_command(command)
        seconds = seconds_of(timeout, self._timeout)
        must_have_room(self._workdir)
        launch, before = self._launch(self.sandbox)
        done = process.run(
            process.shell(command),
            launch,
            level=self.sandbox.level,
            cwd=self._workdir,
            timeout=seconds,
            spool=spool,
            stop=stop or Stop(),
        )
        if self._guard is None or not (note := self._guard.note(before, apart=self.sandbox.apart)):
            return done
        return replace(done, notes=(*done.notes, note))

    def _launch(self, sandbox: Sandbox) -> tuple[Launch, Seen]:
        """Prepare a start; say also what other programs obey by now."""
        if self._guard is None:
            return sandbox.launch(), Seen()
        before = self._guard.look(inside=not sandbox.apart)
        binds = self._guard.binds(before) if sandbox.apart else []
        try:
            return sandbox.launch(binds), before
        except BaseException:
            for one in binds:
                os.close(one.fd)
            raise

    def _probe(self, sandbox: Sandbox) -> str:
        """Run the probe in a level; return what is wrong with it."""
        try:
            done = process.run(
                process.shell(PROBE, self._workdir, sandbox.level),
                sandbox.launch(probe=True),
                level=sandbox.level,
                cwd=self._workdir,
                timeout=PROBE_SECONDS,
                spool=_nowhere,
                stop=Stop(),
            )
        except ToolError as error:
            return str(error)
        self._said = done.stdout.strip()
        if done.exit_code == 0 and self._said.startswith(HOLDS):
            return ""
        lines = (
            self._said or done.stderr.strip() or f"it ended with {done.exit_code}"
        ).splitlines()
        return lines[-1]

    def _notice(self, missing: str) -> str:
        if self.sandbox is None:
            return (
                f"execute is not available: no sandbox works here ({missing}); "
                "execute: local runs commands without one"
            )
        if not self._said or self._said == HOLDS:
            return ""
        return (
            f"commands can read {self._workdir} and not change it: they do not run as root; "
            "give the directory to the user that they are to run as"
        )


def spool_into(root: Root, workdir: str, name: str) -> Spool:
    """Return what opens the files for a command's whole output, in the backend's own folder."""

    def spool(stream: str) -> tuple[int, str]:
        rel = keep.new_result(root, f"{name or 'execute'}.{stream}.txt")
        return root.create(rel), f"{workdir}/{rel}"

    return spool


def must_be_command(command: str) -> None:
    """Refuse what no shell can be given.

    Raises:
        ToolError: It is empty, too long, or no text.
    """
    if not command.strip():
        raise ToolError("the command is empty; give one that sh understands")
    if "\0" in command:
        raise ToolError("the command has a NUL character, which no command can have")
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        raise ToolError("the command has half of a surrogate pair; write valid text") from None
    if size > MAX_COMMAND_BYTES:
        raise ToolError(
            f"the command has {size:,} bytes, at most {MAX_COMMAND_BYTES:,} are run; "
            "write it to a file and run that"
        )


def must_be_seconds(timeout: float) -> None:
    """Refuse a backend's own time-out that is none.

    Raises:
        ConfigError: It is not above 0, or too long.
    """
    if not 0 < timeout <= MAX_COMMAND_SECONDS:
        raise ConfigError(
            f"timeout must be above 0 and at most {MAX_COMMAND_SECONDS:g} seconds, not {timeout!r}"
        )


def seconds_of(timeout: float | None, default: float) -> float:
    """Return the seconds that a command may take.

    Raises:
        ToolError: The call asks for none, or for too many.
    """
    seconds = default if timeout is None else timeout
    if not math.isfinite(seconds) or not 0 < seconds <= MAX_COMMAND_SECONDS:
        raise ToolError(
            f"timeout must be above 0 and at most {MAX_COMMAND_SECONDS:g} seconds, not {seconds!r}"
        )
    return seconds


def must_have_room(workdir: str) -> None:
    """Refuse to start anything where the disk is nearly full.

    Raises:
        ToolError: Too little is left.
    """
    try:
        disk = os.statvfs(workdir)
    except OSError:  # it has vanished; the start of the command says so
        return
    free = disk.f_bavail * disk.f_frsize
    if free < min(disk.f_blocks * disk.f_frsize * LEAST_FREE_PART, LEAST_FREE_BYTES):
        raise ToolError("the disk is nearly full, so nothing is run; ask the user to make room")


def _nowhere(stream: str) -> tuple[int, str]:
    raise ToolError("the probe wrote more than is read")
