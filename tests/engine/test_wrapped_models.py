"""Models in LangChain's wrappers: tools reach the model, and each wrapper still does its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import ConfigurableField, Runnable, RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.engine.support import add, async_door, sync_door
from tests.support.provider import Call, Provider, Reply
from wick_graph import Agent, Result, events
from wick_graph.errors import ConfigError, ModelError
from wick_graph.models import resolve_model
from wick_graph.testing import ScriptedModel, call
from wick_graph.testing import error as fails


def stream_door(agent: Agent, given: Any, **options: Any) -> Result:
    *_, last = agent.stream(given, **options)
    return _result(last)


def astream_door(agent: Agent, given: Any, **options: Any) -> Result:
    async def read() -> Any:
        return [event async for event in agent.astream(given, **options)][-1]

    return _result(asyncio.run(read()))


def _result(last: Any) -> Result:
    if isinstance(last, events.Failed) and last.exception is not None:
        raise last.exception
    assert isinstance(last.result, Result)
    return last.result


DOORS = pytest.mark.parametrize("door", [sync_door, async_door, stream_door, astream_door])


class Ears(BaseCallbackHandler):
    """Hear the tags and the metadata of each model call."""

    def __init__(self) -> None:
        self.tags: list[list[str]] = []
        self.metadata: list[dict[str, Any]] = []

    def on_chat_model_start(self, *_: Any, **more: Any) -> None:
        self.tags.append(more["tags"])
        self.metadata.append(more["metadata"])


class OddError(Exception):
    """An error that the engine would not take for a transient one."""


def openai(provider: Provider, **settings: Any) -> ChatOpenAI:
    key = SecretStr("k")
    return ChatOpenAI(model="m", api_key=key, base_url=provider.url, max_retries=0, **settings)


def names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body["tools"]]


@DOORS
def test_stop_words_and_settings_reach_the_provider_with_the_tools(
    door: Callable[..., Result], provider: Provider
) -> None:
    provider.say(Reply(calls=[Call(name="add", args={"a": 2, "b": 3}, id="c1")]), "Five.")
    model = openai(provider).bind(stop=["END"], temperature=0.25).bind(temperature=0.5)
    assert door(Agent(model=model, tools=[add]), "Add.").text == "Five."
    for body in provider.bodies:
        assert body["stop"] == ["END"]
        assert body["temperature"] == 0.5
        assert names(body) == ["add"]


@DOORS
def test_the_fallback_is_taken_in_the_form_of_its_own_provider(
    door: Callable[..., Result], provider: Provider
) -> None:
    second = ChatAnthropic(  # type: ignore[call-arg]  # defaults
        model_name="c", api_key=SecretStr("k"), base_url=provider.origin, max_retries=0
    )
    down = Reply(status=401, error="no")
    provider.say(down, Reply(calls=[Call(name="add", args={"a": 2, "b": 3}, id="c1")]))
    provider.say(down, "Five.")
    model = openai(provider).with_fallbacks([second]).bind(stop=["END"])
    result = door(Agent(model=model, tools=[add]), "Add.")
    assert (result.text, result.model) == ("Five.", "c")
    assert [r.path for r in provider.requests] == ["/v1/chat/completions", "/v1/messages"] * 2
    assert names(provider.bodies[0]) == ["add"]
    assert provider.bodies[1]["tools"][0]["name"] == "add"
    assert provider.bodies[1]["stop_sequences"] == ["END"]


@DOORS
def test_a_retry_holds_for_streams_too(door: Callable[..., Result]) -> None:
    model = ScriptedModel([fails(OddError("1")), fails(OddError("2")), call("add", a=2, b=3), "5"])
    wrapped = model.with_retry(
        retry_if_exception_type=(OddError,), stop_after_attempt=3, wait_exponential_jitter=False
    )
    assert door(Agent(model=wrapped, tools=[add]), "Add.").text == "5"
    assert len(model.calls) == 4
    assert all(asked.tool_names == ("add",) for asked in model.calls)


@DOORS
def test_a_retry_ends_after_its_attempts_and_only_for_its_errors(
    door: Callable[..., Result],
) -> None:
    model = ScriptedModel([fails(OddError("x"))])
    wrapped = model.with_retry(
        retry_if_exception_type=(OddError,), stop_after_attempt=2, wait_exponential_jitter=False
    )
    with pytest.raises(ModelError, match="OddError: x"):
        door(Agent(model=wrapped), "Hi.")
    assert len(model.calls) == 2
    other = ScriptedModel([fails(ConnectionError("gone"))])
    with pytest.raises(ModelError, match="gone"):
        door(Agent(model=other.with_retry(retry_if_exception_type=(OddError,))), "Hi.")
    assert len(other.calls) == 1


@DOORS
def test_tags_metadata_and_handlers_of_a_config_are_heard(door: Callable[..., Result]) -> None:
    ears, model = Ears(), ScriptedModel([call("add", a=2, b=3), "5"])
    wrapped = (
        model.with_config(tags=["inner"], callbacks=[ears])
        .bind(stop=["END"])
        .with_fallbacks([ScriptedModel(["never"])])
        .with_config(tags=["outer"], metadata={"team": "red"})
    )
    assert door(Agent(model=wrapped, tools=[add]), "Add.").text == "5"
    assert len(ears.tags) == 2
    assert all({"inner", "outer"} <= set(tags) for tags in ears.tags)
    assert all(found["team"] == "red" for found in ears.metadata)
    assert all(asked.settings["stop"] == ["END"] for asked in model.calls)


@DOORS
def test_listeners_are_told(door: Callable[..., Result]) -> None:
    heard: list[str] = []
    model = ScriptedModel(["Hi."]).with_listeners(on_end=lambda run: heard.append(run.run_type))
    assert door(Agent(model=model), "Hi.").text == "Hi."
    assert heard == ["chat_model"]


def down() -> ScriptedModel:
    return ScriptedModel([fails(OddError("down"))], model_name="down")


@DOORS
def test_wrappers_hold_in_any_order(door: Callable[..., Result]) -> None:
    first, second = (
        down(),
        ScriptedModel([fails(OddError("once")), call("add", a=2, b=3), "5"], model_name="second"),
    )
    # each attempt of the retry asks both models
    pair = first.bind(stop=["A"]).with_fallbacks([second.bind(stop=["B"])])
    retried = pair.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    never = ScriptedModel(["never"])
    model = retried.with_fallbacks([never]).with_config(tags=["all"]).bind(temperature=0.1)
    result = door(Agent(model=model, tools=[add]), "Add.")
    assert (result.text, result.model) == ("5", "second")
    assert [len(one.calls) for one in (first, second, never)] == [3, 3, 0]
    assert {asked.settings["stop"][0] for asked in second.calls} == {"B"}
    assert all(asked.settings["temperature"] == 0.1 for asked in (*first.calls, *second.calls))


def test_the_outer_fallback_follows_the_inner_ones() -> None:
    first, second, third = down(), down(), ScriptedModel(["third"], model_name="third")
    inner = first.with_fallbacks([second])
    assert Agent(model=inner.with_fallbacks([third])).invoke("Hi.").model == "third"
    assert Agent(model=down().with_fallbacks([inner, third])).invoke("Hi.").model == "third"
    assert Agent(model={"model": "scripted:demo", "fallbacks": [inner]}).invoke("Hi.").text


def test_a_fallback_is_for_the_named_errors_only() -> None:
    spare = ScriptedModel(["spare"])
    picky = down().with_fallbacks([spare], exceptions_to_handle=(ValueError,))
    with pytest.raises(ModelError, match="OddError"):
        Agent(model=picky).invoke("Hi.")
    assert not spare.calls


def test_retries_and_fallbacks_are_events() -> None:
    model = ScriptedModel([fails(OddError("1"))]).with_retry(
        stop_after_attempt=2, wait_exponential_jitter=False
    )
    agent = Agent(model=model.with_fallbacks([ScriptedModel(["Hi."])]))
    seen = [e.error for e in agent.stream("Hi.") if isinstance(e, events.ChatModelRetry)]
    assert seen == ["1", "1"]


def test_the_last_call_of_a_run_gets_no_tools_whatever_is_bound(provider: Provider) -> None:
    provider.say("Bye.")
    model = openai(provider).bind(tool_choice="any", stop=["END"])
    assert Agent(model=model, tools=[add], max_iterations=1).invoke("Add.").text == "Bye."
    assert provider.bodies[0]["stop"] == ["END"]
    assert not {"tools", "tool_choice"} & set(provider.bodies[0])


def plain(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda m: m | RunnableLambda(plain), "model is a RunnableSequence, to which no tools"),
        (lambda m: (m | RunnableLambda(plain)).with_retry(), "model is a RunnableSequence"),
        (lambda m: m.with_fallbacks([RunnableLambda(plain)]), "model is a RunnableLambda"),
        (lambda m: m.with_fallbacks([m], exception_key="e"), "model is a RunnableWithFallbacks"),
        (lambda m: m.bind_tools([add]), "model has tools bound to it; give these to the agent"),
        (lambda m: m.bind_tools([add]).with_retry(), "model has tools bound to it"),
        (lambda m: m.bind(functions=[]), "model has functions bound to it"),
        (
            lambda m: m.configurable_alternatives(_field(), other=m),
            "model is a RunnableConfigurableAlternatives",
        ),
    ],
)
def test_what_takes_no_tools_is_refused_by_name(
    make: Callable[[BaseChatModel], Runnable[Any, Any]], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        Agent(model=make(ScriptedModel(["x"])))
    assert "\n" not in str(refused.value)


def _field() -> Any:
    return ConfigurableField(id="which")


def test_a_bare_model_gets_no_wrapper() -> None:
    model = ScriptedModel(["x"])
    choice = resolve_model(model)
    assert choice.model is model
    assert not any([choice.settings, choice.configs, choice.inner, choice.fallbacks])
