"""Where a conversation is held: a fact that its sub-agents share, and keep after a crash."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.source import ROOT
from tests.subagents.origin_process import ORIGIN
from tests.subagents.test_background import Family, Gate, clerk, start, with_ids
from tests.support import forked
from wick_graph import tool
from wick_graph.store import SqlSaver
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.subagents.background import Begun, TaskEnd
from wick_graph.testing import error
from wick_graph.tools import ToolContext
from wick_graph.tools.builtin_tools import question_tool

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])

STRANGER = {**ORIGIN, "sender_id": "9", "role": "untrusted"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}") as saver:
        yield saver


class Where:
    """A tool that notes where its conversation is held."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, Any]] = []

    def where(self, ctx: ToolContext) -> str:
        """Note where the conversation is held."""
        self.seen.append(dict(ctx.origin))
        return "noted"


class Heard:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.begun: list[Begun] = []
        self.ends: list[TaskEnd] = []
        self.told = threading.Semaphore(0)

    async def began(self, begun: Begun) -> None:
        self.begun.append(Begun.from_json(json.loads(json.dumps(begun.to_json()))))

    async def ended(self, end: TaskEnd) -> None:
        self.ends.append(end)
        self.told.release()

    def wait(self) -> TaskEnd:
        assert self.told.acquire(timeout=60)
        return self.ends[-1]


def said(text: str, origin: Any = ORIGIN) -> dict[str, Any]:
    return {"messages": [("user", text)], "origin": origin}


@DOORS
def test_agents_at_every_level_know_where_the_conversation_is_held(
    door: Door, store: SqlSaver
) -> None:
    noted = Where()
    low = clerk("low", store, wild("where"), "Low.", tools=[noted.where])
    ask_low = wild("delegate_to_agent", agent="low", task="Go on")
    below = delegation({"low": Subagent(low, "Does low")})
    mid = clerk("mid", store, ask_low, wild("where"), "Mid.", tools=[below, noted.where])
    ask_mid = wild("delegate_to_agent", agent="mid", task="Go on")
    top = clerk("top", store, ask_mid, "Top.", tools=[delegation({"mid": Subagent(mid, "Mid")})])
    door(top, said("Go"))
    assert noted.seen == [ORIGIN, ORIGIN]


def test_a_fork_keeps_it(store: SqlSaver) -> None:
    noted = Where()
    steps = ["Hello.", wild("where"), "There."]
    agent = clerk("a", store, *steps, tools=[noted.where])
    first = agent.invoke(said("Hi"))
    store.threads.fork(first.thread_id, "forked")
    agent.invoke("Where are we?", thread_id="forked")
    assert noted.seen == [ORIGIN]


@DOORS
def test_without_one_a_child_gets_none(door: Door, store: SqlSaver) -> None:
    noted = Where()
    child = clerk("child", store, wild("where"), "Ok.", tools=[noted.where])
    ask = wild("delegate_to_agent", agent="child", task="Go")
    door(
        clerk("boss", store, ask, "Ok.", tools=[delegation({"child": Subagent(child, "C")})]), "Go"
    )
    assert noted.seen == [{}]


def test_a_key_means_the_same_input_wherever_it_comes_from(store: SqlSaver) -> None:
    agent = clerk("a", store, "One.", "Two.")
    first = agent.invoke("Go", thread_id="t", idempotency_key="k")  # as before there were origins
    again = agent.invoke(said("Go"), thread_id="t", idempotency_key="k")
    demoted = agent.invoke(said("Go", STRANGER), thread_id="t", idempotency_key="k")
    assert [first.text, again.text, demoted.text] == ["One."] * 3


def test_a_task_keeps_the_sender_who_asked_for_it(store: SqlSaver) -> None:
    noted, gate = Where(), Gate()
    a = clerk(
        "a",
        store,
        *(wild("where"), wild("hold"), "One."),
        *(wild("where"), "Two."),
        tools=[noted.where, gate.hold],
    )
    family = Family(
        store,
        start("a"),
        wild("wait_until_begun"),
        "Begun.",
        with_ids("update_async_task", many=False, instructions="And more"),
        wild("let_go"),
        with_ids("await_async_tasks"),
        "Done.",
        a=a,
    )
    family.add_tools(gate.wait_until_begun, gate.let_go)
    heard = family.background.watcher = Heard()
    result = family.boss.invoke(said("Go"))
    family.boss.invoke(said("More", STRANGER), thread_id=result.thread_id)
    assert noted.seen == [ORIGIN, STRANGER]  # each has the rights of who gave the instructions
    end = heard.wait()
    assert (end.status, end.text, end.begun.task.origin) == ("done", "Two.", ORIGIN)
    assert [note.origin for note in heard.begun[-1].task.notes] == [STRANGER]
    assert heard.begun[-1].home.thread_id == result.thread_id


