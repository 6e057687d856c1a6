"""From schema 1 to the newest: in one transaction, once, and only by a release that knows how."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.store.conftest import Outside
from tests.store.goldens import content, expected, fill_mailbox, fill_plain, unpacked
from tests.store.test_store_postgres import BACK_TO_SCHEMA_2
from tests.support import forked
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.digests import SCHEMA_VERSION
from wick_graph.store.maintenance import import_thread
from wick_graph.store.saver import dialect_of
from wick_graph.store.schema import checkpoints
from wick_graph.store.texts import compiled
from wick_graph.store.verify import verify

DYING = """
import os, signal, sys
from wick_graph.store import SqlSaver
from wick_graph.store import digests as schema_2

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

schema_2._add_digests = die
SqlSaver.from_url(sys.argv[1])
"""
SLOW = """
import sys, time
from wick_graph.store import SqlSaver
from wick_graph.store import digests as schema_2

fill = schema_2.fill

def slowly(db):
    print("filling", flush=True)
    time.sleep(1.5)
    fill(db)

schema_2.fill = slowly
with SqlSaver.from_url(sys.argv[1]) as saver:
    print(len(saver.threads.list()), flush=True)
"""


DYING_IN_STEP_3 = """
import os, signal, sys
from wick_graph.store import SqlSaver
from wick_graph.store import postgres, sqlite
from wick_graph.store.saver import dialect_of

def dying(execute):
    def run(self, text, *values):
        if text.startswith("CREATE INDEX outbox_state"):
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(self, text, *values)
    return run

for database in (postgres.Postgres, sqlite.Connection):
    database.execute = dying(database.execute)
