"""Attacks by commands on what governs agents, and on what other programs obey, at each level."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.fixtures import Cell, backend_at, give
from wick_graph.backends import ExtraRoot, LocalBackend, Rules
from wick_graph.errors import ConfigError, ToolError

APART = ("bwrap", "container")
WHOLE = ("landlock", "local")
KEPT = {
    "agents.yaml": "agents: {}\n",
    "deep/conf/wick.keys": "a key",
    "checkpoints/wick.db": "rows",
    "skills/knit/SKILL.md": "Knit.",
    "AGENTS.md": "I like tea.",
    ".git/hooks/pre-commit": "exit 0",
    ".git/config": "[core]",
    ".env": "A=1",
    "t/conftest.py": "import pytest",
    ".github/workflows/ci.yml": "on: push",
}
FREE = ("free", "t/test_x.py")


def laid_out(work: Path) -> Rules:
    """Fill a working directory with both planes; return what governs in it."""
    for name, text in KEPT.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, "utf-8")
    (work / "free").write_text("free", "utf-8")
    give(work)
    control = ("agents.yaml", "deep/conf/wick.keys", "checkpoints/", "skills/", "later/skills/")
    return Rules(control=tuple(f"{work}/{name}" for name in control), memory=(f"{work}/AGENTS.md",))


@pytest.fixture(params=APART)
def held(request: pytest.FixtureRequest, open_path: Path) -> Iterator[Cell]:
    """A directory that holds both planes, at each level that can show parts of it apart."""
    work, outside = open_path / "w", open_path / "outside"
    for folder in (work, outside):
        folder.mkdir()
    with backend_at(request.param, work, request, rules=laid_out(work)) as fs:
        yield Cell(request.param, fs, work, outside)


ATTACKS = {
    "written over": "for f in {all}; do echo hijacked > $f; done",
    "appended": "for f in {all}; do echo hijacked >> $f; done",
    "truncated": "for f in {all}; do : > $f; done",
    "removed": "rm -rf {all} deep checkpoints skills .git t .github",
    "renamed": "for f in {all}; do mv $f moved; done",
    "replaced by renaming": "for f in {all}; do echo hijacked > new; mv -f new $f; done",
    "folders renamed": (
        "for d in deep deep/conf checkpoints skills skills/knit .git .git/hooks t .github; do "
        "mv $d other && mkdir -p $d && cp -r other/. $d/; done; "
        "mkdir -p deep/conf; echo hijacked > deep/conf/wick.keys"
    ),
    "links made": (
        "for f in {all}; do ln $f hard 2>/dev/null && echo hijacked > hard; ln -s $f soft; "
        "echo hijacked > soft; rm -f soft hard; done"
    ),
    "replaced by links": "echo hijacked > x; for f in {all}; do ln -sf /w/x $f; ln -f x $f; done",
    "modes changed": "chmod -R 777 . ; for f in {all}; do echo hijacked > $f; done",
    "new beside": (
        "echo hijacked > checkpoints/wick.db-wal; mkdir -p skills/evil later/skills/evil; "
        "echo hijacked > skills/evil/SKILL.md; echo hijacked > later/skills/evil/SKILL.md; "
        "mv later l2; echo hijacked > .git/hooks/post-commit"
    ),
    "unmounted": "umount agents.yaml .git; mount -o remount,rw agents.yaml; echo hijacked > .env",
    "through another process's view": "for p in /proc/[0-9]*; do echo hijacked > $p/cwd/.env; done",
}


@pytest.mark.sisters(3)
@pytest.mark.parametrize("how", ATTACKS)
def test_no_command_changes_what_is_held(held: Cell, how: str) -> None:
    before = files_in(held.work)
    held.run(ATTACKS[how].replace("{all}", " ".join(KEPT)))
    after = files_in(held.work)
    for name, text in KEPT.items():
        assert after[name] == text, name
    below = ("checkpoints/", "skills/", "later/skills/", ".git/")
    assert {n for n in after if n.startswith(below)} == {n for n in before if n.startswith(below)}
    assert held.run("echo mine > mine; cat mine").stdout == "mine\n", "all else can be changed"


def files_in(work: Path) -> dict[str, str]:
    found = {}
    for path in sorted(work.rglob("*")):
        if path.is_file() and not path.is_symlink() and ".wick" not in path.parts:
            found[str(path.relative_to(work))] = path.read_text("utf-8")
    return found


def test_what_is_held_can_be_read(held: Cell) -> None:
    assert held.run("cat AGENTS.md skills/knit/SKILL.md").stdout == "I like tea.Knit."


@pytest.mark.sisters
def test_a_file_that_a_person_replaces_is_held_at_once(held: Cell) -> None:
    """A mount of a file that was replaced is none: another one is made for the next command."""
    held.run("true")
    new = held.work / "agents.yaml.new"
    new.write_text("agents: {new: {}}\n")
    new.replace(held.work / "agents.yaml")
    (held.work / "Makefile").write_text("all:\n")
    give(held.work)
    held.run("echo hijacked > agents.yaml; echo hijacked > Makefile")
    assert (held.work / "agents.yaml").read_text() == "agents: {new: {}}\n"
    assert (held.work / "Makefile").read_text() == "all:\n"


def test_another_name_of_the_same_file_is_held(
    request: pytest.FixtureRequest, open_path: Path
) -> None:
    for level in APART:
        work = open_path / level
        work.mkdir()
        outside = open_path / f"{level}.yaml"
        outside.write_text("agents: {}\n")
        (work / "innocent").hardlink_to(outside)
        give(work)
        with backend_at(level, work, request, rules=Rules(control=(str(outside),))) as fs:
            fs.exec("echo hijacked > innocent; mv innocent x; rm -f innocent")
        assert outside.read_text() == "agents: {}\n"


@pytest.mark.slow
def test_memory_that_is_not_there_is_not_made_by_a_command(
    request: pytest.FixtureRequest, open_path: Path
) -> None:
    for level in APART:
        work = open_path / level
        work.mkdir()
        give(work)
        memory = f"{work}/AGENTS.md"
        extra = [ExtraRoot(memory, writable=True)]
        with backend_at(
            level, work, request, rules=Rules(memory=(memory,)), extra_roots=extra
        ) as fs:
            assert fs.exec("echo hijacked > AGENTS.md").exit_code != 0
            assert fs.asks("AGENTS.md") == "", "file tools may"
            fs.write("AGENTS.md", b"noted")
            fs.exec("echo hijacked > AGENTS.md")
            assert (work / "AGENTS.md").read_text() == "noted"


def test_a_directory_that_lies_in_what_governs_is_read_only(
    request: pytest.FixtureRequest, open_path: Path
) -> None:
    for level in APART:
        work = open_path / level / "in"
        work.mkdir(parents=True)
        (work / "x").write_text("x")
        give(work)
        with backend_at(
            level, work, request, rules=Rules(control=(f"{open_path / level}/",))
        ) as fs:
            fs.exec("echo hijacked > x; echo hijacked > y")
            assert [path.name for path in work.iterdir() if path.name != ".wick"] == ["x"]
            with pytest.raises(ToolError, match="governs agents"):
                fs.write("y", b"hijacked")


@pytest.mark.parametrize("level", WHOLE)
@pytest.mark.parametrize(
    "control", ["agents.yaml", "checkpoints/", "later/skills/", "../", "link/agents.yaml"]
)
def test_a_level_that_cannot_hold_it_is_refused(
    level: Any, control: str, request: pytest.FixtureRequest, open_path: Path
) -> None:
    work = open_path / "w"
    work.mkdir()
    (work / "agents.yaml").write_text("x")
    (open_path / "link").symlink_to(work)
    give(work)
    path = str(open_path / control) if control.startswith("link") else f"{work}/{control}"
    with pytest.raises(ConfigError) as caught:
        LocalBackend(work, execute=level, rules=Rules(control=(path,)))
    assert f"which commands at the level {level} could change" in str(caught.value)
    assert "workdir: ./workspace" in str(caught.value)
    with backend_at(level, work, request, rules=Rules(control=(f"{open_path}/agents.yaml",))) as fs:
        assert fs.exec("echo well").stdout == "well\n", "what lies elsewhere is no hindrance"


@pytest.mark.parametrize("level", WHOLE)
def test_memory_in_the_directory_is_refused_where_commands_could_change_it(
    level: Any, open_path: Path
) -> None:
    give(open_path)
    with pytest.raises(ConfigError, match=r"AGENTS\.md"):
        LocalBackend(open_path, execute=level, rules=Rules(memory=(f"{open_path}/AGENTS.md",)))


def test_what_cannot_be_shown_apart_is_refused(open_path: Path) -> None:
    """A database in the directory itself may get a journal beside it, which is not there yet."""
    give(open_path)
    (open_path / "wick.db").write_text("rows")
    (open_path / "agents.yaml").symlink_to("other.yaml")
    for name in ("wick.db-wal", "agents.yaml"):
        with pytest.raises(ConfigError, match="give it a folder of its own outside"):
            LocalBackend(open_path, execute="bwrap", rules=Rules(control=(f"{open_path}/{name}",)))


NEW = {
    "Makefile": "echo all: > Makefile",
    ".git/hooks/pre-commit": "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "sub/conftest.py": "mkdir -p sub && echo x > sub/conftest.py",
    ".env.local": "echo A=1 > .env.local",
    ".github/workflows/ci.yml": "mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
    "CLAUDE.md": "ln -s /etc/passwd CLAUDE.md",
    "setup.py": "echo x > y; mv y setup.py",
    ".mcp.json": "echo x > y; ln y .mcp.json",
    "infra/main.tf": "mkdir -p infra; echo x > infra/main.tf",
    "AGENTS.md": "echo x > AGENTS.md",
}


@pytest.fixture(params=[*APART, *WHOLE])
def noted(request: pytest.FixtureRequest, open_path: Path) -> Iterator[Cell]:
    """Every level, with a pattern of the file's own."""
    work = open_path / "w"
    work.mkdir()
    give(work)
    rules = Rules(protect=("*.tf",), writable=("*.ok", "free/Makefile"))
    with backend_at(request.param, work, request, rules=rules) as fs:
        yield Cell(request.param, fs, work, open_path)


