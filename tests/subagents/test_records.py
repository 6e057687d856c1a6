"""The records of delegated tasks in the thread that gave them, and what the models read of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from tests.engine.support import Door, async_door, sync_door, wild
from tests.subagents.test_background import Family, clerk, start, with_ids
from tests.subagents.test_delegation import agent_of, ask_of, give
from tests.support.provider import Call, Provider, Reply
from wick_graph import Agent
from wick_graph.hooks import SummarizationHook
from wick_graph.messages import (
    agent_call,
    agent_response,
    error_message,
    filter_messages,
    human,
    lower,
    metadata_of,
    role_of,
    timestamp_of,
)
from wick_graph.models import resolve_model
from wick_graph.store import SqlSaver
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, calls, error

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}") as saver:
        yield saver


def roles(messages: list[BaseMessage]) -> list[str]:
    return [role_of(m) for m in messages]


@DOORS
def test_a_delegated_task_is_recorded_as_a_pair(door: Door, store: SqlSaver) -> None:
    start_at = datetime.now(UTC)
    child = agent_of("child", store, "Paris.")
    parent = agent_of("the boss", store, give("child", "Capital?"), "Paris!", "Yes.", child=child)
    result = door(parent, "Ask", thread_id="t")
    assert roles(result.messages) == [
        "user",
        "assistant",
        "tool",
        "agent_call",
        "agent_response",
        "assistant",
    ]
    asked, answered = result.messages[3:5]
    (below,) = [i.thread_id for i in store.threads.list() if i.parent == "t"]
    assert (asked.name, asked.text, answered.name, answered.text) == (
        *("child", "Capital?"),
        *("child", "Paris."),
    )
    assert metadata_of(asked)["caller"] == "the boss"
    assert metadata_of(asked)["task_id"] == metadata_of(answered)["task_id"] == below
    spent = metadata_of(answered)["completion_time"]
    assert 0 < spent < 60
    assert filter_messages(result.messages, after=start_at) == result.messages
    began, ended = timestamp_of(asked), timestamp_of(answered)
    assert began is not None
    assert ended is not None
    assert (ended - began).total_seconds() == pytest.approx(spent)
    door(parent, "Sure?", thread_id="t")
    assert [m.type for m in ask_of(parent).calls[-1].messages] == [
        *("human", "ai", "tool", "ai"),
        "human",
    ]


@DOORS
def test_tasks_of_one_reply_keep_their_answers_together(door: Door, store: SqlSaver) -> None:
    a, b = agent_of("a", store, "A."), agent_of("b", store, "B.")
    both = calls(
        ("delegate_to_agent", {"agent": "a", "task": "Do a"}),
        ("delegate_to_agent", {"agent": "b", "task": "Do b"}),
        unchecked=True,
    )
    result = door(agent_of("boss", store, both, "Done", a=a, b=b), "Go", thread_id="t")
    pair = ["agent_call", "agent_response"]
    assert roles(result.messages) == ["user", "assistant", "tool", "tool", *pair * 2, "assistant"]
    assert [m.name for m in result.messages[4:8]] == ["a", "a", "b", "b"]


@DOORS
def test_a_task_that_failed_is_recorded_with_its_error(door: Door, store: SqlSaver) -> None:
    child = agent_of("child", store, error(RuntimeError("broken")))
    parent = agent_of("boss", store, give("child", "Try"), "It failed.", "Yes.", child=child)
    result = door(parent, "Go", thread_id="t")
    asked, failed = result.messages[3:5]
    assert roles([asked, failed]) == ["agent_call", "error"]
    assert failed.name == "child"
    notes = metadata_of(failed)
    assert (notes["error_type"], notes["caller"]) == ("ModelError", "boss")
    assert notes["task_id"] == metadata_of(asked)["task_id"]
    (below,) = [i.thread_id for i in store.threads.list() if i.parent == "t"] or [""]
    door(parent, "More", thread_id="t")
    sent = ask_of(parent).calls[-1].messages
    assert [m.type for m in sent] == ["human", "ai", "tool", "ai", "human"]
    assert sum("broken" in m.text for m in sent) == 1
    child_thread = below or notes["task_id"]
    held = child.graph.get_state({"configurable": {"thread_id": child_thread}}).values["messages"]
    assert roles(held) == ["user", "error"]


def test_a_task_that_is_given_again_records_the_same(store: SqlSaver) -> None:
    child = agent_of("child", store, "Paris.")
    parent = agent_of("boss", store, give("child", "Capital?"), "Paris!", child=child)
    config: Any = {"configurable": {"thread_id": "t"}}
    first = parent.invoke("Ask", thread_id="t").messages[3:5]
    (before,) = [s for s in parent.graph.get_state_history(config) if s.next == ("tools",)]
    parent.graph.invoke(None, before.config)  # the step is run again, and finds the child's end
    held = parent.graph.get_state(config).values["messages"]
    assert [m for m in held if role_of(m) in ("agent_call", "agent_response")] == first


def test_a_record_whose_call_was_left_out_is_not_told() -> None:
    records = [
        agent_call("Do it", "child", caller="boss", task_id="x", tool_call_id="c1"),
        agent_response("Done", "child", task_id="x", tool_call_id="c1"),
        error_message("broken", "child", metadata={"caller": "boss"}, tool_call_id="c1"),
    ]
    assert [m.text for m in lower([human("Hi"), *records], "boss")] == ["Hi"]
    told = [m.text for m in lower([human("Hi"), *records], "child")]
    assert told == ["Hi", "[Request from boss]: Do it"]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_providers_take_a_thread_with_pairs(provider: Provider, kind: str, store: SqlSaver) -> None:
    where = provider.url if kind == "openai" else provider.origin
    spec = {"provider": kind, "model": "m", "base_url": where}
    model = resolve_model(spec | ({} if kind == "ollama" else {"api_key": "sk"}), env={})
    child = agent_of("child", store, "Paris.")
    below = {"child": Subagent(child, "Knows")}
    parent = Agent("boss", model, store=store, tools=[delegation(below)])
    args = {"agent": "child", "task": "Capital of France?"}
    provider.say(Reply(calls=[Call(name="delegate_to_agent", args=args, id="c1")]), "OK.", "Bye.")
    parent.invoke("Ask", thread_id="t")
    parent.invoke("Bye", thread_id="t")
    sent = json.dumps(provider.bodies[-1]["messages"])
    assert sent.count("Paris.") == 1
    assert sent.count("Capital of France?") == 1
    assert "Request from" not in sent


@DOORS
def test_a_background_task_is_recorded_when_it_begins_and_once_when_it_has_ended(
    door: Door, store: SqlSaver
) -> None:
    family = Family(
        store,
        start("a", "Do it"),
        with_ids("await_async_tasks"),
        with_ids("check_async_task", many=False),
        "Done.",
        a=clerk("a", store, "A."),
    )
    result = door(family.boss, "Go", thread_id="t")
    found = [m for m in result.messages if role_of(m) in ("agent_call", "agent_response")]
    assert [(role_of(m), m.name, m.text) for m in found] == [
        ("agent_call", "a", "Do it"),
        ("agent_response", "a", "A."),
    ]
    (task,) = {metadata_of(m)["task_id"] for m in found}
    assert task.startswith("task_")
    assert metadata_of(found[0])["caller"] == "boss"
    assert metadata_of(found[1])["completion_time"] > 0
    sent = [m.type for m in family.model.calls[-1].messages if m.type != "system"]
    assert sent == ["human", *("ai", "tool") * 3, "human"]  # how the tasks stand, last


def test_a_background_task_that_failed_is_recorded(store: SqlSaver) -> None:
    family = Family(
        store,
        start("a", "Do it"),
        with_ids("await_async_tasks"),
        "Failed.",
        a=clerk("a", store, error(RuntimeError("broken"))),
    )
    result = family.boss.invoke("Go", thread_id="t")
    (failed,) = [m for m in result.messages if role_of(m) == "error"]
    assert failed.name == "a"
    assert "broken" in failed.text


def test_the_estimate_counts_nothing_of_a_pair_twice(store: SqlSaver) -> None:
    child = agent_of("child", store, "Paris. " * 4_000)
    parent = ScriptedModel([give("child", "Say it often"), "OK", "Bye"])
    below = {"child": Subagent(child, "Knows")}
    summary = SummarizationHook(15_000)
    boss = Agent("boss", parent, store=store, tools=[delegation(below)], hooks=[summary])
    boss.invoke("Go", thread_id="t")
    boss.invoke("Bye", thread_id="t")
    assert len(parent.calls) == 3


def test_an_unknown_agent_is_refused_without_a_record(store: SqlSaver) -> None:
    child = agent_of("child", store, "Never.")
    parent = agent_of(
        "boss", store, wild("delegate_to_agent", agent="x", task="y"), "OK", child=child
    )
    assert roles(parent.invoke("Go").messages) == ["user", "assistant", "tool", "assistant"]
