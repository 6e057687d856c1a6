"""Files that are taken away, prepared by somebody, read-only or full; and debug mode."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from tests.store.conftest import Counts
from tests.store.store_graphs import agent, config, looping_graph
from tests.store.test_store_sharing import Line, message
from wick_graph import ToolResult
from wick_graph.errors import StorageError
from wick_graph.runtime.tool_ledger import drop_unstorable, written
from wick_graph.store import SqlSaver, row_format, sqlite
from wick_graph.store import sqlite as whose
from wick_graph.store.dialect import Database
from wick_graph.store.digests import MIGRATIONS, SCHEMA_VERSION, migrate

GOLDEN = Path(__file__).parent / "golden" / "schema-1.db"


def filled(path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        Line(saver).put(messages=[message(0)])


def sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


# --- E13: too much of it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"log": ["x" * 20_000]}, id="text"),
        pytest.param({"log": [b"x" * 20_000]}, id="bytes"),
        pytest.param({"log": [AIMessage("x" * 20_000, id="m")]}, id="message"),
        pytest.param({f"c{n}": "x" * 90 for n in range(200)}, id="many channels"),
    ],
)
def test_e13_a_value_that_is_too_large_is_refused(
    saver: SqlSaver, counts: Counts, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setattr(row_format, "MAX_BYTES", 10_000)
    line = Line(saver)
    line.put(log=["small"])
    before, parent = counts(), line.parent
    with pytest.raises(StorageError, match="cannot be stored, 10,000 is the most"):
        line.put(**values)
    assert (counts(), line.parent) == (before, parent)
    line.put(log=["small", "again"])
    assert line.get() == {"log": ["small", "again"]}


def test_e13_more_writes_than_a_task_may_make_are_refused(saver: SqlSaver, counts: Counts) -> None:
    at = config(checkpoint_ns="", checkpoint_id=Line(saver).put(log=[]))
    before = counts()
    with pytest.raises(StorageError, match="100,001 times cannot be stored, 100,000 is the most"):
        saver.put_writes(at, [("log", n) for n in range(100_001)], "task", "")
    assert counts() == before
    saver.put_writes(at, [("log", n) for n in range(100_000)], "task", "")
    assert counts()["writes"] == before["writes"] + 1


def test_e13_the_limit_is_below_that_of_the_database() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        assert db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) > row_format.MAX_BYTES + 1_024
    assert row_format.MAX_BYTES + 1_024 < 2**30  # PostgreSQL's


def test_e13_what_is_too_large_of_a_tools_result_is_replaced_at_its_edge(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_format, "MAX_BYTES", 10_000)
    ledger = saver.ledger(saver.leases.acquire("t"))
    huge = "x" * 20_000
    made = ToolResult("call_1", "look", "seen", artifact=huge, update={"notes": huge})
    kept = drop_unstorable(made, ledger)
    assert kept.artifact["not_stored"] == "str"
    assert kept.update is None
    assert "10,000 is the most" in str(kept.error)
    ledger.finish("key", "look", {}, written(kept))
    assert ledger.recorded("key", "look", {}) is not None


# --- S4: the file is taken away -------------------------------------------------------------------


def test_s4_a_file_that_was_deleted_is_not_made_again(saver: SqlSaver, path: Path) -> None:
    line = Line(saver)
    line.put(log=["a"])
    path.unlink()
    for call in (lambda: line.put(log=["b"]), line.get, saver.threads.list, saver.sweep):
        with pytest.raises(StorageError, match="was deleted while it was open") as caught:
            call()
        assert str(path) in str(caught.value)
    assert not path.exists()


def test_s4_a_file_that_was_replaced_is_not_written(saver: SqlSaver, path: Path) -> None:
    line = Line(saver)
    line.put(log=["a"])
    away = path.with_name("away.db")
    path.rename(away)
    path.write_bytes(b"somebody else's")
    with pytest.raises(StorageError, match="was replaced by another file"):
        line.put(log=["b"])
    assert path.read_bytes() == b"somebody else's"
    away.replace(path)
    line.put(log=["b"])
    assert line.get() == {"log": ["b"]}


def test_s4_a_fork_does_not_make_a_lost_file_again(saver: SqlSaver, path: Path) -> None:
    Line(saver).put(log=["a"])
    path.rename(path.with_name("away.db"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            saver.get_tuple(config())
        except StorageError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(StorageError, match="was deleted"):
        saver.get_tuple(config())
    assert not path.exists()


def test_a_second_saver_does_not_cost_the_first_its_locks(url: str, path: Path) -> None:
    """Closing any descriptor of a file drops the locks that a process holds on it."""
    with SqlSaver.from_url(url) as first:
        line = Line(first)
        line.put(log=["a"])
        with SqlSaver.from_url(url):
            read = f"import sqlite3; d = sqlite3.connect({str(path)!r}); "
            read += "print(d.execute('SELECT count(*) FROM checkpoints').fetchone()[0]); d.close()"
            command = [sys.executable, "-c", read]
            assert subprocess.run(command, capture_output=True, text=True).stdout == "1\n"
            line.put(log=["b"])
            assert subprocess.run(command, capture_output=True, text=True).stdout == "2\n"


@pytest.mark.slow
def test_processes_that_make_one_file_at_once_get_the_same(tmp_path: Path) -> None:
    for n in range(8):
        path = tmp_path / f"{n}.db"
        if n % 2:
            path.touch()
        children = []
        for name in "abc":
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
                        Line(saver, name).put(log=[name])
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children] == [0, 0, 0]
        with SqlSaver.from_url(f"sqlite:///{path}") as saver:
            assert {info.thread_id for info in saver.threads.list()} == {*"abc"}
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


# --- E15, E16: the file was prepared --------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(
            "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM checkpoints; END",
            id="E15-trigger",
        ),
        pytest.param("CREATE VIEW v AS SELECT * FROM items", id="E15-view"),
        pytest.param("CREATE TABLE notes (a)", id="E15-table"),
        pytest.param("CREATE INDEX i ON items (abs(rid))", id="E15-index"),
        pytest.param("DROP INDEX threads_expiry", id="E15-index gone"),
        pytest.param("ALTER TABLE items ADD COLUMN x TEXT DEFAULT 'y'", id="E15-column"),
        pytest.param("ALTER TABLE items ADD COLUMN x AS (abs(rid))", id="E15-generated"),
        pytest.param("ALTER TABLE items RENAME TO things", id="E15-renamed"),
    ],
)
def test_a_prepared_schema_is_refused_and_untouched(path: Path, statement: str) -> None:
    filled(path)
    sql(path, statement)
    before, folder = hashlib.sha256(path.read_bytes()).digest(), sorted(path.parent.iterdir())
    with pytest.raises(StorageError, match="changed by another program") as caught:
        SqlSaver.from_url(f"sqlite:///{path}")
    assert str(path) in str(caught.value)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert sorted(path.parent.iterdir()) == folder


@pytest.mark.parametrize(
    ("table", "text"),
    [
        pytest.param("items", "CHECK (abs(rid) >= 0)", id="E15-check"),
        pytest.param("items", "CONSTRAINT c UNIQUE (base)", id="E15-unique"),
    ],
)
def test_a_prepared_table_is_refused(path: Path, table: str, text: str) -> None:
    filled(path)
    db = sqlite3.connect(path)
    (made,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    db.execute(f"DROP TABLE {table}")
    db.execute(f"{made.rstrip().removesuffix(')')}, {text})")
    db.commit()
    db.close()
    with pytest.raises(StorageError, match="changed by another program"):
        SqlSaver.from_url(f"sqlite:///{path}")


def test_what_analyze_adds_is_no_change(path: Path) -> None:
    filled(path)
    sql(path, "ANALYZE")
    filled(path.with_name("other.db"))
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        assert saver.get_tuple(config()) is not None


def test_e16_a_link_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    filled(real)
    link.symlink_to(real)
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/sub/../link.db") as saver:
        link.unlink()
        link.symlink_to("/dev/null")
        assert saver.get_tuple(config()) is not None
    with pytest.raises(StorageError, match="no regular file"):
        SqlSaver.from_url(f"sqlite:///{link}")


def test_e16_a_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").symlink_to(tmp_path / "b.db")
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    with pytest.raises(StorageError, match=r"a\.db"):
        SqlSaver.from_url(f"sqlite:///{tmp_path}/a.db")


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/srv /srv nfs4 rw 0 0
tmpfs /srv/scratch tmpfs rw 0 0
//box/share /mnt/my\\040share cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/store.db", "ext4"),
        ("/srv/store.db", "nfs4"),
        ("/srvice/store.db", "ext4"),
        ("/srv/scratch/store.db", "tmpfs"),
        ("/mnt/my share/store.db", "cifs"),
    ],
)
def test_e16_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert whose.file_system(Path(path), MOUNTS) == kind
    assert whose.file_system(Path(path), "") == ""


def test_e16_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} nfs rw 0 0\n")
    monkeypatch.setattr(whose, "_MOUNTS", mounts)
    with pytest.raises(StorageError, match="network file system"):
        SqlSaver.from_url(f"sqlite:///{tmp_path}/store.db")
    assert [*tmp_path.iterdir()] == [mounts]


# --- no permission, no space ----------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], object]) -> int:
    """Run in a fork without the rights of root; 0 for success."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("what", ["file", "folder", "new file"])
