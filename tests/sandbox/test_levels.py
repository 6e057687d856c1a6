"""Which level is at work, and that it is said: at the start, to the model, and in the trace."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import wild
from tests.sandbox.fixtures import Cell, give
from tests.source import ROOT
from tests.support.command import Folder
from wick_graph import Agent
from wick_graph.backends import LocalBackend
from wick_graph.errors import ConfigError, ToolError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.sandbox import confine, levels, plan
from wick_graph.sandbox.levels import choose
from wick_graph.sandbox.plan import OVERFLOW_ID, find_program, identity_for
from wick_graph.testing import ScriptedModel
from wick_graph.tracing import recording


@pytest.fixture
def work(open_path: Path) -> Path:
    folder = open_path / "w"
    folder.mkdir()
    give(folder)
    return folder


def strongest(work: Path) -> str:
    """Return the level that `auto` takes, or skip where there is none."""
    with LocalBackend(work, execute="auto") as fs:
        if not fs.level:
            pytest.skip(fs.notices[0])
        return fs.level


def test_auto_takes_the_strongest_level_and_says_which(work: Path) -> None:
    level = strongest(work)
    assert level in ("bwrap", "landlock")
    with LocalBackend(work, execute="require") as fs:
        assert (fs.level, fs.can_execute, fs.notices) == (level, True, ())
        assert fs.exec("echo hi").level == level
    hook = FilesystemHook(LocalBackend(work, execute="auto"))
    assert hook.notices == (f"execute runs commands at the sandbox level {level}",)


def test_without_a_processor_that_is_known_there_is_no_sandbox(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with LocalBackend(work, execute="auto") as fs:
        assert (fs.level, fs.can_execute) == ("", False)
        (notice,) = fs.notices
        assert notice.startswith("execute is not available: no sandbox works on this host (bwrap: ")
        assert "; landlock: " in notice
        assert notice.endswith("execute: local runs commands without one")
        assert "execute" not in {tool.name for tool in FilesystemHook(fs).tools({})}
        with pytest.raises(ToolError, match="not available"):
            fs.exec("echo hi")
    with pytest.raises(ConfigError, match=r"cannot be run in any sandbox here \(bwrap: .*landlock"):
        LocalBackend(work, execute="require")
    for level in ("bwrap", "landlock"):
        with pytest.raises(ConfigError, match=f"cannot be run in the level {level} here"):
            LocalBackend(work, execute=level)


FORBIDDING = """
import sys
from wick_graph.backends import LocalBackend
from wick_graph.errors import ConfigError
from wick_graph.sandbox import confine, plan as seccomp
from wick_graph.sandbox.levels import choose
confine.refuse(seccomp.program())
print(LocalBackend(sys.argv[1], execute="auto").level)
print(LocalBackend(sys.argv[1], execute="require").level)
try:
    LocalBackend(sys.argv[1], execute="bwrap")
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("_", [pytest.param(0, id="C26-namespaces")])
def test_where_namespaces_are_forbidden_the_next_level_is_said(work: Path, _: int) -> None:
    if strongest(work) != "bwrap":
        pytest.skip("namespaces are forbidden here anyway")
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDING, str(work)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    auto, required, refusal = done.stdout.splitlines()
    assert (auto, required) == ("landlock", "landlock")
    assert refusal.startswith("commands cannot be run in the level bwrap here (bwrap: ")


