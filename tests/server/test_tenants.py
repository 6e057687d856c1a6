"""Tenants of one server have nothing in common: not the files, the memory, nor the containers."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import Served, serving
from tests.source import ROOT
from tests.support.containers import IMAGE, ContainerEngine
from wick_graph.config import load_config, parse_config
from wick_graph.errors import ConfigError
from wick_graph.loading import build_agent
from wick_graph.server import ServerOptions, Service
from wick_graph.service.folders import config_for, folder_name
from wick_graph.store import SqlSaver

pytestmark = pytest.mark.xdist_group("tenants")  # they share a server

ASK = {"messages": [{"role": "user", "content": "Look around."}]}
AGENTS = """\
store: sqlite:///kept/wick.db
defaults: {model: scripted:talk.yaml}
agents:
  default:
    backend: {type: local, workdir: desk, readable: [..]}
    skills: {paths: [skills, ../elsewhere]}
    memory: {paths: [AGENTS.md, FOLDER/notes/MEMORY.md]}
  outer:
    backend: {type: local, workdir: ., execute: 'off'}
  loose:
    backend: {type: local, workdir: loosely, execute: local}
    skills: {paths: [FOLDER/kept]}
"""
SKILL = "---\nname: knit\ndescription: Knit a scarf.\n---\nTwo needles.\n"
SECRET = "anna's zwetschge"
NAMES = ("Anna", "a..b", "CON", "bert.txt", "a" * 64)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that others can come to, as commands in a sandbox do; pytest closes its own."""
    with tempfile.TemporaryDirectory(prefix="wick-test-") as made:
        Path(made).chmod(0o711)
        folder = Path(made) / "app"
        for name in ("desk/skills/knit", "notes", "kept"):
            (folder / name).mkdir(parents=True)
        (folder / "desk/skills/knit/SKILL.md").write_text(SKILL, "utf-8")
        (folder / "desk/local.txt").write_text("of local", "utf-8")
        yield folder


def targets(folder: Path, tenant: str, at: str = "app.tenants/anna/desk") -> list[str]:
    """List ways to a file of another tenant."""
    there = folder.parent / at / "notes.txt"
    return [
        "../../anna/desk/notes.txt",
        "../anna/notes.txt",
        str(there),
        f"{there.parent}/./notes.txt",
        f"{folder}/../{at}/notes.txt",
        "../../../app/desk/local.txt",
        str(folder / "desk/local.txt"),
        str(folder / "kept/wick.db"),
    ]


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    calls = [
        *({"tool": "read_file", "args": {"path": path}} for path in targets(folder, "bert")),
        {"tool": "grep", "args": {"pattern": "secret", "path": str(folder.parent)}},
        {"tool": "glob", "args": {"pattern": f"{folder.parent}/**/notes.txt"}},
        {"tool": "write_file", "args": {"path": targets(folder, "bert")[2], "content": "mine"}},
    ]
    command = f"cat {' '.join(targets(folder, 'bert'))}; find {folder.parent} -name notes.txt"
    shell = {"tool": "execute", "args": {"command": command}}
    talk = json.dumps({"steps": [{"calls": [*calls, shell], "unchecked": True}, "That is all."]})
    agents = AGENTS.replace("FOLDER", str(folder))
    with serving(folder, "--host", "127.0.0.1", agents=agents, talk=talk) as served:
        yield served


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    with SqlSaver.from_url(f"sqlite:///{served.path}/kept/wick.db") as store:
        names = ("local", "anna", "bert", *NAMES)
        return {name: store.tokens.create(name, scope="admin")[0] for name in names}


@pytest.fixture(scope="module")
def anna(served: Served, tokens: dict[str, str]) -> Iterator[httpx.Client]:
    with served.http(tokens["anna"]) as http:
        put(http, SECRET)
        yield http


@pytest.fixture
def bert(served: Served, tokens: dict[str, str], anna: httpx.Client) -> Iterator[httpx.Client]:
    with served.http(tokens["bert"]) as http:
        yield http


def put(http: httpx.Client, text: str, path: str = "notes.txt") -> None:
    got = http.put("/agents/files/upload", json={"path": path, "content": text})
    assert got.status_code == 200, got.text


def read(http: httpx.Client, path: str = "notes.txt", agent: str = "default") -> httpx.Response:
    return http.get(f"/agents/{agent}/files/read", params={"path": path})


def test_each_tenant_has_a_folder_of_its_own(
    served: Served, tokens: dict[str, str], anna: httpx.Client, bert: httpx.Client
) -> None:
    assert read(bert).status_code == 404
    put(bert, "of bert")
    for name in NAMES:
        with served.http(tokens[name]) as http:
            assert read(http).status_code == 404
            put(http, f"of {name}")
            assert read(http).json()["content"] == f"of {name}"
    with served.http(tokens["local"]) as local:
        assert read(local).status_code == 404
        assert read(local, "local.txt").json()["content"] == "of local"
    assert read(bert).json()["content"] == "of bert"
    assert read(anna).json()["content"] == SECRET


