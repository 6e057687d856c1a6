"""The wheel, the sdist and the editable install hold what the tree holds, and own no `nodes`."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.server.browsing import chromium
from tests.source import MODULES, PACKAGE, ROOT, imports, tree_files
from tests.test_readme import Desk, blocks_of, follow

__all__ = ["chromium"]

COME_WITH = {
    "pydantic_core": frozenset({"pydantic-core"}),
    "referencing": frozenset({"referencing"}),
    "h11": frozenset({"h11"}),
}
"""Packages that belong to a declared one's own interface: pydantic's, jsonschema's, uvicorn's."""

# One worker builds for all of them.
pytestmark = pytest.mark.xdist_group("packaging")


def metadata() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the tree as a commit would hold it: no caches, no leftovers, links as links."""
    to = tmp_path_factory.mktemp("tree")
    for name in tree_files():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    return to


def copied(tree: Path, to: Path) -> Path:
    """Copy the copy: each build leaves things behind."""
    return shutil.copytree(tree, to, symlinks=True)


def environment(path: Path | None = None) -> dict[str, str]:
    """Make settings for a command: offline, and free of this checkout's and the tests' own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_", "COV"))}
    env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHONNOUSERSITE": "1"}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return env if path is None else {**env, "PYTHONPATH": str(path)}


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Return what a command prints; it must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def fails(python: Path, code: str, cwd: Path) -> str:
    """Return the last line that a program prints when it fails, as it must."""
    command = [str(python), "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1, f"{code!r} ended with {done.returncode}: {done.stderr}"
    return done.stderr.strip().splitlines()[-1]


BUILD = (sys.executable, "-m", "build", "--no-isolation", "--outdir")


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel offline, with the setuptools that is installed."""
    out = tmp_path_factory.mktemp("dist")
    run(*BUILD, out / "direct", "--wheel", copied(tree, out / "tree"), cwd=out)
    (made,) = (out / "direct").glob("*.whl")
    return made


@pytest.fixture
def both(tree: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from it."""
    run(*BUILD, tmp_path / "both", copied(tree, tmp_path / "tree"), cwd=tmp_path)
    (sdist,) = (tmp_path / "both").glob("*.tar.gz")
    (indirect,) = (tmp_path / "both").glob("*.whl")
    return sdist, indirect


def new_venv(at: Path) -> Path:
    """Make an environment that has nothing installed, and return its Python."""
    venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(at)
    return at / ("Scripts" if os.name == "nt" else "bin") / "python"


def lend_dependencies(python: Path, cwd: Path) -> None:
    """Let an environment see what is installed here, behind what is its own.

    A plain path in a `.pth` file: the `.pth` files of the folder that it names are not read, so
    an editable install of this checkout does not leak in. Done after the install, so that pip
    never takes the packages here for that environment's own.
    """
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-I", "-c", code, cwd=cwd))
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "lent.pth").write_text("\n".join(sorted(here)) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new environment; return that environment's Python."""
    here = tmp_path_factory.mktemp("installed")
    python = new_venv(here / "env")
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-compile", wheel, cwd=here)
    lend_dependencies(python, here)
    return python


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if not n.endswith("/")]
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}


def test_packages_are_the_folders_on_disk() -> None:
    folders = {
        ".".join(Path(where).relative_to(ROOT).parts)
        for where, _, files in os.walk(PACKAGE, followlinks=True)
        if "__init__.py" in files
    }
    assert set(metadata()["tool"]["setuptools"]["packages"]) == folders


def test_every_folder_with_code_is_a_package() -> None:
    strays = {
        str(Path(where).relative_to(ROOT))
        for where, _, files in os.walk(PACKAGE, followlinks=True)
        if any(f.endswith(".py") for f in files) and "__init__.py" not in files
    }
    assert strays == set()


def test_nodes_is_a_relative_link_in_the_tree_and_real_files_beside_it() -> None:
    link = PACKAGE / "nodes"
    assert link.is_symlink()
    assert os.readlink(link) == str(Path("..", "nodes"))  # noqa: PTH115  # as it is written
    assert not (ROOT / "nodes").is_symlink()
    assert (ROOT / "nodes" / "__init__.py").is_file()


