"""The keys of an encrypted store: where they come from, and what each is called.

A key is 32 random bytes, written as base64, one a line; the first is the current one, with which
everything new is encrypted, and the others still open what was encrypted with them. What a key is
called is made of the key itself, so no file can name one wrongly.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from wick_graph.errors import StorageError

KEY_BYTES: Final = 32
ID_BYTES: Final = 4
_OTHERS: Final = 0o077
_LARGEST: Final = 65_536
"""Bytes that a file of keys may have."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAKE: Final = "make one with `wick store key`"


class Keys:
    """One key or several, of which the first is the current one; `repr` shows ids alone."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        """Take keys of 32 random bytes each.

        Raises:
            StorageError: there is none, one is no such key, or two are the same.
        """
        made: dict[bytes, bytes] = {}
        for key in keys:
            _check(key)
            if id_of(key) in made:
                raise StorageError("the store's keys hold one key twice; keep one")
            made[id_of(key)] = key
        if not made:
            raise StorageError(f"the store's keys are empty; {_MAKE}")
        self.by_id: Mapping[bytes, bytes] = MappingProxyType(made)
        self.current: bytes = next(iter(made))
        """The id of the key with which everything new is encrypted."""

    @classmethod
    def of(cls, source: Keys | str) -> Keys:
        """Return the keys that `file:PATH` or `env:NAME` means.

        Raises:
            StorageError: they cannot be read, or are none; no error ever quotes a key.
        """
        if isinstance(source, Keys):
            return source
        kind, _, name = source.partition(":")
        if kind == "file" and name:
            return cls.from_file(name)
        if kind == "env" and name:
            return cls.from_environment(name)
        raise StorageError("the store's keys are named as file:PATH or env:NAME")

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file that nobody but its owner may read (mode 0600 or less).

        Raises:
            StorageError: as `of`, or others may read the file.
        """
        file = Path(path)
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise StorageError(f"the file of keys {file} is no regular file")
                if os.name == "posix" and status.st_mode & _OTHERS:
                    mode = stat.S_IMODE(status.st_mode)
                    raise StorageError(
                        f"the file of keys {file} may be used by others (mode {mode:04o}); "
                        f"say chmod 600 {file}, and think of its keys as known"
                    )
                data = opened.read(_LARGEST + 1)
        except OSError as error:
            raise StorageError(
                f"the file of keys {file} cannot be read: {error.strerror}; {_MAKE}"
            ) from None
        if len(data) > _LARGEST:
            raise StorageError(f"the file of keys {file} is too large to be one")
        return cls(_parsed(data.decode("utf-8", "replace"), f"the file of keys {file}"))

    @classmethod
    def from_environment(cls, name: str) -> Self:
        """Read an environment variable.

        Raises:
            StorageError: as `of`.
        """
        if not _NAME.fullmatch(name):
            raise StorageError(
                "the store's keys are named as env:NAME, with the name of a variable, not its value"
            )
        text = os.environ.get(name)
        if not text:
            raise StorageError(
                f"the environment variable {name} is not set, and the store's keys are to stand "
                f"there; {_MAKE}"
            )
        return cls(_parsed(text, f"the environment variable {name}"))

    @property
    def ids(self) -> tuple[str, ...]:
        """What the keys are called, the current one first."""
        return tuple(key.hex() for key in self.by_id)

    def __repr__(self) -> str:
        return f"Keys({', '.join(self.ids)})"

    def __reduce__(self) -> str:
        raise TypeError("keys stay in the process that read them")


def id_of(key: bytes) -> bytes:
    """Return what a key is called: it stands in each row, and tells nothing of the key."""
    return hmac.digest(key, b"wick_graph key id", "sha256")[:ID_BYTES]


def new_key() -> str:
    """Make a key, as it is written down."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")


def add_key(path: str | Path) -> None:
    """Put a new key before those of a file, or into a new one that only its owner can read.

    Raises:
        StorageError: the file cannot be written, or is no file of keys.
    """
    file = Path(path)
    rest = b""
    if file.exists():
        Keys.from_file(file)
        rest = file.read_bytes()
    made = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(new_key().encode("ascii") + b"\n" + rest)
            opened.flush()
            os.fsync(opened.fileno())
        made.replace(file)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise StorageError(f"the file of keys {file} cannot be written: {error.strerror}") from None


def _parsed(text: str, where: str) -> Iterable[bytes]:
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("#")[0].replace(",", " ").split():
            try:
                key = base64.b64decode(word, validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if len(key) != KEY_BYTES:
                raise StorageError(
                    f"{where} holds no key in line {number}: a key is {KEY_BYTES} random bytes as "
                    f"base64, and no passphrase; {_MAKE}"
                )
            yield key


def _check(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise StorageError(f"a key of the store has {KEY_BYTES} bytes; {_MAKE}")
    if len(set(key)) < KEY_BYTES // 4 or all(32 <= byte < 127 for byte in key):
        raise StorageError(f"a key of the store is text or a pattern, not random bytes; {_MAKE}")
