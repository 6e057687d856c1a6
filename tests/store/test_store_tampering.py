"""Rows of an encrypted store that somebody changed are errors, whatever was done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import Outside
from tests.store.encrypted import (
    KEYS,
    NEW,
    OTHER,
    Sealed,
    fill,
    one_of_each,
    readers,
    sealed_rows,
)
from wick_graph.errors import StorageError
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver, row_format

FROM, KEY, NONCE, TEXT, TAG = 0, 1, 5, 17, -1
"""Where the parts of a row begin."""
Attack = Callable[[Sealed, dict[str, Sealed]], bytes]


@pytest.fixture
def full(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url, keys=KEYS, synchronous="NORMAL") as saver:
        fill(saver, "a", "b")
        yield saver


def flipped(at: int) -> Attack:
    def attack(row: Sealed, others: dict[str, Sealed]) -> bytes:
        body = bytearray(row.body)
        body[at] ^= 1
        return bytes(body)

    return attack


def cut(size: int) -> Attack:
    return lambda row, others: row.body[:size]


def moved(row: Sealed, others: dict[str, Sealed]) -> bytes:
    """Put the row of another thread there that stands in the same place."""
    return others[row.table].body


def renamed(row: Sealed, others: dict[str, Sealed]) -> bytes:
    """Say that it is under the other key of the store."""
    old = KEYS.by_id.keys() - {KEYS.current}
    return row.body[:KEY] + next(iter(old)) + row.body[NONCE:]


def unknown(row: Sealed, others: dict[str, Sealed]) -> bytes:
    return row.body[:KEY] + OTHER.current + row.body[NONCE:]


def plain(row: Sealed, others: dict[str, Sealed]) -> bytes:
    """Write what a store without keys would hold there, with the check value that fits."""
    return row_format.seal(b"\xc0", *row.context)


@pytest.mark.sisters(12)
@pytest.mark.parametrize(
    ("attack", "says"),
    [
        pytest.param(plain, "not encrypted", id="E10-a plaintext row"),
        pytest.param(moved, "does not fit its key and its place", id="E11-from thread B to A"),
        pytest.param(flipped(TAG), "does not fit its key and its place", id="E11-tag"),
        pytest.param(flipped(NONCE), "does not fit its key and its place", id="E11-nonce"),
        pytest.param(flipped(TEXT), "does not fit its key and its place", id="E11-ciphertext"),
        pytest.param(flipped(KEY), "is encrypted with the key", id="E11-a bit of the key id"),
        pytest.param(renamed, "does not fit its key and its place", id="E11-the other key's id"),
        pytest.param(unknown, "is encrypted with the key", id="E11-an unknown key id"),
        pytest.param(flipped(FROM), "unknown format", id="E11-version"),
        pytest.param(cut(-1), "does not fit its key and its place", id="E11-one byte less"),
        pytest.param(cut(32), "cut short", id="E11-no room for the tag"),
        pytest.param(cut(0), "cut short", id="E11-empty"),
    ],
)
def test_a_row_that_was_changed_is_refused(
    full: SqlSaver, outside: Outside, attack: Attack, says: str
) -> None:
    found = sealed_rows(full)
    mine, others = one_of_each(found, "a"), one_of_each(found, "b")
    assert {*mine} == {*readers("a")}, "a table that nobody attacks"
    for table, row in mine.items():
        outside.run(f"UPDATE {table} SET body=? WHERE rid=?", attack(row, others), row.rid)
        if table in ("moments", "runs"):  # a journal tells what it lacks, and goes on
            assert any("damaged" in said for said in readers("a")[table](full)), table
        else:
            with pytest.raises(StorageError, match=says) as caught:
                readers("a")[table](full)
            assert str(caught.value).count("\n") == 0
        readers("b")[table](full)
        outside.run(f"UPDATE {table} SET body=? WHERE rid=?", row.body, row.rid)
    for read in readers("a").values():
        read(full)
    assert Journal(full, "a").problems() == []


@pytest.mark.sisters(2)
@pytest.mark.parametrize("column", ["title", "last_error"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param("?", "not encrypted|cut short|unknown format", id="E10-plain text"),
        pytest.param("(SELECT {c} FROM threads WHERE thread=?)", "its place", id="E11-of another"),
    ],
)
def test_a_threads_own_texts_are_bound_to_it(
    full: SqlSaver, outside: Outside, column: str, change: str, says: str
) -> None:
    text = change.replace("{c}", column)
    outside.run(f"UPDATE threads SET {column}={text} WHERE thread=?", b"b", b"a")
    with pytest.raises(StorageError, match=says):
        full.threads.get("a")
    with pytest.raises(StorageError, match=says):
        full.threads.list()


def swap(outside: Outside) -> str:
    for old, new in ((b"a", b"c"), (b"b", b"a"), (b"c", b"b")):
        outside.run("UPDATE threads SET thread=? WHERE thread=?", new, old)
    return "local"


def take_over(outside: Outside) -> str:
    outside.run("UPDATE threads SET tenant=?", b"evil")
    return "evil"


@pytest.mark.parametrize(
    "change", [pytest.param(swap, id="E11-names"), pytest.param(take_over, id="E11-tenant")]
)
def test_a_thread_does_not_go_by_another_name(
    url: str, full: SqlSaver, outside: Outside, change: Callable[[Outside], str]
) -> None:
    """Who can write to the database gives nobody the thread of somebody else."""
    full.close()
    with SqlSaver.from_url(url, keys=KEYS, tenant=change(outside)) as saver:
        for table in ("items", "checkpoints", "writes", "blobs", "streams", "events"):
            with pytest.raises(StorageError, match="does not fit its key and its place"):
                readers("a")[table](saver)
        assert readers("a")["calls"](saver) is None
        with pytest.raises(StorageError, match="does not fit its key and its place"):
            saver.threads.get("a")
        assert any("damaged" in said for said in Journal(saver, "a").problems())


def test_a_row_of_another_store_does_not_fit(
    full: SqlSaver, outside: Outside, tmp_path: Path
) -> None:
    """The same key, the same thread, the same place: the salts differ."""
    there = f"sqlite:///{tmp_path}/other.db"
    with SqlSaver.from_url(there, keys=KEYS) as other:
        fill(other, "a", "b")
        foreign = {(row.table, row.rid): row.body for row in sealed_rows(other)}
    mine = one_of_each(sealed_rows(full), "a")
    for table in ("streams", "events", "items"):
        row = mine[table]
        outside.run(f"UPDATE {table} SET body=? WHERE rid=?", foreign[table, row.rid], row.rid)
        with pytest.raises(StorageError, match="does not fit its key and its place"):
            readers("a")[table](full)


def test_a_result_is_that_of_its_arguments(url: str, full: SqlSaver, outside: Outside) -> None:
    """A recorded result under the hash of another call's arguments is no result of theirs."""
    full.close()
    hashes = outside.run("SELECT rid, args FROM calls WHERE thread=1 ORDER BY rid")
    (first, mine), (_, other) = hashes[:2]
    outside.run("UPDATE calls SET args=? WHERE rid=?", bytes(other), first)
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        lease = saver.leases.acquire("a")
        ledger = saver.ledger(lease)
        key = bytes(outside.run("SELECT key FROM calls WHERE rid=?", first)[0][0]).decode()
        with pytest.raises(StorageError, match="does not fit its key and its place"):
            ledger.recorded(key, "act", {"what": "canary-7f3a9c", "n": 1})
    assert mine != other


