"""`verify` notices what is missing, foreign or damaged; `repair` saves what is sound."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import Outside
from tests.store.encrypted import KEYS, fill
from tests.store.goldens import OPENED, content, fill_mailbox, fill_plain, unpacked
from tests.store.test_store_sharing import Line, message
from tests.support.command import Ended, Inside
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.digests import HASHED
from wick_graph.store.maintenance import repair
from wick_graph.store.schema import ACCOUNTED
from wick_graph.store.verify import Report, verify

ROWS = {
    "items": "items",
    "writes": "writes",
    "checkpoints": "checkpoints",
    "moments": "moments",
    "calls": "calls",
    "blobs": "blobs WHERE thread > 0",
    "runs": "runs",
    "names": "names",
    "streams": "streams",
    "events": "events",
}


def verified(url: str, keys: Any = None) -> Report:
    with SqlSaver.from_url(url, keys=keys) as saver:
        return verify(saver)


@pytest.fixture
def filled(url: str) -> str:
    """A store with something in each table."""
    with SqlSaver.from_url(url) as saver:
        fill_plain(saver)
        fill(saver, "a", "b")
        saver.tokens.create("local")
        fill_mailbox(saver)
    return url


@pytest.mark.sisters
def test_every_table_that_belongs_to_a_thread_is_counted(filled: str, outside: Outside) -> None:
    assert {table.name for table in ACCOUNTED} == {*ROWS}
    assert [table.name for table in ACCOUNTED] == [*HASHED]
    assert all(outside.count(table.name) for table in ACCOUNTED)


@pytest.mark.sisters
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_a_store_is_whole_after_all_that_is_done_to_one(url: str, keys: Any) -> None:
    with SqlSaver.from_url(url, keys=keys) as saver:
        fill_plain(saver)
        fill(saver, "a", "b")
        saver.threads.fork("a", "c")
        saver.threads.keep_latest("a", 3)
        saver.delete_for_runs([str(row.metadata.get("run_id")) for row in saver.list(None)][:2])
        saver.threads.rename("b", "other")
        saver.copy_thread("b", "d")
        saver.threads.delete("c")
        report = verify(saver)
    assert report.findings == []
    assert report.threads == 8


@pytest.mark.sisters
@pytest.mark.parametrize("table", ROWS)
def test_a_missing_row_is_noticed(filled: str, outside: Outside, table: str) -> None:
    key = "id" if table == "names" else "rid"
    found = outside.run(f"SELECT {key} FROM {ROWS[table]} ORDER BY {key}")
    assert found
    gone = found[len(found) // 2][0]
    outside.run(f"DELETE FROM {table} WHERE {key} = ?", gone)
    report = verified(filled)
    assert any(one.table == table and one.what == "1 row is missing" for one in report.findings)
    missing = [one for one in report.findings if one.what == "1 row is missing"]
    assert all(one.thread for one in missing)


@pytest.mark.sisters
@pytest.mark.parametrize("table", ["writes", "checkpoints"])
def test_the_step_is_named_where_a_row_is_missing(
    filled: str, outside: Outside, table: str
) -> None:
    step = "base.seq" if table == "checkpoints" else "c.seq"
    joined = (
        "checkpoints c JOIN checkpoints base ON base.thread=c.thread AND base.id=c.parent"
        if table == "checkpoints"
        else "writes c0 JOIN checkpoints c ON c.thread=c0.thread AND c.id=c0.checkpoint"
    )
    rid = "c.rid" if table == "checkpoints" else "c0.rid"
    ((gone, seq), *_) = outside.run(f"SELECT {rid}, {step} FROM {joined} ORDER BY 1 DESC")
    outside.run(f"DELETE FROM {table} WHERE rid = ?", gone)
    missing = [one for one in verified(filled).findings if one.what == "1 row is missing"]
    assert [(one.table, one.step) for one in missing] == [(table, seq)]


@pytest.mark.sisters
def test_an_item_that_is_missing_names_the_steps_that_refer_to_it(
    filled: str, outside: Outside
) -> None:
    ((gone,),) = outside.run("SELECT min(rid) FROM items WHERE base IS NULL")
    outside.run("DELETE FROM items WHERE rid = ?", gone)
    said = [one for one in verified(filled).findings if one.step is not None]
    assert said
    assert {one.table for one in said} == {"items"}
    assert all("missing" in one.what for one in said)


@pytest.mark.parametrize("table", ["calls", "runs", "writes", "checkpoints", "items", "moments"])
def test_another_row_in_the_place_of_one_is_noticed(path: Path, table: str) -> None:
    url = f"sqlite:///{path}"
    with SqlSaver.from_url(url) as saver:
        fill(saver, "a")
    db = sqlite3.connect(path, isolation_level=None)
    if table in ("calls", "runs"):
        state = "state" if table == "calls" else "status"
        last = f"(SELECT max(rid) FROM {table})"
        db.execute(f"UPDATE {table} SET {state} = 'intent' WHERE rid = {last}")
    else:
        rid, body = db.execute(f"SELECT rid, body FROM {table} ORDER BY rid DESC").fetchone()
        other = db.execute(f"SELECT body FROM {table} WHERE rid <> ?", (rid,)).fetchone()[0]
        db.execute(f"UPDATE {table} SET body = ? WHERE rid = ?", (other, rid))
        assert body != other
    db.close()
    assert any(one.table == table for one in verified(url).findings)


def test_an_item_of_another_database_is_noticed_though_it_is_whole(path: Path) -> None:
    """Its check value covers its place alone; the thread's digest knows that it is not the one."""
    other = path.with_name("other.db")
    for at, word in ((path, "ours"), (other, "theirs")):
        with SqlSaver.from_url(f"sqlite:///{at}") as saver:
            line = Line(saver)
            line.put(messages=[message(0)], log=[f"{word} " * 40])
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("ATTACH ? AS other", (str(other),))
    changed = db.execute(
        "UPDATE items SET body = (SELECT o.body FROM other.items o WHERE o.rid = items.rid) "
        "WHERE EXISTS (SELECT 1 FROM other.items o WHERE o.rid = items.rid "
        "AND o.body <> items.body)"
    ).rowcount
    db.close()
    assert changed
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        report = verify(saver)
        assert [one.table for one in report.findings] == ["items"]
        assert "older or from elsewhere" in report.findings[0].what


