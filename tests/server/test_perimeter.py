"""What a tenant of a server reads of it, and names to it: no file, no other tenant's numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.server.support import AGENTS, Served, serving
from wick_graph.models.resolve import resolve_model

pytestmark = pytest.mark.xdist_group("perimeter")  # they share a server

SECRET = "the secret 4711 of the server"
ASK = {"messages": [{"role": "user", "content": "Hello."}]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("perimeter")
    (folder / "secret.yaml").write_text(f"steps: ['{SECRET}']\n{SECRET}: 1\n", "utf-8")
    with serving(folder, "--host", "127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    names = ("local", "anna", "bert")
    return {
        name: served.wick("token", "create", "--tenant", name, "--scope", "admin") for name in names
    }


@pytest.fixture
def anna(served: Served, tokens: dict[str, str]) -> Iterator[httpx.Client]:
    with served.http(tokens["anna"]) as http:
        yield http


FILES = ("secret.yaml", "{}/secret.yaml", "/etc/passwd", "/etc/hostname", "../x", "/dev/zero", ".")
SPELLINGS = ("scripted:{}", "Scripted:{}", " scripted:{}", "SCRIPTED : {}", "\tscripted\t: {} ")


@pytest.mark.sisters(7)
@pytest.mark.parametrize("place", FILES)
@pytest.mark.parametrize("spelt", SPELLINGS)
def test_no_spelling_of_a_script_reads_a_file(
    served: Served, anna: httpx.Client, spelt: str, place: str
) -> None:
    model = spelt.format(place.format(served.path))
    got = anna.post("/agents", json={"agent_id": "mine", "model": model})
    assert got.status_code in (400, 409), got.text
    assert "a script is a file of the server;" in got.text
    for text in (SECRET, "root:", "no such", "not there", "YAML"):
        assert text not in got.text
    assert anna.get("/agents/mine").status_code == 404
    chat = {"model": model, "messages": [{"role": "user", "content": "Hello."}]}
    said = anna.post("/v1/chat/completions", json=chat)
    assert said.status_code == 404
    shown = anna.get(f"/v1/models/{quote(model.strip(), safe='')}")
    assert shown.status_code == 404
    assert SECRET not in said.text


@pytest.mark.sisters
@pytest.mark.parametrize(
    "model", ["huggingface:/etc", "HuggingFace:gpt2", "llamacpp:/x.gguf", "bedrock:x", "x:y"]
)
def test_a_client_that_is_not_named_for_tenants_is_none(anna: httpx.Client, model: str) -> None:
    got = anna.post("/agents", json={"agent_id": "mine", "model": model})
    assert got.status_code == 409
    assert "use one of openai, anthropic, google, ollama" in got.text


@pytest.mark.parametrize("model", ["scripted:demo", "Scripted:demo", " scripted : demo "])
def test_the_demo_is_everybodys(anna: httpx.Client, model: str) -> None:
    made = anna.post("/agents", json={"agent_id": "mine", "model": model})
    assert made.status_code == 201, made.text
    assert anna.post("/agents/mine/invoke", json=ASK).status_code == 200
    assert anna.delete("/agents/mine").status_code == 204


def test_an_agent_that_cannot_be_built_leaves_nothing(anna: httpx.Client) -> None:
    for _ in range(2):
        got = anna.post("/agents", json={"agent_id": "mine", "model": "openai:gpt-5"})
        assert got.status_code == 409, got.text
    assert anna.get("/agents/mine").status_code == 404


def test_the_command_line_reads_a_name_as_the_server_does() -> None:
    names = {
        resolve_model(name).name for name in ("scripted:demo", "Scripted:demo", " Scripted :demo")
    }
    assert names == {"scripted:demo"}


BROKEN = AGENTS.replace("agents:\n", "agents:\n  broken: {model: 'scripted:late.yaml'}\n", 1)


def test_what_a_loader_says_stays_in_the_log(tmp_path: Path) -> None:
    """The file of a script is broken after the server has read it."""
    late = tmp_path / "late.yaml"
    late.write_text("steps: [ready]\n", "utf-8")
    with serving(tmp_path, "--host", "127.0.0.1", agents=BROKEN) as served:
        token = served.wick("token", "create", "--tenant", "anna", "--scope", "admin")
        late.write_text(f"steps: [{{{SECRET}\n", "utf-8")
        with served.http(token) as http:
            got = http.post("/agents/broken/invoke", json=ASK)
            assert got.status_code == 500
            assert "the agent cannot be built" in got.text
            assert SECRET not in got.text
            assert str(tmp_path) not in got.text
            off = http.patch("/agents/broken/hooks", json={"remove": ["todolist"]})
            again = http.get("/agents/broken")
            listed = http.get("/agents")
            told = {one["agent_id"]: (one["model"], one["error"]) for one in listed.json()}
            assert told.pop("broken") == ("scripted:late.yaml", "the agent cannot be built")
            assert {error for _, error in told.values()} == {None}
            for answer in (off, again, listed):
                assert SECRET not in answer.text
                assert str(tmp_path) not in answer.text


def numbers(http: httpx.Client) -> dict[str, float]:
    text = http.get("/metrics").text
    return {m[1]: float(m[2]) for m in re.finditer(r"^(wick_\S+) (\S+)$", text, re.MULTILINE)}


def test_a_tenant_sees_numbers_of_its_own_alone(served: Served, tokens: dict[str, str]) -> None:
    with (
        served.http(tokens["local"]) as local,
        served.http(tokens["anna"]) as anna,
        served.http(tokens["bert"]) as bert,
    ):
        before = numbers(bert)
        for _ in range(3):
            assert anna.post("/agents/default/invoke", json=ASK).status_code == 200
        assert anna.get("/agents/nobody").status_code == 404
        after, whole = numbers(bert), numbers(local)
        asked = 'wick_requests_total{method="GET",status="200"}'
        changed = {key for key in after if after[key] != before.get(key)}
        assert changed == {asked}, "it has asked for its numbers"
        assert not [key for key in after if "tenants_open" in key]
        assert 'wick_requests_total{method="POST",status="200"}' not in after
        mine = numbers(anna)
        assert mine['wick_runs_total{stopped_because="done"}'] >= 3
        assert whole['wick_runs_total{stopped_because="done"}'] >= 3
        assert whole["wick_tenants_open"] >= 3
        assert "wick_run_seconds_count" in after
        assert after["wick_run_seconds_count"] == 0
