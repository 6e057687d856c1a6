"""The rules of the code that no type checker and no linter knows; their tables are in `laws.py`."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from types import FunctionType

import pytest

from tests.laws import (
    BY_NAME,
    KNOWS,
    LAYERS,
    LAZY_IMPORTS,
    LONG,
    MAX_ANCESTORS,
    MAX_CHAIN,
    MAX_FUNCTION_LINES,
    MAX_INSIDE,
    MAX_MODULE_LINES,
    MAX_PACKAGES,
    MAX_PUBLIC_METHODS,
    NOT_OURS,
    ONE_IMPORTER,
    OTHER_ERRORS,
    OUTSIDE,
    PRIVATE,
    SCRIPTED,
    TALL,
)
from tests.source import (
    IMPORTABLE,
    MODULES,
    PACKAGE,
    ROOT,
    Module,
    home,
    imports,
    imports_of_types,
    part_of,
    tree_files,
    walk,
)
from wick_graph import errors
from wick_graph.debug import DebugSession
from wick_graph.journal import blame, details, journal, reader, reconstruct

pytestmark = pytest.mark.xdist_group("source")  # each module is read once

Found = list[str]


def none(found: Found) -> None:
    """Fail with all that was found, one a line."""
    assert not found, "\n" + "\n".join(found)


# --- layers --------------------------------------------------------------------------------------


def test_every_part_has_its_place() -> None:
    placed = [part for row in LAYERS for part in row]
    assert len(placed) == len(set(placed))
    assert sorted({m.part for m in MODULES.values()} - set(placed) - {""}) == []


def test_imports_point_down() -> None:
    order = [part for row in LAYERS for part in row]
    found: Found = []
    for module in MODULES.values():
        room = next((name for name in KNOWS if _is_in(module.name, name)), module.part)
        known = KNOWS.get(room, frozenset(order))
        for node, target in imports(module):
            part, inside = part_of(home(target)), home(target).partition(".")[2]
            if part == "" or module.part == "" or _is_in(home(target), room):
                continue
            upwards = order.index(part) > order.index(module.part)
            if upwards or not {part, inside} & known:
                found.append(f"{module.at(node)}: {target}")
    none(found)


def _is_in(module: str, room: str) -> bool:
    return f"{module}.".startswith(f"wick_graph.{room}.")


def test_the_product_needs_no_doubles() -> None:
    """`wick_graph.testing` is for tests: nothing else may break or slow down with it."""
    found = [
        f"{module.at(node)}: {target}"
        for module in MODULES.values()
        if module.part not in ("testing", "pytest_plugin")
        for node, target in imports(module)
        if part_of(home(target)) == "testing"
    ]
    none(found)


def test_readers_of_a_journal_are_parts_that_know_rows_and_no_store() -> None:
    """`Journal` opens a store's rows and builds the parts; none inherits from another."""
    found: Found = []
    for name in ("reader", "reconstruct", "details", "blame"):
        module = MODULES[f"wick_graph.journal.{name}"]
        for node, target in imports(module):
            if home(target) in ("wick_graph.store", "wick_graph.store.saver"):
                found.append(f"{module.at(node)}: {target}")
    parts = (reader.JournalReader, reconstruct.Reconstruction, details.Details, blame.BlameReader)
    for part in (*parts, reconstruct.Recorded, journal.Journal):
        if part.__bases__ != (object,):
            found.append(f"{part.__name__} inherits from {part.__bases__}")
    none(found)


def test_no_name_of_a_package_hides_its_submodule() -> None:
    """`from package import name` must not depend on what was imported before."""
    found: Found = []
    for package in MODULES.values():
        if not package.is_package:
            continue
        for node, name, target in _bound(package):
            inner = f"{package.name}.{name}"
            if inner in MODULES and target != inner:
                found.append(f"{package.at(node)}: {name} hides {inner}")
    none(found)


