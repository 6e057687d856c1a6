"""FilesystemHook through an agent: shapes, tracked files, and long results that are kept."""

from __future__ import annotations

import fnmatch
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.sandbox.fixtures import backend_at
from wick_graph import Agent, BaseHook, Result, ToolResult
from wick_graph.backends import (
    Edited,
    Entry,
    Executed,
    ExtraRoot,
    FileSystem,
    Found,
    Listing,
    LocalBackend,
    Match,
    Matches,
    Stop,
    Text,
    Written,
    keep,
)
from wick_graph.constants import MAX_RESULT_CHARS, RESULT_HEAD_CHARS, RESULT_TAIL_CHARS
from wick_graph.errors import ConfigError, HookError, ToolError
from wick_graph.hooks import file_tools, turns
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel, calls
from wick_graph.tools import FuncTool, ToolContext, tool

SEVEN = {"ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute"}


class MemoryFiles:
    """The protocol on a dictionary: the tools must not know the difference."""

    workdir = "/workspace"
    can_execute = True
    level = ""
    confinement = ""
    notices = ()

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.kept: dict[str, bytes] = {}

    def _at(self, path: str) -> str:
        parts = [p for p in path.removeprefix(self.workdir).split("/") if p not in ("", ".")]
        return "/".join((self.workdir, *parts))

    def _text(self, path: str) -> str:
        try:
            return self.files[self._at(path)]
        except KeyError:
            raise ToolError(f"{path!r} does not exist") from None

    def ls(self, path: str = ".", limit: int | None = None) -> Listing:
        base = f"{self._at(path).rstrip('/')}/"
        below = {p[len(base) :]: t for p, t in self.files.items() if p.startswith(base)}
        names = sorted({name.partition("/")[0] for name in below})
        entries = [
            Entry(n, "file", len(below[n])) if n in below else Entry(n, "dir", 0) for n in names
        ]
        return Listing(entries[:limit], len(entries))

    def read(self, path: str, *, line: int = 1, lines: int | None = None, byte: int = 0) -> Text:
        text = self._text(path)
        return Text(self._at(path), text, len(text), str(hash(text)))

    def write(self, path: str, data: bytes) -> Written:
        self.files[self._at(path)] = data.decode()
        return Written(self._at(path), len(data), str(hash(data.decode())))

    def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        unique: bool = False,
        seen: Mapping[str, str] | None = None,
        key: str = "",
    ) -> Edited:
        text = self._text(path)
        if old not in text:
            raise ToolError("old_text not found in file")
        changed = text.replace(old, new, 1)
        self.files[self._at(path)] = changed
        return Edited(self._at(path), changed, str(hash(changed)), text.count(old) - 1)

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Found:
        names = sorted(p for p in self.files if fnmatch.fnmatchcase(p.rpartition("/")[2], pattern))
        return Found(names, False)

    def grep(self, pattern: str, path: str = ".", stop: Stop | None = None) -> Matches:
        found = [
            Match(name, number, line)
            for name, text in sorted(self.files.items())
            for number, line in enumerate(text.splitlines(), 1)
            if pattern in line
        ]
        return Matches(found, False)

    def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        name: str = "",
        stop: Stop | None = None,
    ) -> Executed:
        return Executed(command.removeprefix("echo ") + "\n", "", 0, False)

    def keep(self, name: str, data: bytes) -> str:
        self.kept[name] = data
        return f"/kept/{name}"


