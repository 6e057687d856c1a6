"""Typed agents on OpenAI's Responses API: what is asked, what is taken, and what goes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema
import pytest
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.engine.support import add, roles
from tests.engine.typed import DOORS, REPLIES, SAMPLES, WAYS, Sample, pairwise
from tests.engine.typed_process import BERN, City
from tests.providers.rules import NAME
from tests.providers.speech import Said
from tests.providers.strict import Strict
from tests.support.wire import Call
from wick_graph import Agent
from wick_graph.errors import OutputError
from wick_graph.events import ChatModelStream, Done, Event, Failed, OutputDelta
from wick_graph.models import NativeOutput, PromptedOutput, ToolOutput

STRATEGIES: Final = {"tool": ToolOutput, "native": NativeOutput, "prompted": PromptedOutput}
VERSIONS: Final = ("v0", "responses/v1", "v1")
CITY: Final = City(name="Bern", people=134_000)
CASES: Final = pairwise([*SAMPLES], WAYS, DOORS, REPLIES, VERSIONS, ("thinks", "does not"))


@pytest.fixture(scope="module")
def server() -> Iterator[Strict]:
    made = Strict()
    try:
        yield made
        assert not made.failures, made.failures
    finally:
        made.close()


@pytest.fixture
def kit(server: Strict) -> Iterator[Strict]:
    server.forget()
    yield server
    assert not server.refused, server.refused


def client(kit: Strict, version: str = "responses/v1") -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-5",
        base_url=kit.url,
        api_key=SecretStr("k"),
        max_retries=0,
        use_responses_api=True,
        output_version=version,
    )


def said(sample: Sample, way: str, thought: str, *, good: bool) -> Said:
    if way == "tool":
        args = sample.good if good else sample.bad
        made = Call(name=sample.tool, args=args, id=f"call_{id(thought):x}_{next(_IDS)}")
        return Said(calls=[made], thought=thought)
    text = (sample.text or sample.good) if good else (sample.bad_text or sample.bad)
    return Said(text=json.dumps(text), thought=thought)


_IDS: Final = iter(range(10**9))


def schema_sent(way: str, tool: str, body: Mapping[str, Any]) -> Any:
    if way == "native":
        asked = body["text"]["format"]
        assert asked["type"] == "json_schema"
        assert NAME.fullmatch(asked["name"])
        return asked["schema"]
    assert "text" not in body
    if way == "tool":
        assert body["tool_choice"] == "required"
        return {one["name"]: one["parameters"] for one in body["tools"]}[tool]
    system = str(body["input"][0]["content"])
    return json.loads(system.partition("JSON schema:\n")[2])


def events_of(agent: Agent[Any], door: str, thread: str) -> list[Event]:
    if door == "stream":
        return [*agent.stream("Go", thread_id=thread)]

    async def read() -> list[Event]:
        return [event async for event in agent.astream("Go", thread_id=thread)]

    return asyncio.run(read())


def asked_through(agent: Agent[Any], door: str, thread: str) -> Any:
    if door == "invoke":
        return agent.invoke("Go", thread_id=thread)
    if door == "ainvoke":
        return asyncio.run(agent.ainvoke("Go", thread_id=thread))
    events = events_of(agent, door, thread)
    if isinstance(events[-1], Failed):
        assert events[-1].exception is not None
        raise events[-1].exception
    assert isinstance(events[-1], Done)
    result = events[-1].result
    deltas = [event for event in events if isinstance(event, OutputDelta)]
    assert deltas[-1].output == result.structured
    return result


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_matrix(case: tuple[str, ...], kit: Strict) -> None:
    name, way, door, replies, version, thinks = case
    sample, thought = SAMPLES[name], "Let me think." if thinks == "thinks" else ""
    agent: Agent = Agent(
        model=client(kit, version), output_type=STRATEGIES[way](sample.output_type)
    )
    good, bad = (said(sample, way, thought, good=good) for good in (True, False))
    kit.will_say(
        *{
            "valid": [good],
            "invalid, then valid": [bad, good],
            "never valid": [bad, *(said(sample, way, thought, good=False) for _ in range(2))],
            "a text instead": [Said(text="I would rather chat.", thought=thought), good],
        }[replies]
    )
    if replies == "never valid":
        with pytest.raises(OutputError, match="asked 3 times"):
            asked_through(agent, door, "t")
        kit.will_say(said(sample, way, thought, good=True))
    result = asked_through(agent, door, "t")
    assert result.output == sample.expected
    assert type(result.output) is type(sample.expected)
    known = sample.good if way == "tool" else sample.text or sample.good
    wrong = sample.bad if way == "tool" else sample.bad_text or sample.bad
    for body in kit.asked:
        schema = schema_sent(way, sample.tool, body)
        jsonschema.validate(known, schema)
        assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)
    if replies == "invalid, then valid":
        assert sample.path in str(kit.asked[1]["input"][-1])
        seen = roles(result.messages)
        assert seen == (["human", *["ai", "tool"] * 2] if way == "tool" else ["human", "ai"])
    if replies == "a text instead":
        assert "I would rather chat." not in str(result.messages)
        assert "I would rather chat." in str(kit.asked[1])
    kit.will_say(said(sample, way, thought, good=True))  # the next turn sends all of it back
    assert asked_through(agent, door, "t").output == sample.expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_is_asked_again_in_its_own_words(
    way: str, door: str, version: str, kit: Strict
) -> None:
    agent: Agent = Agent(
        model=client(kit, version), output_type=STRATEGIES[way](City), output_retries=1
    )
    no = Said(refusal="I cannot help with that.", thought="Hm.")
    kit.will_say(no, said(SAMPLES["model"], way, "Well.", good=True))
    assert asked_through(agent, door, "t").output == CITY
    assert "I cannot help with that." in str(kit.asked[1]["input"])
    kit.will_say(no, no)
    with pytest.raises(OutputError, match="the model refused: I cannot help with that"):
        asked_through(agent, door, "t")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("door", ["stream", "astream"])
def test_a_stream_tells_thoughts_apart_from_the_output(
    door: str, version: str, kit: Strict
) -> None:
    agent: Agent = Agent(model=client(kit, version), tools=[add], output_type=NativeOutput(City))
    adds = Call(name="add", args={"a": 1, "b": 2}, id="call_1")
    kit.will_say(Said(calls=[adds], thought="Sum."), Said(text=json.dumps(BERN), thought="Bern?"))
    events = events_of(agent, door, "t")
    assert isinstance(events[-1], Done), events[-1]
    assert events[-1].result.output == CITY
    thoughts = "".join(one.reasoning for one in events if isinstance(one, ChatModelStream))
    assert thoughts == "Sum.Bern?"
    assert [e.output for e in events if isinstance(e, OutputDelta)][-1] == BERN
    for body in kit.asked:
        jsonschema.validate(BERN, schema_sent("native", "City", body))
        assert [one["name"] for one in body["tools"]] == ["add"]


@pytest.mark.parametrize("door", ["stream", "astream"])
def test_thoughts_beside_an_empty_content_are_told(door: str, kit: Strict) -> None:
    """Ollama's and DeepSeek's clients keep reasoning apart from the content."""
    model = ChatOllama(model="qwen3", base_url=kit.origin, reasoning=True)
    kit.will_say(Said(text="Bern.", thought="Hm."))
    pieces = [e for e in events_of(Agent(model=model), door, "t") if isinstance(e, ChatModelStream)]
    assert "".join(e.reasoning for e in pieces) == "Hm."
    assert "".join(e.delta for e in pieces) == "Bern."


def test_a_refusal_of_chat_completions_is_quoted_too(kit: Strict) -> None:
    model = ChatOpenAI(model="gpt-5", base_url=kit.url, api_key=SecretStr("k"), max_retries=0)
    agent: Agent = Agent(model=model, output_type=NativeOutput(City), output_retries=0)
    kit.will_say(Said(refusal="I cannot help with that."))
    with pytest.raises(OutputError, match="the model refused: I cannot help with that"):
        agent.invoke("Go")