@pytest.mark.sisters(8)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE threads SET pinned = 1 - pinned WHERE id = (SELECT min(id) FROM threads)",
        "UPDATE threads SET thread = 'x' WHERE id = (SELECT min(id) FROM threads)",
        "UPDATE leases SET tries = 3 WHERE thread = (SELECT min(thread) FROM leases)",
        "UPDATE tokens SET scopes = 'admin'",
        "UPDATE clock SET wall = wall + 1",
        "UPDATE inbox SET chat = x'00' WHERE rid = (SELECT min(rid) FROM inbox)",
        "UPDATE outbox SET state = 'open' WHERE state = 'dead'",
        "UPDATE facts SET body = x'00' WHERE rid = (SELECT min(rid) FROM facts)",
        "DELETE FROM threads WHERE id = (SELECT max(id) FROM threads)",
        "DELETE FROM digests",
        "UPDATE digests SET moments = 'many' WHERE rid = (SELECT max(rid) FROM digests)",
        "UPDATE digests SET calls = calls | 1 << 62 WHERE rid = (SELECT max(rid) FROM digests)",
        "UPDATE digests SET rid = rid + 1000 WHERE rid = (SELECT max(rid) FROM digests)",
        "UPDATE digests SET blobs = 0.5 WHERE rid = (SELECT min(rid) FROM digests)",
        "UPDATE checkpoints SET seq = seq + 1000",
        "UPDATE blobs SET size = size + 1 WHERE thread > 0",
    ],
)
def test_a_changed_column_is_noticed(path: Path, filled: str, change: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute(change).rowcount
    db.close()
    assert not verified(filled).is_whole


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE checkpoints SET body = 11 WHERE rid = (SELECT max(rid) FROM checkpoints)",
        "UPDATE moments SET body = 'text'",
        "UPDATE blobs SET body = 11 WHERE thread > 0",
    ],
)
def test_a_body_of_another_type_is_noticed(path: Path, filled: str, change: str) -> None:
    """One bit may tell SQLite of another type, or of another column's content."""
    test_a_changed_column_is_noticed(path, filled, change)


