"""`wick tools serve`, and HTTP tools on one's own network: from a Python function to an answer."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import SECONDS, serving
from tests.source import ROOT
from tests.support import forked
from wick_graph.cli.app import call as command
from wick_graph.cli.serve import functions
from wick_graph.config import load_config
from wick_graph.errors import ConfigError
from wick_graph.tools.http import HTTPTool

pytestmark = pytest.mark.xdist_group("tool_server")  # they share a server

MODULE = """\
import json
import time
from wick_graph import tool, ToolError

@tool
def weather(city: str, days: int = 1) -> dict:
    "Tell the weather of a city."
    if city == "Atlantis":
        raise ToolError("it is under water")
    if city == "Nowhere":
        raise RuntimeError("a defect")
    return {"city": city, "degrees": 7 * days}

@tool
async def shout(text: str) -> str:
    "Say it louder."
    return text.upper()

def helper(x: int) -> int:
    return x
"""


@contextmanager
def tools_served(folder: Path, *args: str) -> Iterator[tuple[httpx.Client, str]]:
    """Serve the module, in a process of its own."""
    (folder / "weather_tools.py").write_text(MODULE, "utf-8")
    words = [sys.executable, "-m", "wick_graph", "tools", "serve"]
    process = forked.Popen(
        [*words, *(args or ("weather_tools.py",)), "--port", "0"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        found = re.fullmatch(r"serving (.*) on (http://\S+)\n", first)
        assert found, first + process.stderr.read()
        with httpx.Client(base_url=found[2], trust_env=False, timeout=60) as http:
            yield http, found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    assert process.returncode in (0, -signal.SIGTERM, 143)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with tools_served(tmp_path_factory.mktemp("tools")) as (client, names):
        assert names == "shout, weather"
        yield client


def asked(http: httpx.Client, name: str, args: Any, **more: Any) -> httpx.Response:
    return http.post(f"/tools/{name}", json={"name": name, "args": args}, **more)


def test_functions_are_called(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    found = asked(http, "weather", {"city": "Oslo", "days": 2}).json()
    assert json.loads(found["result"]) == {"city": "Oslo", "degrees": 14}
    assert asked(http, "shout", {"text": "hi"}).json() == {"result": "HI"}


def test_what_a_function_wants_is_checked_as_an_agents_own_tool(http: httpx.Client) -> None:
    assert "city" in asked(http, "weather", {}).json()["error"]
    assert "days" in asked(http, "weather", {"city": "Oslo", "days": []}).json()["error"]
    assert asked(http, "weather", {"city": "Atlantis"}).json() == {"error": "it is under water"}
    assert "a defect" in asked(http, "weather", {"city": "Nowhere"}).json()["error"]


def test_the_list_is_what_registration_takes(http: httpx.Client) -> None:
    for tool in http.get("/tools").json()["tools"]:
        HTTPTool(**tool, callback_url="https://example.com")


@pytest.mark.sisters(8)
@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/tools/helper", b"{}", {}, 404),
        ("/tools/weather", b"{", {}, 400),
        ("/tools/weather", b"[]", {}, 400),
        ("/tools/weather", b'{"args": []}', {}, 400),
        ("/tools/weather", b'{"args": {}, "args": {}}', {}, 400),
        ("/tools/weather", b"[" * 100_000, {}, 400),
        ("/tools/weather", b"x" * 5_000_000, {}, 413),
        ("/tools/weather", b"{}", {"Content-Type": "text/plain"}, 415),
        ("/tools/weather", b"{}", {"Host": "evil.example"}, 403),
        ("/tools/weather", b"{}", {"Host": "evil.example:9100"}, 403),
    ],
)
def test_what_is_no_call_is_refused(
    http: httpx.Client, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    got = http.post(path, content=body, headers={"Content-Type": "application/json", **headers})
    assert got.status_code == status, got.text


def test_a_module_is_named_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one_tools.py").write_text(MODULE, "utf-8")
    (tmp_path / "plain_tools.py").write_text(
        "from json import loads\ndef twice(x: int) -> int:\n    'Double.'\n    return 2 * x\n"
        "def _own(): ...\n",
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert [one.name for one in functions("one_tools.py")] == ["weather", "shout"]
    assert [one.name for one in functions("one_tools")] == ["weather", "shout"]
    assert [one.__name__ for one in functions("one_tools:helper")] == ["helper"]
    assert [one.__name__ for one in functions("plain_tools.py")] == ["twice"]


BAD = {
    "missing.py": "there is no file missing.py",
    "no_such_module": "there is no module no_such_module",
    "broken.py": "cannot be loaded (ZeroDivisionError",
    "empty.py": "has no public function",
    "empty.py:x": "has no x",
    "taken.py": "ls is the name of a built-in tool",
    "untyped.py": "tool",
}


@pytest.mark.parametrize("target", BAD)
def test_a_module_that_serves_nothing_is_a_sentence(
    tmp_path: Path,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "empty.py").write_text("y = 1\n")
    (tmp_path / "taken.py").write_text("def ls(path: str) -> str:\n    'List.'\n    return path\n")
    (tmp_path / "untyped.py").write_text("def f(*args):\n    return args\n")
    assert command(["tools", "serve", target, "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert BAD[target] in said
    assert said.count("\n") == 1


ASK = {"messages": [{"role": "user", "content": "What is the weather?"}]}
TALK = json.dumps(
    {
        "steps": [
            {"calls": [{"tool": "weather", "args": {"city": "Oslo"}}], "unchecked": True},
            "I said it.",
        ]
    }
)


@pytest.mark.sisters
@pytest.mark.parametrize("door", ["file", "option"])
def test_a_tool_on_ones_own_machine_works_once_it_is_allowed(
    tmp_path: Path, door: str, http: httpx.Client
) -> None:
    origin = str(http.base_url).rstrip("/")
    agents = "agents: {default: {model: 'scripted:talk.yaml'}}\n"
    if door == "file":
        agents = f"callbacks: {{allow: ['{origin}']}}\n{agents}"
    options = ("--no-auth",) if door == "file" else ("--no-auth", "--allow-callback", origin)
    with serving(tmp_path, *options, agents=agents, talk=TALK) as served, served.http() as client:
        (tool,) = [t for t in http.get("/tools").json()["tools"] if t["name"] == "weather"]
        form = {**tool, "callback_url": origin}
        made = client.post("/agents/tools/register", json=form)
        assert made.status_code == 200, made.text
        assert made.json()["health"] == "ok"
        run = client.post("/agents/default/invoke", json=ASK).json()
        (call,) = run["tool_calls"]
        assert call["error"] is None
        assert '"degrees":7' in call["output"]

        with socket.create_server(("127.0.0.1", 0)) as other:
            at = f"http://127.0.0.1:{other.getsockname()[1]}"
            refused = client.post("/agents/tools/register", json={**tool, "callback_url": at})
        assert refused.status_code == 409
        said = refused.json()["error"]
        assert f"if it is meant, add '{at}' to callbacks: allow: in agents.yaml" in said
        assert "--allow-callback" in said


@pytest.mark.slow
def test_a_server_that_is_not_up_yet_is_registered_and_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        origin = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with (
        serving(tmp_path, "--no-auth", "--allow-callback", origin) as served,
        served.http() as client,
    ):
        form = {"name": "weather", "description": "W", "parameters": {"type": "object"}}
        made = client.post("/agents/tools/register", json={**form, "callback_url": origin})
        assert made.status_code == 200
        assert "cannot be reached" in made.json()["health"]
        assert "calls fail until it answers" in made.json()["health"]


@pytest.mark.sisters
@pytest.mark.parametrize("name", ["ls", "add", "execute", "delegate_to_agent", "list_skills"])
def test_no_built_in_tool_is_replaced(tmp_path: Path, name: str, http: httpx.Client) -> None:
    with serving(tmp_path, "--no-auth") as served, served.http() as client:
        form = {"name": name, "description": "W", "parameters": {"type": "object"}}
        got = client.post(
            "/agents/tools/register", json={**form, "callback_url": "https://example.com"}
        )
        assert got.status_code == 409
        assert "the name of a built-in tool" in got.json()["error"]


@pytest.mark.parametrize("origin", ["127.0.0.1:9100", "http://x/path", "ftp://x", "http://u@x", ""])
def test_what_is_no_origin_is_a_mistake_in_the_file(tmp_path: Path, origin: str) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(f"callbacks: {{allow: ['{origin}']}}\nagents: {{default: {{}}}}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"agents\.yaml:1: callbacks\.allow"):
        load_config(path)


def test_a_file_of_one_agent_may_allow_callbacks_too(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text("name: one\ncallbacks: {allow: ['http://127.0.0.1:9100']}\n", "utf-8")
    assert load_config(path).callbacks.allow == ("http://127.0.0.1:9100",)
