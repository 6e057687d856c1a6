"""Print cycles and the longest chains of imports of a tree: `python -m tests.house.chains [ROOT]`.

An import counts to the module that defines the name, through packages that load lazily.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

TOP = "wick_graph"


def modules(root: Path) -> dict[str, Path]:
    """Name every module of a tree."""
    found = {}
    for folder, prefix in ((root / TOP, TOP), (root / "nodes", f"{TOP}.nodes")):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if folder.name == TOP and parts[0] == "nodes":
                continue
            name = ".".join((prefix, *parts)).removesuffix(".__init__")
            found[name] = path
    return found


def offered(tree: ast.Module) -> dict[str, str]:
    """Return where a package takes its names from, seen by a type checker."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def graph(root: Path) -> dict[str, dict[str, str]]:
    """Return what each module imports when it is imported itself, with one name of it."""
    files = modules(root)
    trees = {n: ast.parse(p.read_text(encoding="utf-8")) for n, p in files.items()}
    packages = {n: offered(trees[n]) for n, p in files.items() if p.name == "__init__.py"}

    def home(target: str) -> str:
        for _ in range(4):
            parent, _, name = target.rpartition(".")
            if target in files and target not in packages:
                return target
            if parent in packages and name in packages[parent]:
                target = packages[parent][name]
                continue
            if target in files:
                return target
            target = parent
            if target in files and target not in packages:
                return target
        return target if target in files else ""

    made: dict[str, dict[str, str]] = {n: {} for n in files if n not in packages}
    for name in made:
        for node in _running(trees[name].body):
            if isinstance(node, ast.ImportFrom):
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                targets = [alias.name for alias in node.names]
            for target in targets:
                if target.startswith(f"{TOP}."):
                    found = home(target)
                    if found and found != name and found not in packages:
                        made[name].setdefault(found, target.rpartition(".")[2])
    return made


def _running(body: list[ast.stmt]) -> list[ast.Import | ast.ImportFrom]:
    found: list[ast.Import | ast.ImportFrom] = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            found += _running([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            found += _running([*node.body, *(s for h in node.handlers for s in h.body)])
    return found


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected groups of more than one."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    sys.setrecursionlimit(10_000)

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def longest(edges: dict[str, set[str]]) -> list[str]:
    """Return the longest chain of an acyclic graph."""
    known: dict[str, list[str]] = {}

    def chain(node: str) -> list[str]:
        if node not in known:
            known[node] = []
            best = max((chain(o) for o in edges.get(node, ())), key=len, default=[])
            known[node] = [node, *best]
        return known[node]

    return max((chain(n) for n in edges), key=len, default=[])


def part(name: str) -> str:
    """Return the top-level part that a module belongs to."""
    return name.split(".")[1] if "." in name else ""


def main(root: Path) -> int:
    """Print everything."""
    full = graph(root)
    edges = {n: set(t) for n, t in full.items()}
    found = cycles(edges)
    for group in found:
        print("cycle of modules:")
        for name in group:
            for other, what in full[name].items():
                if other in group:
                    print(f"  {name} -> {other} ({what})")
    parts: dict[str, set[str]] = defaultdict(set)
    ways: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, targets in edges.items():
        for other in targets:
            if part(name) != part(other):
                parts[part(name)].add(part(other))
                ways[part(name), part(other)].append(f"{name} -> {other} ({full[name][other]})")
    circles = cycles(parts)
    for group in circles:
        print("cycle of packages:", group)
        for a in group:
            for b in group:
                for way in ways.get((a, b), [])[:4]:
                    print(f"  {way}")
    if not found:
        chain = longest(edges)
        shown = " > ".join(c.removeprefix("wick_graph.") for c in chain)
        print(f"chain of modules: {len(chain)}: {shown}")
        for name in sorted(parts.keys() | {part(n) for n in edges}):
            inside = {
                n: {o for o in t if part(o) == name} for n, t in edges.items() if part(n) == name
            }
            chain = longest(inside)
            if len(chain) > (12 if name == "store" else 8):
                print(f"inside {name}: {len(chain)}: {' > '.join(chain)}")
    if not circles:
        chain = longest(parts)
        print(f"chain of packages: {len(chain)}: {' > '.join(chain)}")
    return bool(found or circles)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()))
