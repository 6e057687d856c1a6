"""What other tenants, processes, threads and odd values may not do to the long-term store."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from tests.store.conftest import Outside
from tests.store.encrypted import KEYS, NEW, OLD
from tests.store.goldens import embedded
from tests.store.store_graphs import config, looping_graph
from tests.store.test_store_threads import Clock
from tests.support.often import often
from wick_graph.errors import StorageError
from wick_graph.store import Keys, SqlSaver, SqlStore
from wick_graph.store.maintenance import export_thread, import_thread
from wick_graph.store.verify import rotate, verify

INDEX: Any = {"embed": embedded, "dims": 4, "fields": ["text"]}
A = ("users", "a")


def keys(found: Sequence[Any]) -> list[str]:
    return sorted(item.key for item in found)


# --- another tenant


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def mine(url: str, request: pytest.FixtureRequest) -> Iterator[SqlStore]:
    """The store of the tenant `a`, with items that another one would like to have."""
    with SqlStore.from_url(url, tenant="a", index=INDEX, keys=request.param) as store:
        store._core.clock = Clock()
        store.put(A, "k", {"text": "canary"}, ttl=10)
        store.batch([PutOp((), "", {"text": "canary"})])
        store.put(("b", "users"), "\x00", {"text": "canary"}, index=False)
        yield store


def attack(tenant: str) -> list[Op]:
    """Return operations that name the items of the tenant `a` in every way there is."""
    spaces = [A, (), ("b", "users"), ("a",), ("a", *A), ("*",), ("users", "*"), ("%",)]
    spaces += [("a\x01",), ("' OR tenant = 'a' --",), (f"of {tenant!r}",)]
    names = ["k", "", "\x00", "a\x00k", "%", "*", "' OR 1=1 --", "users\x00a\x00\x00k"]
    ops: list[Op] = [GetOp(space, name) for space in spaces for name in names]
    for space in spaces:
        ops += [
            SearchOp(space, limit=1_000),
            SearchOp(space, filter={"text": "canary"}, limit=1_000),
            SearchOp(space, filter={"tenant": "a"}, limit=1_000),
            SearchOp(space, query="canary", limit=1_000),
            *(
                ListNamespacesOp((MatchCondition(kind, space),) if space else None)
                for kind in ("prefix", "suffix")
            ),
        ]
    return ops


@pytest.mark.parametrize("tenant", ["b", "", "a\x00users", "%", "a' OR '1'='1"])
def test_no_operation_reaches_the_items_of_another_tenant(
    url: str, mine: SqlStore, outside: Outside, tenant: str
) -> None:
    def rows() -> list[Any]:
        return sorted(map(repr, outside.run("SELECT * FROM memories WHERE tenant = ?", b"a")))

    before, ops = rows(), attack(tenant)
    keyring: Keys | None = mine._core.sealing.keys
    with SqlStore.from_url(url, tenant=tenant, index=INDEX, keys=keyring) as theirs:
        theirs._core.clock = clock = Clock()
        clock.forward(5)  # a read of the item would let its TTL begin again
        for found in (theirs.batch(ops), asyncio.run(theirs.abatch(ops))):
            assert [one for one in found if one] == []
        assert theirs.list_namespaces() == []
        writes = [PutOp(op.namespace, op.key, None) for op in ops if isinstance(op, GetOp)]
        theirs.batch(writes)
        assert rows() == before
        writes = [one._replace(value={"text": "theirs"}, ttl=1.0) for one in writes]
        asyncio.run(theirs.abatch(writes))
        assert {item.value["text"] for item in theirs.search((), limit=1_000)} == {"theirs"}
        clock.forward(20)  # theirs are expired, and so is one of the other tenant's
        theirs.sweep()
        assert theirs.search((), limit=1_000) == []
        assert rows() == before
    assert keys(mine.search(())) == ["", "\x00", "k"]
    assert all(item.value == {"text": "canary"} for item in mine.search((), query="canary"))


# --- other processes and threads


def test_two_processes_write_one_namespace_and_each_batch_is_whole(url: str) -> None:
    """Also if they name the items in opposite orders, search, and let TTLs begin again."""
    with SqlStore.from_url(url, index=INDEX) as store:
        store.put(A, "0", {"text": "", "by": -1})
    children = []
    for number in range(2):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                with SqlStore.from_url(url, index=INDEX, synchronous="NORMAL") as store:
                    order = range(12) if number else range(11, -1, -1)
                    for turn in range(25):
                        by = number * 100 + turn
                        value = {"text": "ab", "by": by}
                        store.batch([PutOp(A, str(n), value, None, 5.0) for n in order])
                        found = store.search(A, query="a", limit=20)
                        assert len({item.value["by"] for item in found}) == 1
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
    with SqlSaver.from_url(url) as saver:
        (by,) = {item.value["by"] for item in SqlStore.of(saver).search(A, limit=20)}
        assert by in (24, 124)
        assert verify(saver).is_whole


def test_fifty_threads_use_one_store(url: str) -> None:
    together = threading.Barrier(50)

    def use(number: int) -> list[int]:
        space = ("of", str(number))
        together.wait(60)
        for turn in range(4):
            store.batch(
                [
                    PutOp(space, "k", {"text": "abcd"[number % 4], "n": turn}, None, 60.0),
                    PutOp(("all",), str(number), {"text": "", "n": turn}, False),
                ]
            )
            found = store.search(space, query="abcd"[number % 4])
            assert [(item.score, item.value["n"]) for item in found] == [(1, turn)]
            asyncio.run(store.aget(("all",), str(number)))
            store.delete(space, "k")
            assert store.get(space, "k") is None
            store.list_namespaces(prefix=("of",))
        return [item.value["n"] for item in store.search(("all",), filter={"n": 3}, limit=100)]

    with SqlStore.from_url(url, index=INDEX, synchronous="NORMAL") as store:
        with ThreadPoolExecutor(50) as pool:
            assert all(3 in found for found in pool.map(use, range(50)))
        assert [item.value["n"] for item in store.search((), limit=100)] == [3] * 50


# --- what is done to threads and to the whole store


def test_what_is_done_to_threads_leaves_items_as_they_are(url: str, tmp_path: Path) -> None:
    """Forks, archives and deletions of threads hold no item, and harm none."""
    new = f"sqlite:///{tmp_path / 'new.db'}"
    with SqlSaver.from_url(url) as saver, SqlSaver.from_url(new) as other:
        store = SqlStore.of(saver, index=INDEX)
        store.put(A, "k", {"text": "a pigeon"})
        looping_graph(saver, 2).invoke({"messages": [("user", "hello")]}, config("t"))
        saver.threads.fork("t", "forked")
        export_thread(saver, "forked", tmp_path / "a.thread")
        assert b"pigeon" not in (tmp_path / "a.thread").read_bytes()
        import_thread(other, tmp_path / "a.thread")
        assert SqlStore.of(other).search(()) == []
        saver.threads.delete("t")
        saver.threads.delete("forked")
        assert keys(store.search((), query="a")) == ["k"]
        assert verify(saver).is_whole


def test_keys_are_changed_while_items_are_written(url: str) -> None:
    with SqlStore.from_url(url, keys=OLD, index=INDEX) as store:
        store.batch([PutOp(A, str(n), {"text": "a", "n": 0}) for n in range(40)])
    with (
        SqlStore.from_url(url, keys=KEYS, index=INDEX) as store,
        SqlSaver.from_url(url, keys=KEYS) as saver,
        ThreadPoolExecutor(1) as pool,
    ):
        stop = threading.Event()

        def write() -> int:
            turn = 0
            while not stop.is_set() or turn == 0:
                turn += 1
                store.batch([PutOp(A, str(n), {"text": "b", "n": turn}) for n in range(0, 40, 3)])
            return turn

        written = pool.submit(write)
        try:
            rotate(saver)
        finally:
            stop.set()
        turn = written.result(60)
    with SqlSaver.from_url(url, keys=NEW) as saver:
        found = SqlStore.of(saver, index=INDEX).search(A, query="b", limit=40)
        assert {item.key: item.value["n"] for item in found} == {
            str(n): turn if n % 3 == 0 else 0 for n in range(40)
        }
        assert verify(saver).is_whole


# --- odd names and values


LABELS = st.text(min_size=1, max_size=8).filter(lambda label: not {".", "\x00"} & {*label})


def test_any_text_is_a_name(url: str) -> None:
    with SqlStore.from_url(url, synchronous="NORMAL") as store:

        @settings(
            max_examples=often(100),
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            st.dictionaries(
                st.tuples(st.lists(LABELS, max_size=3).map(tuple), st.text(max_size=8)),
                st.integers(),
                max_size=6,
            )
        )
        def check(items: dict[Any, int]) -> None:
            store.batch([PutOp(("x", *at[0]), at[1], {"n": n}) for at, n in items.items()])
            held = {(("x", *space), key): n for (space, key), n in items.items()}
            found = store.search(("x",), limit=100)
            assert {(one.namespace, one.key): one.value["n"] for one in found} == held
            for space, key in held:
                below = store.search(space, limit=100)
                assert {(one.namespace, one.key) for one in below} == {
                    at for at in held if at[0][: len(space)] == space
                }
                item: Any = store.batch([GetOp(space, key)])[0]
                assert item.value == {"n": held[space, key]}
            store.batch([PutOp(*at, None) for at in held])
            assert store.search(()) == []

        check()


def test_a_value_that_compares_in_its_own_way_hides_no_other_item(url: str) -> None:
    with SqlStore.from_url(url) as store:
        store.put(A, "array", {"v": np.arange(3)})
        store.put(A, "set", {"v": {1, 2}})
        store.put(A, "number", {"v": 1})
        for wanted in (1, {"$eq": 1}, {"$gte": 1}, {"$eq": 1.0}):
            assert keys(store.search(A, filter={"v": wanted})) == ["number"]
        assert keys(store.search(A, filter={"v": {"$ne": 1}})) == ["array", "set"]


def test_limits_of_any_size_are_taken(url: str) -> None:
    with SqlStore.from_url(url) as store:
        store.put(A, "k", {"n": 1})
        for wanted in (None, {"n": 1}):
            assert keys(store.search(A, limit=10**30, filter=wanted)) == ["k"]
            assert store.search(A, limit=1, offset=10**30, filter=wanted) == []
        assert store.list_namespaces(limit=10**30) == [A]
        for bad in (-1, 1.5, "1", None):
            with pytest.raises(ValueError, match="limit and offset must be whole numbers"):
                store.search(A, limit=bad)  # type: ignore[arg-type]  # what is refused


def test_what_cannot_be_embedded_is_refused_and_nothing_is_stored(url: str) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    whole: Any = {"embed": embedded, "dims": 4}
    with SqlStore.from_url(url, index=whole) as store:
        for value in ({"deep": deep}, ring, {"bytes": b"x"}, {"set": {1}}):
            with pytest.raises(StorageError, match="no JSON to embed"):
                store.batch([PutOp(A, "other", {"n": 1}), PutOp(A, "k", value)])
        for value in ({"deep": deep}, ring):
            with pytest.raises(StorageError, match="flatten it"):
                store.put(A, "k", value, index=False)
        for index in ("text", [7], True, 1, {"text": 1}):
            with pytest.raises(ValueError, match="index must be a list of fields"):
                store.put(A, "k", {"text": "a"}, index=index)  # type: ignore[arg-type]  # refused
        assert store.search(()) == []
        huge = {"text": "ab" * 5_000_000}
        store.put(A, "huge", huge)
        (item,) = store.search(A, query="a")
        assert item.value == huge
        assert item.score == pytest.approx(0.5**0.5)