# --- bit flips ------------------------------------------------------------------------------------


def rows_of(path: Path) -> dict[str, list[Any]]:
    db = sqlite3.connect(path)
    try:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: db.execute(f"SELECT rowid, * FROM {name}").fetchall() for (name,) in tables}
    finally:
        db.close()


def flipped(path: Path, url: str, count: int, seed: int) -> dict[str, int]:
    """Flip bits, one at a time, and count what came of it."""
    data, before = path.read_bytes(), rows_of(path)
    chance, told = random.Random(seed), {"reported": 0, "harmless": 0}
    for _ in range(count):
        at = chance.randrange(len(data) * 8)
        broken = bytearray(data)
        broken[at >> 3] ^= 1 << (at & 7)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        path.write_bytes(broken)
        try:
            whole = verified(url).is_whole
        except StorageError:
            whole = False
        if whole:
            assert rows_of(path) == before, f"bit {at} went unnoticed"
        told["harmless" if whole else "reported"] += 1
    return told


def test_a_flipped_bit_is_reported_or_changes_no_row(path: Path, filled: str) -> None:
    told = flipped(path, filled, 60, seed=1)
    assert told["reported"] > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_300_flipped_bits(path: Path, filled: str, seed: int) -> None:
    told = flipped(path, filled, 300, seed=100 + seed)
    assert told["reported"] > 50


# --- repair ---------------------------------------------------------------------------------------


def told_of(url: str, keys: Any = None) -> Any:
    with SqlSaver.from_url(url, keys=keys) as saver:
        return content(saver)


@pytest.mark.sisters
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_a_whole_store_is_saved_as_it_is(path: Path, keys: Any) -> None:
    url, to = f"sqlite:///{path}", f"sqlite:///{path.with_name('new.db')}"
    with SqlSaver.from_url(url, keys=keys) as saver:
        fill_plain(saver)
        fill(saver, "a")
        fill_mailbox(saver)
    before = path.read_bytes()
    made = repair(url, to, keys=keys)
    assert (made.lost, made.threads) == ([], 6)
    assert path.read_bytes() == before
    old, new = told_of(url, keys), told_of(to, keys)
    for one in (*old.values(), *new.values()):
        for moved in ("streams", "events"):  # what servers keep
            one.pop(moved, None)
    assert new == old
    assert verified(to, keys).is_whole


