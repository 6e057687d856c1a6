"""Whose file is it: decided on the 100 bytes of its header, before SQLite touches it.

SQLite itself would switch a foreign database to WAL, or create an empty one where a file was
lost. A file that this process has open already is not looked at: closing a second descriptor of
it would drop all locks that SQLite holds for this process, and another process could then take
the write-ahead log away from under it.
"""

from __future__ import annotations

import sqlite3
import stat
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final

from wick_graph.errors import StorageError
from wick_graph.store.database.compiling import checksum_of
from wick_graph.store.database.digests import Account
from wick_graph.store.database.schema import SCHEMA_VERSION

APPLICATION_ID: Final = 0x5749434B
_MAGIC: Final = b"SQLite format 3\x00"
_HEADER: Final = 100
_LOOKS: Final = 40
_LOOK_AGAIN: Final = 0.05
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "fuse.rclone"}
)
_MOUNTS: Final = Path("/proc/self/mounts")

Place = tuple[int, int]
"""Device and inode: what tells a file from any other."""

_in_use: Final[dict[Place, set[int]]] = {}
OPENING: Final = threading.RLock()
"""Held while a file is looked at and opened."""


class Connection(sqlite3.Connection):
    """A connection that is counted while its file is open."""

    place: Place | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.account = Account()
        self.create_function("wick_checksum", -1, checksum_of, deterministic=True)

    def claim(self, path: Path) -> None:
        """Count this connection's file as open."""
        place = place_of(path)
        if place is not None:
            _in_use.setdefault(place, set()).add(id(self))
            self.place = place

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._leave()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        place, self.place = self.place, None
        if place is not None:
            _in_use.setdefault(place, set()).discard(id(self))


def place_of(path: Path) -> Place | None:
    """Return what tells a file from any other, None if there is no file.

    Raises:
        StorageError: if the file cannot be looked at.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino


def inspect(path: Path) -> None:
    """Refuse a file that is not ours, or that lies where SQLite cannot lock it.

    Looks again while another process is still making the file.

    Raises:
        StorageError: says what was found and what to do; the file is unchanged.
    """
    kind = file_system(path, _mounts())
    if kind in _REMOTE:
        raise StorageError(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold; "
            "put it on a local disk"
        )
    place = place_of(path)
    if place is not None and _in_use.get(place):
        return None
    for _ in range(_LOOKS):
        try:
            return _inspect(path)
        except StorageError:
            if not path.with_name(path.name + "-journal").exists():
                break
            time.sleep(_LOOK_AGAIN)
    return _inspect(path)


def file_system(path: Path, mounts: str) -> str:
    """Return the kind of file system that a path lies on, by a mount table; empty if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = point == "/" or str(path) == point or str(path).startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _inspect(path: Path) -> None:
    """Refuse a file that is not ours, on its header alone."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise StorageError(f"{path} is {kind}; name a file for the database")
        if status.st_size == 0:
            return
        with path.open("rb") as file:
            head = file.read(_HEADER)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    _judge(path, head, status.st_size)


def _judge(path: Path, head: bytes, size: int) -> None:
    if len(head) < _HEADER or not head.startswith(_MAGIC):
        raise StorageError(
            f"{path} is not a SQLite database, or its beginning is damaged; name another file"
        )
    page = struct.unpack_from(">H", head, 16)[0]
    page = 65_536 if page == 1 else page
    changed, pages = struct.unpack_from(">II", head, 24)
    version, owner = (struct.unpack_from(">I", head, at)[0] for at in (60, 68))
    valid_for = struct.unpack_from(">I", head, 92)[0]
    if owner != APPLICATION_ID:
        raise StorageError(
            f"{path} belongs to another program (application id {owner:#010x}); name another file"
        )
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{path} was written by a newer wick_graph (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade wick_graph"
        )
    if version < 1 or page < 512 or page & (page - 1):
        raise StorageError(f"{path} is damaged: its header makes no sense; restore a backup")
    if changed == valid_for and size < pages * page:
        raise StorageError(
            f"{path} is damaged: it has {size} of {pages * page} bytes; restore a backup"
        )
