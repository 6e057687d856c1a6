"""Attacks on what governs agents, by tools that write files: through every door and spelling."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import async_door, sync_door, wild
from tests.server.support import serving
from wick_graph import Agent
from wick_graph.backends import FileSystem, LocalBackend
from wick_graph.backends.docker import DockerBackend
from wick_graph.config import load_config
from wick_graph.hooks import FilesystemHook
from wick_graph.hooks.approvals import ApprovalHook, Edit
from wick_graph.loading import backends_in, hooks_of
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.testing import ScriptedModel, calls, respond

FILE = """\
store_keys: file:wick.keys
defaults: {model: scripted:talk.yaml}
agents:
  default:
    backend: {type: local, workdir: ., execute: 'off'}
    skills: {paths: [skills]}
    mcp_servers: {own: {command: [python3, server.py], cwd: own}}
  boxed:
    backend: {type: docker, folder: ., workdir: /box}
"""
GOVERNING = {
    "configuration": "agents.yaml",
    "store": "checkpoints/wick.db",
    "log of the store": "checkpoints/wick.db-wal",
    "new file beside the store": "checkpoints/other.db",
    "keys": "wick.keys",
    "skill": "skills/knit/SKILL.md",
    "file of a skill": "skills/knit/run.py",
    "new skill": "skills/new/deep/SKILL.md",
    "module of a server": "own/server.py",
    "module beside the one that is named": "own/json.py",
    "module of a folder that is to come": "own/later/x.py",
    "results of ours": ".wick/results/x",
}
SPELLINGS: dict[str, Callable[[Path, str], str]] = {
    "plain": lambda work, path: path,
    "dots": lambda work, path: f"./free/..//{path}",
    "absolute": lambda work, path: f"{work}/{path}",
    "case": lambda work, path: path.upper(),
    "up and down": lambda work, path: f"../{work.name}/{path}",
    "through a link": lambda work, path: f"link/{path}",
    "by the folder's other name": lambda work, path: f"{work.parent}/alias/{path}",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that holds both planes."""
    folder = tmp_path / "app"
    for name in ("checkpoints", "skills/knit", "free", "own"):
        (folder / name).mkdir(parents=True)
    (folder / "agents.yaml").write_text(FILE, "utf-8")
    for name in ("checkpoints/wick.db-wal", "skills/knit/SKILL.md", "own/server.py", "wick.keys"):
        (folder / name).write_text("as it was", "utf-8")
    (folder / "skills/knit/run.py").write_text("as it was", "utf-8")
    (folder / "link").symlink_to(".")
    (tmp_path / "alias").symlink_to(folder)
    return folder


@pytest.fixture(params=["default", "boxed"])
def fs(work: Path, request: pytest.FixtureRequest) -> Iterator[FileSystem]:
    """The backends of the file's agents; no command is run, so no container either."""
    (backend,) = backends_in(hooks_of(request.param, load_config(work / "agents.yaml")))
    with backend:
        yield backend


def kept(work: Path) -> dict[str, bytes]:
    """Return all that is in the folder, but the folder `free`."""
    return {
        str(path.relative_to(work)): path.read_bytes()
        for path in sorted(work.rglob("*"))
        if path.is_file() and "free" not in path.parts
    }


def writing(path: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("write_file", {"path": path, "content": "hijacked"}),
        ("edit_file", {"path": path, "old_text": "as it was", "new_text": "hijacked"}),
    ]


@pytest.mark.sisters(4)
@pytest.mark.parametrize("what", GOVERNING)
def test_no_spelling_leads_to_what_governs(fs: FileSystem, work: Path, what: str) -> None:
    before = kept(work)
    paths = {name: spelt(work, GOVERNING[what]) for name, spelt in SPELLINGS.items()}
    asked = [call for path in paths.values() for call in writing(path)]
    script = ScriptedModel([*(wild(name, **args) for name, args in asked), "done"])
    result = Agent(model=script, hooks=[FilesystemHook(fs)], max_iterations=99).invoke("go")
    answers = [m.text for m in result.messages if m.type == "tool"]
    assert result.stopped_because == "done", "nobody is asked: there is nothing to decide"
    assert [text[:7] for text in answers] == ["Error: "] * 2 * len(paths)
    for spelling, answer in zip(paths, answers[::2], strict=True):
        if "link" not in spelling and "other" not in spelling and "up" not in spelling:
            assert "is protected: " in answer or "read-only for tools" in answer
    assert kept(work) == before


def test_what_does_not_govern_is_written(fs: FileSystem, work: Path) -> None:
    for path in ("free/a.py", "server2.py", "checkpoints.txt", "skills2/x", "a/agents.txt"):
        fs.write(path, b"mine")
        assert (work / path).read_bytes() == b"mine"


def test_no_file_takes_the_place_of_a_folder_that_is_to_come(work: Path) -> None:
    for name in ("checkpoints/wick.db-wal", "checkpoints"):
        path = work / name
        path.rmdir() if path.is_dir() else path.unlink()
    (backend,) = backends_in(hooks_of("default", load_config(work / "agents.yaml")))
    with backend, pytest.raises(Exception, match="governs agents"):
        backend.write("checkpoints", b"a file")