@pytest.mark.parametrize("way", range(8))
def test_no_path_leads_to_another_tenant(
    folder: Path, anna: httpx.Client, bert: httpx.Client, way: int
) -> None:
    path = targets(folder, "bert")[way]
    for agent in ("default", "outer", "loose"):
        assert read(bert, path, agent).status_code in (400, 404, 409)
        listed = bert.get(f"/agents/{agent}/files/list", params={"path": str(Path(path).parent)})
        assert SECRET not in listed.text
        assert listed.status_code in (400, 404, 409)
    got = bert.put("/agents/files/upload", json={"path": path, "content": "mine"})
    assert got.status_code in (400, 404, 409)
    assert read(anna).json()["content"] == SECRET


def test_no_tool_and_no_command_leads_to_another_tenant(
    anna: httpx.Client, bert: httpx.Client
) -> None:
    got = bert.post("/agents/default/invoke", json=ASK)
    assert got.status_code == 200, got.text
    done = got.json()
    assert len(done["tool_calls"]) == 12
    told = json.dumps([(call["output"], call["error"]) for call in done["tool_calls"]])
    for word in ("zwetschge", "of local", "SQLite format"):
        assert word not in told
    *_, shell = done["tool_calls"]
    if "execute" in bert.get("/agents/default").json()["tools"]:
        assert "anna" not in json.loads(shell["output"])["stdout"]
    assert read(anna).json()["content"] == SECRET


def test_a_folder_in_another_agent_s_is_there_for_the_tenant_too(anna: httpx.Client) -> None:
    assert read(anna, "desk/notes.txt", "outer").json()["content"] == SECRET


def test_skills_are_shared_and_memory_is_not(folder: Path, anna: httpx.Client) -> None:
    found = anna.get("/agents/default/skills").json()["skills"]
    assert [skill["name"] for skill in found] == ["knit"]
    skill = str(folder / "desk/skills/knit/SKILL.md")
    refused = anna.put("/agents/files/upload", json={"path": skill, "content": "x"})
    assert refused.status_code in (400, 409)
    put(anna, "Anna likes tea.", f"{folder}.tenants/anna/notes/MEMORY.md")
    assert not [*(folder / "notes").iterdir()]


def test_commands_without_a_sandbox_are_off_for_tenants(
    served: Served, tokens: dict[str, str], bert: httpx.Client
) -> None:
    assert "execute" not in bert.get("/agents/loose").json()["tools"]
    with served.http(tokens["local"]) as local:
        assert "execute" in local.get("/agents/loose").json()["tools"]


LOOKS = ("workspace.tenants/bob", "workspace", ".", "..", "../app.tenants", "../app.tenants/bob")
SAMPLE = (
    (ROOT / "agents.yaml").read_text("utf-8").replace("model: auto", "model: scripted:talk.yaml")
)


@pytest.mark.slow
def test_the_sample_s_ls_sees_a_tenant_s_own_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    for name in ("workspace", "checkpoints"):
        (folder / name).mkdir(parents=True)
    calls = [{"tool": "ls", "args": {"path": path}} for path in (*LOOKS, str(folder))]
    talk = json.dumps({"steps": [{"calls": calls, "unchecked": True}, "That is all."]})
    with serving(folder, "--host", "127.0.0.1", agents=SAMPLE, talk=talk) as served:
        new = {"agent_id": "new", "model": "scripted:demo", "tools": ["ls"]}
        with served.http(served.wick("token", "create", "--tenant", "bob")) as bob:
            upload = {"path": "secret.txt", "content": SECRET, "agent_id": "ollama"}
            assert bob.put("/agents/files/upload", json=upload).json()["path"] == "secret.txt"
        token = served.wick("token", "create", "--tenant", "anna", "--scope", "admin")
        with served.http(token) as anna:
            (folder.parent / "app.tenants").mkdir()
            (folder.parent / "app.tenants/anna").mkdir()
            (folder.parent / "app.tenants/anna/hers.txt").touch()
            told = [c["output"] for c in anna.post("/agents/invoke", json=ASK).json()["tool_calls"]]
            assert anna.post("/agents", json=new).status_code == 201
            ask = {"messages": [{"role": "user", "content": "Which files are there?"}]}
            demo = anna.post("/agents/new/invoke", json=ask).json()
    assert (folder / "workspace.tenants/bob/secret.txt").read_text("utf-8") == SECRET
    assert len(told) == len(LOOKS) + 1
    assert [text for text in told if text.startswith("[")] == [told[LOOKS.index(".")]]
    for text in (told[LOOKS.index(".")], json.dumps(demo["tool_calls"])):
        assert "hers.txt" in text
        for word in ("secret", "agents.yaml", "workspace", "bob"):
            assert word not in text


