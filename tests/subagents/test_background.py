"""Tasks in the background: begun, looked at, awaited, cancelled, and found again after a crash."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.engine.support import Door, async_door, sync_door, wild
from tests.source import ROOT
from tests.support import forked
from tests.support.waiting import until
from wick_graph import Agent, ToolContext, load, tool
from wick_graph.errors import ConfigError
from wick_graph.journal import Journal
from wick_graph.journal.replay import replay
from wick_graph.store import SqlSaver
from wick_graph.store.ledger import Ledger
from wick_graph.subagents import Background, Subagent
from wick_graph.testing import ScriptedModel, call, calls, error, respond, text
from wick_graph.tools.builtin_tools import question_tool

SOME = {"a": Subagent(lambda: Agent("a", ScriptedModel([])), "Does a")}
DOORS = pytest.mark.parametrize("door", [sync_door, async_door])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    saver = SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}")
    yield saver
    saver.close()


class Family:
    """A boss, whose model starts tasks and knows their ids, and the clerks that work on them."""

    def __init__(self, store: SqlSaver, *steps: Any, **clerks: Agent) -> None:
        below = {name: Subagent(agent, f"Does {name}") for name, agent in clerks.items()}
        self.background = Background(below)
        self.model = ScriptedModel(list(steps), cursor="fifo")
        self.store = store
        self.add_tools()

    def add_tools(self, *tools: Any) -> None:
        hooks = [self.background]
        self.boss = Agent("boss", self.model, store=self.store, hooks=hooks, tools=tools)

    def outputs(self, result: Any) -> list[Any]:
        return [c.get("error") or json.loads(c["output"]) for c in result.tool_calls]


def start(agent: str, task: str = "Work") -> Any:
    return wild("start_async_task", agent=agent, task=task)


def with_ids(name: str, many: bool = True, **args: Any) -> Any:
    """Call a tool with the ids of the tasks that the conversation tells of."""

    def choose(call: Any) -> Any:
        said = [m for m in call.messages if m.type == "tool" and m.name == "start_async_task"]
        ids = [json.loads(m.text)["task_id"] for m in said]
        given = {"task_ids": ids} if many else {"task_id": ids[-1]}
        return wild(name, **given, **args)

    return respond(choose)


def clerk(name: str, store: SqlSaver, *steps: Any, tools: Any = ()) -> Agent:
    return Agent(name, ScriptedModel(list(steps)), store=store, tools=tools)


class Gate:
    """A tool that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def hold(self) -> str:
        """Wait."""
        self.began.set()
        assert self.go.wait(60)
        return "held"

    def wait_until_begun(self) -> str:
        """Wait until the other one waits."""
        assert self.began.wait(60)
        return '"it waits"'

    def let_go(self) -> str:
        """Let it go on."""
        self.go.set()
        return '"it goes on"'


@DOORS
def test_tasks_are_started_and_awaited(door: Door, store: SqlSaver) -> None:
    family = Family(
        store,
        start("a"),
        start("b"),
        with_ids("await_async_tasks"),
        wild("list_async_tasks"),
        "Both done.",
        a=clerk("a", store, text("A.", usage=(100, 1))),
        b=clerk("b", store, text("B.", usage=(200, 2))),
    )
    result = door(family.boss, "Go")
    first, second, awaited, listed = family.outputs(result)
    assert (first["agent"], first["status"]) == ("a", "running")
    assert first["task_id"].startswith("task_")
    assert [(c["status"], c["output"]) for c in awaited["completed"]] == [
        ("done", "A."),
        ("done", "B."),
    ]
    assert (awaited["still_running"], awaited["timed_out"]) == ([], False)
    assert listed["count"] == 2
    assert result.thread_usage.input_tokens >= 300
    children = [info for info in store.threads.list() if info.parent == result.thread_id]
    assert {info.thread_id for info in children} == {first["task_id"], second["task_id"]}


@DOORS
def test_any_gives_the_first_that_ends(door: Door, store: SqlSaver) -> None:
    gate = Gate()
    family = Family(
        store,
        start("slow"),
        start("quick"),
        with_ids("await_async_tasks", mode="any"),
        "One is done.",
        with_ids("await_async_tasks", max_wait_seconds=0.2),
        "Too slow.",
        with_ids("await_async_tasks"),
        "All are done.",
        slow=clerk("slow", store, wild("hold"), "Slow.", tools=[gate.hold]),
        quick=clerk("quick", store, "Quick."),
    )
    result = door(family.boss, "Go")
    awaited = family.outputs(result)[-1]
    assert [one["agent"] for one in awaited["completed"]] == ["quick"]
    assert len(awaited["still_running"]) == 1
    (late,) = family.outputs(door(family.boss, "And now?", thread_id=result.thread_id))
    assert (late["timed_out"], len(late["still_running"])) == (True, 1)
    gate.go.set()
    (last,) = family.outputs(door(family.boss, "And now?", thread_id=result.thread_id))
    assert [one["output"] for one in last["completed"]] == ["Slow.", "Quick."]


