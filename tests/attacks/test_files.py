"""Paths, links, races and contents that try to break out of the file tools, or to break them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.naive import LexicalFiles, ResolvingFiles
from tests.attacks.world import (
    SECRET,
    World,
    at_most,
    exchange,
    fastest,
    or_skip,
    read_while_swapped,
    swapping,
)
from tests.engine.support import wild
from wick_graph import Agent
from wick_graph.backends import ExtraRoot, LocalBackend
from wick_graph.errors import ToolError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel

Attack = Callable[[World], None]
ATTACKS: dict[str, Attack] = {}
OTHER_UID = 65_534


def attack(line: str) -> Callable[[Attack], Attack]:
    def add(fn: Attack) -> Attack:
        assert line not in ATTACKS
        ATTACKS[line] = fn
        return fn

    return add


@pytest.fixture(params=["openat2", "walk"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    or_skip(request.param, tmp_path)
    made = World(tmp_path, request.param)
    yield made
    made.close()


@attack("A1")
def climbs(w: World) -> None:
    for tool in ("read_file", "ls"):
        w.refused(tool, "leads outside", path="../../etc/passwd")
    w.refused("write_file", "leads outside", path="../new", content="x")
    w.refused("edit_file", "leads outside", path="../outside/secret", old_text="the", new_text="a")
    w.refused("grep", "leads outside", pattern="x", path="../outside")
    w.refused("glob", "leads outside", pattern="*", path="../outside")


@attack("A2")
def absolute(w: World) -> None:
    w.refused("read_file", "leads outside", path="/etc/passwd")
    w.refused("write_file", "leads outside", path=f"{w.outside}/new", content="x")
    assert w.one("read_file", path=f"{w.work}/x") == w.one("read_file", path="x") == "inside"


@attack("A3")
def climbs_from_inside(w: World) -> None:
    w.refused("read_file", "leads outside", path="a/../../etc/passwd")
    w.refused("write_file", "leads outside", path="a/../../outside/new", content="x")


@attack("A4")
def dots_inside(w: World) -> None:
    assert w.one("read_file", path="a/../b.txt") == "b"
    w.one("write_file", path="a/../c.txt", content="c")
    assert (w.work / "c.txt").read_text() == "c"


@attack("A5")
def names_with_dots(w: World) -> None:
    for name in ("notes..md", "...", "a..b/c"):
        w.one("write_file", path=name, content=name)
        assert w.one("read_file", path=name) == name
        assert (w.work / name).read_text() == name


@attack("A6")
def tilde(w: World) -> None:
    (w.work / "~" / ".ssh").mkdir(parents=True)
    (w.work / "~" / ".ssh" / "id_rsa").write_text("literal")
    assert w.one("read_file", path="~/.ssh/id_rsa") == "literal"
    w.one("write_file", path="~root/x", content="also")
    assert (w.work / "~root" / "x").read_text() == "also"


@attack("A7")
def not_expanded(w: World) -> None:
    for name in ("$HOME/x", "`id`", "%2e%2e%2f"):
        w.one("write_file", path=name, content=name)
        assert (w.work / name).read_text() == name


@attack("A8")
def link_to_a_file(w: World) -> None:
    (w.work / "link").symlink_to(w.outside / "secret")
    w.refused("read_file", "symbolic link", path="link")
    w.refused("write_file", "symbolic link", path="link", content="x")
    w.refused("edit_file", "symbolic link", path="link", old_text="the", new_text="a")
    w.refused("grep", "symbolic link", pattern="the", path="link")


@attack("A9")
def link_to_a_directory(w: World) -> None:
    (w.work / "dir").symlink_to(w.outside)
    w.refused("read_file", "symbolic link", path="dir/secret")
    w.refused("write_file", "symbolic link", path="dir/new", content="x")
    w.refused("write_file", "symbolic link", path="dir/new/deeper", content="x")
    w.refused("ls", "symbolic link", path="dir")
    w.refused("glob", "symbolic link", pattern="*", path="dir")


@attack("A10")
def link_inside(w: World) -> None:
    (w.work / "link").symlink_to("a/f")
    w.refused("read_file", "symbolic link", path="link")
    with w.make(symlinks="inside") as following:
        assert following.read("link").text == "deep"
        (w.work / "out").symlink_to("../outside/secret")
        with pytest.raises(ToolError, match="leads outside"):
            following.read("out")
        with pytest.raises(ToolError, match="symbolic link"):
            following.write("link", b"x")


@attack("A11")
def chain_of_links(w: World) -> None:
    (w.work / "loop").symlink_to("loop")
    (w.work / "l0").symlink_to("x")
    for i in range(45):
        (w.work / f"l{i + 1}").symlink_to(f"l{i}")
    with w.make(symlinks="inside") as following:
        for backend in (w.backend, following):
            for name in ("loop", "l41"):

                def read(backend: LocalBackend = backend, name: str = name) -> None:
                    with pytest.raises(ToolError, match="symbolic link"):
                        backend.read(name)

                assert fastest(read) < 0.01


@attack("A12")
def directory_swapped(w: World) -> None:
    (w.work / "p").symlink_to(w.outside)
    read = read_while_swapped(
        lambda path: w.backend.read(path).text.encode(), w.work, w.work / "p", "a/f", 15_000, 8
    )
    assert read == {b"deep"}
    wrote = 0
    with swapping(w.work / "a", w.work / "p"):
        for i in range(600):
            with contextlib.suppress(ToolError):
                wrote += bool(w.backend.write("a/new", b"%d" % i))
    assert wrote > 0
    assert SECRET.encode() not in read


@attack("A13")
def file_swapped(w: World) -> None:
    planted = w.work / "file"
    planted.symlink_to(w.outside / "secret")
    read = read_while_swapped(
        lambda path: w.backend.read(path).text.encode(), w.work, planted, "a/f", 15_000, 8
    )
    assert read == {b"deep"}
    with swapping(w.work / "a" / "f", planted):
        for i in range(300):
            with contextlib.suppress(ToolError):
                w.backend.write("a/f", b"%d" % i)


@attack("A14")
def link_planted_by_a_command(w: World) -> None:
    with w.make(execute="local") as running:
        planted, read = w.ask(
            ("execute", {"command": f"ln -s {w.outside}/secret planted && echo ok"}),
            ("read_file", {"path": "planted"}),
            backend=running,
        )
    assert json.loads(planted.text)["stdout"] == "ok\n"
    assert read.failed
    assert "symbolic link" in read.text


@attack("A15")
def hard_link(w: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to somebody else")
    foreign = w.work.parent / "foreign"
    foreign.write_text(SECRET)
    os.chown(foreign, OTHER_UID, OTHER_UID)
    os.link(foreign, w.work / "hard")
    w.refused("read_file", "hard link", path="hard")
    w.refused("write_file", "hard link", path="hard", content="x")
    os.link(w.work / "x", w.work / "own")
    assert w.one("read_file", path="own") == "inside"


MAGIC = "/".join(("", "proc", "self", "root"))
"""A link that leads to the whole file system."""


@attack("A16")
def magic_links(w: World) -> None:
    for path in ("/proc/self/environ", f"{MAGIC}/etc/passwd", "/dev/fd/3"):
        w.refused("read_file", "leads outside", path=path)
    (w.work / "magic").symlink_to(MAGIC)
    (w.work / "cwd").symlink_to("/proc/self/cwd")
    w.refused("read_file", "symbolic link", path="magic/etc/passwd")
    w.refused("ls", "symbolic link", path="cwd")
    with w.make(symlinks="inside") as following, pytest.raises(ToolError):
        following.read("magic/etc/passwd")
    with LocalBackend("/proc/self", mechanism=w.mechanism) as proc, pytest.raises(ToolError):
        proc.read("root/etc/passwd")


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
            with at_most(1):
                w.refused("read_file", "not a regular file", path=name)
                w.refused("write_file", "not a regular file", path=name, content="x")
        w.refused("read_file", "symbolic link", path="zero")


@attack("A18")
def wrong_kinds(w: World) -> None:
    w.refused("read_file", "is a directory", path="a")
    w.refused("read_file", "is a directory", path=".")
    w.refused("read_file", "leads outside", path="/")
    w.refused("read_file", "as a directory that is none", path="x/")
    w.refused("read_file", "as a directory that is none", path="x/y")
    w.refused("read_file", "is empty", path="")
    w.refused("ls", "as a directory that is none", path="x")
    for path in ("a", ".", "new/", "a/..", "new/."):
        w.refused("write_file", "is a directory", path=path, content="x")
    w.refused("write_file", "is empty", path="", content="x")
    w.refused("write_file", "as a directory that is none", path="x/y", content="x")
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
    assert "go on with byte=1000000" in found.notes[-1]
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
        w.refused("write_file", "somebody else", path="x", content="mine")
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


@attack("A29")
def edits_that_fit_nothing(w: World) -> None:
    path = w.work / "t"
    path.write_text("aaa b aaa")
    w.refused("edit_file", "old_text is empty", path="t", old_text="", new_text="x")
    w.refused("edit_file", "old_text not found in file", path="t", old_text="zz", new_text="x")
    w.refused("edit_file", "the same", path="t", old_text="b", new_text="b")
    w.refused("edit_file", "does not exist", path="nope", old_text="b", new_text="c")
    for old in ("aaa", "aa"):  # twice, and overlapping
        (answer,) = w.ask(
            ("edit_file", {"path": "t", "old_text": old, "new_text": "x"}), require_unique=True
        )
        assert answer.failed
        assert "more than once" in answer.text
    assert path.read_text() == "aaa b aaa"
    told = json.loads(w.one("edit_file", path="t", old_text="aaa", new_text="x"))
    assert (told["replacements"], told["remaining"]) == (1, 1)
    assert path.read_text() == "x b aaa"


@attack("A30")
def parallel_edits(w: World) -> None:
    path = w.work / "t"
    path.write_text("".join(f"<{i}>\n" for i in range(8)))
    barrier = threading.Barrier(8)
    failed: list[Exception] = []

    def edit(i: int) -> None:
        barrier.wait()
        try:
            w.backend.edit("t", f"<{i}>", f"[{i}]")
        except ToolError as error:
            failed.append(error)

    threads = [threading.Thread(target=edit, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert path.read_text() == "".join(f"[{i}]\n" for i in range(8))


@attack("A31")
def changed_since_it_was_read(w: World) -> None:
    path = w.work / "t"
    path.write_text("old text")
    with w.make(execute="local") as running:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("read_file", {"path": "t"}),
            ("execute", {"command": "echo 'new text' > t"}),
            ("edit_file", {"path": "t", "old_text": "text", "new_text": "x"}),
            ("read_file", {"path": f"{w.work}/t"}),
            ("edit_file", {"path": "./t", "old_text": "text", "new_text": "words"}),
            ("edit_file", {"path": "t", "old_text": "words", "new_text": "end"}),
        ]
        _, _, refused, _, edited, again = w.ask(*asked, backend=running)
    assert refused.failed
    assert "changed on disk" in refused.text
    assert not edited.failed
    assert not again.failed
    assert path.read_text() == "new end\n"


@attack("A32")
def expensive_globs(w: World) -> None:
    deep = w.work / "deep"
    deep.mkdir()
    fd = os.open(deep, os.O_RDONLY)
    for _ in range(500):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    many = w.work / "many"
    many.mkdir()
    for i in range(100_000):
        os.close(os.open(f"{many}/{i}.txt", os.O_CREAT | os.O_WRONLY))
    patterns = ("**/" * 8 + "bottom", "{a,b}" * 20, "*.txt", "*1*2*3*4*5*6*7*8*9*z", "**/d/" * 8)
    for pattern in patterns:
        with at_most(2):
            found = w.backend.glob(pattern)
        assert len(found.files) <= 1_000
        if pattern == "*.txt" or pattern.startswith("**"):
            assert found.truncated
    assert json.loads(w.one("glob", pattern="*.txt", path="many"))["truncated"] is True
    shutil.rmtree(deep)
    shutil.rmtree(many)


@attack("A33")
def globs_that_lead_out(w: World) -> None:
    for pattern in ("../**", "a/../../**", "/etc/*", "x\0*"):
        w.refused("glob", "the pattern", pattern=pattern)
    for pattern in ("[a", "{a,b", "a\\"):
        w.refused("glob", "no valid glob", pattern=pattern)


@attack("A34")
def twins(w: World) -> None:
    names = ["\u00e9", "e\u0301", "\u212a", "K", "k"]
    for name in names:
        w.one("write_file", path=name, content=name)
    if len([path for path in w.work.iterdir() if path.name in names]) < len(names):
        pytest.skip("this file system folds names")
    for name in names:
        assert w.one("read_file", path=name) == name
    for name in (".GIT/config", ".Env", "agents.MD", ".ba\u017fhrc"):
        w.refused("write_file", "protected", path=name, content="x")


@pytest.mark.parametrize("line", [pytest.param(line, id=line) for line in ATTACKS])
def test_attack(world: World, line: str) -> None:
    ATTACKS[line](world)
    world.nothing_leaked()


def test_every_line_is_there() -> None:
    assert list(ATTACKS) == [f"A{i}" for i in range(1, 35)]


def test_a8_succeeds_against_a_lexical_check(tmp_path: Path) -> None:
    world = World(tmp_path, "auto")
    (world.work / "link").symlink_to(world.outside / "secret")
    assert LexicalFiles(world.work).read("link") == SECRET.encode()
    with pytest.raises(ToolError):
        world.backend.read("link")
    world.close()


def test_a12_succeeds_against_a_check_before_the_opening(tmp_path: Path) -> None:
    world = World(tmp_path, "auto")
    (world.outside / "f").write_text(SECRET)
    (world.work / "p").symlink_to(world.outside)
    naive = ResolvingFiles(world.work)
    seen = read_while_swapped(naive.read, world.work, world.work / "p", "a/f", 10**9, 60)
    assert SECRET.encode() in seen
    if (world.work / "a" / "f").read_text() != "deep":
        exchange(world.work / "a", world.work / "p")
    seen = read_while_swapped(
        lambda path: world.backend.read(path).text.encode(),
        world.work,
        world.work / "p",
        "a/f",
        15_000,
        8,
    )
    assert seen == {b"deep"}
    world.close()