def _bound(package: Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield each name that a package binds or promises, and what it imports under it."""
    tree, listed = package.tree, ast.List | ast.Tuple
    brought = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                brought.add(name)
                yield node, name, f"{node.module}.{alias.name}"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node, node.name, ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [t.id for t in targets if isinstance(t, ast.Name)]
            yield from ((node, name, "") for name in names)
            if names == ["__all__"] and isinstance(node.value, listed):
                promised = [ast.literal_eval(part) for part in node.value.elts]
                yield from ((node, name, "") for name in promised if name not in brought)


def test_imports_are_absolute_and_nobody_imports_the_door() -> None:
    found: Found = []
    for module in MODULES.values():
        allowed = {"wick_graph.__version__"} if module.part in ("cli", "server") else set()
        for node, target in imports(module):
            at_the_door = home(target) == "wick_graph" and target not in allowed
            if at_the_door or target.partition(".")[0] in ("", "nodes", "tests"):
                found.append(f"{module.at(node)}: {target}")
    none(found)


def test_libraries_stay_in_their_part() -> None:
    found: Found = []
    private = set()
    for module in MODULES.values():
        for node, target in imports(module):
            parts = OUTSIDE.get(target.partition(".")[0])
            if parts is not None and module.part not in parts:
                found.append(f"{module.at(node)}: {target}")
            if not home(target) and re.search(r"\._(?!_)", target):
                private.add(target)
                if target not in PRIVATE:
                    found.append(f"{module.at(node)}: {target} is private")
    none(found)
    assert private == PRIVATE, "an entry is no longer needed"


def test_what_a_module_keeps_to_itself_is_imported_by_no_other() -> None:
    found = [
        f"{module.at(node)}: {target}"
        for module in MODULES.values()
        for node, target in imports(module)
        if home(target) and re.search(r"\._(?!_)", target)
    ]
    none(found)


def test_no_import_cycles() -> None:
    """Count what Python runs: importing `a.b` from outside of `a` runs `a/__init__.py` first."""
    graph: dict[str, set[str]] = {}
    for module in MODULES.values():
        graph[module.name] = reached = set()
        around = module.name if module.is_package else module.name.rpartition(".")[0]
        for _, target in imports(module, functions=False):
            found = home(target)
            parents = [found.rsplit(".", i)[0] for i in range(1, found.count(".") + 1)]
            reached |= {p for p in parents if not f"{around}.".startswith(f"{p}.")}
            reached |= {found} - {""}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_imports_inside_functions_are_the_listed_ones() -> None:
    found: dict[tuple[str, str], str] = {}
    for module in MODULES.values():
        if module.part in ("", "cli"):
            continue
        above = {id(node) for node, _ in imports(module, functions=False)}
        for node, target in imports(module):
            if id(node) not in above:
                found[module.name, target.rpartition(".")[0] or target] = module.at(node)
    none([f"{at}: {what[1]}" for what, at in found.items() if what not in LAZY_IMPORTS])
    assert set(found) == LAZY_IMPORTS, "an entry is no longer needed"


# --- attributes by name --------------------------------------------------------------------------


def _attributes(tree: ast.Module) -> set[str]:
    """Name what the classes of a module define: methods, fields, and attributes of `self`."""
    found: set[str] = set()
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(cls):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            elif node in cls.body and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            for target in targets:
                text = ast.unparse(target)
                if text.startswith("self.") or (node in cls.body and text.isidentifier()):
                    found.add(text.removeprefix("self."))
    return found


def test_nobody_asks_our_own_objects_for_an_attribute_by_name() -> None:
    """`getattr` and `hasattr` with a literal name that a class of ours defines: a list of each.

    Names that no class of ours defines can only be a library's. The list of our own objects may
    only shrink; what is not ours is listed too, so that somebody has thought about it.
    """
    ours = set().union(*(_attributes(module.tree) for module in MODULES.values()))
    foreign: set[tuple[str, str]] = set()
    by_name: set[tuple[str, str]] = set()
    found: Found = []
    for module in MODULES.values():
        name = module.name.partition(".")[2]
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            asks = ast.unparse(node.func) in ("getattr", "hasattr", "setattr")
            what = node.args[1]
            if not asks or not isinstance(what, ast.Constant) or what.value not in ours:
                continue
            holder = ast.unparse(node.args[0])
            if holder == "self":
                continue
            if holder in NOT_OURS.get(name, ()):
                foreign.add((name, holder))
            else:
                by_name.add((name, f"{holder}.{what.value}"))
                if (name, f"{holder}.{what.value}") not in BY_NAME:
                    found.append(f"{module.at(node)}: {ast.unparse(node)}")
    none(found)
    assert by_name == BY_NAME, "an entry is no longer needed"
    listed = {(name, holder) for name, holders in NOT_OURS.items() for holder in holders}
    assert foreign == listed, "an entry is no longer needed"


def test_chains_of_imports_are_short() -> None:
    """Count to the module that defines a name: packages load lazily."""
    edges: dict[str, set[str]] = {}
    parts: dict[str, set[str]] = {}
    for module in MODULES.values():
        goals = {home(target) for _, target in imports(module, functions=False)}
        edges[module.name] = goals - {"", "wick_graph", module.name}
        parts.setdefault(module.part, set()).update(part_of(goal) for goal in edges[module.name])
    for part, targets in parts.items():
        targets.discard(part)
        inside = {n: {g for g in t if part_of(g) == part} for n, t in edges.items()}
        chain = _longest({n: t for n, t in inside.items() if part_of(n) == part})
        assert len(chain) <= MAX_INSIDE.get(part, 9), " > ".join(chain)
    assert len(chain := _longest(edges)) <= MAX_CHAIN, " > ".join(chain)
    assert len(chain := _longest(parts)) <= MAX_PACKAGES, " > ".join(chain)


def _longest(edges: dict[str, set[str]]) -> list[str]:
    """Return the longest chain; there is no cycle, as another test says."""
    known: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in known:
            below = (chain(other) for other in sorted(edges.get(name, ())))
            known[name] = [name, *max(below, key=len, default=[])]
        return known[name]

    return max((chain(name) for name in edges), key=len)


def test_types_are_imported_downwards_too() -> None:
    """An import under `if TYPE_CHECKING:` ties two parts as much as one that runs."""
    order = [part for row in LAYERS for part in row]
    found = [
        f"{module.at(node)}: {target}"
        for module in MODULES.values()
        if module.part
        for node, target in imports_of_types(module.tree)
        if (part := part_of(home(target))) and order.index(part) > order.index(module.part)
    ]
    none(found)


def test_an_import_for_types_is_seen() -> None:
    text = "if TYPE_CHECKING:\n    import a.b\n    from wick_graph.cli import app\nimport c\n"
    seen = [target for _, target in imports_of_types(ast.parse(text))]
    assert seen == ["a.b", "wick_graph.cli.app"]


def test_a_module_with_one_importer_has_a_reason() -> None:
    importers: dict[str, set[str]] = {name: set() for name in MODULES}
    for module in MODULES.values():
        for _, target in imports(module):
            if goal := home(target):
                importers[goal].add(module.name)
    lone = {name.partition(".")[2] for name in with_one_sibling(importers)}
    listed = {name for names in ONE_IMPORTER.values() for name in names}
    none([f"{name}: one sibling imports it; move it there" for name in sorted(lone - listed)])
    assert lone == listed, "an entry is no longer needed"
    lines = {name: len(MODULES[f"wick_graph.{name}"].lines) for name in ONE_IMPORTER["150 lines"]}
    none([f"{name}: {count} lines" for name, count in lines.items() if count < 150])


def with_one_sibling(importers: dict[str, set[str]]) -> list[str]:
    """Name the modules with a single importer that lies in the same package.

    The package itself does not count: it only offers the module's names.
    """
    found = []
    for name, known in importers.items():
        package = name.rpartition(".")[0]
        others = known - {name, package}
        if len(others) == 1 and next(iter(others)).rpartition(".")[0] == package:
            found.append(name)
    return found


def test_a_module_with_one_importer_is_found() -> None:
    importers = {"w.a.x": {"w.a.y", "w.a"}, "w.a.y": {"w.b.z"}, "w.a.z": {"w.a.x", "w.a.y"}}
    assert with_one_sibling(importers) == ["w.a.x"]


def test_the_client_needs_no_engine_and_the_service_no_http() -> None:
    """What gateways and workers will be built on is the service, without FastAPI."""
    found: Found = []
    for module in MODULES.values():
        for node, target in imports(module):
            top = target.partition(".")[0]
            if module.part == "service" and top in ("fastapi", "starlette", "uvicorn"):
                found.append(f"{module.at(node)}: {target}")
    none(found)


# --- form ----------------------------------------------------------------------------------------


def test_modules_and_functions_are_short() -> None:
    long = {}
    for module in MODULES.values():
        if len(module.lines) > MAX_MODULE_LINES:
            long[module.name] = f"{module.at(1)}: {len(module.lines)} lines"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    long[f"{module.name}:{node.name}"] = f"{module.at(node)}: {length} lines"
    none([f"{at} in {name}" for name, at in long.items() if name not in LONG])
    assert set(long) == LONG, "an entry is no longer needed"


def test_classes_are_made_of_parts() -> None:
    """A class of many ancestors or methods is several: compose it, with a facade where one helps.

    What other packages' base classes bring, such as LangGraph's saver, does not count.
    """
    tall = {}
    for cls in own_classes():
        ancestors, methods = own_ancestors(cls), own_methods(cls)
        if len(ancestors) > MAX_ANCESTORS or len(methods) > MAX_PUBLIC_METHODS:
            name = f"{cls.__module__}.{cls.__qualname__}"
            tall[name] = f"{name}: {len(ancestors)} ancestors, {len(methods)} public methods"
    none([told for name, told in tall.items() if name not in TALL])
    assert set(tall) == TALL, "an entry is no longer needed"


def test_a_class_of_many_is_found() -> None:
    """The law counts what is inherited from our classes, and nothing else."""
    bases: tuple[type, ...] = (dict,)
    for level in range(5):
        more = {f"do_{level}_{n}": lambda self: None for n in range(10)}
        hidden = {"_own": lambda self: None, "size": property(len), "__module__": "wick_graph.x"}
        bases = (type(f"Level{level}", bases, {**more, **hidden}),)
    [cls] = bases
    assert len(own_ancestors(cls)) == 4
    assert len(own_methods(cls)) == 50
    assert own_methods(DebugSession) >= {"step", "cont", "open", "run", "fork", "why"}


def own_classes() -> Iterator[type]:
    for name in IMPORTABLE:
        module = importlib.import_module(name)
        found = (value for value in vars(module).values() if isinstance(value, type))
        yield from (cls for cls in found if cls.__module__ == name)


def own_ancestors(cls: type) -> list[type]:
    return [c for c in cls.__mro__[1:] if c.__module__.partition(".")[0] == "wick_graph"]


def own_methods(cls: type) -> set[str]:
    """Return the public methods that a class and its ancestors of our own declare."""
    kinds = (FunctionType, classmethod, staticmethod)
    declared = [vars(c).items() for c in (cls, *own_ancestors(cls))]
    return {
        name
        for items in declared
        for name, value in items
        if isinstance(value, kinds) and not name.startswith("_")
    }


def test_what_is_public_says_what_it_is() -> None:
    found: Found = []
    for module in MODULES.values():
        if not ast.get_docstring(module.tree):
            found.append(module.at(1))
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            overload = any(ast.unparse(d).endswith("overload") for d in node.decorator_list)
            if not (node.name.startswith("_") or overload or ast.get_docstring(node)):
                found.append(f"{module.at(node)}: {node.name}")
    none(found)


def test_a_silenced_rule_says_which_and_why() -> None:
    silenced = re.compile(r"#\s*(?:noqa|type:\s*ignore)(?::\s*([A-Z0-9, ]+)|\[([\w, -]+)\])?(.*)$")
    found: Found = []
    for module in MODULES.values():
        for number, line in enumerate(module.lines, 1):
            match = silenced.search(line)
            if match and not ((match[1] or match[2]) and len(re.findall(r"\w+", match[3])) > 1):
                found.append(f"{module.at(number)}: {match[0]}")
    none(found)


def test_nothing_evaluates_code_or_revives_objects() -> None:
    calls = ("eval", "exec", "compile", "__import__", "os.system", "asyncio.run")
    names = [f"yaml.{n}" for n in ("unsafe_load", "full_load", "UnsafeLoader", "FullLoader")]
    modules = ("pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle")
    found: Found = []
    for module in MODULES.values():
        for node in ast.walk(module.tree):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in calls and (module.part, called) != ("cli", "asyncio.run"):
                found.append(f"{module.at(node)}: {called}")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in names:
                found.append(f"{module.at(node)}: {ast.unparse(node)}")
        for node, target in imports(module):
            if target.partition(".")[0] in modules:
                found.append(f"{module.at(node)}: {target}")
    none(found)


def test_modules_define_and_do_nothing_else() -> None:
    acts = re.compile(
        r"print|open|input|(.*\.)?(getenv|basicConfig|mkdir|makedirs|simplefilter|filterwarnings"
        r"|set_event_loop_policy|write_text|read_text|connect|create_engine|start)"
    )
    found: Found = []
    for module in MODULES.values():
        for node in walk(module.tree, functions=False):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            environment = isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ"
            if acts.fullmatch(called) or environment:
                found.append(f"{module.at(node)}: {called or 'os.environ'}")
    none(found)


def test_langgraphs_reserved_names_are_spelt_in_one_module() -> None:
    found: Found = []
    for module in MODULES.values():
        if module.part == "langgraph_config":
            continue
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            if node.value == "configurable" or node.value.startswith("__pregel"):
                found.append(f"{module.at(node)}: {node.value!r} is in wick_graph.langgraph_config")
    none(found)


def test_nodes_hold_functions_and_small_values_only() -> None:
    """A second copy of a node module, imported by its folder's name, must do no harm."""
    plain = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.If)
    found: Found = []
    for module in MODULES.values():
        for node in module.tree.body if module.part == "nodes" else ():
            text = ast.unparse(node)
            if isinstance(node, ast.ClassDef):
                decorators = " ".join(ast.unparse(d) for d in node.decorator_list)
                fine = "dataclass(" in decorators and "frozen=True" in decorators
                fine = fine or [ast.unparse(base) for base in node.bases] == ["NamedTuple"]
                fine = fine and len(node.body) <= 8
            elif isinstance(node, ast.AnnAssign):
                fine = ast.unparse(node.annotation) == "Final"
            elif isinstance(node, ast.Assign):  # an alias of a type
                fine = isinstance(node.value, ast.Subscript)
            else:
                docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                fine = docstring or isinstance(node, plain)
            if not fine:
                found.append(f"{module.at(node)}: {text.splitlines()[0]}")
    none(found)


