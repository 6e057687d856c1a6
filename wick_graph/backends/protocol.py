"""The protocol of a file backend, its plain data, and every limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

# --- What the file tools ask of a backend: one protocol, and the plain data that goes through
# it.
#
# A backend that works at a distance can send every argument and every answer as JSON and bytes.
# Each refusal is a `ToolError` of one sentence, written for the model.


EntryType = Literal["file", "dir", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    """As it is on disk; a byte that is not UTF-8 is written `\\xNN` and can be named that way."""
    type: EntryType
    """Links are named as links; devices, pipes and sockets are `other`."""
    size: int
    """Bytes of a file; 0 for everything else."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a directory."""

    entries: list[Entry]
    """Sorted by name."""
    total: int
    """How many there are, also when fewer are listed."""


@dataclass(frozen=True, slots=True)
class Text:
    """A window of a file."""

    path: str
    """The file's one absolute path, however it was named."""
    text: str
    size: int
    """Bytes of the whole file when it was opened."""
    digest: str
    """Of the whole file; empty for one that is too long to be edited."""
    notes: tuple[str, ...] = ()
    """What the reader must know: that there is more, that bytes were replaced."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a write left on disk."""

    path: str
    bytes_written: int
    digest: str


@dataclass(frozen=True, slots=True)
class Edited:
    """What an edit left on disk."""

    path: str
    text: str
    """The whole file after it."""
    digest: str
    remaining: int
    """Further places where the old text stands."""
    repeated: bool = False
    """This very call had changed the file before; it was not changed again."""


@dataclass(frozen=True, slots=True)
class Found:
    """Files whose names match."""

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
    """What was passed over, and why a search ended early."""


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended."""

    stdout: str
    """Head and tail, where it is long."""
    stderr: str
    exit_code: int
    """124 after a time-out, 128 and the signal's number after a signal."""
    timed_out: bool
    signal: str | None = None
    """The signal that ended it."""
    stdout_bytes: int = 0
    """Of the whole output."""
    stderr_bytes: int = 0
    stdout_file: str | None = None
    """Where the whole output is, if `stdout` is not all of it."""
    stderr_file: str | None = None
    notes: tuple[str, ...] = ()
    level: str = ""
    """The sandbox level that it ran at."""


class Stop:
    """Tell a call that runs in another thread that nobody waits for it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._actions: list[Callable[[], object]] = []

    def set(self) -> None:
        """Stop; a second time does nothing."""
        with self._lock:
            self._set, actions, self._actions = True, self._actions, []
        for action in actions:
            action()

    def is_set(self) -> bool:
        """Say whether the call is to end."""
        return self._set

    def then(self, action: Callable[[], object]) -> None:
        """Do this when it is set; at once if it is already."""
        with self._lock:
            if not self._set:
                self._actions.append(action)
                return
        action()


class FileSystem(Protocol):
    """Files and commands in one working directory; safe for use by several threads at once."""

    @property
    def workdir(self) -> str:
        """Return the absolute path that relative paths start from."""
        ...

    @property
    def can_execute(self) -> bool:
        """Say whether `exec` is allowed."""
        ...

    @property
    def level(self) -> str:
        """Name the sandbox level of commands: `container`, `bwrap`, `landlock` or `local`.

        Empty where no commands are run.
        """
        ...

    @property
    def confinement(self) -> str:
        """Say in a sentence or two, for the model, what commands can and cannot do."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """Say in one line each what is not available here, and why."""
        ...

    def ls(self, path: str = ".", limit: int | None = None) -> Listing:
        """List a directory, at most `limit` entries of it."""
        ...

    def read(self, path: str, *, line: int = 1, lines: int | None = None, byte: int = 0) -> Text:
        """Read a file from a line (counted from 1, behind `byte`), as far as one answer goes."""
        ...

    def asks(self, path: str) -> str:
        """Say why a person must allow a change of this file; empty if nobody need."""
        ...

    def write(self, path: str, data: bytes, *, allowed: bool = False) -> Written:
        """Replace a file, or create it and the directories above it.

        Atomic: whatever happens, the file has its old content or the new one.

        Args:
            path: The file.
            data: Its new content.
            allowed: Whether a person has allowed this very change.
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
            new: What stands there afterwards.
            unique: Refuse where the text stands more than once.
            seen: Digests of the contents that the caller knows, by absolute path; a file that
                has another one by now is refused.
            key: The call's own key: one that changed the file before does not change it again.
            allowed: Whether a person has allowed this very change.
        """
        ...

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Found:
        """Find files: by name anywhere below, or by relative path if there is a `/` or `**`."""
        ...

    def grep(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Matches:
        """Find lines, by a regular expression in RE2's dialect, in a file or below a directory."""
        ...

    def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        name: str = "",
        stop: Stop | None = None,
    ) -> Executed:
        """Run a shell command in the working directory; nothing of it is left when this returns.

        Args:
            command: What `sh -c` gets.
            timeout: Seconds; None for the backend's own.
            name: What the file of a long output is called by.
            stop: Ends the command early.
        """
        ...

    def keep(self, name: str, data: bytes) -> str:
        """Keep a whole result in a file of the backend's own; return the path to read it by."""
        ...


# --- What file tools and commands may cost: every bound of the backends, in one place.


MAX_READ_BYTES: Final = 1_000_000
"""One reading of a file; a longer file is read in windows."""

MAX_WRITE_BYTES: Final = 10_000_000
"""A file that is written or edited."""

MAX_SKIP_BYTES: Final = 256 * 2**20
"""How far a reading by line number goes through a file to find its first line."""

MAX_GLOB_FILES: Final = 100

MAX_GREP_MATCHES: Final = 200

MAX_GREP_LINE_CHARS: Final = 500

MAX_GREP_FILE_BYTES: Final = 64 * 2**20
"""Longer files are not searched."""

MAX_PATTERN_CHARS: Final = 10_000

MAX_REPEATED: Final = 2_000
"""Parts that the counted repetitions of a pattern may stand for, as 1,000 in `(a{10}){100}`."""

GLOB_SECONDS: Final = 1.5

GREP_SECONDS: Final = 20.0

MAX_DEPTH: Final = 200
"""Directories below one another that a search goes down."""

SKIPPED_DIRS: Final = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Directories that a search does not enter, unless it begins there."""

COMMAND_SECONDS: Final = 120.0

MAX_COMMAND_SECONDS: Final = 600.0

MAX_COMMAND_BYTES: Final = 100_000

OUTPUT_HEAD_BYTES: Final = 50_000

OUTPUT_TAIL_BYTES: Final = 50_000

MAX_OUTPUT_BYTES: Final = 64 * 2**20
"""Of both streams of a command together; it is killed when it writes more."""

PROBE_SECONDS: Final = 10.0
"""What finding out whether a sandbox works may take."""

LEAST_FREE_PART: Final = 0.05
"""Part of the disk that must be free for a command to be started, up to `LEAST_FREE_BYTES`."""

LEAST_FREE_BYTES: Final = 2**30

GRACE_SECONDS: Final = 0.25
"""What a command leaves running in the background may write for this long after its end."""

MAX_WATCHED: Final = 100_000
"""Names of a working directory among which a command looks for what other programs obey."""

WATCH_SECONDS: Final = 1.0
"""What one such look may take."""

MAX_SHUT: Final = 500
"""Files and folders of a working directory that one command is shown read-only."""

MAX_KEPT_FILES: Final = 1_000
"""Whole results that a working directory holds; the oldest ones give way."""

MAX_KEPT_BYTES: Final = 2**30