url = sys.argv[1]
SqlSaver.from_url(url) if url.startswith("sqlite") else dialect_of(url).migrate()
"""


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    try:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
    finally:
        db.close()


def test_killed_in_the_middle_the_old_database_is_as_it_was(tmp_path: Path) -> None:
    path = unpacked("schema-1", "plain.db", tmp_path)
    done = forked.run([sys.executable, "-c", DYING, f"sqlite:///{path}"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert version(path) == 1
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        assert content(saver) == expected("schema-1", "plain.db")
        assert verify(saver).is_whole
    assert version(path) == 8


@pytest.mark.slow
def test_of_two_processes_one_migrates_and_the_other_waits(tmp_path: Path) -> None:
    path = unpacked("schema-1", "plain.db", tmp_path)
    command = [sys.executable, "-c", SLOW, f"sqlite:///{path}"]
    both = [forked.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(one.communicate(timeout=60)[0].split() for one in both)
    assert said == [["5"], ["filling", "5"]]
    assert [one.returncode for one in both] == [0, 0]


def test_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    path = unpacked("schema-1", "plain.db", tmp_path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 9")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="newer wick_graph"):
        SqlSaver.from_url(f"sqlite:///{path}")
    assert path.read_bytes() == before


def make_schema_2(url: str, tmp_path: Path, outside: Outside) -> Any:
    """Make a store of schema 2, and return what it holds."""
    if url.startswith("sqlite"):
        unpacked("schema-2", "plain.db", tmp_path).rename(tmp_path / "store.db")
        return expected("schema-2", "plain.db")
    with SqlSaver.from_url(url) as saver:
        fill_plain(saver)
        before = content(saver)
    for statement in BACK_TO_SCHEMA_2:
        outside.run(statement)
    return before


def test_a_store_of_schema_2_gets_a_mailbox(url: str, tmp_path: Path, outside: Outside) -> None:
    before = make_schema_2(url, tmp_path, outside)
    if url.startswith("sqlite"):  # a copy is brought up to date
        with SqlSaver.from_url(url, read_only=True) as saver:
            assert content(saver) == before
            with pytest.raises(StorageError, match="open for reading only"):
                saver.mailbox.put_fact("f", 1)
    else:
        for read_only in (True, False):
            with pytest.raises(StorageError, match="run `wick store migrate` once"):
                SqlSaver.from_url(url, read_only=read_only)
        assert dialect_of(url).migrate() == SCHEMA_VERSION
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: SqlSaver.from_url(url), range(2))
    with one, other:
        assert content(one) == before
        assert one.mailbox.receive("k", "cli:direct", {"content": "hello"}) is not None
        assert other.mailbox.receive("k", "cli:direct", {"content": "hello"}) is None
        one.mailbox.put_fact("f", [1])
        assert other.mailbox.fact("f") == [1]
        assert verify(one).is_whole


def test_killed_in_the_middle_a_store_of_schema_2_is_as_it_was(
    url: str, tmp_path: Path, outside: Outside
) -> None:
    before = make_schema_2(url, tmp_path, outside)
    done = forked.run([sys.executable, "-c", DYING_IN_STEP_3, url])
    assert done.returncode == -signal.SIGKILL
    if url.startswith("sqlite"):
        assert version(tmp_path / "store.db") == 2
    else:
        assert outside.run("SELECT version FROM wick_meta") == [(2,)]
        dialect_of(url).migrate()
    with SqlSaver.from_url(url) as saver:
        assert content(saver) == before
        fill_mailbox(saver)
        assert verify(saver).is_whole


def test_a_migrated_schema_of_postgresql_is_that_of_a_new_one(
    postgres_url: str, tmp_path: Path
) -> None:
    outside = Outside(postgres_url)
    schema = postgres_url.rpartition("schema=")[2]

    def described() -> Any:
        columns = "table_name, column_name, data_type, is_nullable"
        of_schema = f"table_schema = '{schema}' ORDER BY 1, 2"
        return (
            outside.run(
                f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}' ORDER BY 1"
            ),
            outside.run(f"SELECT {columns} FROM information_schema.columns WHERE {of_schema}"),
        )

    SqlSaver.from_url(postgres_url).close()
    new = described()
    for statement in BACK_TO_SCHEMA_2:
        outside.run(statement)
    assert dialect_of(postgres_url).migrate() == SCHEMA_VERSION
    assert described() == new
    outside.close()


def test_an_old_export_is_imported(tmp_path: Path) -> None:
    path = unpacked("schema-1", "a.thread", tmp_path)
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'store.db'}") as saver:
        assert import_thread(saver, path) == "a"
        told, old = content(saver)["a"], expected("schema-1", "a.thread")["a"]
        for name in ("checkpoints", "moments", "calls", "past"):
            assert told[name] == old[name]
        assert verify(saver).is_whole


def test_a_thread_whose_clock_stepped_back_goes_on_from_what_was_stored_last(
    tmp_path: Path,
) -> None:
    """In schema 1 the highest id was the newest, and all later turns were refused."""
    path = unpacked("schema-1", "plain.db", tmp_path)
    db = sqlite3.connect(path)
    ((thread, ns, last),) = db.execute(
        "SELECT c.thread, c.ns, max(c.rid) FROM checkpoints c JOIN threads t ON t.id = c.thread "
        "WHERE t.thread = ?",
        (b"loop",),
    ).fetchall()
    rows = db.execute(
        "SELECT rid, id FROM checkpoints WHERE thread = ? AND ns = ? ORDER BY rid", (thread, ns)
    ).fetchall()
    assert rows[-1][0] == last
    first = rows[0][1]
    earlier = bytes([*first[:4], 0, *first[5:]])  # an id of before the first one
    db.execute("UPDATE checkpoints SET id = ? WHERE rid = ?", (earlier, last))
    db.execute("UPDATE writes SET checkpoint = ? WHERE checkpoint = ?", (earlier, rows[-1][1]))
    db.commit()
    db.close()
    query = select(checkpoints.c.id).where(checkpoints.c.thread == thread)
    with SqlSaver.from_url(f"sqlite:///{path}") as saver, saver._core.reading() as opened:
        found = opened.execute(*compiled(query.order_by(checkpoints.c.seq.desc()))).fetchall()
    assert [bytes(row[0]) for row in found] == [earlier, *(row[1] for row in rows[-2::-1])]
