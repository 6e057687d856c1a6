"""Search the lines of files for a pattern: by ripgrep where it is installed, else by RE2.

Both are linear in time, give the same answers, and run in a process that is killed when time is
up. Files are opened through a `Root` here, and the process is given the open descriptors, so no
path is looked up a second time.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from wick_graph.backends.limits import (
    GREP_SECONDS,
    MAX_GREP_FILE_BYTES,
    MAX_GREP_LINE_CHARS,
    MAX_GREP_MATCHES,
)
from wick_graph.backends.patterns import for_ripgrep, line_pattern
from wick_graph.backends.protocol import Match, Matches, Stop
from wick_graph.backends.root import Root
from wick_graph.backends.search_worker import read_at
from wick_graph.backends.walk import Walk
from wick_graph.backends.worker import Worker
from wick_graph.errors import ToolError

_PEEK_BYTES: Final = 8_192
_BATCH_FILES: Final = 128
_LINE_BYTES: Final = 4 * MAX_GREP_LINE_CHARS
_DESCRIPTORS: Final = "/proc/self/fd"
_OPTIONS: Final = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--no-messages"),
    *("--line-number", "--byte-offset", "--null", "--text", "--encoding=none", "--no-mmap"),
    "--max-columns=1",  # of a longer line only the place is told: the text is read from our side
    f"--max-count={MAX_GREP_MATCHES + 1}",
)

Hit = tuple[int, int, int]
"""A file's place in the batch, a line's number, and the byte at which it begins."""


def find_ripgrep(workdir: str) -> str | None:
    """Return the absolute path of `rg`, never one from below the working directory."""
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
        files: Pairs of a path below the root and the path that is shown.
        pattern: In RE2's dialect.
        walk: Bounds the time, and counts what is passed over.
        ripgrep: The program to use.

    Raises:
        ToolError: The pattern cannot be searched for.
    """
    read = line_pattern(pattern)
    matches: list[Match] = []
    with Worker(read, walk) as worker:  # also where ripgrep searches: it says what is refused
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
    """Open files for reading, as many at once as one call of ripgrep is given."""
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
    """Open a file that is worth searching; count the others."""
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
    """Return the hits that the worker finds."""
    return worker.lines(fds)


def _by_ripgrep(program: str, pattern: str, fds: list[int], walk: Walk) -> list[Hit] | None:
    """Return the hits, or None if ripgrep does not take the pattern after all."""
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
    """Read one line of ripgrep's: path, NUL, line number, byte offset, and what is left out."""
    path, _, rest = output.partition(b"\0")
    line, _, rest = rest.partition(b":")
    start, colon, _ = rest.partition(b":")
    place = places.get(path.decode("ascii", "replace"))
    return (place, int(line), int(start)) if colon and place is not None else None


def _line_at(fd: int, start: int) -> str:
    """Return the line that begins there, cut to what is shown."""
    line, _, _ = read_at(fd, start, _LINE_BYTES).partition(b"\n")
    text = line.decode("utf-8", "replace").rstrip("\r")
    if len(text) <= MAX_GREP_LINE_CHARS:
        return text
    return f"{text[:MAX_GREP_LINE_CHARS]}…"


def make_walk(root: Root, stop: Stop | None) -> Walk:
    """Make the walk of one search."""
    return Walk(root, GREP_SECONDS, stop or Stop())
