"""What every stored message tells: when it was made, by which agent, and what failed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.engine.support import Door, add, async_door, sync_door, wild
from tests.source import ROOT
from tests.support.provider import Call, Provider, Reply
from wick_graph import Agent, BaseHook
from wick_graph.core.state import REMOVE_ALL, reduce_messages
from wick_graph.errors import ModelError
from wick_graph.messages import filter_messages, message, timestamp_of, to_wick
from wick_graph.messages.base import TIMESTAMP_KEY
from wick_graph.models import resolve_model
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls, error

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
NAME = "Clerk No. 1"
"""No provider would take this name."""
OWN = "2020-01-02T03:04:05+00:00"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}") as saver:
        yield saver


def agent_of(store: Any, *steps: Any, **options: Any) -> Agent:
    return Agent(NAME, ScriptedModel(list(steps)), store=store, tools=[add], **options)


def stored(agent: Agent, thread: str) -> list[BaseMessage]:
    """Read a thread as another process would."""
    held = agent.graph.get_state({"configurable": {"thread_id": thread}}).values["messages"]
    return list(held)


def times(messages: list[BaseMessage]) -> list[datetime | None]:
    return [timestamp_of(m) for m in messages]


# --- times and names -----------------------------------------------------------------------------


@DOORS
def test_all_messages_of_a_turn_are_found_by_time_and_the_replies_by_name(
    door: Door, store: SqlSaver
) -> None:
    before = datetime.now(UTC)
    agent = agent_of(store, calls(("add", {"a": 1, "b": 2})), "It is 3.")
    result = door(agent, "What is 1 + 2?", thread_id="t")
    after = datetime.now(UTC)
    for messages in (result.messages, stored(agent, "t")):
        assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]
        assert filter_messages(messages, after=before, before=after) == messages
        assert filter_messages(messages, after=after) == []
        assert filter_messages(messages, name=NAME) == [messages[1], messages[3]]
        assert times(messages) == sorted(times(messages), key=lambda t: t or before)
    assert times(result.messages) == times(stored(agent, "t"))


@pytest.mark.parametrize(
    "given",
    [
        {"role": "user", "content": "Hi"},
        {"messages": [HumanMessage("Hi")]},
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"messages": [("user", "Hi")]},
    ],
    ids=["dict", "graph", "graph, dict", "graph, pair"],
)
@pytest.mark.parametrize("saver", [None, InMemorySaver])
def test_a_message_is_dated_in_whatever_form_it_comes(given: Any, saver: Any) -> None:
    agent = agent_of(None if saver is None else saver(), "Hello")
    config: Any = {"configurable": {"thread_id": "t"}}
    if "messages" in given:
        agent.graph.invoke(given, config)
    else:
        agent.invoke(given, thread_id="t")
    assert None not in times(stored(agent, "t"))


def test_a_callers_own_time_is_kept_and_its_message_is_not_changed(store: SqlSaver) -> None:
    agent = agent_of(store, "One", "Two")
    dated, plain = message("user", "Hi", timestamp=OWN), HumanMessage("Hi")
    agent.invoke([dated, plain], thread_id="t")
    agent.invoke("More", thread_id="t")
    held = stored(agent, "t")
    assert held[0].additional_kwargs[TIMESTAMP_KEY] == OWN
    assert timestamp_of(held[1]) is not None
    assert plain.additional_kwargs == {}


def test_a_time_stays_through_later_turns_edits_and_forks(store: SqlSaver) -> None:
    agent = agent_of(store, "One", "Two", "Three")
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke("Hi", thread_id="t")
    first = times(stored(agent, "t"))
    at = agent.graph.get_state(config).config
    agent.invoke("More", thread_id="t")
    held = stored(agent, "t")
    assert times(held)[:2] == first
    changed = HumanMessage("Hello", id=held[0].id)  # an edit has no time of its own
    agent.graph.update_state(config, {"messages": [changed]})
    assert stored(agent, "t")[0].text == "Hello"
    assert times(stored(agent, "t"))[:4] == times(held)
    fork = agent.graph.update_state(at, {"messages": [HumanMessage("Other")]})
    assert times(agent.graph.get_state(fork).values["messages"])[:2] == first
    store.copy_thread("t", "copy")
    assert times(stored(agent, "copy")) == times(stored(agent, "t"))


def test_messages_of_hooks_are_dated(store: SqlSaver) -> None:
    class Greets(BaseHook):
        name = "greets"
        phases = ("before_agent",)

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return {"messages": [HumanMessage("By the way")]}

    agent = agent_of(store, "Yes", hooks=[Greets()])
    agent.invoke("Hi", thread_id="t")
    assert [m.text for m in stored(agent, "t")] == ["Hi", "By the way", "Yes"]
    assert None not in times(stored(agent, "t"))


def test_the_closing_text_of_the_limit_is_the_agents(store: SqlSaver) -> None:
    again = [calls(("add", {"a": 1, "b": 2})), calls(("add", {"a": 1, "b": 2}), unchecked=True)]
    result = agent_of(store, *again, max_iterations=2).invoke("Go", thread_id="t")
    assert result.stopped_because == "limit"
    assert result.messages[-1].name == NAME
    assert None not in times(result.messages)


def test_the_wick_form_has_no_name_of_the_agent_and_no_time(store: SqlSaver) -> None:
    result = agent_of(store, "Hello").invoke("Hi", thread_id="t")
    assert to_wick(result.messages[-1]) == {"role": "assistant", "content": "Hello"}


KILLED = """
import os, signal, sys
from wick_graph import Agent, tool
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls

