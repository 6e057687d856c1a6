"""Tasks that agents give to agents: isolated, counted, told of, and answered for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from wick_graph import Agent, load
from wick_graph.errors import ConfigError
from wick_graph.events import ChatModelStream, Done, SubagentEvent, ToolEnd
from wick_graph.hooks import ApprovalHook, Approve, Reject
from wick_graph.store import SqlSaver
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, calls, error, text
from wick_graph.tools.builtin_tools import question_tool

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])


@pytest.fixture
def store(tmp_path: Path) -> Any:
    saver = SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}")
    yield saver
    saver.close()


def give(agent: str, task: str) -> Any:
    return wild("delegate_to_agent", agent=agent, task=task)


def agent_of(name: str, store: Any, *steps: Any, tools: Any = (), **children: Agent) -> Agent:
    model = ScriptedModel(list(steps))
    below = {key: Subagent(child, f"Does {key}") for key, child in children.items()}
    tools = [*tools, *([delegation(below)] if below else [])]
    return Agent(name, model, store=store, tools=tools)


def ask_of(agent: Agent) -> ScriptedModel:
    model = agent.spec.model.model
    assert isinstance(model, ScriptedModel)
    return model


@DOORS
def test_a_child_knows_the_task_alone(door: Door, store: SqlSaver) -> None:
    child = agent_of("child", store, "Paris.")
    parent = agent_of(
        "parent", store, give("child", "Capital of France?"), "It is Paris.", child=child
    )
    result = door(parent, "I plan a trip. What is the capital?")
    assert result.text == "It is Paris."
    assert result.tool_calls[0]["output"] == "Paris."
    (asked,) = ask_of(child).calls
    assert [m.text for m in asked.messages] == ["Capital of France?"]
    listed = {info.thread_id: info for info in store.threads.list()}
    (mine,) = [i for i in listed.values() if i.parent == result.thread_id]
    assert (mine.agent, mine.status) == ("child", "idle")


@DOORS
def test_what_a_child_uses_counts_for_its_parent(door: Door, store: SqlSaver) -> None:
    child = agent_of("child", store, text("Yes.", usage=(100, 10)))
    parent = agent_of(
        "parent",
        store,
        calls(("delegate_to_agent", {"agent": "child", "task": "?"}), usage=(5, 1), unchecked=True),
        text("Done.", usage=(7, 2)),
        child=child,
    )
    result = door(parent, "Go", thread_id="t", idempotency_key="k")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (112, 13)
    assert result.thread_usage == result.usage
    again = door(parent, "Go", thread_id="t", idempotency_key="k")
    assert again.usage == result.usage, "a repeated call tells the same"


@DOORS
def test_tasks_of_one_reply_run_side_by_side(door: Door, store: SqlSaver) -> None:
    together = threading.Barrier(2, timeout=30)

    def meet() -> str:
        """Meet the other one."""
        together.wait()
        return "met"

    a = agent_of("a", store, wild("meet"), "A.", tools=[meet])
    b = agent_of("b", store, wild("meet"), "B.", tools=[meet])
    two = calls(
        ("delegate_to_agent", {"agent": "a", "task": "x"}),
        ("delegate_to_agent", {"agent": "b", "task": "y"}),
        unchecked=True,
    )
    parent = agent_of("parent", store, two, "Done.", a=a, b=b)
    assert [c["output"] for c in door(parent, "Go").tool_calls] == ["A.", "B."]


@DOORS
def test_a_child_that_fails_is_an_error_for_the_model(door: Door, store: SqlSaver) -> None:
    child = agent_of("child", store, error(ValueError("broken")))
    parent = agent_of("parent", store, give("child", "x"), "Sorry.", child=child)
    (called,) = door(parent, "Go").tool_calls
    assert called["error"].startswith("child failed: LLM call: ")


def test_depth_and_number_are_bounded(store: SqlSaver) -> None:
    agents: dict[str, Agent] = {}
    me = Subagent(lambda: agents["me"], "Does it")
    tools = [delegation({"me": me}, max_depth=2, max_calls=1)]
    agents["me"] = Agent("me", ScriptedModel([give("me", "x"), "Done."]), store=store, tools=tools)
    result = agents["me"].invoke("Go")
    deepest = [i for i in store.threads.list() if i.parent]
    assert len(deepest) == 2
    assert result.text == "Done."
    many = calls(*[("delegate_to_agent", {"agent": "a", "task": "x"})] * 3, unchecked=True)
    a = Subagent(agent_of("a", store, "A."), "Does a")
    parent = Agent(
        "p", ScriptedModel([many, "Done."]), store=store, tools=[delegation({"a": a}, max_calls=2)]
    )
    ends = [called.get("error") for called in parent.invoke("Go").tool_calls]
    assert ends == [None, None, "this run has delegated 2 tasks, which is the limit"]


@pytest.mark.parametrize("streaming", ["sync", "async"])
def test_a_reader_is_told_where_things_happen(streaming: str, store: SqlSaver) -> None:
    def add(a: float, b: float) -> str:
        """Add."""
        return f"{a + b:g}"

    low = agent_of("low", store, wild("add", a=1, b=2), "Three.", tools=[add])
    mid = agent_of("mid", store, give("low", "1+2?"), "It is three.", low=low)
    top = agent_of("top", store, give("mid", "1+2?"), "Three it is.", mid=mid)

    async def read() -> list[Any]:
        return [event async for event in top.astream("1+2?")]

    events = [*top.stream("1+2?")] if streaming == "sync" else asyncio.run(read())
    assert isinstance(events[-1], Done)
    told = [event for event in events if isinstance(event, SubagentEvent)]
    (mine,) = [e for e in events if isinstance(e, ToolEnd)]
    assert {event.run_id for event in told} == {mine.run_id}
    assert {event.path for event in told} == {("mid",), ("mid", "low")}
    (added,) = [e for e in told if isinstance(e.inner, ToolEnd) and e.inner.name == "add"]
    assert (added.path, added.inner.output) == (("mid", "low"), "3")
    (given,) = [e for e in told if isinstance(e.inner, ToolEnd) and e.path == ("mid",)]
    assert added.cause == given.inner.run_id, "the call in mid's thread that began low's run"
    heard = "".join(
        e.inner.delta for e in told if isinstance(e.inner, ChatModelStream) and len(e.path) == 2
    )
    assert heard == "Three."
    assert added.to_dict()["data"]["path"] == ["mid", "low"]
    assert [type(e).__name__ for e in events].count("Done") == 1


@DOORS
def test_questions_of_children_reach_the_user(door: Door, store: SqlSaver) -> None:
    asking = [wild("request_user_input", question=f"Q{n}?") for n in (1, 2)]
    low = agent_of("low", store, *asking, "Low is done.", tools=[question_tool()])
    mid = agent_of("mid", store, give("low", "ask"), "Mid is done.", low=low)
    top = agent_of("top", store, give("mid", "ask"), "Top is done.", mid=mid)
    result = door(top, "Go")
    answers = []
    for number in (1, 2):
        assert result.stopped_because == "interrupted"
        (asked,) = result.interrupts
        assert asked.value["question"] == f"Q{number}?"
        assert asked.value["agents"] == ["mid", "low"]
        answers.append(f"A{number}")
        result = (
            top.resume(result.thread_id, answers[-1])
            if door is sync_door
            else asyncio.run(top.aresume(result.thread_id, answers[-1]))
        )
    assert result.text == "Top is done."
    outputs = [m.text for m in ask_of(low).calls[-1].messages if m.type == "tool"]
    assert outputs == ["A1", "A2"], "each answer went to its question"
    assert len(ask_of(low).calls) == 3


@DOORS
@pytest.mark.parametrize("last", [Approve(), Reject("too much")], ids=["approve", "reject"])
def test_a_question_with_an_answer_is_never_asked_again(
    door: Door, store: SqlSaver, last: Any
) -> None:
    """An answered question of a child that still has another one is no question any more."""
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    two = calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    low = agent_of("low", store, two, "Low is done.", tools=[pay])
    task = ("delegate_to_agent", {"agent": "low", "task": "pay"})
    both = calls(task, ("pay", {"amount": 3}), unchecked=True)
    mid = agent_of("mid", store, both, "Mid is done.", tools=[pay], low=low)
    tools = [delegation({"mid": Subagent(mid, "Does mid")})]
    model, hooks = ScriptedModel([give("mid", "pay"), "Done."]), [ApprovalHook({"pay": True})]
    top = Agent("top", model, store=store, tools=tools, hooks=hooks)
    result, asked = door(top, "Go", thread_id="t"), []
    for answer in (Approve(), Approve(), last):
        (one,) = result.interrupts
        asked.append(one.value["args"]["amount"])
        given = {one.id: answer}
        result = (
            top.resume("t", given) if door is sync_door else asyncio.run(top.aresume("t", given))
        )
    assert (asked, result.text) == ([1, 3, 2], "Done.")
    assert sorted(paid) == ([1, 2, 3] if last == Approve() else [1, 3])


def test_two_children_that_ask_at_once_get_their_own_answers(store: SqlSaver) -> None:
    def asker(name: str) -> Agent:
        step = wild("request_user_input", question=f"{name}?")
        return agent_of(name, store, step, f"{name} is done.", tools=[question_tool()])

    two = calls(
        ("delegate_to_agent", {"agent": "a", "task": "x"}),
        ("delegate_to_agent", {"agent": "b", "task": "y"}),
        unchecked=True,
    )
    a, b = asker("a"), asker("b")
    parent = agent_of("parent", store, two, "Done.", a=a, b=b)
    result = parent.invoke("Go")
    answers = {one.id: f"for {one.value['question']}" for one in result.interrupts}
    assert len(answers) == 2
    assert parent.resume(result.thread_id, answers).text == "Done."
    for agent in (a, b):
        (heard,) = [m.text for m in ask_of(agent).calls[-1].messages if m.type == "tool"]
        assert heard == f"for {agent.name}?"


async def test_a_child_is_cancelled_with_its_parent(store: SqlSaver) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    child = agent_of("child", store, wild("wait"), "Never.", tools=[wait])
    parent = agent_of("parent", store, give("child", "wait"), "Never.", child=child)
    task = asyncio.create_task(parent.ainvoke("Go", thread_id="th_top"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert {info.status for info in store.threads.list()} <= {"idle", "failed"}


def test_a_child_goes_on_where_its_parents_reader_left(store: SqlSaver) -> None:
    child = Agent("child", ScriptedModel(["one two three four"], chunk_delay=0.05), store=store)
    parent = agent_of("parent", store, give("child", "count"), "Done.", child=child)
    told: Any = parent.stream("Go", thread_id="th_top")
    for event in told:
        if isinstance(event, SubagentEvent) and isinstance(event.inner, ChatModelStream):
            break
    told.close()
    result = parent.resume("th_top")
    assert [m.text for m in result.messages if m.type == "tool"] == ["one two three four"]
    assert result.text == "Done."


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda a: delegation({}), "at least one agent"),
        (lambda a: delegation({"a": Subagent(a, " ")}), "the sub-agent a needs a description"),
        (lambda a: delegation({"a": Subagent(a, "x")}, max_depth=0), "must be at least 1"),
    ],
)
def test_a_mistake_is_told_at_once(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make(Agent("a", ScriptedModel(["x"])))


def test_a_file_names_sub_agents(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(
        """
