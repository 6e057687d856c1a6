"""Move the modules of wick_graph by `map.txt`: `python -m tests.house.move [ROOT]`.

Nothing of what the code does changes: statements are moved, imports and other mentions follow, and
a name changes only where two would collide. Run it on a tree that is not moved yet, in a clean
checkout; it writes, then lets ruff sort and format.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import re
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.house import scopes
from tests.house.edits import AFTER, BEFORE, GONE
from tests.house.map import Map, Target
from tests.house.map import read as read_map

TOP = "wick_graph"
WIDTH = 100
TEXTS = ("*.md", "*.toml", "*.txt", "*.yaml", "*.yml", "*.cfg", "*.json", "Makefile", ".ci/run")
SKIPPED = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "build"}


def dotted(name: str) -> str:
    """Return the name by which a module is imported."""
    return ".".join((TOP, *filter(None, name.split("/"))))


@dataclass(frozen=True)
class Goal:
    """What an import means in the new tree: a module, or a name of one."""

    module: str
    name: str = ""
    ours: bool = True
    plain: bool = False
    """`import a.b`, not `from a import b`."""


@dataclass
class Source:
    """One old file."""

    path: Path
    key: str | None
    """Its old name in the package; None outside of it."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def names(self) -> scopes.Names:
        return scopes.read(self.tree)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @cached_property
    def starts(self) -> list[int]:
        made = [0]
        for line in self.lines:
            made.append(made[-1] + len(line))
        return made

    def offset(self, line: int, column: int) -> int:
        """Return a place of the syntax tree (bytes) as one of the text (characters)."""
        text = self.lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode())
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]  # has a place
            self.offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]  # too
        )

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @cached_property
    def exported(self) -> list[str]:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        return []

    @cached_property
    def homes(self) -> dict[str, str]:
        """Names that a package loads when they are first used, with the old modules."""
        for node in self.tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in (
                "_HOME",
                "_ELSEWHERE",
            ):
                found = ast.literal_eval(node.value)  # type: ignore[arg-type]  # it has a value
                base = dotted(self.key or "")
                return {
                    name: home if home.startswith(TOP) else f"{base}.{home}"
                    for name, home in found.items()
                }
        return {}


@dataclass
class Segment:
    """A top-level statement with the comments before it and the string after it."""

    source: Source
    start: int
    end: int
    names: set[str]
    nodes: list[ast.stmt]


@dataclass
class Need:
    """An import that a new module needs."""

    goal: Goal
    typing: bool
    why: set[str] = field(default_factory=set)
    comment: str = ""


class Problem(Exception):
    """The map or the tree is not as it must be."""