@pytest.fixture(params=["local", "memory", "container"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryFiles()
        return
    if request.param == "container":  # it runs as another user, to whom pytest closes its folders
        mine = {Path(tempfile.gettempdir()), *Path(tempfile.gettempdir()).parents}
        for folder in {tmp_path, *tmp_path.parents} - mine:
            folder.chmod(0o755)
    with backend_at(request.param, tmp_path, request) as backend:
        yield backend


@pytest.fixture
def local(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path, execute="local")


def run(fs: Any, *steps: Any, door: Door = sync_door, **options: Any) -> Result:
    hook = FilesystemHook(fs, **options.pop("hook", {}))
    script = ScriptedModel([*steps, "done"])
    agent = Agent(model=script, hooks=[*options.pop("hooks", ()), hook], **options)
    return door(agent, "go")


def told(result: Result) -> list[str]:
    return [message.text for message in result.messages if message.type == "tool"]


def one(fs: Any, name: str, /, **args: Any) -> str:
    (text,) = told(run(fs, wild(name, **args)))
    return text


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


def test_written_and_edited_files_are_in_the_state(fs: FileSystem) -> None:
    result = run(
        fs,
        wild("write_file", path="hello.py", content="print('hello')"),
        wild("edit_file", path=f"{fs.workdir}/hello.py", old_text="hello", new_text="bye"),
        wild("write_file", path="b", content="b"),
        wild("read_file", path="b"),
    )
    assert result.files == {
        f"{fs.workdir}/hello.py": "print('bye')",
        f"{fs.workdir}/b": "b",
    }


def test_the_state_does_not_keep_large_files(
    fs: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tools, "MAX_TRACKED_THREAD", 2_500_000)
    steps = [
        wild("write_file", path="exact", content="x" * 1_000_000),
        wild("write_file", path="more", content="x" * 1_000_001),
        wild("write_file", path="second", content="x" * 1_000_000),
        wild("write_file", path="third", content="x" * 1_000_000),
        wild("write_file", path="second", content="short"),
    ]
    files = run(fs, *steps).files
    kept = {path.rpartition("/")[2]: value for path, value in files.items()}
    assert kept["exact"] == "x" * 1_000_000
    assert kept["more"] == {"content": None, "size": 1_000_001}
    assert kept["third"] == {"content": None, "size": 1_000_000}
    assert kept["second"] == "short"


def big(args: dict[str, Any]) -> str:
    """Return a text of the length that is asked for."""
    return "".join(str(i % 10) for i in range(args["n"]))


BIG = FuncTool(
    "big",
    "Return a long text",
    {"type": "object", "properties": {"n": {"type": "integer"}}},
    big,
)


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_a_long_result_is_kept_whole_and_shown_in_part(local: LocalBackend, door: Door) -> None:
    whole, n = big({"n": 200_000}), 200_000
    exact, cut = told(
        run(
            local,
            wild("big", n=MAX_RESULT_CHARS),
            wild("big", n=n),
            tools=[BIG],
            door=door,
        )
    )
    assert exact == big({"n": MAX_RESULT_CHARS})
    head, tail = whole[:RESULT_HEAD_CHARS], whole[-RESULT_TAIL_CHARS:]
    assert cut.startswith(f"{head}\n\n... (truncated {n - 4_000} characters) ...\n\n[")
    assert cut.endswith(tail)
    assert len(cut) < 5_000
    path = cut.split("whole result is in ")[1].split(";")[0]
    assert path.startswith(f"{local.workdir}/.wick/results/big-")
    assert Path(path).read_text() == whole
    assert one(local, "read_file", path=path) == whole
    assert len(json.loads(one(local, "grep", pattern="0123", path=path))["matches"]) == 1
    assert (Path(local.workdir) / ".wick" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("size", [MAX_RESULT_CHARS + 1])
def test_the_first_character_too_many_cuts(fs: FileSystem, size: int) -> None:
    (cut,) = told(run(fs, wild("big", n=size), tools=[BIG]))
    assert f"... (truncated {size - 4_000} characters) ..." in cut


def test_what_the_file_tools_give_comes_back_whole(local: LocalBackend) -> None:
    text = "0123456789\n" * 20_000
    local.write("t", text.encode())
    assert one(local, "read_file", path="t") == text
    result = run(local, wild("execute", command="cat t t t t"))
    assert "... (truncated" in told(result)[0]


def test_a_tool_that_says_so_is_never_cut(local: LocalBackend) -> None:
    @tool(max_output=None)
    def long() -> str:
        """Return much."""
        return "x" * 100_000

    @tool(max_output=5_000)
    def short() -> str:
        """Return less than is usual."""
        return "y" * 6_000

    whole, cut = told(run(local, calls(("long", {}), ("short", {})), tools=[long, short]))
    assert whole == "x" * 100_000
    assert "... (truncated 2000 characters) ..." in cut


def test_without_the_hook_a_long_result_is_cut_all_the_same() -> None:
    script = ScriptedModel([wild("big", n=100_000), "done"])
    (cut,) = told(Agent(model=script, tools=[BIG], store=False).invoke("go"))
    assert "... (truncated 96000 characters) ..." in cut
    assert "whole result" not in cut


def test_a_result_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    (tmp_path / ".wick").symlink_to("/nowhere")
    (cut,) = told(run(LocalBackend(tmp_path), wild("big", n=100_000), tools=[BIG]))
    assert "... (truncated 96000 characters) ..." in cut
    assert "whole result" not in cut


def test_old_results_give_way(local: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "MAX_KEPT_FILES", 3)
    for i in range(6):
        local.keep(f"r{i}", b"x")
    assert len(local.ls(".wick/results").entries) == 3
    monkeypatch.setattr(keep, "MAX_KEPT_BYTES", 10)
    local.keep("big", b"x" * 9)
    assert sum(entry.size for entry in local.ls(".wick/results").entries) <= 10


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


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_parallel_writes_and_edits_of_one_reply(local: LocalBackend, door: Door) -> None:
    writes = [("write_file", {"path": f"d/{i}", "content": str(i) * 1_000}) for i in range(8)]
    edits = [("edit_file", {"path": "t", "old_text": f"<{i}>", "new_text": "!"}) for i in range(4)]
    result = run(
        local,
        calls(*writes, unchecked=True),
        wild("write_file", path="t", content="<0><1><2><3>"),
        calls(*edits, unchecked=True),
        wild("edit_file", path="t", old_text="!!!!", new_text="end"),
        door=door,
    )
    assert not [text for text in told(result) if text.startswith("Error")]
    assert [local.read(f"d/{i}").text for i in range(8)] == [str(i) * 1_000 for i in range(8)]
    assert local.read("t").text == "end"
    assert len(result.files) == 9
    assert result.files[f"{local.workdir}/t"] == "end"


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_calls_that_change_one_file_do_so_in_their_order(local: LocalBackend, door: Door) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "t", "content": "0"}),
        *(
            ("edit_file", {"file_path": "./t", "old_text": f"{i}", "new_text": f"{i + 1}"})
            for i in range(12)
        ),
    ]
    local.write("t", b"before")
    result = run(local, wild("read_file", path="t"), calls(*asked, unchecked=True), door=door)
    assert not [text for text in told(result) if text.startswith("Error")]
    assert local.read("t").text == "12"
    assert result.files == {f"{local.workdir}/t": "12"}


