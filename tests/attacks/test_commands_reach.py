"""Attacks on `execute` that reach outside; the kernel's files are opened, never written to."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.fixtures import CANARY, Cell
from tests.source import ROOT
from wick_graph.errors import ToolError
from wick_graph.sandbox.plan import OVERFLOW_ID


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="C7")])
def test_secrets_of_the_machine_are_out_of_reach(confined: Cell, _: int) -> None:
    places = [
        str(confined.secret),
        "/etc/shadow",
        f"{Path.home()}/.ssh/id_rsa",
        f"{Path.home()}/.aws/credentials",
        "/proc/1/environ",
        f"/proc/{os.getpid()}/environ",
    ]
    for place in places:
        done = confined.run(f"cat {place}")
        assert CANARY not in done.stdout
        assert "root:" not in done.stdout
    everything = confined.run("cat /proc/[0-9]*/environ; ls -A $HOME")
    assert CANARY not in everything.stdout
    confined.untouched()


@pytest.mark.parametrize("_", [pytest.param(0, id="C7-local")])
def test_local_is_said_to_be_no_boundary(_: int) -> None:
    text = " ".join((ROOT / "docs" / "how-to" / "sandbox.md").read_text("utf-8").split())
    assert "**`local`** is not a sandbox" in text
    assert "can read every file that the program can read" in text


@pytest.mark.parametrize("_", [pytest.param(0, id="C9")])
def test_there_is_no_network(armed: Cell, _: int) -> None:
    name = f"wick-{armed.mark}"
    at = armed.work / "socket"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as outside,
    ):
        for one in (tcp, udp):
            one.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{name}")
        path = armed.outside.parent / "s"
        outside.bind(str(path))
        path.chmod(0o777)
        for one in (tcp, abstract, outside):
            one.listen()
            one.setblocking(False)
        udp.setblocking(False)
        said = armed.run(
            f"./probe tcp 127.0.0.1 {tcp.getsockname()[1]}; ./probe tcp 169.254.169.254 80; "
            f"./probe udp 127.0.0.1 {udp.getsockname()[1]}; ./probe udp 192.0.2.1 53; "
            f"./probe abstract {name}; ./probe unix {path}; ./probe unix /run/docker.sock"
        ).stdout.splitlines()
        assert len(said) == 7
        assert [line for line in said if "ALLOWED" in line and "udp" not in line] == []
        assert "ALLOWED" not in said[3]
        for one in (tcp, abstract, outside):
            with pytest.raises(BlockingIOError):
                one.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(10)
    assert not at.exists()


THE_ENGINES_OWN = {"unshare-user", "unshare-net", "keyctl"}
"""Calls that some engines' own filters let a container make, in a kernel that allows them."""


@pytest.mark.parametrize("_", [pytest.param(0, id="C10-calls")])
def test_calls_that_lead_out_are_refused(armed: Cell, _: int) -> None:
    said = dict(line.split(" ", 1) for line in armed.run("./probe calls").stdout.splitlines())
    assert len(said) == 19
    allowed = {name for name, what in said.items() if what == "ALLOWED"}
    assert allowed <= (THE_ENGINES_OWN if armed.level == "container" else set())


@pytest.mark.sisters
@pytest.mark.parametrize("_", [pytest.param(0, id="C10-files")])
def test_nothing_outside_can_be_changed(confined: Cell, _: int) -> None:
    for place in ("/etc/x", "/usr/x", "/x", "/dev/x", "/proc/x", str(confined.outside / "x")):
        assert confined.run(f"echo x > {place}").exit_code != 0
    assert confined.run(f"rm -f {confined.secret}; mv /etc /e; ln -s / /l").exit_code != 0
    confined.untouched()


@pytest.mark.parametrize("_", [pytest.param(0, id="C10-ptrace")])
def test_no_process_outside_can_be_traced(armed: Cell, _: int) -> None:
    assert "refused" in armed.run(f"./probe ptrace {os.getpid()}").stdout


KNOBS = (
    "/proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/vm/drop_caches "
    "/proc/sys/vm/overcommit_memory /proc/sys/kernel/modprobe /proc/sys/net/ipv4/ip_forward "
    "/sys/kernel/uevent_helper /sys/power/state /dev/kmsg /dev/mem /dev/vda /dev/sda"
)


@pytest.mark.parametrize("_", [pytest.param(0, id="C11")])
def test_the_kernels_own_files_cannot_be_opened_for_writing(armed: Cell, _: int) -> None:
    said = armed.run(f"./probe open {KNOBS}").stdout.splitlines()
    assert len(said) == len(KNOBS.split())
    assert [line for line in said if "ALLOWED" in line] == []