class Mover:
    """The whole move."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.map: Map = read_map()
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.old = self._read_package()
        self.others = self._read_others()
        self._check_map()
        self.home = {k: v for k, v in self.map.home.items() if k in self.old}
        self.packages = self._packages()
        self.keys_by_name = {dotted(k): k for k in self.old}
        self.shadow: dict[tuple[str, str], str] = {}

    # --- reading -------------------------------------------------------------------------------

    def _read_package(self) -> dict[str, Source]:
        found: dict[str, Source] = {}
        folders = [(self.root / TOP, ""), (self.root / "nodes", "nodes/")]
        for folder, prefix in folders:
            for path in sorted(folder.rglob("*.py")):
                inside = path.relative_to(folder)
                if folder.name == TOP and inside.parts[0] == "nodes":
                    continue
                key = prefix + inside.with_suffix("").as_posix()
                key = key.removesuffix("__init__").rstrip("/")
                found[key] = Source(path, key, self._edited(path))
        return found

    def _edited(self, path: Path) -> str:
        """Read an old file with the edits that come before the move."""
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(self.root).as_posix()
        for file, old, new in BEFORE:
            if file == name:
                if text.count(old) != 1:
                    self.notes.append(f"{file}: {old!r} is not there once")
                text = text.replace(old, new)
        return text

    def _read_others(self) -> list[Source]:
        found = []
        for folder in ("tests", "benchmarks", "docs"):
            for path in sorted((self.root / folder).rglob("*.py")):
                if path.is_relative_to(self.root / "tests" / "house"):
                    continue
                if SKIPPED & set(path.relative_to(self.root).parts):
                    continue
                found.append(Source(path, None, self._edited(path)))
        return found

    def _check_map(self) -> None:
        known = self.map.home
        unknown = [k for k, s in self.old.items() if k not in known and not s.is_package]
        if unknown:
            raise Problem("the map does not know: " + ", ".join(sorted(unknown)))
        for target in self.map.targets.values():
            for old in target.old:
                if old not in self.old:
                    quiet = " (the map expects that)" if old in self.map.optional else ""
                    self.notes.append(f"{old} is not there{quiet}")

    def _packages(self) -> set[str]:
        """Name the packages of the new tree."""
        made = {""}
        for target in self.live():
            parts = target.name.split("/")[:-1]
            made |= {"/".join(parts[:i]) for i in range(1, len(parts) + 1)}
        return made

    def live(self) -> list[Target]:
        """Return the targets of which at least one old module is there."""
        return [t for t in self.map.targets.values() if any(o in self.old for o in t.old)]

    # --- resolving -----------------------------------------------------------------------------

    def goal(self, module: str, name: str) -> Goal:
        """Resolve `from module import name` of the old tree; `name` empty: the module itself."""
        key = self.keys_by_name.get(module)
        if key is None:
            if module.partition(".")[0] == TOP:
                self.problems.append(f"no module {module}")
            return Goal(module, name, ours=False)
        if not name:
            return self._module_goal(key)
        source = self.old[key]
        if source.is_package:
            inner = f"{key}/{name}".lstrip("/")
            if name in source.exported or name in source.homes:
                # A package that stays offers it still; its own modules look it up at the source.
                if key in self.packages and key not in self.home:
                    return Goal(key, name)
            elif inner in self.old:
                return self._module_goal(inner)
        return self.symbol(key, name)

    def _module_goal(self, key: str) -> Goal:
        if key in self.home:
            return Goal(self.home[key])
        if key in self.packages:
            return Goal(key)
        raise Problem(f"the package {key} is imported as a module, and goes")

    def symbol(self, key: str, name: str) -> Goal:
        """Return the new place of a name that an old module defines or has imported."""
        source = self.old[key]
        if name in source.homes:
            return self.goal(source.homes[name], name)
        imported = source.names.module.imports.get(name)
        if imported is not None and isinstance(imported.statement, ast.ImportFrom):
            return self.goal(imported.statement.module or "", imported.alias.name)
        if (key, name) in self.map.moved:
            return Goal(self.map.moved[key, name], self.map.renamed.get((key, name), name))
        if key in self.home:
            return Goal(self.home[key], self.map.renamed.get((key, name), name))
        return Goal(key, name)

    def import_goal(self, made: scopes.Import, source: Source) -> Goal:
        """Return what an import means in the new tree."""
        node = made.statement
        if isinstance(node, ast.Import):
            if made.alias.name.partition(".")[0] == TOP:
                return self.goal(made.alias.name, "")
            return Goal(made.alias.name, "", ours=False, plain=True)
        module = node.module or ""
        if node.level:
            raise Problem(f"{source.path}:{node.lineno}: a relative import")
        if module.partition(".")[0] != TOP:
            if source.key is not None:
                name = f"{module}.{made.alias.name}"
                module = self.map.same.get(name, name).rpartition(".")[0]
            return Goal(module, made.alias.name, ours=False)
        return self.goal(module, made.alias.name)

    def attribute(self, made: scopes.Import, name: str) -> Goal:
        """Return what `module.name` means, where `module` was imported."""
        node = made.statement
        assert isinstance(node, ast.ImportFrom)
        key = self.keys_by_name[f"{node.module}.{made.alias.name}"]
        source = self.old[key]
        if key in self.packages and key not in self.home:
            if key == "nodes":
                return self.symbol(key, name)
            inner = f"{key}/{name}".lstrip("/")
            if name not in source.exported and inner in self.old:
                return self._module_goal(inner)
            return Goal(key, name)
        if (key, name) in self.map.moved or (key, name) in self.map.renamed:
            return self.symbol(key, name)
        imported = source.names.module.imports.get(name)
        if imported is not None:
            return Goal(self.home[key], name)
        return self.symbol(key, name)

    # --- a file's edits ------------------------------------------------------------------------

    def run(self) -> None:
        """Make the new tree."""
        made = {t.name: Builder(self, t).build() for t in self.live()}
        inits = {name: self._init(name) for name in sorted(self.packages)}
        if self.problems:
            raise Problem("\n".join(self.problems))
        others = [(s.path, Rewriter(self, s, None).whole()) for s in self.others]
        if self.problems:
            raise Problem("\n".join(self.problems))
        for source in self.old.values():
            source.path.unlink()
        for name, text in made.items():
            self._write(self._path(name), text)
        for name, text in inits.items():
            self._write(self._path(name) / "__init__.py", text)
        self._write(self.root / TOP / "lazy.py", LAZY)
        for path, text in others:
            path.write_text(text, encoding="utf-8")
        self._texts()
        self._pyproject()
        for file, old, new in AFTER:
            path = self.root / file
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if old not in text:
                self.notes.append(f"{file}: {old!r} is not there")
            else:
                path.write_text(text.replace(old, new), encoding="utf-8")
        self._laws()
        self._guide()
        self._tests()
        self._remove_empty(self.root / TOP)

    def _laws(self) -> None:
        """Replace the layers of the architecture's test, and add the laws on chains."""
        path = self.root / "tests" / "test_architecture.py"
        laws = Source(Path(), "", (Path(__file__).parent / "laws.py").read_text(encoding="utf-8"))
        new = {}
        for segment in _segments(laws):
            (name,) = segment.names
            new[name] = laws.text[segment.start : segment.end].strip("\n")
        old = Source(path, "", path.read_text(encoding="utf-8"))
        made, at = [], 0
        for segment in _segments(old):
            (name,) = segment.names if len(segment.names) == 1 else ("",)
            if name not in new and name not in GONE:
                continue
            made.append(old.text[at : segment.start])
            made.append("\n\n" + new.pop(name, "") + "\n")
            at = segment.end
        rest = old.text[at:]
        more = "\n\n\n".join(new.values()) + "\n\n\n"
        form = "# --- form ---"
        made.append(rest.replace(form, f"{more}{form}", 1) if form in rest else rest + more)
        text = self._tables("".join(made))
        if form not in rest:
            self.notes.append("tests/test_architecture.py has no section `form`")
        path.write_text(text, encoding="utf-8")

    def _tables(self, text: str) -> str:
        """Follow the modules in the tables of attributes that are asked for by name."""

        def new(name: str) -> str:
            key = name.replace(".", "/")
            return self.map.home.get(key, key).replace("/", ".")

        source = Source(Path(), "", text)
        for segment in reversed(_segments(source)):
            node = segment.nodes[0]
            if not isinstance(node, ast.AnnAssign) or node.value is None:
                continue
            start, end = source.span(node.value)
            if segment.names == {"NOT_OURS"}:
                table: dict[str, list[str]] = defaultdict(list)
                for name, holders in _value(node.value).items():
                    table[new(name)] += [h for h in holders if h not in table[new(name)]]
                shown = ", ".join(f"{n!r}: {tuple(sorted(h))!r}" for n, h in sorted(table.items()))
                text = f"{text[:start]}{{{shown}}}{text[end:]}"
            elif segment.names == {"BY_NAME"}:
                body = re.sub(r'\("([\w.]+)"', lambda m: f'("{new(m[1])}"', source.text[start:end])
                text = text[:start] + body + text[end:]
        return text

    def _guide(self) -> None:
        """Put the new map into AGENTS.md."""
        path = self.root / "AGENTS.md"
        text = path.read_text(encoding="utf-8")
        new = (Path(__file__).parent / "guide.txt").read_text(encoding="utf-8")
        start = text.index("```text\n") + 8
        end = text.index("```", start)
        path.write_text(text[:start] + new + text[end:], encoding="utf-8")

    def _tests(self) -> None:
        """Rename files of tests after their modules, also where they are named."""
        moved = {}
        for old, new in self.map.tests.items():
            if (self.root / old).exists() and not (self.root / new).exists():
                (self.root / new).parent.mkdir(parents=True, exist_ok=True)
                (self.root / old).rename(self.root / new)
                moved[old] = new
            else:
                self.notes.append(f"{old} is not there, or {new} is")
        for path in (*self.root.glob("*.md"), *(self.root / "tests" / "mutants").glob("*.py")):
            text = path.read_text(encoding="utf-8")
            for old, new in moved.items():
                text = text.replace(old, new)
                text = text.replace(f'"{Path(old).stem}::', f'"{Path(new).stem}::')
            path.write_text(text, encoding="utf-8")

    def _path(self, name: str) -> Path:
        if name.split("/")[0] == "nodes":
            path = self.root / name
        else:
            path = self.root / TOP / name if name else self.root / TOP
        return path if name in self.packages else path.with_name(path.name + ".py")

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _remove_empty(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path / "__pycache__", ignore_errors=True)
                if not any(path.iterdir()):
                    path.rmdir()

    # --- packages ------------------------------------------------------------------------------

    def _init(self, name: str) -> str:
        source = self.old.get(name)
        if name == "":
            assert source is not None
            return self._door(source)
        here = self.map.packages.get(name, "")
        kept = source is not None and source.key not in self.home and name != "engine"
        offered = source.exported if kept and source is not None else []
        if name == "engine":
            source = self.old["graph"]
            offered = source.exported
        doc = source.docstring if kept and source is not None and source.docstring else here
        places: dict[str, list[tuple[str, str]]] = defaultdict(list)
        order: list[str] = []
        if name == "nodes":
            offered = []
        for item in offered:
            assert source is not None
            goal = self.symbol(source.key or "", item)
            if goal.ours and goal.module == name:
                self.problems.append(f"{name}/__init__ defines {item} itself")
            if goal.ours and f"{name}/{item}" in self.map.targets:
                self.problems.append(f"{name}.{item} hides a module")
            places[dotted(goal.module)].append((goal.name, item))
            order.append(item)
        for symbol in self.map.added.get(name, ()):
            old, _, item = symbol.rpartition(".")
            if old in self.old:
                goal = self.symbol(old, item)
                places[dotted(goal.module)].append((goal.name, item))
                order.append(item)
        doc = self.mentions(doc)
        if name == "nodes" and "hides it here" not in doc:
            doc += " A body is\nimported from its own module: none hides it here."
        head = f'"""{doc}"""\n' if "\n" not in doc else f'"""{doc}\n"""\n'
        if not order:
            return head
        lines = [head, "from __future__ import annotations\n", "from typing import TYPE_CHECKING\n"]
        lines += ["from wick_graph.lazy import load_when_used\n", "if TYPE_CHECKING:"]
        for module, pairs in sorted(places.items()):
            names = ", ".join(
                own if own == item else f"{own} as {item}" for own, item in sorted(pairs)
            )
            lines.append(f"    from {module} import ({names})")
        lines.append("")
        lines.append("__all__ = [" + ", ".join(repr(i) for i in sorted(set(order))) + "]\n")
        table = ", ".join(
            f"{module!r}: {tuple(i for _, i in sorted(pairs))!r}"
            for module, pairs in sorted(places.items())
        )
        lines.append("if not TYPE_CHECKING:")
        lines.append(f"    __getattr__ = load_when_used(__name__, {{{table}}})")
        return "\n".join(lines) + "\n"

    def _door(self, source: Source) -> str:
        text = Rewriter(self, source, None).whole()
        for name, home in source.homes.items():
            goal = self.goal(home, name)
            new = goal.module.replace("/", ".")
            old = home.removeprefix(f"{TOP}.")
            text = text.replace(f'"{name}": "{old}"', f'"{name}": "{new}"')
        return text

    # --- texts ---------------------------------------------------------------------------------

    @cached_property
    def _dotted_old(self) -> dict[str, str]:
        made = {}
        for key in self.old:
            if key == "":
                continue
            if key in self.home:
                made[dotted(key)] = dotted(self.home[key])
            elif key in self.packages:
                made[dotted(key)] = dotted(key)
        for key, new in (("graph", "engine"), ("mcp", "tools/mcp")):
            if key in self.old:
                made[dotted(key)] = dotted(new)
        return made

    def _dotted(self, match: re.Match[str]) -> str:
        parts = match[0].split(".")
        for length in range(len(parts), 1, -1):
            module = ".".join(parts[:length])
            if module not in self.keys_by_name:
                continue
            rest = parts[length:]
            key = self.keys_by_name[module]
            if rest:
                goal = self._text_symbol(key, rest[0])
                if goal is not None:
                    return ".".join((dotted(goal.module), *filter(None, (goal.name,)), *rest[1:]))
            new = self._dotted_old.get(module)
            return match[0] if new is None else ".".join((new, *rest))
        return match[0]

    def _text_symbol(self, key: str, name: str) -> Goal | None:
        source = self.old[key]
        if (key, name) in self.map.doors:
            return Goal(self.map.doors[key, name], name)
        if source.is_package and (name in source.exported or name in source.homes):
            return self.goal(dotted(key), name)
        if (key, name) in self.map.moved or (key, name) in self.map.renamed:
            return self.symbol(key, name)
        return None

    def _from(self, match: re.Match[str]) -> str:
        """Rewrite `from wick_graph.a import b, c` inside a text."""
        module, names = match[2], match[3]
        if module not in self.keys_by_name:
            return match[0]
        items = [i.strip() for i in names.strip("()").replace("\\n", " ").split(",") if i.strip()]
        groups: dict[str, list[str]] = defaultdict(list)
        for item in items:
            name, _, alias = item.partition(" as ")
            key = self.keys_by_name[module]
            if (key, name) in self.map.doors:
                goal = Goal(self.map.doors[key, name], name)
            else:
                goal = self.goal(module, name)
            local = alias or name
            if goal.name:
                shown = goal.name if goal.name == local else f"{goal.name} as {local}"
                groups[dotted(goal.module)].append(shown)
            else:
                parent, _, own = dotted(goal.module).rpartition(".")
                groups[parent].append(own if own == local else f"{own} as {local}")
        made = [f"from {where} import {', '.join(what)}" for where, what in groups.items()]
        if len(made) == 1 and groups.keys() == {module} and groups[module] == items:
            return match[0]
        if len(made) > 1 and match[1]:
            return match[1] + "; ".join(made)
        return match[1] + ("\n" + match[1] if not match[1].strip() else "; ").join(made)

    def mentions(self, text: str) -> str:
        """Rewrite every mention of a module in a text: imports, dotted names, paths."""
        text = re.sub(
            r"([ \t]*)\bfrom (wick_graph[\w.]*) import "
            r"(\([^)]*\)|\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)",
            self._from,
            text,
        )
        text = re.sub(r"(?<![\w./])wick_graph(?:\.\w+)+", self._dotted, text)
        text = re.sub(r"(?<![\w.-])((?:wick_graph/)?(?:\w+/)+)(\w+)(\.py)\b", self._file, text)
        return re.sub(r"(?<![\w./-])wick_graph/(?:\w+/)+(?!\w*\.)", self._folder, text)

    def _file(self, match: re.Match[str]) -> str:
        whole = match[1].startswith(f"{TOP}/")
        key = match[1].removeprefix(f"{TOP}/") + match[2]
        key = key.removesuffix("/__init__")
        if key in self.home:
            new = self.home[key]
            return f"{TOP}/{new}.py" if whole else f"{new}.py"
        return match[0]

    def _folder(self, match: re.Match[str]) -> str:
        key = match[0].removeprefix(f"{TOP}/").rstrip("/")
        new = {"graph": "engine", "mcp": "tools", "picture/layout": "picture"}.get(key)
        if key.startswith("store/") and key in self.old:
            new = "store"
        return match[0] if new is None or key in self.packages else f"{TOP}/{new}/"

    def _texts(self) -> None:
        for pattern in TEXTS:
            for path in sorted(self.root.rglob(pattern)):
                inside = path.relative_to(self.root)
                if SKIPPED & set(inside.parts) or path.is_symlink():
                    continue
                if inside.parts[:2] == ("tests", "house") or path.is_relative_to(
                    self.root / TOP / "nodes"
                ):
                    continue
                if {"golden", "samples"} & set(inside.parts):
                    continue
                old = path.read_text(encoding="utf-8")
                new = self.mentions(old)
                if new != old:
                    path.write_text(new, encoding="utf-8")

    def _pyproject(self) -> None:
        path = self.root / "pyproject.toml"
        text = path.read_text(encoding="utf-8")
        names = sorted(TOP + "".join("." + p for p in k.split("/") if p) for k in self.packages)
        listed = "".join(f'  "{n}",\n' for n in names)
        text = re.sub(r"(?m)^packages = \[\n(?:.*\n)*?\]\n", f"packages = [\n{listed}]\n", text)
        path.write_text(text, encoding="utf-8")


