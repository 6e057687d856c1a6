"""Search the lines of files: patterns, walks through folders, a process that can be killed."""

from __future__ import annotations

import atexit
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from wick_graph.backends import search_worker
from wick_graph.backends.guard import OWN_FOLDER
from wick_graph.backends.protocol import (
    GREP_SECONDS,
    MAX_DEPTH,
    MAX_GREP_FILE_BYTES,
    MAX_GREP_LINE_CHARS,
    MAX_GREP_MATCHES,
    MAX_PATTERN_CHARS,
    MAX_REPEATED,
    SKIPPED_DIRS,
    Match,
    Matches,
    Stop,
)
from wick_graph.backends.root import Root
from wick_graph.backends.search_worker import read_at
from wick_graph.errors import ToolError
from wick_graph.machine import at_fork

# --- A model's patterns, as RE2 expressions that a worker process compiles.
#
# Python's own `re` never sees a model's pattern: it backtracks, holds the interpreter's lock
# meanwhile, and cannot be stopped. RE2 takes linear time, but a pattern may expand to a million
# parts: repetition is bounded here, before anything is compiled, and `Worker` can be killed.


_SHOWN_CHARS: Final = 100

_NO_LOOKS: Final = "look-around and back-references are not supported"

_LOOKS: Final = re.compile(r"\(\?(<?[=!]|<$)|invalid escape sequence: \\[1-9]")

_ASCII: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\f\r "}

_RUST_META: Final = frozenset("\\.+*?()|[]{}^$#&-~")

_REPETITION: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for a worker."""

    given: str
    """The model's text; errors show it."""
    text: str
    """The RE2 expression."""
    options: Mapping[str, bool] = field(default_factory=dict)
    """Of RE2."""


def glob_pattern(pattern: str) -> Pattern:
    """Translate a glob that matches a whole relative path, or a name if it has no `/` and no `**`.

    `*` and `?` stay within a component, `**` as a component matches any number of them, `[a-z]`,
    `[!a-z]` and `{a,b}` work as in a shell, a backslash makes the next character literal.

    Raises:
        ToolError: the pattern is not well-formed, or leads out of the directory.
    """
    _must_be_plain(pattern)
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError(
            f"the pattern {_shown(pattern)} leads outside the directory of the search; "
            "write a relative one and give the directory as `path`"
        )
    return Pattern(pattern, _Glob(pattern).translate(), {"dot_nl": True})


def is_by_name(pattern: str) -> bool:
    """Say whether a glob matches names alone."""
    return "/" not in pattern and "**" not in pattern


def line_pattern(pattern: str) -> Pattern:
    """Make a pattern for a search in many lines at once; each match stays within one line.

    Raises:
        ToolError: the pattern is too large, or not valid text.
    """
    _must_be_plain(pattern)
    parts = repeated_parts(pattern)
    if parts > MAX_REPEATED:
        raise ToolError(
            f"the pattern is too large: its repetitions expand to {parts:,} parts, more than "
            f"{MAX_REPEATED:,}; write a shorter one"
        )
    anchored = pattern
    if r"\Q" not in pattern:
        anchored = "".join({r"\A": "^", r"\z": "$"}.get(part, part) for part in _tokens(pattern))
    return Pattern(pattern, f"(?m){anchored}", {"never_nl": True})


def repeated_parts(pattern: str) -> int:
    """Count the parts that a pattern's counted repetitions expand to; nested ones multiply.

    Stops at the first count that is too large.
    """
    total, last, inside = 0, 1, 0
    groups: list[int] = []
    """The parts so far before each open group."""
    here = 0
    for part in _tokens(pattern):
        counted = None if inside else _REPETITION.fullmatch(part)
        if inside:
            inside = 0 if part == "]" and inside > 1 else 1 + (part != "^" or inside > 1)
            continue
        if counted is not None:
            times = max(int(number[:9] or 0) for number in (counted[1], counted[3]))
            here, last = here + last * max(times - 1, 0), last * max(times, 1)
            total = max(total, here + sum(groups))
            if total > MAX_REPEATED:
                return total
        elif part == ")" and groups:
            here, last = here + groups.pop(), max(here, 1)
        elif part.startswith("("):
            groups.append(here)
            here = 0
        elif part not in ("*", "+", "?", "|"):
            here, last = here + 1, 1
            inside = int(part == "[")
    return total


