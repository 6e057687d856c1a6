"""The backend that works on this machine's own files, and runs commands only if it is told to."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, Literal, Self
from weakref import WeakValueDictionary

from wick_graph.backends import keep, search
from wick_graph.backends.beneath import Mechanism
from wick_graph.backends.commands import Commands, must_be_seconds, spool_into
from wick_graph.backends.editing import replace_first
from wick_graph.backends.guard import Rules
from wick_graph.backends.limits import (
    COMMAND_SECONDS,
    GLOB_SECONDS,
    MAX_GLOB_FILES,
    MAX_WRITE_BYTES,
)
from wick_graph.backends.names import shown
from wick_graph.backends.patterns import glob_pattern, is_by_name
from wick_graph.backends.places import ExtraRoot, Place, Places
from wick_graph.backends.protocol import (
    Edited,
    Executed,
    Found,
    Listing,
    Matches,
    Stop,
    Text,
    Written,
)
from wick_graph.backends.search_worker import read_at
from wick_graph.backends.walk import Walk
from wick_graph.backends.window import read_window
from wick_graph.backends.worker import Worker
from wick_graph.errors import RefusedError, ToolError
from wick_graph.sandbox import Setting

NO_EXECUTE: Final = (
    "execute is not available: a local backend runs commands only where it is told to, by "
    "execute='auto' in a sandbox, or by execute='local', which is none"
)
_NAMES: Final = 500
"""That a worker is asked about at once."""
_LOCKS: Final[WeakValueDictionary[str, threading.Lock]] = WeakValueDictionary()
"""One for each path that is being written in this process; all backends share them."""
_LOCKS_LOCK: Final = threading.Lock()


class LocalBackend:
    """Files below a working directory, and below extra roots beside it.

    Args:
        workdir: The directory; it must exist.
        execute: The sandbox level of commands (`bwrap`, `landlock`, or `local`, which is none);
            `auto` for the strongest that works here, and no commands if none does; `require` for
            the same and an error if none does. None: no commands.
        readable: Folders outside that confined commands can read too, such as a toolchain.
        extra_roots: Folders and files elsewhere that tools may reach, such as skills (read-only)
            and memory files (writable). They count also where they lie inside the directory.
        timeout: Seconds that a command may take if the call does not say.
        rules: What tools leave alone, beside what other programs run or obey later.
        symlinks: `deny`, or `inside` to read through relative links that stay below the root.
        mechanism: How paths are confined; see `Root`.
        ripgrep: Search by `rg` where it is installed.

    Raises:
        ConfigError: A directory cannot be opened, or an argument is out of range.
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
        """Read a file from a line (counted from 1, behind `byte`), as far as one answer goes."""
        place = self._places.find(path)
        with place.root.file(place.rel) as (fd, status):
            window = read_window(fd, status.st_size, line, lines, byte)
            digest = ""
            if window.whole is not None:
                digest = keep.digest(window.whole)
            elif status.st_size <= MAX_WRITE_BYTES:
                digest = keep.digest(read_at(fd, 0, status.st_size))
        return Text(place.path, window.text, status.st_size, digest, window.notes)

    def asks(self, path: str) -> str:
        """Say why a person must allow a change of this file; empty if nobody need."""
        place = self._places.find(path)
        return "" if place.refusal() else place.asks()

    def write(self, path: str, data: bytes, *, allowed: bool = False) -> Written:
        """Replace a file atomically, or create it and the directories above it."""
        place = self._places.find(path)
        place.must_be_writable(allowed=allowed)
        _must_fit(place, len(data))
        with _locked(place.path):
            place.root.replace(place.rel, data)
        return Written(place.path, len(data), keep.digest(data))

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
            raise ToolError("old_text and new_text are the same; there is nothing to change")
        work = self._places.work
        with _locked(place.path):
            with place.root.file(place.rel) as (fd, status):
                _must_fit(place, status.st_size)
                data = read_at(fd, 0, status.st_size)
            before = keep.digest(data)
            note = keep.read_note(work, key) if key else None
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
                keep.write_note(work, key, keep.Note(place.path, before, keep.digest(changed)))
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
        """Find lines, by a regular expression in RE2's dialect, in a file or below a directory."""
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
        """Run a shell command in the working directory; nothing of it is left when this returns."""
        if self._commands is None:
            raise RefusedError(NO_EXECUTE)
        spool = spool_into(self._places.work, self.workdir, name)
        return self._commands.run(command, timeout=timeout, spool=spool, stop=stop)

    def keep(self, name: str, data: bytes) -> str:
        """Keep a whole result in a file of the backend's own; return the path to read it by."""
        return f"{self.workdir}/{keep.keep_result(self._places.work, name, data)}"

    def keep_from(self, rules: Rules) -> None:
        """Let more files and folders govern agents, from now on.

        Raises:
            ConfigError: Commands could change them, at a level that cannot show them read-only.
        """
        self._places.guard.keep_from(rules)
        if self._commands is not None:
            self._commands.check()

    def close(self) -> None:
        """Give the directories' descriptors back."""
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
        """Yield what a search looks at: the file itself, or the files below the directory."""
        root = place.root
        if not stat.S_ISDIR(root.stat(place.rel).st_mode):
            with root.file(place.rel):  # refused here, it is an answer; below, it is passed over
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
    return Edited(place.path, text, keep.digest(data), remaining, repeated)


def _joined(folder: str, rel: str) -> str:
    return f"{folder.rstrip('/')}/{rel}"