class Rewriter:
    """The edits of one old file; with a target, of a part of a new module."""

    def __init__(self, mover: Mover, source: Source, target: str | None) -> None:
        self.mover = mover
        self.source = source
        self.target = target
        self.edits: list[tuple[int, int, str]] = []
        self.needs: dict[str, list[Need]] = defaultdict(list)
        self.used: dict[int, list[Need]] = {}
        self.local: dict[int, str | None] = {}
        self._by_import: dict[int, list[scopes.Use]] = defaultdict(list)
        for use in source.names.uses:
            if use.owner is not None and use.node.id in use.owner.imports:
                self._by_import[id(use.owner.imports[use.node.id])].append(use)

    # --- decisions -----------------------------------------------------------------------------

    def where(self, node: ast.AST) -> str:
        return f"{self.source.path.relative_to(self.mover.root)}:{getattr(node, 'lineno', 1)}"

    def problem(self, node: ast.AST, text: str) -> None:
        self.mover.problems.append(f"{self.where(node)}: {text}")

    def goal_of(self, made: scopes.Import) -> Goal:
        goal = self.mover.import_goal(made, self.source)
        if self.target is None and isinstance(made.statement, ast.ImportFrom):
            key = self.mover.keys_by_name.get(made.statement.module or "")
            door = self.mover.map.doors.get((key or "", made.alias.name))
            if door is not None:
                return Goal(door, made.alias.name)
        return goal

    def is_free(self, name: str, uses: Iterable[scopes.Use], made: scopes.Import) -> bool:
        """Whether a new local name means the same wherever the old one was used."""
        if name == made.local:
            return True
        scope = made.scope
        if name in scope.names:
            return False
        for use in uses:
            inner: scopes.Scope | None = use.scope
            while inner is not None and inner is not scope:
                if name in inner.names and (inner.kind != "class" or inner is use.scope):
                    return False
                inner = inner.parent
        return True

    def plan(self, made: scopes.Import) -> list[tuple[str, Goal]]:
        """Decide how an import is written, and edit its uses; return local names with goals."""
        goal = self.goal_of(made)
        uses = self._by_import[id(made)]
        if not goal.ours:
            return [(made.local, goal)]
        if isinstance(made.statement, ast.Import):
            return [(made.local, goal)]
        if goal.name:
            return self._plan_symbol(made, goal, uses)
        return self._plan_module(made, goal, uses)

    def _plan_symbol(
        self, made: scopes.Import, goal: Goal, uses: list[scopes.Use]
    ) -> list[tuple[str, Goal]]:
        inside = self.target is not None and goal.module == self.target
        local = goal.name if inside or not made.alias.asname else made.alias.asname
        alias = self.mover.map.aliases.get((self.target or "", f"{goal.module}.{goal.name}"))
        if alias and not inside:
            local = alias
        if not self.is_free(local, uses, made):
            if inside:
                self.problem(made.statement, f"{made.local} becomes {local}, which is hidden")
            else:
                local = made.local
        for use in uses:
            self.rename(use, local)
        return [] if inside else [(local, goal)]

    def _plan_module(
        self, made: scopes.Import, goal: Goal, uses: list[scopes.Use]
    ) -> list[tuple[str, Goal]]:
        bare = [u for u in uses if u.attribute is None]
        inside = self.target is not None and goal.module == self.target
        attributes = {}
        for use in uses:
            if use.attribute is not None:
                attributes[id(use)] = self.mover.attribute(made, use.attribute.attr)
        apart = any(g.module != goal.module for g in attributes.values())
        base = goal.module.rpartition("/")[2]
        if inside or apart:
            return self._plan_names(made, goal, uses, attributes, inside=inside)
        local = made.alias.asname or base
        if not self.is_free(local, uses, made):
            if self.target is not None and not bare:
                return self._plan_names(made, goal, uses, attributes, inside=False)
            local = made.local
        for use in uses:
            self.rename(use, local)
            if use.attribute is not None and attributes[id(use)].name != use.attribute.attr:
                start = self.source.span(use.attribute)[1]
                self.edit(start - len(use.attribute.attr), start, attributes[id(use)].name, use)
        return [(local, goal)]

    def _plan_names(
        self,
        made: scopes.Import,
        goal: Goal,
        uses: list[scopes.Use],
        attributes: dict[int, Goal],
        *,
        inside: bool,
    ) -> list[tuple[str, Goal]]:
        """Import the names of a module one by one in place of the module."""
        found: dict[str, Goal] = {}
        for use in uses:
            if use.attribute is None:
                if inside:
                    self.problem(use.node, f"the module {made.local} is used whole, and is its own")
                else:
                    base = goal.module.rpartition("/")[2]
                    found[made.alias.asname or base] = goal
                    self.rename(use, made.alias.asname or base)
                continue
            there = attributes[id(use)]
            local = there.name or there.module.rpartition("/")[2]
            alias = self.mover.map.aliases.get((self.target or "", f"{there.module}.{there.name}"))
            if alias and there.module != self.target:
                local = alias
            if not self.is_free(local, [use], made):
                self.problem(use.node, f"{made.local}.{use.attribute.attr}: {local} is hidden here")
            start, end = self.source.span(use.attribute)
            self.edit(start, end, local, use)
            if there.module != self.target:
                found[local] = there
        return list(found.items())

    # --- edits ---------------------------------------------------------------------------------

    def edit(self, start: int, end: int, text: str, use: scopes.Use | None = None) -> None:
        old = self.source.text[start:end]
        if use is not None and use.text is not None and sys.version_info < (3, 12):
            self._edit_in_text(use, old, text)
            return
        self.edits.append((start, end, text))

    def _edit_in_text(self, use: scopes.Use, old: str, new: str) -> None:
        """Places inside f-strings are wrong before Python 3.12: look for the text itself."""
        assert use.text is not None
        start, end = self.source.span(use.text)
        node = use.attribute if use.attribute is not None and "." in old else use.node
        old = ast.unparse(node) if "." in old or use.attribute is None else use.node.id
        text = self.source.text[start:end]
        places = [
            m
            for m in re.finditer(rf"(?<![\w.\"']){re.escape(old)}(?!\w)", text)
            if text.rfind("{", 0, m.start()) > text.rfind("}", 0, m.start())
        ]
        if not places:
            self.problem(use.node, f"{old} is not found in its f-string")
        for match in places:
            edit = (start + match.start(), start + match.end(), new)
            if edit not in self.edits:
                self.edits.append(edit)

    def rename(self, use: scopes.Use, name: str) -> None:
        if name != use.node.id:
            start, end = self.source.span(use.node)
            self.edit(start, end, name, use)

    def definitions(self) -> None:
        """Rename what the module itself defines, where the map says so."""
        key = self.source.key
        renamed = {n: new for (k, n), new in self.mover.map.renamed.items() if k == key}
        if not renamed:
            return
        module = self.source.names.module
        for use in self.source.names.uses:
            new = renamed.get(use.node.id)
            if new is None or use.owner is not module:
                continue
            inner: scopes.Scope | None = use.scope
            while inner is not None and inner is not module:
                if new in inner.names:
                    self.problem(use.node, f"{use.node.id} becomes {new}, which is hidden")
                inner = inner.parent
            self.rename(use, new)
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Global):
                start, end = self.source.span(node)
                text = self.source.text[start:end]
                for old, new in renamed.items():
                    text = re.sub(rf"\b{old}\b", new, text)
                self.edits.append((start, end, text))
        for node in self.source.tree.body:
            if isinstance(node, (*scopes.FUNCTIONS, ast.ClassDef)) and node.name in renamed:
                start = self.source.offset(node.lineno, node.col_offset)
                match = re.compile(rf"(?:async\s+)?(?:def|class)\s+({node.name})\b").match(
                    self.source.text, start
                )
                assert match is not None
                self.edits.append((match.start(1), match.end(1), renamed[node.name]))

    def inner_imports(self, *, top: bool) -> None:
        """Write imports anew in place: those in functions, and with `top` all of them."""
        statements: dict[int, list[scopes.Import]] = defaultdict(list)
        for made in self.source.names.imports:
            if top or made.scope.kind != "module":
                statements[id(made.statement)].append(made)
        for group in statements.values():
            self._write_import(group)

    def _write_import(self, group: list[scopes.Import]) -> None:
        node = group[0].statement
        module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        if (module or "").partition(".")[0] != TOP:
            return
        items = [pair for made in group for pair in self.plan(made)]
        if isinstance(node, ast.Import):
            return  # as a dotted name, with the other texts
        written: dict[str, list[str]] = defaultdict(list)
        for local, goal in dict(items).items():
            where, what = _written(goal)
            written[where].append(what if what == local else f"{what} as {local}")
        start, end = self.source.span(node)
        line = self.source.lines[node.lineno - 1]
        indent = line[: len(line) - len(line.lstrip())]
        tail = self.source.lines[(node.end_lineno or node.lineno) - 1]
        comment = tail[node.end_col_offset or 0 :].strip() if tail.isascii() else ""
        first = self.source.lines[node.lineno - 1].partition("#")[2].strip()
        if not comment and first and node.end_lineno != node.lineno:
            comment = f"# {first}"
        if self.target is None and [
            f"from {where} import {', '.join(names)}" for where, names in written.items()
        ] == [ast.unparse(node)]:
            return
        lines = []
        for where, names in written.items():
            if len(written) == 1 and node.end_lineno == node.lineno:
                text = f"from {where} import {', '.join(names)}"
            elif comment:
                text = (
                    f"from {where} import (  {comment}\n{indent}    {', '.join(names)},\n{indent})"
                )
                if len(names) == 1 or len(", ".join(names)) < 40:
                    text = f"from {where} import {', '.join(names)}  {comment}"
            else:
                text = f"from {where} import ({', '.join(names)})"
            lines.append(text)
        if comment and not (len(written) == 1 and node.end_lineno == node.lineno):
            match = re.compile(r"[ \t]*#[^\n]*").match(self.source.text, end)
            end = match.end() if match else end
            if node.end_lineno != node.lineno and lines and "#" not in lines[-1]:
                lines[-1] += f"  {comment}"
        self.edits.append((start, end, f"\n{indent}".join(lines) if lines else "pass"))

    def patches(self) -> None:
        """Follow `setattr(module, "name", …)` and the like to a name that has changed."""
        for node in ast.walk(self.source.tree):
            if not (isinstance(node, ast.Call) and len(node.args) >= 2):
                continue
            first, second = node.args[:2]
            if not (isinstance(first, ast.Name) and isinstance(second, ast.Constant)):
                continue
            made = self.source.names.module.imports.get(first.id)
            if made is None or not isinstance(second.value, str):
                continue
            if not isinstance(made.statement, ast.ImportFrom):
                continue
            key = self.mover.keys_by_name.get(f"{made.statement.module}.{made.alias.name}")
            new = self.mover.map.renamed.get((key or "", second.value))
            if new is not None:
                start, end = self.source.span(second)
                self.edits.append((start, end, f'"{new}"'))

    def whole(self) -> str:
        """Return the whole file, rewritten in place."""
        self.inner_imports(top=True)
        self.patches()
        return self.mover_mentions(0, len(self.source.text))

    def mover_mentions(self, start: int, end: int) -> str:
        """Apply the edits of a stretch; what lies between them may mention modules."""
        made, at = [], start
        for first, last, text in sorted(set(self.edits)):
            if first < start or last > end:
                continue
            if first < at:
                raise Problem(
                    f"{self.source.path}: edits overlap at {self.source.text[first:last]!r}"
                )
            made.append(self.mover.mentions(self.source.text[at:first]))
            made.append(text)
            at = last
        made.append(self.mover.mentions(self.source.text[at:end]))
        return "".join(made)


