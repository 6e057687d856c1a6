"""Sub-agents have threads of their own: the debugger follows them down and up again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from wick_graph import Agent, SqlSaver
from wick_graph.cli.export import Source, write
from wick_graph.debug import DebugSession
from wick_graph.debug.terminal import Shell
from wick_graph.errors import DebugError
from wick_graph.journal import Journal
from wick_graph.journal.links import caller_of, children_of
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call


def asked(task: str) -> Any:
    return call("delegate_to_agent", agent="child", task=task)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    """A thread in which an agent gave a task to another one."""
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'w.db'}") as saver:
        child = Agent("child", ScriptedModel(["Paris."]), store=saver)
        below = delegation({"child": Subagent(child, "Knows.")})
        model = ScriptedModel([asked("Capital of France?"), "It is Paris."])
        Agent("parent", model, store=saver, tools=[below]).invoke("Where?", thread_id="t")
        yield saver


def lines(shell: Shell, *commands: str) -> str:
    return "\n".join(line for command in commands for line in shell.execute(command).lines)


def test_moments_hold_the_childs_thread(store: SqlSaver) -> None:
    journal = Journal(store, "t")
    ((thread, (spawned,)),) = children_of(journal).items()
    (ended,) = journal.moments(kind="agent.return")
    (called,) = journal.moments(kind="tool.call")
    (exited,) = journal.moments(kind="tool.exit")
    assert called.seq < spawned.seq < ended.seq < exited.seq
    assert (spawned.node, spawned.task, spawned.call_id) == ("tools", called.task, called.call_id)
    assert journal.details(spawned) == {"thread": thread}
    assert journal.details(ended) == {"thread": thread, "stopped_because": "done"}
    above = caller_of(Journal(store, thread))
    assert above is not None
    assert (above.thread_id, above.seq, above.agent) == ("t", spawned.seq, "parent")
    assert caller_of(journal) is None


def test_step_goes_into_a_sub_agent_and_finish_comes_back(store: SqlSaver) -> None:
    (spawned,) = Journal(store, "t").moments(kind="agent.spawn")
    thread = spawned.fields["t"]
    with DebugSession.open(store, "t") as session:
        shell = Shell(session)
        lines(shell, f"goto #{spawned.seq}")
        assert f"↓ {thread}, agent child" in lines(shell, "info threads")
        assert "`finish` returns" in lines(shell, "step")
        assert shell.session.thread_id == thread
        assert shell.session.here is not None
        assert shell.session.here.what == "run.enter"
        assert f"↑ t, agent parent, called from #{spawned.seq}" in lines(shell, "info threads")
        assert "Paris" in lines(shell, "last", "state messages[-1].content")
        assert "agent child returns in thread" in lines(shell, "finish")
        assert shell.session is session
        lines(shell, f"goto #{spawned.seq}", "step")
        while shell.session is not session:  # step by step out of its end
            lines(shell, "step")
        assert session.here is not None
        assert session.here.what == "agent.return"
        with pytest.raises(DebugError, match="no replay and no sub-agent"):
            shell.execute("leave")


def test_next_goes_on_over_a_sub_agent(store: SqlSaver) -> None:
    (spawned,) = Journal(store, "t").moments(kind="agent.spawn")
    with DebugSession.open(store, "t") as session:
        shell = Shell(session)
        lines(shell, f"goto #{spawned.seq}", "next")
        assert session.here is not None
        assert session.here.what == "agent.return"


def test_why_goes_down_into_a_sub_agent_and_up_to_its_caller(store: SqlSaver) -> None:
    (spawned,) = Journal(store, "t").moments(kind="agent.spawn")
    thread = spawned.fields["t"]
    with DebugSession.open(store, "t") as session:
        session.goto("@last")
        causes = session.why("messages[-2].content")
        found = [(cause.by, cause.thread_id) for cause in causes]
        assert found == [
            ("tool:delegate_to_agent", ""),
            ("agent:child", ""),
            ("model", thread),
            ("model", thread),
            ("model", ""),
            ("model", ""),
        ]
    with DebugSession.open(store, thread) as session:
        session.goto("@last")
        causes = session.why("messages[0].content")
        assert [(cause.by, cause.thread_id) for cause in causes] == [
            ("input", ""),
            ("agent:parent", "t"),
        ]


def test_a_sub_agent_without_a_recording_is_named(store: SqlSaver) -> None:
    (spawned,) = Journal(store, "t").moments(kind="agent.spawn")
    store.delete_thread(spawned.fields["t"])
    with DebugSession.open(store, "t") as session:
        shell = Shell(session)
        lines(shell, f"goto #{spawned.seq}")
        with pytest.raises(DebugError, match="is not recorded here"):
            shell.execute("step")
        session.goto("@last")
        assert [cause.by for cause in session.why("messages[-2].content")][:3] == [
            "tool:delegate_to_agent",
            "agent:child",
            "model",
        ]


def test_html_pages_link_a_sub_agent_and_its_caller(store: SqlSaver, tmp_path: Path) -> None:
    (spawned,) = Journal(store, "t").moments(kind="agent.spawn")
    thread = spawned.fields["t"]
    for exported, other in (("t", thread), (thread, "t")):
        folder = tmp_path / exported.replace(":", "_")
        folder.mkdir()
        journal = Journal(store, exported)
        source = Source(journal=journal, saver=store, config=tmp_path / "agents.yaml")
        told = write(source, "html", folder / "a b.html")
        (beside,) = set(folder.iterdir()) - {folder / "a b.html"}
        assert told == [f"wrote {folder / 'a b.html'}", f"wrote {beside}"]
        pages = {exported: data_of(folder / "a b.html"), other: data_of(beside)}
        names = {exported: "a%20b.html", other: quote(beside.name)}
        links = [row[-1]["below"] for row in pages["t"]["moments"] if "below" in str(row[-1])]
        assert links == [f"{names[thread]}#1"] * 2  # where it begins and where it returns
        assert pages[thread]["above"] == f"{names['t']}#{spawned.seq}"
        assert pages["t"]["above"] is None


def data_of(page: Path) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])