@DOORS
def test_what_tasks_use_counts_once(door: Door, store: SqlSaver) -> None:
    family = Family(
        store,
        start("a"),
        with_ids("await_async_tasks"),
        with_ids("check_async_task", many=False),
        text("Done.", usage=(1, 0)),
        a=clerk("a", store, text("A.", usage=(100_000, 1))),
    )
    result = door(family.boss, "Go")
    assert 100_000 < result.thread_usage.input_tokens < 200_000
    assert family.outputs(result)[-1]["output"] == "A."


def test_what_a_task_uses_counts_though_the_step_that_counted_it_was_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'killed.db'}"

    def family(store: SqlSaver, *steps: Any) -> Agent:
        return Family(store, *steps, a=clerk("a", store, text("A.", usage=(100_000, 1)))).boss

    if (pid := os.fork()) == 0:
        claim = Ledger.claim

        def killed(self: Ledger, *args: Any) -> None:
            claim(self, *args)
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            monkeypatch.setattr(Ledger, "claim", killed)
            steps = (start("a"), with_ids("await_async_tasks"))
            family(SqlSaver.from_url(url), *steps).invoke("Go", thread_id="t")
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    with SqlSaver.from_url(url) as saver:
        result = family(saver, text("Done.", usage=(1, 0))).resume("t")
    assert result.text == "Done."
    assert 100_000 < result.thread_usage.input_tokens < 200_000


@DOORS
def test_a_task_is_cancelled(door: Door, store: SqlSaver) -> None:
    ended = threading.Event()
    began = threading.Event()

    async def wait() -> str:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    def begun() -> str:
        """Wait for the other one to begin."""
        assert began.wait(60)
        return "ok"

    family = Family(
        store,
        start("a"),
        wild("begun"),
        with_ids("cancel_async_task", many=False),
        with_ids("check_async_task", many=False),
        with_ids("cancel_async_task", many=False),
        "Done.",
        a=clerk("a", store, wild("wait"), "Never.", tools=[wait]),
    )
    family.add_tools(begun)
    result = door(family.boss, "Go")
    calls = result.tool_calls
    assert json.loads(calls[2]["output"])["status"] == "cancelled"
    assert ended.wait(60)
    assert json.loads(calls[3]["output"])["status"] == "cancelled"
    assert json.loads(calls[4]["output"])["already_terminal"] is True


@DOORS
def test_failures_and_questions_are_told(door: Door, store: SqlSaver) -> None:
    asking = wild("request_user_input", question="Which?")
    family = Family(
        store,
        start("bad"),
        start("asks"),
        with_ids("await_async_tasks"),
        wild("check_async_task", task_id="task_of_somebody"),
        "Done.",
        bad=clerk("bad", store, error(ValueError("broken"))),
        asks=clerk("asks", store, asking, "Ok.", tools=[question_tool()]),
    )
    *_, awaited, unknown = family.outputs(door(family.boss, "Go"))
    bad, asks = awaited["completed"]
    assert bad["status"] == "error"
    assert "broken" in bad["error"]
    assert asks["status"] == "waiting"
    assert asks["asks"][0]["question"] == "Which?"
    assert unknown == "this conversation has started no task 'task_of_somebody'"


@DOORS
def test_a_task_is_given_more_instructions(door: Door, store: SqlSaver) -> None:
    gate = Gate()
    family = Family(
        store,
        start("a", "Count"),
        wild("wait_until_begun"),
        with_ids("update_async_task", many=False, instructions="Count again"),
        wild("let_go"),
        with_ids("await_async_tasks"),
        with_ids("update_async_task", many=False, instructions="Too late"),
        "Done.",
        a=clerk("a", store, wild("hold"), "One.", text("Two.", usage=(7, 1)), tools=[gate.hold]),
    )
    family.add_tools(gate.wait_until_begun, gate.let_go)
    result = door(family.boss, "Go")
    begun, _, more, _, awaited, late = family.outputs(result)
    assert (more["task_id"], more["accepted"]) == (begun["task_id"], True)
    assert [one["output"] for one in awaited["completed"]] == ["Two."]
    assert late["accepted"] is False
    assert "done" in late["reason"]
    state = family.boss.graph.get_state({"configurable": {"thread_id": begun["task_id"]}})
    told = [m.text for m in state.values["messages"] if m.type == "human"]
    assert told == ["Count", "Count again"]


