"""A file has its old content or the new one, whenever the writing process is killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import ROOT
from wick_graph.backends import LocalBackend, Root
from wick_graph.backends import root as replace
from wick_graph.errors import ToolError

SIZE = 20 * 10**6
KILLS = 50

# Forks a writer for each line that it reads, so that nothing is imported fifty times.
WRITER = f"""
import os, sys
from wick_graph.backends import Root, root as replace
if sys.argv[2] == "named":
    replace._nameless = lambda directory: None
root = Root(sys.argv[1])
old, new = b"o" * {SIZE}, b"n" * {SIZE}
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.write(1, b"%d\\n" % os.getpid())
        root.replace("file", new if line.strip() == "new" else old)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    os.write(1, b"end %d\\n" % status)
"""


@pytest.fixture(params=["nameless", "named"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WRITER, str(tmp_path), request.param]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def said(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 30)
    assert ready, "the writer says nothing"
    return process.stdout.readline().decode().strip()


def tell(process: subprocess.Popen[bytes], word: str) -> int:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n".encode())
    return int(said(process))


def duration(process: subprocess.Popen[bytes]) -> float:
    """Write once, to the end."""
    tell(process, "old")
    start = time.monotonic()
    assert said(process) == "end 0"
    return time.monotonic() - start


def test_fifty_kills_in_the_middle_of_a_write(
    writer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"o" * SIZE)
    path.chmod(0o640)
    usual = min(duration(writer) for _ in range(5))
    rng = random.Random(1)
    killed = 0
    for trial in range(KILLS):
        pid = tell(writer, "new" if trial % 2 else "old")
        time.sleep(rng.uniform(0, usual))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        killed += said(writer) == f"end {signal.SIGKILL.value}"
        content = path.read_bytes()
        assert content in (b"o" * SIZE, b"n" * SIZE)
        assert path.stat().st_mode & 0o777 == 0o640
        assert len(list(tmp_path.iterdir())) <= 2
    assert killed >= KILLS / 3
    tell(writer, "new")
    assert said(writer) == "end 0"
    assert path.read_bytes() == b"n" * SIZE
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_full_or_broken_disk_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, nameless: bool
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if not nameless:
        monkeypatch.setattr(replace, "_nameless", lambda directory: None)
    with LocalBackend(tmp_path) as fs:
        fs.write("f", b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, step, broken)
            for write in (lambda: fs.write("f", b"new"), lambda: fs.edit("f", "old", "new")):
                with pytest.raises(ToolError, match="No space left"):
                    write()
        assert fs.read("f").text == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["f"]
        fs.write("f", b"new")
        assert fs.read("f").text == "new"


def test_a_temporary_file_that_is_being_written_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has it locked; one that nobody locks is a killed writer's."""
    monkeypatch.setattr(replace, "_nameless", lambda directory: None)
    left = tmp_path / replace.temporary_name(b"f").decode()
    with Root(tmp_path) as root:
        with left.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            root.replace("f", b"one")
            assert left.exists()
        root.replace("f", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"two"


def test_a_planted_temporary_name_leads_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    work = tmp_path / "w"
    work.mkdir()
    for patched in (False, True):
        (work / replace.temporary_name(b"f").decode()).symlink_to(secret)
        with pytest.MonkeyPatch.context() as patch, Root(work) as root:
            if patched:
                patch.setattr(replace, "_nameless", lambda directory: None)
            root.replace("f", b"new")
        assert [path.name for path in work.iterdir()] == ["f"]
    assert secret.read_text() == "untouched"


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    with Root(tmp_path) as root:
        was = root.stat("f")
        path.write_bytes(b"other")
        with pytest.raises(ToolError, match="changed on disk"):
            root.replace("f", b"mine", was=was)
        path.unlink()
        with pytest.raises(ToolError, match="changed on disk"):
            root.replace("f", b"mine", was=was)
    assert list(tmp_path.iterdir()) == []