def _value(node: ast.expr) -> dict[str, tuple[str, ...]]:
    """Return a table of texts that may hold `*(…)`."""
    made: dict[str, tuple[str, ...]] = eval(ast.unparse(node), {"__builtins__": {}})
    return made


def _written(goal: Goal) -> tuple[str, str]:
    """Return the two parts of `from … import …`."""
    if not goal.ours:
        return goal.module, goal.name
    if goal.name:
        return dotted(goal.module), goal.name
    parent, _, own = dotted(goal.module).rpartition(".")
    return parent, own


class Builder:
    """One new module."""

    def __init__(self, mover: Mover, target: Target) -> None:
        self.mover = mover
        self.target = target
        self.needs: dict[str, dict[Goal, Need]] = defaultdict(dict)
        self.defined: dict[str, tuple[str, str]] = {}

    def build(self) -> str:
        """Return the text of the new module."""
        parts = self._ordered([o for o in self.target.old if o in self.mover.old])
        main = self._main(parts)
        taken = defaultdict(set)
        for (old, name), where in self.mover.map.moved.items():
            if where == self.target.name and self.mover.home.get(old) != where:
                taken[old].add(name)
        bodies = []
        for old in [*parts, *(o for o in taken if o in self.mover.old and o not in parts)]:
            text = self._part(old, taken.get(old))
            if text.strip():
                heading = ""
                own = old == main and not self.target.title
                if len(parts) > 1 and not own and old in parts:
                    heading = self._heading(self.mover.old[old].docstring)
                bodies.append(heading + text.strip("\n") + "\n")
        source = self.mover.old[main]
        doc = self.target.title if self.target.title and len(parts) > 1 else source.docstring
        if self.target.title and len(parts) == 1:
            rest = source.docstring.partition("\n\n")[2]
            doc = self.target.title + (f"\n\n{rest}" if rest else "")
        doc = self.mover.mentions(doc)
        head = f'"""{doc}"""\n' if "\n" not in doc else f'"""{doc}\n"""\n'
        raw = "r" if "\\" in doc else ""
        parts_text = "\n\n".join(bodies)
        future = "\nfrom __future__ import annotations\n\n"
        return f"{raw}{head}{future}{self._imports()}\n\n{parts_text}"

    def _main(self, parts: list[str]) -> str:
        if self.target.name in parts:
            return self.target.name
        base = self.target.name.rpartition("/")[2]
        for old in parts:
            if old.rpartition("/")[2] == base:
                return old
        return max(parts, key=lambda o: len(self.mover.old[o].text))

    def _heading(self, doc: str) -> str:
        first, _, rest = self.mover.mentions(doc).partition("\n")
        lines = textwrap.wrap(first, 90)
        made = [f"# --- {lines[0]}" if lines else "# ---"]
        made += [f"# {line}" for line in lines[1:]]
        made += [f"# {line}".rstrip() for line in rest.strip("\n").splitlines()]
        if rest.strip():
            made.insert(len(lines), "#")
        return "\n".join(made) + "\n\n\n"

    def _ordered(self, parts: list[str]) -> list[str]:
        """Put each old module behind those of the same target that it imports."""
        needs: dict[str, set[str]] = {}
        for old in parts:
            source = self.mover.old[old]
            needs[old] = set()
            for made in source.names.imports:
                if made.typing or made.scope.kind != "module":
                    continue
                if not isinstance(made.statement, ast.ImportFrom):
                    continue
                module = made.statement.module or ""
                key = self.mover.keys_by_name.get(f"{module}.{made.alias.name}")
                key = key or self.mover.keys_by_name.get(module)
                if key in parts and key != old and not (source.is_package and not source.key):
                    needs[old].add(key)
        made_order: list[str] = []
        left = list(parts)
        while left:
            ready = next((o for o in left if not needs[o] & set(left) - {o}), None)
            if ready is None:
                self.mover.problems.append(f"{self.target.name}: {left} import each other")
                return made_order + left
            made_order.append(ready)
            left.remove(ready)
        return made_order

    def _part(self, old: str, only: set[str] | None) -> str:
        source = self.mover.old[old]
        rewriter = Rewriter(self.mover, source, self.target.name)
        rewriter.definitions()
        rewriter.inner_imports(top=False)
        rewriter.patches()
        gone = {
            name
            for (key, name), where in self.mover.map.moved.items()
            if key == old and where != self.target.name
        }
        segments = []
        for segment in _segments(source):
            if only is not None and not segment.names & only:
                continue
            if only is None and segment.names & gone:
                continue
            if self._is_known(segment):
                continue
            segments.append(segment)
        self._bring(rewriter, segments)
        return "\n\n".join(
            rewriter.mover_mentions(s.start, s.end).strip("\n") + _gap(s) for s in segments
        )

    def _is_known(self, segment: Segment) -> bool:
        """Whether the same statement is there already; complain if another has its name."""
        source = segment.source
        renamed = self.mover.map.renamed
        text = "".join(ast.dump(n) for n in segment.nodes)
        known = False
        for name in segment.names:
            new = renamed.get((source.key or "", name), name)
            here = self.defined.get(new)
            if here is None or here[0] == source.key:
                self.defined[new] = (source.key or "", text)
            elif here[1] == text:
                known = True
            else:
                self.mover.problems.append(
                    f"{self.target.name}: {new} is in {here[0]} and in {source.key}"
                )
        return known

    def _bring(self, rewriter: Rewriter, segments: list[Segment]) -> None:
        """Collect the imports that the statements need; plan them, which edits their uses."""
        source = rewriter.source
        spans = [(s.start, s.end) for s in segments]
        starts = [s for s, _ in spans]

        def inside(node: ast.AST) -> bool:
            place = source.span(node)[0]
            at = bisect.bisect_right(starts, place) - 1
            return at >= 0 and place < spans[at][1]

        module = source.names.module
        needed: dict[str, scopes.Import] = {}
        for use in source.names.uses:
            made = module.imports.get(use.node.id)
            if made is not None and inside(made.statement):
                continue
            if use.owner is module and made is not None:
                place = use.text if use.text is not None else use.node
                if inside(place):
                    needed[use.node.id] = module.imports[use.node.id]
            elif use.owner is module and inside(use.text or use.node):
                self._own(rewriter, use)
        for node in ast.walk(source.tree):  # types in quotes
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if len(node.value) > 60 or "\n" in node.value or not inside(node):
                    continue
                for word in re.findall(r"\b[A-Z]\w*", node.value):
                    if word in module.imports:
                        needed[word] = module.imports[word]
        for made in source.names.imports:
            if made.scope is module and "noqa: F401" in source.lines[made.statement.lineno - 1]:
                needed[made.local] = made
        for name, made in needed.items():
            for local, goal in rewriter.plan(made):
                line = source.lines[made.statement.lineno - 1]
                need = self.needs[local].setdefault(goal, Need(goal, typing=True))
                need.typing = need.typing and made.typing
                need.why.add(f"{source.key}:{name}")
                same = made.statement.lineno == made.statement.end_lineno
                need.comment = need.comment or (line.partition("#")[2].strip() if same else "")

    def _own(self, rewriter: Rewriter, use: scopes.Use) -> None:
        """A name of the old module itself: it may live in another new module now."""
        source = rewriter.source
        key = source.key or ""
        where = self.mover.map.moved.get((key, use.node.id), self.mover.home.get(key))
        if where is None or where == self.target.name:
            return
        new = self.mover.map.renamed.get((key, use.node.id), use.node.id)
        goal = Goal(where, new)
        need = self.needs[new].setdefault(goal, Need(goal, typing=False))
        need.why.add(f"{key}:{new}")

    def _imports(self) -> str:
        runtime: list[str] = []
        typing: list[str] = []
        for local, goals in sorted(self.needs.items()):
            plain = [g for g in goals if g.plain and not g.ours]
            if len(goals) > 1 and len(plain) < len(goals):
                shown = "; ".join(
                    f"{g.module}.{g.name} ({', '.join(sorted(n.why))})" for g, n in goals.items()
                )
                self.mover.problems.append(f"{self.target.name}: {local} is imported as {shown}")
            if local in self.defined:
                goal = next(iter(goals))
                self.mover.problems.append(
                    f"{self.target.name}: {local} of {self.defined[local][0]} is also imported "
                    f"from {goal.module} ({', '.join(sorted(goals[goal].why))})"
                )
            for goal, need in goals.items():
                line = _import_line(local, goal)
                if need.comment:
                    line += f"  # {need.comment}"
                (typing if need.typing else runtime).append(line)
        text = "\n".join(runtime)
        if typing:
            runtime.append("from typing import TYPE_CHECKING")
            text = "\n".join(dict.fromkeys(runtime))
            text += "\n\nif TYPE_CHECKING:\n" + "\n".join(f"    {line}" for line in typing)
        return text + "\n"