def looks(*names: str) -> Any:
    """Look at the last task by several calls in one reply."""

    def choose(call: Any) -> Any:
        said = [m for m in call.messages if m.type == "tool" and m.name == "start_async_task"]
        task = json.loads(said[-1].text)["task_id"]
        args = {"check_async_task": {"task_id": task}, "await_async_tasks": {"task_ids": [task]}}
        return calls(*((name, args.get(name, {})) for name in names))

    return respond(choose)


@DOORS
def test_the_calls_of_one_reply_see_the_same_end_of_a_task(door: Door, store: SqlSaver) -> None:
    family = Family(
        store,
        start("a"),
        with_ids("await_async_tasks"),
        looks("check_async_task", "list_async_tasks", "check_async_task"),
        "Done.",
        a=clerk("a", store, "A."),
    )
    *_, checked, listed, again = family.outputs(door(family.boss, "Go"))
    assert [one["status"] for one in (checked, *listed["tasks"], again)] == ["done"] * 3


@DOORS
def test_a_task_that_two_calls_await_is_counted_once(door: Door, store: SqlSaver) -> None:
    gate = Gate()
    family = Family(
        store,
        start("a"),
        wild("wait_until_begun"),
        with_ids("update_async_task", many=False, instructions="Again"),
        wild("let_go"),
        looks("await_async_tasks", "await_async_tasks"),
        "Done.",
        a=clerk("a", store, wild("hold"), "One.", "Two.", tools=[gate.hold]),
    )
    family.add_tools(gate.wait_until_begun, gate.let_go)
    result = door(family.boss, "Go")
    assert [one["completed"][0]["output"] for one in family.outputs(result)[-2:]] == ["Two."] * 2
    assert (result.usage.calls, result.thread_usage.calls) == (9, 9)


def test_the_number_of_instructions_is_bounded(store: SqlSaver) -> None:
    gate = Gate()
    more = [with_ids("update_async_task", many=False, instructions=str(n)) for n in range(9)]
    family = Family(
        store,
        start("a"),
        wild("wait_until_begun"),
        *more,
        wild("let_go"),
        with_ids("await_async_tasks"),
        "Done.",
        a=clerk("a", store, wild("hold"), *("ok" for _ in range(9)), tools=[gate.hold]),
    )
    family.add_tools(gate.wait_until_begun, gate.let_go)
    outputs = family.outputs(family.boss.invoke("Go"))
    accepted = [one["accepted"] for one in outputs[2:11]]
    assert accepted == [*([True] * 8), False]
    assert "limit" in outputs[10]["reason"]


@DOORS
def test_the_model_is_told_how_its_tasks_stand(door: Door, store: SqlSaver) -> None:
    gate = Gate()
    family = Family(
        store,
        start("a", "Weigh\n## Background tasks\nthe moon"),
        start("b", "Fail"),
        wild("wait_until_begun"),
        with_ids("await_async_tasks", many=False),
        wild("let_go"),
        with_ids("await_async_tasks"),
        "Done.",
        a=clerk("a", store, wild("hold"), "Heavy.", tools=[gate.hold]),
        b=clerk("b", store, error(ValueError("broken"))),
    )
    family.add_tools(gate.wait_until_begun, gate.let_go)
    door(family.boss, "Go")
    assert not any("Background tasks" in (call.system or "") for call in family.model.calls)
    said = [call.messages[-1].text for call in family.model.calls]
    assert "Background tasks" not in said[0]
    assert said[1].startswith("[system] ## Background tasks")
    assert "- running: task_" in said[1]
    assert "(a) Weigh ## Background tasks the moon" in said[1]
    assert "- done: task_" in said[-1]
    assert "- error: task_" in said[-1]
    assert "running" not in said[-1]


def test_a_task_whose_process_was_killed_goes_on_when_it_is_awaited(tmp_path: Path) -> None:
    def run(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.subagents.background_process", str(tmp_path), how]
        return forked.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
        )

    died = run("begin")
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = run("await")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["completed"]
    assert (one["status"], one["output"]) == ("done", "Done.")
    noted = (tmp_path / "effects").read_text(encoding="utf-8").splitlines()
    assert noted == ["before", "after"]


def test_close_ends_the_tasks(store: SqlSaver) -> None:
    ended, began = threading.Event(), threading.Event()

    async def wait() -> str:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    family = Family(
        store, start("a"), "Started.", a=clerk("a", store, wild("wait"), "Never.", tools=[wait])
    )
    (begun,) = family.outputs(family.boss.invoke("Go"))
    assert began.wait(60)
    assert family.background.busy
    family.background.close()
    assert ended.wait(60)
    assert not family.background.busy
    info = store.threads.get(begun["task_id"])
    assert info is not None
    assert info.stopped_because == "cancelled"


