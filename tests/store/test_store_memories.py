"""The long-term store: items by namespace and key, for one tenant, until their time is over."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, Op, PutOp, SearchOp
from sqlalchemy import select

from tests.store.conftest import Outside
from tests.store.encrypted import KEYS, NEW, OLD, places_of
from tests.store.goldens import content, embedded, fill_memories
from tests.store.test_store_threads import Clock
from tests.support.postgres import connected
from wick_graph.errors import ConfigError, StorageError
from wick_graph.store import Keys, SqlSaver, SqlStore
from wick_graph.store.connection import StoreConnection
from wick_graph.store.encryption import Plain
from wick_graph.store.maintenance import repair
from wick_graph.store.memories import LONGEST, _key
from wick_graph.store.schema import memories
from wick_graph.store.texts import compiled
from wick_graph.store.verify import rotate, verify

INDEX: Any = {"embed": embedded, "dims": 4, "fields": ["text"]}
A, B = ("users", "a"), ("users", "b")


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    with SqlStore.from_url(url, synchronous="NORMAL") as made:
        yield made


@pytest.fixture
def clock(store: SqlStore) -> Clock:
    made = Clock()
    store._core.clock = made
    return made


def keys(found: list[Any]) -> list[str]:
    return [item.key for item in found]


def test_an_item_is_kept_with_its_times_and_its_types(store: SqlStore, clock: Clock) -> None:
    value = {"text": "ä\x00\ud800", "at": date(2026, 1, 2), "pair": (1, 2**70), "n": None}
    store.put(A, "k\x00\ud800", value)
    made = datetime.fromtimestamp(clock(), UTC)
    clock.forward(1)
    store.put(A, "k\x00\ud800", {**value, "n": 1})
    item = store.get(A, "k\x00\ud800")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (A, "k\x00\ud800", {**value, "n": 1})
    assert (item.created_at, item.updated_at.timestamp()) == (made, clock())
    store.delete(A, "k\x00\ud800")
    assert store.get(A, "k\x00\ud800") is None


def test_a_batch_reads_first_and_its_last_write_counts(store: SqlStore) -> None:
    store.put(A, "k", {"n": 0})
    ops: list[Op] = [
        *(PutOp(A, "k", {"n": 1}), PutOp(B, "k", {"n": 5}), GetOp(A, "k"), PutOp(A, "k", {"n": 2})),
        *(SearchOp(("users",)), PutOp(B, "k", None), GetOp(B, "k")),
    ]
    found: list[Any] = store.batch(ops)
    assert found[2].value == {"n": 0}
    assert [item.value for item in found[4]] == [{"n": 0}]
    assert found[6] is None
    assert [item.value for item in store.search(())] == [{"n": 2}]


async def test_it_works_in_an_event_loop(store: SqlStore) -> None:
    await asyncio.gather(*(store.aput(A, f"k{n}", {"n": n}) for n in range(20)))
    found = await store.asearch(A, filter={"n": {"$gte": 15}})
    assert {item.value["n"] for item in found} == {15, 16, 17, 18, 19}
    assert await store.alist_namespaces() == [A]
    await store.adelete(A, "k1")
    assert await store.aget(A, "k1") is None


# --- times


def test_an_expired_item_is_never_returned_and_a_sweep_deletes_it(
    store: SqlStore, clock: Clock, outside: Outside
) -> None:
    store.put(A, "short", {"n": 1}, ttl=1)
    store.put(A, "long", {"n": 2}, ttl=10)
    store.put(B, "ever", {"n": 3})
    clock.forward(1.1)
    assert store.get(A, "short") is None
    assert keys(store.search((), refresh_ttl=False)) == ["long", "ever"]
    assert keys(store.search((), filter={"n": {"$lt": 3}}, refresh_ttl=False)) == ["long"]
    clock.forward(10)
    assert store.search(A) == []
    assert store.list_namespaces() == [B]
    assert outside.count("memories") == 3
    store.sweep()
    assert outside.count("memories") == 1


def test_a_read_begins_the_time_again_unless_it_shall_not(store: SqlStore, clock: Clock) -> None:
    for key in ("got", "found", "looked at", "written"):
        store.put(A, key, {"key": key}, ttl=1)
    for _ in range(4):
        clock.forward(0.5)
        assert store.get(A, "got") is not None
        assert keys(store.search(A, filter={"key": "found"})) == ["found"]
        store.get(A, "looked at", refresh_ttl=False)
        store.put(A, "written", {"key": "written"}, ttl=1)
    assert sorted(keys(store.search(A))) == ["found", "got", "written"]
    store.put(A, "written", {"key": "for ever"})
    clock.forward(100_000)
    assert keys(store.search(A)) == ["written"]


def test_a_read_shortens_no_item_that_was_put_again_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlStore.from_url(url) as one, SqlStore.from_url(url) as other:
        clock = one._core.clock = other._core.clock = Clock()
        one.put(A, "k", {"n": 1}, ttl=10)
        clock.forward(5)
        apply = one._core.apply

        def late(*args: Any) -> Any:
            other.put(A, "k", {"n": 2})
            return apply(*args)

        monkeypatch.setattr(one._core, "apply", late)  # between the read and its note
        assert one.get(A, "k") is not None
        clock.forward(1_000)
        item = one.get(A, "k")
        assert item is not None
        assert item.value == {"n": 2}


def test_the_defaults_of_the_store_count(url: str) -> None:
    ttl: Any = {"default_ttl": 1, "refresh_on_read": False}
    with SqlStore.from_url(url, ttl=ttl) as store:
        store._core.clock = clock = Clock()
        store.put(A, "usual", {})
        store.put(A, "ever", {}, ttl=None)
        clock.forward(0.7)
        assert store.get(A, "usual") is not None
        clock.forward(0.7)
        assert keys(store.search(A)) == ["ever"]


def test_an_item_that_is_put_again_after_its_end_is_a_new_one(
    store: SqlStore, clock: Clock
) -> None:
    store.put(A, "k", {"n": 1}, ttl=1)
    store.put(A, "other", {"n": 2})
    clock.forward(60)
    store.put(A, "k", {"n": 3})
    item = store.get(A, "k")
    assert item is not None
    assert item.created_at.timestamp() == clock()
    assert keys(store.search(A)) == ["other", "k"]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), "1"])
def test_a_ttl_that_is_no_time_is_refused(store: SqlStore, ttl: Any) -> None:
    with pytest.raises(ValueError, match="ttl must be minutes above 0"):
        store.put(A, "k", {}, ttl=ttl)


def test_no_cursor_outlives_its_transaction(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end resets the statement, which another thread may be running by then."""
    left: list[Any] = []
    real = StoreConnection.apply

    def apply(core: Any, *args: Any, **more: Any) -> Any:
        left.append(real(core, *args, **more))
        return left[-1]

    store.put(A, "k", {}, ttl=1)
    clock.forward(0.5)
    monkeypatch.setattr(StoreConnection, "apply", apply)
    assert keys(store.search(A)) == ["k"]
    assert left == [None]