def test_errors_are_one_tree_drawn_in_its_module() -> None:
    for name in IMPORTABLE:
        importlib.import_module(name)

    def below(cls: type) -> set[type]:
        subclasses: list[type] = cls.__subclasses__()
        return {cls}.union(*(below(sub) for sub in subclasses))

    ours = {c for c in below(BaseException) if c.__module__.partition(".")[0] == "wick_graph"}
    central = {c for c in ours if c.__module__ == "wick_graph.errors"}
    tree = {c for c in ours if issubclass(c, errors.WickError)}
    others = {f"{c.__module__}.{c.__qualname__}" for c in ours - central}
    assert {name for name in others if not name.startswith(SCRIPTED)} == OTHER_ERRORS
    assert tree <= central
    assert not any(issubclass(c, Exception) for c in central - tree), "a signal can be swallowed"
    drawn = re.findall(r"^ {4}[ │├└─]*([A-Z]\w+)  ", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(c.__name__ for c in central)
    codes = [vars(c)["code"] for c in tree]
    assert len(codes) == len(set(codes)), "each error has a code of its own"


# --- the tree ------------------------------------------------------------------------------------


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    places = [r"/(home|Users)/\w+", r"[A-Z]:\\Users\\", re.escape(str(ROOT))]
    pattern = re.compile(rf"(?<![\w./-])(?:{'|'.join(places)})(?![\w-])")
    found: Found = []
    for name in tree_files():
        path = ROOT / name
        if path.is_symlink() or b"\0" in (data := path.read_bytes())[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8").splitlines(), 1):
            found += [f"{name}:{number}: {match[0]}" for match in pattern.finditer(line)]
    none(found)


def test_guide_is_short_and_names_every_part() -> None:
    guide = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert len(guide.splitlines()) <= 120
    names = {p.name if p.suffix == ".py" else f"{p.name}/" for p in PACKAGE.iterdir()}
    names -= {"__main__.py", "__pycache__/", "py.typed/"}
    assert [n for n in sorted(names) if not re.search(rf"(?<!\w){re.escape(n)}", guide)] == []