def test_an_earlier_call_that_never_comes_is_not_waited_for_long(
    local: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuse(BaseHook):
        name = "refuse"

        def wrap_tool_call(self, call: Any, next: Callable[[Any], Any]) -> Any:
            if call.args.get("content") == "refused":
                return ToolResult(tool_call_id=call.id, name=call.name, output="no")
            return next(call)

    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.05)
    asked = [("write_file", {"path": "t", "content": text}) for text in ("refused", "written")]
    result = run(local, calls(*asked, unchecked=True), hooks=[Refuse()])
    assert told(result)[0] == "no"
    assert local.read("t").text == "written"


class DieAfter(BaseHook):
    """End the run behind a tool's back, after it has run and before its result is stored."""

    name = "die"

    def __init__(self) -> None:
        self.times = 1

    def wrap_tool_call(self, call: Any, next: Callable[[Any], Any]) -> Any:
        result = next(call)
        if call.name == "edit_file" and self.times:
            self.times -= 1
            raise RuntimeError("died")
        return result


def test_an_edit_that_had_happened_is_not_done_again(local: LocalBackend, tmp_path: Path) -> None:
    local.write("t", b"a a a")
    script = ScriptedModel([wild("edit_file", path="t", old_text="a", new_text="aa"), "done"])
    hooks = [DieAfter(), FilesystemHook(local)]
    agent = Agent(model=script, hooks=hooks)
    with pytest.raises(HookError, match="died"):
        agent.invoke("go", thread_id="t")
    assert local.read("t").text == "aa a a"
    result = agent.resume("t")
    answer = json.loads(told(result)[-1])
    assert local.read("t").text == "aa a a"
    assert (answer["replacements"], "already changed" in answer["note"]) == (1, True)
    assert result.files == {f"{local.workdir}/t": "aa a a"}
    assert result.text == "done"


def test_an_interrupted_edit_is_done_once_or_said_to_be_unknown(local: LocalBackend) -> None:
    path = Path(local.workdir) / "t"
    path.write_text("a a")
    assert local.edit("t", "a", "aa", key="k:0").remaining == 1
    assert local.edit("t", "a", "aa", key="k:0").repeated
    path.write_text("a a")  # as if the process had died before the rename
    assert not local.edit("t", "a", "aa", key="k:0").repeated
    local.edit("t", "a", "b", key="k:1")
    with pytest.raises(ToolError, match="changed since this call was interrupted"):
        local.edit("t", "a", "aa", key="k:0")
    assert path.read_text() == "ba a"


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


def test_two_backends_of_one_folder_take_turns(tmp_path: Path) -> None:
    first, second = LocalBackend(tmp_path), LocalBackend(f"{tmp_path}/.")
    first.write("t", b"".join(b"<%d>" % i for i in range(20)))
    barrier = threading.Barrier(2)

    def edit(fs: LocalBackend, numbers: range) -> None:
        barrier.wait()
        for i in numbers:
            fs.edit("t", f"<{i}>", ".")

    threads = [
        threading.Thread(target=edit, args=(first, range(0, 20, 2))),
        threading.Thread(target=edit, args=(second, range(1, 20, 2))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first.read("t").text == "." * 20


def test_a_tool_can_be_called_without_an_engine(local: LocalBackend) -> None:
    by_name = {t.name: t for t in FilesystemHook(local).tools({})}
    ctx = ToolContext("c", "write_file", "", 0, 1, None, None, "agent", {}, None)
    done = by_name["write_file"].execute({"path": "t", "content": "x"}, ctx)
    assert json.loads(done.output)["bytes_written"] == 1
