"""Search by meaning: numpy and pgvector find the same, and no embedder harms the store."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp, SearchOp

from tests.store.encrypted import KEYS
from tests.store.goldens import embedded
from tests.support.often import often
from tests.support.postgres import connected, with_schema
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver, SqlStore
from wick_graph.store.vectors import VectorIndex
from wick_graph.store.verify import verify

A = ("users", "a")
INDEX: Any = {"embed": embedded, "dims": 4, "fields": ["text", "more[*]"]}


def found(store: SqlStore, query: str = "abc", **more: Any) -> list[Any]:
    asked: Any = {"query": query, "limit": 1_000, **more}
    return [
        (item.key, None if item.score is None else pytest.approx(item.score, abs=1e-5))
        for item in store.search(A, **asked)
    ]


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items' vectors each call of numpy has compared."""
    counted: list[int] = []
    real = VectorIndex.scores

    def scores(index: Any, query: Any, stored: Sequence[Any]) -> Any:
        counted.append(sum(one is not None for one in stored))
        return real(index, query, stored)

    monkeypatch.setattr(VectorIndex, "scores", scores)
    return counted


@pytest.fixture
def empty_database(postgres_server: str) -> Iterator[str]:
    """The URL of a database of its own, whose extensions a test may change."""
    name = f"d_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"')
    head, _, query = postgres_server.partition("?")
    yield f"{head.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")
    with psycopg.connect(postgres_server, autocommit=True) as db:
        db.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


NUMBERS = st.floats(-3, 3, width=32) | st.sampled_from([0.0, 1e-30, 1e300, 1e-320])
VECTORS = st.lists(NUMBERS, min_size=3, max_size=3)
ITEMS = st.lists(
    st.tuples(st.lists(VECTORS, max_size=3), st.integers(0, 2), st.booleans()), max_size=12
)
TWO_SIZES: Final = [([[1.0, 0.0, 0.0]], 0, True), ([], 0, False)]
"""An item of this index, and one of an index with vectors of another size."""


def in_schema(url: str) -> str:
    return with_schema(url, f"v_{secrets.token_hex(6)}")


