"""A server that says too much, hangs or breaks costs its own tools: not memory, not its agent."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.mcp.test_client import Make, gone, make
from tests.server.support import serving
from tests.source import ROOT
from tests.support import forked
from wick_graph import Agent
from wick_graph.core.bridge import ENGINE_LOOP
from wick_graph.errors import ToolError
from wick_graph.testing import ScriptedModel
from wick_graph.tools import mcp, mcp_transport
from wick_graph.tools.mcp import McpServer, Target

BAD = str(ROOT / "tests" / "mcp" / "bad.py")
MOST = 100
"""MiB that this process may grow by, whatever else goes on in it; less than what is sent."""
DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
__all__ = ["make"]


def stdio(how: str) -> Target:
    return Target(command=(sys.executable, BAD, how))


@contextmanager
def over_http(how: str) -> Iterator[Target]:
    with subprocess.Popen([sys.executable, BAD, how, "http"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Target(url=f"http://127.0.0.1:{int(process.stdout.readline())}/mcp")
        finally:
            process.kill()


def heard(door: Door, tools: McpServer, *calls: Any) -> list[str]:
    agent = Agent("it", ScriptedModel([*calls, "Done."]), mcp_servers=[tools])
    result = door(agent, "Go")
    assert result.text == "Done.", "the agent works, whatever its server does"
    return [called.get("error") or called["output"] for called in result.tool_calls]


class Grown:
    """By how many MiB this process grows at most."""

    def __init__(self) -> None:
        gc.collect()
        self._ends = threading.Event()
        self._before = self.most = resident()

    def __enter__(self) -> Grown:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    @property
    def by(self) -> float:
        return self.most - self._before

    def _watch(self) -> None:
        while not self._ends.wait(0.005):
            self.most = max(self.most, resident())


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@DOORS
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("huge", "sent more than 4 MiB in a message"),
        ("endless", "sent more than 4 MiB in a message"),
        ("flood", "sent more than 2,000 messages without being asked"),
        ("parts", "keys and items in a message"),
    ],
)
def test_an_answer_is_bounded_while_it_arrives(door: Door, make: Make, how: str, says: str) -> None:
    bad = make(stdio(how))
    bad.tools()
    with Grown() as grown:
        (said,) = heard(door, bad, wild("t_big"))
    assert says in said
    assert grown.by < MOST, "150 MB came, and 442 MB were held"


@pytest.mark.parametrize("how", ["huge", "encoded"])
def test_an_answer_over_http_is_bounded_too(make: Make, how: str) -> None:
    with over_http(how) as target:
        bad = make(target, timeout=60)
        bad.tools()
        with Grown() as grown:
            said = heard(sync_door, bad, wild("t_big"))
        assert len(said) == 1
        assert "fine" not in said[0]
        assert grown.by < MOST


@pytest.mark.sisters(5)
@DOORS
@pytest.mark.parametrize("how", ["hang", "dies", "list", "nothing"])
def test_a_broken_server_costs_its_tools_and_not_its_agent(
    door: Door,
    make: Make,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(mcp, "LIST_SECONDS", 1.0)
    target = stdio(how) if how != "nothing" else Target(command=("/no/such/program",))
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "wick_graph.tools.mcp"):
        (said,) = heard(door, make(target, timeout=2), wild("t_big"))
    assert "t_big" in said
    assert time.monotonic() - start < 60, "what hangs would hang for an hour"
    assert "missing" in caplog.text


@pytest.mark.slow
def test_a_server_that_says_nonsense_first_is_understood_later(make: Make) -> None:
    assert heard(sync_door, make(stdio("garbage")), wild("t_big")) == ["fine"]


@pytest.mark.slow
def test_a_server_that_comes_later_brings_its_tools(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "AGAIN_SECONDS", 0.0)
    program = tmp_path / "server"
    late = make(Target(command=(str(program),)))
    agent = Agent("it", ScriptedModel(["Not yet."]), mcp_servers=[late])
    assert agent.invoke("Go").text == "Not yet."
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {BAD} fine\n", "utf-8")
    program.chmod(0o755)
    until = time.monotonic() + 60
    while not late.known():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert [*agent.spec.toolbox.at({})] == ["t_big"], "the very agent has it now"
    assert heard(sync_door, late, wild("t_big")) == ["fine"]


@pytest.mark.slow
def test_a_program_that_hangs_is_gone_once_nobody_waits(make: Make, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    hangs = make(Target(command=(sys.executable, "-c", code)), timeout=2)
    assert hangs.tools() == ()
    assert gone(int(note.read_text("ascii")))


HANGS = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(3600)"


@pytest.mark.parametrize(
    ("leave", "patience"),
    [
        pytest.param(2.0, 1.5, id="tires of it too, as it is being ended"),
        pytest.param(0.1, 60.0, id="would have waited"),
    ],
)
def test_a_program_that_hangs_is_gone_though_several_wait_for_it(
    leave: float, patience: float, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_transport, "LEAVE_SECONDS", leave)
    before = {*mcp.PROGRAMS.groups}
    hangs = make(Target(command=(sys.executable, "-c", HANGS), cwd=str(tmp_path)), timeout=1)
    first = ENGINE_LOOP.submit(hangs.call("big", {}, "c"))
    until = time.monotonic() + 60
    while not (started := mcp.PROGRAMS.groups - before):
        assert time.monotonic() < until
        time.sleep(0.005)
    hangs.timeout = patience
    second = ENGINE_LOOP.submit(hangs.call("big", {}, "c"))
    with pytest.raises(ToolError, match="did not answer within 1 s"):
        first.result(60)
    told = "cannot be used (it was ended before it answered); the next call tries again"
    ends = {f"the MCP server t {told}"}
    if patience < leave:
        ends.add(f"the MCP server t did not answer within {patience:g} s")
    with pytest.raises(ToolError) as caught:
        second.result(50)
    assert str(caught.value) in ends
    assert all(gone(pid) for pid in started)


def test_a_program_that_does_not_start_in_time_is_said_to(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(mcp_transport, "LEAVE_SECONDS", 0.1)
    hangs = make(Target(command=(sys.executable, "-c", HANGS), cwd=str(tmp_path)), timeout=60)
    with pytest.raises(ToolError, match=r"t cannot be used \(it did not start within 0.5 s\)"):
        ENGINE_LOOP.submit(hangs.call("big", {}, "c")).result(50)
    assert not hangs.connected


def test_an_error_of_time_before_the_start_is_told_as_what_it_is(make: Make) -> None:
    def check() -> None:
        raise TimeoutError("the folder is not there")

    with pytest.raises(ToolError, match="cannot be used .*the folder is not there"):
        ENGINE_LOOP.submit(
            make(Target(command=("true",), check=check), timeout=60).call("big", {}, "c")
        ).result(50)


ENDS = """\
import atexit, pathlib, signal, sys, threading, time
from wick_graph.core.bridge import ENGINE_LOOP
from wick_graph.tools import mcp, mcp_transport
mcp_transport.LEAVE_SECONDS = 0.3
how, *command = sys.argv[1:]
tools = mcp.McpServer("t", mcp.Target(command=(sys.executable, *command)))

