"""The seven tools of FilesystemHook: names, arguments, and answers, at every kind of backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.hooks.filing import MemoryFiles, one, run, told
from wick_graph.backends import ExtraRoot, FileSystem, LocalBackend
from wick_graph.errors import ConfigError, ToolError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.tools import ToolContext

SEVEN = {"ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute"}


def test_the_protocol_is_met(tmp_path: Path) -> None:
    backends: list[FileSystem] = [LocalBackend(tmp_path), MemoryFiles()]
    assert all(backend.workdir for backend in backends)


def test_name_and_phases() -> None:
    hook = FilesystemHook(MemoryFiles())
    assert hook.name == "filesystem"
    assert tuple(hook.phases) == ("before_agent", "modify_request", "wrap_tool_call")


def test_seven_tools_with_a_description_each(fs: FileSystem) -> None:
    tools = FilesystemHook(fs).tools({})
    assert {t.name for t in tools} == SEVEN
    assert len(tools) == 7
    assert all(t.description for t in tools)
    replay = {t.name: t.replay for t in tools}
    assert replay.pop("execute") == "never"
    assert set(replay.values()) == {"safe"}


def test_execute_is_there_only_at_an_explicit_level(tmp_path: Path) -> None:
    hook = FilesystemHook(LocalBackend(tmp_path))
    assert {t.name for t in hook.tools({})} == SEVEN - {"execute"}
    (notice,) = hook.notices
    assert "execute is not available" in notice
    assert "execute='local'" in notice
    (said,) = FilesystemHook(LocalBackend(tmp_path, execute="local")).notices
    assert said == "execute runs commands at the sandbox level local, which is none"
    with pytest.raises(ConfigError, match="execute must be"):
        LocalBackend(tmp_path, execute="yes")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ToolError, match="not available"):
        LocalBackend(tmp_path).exec("true")
    assert told(run(LocalBackend(tmp_path), wild("execute", command="true"))) == [
        "Error: unknown tool: execute"
    ]


def test_ls(fs: FileSystem) -> None:
    fs.write("a/b.txt", b"123")
    fs.write("c", b"")
    assert json.loads(one(fs, "ls")) == [
        {"name": "a", "type": "dir", "size": 0},
        {"name": "c", "type": "file", "size": 0},
    ]
    assert json.loads(one(fs, "ls", path="a")) == [{"name": "b.txt", "type": "file", "size": 3}]


@pytest.mark.parametrize("name", ["path", "file_path"])
def test_read_file(fs: FileSystem, name: str) -> None:
    fs.write("t", "text with ü\n".encode())
    assert one(fs, "read_file", **{name: "t"}) == "text with ü\n"
    assert one(fs, "read_file", **{name: f"{fs.workdir}/t"}) == "text with ü\n"


def test_an_empty_file_reads_as_nothing(fs: FileSystem) -> None:
    fs.write("empty", b"")
    assert one(fs, "read_file", path="empty") == ""


def test_write_file_makes_the_directories(fs: FileSystem) -> None:
    text = one(fs, "write_file", path="a/b/c.txt", content="grüße")
    assert json.loads(text) == {"path": f"{fs.workdir}/a/b/c.txt", "bytes_written": 7}
    assert fs.read("a/b/c.txt").text == "grüße"


@pytest.mark.sisters(2)
@pytest.mark.parametrize("old", ["old_text", "old_string"])
@pytest.mark.parametrize("new", ["new_text", "new_string"])
def test_edit_file_changes_the_first_occurrence(fs: FileSystem, old: str, new: str) -> None:
    fs.write("t", b"one two one")
    text = one(fs, "edit_file", **{"file_path": "t", old: "one", new: "1"})
    assert json.loads(text) == {"path": f"{fs.workdir}/t", "replacements": 1, "remaining": 1}
    assert fs.read("t").text == "1 two one"
    assert one(fs, "edit_file", path="t", old_text="zero", new_text="0") == (
        "Error: old_text not found in file"
    )


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_grep(fs: FileSystem, door: Door) -> None:
    fs.write("a/t.py", b"first\ndef root():\n")
    (text,) = told(run(fs, wild("grep", pattern="root"), door=door))
    assert json.loads(text) == {
        "matches": [{"file": f"{fs.workdir}/a/t.py", "line": 2, "text": "def root():"}],
        "truncated": False,
    }


def test_glob(fs: FileSystem) -> None:
    for path in ("x.go", "a/y.go", "a/z.py"):
        fs.write(path, b"")
    assert json.loads(one(fs, "glob", pattern="*.go")) == {
        "files": [f"{fs.workdir}/a/y.go", f"{fs.workdir}/x.go"]
        if isinstance(fs, MemoryFiles)
        else [f"{fs.workdir}/x.go", f"{fs.workdir}/a/y.go"],
        "truncated": False,
    }


@pytest.mark.sisters(5)
@pytest.mark.parametrize("door", [sync_door, async_door])
def test_execute(fs: FileSystem, door: Door) -> None:
    (text,) = told(run(fs, wild("execute", command="echo hi"), door=door))
    assert json.loads(text) == {"stdout": "hi\n", "stderr": "", "exit_code": 0, "timed_out": False}


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        pytest.param("*.py", ".", ["m.py", "src/a/n.py", "src/o.py"], id="name"),
        pytest.param("?.py", "src/a", ["src/a/n.py"], id="name-below"),
        pytest.param("src/*.py", ".", ["src/o.py"], id="path"),
        pytest.param("src/**/*.py", ".", ["src/a/n.py", "src/o.py"], id="stars"),
        pytest.param("**/n.*", ".", ["src/a/n.py"], id="stars-first"),
        pytest.param("src/**", ".", ["src/a/.hid", "src/a/n.py", "src/o.py"], id="stars-last"),
        pytest.param("{m,o}.py", ".", ["m.py", "src/o.py"], id="braces"),
        pytest.param("[!m].py", ".", ["src/a/n.py", "src/o.py"], id="brackets"),
        pytest.param(".hid", ".", ["src/a/.hid"], id="hidden"),
        pytest.param("*.PY", ".", [], id="case"),
    ],
)
def test_globs_match_names_or_paths(
    local: LocalBackend, pattern: str, path: str, found: list[str]
) -> None:
    for name in ("m.py", "src/a/n.py", "src/a/.hid", "src/o.py", "node_modules/x.py"):
        local.write(name, b"")
    files = local.glob(pattern, path).files
    assert sorted(files) == [f"{local.workdir}/{name}" for name in found]


def test_searches_are_cut_and_say_so(local: LocalBackend) -> None:
    for i in range(101):
        local.write(f"d/{i:03}.txt", b"line\n" * 2)
    found = json.loads(one(local, "glob", pattern="*.txt"))
    assert len(found["files"]) == 100
    assert found["truncated"] is True
    matches = json.loads(one(local, "grep", pattern="line"))
    assert len(matches["matches"]) == 200
    assert matches["truncated"] is True


@pytest.mark.parametrize("folder", [".x", "vendor", "node_modules", ".git"])
def test_a_search_begins_wherever_it_is_told_to(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "f").write_text("y" * 70_000 + "needle\nneedle\n")
    with LocalBackend(tmp_path) as fs:
        assert [m.line for m in fs.grep("needle", folder).matches] == [1, 2]
        assert fs.glob("f", folder).files == [f"{tmp_path}/{folder}/f"]


def test_reading_in_parts(local: LocalBackend) -> None:
    lines = [f"line {i}: ü\n" for i in range(1, 100_001)]
    data = "".join(lines).encode()
    local.write("long", data)
    asked = [
        wild("read_file", path="long", line=3, lines=2),
        wild("read_file", path="long", offset=100_000, limit=5),
        wild("read_file", path="long", line=100_002),
        wild("read_file", path="long", byte=len(data) + 1),
        wild("read_file", path="long"),
    ]
    middle, last, behind, beyond, first = told(run(local, *asked))
    assert middle.startswith("line 3: ü\nline 4: ü\n\n\n[bytes 22 to 44 of")
    assert last.startswith("line 100000: ü\n\n\n[bytes ")
    assert behind.startswith("Error: the file ends")
    assert beyond.startswith("Error: byte=")
    text, at = "", 0
    while at < len(data):
        part = local.read("long", byte=at)
        text += part.text
        at += len(part.text.encode())
    assert text == "".join(lines)
    assert first.startswith(local.read("long").text)


def test_extra_roots(tmp_path: Path) -> None:
    work, skills = tmp_path / "work", tmp_path / "skills"
    work.mkdir()
    (skills / "csv").mkdir(parents=True)
    (skills / "csv" / "SKILL.md").write_text("how to")
    memory = tmp_path / "AGENTS.md"
    (tmp_path / "other").write_text("private")
    extra = [ExtraRoot(str(skills)), ExtraRoot(str(memory), writable=True)]
    fs = LocalBackend(work, extra_roots=extra)
    assert one(fs, "read_file", path=f"{skills}/csv/SKILL.md") == "how to"
    assert "how to" in one(fs, "grep", pattern="how", path=str(skills))
    assert "read-only" in one(fs, "write_file", path=f"{skills}/new", content="x")
    assert "bytes_written" in one(fs, "write_file", path=str(memory), content="note")
    assert "replacements" in one(fs, "edit_file", path=str(memory), old_text="n", new_text="N")
    assert memory.read_text() == "Note"
    for path in (f"{tmp_path}/other", f"{skills}/../other", str(tmp_path)):
        assert one(fs, "read_file", path=path).startswith("Error: ")
    with pytest.raises(ConfigError, match="not absolute"):
        LocalBackend(work, extra_roots=[ExtraRoot("skills")])


def test_an_argument_that_is_not_known_is_refused(local: LocalBackend) -> None:
    assert "unknown argument" in one(local, "read_file", path="x", encoding="latin-1")


def test_a_tool_can_be_called_without_an_engine(local: LocalBackend) -> None:
    by_name = {t.name: t for t in FilesystemHook(local).tools({})}
    ctx = ToolContext("c", "write_file", "", 0, 1, None, None, "agent", {}, None)
    done = by_name["write_file"].execute({"path": "t", "content": "x"}, ctx)
    assert json.loads(done.output)["bytes_written"] == 1
