"""Where the journal keeps values: small ones in the moment, others once for each content."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from wick_graph.errors import StorageError
from wick_graph.journal.masking import Mask
from wick_graph.store.values.codec import Codec
from wick_graph.store.values.folding import fold, unfold

INLINE: Final = 64
"""Bytes that a value may have to stand in its moment."""
MAX_VALUE: Final = 1_048_576
"""Bytes of one value; of a longer one its size and its beginning are kept."""
HEAD: Final = 4_096
"""Characters that are kept of a value that is too long."""
HASH_BYTES: Final = 16
CUT: Final = "not_kept"
"""The key of what stands for a value that is too long, or that cannot be stored."""
_COMPRESSED: Final = 512
_MANY: Final = 20_000
_TEXTS: Final = 256
_HERE: Final = b"="
_THERE: Final = b"#"
_PLAIN: Final = b"\x00"
_ZLIB: Final = b"\x01"


class Shelf:
    """Turns values into references, and collects the content that is new."""

    def __init__(self, codec: Codec, mask: Mask, key: bytes = b"") -> None:
        """Take the key of the hashes by which content is found, where others may not try them."""
        self._codec = codec
        self._key = key
        self.mask = mask
        self._known: set[bytes] = set()
        self._texts: dict[str, bytes] = {}
        self._new: list[tuple[bytes, bytes]] = []

    def keep(self, value: Any) -> bytes:
        """Return a reference to a value, without its secrets."""
        if type(value) is not str:
            return self._kept(self._packed(value))
        known = self._texts.get(value)  # sections of the prompt come again with every request
        if known is None:
            if len(self._texts) > _TEXTS:
                self._texts.clear()
            known = self._texts[value] = self._kept(self._packed(value))
        return known

    def holds_whole(self, value: Any) -> bool:
        """Say whether `keep` changes nothing: no secret is in a value, and it is not cut."""
        try:
            packed = self._codec.pack(value)
        except StorageError:
            return False
        return len(packed) <= MAX_VALUE and bool(self.mask.value(value) == value)

    def keep_as_is(self, value: Any) -> bytes:
        """Return a reference to data that holds names and references alone."""
        return self._kept(self._codec.pack(value))

    def _kept(self, packed: bytes) -> bytes:
        if len(packed) <= INLINE:
            return _HERE + packed
        hashed = blake2b(packed, digest_size=HASH_BYTES, key=self._key).digest()
        if hashed not in self._known:
            if len(self._known) > _MANY:
                self._known.clear()
            self._known.add(hashed)
            self._new.append((hashed, _body(packed)))
        return _THERE + hashed

    def put(self, hashed: bytes, content: bytes) -> None:
        """Add a row that is no content, under a name of its own."""
        self._new.append((hashed, content))

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return the content that is new since the last time."""
        taken, self._new = self._new, []
        return taken

    def _packed(self, value: Any) -> bytes:
        try:
            packed = self._codec.pack(value)
        except StorageError as error:
            packed = self._codec.pack(_stand_in(type(value).__name__, str(error), _shown(value)))
        if len(packed) > MAX_VALUE:
            kind, head = type(value).__name__, _beginning(value)
            packed = self._codec.pack(_stand_in(kind, f"{len(packed)} bytes are too many", head))
        if self.mask.is_clean(packed):
            return packed
        return self._codec.pack(self.mask.value(self._codec.unpack(packed)))


def unpacked(codec: Codec, reference: bytes, blob: Any) -> Any:
    """Return the value of a reference; `blob` gives a blob's bytes by its hash.

    Raises:
        StorageError: The content is missing or damaged.
    """
    if reference[:1] == _HERE:
        return codec.unpack(reference[1:])
    body: bytes = blob(reference[1:])
    data = unfold(body[1:]) if body[:1] == _ZLIB else body[1:]
    return codec.unpack(data)


def _body(packed: bytes) -> bytes:
    if len(packed) > _COMPRESSED and (small := fold(packed, 6)) is not None:
        return _ZLIB + small
    return _PLAIN + packed


def _stand_in(kind: str, why: str, head: str) -> dict[str, str]:
    return {CUT: kind, "why": why, "head": head[:HEAD]}


def _beginning(value: Any) -> str:
    text = getattr(value, "content", value)
    if isinstance(text, dict):
        text = text.get("output", text)
    return text[:HEAD] if isinstance(text, str) else _shown(text)[:HEAD]


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "…"
