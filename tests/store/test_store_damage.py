"""Damaged or forged rows are errors that name the table and the thread, never data."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage

from tests.store.conftest import Outside
from tests.store.store_graphs import agent, config
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.codec import Codec, Tag
from wick_graph.store.maintenance import export_thread, import_thread
from wick_graph.store.row_format import seal
from wick_graph.store.verify import verify


def filled(url: str) -> list[Any]:
    with SqlSaver.from_url(url) as saver:
        agent(saver).invoke({"messages": [HumanMessage("hello", id="h")]}, config())
        return [*saver.list(config())]


@pytest.mark.sisters(2)
@pytest.mark.parametrize(
    ("table", "column"),
    [("items", "body"), ("checkpoints", "body"), ("checkpoints", "meta"), ("writes", "body")],
)
@pytest.mark.parametrize("where", [0, 8, -1])
def test_a_flipped_bit_is_found(
    url: str, outside: Outside, table: str, column: str, where: int
) -> None:
    filled(url)
    rows = outside.run(f"SELECT rid, {column} FROM {table} WHERE {column} IS NOT NULL")
    for rid, body in rows:
        broken = bytearray(body)
        broken[where] ^= 4
        outside.run(f"UPDATE {table} SET {column}=? WHERE rid=?", bytes(broken), rid)
    with SqlSaver.from_url(url) as saver, pytest.raises(StorageError) as caught:
        [*saver.list(config())]
    assert f"table {table} of thread 't' is damaged" in str(caught.value)


FLIPS, CUTS = 200, 60


def told(saver: SqlSaver) -> list[Any]:
    """Return all that a reader can learn of the thread's conversation, but how channels are called.

    Their names are the one thing that lies in the file without a check value.
    """
    found = [*saver.list(config())]
    values = [[*s.checkpoint["channel_values"].values()] for s in found]
    written = [[(task, value) for task, _, value in s.pending_writes or ()] for s in found]
    facts = [(s.config, s.parent_config, s.metadata, s.checkpoint["ts"]) for s in found]
    return [facts, values, written]


def probed(path: Path, content: bytes) -> list[Any] | None:
    """Open a file with this content; None where that is refused with an error of ours."""
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    path.write_bytes(content)
    try:
        with SqlSaver.from_url(f"sqlite:///{path}") as saver:
            return told(saver)
    except StorageError:
        return None


def is_left_out(got: list[Any], whole: list[Any], url: str) -> bool:
    """Return whether nothing is there but a part of the data, and `verify` reports the rest."""
    parts = zip(got, whole, strict=True)
    if not all(one in every for some, every in parts for one in some):
        return False
    try:
        with SqlSaver.from_url(url) as saver:
            return not verify(saver).is_whole
    except StorageError:
        return True


def test_s2_no_damage_to_a_file_is_presented_as_data(url: str, path: Path) -> None:
    """Each flipped bit and each cut leaves the data as it was, or ends in an error of ours.

    A row that is not found, since an index or a flag is damaged, is for `verify` to report.
    """
    filled(url)
    with SqlSaver.from_url(url) as saver:
        whole = told(saver)
    content = path.read_bytes()
    dice, found = random.Random(20_261_122), Counter[str]()
    for n in range(FLIPS + CUTS):
        broken = bytearray(content)
        if n < FLIPS:
            for _ in range((1, 4, 64)[n % 3]):
                at = dice.randrange(len(broken) * 8)
                broken[at >> 3] ^= 1 << (at & 7)
        else:
            del broken[dice.randrange(len(broken)) :]
        got = probed(path, bytes(broken))
        kind = "flipped" if n < FLIPS else "cut"
        how = "refused" if got is None else "as it was" if got == whole else "DIFFERENT"
        if got is not None and how == "DIFFERENT" and is_left_out(got, whole, url):
            how = "left out"
        if n >= FLIPS and not broken:
            how = "empty"  # no byte is left: that is a new file
        found[f"{kind}: {how}"] += 1
    print(f"\ndamaged files: {dict(found)}", file=sys.stderr)
    assert not [what for what in found if "DIFFERENT" in what], found
    assert found["flipped: refused"]
    assert found["cut: refused"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("UPDATE checkpoints SET step=step+1", id="step"),
        pytest.param("UPDATE checkpoints SET parent=id", id="parent"),
        pytest.param("UPDATE writes SET path=task", id="path"),
        pytest.param("DELETE FROM items", id="items gone"),
        pytest.param("DELETE FROM names", id="names gone"),
        pytest.param(
            "UPDATE items SET body=(SELECT body FROM items ORDER BY rid LIMIT 1)", id="rows moved"
        ),
    ],
)
def test_a_row_that_was_tampered_with_is_found(url: str, outside: Outside, change: str) -> None:
    filled(url)
    outside.run(change)
    with SqlSaver.from_url(url) as saver, pytest.raises(StorageError, match="thread 't'"):
        [*saver.list({"configurable": {"thread_id": "t"}})]


def test_a_damaged_page_is_an_error_of_ours(url: str, path: Path) -> None:
    expected = [one.checkpoint for one in filled(url)]
    good = path.read_bytes()
    outcomes = set()
    for page in range(1, len(good) // 4096):
        broken = bytearray(good)
        broken[page * 4096 + 3 : page * 4096 + 40] = b"\xa5" * 37
        path.write_bytes(broken)
        try:
            with SqlSaver.from_url(url) as saver:
                assert [one.checkpoint for one in saver.list(config())] == expected
                outcomes.add("same")
        except StorageError:
            outcomes.add("error")
        for side in ("-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
    assert outcomes == {"same", "error"}


def forge(url: str, outside: Outside, payload: bytes, version: int = 1) -> Any:
    """Put bytes, with a right check value, where the `note` of a checkpoint is."""
    with SqlSaver.from_url(url) as saver:
        stored = saver.put(
            config("t", checkpoint_ns=""),
            {
                "v": 4,
                "id": "00000000-0000-6000-8000-000000000000",
                "ts": "2026-01-01T00:00:00+00:00",
                "channel_values": {"note": "n" * 300},
                "channel_versions": {"note": 1},
                "versions_seen": {},
                "updated_channels": None,
            },
            {},
            {"note": 1},
        )
    ((rid,),) = outside.run("SELECT rid FROM items WHERE length(body) > 300")
    sealed = seal(b"\x00" + payload, rid, None)
    if version != 1:
        sealed = reseal(sealed, rid, version)
    outside.run("UPDATE items SET body=? WHERE rid=?", sealed, rid)
    with SqlSaver.from_url(url) as saver:
        found = saver.get_tuple(stored)
        assert found is not None
        return found.checkpoint["channel_values"]["note"]


def reseal(sealed: bytes, rid: int, version: int) -> bytes:
    payload = bytes((version,)) + sealed[9:]
    check = blake2b(ormsgpack.packb((rid, None)) + payload, digest_size=8).digest()
    return check + payload


def foreign_ext(code: int, module: str, name: str, args: Any) -> bytes:
    """What LangGraph's own serializer would rebuild by importing and calling."""
    inner = ormsgpack.packb((module, name, args, "x"))
    return ormsgpack.packb(ormsgpack.Ext(code, inner))