def _import_line(local: str, goal: Goal) -> str:
    if goal.plain:
        top = goal.module.partition(".")[0]
        return f"import {goal.module}" + ("" if local == top else f" as {local}")
    where, what = _written(goal)
    return f"from {where} import {what}" + ("" if what == local else f" as {local}")


def _gap(segment: Segment) -> str:
    return ""


def _segments(source: Source) -> list[Segment]:
    """Cut a module into its statements; imports, docstring and `__all__` are left out."""
    made: list[Segment] = []
    at = 0
    body = source.tree.body
    for number, node in enumerate(body):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        end = source.starts[node.end_lineno or node.lineno]
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if number == 0 and is_text:
            at = end
            continue
        if is_text and made and made[-1].end == at:
            made[-1].end = end
            made[-1].nodes.append(node)
            at = end
            continue
        skipped = isinstance(node, (ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names = {t.id for t in targets if isinstance(t, ast.Name)}
        for target in targets:
            names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        if isinstance(node, (*scopes.FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.Try):
            names |= {
                a.asname or a.name
                for i in ast.walk(node)
                if isinstance(i, ast.Import)
                for a in i.names
            }
        if skipped or "__all__" in names:
            at = end
            continue
        start = at if at <= source.starts[first - 1] else source.starts[first - 1]
        made.append(Segment(source, start, end, names, [node]))
        at = end
    if at < len(source.text) and source.text[at:].strip() and made:
        made[-1].end = len(source.text)
    return made


LAZY = '''"""Packages that load their names when these are first used (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any


def load_when_used(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: The package\'s name.
        names: For each module, which of its names the package offers.
    """
    homes = {name: module for module, offered in names.items() for name in offered}

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(modules[package], name, value)
        return value

    return load
'''


def main() -> int:
    """Run the move on the checkout that holds this file, or on another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    root = given.root.resolve()
    try:
        mover = Mover(root)
        if given.check:
            mover._remove_empty = lambda *_: None  # type: ignore[method-assign]  # nothing is written
        mover.run()
    except Problem as problem:
        print(problem)
        return 1
    print("\n".join(mover.notes))
    reflow(root)
    tidy(root)
    figures(root)
    return 0


def reflow(root: Path) -> None:
    """Break the lines of comments and docstrings that longer names have made too long."""
    for folder in (root / TOP, root / "nodes", root / "tests", root / "benchmarks"):
        for path in folder.rglob("*.py"):
            inside = path.relative_to(root).parts
            if inside[:2] in ((TOP, "nodes"), ("tests", "house")):
                continue
            text = path.read_text(encoding="utf-8")
            if any(len(line) > WIDTH for line in text.splitlines()):
                new = _reflowed(text)
                if new != text:
                    path.write_text(new, encoding="utf-8")


def _reflowed(text: str) -> str:
    docs = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):  # type: ignore[attr-defined]  # a text
            docs |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]  # too
    lines = [(line, number in docs) for number, line in enumerate(text.splitlines(), 1)]
    made: list[str] = []
    while lines:
        line, is_doc = lines.pop(0)
        bare = line.lstrip()
        indent = line[: len(line) - len(bare)]
        if len(line) <= WIDTH or not (is_doc or bare.startswith("# ")):
            made.append(line)
            continue
        at = line.rfind(" ", 0, WIDTH + 1)
        sign = "# " if bare.startswith("# ") else ""
        if at <= len(indent) + 3:
            made.append(line)
            continue
        rest = line[at + 1 :]
        made.append(line[:at])
        under = lines[0][0] if lines else ""
        same = under.startswith(indent + sign) and under[len(indent + sign) :][:1].isalnum()
        if same and lines[0][1] == is_doc and not rest.endswith(('"""', "::")):
            lines[0] = (f"{indent}{sign}{rest} {under[len(indent + sign) :]}", is_doc)
        else:
            lines.insert(0, (f"{indent}{sign}{rest}", is_doc))
    return "\n".join(made) + "\n"


def tidy(root: Path) -> None:
    """Let ruff sort imports and format."""
    ruff = Path(sys.executable).with_name("ruff")
    base = [str(ruff), "check", "--quiet", "--fix", "--select", "I,F401,TC005,RUF022,RUF023", "."]
    subprocess.run(base, cwd=root, check=False)
    subprocess.run([str(ruff), "format", "--quiet", "."], cwd=root, check=True)


def figures(root: Path) -> None:
    """Print how large the modules are."""
    sizes = {}
    for folder in (root / TOP, root / "nodes"):
        for path in folder.rglob("*.py"):
            if path.relative_to(root).parts[:2] != (TOP, "nodes"):
                lines = len(path.read_text(encoding="utf-8").splitlines())
                sizes[path.relative_to(root).as_posix()] = lines
    inits = sum(p.endswith("__init__.py") for p in sizes)
    ordered = sorted(sizes.values())
    short = sum(s < 100 for s in ordered)
    print(f"{len(sizes)} modules ({inits} __init__), {sum(ordered)} lines")
    print(f"median {ordered[len(ordered) // 2]}, under 100 lines: {short}")
    for name, lines in sorted(sizes.items(), key=lambda p: -p[1]):
        if lines > 800:
            print(f"too long: {name} {lines}")


if __name__ == "__main__":
    sys.exit(main())
