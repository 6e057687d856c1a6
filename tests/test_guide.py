"""The documents name what is there: paths, links, packages, keys, commands."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

from tests.laws import GROUND, LAYERS
from tests.mutants.mutants import MUTANTS
from tests.source import MODULES, ROOT, home, imports, part_of, tree_files
from tests.support.near import SHOWN, module_named, near
from wick_graph.cli.app import app

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
MAP = re.compile(r"^ {2}([\w/.]+)(?: +→ ([\w ]+?))?(?: {2,}|$)", re.M)

MADE = frozenset(
    {
        "checkpoints/recorded.db",
        "checkpoints/wick.db",
        "wick_graph.audit",
        "wick_graph.channels",
    }
)
"""What exists at run time: the default databases, a logger, and a group of entry points."""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- paths and links -----------------------------------------------------------------------------


PATH = re.compile(r"`((?:wick_graph|nodes|tests|docs|benchmarks|checkpoints|\.ci)/[\w./*-]*)")
INNER = re.compile(r"`((?:\w+/)+\w+\.(?:py|json|md|yaml|txt))[`:]")
"""A path inside of the package: `store/schema.py`."""


def named() -> Iterator[tuple[str, str]]:
    """Yield each path that a document names, and the document."""
    for document in DOCUMENTS:
        text = read(document)
        for found in {*PATH.findall(text), *INNER.findall(text)}:
            yield document.name, found.rstrip(".")


def test_each_path_that_is_named_is_there() -> None:
    missing = [
        f"{document}: {path}"
        for document, path in named()
        if path not in MADE and not any(any(top.glob(path)) for top in (ROOT, ROOT / "wick_graph"))
    ]
    assert missing == []
    assert len({path for _, path in named()}) > 50


def test_each_module_that_is_named_is_there() -> None:
    missing = []
    for document in DOCUMENTS:
        for dotted in set(re.findall(r"\bwick_graph(?:\.[a-z_]\w*)+", read(document))):
            name = dotted
            while name not in MODULES:
                name = name.rpartition(".")[0]
            rest = dotted[len(name) + 1 :].partition(".")[0]
            if (
                rest
                and dotted not in MADE
                and not re.search(rf"\b{rest}\b", read(MODULES[name].path))
            ):
                missing.append(f"{document.name}: {dotted}")
    assert missing == []


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return anchors_of(read(path))


def anchors_of(page: str) -> frozenset[str]:
    made = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().replace("`", "")
        kept = (c for c in text if c in " -_" or unicodedata.category(c)[0] in "LN")
        made.add("".join(kept).replace(" ", "-"))
    return frozenset(made)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_link_leads_somewhere(document: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", read(document))):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (document.parent / file).resolve() if file else document
        known = path.exists() and (not anchor or anchor in anchors(path))
        if not known or (file and str(path.relative_to(ROOT)) not in tracked()):
            broken.append(target)
    assert broken == []


@cache
def tracked() -> frozenset[str]:
    """Return the files and folders that a commit would hold."""
    files = [Path(name) for name in tree_files()]
    return frozenset(str(part) for file in files for part in (file, *file.parents))


def test_each_document_is_linked_from_the_readme() -> None:
    linked = {target.partition("#")[0] for target in LINK.findall(read(ROOT / "README.md"))}
    wanted = {str(path.relative_to(ROOT)) for path in DOCUMENTS} - {"README.md"}
    # the list of a part is made by the build: tests/test_site.py
    wanted = {name for name in wanted if not name.endswith("/index.md")}
    assert sorted(wanted - linked) == []


def test_the_readme_is_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= 200


# --- the map of the packages ---------------------------------------------------------------------


def drawn() -> list[tuple[str, frozenset[str]]]:
    """Return the map of AGENTS.md: each part and what its arrow names."""
    text = read(ROOT / "AGENTS.md").partition("```text\n")[2].partition("```")[0]
    return [
        (name.strip("/").removesuffix(".py"), frozenset(needs.split()))
        for name, needs in MAP.findall(text)
        if name not in ("errors.py", "__init__.py")
    ]


def needed() -> dict[str, frozenset[str]]:
    """Return what each part imports, without what it gets through another part that it imports."""
    edges: dict[str, set[str]] = {"ground": set()}
    for module in MODULES.values():
        if module.part:
            part = "ground" if module.part in GROUND else module.part
            others = {part_of(home(target)) for _, target in imports(module)} - {""}
            others = {"ground" if other in GROUND else other for other in others}
            edges.setdefault(part, set()).update(others - {part})

    @cache
    def below(part: str) -> frozenset[str]:
        return frozenset(edges[part]).union(*(below(other) for other in edges[part]))

    return {
        part: frozenset(n for n in others if not any(n in below(o) for o in others))
        for part, others in edges.items()
    }


def test_the_map_is_the_order_of_the_packages_and_their_imports() -> None:
    wanted = needed()
    order = [part for row in LAYERS[1:] for part in row if part != "__main__"]
    lines = [f"  {part} → {' '.join(sorted(wanted[part]))}" for part in order]
    assert [(part, wanted[part]) for part in order] == drawn(), "\n".join(["it is:", *lines])


def test_the_map_names_the_ground() -> None:
    text = read(ROOT / "AGENTS.md")
    line = next(line for line in text.splitlines() if line.endswith(" ground"))
    assert set(re.findall(r"(\w+)\.py", line)) == GROUND


# --- where the tests of a package are ------------------------------------------------------------

ELSEWHERE = {
    "client": "server/test_client.py",
    "nodes": "engine",
    "runtime": "durability",
    "service": "server",
    "tracing": "server/test_telemetry.py",
    "web": "attacks",
}
"""Packages whose tests are in a folder of another name: one server, loop or attack tests both."""


def test_each_package_has_its_tests() -> None:
    packages = {path.parent.name for path in (ROOT / "wick_graph").glob("*/__init__.py")}
    own = {name for name in packages if [*(ROOT / "tests" / name).rglob("test_*.py")]}
    assert packages - own == set(ELSEWHERE)
    assert [place for place in ELSEWHERE.values() if not (ROOT / "tests" / place).exists()] == []


def test_the_tests_of_a_module_are_found() -> None:
    """Of what notices a mutant, three in four are among the files that `make near` names."""
    where: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"def (test_\w+)", read(path)):
            where.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    defined: dict[str, list[str]] = {}
    for module in MODULES.values():
        for name in re.findall(r"^(?:async def|def|class) (\w+)", read(module.path), re.M):
            defined.setdefault(name, []).append(module.name)
    found = []
    for mutant in MUTANTS:
        names = {test.partition("[")[0].rpartition("::")[2] for test in mutant.tests}
        noticed = set().union(*(where[name] for name in names if name in where))
        homes = [defined.get(patch.symbol.partition(".")[0], []) for patch in mutant.patches]
        if noticed and all(len(home) == 1 for home in homes):
            found.append(any(noticed & {*near(home)[:SHOWN]} for [home] in homes))
    assert len(found) > 100
    assert sum(found) >= 0.75 * len(found)


@pytest.mark.parametrize(
    "text", ["store/leases", "wick_graph/store/leases.py", "store.leases", "nodes/model.py"]
)
def test_a_module_is_named_in_each_way(text: str) -> None:
    assert module_named(text) in {"wick_graph.store.leases", "wick_graph.nodes.model"}


def test_a_module_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no module store/lease"):
        module_named("store/lease")


# --- keys and commands ---------------------------------------------------------------------------


def test_each_key_of_agents_yaml_is_described() -> None:
    shapes = json.loads(read(ROOT / "docs" / "agents.schema.json"))["$defs"]
    page = read(ROOT / "docs" / "reference" / "configuration.md")
    for shape, heading in (("AgentsFile", "## Keys of the file"), ("AgentConfig", "## Keys of an")):
        table = page.partition(heading)[2].partition("\n## ")[0]
        keys = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]+) \|", table, re.M)))
        assert sorted(keys) == sorted(shapes[shape]["properties"])


def test_each_command_is_described() -> None:
    page = read(ROOT / "docs" / "reference" / "cli.md")
    command = typer.main.get_command(app)
    known = getattr(command, "commands", {})
    shown = set(re.findall(r"^\| `wick (\w+)", page, re.M))
    assert sorted(shown) == sorted(known)
    for name, group in known.items():
        for inner in getattr(group, "commands", {}):
            assert re.search(rf"^\| `wick {name} [^`]*\b{inner}\b", page, re.M), f"{name} {inner}"


@pytest.mark.xdist_group("one")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
def test_tests_that_share_a_server_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """The name of a group in the id is what the scheduler goes by."""
    assert request.node.nodeid.endswith("@one")