@pytest.mark.parametrize(
    "code",
    [pytest.param(c, id=f"E{n}") for n, c in ((2, 0), (3, 1), (4, 2), (5, 5), (6, 15))],
)
@pytest.mark.parametrize("function", [("os", "system"), ("subprocess", "Popen"), ("re", "compile")])
def test_nothing_is_called(
    url: str, outside: Outside, tmp_path: Path, code: int, function: tuple[str, str]
) -> None:
    proof = tmp_path / "proof"
    payload = foreign_ext(code, *function, [f"touch {proof}"])
    with contextlib.suppress(StorageError):
        assert type(forge(url, outside, payload)) in (tuple, set)  # our meaning of that number
    assert not proof.exists()


@pytest.mark.parametrize("kind", ["json", "pickle", "", "msgpack"])
def test_e1_an_unknown_type_is_refused(kind: str) -> None:
    with pytest.raises(StorageError, match="unknown format"):
        Codec().loads_typed((kind, b"\x01\x01"))


@pytest.mark.parametrize("body", [b"", b"\x00\x01", b"\x02\x01"])
def test_e1_an_unknown_version_is_refused(body: bytes) -> None:
    with pytest.raises(StorageError, match="unknown format"):
        Codec().loads_typed(("wick", body))


def test_e1_a_row_of_another_version_is_refused(url: str, outside: Outside) -> None:
    with pytest.raises(StorageError, match="unknown format"):
        forge(url, outside, b"\x01", version=9)