def test_folders_of_the_root() -> None:
    text = "agents: {a: {model: 'scripted:demo', backend: {type: local, workdir: /}, tools: [ls]}}"
    file = config_for(parse_config(text, source="agents.yaml", base_dir=Path("/")), "bob")
    backend = file.agents["a"].backend
    assert backend is not None
    assert (backend.workdir, file.tools_dir) == ("/.tenants/bob", Path("/.tenants/bob"))


def test_a_folder_for_ls_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "app.tenants").touch()
    text = "agents: {a: {model: 'scripted:demo', tools: [ls]}}"
    file = config_for(parse_config(text, source="agents.yaml", base_dir=tmp_path / "app"), "bob")
    with pytest.raises(ConfigError, match=r"agents\.a\.tools: .* cannot be created") as caught:
        build_agent("a", file, store=False)
    assert str(tmp_path) not in str(caught.value)


def test_a_folder_with_the_store_is_not_shared(served: Served, anna: httpx.Client) -> None:
    assert anna.get("/agents/loose/skills").json()["paths"] == []
    with served.http(served.wick("token", "create")) as local:
        assert local.get("/agents/loose/skills").json()["paths"]


ATTACKS = (
    *("..", ".", "", "/", "a/b", "a\\b", "../anna", "/etc", "~", "~root", "-rf", "a\0b", "a\nb"),
    *("anna", "Anna", "ANNA", "anna ", "anna.", " anna", "ánna", "a\u0301nna", "a" * 300, "\ud800"),
    *("con", "nul", "$HOME", "`id`", "%2e%2e", "anna.bf4fccd616251b678c56b9cb7a46819b"),
)


def test_names_of_folders() -> None:
    made = [folder_name(name) for name in ATTACKS]
    assert len({name.casefold() for name in made}) == len(ATTACKS)
    for name in made:
        assert name.isascii()
        assert len(name) <= 65
        assert Path("/x", name).parts == ("/", "x", name)
        assert name[0] not in ".-~"
    assert folder_name("anna") == "anna"


@pytest.mark.slow
async def test_a_closed_tenant_leaves_no_container(
    tmp_path: Path, container_engine: ContainerEngine
) -> None:
    backend = {"type": "docker", "image": IMAGE, "docker_host": container_engine.host}
    agents = {"default": {"model": "scripted:talk.yaml", "backend": backend}}
    (tmp_path / "agents.yaml").write_text(json.dumps({"agents": agents}), "utf-8")
    (tmp_path / "talk.yaml").write_text("steps: [hi]", "utf-8")
    (tmp_path / "checkpoints").mkdir()
    client: Any = importlib.import_module("docker").DockerClient(base_url=container_engine.host)

    def running() -> set[str]:
        return {box.id for box in client.containers.list(sparse=True)}

    before = running()
    service = Service(load_config(tmp_path / "agents.yaml"), ServerOptions(port=0))
    try:
        async with service.using("anna") as anna, service.using("bert") as bert:
            for tenant in (anna, bert):
                found = tenant.agents.backend("default")
                assert found is not None
                assert found.exec("echo $$ > mine; ls").stdout == "mine\n"
            folders = {Path(t.agents.backend("default").folder) for t in (anna, bert)}  # type: ignore[union-attr]  # checked above
            assert len(folders) == 2
            made = running() - before
            assert len(made) == 2
            anna.close()
            assert len(running() & made) == 1
            bert.close()
            assert not running() & made
    finally:
        client.close()
        service.local.close()


TEAM = """
from langchain_core.language_models import FakeListChatModel
from wick_graph import Agent
from wick_graph.subagents import Background, Subagent, delegation

below = {"clerk": Subagent(Agent("clerk", FakeListChatModel(responses=["Done."])), "Files.")}
give = delegation(below)

def later():
    return Background(below)
"""


@pytest.mark.parametrize(
    ("module", "own"),
    [
        ("team_tools", "tools: [team_tools:give]"),
        ("team_hooks", "hooks: [{use: team_hooks:later}]"),
    ],
)
def test_tenants_never_share_the_sub_agents_of_ones_own_code(
    tmp_path: Path, module: str, own: str
) -> None:
    (tmp_path / f"{module}.py").write_text(TEAM, "utf-8")
    text = f"agents:\n  boss:\n    model: scripted:demo\n    {own}\n"
    file = parse_config(text, source="agents.yaml", base_dir=tmp_path)
    assert build_agent("boss", file, store=False)
    with pytest.raises(ConfigError, match=r"would share the sub-agents of the (tool|hook)"):
        build_agent("boss", config_for(file, "bob"), store=False)
