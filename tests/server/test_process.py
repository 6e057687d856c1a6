"""A server that a program builds: in the background, and mounted in another application."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI

from wick_graph import Agent, Server, SqlSaver, load, tool
from wick_graph.backends import LocalBackend
from wick_graph.client import Client
from wick_graph.errors import ConfigError, StorageError
from wick_graph.hooks import ApprovalHook, FilesystemHook
from wick_graph.server import ServerOptions
from wick_graph.service.service import Service
from wick_graph.store import SqlStore
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call
from wick_graph.tools.builtin_tools import builtin

ASK: Any = {"messages": [{"role": "user", "content": "Shout."}]}


def shout(text: str) -> str:
    """Write in capital letters."""
    return text.upper()


def made(name: str = "loud", **more: Any) -> Agent:
    return Agent(name, ScriptedModel([call("shout", text="hi"), "HI, it is."] * 9), **more)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with_tool = Server(port=0)
    with_tool.register_agent(made())
    with_tool.register_agent(made("second"), "other")
    with_tool.register_tool(shout)
    with with_tool:
        yield with_tool


SERVED = """
import gc, os, signal, sys
from pathlib import Path
from wick_graph.config import load_config
from wick_graph.server import ServerOptions, Service, create_app
from wick_graph.server.process import serve

def ready(address):
    print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0] > 700)
    os.kill(os.getpid(), signal.SIGTERM)