def test_wheel_holds_the_package_whole_and_nothing_else(wheel: Path, tree: Path) -> None:
    expected = {
        Path(folder, file).relative_to(tree).as_posix()
        for folder, _, files in os.walk(tree / "wick_graph", followlinks=True)
        for file in files
        # The page's sources are served made small; the others are for reading.
        if Path(folder).name not in ("page", "vendor") or file in ("index.html", "preact.js")
    }
    held = set(contents(wheel))
    info = {n for n in held if n.split("/")[0].endswith(".dist-info")}
    assert held - info == expected
    assert {"wick_graph/py.typed", "wick_graph/nodes/__init__.py"} <= held
    assert {Path(n).name for n in info} >= {"METADATA", "RECORD", "entry_points.txt", "LICENSE"}


def test_metadata_names_the_project_its_licence_and_its_command(wheel: Path, tree: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(about).decode()
        commands = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
    project = metadata()["project"]
    head = text.split("\n\n")[0].splitlines()
    assert "Name: wick-graph" in head
    assert f"Version: {project['version']}" in head
    assert "License-Expression: MIT" in head
    assert (tree / "README.md").read_text(encoding="utf-8").strip() in text
    assert f"wick = {project['scripts']['wick']}" in commands


def test_version_is_said_once_in_each_place_and_alike() -> None:
    code = "import wick_graph; print(wick_graph.__version__)"
    assert run(sys.executable, "-c", code, cwd=ROOT) == metadata()["project"]["version"]


@pytest.mark.xdist_group("source")  # which has read all modules
def test_what_is_imported_is_declared() -> None:
    """Nothing is used that is only there because something else brought it."""
    project = metadata()["project"]
    extras = [need for needs in project["optional-dependencies"].values() for need in needs]
    declared = {canonical(need) for need in [*project["dependencies"], *extras]}
    brought = packages_distributions()
    found = []
    for module in MODULES.values():
        for node, target in imports(module):
            top = target.partition(".")[0]
            names = {canonical(name) for name in brought.get(top, ())}
            known = top in sys.stdlib_module_names or top == "wick_graph"
            if not known and not names & (declared | COME_WITH.get(top, frozenset())):
                found.append(f"{module.at(node)}: {target} of {', '.join(sorted(names)) or '?'}")
    assert not found, "\n".join(found)


def canonical(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_sdist_builds_the_same_wheel(wheel: Path, both: tuple[Path, Path]) -> None:
    sdist, indirect = both
    with tarfile.open(sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "nodes/__init__.py"} <= names
    assert contents(indirect) == contents(wheel)


def test_wheel_needs_no_link(wheel: Path, tree: Path, tmp_path: Path) -> None:
    """A checkout without links (a zip, some file systems) builds the same wheel."""
    bare = copied(tree, tmp_path / "tree")
    (bare / "wick_graph" / "nodes").unlink()
    run(*BUILD, tmp_path / "out", "--wheel", bare, cwd=tmp_path)
    (made,) = (tmp_path / "out").glob("*.whl")
    assert contents(made) == contents(wheel)


def test_installed_wheel_has_its_nodes_and_no_other(installed: Path, tmp_path: Path) -> None:
    code = "import wick_graph.nodes as n; print(n.__name__, n.__file__)"
    name, file = run(installed, "-c", code, cwd=tmp_path).split(maxsplit=1)
    assert name == "wick_graph.nodes"
    assert Path(file).is_relative_to(installed.parent.parent)
    last = fails(installed, "import nodes", tmp_path)
    assert last == "ModuleNotFoundError: No module named 'nodes'"
    last = fails(installed, "import tests", tmp_path)
    assert last == "ModuleNotFoundError: No module named 'tests'"


@pytest.mark.slow
def test_a_users_own_nodes_package_stays_theirs(installed: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "nodes"
    theirs.mkdir()
    (theirs / "__init__.py").write_text("OWNER = 'user'\n", encoding="utf-8")
    (theirs / "model.py").write_text("OWNER = 'user'\n", encoding="utf-8")
    code = (
        "import sys, wick_graph.nodes.model, nodes, nodes.model\n"
        "ours = sys.modules['wick_graph.nodes.model']\n"
        "print(nodes.OWNER, nodes.model.OWNER, hasattr(ours, 'OWNER'), ours.__name__)"
    )
    printed = run(installed, "-c", code, cwd=tmp_path)
    assert printed == "user user False wick_graph.nodes.model"


def test_installed_command_starts(installed: Path, tmp_path: Path) -> None:
    wick = installed.parent / ("wick.exe" if os.name == "nt" else "wick")
    assert metadata()["project"]["version"] in run(wick, "version", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_first_tutorial_takes_less_than_ten_minutes(
    installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Follow each step as a new user does: an empty folder, the wheel alone, real processes."""
    page = ROOT / "docs" / "tutorials" / "first-agent.md"
    began = time.monotonic()
    with Desk(tmp_path / "empty", installed.parent, learns=True) as desk:
        for block in blocks_of(page.read_text(encoding="utf-8"), page.name):
            follow(block, desk)
    took = time.monotonic() - began
    with capsys.disabled():
        print(f"\nthe steps of the first tutorial took {took:.0f} s")
    assert took < 600


@pytest.mark.slow
def test_editable_install_imports_from_anywhere(tree: Path, tmp_path: Path) -> None:
    checkout = copied(tree, tmp_path / "checkout")
    python = new_venv(tmp_path / "env")
    tools = tmp_path / "build-tools"  # setuptools alone is lent to the build
    tools.mkdir()
    site = Path(sysconfig.get_path("purelib"))
    for found in [*site.glob("setuptools*"), *site.glob("_distutils_hack")]:
        (tools / found.name).symlink_to(found)
    editable = ("install", "--quiet", "--no-deps", "--no-build-isolation", "-e", checkout)
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, *editable, "-C", "editable_mode=compat", cwd=tmp_path, path=tools)
    lend_dependencies(python, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = (
        "import sys, wick_graph.nodes.model\n"
        "module = sys.modules['wick_graph.nodes.model']\n"
        "print(module.__name__, module.__file__)"
    )
    name, file = run(python, "-c", code, cwd=elsewhere).split(maxsplit=1)
    assert name == "wick_graph.nodes.model"
    assert Path(file) == checkout / "wick_graph" / "nodes" / "model.py"


def test_a_newcomer_finds_the_wrong_hook_in_the_browser(
    installed: Path, tmp_path: Path, chromium: Browser
) -> None:
    """`pip install`, `wick init`, `wick ui`: an answer, a breakpoint, a hook: ten clicks at most.

    There is no Node, and the page asks nobody but its own server.
    """
    run(installed, "-m", "wick_graph", "init", cwd=tmp_path)
    command = [str(installed), "-m", "wick_graph", "ui", "--no-open"]
    env = environment() | {"WICK_MODEL": "scripted:demo", "PYTHONUNBUFFERED": "1"}
    env["PATH"] = str(installed.parent)
    page = chromium.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.add_init_script(
        "window.clicks = 0; addEventListener('click', e => { clicks += e.detail > 0 }, true)"
    )
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as ui:
        try:
            assert ui.stdout is not None
            link = ui.stdout.readline().strip()
            page.goto(link)
            page.get_by_role("link", name="Chat with default").click(timeout=60_000)
            say = page.get_by_label("Message", exact=True)
            say.press_sequentially('Where is my order? find_order(number="A-17")')
            say.press("Enter")
            answer = page.get_by_role("log").locator(".theirs").last
            expect(answer).to_contain_text("card **** 1111", timeout=60_000)
            page.get_by_role("link", name="Its run, step by step").click()
            page.get_by_role("button", name="Debugger").click(timeout=60_000)
            page.get_by_label("Breakpoint", exact=True).press_sequentially("tool:find_order")
            page.keyboard.press("Enter")
            point = page.get_by_role("button", name="Delete breakpoint 1")
            expect(point).to_be_visible(timeout=60_000)
            page.get_by_role("button", name="Continue ▶", exact=True).click()
            expect(page.locator(".said")).to_contain_text("breakpoint 1", timeout=60_000)
            panel = page.get_by_role("tabpanel")
            panel.get_by_role("button", name="Why?").first.click(timeout=60_000)
            why = panel.get_by_role("list", name="Why messages[2]")
            expect(why).to_contain_text("hook:hide-cards", timeout=60_000)
            assert page.evaluate("clicks") <= 10
            page.get_by_role("link", name="Chat", exact=True).click()
            expect(page.get_by_role("log", name="Messages")).to_be_visible(timeout=60_000)
            page.get_by_label("Message", exact=True).fill('refund(number="A-17", amount=80)')
            page.keyboard.press("Enter")
            page.get_by_role("button", name="Approve").click(timeout=60_000)
            card = page.get_by_role("log").locator("details.tool", has_text="refund")
            expect(card).to_contain_text("done", timeout=60_000)
            expect(page.get_by_text("○ idle")).to_be_visible(timeout=60_000)
            own = link.partition("/ui/")[0]
            assert [url for url in asked if not url.startswith((own, "data:"))] == []
        finally:
            ui.terminate()
            page.close()