@pytest.mark.sisters(3)
def test_a_result_names_what_a_command_made_that_others_obey(noted: Cell) -> None:
    done = noted.run("; ".join(NEW.values()) + "; mkdir free; echo > free/Makefile; echo > x.py")
    (note,) = done.notes
    for name in NEW:
        assert f"'{name}'" in note
    assert "free" not in note
    assert "x.py" not in note
    assert noted.run("cat Makefile").notes == (), "once, and not again"


@pytest.mark.sisters(3)
def test_what_is_there_is_read_only_or_named(noted: Cell) -> None:
    noted.run("; ".join(NEW.values()))
    before = files_in(noted.work)
    done = noted.run("for f in " + " ".join(NEW) + "; do echo again >> $f; done")
    changed = {name for name, text in files_in(noted.work).items() if before[name] != text}
    if noted.level in APART:
        assert changed == set()
        assert done.notes == ()
    else:
        assert "Makefile" in changed
        assert all(f"'{name}'" in done.notes[0] for name in changed & {*NEW})


def test_a_change_that_keeps_size_and_time_is_named(
    request: pytest.FixtureRequest, open_path: Path
) -> None:
    for level in WHOLE:
        work = open_path / level
        work.mkdir()
        (work / "Makefile").write_text("one")
        give(work)
        with backend_at(level, work, request) as fs:
            done = fs.exec("touch -r Makefile t; printf two > Makefile; touch -r t Makefile")
            assert "'Makefile'" in done.notes[0]


def test_too_much_of_it_runs_nothing(request: pytest.FixtureRequest, open_path: Path) -> None:
    for number in range(501):
        (open_path / f"{number}").mkdir()
        (open_path / f"{number}" / "conftest.py").touch()
    give(open_path)
    with backend_at("bwrap", open_path, request) as fs:
        with pytest.raises(ToolError, match="list those that commands may change under writable:"):
            fs.exec("touch ran")
        assert not (open_path / "ran").exists()
    loose = Rules(writable=("conftest.py",))
    with backend_at("bwrap", open_path, request, rules=loose) as fs:
        assert fs.exec("echo well").stdout == "well\n"
        assert "tools may change 'conftest.py'" in fs.notices[-1]


def test_the_engine_runs_as_root_or_not_and_commands_never(held: Cell) -> None:
    assert int(held.run("id -u").stdout) != 0 or os.geteuid() != 0
