"""Edits, globs, and names that are twins (A29 to A34)."""

from __future__ import annotations

import json
import os
import shutil
import threading
from typing import Any

import pytest

from tests.attacks.files.lines import attack
from tests.attacks.world import World, at_most
from wick_graph.errors import ToolError


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
        with at_most(10):
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
        w.refused("glob", "not a valid glob", pattern=pattern)


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
