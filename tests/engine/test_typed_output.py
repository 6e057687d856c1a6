"""Agents with an output type: what is asked, what is taken, and what the thread keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
import operator
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import jsonschema
import pytest
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tests.engine.support import Door, add, async_door, roles, sync_door, wild
from tests.engine.typed import (
    CASES,
    SAMPLES,
    Case,
    River,
    client,
    sent_schema,
    written,
)
from tests.engine.typed_process import BERN, City
from tests.source import ROOT
from tests.support import forked
from tests.support.provider import Call, Provider, Reply
from wick_graph import Agent, BaseHook, Verdict, ai
from wick_graph.debug import DebugSession
from wick_graph.engine import streaming
from wick_graph.errors import ConfigError, OutputError
from wick_graph.events import (
    ChatModelEnd,
    ChatModelStream,
    Done,
    Event,
    Failed,
    OutputDelta,
)
from wick_graph.hooks import Budget, BudgetHook, InputGuardrail
from wick_graph.journal import Journal
from wick_graph.models import NativeOutput, PromptedOutput, ToolOutput, resolve_model
from wick_graph.store import SqlSaver
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls, respond_object, text, unknown_tool


class FakeNative(FakeListChatModel):
    """A model that takes tools."""

    def bind_tools(self, tools: Any, **settings: Any) -> Any:
        return self.bind(**settings)


STRATEGIES = {"tool": ToolOutput, "native": NativeOutput, "prompted": PromptedOutput}
CITY = City(name="Bern", people=134_000)


def typed(*steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(steps))
    options.setdefault("output_type", City)
    return Agent(model=model, **options), model


def events_of(agent: Agent, door: str, given: str, thread: str) -> list[Event]:
    if door == "stream":
        return [*agent.stream(given, thread_id=thread)]

    async def read() -> list[Event]:
        return [event async for event in agent.astream(given, thread_id=thread)]

    return asyncio.run(read())


def asked_through(agent: Agent, door: str, given: str, thread: str) -> Any:
    if door == "invoke":
        return agent.invoke(given, thread_id=thread)
    if door == "ainvoke":
        return asyncio.run(agent.ainvoke(given, thread_id=thread))
    end = events_of(agent, door, given, thread)[-1]
    if isinstance(end, Failed):
        assert end.exception is not None
        raise end.exception
    assert isinstance(end, Done)
    return end.result


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(vars(case).values()))
def test_matrix(case: Case, provider: Provider) -> None:
    sample = SAMPLES[case.sample]
    model = client(case.provider, provider)
    agent: Agent = Agent(model=model, output_type=STRATEGIES[case.way](sample.output_type))
    good, bad = (written(sample, case.way, good=good) for good in (True, False))
    script: dict[str, list[Any]] = {
        "valid": [good],
        "invalid, then valid": [bad, good],
        "never valid": [bad, written(sample, case.way, good=False), bad],
        "a text instead": ["I would rather chat.", good],
    }
    provider.say(*script[case.replies])
    if case.replies == "never valid":
        with pytest.raises(OutputError, match="asked 3 times"):
            asked_through(agent, case.door, "Go", "t")
        provider.say(written(sample, case.way, good=True))
    result = asked_through(agent, case.door, "Go", "t")
    assert result.output == sample.expected
    assert type(result.output) is type(sample.expected)
    assert result.stopped_because == "done"
    provider.assert_complete()

    bodies = provider.bodies
    for body in bodies:
        schema = sent_schema(case.provider, case.way, sample.tool, body)
        known = sample.good if case.way == "tool" else sample.text or sample.good
        jsonschema.validate(known, schema)
        wrong = sample.bad if case.way == "tool" else sample.bad_text or sample.bad
        if (case.way, case.provider) != ("native", "anthropic"):  # it knows no limits of numbers
            assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)
    shown = [str(body["messages"][-1]) for body in bodies]
    if case.replies == "invalid, then valid":
        assert sample.path in shown[1]
        assert result.usage.calls == 2
        seen = roles(result.messages)
        assert seen == (["human", *["ai", "tool"] * 2] if case.way == "tool" else ["human", "ai"])
    if case.replies == "a text instead":
        assert "I would rather chat." not in str(result.messages)
        assert "I would rather chat." in str(bodies[1])
        assert result.usage.calls == result.thread_usage.calls == 2


@pytest.mark.parametrize("how", ["invoke", "astream"])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_native_form_goes_with_tools(how: str, kind: str, provider: Provider) -> None:
    model = client(kind, provider)
    if isinstance(model, ChatOpenAI):
        model.extra_body = {"service": "own"}
    agent: Agent = Agent(model=model, tools=[add], output_type=NativeOutput(City))
    adds = Reply(calls=[Call(name="add", args={"a": 1, "b": 2}, id="c")])
    provider.say(adds, Reply(text=json.dumps(BERN)))
    assert asked_through(agent, how, "Go", "t").output == CITY
    for body in provider.bodies:
        assert sent_schema(kind, "native", "City", body)["title"] == "City"
        assert len(body["tools"]) == 1
        assert kind != "openai" or body["service"] == "own"


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_events_name_the_message_that_the_thread_holds(
    kind: str, tokens: bool, provider: Provider
) -> None:
    agent: Agent = Agent(model=client(kind, provider), tools=[add], output_type=ToolOutput(City))
    adds = Reply(text="Let me see.", calls=[Call(name="add", args={"a": 1, "b": 2}, id="c")])
    provider.say(adds, Reply(calls=[Call(name="City", args=BERN, id="d")]))
    events = [*agent.stream("Go", tokens=tokens)]
    told = [e.message_id for e in events if isinstance(e, ChatModelStream | ChatModelEnd)]
    assert isinstance(events[-1], Done)
    assert [*dict.fromkeys(told)] == [m.id for m in events[-1].result.messages if m.type == "ai"]
    pieces = [one for e in events if isinstance(e, ChatModelStream) for one in e.calls]
    if tokens:
        said = "".join(one["args"] or "" for one in pieces)
        assert said == json.dumps({"a": 1, "b": 2}) + json.dumps(BERN)


def test_the_output_call_is_answered_and_reaches_no_tool(door: Door) -> None:
    seen: list[str] = []

    class Watch(BaseHook):
        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            seen.append(call.name)
            return next(call)

    agent, model = typed(call("add", a=1, b=2), call("City", **BERN), tools=[add], hooks=[Watch()])
    result = door(agent, "Go")
    assert (result.output, result.stopped_because) == (CITY, "done")
    assert result.text == '{"name": "Bern", "people": 134000}'
    assert roles(result.messages) == ["human", "ai", "tool", "ai", "tool"]
    assert result.messages[-1].text == "The answer was accepted."
    assert seen == ["add"]
    assert model.calls[0].tool_names == ("add", "City")
    nodes = set(agent.graph.get_graph().nodes)
    assert nodes == set(Agent(model=model).graph.get_graph().nodes)


def test_the_state_holds_data_and_the_next_input_resets_it(door: Door) -> None:
    agent, _ = typed(call("City", **BERN), text("No."), text("No."), text("No."))
    door(agent, "Go", thread_id="t")
    config: Any = {"configurable": {"thread_id": "t"}}
    assert agent.graph.get_state(config).values["output"] == {"name": "City", "data": BERN}
    with pytest.raises(OutputError, match="a text is not taken"):
        door(agent, "Again", thread_id="t")
    assert "data" not in (agent.graph.get_state(config).values["output"] or {})


def test_after_the_error_the_thread_goes_on(door: Door) -> None:
    bad = calls(("City", {"name": 1}), unchecked=True)
    agent, _ = typed(bad, bad, call("City", **BERN), output_retries=1)
    with pytest.raises(OutputError, match="asked twice|asked 2 times"):
        door(agent, "Go", thread_id="t")
    assert door(agent, "Again", thread_id="t").output == CITY


def test_other_calls_run_beside_an_invalid_output_only(door: Door) -> None:
    ran: list[int] = []

    def note(n: int) -> str:
        """Note a number."""
        ran.append(n)
        return "noted"

    bad = calls(("City", {"name": "Bern"}), ("note", {"n": 1}), unchecked=True)
    agent, _ = typed(bad, calls(("note", {"n": 2}), ("City", BERN)), tools=[note])
    result = door(agent, "Go")
    assert (result.output, ran) == (CITY, [1])
    answers = [m.text for m in result.messages if m.type == "tool"]
    assert answers[0] == "Error: people: Field required"
    assert answers[1] == "noted"
    assert answers[2].startswith("Error: the answer was given in the same reply")
    assert answers[3] == "The answer was accepted."


def test_two_outputs_in_one_reply_are_both_refused(door: Door) -> None:
    twice = calls(("City", BERN), ("City", BERN))
    agent, _ = typed(twice, call("City", **BERN))
    result = door(agent, "Go")
    assert result.output == CITY
    answers = [m.text for m in result.messages if m.type == "tool"]
    assert (
        answers[0]
        == answers[1]
        == ("Error: the answer was given more than once in one reply; give it once")
    )


@pytest.mark.parametrize("way", ["tool", "native", "prompted"])
def test_the_last_step_can_still_give_the_output(door: Door, way: str) -> None:
    last = call("City", **BERN) if way == "tool" else text(str(BERN).replace("'", '"'))
    agent, model = typed(
        call("add", a=1, b=2),
        last,
        tools=[add],
        max_iterations=2,
        output_type=STRATEGIES[way](City),
    )
    result = door(agent, "Go")
    assert (result.output, result.stopped_because) == (CITY, "done")
    assert model.calls[1].tool_names == (("City",) if way == "tool" else ())
    assert "This is your last step" in model.calls[1].system


def test_a_limit_without_an_output_is_no_error_until_it_is_read(door: Door) -> None:
    agent, _ = typed(wild("add", a=1, b=2), tools=[add], max_iterations=1)
    result = door(agent, "Go")
    assert (result.stopped_because, result.structured) == ("limit", None)
    assert result.messages[-1].text == "Stopped after 1 step without a final answer."
    with pytest.raises(OutputError, match="it stopped because: limit"):
        _ = result.output


def test_an_invalid_call_of_the_last_step_is_asked_again_outside_the_thread(door: Door) -> None:
    bad = calls(("City", {"name": "Bern"}), ("add", {"a": 1, "b": 2}), unchecked=True)
    agent, model = typed(bad, call("City", **BERN), tools=[add], max_iterations=1)
    result = door(agent, "Go")
    assert (result.output, result.stopped_because, result.usage.calls) == (CITY, "done", 2)
    assert roles(result.messages) == ["human", "ai", "tool"]
    told = [m.text for m in model.calls[1].messages if m.type == "tool"]
    assert told == ["Error: people: Field required", "Error: the limit of steps is reached"]


def test_a_last_step_without_a_valid_call_is_an_error(door: Door) -> None:
    bad = calls(("City", {"name": "Bern"}), unchecked=True)
    model = ScriptedModel([bad, bad, bad, call("City", **BERN)], cursor="fifo")
    agent: Agent = Agent(model=model, output_type=City, max_iterations=1)
    with pytest.raises(OutputError, match="no valid City when asked 3 times, last: people"):
        door(agent, "Go", thread_id="t")
    assert door(agent, "Again", thread_id="t").output == CITY


@pytest.mark.parametrize("way", ["tool", "native", "prompted"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_of_json_is_no_output(way: str, number: str) -> None:
    class Level(BaseModel):
        metres: float

    written = f'{{"metres": {number}}}'
    bad = calls(("Level", {"metres": float(number)}), unchecked=True) if way == "tool" else written
    agent, _ = typed(bad, output_type=STRATEGIES[way](Level), output_retries=0)
    with pytest.raises(OutputError, match="NaN and Infinity|not JSON") as told:
        agent.invoke("Go")
    assert "`output: {retries}` in agents.yaml" in str(told.value)


@pytest.mark.parametrize("written", ["Infinity", 10**400])
def test_an_infinite_number_is_kept_as_it_was_written(written: Any) -> None:
    """Pydantic reads both as infinite, which no JSON holds."""

    class Level(BaseModel):
        metres: float

    agent, _ = typed(calls(("Level", {"metres": written}), unchecked=True), output_type=Level)
    result = agent.invoke("Go")
    assert result.output.metres == math.inf
    assert json.loads(result.text, parse_constant=pytest.fail) == {"metres": written}


@pytest.mark.parametrize(("wrong", "once_more"), [("call", 1), ("text", 3)])
def test_resume_repeats_the_failed_step_and_a_new_input_counts_anew(
    wrong: str, once_more: int
) -> None:
    asked: list[Any] = []

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **settings: Any) -> Any:
            return self

        def _generate(self, *given: Any, **more: Any) -> Any:
            asked.append(given)
            return super()._generate(*given, **more)

    def city(at: int, people: int) -> AIMessage:
        args: dict[str, Any] = {**BERN, "people": people}
        return AIMessage("", tool_calls=[{"name": "City", "args": args, "id": f"c{at}"}])

    bad = [city(at, -1) if wrong == "call" else AIMessage("Bern.") for at in range(5 + once_more)]
    agent = Agent(model=Model(messages=iter([*bad, city(9, CITY.people)])), output_type=City)
    with pytest.raises(OutputError, match="asked 3 times"):
        agent.invoke("Go", thread_id="t")
    assert len(asked) == 3
    with pytest.raises(OutputError, match="asked 3 times"):
        agent.resume("t")
    assert len(asked) == 3 + once_more
    assert agent.invoke("Again", thread_id="t").output == CITY
    assert len(asked) == 3 + once_more + 3


def test_a_hook_that_ends_the_run_ends_it_without_an_output(door: Door) -> None:
    class Enough(BaseHook):
        def after_model(self, message: Any, ctx: Any) -> Any:
            return Verdict(end=True, because="limit")

    agent, _ = typed(call("City", **BERN), hooks=[Enough()])
    with pytest.raises(OutputError):
        _ = door(agent, "Go").output


def test_a_hook_changes_the_output_before_it_is_taken(door: Door) -> None:
    class Correct(BaseHook):
        def after_model(self, message: Any, ctx: Any) -> Any:
            message.tool_calls[0]["args"]["name"] = "Basel"
            return Verdict(reply=message)

    agent, _ = typed(call("City", **BERN), hooks=[Correct()])
    assert door(agent, "Go").output.name == "Basel"


def test_a_reply_in_the_models_place_is_not_asked_again(door: Door) -> None:
    class Silent(BaseHook):
        def wrap_model_call(self, request: Any, next: Any) -> Any:
            return ai("I am out of order.")

    agent, model = typed(call("City", **BERN), hooks=[Silent()])
    result = door(agent, "Go")
    assert (result.text, result.structured, model.calls) == ("I am out of order.", None, ())
    with pytest.raises(OutputError):
        _ = result.output


def test_a_hook_that_drops_all_tools_keeps_the_output_tool(door: Door) -> None:
    class Bare(BaseHook):
        def modify_request(self, request: Any, ctx: Any) -> Any:
            return request.with_tools([])

    agent, model = typed(call("City", **BERN), tools=[add], hooks=[Bare()])
    assert door(agent, "Go").output == CITY
    assert model.calls[0].tool_names == ("City",)


def test_an_empty_reply_is_asked_again(door: Door) -> None:
    agent, model = typed(text(""), call("City", **BERN))
    assert door(agent, "Go").output == CITY
    assert len(model.calls) == 2


def test_an_unknown_tool_beside_is_answered_by_the_loop(door: Door) -> None:
    agent, _ = typed(unknown_tool("Town"), call("City", **BERN))
    assert door(agent, "Go").output == CITY


def test_defaults_of_the_type_are_kept() -> None:
    class Stamped(BaseModel):
        name: str
        number: int = Field(default_factory=iter(range(100)).__next__)

    agent, _ = typed(call("Stamped", name="a"), output_type=Stamped)
    first = agent.invoke("Go", thread_id="t")
    assert agent.resume("t").output == first.output


def test_a_repeated_key_builds_the_same_object(door: Door, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    with SqlSaver.from_url(url) as store:
        agent, model = typed(call("River", name="Aare"), store=store, output_type=(City, River))
        first = door(agent, "Go", thread_id="t", idempotency_key="k")
        again = door(agent, "Go", thread_id="t", idempotency_key="k")
    assert first.output == again.output == River("Aare", 0)
    assert (first.text, len(model.calls)) == (again.text, 1)
    with SqlSaver.from_url(url) as store:
        other, _ = typed(store=store, output_type=City)
        with pytest.raises(OutputError, match="of the type 'River'"):
            _ = door(other, "Go", thread_id="t", idempotency_key="k").output


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]
)
@pytest.mark.parametrize("way", ["tool", "native"])
def test_a_kill_between_the_reply_and_the_end_asks_no_model(
    database: str, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    if database == "postgres":
        url = request.getfixturevalue("postgres_url")
    command = [sys.executable, "-m", "tests.engine.typed_process", str(tmp_path), url, way]
    how: Any = {"cwd": ROOT, "timeout": 120, "capture_output": True}
    killed = forked.run([*command, "begin"], **how)
    assert killed.returncode == -9, killed.stderr
    done = forked.run([*command, "resume"], **how)
    assert done.stdout.split() == [b"1", b"City(name='Bern',", b"people=134000)"], done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_type": ()}, "empty tuple"),
        ({"output_type": object()}, "no JSON schema"),
        ({"output_retries": -1}, "output_retries must be 0 or more"),
        ({"output_type": {"type": "object", "$ref": "https://example.com/x"}}, "ref"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        typed(**options)


def test_a_tool_with_the_name_of_the_output_is_refused() -> None:
    def City(name: str) -> str:
        """Look up a city."""
        return name

    with pytest.raises(ConfigError, match="both called City"):
        typed(tools=[City])


def test_without_an_output_type_the_output_is_the_text(door: Door) -> None:
    agent = Agent(model=ScriptedModel(["Hello."]))
    result = door(agent, "Go")
    assert (result.output, result.structured) == ("Hello.", None)
    assert agent.spec.output is None


@pytest.mark.parametrize("door", ["stream", "astream"])
@pytest.mark.parametrize("way", ["tool", "native"])
def test_a_stream_tells_the_output_as_it_is_written(
    door: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()  # a hundred pieces come in a second, however busy the machine is
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 100)
    monkeypatch.setattr(streaming, "time", clock)
    cities = [{"name": f"City {n}", "people": n} for n in range(40)]
    wrong = {"response": [{"name": "x"}]}
    good = {"response": cities}
    steps: list[Any] = [
        call("add", a=1, b=2),
        *(
            [calls(("output", wrong), unchecked=True), call("output", **good)]
            if way == "tool"
            else [json.dumps(wrong), json.dumps(good)]
        ),
    ]
    agent: Agent = Agent(
        model=ScriptedModel(steps), tools=[add], output_type=STRATEGIES[way](list[City])
    )
    events = events_of(agent, door, "Go", "t")
    deltas = [event for event in events if isinstance(event, OutputDelta)]
    result = events[-1].result if isinstance(events[-1], Done) else None
    assert result is not None
    assert len(result.output) == 40
    assert deltas[-1].output == result.structured == cities
    assert deltas[-1].attempt == max(event.attempt for event in deltas)
    partial = [event.output for event in deltas if event.attempt == deltas[-1].attempt]
    assert 3 < len(partial) < 40
    assert len(deltas) <= 10 * next(ticks) / 100 + 1
    assert all(len(a) <= len(b) for a, b in itertools.pairwise(partial))
    assert all(one in cities for one in partial[-2][:-1])


def test_a_stream_without_pieces_tells_the_output_once() -> None:
    agent, _ = typed(call("City", **BERN))
    events = [*agent.stream("Go", tokens=False)]
    assert [e.output for e in events if isinstance(e, OutputDelta)] == [BERN]


@pytest.mark.parametrize("way", ["tool", "native", "prompted"])
def test_a_text_that_is_no_output_is_in_the_journal_alone(way: str, tmp_path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}") as store:
        agent, model = typed(
            "I would rather chat.",
            respond_object(CITY),
            store=store,
            output_type=STRATEGIES[way](City),
        )
        result = agent.invoke("Go", thread_id="t")
        journal = Journal(store, "t")
        asked = [journal.request_at(one.seq) for one in journal.moments(kind="model.request")]
        replies = [*journal.moments(kind="model.response")]
        for request, call in zip(asked, model.calls, strict=True):
            assert [m.text for m in request.messages] == [m.text for m in call.messages]
            assert request.settings == {**call.settings, **choice(call)}
    assert "I would rather chat." in str(asked[1].messages)
    assert "I would rather chat." not in str(result.messages)
    assert len(replies) == result.usage.calls == 2


def test_a_condition_reads_the_channel_and_the_output_of_a_call() -> None:
    agent, _ = typed(call("add", a=1, b=2), call("City", **BERN), tools=[add])
    agent.invoke("Go", thread_id="t")
    with DebugSession.open(agent, "t") as session:
        session.add("break tool:add:after if output == '3'")
        session.add("break run:exit if state.output.name == 'City'")
        session.goto("@1")
        assert session.cont().breakpoint == 1
        assert session.value("output") == "3"
        assert session.cont().breakpoint == 2
        assert session.value("state.output.data.name") == "Bern"


def choice(call: Any) -> dict[str, Any]:
    return {} if call.tool_choice is None else {"tool_choice": call.tool_choice}


def test_a_sub_agent_gives_its_object_as_json() -> None:
    below, _ = typed(call("City", **BERN), store=False)
    agent = Agent(
        model=ScriptedModel([call("delegate_to_agent", agent="guide", task="Go"), "Bern it is."]),
        tools=[delegation({"guide": Subagent(below, "Knows cities")})],
    )
    result = agent.invoke("Go")
    assert result.text == "Bern it is."
    assert '{"name": "Bern", "people": 134000}' in str(result.tool_calls[0]["output"])


@pytest.mark.parametrize("size", [1, 2])
def test_a_model_of_a_hook_is_asked_in_its_own_way(size: int) -> None:
    other = ScriptedModel([respond_object(CITY)])

    class Swap(BaseHook):
        def wrap_model_call(self, request: Any, next: Any) -> Any:
            return next(dataclasses.replace(request, model=resolve_model(other)))

    native = FakeNative(responses=["never"], profile={"structured_output": True})
    agent: Agent = Agent(model=native, output_type=City, hooks=[Swap()], tools=[add][: size - 1])
    assert agent.spec.output is not None
    assert agent.spec.output.way_of(agent.spec.model, False) == "native"
    assert agent.invoke("Go").output == CITY
    assert other.calls[0].tool_names[-1] == "City"


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_a_budget_and_an_input_guardrail_hold_while_an_output_is_asked_again(door: Door) -> None:
    seen: list[str] = []
    hooks = [InputGuardrail(seen.append), BudgetHook(Budget(tokens=1))]
    agent, model = typed("Chat.", "More chat.", hooks=hooks)
    result = door(agent, "Go", thread_id="t")
    assert result.stopped_because == "limit"
    assert result.reason == "the budget of 1 tokens for this run is used up"
    assert len(model.calls) == 1
    assert seen == ["Go"]


@pytest.mark.parametrize("held", ["nonsense of data", ["data"], {"name": ["City"], "data": 1}, 5])
def test_an_edit_of_the_output_breaks_no_thread(held: Any) -> None:
    agent, _ = typed(call("City", **BERN), call("City", **BERN))
    agent.invoke("Go", thread_id="t")
    agent.graph.update_state({"configurable": {"thread_id": "t"}}, {"output": held})
    with pytest.raises(OutputError):
        _ = agent.resume("t").output
    assert agent.invoke("Again", thread_id="t").output == CITY


class _Kept(TypedDict):
    replies: int
    noted: Annotated[list[str], operator.add]


class _Counts(BaseHook):
    """Makes a summary once, and counts replies, as hooks do: by what the state says."""

    name = "counts"
    made = 0

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        if request.state.get("summary"):
            return next(request)
        self.made += 1
        return next(request), {"summary": {"text": "Old.", "upto": "m"}}

    def after_model(self, message: Any, ctx: Any) -> Any:
        return {"replies": (ctx.state.get("replies") or 0) + 1, "noted": [message.text]}


def test_each_attempt_of_a_step_sees_what_the_one_before_wrote(door: Door) -> None:
    counts = _Counts()
    agent, _ = typed(
        *("no", "no", CITY.model_dump_json()),
        output_type=PromptedOutput(City),
        hooks=[counts],
        state_schema=_Kept,
    )
    result = door(agent, "Go", thread_id="t")
    state = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values
    assert (result.output, counts.made) == (CITY, 1)
    assert state["replies"] == 3
    assert state["noted"] == ["no", "no", CITY.model_dump_json()]
