"""A mutant: small patches on the source, found by symbol and fragment, so that moves keep them."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.source import ROOT

_COPIED: Final = ("wick_graph", "nodes", "tests", "pyproject.toml", "agents.yaml", "README.md")
_CHANGED: Final = ("wick_graph", "nodes")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class NotFound(Exception):
    """A mutant names something that is not there, or is there more than once."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One replacement inside one symbol.

    Args:
        symbol: The qualified name of a function, class or constant, in whatever module it is.
        old: The fragment of its source, as it is written there; the symbol has it once.
        new: What stands in its place.
    """

    symbol: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A promise that is broken, and who must notice.

    Args:
        name: A short name.
        promise: The promise that is broken, in one sentence.
        tests: Names of test functions, each of which must fail. `name[case]` names one case,
            `file::name` one of two functions of the same name, `file` without `.py`.
        patches: What is changed.
        quick: It is run by every test run, not by night alone.
    """

    name: str
    promise: str
    tests: tuple[str, ...]
    patches: tuple[Patch, ...]
    quick: bool = False


def mutant(
    name: str,
    promise: str,
    tests: tuple[str, ...],
    *changes: tuple[str, str, str],
    quick: bool = False,
) -> Mutant:
    """Make a mutant of changes: symbol, old fragment, new one."""
    return Mutant(name, promise, tests, tuple(Patch(*change) for change in changes), quick)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fragment begins and ends in a file."""

    path: Path
    begin: int
    end: int


@cache
def _sources(folders: tuple[str, ...]) -> tuple[tuple[Path, str], ...]:
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    real = (path for path in found if path.relative_to(ROOT).parts[:2] != ("wick_graph", "nodes"))
    return tuple((path, path.read_text(encoding="utf-8")) for path in real)


@cache
def _symbols(symbol: str, fragment: str) -> list[tuple[Path, int, int]]:
    """Return the files, and the first and last lines, of the symbols of this qualified name."""
    found = []
    for path, text in _sources(_CHANGED):
        if symbol.rpartition(".")[2] not in text or fragment not in text:
            continue  # to parse all of them takes seconds
        found += [(path, first, last) for name, first, last in _lines_of(text) if name == symbol]
    return found


@cache
def _lines_of(text: str) -> list[tuple[str, int, int]]:
    """Return the symbols of a file with their first and last lines."""
    found = _named(ast.parse(text), "")
    return [(name, node.lineno, node.end_lineno or node.lineno) for name, node in found]


def _named(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield prefix + node.name, node
            yield from _named(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield prefix + target.id, node


def place_of(patch: Patch) -> Place:
    """Find a patch's fragment.

    Raises:
        NotFound: No symbol of that name has the fragment, or it stands there more than once.
    """
    places: list[Place] = []
    for path, first, last in _symbols(patch.symbol, patch.old):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        begin = len("".join(lines[: first - 1]))
        end = begin + len("".join(lines[first - 1 : last]))
        at = text.find(patch.old, begin, end)
        while at >= 0:
            places.append(Place(path, at, at + len(patch.old)))
            at = text.find(patch.old, at + 1, end)
    if len(places) != 1:
        raise NotFound(
            f"{patch.symbol} has {patch.old!r} {len(places)} times and must have it once; "
            "write the mutant anew for the code of today"
        )
    return places[0]


def mutated(mutant: Mutant) -> dict[Path, str]:
    """Return the files that a mutant changes, by their path in the tree, as they are then.

    Raises:
        NotFound: A fragment is not there.
    """
    changed: dict[Path, str] = {}
    cuts = sorted(
        ((place_of(patch), patch.new) for patch in mutant.patches),
        key=lambda cut: cut[0].begin,
        reverse=True,
    )
    for place, new in cuts:
        text = changed.get(place.path) or place.path.read_text(encoding="utf-8")
        changed[place.path] = text[: place.begin] + new + text[place.end :]
    for path, text in changed.items():
        ast.parse(text, str(path))
    return {path.relative_to(ROOT): text for path, text in changed.items()}


@cache
def _functions() -> dict[str, list[Path]]:
    """Return the test modules of each name of a function."""
    found: dict[str, list[Path]] = {}
    for path, text in _sources(("tests",)):
        if path.name.startswith("test_"):
            for name in re.findall(r"^(?:async )?def (\w+)\(", text, re.MULTILINE):
                found.setdefault(name, []).append(path)
    return found


def node_id(test: str) -> str:
    """Return what pytest calls a test that a mutant names.

    Raises:
        NotFound: There is no such test, or more than one.
    """
    file, _, rest = test.rpartition("::")
    name, bracket, case = rest.partition("[")
    found = _functions().get(name, ())
    ids = [f"{path.relative_to(ROOT)}::{name}" for path in found if not file or path.stem == file]
    if len(ids) != 1:
        raise NotFound(f"there are {len(ids)} tests {test}; name one, as `file::{name}`")
    return ids[0] + bracket + case


def copy_tree(to: Path) -> None:
    """Copy what tests need of the tree, compiled modules too: then only what is changed is new."""
    to.mkdir()
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True)
        else:
            shutil.copy2(source, to / name)