@tool(replay="safe")
def first() -> str:
    "Do the first thing."
    return "1"

@tool(replay="safe")
def second() -> str:
    "Do the second thing."
    if "die" in sys.argv:
        import time
        with SqlSaver.from_url("sqlite:///threads.db") as other:
            while True:
                saved = other.get_tuple({"configurable": {"thread_id": "t"}})
                if any(c == "messages" for _, c, _ in saved.pending_writes or ()):
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.01)
    return "2"

model = ScriptedModel([calls(("first", {}), ("second", {})), "Done"])
agent = Agent("a", model, store="sqlite:///threads.db", tools=[first, second])
if "die" in sys.argv:
    for event in agent.stream("Go", thread_id="t"):
        pass
else:
    agent.resume("t")
agent.close()
"""


@pytest.mark.slow
def test_what_a_killed_process_had_written_keeps_its_time(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED, "utf-8")

    def run(*args: str) -> int:
        command = [sys.executable, "killed.py", *args]
        env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, cwd=tmp_path, env=env, timeout=100).returncode

    assert run("die") == -signal.SIGKILL
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/threads.db") as saver:
        config: Any = {"configurable": {"thread_id": "t"}}
        saved = saver.get_tuple(config)
        assert saved is not None
        written = [m for _, c, ms in saved.pending_writes or () if c == "messages" for m in ms]
        (mine,) = [m for m in written if isinstance(m, ToolMessage)]
        held = times(saved.checkpoint["channel_values"]["messages"])
    assert run() == 0
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/threads.db") as saver:
        now = saver.get_tuple(config)
        assert now is not None
        messages = now.checkpoint["channel_values"]["messages"]
    assert times(messages)[: len(held)] == held
    assert [m.type for m in messages] == ["human", "ai", "tool", "tool", "ai"]
    assert timestamp_of(messages[2]) == timestamp_of(mine)
    assert None not in times(messages)


# --- the reducer ---------------------------------------------------------------------------------


def test_writing_back_what_is_stored_changes_nothing() -> None:
    held = reduce_messages([], [HumanMessage("Hi"), AIMessage("Hello")])
    assert reduce_messages(held, list(held)) == held
    assert [m.id for m in reduce_messages(held, held[:1])] == [m.id for m in held]


def test_a_message_that_replaces_another_takes_its_time_unless_it_has_one() -> None:
    (old,) = reduce_messages([], [message("user", "Hi", timestamp=OWN, message_id="m")])
    (new,) = reduce_messages([old], [HumanMessage("Hello", id="m")])
    assert new.additional_kwargs[TIMESTAMP_KEY] == OWN
    later = "2021-01-01T00:00:00+00:00"
    (newer,) = reduce_messages([new], [message("user", "Ho", timestamp=later, message_id="m")])
    assert newer.additional_kwargs[TIMESTAMP_KEY] == later


def test_a_list_that_is_written_anew_keeps_the_times() -> None:
    held = reduce_messages([], [message("user", "Hi", timestamp=OWN, message_id="m")])
    again = [RemoveMessage(REMOVE_ALL), HumanMessage("Hi", id="m"), HumanMessage("Ho")]
    first, second = reduce_messages(held, again)
    assert first.additional_kwargs[TIMESTAMP_KEY] == OWN
    assert timestamp_of(second) is not None


# --- what providers are sent ---------------------------------------------------------------------


def provided(provider: Provider, kind: str, **options: Any) -> Agent:
    where = provider.url if kind == "openai" else provider.origin
    spec = {"provider": kind, "model": "m", "base_url": where, "retries": 0}
    model = resolve_model(spec | ({} if kind == "ollama" else {"api_key": "sk"}), env={})
    return Agent(NAME, model, tools=[add], system_prompt="Be brief.", **options)


PROVIDERS = pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])


@PROVIDERS
def test_no_provider_is_sent_a_time_or_the_agents_name(provider: Provider, kind: str) -> None:
    provider.say(Reply(calls=[Call(name="add", args={"a": 1, "b": 2}, id="c1")]), "3.", "Bye.")
    agent = provided(provider, kind)
    agent.invoke("Add", thread_id="t")
    agent.invoke("Bye", thread_id="t")
    first, second, third = provider.bodies
    for body in provider.bodies:
        sent = json.dumps(body)
        assert "Clerk" not in sent
        assert "timestamp" not in sent
        assert str(datetime.now(UTC).year) not in sent
    for earlier, later in ((first, second), (second, third)):
        said = [without_marks(m) for m in earlier["messages"]]
        assert [without_marks(m) for m in later["messages"]][: len(said)] == said


def without_marks(sent: Any) -> Any:
    return {key: value for key, value in sent.items() if key != "cache_control"}


def test_a_name_that_a_caller_gave_is_made_acceptable(provider: Provider) -> None:
    provider.say("Hello")
    provided(provider, "openai").invoke(HumanMessage("Hi", name="Ada L."), thread_id="t")
    assert provider.bodies[0]["messages"][1]["name"] == "Ada_L_"


def test_a_name_that_a_model_gave_is_kept_and_read(store: SqlSaver) -> None:
    class Names(BaseHook):
        name = "names"
        phases = ("wrap_model_call",)

        async def wrap_model_call(self, request: Any, next: Any) -> Any:
            reply = await next(request)
            return reply.model_copy(update={"name": "other"} if reply.text == "One" else {})

    model = ScriptedModel(["One", "Two"])
    agent = Agent(NAME, model, store=store, hooks=[Names()])
    agent.invoke("Hi", thread_id="t")
    agent.invoke("More", thread_id="t")
    assert [m.name for m in stored(agent, "t")] == [None, "other", None, NAME]
    assert [m.name for m in model.calls[1].messages] == [None, "other", None]


def test_equal_requests_have_one_key_in_langchains_cache(store: SqlSaver) -> None:
    model = ScriptedModel(["One", "Two", "Three"], cursor="fifo")
    model.cache = InMemoryCache()
    agent = Agent(NAME, model, store=store)
    for thread in ("t", "u"):
        assert agent.invoke("Hi", thread_id=thread).text == "One"
    assert len(model.calls) == 1


# --- failed runs ---------------------------------------------------------------------------------


@DOORS
def test_a_failed_run_leaves_its_error_in_the_thread(door: Door, store: SqlSaver) -> None:
    agent = agent_of(store, error(RuntimeError("no sk-ant-api03-abcdefghijklmnop")), "Better")
    start = datetime.now(UTC)
    with pytest.raises(ModelError):
        door(agent, "Hi", thread_id="t")
    (record,) = filter_messages(stored(agent, "t"), role="error", name=NAME, after=start)
    assert record.text.startswith("LLM call: RuntimeError: no ")
    assert "abcdefghijklmnop" not in record.text
    assert record.additional_kwargs["metadata"]["error_type"] == "ModelError"
    result = door(agent, "Again", thread_id="t")
    assert result.text == "Better"
    roles = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert roles == ["user", "error", "user", "assistant"]


@DOORS
def test_a_failed_run_goes_on_and_keeps_each_attempts_error(door: Door, store: SqlSaver) -> None:
    no = error(RuntimeError("no"))
    agent = agent_of(store, calls(("add", {"a": 1, "b": 2})), no, no, "It is 3.")
    with pytest.raises(ModelError):
        door(agent, "Add", thread_id="t")
    with pytest.raises(ModelError):
        agent.resume("t")
    assert agent.resume("t").text == "It is 3."
    roles = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert roles == ["user", "assistant", "tool", "error", "error", "assistant"]
    assert len({m.id for m in stored(agent, "t")}) == 6


def test_other_savers_keep_the_record_too() -> None:
    no = error(RuntimeError("no"))
    agent = agent_of(InMemorySaver(), no, no, "Better")
    with pytest.raises(ModelError):
        agent.invoke("Hi", thread_id="t")
    with pytest.raises(ModelError):
        agent.resume("t")
    assert agent.resume("t").text == "Better"
    roles = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert roles == ["user", "error", "error", "assistant"]


ON: Any = {"configurable": {"thread_id": "t"}}


async def _aupdate(agent: Agent, values: Any, **where: Any) -> None:
    await agent.graph.aupdate_state(ON, values, **where)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("own", [True, False])
def test_an_update_of_the_state_keeps_the_record(
    asynchronous: bool, own: bool, store: SqlSaver
) -> None:
    no = error(RuntimeError("no"))
    agent = agent_of(store if own else InMemorySaver(), *[no] * 9)

    def update(values: Any, **where: Any) -> list[str]:
        with pytest.raises(ModelError):
            agent.invoke([HumanMessage("Hi", id="hi")], thread_id="t")
        before = agent.graph.get_state(ON).values["messages"]
        if asynchronous:
            asyncio.run(_aupdate(agent, values, **where))
        else:
            agent.graph.update_state(ON, values, **where)
        assert agent.graph.get_state(ON).values["messages"][: len(before)] == before
        found = [to_wick(m)["role"] for m in stored(agent, "t")][len(before) - 1 :]
        agent.graph.update_state(ON, {"messages": [RemoveMessage(REMOVE_ALL)]})
        assert stored(agent, "t") == []
        return found

    edited = HumanMessage("Edited")
    assert update({"messages": [edited]}) == ["error", "user"]
    assert update({"messages": edited}, as_node="model") == ["error", "user"]
    assert update(None) == ["error"]
    assert update(None, as_node="__end__") == ["error"]
    assert update(Command(update={"messages": [edited]})) == ["error", "user"]


def test_an_update_as_an_input_keeps_the_record(store: SqlSaver) -> None:
    agent = agent_of(store, error(RuntimeError("no")), "Better", "Best")
    with pytest.raises(ModelError):
        agent.invoke("Hi", thread_id="t")
    values = {"messages": [HumanMessage("Again")]}
    agent.graph.update_state(ON, values, as_node="__input__")
    assert agent.resume("t").text == "Best"  # the step that failed goes on beside the input
    roles = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert roles == ["user", "error", "user", "assistant", "assistant"]


def test_an_update_can_remove_the_record(store: SqlSaver) -> None:
    agent = agent_of(store, *[error(RuntimeError("no"))] * 3)
    for gone in ([], [REMOVE_ALL]):
        with pytest.raises(ModelError):
            agent.invoke([HumanMessage("Hi", id="hi")], thread_id="t")
        ids = gone or [str(stored(agent, "t")[-1].id)]
        agent.graph.update_state(ON, {"messages": [RemoveMessage(one) for one in ids]})
        assert [m.type for m in stored(agent, "t")] == (["human"] if not gone else [])


def test_an_input_that_is_refused_leaves_no_record(store: SqlSaver) -> None:
    agent = agent_of(store, "Hello")
    agent.invoke("Hi", thread_id="t")
    with pytest.raises(Exception, match="empty"):
        agent.invoke("", thread_id="t")
    assert len(stored(agent, "t")) == 2


@PROVIDERS
def test_the_turn_after_a_failed_one_works_and_is_not_told_of_it(
    provider: Provider, kind: str
) -> None:
    provider.say(Reply(status=400, error="broken"), "Better.")
    agent = provided(provider, kind)
    with pytest.raises(ModelError):
        agent.invoke("Hi", thread_id="t")
    assert [m.type for m in stored(agent, "t")] == ["human", "chat"]
    assert agent.invoke("Again", thread_id="t").text == "Better."
    assert "broken" not in json.dumps(provider.bodies[1])
    asked = [m for m in provider.bodies[1]["messages"] if m["role"] != "system"]
    assert {m["role"] for m in asked} == {"user"}


def test_a_failed_hook_around_a_tool_keeps_the_finished_calls(store: SqlSaver) -> None:
    done: list[str] = []

    class Breaks(BaseHook):
        name = "breaks"
        phases = ("wrap_tool_call",)
        broken = True

        async def wrap_tool_call(self, call: Any, next: Any) -> Any:
            result = await next(call)
            return 5 if self.broken and call.args["a"] == 2 else result

    def put(a: int) -> str:
        """Put something down."""
        done.append(str(a))
        return "put"

    hook = Breaks()
    model = ScriptedModel([calls(("put", {"a": 1}), ("put", {"a": 2})), "Done"])
    agent = Agent("a", model, store=store, tools=[put], hooks=[hook])
    with pytest.raises(Exception, match="breaks"):
        agent.invoke("Go", thread_id="t")
    assert to_wick(stored(agent, "t")[-1])["role"] in ("error", "tool")
    Breaks.broken = False
    assert agent.resume("t").text == "Done"
    assert sorted(done) == ["1", "2"]
    kinds = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert kinds == ["user", "assistant", "tool", "tool", "error", "assistant"]
    assert done.count("1") == 1
    assert timedelta(0) < (times(stored(agent, "t"))[-1] or datetime.now(UTC)) - (
        times(stored(agent, "t"))[0] or datetime.now(UTC)
    )


@DOORS
@pytest.mark.parametrize("own", [True, False])
def test_the_next_turn_keeps_the_record_beside_finished_calls(
    door: Door, own: bool, store: SqlSaver
) -> None:
    class Breaks(BaseHook):
        name = "breaks"
        phases = ("wrap_tool_call",)

        async def wrap_tool_call(self, call: Any, next: Any) -> Any:
            if call.args["a"] == 2:
                while not finished:
                    await asyncio.sleep(0)
                raise RuntimeError("no")
            result = await next(call)
            finished.append(call.args["a"])
            return result

    finished: list[int] = []

    def put(a: int) -> str:
        """Put something down."""
        return "put"

    model = ScriptedModel([calls(("put", {"a": 1}), ("put", {"a": 2})), "Done"], cursor="fifo")
    saver = store if own else InMemorySaver()
    agent = Agent("a", model, store=saver, tools=[put], hooks=[Breaks()])
    with pytest.raises(Exception, match="breaks"):
        door(agent, "Go", thread_id="t")
    assert door(agent, "And now?", thread_id="t").text == "Done"
    roles = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert roles == ["user", "assistant", "tool", "tool", "error", "user", "assistant"]


def test_a_call_that_was_left_open_by_a_failure_is_answered_before_the_next_turn(
    store: SqlSaver,
) -> None:
    agent = agent_of(store, wild("add", a="x"), error(RuntimeError("no")), "Better")
    with pytest.raises(ModelError):
        agent.invoke("Add", thread_id="t")
    assert agent.invoke("Again", thread_id="t").text == "Better"
    roles = [to_wick(m)["role"] for m in stored(agent, "t")]
    assert roles == ["user", "assistant", "tool", "error", "user", "assistant"]
