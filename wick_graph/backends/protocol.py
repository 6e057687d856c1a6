"""The protocol of a file backend, its data types, and every limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

# --- The protocol between file tools and a backend, and its data types.
#
# A remote backend can send every argument and every answer as JSON and bytes. Each refusal is a
# `ToolError` of one sentence, written for the model.


EntryType = Literal["file", "dir", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    """As on disk; a byte that is not UTF-8 becomes `\\xNN`, and paths may use that form."""
    type: EntryType
    """Links are named as links; devices, pipes and sockets are `other`."""
    size: int
    """Bytes of a file; 0 for everything else."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a directory."""

    entries: list[Entry]
    """Sorted by name."""
    total: int
    """The number of all entries, even if fewer are listed."""


@dataclass(frozen=True, slots=True)
class Text:
    """A window of a file."""

    path: str
    """The file's single absolute path, however the call named it."""
    text: str
    size: int
    """Bytes of the whole file when it was opened."""
    digest: str
    """Of the whole file; empty if the file is too long to edit."""
    notes: tuple[str, ...] = ()
    """Notes for the reader: that there is more, that bytes were replaced."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write."""

    path: str
    bytes_written: int
    digest: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of an edit."""

    path: str
    text: str
    """The whole file after the edit."""
    digest: str
    remaining: int
    """Further occurrences of the old text."""
    repeated: bool = False
    """The same call had changed the file before; it was not changed again."""


@dataclass(frozen=True, slots=True)
class Found:
    """Files with names that match."""

    files: list[str]
    """Absolute paths, sorted."""
    truncated: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """One line of a file."""

    file: str
    line: int
    """Counted from 1."""
    text: str


@dataclass(frozen=True, slots=True)
class Matches:
    """Lines that match."""

    matches: list[Match]
    """In the order of the files' paths."""
    truncated: bool
    notes: tuple[str, ...] = ()
    """What was skipped, and why a search ended early."""


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended."""

    stdout: str
    """Head and tail if it is long."""
    stderr: str
    exit_code: int
    """124 after a time-out, 128 plus the signal's number after a signal."""
    timed_out: bool
    signal: str | None = None
    """The signal that ended the command."""
    stdout_bytes: int = 0
    """Of the whole output."""
    stderr_bytes: int = 0
    stdout_file: str | None = None
    """Where the whole output is, if `stdout` is not all of it."""
    stderr_file: str | None = None
    notes: tuple[str, ...] = ()
    level: str = ""
    """The sandbox level of the command."""


