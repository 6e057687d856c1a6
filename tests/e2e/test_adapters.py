"""Anthropic's and Ollama's protocols over real HTTP, through LangChain's own clients."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.support.provider import Call, Provider, Reply
from wick_graph.core.usage import usage_of
from wick_graph.models import ModelChoice, classify, resolve_model
from wick_graph.models.call import bind, ensure_whole, normalise_reply
from wick_graph.models.chunks import merge_chunks

ADD: dict[str, Any] = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}},
}
CALLS = (
    Call(name="add", args={"a": 1, "b": 22}, id="toolu_1"),
    Call(name="add", args={"a": 333, "b": 4}, id="toolu_2"),
)


def choose(provider: Provider, name: str) -> ModelChoice:
    spec = {"provider": name, "model": "m", "base_url": provider.origin, "timeout": 10}
    return resolve_model(spec | ({} if name == "ollama" else {"api_key": "sk-mine"}), env={})


async def ask(choice: ModelChoice, streaming: bool, asynchronous: bool) -> AIMessage:
    bound = bind(choice.model, [ADD], withheld=False, settings={"temperature": 0.5})
    if not streaming:
        reply = await bound.ainvoke("hi") if asynchronous else bound.invoke("hi")
        return ensure_whole(reply)
    chunks = [c async for c in bound.astream("hi")] if asynchronous else list(bound.stream("hi"))
    return ensure_whole(merge_chunks(chunks))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["anthropic", "ollama"])
async def test_text_calls_and_usage_come_out_right(
    provider: Provider, name: str, streaming: bool, asynchronous: bool
) -> None:
    provider.say(Reply(text="Let me see.", calls=CALLS))
    message, bad = normalise_reply(await ask(choose(provider, name), streaming, asynchronous))
    assert message.text == "Let me see."
    assert [c["args"] for c in message.tool_calls] == [{"a": 1, "b": 22}, {"a": 333, "b": 4}]
    assert len({c["id"] for c in message.tool_calls}) == 2
    assert not bad
    assert (usage_of(message).input_tokens, usage_of(message).output_tokens) == (11, 7)
    body = provider.bodies[0]
    assert body["model"] == "m"
    assert len(body["tools"]) == 1
    assert body.get("temperature", body.get("options", {}).get("temperature")) == 0.5


def test_anthropic_is_sent_the_key_as_given(provider: Provider) -> None:
    provider.say("Hello")
    choose(provider, "anthropic").model.invoke("hi")
    headers = provider.requests[0].headers  # its SDK has used both
    assert headers.get("x-api-key", headers.get("authorization", "")).endswith("sk-mine")


def test_anthropic_is_shown_withheld_tools_beside_a_history_with_calls(provider: Provider) -> None:
    provider.say(Reply(text="Let me see.", calls=CALLS), "333 and more.")
    model = choose(provider, "anthropic").model
    reply = bind(model, [ADD], withheld=False, settings={}).invoke("hi")
    message, _ = normalise_reply(reply)
    answers = [ToolMessage("5", tool_call_id=c["id"]) for c in message.tool_calls]
    history = [HumanMessage("hi"), message, *answers]
    last = bind(model, [ADD], withheld=True, settings={}).invoke(history)
    assert last.text == "333 and more."
    body = provider.bodies[1]
    assert body["tool_choice"] == {"type": "none"}
    assert [tool["name"] for tool in body["tools"]] == ["add"]
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]


def test_ollama_is_asked_for_what_was_configured(provider: Provider) -> None:
    provider.say("Hello")
    spec = {"model": "ollama:llama3.1:8b", "context_window": 9_000, "max_tokens": 70}
    choice = resolve_model(spec, env={"OLLAMA_HOST": provider.origin})
    choice.model.invoke("hi")
    body = provider.bodies[0]
    assert body["model"] == "llama3.1:8b"
    assert (body["options"]["num_ctx"], body["options"]["num_predict"]) == (9_000, 70)


@pytest.mark.parametrize(
    ("name", "reply", "verdict"),
    [
        ("anthropic", Reply(status=529), "retry"),
        ("anthropic", Reply(status=429, headers={"Retry-After": "3"}), "retry"),
        ("anthropic", Reply(status=400), "fatal"),
        ("anthropic", Reply(status=400, error="prompt is too long: 9 > 8"), "overflow"),
        ("anthropic", Reply(text="Never whole", cut_after=600), "retry"),
        ("anthropic", Reply(text="Never whole", cut_after=600, clean_cut=True), "retry"),
        ("ollama", Reply(status=503), "retry"),
        ("ollama", Reply(status=404), "fatal"),
        ("ollama", Reply(text="Never whole", cut_after=150), "retry"),
        ("ollama", Reply(text="Never whole", cut_after=114, clean_cut=True), "retry"),
    ],
)
async def test_failures_are_classified(
    provider: Provider, name: str, reply: Reply, verdict: str
) -> None:
    choice = choose(provider, name)
    for asynchronous in (False, True):
        provider.say(reply)
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the client's business
            await ask(choice, True, asynchronous)
        assert classify(caught.value) == verdict
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (["nomic-embed-text:latest", "llama3.1:8b", "qwen3"], "ollama:llama3.1:8b"),
        (["all-embed"], "scripted:demo"),
        ([], "scripted:demo"),
    ],
)
def test_auto_takes_a_model_of_an_ollama_that_answers(
    provider: Provider, listed: list[str], chosen: str
) -> None:
    provider.models = listed
    choice = resolve_model("auto", env={"OLLAMA_HOST": provider.origin})
    assert choice.name == chosen
    assert (choice.notice is None) == (chosen != "scripted:demo")
    assert [r.path for r in provider.requests] == ["/api/tags"]
