"""Between two turns nothing of a prompt changes before the new messages: it stays in the cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage

from tests.providers.speech import Said
from tests.providers.strict import Strict, blocks_of
from tests.providers.world import add, calls, model_of, show
from tests.support.wire import Call
from wick_graph import Agent
from wick_graph.backends import LocalBackend, Root
from wick_graph.hooks import (
    Budget,
    BudgetHook,
    FilesystemHook,
    LazySkillsHook,
    MemoryHook,
    SkillsHook,
    SummarizationHook,
    TodoListHook,
    TracingHook,
)
from wick_graph.middleware import MiddlewareHook
from wick_graph.models import resolve_model
from wick_graph.store import SqlSaver
from wick_graph.subagents import Background, Subagent
from wick_graph.testing import ScriptedModel
from wick_graph.tracing.recorder import JsonlRecorder

Make = Callable[[Path, SqlSaver], list[Any]]


@pytest.fixture
def kit() -> Iterator[Strict]:
    made = Strict()
    try:
        yield made
        assert not made.failures
        assert not made.refused
    finally:
        made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    made = SqlSaver.from_url(f"sqlite:///{tmp_path}/t.db")
    yield made
    made.close()


def filled(tmp_path: Path) -> Root:
    work = tmp_path / "work"
    (work / "skills" / "sums").mkdir(parents=True, exist_ok=True)
    (work / "AGENTS.md").write_text("I like tea.\n", "utf-8")
    skill = "---\nname: sums\ndescription: Adding up.\n---\nAdd with care.\n"
    (work / "skills" / "sums" / "SKILL.md").write_text(skill, "utf-8")
    return Root(work)


def background(tmp_path: Path, store: SqlSaver) -> list[Any]:
    helper = Agent("helper", ScriptedModel(["Done."] * 9, cursor="fifo"), store=store)
    return [Background({"helper": Subagent(helper, "Helps.")})]


HOOKS: dict[str, Make] = {
    "none": lambda path, store: [],
    "memory": lambda path, store: [MemoryHook(filled(path), ["AGENTS.md"])],
    "skills": lambda path, store: [SkillsHook(filled(path), ["skills"])],
    "lazy skills": lambda path, store: [LazySkillsHook(filled(path), ["skills"])],
    "todolist": lambda path, store: [TodoListHook()],
    "filesystem": lambda path, store: [FilesystemHook(LocalBackend(filled(path).path))],
    "budget": lambda path, store: [BudgetHook(Budget(tokens=10**9))],
    "tracing": lambda path, store: [TracingHook(JsonlRecorder(path / "trace.jsonl"))],
    "summarization": lambda path, store: [SummarizationHook(window=6_000)],
    "background": background,
    "all of them": lambda path, store: [
        made
        for name in ("memory", "lazy skills", "todolist", "filesystem", "tracing")
        for made in HOOKS[name](path, store)
    ],
}
FIRST: dict[str, list[Said]] = {
    "lazy skills": [Said(calls=[Call(name="activate_skill", args={"name": "sums"}, id="s1")])],
    "all of them": [Said(calls=[Call(name="activate_skill", args={"name": "sums"}, id="s1")])],
    "todolist": [
        Said(calls=[Call(name="write_todos", args={"todos": [{"title": "Add."}]}, id="w1")])
    ],
    "background": [
        Said(calls=[Call(name="start_async_task", args={"agent": "helper", "task": "x"}, id="b1")])
    ],
}


def prompts(kit: Strict) -> list[list[str]]:
    """Return what was sent, block by block in the order in which a provider reads it."""
    if "input" in kit.asked[0] or "system" in kit.asked[0] or "max_tokens" in kit.asked[0]:
        return [[text for text, _ in blocks_of(body)] for body in kit.asked]
    return [
        [json.dumps(part) for part in (body.get("tools"), *body["messages"])] for body in kit.asked
    ]


@pytest.mark.sisters(4)
@pytest.mark.parametrize("provider", ["Anthropic without thinking", "OpenAI chat"])
@pytest.mark.parametrize("name", HOOKS)
def test_the_prompt_keeps_its_beginning(
    kit: Strict, store: SqlSaver, tmp_path: Path, name: str, provider: str
) -> None:
    def turn(text: str, *replies: Any) -> None:
        """Take a turn as after a restart, so that nothing is remembered but what is stored."""
        kit.will_say(*replies)
        agent = Agent(
            "it",
            model_of(kit, provider),
            system_prompt="Be brief.",
            tools=[add, show],
            hooks=HOOKS[name](tmp_path, store),
            store=store,
        )
        agent.invoke(text, thread_id="t")

    turn("Hello.", *FIRST.get(name, []), "Hi.")
    if name == "summarization":
        for _ in range(3):
            turn("word " * 1_200, "Hm.")
        turn("word " * 1_200, "They talked.", "Hm.")
    kit.asked.clear()
    turn("One and two?", calls("add", "show list"), "Three.")
    turn("And now?", calls("show picture", text="Look."), calls("show error"), "So.")
    turn("Thanks.", "Bye.")
    assert len(kit.asked) == 6
    sent = prompts(kit)
    own = 1 if name == "background" else 0  # how the tasks stand is said last
    for before, after in pairwise(sent):
        kept = before[: len(before) - own]
        assert after[: len(kept)] == kept
        assert len(after) > len(before)


@pytest.mark.parametrize("name", ["none", "memory", "all of them"])
def test_a_new_thread_begins_with_the_same_prompt(
    kit: Strict, store: SqlSaver, tmp_path: Path, name: str
) -> None:
    hooks = HOOKS[name](tmp_path, store)
    agent = Agent(
        "it", model_of(kit, "Anthropic without thinking"), system_prompt="Be brief.", hooks=hooks
    )
    for thread in ("one", "two"):
        agent.invoke("Hello.", thread_id=thread)
    first, second = prompts(kit)
    assert first == second


def test_memory_that_has_changed_is_framed_by_another_mark(
    kit: Strict, store: SqlSaver, tmp_path: Path
) -> None:
    agent = Agent(
        "it", model_of(kit, "Anthropic without thinking"), hooks=HOOKS["memory"](tmp_path, store)
    )
    agent.invoke("Hello.")
    (tmp_path / "work" / "AGENTS.md").write_text("I like coffee.\n", "utf-8")
    agent.invoke("Hello.")
    marks = [body["system"].split('id="')[1].split('"')[0] for body in kit.asked]
    assert marks[0] != marks[1]


@pytest.mark.parametrize("name", ["none", "memory", "all of them"])
def test_langchain_s_caching_middleware_finds_the_last_turn_in_the_cache(
    kit: Strict, store: SqlSaver, tmp_path: Path, name: str
) -> None:
    hooks = [*HOOKS[name](tmp_path, store), MiddlewareHook(AnthropicPromptCachingMiddleware())]
    agent = Agent(
        "it",
        resolve_model(model_of(kit, "Anthropic without thinking"), env={}),
        system_prompt="Be brief. " * 50,
        tools=[add, show],
        hooks=hooks,
        store=store,
    )
    for text in ("One and two?", "And two and two?", "Thanks."):
        kit.will_say(calls("add"), "So.")
        result = agent.invoke(text, thread_id="t")
    assert len(kit.used) == 6
    assert kit.used[0]["read"] == 0
    for before, after in pairwise(kit.used):
        assert after["read"] == before["read"] + before["written"], "all that was sent before"
        assert after["written"] > 0
        assert after["rest"] == 0
    last = result.messages[-1]
    assert isinstance(last, AIMessage)
    usage = last.usage_metadata
    assert usage is not None
    assert usage["input_token_details"]["cache_read"] == kit.used[-1]["read"]