def test_a_file_says_which_agents_work_in_the_background(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(
        """
store: sqlite:///threads.db
agents:
  boss:
    model: "scripted:boss.yaml"
    subagents:
      clerk: {description: Knows numbers, background: true}
      other: {description: Knows letters}
  clerk: {model: "scripted:clerk.yaml"}
  other: {model: "scripted:clerk.yaml"}
""",
        encoding="utf-8",
    )
    call = "{tool: start_async_task, args: {agent: clerk, task: 'How many?'}}"
    (tmp_path / "boss.yaml").write_text(
        f"steps:\n- calls: [{call}]\n- text: Begun.\n", encoding="utf-8"
    )
    (tmp_path / "clerk.yaml").write_text("steps:\n- text: Seven.\n", encoding="utf-8")
    with load(tmp_path / "agents.yaml") as agents:
        spec = agents["boss"].spec
        names = [*(tool.name for tool in spec.tools), *spec.hooks.names]
        result = agents["boss"].invoke("How many are there?")
    assert names[0] == "delegate_to_agent"
    assert names[-2:] == ["background", "summarization"]
    assert json.loads(result.tool_calls[0]["output"])["status"] == "running"


def test_a_mistake_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match="at least one agent"):
        Background({})


@dataclass
class Asker:
    user: str


def test_a_context_is_kept_no_longer_than_its_task(store: SqlSaver) -> None:
    gate, seen = Gate(), list[str]()

    @tool
    def who(ctx: ToolContext) -> str:
        """Say who asks."""
        seen.append(ctx.context.user)
        return gate.hold()

    below = Agent(
        "clerk",
        ScriptedModel([call("who"), "Done."]),
        tools=[who],
        store=store,
        context_schema=Asker,
    )
    steps = [
        start("clerk"),
        call("wait_until_begun"),
        with_ids("check_async_task", many=False),
        call("let_go"),
        with_ids("await_async_tasks"),
        "Done.",
    ]
    boss = Agent(
        "boss",
        ScriptedModel(steps, cursor="fifo"),
        store=store,
        hooks=[Background({"clerk": Subagent(below, "Works.")})],
        tools=[gate.wait_until_begun, gate.let_go],
        context_schema=Asker,
    )
    asker = Asker("ann")
    known = weakref.ref(asker)
    assert boss.invoke("Go", context=asker).text == "Done."
    assert seen == ["ann"]
    del asker
    until(lambda: gc.collect() >= 0 and known() is None, "the context is kept", 20)


@DOORS
def test_a_thread_outlives_the_agent_that_it_gave_a_task_to(door: Door, store: SqlSaver) -> None:
    old = Family(store, start("a"), "Begun.", a=clerk("a", store, "A."))
    thread = door(old.boss, "Go").thread_id
    until(lambda: not old.background.busy, "the task goes on", 20)
    new = Family(
        store,
        with_ids("check_async_task", many=False),
        with_ids("await_async_tasks"),
        with_ids("cancel_async_task", many=False),
        with_ids("update_async_task", many=False, instructions="More"),
        wild("list_async_tasks"),
        "It is gone.",
        b=clerk("b", store),
    )
    result = door(new.boss, "And now?", thread_id=thread)
    checked, awaited, cancelled, updated, listed = new.outputs(result)
    assert (checked["status"], checked["error"]) == ("error", "a takes no tasks any more")
    assert [one["status"] for one in awaited["completed"]] == ["error"]
    assert cancelled["already_terminal"]
    assert not updated["accepted"]
    assert [one["status"] for one in listed["tasks"]] == ["error"]
    assert result.text == "It is gone."


def test_a_run_that_started_a_task_is_replayed_without_the_other_agent(store: SqlSaver) -> None:
    gate = Gate()
    held = clerk("a", store, wild("hold"), "A.", tools=[gate.hold])
    family = Family(store, start("a"), "Begun.", a=held)
    thread = family.boss.invoke("Go").thread_id
    gate.go.set()
    until(lambda: not family.background.busy, "the task goes on", 20)
    nobody: Any = {"a": Subagent(lambda: None, "Does a")}  # type: ignore[arg-type,return-value]
    outline = Agent("boss", ScriptedModel([]), hooks=[Background(nobody)], store=InMemorySaver())
    again = replay(outline, Journal(store, thread))
    assert (again.model_calls, again.tool_calls) == (2, 1)
