"""Archives that unfold to more than they say, or compute what they hold."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.exports import wickrun
from wick_graph.exports.wickrun import open_wickrun
from wick_graph.journal import page_format
from wick_graph.store import SqlSaver
from wick_graph.store.codec import MAX_UNFOLDED, fold, unfold
from wick_graph.store.maintenance import export_thread, import_thread
from wick_graph.testing import ScriptedModel

MANIFEST = {"wickrun": 1, "thread": "t"}


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'here.db'}") as made:
        yield made


def archive(
    path: Path, manifest: bytes, store: bytes = b"", how: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", how) as made:
        made.writestr("manifest.json", manifest)
        with made.open("thread.db", "w") as file:
            file.write(store)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(StorageError) as caught, open_wickrun(path):
        pass
    return str(caught.value)


def test_a_store_that_unfolds_is_stopped_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wickrun, "_SMALL", 2**20)
    path = archive(tmp_path / "a.wickrun", json.dumps(MANIFEST).encode(), b"\0" * (64 * 2**20))
    assert path.stat().st_size < 2**17
    written = []
    real = wickrun._pieces

    def counted(*args: object) -> Iterator[bytes]:
        for piece in real(*args):  # type: ignore[arg-type]  # passed on as they came
            written.append(len(piece))
            yield piece

    monkeypatch.setattr(wickrun, "_pieces", counted)
    assert "unfolds to more than" in refusal(path)
    assert sum(written) < 2**23, "nothing beyond the bound was written"


def test_a_manifest_that_unfolds_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "a.wickrun", b'{"x":"' + b" " * (64 * 2**20) + b'"}')
    unfolded = []
    read = zipfile.ZipExtFile.read

    def counted(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        piece = read(self, n)
        unfolded.append(len(piece))
        return piece

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    assert "unfolds to more than 1 MiB" in refusal(path)
    assert 2**20 < sum(unfolded) < 2**22, "nothing beyond the bound was unfolded"


@pytest.mark.parametrize("manifest", [b"[" * 100_000, b"null", b"[]", b"{}", b"\xff"])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, manifest: bytes) -> None:
    assert "no .wickrun file" in refusal(archive(tmp_path / "a.wickrun", manifest))


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_to_pack_are_refused(tmp_path: Path, how: int) -> None:
    path = archive(tmp_path / "a.wickrun", json.dumps(MANIFEST).encode(), b"x" * 2**20, how)
    assert "no .wickrun file" in refusal(path)


def test_a_content_unfolds_only_as_far_as_it_is_folded() -> None:
    most = b"\0" * MAX_UNFOLDED
    assert fold(most + b"\0", 1) is None
    small = fold(most, 1)
    assert small is not None
    assert unfold(small) == most
    bomb = zlib.compress(most + b"\0")
    with pytest.raises(StorageError, match="unfolds to more than 64 MiB"):
        unfold(bomb)
    with pytest.raises(StorageError, match="unfolds to more than 64 MiB"):
        page_format.unpack_page(b"\0\0\0\0" + b"\x01" + bomb)
    with pytest.raises(zlib.error):
        unfold(small[:-8])


COMPUTED = {
    "view": "DROP TABLE blobs; CREATE VIEW blobs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
    "SELECT i + 1 FROM n) SELECT i AS thread, zeroblob(1000000) AS body FROM n",
    "trigger": "CREATE TRIGGER more AFTER UPDATE ON threads BEGIN DELETE FROM threads; END",
    "virtual": "CREATE VIRTUAL TABLE more USING fts5(body)",
    "a name that is no text": "CREATE VIEW more AS SELECT 1; PRAGMA writable_schema = ON; "
    "UPDATE sqlite_master SET name = CAST(x'80' AS TEXT) WHERE name = 'more'",
    "column": "ALTER TABLE blobs ADD COLUMN more AS (zeroblob(500000000))",
}


@pytest.mark.parametrize("what", COMPUTED)
def test_a_thread_that_computes_what_it_holds_is_refused(
    saver: SqlSaver, tmp_path: Path, what: str
) -> None:
    Agent("it", ScriptedModel(["Done."]), store=saver).invoke("Go", thread_id="t")
    file = tmp_path / "t.thread"
    export_thread(saver, "t", file)
    assert import_thread(saver, file, to="fine") == "fine"
    with closing(sqlite3.connect(file)) as db:
        db.executescript(COMPUTED[what])
    said = "computes content|its schema cannot be read"  # some versions of SQLite refuse it first
    with pytest.raises(StorageError, match=said):
        import_thread(saver, file, to="other")
    assert saver.threads.get("other") is None


def test_a_damaged_definition_is_refused_in_a_sentence(saver: SqlSaver, tmp_path: Path) -> None:
    """SQLite quotes it in its own error, which is no text then."""
    Agent("it", ScriptedModel(["Done."]), store=saver).invoke("Go", thread_id="t")
    file = tmp_path / "t.thread"
    export_thread(saver, "t", file)
    whole = file.read_bytes()
    refused = 0
    for at in [at for at in range(len(whole)) if whole.startswith(b"CREATE TABLE", at)]:
        for byte in (7, 13, 15, 20):
            broken = bytearray(whole)
            broken[at + byte] = 0x80
            file.write_bytes(broken)
            with suppress(StorageError):
                import_thread(saver, file, to=f"other-{at}-{byte}")
                continue
            refused += 1
    assert refused > 10


def test_a_pipe_is_no_archive(saver: SqlSaver, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    said: list[str] = []

    def read() -> None:
        with pytest.raises(StorageError) as caught:
            import_thread(saver, pipe)
        said.append(str(caught.value) + refusal(pipe))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert "no regular file" in said[0]
