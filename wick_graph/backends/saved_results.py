"""The backend's own folder for long results and notes; edits of a file's text."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from wick_graph.backends.guard import OWN_FOLDER
from wick_graph.backends.protocol import MAX_KEPT_BYTES, MAX_KEPT_FILES
from wick_graph.backends.root import Root
from wick_graph.errors import ToolError

# --- The backend's own folder: whole results that were too long, and notes about edits.
#
# No program runs or obeys anything in it. The oldest files are removed, so it stays bounded.


RESULTS: Final = f"{OWN_FOLDER}/results"

EDITS: Final = f"{OWN_FOLDER}/edits"

_MAX_NOTES: Final = 500

_NOTE_BYTES: Final = 10_000

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")

_NAME_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Note:
    """What one call of `edit` does to a file, recorded before it does it."""

    path: str
    before: str
    """Digest of the file without the edit."""
    after: str


def keep_result(root: Root, name: str, data: bytes) -> str:
    """Save a result; return its path below the root."""
    rel = new_result(root, name, len(data))
    root.replace(rel, data)
    return rel


def new_result(root: Root, name: str, size: int = 0) -> str:
    """Make room for a result; return its path below the root."""
    _ignore(root)
    _prune(root, RESULTS, MAX_KEPT_FILES, MAX_KEPT_BYTES - size)
    return f"{RESULTS}/{_UNSAFE.sub('-', name).strip('.-')[-_NAME_CHARS:] or 'result'}"


def digest(data: bytes) -> str:
    """Return the hash of a content."""
    return hashlib.sha256(data).hexdigest()[:32]


def write_note(root: Root, key: str, note: Note) -> None:
    """Record what a call is about to do."""
    _ignore(root)
    _prune(root, EDITS, _MAX_NOTES)
    root.replace(_file_of(key), json.dumps(asdict(note)).encode())


def read_note(root: Root, key: str) -> Note | None:
    """Return a call's record; None if it has none."""
    try:
        found = json.loads(root.read_bytes(_file_of(key), _NOTE_BYTES))
        return Note(str(found["path"]), str(found["before"]), str(found["after"]))
    except (ToolError, OSError, ValueError, KeyError, TypeError):
        return None


def _file_of(key: str) -> str:
    return f"{EDITS}/{digest(key.encode('utf-8', 'replace'))}.json"


def _ignore(root: Root) -> None:
    """Keep the folder out of version control."""
    rel = f"{OWN_FOLDER}/.gitignore"
    try:
        root.stat(rel)
    except ToolError:
        root.replace(rel, b"*\n")


def _prune(root: Root, folder: str, files: int, size: int | None = None) -> None:
    """Remove the oldest files until there is room for one more, in number and in bytes."""
    try:
        names = [name for name, kind in root.names(folder) if kind == "file"]
    except (ToolError, OSError):  # not made yet
        return
    if size is None and len(names) < files:
        return
    found = []
    for name in names:
        with suppress(ToolError):
            status = root.stat(f"{folder}/{name}")
            found.append((status.st_mtime_ns, status.st_size, name))
    total = sum(one[1] for one in found)
    for count, (_, length, name) in enumerate(sorted(found)):
        if len(found) - count < files and (size is None or total <= size):
            return
        root.remove(f"{folder}/{name}")
        total -= length


# --- Replace a text in a file's bytes, and touch nothing else.


NOT_FOUND = "old_text not found in file"


def replace_first(data: bytes, old: str, new: str, unique: bool) -> tuple[bytes, int]:
    """Replace the first occurrence; return the new content and how many more there are.

    A text of several lines also matches lines that end with CR LF; the new text then gets CR LF
    too.

    Raises:
        ToolError: the text is not there, or is there more than once with `unique`.
    """
    wanted, put = _encoded(old), _encoded(new)
    at = data.find(wanted)
    if at < 0 and b"\n" in wanted and b"\r\n" in data:
        wanted, put = _with_crlf(wanted), _with_crlf(put)
        at = data.find(wanted)
    if at < 0:
        raise ToolError(NOT_FOUND)
    if unique and data.find(wanted, at + 1) >= 0:
        raise ToolError("old_text is in the file more than once; give more of the text around it")
    rest = data[at + len(wanted) :]
    return data[:at] + put + rest, rest.count(wanted)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("the text has half of a surrogate pair; write valid text") from None


def _with_crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