def test_s4_what_may_not_be_written_is_named(open_folder: Path, what: str) -> None:
    path = open_folder / "store.db"
    if what != "new file":
        filled(path)
        path.chmod(0o444 if what == "file" else 0o666)
    if what == "file":
        open_folder.chmod(0o777)
    elif os.getuid():
        open_folder.chmod(0o555)
    before = None if what == "new file" else hashlib.sha256(path.read_bytes()).digest()

    def work() -> None:
        with (
            pytest.raises(StorageError, match=r"store\.db|permission|Permission"),
            SqlSaver.from_url(f"sqlite:///{path}") as saver,
        ):
            Line(saver).put(log=["a"])

    assert as_nobody(work) == 0
    assert path.exists() is (what != "new file")
    if before is not None:
        assert hashlib.sha256(path.read_bytes()).digest() == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill_up(line: Line, stored: list[str]) -> None:
    while True:
        stored.append(line.put(log=[os.urandom(20_000).hex()]))


def test_r8_a_full_disk_loses_nothing_and_is_left_behind(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    with SqlSaver.from_url(f"sqlite:///{small_disk}/store.db") as saver:
        line = Line(saver)
        stored: list[str] = []
        with pytest.raises(StorageError, match="the disk is full; free some space"):
            fill_up(line, stored)
        assert len(stored) > 3
        assert line.get(stored[-1])  # it can be read while it is full
        ballast.unlink()
        line.parent = stored[-1]
        stored.append(line.put(log=["after"]))
        assert {one.checkpoint["id"] for one in saver.list(config())} == {*stored}
        assert line.get() == {"log": ["after"]}


def test_r8_what_waited_when_the_disk_was_full_is_kept(saver: SqlSaver, path: Path) -> None:
    saver._core._flusher.close()
    db = saver._core._connection
    assert db is not None
    line = Line(saver)
    line.put(log=["a"])
    at = config("t", checkpoint_ns="", checkpoint_id=line.parent)
    big = os.urandom(200_000).hex()
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages + 2}")
    saver.put_writes(at, [("log", [big])], "task", "~__pregel_pull, node")
    for _ in range(2):
        with pytest.raises(StorageError, match="disk is full"):
            line.put(log=[big])
    db.execute("PRAGMA max_page_count=1000000")
    found = saver.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task", "log", [big])]


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "warned"),
    [((3, 51, 3), False), ((4, 0, 0), False), ((3, 51, 2), True), ((3, 40, 1), True)],
)
def test_advice_on_sqlite(version: tuple[int, ...], warned: bool) -> None:
    said = sqlite.advice(version)
    assert (said is not None) is warned
    assert said is None or "3.51.3" in said


