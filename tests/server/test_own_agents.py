"""Agents that a caller adds over HTTP: what they may have, and what never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.support import Served, serving
from tests.support.provider import Call, Provider, Reply
from wick_graph.config import AgentConfig
from wick_graph.service.options import Problem
from wick_graph.service.tenants import check_parts

pytestmark = pytest.mark.xdist_group("own_agents")  # they share a server

ASK = {"messages": [{"role": "user", "content": "Go on."}]}
KEY = "sk-server-4711-canary"
SKILL = "---\nname: knit\ndescription: Knit a scarf.\n---\nTwo needles.\n"
AGENTS = """\
store: sqlite:///kept/wick.db
callbacks: {allow: [ORIGIN]}
agents:
  default:
    model: scripted:talk.yaml
    backend: {type: local, execute: 'off'}
    approvals: {write_file: true}
  code:
    model: {use: 'served_code:model'}
    tools: ['served_code:secret']
"""
CODE = '''
from wick_graph.testing import ScriptedModel, call

def secret() -> str:
    """Tell."""
    return "told"

def model():
    return ScriptedModel([call("secret"), "done"])
'''


@pytest.fixture(scope="module")
def model() -> Iterator[Provider]:
    """A server of models on loopback that the file allows."""
    made = Provider()
    made.lifetime = 300.0
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, model: Provider) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("own") / "app"
    (folder / "kept").mkdir(parents=True)
    (folder / "workspace/skills/knit").mkdir(parents=True)
    (folder / "workspace/skills/knit/SKILL.md").write_text(SKILL, "utf-8")
    (folder / "served_code.py").write_text(CODE, "utf-8")
    origin = httpx.URL(model.url)
    agents = AGENTS.replace("ORIGIN", f"'http://{origin.host}:{origin.port}'")
    env = {
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "OPENAI_ORG_ID": KEY,
        "OPENAI_ADMIN_KEY": KEY,
        "OPENAI_PROXY": f"http://{KEY}:x@127.0.0.1:1",
        "HTTP_PROXY": f"http://{KEY}:x@127.0.0.1:1",
        "ALL_PROXY": f"http://{KEY}:x@127.0.0.1:1",
    }
    talk = json.dumps({"steps": ["That is all."]})
    with serving(folder, "--host", "127.0.0.1", "--trust", env=env, agents=agents, talk=talk) as it:
        yield it


@pytest.fixture(scope="module")
def anna(served: Served) -> Iterator[httpx.Client]:
    with served.http(
        served.wick("token", "create", "--tenant", "anna", "--scope", "admin")
    ) as http:
        yield http


@pytest.fixture(scope="module")
def bert(served: Served) -> Iterator[httpx.Client]:
    with served.http(
        served.wick("token", "create", "--tenant", "bert", "--scope", "admin")
    ) as http:
        yield http


@pytest.fixture(autouse=True)
def _removed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "anna" in request.fixturenames:
        http = request.getfixturevalue("anna")
        for _ in range(2):  # one may give tasks to another
            for agent in http.get("/agents").json():
                http.delete(f"/agents/{agent['agent_id']}")


def add(http: httpx.Client, agent_id: str = "mine", **keys: Any) -> httpx.Response:
    return http.post("/agents", json={"agent_id": agent_id, "model": "scripted:demo", **keys})


def upload(
    http: httpx.Client, path: str, content: str, agent_id: str = "default"
) -> httpx.Response:
    form = {"path": path, "content": content, "agent_id": agent_id}
    return http.put("/agents/files/upload", json=form)


def test_files_skills_and_memory_are_the_tenants_own(
    served: Served, anna: httpx.Client, bert: httpx.Client
) -> None:
    there = served.path / "workspace.tenants/anna"
    (there / "abilities/weave").mkdir(parents=True)
    (there / "abilities/weave/SKILL.md").write_text(SKILL.replace("knit", "weave"), "utf-8")
    assert upload(anna, "notes.md", "Anna likes tea.").is_success
    made = add(
        anna,
        backend={"type": "local", "execute": "off"},
        skills={"paths": ["abilities"]},
        memory={"paths": ["notes.md"]},
    )
    assert made.status_code == 201, made.text
    assert made.json()["hooks"][2:6] == ["filesystem", "skills", "memory", "summarization"]
    assert [one["name"] for one in anna.get("/agents/mine/skills").json()["skills"]] == ["weave"]
    assert upload(anna, "hers.txt", "hers", "mine").is_success
    assert {one.name for one in there.iterdir()} >= {"hers.txt", "notes.md", "abilities"}
    assert bert.get("/agents/mine").status_code == 404
    assert add(bert, backend={"type": "local", "execute": "off"}).status_code == 201
    assert bert.get("/agents/mine/files/read", params={"path": "hers.txt"}).status_code == 404
    bert.delete("/agents/mine")


def test_skills_of_the_server_s_own_folder_are_not_found(anna: httpx.Client) -> None:
    backend = {"type": "local", "execute": "off"}
    assert add(anna, backend=backend, skills={"paths": ["skills"]}).status_code == 201
    assert anna.get("/agents/mine/skills").json()["skills"] == []


def test_no_agent_of_the_tenant_writes_its_skills(served: Served, anna: httpx.Client) -> None:
    backend = {"type": "local", "execute": "off"}
    assert upload(anna, "guides/a/help.txt", "good").is_success
    assert add(anna, backend=backend, skills={"paths": ["guides"]}).status_code == 201
    for agent in ("mine", "default"):
        refused = upload(anna, "guides/a/help.txt", "evil", agent)
        assert refused.status_code == 409
        assert "governs agents" in refused.text


def test_tasks_go_to_agents_of_the_tenant(anna: httpx.Client) -> None:
    below = {"helper": {"description": "Helps."}}
    unknown = add(anna, subagents=below)
    assert (unknown.status_code, "there is no agent helper" in unknown.text) == (409, True)
    assert add(anna, "helper").status_code == 201
    made = add(anna, subagents={**below, "code": {"description": "Knows.", "background": True}})
    assert made.status_code == 201, made.text
    assert made.json()["subagents"] == ["helper", "code"]
    assert {"delegate_to_agent", "start_async_task"} <= {*made.json()["tools"]}
    assert anna.post("/agents/mine/invoke", json=ASK).status_code == 200
    held = anna.delete("/agents/helper")
    assert (held.status_code, "gives it tasks" in held.text) == (409, True)
    loose = {"code": {"description": "Knows.", "inherit_approvals": False}}
    assert "inherit_approvals: unknown field" in add(anna, "loose", subagents=loose).text


SERVERS = {
    "workdir": "/",
    "folder": "/",
    "readable": ["/etc"],
    "image": "evil",
    "docker_host": "tcp://10.0.0.1:2375",
}


@pytest.mark.parametrize("kind", ["local", "docker"])
@pytest.mark.parametrize("key", SERVERS)
def test_what_the_server_decides_is_refused_by_name(
    anna: httpx.Client, kind: str, key: str
) -> None:
    got = add(anna, backend={"type": kind, key: SERVERS[key]})
    assert got.status_code == 400
    assert got.json()["error"] == f"backend: the server chooses {key}; leave it out"
    assert anna.get("/agents/mine").status_code == 404


@pytest.mark.parametrize("level", ["local", "Local", "none", None, "", "auto ", True])
def test_no_command_runs_without_a_sandbox(anna: httpx.Client, level: Any) -> None:
    got = add(anna, backend={"type": "local", "execute": level})
    assert got.status_code == 400, got.text
    assert "backend.execute" in got.json()["error"]


OUTSIDE = (
    *("/etc", "/", "~", "~root", "..", "../x", "a/../../x", ".", "./a", "a/.", "", "a//b"),
    *("a\\b", "C:\\x", "a\0b", "a\nb", ".git/hooks", "$HOME", "%2e%2e/x", "a:b", "x" * 5_000),
)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("key", ["skills", "memory"])
def test_no_path_leads_out_of_the_folder(anna: httpx.Client, key: str, path: str) -> None:
    end = ".md" if key == "memory" and path.startswith((".", "/", "~", "a")) else ""
    backend = {"type": "local", "execute": "off"}
    block: dict[str, Any] = {key: {"paths": [path + end]}}
    got = add(anna, backend=backend, **block)
    assert got.status_code == 400, got.text
    assert got.json()["error"].startswith(key)


@pytest.mark.parametrize("path", ["Makefile", "conftest.py", "a/.env", "hooks/pre-commit"])
def test_memory_is_a_text(anna: httpx.Client, path: str) -> None:
    got = add(anna, backend={"type": "local", "execute": "off"}, memory={"paths": [path]})
    assert got.status_code == 400


def test_no_link_leads_out_of_the_folder(served: Served, anna: httpx.Client) -> None:
    """Commands in a sandbox can make links; so can an upload of the past."""
    there = served.path / "workspace.tenants/anna"
    there.mkdir(parents=True, exist_ok=True)
    secret = served.path / "kept/linked/evil"
    secret.mkdir(parents=True)
    (secret / "SKILL.md").write_text(SKILL, "utf-8")
    (served.path / "kept/hidden.md").write_text("hidden", "utf-8")
    (there / "linked").symlink_to(served.path / "kept/linked")
    (there / "linked.md").symlink_to(served.path / "kept/hidden.md")
    try:
        backend = {"type": "local", "execute": "off"}
        keys: dict[str, Any] = {"skills": {"paths": ["linked"]}}
        keys["memory"] = {"paths": ["linked.md"]}
        made = add(anna, backend=backend, **keys)
        assert made.status_code == 201, made.text
        assert anna.get("/agents/mine/skills").json().get("skills", []) == []
        for path in ("linked/evil/SKILL.md", "linked.md", f"{there}/linked/evil/SKILL.md"):
            got = anna.get("/agents/mine/files/read", params={"path": path})
            assert got.status_code != 200, got.text
        assert upload(anna, "linked.md", "evil", "mine").status_code != 200
        assert (served.path / "kept/hidden.md").read_text("utf-8") == "hidden"
    finally:
        (there / "linked").unlink()
        (there / "linked.md").unlink()


CODE_KEYS: dict[str, Any] = {
    "hooks": [{"use": "served_code:secret"}],
    "middleware": [{"use": "served_code:secret"}],
    "mcp_servers": {"x": {"command": ["touch", "ran"]}},
    "protect": [],
    "writable": ["*"],
    "approvals": {},
    "search": {"url": "http://127.0.0.1"},
}


@pytest.mark.parametrize("key", CODE_KEYS)
def test_no_other_key_is_taken(anna: httpx.Client, key: str) -> None:
    got = add(anna, **{key: CODE_KEYS[key]})
    assert (got.status_code, got.json()["error"]) == (400, f"{key}: unknown field")


@pytest.mark.parametrize("name", ["served_code:secret", "os:system", "./x:y", "subprocess:run"])
def test_no_caller_names_code(anna: httpx.Client, name: str) -> None:
    assert add(anna, tools=[name]).status_code == 400
    assert add(anna, model=name).status_code == 409
    for block in ({"use": name}, {"use": name, "model": "x"}, {"model": name}):
        assert add(anna, model=block).status_code in (400, 409)
    assert add(anna, model={"model": "x", "fallbacks": [name]}).status_code == 409
    assert anna.get("/agents/mine").status_code == 404


def test_code_of_the_file_is_every_tenants(anna: httpx.Client) -> None:
    got = anna.post("/agents/code/invoke", json=ASK).json()
    assert [(call["name"], call["output"]) for call in got["tool_calls"]] == [("secret", "told")]


def block(model: Provider, **more: Any) -> dict[str, Any]:
    return {"model": "m", "base_url": model.url, "api_key": "sk-annas", **more}


def test_a_model_behind_an_allowed_address_gets_the_caller_s_key_alone(
    anna: httpx.Client, model: Provider
) -> None:
    before = len(model.requests)
    model.say(Reply(calls=[Call(name="calculate", args={"expression": "6*7"}, id="c")]), "42.")
    made = add(anna, model=block(model), tools=["calculate"])
    assert made.status_code == 201, made.text
    got = anna.post("/agents/mine/invoke", json=ASK)
    assert got.json()["response"] == "42.", got.text
    model.say("Streamed.")
    with anna.stream("POST", "/agents/mine/stream", json=ASK) as stream:
        assert "event: done" in "".join(stream.iter_text())
    asked = model.requests[before:]
    assert len(asked) >= 3
    for request in asked:
        assert request.headers["authorization"] == "Bearer sk-annas"
        assert KEY not in json.dumps([dict(request.headers), request.body])
    assert "sk-annas" not in anna.get("/agents/mine").text


WITHOUT_A_KEY: dict[str, dict[str, Any]] = {
    "none": {},
    "empty": {"api_key": ""},
    "blank": {"api_key": "  "},
    "null": {"api_key": None},
    "a variable": {"api_key": "${OPENAI_API_KEY}"},
    "part of a variable": {"api_key": "x${OPENAI_API_KEY:-}"},
    "a line": {"api_key": "x\r\nX-Evil: 1"},
    "named": {"provider": "openai"},
    "in the name": {"model": "openai:m"},
    "another provider": {"provider": "anthropic", "api_key": "k"},
    "another in the name": {"model": "anthropic:m", "api_key": "k"},
    "ollama": {"provider": "ollama", "api_key": "k"},
    "auto": {"provider": "auto", "api_key": "k"},
    "a parameter": {"api_key": "k", "params": {"default_headers": {"a": "b"}}},
    "an address as parameter": {"api_key": "k", "params": {"openai_api_base": "http://x"}},
}


@pytest.mark.parametrize("what", WITHOUT_A_KEY)
@pytest.mark.parametrize("place", ["model", "fallbacks"])
def test_a_key_of_the_server_never_goes_to_an_address_of_a_caller(
    anna: httpx.Client, model: Provider, what: str, place: str
) -> None:
    before = len(model.requests)
    target = {"model": "m", "base_url": model.url, **WITHOUT_A_KEY[what]}
    given = target if place == "model" else {"model": "scripted:demo", "fallbacks": [target]}
    got = add(anna, model=given)
    assert got.status_code in (400, 409), got.text
    assert got.json()["error"].startswith("model"), got.text
    assert KEY not in got.text
    assert anna.get("/agents/mine").status_code == 404
    assert len(model.requests) == before


@pytest.mark.parametrize("key", ["openai_api_base", "base_url", "http_client", "openai_proxy"])
def test_parameters_of_a_model_s_class_are_the_server_s(anna: httpx.Client, key: str) -> None:
    got = add(anna, model={"model": "openai:m", "api_key": "k", "params": {key: "http://x"}})
    assert (got.status_code, "model.params" in got.text) == (409, True)


ADDRESSES = (
    *("http://127.0.0.1:1/v1", "http://localhost/v1", "http://[::1]/v1", "http://10.0.0.1/v1"),
    *("http://169.254.169.254/v1", "http://metadata.google.internal/v1", "http://0/v1"),
    *("http://2130706433/v1", "http://[::ffff:127.0.0.1]/v1", "http://user:pw@127.0.0.1/v1"),
    *("http://8.8.8.8:22/v1", "file:///etc/passwd", "ftp://x/v1", "http://x/#y", "http:///v1"),
    *("http://no-such-host.invalid/v1", "${OPENAI_BASE_URL}", "http://a b/v1"),
)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("place", ["model", "fallbacks"])
def test_an_address_passes_the_rules_of_the_web(
    anna: httpx.Client, address: str, place: str
) -> None:
    target = {"model": "m", "base_url": address, "api_key": "k"}
    given = target if place == "model" else {"model": "scripted:demo", "fallbacks": [target]}
    got = add(anna, model=given)
    assert got.status_code in (400, 409), got.text
    assert got.json()["error"].startswith("model")
    assert anna.get("/agents/mine").status_code == 404


def test_an_answer_that_redirects_leads_nowhere(anna: httpx.Client, model: Provider) -> None:
    before = len(model.requests)
    model.say(Reply(status=302, headers={"Location": "http://127.0.0.1:1/v1"}))
    assert add(anna, model={**block(model), "retries": 0}).status_code == 201
    got = anna.post("/agents/mine/invoke", json=ASK)
    assert got.json().get("response", "") == ""
    assert len(model.requests) == before + 1


def test_agents_of_one_s_own_are_few(anna: httpx.Client) -> None:
    for number in range(100):
        assert add(anna, f"n{number}").status_code == 201
    got = add(anna, "more")
    assert (got.status_code, "100 agents of your own" in got.text) == (409, True)


def test_only_admin_adds_agents(served: Served) -> None:
    for scope in ("read", "run", "approve"):
        token = served.wick("token", "create", "--tenant", "anna", "--scope", scope)
        with served.http(token) as http:
            assert add(http).status_code == 403


def test_docker_takes_no_level() -> None:
    config = AgentConfig.model_validate({"backend": {"type": "docker", "execute": "auto"}})
    with pytest.raises(Problem) as caught:
        check_parts(config)
    assert caught.value.error == "backend.execute: is for type: local; leave it out"
