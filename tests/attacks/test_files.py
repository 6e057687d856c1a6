"""Paths, links, races and contents that try to break out of the file tools, or to break them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.files import ATTACKS
from tests.attacks.naive import LexicalFiles, ResolvingFiles
from tests.attacks.world import SECRET, World, exchange, or_skip, read_while_swapped
from wick_graph.errors import ToolError


@pytest.fixture(params=["openat2", "walk"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    or_skip(request.param, tmp_path)
    made = World(tmp_path, request.param)
    yield made
    made.close()


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
