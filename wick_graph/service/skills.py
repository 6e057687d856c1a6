"""Skills that a tenant uploads: checked as untrusted input, and kept where no agent writes."""

from __future__ import annotations

import base64
import ctypes
import os
import re
import shutil
import stat
import struct
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from wick_graph.config.yaml_reader import read_yaml
from wick_graph.errors import ConfigError
from wick_graph.hooks import prompt_files
from wick_graph.hooks.skills import FILE, MAX_DESCRIPTION
from wick_graph.service.options import Problem, log

MOST_SKILLS: Final = 100
"""Skills of one tenant."""

MOST_FILES: Final = 200
"""Files of one skill, and folders of its archive."""

FILE_BYTES: Final = 2**20

SKILL_BYTES: Final = 2 * 2**20
"""Bytes of all files of a skill together."""

RATIO: Final = 100
"""How many times larger than its packed form a file may be."""

NAME: Final = "[a-z0-9][a-z0-9_-]{0,62}"
"""The pattern of a skill's name; no two names are one folder on any file system."""

_PART: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_. -]{0,98}[A-Za-z0-9_-])?")
"""A name without roots, `.`, `..`, hidden names, and letters that file systems confuse."""

_PARTS: Final = 8

_LEFT: Final = 3600
"""Seconds after which a folder of an upload was left by a process that is gone."""

_DEVICE: Final = re.compile(r"(con|prn|aux|nul|conin|conout|clock|(com|lpt)[0-9])(\..*)?", re.I)
"""Names that are devices on Windows, with any ending."""

_FREE: Final = 64 * 1024
"""Bytes of a file for which the ratio does not count."""

_NO_ARCHIVE: Final = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, RuntimeError, LookupError, OverflowError),
)

Files = Mapping[str, bytes]


# --- The check of what is uploaded.


def checked(name: str, files: Files) -> str:
    """Check the files of a skill; return its description.

    Raises:
        Problem: 400; the text names the file and what is wrong with it.
    """
    if _DEVICE.fullmatch(name):
        raise Problem(400, f"name: {name!r} is a device on some systems; take another name")
    if len(files) > MOST_FILES:
        raise Problem(400, f"the skill has more than {MOST_FILES} files; leave some out")
    _check_paths(files)
    for path, data in files.items():
        if len(data) > FILE_BYTES:
            raise _refused(path, f"is larger than {FILE_BYTES} bytes")
    if sum(map(len, files.values())) > SKILL_BYTES:
        raise Problem(400, f"the skill is larger than {SKILL_BYTES} bytes; leave some files out")
    for path in files:
        if path.endswith(f"/{FILE}"):
            raise _refused(path, "is another skill, with a name of its own; upload it by that name")
    if FILE not in files:
        raise Problem(400, f"{FILE} is missing; it holds the name, description and instructions")
    return _description(name, files[FILE])


def _check_paths(files: Files) -> None:
    """Refuse paths that lead elsewhere, or that are one path on some file system."""
    known: dict[str, str] = {}
    for path in files:
        _check_path(path)
        if known.setdefault(path.lower(), path) != path:
            raise _refused(path, f"has the same name as {known[path.lower()]}; rename one")
    for path in files:
        above = path.lower()
        while above := above.rpartition("/")[0]:
            if above in known:
                raise _refused(path, f"lies in {known[above]}, which is a file; rename one")


def _check_path(path: str) -> None:
    parts = path.split("/")
    plain = len(parts) <= _PARTS and all(map(_PART.fullmatch, parts))
    if not plain:
        raise _refused(
            path,
            "is not a plain path; write names of letters, digits, '_', '-', '.' and spaces, "
            f"at most {_PARTS} deep",
        )
    if any(map(_DEVICE.fullmatch, parts)):
        raise _refused(path, "is a device on some systems; rename it")