def test_a_sweeper_deletes_by_itself(store: SqlStore, outside: Outside) -> None:
    store.put(A, "k", {}, ttl=0.0001)
    with store.sweeper(0.05):
        until = time.monotonic() + 30
        while outside.count("memories") and time.monotonic() < until:
            time.sleep(0.05)
    assert outside.count("memories") == 0


# --- search


def test_namespaces_are_listed_by_prefix_suffix_and_depth(store: SqlStore) -> None:
    for labels in ("a/b/c", "a/b/d/e", "a/b/d/i", "a/b/f", "a/c/f", "ab"):
        store.put(tuple(labels.split("/")), "k", {})
    assert store.list_namespaces(prefix=("a", "b"), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
        ("a", "b", "f"),
    ]
    assert store.list_namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(limit=1, offset=5) == [("ab",)]
    assert keys(store.search(("a", "b"))) == ["k"] * 4


def test_filters_compare_what_can_be_compared(store: SqlStore) -> None:
    values: list[dict[str, Any]] = [
        {"n": 1, "tags": ["x", "y"], "of": {"kind": "a", "size": 3}},
        {"n": "2.5", "tags": []},
        {"n": None},
        {"n": "text", "of": {"kind": "b"}},
    ]
    for at, value in enumerate(values):
        store.put(A, str(at), value)

    def found(**wanted: Any) -> list[str]:
        return keys(store.search(A, filter=wanted))

    assert found(n=1) == ["0"]
    assert found(n={"$gt": 0, "$lte": 2.5}) == ["0", "1"]
    assert found(n={"$ne": 1}) == ["1", "2", "3"]
    assert found(n=None) == ["2"]
    assert found(tags=["x", "y"]) == ["0"]
    assert found(of={"kind": "a"}) == ["0"]
    assert found(of={"size": {"$gte": 3}}) == ["0"]
    assert found(missing={"$lt": 9}) == []
    with pytest.raises(ValueError, match="unknown operator"):
        found(n={"$regex": ".*"})