def for_ripgrep(pattern: str) -> str | None:
    """Translate a pattern from RE2 to ripgrep; None if that is impossible.

    In RE2 the classes of digits, letters and spaces are ASCII, in ripgrep Unicode, and the two
    differ in what must be escaped.
    """
    out: list[str] = []
    inside = 0  # state of an open bracket: 1 right after it, 2 later
    ended = False
    for part in _tokens(pattern):
        made = _in_class(part, inside) if inside else _outside(part)
        if made is None or (inside and part == out[-1] == "-"):  # `--` would subtract
            return None
        if inside:
            inside = 0 if part == "]" and inside > 1 else 1 + (part != "^" or inside > 1)
        elif part == "^" and ended:
            return None  # `$` before `^` is an empty line, which ripgrep's fast path misses
        else:
            inside, ended = int(part == "["), ended or part == "$"
        out.append(made)
    return "".join(out)


def _tokens(pattern: str) -> list[str]:
    """Split into escapes, repetitions, named classes, openings of named groups, and characters."""
    return re.findall(
        r"\\[pP]\{[^}]*\}|\\[pP].|\\x\{[^}]*\}|\\x..|\\.|\{\d+(?:,\d*)?\}|\[:\^?\w+:\]"
        r"|\(\?P?<\w+>|.",
        pattern,
        re.DOTALL,
    )


def _outside(part: str) -> str | None:
    if part.startswith("(?<"):
        return f"(?P{part[2:]}"
    if part in ("{", "}", "]"):
        return f"\\{part}"
    if not part.startswith("\\"):
        return part
    letter = part[1]
    if letter.lower() in _ASCII:
        return f"[{'^' if letter.isupper() else ''}{_ASCII[letter.lower()]}]"
    if letter in "bB":
        return f"(?-u:{part})"
    if letter in "Az":
        return "^" if letter == "A" else "$"
    return _escape(part)


def _in_class(part: str, inside: int) -> str | None:
    if part in ("[", "&", "~") or (part == "]" and inside == 1):
        return f"\\{part}"
    if part.startswith("(") or (part.startswith("{") and len(part) > 1):
        return part
    if not part.startswith("\\"):
        return part
    letter = part[1]
    if letter.lower() in _ASCII:
        return f"[^{_ASCII[letter.lower()]}]" if letter.isupper() else _ASCII[letter.lower()]
    return None if letter in "bBAz" else _escape(part)


def _escape(part: str) -> str | None:
    letter = part[1]
    if letter in "pPx" or letter in "aftrv":
        return part
    if letter.isalnum():  # \Q, \C, octal numbers, and \n, which no line contains
        return None
    return part if letter in _RUST_META else letter


