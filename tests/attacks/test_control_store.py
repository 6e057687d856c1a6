"""Attacks on the store of the agent that makes them, which may lie in its working directory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import wick_graph
from tests.engine.support import async_door, sync_door, wild
from tests.sandbox.fixtures import backend_at, give
from wick_graph import Agent
from wick_graph.backends import LocalBackend, Rules
from wick_graph.config import trust_folder
from wick_graph.debug import DebugSession
from wick_graph.errors import ConfigError
from wick_graph.hooks import ApprovalHook, FilesystemHook
from wick_graph.hooks.approvals import Approve
from wick_graph.loading import load
from wick_graph.store import SqlSaver
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, calls

NAMES = ("wick.db", "wick.db-wal", "wick.db-shm", "wick.db-journal")
ATTACKS = {
    "written": "for f in {all}; do echo hijacked > $f; done",
    "removed": "rm -f {all}",
    "renamed": "for f in {all}; do mv $f x; done; for f in {all}; do echo hijacked > $f; done",
    "replaced": "for f in {all}; do echo hijacked > y; mv -f y $f; ln -sf y $f; ln -f y $f; done",
}


def answers(result: Any) -> list[str]:
    return [str(m.text) for m in result.messages if m.type == "tool"]


def writes(*paths: str) -> list[tuple[str, dict[str, Any]]]:
    return [("write_file", {"path": path, "content": "hijacked"}) for path in paths]


@pytest.mark.sisters
@pytest.mark.parametrize("level", ["bwrap", "container"])
@pytest.mark.parametrize("how", ATTACKS)
def test_no_command_changes_a_store_in_its_directory(
    request: pytest.FixtureRequest, open_path: Path, level: str, how: str
) -> None:
    """The process writes its store all the while; the command sees it read-only."""
    command = ATTACKS[how].replace("{all}", " ".join(NAMES)) + "; echo mine > mine; cat mine"
    give(open_path)
    database = open_path / "wick.db"
    rules = Rules(stores=(str(database),))
    with backend_at(level, open_path, request, rules=rules) as fs:
        agent = Agent(
            model=ScriptedModel([wild("execute", command=command), "done"] * 2),
            hooks=[FilesystemHook(fs)],
            store=f"sqlite:///{database}",
        )
        for _ in range(2):
            result = agent.invoke("go", thread_id="t")
            assert result.stopped_because == "done"
            assert '"mine\\n"' in answers(result)[-1]
        agent.close()
    with closing(sqlite3.connect(database)) as look, look:
        assert look.execute("pragma integrity_check").fetchone() == ("ok",)
    with SqlSaver.from_url(f"sqlite:///{database}") as store:
        assert [info.thread_id for info in store.threads.list()] == ["t"]


FILE = """\
store: sqlite:///wick.db
agents:
  default:
    model: scripted:talk.yaml
    backend: {type: local, workdir: ., execute: bwrap}
