"""Attacks on `execute` that outlast the time-out, the call, the engine (C1, C2, C24, X3)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import naive_commands
from tests.attacks.commands import told
from tests.sandbox.fixtures import Cell, command_lines
from tests.source import ROOT
from wick_graph.backends import process

HANGING = {
    "sleeps": "{sleep}",
    "ignores-term": "trap '' TERM; {sleep}",
    "in-background": "{sleep} & {sleep} & wait",
}


@pytest.mark.sisters
@pytest.mark.parametrize("command", [pytest.param(c, id=f"C1-{n}") for n, c in HANGING.items()])
def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    cell: Cell, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_LATE_SECONDS", cell.slack - 1)  # its reaper may start late
    done, took = cell.timed(command.format(sleep=cell.sleep), timeout=1)
    assert took <= 1 + cell.slack
    assert (done.timed_out, done.exit_code) == (True, 124)
    assert cell.nothing_left()


@pytest.mark.parametrize("_", [pytest.param(0, id="C1-child")])
def test_a_background_child_does_not_hold_the_call(cell: Cell, _: int) -> None:
    done, took = cell.timed(f"{cell.sleep} & echo hi")
    assert took <= cell.slack, "the child sleeps for years, and the call may wait for 30 s"
    assert (done.stdout, done.timed_out) == ("hi\n", False)
    assert cell.nothing_left()


@pytest.mark.parametrize("_", [pytest.param(0, id="C1-naive")])
def test_a_runner_of_the_standard_library_is_held_and_leaves_processes(
    tmp_path: Path, _: int
) -> None:
    mark = f"{os.getpid()}{time.time_ns() % 10**6}"
    start = time.monotonic()
    naive_commands.run(f"sleep 3{mark} & sleep 4 & echo hi", tmp_path, 1)
    held = time.monotonic() - start
    left = [line for line in command_lines() if mark in line]
    for entry in Path("/proc").glob("[0-9]*"):
        if mark.encode() in _read(entry / "cmdline") and int(entry.name) != os.getpid():
            os.kill(int(entry.name), signal.SIGKILL)
    assert held >= 1, "it waited for the child"
    assert left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


ESCAPES = {
    "setsid": "setsid {sleep} >/dev/null 2>&1 & sleep 0.3",
    "nohup": "nohup {sleep} >/dev/null 2>&1 & sleep 0.3",
    "double-fork": "sh -c '( {sleep} & ) & exit' >/dev/null 2>&1; sleep 0.3",
    "all": "setsid nohup sh -c '( setsid {sleep} & ) & exit' >/dev/null 2>&1 & sleep 0.3",
    "at": "echo {sleep} | at now; batch </dev/null; crontab -l",
    "systemd": "systemd-run --user {sleep}; systemd-run {sleep}",
}


@pytest.mark.sisters(6)
@pytest.mark.parametrize("command", [pytest.param(c, id=f"C2-{n}") for n, c in ESCAPES.items()])
def test_nothing_stays_when_the_call_is_over(cell: Cell, command: str) -> None:
    if "systemd" in command and cell.level == "local":
        pytest.skip("local is no boundary: a service manager may be asked to start something")
    cell.run(command.format(sleep=cell.sleep))
    assert cell.nothing_left()


TIMEOUTS = [0, -1, 1e308, float("nan"), float("inf"), "5", 601]


@pytest.mark.sisters(4)
@pytest.mark.parametrize("seconds", [pytest.param(s, id=f"C24-{s}") for s in TIMEOUTS])
def test_a_time_out_that_is_none_is_refused(cell: Cell, seconds: Any) -> None:
    text = told(cell, command="touch ran", timeout=seconds)
    assert text.startswith("Error: ")
    assert "timeout" in text
    assert not (cell.work / "ran").exists()


@pytest.mark.parametrize("_", [pytest.param(0, id="C24-null")])
def test_a_time_out_of_null_is_refused_or_the_default(cell: Cell, _: int) -> None:
    text = told(cell, command="echo ran", timeout=None)
    assert text.startswith("Error: ") or json.loads(text)["stdout"] == "ran\n"


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="X3")])
def test_nothing_outlives_the_engine(cell: Cell, _: int) -> None:
    if cell.level == "container":
        make = (
            "from tests.sandbox.fixtures import OPTIONS; "
            "from wick_graph.backends.docker import DockerBackend; "
            f"fs = DockerBackend({str(cell.work)!r}, options=OPTIONS, host={cell.fs.host!r})"
        )
    else:
        make = (
            "from wick_graph.backends import LocalBackend; "
            f"fs = LocalBackend({str(cell.work)!r}, execute={cell.level!r})"
        )
    engine = subprocess.Popen(
        [sys.executable, "-c", f"{make}; fs.exec('setsid {cell.sleep} & {cell.sleep}')"], cwd=ROOT
    )
    until = time.monotonic() + 60
    while not any(line.startswith(cell.sleep) for line in cell.left()):
        assert engine.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    engine.kill()
    engine.wait()
    assert cell.nothing_left()