def test_a_page_of_many_goes_on_where_the_last_one_ended(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wick_graph.store.memories._CHUNK", 3)
    for n in range(20):
        store.put((*A, f"of {n % 3}"), f"k{n}", {"even": n % 2 == 0})
    pages = [keys(store.search(A, limit=7, offset=at)) for at in (0, 7, 14, 21)]
    assert [key for page in pages for key in page] == [f"k{n}" for n in range(20)]
    pages = [keys(store.search(A, filter={"even": True}, limit=4, offset=at)) for at in (0, 4, 8)]
    assert [key for page in pages for key in page] == [f"k{n}" for n in range(0, 20, 2)]
    with pytest.raises(ValueError, match="0 or more"):
        store.search(A, limit=-1)


# --- by meaning


def test_the_nearest_come_first_and_what_has_no_vector_last(url: str) -> None:
    with SqlStore.from_url(url, index=INDEX) as store:
        for text in ("ab", "aaa", "d", ""):
            store.put(A, text or "empty", {"text": text, "long": len(text) > 1})
        store.put(A, "not indexed", {"text": "aaa"}, index=False)
        store.put(A, "other fields", {"more": ["c", "aaaa"]}, index=["more[*]"])
        found = store.search(A, query="a")
        assert keys(found)[:3] == ["aaa", "other fields", "ab"]
        assert [item.score for item in found][:3] == pytest.approx([1, 1, 0.5**0.5])
        assert (found[-1].key, found[-1].score) == ("not indexed", None)
        assert keys(store.search(A, query="a", filter={"long": True})) == ["aaa", "ab"]
        assert keys(store.search(A, query="a", limit=2, offset=1)) == ["other fields", "ab"]
        store.put(A, "aaa", {"text": "d"})
        assert keys(store.search(A, query="a", limit=1)) == ["other fields"]


async def test_an_async_function_embeds(url: str) -> None:
    async def embed(texts: Any) -> list[list[float]]:
        return embedded(texts)

    index: Any = {**INDEX, "embed": embed}
    with SqlStore.from_url(url, index=index) as store:
        await store.abatch([PutOp(A, n, {"text": n * 2}) for n in "abcd"])
        assert keys(await store.asearch(A, query="c", limit=1)) == ["c"]


def test_vectors_of_another_size_have_no_score(url: str) -> None:
    with SqlStore.from_url(url, index=INDEX) as store:
        store.put(A, "k", {"text": "a"})
    other: Any = {"embed": lambda texts: [[1.0, 0.0]] * len(texts), "dims": 2}
    with SqlStore.from_url(url, index=other) as store:
        store.put(A, "new", {"text": "a"})
        assert [(i.key, i.score) for i in store.search(A, query="a")] == [("new", 1), ("k", None)]
    with SqlStore.from_url(url) as store:  # without an index, a query says nothing
        assert [(i.key, i.score) for i in store.search(A, query="a")] == [
            ("k", None),
            ("new", None),
        ]


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ({"embed": embedded}, "dims must be a whole number"),
        ({"dims": 4}, "embed cannot be used"),
        ({"embed": "nobody:at-all", "dims": 4}, "embed cannot be used"),
    ],
)
def test_an_index_that_cannot_work_is_refused(tmp_path: Path, index: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SqlStore.from_url(f"sqlite:///{tmp_path / 'new.db'}", index=index)
    assert [*tmp_path.iterdir()] == []


def test_vectors_that_do_not_fit_store_nothing() -> None:
    index: Any = {**INDEX, "dims": 5}
    with SqlStore.from_url("sqlite://", index=index) as store:
        with pytest.raises(StorageError, match="set dims to what the model gives"):
            store.put(A, "k", {"text": "a"})
        assert store.search(()) == []
    with SqlStore.from_url("sqlite://", index={"embed": embedded, "dims": 4}) as store:
        with pytest.raises(StorageError, match="no JSON to embed"):
            store.put(A, "k", {"at": date(2026, 1, 1)})
        store.put(A, "k", {"at": date(2026, 1, 1)}, index=False)


# --- what must not happen


def test_tenants_do_not_see_each_other(url: str) -> None:
    index: Any = INDEX
    with (
        SqlStore.from_url(url, tenant="a", index=index) as a,
        SqlStore.from_url(url, tenant="b", index=index) as b,
    ):
        a.put(A, "k", {"text": "of a"})
        b.put(A, "mine", {"text": "of b"})
        assert b.get(A, "k") is None
        assert keys(b.search(())) == keys(b.search((), query="a")) == ["mine"]
        b.delete(A, "k")
        b.put(B, "k", {"text": "of b"})
        assert a.list_namespaces() == [A]
        for name in ("a", "local", "%", "*", "a' OR 1=1 --"):
            assert b.search((name,)) == []
            assert b.get((name, *A), "k") is None
        item = a.get(A, "k")
        assert item is not None
        assert item.value == {"text": "of a"}


@pytest.mark.parametrize("label", ["", "a.b", "a\x00b", 7])
def test_a_label_that_could_mean_two_namespaces_is_refused(store: SqlStore, label: Any) -> None:
    """Also in a batch, which LangGraph's own methods do not look at."""
    with pytest.raises(InvalidNamespaceError):
        store.put((label,), "k", {})
    for op in (PutOp((label,), "k", {}), GetOp((label,), "k"), SearchOp((label,))):
        with pytest.raises(InvalidNamespaceError):
            store.batch([PutOp(A, "k", {}), op])
    assert store.search(()) == []


def test_near_names_are_other_items(store: SqlStore) -> None:
    names = [(("a",), "b\x00c"), (("a", "b"), "c"), (("a", "b", "c"), ""), (("a",), "\x00b\x00c")]
    names += [(("ab",), "c"), (("a",), "bc"), (("a/b",), "c"), (("a\ud800",), "c"), ((), "a")]
    store.batch([PutOp(space, key, {"at": at}) for at, (space, key) in enumerate(names)])
    for at, (space, key) in enumerate(names):
        found: Any = store.batch([GetOp(space, key)])[0]
        assert (found.namespace, found.key, found.value) == (space, key, {"at": at})
    assert len(store.search((), limit=100)) == len(names)
    assert store.list_namespaces() == sorted({space for space, _ in names})


@pytest.mark.parametrize("what", ["namespace", "key"])
def test_a_name_that_is_too_long_is_refused(store: SqlStore, what: str) -> None:
    for size in (LONGEST - 10, LONGEST + 1, 100_000):
        name = "x" * size
        space, key = ((name,), "k") if what == "namespace" else (("a",), name)
        if size > LONGEST:
            with pytest.raises(ValueError, match="shorten them"):
                store.put(space, key, {})
            assert store.get(space, key) is None
        else:
            store.put(space, key, {"n": 1})
            assert store.get(space, key) is not None


def test_what_cannot_be_stored_is_named_and_nothing_of_its_batch_is_stored(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match=r"builtins\.object cannot be stored"):
        store.batch([PutOp(A, "k", {}), PutOp(A, "l", {"x": object()})])
    deep: list[Any] = []
    for _ in range(1_000):
        deep = [deep]
    with pytest.raises(StorageError, match="flatten it"):
        store.put(A, "k", {"deep": deep})
    with pytest.raises(ValueError, match="a value must be a mapping"):
        store.put(A, "k", ["text"])  # type: ignore[arg-type]  # what is refused
    monkeypatch.setattr("wick_graph.store.row_format.MAX_BYTES", 1_000_000)
    with pytest.raises(StorageError, match="write it to a file"):
        store.put(A, "k", {"text": "x" * 1_000_001})
    assert store.search(()) == []


@dataclass
class Pet:
    name: str


def test_a_class_is_stored_only_if_it_is_allowed(url: str) -> None:
    with SqlStore.from_url(url) as store, pytest.raises(StorageError, match="allow it"):
        store.put(A, "k", {"pet": Pet("Tom")})
    with SqlStore.from_url(url, allow=[Pet]) as store:
        store.put(A, "k", {"pet": Pet("Tom")})
        item = store.get(A, "k")
        assert item is not None
        assert item.value == {"pet": Pet("Tom")}


@pytest.mark.parametrize(
    "name", ["') OR 1=1 --", "a' UNION SELECT body FROM memories --", "$.a", "a\x00", "%", '"']
)
def test_the_names_in_a_filter_are_no_sql(store: SqlStore, name: str) -> None:
    store.put(A, "k", {"a": 1})
    store.put(A, "named", {name: 2})
    assert keys(store.search(A, filter={name: 2})) == ["named"]
    assert store.search(A, filter={name: {"$gt": 7}}) == []
    assert keys(store.search(A, filter={"a": {"$eq": 1}})) == ["k"]


# --- the database


def test_two_stores_write_at_the_same_time(url: str) -> None:
    def write(store: SqlStore) -> None:
        for n in range(30):
            store.batch([PutOp(A, f"k{(n * 7 + m) % 10}", {"n": n}) for m in range(10)])

    with SqlStore.from_url(url) as one, SqlStore.from_url(url) as other:
        with ThreadPoolExecutor(4) as pool:
            [*pool.map(write, (one, other, one, other))]
        assert [item.value for item in one.search(A, limit=20)] == [{"n": 29}] * 10


def test_killed_within_batches_each_is_there_whole_or_not_at_all(url: str) -> None:
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            with SqlStore.from_url(url, index=INDEX) as store:
                for n in range(100_000):
                    store.batch([PutOp((f"of {m}",), "k", {"text": "a", "n": n}) for m in range(9)])
                    if n == 20:
                        os.write(write, b"x")
        finally:
            os._exit(1)
    assert os.read(read, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with SqlSaver.from_url(url) as saver:
        found = SqlStore.of(saver).search(())
        assert len(found) == 9
        (batch,) = {item.value["n"] for item in found}
        assert batch >= 20
        assert verify(saver).is_whole


def test_an_encrypted_store_seals_values_and_vectors(url: str, outside: Outside) -> None:
    with SqlStore.from_url(url, keys=OLD, index=INDEX) as store:
        store.put(A, "k", {"text": "a pigeon flies"})
        store.put(A, "l", {"text": "dddd"})
        assert keys(store.search(A, query="a")) == ["k", "l"]
    assert places_of(outside, "pigeon") == set()
    plain = SqlStore.from_url("sqlite://", index=INDEX)._index
    assert plain is not None
    sealed = bytes(outside.run("SELECT vectors FROM memories ORDER BY rid")[0][0])
    made = plain.packed([*plain.embed(["a pigeon flies"], [])[0].values()])
    assert made[:16] not in sealed
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        assert rotate(saver) == 5  # with the row of the store itself
        assert rotate(saver) == 0
    with SqlSaver.from_url(url, keys=NEW) as saver:
        assert keys(SqlStore.of(saver, index=INDEX).search(A, query="d")) == ["l", "k"]
        assert verify(saver).is_whole
    with pytest.raises(StorageError, match="is encrypted, and no keys"):
        SqlStore.from_url(url)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET key = ? WHERE rid = 1",
        "UPDATE memories SET tenant = ? WHERE rid = 1",
        "UPDATE memories SET body = vectors WHERE key <> ?",
        "UPDATE memories SET vectors = body WHERE key <> ?",
    ],
)
def test_a_row_that_was_moved_is_found_in_an_encrypted_store(
    url: str, outside: Outside, change: str
) -> None:
    with SqlStore.from_url(url, keys=KEYS, index=INDEX) as store:
        store.put(A, "k", {"text": "a"})
    outside.run(change, b"a\x00\x00x")
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        found = verify(saver).findings
        assert {one.table for one in found} == {"memories"}
        assert found[-1].what.startswith("table memories is damaged or was tampered with")
        if "tenant" not in change:
            with pytest.raises(StorageError, match="was tampered with"):
                SqlStore.of(saver, index=INDEX).search((), query="a")