class Stop:
    """Tell a call in another thread that its caller no longer waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._actions: list[Callable[[], object]] = []

    def set(self) -> None:
        """Stop; a second call has no effect."""
        with self._lock:
            self._set, actions, self._actions = True, self._actions, []
        for action in actions:
            action()

    def is_set(self) -> bool:
        """Say whether the call must end."""
        return self._set

    def then(self, action: Callable[[], object]) -> None:
        """Run an action on `set`, or at once if it is already set."""
        with self._lock:
            if not self._set:
                self._actions.append(action)
                return
        action()


class FileSystem(Protocol):
    """Files and commands in one working directory; safe for use by several threads at once."""

    @property
    def workdir(self) -> str:
        """Return the absolute path at which relative paths start."""
        ...

    @property
    def can_execute(self) -> bool:
        """Say whether `exec` is allowed."""
        ...

    @property
    def level(self) -> str:
        """Return the sandbox level of commands: `container`, `bwrap`, `landlock` or `local`.

        Empty if commands cannot run.
        """
        ...

    @property
    def confinement(self) -> str:
        """Tell the model what commands can and cannot do, in a sentence or two."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """Return one line for each thing that is not available, with the reason."""
        ...

    def ls(self, path: str = ".", limit: int | None = None) -> Listing:
        """List a directory, at most `limit` entries of it."""
        ...

    def read(self, path: str, *, line: int = 1, lines: int | None = None, byte: int = 0) -> Text:
        """Read a window of a file from a line, counted from 1 at the offset `byte`."""
        ...

    def asks(self, path: str) -> str:
        """Say why a person must allow a change of this file; empty if no approval is needed."""
        ...

    def write(self, path: str, data: bytes, *, allowed: bool = False) -> Written:
        """Replace a file, or create it and the directories above it.

        Atomic: at any time the file has its old content or the new one.

        Args:
            path: The file.
            data: Its new content.
            allowed: Whether a person has allowed this change.
        """
        ...

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
        """Replace the first occurrence of a text; every other byte stays as it is.

        Args:
            path: The file.
            old: The text, exactly.
            new: The text that replaces it.
            unique: Refuse if the text occurs more than once.
            seen: Digests of the contents that the caller knows, by absolute path; the edit is
                refused if the file has another one by now.
            key: The call's key: a call that changed the file before does not change it again.
            allowed: Whether a person has allowed this change.
        """
        ...

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Found:
        """Find files: by name anywhere below, or by relative path if there is a `/` or `**`."""
        ...

    def grep(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Matches:
        """Find lines by a regular expression in RE2's syntax, in a file or below a directory."""
        ...

    def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        name: str = "",
        stop: Stop | None = None,
    ) -> Executed:
        """Run a shell command in the working directory, and end all its processes.

        Args:
            command: The argument of `sh -c`.
            timeout: Seconds; None for the backend's default.
            name: A name for the file of a long output.
            stop: Ends the command early.
        """
        ...

    def keep(self, name: str, data: bytes) -> str:
        """Save a whole result in the backend's own folder; return its path."""
        ...


# --- The limits of file tools and commands, in one place.


MAX_READ_BYTES: Final = 1_000_000
"""One read of a file; a longer file is read in windows."""

MAX_WRITE_BYTES: Final = 10_000_000
"""The size of a file to write or edit."""

MAX_SKIP_BYTES: Final = 256 * 2**20
"""How far a read by line number goes into a file to find its first line."""

MAX_GLOB_FILES: Final = 100

MAX_GREP_MATCHES: Final = 200

MAX_GREP_LINE_CHARS: Final = 500

MAX_GREP_FILE_BYTES: Final = 64 * 2**20
"""Longer files are not searched."""

MAX_PATTERN_CHARS: Final = 10_000

MAX_REPEATED: Final = 2_000
"""Parts that counted repetitions in a pattern expand to, such as 1,000 in `(a{10}){100}`."""

GLOB_SECONDS: Final = 1.5

GREP_SECONDS: Final = 20.0

MAX_DEPTH: Final = 200
"""Levels of directories that a search descends."""

SKIPPED_DIRS: Final = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Directories that a search does not enter, unless it starts there."""

COMMAND_SECONDS: Final = 120.0

MAX_COMMAND_SECONDS: Final = 600.0

MAX_COMMAND_BYTES: Final = 100_000

OUTPUT_HEAD_BYTES: Final = 50_000

OUTPUT_TAIL_BYTES: Final = 50_000

MAX_OUTPUT_BYTES: Final = 64 * 2**20
"""Of both streams of a command together; a command that writes more is killed."""

PROBE_SECONDS: Final = 10.0
"""For the probe of a sandbox level."""

LEAST_FREE_PART: Final = 0.05
"""Fraction of the disk that must be free to start a command, up to `LEAST_FREE_BYTES`."""

LEAST_FREE_BYTES: Final = 2**30

GRACE_SECONDS: Final = 0.25
"""How long background processes may still write after their command has ended."""

MAX_WATCHED: Final = 100_000
"""Names of a working directory to check for files that other programs obey."""

WATCH_SECONDS: Final = 1.0
"""For one such check."""

MAX_PART_MOUNTS: Final = 500
"""Files and folders of a working directory that one command sees read-only."""

MAX_KEPT_FILES: Final = 1_000
"""Saved results of a working directory; the oldest are removed."""

MAX_KEPT_BYTES: Final = 2**30
