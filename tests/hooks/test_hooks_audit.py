"""What was refused or decided is on record: one event each, in the trace and in the log."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, add, wild
from wick_graph import Agent
from wick_graph.backends import LocalBackend
from wick_graph.hooks import (
    ApprovalHook,
    Approve,
    Edit,
    FilesystemHook,
    Reject,
    Respond,
    TracingHook,
)
from wick_graph.testing import ScriptedModel, call
from wick_graph.tools.builtin_tools import builtin
from wick_graph.tracing import audit, recording


class Span:
    def set(self, key: str, value: Any) -> Any:
        return self

    def end(self) -> None:
        pass


class Events:
    """A recorder that keeps events alone."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Mapping[str, Any]]] = []

    def start_span(self, name: str) -> Span:
        return Span()

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        self.seen.append((name, metadata))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.seen]


REFUSED = [
    pytest.param("read_file", {"path": "../../etc/passwd"}, "leads outside", id="A1"),
    pytest.param("read_file", {"path": "/etc/passwd"}, "leads outside", id="A2"),
    pytest.param("read_file", {"path": "link"}, "symbolic link", id="A8"),
    pytest.param("ls", {"path": ".."}, "leads outside", id="ls"),
    pytest.param("glob", {"pattern": "*", "path": "/etc"}, "leads outside", id="glob"),
    pytest.param("grep", {"pattern": "x", "path": "/etc"}, "leads outside", id="grep"),
    pytest.param("write_file", {"path": "link/x", "content": ""}, "symbolic link", id="A9"),
    pytest.param("read_file", {"path": "/proc/self/environ"}, "leads outside", id="A16"),
    pytest.param("read_file", {"path": "pipe"}, "regular file", id="A17"),
    pytest.param("write_file", {"path": ".env", "content": ""}, "protected", id="A28"),
    pytest.param("edit_file", {"path": ".git/x", "old_text": "a", "new_text": "b"}, "protected",
                 id="A28 edit"),
    pytest.param("write_file", {"path": "big", "content": "x" * 11_000_000}, "at most", id="A26"),
]  # fmt: skip
ALLOWED = [
    pytest.param("read_file", {"path": "x"}, id="read"),
    pytest.param("read_file", {"path": "missing"}, id="no such file"),
    pytest.param("ls", {}, id="ls"),
    pytest.param("edit_file", {"path": "x", "old_text": "no", "new_text": "y"}, id="not found"),
    pytest.param("execute", {"command": "true"}, id="unknown tool"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "w"
    work.mkdir()
    (work / "x").write_text("inside")
    (work / "link").symlink_to("/etc")
    os.mkfifo(work / "pipe")
    return work


def ran(door: Door, folder: Path, tool: str, args: dict[str, Any], *more: Any) -> Any:
    model = ScriptedModel([wild(tool, **args), "ok"])
    hooks = [*more, FilesystemHook(LocalBackend(folder))]
    return door(Agent(model=model, hooks=hooks, store=False), "?", thread_id="mine").messages[1:3]


@pytest.mark.parametrize(("tool", "args", "why"), REFUSED)
def test_a_refused_access_is_one_event(
    door: Door, folder: Path, tool: str, args: dict[str, Any], why: str
) -> None:
    events = Events()
    with recording(events):
        asked, told = ran(door, folder, tool, args)
    ((name, facts),) = events.seen
    assert name == "file.refused"
    assert why in facts["why"]
    assert told.text == f"Error: {facts['why']}"
    assert facts["tool_call_id"] == asked.tool_calls[0]["id"]
    assert (facts["tool_name"], facts["thread_id"]) == (tool, "mine")


@pytest.mark.parametrize(("tool", "args"), ALLOWED)
def test_what_is_allowed_or_only_fails_is_none(
    door: Door, folder: Path, tool: str, args: dict[str, Any]
) -> None:
    events = Events()
    with recording(events):
        ran(door, folder, tool, args)
    assert events.seen == []


def test_the_recorder_of_the_tracing_hook_hears_of_it_too(door: Door, folder: Path) -> None:
    events = Events()
    ran(door, folder, "read_file", {"path": "/etc/passwd"}, TracingHook(events))
    assert events.names == ["file.refused"]


def test_the_built_in_ls_is_heard_of_too(door: Door, folder: Path) -> None:
    events = Events()
    model = ScriptedModel([call("ls", path=".."), "ok"])
    agent = Agent(model=model, tools=builtin(["ls"], folder), store=False)
    with recording(events):
        door(agent, "?")
    ((name, facts),) = events.seen
    assert (name, facts["tool_name"]) == ("file.refused", "ls")


def test_the_log_hears_of_it_without_any_recorder(
    door: Door, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "wick_graph.audit"):
        ran(door, folder, "read_file", {"path": "/etc/passwd"})
    (record,) = caplog.records
    assert record.name == "wick_graph.audit"
    assert record.getMessage().startswith("file.refused {'tool_name': 'read_file'")


@pytest.mark.parametrize(
    ("decision", "name"),
    [
        (Approve(), "approval.approve"),
        (Edit(args={"a": 2, "b": 2}), "approval.edit"),
        (Reject("no"), "approval.reject"),
        (Respond("5"), "approval.respond"),
    ],
)
def test_a_decision_is_one_event(decision: Any, name: str) -> None:
    events = Events()
    model = ScriptedModel([call("add", a=1, b=2), "ok"])
    agent = Agent(model=model, tools=[add], hooks=[ApprovalHook({"add": True})])
    with recording(events):
        asked = agent.invoke("?", thread_id="mine").interrupts[0]
        assert events.seen == [], "a question is no decision"
        agent.resume("mine", decision)
    ((found, facts),) = events.seen
    assert (found, facts["hash"]) == (name, asked.value["hash"])
    assert (facts["tool_name"], facts["thread_id"]) == ("add", "mine")


def test_an_answer_that_is_no_decision_is_no_event() -> None:
    events = Events()
    model = ScriptedModel([call("add", a=1, b=2), "ok"])
    agent = Agent(model=model, tools=[add], hooks=[ApprovalHook({"add": True})])
    with recording(events):
        agent.invoke("?", thread_id="mine")
        agent.resume("mine", "yes")
    assert events.seen == []


def test_a_recorder_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Events):
        def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
            raise RuntimeError("full")

    with recording(Fails()):
        audit("x", a=1)
    assert "x is not recorded" in caplog.text