def test_a_changed_row_is_found_by_its_checksum(path: Path, url: str, outside: Outside) -> None:
    with SqlStore.from_url(url) as store:
        store.put(A, "k", {"n": 1}, ttl=5)
        store.get(A, "k")
        store.put(A, "k", {"n": 2}, ttl=7)
    with SqlSaver.from_url(url) as saver:
        assert verify(saver).is_whole
    outside.run("UPDATE memories SET expires = expires + 1")
    with SqlSaver.from_url(url) as saver:
        (found,) = verify(saver).findings
        assert found.what == "a row of memories was changed: its checksum is wrong"


def test_a_store_that_holds_items_is_not_marked_as_encrypted(url: str) -> None:
    with SqlStore.from_url(url) as store:
        store.put(A, "k", {"n": 1})
    with pytest.raises(StorageError, match="is not encrypted, and keys were given"):
        SqlStore.from_url(url, keys=KEYS)


@pytest.mark.parametrize("keyring", [None, KEYS], ids=["plain", "encrypted"])
def test_a_repaired_store_has_its_items(
    tmp_path: Path, database: str, url: str, keyring: Keys | None
) -> None:
    with SqlSaver.from_url(url, keys=keyring) as saver:
        fill_memories(saver)
        held = content(saver)
    to = f"sqlite:///{tmp_path / 'new.db'}"
    assert repair(url, to, keys=keyring).lost == []
    with SqlSaver.from_url(to, keys=keyring) as saver:
        assert content(saver) == held
        assert verify(saver).is_whole
        with saver._core.reading() as db:
            rows = db.execute(*compiled(select(memories.c.vectors))).fetchall()
        assert isinstance(saver._core.sealing, Plain) == (keyring is None)
        assert len([row for row in rows if row[0] is not None]) == 2


