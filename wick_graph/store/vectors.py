"""Search by meaning: the texts of an item as vectors, compared by the cosine of their angle.

numpy compares, here; or PostgreSQL does, if the database has the extension pgvector and the vectors
are not sealed. Both are exact. An index of vectors (HNSW) knows no namespace, and misses items.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping, Sequence
from itertools import islice
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
from wick_graph.store.dialect import Floats

_HEAD: Final = struct.Struct("<I")
"""Before the vectors of an item: the numbers in each."""

_ARRAY: Final = struct.Struct(">5i")
"""Before the numbers of an array of PostgreSQL: dimensions, NULLs, type, how many, first place."""

_REAL: Final = 700

Known = Mapping[str, Any]
"""Texts, and their vectors, of length 1."""

ADD: Final = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"
"""PostgreSQL refuses it to most users, and without pgvector's files."""

FIND: Final = (
    "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n "
    "ON n.oid = e.extnamespace WHERE e.extname = 'vector' AND has_schema_privilege(n.oid, 'USAGE')"
)
"""The schema of pgvector; no row if the database lacks it."""

_MOST: Final = 16_000
"""The numbers of pgvector's longest vector."""


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
        except (RecursionError, TypeError, ValueError) as error:
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

    def _known(self, texts: Sequence[str], vectors: Any) -> Known:
        """Make the vectors of length 1, so that the cosine of two is their product."""
        if not texts:
            return {}
        np = self._numpy
        try:
            made = np.asarray(vectors, dtype="f8")
            gave = f"numbers of the shape {made.shape}"
        except (ArithmeticError, TypeError, ValueError) as error:
            made, gave = np.empty(0), f"what is not a list of numbers each ({error!s:.200})"
        if made.shape != (len(texts), self.dims):
            raise StorageError(
                f"index: {len(texts)} texts gave {gave}, and dims says {self.dims}; set dims to "
                "what the model gives"
            )
        if not np.isfinite(made).all():
            raise StorageError(
                "index: the embedder gave a vector with a number that is not finite; mend it, or "
                "put such items with index=False"
            )
        for order in (np.inf, 2):  # by the largest number first: its square could overflow
            by = np.linalg.norm(made, order, axis=1, keepdims=True)
            made = np.divide(made, by, out=np.zeros_like(made), where=by != 0)
        return dict(zip(texts, made.astype("<f4"), strict=True))

    def packed(self, vectors: Sequence[Any]) -> bytes:
        """Return vectors as they are stored: 32 bits a number."""
        return _HEAD.pack(self.dims) + b"".join(one.tobytes() for one in vectors)

    def floats(self, vectors: Sequence[Any]) -> Floats:
        """Return vectors as PostgreSQL takes them: the numbers of all in a row."""
        numbers = self._numpy.concatenate(vectors)
        made = self._numpy.empty(len(numbers), dtype=[("size", ">i4"), ("number", ">f4")])
        made["size"], made["number"] = 4, numbers
        return Floats(_ARRAY.pack(1, 0, _REAL, len(numbers), 1) + made.tobytes())

    def near(self, schema: str) -> str | None:
        """Return PostgreSQL's statement that computes the scores of rows with pgvector.

        It takes a query, a tenant, two keys and two numbers of rows. A row has a number and a key;
        the vectors, if they are sealed or older than schema 6; and the score. None if the vectors
        are too long for pgvector.
        """
        if (dims := self.dims) > _MOST:
            return None
        own = schema.replace("%", "%%")
        times = f"::{own}.vector OPERATOR({own}.<#>) (SELECT q FROM asked)"
        return (
            f"WITH asked AS MATERIALIZED (SELECT %s::{own}.vector AS q) "
            "SELECT rid, key, CASE WHEN floats IS NULL THEN vectors END, CASE "
            f"WHEN dims <> {dims} THEN NULL "
            f"WHEN octet_length(vectors) = {_HEAD.size + 4 * dims} THEN -(floats{times}) ELSE ("
            f"SELECT max(-(floats[n * {dims} + 1 : (n + 1) * {dims}]{times})) "
            f"FROM generate_series(0, (octet_length(vectors) - {_HEAD.size}) / {4 * dims} - 1) AS n"
            ") END FROM memories "
            "WHERE tenant = %s AND key >= %s AND key < %s AND rid BETWEEN %s AND %s"
        )

    def scores(self, query: Any, stored: Sequence[bytes | None]) -> list[float | None]:
        """Return how near each item is to a query, by its best vector: 1 is nearest.

        An item without vectors, or with vectors of another size, has no score.
        """
        head = _HEAD.pack(self.dims)
        parts = [memoryview(data)[4:] if data and data[:4] == head else b"" for data in stored]
        rows = self._numpy.frombuffer(b"".join(parts), dtype="<f4").reshape(-1, self.dims)
        near = iter((rows @ query).tolist())
        size = 4 * self.dims
        return [max(islice(near, len(part) // size), default=None) for part in parts]


def _paths(fields: Sequence[str]) -> list[Any]:
    return [path if path == "$" else tokenize_path(path) for path in fields]