class _Glob:
    """Translate a glob, character by character."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._braces = 0

    def translate(self) -> str:
        """Return the RE2 expression."""
        out = []
        while self._at < len(self._text):
            out.append(self._next())
        if self._braces:
            raise self._error("a { is never closed")
        return "".join(out)

    def _next(self) -> str:
        rest = self._text[self._at :]
        starts = self._at == 0 or self._text[self._at - 1] == "/"
        if starts and rest.startswith("**/"):
            self._at += 3
            return "(?:.*/)?"
        if starts and rest == "**":
            self._at += 2
            return ".*"
        char = rest[0]
        self._at += 1
        if char == "*":
            return "[^/]*"
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._bracket()
        if char == "\\":
            return self._literal()
        return self._brace(char) if char in "{}," else re.escape(char)

    def _literal(self) -> str:
        if self._at == len(self._text):
            raise self._error("it ends with a backslash")
        self._at += 1
        return re.escape(self._text[self._at - 1])

    def _brace(self, char: str) -> str:
        if char == "{":
            self._braces += 1
            return "(?:"
        if not self._braces:
            return re.escape(char)
        if char == ",":
            return "|"
        self._braces -= 1
        return ")"

    def _bracket(self) -> str:
        negated = self._text[self._at : self._at + 1] in ("!", "^")
        start = self._at + negated
        end = self._text.find("]", start + 1)
        if end < 0:
            raise self._error("a [ is never closed")
        self._at = end + 1
        body = "".join(
            c if c == "-" or c.isalnum() else re.escape(c) for c in self._text[start:end]
        )
        return f"[{'^/' if negated else ''}{body}]"

    def _error(self, problem: str) -> ToolError:
        return ToolError(f"the pattern {_shown(self._text)} is not a valid glob: {problem}")


def _must_be_plain(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(
            f"the pattern is too large: {len(pattern):,} characters, "
            f"more than {MAX_PATTERN_CHARS:,}; write a shorter one"
        )
    if "\0" in pattern:
        raise ToolError("the pattern has a NUL character, which no text file has")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise ToolError("the pattern has half of a surrogate pair; write valid text") from None


def refused(given: str, reason: str) -> str:
    """Say why RE2 refuses a pattern."""
    if "repetition size" in reason or "too large" in reason or "nest" in reason:
        return f"the pattern is too large: {_cut(reason)}"
    if _LOOKS.search(reason) or (reason.endswith("(?P") and "(?P=" in given):
        return f"{_NO_LOOKS} in the pattern {_shown(given)}; write it without"
    return f"the pattern {_shown(given)} is not valid: {_cut(reason)}"


def _shown(pattern: str) -> str:
    return ascii(_cut(pattern)) if not pattern.isprintable() else f"'{_cut(pattern)}'"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


# --- Walk the files below a directory, in order, within bounds, without following links.


_LOOK_EVERY: Final = 256  # names between two checks of the clock


@dataclass(slots=True)
class Walk:
    """One walk: its limits, and what it skipped."""

    root: Root
    seconds: float
    stop: Stop = field(default_factory=Stop)
    passed: Counter[str] = field(default_factory=Counter)
    """What was skipped, counted by reason."""
    cut: bool = False
    """The walk ended early, or did not enter everything."""
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends = time.monotonic() + self.seconds

    def is_over(self) -> bool:
        """Say whether time is up or the caller no longer waits."""
        if self.stop.is_set() or time.monotonic() > self._ends:
            self.cut = True
            self.passed["time"] = 1
            return True
        return False

    def left(self) -> float:
        """Return the remaining seconds."""
        return max(0.0, self._ends - time.monotonic())

    def files(self, rel: str) -> Iterator[str]:
        """Yield the regular files below a directory as paths relative to it, sorted.

        Raises:
            ToolError: the directory itself cannot be listed.
        """
        pending: list[tuple[str, int]] = [("", 0)]
        seen = 0
        while pending:
            below, depth = pending.pop()
            try:
                names = self.root.names(f"{rel}/{below}" if below else rel)
            except (ToolError, OSError):
                if not below:
                    raise
                self.passed["directories that cannot be read"] += 1
                continue
            deeper: list[tuple[str, int]] = []
            for name, kind in names:
                seen += 1
                if seen % _LOOK_EVERY == 0 and self.is_over():
                    return
                if kind == "file":
                    yield below + name
                elif kind == "dir":
                    self._enter(f"{below}{name}/", name, depth, deeper)
                else:
                    self.passed["symbolic links" if kind == "symlink" else "special files"] += 1
            pending.extend(reversed(deeper))
            if self.is_over():
                return

    def _enter(self, path: str, name: str, depth: int, deeper: list[tuple[str, int]]) -> None:
        if name == OWN_FOLDER:
            return
        if name in SKIPPED_DIRS:
            self.passed["directories such as .git and node_modules"] += 1
        elif depth >= MAX_DEPTH:
            self.passed[f"directories more than {MAX_DEPTH} deep"] += 1
            self.cut = True
        else:
            deeper.append((path, depth + 1))

    def notes(self) -> tuple[str, ...]:
        """Say what was skipped."""
        found = [f"{n:,} {what}" for what, n in self.passed.items() if what != "time"]
        said = [f"not searched: {', '.join(found)}"] if found else []
        if self.passed["time"]:
            said.append(
                f"the search was stopped after {self.seconds:g} s; search a directory below"
            )
        return tuple(said)


# --- A process that matches a model's pattern, and is killed if that takes too long.
#
# RE2's time is proportional to the data, but also to the expanded pattern, and nothing can
# interrupt it. So this process never compiles or matches a model's pattern. After a search, a
# worker waits a while for the next one.


MARGIN_SECONDS: Final = 2
"""Processor time of a worker beyond a search's own."""

_IDLE: Final = 2
"""Workers that wait for a search."""


class _Process:
    """A worker's process, and this end of its socket."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.owner = os.getpid()
        self.since = 0.0
        """When it became idle."""
        with theirs:
            try:
                self.popen = _started(theirs.fileno())
            except BaseException:
                self.socket.close()
                raise

    def kill(self) -> None:
        self.popen.kill()

    def end(self) -> None:
        self.kill()
        self.popen.wait()
        self.socket.close()


class _Waiting:
    """The idle workers; a fork of this process does not use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[_Process] = []

    def take(self) -> _Process:
        while True:
            with self._lock:
                one = self._found.pop() if self._found else None
            if one is None:
                return _Process()
            if one.owner == os.getpid():
                late = time.monotonic() - one.since > search_worker.IDLE_SECONDS / 2
                if not late and one.popen.poll() is None:
                    return one
                one.end()

    def give(self, one: _Process) -> None:
        one.since = time.monotonic()
        with self._lock:
            if len(self._found) < _IDLE:
                self._found.append(one)
                return
        one.end()

    def close(self) -> None:
        with self._lock:
            found, self._found = self._found, []
        for one in found:
            if one.owner == os.getpid():
                one.end()

    def forked(self) -> None:
        self._lock = threading.Lock()
        for one in self._found:
            one.socket.close()  # else the worker would not notice the end of the parent
            one.popen.returncode = 0  # the parent waits for it