def test_a_store_for_reading_changes_nothing(url: str, outside: Outside) -> None:
    with SqlStore.from_url(url) as store:
        store.put(A, "k", {"n": 1}, ttl=1)
    before = outside.run("SELECT expires FROM memories")
    with SqlStore.from_url(url, read_only=True) as store:
        store._core.clock = lambda: time.time() + 30
        assert store.get(A, "k") is not None
        with pytest.raises(StorageError, match="open for reading only"):
            store.put(A, "l", {})
    assert outside.run("SELECT expires FROM memories") == before


def test_a_fork_goes_on_with_a_file(path: Path, url: str) -> None:
    with SqlStore.from_url(url) as store:
        store.put(A, "k", {"n": 1})
        if (pid := os.fork()) == 0:
            done = store.get(A, "k") is not None
            store.put(A, "child", {"n": 2})
            os._exit(0 if done else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert keys(store.search(A)) == ["k", "child"]


def test_a_sweep_waits_for_no_writer_of_an_item(postgres_url: str) -> None:
    with SqlStore.from_url(postgres_url) as store:
        store._core.clock = clock = Clock()
        for key in ("held", "free"):
            store.put(("n",), key, {"a": 1}, ttl=1)
        clock.forward(100)
        with connected(postgres_url) as db, db.transaction():
            db.execute("SELECT rid FROM memories WHERE key = %s FOR UPDATE", [_key(("n",), "held")])
            store.sweep()
        left = store._core.writing
        with left() as own:
            assert own.execute("SELECT count(*) FROM memories", ()).fetchone() == (1,)
        store.sweep()
        with left() as own:
            assert own.execute("SELECT count(*) FROM memories", ()).fetchone() == (0,)
