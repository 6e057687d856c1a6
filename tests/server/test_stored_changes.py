"""What a tenant changes over HTTP is in the store: all servers know it, also after a restart."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import caller
from tests.support.postgres import with_schema
from tests.support.waiting import until
from wick_graph import load
from wick_graph.loading import hooks_of
from wick_graph.server import Server
from wick_graph.service import tenants
from wick_graph.service.options import Problem, ServerOptions
from wick_graph.service.service import Tenant
from wick_graph.service.tenants import TenantAgents

ASK = {"messages": [{"role": "user", "content": "Go on."}]}
PROMPT = "prompt-4711-canary"
FILE = """\
store: 'STORE'
KEYS
agents:
  default:
    model: scripted:talk.yaml
    approvals: {calculate: true}
    tools: [calculate]
"""
TOOL = {"name": "far", "description": "Look far.", "callback_url": "http://127.0.0.1:9"}


class Two:
    """Two servers over one store, and how to open a third."""

    def __init__(self, folder: Path, store: str, keys: str = "") -> None:
        self.folder, self._stack = folder, ExitStack()
        text = FILE.replace("STORE", store).replace("KEYS", keys)
        (folder / "agents.yaml").write_text(text, "utf-8")
        (folder / "talk.yaml").write_text("steps: ['That is all.']\n", "utf-8")
        self.one, self.two = self.open("http://127.0.0.1:9"), self.open()

    def open(self, *allowed: str) -> Server:
        options = ServerOptions(port=0, allowed_callbacks=allowed)
        return self._stack.enter_context(Server(load(self.folder / "agents.yaml"), options=options))

    def http(self, server: Server, tenant: str = "anna") -> httpx.Client:
        return self._stack.enter_context(caller(server, tenant))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(params=["sqlite", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    store = f"sqlite:///{tmp_path}/wick.db"
    if request.param == "postgres":
        store = with_schema(request.getfixturevalue("postgres_server"), f"t_{secrets.token_hex(6)}")
    made = Two(tmp_path, store)
    yield made
    made.close()


def ids(http: httpx.Client) -> list[str]:
    return [agent["agent_id"] for agent in http.get("/agents").json()]


def add(http: httpx.Client, agent_id: str = "mine", **more: Any) -> httpx.Response:
    body = {"agent_id": agent_id, "model": "scripted:demo", "system_prompt": PROMPT, **more}
    return http.post("/agents", json=body)


def tools(http: httpx.Client) -> list[str]:
    return [tool["name"] for tool in http.get("/agents/tools/available").json()["tools"]]


def test_all_servers_know_what_a_tenant_changes_at_one(pair: Two) -> None:
    one, two, bert = pair.http(pair.one), pair.http(pair.two), pair.http(pair.two, "bert")
    assert add(one).status_code == 201
    assert two.post("/agents/mine/invoke", json=ASK).status_code == 200  # at once
    assert one.post("/agents/tools/register", json=TOOL).status_code == 200
    until(lambda: "far" in tools(two), "the other server does not offer the tool")
    assert one.patch("/agents/default/hooks", json={"remove": ["approvals"]}).status_code == 200
    until(
        lambda: "approvals" not in two.get("/agents/default").json()["hooks"],
        "the other server has not switched the hook off",
    )
    third = pair.http(pair.open())
    assert ids(third) == ["default", "mine"]
    assert "far" in tools(third)
    assert "approvals" not in third.get("/agents/default").json()["hooks"]

    assert ids(bert) == ["default"]
    assert bert.post("/agents/mine/invoke", json=ASK).status_code == 404
    assert bert.delete("/agents/mine").status_code == 404
    assert bert.delete("/agents/tools/deregister/far").status_code == 404
    assert "far" not in tools(bert)
    assert "approvals" in bert.get("/agents/default").json()["hooks"]

    assert two.delete("/agents/mine").status_code == 204
    assert two.delete("/agents/tools/deregister/far").status_code == 200
    until(lambda: ids(one) == ["default"], "the first server keeps a removed agent")
    until(lambda: "far" not in tools(one), "the first server keeps a removed tool")


def test_an_agent_that_is_removed_while_all_are_listed_is_left_out(
    pair: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pair.http(pair.one)
    assert add(one).status_code == 201
    found = TenantAgents.ready

    async def late(agents: TenantAgents, agent_id: str) -> Any:
        if agent_id == "mine" and agent_id in agents:
            await asyncio.to_thread(agents.remove, agent_id)
        return await found(agents, agent_id)

    monkeypatch.setattr(TenantAgents, "ready", late)
    assert ids(one) == ["default"]


def agents_at(server: Server, tenant: str = "anna") -> TenantAgents:
    return server.service._tenants[tenant].agents


def alone(monkeypatch: pytest.MonkeyPatch, http: httpx.Client) -> None:
    """From now on, let no server learn what another one has changed."""
    assert http.get("/agents").status_code == 200  # it knows what was changed so far

    async def never(tenant: Tenant, **_: Any) -> None: ...

    monkeypatch.setattr(Tenant, "refresh", never)


def test_an_agent_that_is_removed_while_it_waits_to_be_built_is_not_found(pair: Two) -> None:
    one, asked = pair.http(pair.one), threading.Event()
    assert add(one).status_code == 201
    agents = agents_at(pair.one)

    class Lock:
        def __enter__(self) -> None:
            asked.set()
            held.acquire()

        def __exit__(self, *error: object) -> None:
            held.release()

    held: Any = agents._building
    with ThreadPoolExecutor(1) as pool:
        with held:
            agents._made.clear()  # as after a change of its hooks
            agents._building = Lock()  # type: ignore[assignment]
            got = pool.submit(one.get, "/agents/mine/flow")
            assert asked.wait(30)
            agents._building = held
            agents.remove("mine")
        assert (got.result().status_code, got.result().json()) == (
            404,
            {"error": "agent not found"},
        )


def test_an_agent_has_no_hooks_of_one_that_was_removed_while_they_were_made(
    pair: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, real = pair.http(pair.one), hooks_of
    assert add(one, backend={"type": "local"}).status_code == 201
    agents = agents_at(pair.one)
    with ThreadPoolExecutor(1) as pool:

        def slow(*args: Any, **more: Any) -> Any:
            made = real(*args, **more)
            removed = pool.submit(agents.remove, "mine")
            wait([removed], timeout=0.5)  # it may have to wait for these hooks
            return made

        agents._kits.clear()  # as after a reload of the file
        monkeypatch.setattr(tenants, "hooks_of", slow)
        agents.backend("mine")
    monkeypatch.setattr(tenants, "hooks_of", real)
    assert add(one).status_code == 201
    assert one.get("/agents/mine/files/list").json() == {"error": "the agent has no backend"}


def test_what_is_kept_for_an_agent_goes_with_it(pair: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair.http(pair.one), pair.http(pair.two)
    assert add(one, backend={"type": "local"}).status_code == 201
    alone(monkeypatch, two)
    body = {**TOOL, "agent_id": "mine"}
    assert one.post("/agents/tools/register", json=body).status_code == 200
    tool = agents_at(pair.one).tools.list("mine")[0].source
    assert one.delete("/agents/mine").status_code == 204
    late = two.patch("/agents/mine/hooks", json={"remove": ["filesystem"]})  # it knows it still
    assert (late.status_code, late.json()) == (404, {"error": "agent not found"})
    with pytest.raises(Problem, match="agent not found"):
        agents_at(pair.two).register(tool, "mine")
    assert add(one, backend={"type": "local"}).status_code == 201
    assert "filesystem" in one.get("/agents/mine").json()["hooks"]
    offered = one.get("/agents/tools/available", params={"agent_id": "mine"}).json()["tools"]
    assert "far" not in [one["name"] for one in offered]


def test_no_agent_loses_one_that_it_gives_tasks_at_another_server(
    pair: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair.http(pair.one), pair.http(pair.two)
    assert [add(one, name).status_code for name in ("mine", "other")] == [201] * 2
    alone(monkeypatch, two)
    below = {"mine": {"description": "It helps."}}
    assert add(one, "boss", subagents=below).status_code == 201
    got = two.delete("/agents/mine")
    error = {"error": "the agent boss gives it tasks; remove that one first"}
    assert (got.status_code, got.json()) == (409, error)
    assert one.delete("/agents/other").status_code == 204
    got = add(two, "chief", subagents={"other": {"description": "It helps."}})
    assert (got.status_code, got.json()) == (409, {"error": "subagents: there is no agent other"})


def test_a_server_without_notices_looks_for_changes_soon_from_the_start(tmp_path: Path) -> None:
    pair = Two(tmp_path, f"sqlite:///{tmp_path}/wick.db")
    try:
        assert ids(pair.http(pair.two)) == ["default"]
        assert pair.two.service._tenants["anna"]._due <= time.monotonic() + 2
    finally:
        pair.close()


def test_an_agent_that_cannot_be_built_is_listed_with_its_provider_and_model(
    pair: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pair.http(pair.one)
    assert add(one, model={"provider": "scripted", "model": "demo"}).status_code == 201
    found = TenantAgents.ready

    async def broken(agents: TenantAgents, agent_id: str) -> Any:
        if agent_id == "mine":
            raise Problem(500, "the agent cannot be built")
        return await found(agents, agent_id)

    monkeypatch.setattr(TenantAgents, "ready", broken)
    listed = {row["agent_id"]: (row["model"], row["error"]) for row in one.get("/agents").json()}
    assert listed["mine"] == ("scripted:demo", "the agent cannot be built")
    assert listed["default"][1] is None


def test_one_id_at_two_servers_at_once_is_one_agent(pair: Two) -> None:
    both = [pair.http(pair.one), pair.http(pair.two)]
    with ThreadPoolExecutor(2) as pool:
        for number in range(3):
            got = pool.map(add, both, [f"a{number}"] * 2)
            assert sorted(answer.status_code for answer in got) == [201, 409]
    until(lambda: [len(ids(http)) for http in both] == [4, 4], "an agent is missing")


def test_each_server_checks_a_tool_s_address_by_its_own_rules(pair: Two) -> None:
    one, two = pair.http(pair.one), pair.http(pair.two)
    assert one.post("/agents/tools/register", json=TOOL).status_code == 200
    until(lambda: "far" in tools(two), "the other server does not offer the tool")
    rules = [
        server.service._tenants["anna"].agents.tools.list()[0].source.client.allow
        for server in (pair.one, pair.two)
    ]
    assert [bool(one) for one in rules] == [True, False]


def test_keys_are_stored_encrypted_only(pair: Two, tmp_path: Path) -> None:
    one = pair.http(pair.one)
    model = {"provider": "openai", "model": "m", "api_key": "sk-4711-canary"}
    got = add(one, model=model)
    if pair.one.service.file.store_url.startswith("postgres"):
        assert got.status_code == 409
        assert got.json() == {
            "error": "model.api_key: needs an encrypted store; the server has none"
        }
    else:
        assert got.status_code == 201
        assert ids(pair.http(pair.two)) == ["default"]  # it stays in the memory of one server
    for file in tmp_path.glob("wick.db*"):
        assert b"4711" not in file.read_bytes()


def test_an_encrypted_store_keeps_all_of_it_sealed(tmp_path: Path) -> None:
    key = tmp_path / "keys"
    key.write_text(b64encode(secrets.token_bytes(32)).decode(), "ascii")
    key.chmod(0o600)
    made = Two(tmp_path, f"sqlite:///{tmp_path}/wick.db", f"store_keys: 'file:{key}'")
    try:
        model = {"provider": "openai", "model": "m", "api_key": "sk-4711-canary"}
        assert add(pair_http := made.http(made.one), model=model).status_code == 201
        assert "mine" in ids(pair_http)
        assert "mine" in ids(made.http(made.open()))
        for file in tmp_path.glob("wick.db*"):
            assert b"4711" not in file.read_bytes()
    finally:
        made.close()
