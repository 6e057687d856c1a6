"""The package's source as syntax trees, and the files that belong to the checkout."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "wick_graph"


@dataclass(frozen=True)
class Module:
    """One module of the package, the nodes through their link; it is read when it is looked at."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines()

    @property
    def part(self) -> str:
        """The unit of the layers that it belongs to; empty for the door."""
        return part_of(self.name)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def at(self, node: ast.AST | int) -> str:
        """Name a place as `file:line`, by the file's real name."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path.resolve().relative_to(ROOT)}:{line}"


def part_of(name: str) -> str:
    return name.partition(".")[2].partition(".")[0]


def find_modules() -> dict[str, Module]:
    made = {}
    for folder, _, files in os.walk(PACKAGE, followlinks=True):
        for file in files:
            if not file.endswith(".py"):
                continue
            path = Path(folder, file)
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            name = name.removesuffix(".__init__")
            made[name] = Module(name, path)
    return dict(sorted(made.items()))


MODULES = find_modules()
IMPORTABLE = tuple(name for name in MODULES if not name.endswith("__main__"))
"""Every module but those that are programs."""


@cache
def offered(name: str) -> dict[str, str]:
    """Return where a package, but the door, takes the names from that it loads when used."""
    package = MODULES.get(name)
    if package is None or not (package.is_package and package.part):
        return {}
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(package.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def is_type_checking(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def walk(node: ast.AST, *, functions: bool = True) -> Iterator[ast.AST]:
    """Walk what runs: without `if TYPE_CHECKING:`, and without functions' bodies if so asked."""
    ahead = [node]
    while ahead:
        node = ahead.pop()
        yield node
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and is_type_checking(node):
            children = node.orelse
        elif not functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            children = [*node.decorator_list, node.args]
        elif not functions and isinstance(node, ast.Lambda):
            children = [node.args]
        ahead += reversed([*children])


@cache
def imports(module: Module, *, functions: bool = True) -> tuple[tuple[ast.AST, str], ...]:
    """Return what a module asks for at run time: `a.b` or, of `from a import b`, `a.b` too."""
    return tuple(_imports(module, functions))


def _imports(module: Module, functions: bool) -> Iterator[tuple[ast.AST, str]]:
    for node in walk(module.tree, functions=functions):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def imports_of_types(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield what a module imports under `if TYPE_CHECKING:` alone."""
    for block in filter(is_type_checking, ast.walk(tree)):
        assert isinstance(block, ast.If)
        for node in (inner for part in block.body for inner in ast.walk(part)):
            if isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def home(target: str) -> str:
    """Return the module of ours in which an imported name is looked up; empty if not ours."""
    while target and target not in MODULES:
        package, _, name = target.rpartition(".")
        target = offered(package).get(name, package)
    return target


def tree_files() -> list[str]:
    """Name the files that a commit of the working tree would hold."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, which says what belongs to the tree")
    command = ["git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    names = sorted({name for name in listed.stdout.split("\0") if name})
    return [n for n in names if (ROOT / n).is_symlink() or (ROOT / n).is_file()]
