"""An agent's own processors: last before its model, and first after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from tests.engine.support import Door, add, async_door, sync_door
from tests.support.provider import Call, Provider, Reply
from wick_graph import Agent
from wick_graph.errors import ConfigError, MessageError, ModelError
from wick_graph.messages import (
    Processors,
    agent_call,
    message,
    process_for_llm,
    process_llm_response,
    to_llm_dict,
)
from wick_graph.models import resolve_model
from wick_graph.testing import ScriptedModel, calls

pytestmark = pytest.mark.parametrize("door", [sync_door, async_door])


def shouting(source: BaseMessage) -> dict[str, Any]:
    made = to_llm_dict(source)
    if made["role"] in ("user", "system"):
        made["content"] = made["content"].upper()
    return made


def trimmed(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "content": data["content"].removeprefix("Answer: ")}


def agent_of(processors: Any, *steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(steps))
    return Agent("a", model, tools=[add], processors=processors, **options), model


def test_the_model_reads_what_the_output_processor_makes_and_the_thread_stays(door: Door) -> None:
    agent, model = agent_of(Processors(outbound=shouting), "one", "two", system_prompt="Be good.")
    door(agent, "hi", thread_id="t")
    result = door(agent, "more", thread_id="t")
    assert [m.text for m in model.calls[1].messages] == ["BE GOOD.", "HI", "one", "MORE"]
    assert [m.text for m in result.messages] == ["hi", "one", "more", "two"]


@pytest.mark.parametrize(
    "inbound", [trimmed, lambda data: process_llm_response(trimmed(data))], ids=["dict", "message"]
)
def test_the_thread_keeps_what_the_input_processor_makes(door: Door, inbound: Any) -> None:
    agent, _ = agent_of(
        Processors(inbound=inbound), calls(("add", {"a": 1, "b": 2})), "Answer: it is 3."
    )
    result = door(agent, "Add", thread_id="t")
    assert result.text == "it is 3."
    assert result.tool_calls[0]["output"] == "3"
    assert result.usage.calls == 2


def test_an_input_processor_may_call_tools(door: Door) -> None:
    def reads(data: dict[str, Any]) -> Any:
        if data["content"] != "ADD 1 2":
            return data
        call = {"id": "c1", "name": "functions.add", "args": {"a": 1, "b": 2}}
        return message("assistant", "", tool_calls=[call], metadata={"read": True})

    agent, _ = agent_of(Processors(inbound=reads), "ADD 1 2", "3")
    result = door(agent, "Add", thread_id="t")
    assert result.tool_calls == [
        {"id": "c1", "name": "add", "args": {"a": 1, "b": 2}, "output": "3"}
    ]
    assert result.messages[1].additional_kwargs["metadata"] == {"read": True}


def test_processors_of_one_agent_do_not_affect_another(door: Door) -> None:
    _, model = agent_of(Processors(outbound=shouting), "one")
    other, plain = agent_of(None, "one")
    door(other, "hi")
    assert [m.text for m in plain.calls[0].messages] == ["hi"]
    assert other.processors.outbound is process_for_llm
    assert not model.calls


def test_a_record_is_told_as_the_output_processor_says(door: Door) -> None:
    def own(source: BaseMessage) -> dict[str, Any]:
        made = to_llm_dict(source)
        return {**made, "content": made["content"].replace("[Request from boss]", "Boss")}

    agent, model = agent_of(Processors(outbound=own), "done")
    agent.graph.invoke({"messages": [agent_call("Work", "a", caller="boss")]}, config("t"))
    assert [(m.type, m.text) for m in model.calls[0].messages] == [("human", "Boss: Work")]


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_what_no_processor_changed_reaches_the_provider_as_ever(
    door: Door, provider: Provider, kind: str
) -> None:
    where = provider.url if kind == "openai" else provider.origin
    spec = {"provider": kind, "model": "m", "base_url": where, "api_key": "k"}
    same = Processors(inbound=lambda data: data, outbound=lambda source: to_llm_dict(source))
    for processors in (None, same):
        provider.say(Reply(calls=[Call(name="add", args={"a": 1, "b": 2}, id="c1")]), "3.")
        agent = Agent("a", resolve_model(spec, env={}), tools=[add], processors=processors)
        assert door(agent, "Add").text == "3."
    first, second = provider.bodies[:2], provider.bodies[2:]
    assert json.dumps(first) == json.dumps(second)


def wrong(given: Any) -> Any:
    return 5


def nothing(given: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("processors", "why"),
    [
        (
            Processors(inbound=wrong),
            "^invalid messages: .* returned a int; return a dict or a message",
        ),
        (Processors(inbound=lambda data: HumanMessage("no")), "of the role assistant"),
        (Processors(outbound=nothing), "^invalid messages: .* returned a NoneType"),
        (
            Processors(outbound=wrong),
            "^invalid messages: .* returned a int; return a dictionary",
        ),
    ],
)
def test_a_processor_that_returns_something_else_fails_the_run(
    door: Door, processors: Processors, why: str
) -> None:
    agent, _ = agent_of(processors, "one", "two")
    with pytest.raises((MessageError, ModelError), match=why):
        door(agent, "hi", thread_id="t")


def test_what_is_no_pair_of_processors_is_refused(door: Door) -> None:
    with pytest.raises(ConfigError, match="processors must be"):
        agent_of({"inbound": trimmed})
    with pytest.raises(ConfigError, match="processors must be"):
        agent_of(Processors(inbound=5))  # type: ignore[arg-type]  # wrong on purpose


def test_a_reply_keeps_what_a_dictionary_has_no_place_for(door: Door) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    reply = AIMessage([thought, {"type": "text", "text": "Answer: 3"}])
    agent, _ = agent_of(Processors(inbound=lambda data: data), reply)
    result = door(agent, "hi")
    assert result.messages[-1].content == reply.content
