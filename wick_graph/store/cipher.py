"""Encrypted rows: AES-256-GCM, with a key of its own for each thread.

A row is a version byte, the id of its key, a random nonce, and the ciphertext with its tag. The tag
also covers the place of the row: its table and its own keys. The key binds it to the thread: it is
derived from the store's key, the store's salt, and the thread's number, tenant and id. So no row
fits another place, another thread or another store, and no thread fits another name.

The store's own row holds the salt, and a secret that covers the hashes in columns of their own:
without it, an attacker cannot test whether a guessed text is there. Both stay the same when the
keys change, so hashes never change.
"""

from __future__ import annotations

import os
from typing import Any, Final

import ormsgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wick_graph.errors import StorageError
from wick_graph.store import row_format
from wick_graph.store.encryption import ID_BYTES, KEY_BYTES, NOBODY, Keys
from wick_graph.store.row_format import Seals

VERSION: Final = b"\x01"

_NONCE: Final = 12

_TAG: Final = 16

_SALT: Final = 16

_HEAD: Final = 1 + ID_BYTES

_START: Final = _HEAD + _NONCE

_LEAST: Final = _START + _TAG

_KEPT: Final = 512
"""The most threads with keys in memory."""

_TABLE_OF: Final[dict[row_format.Context, str]] = {
    **dict.fromkeys(("title", "last_error"), "threads"),
    "vectors": "memories",
}
"""The tables of the columns that are not named after theirs."""

_STORE: Final = b"wick_graph store"

_THREAD: Final = b"wick_graph thread"

_HASHES: Final = b"wick_graph hashes"


def key_of(sealed: bytes) -> bytes:
    """Return the id of the key that a row is encrypted with."""
    return sealed[1:_HEAD]


def new_mark(keys: Keys, old: Encrypted | None = None) -> bytes:
    """Make the row that marks a store as encrypted, under the current key.

    With `old`, keep the salt and the secret of that store, and change only the key.
    """
    salt, secret = (os.urandom(_SALT), os.urandom(KEY_BYTES)) if old is None else old.kept
    head = VERSION + keys.current + salt
    nonce = os.urandom(_NONCE)
    cipher = AESGCM(_derived(keys.by_id[keys.current], salt, _STORE))
    return head + nonce + cipher.encrypt(nonce, secret, _STORE + head)


class Encrypted:
    """A store with encrypted rows."""

    def __init__(self, mark: bytes, keys: Keys, name: str) -> None:
        """Open a store's own row.

        Raises:
            StorageError: No key fits it, or it was tampered with.
        """
        self.keys: Keys | None = keys
        self._keys = keys
        head, rest = mark[: _HEAD + _SALT], mark[_HEAD + _SALT :]
        key = _found(keys, mark, name, len(head) + _NONCE + _TAG)
        salt = head[_HEAD:]
        try:
            cipher = AESGCM(_derived(key, salt, _STORE))
            secret = cipher.decrypt(rest[:_NONCE], rest[_NONCE:], _STORE + head)
        except InvalidTag:
            raise StorageError(
                f"{name} is damaged or was tampered with: the row that says how it is encrypted "
                "does not fit its key; restore a backup"
            ) from None
        self.kept = salt, secret
        """The store's salt and secret, which stay the same when the keys change."""
        self._threads: dict[tuple[int, bytes, bytes], Seals] = {}

    def of(self, thread: int, tenant: bytes, key: bytes) -> Seals:
        """Return how the rows of a thread are sealed and opened."""
        name = thread, tenant, key
        seals = self._threads.get(name)
        if seals is None:
            if len(self._threads) >= _KEPT:
                self._threads.clear()
            own = _Thread(self._keys, *self.kept, ormsgpack.packb(name))
            seals = Seals(own.seal, own.unseal, own.unseal, own.mark, own.unmark, True)
            self._threads[name] = seals
        return seals

    @property
    def _texts(self) -> Seals:
        return self.of(NOBODY, b"", b"")

    def close(self, data: bytes, *context: row_format.Context) -> bytes:
        """Encrypt a column of `threads` or of a table of no thread."""
        return self._texts.seal(data, *context)

    def open(self, data: bytes, *context: row_format.Context) -> bytes:
        """Undo `close`."""
        table = _TABLE_OF.get(context[-1], context[-1])
        return self._texts.unseal(data, f"table {table!s}", *context)


class _Thread:
    """The keys of one thread."""

    def __init__(self, keys: Keys, salt: bytes, secret: bytes, name: bytes) -> None:
        self._keys = keys
        self._ciphers = {
            kid: AESGCM(_derived(key, salt, _THREAD + name)) for kid, key in keys.by_id.items()
        }
        self._current = self._ciphers[keys.current]
        self._head = VERSION + keys.current
        # One block under its own key is a permutation: a copy can be uncovered and covered again.
        self._hashes = Cipher(AES(_derived(secret, salt, _HASHES + name)), ECB())

    def seal(self, payload: bytes, *context: row_format.Context) -> bytes:
        if (why := row_format.too_large(payload)) is not None:
            raise StorageError(why)
        nonce = os.urandom(_NONCE)
        bound = self._head + ormsgpack.packb(context)
        return self._head + nonce + self._current.encrypt(nonce, payload, bound)

    def unseal(self, body: bytes, what: str, *context: row_format.Context) -> bytes:
        if type(body) is not bytes:
            raise StorageError(f"{what} is damaged: a row has no body; restore a backup")
        head = body[:_HEAD]
        cipher = self._ciphers.get(head[1:])
        if cipher is not None and head[:1] == VERSION and len(body) >= _LEAST:
            bound = head + ormsgpack.packb(context)
            try:
                return cipher.decrypt(body[_HEAD:_START], body[_START:], bound)
            except InvalidTag:
                pass
        raise self._refused(body, what, context)

    def mark(self, hashed: bytes) -> bytes:
        return self._hashes.encryptor().update(hashed)

    def unmark(self, marked: bytes) -> bytes:
        return self._hashes.decryptor().update(marked)

    def _refused(self, body: bytes, what: str, context: Any) -> StorageError:
        """Return the error for a row that cannot be opened."""
        try:
            row_format.unseal(body, what, *context)
        except StorageError:
            pass
        else:
            return StorageError(
                f"{what} holds a row that is not encrypted, and this store takes none; "
                "restore a backup"
            )
        _found(self._keys, body, what, _LEAST)
        return StorageError(
            f"{what} is damaged or was tampered with: a row does not fit its key and its place; "
            "restore a backup"
        )


def _found(keys: Keys, sealed: bytes, what: str, least: int) -> bytes:
    """Return the key of a row.

    Raises:
        StorageError: It is cut short, of a newer release, or under a key that was not given.
    """
    if len(sealed) < least:
        raise StorageError(f"{what} is damaged: a row is cut short; restore a backup")
    if sealed[:1] != VERSION:
        raise StorageError(
            f"{what} is damaged, or of a newer release: a row has an unknown format; "
            "restore a backup, or upgrade wick_graph"
        )
    key = keys.by_id.get(key_of(sealed))
    if key is None:
        raise StorageError(
            f"{what} is encrypted with the key {key_of(sealed).hex()}, and the keys given are "
            f"{', '.join(keys.ids)}; add the one that is missing"
        )
    return key


def _derived(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=purpose).derive(key)
