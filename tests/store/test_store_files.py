"""Whose file is it: foreign, newer, damaged or odd files are refused and stay as they are."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.store.store_graphs import config, looping_graph
from wick_graph import Agent
from wick_graph.config.fields import resolve_store
from wick_graph.errors import ConfigError, StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.digests import SCHEMA_VERSION
from wick_graph.store.maintenance import import_thread
from wick_graph.store.sqlite import path_of
from wick_graph.testing import ScriptedModel


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE checkpoints (a)")
    db.close()


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA application_id=1234")
        db.execute("CREATE TABLE notes (a)")
    db.close()


def ours(path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        looping_graph(saver, 3).invoke({"messages": []}, config())


def patched(path: Path, at: int, data: bytes) -> None:
    ours(path)
    body = bytearray(path.read_bytes())
    body[at : at + len(data)] = data
    path.write_bytes(body)


def newer(path: Path) -> None:
    patched(path, 60, struct.pack(">I", 99))


def truncated(path: Path) -> None:
    ours(path)
    path.write_bytes(path.read_bytes()[:-5000])


def png(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))


CASES = [
    pytest.param(foreign, "another program", id="S1-tables of ours by name"),
    pytest.param(other_program, "0x000004d2", id="S1-application id"),
    pytest.param(lambda p: p.write_text("hello\n" * 50), "not a SQLite database", id="S1-text"),
    pytest.param(lambda p: p.write_text("short"), "not a SQLite database", id="S1-short text"),
    pytest.param(png, "not a SQLite database", id="S1-picture"),
    pytest.param(newer, "newer wick_graph", id="S3-newer"),
    pytest.param(truncated, "bytes", id="S2-truncated"),
    pytest.param(lambda p: patched(p, 16, b"\x00\x03"), "damaged", id="S2-page size"),
    pytest.param(lambda p: patched(p, 60, bytes(4)), "damaged", id="S2-no version"),
    pytest.param(lambda p: patched(p, 0, b"X"), "not a SQLite database", id="S2-magic"),
]


@pytest.mark.parametrize(("make", "says"), CASES)
def test_a_file_that_is_not_ours_is_refused_and_untouched(
    path: Path, make: Callable[[Path], None], says: str
) -> None:
    make(path)
    before = hashlib.sha256(path.read_bytes()).digest()
    folder = sorted(path.parent.iterdir())
    with pytest.raises(StorageError, match=says) as caught:
        SqlSaver.from_url(f"sqlite:///{path}")
    assert str(path) in str(caught.value)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert sorted(path.parent.iterdir()) == folder


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="folder"):
        SqlSaver.from_url(f"sqlite:///{tmp_path}")


def test_a_device_is_refused() -> None:
    with pytest.raises(StorageError, match="no regular file"):
        SqlSaver.from_url("sqlite:////dev/null")


def test_an_empty_file_is_not_imported_and_stays_empty(tmp_path: Path) -> None:
    file = tmp_path / "talk.thread"
    file.touch()
    with SqlSaver.from_url("sqlite://") as saver, pytest.raises(StorageError, match="is empty"):
        import_thread(saver, file)
    assert file.read_bytes() == b""


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="file"):
        SqlSaver.from_url(f"sqlite:///{tmp_path}/file/sub/store.db")


@pytest.mark.parametrize("how", ["missing", "empty", "missing folder"])
def test_a_new_file_is_made(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a" / "b.db" if how == "missing folder" else tmp_path / "b.db"
    if how == "empty":
        path.touch()
    ours(path)
    head = path.read_bytes()[:100]
    assert struct.unpack_from(">I", head, 68)[0] == 0x5749434B
    assert struct.unpack_from(">I", head, 60)[0] == SCHEMA_VERSION
    assert struct.unpack_from(">I", head, 64)[0] == 1  # incremental vacuum
    with SqlSaver.from_url(f"sqlite:///{path}") as again:
        assert again.get_tuple(config()) is not None


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="empty"),
        pytest.param("no url", id="words"),
        pytest.param("mysql://host/db", id="other database"),
        pytest.param("sqlite+aiosqlite:///x.db", id="other driver"),
        pytest.param("sqlite:///x.db?mode=memory", id="E16-options"),
        pytest.param("sqlite:///file:x?mode=memory", id="E16-file URI"),
        pytest.param("sqlite://host/x.db", id="host"),
        pytest.param("sqlite://:memory:", id="a port that is none"),
        pytest.param("sqlite://[::1/x.db", id="half an address"),
    ],
)
def test_a_url_that_we_cannot_serve_is_refused(url: str) -> None:
    with pytest.raises(StorageError, match="sqlite:///|options"):
        SqlSaver.from_url(url)


def test_wrong_settings_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="duration"):
        SqlSaver.from_url(url, ttl="soon")
    with pytest.raises(StorageError, match="FULL or NORMAL"):
        SqlSaver.from_url(url, synchronous="OFF")  # type: ignore[arg-type]  # the point of it
    with pytest.raises(StorageError, match="cannot be allowed"):
        SqlSaver.from_url(url, allow=[object])


def test_a_closed_saver_says_so(url: str) -> None:
    saver = SqlSaver.from_url(url)
    saver.close()
    saver.close()
    with pytest.raises(StorageError, match="closed"):
        saver.get_tuple(config())


async def test_a_closed_saver_says_so_in_a_loop(url: str) -> None:
    async with SqlSaver.from_url(url) as saver:
        assert await saver.aget_tuple(config()) is None
    with pytest.raises(StorageError, match="closed"):
        await saver.aget_tuple(config())


def test_a_config_without_a_thread_says_what_to_pass(url: str) -> None:
    with SqlSaver.from_url(url) as saver, pytest.raises(StorageError, match="thread_id"):
        saver.get_tuple({"configurable": {}})


def test_a_file_whose_checkpoint_was_killed_is_whole(tmp_path: Path) -> None:
    """SQLite writes the first page, with the new size, before the pages behind it.

    A process that dies between leaves a file that is shorter than it says; the log has the rest.
    """
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with SqlSaver.from_url(f"sqlite:///{path}") as store:
        agent = Agent("a", ScriptedModel(["x" * 20_000]), store=store)
        agent.invoke("hi", thread_id="first")
    small = path.read_bytes()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("CREATE TABLE more AS SELECT zeroblob(100000) AS x")
        db.execute("DROP TABLE more")
        db.commit()
        whole_log = log.read_bytes()
        db.execute("PRAGMA wal_checkpoint(FULL)")
        whole = path.read_bytes()
    assert len(whole) > len(small)
    path.write_bytes(whole[:4096] + small[4096:])
    log.write_bytes(whole_log)
    with SqlSaver.from_url(f"sqlite:///{path}") as store:
        assert store.threads.get("first") is not None
    assert path.stat().st_size == len(whole)
    path.write_bytes(whole[:4096] + small[4096:])
    assert not log.exists()
    with pytest.raises(StorageError, match=f"it has {len(small)} of {len(whole)} bytes"):
        SqlSaver.from_url(f"sqlite:///{path}").threads.list()


@pytest.mark.parametrize("start", ["sqlite:///", "sqlite:////", "sqlite+pysqlite:///"])
@pytest.mark.parametrize(
    "name",
    ["", "a.db", "a/b c.db", "ü:[1]+&=;\n.db", ":memory:", "a%20b", "a#b", "u@h/a", "a?b=c"],
)
def test_a_url_names_the_file_that_sqlalchemy_reads_in_it(start: str, name: str) -> None:
    """A plain one is not given to it."""
    parts = make_url(start + name)
    if parts.query:
        with pytest.raises(StorageError, match="no options"):
            path_of(start + name)
    elif parts.database in ("", ":memory:"):
        assert path_of(start + name) is None
    else:
        assert path_of(start + name) == Path(str(parts.database)).resolve()


def test_a_path_from_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("sqlite:///~/a.db") == tmp_path / "a.db"
    assert path_of("sqlite:///~a.db") == Path("~a.db").absolute()
    assert resolve_store("sqlite:///~/a.db", Path("/srv")) == f"sqlite:///{tmp_path}/a.db"