@pytest.mark.sisters(4)
@pytest.mark.parametrize("at", [0, 1, 5, 21, 33, -1])
def test_the_stores_own_row_is_bound_too(
    url: str, full: SqlSaver, outside: Outside, at: int
) -> None:
    full.close()
    body = bytearray(outside.run("SELECT body FROM blobs WHERE thread=0")[0][0])
    body[at] ^= 1
    outside.run("UPDATE blobs SET body=? WHERE thread=0", bytes(body))
    before = outside.count("blobs")
    with pytest.raises(StorageError, match=r"the database .* (damaged|encrypted with the key)"):
        SqlSaver.from_url(url, keys=KEYS)
    assert outside.count("blobs") == before


def test_without_its_own_row_a_store_is_no_plain_one(
    url: str, full: SqlSaver, outside: Outside
) -> None:
    full.close()
    outside.run("DELETE FROM blobs WHERE thread=0")
    with pytest.raises(StorageError, match="is not encrypted, and keys were given"):
        SqlSaver.from_url(url, keys=KEYS)
    with SqlSaver.from_url(url) as saver:
        for table, read in readers("a").items():
            if table not in ("moments", "runs"):
                with pytest.raises((StorageError, AssertionError)):
                    assert read(saver)


@pytest.mark.parametrize("keys", [OTHER, NEW], ids=["E11-wrong key", "E11-an old key is missing"])
def test_a_key_that_is_missing_is_named(url: str, outside: Outside, keys: Any) -> None:
    with SqlSaver.from_url(url, keys=OTHER if keys is NEW else KEYS) as saver:
        fill(saver)
    made = outside.run("SELECT body FROM blobs WHERE thread=0")[0][0]
    with pytest.raises(StorageError) as caught:
        SqlSaver.from_url(url, keys=keys)
    needed = OTHER.ids[0] if keys is NEW else KEYS.ids[0]
    assert f"is encrypted with the key {needed}, and the keys given are" in str(caught.value)
    assert outside.run("SELECT body FROM blobs WHERE thread=0")[0][0] == made


def test_what_can_be_replayed_is_what_stood_there(
    url: str, full: SqlSaver, outside: Outside
) -> None:
    """The limit that the documentation names: the last checkpoints can be cut off, not forged."""
    states = [one.checkpoint["id"] for one in full.list({"configurable": {"thread_id": "a"}})]
    full.close()
    newest = outside.run("SELECT max(rid) FROM checkpoints WHERE thread=1")[0][0]
    older = outside.run("SELECT body FROM checkpoints WHERE thread=1 ORDER BY rid LIMIT 1")[0][0]
    body = outside.run("SELECT body FROM checkpoints WHERE rid=?", newest)[0][0]
    outside.run("UPDATE checkpoints SET body=? WHERE rid=?", bytes(older), newest)
    with SqlSaver.from_url(url, keys=KEYS) as saver, pytest.raises(StorageError, match="its place"):
        saver.get_tuple({"configurable": {"thread_id": "a"}})
    outside.run("UPDATE checkpoints SET body=? WHERE rid=?", bytes(body), newest)
    outside.run("DELETE FROM checkpoints WHERE rid=?", newest)
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        left = [one.checkpoint["id"] for one in saver.list({"configurable": {"thread_id": "a"}})]
    assert left == states[1:]