def test_e7_there_is_no_pickle() -> None:
    source = Path(__file__).parents[2] / "wick_graph" / "store"
    assert not [p for p in source.glob("*.py") if "pickle" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(
            {"lc": 2, "type": "constructor", "id": ["os", "system"], "method": "x", "kwargs": {}},
            id="E8",
        ),
        pytest.param({"lc": 1, "type": "secret", "id": ["WICK_SECRET"]}, id="E9"),
    ],
)
def test_a_dict_that_looks_like_an_object_is_data(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WICK_SECRET", "secret")
    codec = Codec()
    assert codec.loads_typed(codec.dumps_typed([value])) == [value]
    assert os.environ["WICK_SECRET"] == "secret"


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x91" * 100_000 + b"\x01", id="E12-depth"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="E12-length"),
        pytest.param(b"\xdb\xff\xff\xff\xffx", id="E12-text length"),
        pytest.param(b"\x01\x02", id="E12-trailing"),
        pytest.param(b"", id="E12-nothing"),
        pytest.param(b"\xc1", id="E12-reserved"),
        pytest.param(ormsgpack.packb(ormsgpack.Ext(Tag.COMPACT, b"\x92\x63\x80")), id="class"),
        pytest.param(ormsgpack.packb(ormsgpack.Ext(Tag.SET, b"\x91\x90")), id="unhashable"),
        pytest.param(ormsgpack.packb(ormsgpack.Ext(Tag.UUID, b"short")), id="short uuid"),
        pytest.param(ormsgpack.packb(ormsgpack.Ext(Tag.KEYED, b"\x92\x63\x01")), id="keys"),
        pytest.param(ormsgpack.packb(ormsgpack.Ext(Tag.KEYED, b"\x92\x00\x01")), id="few values"),
        pytest.param(ormsgpack.packb(ormsgpack.Ext(99, b"x")), id="tag"),
    ],
)
def test_malformed_bytes_are_a_bounded_error(payload: bytes) -> None:
    with pytest.raises(StorageError, match="unknown format"):
        Codec().unpack(payload)


def test_e12_nested_extensions_are_a_bounded_error() -> None:
    payload = b"\x01"
    for _ in range(3_000):
        payload = ormsgpack.packb(ormsgpack.Ext(Tag.TUPLE, b"\x91" + payload))
    with pytest.raises(StorageError, match="unknown format"):
        Codec().unpack(payload)


def test_e12_the_last_of_two_equal_keys_counts() -> None:
    assert Codec().unpack(b"\x82\xa1a\x01\xa1a\x02") == {"a": 2}


def test_filters_are_values_not_sql(url: str) -> None:
    filled(url)
    with SqlSaver.from_url(url) as saver:
        for key in ("') OR 1=1 --", "source') OR ('1'='1", "a'b\"c", "x.y", "\x00"):
            assert [*saver.list(config(), filter={key: "x"})] == []
        assert [*saver.list(config(), filter={"source": "' OR 1=1 --"})] == []
        assert [*saver.list(None, filter={"source": {"a": 1}})] == []
        assert len([*saver.list(config(), filter={"source": "input"})]) == 1


def test_e14_a_forged_lease_neither_lasts_nor_overflows(url: str, outside: Outside) -> None:
    with SqlSaver.from_url(url) as saver:
        saver.leases.release(saver.leases.acquire("t"))
        forged = (2**63 - 1, 253_402_300_799.0, b"another machine/1/1")
        outside.run("UPDATE leases SET epoch=?, until=?, owner=?", *forged)
        lease = saver.leases.acquire("t")
        assert 0 < lease.epoch < 2**62
        assert saver.leases.epoch("t") is not None


def test_a_damaged_file_is_not_taken_for_a_damaged_store(tmp_path: Path) -> None:
    """Who imports from it, or exports from it, must not restore a backup of the other one."""
    file, whole = tmp_path / "file.db", tmp_path / "whole.db"
    filled(f"sqlite:///{file}")
    with contextlib.closing(sqlite3.connect(file)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'items'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    content = bytearray(file.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    file.write_bytes(content)
    with SqlSaver.from_url(f"sqlite:///{whole}") as saver:
        with pytest.raises(StorageError, match="file.db failed .* it is damaged"):
            import_thread(saver, file)
        assert verify(saver).is_whole
    with (
        SqlSaver.from_url(f"sqlite:///{file}") as saver,
        pytest.raises(StorageError, match="file.db failed .* it is damaged"),
    ):
        export_thread(saver, "t", tmp_path / "out.db")
