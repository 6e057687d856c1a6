"""The context of a run over HTTP: sealed in the run's row, with the identity of the token."""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import SECONDS, caller, serving
from tests.support.waiting import until
from wick_graph import load
from wick_graph.client import Client
from wick_graph.server import Server

SECRET = "canary-4711-of-the-context"
APP = '''
from dataclasses import dataclass
from wick_graph import ToolContext, tool

@dataclass
class Ctx:
    user: str
    key: str

@tool(replay="safe")
def whoami(ctx: ToolContext) -> str:
    """Say who asks."""
    return f"You are {ctx.context.user}, {len(ctx.context.key)}."
'''
AGENTS = """\
store: sqlite:///wick.db
KEYS
defaults:
  model: scripted:talk.yaml
  tools: ['served_context:whoami']
  context: {use: 'served_context:Ctx', subject: user}
agents:
  default: {}
  careful: {approvals: {whoami: true}}
  slow: {model: 'scripted:slow.yaml'}
  open: {model: 'scripted:slow.yaml', context: {use: 'served_context:Ctx'}}
"""
TALK = "steps: [{calls: [{tool: whoami}]}, Done., {calls: [{tool: whoami}]}, Done.]"
SLOW = f"chunk_delay: 0.05\nsteps: ['{'word ' * 400}']\n"
KEYS = "store_keys: file:wick.keys"
ASK = {"messages": [{"role": "user", "content": "Who am I?"}]}
GIVEN = {**ASK, "context": {"key": SECRET}}


def folder(path: Path, keys: str = KEYS) -> Path:
    """Write agents that need a context; a process loads only one module of a name."""
    module = f"served_{secrets.token_hex(4)}"
    (path / f"{module}.py").write_text(APP)
    (path / "wick.keys").write_text(b64encode(secrets.token_bytes(32)).decode())
    (path / "wick.keys").chmod(0o600)
    agents = AGENTS.replace("KEYS", keys).replace("served_context", module)
    for name, text in {"talk": TALK, "slow": SLOW, "agents": agents}.items():
        (path / f"{name}.yaml").write_text(text)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(load(folder(tmp_path) / "agents.yaml"), port=0) as made:
        yield made


def output_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    (made,) = answer.json()["tool_calls"]
    output: str = made["output"]
    return output


def test_the_identity_is_the_tokens_and_nothing_is_readable(server: Server, tmp_path: Path) -> None:
    with caller(server, "acme", "run") as http:
        token = http.headers["Authorization"].split("_")[1]
        said = output_of(http.post("/agents/invoke", json=GIVEN))
        assert said == f"You are {token}, {len(SECRET)}."
        refused = http.post("/agents/invoke", json={**ASK, "context": {"user": "eve", "key": "k"}})
        assert refused.status_code == 400
        assert refused.json()["error"].endswith("comes from the token; leave it out")
        wrong = http.post("/agents/invoke", json={**ASK, "context": {"key": [SECRET]}})
        assert wrong.json()["error"].endswith("does not fit Ctx: key (string type)")
        assert http.post("/agents/invoke", json=ASK).status_code == 400
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("wick.db*"))
    assert kept
    assert SECRET.encode() not in kept


def test_a_resumed_run_keeps_the_context_of_who_asked(server: Server) -> None:
    with caller(server, "acme", "run") as http, caller(server, "acme", "approve") as boss:
        token = http.headers["Authorization"].split("_")[1]
        asked = http.post("/agents/careful/invoke", json=GIVEN).json()
        assert asked["stopped_because"] == "interrupted"
        answer = {asked["interrupts"][0]["id"]: {"decision": "approve"}}
        body = {"thread_id": asked["thread_id"], "answer": answer}
        said = output_of(boss.post("/agents/careful/resume", json=body))
        assert said == f"You are {token}, {len(SECRET)}."


def test_a_context_serves_only_the_agent_that_it_was_given_to(server: Server) -> None:
    with caller(server, "acme", "run") as http:
        given = {**ASK, "context": {"user": "eve", "key": SECRET}}  # `open` takes any name
        with http.stream("POST", "/agents/open/stream", json=given) as stream:
            run_id, thread = stream.headers["X-Run-Id"], stream.headers["X-Thread-Id"]
            next(stream.iter_lines())
            http.post(f"/runs/{run_id}/cancel")
        until(lambda: http.get(f"/runs/{run_id}").json()["status"] != "running", "it ends")
        answer = http.post("/agents/default/resume", json={"thread_id": thread})
        assert answer.status_code == 400, answer.text
        assert "does not fit Ctx: key (missing)" in answer.json()["error"]


def test_the_client_and_a_repeated_key_give_it(server: Server) -> None:
    token = server.token()
    with Client(server.url, token) as client:
        context = {"key": SECRET}
        one = client.invoke("Who am I?", context=context, idempotency_key="k")
        assert SECRET not in json.dumps(one.raw)
        again = client.invoke("Who am I?", context=context, idempotency_key="k")
        assert again.thread_id == one.thread_id
        *_, last = client.stream("Who am I?", thread_id=one.thread_id, context=context)
        assert last.event == "done"


def test_a_store_without_keys_refuses_one(tmp_path: Path) -> None:
    agents = load(folder(tmp_path, "") / "agents.yaml")
    with Server(agents, port=0, auth=False) as made:
        answer = httpx.post(f"{made.url}/agents/invoke", json=GIVEN, timeout=SECONDS)
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "the server keeps no context without encryption; set store_keys"
    }


def test_a_killed_servers_run_goes_on_with_it(tmp_path: Path) -> None:
    folder(tmp_path)
    texts: Any = {
        name: (tmp_path / f"{name}.yaml").read_text() for name in ("agents", "talk", "slow")
    }
    with serving(tmp_path, "--no-auth", "--trust", **texts) as served:
        with (
            served.http() as http,
            http.stream("POST", "/agents/slow/stream", json=GIVEN) as stream,
        ):
            run_id = stream.headers["X-Run-Id"]
            next(stream.iter_lines())
            served.kill()
        (tmp_path / "slow.yaml").write_text(TALK)
        served.start()
        with served.http() as http:
            until(lambda: http.get(f"/runs/{run_id}").json()["status"] != "running", "it ends")
            found = http.get(f"/runs/{run_id}").json()
            assert found["status"] == "done"
            events = http.get(f"/runs/{run_id}/events").text
    assert f"You are local, {len(SECRET)}." in events
    assert SECRET not in events