store: sqlite:///threads.db
agents:
  boss:
    model: "scripted:boss.yaml"
    subagents: {clerk: {description: Knows numbers}}
  clerk: {model: "scripted:clerk.yaml"}
""",
        encoding="utf-8",
    )
    call = "{tool: delegate_to_agent, args: {agent: clerk, task: 'How many?'}}"
    (tmp_path / "boss.yaml").write_text(
        f"steps:\n- calls: [{call}]\n- text: Seven it is.\n", encoding="utf-8"
    )
    (tmp_path / "clerk.yaml").write_text("steps:\n- text: Seven.\n", encoding="utf-8")
    with load(tmp_path / "agents.yaml") as agents:
        result = agents["boss"].invoke("How many are there?")
        assert "Knows numbers" in agents["boss"].spec.tools[0].description
    assert (result.text, result.tool_calls[0]["output"]) == ("Seven it is.", "Seven.")


def test_an_unknown_sub_agent_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(
        "agents:\n  boss:\n    model: scripted:demo\n    subagents:\n      bos: {description: x}\n",
        encoding="utf-8",
    )
    with (
        load(tmp_path / "agents.yaml") as agents,
        pytest.raises(ConfigError, match=r"agents\.yaml:5: .*there is no agent bos.*boss"),
    ):
        agents["boss"]