def test_pgvector_finds_what_numpy_finds(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any vectors, several of an item too, and whatever part of the items is looked at."""
    known: dict[str, list[float]] = {}
    index: Any = {
        "embed": lambda texts: [known[text] for text in texts],
        **{"dims": 3, "fields": ["texts[*]"]},
    }
    other: Any = {"embed": lambda texts: [[1.0] * 6] * len(texts), "dims": 6, "fields": ["texts"]}
    near, url = VectorIndex.near, in_schema(postgres_server)
    used: list[str] = []

    @settings(
        max_examples=often(150),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        items=ITEMS,
        query=VECTORS,
        page=st.tuples(st.integers(0, 12), st.integers(0, 5)),
        wanted=st.sampled_from([None, {"n": {"$gte": 1}}]),
        chunk=st.integers(1, 5),
    )
    @example(items=TWO_SIZES, query=[1.0, 0.0, 0.0], page=(12, 0), wanted=None, chunk=5)
    def check(items: Any, query: Any, page: Any, wanted: Any, chunk: int) -> None:
        monkeypatch.setattr("wick_graph.store.memories._CHUNK", chunk)
        space = ("of", secrets.token_hex(4))
        puts: dict[bool, list[Any]] = {True: [], False: []}
        for at, (vectors, n, ours) in enumerate(items):
            texts = [f"{at}.{one}" for one in range(len(vectors))]
            known.update(zip(texts, vectors, strict=True))
            value = {"texts": texts, "n": n} if ours else {"texts": "x", "n": n}
            puts[ours].append(PutOp(space, str(at), value))
        known["asked"] = query
        with SqlStore.from_url(url, index=other) as others:
            others.batch(puts[False])
        limit, offset = page
        asked: Any = {"query": "asked", "filter": wanted, "limit": limit, "offset": offset}
        with SqlStore.from_url(url, index=index) as store:
            store.batch(puts[True])
            told: list[Any] = []
            for way in (near, None):
                monkeypatch.setattr(VectorIndex, "near", way or (lambda *_: None))
                every: Any = {**asked, "limit": 1_000, "offset": 0}
                whole, part = store.search(space, **every), store.search(space, **asked)
                assert [one.key for one in part] == [one.key for one in whole][offset:][:limit]
                scores = {one.key: one.score for one in whole}
                values = [-2 if one.score is None else one.score for one in whole]
                assert values == sorted(values, reverse=True)
                told.append(scores)
            used.append("items" if any(told[0].values()) else "")
        assert told[0].keys() == told[1].keys()
        for key, score in told[0].items():
            assert score == (
                None if told[1][key] is None else pytest.approx(told[1][key], abs=1e-6)
            )

    try:
        check()
        assert "items" in used, "no vector was compared"
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as db:
            db.execute(f'DROP SCHEMA IF EXISTS "{url.rpartition("=")[2]}" CASCADE')


def fill(store: SqlStore) -> list[Any]:
    """Put some items, and return what a search finds."""
    for text in ("ab", "aaa", "d", ""):
        store.put(A, text or "empty", {"text": text, "more": ["c"] * len(text)})
    store.put(A, "one", {"text": "bc"})
    store.put(A, "not indexed", {"text": "abc"}, index=False)
    return found(store)


def in_memory() -> list[Any]:
    with SqlStore.from_url("sqlite://", index=INDEX) as store:
        return fill(store)


def test_the_server_compares_and_sends_no_vectors(postgres_url: str, scanned: list[int]) -> None:
    expected = in_memory()
    scanned.clear()
    with SqlStore.from_url(postgres_url, index=INDEX) as store:
        assert fill(store) == expected
        assert set(scanned) == {0}
        store.put(A, "one", {"text": "d"})
        store.put(A, "ab", {"text": "ab"}, index=False)
        assert dict(found(store, "d"))["one"] == 1
        assert dict(found(store, "d"))["ab"] is None
        assert set(scanned) == {0}
    with SqlSaver.from_url(postgres_url) as saver:
        assert verify(saver).is_whole


def test_sealed_vectors_are_opened_and_scanned(postgres_url: str, scanned: list[int]) -> None:
    expected = in_memory()
    scanned.clear()
    with SqlStore.from_url(postgres_url, index=INDEX, keys=KEYS) as store:
        assert fill(store) == expected
        assert scanned == [5]
    with connected(postgres_url) as db:
        assert db.execute("SELECT count(dims), count(floats) FROM memories").fetchone() == (0, 0)


def test_vectors_of_before_schema_6_are_scanned_beside_new_ones(
    postgres_url: str, scanned: list[int]
) -> None:
    with SqlStore.from_url(postgres_url, index=INDEX) as store:
        expected = fill(store)
        with connected(postgres_url) as db:
            db.execute("UPDATE memories SET dims = NULL, floats = NULL WHERE rid % 2 = 0")
        scanned.clear()
        assert found(store) == expected
        assert 0 < sum(scanned) < 5
        assert [one.key for one in store.search(A, query="abc", limit=2)] == [
            key for key, _ in expected[:2]
        ]


def test_without_the_right_to_make_it_the_store_scans(
    empty_database: str, scanned: list[int]
) -> None:
    role = f"r_{secrets.token_hex(6)}"
    with psycopg.connect(empty_database, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
        db.execute(f"GRANT CREATE ON DATABASE {db.info.dbname} TO {role}")
    try:
        theirs = empty_database.replace("://postgres", f"://{role}", 1)
        with SqlStore.from_url(theirs, index=INDEX) as store:
            expected = fill(store)
            assert expected == in_memory()
            assert scanned[0] == 5
            scanned.clear()
            with psycopg.connect(empty_database, autocommit=True) as db:
                db.execute('CREATE SCHEMA "o""d %s"; CREATE EXTENSION vector SCHEMA "o""d %s"')
            assert found(store) == expected  # it may not use that schema
            assert scanned == [5]
            with psycopg.connect(empty_database, autocommit=True) as db:
                db.execute(f'GRANT USAGE ON SCHEMA "o""d %s" TO {role}')
            assert found(store) == expected
            assert scanned == [5, 0]
            with psycopg.connect(empty_database, autocommit=True) as db:
                db.execute("DROP EXTENSION vector CASCADE")
            assert found(store) == expected
            assert scanned == [5, 0, 5]
    finally:
        with psycopg.connect(empty_database, autocommit=True) as db:
            db.execute(f"DROP OWNED BY {role} CASCADE")
            db.execute(f"DROP ROLE {role}")


def test_vectors_too_long_for_pgvector_are_scanned(postgres_url: str, scanned: list[int]) -> None:
    def long(texts: Sequence[str]) -> list[list[float]]:
        return [[float(len(text)), *[1.0] * 16_000] for text in texts]

    with SqlStore.from_url(postgres_url, index={"embed": long, "dims": 16_001}) as store:
        store.put(A, "k", {"text": "a"})
        assert found(store)[0][0] == "k"
        assert scanned == [1]


# --- embedders that do harm


@pytest.mark.parametrize(
    ("vectors", "why"),
    [
        ([[0.0, float("nan"), 1.0, 1.0]], "not finite"),
        ([[0.0, float("inf"), 1.0, 1.0]], "not finite"),
        ([[0.0, None, 1.0, 1.0]], "not finite"),
        ([[1.0, 2.0]], "set dims to what the model gives"),
        ([[1.0] * 4] * 2, "set dims to what the model gives"),
        ([], "set dims to what the model gives"),
        ([1.0] * 4, "set dims to what the model gives"),
        ([[1.0] * 4, [1.0]], "what is not a list of numbers each"),
        ([["a", "b", "c", "d"]], "what is not a list of numbers each"),
        ([[10**400, 1, 1, 1]], "what is not a list of numbers each"),
        (None, "set dims to what the model gives"),
    ],
)
def test_what_is_no_vector_is_refused_and_nothing_is_stored(
    url: str, vectors: Any, why: str
) -> None:
    class Bad(Embeddings):
        def embed_documents(self, texts: list[str]) -> Any:
            return vectors

        def embed_query(self, text: str) -> Any:
            return None if vectors == [1.0] * 4 else vectors  # that would be one, of a query

    bad: Any = {**INDEX, "embed": Bad()}
    with SqlStore.from_url(url, index=INDEX) as store:
        store.put(A, "k", {"text": "abc"})
        before = found(store)
    with SqlStore.from_url(url, index=bad) as store:
        with pytest.raises(StorageError, match=why):
            store.batch([PutOp(A, "other", {}, False), PutOp(A, "k", {"text": "bad"})])
        with pytest.raises(StorageError, match="index: "):
            store.search(A, query="abc")
        store.put(A, "without", {"text": "x"}, index=False)
        store.delete(A, "without")
        assert [item.key for item in store.search(A)] == ["k"]
    with SqlStore.from_url(url, index=INDEX) as store:
        assert found(store) == before


async def test_an_embedder_that_fails_stores_nothing_and_says_why(url: str) -> None:
    def fail(texts: Sequence[str]) -> list[list[float]]:
        raise ConnectionError("the embedder is away")

    bad: Any = {**INDEX, "embed": fail}
    with SqlStore.from_url(url, index=bad) as store:
        puts: list[Any] = [PutOp(A, "other", {"n": 1}), PutOp(A, "k", {"text": "abc"})]
        for ops in (puts, [*puts[:1], SearchOp(A, query="abc")]):
            with pytest.raises(ConnectionError, match="is away"):
                store.batch(ops)
            with pytest.raises(ConnectionError, match="is away"):
                await store.abatch(ops)
        assert store.search(()) == []
        store.put(A, "k", {"n": 1})  # it has no text
        assert [item.key for item in store.search(A)] == ["k"]


def test_numbers_of_any_size_have_their_direction(url: str) -> None:
    sizes = {"a": 1e300, "b": 1e-320, "c": 1.0}

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[sizes[text], sizes[text], 0.0] for text in texts]

    index: Any = {"embed": embed, "dims": 3, "fields": ["text"]}
    with SqlStore.from_url(url, index=index) as store:
        for text in "abc":
            store.put(A, text, {"text": text})
        for query in "abc":
            assert found(store, query) == [("a", 1), ("b", 1), ("c", 1)]
