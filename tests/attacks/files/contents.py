"""Odd kinds, names, sizes, contents and modes of files (A17 to A28)."""

from __future__ import annotations

import json
import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from tests.attacks.files.lines import OTHER_UID, attack
from tests.attacks.world import World, at_most
from tests.engine.support import wild
from wick_graph import Agent
from wick_graph.backends import ExtraRoot
from wick_graph.errors import ToolError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel


@attack("A17")
def no_regular_files(w: World) -> None:
    os.mkfifo(w.work / "pipe")
    (w.work / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(w.work)  # the name of a socket is short
        listener.bind("sock")
        os.chdir(here)
        names = ["pipe", "sock"]
        if os.geteuid() == 0:
            os.mknod(w.work / "null", 0o666 | 0o020000, os.makedev(1, 3))
            names.append("null")
        for name in names:
            with at_most(10):
                w.refused("read_file", "not a regular file", path=name)
                w.refused("write_file", "not a regular file", path=name, content="x")
        w.refused("read_file", "symbolic link", path="zero")


@attack("A18")
def wrong_kinds(w: World) -> None:
    w.refused("read_file", "is a directory", path="a")
    w.refused("read_file", "is a directory", path=".")
    w.refused("read_file", "leads outside", path="/")
    w.refused("read_file", "as a directory that is not one", path="x/")
    w.refused("read_file", "as a directory that is not one", path="x/y")
    w.refused("read_file", "is empty", path="")
    w.refused("ls", "as a directory that is not one", path="x")
    for path in ("a", ".", "new/", "a/..", "new/."):
        w.refused("write_file", "is a directory", path=path, content="x")
    w.refused("write_file", "is empty", path="", content="x")
    w.refused("write_file", "as a directory that is not one", path="x/y", content="x")
    w.refused("write_file", "does not exist", path="nope/../y", content="x")
    assert not (w.work / "nope").exists()


@attack("A19")
def impossible_names(w: World) -> None:
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
        w.refused(tool, "NUL", path="x\0y", **more)
        w.refused(tool, "", path="x\ud800", **more)
        w.refused(tool, "too long", path="n" * 256, **more)
        w.refused(tool, "too long", path="a/" * 2_500 + "x", **more)


@attack("A20")
def names_that_a_terminal_obeys(w: World) -> None:
    names = ["new\nline", "esc\x1b[31m", "bidi\u202egnp.exe", "rtl\u200f"]
    for name in names:
        (w.work / name).write_text("here")
    for text in (
        w.one("ls"),
        w.one("glob", pattern="*"),
        w.one("grep", pattern="here"),
    ):
        assert text.isprintable()
        assert "\u202e" not in text
    assert set(names) <= {entry["name"] for entry in json.loads(w.one("ls"))}
    for name in names:
        assert w.one("read_file", path=name) == "here"
        w.refused("read_file", "does not exist", path=f"{name}?")


@attack("A21")
def names_that_are_no_utf8(w: World) -> None:
    try:
        with open(os.fsencode(w.work) + b"/caf\xe9", "wb") as file:  # noqa: PTH123  (bytes)
            file.write(b"latin one")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    store = f"sqlite:///{w.work.parent}/threads.db"
    script = [wild("ls"), wild("read_file", path="caf\\xe9"), wild("grep", pattern="latin"), "ok"]
    hook = FilesystemHook(w.backend)
    with Agent(model=ScriptedModel(script), hooks=[hook], store=store) as agent:
        result = agent.invoke("go", thread_id="t")
        stored = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert [m.content for m in stored] == [m.content for m in result.messages]
    listed, read, found = (m.text for m in result.messages if m.type == "tool")
    assert "caf\\xe9" in {entry["name"] for entry in json.loads(listed)}
    assert read == "latin one"
    assert json.loads(found)["matches"][0]["file"] == f"{w.work}/caf\\xe9"
    w.one("write_file", path="caf\\xe9", content="changed")
    assert len(list(w.work.glob("caf*"))) == 1


@attack("A22")
def sparse_file(w: World) -> None:
    size = 20 * 2**30
    with (w.work / "huge").open("wb") as file:
        file.write(b"first line\n")
        file.truncate(size)
    tracemalloc.start()
    with at_most(10):
        found = w.backend.read("huge")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 10 * 2**20
    assert found.text.startswith("first line\n")
    assert found.size == size
    assert f"{size:,}" in found.notes[-1]
    with at_most(10):
        w.refused("read_file", "use grep", path="huge", line=1_000)
    w.refused("edit_file", "bytes", path="huge", old_text="first", new_text="last")


@attack("A23")
def one_long_line(w: World) -> None:
    with (w.work / "line").open("wb") as file:
        for _ in range(500):
            file.write(b"x" * 1_000_000)
    tracemalloc.start()
    found = w.backend.read("line")
    matches = w.backend.grep("x", "line")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 30 * 2**20
    assert len(found.text) == 1_000_000
    assert "continue with byte=1000000" in found.notes[-1]
    assert w.backend.read("line", byte=499_999_990).text == "x" * 10
    assert matches.matches == []
    assert "files of more than 64 MiB" in matches.notes[0]
    (w.work / "line").unlink()


@attack("A24")
def no_plain_text(w: World) -> None:
    contents = {
        "binary": bytes(range(256)) + b"word\n",
        "utf16": "word\r\n".encode("utf-16"),
        "invalid": b"caf\xe9 word \xff\xfe\n",
        "mixed": b"one\r\ntwo\nword\r\n",
    }
    for name, data in contents.items():
        (w.work / name).write_bytes(data)
        text = w.one("read_file", path=name)
        assert ("not all of it is UTF-8" in text) == (name != "mixed")
        if name == "utf16":
            w.refused("edit_file", "not found", path=name, old_text="word", new_text="W")
            continue
        w.one("edit_file", path=name, old_text="word", new_text="W")
        assert (w.work / name).read_bytes() == data.replace(b"word", b"W")
    w.one("edit_file", path="mixed", old_text="one\n", new_text="1\n1\n")
    assert (w.work / "mixed").read_bytes() == b"1\r\n1\r\ntwo\nW\r\n"


@attack("A25")
def growing_file(w: World) -> None:
    path = w.work / "grows"
    path.write_text("0123456789")
    real = os.fstat

    def fstat(fd: int) -> os.stat_result:
        status = real(fd)
        with path.open("a") as file:
            file.write("more")
        return status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fstat", fstat)
        assert w.backend.read("grows").text == "0123456789"
    assert path.stat().st_size > 10


@attack("A26")
def too_much_to_write(w: World) -> None:
    with at_most(5):
        w.refused("write_file", "at most 10,000,000", path="new", content="x" * 10_000_001)
    assert not (w.work / "new").exists()
    assert w.backend.write("new", b"x" * 10_000_000).bytes_written == 10_000_000


@attack("A27")
def modes_and_owners(w: World) -> None:
    path = w.work / "x"
    path.chmod(0o444)
    w.refused("write_file", "read-only", path="x", content="new")
    path.chmod(0o4755)
    w.one("write_file", path="x", content="new")
    assert path.stat().st_mode & 0o7777 == 0o755
    path.chmod(0o640)
    w.one("edit_file", path="x", old_text="new", new_text="newer")
    assert path.stat().st_mode & 0o7777 == 0o640
    old = os.umask(0o027)
    try:
        w.one("write_file", path="made", content="x")
    finally:
        os.umask(old)
    assert (w.work / "made").stat().st_mode & 0o7777 == 0o640
    if os.geteuid() == 0:
        os.chown(path, OTHER_UID, OTHER_UID)
        w.refused("write_file", "another user", path="x", content="mine")
    assert path.read_text() == "newer"


@attack("A28")
def protected_names(w: World) -> None:
    for path in (".git/hooks/pre-commit", ".env", ".bashrc", "AGENTS.md", "a/SKILL.md", ".wick/x"):
        w.refused("write_file", "protected", path=path, content="x")
        assert not (w.work / path).exists()
    (w.work / "AGENTS.md").write_text("note")
    (w.work / "skills").mkdir()
    (w.work / "skills" / "s").write_text("skill")
    w.refused("edit_file", "protected", path="AGENTS.md", old_text="note", new_text="order")
    assert w.one("read_file", path="AGENTS.md") == "note"
    extra = (
        ExtraRoot(f"{w.work}/AGENTS.md", writable=True),
        ExtraRoot(f"{w.work}/skills"),
    )
    with w.make(extra_roots=extra) as opened:
        opened.edit("AGENTS.md", "note", "longer note")
        for path in ("skills/s", f"{w.work}/a/../skills/s"):
            with pytest.raises(ToolError, match="read-only"):
                opened.write(path, b"x")
        assert opened.read("skills/s").text == "skill"
    assert (w.work / "AGENTS.md").read_text() == "longer note"
