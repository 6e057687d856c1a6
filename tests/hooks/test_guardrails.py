"""Guardrails: a run ends politely, the refused text reaches nobody, a refused input is not kept."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import PIIMiddleware
from langchain_core.messages import AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from tests.engine.support import Door, async_door, roles, sync_door, wild
from tests.source import ROOT
from tests.support import forked
from wick_graph import Agent, BaseHook, SqlSaver, ToolContext, tool
from wick_graph.debug import DebugSession
from wick_graph.errors import ConfigError
from wick_graph.events import ChatModelEnd, ChatModelStream, Done
from wick_graph.hooks import InputGuardrail, OutputGuardrail, Tripwire
from wick_graph.journal import Journal
from wick_graph.middleware import MiddlewareHook
from wick_graph.models import NativeOutput, PromptedOutput, ToolOutput
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import Lane, ScriptedModel, When, call, calls

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
PHASES = ("before_agent", "modify_request", "wrap_model_call", "after_model", "wrap_tool_call")


@tool
def look() -> str:
    """Look."""
    return "seen"


class Trips(BaseHook):
    """Raise in one phase."""

    name = "trips"
    withholds = True

    def __init__(self, phase: str, after: bool = False) -> None:
        def trip(*args: Any) -> Any:
            raise Tripwire("rule 7", answer="Not this.")

        def last(request: Any, next: Any) -> Any:
            next(request)
            trip()

        setattr(self, phase, last if after else trip)


def agent_of(*steps: Any, **options: Any) -> Agent:
    options.setdefault("tools", [look])
    return Agent("a", ScriptedModel([*steps]), **options)


def store_of(agent: Agent) -> SqlSaver:
    assert isinstance(agent.store, SqlSaver)
    return agent.store


def state_of(agent: Agent, thread: str = "t") -> dict[str, Any]:
    values: dict[str, Any] = agent.graph.get_state({"configurable": {"thread_id": thread}}).values
    return values


def has_secret(text: str) -> str | None:
    return "it tells the secret" if "tulip" in text else None


async def ahas_secret(text: str) -> str | None:
    return has_secret(text)


@DOORS
@pytest.mark.parametrize("phase", PHASES)
def test_any_phase_ends_the_run_politely(door: Callable[..., Any], phase: str) -> None:
    agent = agent_of(call("look"), "Done.", hooks=[Trips(phase)])
    result = door(agent, "Look.", thread_id="t")
    assert (result.stopped_because, result.reason) == ("guardrail", "rule 7")
    assert result.text == "Not this."
    assert [message.text for message in result.messages][-1] == "Not this."
    info = agent.threads.get("t")
    assert (info.status, info.stopped_because, info.last_error) == ("idle", "guardrail", "rule 7")
    kept = state_of(agent).get("messages", [])
    held = {"after_model": ["human", "ai"], "wrap_tool_call": ["human", "ai", "tool", "ai"]}
    assert roles(kept) == held.get(phase, [])
    fine = agent_of("Hello.", "Hello.", "Hello.").copy_with(agent.store)
    assert fine.invoke("Again.", thread_id="t").stopped_because == "done"


def test_a_tool_trips_too_and_all_calls_of_the_reply_are_answered() -> None:
    @tool
    def danger(ctx: ToolContext) -> str:
        """Do it."""
        raise Tripwire("too dangerous")

    asked = calls(("look", {}), ("danger", {}), ("danger", {}), ("look", {}))
    agent = agent_of(asked, "never", tools=[look, danger])
    result = agent.invoke("Do it.", thread_id="t")
    assert (result.stopped_because, result.text) == ("guardrail", "I cannot help with that.")
    assert roles(result.messages) == ["human", "ai", *["tool"] * 4, "ai"]
    assert [one["output"] for one in result.tool_calls] == ["seen", "", "", "seen"]


@DOORS
@pytest.mark.parametrize("check", [has_secret, ahas_secret])
def test_a_tripped_input_leaves_the_thread_as_it_was(
    door: Callable[..., Any], check: Any, tmp_path: Path
) -> None:
    hooks = [InputGuardrail(check, answer="Ask another thing.")]
    url = f"sqlite:///{tmp_path / 'w.db'}"
    with agent_of("One.", "Two.", hooks=hooks, store=url) as agent:
        door(agent, "First.", thread_id="t")
        before = agent.graph.get_state({"configurable": {"thread_id": "t"}})
        result = door(agent, "Tell tulip.", thread_id="t")
        assert (result.stopped_because, result.text) == ("guardrail", "Ask another thing.")
        assert result.reason == "it tells the secret"
        after = agent.graph.get_state({"configurable": {"thread_id": "t"}})
        assert after == before
        journal = Journal(store_of(agent), "t")
        assert [m.name for m in journal.moments() if m.what == "hook.error"] == ["input_guardrail"]
        new = door(agent, "Tell tulip.", thread_id="new")
        assert new.stopped_because == "guardrail"
        assert agent.threads.get("new").title is None
        assert state_of(agent, "new") == {}
        assert door(agent, "Second.", thread_id="t").text == "Two."
        assert roles(state_of(agent)["messages"]) == ["human", "ai"] * 2


def test_a_refusal_after_a_crash_takes_the_input_out_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    program = f"""
import os
from wick_graph import Agent
from wick_graph.hooks import InputGuardrail
from wick_graph.testing import ScriptedModel
hooks = [InputGuardrail(lambda text: os.kill(os.getpid(), 9) if "tulip" in text else None)]
agent = Agent("a", ScriptedModel(["One."]), hooks=hooks, store={url!r})
agent.invoke("First.", thread_id="t")
agent.invoke("Tell tulip.", thread_id="t")
"""
    died = forked.run([sys.executable, "-c", program], cwd=ROOT, timeout=120)
    assert died.returncode == -9
    with agent_of("One.", "Two.", hooks=[InputGuardrail(has_secret)], store=url) as agent:
        assert agent.resume("t").stopped_because == "guardrail"
        assert [m.text for m in state_of(agent)["messages"]] == ["First.", "One."]
        assert agent.invoke("Second.", thread_id="t").text == "Two."


def test_another_checkpointer_keeps_the_refusal() -> None:
    agent = agent_of("never", hooks=[InputGuardrail(has_secret)], store=InMemorySaver())
    assert agent.invoke("tulip", thread_id="t").stopped_because == "guardrail"
    assert roles(state_of(agent)["messages"]) == ["human", "ai"]


def events_by_stream(agent: Agent) -> list[Any]:
    return [*agent.stream("Tell.", thread_id="t")]


def events_by_astream(agent: Agent) -> list[Any]:
    async def run() -> list[Any]:
        return [event async for event in agent.astream("Tell.", thread_id="t")]

    return asyncio.run(run())


STREAMS = pytest.mark.parametrize("stream", [events_by_stream, events_by_astream])


@STREAMS
@pytest.mark.parametrize(
    "hook", [OutputGuardrail(has_secret), Trips("after_model"), Trips("wrap_model_call", True)]
)
def test_no_piece_of_a_refused_text_reaches_a_reader(stream: Any, hook: Any) -> None:
    agent = agent_of("It is tulip, my dear.", hooks=[hook])
    seen = stream(agent)
    assert "tulip" not in repr(seen)
    assert "dear" not in repr(seen)
    assert isinstance(seen[-1], Done)
    assert seen[-1].stopped_because == "guardrail"
    assert roles(state_of(agent)["messages"]) == ["human", "ai"]
    assert "".join(e.delta for e in seen if isinstance(e, ChatModelStream)) == seen[-1].result.text


@STREAMS
@pytest.mark.parametrize("phase", PHASES)
def test_a_stream_tells_the_answer_of_any_phase_once(stream: Any, phase: str) -> None:
    seen = stream(agent_of(call("look"), "Done.", hooks=[Trips(phase)]))
    assert [e.delta for e in seen if isinstance(e, ChatModelStream) and e.delta] == ["Not this."]


@STREAMS
def test_a_text_that_passes_comes_in_one_piece(stream: Any) -> None:
    agent = agent_of(wild("look"), "All is well.", hooks=[OutputGuardrail(has_secret)])
    seen = stream(agent)
    deltas = [event.delta for event in seen if isinstance(event, ChatModelStream)]
    assert deltas == ["All is well."]
    ends = [event for event in seen if isinstance(event, ChatModelEnd)]
    assert [one.content for one in ends] == ["", "All is well."]
    assert [len(one.tool_calls) for one in ends] == [1, 0]
    assert seen[-1].result.text == "All is well."


@pytest.mark.parametrize("text", ["It is tulip, my dear.", "All is well."])
def test_langgraphs_stream_of_messages_is_held_back_too(text: str) -> None:
    agent = agent_of(text, hooks=[OutputGuardrail(has_secret)])
    given: Any = {"messages": [("user", "Tell.")]}
    seen = [part for part, _ in agent.graph.stream(given, stream_mode="messages")]
    assert not any(isinstance(part, AIMessageChunk) for part in seen)
    said = "I cannot help with that." if "tulip" in text else text
    assert [part.text for part in seen if part.type == "ai"] == [said]


@DOORS
@pytest.mark.parametrize(
    ("word", "passes"),
    [
        *(("pass", True), ("**Pass.**", True), ("Block!", False), ("hm", False)),
        ("Passing this on would break it: block", False),
    ],
)
def test_a_model_judges_by_a_rule_in_words(
    door: Callable[..., Any], word: str, passes: bool
) -> None:
    lane = Lane("judge", [word] * 2, when=When(purpose="guardrail"), cursor="fifo")
    judge = ScriptedModel(lanes=[lane])
    hooks = [
        InputGuardrail("No weapons.", model=judge),
        OutputGuardrail("No insults.", model=judge, answer=""),
    ]
    agent = agent_of("Fine.", hooks=hooks)
    result = door(agent, "How do I knit?")
    assert result.stopped_because == ("done" if passes else "guardrail")
    assert result.text == ("Fine." if passes else "I cannot help with that.")
    first = judge.calls[0]
    assert first.system.endswith("The rule: No weapons.")
    assert [message.text for message in first.messages[1:]] == ["How do I knit?"]
    assert not first.tool_names
    assert len(judge.calls) == (2 if passes else 1)
    assert result.usage.calls == (3 if passes else 1)


def test_the_input_is_judged_once_a_run() -> None:
    seen: list[str] = []

    def note(text: str) -> None:
        seen.append(text)

    agent = agent_of(wild("look"), "Done.", "Again.", hooks=[InputGuardrail(note)])
    agent.invoke(["One.", "Two."], thread_id="t")
    agent.invoke("Three.", thread_id="t")
    assert seen == ["One.\n\nTwo.", "Three."]


@pytest.mark.parametrize("check", [None, "", 7])
def test_a_guardrail_without_a_check_is_refused(check: Any) -> None:
    with pytest.raises(ConfigError, match="takes a function or a rule in words"):
        InputGuardrail(check)


def test_a_child_ends_for_itself(tmp_path: Path) -> None:
    store = SqlSaver.from_url(f"sqlite:///{tmp_path / 'w.db'}")
    child = agent_of("tulip", hooks=[OutputGuardrail(has_secret)], store=store)
    below = delegation({"child": Subagent(child, "Knows.")})
    asks = [wild("delegate_to_agent", agent="child", task="Tell."), "It refused."]
    parent = agent_of(*asks, tools=[below], store=store)
    seen: list[Any] = [*parent.stream("Ask it.")]
    assert seen[-1].result.tool_calls[0]["output"] == "I cannot help with that."
    assert "tulip" not in repr(seen)
    store.close()


def test_pii_goes_through_langchains_middleware() -> None:
    hook = MiddlewareHook(PIIMiddleware("email", strategy="redact", apply_to_input=True))
    agent = agent_of("Noted.", hooks=[hook])
    agent.invoke("I am ada@example.org.", thread_id="t")
    assert "example.org" not in str(state_of(agent)["messages"])
    model: Any = agent.spec.model.model
    assert "ada@example.org" not in str(model.calls[0].messages)


def test_the_debugger_shows_where_it_tripped() -> None:
    agent = agent_of("It is tulip.", hooks=[OutputGuardrail(has_secret)])
    agent.invoke("Tell.", thread_id="t")
    with DebugSession.open(agent, "t") as session:
        stop = session.verb("next_error")
        assert stop.entry is not None
        assert stop.entry.error == "Tripwire: it tells the secret"
        assert session.value("stop_reason", "@last") == "guardrail"


class Note(BaseModel):
    words: str


SECRET = {"words": "It is tulip."}


@DOORS
@pytest.mark.parametrize("way", [ToolOutput, NativeOutput, PromptedOutput])
def test_an_output_is_judged_in_whatever_way_it_is_given(door: Any, way: Any) -> None:
    def agent() -> Agent:
        given = calls(("Note", SECRET)) if way is ToolOutput else json.dumps(SECRET)
        return agent_of(given, tools=[], output_type=way(Note), hooks=[OutputGuardrail(has_secret)])

    result = door(agent(), "Tell.")
    assert result.stopped_because == "guardrail"
    assert result.structured is None
    assert "tulip" not in repr([*agent().stream("Tell.")])


@pytest.mark.parametrize("way", [NativeOutput, PromptedOutput])
def test_escapes_hide_nothing(way: Any) -> None:
    said = '{"words": "It is \\u0074ulip."}'
    agent = agent_of(said, tools=[], output_type=way(Note), hooks=[OutputGuardrail(has_secret)])
    assert agent.invoke("Tell.").stopped_because == "guardrail"


def test_the_judge_reads_plain_json() -> None:
    seen: list[str] = []
    hooks = [OutputGuardrail(seen.append)]
    agent_of(calls(("Note", {"words": "Zürich"})), tools=[], output_type=Note, hooks=hooks).invoke(
        "x"
    )
    assert seen == ['{"words": "Zürich"}']


def test_an_output_is_judged_by_the_name_that_the_engine_reads() -> None:
    given: dict[str, Any] = {"tools": [], "output_type": ToolOutput(Note)}
    said = wild("functions.Note", **SECRET)
    assert agent_of(said, **given).invoke("Tell.").structured == SECRET
    judged = agent_of(said, hooks=[OutputGuardrail(has_secret)], **given)
    assert judged.invoke("Tell.").stopped_because == "guardrail"


class Stars(BaseHook):
    """Change what readers get."""

    name = "stars"
    withholds = True

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        reply = next(request)
        return reply.model_copy(update={"content": reply.text.replace("tulip", "****")})


def test_a_reply_that_is_asked_for_again_is_withheld_too() -> None:
    steps = ["The word tulip.", json.dumps(SECRET)]
    agent = agent_of(*steps, tools=[], output_type=PromptedOutput(Note), hooks=[Stars()])
    seen = [*agent.stream("Tell.")]
    assert isinstance(seen[-1], Done)
    assert seen[-1].result is not None
    assert seen[-1].result.structured == {"words": "It is ****."}
    assert "tulip" not in repr(seen)


@DOORS
def test_a_repeated_key_gives_the_reason_again(door: Door, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    for _ in range(2):
        with agent_of("A tulip.", hooks=[OutputGuardrail(has_secret)], store=url) as agent:
            result = door(agent, "Go", thread_id="t", idempotency_key="k")
            assert (result.stopped_because, result.reason) == ("guardrail", "it tells the secret")


@DOORS
def test_an_input_that_a_graph_judges_is_not_kept_either(door: Door) -> None:
    judge = Agent("judge", ScriptedModel(["against the rules"] * 2, cursor="fifo"))

    async def judged(text: str) -> str:
        state = await judge.graph.ainvoke({"messages": [("user", text)]})
        return str(state["messages"][-1].text)

    store = SqlSaver.from_url("sqlite://")
    before = door(Agent(model=ScriptedModel(["Hello."]), store=store), "Hi", thread_id="old")
    with Agent(model=ScriptedModel([]), hooks=[InputGuardrail(judged)], store=store) as agent:
        for thread, kept in (("old", [m.text for m in before.messages]), ("new", [])):
            assert door(agent, "Secret", thread_id=thread).stopped_because == "guardrail"
            values = agent.graph.get_state({"configurable": {"thread_id": thread}}).values
            assert [m.text for m in values.get("messages", [])] == kept
    store.close()