@pytest.mark.parametrize("_", [pytest.param(0, id="C11-naive")])
def test_bubblewrap_run_by_root_without_care_can_open_them(probe: Path, _: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("this is about root")
    done = subprocess.run(
        [
            *("bwrap", "--unshare-user", "--uid", "1000", "--unshare-pid", "--cap-drop", "ALL"),
            *("--ro-bind", "/", "/", "--proc", "/proc", "--", probe),
            *("open", "/proc/sys/kernel/core_pattern"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ALLOWED" in done.stdout, "or the test above shows nothing"


@pytest.mark.parametrize("_", [pytest.param(0, id="C12")])
def test_no_key_can_be_typed_into_a_terminal(armed: Cell, _: int) -> None:
    assert re.search(r"refused E(PERM|NOTTY)", armed.run("./probe type").stdout)


@pytest.mark.parametrize("_", [pytest.param(0, id="C13")])
def test_a_set_id_program_gives_nothing(armed: Cell, _: int) -> None:
    program = armed.work / "probe"
    os.chown(program, os.geteuid(), os.getegid())
    program.chmod(0o4755)
    done = armed.run("./probe who")
    assert done.stdout == f"euid {os.geteuid() or OVERFLOW_ID}\n", done.stderr


@pytest.mark.sisters(2)
@pytest.mark.parametrize("_", [pytest.param(0, id="C14")])
def test_no_process_outside_can_be_killed(confined: Cell, _: int) -> None:
    who = (
        {"user": OVERFLOW_ID, "group": OVERFLOW_ID, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    bystander = subprocess.Popen(["sleep", "300"], cwd="/", **who)  # type: ignore[call-overload]  # options as a map
    try:
        confined.run(f"kill -9 {bystander.pid}; kill -9 {os.getpid()}; kill -9 $PPID; kill -9 -1")
        assert bystander.poll() is None
        assert confined.run("echo well").stdout == "well\n"
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.sisters(2)
@pytest.mark.parametrize("_", [pytest.param(0, id="C15")])
def test_only_the_directory_can_be_emptied(confined: Cell, _: int) -> None:
    (confined.work / "x").write_text("x")
    confined.run(f"rm -rf {confined.outside} ./* .[a-z]*; cd /; rm -rf {confined.fs.workdir}")
    confined.untouched()
    assert not (confined.work / "x").exists()
    if confined.work.exists():
        assert confined.run("echo well").stdout == "well\n"
    else:
        with pytest.raises(ToolError, match="could not be started"):
            confined.fs.exec("echo well")


@pytest.mark.parametrize("_", [pytest.param(0, id="C20")])
def test_what_a_repository_starts_is_started_inside_only(confined: Cell, _: int) -> None:
    if confined.run("command -v git").exit_code != 0:
        pytest.skip("no git at this level")
    hook = f"#!/bin/sh\\ncat {confined.secret} > leaked\\necho x > {confined.outside}/x\\n"
    done = confined.run(
        "git init -q . && git config user.email a@b && git config user.name a && "
        f"printf '{hook}' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && "
        f"git config core.fsmonitor 'sh -c \"echo x > {confined.outside}/y\"' && "
        "echo a > a && git add a; git commit -qm a; git status; cat leaked"
    )
    assert CANARY not in done.stdout
    assert (confined.work / "leaked").exists(), "the hook has run, and found nothing"
    confined.fs.grep("a")
    confined.fs.glob("*")
    confined.untouched()


TRICKS = [
    "git;cat {secret}",
    "git `cat {secret}`",
    "git $(cat {secret})",
    "env cat {secret}",
    "python3 -c 'print(open(\"{secret}\").read())'",
    "echo {secret} | xargs cat",
    "find {outside} -type f -exec cat {{}} ;",
    "git -c alias.x='!cat {secret}' x",
    "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='cat {secret}' .",
]


@pytest.mark.sisters(3)
@pytest.mark.parametrize("trick", [pytest.param(t, id=f"C23-{i}") for i, t in enumerate(TRICKS)])
def test_a_trick_around_a_list_of_commands_meets_the_sandbox(confined: Cell, trick: str) -> None:
    done = confined.run(trick.format(secret=confined.secret, outside=confined.outside))
    assert CANARY not in done.stdout + done.stderr
    confined.untouched()


@pytest.mark.parametrize("_", [pytest.param(0, id="C23-said")])
def test_a_list_of_commands_is_said_to_be_no_boundary(_: int) -> None:
    text = " ".join((ROOT / "docs" / "how-to" / "sandbox.md").read_text("utf-8").split())
    assert "is a convenience, not a boundary" in text