MISSING = """
mount --make-rprivate / && mount --bind /dev/null "$(command -v bwrap)" && exec "$@"
"""
TRYING = """
import sys
from wick_graph.backends import LocalBackend
from wick_graph.errors import ConfigError
print(LocalBackend(sys.argv[1], execute="auto").level)
try:
    LocalBackend(sys.argv[1], execute="bwrap")
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("_", [pytest.param(0, id="C26-missing")])
def test_without_bubblewrap_the_next_level_is_said(work: Path, _: int) -> None:
    if os.geteuid() != 0 or find_program("bwrap", str(work)) is None:
        pytest.skip("hiding a program needs root, and the program")
    trying = ["sh", sys.executable, "-c", TRYING, str(work)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MISSING, *trying],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    auto, refusal = done.stdout.splitlines()
    assert auto == "landlock"
    assert "bubblewrap is not installed" in refusal


@pytest.mark.parametrize("_", [pytest.param(0, id="C26-unreachable")])
def test_a_directory_that_commands_cannot_reach_gives_no_sandbox(tmp_path: Path, _: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("who is not root runs commands as himself")
    closed = tmp_path / "closed"
    work = closed / "w"
    work.mkdir(parents=True)
    closed.chmod(0o700)
    with LocalBackend(work, execute="auto") as fs:
        assert fs.level == ""
        assert "landlock: it cannot reach the directory" in fs.notices[0]
    with pytest.raises(ConfigError, match="cannot be run in any sandbox"):
        LocalBackend(work, execute="require")


def test_what_root_keeps_for_itself_commands_can_read_only(open_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this is about root")
    work = open_path / "w"
    work.mkdir()
    (work / "x").write_text("x")
    with LocalBackend(work, execute="require") as fs:
        (notice,) = fs.notices
        assert "give the directory to the user" in notice
        assert fs.exec("cat x; echo y > y").stdout == "x"
        assert not (work / "y").exists()


def test_a_command_never_runs_as_root(confined: Cell) -> None:
    uid = int(confined.run("id -u").stdout)
    assert uid == (os.geteuid() or OVERFLOW_ID)
    who = identity_for(str(confined.work))
    assert (who is None) == (os.geteuid() != 0)


@pytest.mark.sisters(4)
def test_what_tools_write_commands_can_change(confined: Cell) -> None:
    confined.fs.write("a/b/c.txt", b"one\n")
    assert confined.run("echo two >> a/b/c.txt; mkdir a/d; cat a/b/c.txt").stdout == "one\ntwo\n"
    confined.fs.edit("a/b/c.txt", "two", "three")
    assert confined.run("cat a/b/c.txt").stdout == "one\nthree\n"


def test_common_programs_run(work: Path) -> None:
    (work / "x.c").write_text("int main(void) { return 7; }\n")
    give(work)
    for level in ("bwrap", "landlock"):
        try:
            fs = LocalBackend(work, execute=level)
        except ConfigError as error:
            pytest.skip(str(error))
        with fs:
            for program in ("git --version", "python3 -c 'print(1)'", "node -e 'console.log(1)'"):
                if Path("/usr/bin", program.split()[0]).exists():
                    done = fs.exec(program)
                    assert (done.exit_code, done.stderr) == (0, ""), level
            if Path("/usr/bin/cc").exists():
                assert fs.exec("cc -o x x.c && ./x").exit_code == 7, level


def test_a_folder_that_is_readable_is_seen_and_not_changed(work: Path, open_path: Path) -> None:
    tools = open_path / "tools"
    (tools / "bin").mkdir(parents=True)
    program = tools / "bin" / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    give(tools)
    level = strongest(work)
    with LocalBackend(work, execute=level, readable=[str(tools)]) as fs:  # type: ignore[arg-type]  # a level
        assert fs.exec("greet").stdout == "hello\n"
        assert fs.exec(f"echo x > {tools}/x").exit_code != 0
    with pytest.raises(ConfigError, match="not absolute"):
        LocalBackend(work, execute="auto", readable=["tools"])


@pytest.mark.parametrize("setting", ["yes", "container", ""])
def test_what_is_no_level_is_refused(work: Path, setting: Any) -> None:
    with pytest.raises(ConfigError, match="execute must be None or one of"):
        LocalBackend(work, execute=setting)


class Recorder:
    """Keep what is recorded."""

    captures_content = False

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def start_span(self, name: str) -> Any:
        return _Span()

    def record_event(self, name: str, data: Any) -> None:
        self.events.append((name, dict(data)))


class _Span:
    def set(self, key: str, value: Any) -> _Span:
        return self

    def end(self) -> None:
        return None


@pytest.mark.sisters(2)
def test_the_model_and_the_trace_are_told_the_level(cell: Cell) -> None:
    script = ScriptedModel([wild("execute", command="exit 3"), "done"])
    recorder = Recorder()
    with recording(recorder):
        Agent(model=script, hooks=[FilesystemHook(cell.fs)], store=False).invoke("go")
    system = script.calls[0].messages[0].text
    assert f"run at the sandbox level {cell.level}. " in system
    assert ("no network" in system) == (cell.level != "local")
    assert ("no sandbox" in system) == (cell.level == "local")
    ((name, facts),) = [event for event in recorder.events if event[0] == "execute"]
    assert (facts["level"], facts["exit_code"]) == (cell.level, 3)


@pytest.mark.slow
def test_wick_run_says_the_level_at_its_start(work: Path, open_path: Path) -> None:
    folder = Folder(open_path)
    settings = {
        "": f"execute runs commands at the sandbox level {strongest(work)}\n",
        ", execute: local": "execute runs commands at the sandbox level local, which is none\n",
        ", execute: off": "execute is not available",
    }
    for setting, said in settings.items():
        text = "agents: {{default: {{model: scripted:demo, backend: {{{0}}}}}}}\n"
        folder.write(agents=text.format(f"type: local, workdir: w{setting}"))
        ended = folder.wick("run", "hello")
        assert ended.code == 0
        assert said in ended.err


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("namespaces", [True, False])
def test_the_filter_ends_every_way_in_an_answer(machine: str, namespaces: bool) -> None:
    raw = plan.program(machine, namespaces=namespaces)
    code = list(struct.iter_unpack("=HBBI", raw))
    assert len(code) < 256
    for at, (operation, yes, no, _) in enumerate(code):
        if operation & 7 == 5:  # a jump
            assert max(yes, no) + at + 1 < len(code)
    returned = {operand for operation, _, _, operand in code if operation == 6}
    assert returned == {0x7FFF0000, 0x00050001, 0x00050026}
    assert code[-1][0] == 6
    assert plan.supported(machine)
    assert not plan.supported("riscv64")


def test_a_plan_that_fails_runs_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    level = strongest(work)
    if level != "landlock":
        try:
            fs = LocalBackend(work, execute="landlock")
        except ConfigError as error:
            pytest.skip(str(error))
    else:
        fs = LocalBackend(work, execute="landlock")
    with fs:
        monkeypatch.setattr(levels, "program", lambda **_: b"no filter")
        with pytest.raises(ToolError, match="could not be started: .*Invalid argument"):
            fs.exec("touch ran")
        assert not (work / "ran").exists()


def test_what_confines_is_found_by_the_programs_own_path() -> None:
    assert Path(str(confine.__file__)).is_file()


def test_a_level_that_confines_nothing_is_not_taken(tmp_path: Path) -> None:
    """It counts only after a command has run in it and found itself confined."""
    tried: list[str] = []

    def fails(sandbox: Any) -> str:
        tried.append(sandbox.level)
        return "it can list /"

    found, why = choose("auto", str(tmp_path), (), fails)
    assert found is None
    assert tried
    assert why.count("it can list /") == len(tried)
    with pytest.raises(ConfigError, match="it can list /"):
        choose("require", str(tmp_path), (), fails)
