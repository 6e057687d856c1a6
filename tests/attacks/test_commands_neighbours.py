"""Attacks on what is beside a sandbox by calls that need no file: sockets, limits, queues."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sandbox.fixtures import CONFINED, Cell, make_cell
from wick_graph.backends import LocalBackend
from wick_graph.errors import ConfigError
from wick_graph.sandbox import plan
from wick_graph.sandbox.plan import OVERFLOW_ID

HELD_BY_A_NETWORK_NAMESPACE = {1, 2, 10, 16}
FAMILIES = range(48)
REFUSED = (
    *("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr"),
    *("setpriority", "setpriority-user", "setpriority-group", "ioprio_set", "ioprio_set-user"),
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
    *("move_pages", "migrate_pages"),
)
ITS_OWN = (
    *("own-prlimit64", "own-setaffinity", "own-setscheduler", "own-setpriority"),
    "own-ioprio_set",
)
SHARED = {"shm", "sem", "msg", "mq_"}


@dataclass
class Tried:
    """What the probe said at one level."""

    level: str
    families: dict[str, str]
    others: dict[str, str]
    untouched: bool
    """The other process is as it was."""
    left: list[str]
    """Kinds of shared memory and queues that others see."""


@pytest.fixture(scope="module", params=CONFINED)
def tried(request: pytest.FixtureRequest, probe: Path) -> Iterator[Tried]:
    """Let the probe try everything once, beside a process of the user as whom commands run."""
    who = (
        {"user": OVERFLOW_ID, "group": OVERFLOW_ID, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    with (
        tempfile.TemporaryDirectory(prefix="wick-test-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(["sleep", "300"], cwd="/", **who) as bystander,  # type: ignore[call-overload]  # options as a map
    ):
        Path(folder).chmod(0o711)
        for cell in make_cell(request.param, Path(folder), request):
            shutil.copy(probe, cell.work / "probe")
            before = facts(bystander.pid)
            found = said(cell, "./probe families"), said(cell, f"./probe others {bystander.pid}")
            kept = {
                kind: Path(f"/proc/sysvipc/{kind}").read_text() for kind in ("shm", "sem", "msg")
            }
            left = [kind for kind, text in kept.items() if " 4711 " in text]
            yield Tried(cell.level, *found, facts(bystander.pid) == before, left)
        bystander.kill()


def facts(pid: int) -> tuple[object, ...]:
    niceness = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()[16]
    limits = Path(f"/proc/{pid}/limits").read_text()
    return niceness, limits, os.sched_getaffinity(pid), os.sched_getscheduler(pid)


def said(cell: Cell, command: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in cell.run(command).stdout.splitlines())


@pytest.mark.sisters(2)
@pytest.mark.parametrize("kind", ["socket", "pair"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_socket_is_of_a_family_that_stays_inside(tried: Tried, kind: str, family: int) -> None:
    """AF_VSOCK, for one, reaches the machine below, whatever namespace stands around."""
    what = tried.families[f"{kind}-{family}"]
    mine = {"bwrap": HELD_BY_A_NETWORK_NAMESPACE, "landlock": {1} if kind == "pair" else set()}
    if tried.level not in mine:  # the engine's filter, made narrower; a pair leads nowhere
        refused = what in ("EPERM", "ENOSYS")
        assert kind == "pair" or family in HELD_BY_A_NETWORK_NAMESPACE or refused
        assert what != "ALLOWED" or family in HELD_BY_A_NETWORK_NAMESPACE
    elif family not in mine[tried.level]:
        assert what == "EPERM"
    elif family in (1, 2) and (kind, family) != ("pair", 2):
        assert what == "ALLOWED", "or nothing was tried"


@pytest.mark.parametrize("call", REFUSED)
def test_nothing_is_done_to_another_process(tried: Tried, call: str) -> None:
    if tried.level == "landlock":
        assert tried.others[call] == "refused EPERM"
    elif call[:3] not in SHARED and not call.endswith(("-user", "-group")):
        assert tried.others[call].startswith("refused"), "it sees no such process"
    assert tried.untouched
    assert tried.left == []


def test_a_command_does_to_itself_what_it_likes(tried: Tried) -> None:
    assert {name: tried.others[name] for name in ITS_OWN} == dict.fromkeys(ITS_OWN, "ALLOWED")
    assert len(tried.others) == len(REFUSED) + len(ITS_OWN)


def test_a_level_that_lets_any_socket_be_made_does_not_hold(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level is probed at the start, in itself, and not by what was meant."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap here")
    whole = plan.program()
    monkeypatch.setattr(plan, "_FAMILIES", (*plan._FAMILIES, plan.VSOCK))
    assert plan.program() != whole
    with pytest.raises(ConfigError, match="bwrap: it can make any socket"):
        LocalBackend(open_path, execute="bwrap")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_probes_is_a_program(machine: str, tmp_path: Path) -> None:
    program = tmp_path / "probe"
    program.write_bytes(plan.socket_probe(machine, family=99))
    program.chmod(0o755)
    runner = [] if platform.machine() == machine else [f"qemu-{machine}-static"]
    if runner and shutil.which(runner[0]) is None:
        pytest.skip(f"nothing here runs programs of {machine}")
    done = subprocess.run([*runner, str(program)], check=False)
    assert done.returncode == 97, "EAFNOSUPPORT: there is no such family"