def _description(name: str, data: bytes) -> str:
    """Check the front matter; return the description.

    Raises:
        Problem: It is missing or wrong.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(400, f"{FILE}: is not UTF-8") from None
    block = prompt_files.split(text)
    if block is None or len(block.encode()) > prompt_files.MAX_BYTES // 2:
        raise Problem(
            400, f"{FILE}: has no front matter; begin it with ---, name:, description:, and ---"
        )
    try:
        found: Any = read_yaml(f"\n{block}", FILE).data  # errors name the line of the file
    except ConfigError as error:
        raise Problem(400, str(error).splitlines()[0][:300]) from None
    if not isinstance(found, dict):
        raise Problem(400, f"{FILE}: the front matter is no mapping; write name: and description:")
    if found.get("name") != name:
        raise Problem(400, f"{FILE}: name: is not {name}; write the name that the address has")
    said = found.get("description")
    if not isinstance(said, str) or not said.strip() or len(said) > MAX_DESCRIPTION:
        raise Problem(
            400,
            f"{FILE}: description: must be a text of 1 to {MAX_DESCRIPTION} characters that says "
            "when to use the skill",
        )
    return said


def _refused(path: str, why: str) -> Problem:
    return Problem(400, f"{path!a:.120} {why}")


def unpacked(packed: str) -> dict[str, bytes]:
    """Return the files of a zip archive in base64; a single folder around all of them is dropped.

    Raises:
        Problem: 400; it is none, or holds too much, a link, or a path that is refused.
    """
    try:
        data = base64.b64decode(packed, validate=True)
    except ValueError:
        raise Problem(400, "archive: is not base64") from None
    if data.count(b"PK\x01\x02") > 2 * MOST_FILES:  # before each entry costs memory
        raise Problem(400, f"archive: has more than {MOST_FILES} files; leave some out")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            files = _members(archive)
    except _NO_ARCHIVE:
        raise Problem(400, "archive: is no zip archive, or is damaged; pack it again") from None
    tops = {path.partition("/")[0] for path in files}
    if len(tops) == 1 and FILE not in files:
        files = {path.partition("/")[2] or path: data for path, data in files.items()}
    return files


def _members(archive: zipfile.ZipFile) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    size = 0
    for info in archive.infolist():
        path = info.orig_filename  # `filename` is cut at a NUL
        _check_path(path.removesuffix("/"))
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refused(path, "is a link or no regular file; put the file itself into it")
        if path.endswith("/"):
            continue
        if path in files:
            raise _refused(path, "is in the archive twice; pack it again")
        if info.flag_bits & 1 or info.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise _refused(path, "is encrypted or packed in another way; use deflate")
        if info.file_size > max(_FREE, RATIO * info.compress_size):
            raise _refused(path, f"is packed more than {RATIO} times; pack it less")
        size += info.file_size
        if info.file_size > FILE_BYTES or size > SKILL_BYTES or len(files) >= MOST_FILES:
            raise Problem(
                400,
                f"archive: holds more than {MOST_FILES} files, {FILE_BYTES} bytes in one or "
                f"{SKILL_BYTES} bytes in all; leave some out",
            )
        with archive.open(info) as file:
            files[path] = file.read(FILE_BYTES + 1)
    return files


# --- The folder of a tenant's skills.


class UploadedSkills:
    """The skills that one tenant has uploaded.

    Args:
        folder: Where they are; agents read it, and none of them writes it.
        protect: Called when the folder exists: closes it to the tools and commands of all agents.
    """

    def __init__(self, folder: Path, protect: Callable[[], None]) -> None:
        self.folder: Final = folder
        self._protect: Final = protect
        self._lock: Final = threading.Lock()

    def open(self) -> None:
        """Make the folder, close it to agents, and remove what killed servers have left.

        Raises:
            Problem: It cannot be made, or an agent's commands could write it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.error("no folder for uploaded skills can be made: %s", error)
            raise Problem(503, "the server has no place for skills; its log says why") from None
        try:
            self._protect()
        except ConfigError as error:
            log.error("uploaded skills cannot be kept from agents: %s", error)
            for one in (self.folder, self.folder.parent, self.folder.parent.parent):
                with suppress(OSError):  # others are in it
                    one.rmdir()
            raise Problem(
                409, "an agent of the server could change uploaded skills; its log says which"
            ) from None
        for left in (*self.folder.parent.glob(".new-*"), *self.folder.parent.glob(".old-*")):
            with suppress(OSError):  # another server may remove it too
                if left.stat().st_mtime < time.time() - _LEFT:
                    shutil.rmtree(left, ignore_errors=True)

    @property
    def has_any(self) -> bool:
        """Whether there is a place of skills of any tenant."""
        with suppress(OSError):
            return any(self.folder.parent.iterdir())
        return False

    def names(self) -> list[str]:
        """List the names of the skills."""
        with suppress(OSError):
            found = sorted(one.name for one in self.folder.iterdir() if one.is_dir())
            return [name for name in found if re.fullmatch(NAME, name)]
        return []

    def read(self, name: str) -> dict[str, bytes]:
        """Return the files of a skill.

        Raises:
            Problem: There is no such skill.
        """
        top, files = self.folder / name, dict[str, bytes]()
        with self._lock, suppress(OSError):  # another server may remove it meanwhile
            found = sorted(one for one in top.rglob("*") if one.is_file() and not one.is_symlink())
            files = {one.relative_to(top).as_posix(): one.read_bytes() for one in found}
        if FILE not in files:
            raise Problem(404, "skill not found")
        return files

    def put(self, name: str, files: Files) -> bool:
        """Store a skill that was checked, all of it or nothing; return whether it is new.

        Raises:
            Problem: There are too many, or it cannot be stored.
        """
        with self._lock:
            self.open()
            known = self.names()
            if name not in known and len(known) >= MOST_SKILLS:
                raise Problem(409, f"there are {MOST_SKILLS} skills; delete one first")
            staged = None
            try:
                staged = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder.parent))
                _write(staged / "new", files)
                _replace(self.folder / name, staged)
            except OSError as error:
                raise _unwritten(error) from None
            finally:
                if staged is not None:
                    shutil.rmtree(staged, ignore_errors=True)
        return name not in known

    def remove(self, name: str) -> None:
        """Delete a skill.

        Raises:
            Problem: There is no such skill, or it cannot be deleted.
        """
        with self._lock:
            if name not in self.names():
                raise Problem(404, "skill not found")
            try:
                staged = Path(tempfile.mkdtemp(prefix=".old-", dir=self.folder.parent))
                (self.folder / name).rename(staged / "old")
            except OSError as error:
                raise _unwritten(error) from None
            shutil.rmtree(staged, ignore_errors=True)


def _write(top: Path, files: Files) -> None:
    """Write files that no command can execute; containers run as another user and read them."""
    for path, data in files.items():
        target = top / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o644)
    for folder, _, _ in os.walk(top):
        Path(folder).chmod(0o755)


def _replace(place: Path, staged: Path) -> None:
    """Put the new folder in place of the old one; a failure puts the old one back."""
    if place.exists() and _exchanged(staged / "new", place):
        return
    old = staged / "old"
    if place.exists():
        place.rename(old)
    try:
        (staged / "new").rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders at once, so that an agent never misses a skill; False if it cannot."""
    try:
        exchange = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old libc
        return False
    done: int = exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return done == 0


_HERE: Final = -100
"""AT_FDCWD of Linux."""

_EXCHANGE: Final = 2
"""RENAME_EXCHANGE of Linux."""


def _unwritten(error: OSError) -> Problem:
    log.error("a skill cannot be stored: %s", error)
    return Problem(503, "the skill cannot be stored; the server's log says why")
