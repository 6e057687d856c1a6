"""Paths, links and races that lead out of the folder (A1 to A16)."""

from __future__ import annotations

import contextlib
import json
import os

import pytest

from tests.attacks.files.lines import OTHER_UID, attack
from tests.attacks.world import SECRET, World, fastest, read_while_swapped, swapping
from wick_graph.backends import LocalBackend
from wick_graph.errors import ToolError


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

                assert fastest(read) < 2  # what follows the loop never ends


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