def steps_of(url: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with SqlSaver.from_url(url) as saver:
        for one in saver.list(None):
            at = one.config["configurable"]
            found.setdefault(at["thread_id"], set()).add(at["checkpoint_id"])
    return found


def damage(name: str) -> Callable[[sqlite3.Connection], None]:
    def one_item(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM items WHERE rid = (SELECT max(rid) FROM items)")

    def a_thread(db: sqlite3.Connection) -> None:
        db.execute("UPDATE checkpoints SET body = x'00' WHERE thread = 1")

    return {"one_item": one_item, "a_thread": a_thread}[name]


@pytest.mark.sisters
@pytest.mark.parametrize("how", ["one_item", "a_thread"])
def test_what_is_sound_is_saved(path: Path, filled: str, how: str) -> None:
    steps = steps_of(filled)
    db = sqlite3.connect(path, isolation_level=None)
    damage(how)(db)
    db.close()
    held = path.read_bytes()
    to = f"sqlite:///{path.with_name('new.db')}"
    made = repair(filled, to)
    assert made.lost
    assert path.read_bytes() == held
    assert verified(to).is_whole
    kept = steps_of(to)
    lost = sum(len(steps[name] - kept.get(name, set())) for name in steps)
    assert 0 < lost < sum(map(len, steps.values())) / 2
    assert all(kept[name] <= steps[name] for name in kept)


def test_pages_that_cannot_be_read_are_leapt_over(path: Path, filled: str) -> None:
    data = bytearray(path.read_bytes())
    pages = [at for at in range(4096, len(data), 4096) if data[at] == 13]  # leaves of tables
    worst = max(pages, key=lambda at: int.from_bytes(data[at + 3 : at + 5], "big"))
    data[worst : worst + 200] = b"\xff" * 200
    path.write_bytes(data)
    to = f"sqlite:///{path.with_name('new.db')}"
    made = repair(filled, to)
    assert made.lost
    assert made.threads
    assert verified(to).is_whole


@pytest.mark.sisters(2)
@pytest.mark.parametrize("name", ["plain.db", "journal.db", "encrypted.db"])
def test_a_store_of_schema_1_is_verified_and_repaired_unchanged(tmp_path: Path, name: str) -> None:
    path = unpacked("schema-1", name, tmp_path)
    before, keys = path.read_bytes(), KEYS if name == "encrypted.db" else None
    with SqlSaver.from_url(f"sqlite:///{path}", keys=keys, read_only=True) as saver:
        assert verify(saver).is_whole
    to = f"sqlite:///{tmp_path / 'new.db'}"
    assert repair(f"sqlite:///{path}", to, keys=keys).lost == []
    assert verified(to, keys).is_whole
    assert path.read_bytes() == before
    with OPENED[name](path) as saver:
        assert verify(saver).is_whole


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = f"store: sqlite:///{path}\nagents:\n  one: {{model: scripted}}\n"
    path.with_name("agents.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(path.parent)
    return path.parent


def test_the_commands(
    folder: Path, path: Path, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> Ended:
        return Inside(folder, capsys).wick("store", *words)

    whole = run("verify", "--json")
    assert whole.code == 0, whole.err
    assert whole.json["findings"] == []
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DELETE FROM writes WHERE rid = (SELECT max(rid) FROM writes)")
    db.close()
    found = run("verify", "--json")
    assert found.code == 1
    ((one),) = found.json["findings"]
    assert (one["table"], one["what"]) == ("writes", "1 row is missing")
    assert one["thread"]
    assert one["step"]
    text = run("verify")
    assert text.code == 1
    assert "1 row is missing" in text.out
    saved = run("repair", "--to", "new.db", "--json")
    assert saved.code == 1
    assert saved.json["threads"] == 7
    assert verified(f"sqlite:///{folder / 'new.db'}").is_whole
    again = run("repair", "--to", "new.db")
    assert again.code != 0
    path.write_bytes(b"nothing that SQLite knows" * 100)
    broken = run("verify", "--json")
    assert broken.code == 1
    assert "not a SQLite database" in broken.json["findings"][0]["what"]


def test_a_schema_that_cannot_be_read_is_said_to_be_damaged(
    folder: Path, path: Path, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    broken = "SET name = CAST(x'74df72' AS TEXT), sql = 'CREATE TABEL' WHERE name = 'threads'"
    db.execute(f"UPDATE sqlite_master {broken}")  # SQLite's error quotes the name
    db.close()
    for command in (["verify", "--json"], ["repair", "--to", "new.db"]):
        made = Inside(folder, capsys).wick("store", *command)
        assert made.code == 1
        assert "restore a backup" in made.out + made.err
        assert "unexpected" not in made.out + made.err
    assert not (folder / "new.db").exists()


def test_what_fails_in_a_shared_commit_is_not_counted(saver: SqlSaver) -> None:
    line, core = Line(saver, "t"), saver._core

    def fail() -> None:
        with core.writing("t") as db:
            db.account.add(0, core.thread_for_writing(db, "t").id, 1)
            raise ZeroDivisionError

    with core.batch():
        line.put(log=["a"])
        with pytest.raises(ZeroDivisionError):
            fail()
        line.put(log=["b"])
    assert line.get() == {"log": ["b"]}
    assert verify(saver).is_whole