def _next(db: Database) -> None:
    db.execute("ALTER TABLE items ADD COLUMN x")


def _after(db: Database) -> None:
    db.execute("CREATE TABLE more AS SELECT x FROM items")


def test_s3_migrations_are_one_transaction(path: Path) -> None:
    filled(path)

    def fails(db: Database) -> None:
        raise sqlite3.OperationalError("no")

    db = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, path, (*MIGRATIONS, _next, fails))
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert "x" not in [row[1] for row in db.execute("PRAGMA table_info(items)")]
    migrate(db, path, (*MIGRATIONS, _next))
    migrate(db, path, (*MIGRATIONS, _next, _after))
    migrate(db, path, (*MIGRATIONS, _next, _after))
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 2,)
    with pytest.raises(StorageError, match="newer wick_graph"):
        migrate(db, path, (*MIGRATIONS, _next))
    db.close()


def test_s5_a_file_of_schema_1_opens(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copy(GOLDEN, path)
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        state = agent(saver).get_state(config())
        assert [m.content for m in state.values["messages"]][:2] == ["hello", "step 0"]
        assert len([*agent(saver).get_state_history(config())]) == 9
        agent(saver, 4).invoke({"messages": [("user", "more")]}, config())


# --- debug mode -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["put", "read"])
def test_a_message_that_is_changed_in_place_is_found_in_debug_mode(url: str, how: str) -> None:
    with SqlSaver.from_url(url, debug=True) as saver:
        line = Line(saver)
        messages: list[Any] = [message(n) for n in range(5)]
        line.put(messages=messages)
        if how == "read":
            messages = line.get()["messages"]
        line.put(messages=[*messages, message(5)])
        messages[3].content = "changed"
        more = [message(5), message(6)]
        line.write(messages=more)
        with pytest.raises(StorageError, match="message 'id-3' at index 3 of channel 'messages'"):
            line.put(messages=[*messages, *more])
        fresh = messages[3].model_copy()
        line.put(messages=[*messages[:3], fresh, message(9)])
        assert line.get()["messages"][3].content == "changed"


def test_debug_mode_does_not_mind_ids_that_come_late(url: str) -> None:
    with SqlSaver.from_url(url, debug=True) as saver:
        looping_graph(saver, 10).invoke({"messages": [("user", "x")]}, config())
        agent(saver, 3).invoke({"messages": [("user", "x")]}, config("u"))
        late = AIMessage("x")
        line = Line(saver, "v")
        line.put(messages=[])
        at = config("v", checkpoint_ns="", checkpoint_id=line.parent)
        saver.put_writes(at, [("messages", [late])], "task")
        late.id = "late"
        line.put(messages=[late])
        assert line.get()["messages"][0].id == "late"


def test_debug_mode_by_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WICK_DEBUG", "1")
    with SqlSaver.from_url(url) as saver, contextlib.suppress(StorageError):
        line = Line(saver)
        messages = [message(0)]
        line.put(messages=messages)
        messages[0].content = "changed"
        line.write(messages=[one := message(1)])
        line.put(messages=[*messages, one])
        pytest.fail("it was not noticed")
    with SqlSaver.from_url(url, debug=False) as saver:
        line = Line(saver, "quiet")
        messages = [message(0)]
        line.put(messages=messages)
        messages[0].content = "changed"
        line.write(messages=[one := message(1)])
        line.put(messages=[*messages, one])
        assert line.get()["messages"][0].content == message(0).content
