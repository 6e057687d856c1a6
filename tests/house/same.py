"""Compare two trees: every function and class of the old one is in the new one, and no other.

    python -m tests.house.same OLD NEW

Functions and classes at every depth are compared as syntax trees. What a move must change is taken
out first: imports, and the prefix and the name of what the map renames. So `pages.last` is equal to
`last_event`. Statements of modules that define names are compared in the same way.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.house.chains import TOP, modules, offered
from tests.house.map import read as read_map

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
EDITED = frozenset(
    {
        "Codec",  # the class of `join`; its other methods are compared one by one
        "_describe",  # a loop variable had the name of a module
        "_routes",  # merged modules have several routers
        "create_app",  # too
        "join",  # an `if` became an expression that fits in a line now
        "serve",  # it reaches a module through its package
        "openapi",  # inside `_describe`
        "test_N6_nothing_is_left_out_of_the_description",  # it reads the routers
        "routes",  # so does this one
    }
)
"""Names of functions that `edits.py` changes."""


class _Plain(ast.NodeTransformer):
    """Take out of a syntax tree what a move may change."""

    def __init__(self, tree: ast.Module, new_names: dict[str, str], spaces: set[str]) -> None:
        self.new_names = new_names
        self.spaces = spaces
        """Names under which modules of ours are imported."""
        self.aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(TOP):
                for alias in node.names:
                    if alias.asname and f"{node.module}.{alias.name}" not in spaces:
                        self.aliases[alias.asname] = alias.name

    def _name(self, name: str) -> str:
        name = self.aliases.get(name, name)
        return self.new_names.get(name, name)

    def visit_Import(self, node: ast.Import) -> Any:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return None

    def visit_Name(self, node: ast.Name) -> Any:
        return ast.Name(self._name(node.id), ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in self.spaces:
            return ast.Name(self._name(node.attr), ast.Load())
        self.generic_visit(node)
        node.ctx = ast.Load()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        """A text may name modules: paths and dotted names count no more than that."""
        if isinstance(node.value, str):
            node.value = self._text(node.value)
        return node

    def _text(self, text: str) -> str:
        words = []
        for word in text.split():
            bare = word.strip("`'\"()[]{},.;:!?")
            if "wick_graph" in word or bare.endswith(".py"):
                word = "·"
            words.append(self.new_names.get(word, word))
        return " ".join(words)


def read(root: Path) -> tuple[Counter[str], dict[str, str], Counter[str]]:
    """Return what a tree defines, where, and how many tests it has."""
    found: Counter[str] = Counter()
    places: dict[str, str] = {}
    new_names = _new_names()
    files = modules(root)
    dotted = set(files)
    offers = {
        name: offered(ast.parse(path.read_text(encoding="utf-8")))
        for name, path in files.items()
        if path.name == "__init__.py"
    }
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name == "__init__.py":
            tree.body = [n for n in tree.body if isinstance(n, DEFINITIONS)]
            tree.body = [n for n in tree.body if n.name not in ("__getattr__", "__dir__")]  # type: ignore[attr-defined]  # definitions
        if name == f"{TOP}.lazy":
            continue
        spaces = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if f"{node.module}.{alias.name}" in dotted
            and alias.name not in offers.get(node.module or "", ())
        }
        plain = _Plain(tree, new_names, spaces | dotted)
        for node in ast.walk(tree):
            if isinstance(node, DEFINITIONS):
                key = _dump(plain, node)
                found[key] += 1
                places.setdefault(key, f"{path.relative_to(root)}:{node.lineno} {node.name}")
    tests: Counter[str] = Counter()
    for path in (root / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node.name.startswith("test_"):  # type: ignore[attr-defined]  # a function
                tests[node.name] += 1  # type: ignore[attr-defined]  # as above
    return found, places, tests


def _new_names() -> dict[str, str]:
    """Return one common form for each name and its new name, whatever the module."""
    made: dict[str, str] = {}
    for (_, old), new in read_map().renamed.items():
        made[new] = made[old] = made.get(old, old)
    for (_, symbol), new in read_map().aliases.items():
        old = symbol.rpartition(".")[2]
        made[new] = made.get(old, old)
    return made


def _dump(plain: _Plain, node: ast.stmt) -> str:
    copy = ast.parse(ast.unparse(node)).body[0]
    return ast.dump(plain.visit(copy))


def main(old: Path, new: Path) -> int:
    """Print what differs; return 1 if anything does."""
    before, places_before, tests_before = read(old)
    after, places_after, tests_after = read(new)
    lost = [places_before[k] for k in (before - after).elements()]
    made = [places_after[k] for k in (after - before).elements()]
    edited = [p for p in (*lost, *made) if p.rpartition(" ")[2] in EDITED]
    lost = [p for p in lost if p not in edited]
    made = [p for p in made if p not in edited]
    print(f"functions and classes: {before.total()} before, {after.total()} after")
    print(f"edited on purpose: {len(edited)}; lost: {len(lost)}; new: {len(made)}")
    for place in sorted(lost):
        print(f"  lost {place}")
    for place in sorted(made):
        print(f"  new  {place}")
    print(f"test functions: {tests_before.total()} before, {tests_after.total()} after")
    print("  gone:", *sorted((tests_before - tests_after).elements()))
    print("  new: ", *sorted((tests_after - tests_before).elements()))
    return bool(lost or made or tests_before.total() > tests_after.total())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
