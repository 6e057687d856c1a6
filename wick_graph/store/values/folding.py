"""Compressed contents: bounded while they unfold, since a file may come from elsewhere."""

from __future__ import annotations

import zlib
from typing import Final

from wick_graph.errors import StorageError

MAX_UNFOLDED: Final = 64 * 2**20
"""Bytes of a content that is compressed; longer ones are kept as they are."""


def fold(data: bytes, level: int) -> bytes | None:
    """Compress a content; None if it is too long, or would not get shorter."""
    if len(data) > MAX_UNFOLDED:
        return None
    small = zlib.compress(data, level)
    return small if len(small) < len(data) else None


def unfold(small: bytes) -> bytes:
    """Undo `fold`.

    Raises:
        StorageError: It unfolds to more than is ever folded.
        zlib.error: It is damaged.
    """
    unfolding = zlib.decompressobj()
    data = unfolding.decompress(small, MAX_UNFOLDED + 1)
    if len(data) > MAX_UNFOLDED:
        raise StorageError(
            f"a content unfolds to more than {MAX_UNFOLDED // 2**20} MiB; it was not written here"
        )
    if not unfolding.eof:
        raise zlib.error("incomplete data")
    return data
