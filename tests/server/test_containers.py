"""Containers over HTTP, on a real engine: listed, stopped and restarted, a tenant's own only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.support import caller
from tests.server.test_event_bus import following
from tests.support.containers import IMAGE, ContainerEngine
from tests.support.waiting import until
from wick_graph import Server, load
from wick_graph.server import ServerOptions

pytestmark = pytest.mark.xdist_group("containers")  # they share an engine and a server

ASK: Any = {"messages": [{"role": "user", "content": "Go on."}]}
AGENTS = """\
store: sqlite:///wick.db
agents:
  default:
    model: scripted:talk.yaml
    backend: {type: docker, folder: ./box, image: IMAGE, docker_host: 'HOST'}
  plain: {model: 'scripted:demo', backend: {type: local, execute: 'off'}}
  lost:
    model: scripted:demo
    backend: {type: docker, folder: ./lost, image: IMAGE, docker_host: 'unix:///no/secret.sock'}
"""
COMMANDS = ("echo began > began; sleep 100; echo late > late", "cat began", "echo third")
SECONDS = 60.0


@pytest.fixture(scope="module")
def server(
    container_engine: ContainerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("containers")
    text = AGENTS.replace("IMAGE", IMAGE).replace("HOST", container_engine.host)
    (folder / "agents.yaml").write_text(text, "utf-8")
    steps: list[Any] = [{"calls": [{"tool": "execute", "args": {"command": c}}]} for c in COMMANDS]
    (folder / "talk.yaml").write_text(json.dumps({"steps": [*steps, "Done."]}), "utf-8")
    with Server(load(folder / "agents.yaml"), options=ServerOptions(port=0)) as made:
        yield made


@pytest.fixture
def anna(server: Server) -> Iterator[httpx.Client]:
    with caller(server, "anna") as http:
        yield http


def act(http: httpx.Client, action: Any, agent_id: str = "default") -> httpx.Response:
    return http.post(f"/agents/{agent_id}/container", json={"action": action})


def listed(http: httpx.Client) -> dict[str, Any]:
    return {one["agent_id"]: one for one in http.get("/containers").json()}


def test_a_container_is_listed_restarted_and_stopped(server: Server, anna: httpx.Client) -> None:
    assert act(anna, "stop").json()["container_status"] == "idle"
    assert listed(anna)["default"]["containers"] == []
    with following(anna) as told, caller(server, "bert") as bert:
        done = act(anna, "restart")
        assert done.json() == {
            **{"agent_id": "default", "action": "restart"},
            "container_status": "launched",
        }
        (first,) = listed(anna)["default"]["containers"]
        assert first.startswith("wick-sandbox-")
        assert listed(bert).get("default", {"containers": []})["containers"] == []
        assert act(bert, "stop").status_code == 200
        assert listed(anna)["default"]["containers"] == [first], "bert's stop ended anna's"
        assert act(anna, "restart").is_success
        (second,) = listed(anna)["default"]["containers"]
        assert second != first
        assert act(anna, "stop").json()["container_status"] == "idle"
        assert listed(anna)["default"] == {
            **{"agent_id": "default", "container_status": "idle", "containers": []}
        }
        seen = [told.next()[1:] for _ in range(6)]
    assert {name for name, _ in seen} == {"container_status"}
    assert [data["container_status"] for _, data in seen] == [
        *("launching", "launched", "idle", "launching", "launched", "idle")
    ]
    assert {data["agent_id"] for _, data in seen} == {"default"}


def test_a_command_fails_clearly_and_the_next_gets_a_new_container(
    server: Server, anna: httpx.Client
) -> None:
    answer: list[Any] = []

    def run() -> None:
        with caller(server, "anna") as http:
            answer.append(http.post("/agents/default/invoke", json=ASK).json())

    running = threading.Thread(target=run)
    running.start()
    files = ("/agents/default/files/read", {"path": "began"})
    until(lambda: anna.get(files[0], params=files[1]).is_success, "the command did not begin")
    (first,) = listed(anna)["default"]["containers"]
    assert act(anna, "stop").is_success
    running.join(SECONDS)
    calls = answer[0]["tool_calls"]
    assert "the container was stopped" in calls[0]["error"]
    assert "next command gets a new container" in calls[0]["error"]
    assert json.loads(calls[1]["output"])["stdout"] == "began\n"
    assert answer[0]["response"] == "Done."
    (second,) = listed(anna)["default"]["containers"]
    assert second != first
    late = anna.get("/agents/default/files/read", params={"path": "late"})
    assert late.status_code == 404, "the stopped command went on"
    act(anna, "stop")


@pytest.mark.slow
def test_an_agent_of_a_tenant_has_a_container_and_reads_uploaded_skills(
    server: Server,
    anna: httpx.Client,
    container_engine: ContainerEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.host)
    text = "---\nname: knit\ndescription: Knit.\n---\nTwo needles.\n"
    assert anna.put("/skills/knit", json={"files": {"SKILL.md": text}}).is_success
    agent = {"agent_id": "mine", "model": "scripted:demo", "backend": {"type": "docker"}}
    made = anna.post("/agents", json={**agent, "skills": {"paths": []}})
    assert made.status_code == 201, made.text
    assert act(anna, "restart", "mine").json()["container_status"] == "launched"
    (skill,) = anna.get("/agents/mine/skills").json()["skills"]
    (backend,) = server.service._tenants["anna"].agents.containers()["mine"]
    done = backend.exec(f"tail -n 1 {skill['path']}; echo evil > {skill['path']}")
    assert done.stdout == "Two needles.\n"
    assert "Read-only" in done.stderr
    assert anna.delete("/agents/mine").is_success
    assert "mine" not in listed(anna)
    anna.delete("/skills/knit")


@pytest.mark.parametrize("action", ["stop", "restart"])
def test_an_agent_without_containers_says_so(anna: httpx.Client, action: str) -> None:
    got = act(anna, action, "plain")
    assert got.status_code == 409
    assert got.json()["error"] == (
        "the agent plain has no container; give it a backend of type docker"
    )
    assert act(anna, action, "none").status_code == 404


def test_an_engine_that_does_not_answer_is_said_without_its_address(anna: httpx.Client) -> None:
    got = act(anna, "restart", "lost")
    assert got.status_code == 503
    assert "secret.sock" not in got.text
    assert listed(anna)["lost"]["container_status"] == "error"
    assert act(anna, "stop", "lost").json()["container_status"] == "idle"


@pytest.mark.parametrize("scope", ["read", "run", "approve", "run,approve"])
def test_only_an_admin_acts(server: Server, scope: str) -> None:
    with caller(server, "anna", scope) as http:
        assert http.get("/containers").status_code == 200
        assert act(http, "stop").status_code == 403
    assert httpx.get(f"{server.url}/containers", trust_env=False, timeout=60).status_code == 401


@pytest.mark.parametrize("action", ["", "kill", "Stop", None, ["stop"], {"x": 1}])
def test_another_action_is_refused(anna: httpx.Client, action: Any) -> None:
    assert act(anna, action).status_code == 400
    more = {"action": "stop", "container": "somebody's"}
    assert anna.post("/agents/default/container", json=more).status_code == 400
