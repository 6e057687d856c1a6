"""Several listeners of one run, and what each may say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from tests.engine.support import Door
from tests.journal.conftest import Opener
from tests.journal.support import agent_of
from wick_graph import ToolResult
from wick_graph import langgraph_config as wick_keys
from wick_graph.core.moments import NULL_LISTENER, Directive, Listeners, Moment, Replace, Skip
from wick_graph.journal import Journal
from wick_graph.runtime.context import Run
from wick_graph.testing import ScriptedModel, call


class Listener:
    active = True
    tokens = False

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.heard: list[Moment] = []
        self.asked: list[str] = []
        self.answers = answers or {}

    def record(self, moment: Moment) -> None:
        self.heard.append(moment)

    async def at(self, moment: Moment) -> Directive:
        what = f"{moment.kind}.{moment.phase}"
        self.asked.append(what)
        answer: Directive = self.answers.get(what)
        return answer


class Tokens(Listener):
    tokens = True


class Deaf(Listener):
    active = False


def test_nobody_or_one_listener_needs_no_fan_out() -> None:
    one = Listener()
    assert Listeners.of(Deaf(), NULL_LISTENER) is NULL_LISTENER
    assert Listeners.of(NULL_LISTENER, one, Deaf()) is one


def test_all_hear_everything_and_the_first_answer_counts() -> None:
    first, second = Listener(), Listener({"tool.call": Skip("second")})
    third = Tokens({"tool.call": Skip("third")})
    listener = Listeners.of(first, second, third)
    moment = Moment("tool", "call")
    listener.record(moment)
    assert asyncio.run(listener.at(moment)) == Skip("second")
    assert [p.heard for p in (first, second, third)] == [[moment]] * 3
    assert [p.asked for p in (first, second, third)] == [["tool.call"]] * 3
    assert (listener.active, listener.tokens) == (True, True)
    assert Listeners.of(first, second).tokens is False


def run_with(door: Door, agent: Any, listener: Listener) -> Any:
    run = Run(thread_id="t", listener=listener)
    return door(agent, "add", thread_id="t", config={"configurable": {wick_keys.RUN: run}})


@pytest.fixture
def listened(door: Door) -> Any:
    def run(agent: Any, listener: Listener) -> Any:
        config: Any = {
            "configurable": {"thread_id": "t", wick_keys.RUN: Run(thread_id="t", listener=listener)}
        }
        given = {"messages": [("user", "add")]}
        if door.__name__ == "sync_door":
            return agent.graph.invoke(given, config)
        return asyncio.run(agent.graph.ainvoke(given, config))

    return run


def test_a_listener_sees_the_numbers_and_places_of_the_journal(
    listened: Any, url: str, opened: Opener
) -> None:
    agent, _ = agent_of(url)
    listener = Listener()
    listened(agent, listener)
    agent.close()
    entries = {m.seq: m for m in opened().moments()}
    assert sorted(m.seq for m in listener.heard) == sorted(entries)
    for moment in listener.heard:
        entry = entries[moment.seq]
        assert (moment.kind, moment.phase) == (entry.kind, entry.phase)
        assert (moment.place.task if moment.place else None) == entry.task
        assert (moment.place.checkpoint if moment.place else None) == entry.checkpoint


def test_answers_of_a_listener_are_recorded(listened: Any, url: str, opened: Opener) -> None:
    reply = AIMessage("given", id="g")
    agent, model = agent_of(url, hooks=[])
    listened(agent, Listener({"model.request": Skip(reply)}))
    agent.close()
    journal = opened()
    [response] = journal.moments(kind="model.response")
    told = journal.details(response)
    assert (told["given"], told["reply"].text) == (True, "given")
    assert model.calls == ()


def test_edited_arguments_and_results_are_recorded(listened: Any, url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel([call("add", a=1, b=2), "ok"]))
    values = listened(agent, Listener({"tool.call": Replace({"a": 5, "b": 5})}))
    agent.close()
    assert values["messages"][2].text == "10"
    journal = opened()
    edited = next(journal.moments(kind="tool.replaced"))
    assert journal.details(edited)["args"] == {"a": 5, "b": 5}
    assert [r.args for r in journal.results()] == [{"a": 5, "b": 5}]


def test_a_given_result_is_recorded(listened: Any, url: str, opened: Opener) -> None:
    given = ToolResult("", "add", "mocked")
    agent, _ = agent_of(url, model=ScriptedModel([call("add", a=1, b=2), "ok"]))
    listened(agent, Listener({"tool.call": Skip(given)}))
    agent.close()
    journal = opened()
    assert next(journal.moments(kind="tool.return")).fields["g"] is True
    assert [r.result.output for r in journal.results()] == ["mocked"]


def test_a_listener_can_have_the_journal_written_where_it_stops(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[])
    seen: list[Any] = []

    class Stopper(Listener):
        async def at(self, moment: Moment) -> Directive:
            if (moment.kind, moment.phase) == ("model", "request"):
                run.journal.flush()
                journal: Journal = opened()
                seen.append((journal.last(), moment.seq, journal.request_at(moment.seq).exact))
            return None

    run = Run(thread_id="t", listener=Stopper())
    config: Any = {"configurable": {"thread_id": "t", wick_keys.RUN: run}}
    agent.graph.invoke({"messages": [("user", "add")]}, config)
    agent.close()
    assert [(last == seq, exact) for last, seq, exact in seen] == [(True, True)] * 2


def test_a_reader_who_leaves_does_not_silence_the_journal(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[])

    async def work() -> None:
        stream = agent.astream("add", thread_id="t")
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]  # it is a generator

    asyncio.run(work())
    agent.close()
    [run] = opened().runs()
    assert run.stopped_because == "cancelled"
    assert list(opened().moments())[-1].what == "run.error"