_WAITING: Final = _Waiting()

atexit.register(_WAITING.close)

at_fork(after_in_child=_WAITING.forked)


class Worker:
    """Match one pattern, within the time of a walk.

    Raises:
        ToolError: RE2 refuses the pattern, or its compilation takes too long.
    """

    def __init__(self, pattern: Pattern, walk: Walk) -> None:
        self._pattern, self._walk = pattern, walk
        self._process: Final = _WAITING.take()
        self._fine = True
        """Whether the worker can be used again."""
        self._closed = False
        self._ending = threading.Lock()
        walk.stop.then(self._end_early)
        try:
            self._compile()
        except BaseException:
            self.close()
            raise

    def names(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the names that match as a whole; empty if time is up."""
        return self._ask({"names": list(names)}) or []

    def lines(self, fds: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return the file's position, the number and the first byte of each line that matches."""
        found = self._ask({"files": len(fds)}, tuple(fds)) or []
        return [(at, line, start) for at, line, start in found]

    def close(self) -> None:
        """Release the process."""
        with self._ending:
            if self._closed:
                return
            self._closed = True
        if self._fine:
            _WAITING.give(self._process)
        else:
            self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _end_early(self) -> None:
        """Kill the process, if it still works for this search."""
        with self._ending:
            if not self._closed:
                self._fine = False
                self._process.kill()

    def _compile(self) -> None:
        pattern = self._pattern
        answer = self._ask({"compile": pattern.text, "options": dict(pattern.options)})
        if answer is None and not self._walk.stop.is_set():
            raise ToolError("the pattern takes too long to compile; write a simpler one")
        if answer:
            raise ToolError(refused(pattern.given, answer["error"]))

    def _ask(self, message: Any, fds: tuple[int, ...] = ()) -> Any:
        """Return the answer; None if time is up, or the caller no longer waits.

        Raises:
            ToolError: the pattern has killed the worker.
        """
        walk = self._walk
        if walk.is_over():
            return None
        connection, answer = self._process.socket, None
        connection.settimeout(max(walk.left(), 0.001))
        self._fine = False
        try:
            search_worker.send(connection, message, fds)
            answer = search_worker.receive(connection)
        except TimeoutError:
            walk.is_over()
            return None
        except (OSError, ValueError):  # it has ended meanwhile
            pass
        if answer is None:
            if walk.is_over():
                return None
            raise ToolError("the pattern needs too much time or memory; write a simpler one")
        self._fine = not walk.stop.is_set()
        return answer[0]


def _started(number: int) -> subprocess.Popen[bytes]:
    found = find_spec("re2")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).resolve().parent
    folder = folder.parent if found.submodule_search_locations else folder
    limits = (int(GREP_SECONDS) + MARGIN_SECONDS, MAX_GREP_FILE_BYTES, MAX_GREP_MATCHES + 1)
    program = str(Path(search_worker.__file__).resolve())
    return subprocess.Popen(
        [sys.executable, "-I", "-S", program, str(number), str(folder), *map(str, limits)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        pass_fds=(number,),
        start_new_session=True,
    )


# --- Search the lines of files for a pattern: with ripgrep if it is installed, else with RE2.
#
# Both are linear in time, give the same answers, and run in a process that is killed when time is
# up. This process opens the files through a `Root` and passes the descriptors, so no path is looked
# up a second time.


_PEEK_BYTES: Final = 8_192

_BATCH_FILES: Final = 128

_LINE_BYTES: Final = 4 * MAX_GREP_LINE_CHARS

_DESCRIPTORS: Final = "/proc/self/fd"

_OPTIONS: Final = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--no-messages"),
    *("--line-number", "--byte-offset", "--null", "--text", "--encoding=none", "--no-mmap"),
    "--max-columns=1",  # show only the offset of a longer line: this process reads the text
    f"--max-count={MAX_GREP_MATCHES + 1}",
)

Hit = tuple[int, int, int]
"""A file's position in the batch, a line's number, and the byte at which it begins."""


def find_ripgrep(workdir: str) -> str | None:
    """Return the absolute path of `rg`, never one below the working directory."""
    if not Path(_DESCRIPTORS).is_dir():
        return None
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(folder, "rg")
        real = os.path.realpath(candidate)
        inside = real.startswith(f"{os.path.realpath(workdir)}/")
        if folder.startswith("/") and not inside and os.access(real, os.X_OK):
            return real
    return None