@pytest.mark.parametrize(
    ("steps", "status", "text"),
    [
        (["Fine."], "done", "Fine."),
        ([error(ValueError("broken"))], "error", "broken"),
        ([wild("request_user_input", question="Which?"), "Ok."], "waiting", "Which?"),
    ],
)
def test_the_watcher_hears_of_each_end(
    steps: list[Any], status: str, text: str, store: SqlSaver
) -> None:
    a = clerk("a", store, *steps, tools=[question_tool()])
    family = Family(store, start("a", "Try"), "Begun.", a=a)
    heard = family.background.watcher = Heard()
    result = family.boss.invoke(said("Go"))
    end = heard.wait()
    assert (end.status, text in end.text) == (status, True)
    begun = heard.begun[0]
    assert (begun.task.text, begun.home.by, begun.home.path) == ("Try", "boss", ("a",))
    assert begun.home.thread_id == result.thread_id


def test_a_cancelled_task_says_so(store: SqlSaver) -> None:
    gate = Gate()
    a = clerk("a", store, wild("hold"), "Never.", tools=[gate.hold])
    cancel = with_ids("cancel_async_task", many=False)
    family = Family(store, start("a"), wild("wait_until_begun"), cancel, "Done.", a=a)
    family.add_tools(gate.wait_until_begun)
    heard = family.background.watcher = Heard()
    family.boss.invoke("Go")
    gate.go.set()
    assert (heard.wait().status, heard.ends[0].text) == (
        "cancelled",
        "Task cancelled during execution",
    )


def test_a_task_of_a_closed_process_goes_on_in_the_next(store: SqlSaver) -> None:
    gate, noted = Gate(), Where()

    @tool(replay="safe")
    def hold() -> str:
        """Wait."""
        return gate.hold()

    a = clerk("a", store, wild("hold"), wild("where"), "One.", tools=[hold, noted.where])
    family = Family(store, start("a"), wild("wait_until_begun"), "Begun.", a=a)
    family.add_tools(gate.wait_until_begun)
    heard = family.background.watcher = Heard()
    family.boss.invoke(said("Go"))
    family.background.close()
    assert heard.ends == []
    gate.go.set()
    after = Background({"a": Subagent(a, "Does a")})
    heard_later = after.watcher = Heard()
    asyncio.run(after.take_up(heard.begun[0]))
    assert (heard_later.wait().text, noted.seen) == ("One.", [ORIGIN])


def test_a_watcher_that_fails_keeps_no_task_from_its_end(store: SqlSaver, caplog: Any) -> None:
    class Broken(Heard):
        async def ended(self, end: TaskEnd) -> None:
            await super().ended(end)
            raise OSError("the disk is full")

    a = clerk("a", store, "Fine.")
    family = Family(store, start("a"), with_ids("await_async_tasks"), "Done.", a=a)
    family.background.watcher = Broken()
    result = family.boss.invoke("Go")
    assert family.outputs(result)[-1]["completed"][0]["output"] == "Fine."
    assert "was not announced: the disk is full" in caplog.text


@pytest.mark.parametrize("kind", ["delegated", "background"])
def test_it_survives_a_killed_process(kind: str, tmp_path: Path) -> None:
    def run(how: str) -> subprocess.CompletedProcess[str]:
        module = "tests.subagents.origin_process"
        command = [sys.executable, "-m", module, str(tmp_path), kind, how]
        return forked.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
        )

    died = run("begin")
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = run("go on")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1] == ORIGIN
    assert (tmp_path / "effects").read_text(encoding="utf-8") == "before\n"
    if kind == "background":
        announced, kept = lines[:2]
        assert announced["content"] == "Task 'Work' completed.\n\nResult:\nDone."
        assert announced["chat_id"] == "telegram:7"
        assert announced["sender_id"].startswith("subagent:task_")
        assert announced["metadata"]["thread"] == "th_boss"
        assert kept == {}