service = Service(load_config(Path(sys.argv[1])), ServerOptions(port=0))
serve(create_app(service), service, ready=ready)
"""


def test_a_process_of_our_own_collects_less_often(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text("agents:\n  a: {model: 'scripted:demo'}\n", "utf-8")
    command = [sys.executable, "-c", SERVED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "True"]


def test_a_server_in_a_program_leaves_its_collector_alone() -> None:
    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    server = Server(port=0)
    server.register_agent(made())
    with server:
        assert httpx.get(f"{server.url}/health").is_success
        assert gc.get_freeze_count() <= frozen  # what was frozen may have ended
        assert gc.get_threshold() == thresholds


def test_tenants_are_apart_and_have_the_same_tools(server: Server, tmp_path: Path) -> None:
    for tenant in ("local", "anna"):
        with Client(server.url, server.token(tenant)) as client:
            done = client.invoke("Shout.", agent="loud", thread_id="t")
            assert (done.text, done.tool_calls[0]["output"]) == ("HI, it is.", "HI")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        assert http.get("/threads/t").status_code == 401
        bearer = {"Authorization": f"Bearer {server.token('bert', scope='read')}"}
        assert http.get("/threads/t", headers=bearer).status_code == 404
        listed = http.get("/agents/", headers=bearer).json()
        assert [(one["agent_id"], one["tools"]) for one in listed] == [
            ("loud", ["shout"]),
            ("other", ["shout"]),
        ]
    assert (tmp_path / "checkpoints" / "wick.db").exists()


def test_openai_s_client_speaks_to_it(server: Server) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token())
    said = client.chat.completions.create(
        model="other", messages=[{"role": "user", "content": "Shout."}]
    )
    assert said.choices[0].message.content == "HI, it is."


def test_it_stops_and_starts_again(server: Server) -> None:
    token, before = server.token(), server.url
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{before}/health", trust_env=False, timeout=60)
    server.start()
    bearer = {"Authorization": f"Bearer {token}"}
    assert (
        httpx.get(f"{server.url}/agents/", headers=bearer, trust_env=False, timeout=60).status_code
        == 200
    )


def test_the_agents_of_a_file_get_the_programs_tools(tmp_path: Path) -> None:
    (tmp_path / "talk.yaml").write_text(
        "steps: [{calls: [{tool: shout, args: {text: hi}}]}, 'HI, it is.']\n", "utf-8"
    )
    (tmp_path / "agents.yaml").write_text(
        "agents: {default: {model: 'scripted:talk.yaml'}}\n", "utf-8"
    )
    one = Server(load("agents.yaml"), port=0, auth=False)
    one.register_tool(shout, agent="default")
    with one, Client(one.url) as client:
        assert client.invoke("Shout.").tool_calls[0]["output"] == "HI"


@contextlib.asynccontextmanager
async def mounted(server: Server, *, together: bool) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI(lifespan=server.lifespan if together else None)

    @app.get("/own")
    def own() -> str:
        return "mine"

    app.mount("/wick", server.app)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        yield http


@pytest.mark.parametrize("together", [True, False])
async def test_it_is_mounted_in_another_application(together: bool) -> None:
    server = Server(made(tools=[tool(shout)]), auth=False)
    async with mounted(server, together=together) as http:
        assert (await http.get("/own")).json() == "mine"
        done = (await http.post("/wick/agents/loud/invoke", json=ASK)).json()
        assert done["response"] == "HI, it is."
        lost = await http.get("/wick/v1/models/none")
        assert (lost.status_code, lost.json()["error"]["type"]) == (404, "invalid_request_error")
        assert (await http.get("/wick/nothing")).json() == {"error": "not found"}


async def test_a_mounted_server_asks_for_tokens() -> None:
    server = Server(made(tools=[tool(shout)]))
    async with mounted(server, together=True) as http:
        assert (await http.post("/wick/agents/loud/invoke", json=ASK)).status_code == 401
        assert (await http.get("/wick/health")).status_code == 200
        bearer = {"Authorization": f"Bearer {server.token()}"}
        done = await http.post("/wick/agents/loud/invoke", json=ASK, headers=bearer)
        assert done.status_code == 200


def test_a_port_that_is_taken_is_said_and_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Server(made(tools=[tool(shout)]), port=taken.getsockname()[1], auth=False)
        with pytest.raises(ConfigError, match="cannot serve on 127.0.0.1"):
            server.start()
        server.stop()
    with server, Client(server.url) as client:
        assert client.invoke("Shout.").text == "HI, it is."


async def test_served_alone_it_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server, entered = Server(made(tools=[tool(shout)]), auth=False), list[int]()
    running = server.service.running

    def counted() -> Any:
        entered.append(1)
        return running()

    monkeypatch.setattr(server.service, "running", counted)
    sent: asyncio.Queue[Any] = asyncio.Queue()
    asked: asyncio.Queue[Any] = asyncio.Queue()
    asked.put_nowait({"type": "lifespan.startup"})
    life = asyncio.create_task(server.app({"type": "lifespan"}, asked.get, sent.put))
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    transport = httpx.ASGITransport(server.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.post("/agents/loud/invoke", json=ASK)).status_code == 200
    asked.put_nowait({"type": "lifespan.shutdown"})
    assert (await sent.get())["type"] == "lifespan.shutdown.complete"
    await life
    assert entered == [1]
    with pytest.raises(ConfigError, match="mounted"):
        server.start()


async def test_ids_are_what_threads_and_approvals_know() -> None:
    asking = made(tools=[tool(shout)], hooks=[ApprovalHook({"shout": True})])
    other = made(tools=[tool(shout)])
    server = Server({"other": other, "asking": asking}, auth=False)
    async with mounted(server, together=True) as http:
        waits = (await http.post("/wick/agents/asking/invoke", json=ASK)).json()
        assert (await http.get(f"/wick/threads/{waits['thread_id']}")).json()["agent"] == "asking"
        found = (await http.get(f"/wick/threads/{waits['thread_id']}/approvals")).json()
        assert len(found) == 1


def with_files() -> Agent:
    (Path.cwd() / "desk").mkdir()
    return made(hooks=[FilesystemHook(LocalBackend(Path.cwd() / "desk"))])


def above() -> Agent:
    child = made("child", store="sqlite:///x.db")
    return made("boss", tools=[delegation({"child": Subagent(child, "Shouts.")})])


def refused() -> dict[str, Any]:
    def twice() -> None:
        one = Server(made())
        one.register_agent(made())

    def late() -> None:
        one = Server(made(), port=0)
        with one:
            one.register_tool(shout)

    return {
        "there is nothing to serve": lambda: Server().start(),
        "there is an agent loud already": twice,
        "register tools before it starts": late,
        "leave store= of the agent loud out": lambda: Server(made(store=False)).start(),
        "would share the files of the agent loud": lambda: Server(with_files()).start(),
        "would share the long-term store of the agent loud": lambda: Server(
            made(long_term=SqlStore.from_url("sqlite://"))
        ).start(),
        "would share the sub-agents of the agent boss": lambda: Server(above()).start(),
        "has an open store; pass the URL": lambda: Server(
            made(store=SqlSaver.from_url("sqlite://"))
        ).start(),
        "would be open to everyone": lambda: Server(made(), host="0.0.0.0", auth=False),
        "an agent's id has up to 64": lambda: Server({"a b": made()}).start(),
        "on_disconnect must be": lambda: Server(
            options=ServerOptions(on_disconnect="stop")  # type: ignore[arg-type]
        ),
    }


@pytest.mark.parametrize("sentence", refused())
def test_what_cannot_be_served_is_said(sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        refused()[sentence]()


def test_it_is_started_and_stopped_again_and_again() -> None:
    server = Server(made(tools=[tool(shout)]), port=0, auth=False)
    assert server.url == ""
    server.stop()
    url = server.start().url
    assert server.start().url == url
    with pytest.raises(ConfigError, match="register agents before it starts"):
        server.register_agent(made("late"))
    with pytest.raises(ConfigError, match="runs in a thread of its own"):
        _ = server.app
    server.stop()
    server.stop()
    assert server.url == ""
    server.register_agent(made("late", tools=[tool(shout)]))
    with server, Client(server.url) as client:
        assert client.invoke("Shout.", agent="late").text == "HI, it is."


def test_a_closed_agent_is_served() -> None:
    agent = made(tools=[tool(shout)])
    agent.close()
    with Server(agent, port=0, auth=False) as server, Client(server.url) as client:
        assert client.invoke("Shout.").text == "HI, it is."


def test_a_tool_that_comes_twice_is_offered_once() -> None:
    server = Server(made(tools=[tool(shout)]), port=0, auth=False)
    server.register_tool(shout)
    server.register_tool(shout, agent="loud")
    with pytest.raises(ConfigError, match="a tool called shout is registered already"):
        server.register_tool(shout)
    with server, httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        assert http.get("/agents/loud").json()["tools"] == ["shout"]


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def recover(service: Service) -> None:
        raise StorageError("the database is gone; bring it back")

    monkeypatch.setattr(Service, "recover", recover)


def test_the_reason_of_a_failed_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(made(), port=0, auth=False)
    with monkeypatch.context() as patch:
        failing(patch)
        with pytest.raises(ConfigError, match="cannot start: the database is gone; bring it back"):
            server.start()
    with server:
        assert server.url


async def test_a_server_around_it_learns_that_it_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch)
    server = Server(made(), auth=False)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await server.app({"type": "lifespan"}, receive, send)
    reason = "the database is gone; bring it back"
    assert sent == [{"type": "lifespan.startup.failed", "message": reason}]
    server.service.close()


TALK = """
steps:
- {calls: [{tool: calculate, args: {expression: 21*2}}]}
- It is 42.
"""


def of_file() -> Any:
    Path("talk.yaml").write_text(TALK, "utf-8")
    text = "agents: {sums: {model: 'scripted:talk.yaml', tools: [calculate]}}\n"
    Path("agents.yaml").write_text(text, "utf-8")
    return load("agents.yaml")


def of_code() -> Agent:
    return Agent("sums", "scripted:talk.yaml", tools=builtin(["calculate"], Path.cwd()))


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events without ids and times; pieces of text that a reader gets at once are one."""
    changing = {"run_id", "thread_id", "trace_id", "total_duration_ms", "usage"}

    def kept(value: dict[str, Any]) -> dict[str, Any]:
        return {key: one for key, one in value.items() if key not in changing}

    told: list[dict[str, Any]] = []
    for event in events:
        one = {**kept(event), "data": kept(event.get("data", {}))}
        if one["event"] == "on_chat_model_stream":
            one["data"] = one["data"]["delta"]
            if told and told[-1]["event"] == one["event"]:
                told[-1]["data"] += one["data"]
                continue
        told.append(one)
    return told


def of_stream(text: str) -> list[dict[str, Any]]:
    lines = (line for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_a_file_python_and_a_mounted_agent_give_equal_events() -> None:
    ask = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
    found: dict[str, list[dict[str, Any]]] = {}
    with of_file() as file, of_code() as agent:
        found["file"] = [event.to_dict() for event in file["sums"].stream("What is 21*2?")]
        found["python"] = [event.to_dict() for event in agent.stream("What is 21*2?")]
    for name, agents in (("served file", of_file()), ("served python", of_code())):
        with Server(agents, port=0, auth=False) as server:
            url = f"{server.url}/agents/sums/stream"
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                found[name] = of_stream((await client.post(url, json=ask)).text)
    async with mounted(Server(of_code(), auth=False), together=True) as http:
        found["mounted"] = of_stream((await http.post("/wick/agents/sums/stream", json=ask)).text)
    told = {name: plain(events) for name, events in found.items()}
    kinds = [event["event"] for event in told["file"]]
    assert kinds.count("on_tool_end") == 1
    assert kinds[-1] == "done"
    for name, events in told.items():
        assert events == told["file"], name
