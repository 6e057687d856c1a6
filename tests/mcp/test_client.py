"""Tools of real MCP servers: processes that the tests start, kill and start again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.source import ROOT
from tests.support import forked
from wick_graph import Agent, load
from wick_graph.errors import ConfigError
from wick_graph.testing import ScriptedModel
from wick_graph.tools.mcp import McpServer, Target

SERVER = str(ROOT / "tests" / "mcp" / "server.py")
STDIO = (sys.executable, SERVER)
DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
Make = Callable[..., McpServer]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[McpServer] = []

    def server(target: Target | None = None, **options: Any) -> McpServer:
        made.append(McpServer("t", target or Target(command=STDIO), **options))
        return made[-1]

    yield server
    for one in made:
        one.close()


class Http:
    """A server behind streamable HTTP, on a port that it keeps when it is started again."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.start()

    def start(self, *program: str) -> None:
        command = [sys.executable, *program] if program else STDIO
        self.process = forked.Popen(
            [*command, str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def http() -> Iterator[Http]:
    made = Http()
    yield made
    made.kill()


def agent_of(server: McpServer, *steps: Any) -> Agent:
    return Agent("it", ScriptedModel(list(steps)), mcp_servers=[server])


def heard(door: Door, agent: Agent) -> list[str]:
    return [called.get("error") or called["output"] for called in door(agent, "Go").tool_calls]


def pid_of(text: str) -> int:
    return int(text.split()[0])


def gone(pid: int) -> bool:
    """Wait for a process to end."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.sisters
@DOORS
def test_a_program_is_started_once_and_called(
    door: Door, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "of this process alone")
    server = make(Target(command=STDIO, env={"GREETING": "hello"}))
    agent = agent_of(server, wild("t_add", a=1, b=2), wild("t_whoami"), wild("t_whoami"), "Done.")
    first, *who = heard(door, agent)
    assert first == "3"
    assert who[0] == who[1], "one process serves all calls"
    assert who[0].split()[1:] == ["hello", "-"]


@pytest.mark.sisters
@DOORS
def test_a_server_behind_http_is_called(door: Door, http: Http, make: Make) -> None:
    agent = agent_of(make(Target(url=http.url)), wild("t_add", a=1, b=2), wild("t_fail"), "Done.")
    assert heard(door, agent) == ["3", "Error executing tool fail"]


@pytest.mark.slow
def test_what_a_server_says_of_a_tool_counts(make: Make) -> None:
    tools = {tool.name: tool for tool in make().tools()}
    assert tools["t_add"].description == "Add two numbers."
    assert (tools["t_add"].replay, tools["t_sleep"].replay) == ("safe", "never")
    assert tools["t_add"].check({"a": "x", "b": 1}) is not None
    assert [tool.name for tool in make(only=("add",)).tools()] == ["t_add"]
    with pytest.raises(ConfigError, match="the MCP server t has no nothing; it has add, whoami"):
        make(only=("nothing",)).tools()


def test_pictures_come_as_blocks(make: Make) -> None:
    agent = agent_of(make(), wild("t_picture"), "Nice.")
    message = agent.invoke("Draw").messages[2]
    assert message.content == [{"type": "image", "base64": "iVBORw==", "mime_type": "image/png"}]


@pytest.mark.sisters
@DOORS
def test_a_server_killed_in_a_call_fails_it_and_serves_the_next(
    door: Door, make: Make, tmp_path: Path
) -> None:
    marker = tmp_path / "calls"
    steps = [wild("t_whoami"), wild("t_die", marker=str(marker)), wild("t_whoami"), "Done."]
    before, died, after = heard(door, agent_of(make(), *steps))
    assert "the MCP server t is gone" in died
    assert "may or may not have had its effect" in died
    assert marker.read_text(encoding="utf-8") == "x", "a call is never sent twice"
    assert gone(pid_of(before))
    assert pid_of(after) != pid_of(before)


def test_a_server_behind_http_may_die_and_come_back(http: Http, make: Make) -> None:
    server = make(Target(url=http.url), timeout=60)
    agent = agent_of(server, wild("t_add", a=1, b=1), "2.", wild("t_add", a=2, b=2), "4.")
    assert heard(sync_door, agent) == ["2"]
    http.kill()
    (failed,) = heard(sync_door, agent_of(server, wild("t_add", a=9, b=9), "Hm."))
    assert "the MCP server t is gone" in failed
    http.start()
    assert heard(sync_door, agent_of(server, wild("t_add", a=2, b=2), "4.")) == ["4"]


LEGACY = """\
import json, sys, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSIONS = set()

class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, key = asked.get("method"), asked.get("id")
        if method == "initialize":
            SESSIONS.add(session := uuid.uuid4().hex)
            info = {"serverInfo": {"name": "old", "version": "1"}, "capabilities": {"tools": {}}}
            self.say(key, session=session, result={**info, "protocolVersion": "2025-06-18"})
        elif method == "server/discover":
            self.say(key, error={"code": -32601, "message": "not known"})
        elif self.headers.get("Mcp-Session-Id") not in SESSIONS:
            self.say(key, 404, error={"code": -32600, "message": "Session not found"})
        elif method == "tools/list":
            self.say(key, result={"tools": [{"name": "add", "inputSchema": {"type": "object"}}]})
        elif method == "tools/call" and not asked["params"]["arguments"]:
            self.say(key, error={"code": -32042, "message": "first sign in"})
        elif method == "tools/call" and "file" in (args := asked["params"]["arguments"]):
            with open(args["file"], "a") as file:
                file.write("x")
            SESSIONS.clear()
            time.sleep(2)
            self.say(key, result={"content": [{"type": "text", "text": "late"}]})
        elif method == "tools/call":
            self.say(key, result={"content": [{"type": "text", "text": sys.argv[1]}]})
        else:
            self.say(key, 202)

    def do_DELETE(self):
        self.say(None)

    def say(self, key, status=200, session="", **more):
        data = json.dumps({"jsonrpc": "2.0", "id": key, **more}).encode() if more else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(data)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Server).serve_forever()
"""
"""A server with sessions, which it forgets when it is started again."""


def start_anew(http: Http, folder: Path) -> None:
    """Start the server with sessions in place of the one that runs."""
    (folder / "legacy.py").write_text(LEGACY, "utf-8")
    http.kill()
    http.start(str(folder / "legacy.py"))


def test_a_server_that_was_started_again_gets_a_new_session(
    http: Http, make: Make, tmp_path: Path
) -> None:
    start_anew(http, tmp_path)
    server = make(Target(url=http.url), timeout=60)
    for _ in range(2):
        assert heard(sync_door, agent_of(server, wild("t_add", a=1), "Yes.")) == [str(http.port)]
        start_anew(http, tmp_path)
    (refused,) = heard(sync_door, agent_of(server, wild("t_add"), "No."))
    assert refused == "the MCP server t refused: first sign in"
    assert server.connected


def test_a_call_that_a_server_took_is_not_sent_again_when_it_forgets_the_session(
    http: Http, make: Make, tmp_path: Path
) -> None:
    start_anew(http, tmp_path)
    server, effects = make(Target(url=http.url), timeout=60), tmp_path / "effects"
    server.tools()

    async def both() -> list[Any]:
        taken = asyncio.create_task(server.call("add", {"file": str(effects)}, "1"))
        while not effects.exists():
            await asyncio.sleep(0.02)
        calls = (taken, server.call("add", {"a": 1}, "2"))
        return [*await asyncio.gather(*calls, return_exceptions=True)]

    gone, again = asyncio.run(both())
    assert "may or may not have had its effect" in str(gone)
    assert not isinstance(again, BaseException)
    assert effects.read_text() == "x"


def test_a_server_killed_between_calls_is_not_noticed(make: Make) -> None:
    server = make()
    (who,) = heard(sync_door, agent_of(server, wild("t_whoami"), "Done."))
    os.kill(pid_of(who), signal.SIGKILL)
    assert gone(pid_of(who))
    until = time.monotonic() + 60
    while server.connected and time.monotonic() < until:
        time.sleep(0.01)
    (again,) = heard(sync_door, agent_of(server, wild("t_whoami"), "Done."))
    assert pid_of(again) != pid_of(who)


@pytest.mark.sisters
@DOORS
def test_a_slow_call_has_a_deadline_and_the_server_lives_on(door: Door, make: Make) -> None:
    server = make(timeout=60)
    server.tools()
    server.timeout = 0.5
    (late,) = heard(door, agent_of(server, wild("t_sleep", seconds=2), "."))
    assert late == "the MCP server t did not answer within 0.5 s"
    server.timeout = 60
    assert heard(door, agent_of(server, wild("t_add", a=1, b=1), ".")) == ["2"]


@pytest.mark.slow
def test_an_idle_session_is_closed_and_opened_anew(make: Make) -> None:
    server = make(idle=0.3)
    (who,) = heard(sync_door, agent_of(server, wild("t_whoami"), "Done."))
    assert gone(pid_of(who))
    (again,) = heard(sync_door, agent_of(server, wild("t_whoami"), "Done."))
    assert pid_of(again) != pid_of(who)


def test_close_ends_the_program(make: Make) -> None:
    server = make()
    (who,) = heard(sync_door, agent_of(server, wild("t_whoami"), "Done."))
    server.close()
    assert gone(pid_of(who))


@pytest.mark.parametrize(
    "target",
    [
        Target(command=("/no/such/program",)),
        Target(command=(sys.executable, "-c", "print('hello')")),
        Target(url="http://127.0.0.1:1/mcp"),
    ],
)
def test_a_server_that_is_none_is_told_of_at_once(
    target: Target, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(make(target, timeout=60), "Without it.")
    assert "the tools of t are missing: the MCP server t" in caplog.text
    assert agent.invoke("Go").text == "Without it."


FILE = """
agents:
  one:
    model: "scripted:script.yaml"
    mcp_servers:
      tests: {{command: ["{python}", "{server}"], env: {{GREETING: "${{HELLO}}"}}, tools: [whoami]}}
  two:
    model: "scripted:script.yaml"
    mcp_servers:
      tests: {{command: ["{python}", "{server}"], env: {{GREETING: "${{HELLO}}"}}, tools: [whoami]}}
"""


def test_a_file_names_servers_and_its_agents_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELLO", "from outside")
    path = tmp_path / "agents.yaml"
    path.write_text(FILE.format(python=sys.executable, server=SERVER), encoding="utf-8")
    (tmp_path / "script.yaml").write_text(
        "steps:\n- calls: [{tool: tests_whoami}]\n- text: Done.\n", encoding="utf-8"
    )
    with load(path) as agents:
        (one,), (two,) = (heard(sync_door, agents[key]) for key in ("one", "two"))
        assert "from outside" not in repr(agents.config.agent("one"))
    assert one == two
    assert one.endswith("from outside -")
    assert gone(pid_of(one))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{}", "needs either command or url"),
        ("{command: [x], url: 'http://x'}", "needs either command or url"),
        ("{url: 'ftp://x'}", "must be a URL that begins with"),
        ("{command: [x], enviroment: {}}", "unknown key; did you mean env|unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, entry: str, says: str) -> None:
    text = f"agents:\n  default:\n    model: scripted:demo\n    mcp_servers:\n      x: {entry}\n"
    (tmp_path / "agents.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"agents\.yaml:5: agents\.default\.mcp_servers.*{says}"):
        load(tmp_path / "agents.yaml")