"""


def test_a_file_of_agents_may_have_its_store_there(open_path: Path) -> None:
    (open_path / "agents.yaml").write_text(FILE, "utf-8")
    attack = f"for f in agents.yaml {' '.join(NAMES)}; do echo hijacked > $f; done; echo tried"
    talk = f"steps: [{{call: execute, args: {{command: '{attack}'}}}}, done]\n"
    (open_path / "talk.yaml").write_text(talk, "utf-8")
    give(open_path)
    with load(open_path / "agents.yaml") as agents:
        assert "tried" in answers(agents["default"].invoke("go", thread_id="t"))[0]
    assert (open_path / "agents.yaml").read_text("utf-8") == FILE
    with load(open_path / "agents.yaml") as agents:
        assert agents.store.threads.get("t") is not None


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[LocalBackend]:
    with LocalBackend(tmp_path) as backend:
        yield backend


@pytest.mark.parametrize("door", [sync_door, async_door])
@pytest.mark.parametrize("name", [*NAMES, "WICK.DB", "./x/../wick.db", "{}/wick.db"])
def test_an_agent_made_in_python_never_writes_its_own_store(
    fs: LocalBackend, tmp_path: Path, name: str, door: Any
) -> None:
    model = ScriptedModel([calls(*writes(name.format(tmp_path), "free")), "done"])
    store = f"sqlite:///{tmp_path}/wick.db"
    agent = Agent(model=model, hooks=[FilesystemHook(fs)], store=store)
    first, second = answers(door(agent, "go", thread_id="t"))
    assert "governs agents" in first
    assert "bytes_written" in second
    agent.close()


def test_a_relative_store_is_the_same_one(
    fs: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel([calls(*writes("wick.db")), "done"])
    with SqlSaver.from_url("sqlite:///wick.db") as store:
        agent = Agent(model=model, hooks=[FilesystemHook(fs)], store=store)
        assert "governs agents" in answers(agent.invoke("go"))[0]


def test_a_store_of_langgraphs_is_left_alone_too(fs: LocalBackend, tmp_path: Path) -> None:
    model = ScriptedModel([calls(*writes("f.db")), "done"])
    with SqliteSaver.from_conn_string(str(tmp_path / "f.db")) as store:
        agent = Agent(model=model, hooks=[FilesystemHook(fs)], store=store)
        assert "governs agents" in answers(agent.invoke("go"))[0]


def test_a_run_leaves_the_store_alone_that_it_was_given(fs: LocalBackend, tmp_path: Path) -> None:
    """A graph can be run on another store than its own, and a helper on its boss's."""
    script: list[Any] = [calls(*writes("wick.db")), "tried"]
    helper = Agent("helper", ScriptedModel(script), hooks=[FilesystemHook(fs)])
    boss = Agent(
        "boss",
        ScriptedModel([wild("delegate_to_agent", agent="helper", task="go"), "ok"]),
        tools=[delegation({"helper": Subagent(lambda: helper, "Helps.")})],
        store=f"sqlite:///{tmp_path}/wick.db",
    )
    assert "tried" in answers(boss.invoke("go", thread_id="t"))[0]
    boss.close()
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        assert store.threads.get("t") is not None


@pytest.mark.parametrize("level", ["local", "landlock"])
def test_a_level_that_cannot_hold_the_store_is_refused(
    request: pytest.FixtureRequest, open_path: Path, level: str
) -> None:
    give(open_path)
    store = f"sqlite:///{open_path}/wick.db"
    with backend_at(level, open_path, request) as fs:
        with pytest.raises(ConfigError, match=r"wick\.db, which commands at the level"):
            Agent(model="scripted:demo", hooks=[FilesystemHook(fs)], store=store)
        assert not (open_path / "wick.db").exists(), "a refused agent leaves no database behind"


def test_the_code_and_the_trust_are_out_of_reach_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code = f"{Path(wick_graph.__file__).resolve().parent}/evil.py"
    with LocalBackend("/") as fs:
        model = ScriptedModel([calls(*writes(f"{trust_folder()}/trusted.json", code)), "done"])
        result = Agent(model=model, hooks=[FilesystemHook(fs)]).invoke("go")
        assert ["governs agents" in answer for answer in answers(result)] == [True, True]
    assert not os.path.exists(code)  # noqa: PTH110


EDITS = {"wick.db": "governs agents", "Makefile": "run or obey", "other": "bytes_written"}


@pytest.mark.parametrize("path", EDITS)
@pytest.mark.parametrize("approved", [False, True])
def test_an_edit_in_the_debugger_goes_through_the_same_guard(
    fs: LocalBackend, tmp_path: Path, path: str, approved: bool
) -> None:
    """What a person allowed are the arguments that were shown, not those put in their place."""
    rules = {"write_file": approved}
    model = ScriptedModel([wild("write_file", path="free", content="mine"), "done"])
    hooks = [ApprovalHook(rules), FilesystemHook(fs)]
    agent = Agent(model=model, hooks=hooks, store=f"sqlite:///{tmp_path}/wick.db")
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:write_file")
        session.run("go", thread_id="t", stop_on_entry=False, timeout=30)
        if approved:
            session.answer(Approve().to_dict(), timeout=30)
            session.cont(timeout=30)
        assert session.last_stop is not None
        assert session.last_stop.reason == "breakpoint"
        session.edit("args", {"path": path, "content": "hijacked"})
        stop = session.cont(timeout=30)
        if approved:  # it is another call, and waits for a decision of its own
            assert stop.reason == "interrupt"
            assert (tmp_path / path).exists() is (path == "wick.db")
            return
        assert stop.reason == "finished"
        said = "".join(str(m.text) for m in session.result["messages"] if m.type == "tool")
    assert EDITS[path] in said
    assert (tmp_path / path).exists() is (path != "Makefile")
