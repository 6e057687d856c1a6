"""`execute` at the level `local`, with real processes: bounded, cancellable, and nothing stays."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import wild
from tests.source import ROOT
from wick_graph import Agent
from wick_graph.backends import Executed, LocalBackend, Stop, process
from wick_graph.backends.protocol import GRACE_SECONDS
from wick_graph.errors import ToolError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel

MARK = "WICK_TEST_MARK"


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[LocalBackend]:
    with LocalBackend(tmp_path, execute="local") as made:
        yield made


def living(mark: str) -> list[int]:
    """Return the processes in whose arguments the mark stands."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text("latin-1").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in line and state != "Z" and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def gone(mark: str) -> bool:
    """Wait until no process with the mark is left; each sleeps for minutes."""
    until = time.monotonic() + 60
    while living(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def sleeper(mark: str) -> str:
    """Return a command that sleeps long, with a mark in its arguments."""
    return f"{sys.executable} -S -c 'import time; time.sleep(300)' {mark}"


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"{MARK}{abs(hash(str(tmp_path)))}"


def timed(fs: LocalBackend, command: str, **options: Any) -> tuple[Executed, float]:
    start = time.monotonic()
    done = fs.exec(command, **options)
    return done, time.monotonic() - start


HANGING = {
    "sleeps": "{sleep}",
    "ignores-term": "trap '' TERM; {sleep}",
    "pipeline": "{sleep} | {sleep}",
    "new-session": "setsid {sleep}",
    "forks": "for i in 1 2 3 4 5; do {sleep} & done; wait",
    "stops-itself": "{sleep} & kill -STOP $$",
    "stops-its-parent": "{sleep} & kill -STOP $PPID; wait",
}


@pytest.mark.sisters(3)
@pytest.mark.parametrize("command", [pytest.param(c, id=name) for name, c in HANGING.items()])
def test_x1_a_command_that_hangs(
    fs: LocalBackend, mark: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_LATE_SECONDS", 20.0)  # its reaper may start late
    done, took = timed(fs, command.format(sleep=sleeper(mark)), timeout=0.5)
    assert took <= 30, "it sleeps for minutes"
    assert (done.timed_out, done.exit_code) == (True, 124)
    assert gone(mark)


FLOODS = {
    "yes": "yes",
    "stderr": "yes >&2",
    "random": "cat /dev/urandom",
    "both": "yes & yes >&2",
    "no-line": "tr '\\0' x < /dev/zero",
}


@pytest.mark.parametrize("command", [pytest.param(c, id=name) for name, c in FLOODS.items()])
def test_x1_a_command_that_floods(fs: LocalBackend, command: str) -> None:
    fs.exec("true")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = fs.exec(command, timeout=60)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown <= 30 * 1024
    assert "killed: it wrote more than 64 MiB" in done.notes
    assert done.exit_code != 0
    total = done.stdout_bytes + done.stderr_bytes
    assert 64 * 2**20 < total <= 65 * 2**20
    for shown, size, path in (
        (done.stdout, done.stdout_bytes, done.stdout_file),
        (done.stderr, done.stderr_bytes, done.stderr_file),
    ):
        assert len(shown) <= 101_000
        if size > 100_000:
            assert f"... (truncated {size - 100_000} bytes) ..." in shown
            assert path is not None
            assert Path(path).stat().st_size == size
            Path(path).unlink()


CRASHES = {
    "exit": ("exit 7", 7, None),
    "segv": ("kill -SEGV $$", 139, "SIGSEGV"),
    "kill": ("kill -9 $$", 137, "SIGKILL"),
    "missing": ("no-such-program", 127, None),
    "syntax": ("if", 2, None),
    "pipe": ("yes | head -1 >/dev/null", 0, None),
}


@pytest.mark.parametrize(
    ("command", "code", "name"), [pytest.param(*c, id=name) for name, c in CRASHES.items()]
)
def test_x1_how_a_command_ends(fs: LocalBackend, command: str, code: int, name: str | None) -> None:
    done = fs.exec(command)
    assert (done.exit_code, done.signal, done.timed_out) == (code, name, False)
    assert not list(Path(fs.workdir).glob("core*"))


def test_x1_what_the_model_is_told(fs: LocalBackend) -> None:
    command = "seq 1 40000; echo problem >&2; exit 3"
    hook = FilesystemHook(fs)
    script = ScriptedModel([wild("execute", command=command), "done"])
    result = Agent(model=script, hooks=[hook], store=False).invoke("go")
    (text,) = (m.text for m in result.messages if m.type == "tool")
    assert len(text) <= 100_000
    path = text.split("whole result is in ")[1].split(";")[0]
    answer = json.loads(Path(path).read_text())
    assert answer["exit_code"] == 3
    assert answer["stderr"] == "problem\n"
    assert answer["stdout"].startswith("1\n2\n3\n")
    assert answer["stdout"].endswith("39999\n40000\n")
    whole = "".join(f"{i}\n" for i in range(1, 40_001))
    assert answer["stdout_bytes"] == len(whole)
    assert Path(answer["stdout_file"]).read_text() == whole


def test_x2_a_background_child_does_not_hold_the_call(fs: LocalBackend, mark: str) -> None:
    done, took = timed(fs, f"{sleeper(mark)} & echo hi")
    assert took < 30, "the child sleeps for minutes"
    assert (done.stdout, done.exit_code, done.timed_out) == ("hi\n", 0, False)
    assert living(mark) == []


def test_x2_a_background_child_may_end_what_it_says(
    fs: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GRACE_SECONDS > 0.05
    monkeypatch.setattr(process, "GRACE_SECONDS", 30.0)  # it needs no more than its own time
    assert fs.exec("(sleep 0.05; echo late) & echo early").stdout == "early\nlate\n"


def test_x3_nothing_outlives_the_engine(tmp_path: Path, mark: str) -> None:
    code = (
        "from wick_graph.backends import LocalBackend; "
        f"LocalBackend({str(tmp_path)!r}, execute='local').exec({'setsid ' + sleeper(mark)!r})"
    )
    engine = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    until = time.monotonic() + 60
    while len(living(mark)) < 3:  # the engine, the reaper's argument, and the sleeper itself
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    assert gone(mark)


ESCAPES = {
    "setsid": "setsid {sleep} >/dev/null 2>&1 & sleep 0.1",
    "nohup": "nohup {sleep} >/dev/null 2>&1 & sleep 0.1",
    "double-fork": "sh -c '( {sleep2} & ) & exit' >/dev/null 2>&1; sleep 0.1",
    "all-of-it": (
        "setsid nohup sh -c '( setsid {sleep2} & ) & ( setsid nohup {sleep2} & ) & exit' "
        ">/dev/null 2>&1 & sleep 0.2"
    ),
    "daemon": (
        '{python} -c "import os,time\nfor _ in range(2):\n  if os.fork(): os._exit(0)\n'
        '  os.setsid()\nfor fd in range(3): os.close(fd)\ntime.sleep(300)" {mark}; sleep 0.1'
    ),
}


@pytest.mark.sisters(3)
@pytest.mark.parametrize("command", [pytest.param(c, id=name) for name, c in ESCAPES.items()])
def test_x4_what_leaves_its_group_is_found(fs: LocalBackend, mark: str, command: str) -> None:
    quoted = sleeper(mark).replace("'", '"')
    text = command.format(sleep=sleeper(mark), sleep2=quoted, python=sys.executable, mark=mark)
    count = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx {mark}"
    wait = f"for i in $(seq 1000); do n=$({count}); [ $n -ge 2 ] && break; sleep 0.05; done"
    started = fs.exec(f"{text}; {wait}; echo $n")
    assert int(started.stdout.split()[-1]) >= 2, "the process was there, and grep"
    assert living(mark) == []


def test_cancelling_the_call_ends_the_command(fs: LocalBackend, mark: str) -> None:
    async def go() -> None:
        script = ScriptedModel([wild("execute", command=sleeper(mark)), "done"])
        agent = Agent(model=script, hooks=[FilesystemHook(fs)], store=False)
        task = asyncio.create_task(agent.ainvoke("go"))
        while len(living(mark)) < 2:  # the reaper's argument, and the sleeper itself
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert gone(mark)


def test_a_stop_ends_the_command_and_is_told(fs: LocalBackend, mark: str) -> None:
    stop = Stop()

    def later() -> None:
        while len(living(mark)) < 2:  # the reaper's argument, and the sleeper itself
            time.sleep(0.01)
        stop.set()

    thread = threading.Thread(target=later)
    thread.start()
    done, took = timed(fs, sleeper(mark), stop=stop, timeout=100)
    thread.join()
    assert took < 60
    assert done.notes == ("killed: the run was cancelled",)
    assert not done.timed_out
    stop.set()


def test_many_at_once_do_not_mix(fs: LocalBackend) -> None:
    results: dict[int, str] = {}

    def go(i: int) -> None:
        results[i] = fs.exec(f"sleep 0.05; echo {i}; sleep 300 & exit {i}").stdout

    threads = [threading.Thread(target=go, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: f"{i}\n" for i in range(8)}


def test_the_environment_is_clean(fs: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "SECRET", "BASH_ENV", "ENV", "LD_PRELOAD", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("GIT_SSH_COMMAND", "canary")
    monkeypatch.setenv("PATH", f".:{fs.workdir}/bin:bin:{os.environ['PATH']}:")
    text = fs.exec("env; tr '\\0' '\\n' < /proc/self/environ").stdout
    assert "canary" not in text
    names = {line.partition("=")[0] for line in text.splitlines()}
    known = {"HOME", "LANG", "LOGNAME", "PATH", "PWD", "OLDPWD", "SHELL", "SHLVL", "TERM", "_"}
    assert {n for n in names - known if not n.startswith("LC_")} <= {"TMPDIR", "TZ", "USER"}
    path = next(line for line in text.splitlines() if line.startswith("PATH="))
    assert fs.workdir not in path
    assert all(folder.startswith("/") for folder in path[5:].split(":"))


def test_the_command_runs_in_the_working_directory_without_input(fs: LocalBackend) -> None:
    assert fs.exec("pwd -P").stdout == f"{Path(fs.workdir).resolve()}\n"
    assert fs.exec("read x; echo $?; cat; tty").stdout == "1\nnot a tty\n"
    assert fs.exec("ls -l /proc/self/fd | grep -c -e pipe: -e socket:").stdout == "2\n"
    fs.exec("cd / && export X=1")
    assert fs.exec("echo $X$(pwd -P)").stdout == f"{Path(fs.workdir).resolve()}\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [("", "empty"), ("  \n ", "empty"), ("a\0b", "NUL"), ("echo \ud800", "surrogate")],
)
def test_what_is_no_command_is_refused(fs: LocalBackend, command: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        fs.exec(command)


def test_a_long_command_is_refused_or_runs(fs: LocalBackend) -> None:
    with pytest.raises(ToolError, match="write it to a file"):
        fs.exec("#" * 200_000)
    assert fs.exec("echo hi # " + "x" * 90_000).stdout == "hi\n"
    assert fs.exec("echo one\necho two").stdout == "one\ntwo\n"


@pytest.mark.parametrize("seconds", [0, -1, 1e308, float("nan"), float("inf"), "5", 601])
def test_a_time_out_that_is_none_is_refused(fs: LocalBackend, seconds: Any) -> None:
    script = ScriptedModel([wild("execute", command="touch ran", timeout=seconds), "done"])
    result = Agent(model=script, hooks=[FilesystemHook(fs)], store=False).invoke("go")
    (text,) = (m.text for m in result.messages if m.type == "tool")
    assert text.startswith("Error: ")
    assert "timeout" in text
    assert not (Path(fs.workdir) / "ran").exists()


def test_bytes_that_are_no_text(fs: LocalBackend) -> None:
    done = fs.exec("printf 'a\\377b\\000c\\033]52;c;x\\007'")
    assert done.stdout == "a\ufffdb\0c\x1b]52;c;x\x07"
    script = ScriptedModel([wild("execute", command="printf '\\033[8mhid\\342\\200\\256'"), "done"])
    result = Agent(model=script, hooks=[FilesystemHook(fs)], store=False).invoke("go")
    (text,) = (m.text for m in result.messages if m.type == "tool")
    assert text.isprintable()
    assert json.loads(text)["stdout"] == "\x1b[8mhid\u202e"


def test_a_cut_does_not_split_a_character(fs: LocalBackend) -> None:
    done = fs.exec(f"{sys.executable} -S -c \"print('x' + 'ü' * 100_000, end='')\"")
    assert "\ufffd" not in done.stdout
    assert done.stdout_bytes == 200_001


def test_a_vanished_working_directory_is_said(tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    with LocalBackend(work, execute="local") as fs:
        fs.exec('rm -rf "$PWD"')
        with pytest.raises(ToolError, match="could not be started"):
            fs.exec("echo hi")
        with pytest.raises(ToolError):
            fs.read("x")


def test_descriptors_and_threads_are_given_back(fs: LocalBackend) -> None:
    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    fs.exec("true")
    before = count()
    for command in ("true", "yes | head -c 300000", "exit 1"):
        fs.exec(command)
    with pytest.raises(ToolError):
        fs.exec("")
    assert count() == before