def test_another_mount_of_a_folder_is_the_folder(work: Path) -> None:
    """A folder is known by what it is: the name under which it was mounted says nothing."""
    if os.geteuid() != 0 or os.system(f"mount --bind {work}/skills {work}/free") != 0:
        pytest.skip("mounting needs root")
    try:
        (backend,) = backends_in(hooks_of("default", load_config(work / "agents.yaml")))
        with backend, pytest.raises(Exception, match="governs agents"):
            backend.write("free/knit/SKILL.md", b"hijacked")
    finally:
        os.system(f"umount {work}/free")


def test_a_hard_link_is_replaced_and_not_written_through(fs: FileSystem, work: Path) -> None:
    (work / "free/innocent").hardlink_to(work / "own/server.py")
    fs.write("free/innocent", b"hijacked")
    assert (work / "own/server.py").read_text() == "as it was"


def test_bytes_that_are_written_out_are_those_bytes(tmp_path: Path) -> None:
    """A name can be told to a tool with its bytes written out; it is the same name."""
    (tmp_path / "f\u00e4hig").mkdir()
    (tmp_path / "agents.yaml").write_text(
        "agents: {default: {backend: {type: local, workdir: ., execute: 'off'}, "
        "skills: {paths: ['f\u00e4hig']}}}",
        "utf-8",
    )
    (backend,) = backends_in(hooks_of("default", load_config(tmp_path / "agents.yaml")))
    with backend, pytest.raises(Exception, match="governs agents"):
        backend.write("f\\xc3\\xa4hig/SKILL.md", b"hijacked")


def test_what_is_kept_of_long_results_goes_nowhere_else(fs: FileSystem, work: Path) -> None:
    """The folder of results, made a link by a command, does not lead into the store."""
    if (work / ".wick").exists():  # a container's folder of uploaded skills is bound below it
        (work / ".wick").rename(work / "moved")
    (work / ".wick").symlink_to("checkpoints")
    before = kept(work)
    with pytest.raises(Exception, match="symbolic link"):
        fs.keep("wick.db", b"hijacked")
    assert kept(work) == before


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_a_decision_of_a_person_does_not_open_it(fs: FileSystem, work: Path, door: Any) -> None:
    """Whoever edits a call that waits is still only deciding on a call of a tool."""
    before = kept(work)
    model = ScriptedModel([wild("write_file", path="free/x", content="x"), "done"])
    hooks = [ApprovalHook({"write_file": True}), FilesystemHook(fs)]
    agent = Agent(model=model, hooks=hooks)
    waiting = door(agent, "go", thread_id="t")
    assert waiting.stopped_because == "interrupted"
    ended = agent.resume("t", Edit(args={"path": "own/server.py", "content": "hijacked"}))
    assert ended.stopped_because == "done"
    assert "governs agents" in next(m.text for m in ended.messages if m.type == "tool")
    assert kept(work) == before


def test_an_agent_below_does_not_open_it(fs: FileSystem, work: Path) -> None:
    before = kept(work)
    helper = Agent(
        "helper",
        ScriptedModel([calls(*writing("own/server.py")), "tried"] * 2),
        hooks=[FilesystemHook(fs)],
    )
    below = {"helper": Subagent(lambda: helper, "Helps.")}
    boss = ScriptedModel([wild("delegate_to_agent", agent="helper", task="go"), "ok"])
    told = Agent("boss", boss, tools=[delegation(below)]).invoke("go")
    assert "tried" in next(m.text for m in told.messages if m.type == "tool")
    tasks = Background(below)
    begins = ScriptedModel(
        [wild("start_async_task", agent="helper", task="go"), respond(ends), "ok"], cursor="fifo"
    )
    told = Agent("boss", begins, hooks=[tasks]).invoke("go")
    assert "tried" in [m.text for m in told.messages if m.type == "tool"][1]
    tasks.close()
    assert kept(work) == before


def ends(asked: Any) -> Any:
    (started,) = [m for m in asked.messages if m.type == "tool"]
    return wild("await_async_tasks", task_ids=[json.loads(started.text)["task_id"]])


@pytest.mark.slow
def test_the_server_does_not_open_it(work: Path) -> None:
    text = FILE.replace("store_keys: file:wick.keys\n", "").replace(
        "    mcp_servers: {own: {command: [python3, server.py], cwd: own}}\n", ""
    )
    text = text[: text.index("  boxed:")]
    (work / "talk.yaml").write_text("steps: [ready]", "utf-8")
    with serving(work, "--no-auth", agents=text) as served, served.http() as client:
        for path in ("agents.yaml", "checkpoints/x", "skills/knit/SKILL.md", f"{work}/AGENTS.YAML"):
            got = client.put("/agents/files/upload", json={"path": path, "content": "hijacked"})
            assert got.status_code == 409, got.text
            assert "governs agents" in got.text or "read-only for tools" in got.text
        for path in (".git/hooks/pre-commit", ".env", "Makefile"):
            got = client.put("/agents/files/upload", json={"path": path, "content": "hijacked"})
            assert got.status_code == 409, "nobody is there who could be asked"
            assert "run or obey" in got.text
        free = client.put("/agents/files/upload", json={"path": "free/x", "content": "mine"})
        assert free.status_code == 200
    assert (work / "agents.yaml").read_text() == text
    assert not (work / "Makefile").exists()


def test_both_kinds_of_backend_are_tried(work: Path) -> None:
    file = load_config(work / "agents.yaml")
    kinds = []
    for name in file.agents:
        (backend,) = backends_in(hooks_of(name, file))
        with backend:
            kinds.append(type(backend))
    assert kinds == [LocalBackend, DockerBackend]