def started():
    tools.known()
    while not (pathlib.Path("pid").exists() and mcp.PROGRAMS.groups):
        time.sleep(0.01)

async def block():
    time.sleep(3600)

if how == "used":
    assert len(tools.tools()) == 1
elif how == "late":  # it is started while another one is being ended
    mcp_transport.LEAVE_SECONDS = 2
    first = mcp.McpServer("f", mcp.Target(command=("sh", "-c", "echo > first; sleep 3600")))
    first.known()
    while not pathlib.Path("first").exists():
        time.sleep(0.01)
    later = threading.Timer(0.5, tools.tools)
    later.daemon = True
    later.start()
else:
    started()
if how == "ended":
    threading.Thread(target=tools.close, daemon=True).start()
elif how == "blocked":
    ENGINE_LOOP.submit(block())
elif how == "interrupted":
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # Ctrl-C, as it is being ended
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.1)
"""


@pytest.mark.parametrize(
    ("how", "server"),
    [
        ("ended", ("-c", HANGS)),
        pytest.param("used", (BAD, "stays"), marks=pytest.mark.slow),
        pytest.param("blocked", ("-c", HANGS), marks=pytest.mark.slow),
        pytest.param("interrupted", ("-c", HANGS), marks=pytest.mark.slow),
    ],
)
def test_a_program_that_hangs_ends_with_its_process(
    how: str, server: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", ENDS, how, *server]
    done = forked.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert gone(int((tmp_path / "pid").read_text("ascii")))


@pytest.mark.slow
def test_a_process_that_ends_starts_no_program(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDS, "late", "-c", HANGS]
    done = forked.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert not (tmp_path / "pid").exists()


FILE = """\
store: sqlite:///wick.db
defaults: {{ttl: never}}
agents:
  default:
    model: scripted:demo
    tools: [calculate]
    mcp_servers: {{bad: {{command: ["{python}", "{bad}", dies], timeout: 5s}}}}
"""


@pytest.mark.slow
def test_a_server_of_agents_starts_and_answers_with_a_broken_mcp_server(tmp_path: Path) -> None:
    agents = FILE.format(python=sys.executable, bad=BAD)
    with serving(tmp_path, "--no-auth", "--trust", agents=agents) as served:
        body = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
        got = httpx.post(f"{served.url}/agents/invoke", json=body, timeout=60)
    assert "42" in got.json()["response"]
