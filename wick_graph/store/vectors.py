"""Search by meaning: the texts of an item as vectors, compared by the cosine of their angle."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from langgraph.store.base import (
    Embeddings,
    IndexConfig,
    PutOp,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from wick_graph.errors import ConfigError, StorageError, missing_extra

_HEAD: Final = struct.Struct("<I")
"""Before the vectors of an item: the numbers in each."""

Known = Mapping[str, Sequence[float]]
"""Texts, and their vectors."""


class VectorIndex:
    """What `index=` says: which texts of an item are embedded, and how.

    Raises:
        ConfigError: It has no `embed` or no `dims`, or a library is not installed.
    """

    def __init__(self, config: IndexConfig) -> None:
        try:
            self._numpy: Any = importlib.import_module("numpy")
        except ImportError:
            raise ConfigError(missing_extra("search by meaning", "numpy", "vector")) from None
        dims: Any = config.get("dims")
        if type(dims) is not int or dims < 1:
            raise ConfigError(f"index: dims must be a whole number of 1 or more, not {dims!r:.80}")
        try:
            self.embeddings: Embeddings = ensure_embeddings(config.get("embed"))
        except Exception as error:  # each provider has its own for a missing key
            raise ConfigError(f"index: embed cannot be used: {error}") from error
        self.dims: Final[int] = dims
        self._paths = _paths(config.get("fields") or ["$"])

    @classmethod
    def of(cls, config: IndexConfig | None) -> Self | None:
        """Return the index of a configuration; None without one."""
        return None if config is None else cls(config)

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of an item that are embedded; none if it is not indexed.

        Raises:
            StorageError: The whole item is to be embedded, and is no JSON.
        """
        if op.value is None or op.index is False:
            return []
        paths = self._paths if op.index is None else _paths(op.index)
        try:
            return [text for path in paths for text in get_text_at_path(op.value, path)]
        except TypeError as error:
            raise StorageError(
                f"the item {op.key!r:.80} has no JSON to embed ({error}); name the fields with "
                "texts, or pass index=False"
            ) from None

    def embed(self, texts: Sequence[str], queries: Sequence[str]) -> tuple[Known, Known]:
        """Return the vectors of texts and of queries."""
        made = self.embeddings.embed_documents([*texts]) if texts else []
        asked = [self.embeddings.embed_query(query) for query in queries]
        return self._known(texts, made), self._known(queries, asked)

    async def aembed(self, texts: Sequence[str], queries: Sequence[str]) -> tuple[Known, Known]:
        """Return the vectors of texts and of queries."""
        made = await self.embeddings.aembed_documents([*texts]) if texts else []
        asked = [await self.embeddings.aembed_query(query) for query in queries]
        return self._known(texts, made), self._known(queries, asked)

    def _known(self, texts: Sequence[str], vectors: Sequence[Any]) -> Known:
        sizes = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or sizes - {self.dims}:
            raise StorageError(
                f"index: {len(texts)} texts gave {len(vectors)} vectors of {sorted(sizes)} "
                f"numbers, and dims says {self.dims}; set dims to what the model gives"
            )
        return dict(zip(texts, vectors, strict=True))

    def packed(self, vectors: Sequence[Sequence[float]]) -> bytes | None:
        """Return vectors as they are stored: of length 1, 32 bits a number; None without any."""
        if not vectors:
            return None
        return _HEAD.pack(self.dims) + bytes(self._unit(vectors).tobytes())

    def scores(self, query: Sequence[float], stored: Sequence[bytes | None]) -> list[float | None]:
        """Return how near each item is to a query, by its best vector: 1 is nearest.

        An item without vectors, or with vectors of another size, has no score.
        """
        head = _HEAD.pack(self.dims)
        parts = [memoryview(data)[4:] if data and data[:4] == head else b"" for data in stored]
        rows = self._numpy.frombuffer(b"".join(parts), dtype="<f4").reshape(-1, self.dims)
        near = (rows @ self._unit([query])[0]).tolist()
        found: list[float | None] = []
        at = 0
        for part in parts:
            count = len(part) // (4 * self.dims)
            found.append(max(near[at : at + count]) if count else None)
            at += count
        return found

    def _unit(self, vectors: Sequence[Sequence[float]]) -> Any:
        """Return vectors of length 1, so that the cosine of two is their product."""
        np = self._numpy
        made = np.asarray(vectors, dtype="f8")
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        return np.divide(made, lengths, out=np.zeros_like(made), where=lengths != 0).astype("<f4")


def _paths(fields: Sequence[str]) -> list[Any]:
    return [path if path == "$" else tokenize_path(path) for path in fields]