def search(
    root: Root, files: Iterable[tuple[str, str]], pattern: str, walk: Walk, ripgrep: str | None
) -> Matches:
    """Return the lines that match.

    Args:
        root: Where the files are.
        files: Pairs of a path below the root and the path to show.
        pattern: In RE2's syntax.
        walk: Bounds the time, and counts what is skipped.
        ripgrep: The program to use.

    Raises:
        ToolError: RE2 refuses the pattern, or the pattern takes too long.
    """
    read = line_pattern(pattern)
    matches: list[Match] = []
    with Worker(read, walk) as worker:  # even if ripgrep searches: RE2 decides what is refused
        rust = for_ripgrep(pattern) if ripgrep else None
        for batch in _batches(root, files, walk, 1 if rust is None else _BATCH_FILES):
            with ExitStack() as closing:
                for fd, _ in batch:
                    closing.callback(os.close, fd)
                fds, hits = [fd for fd, _ in batch], None
                if ripgrep and rust is not None:
                    hits = _by_ripgrep(ripgrep, rust, fds, walk)
                for place, line, start in _by_re2(worker, fds) if hits is None else hits:
                    if len(matches) == MAX_GREP_MATCHES:
                        return Matches(matches, True, walk.notes())
                    fd, name = batch[place]
                    matches.append(Match(name, line, _line_at(fd, start)))
    return Matches(matches, walk.cut, walk.notes())


def _batches(
    root: Root, files: Iterable[tuple[str, str]], walk: Walk, size: int
) -> Iterator[list[tuple[int, str]]]:
    """Open files for reading, in batches for one call of ripgrep."""
    batch: list[tuple[int, str]] = []
    try:
        for rel, name in files:
            fd = _open(root, rel, walk)
            if fd is not None:
                batch.append((fd, name))
            if len(batch) == size:
                full, batch = batch, []
                yield full
            if walk.is_over():
                break
        if batch:
            full, batch = batch, []
            yield full
    finally:
        for fd, _ in batch:
            os.close(fd)


def _open(root: Root, rel: str, walk: Walk) -> int | None:
    """Open a file if it can be searched; count the others."""
    try:
        with root.file(rel) as (fd, status):
            if status.st_size > MAX_GREP_FILE_BYTES:
                walk.passed[f"files of more than {MAX_GREP_FILE_BYTES // 2**20} MiB"] += 1
            elif b"\0" in read_at(fd, 0, _PEEK_BYTES):
                walk.passed["binary files"] += 1
            else:
                return os.dup(fd)
    except (ToolError, OSError):
        walk.passed["files that cannot be read"] += 1
    return None


def _by_re2(worker: Worker, fds: list[int]) -> list[Hit]:
    """Return the worker's hits."""
    return worker.lines(fds)


def _by_ripgrep(program: str, pattern: str, fds: list[int], walk: Walk) -> list[Hit] | None:
    """Return ripgrep's hits, or None if it refuses the pattern after all."""
    places = {f"{_DESCRIPTORS}/{fd}": place for place, fd in enumerate(fds)}
    command = [program, *_OPTIONS, "-e", pattern, "--", *places]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
        pass_fds=fds,
    ) as process:
        walk.stop.then(process.kill)
        try:
            output, _ = process.communicate(timeout=walk.left())
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            walk.is_over()
    if process.returncode == 2 and not output:
        return None
    return sorted(hit for line in output.split(b"\n") if (hit := _hit(line, places)))


def _hit(output: bytes, places: dict[str, int]) -> Hit | None:
    """Parse one line of ripgrep's output: path, NUL, line number, byte offset, and a filler."""
    path, _, rest = output.partition(b"\0")
    line, _, rest = rest.partition(b":")
    start, colon, _ = rest.partition(b":")
    place = places.get(path.decode("ascii", "replace"))
    return (place, int(line), int(start)) if colon and place is not None else None


def _line_at(fd: int, start: int) -> str:
    """Return the line that begins at an offset, cut to the shown length."""
    line, _, _ = read_at(fd, start, _LINE_BYTES).partition(b"\n")
    text = line.decode("utf-8", "replace").rstrip("\r")
    if len(text) <= MAX_GREP_LINE_CHARS:
        return text
    return f"{text[:MAX_GREP_LINE_CHARS]}…"


def make_walk(root: Root, stop: Stop | None) -> Walk:
    """Make the walk of one search."""
    return Walk(root, GREP_SECONDS, stop or Stop())
