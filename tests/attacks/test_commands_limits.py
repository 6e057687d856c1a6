"""Attacks on `execute` by too many processes, bytes, cores (C3, C4, C21, C22, X6)."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.fixtures import Cell
from wick_graph.errors import ToolError
from wick_graph.sandbox.plan import OVERFLOW_ID


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="C3")])
def test_a_fork_bomb_meets_the_limit(confined: Cell, _: int) -> None:
    done, took = confined.timed("f() { f | f & }; f; sleep 1; echo over", timeout=3)
    assert took <= 3 + 5 + confined.slack
    assert done.exit_code != 0 or "over" in done.stdout
    assert confined.run("echo well").stdout == "well\n"


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="C3-count")])
def test_the_limit_of_processes_is_what_it_says(armed: Cell, _: int) -> None:
    done = armed.run("./probe forks 1000")
    made = int(done.stdout.split()[1])
    assert 100 < made <= 600, "256, and as many as the user had at the start and has no more"


FLOODS = {
    "yes": "yes",
    "random": "cat /dev/urandom",
    "stderr": "yes >&2",
    "one-line": "tr '\\0' x < /dev/zero",
    "in-turn": "yes a & while :; do echo b >&2; done",
}


@pytest.mark.sisters
@pytest.mark.parametrize("command", [pytest.param(c, id=f"C4-{n}") for n, c in FLOODS.items()])
def test_a_flood_is_bounded(cell: Cell, command: str) -> None:
    cell.run("true")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done, took = cell.timed(f"{command} # {cell.mark}", timeout=20)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert took <= 20 + cell.slack
    assert grown <= 30 * 1024
    assert "killed: it wrote more than 64 MiB" in done.notes
    assert done.exit_code != 0
    assert max(len(done.stdout), len(done.stderr)) <= 101_000
    assert done.stdout_bytes + done.stderr_bytes <= 65 * 2**20
    assert cell.nothing_left()


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="C21")])
def test_a_file_has_a_limit(cell: Cell, _: int) -> None:
    done = cell.run("truncate -s 300M big || dd if=/dev/zero of=big bs=1M seek=299 count=1")
    assert done.exit_code != 0
    assert cell.run("truncate -s 100M big").exit_code == 0
    (cell.work / "big").unlink()


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="C21-tmp")])
def test_the_own_tmp_has_a_limit(confined: Cell, _: int) -> None:
    if confined.level == "landlock":
        pytest.skip("its own folder is on the disk")
    done = confined.run("dd if=/dev/zero of=/tmp/big bs=1M count=80")
    assert done.exit_code != 0
    assert "No space" in done.stderr
    assert confined.run("ls /tmp/big").exit_code != 0 or confined.level == "container"


@pytest.mark.parametrize("_", [pytest.param(0, id="C21-full")])
def test_nothing_is_started_on_a_full_disk(confined: Cell, _: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a small disk needs root")
    if confined.level == "container":
        pytest.skip("a mount that is made later is not seen by the container")
    small = f"size=4m,uid={OVERFLOW_ID},gid={OVERFLOW_ID}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", small, "small", confined.work], check=True)
    try:
        done = confined.run("dd if=/dev/zero of=big bs=64k count=100")
        assert "No space" in done.stderr
        with pytest.raises(ToolError, match="disk is nearly full"):
            confined.fs.exec("echo hi")
    finally:
        subprocess.run(["umount", "-l", confined.work], check=True)


@pytest.mark.sisters(3)
@pytest.mark.parametrize("_", [pytest.param(0, id="C22")])
def test_no_core_is_written(cell: Cell, _: int) -> None:
    done = cell.run("ulimit -c unlimited; ulimit -c; sh -c 'kill -SEGV $$'")
    assert "unlimited" not in done.stdout
    assert done.exit_code in (139, 1, 2)
    assert [path.name for path in cell.work.iterdir() if "core" in path.name] == []


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="X6")])
def test_memory_has_a_limit(cell: Cell, probe: Path, _: int) -> None:
    program = cell.work / "probe"
    program.write_bytes(probe.read_bytes())
    program.chmod(0o755)
    done = cell.run("./probe memory 5000000000; echo $?")
    assert "memory refused ENOMEM" in done.stdout or "137" in done.stdout or done.exit_code == 137
    assert cell.run("echo well").stdout == "well\n"
