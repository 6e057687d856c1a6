"""The backend for the host's own files; it runs commands only if it is configured to."""

from __future__ import annotations

import codecs
import math
import os
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal, Self
from weakref import WeakValueDictionary

from wick_graph.backends import process, saved_results, search
from wick_graph.backends.guard import Guard, Rules, Seen, close_binds
from wick_graph.backends.places import ExtraRoot, Place, Places
from wick_graph.backends.process import Spool
from wick_graph.backends.protocol import (
    COMMAND_SECONDS,
    GLOB_SECONDS,
    LEAST_FREE_BYTES,
    LEAST_FREE_PART,
    MAX_COMMAND_BYTES,
    MAX_COMMAND_SECONDS,
    MAX_GLOB_FILES,
    MAX_READ_BYTES,
    MAX_SKIP_BYTES,
    MAX_WRITE_BYTES,
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
from wick_graph.backends.root import Mechanism, Root, shown
from wick_graph.backends.saved_results import replace_first
from wick_graph.backends.search import Walk, Worker, glob_pattern, is_by_name
from wick_graph.backends.search_worker import read_at
from wick_graph.errors import ConfigError, RefusedError, ToolError
from wick_graph.sandbox import HOLDS, PROBE, Launch, Sandbox, Setting, choose

# --- Read a window of a file for a model, whatever the file's size.


_CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a file."""

    text: str
    whole: bytes | None
    """The file's bytes, if the window is all of it."""
    notes: tuple[str, ...]


def read_window(fd: int, size: int, line: int, lines: int | None, byte: int) -> Window:
    """Read at most a megabyte from a line, counted from 1 at the offset `byte`.

    Data appended beyond `size` is not read.

    Raises:
        ToolError: the offset is after the file's end, or the line is too far into the file.
    """
    if byte > size:
        raise ToolError(f"byte={byte} is after the end of the file, which has {size:,} bytes")
    start = _skip_lines(fd, byte, size, line - 1)
    data = read_at(fd, start, min(MAX_READ_BYTES, size - start))
    if lines is not None:
        data = _first_lines(data, lines)
    end = start + len(data)
    if end < size:
        data = data[: len(data) - _unfinished(data)] or data
        end = start + len(data)
    text = data.decode("utf-8", "replace")
    notes = []
    if "\ufffd" in text and not _is_utf8(data):
        notes.append("not all of it is UTF-8 text; other bytes are shown as \ufffd")
    if (start, end) != (0, size):
        rest = f"; continue with byte={end}" if end < size else ""
        notes.append(f"bytes {start:,} to {end:,} of {size:,} are shown{rest}")
    return Window(text, data if (start, end) == (0, size) else None, tuple(notes))


def _skip_lines(fd: int, start: int, size: int, count: int) -> int:
    """Return where the line with `count` lines before it begins."""
    at = start
    while count > 0:
        if at - start >= MAX_SKIP_BYTES:
            raise ToolError(
                f"the line is more than {MAX_SKIP_BYTES // 2**20} MiB into the file; "
                "use grep, or give a byte to begin at"
            )
        chunk = read_at(fd, at, min(_CHUNK_BYTES, size - at))
        if not chunk:
            raise ToolError(f"the file ends {count} lines before that line; it has {size:,} bytes")
        found = chunk.count(b"\n")
        if found < count:
            count -= found
            at += len(chunk)
            continue
        at += len(_first_lines(chunk, count))
        count = 0
    return at


def _first_lines(data: bytes, count: int) -> bytes:
    end = 0
    for _ in range(count):
        end = data.find(b"\n", end) + 1
        if not end:
            return data
    return data[:end]


def _unfinished(data: bytes) -> int:
    """Count the bytes of an incomplete character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return back if length > back else 0
    return 0


def _is_utf8(data: bytes) -> bool:
    try:
        codecs.decode(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


# --- Commands in one directory, at the sandbox level chosen when the backend was opened.


class Commands:
    """Run commands in a directory, or say why none can run.

    Args:
        workdir: The directory; it must exist.
        setting: A level, `auto`, or `require`; see `wick_graph.sandbox`.
        guard: What commands must not change.
        readable: Further folders that a confined command can read; absolute.
        timeout: Default seconds for a command.

    Raises:
        ConfigError: the level does not work on this host, or an argument is out of range.
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
        """A notice for people besides the level, such as why there is none."""

    def check(self) -> None:
        """Refuse a level that cannot protect the files that govern agents.

        Raises:
            ConfigError: some lie in the directory and cannot be shown read-only.
        """
        if self.sandbox is not None and self._guard is not None:
            guard, apart = self._guard, self.sandbox.apart
            guard.prepare() if apart else guard.must_be_apart(self.sandbox.level)

    def run(
        self, command: str, *, timeout: float | None, spool: Spool, stop: Stop | None
    ) -> Executed:
        """Run a shell command; none of its processes is left when this returns.

        Raises:
            ToolError: it is not a valid command, or could not be started.
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
        """Prepare a start; return also the present state of the obeyed files."""
        if self._guard is None:
            return sandbox.launch(), Seen()
        before = self._guard.look(inside=not sandbox.apart)
        binds = self._guard.binds(before) if sandbox.apart else []
        try:
            return sandbox.launch(binds), before
        except BaseException:
            close_binds(binds)
            raise

    def _probe(self, sandbox: Sandbox) -> str:
        """Run the probe in a level; return what is wrong, or an empty text."""
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
                f"execute is not available: no sandbox works on this host ({missing}); "
                "execute: local runs commands without one"
            )
        if not self._said or self._said == HOLDS:
            return ""
        return (
            f"commands can read {self._workdir} but not change it, since they do not run as root; "
            "give the directory to the user that they should run as"
        )


def spool_into(root: Root, workdir: str, name: str) -> Spool:
    """Return a function that opens files for a command's output in the backend's own folder."""

    def spool(stream: str) -> tuple[int, str]:
        rel = saved_results.new_result(root, f"{name or 'execute'}.{stream}.txt")
        return root.create(rel), f"{workdir}/{rel}"

    return spool


def must_be_command(command: str) -> None:
    """Refuse a command that no shell can take.

    Raises:
        ToolError: it is empty, too long, or not valid text.
    """
    if not command.strip():
        raise ToolError("the command is empty; give a command for sh")
    if "\0" in command:
        raise ToolError("the command has a NUL character, which no command can have")
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        raise ToolError("the command has half of a surrogate pair; write valid text") from None
    if size > MAX_COMMAND_BYTES:
        raise ToolError(
            f"the command has {size:,} bytes, more than {MAX_COMMAND_BYTES:,}; "
            "write it to a file and run that"
        )


def must_be_seconds(timeout: float) -> None:
    """Refuse an invalid default time-out.

    Raises:
        ConfigError: it is not above 0, or too long.
    """
    if not 0 < timeout <= MAX_COMMAND_SECONDS:
        raise ConfigError(
            f"timeout must be above 0 and at most {MAX_COMMAND_SECONDS:g} seconds, not {timeout!r}"
        )


def seconds_of(timeout: float | None, default: float) -> float:
    """Return the seconds that a command may take.

    Raises:
        ToolError: the call asks for none, or for too many.
    """
    seconds = default if timeout is None else timeout
    if not math.isfinite(seconds) or not 0 < seconds <= MAX_COMMAND_SECONDS:
        raise ToolError(
            f"timeout must be above 0 and at most {MAX_COMMAND_SECONDS:g} seconds, not {seconds!r}"
        )
    return seconds


def must_have_room(workdir: str) -> None:
    """Refuse to start a command if the disk is nearly full.

    Raises:
        ToolError: too little is left.
    """
    try:
        disk = os.statvfs(workdir)
    except OSError:  # it has vanished; the start of the command reports it
        return
    free = disk.f_bavail * disk.f_frsize
    if free < min(disk.f_blocks * disk.f_frsize * LEAST_FREE_PART, LEAST_FREE_BYTES):
        raise ToolError("the disk is nearly full, so no command runs; ask the user to make room")


def _nowhere(stream: str) -> tuple[int, str]:
    raise ToolError("the probe wrote too much output")


NO_EXECUTE: Final = (
    "execute is not available: a local backend runs commands only if it is configured to; pass "
    "execute='auto' for a sandbox, or execute='local' for none"
)

_NAMES: Final = 500
"""Names in one message to a worker."""

_LOCKS: Final[WeakValueDictionary[str, threading.Lock]] = WeakValueDictionary()
"""One lock for each path that this process is writing; all backends share them."""

_LOCKS_LOCK: Final = threading.Lock()


class LocalBackend:
    """Files below a working directory and below extra roots, and commands.

    Args:
        workdir: The directory; it must exist.
        execute: The sandbox level of commands (`bwrap`, `landlock`, or `local` for none). `auto`
            takes the strongest that works on this host, and no commands if none does; `require`
            is the same with an error if none does. None: no commands.
        readable: Folders outside that confined commands can read too, such as a toolchain.
        extra_roots: Folders and files elsewhere that tools may reach, such as skills (read-only)
            and memory files (writable). They count even if they lie inside the directory.
        timeout: Default seconds for a command.
        rules: What tools must not change, besides the files that other programs obey.
        symlinks: `deny`, or `inside` to read through relative links that stay below the root.
        mechanism: How paths are confined; see `Root`.
        ripgrep: Search with `rg` if it is installed.

    Raises:
        ConfigError: a directory cannot be opened, or an argument is out of range.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        *,
        execute: Setting | None = None,
        readable: Collection[str] = (),
        extra_roots: Iterable[ExtraRoot] = (),
        timeout: float = COMMAND_SECONDS,
        rules: Rules | None = None,
        symlinks: Literal["deny", "inside"] = "deny",
        mechanism: Mechanism = "auto",
        ripgrep: bool = True,
    ) -> None:
        must_be_seconds(timeout)
        self._places: Final = Places(
            workdir, extra_roots, rules=rules, symlinks=symlinks, mechanism=mechanism
        )
        self.workdir: Final = self._places.work.path
        self._commands: Final = self._open_commands(execute, readable, timeout)
        sandbox = self._commands.sandbox if self._commands else None
        self.can_execute: Final = sandbox is not None
        self.level: Final = sandbox.level if sandbox else ""
        self.confinement: Final = sandbox.says if sandbox else ""
        notice = self._commands.notice if self._commands else NO_EXECUTE
        found = (notice,) if notice else ()
        self.notices: Final[tuple[str, ...]] = (*found, *self._places.guard.notices)
        self._ripgrep: Final = search.find_ripgrep(self.workdir) if ripgrep else None

    def ls(self, path: str = ".", limit: int | None = None) -> Listing:
        """List a directory, at most `limit` entries of it."""
        place = self._places.find(path)
        return Listing(*place.root.scan_dir(place.rel, limit))

    def read(self, path: str, *, line: int = 1, lines: int | None = None, byte: int = 0) -> Text:
        """Read a window of a file from a line, counted from 1 at the offset `byte`."""
        place = self._places.find(path)
        with place.root.file(place.rel) as (fd, status):
            window = read_window(fd, status.st_size, line, lines, byte)
            digest = ""
            if window.whole is not None:
                digest = saved_results.digest(window.whole)
            elif status.st_size <= MAX_WRITE_BYTES:
                digest = saved_results.digest(read_at(fd, 0, status.st_size))
        return Text(place.path, window.text, status.st_size, digest, window.notes)

    def asks(self, path: str) -> str:
        """Say why a person must allow a change of this file; empty if no approval is needed."""
        place = self._places.find(path)
        return "" if place.refusal() else place.asks()

    def write(self, path: str, data: bytes, *, allowed: bool = False) -> Written:
        """Replace a file atomically, or create it and the directories above it."""
        place = self._places.find(path)
        place.must_be_writable(allowed=allowed)
        _must_fit(place, len(data))
        with _locked(place.path):
            place.root.replace(place.rel, data)
        return Written(place.path, len(data), saved_results.digest(data))

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
        place = self._places.find(path)
        place.must_be_writable(allowed=allowed)
        if not old:
            raise ToolError("old_text is empty; give the text to replace, or use write_file")
        if old == new:
            raise ToolError("old_text and new_text are the same; give different texts")
        work = self._places.work
        with _locked(place.path):
            with place.root.file(place.rel) as (fd, status):
                _must_fit(place, status.st_size)
                data = read_at(fd, 0, status.st_size)
            before = saved_results.digest(data)
            note = saved_results.read_note(work, key) if key else None
            if note and note.path == place.path and note.before != before:
                if note.after != before:
                    raise ToolError(
                        f"{shown(place.path)} changed since this call was interrupted; "
                        "read it to see whether the edit was made"
                    )
                return _edited(place, data, data.count(old.encode()), repeated=True)
            if (seen or {}).get(place.path, before) != before:
                raise ToolError(f"{shown(place.path)} changed on disk; read it again")
            changed, remaining = replace_first(data, old, new, unique)
            _must_fit(place, len(changed))
            if key:
                saved_results.write_note(
                    work, key, saved_results.Note(place.path, before, saved_results.digest(changed))
                )
            place.root.replace(place.rel, changed, was=status)
        return _edited(place, changed, remaining)

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Found:
        """Find files: by name anywhere below, or by relative path if there is a `/` or `**`."""
        place = self._places.find(path)
        read, by_name = glob_pattern(pattern), is_by_name(pattern)
        walk = Walk(place.root, GLOB_SECONDS, stop or Stop())
        files: list[str] = []
        with Worker(read, walk) as worker:
            for some in _in_batches(walk.files(place.rel)):
                names = [rel.rpartition("/")[2] if by_name else rel for rel in some]
                for at in worker.names(names):
                    if len(files) == MAX_GLOB_FILES:
                        return Found(files, True, walk.notes())
                    files.append(_joined(place.path, some[at]))
        return Found(files, walk.cut, walk.notes())

    def grep(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Matches:
        """Find lines by a regular expression in RE2's syntax, in a file or below a directory."""
        place = self._places.find(path)
        walk = search.make_walk(place.root, stop)
        files = self._searched(place, walk)
        return search.search(place.root, files, pattern, walk, self._ripgrep)

    def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        name: str = "",
        stop: Stop | None = None,
    ) -> Executed:
        """Run a shell command in the working directory, and end all its processes."""
        if self._commands is None:
            raise RefusedError(NO_EXECUTE)
        spool = spool_into(self._places.work, self.workdir, name)
        return self._commands.run(command, timeout=timeout, spool=spool, stop=stop)

    def keep(self, name: str, data: bytes) -> str:
        """Save a whole result in the backend's own folder; return its path."""
        return f"{self.workdir}/{saved_results.keep_result(self._places.work, name, data)}"

    def must_keep(self, rules: Rules) -> None:
        """Check that commands cannot change what governs agents; make nothing.

        Raises:
            ConfigError: the working directory holds some, and the level cannot protect it.
        """
        sandbox = None if self._commands is None else self._commands.sandbox
        if sandbox is not None and not sandbox.apart:
            Guard(self._places.work, rules).must_be_apart(sandbox.level)

    def keep_from(self, rules: Rules) -> None:
        """Add files and folders that govern agents.

        Raises:
            ConfigError: commands could change them, since the level cannot show them read-only.
        """
        self._places.guard.keep_from(rules)
        if self._commands is not None:
            self._commands.check()

    def close(self) -> None:
        """Close the directories' descriptors."""
        self._places.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open_commands(
        self, execute: Setting | None, readable: Collection[str], timeout: float
    ) -> Commands | None:
        if execute is None:
            return None
        try:
            return Commands(
                self.workdir,
                execute,
                guard=self._places.guard,
                readable=tuple(readable),
                timeout=timeout,
            )
        except BaseException:
            self._places.close()
            raise

    def _searched(self, place: Place, walk: Walk) -> Iterator[tuple[str, str]]:
        """Yield the files of a search: the file itself, or the files below the directory."""
        root = place.root
        if not stat.S_ISDIR(root.stat(place.rel).st_mode):
            with root.file(place.rel):  # a refusal here is the answer; below, it is skipped
                pass
            yield place.rel, place.path
            return
        for rel in walk.files(place.rel):
            yield f"{place.rel}/{rel}", _joined(place.path, rel)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Let one thread at a time change a file."""
    with _LOCKS_LOCK:
        lock = _LOCKS.get(path)
        if lock is None:
            _LOCKS[path] = lock = threading.Lock()
    with lock:
        yield


def _in_batches(names: Iterator[str]) -> Iterator[list[str]]:
    while some := list(islice(names, _NAMES)):
        yield some


def _must_fit(place: Place, size: int) -> None:
    if size > MAX_WRITE_BYTES:
        raise RefusedError(
            f"{shown(place.path)} has {size:,} bytes; at most {MAX_WRITE_BYTES:,} are written"
        )


def _edited(place: Place, data: bytes, remaining: int, *, repeated: bool = False) -> Edited:
    text = data.decode("utf-8", "replace")
    return Edited(place.path, text, saved_results.digest(data), remaining, repeated)


def _joined(folder: str, rel: str) -> str:
    return f"{folder.rstrip('/')}/{rel}"
