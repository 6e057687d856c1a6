"""OpenAI's protocol over real HTTP, through LangChain's own client."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.support.provider import Call, Provider, Reply
from wick_graph.core.usage import Usage, usage_of
from wick_graph.models import ModelChoice, RetryPolicy, classify, resolve_model, retry_delay
from wick_graph.models.call import bind, ensure_whole, is_empty, normalise_reply
from wick_graph.models.chunks import merge_chunks

ADD: dict[str, Any] = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}},
}
CALLS = (
    Call(name="add", args={"a": 1, "b": [22, 333]}, id="call_a"),
    Call(name="mul", args={"x": "twenty-one", "y": 2}, id="call_b"),
    Call(name="now", id="call_c"),
)


def choose(provider: Provider, **more: Any) -> ModelChoice:
    spec = {"base_url": provider.url, "model": "test-model", "api_key": "sk-mine", "timeout": 10}
    return resolve_model(spec | more, env={})


def streamed(choice: ModelChoice) -> AIMessage:
    return ensure_whole(merge_chunks(list(choice.model.stream("hi"))))


async def astreamed(choice: ModelChoice) -> AIMessage:
    chunks = [chunk async for chunk in choice.model.astream("hi")]
    return ensure_whole(merge_chunks(chunks))


async def invoked(choice: ModelChoice) -> AIMessage:
    return ensure_whole(choice.model.invoke("hi"))


async def ainvoked(choice: ModelChoice) -> AIMessage:
    return ensure_whole(await choice.model.ainvoke("hi"))


async def streamed_here(choice: ModelChoice) -> AIMessage:
    return streamed(choice)


Way = Callable[[ModelChoice], Awaitable[AIMessage]]
every_way = pytest.mark.parametrize(
    "way",
    [
        pytest.param(invoked, id="invoke"),
        pytest.param(ainvoked, id="ainvoke"),
        pytest.param(streamed_here, id="stream"),
        pytest.param(astreamed, id="astream"),
    ],
)


@every_way
async def test_parallel_calls_and_text_come_out_right(provider: Provider, way: Way) -> None:
    provider.say(Reply(text="Let me see: ½ ✓", calls=CALLS, piece=3))
    message, bad = normalise_reply(await way(choose(provider)))
    assert message.text == "Let me see: ½ ✓"
    assert [(c["name"], c["args"], c["id"]) for c in message.tool_calls] == [
        ("add", {"a": 1, "b": [22, 333]}, "call_a"),
        ("mul", {"x": "twenty-one", "y": 2}, "call_b"),
        ("now", {}, "call_c"),
    ]
    assert not bad


@every_way
async def test_usage_arrives(provider: Provider, way: Way) -> None:
    reported = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    provider.say(Reply(text="Hello", usage=reported))
    assert usage_of(await way(choose(provider))) == Usage(100, 20, 120, 64, 0, 8, 1)


def test_the_map_form_reaches_the_server_as_given(provider: Provider) -> None:
    provider.say("Hello")
    choice = choose(provider, temperature=0.25, max_tokens=50, params={"seed": 4})
    bound = bind(choice.model, [ADD], withheld=False, settings={"temperature": 0.75})
    assert bound.invoke("hi").text == "Hello"
    (request,) = provider.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-mine"
    assert request.body["model"] == "test-model"
    assert request.body["messages"] == [{"role": "user", "content": "hi"}]
    assert (request.body["temperature"], request.body["seed"]) == (0.75, 4)
    assert request.body["max_completion_tokens"] == 50
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["add"]


def test_withheld_tools_are_not_sent(provider: Provider) -> None:
    provider.say("Done")
    bind(choose(provider).model, [ADD], withheld=True, settings={}).invoke("hi")
    assert "tools" not in provider.bodies[0]


def test_the_server_of_a_test_lists_its_models(provider: Provider) -> None:
    model: Any = choose(provider).model
    assert [m.id for m in model.root_client.models.list()] == ["test-model"]


_SOON = 2_000_000_000


@pytest.mark.sisters(4)
@pytest.mark.parametrize(
    ("reply", "verdict", "delay"),
    [
        pytest.param(
            Reply(status=429, headers={"Retry-After": "7"}), "retry", 7.0, id="429-seconds"
        ),
        pytest.param(
            Reply(status=429, headers={"Retry-After": formatdate(_SOON + 9, usegmt=True)}),
            "retry",
            60.0,
            id="429-date",
        ),
        pytest.param(
            Reply(status=429, headers={"retry-after-ms": "1500"}), "retry", 1.5, id="429-ms"
        ),
        pytest.param(Reply(status=500), "retry", 0.25, id="500"),
        pytest.param(Reply(status=529), "retry", 0.25, id="529"),
        pytest.param(Reply(status=408), "retry", 0.25, id="408"),
        pytest.param(Reply(status=400), "fatal", None, id="400"),
        pytest.param(Reply(status=401), "fatal", None, id="401"),
        pytest.param(Reply(status=404), "fatal", None, id="404"),
        pytest.param(
            Reply(status=400, error_fields={"code": "context_length_exceeded"}),
            "overflow",
            None,
            id="M6-openai",
        ),
        pytest.param(
            Reply(status=400, error="the request exceeds the available context size"),
            "overflow",
            None,
            id="M6-llama.cpp",
        ),
        pytest.param(
            Reply(body=b"<html>Bad gateway</html>", content_type="text/html"),
            "retry",
            0.25,
            id="M3-page",
        ),
        pytest.param(Reply(body=b""), "retry", 0.25, id="M3-nothing"),
        pytest.param(Reply(body=b'{"choices": '), "retry", 0.25, id="M3-half"),
    ],
)
@every_way
async def test_failures_are_classified_and_made_once(
    provider: Provider, way: Way, reply: Reply, verdict: str, delay: float | None
) -> None:
    provider.say(reply)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the client's business
        await way(choose(provider))
    assert classify(caught.value) == verdict
    assert retry_delay(caught.value, 1, RetryPolicy(), 0.0, lambda: 0.5) == delay
    assert len(provider.requests) == 1, "the client must not retry by itself"


@every_way
async def test_a_server_that_takes_too_long_is_given_up(provider: Provider, way: Way) -> None:
    provider.say(Reply(text="late", delay=30))
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the client's business
        await way(choose(provider, timeout=0.2))
    assert classify(caught.value) == "retry"


async def test_a_stream_that_falls_silent_is_given_up(provider: Provider) -> None:
    provider.say(*[Reply(text="one two three", gap=30)] * 2)
    choice = choose(provider, timeout=0.2)
    for way in (streamed_here, astreamed):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the client's business
            await way(choice)
        assert classify(caught.value) == "retry"


@every_way
async def test_a_server_that_is_not_there(provider: Provider, way: Way) -> None:
    choice = choose(provider)
    provider.close()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the client's business
        await way(choice)
    assert classify(caught.value) == "retry"


@pytest.mark.parametrize("clean", [False, True], ids=["torn", "ended"])
def test_no_cut_stream_is_taken_for_a_reply(provider: Provider, clean: bool) -> None:
    whole = Reply(text="Some text ✓ first", calls=CALLS, usage=None, done=False)
    provider.say(whole)
    choice = choose(provider)
    assert len(streamed(choice).tool_calls) == 3
    offsets = range(1, 2_600, 97)
    for offset in offsets:
        provider.say(Reply(**{**vars(whole), "cut_after": offset, "clean_cut": clean}))
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the client's business
            streamed(choice)
        assert classify(caught.value) == "retry", offset
    assert len(provider.requests) == 1 + len(offsets)


def test_an_error_event_inside_a_stream(provider: Provider) -> None:
    fields = {"type": "server_error"}
    provider.say(Reply(text="Some text", broken_after=2, error_fields=fields))
    with pytest.raises(Exception, match="scripted failure") as caught:
        streamed(choose(provider))
    assert classify(caught.value) == "retry"


@every_way
async def test_a_missing_done_is_no_fault(provider: Provider, way: Way) -> None:
    provider.say(Reply(text="Hello", done=False))
    assert (await way(choose(provider))).text == "Hello"


@every_way
async def test_an_empty_reply_is_empty(provider: Provider, way: Way) -> None:
    provider.say(Reply())
    assert is_empty(await way(choose(provider)))


@every_way
async def test_a_call_with_bad_json_can_be_answered(provider: Provider, way: Way) -> None:
    provider.say(Reply(calls=[Call(name="add", args='{"a": 1', id="c1"), *CALLS]), "Mended.")
    choice = choose(provider)
    message, bad = normalise_reply(await way(choice))
    assert list(bad) == ["c1"]
    answers = [
        ToolMessage(bad.get(str(c["id"]), "done"), tool_call_id=c["id"], name=c["name"])
        for c in message.tool_calls
    ]
    assert choice.model.invoke([HumanMessage("hi"), message, *answers]).text == "Mended."
    sent = provider.bodies[1]["messages"]
    asked = [call["id"] for call in sent[1]["tool_calls"]]
    assert sorted(asked) == ["c1", "call_a", "call_b", "call_c"]
    assert [m["tool_call_id"] for m in sent[2:]] == asked
    broken = next(c for c in sent[1]["tool_calls"] if c["id"] == "c1")
    assert broken["function"]["arguments"] == "{}"


@every_way
async def test_calls_without_ids_get_some(provider: Provider, way: Way) -> None:
    provider.say(Reply(calls=[Call(name="add"), Call(name="add")]))
    message, _ = normalise_reply(await way(choose(provider)))
    ids = {c["id"] for c in message.tool_calls}
    assert len(ids) == 2
    assert all(str(i).startswith("call_") for i in ids)


def test_tokens_come_as_they_are_said(provider: Provider) -> None:
    provider.say(Reply(text="one two three four", gap=60), lambda asked: Reply(text="next"))
    choice = choose(provider)
    stream = choice.model.stream("hi")
    started = time.monotonic()
    next(stream)
    assert time.monotonic() - started < 30, "the rest is a minute away"
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert choice.model.invoke("hi").text == "next"
    provider.assert_complete()


def test_retrying_leads_to_the_reply_in_the_end(provider: Provider) -> None:
    provider.say(
        Reply(status=429, headers={"Retry-After": "0"}),
        Reply(text="Never whole", cut_after=400),
        "Here I am",
    )
    choice = choose(provider, retries=4)
    for attempt in range(1, 9):
        try:
            message = streamed(choice)
        except Exception as error:
            wait = retry_delay(error, attempt, choice.retry, 0.0, random.random)
            assert wait is not None
            continue
        break
    assert message.text == "Here I am"
    assert len(provider.requests) == 3
