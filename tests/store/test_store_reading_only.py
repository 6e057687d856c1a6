"""A store that may not be written opens for reading, and says so where somebody writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.encrypted import fill
from tests.store.goldens import content, expected, fill_plain, unpacked
from tests.store.store_graphs import config, looping_graph
from tests.store.test_store_hardening import as_nobody
from wick_graph.cli.app import call
from wick_graph.debug import DebugSession
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.verify import verify

SENTENCE = r"is open for reading only, so nothing can be written to it; give this user"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder into which everybody may look."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def made(folder: Path, how: str) -> Path:
    """Make a store that only its owner may write to."""
    path = folder / "store.db"
    if how == "schema 1":
        unpacked("schema-1", "plain.db", folder).rename(path)
    else:
        saver = SqlSaver.from_url(f"sqlite:///{path}")
        fill_plain(saver)
        fill(saver, "a")
        if how == "log":  # as a killed process leaves it
            saver._core.flush()
            for end in ("", "-wal"):
                shutil.copy(f"{path}{end}", folder / f"copy.db{end}")
        saver.close()
        if how == "log":
            path = folder / "copy.db"
    text = f"store: sqlite:///{path}\nagents:\n  one: {{model: scripted}}\n"
    (folder / "agents.yaml").write_text(text, "utf-8")
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o777 if how == "file" else 0o755)
    return path


def looked_at(path: Path) -> None:
    """Look at everything that can be looked at, and try to write."""
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        told = content(saver)
        assert told.keys() >= {"loop", "asks", "nested", "delta"}
        info = saver.threads.get("loop")
        assert info is not None
        assert info.steps == len(told["loop"]["checkpoints"])
        graph = looping_graph(saver, 9)
        assert len([*graph.get_state_history(config("loop"))]) == info.steps
        assert verify(saver).is_whole
        if "a" in told:
            with DebugSession.open(saver, "a") as session:
                assert session.inspect.where() is not None
        for write in (
            lambda: saver.threads.pin("loop"),
            lambda: graph.invoke({"log": ["more"]}, config("loop")),
            lambda: graph.update_state(config("loop"), {"log": ["more"]}),
            lambda: saver.leases.acquire("loop"),
            saver.sweep,
        ):
            with pytest.raises(StorageError, match=SENTENCE):
                write()


def commands(path: Path) -> None:
    os.chdir(path.parent)
    for args in (["threads", "list"], ["threads", "show", "loop"], ["store", "verify"]):
        assert call(args) == 0, args
    assert call(["journal", "loop"]) == 0
    assert call(["threads", "pin", "loop"]) != 0


def both(path: Path) -> Callable[[], None]:
    def work() -> None:
        looked_at(path)
        commands(path)

    return work


@pytest.mark.sisters
@pytest.mark.parametrize("how", ["file", "folder", "log", "schema 1"])
def test_without_the_right_to_write_it_is_read(folder: Path, how: str) -> None:
    path = made(folder, how)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert as_nobody(both(path)) == 0
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name: after[name] for name in before} == before
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        if how == "schema 1":
            assert content(saver) == expected("schema-1", "plain.db")


def test_on_a_read_only_mount_root_reads_too(folder: Path, tmp_path: Path) -> None:
    path = made(folder, "folder")
    point = tmp_path / "mounted"
    point.mkdir()
    mount = ["mount", "--bind", "-o", "ro", str(folder), str(point)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(point)], check=True)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                looked_at(point / path.name)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        subprocess.run(["umount", str(point)], check=True)


@pytest.mark.sisters
def test_any_store_opens_for_reading_if_that_is_asked(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        fill_plain(saver)
    with SqlSaver.from_url(url, read_only=True) as saver:
        assert content(saver).keys() >= {"loop"}
        with pytest.raises(StorageError, match=SENTENCE):
            saver.threads.pin("loop")
