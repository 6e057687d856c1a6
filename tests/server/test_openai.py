"""OpenAI's own client against the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server.support import AGENTS, Served, serving
from wick_graph.models.call import CUT, FILTERED
from wick_graph.server.protocols.openai import completion
from wick_graph.store.server_rows import StreamRow

pytestmark = pytest.mark.xdist_group("openai")  # they share a server


@pytest.fixture
def client(shared: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def openai_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with agents that fail and are silent; it pings often."""
    path = tmp_path_factory.mktemp("openai")
    names = ("broken", "silent")
    agents = AGENTS + "".join(f"  {name}: {{model: 'scripted:{name}.yaml'}}\n" for name in names)
    scripts = {
        "broken": "steps: [{error: 'RuntimeError: no'}]",
        "silent": "chunk_delay: 0.5\nsteps: ['one two']",
    }
    for name, script in scripts.items():
        (path / f"{name}.yaml").write_text(script, "utf-8")
    with serving(path, "--no-auth", "--ping", "0.1", agents=agents) as served:
        yield served


ASK: Any = [{"role": "user", "content": "What is 21*2?"}]


def test_the_agents_are_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["default", "slow", "careful"]


def test_a_chat_that_uses_a_tool(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(model="default", messages=ASK)
    assert got.choices[0].message.content == "It is 42."
    assert got.choices[0].finish_reason == "stop"
    assert got.usage is not None
    assert got.usage.total_tokens > 0


@pytest.mark.parametrize(("why", "told"), [(CUT, "length"), (FILTERED, "content_filter")])
def test_an_answer_that_ended_early_says_so_in_openai_s_words(why: str, told: str) -> None:
    row = StreamRow(thread_id="t", run_id="r", status="done", started=0, ended=1, first=1, asked={})
    answer = {"response": "It is", "stopped_because": "done", "reason": why, "usage": {}}
    named = {"thread_id": "t", "run_id": "r", "tool_calls": [], "interrupts": []}
    made = completion(row, "default", {**answer, **named})
    assert made["choices"][0]["finish_reason"] == told


def test_a_model_is_described(client: openai.OpenAI) -> None:
    assert client.models.retrieve("careful").id == "careful"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("nobody")


def test_streamed(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="default",
        messages=ASK,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [*stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Let me see.It is 42."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None


def test_a_thread_by_header(client: openai.OpenAI, shared: Served) -> None:
    headers = {"X-Thread-Id": "by-header"}
    for _ in range(2):
        client.chat.completions.create(model="default", messages=ASK, extra_headers=headers)
    with shared.http() as http:
        roles = [m["role"] for m in http.get("/threads/by-header/state").json()["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_a_history_is_told_as_one(client: openai.OpenAI) -> None:
    history: Any = [
        *ASK,
        {"role": "assistant", "content": "42"},
        {"role": "user", "content": "Sure?"},
    ]
    got = client.chat.completions.create(model="default", messages=history)
    assert got.choices[0].message.content == "It is 42."


def test_errors_are_openai_s(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist") as missing:
        client.chat.completions.create(model="nobody", messages=ASK)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="messages") as refused:
        client.chat.completions.create(model="default", messages=[])
    assert refused.value.type == "invalid_request_error"


def test_errors_before_a_route_are_openai_s_too(guarded: Served) -> None:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="a valid token is needed") as refused:
            client.models.list()
        assert refused.value.code == "invalid_api_key"
    with openai.OpenAI(
        base_url=f"{guarded.url}/v1", api_key=guarded.wick("token", "create")
    ) as client:
        with pytest.raises(openai.NotFoundError, match="not found") as missing:
            client.embeddings.create(model="default", input="x")
        assert missing.value.type == "invalid_request_error"


def chunks_of(text: str) -> list[Any]:
    """Read the data of a stream; comments are no data."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: ") for block in blocks)
    data = [block.removeprefix("data: ") for block in blocks]
    return [json.loads(line) if line != "[DONE]" else line for line in data]


def ends(chunks: list[Any]) -> list[Any]:
    """Return what ends a stream, in order."""
    found = []
    for chunk in chunks:
        if chunk == "[DONE]" or "error" in chunk:
            found.append(chunk if chunk == "[DONE]" else "error")
        elif chunk["choices"] and chunk["choices"][0]["finish_reason"]:
            found.append(chunk["choices"][0]["finish_reason"])
    return found


@pytest.mark.parametrize(
    ("agent", "wanted"),
    [
        ("default", ["stop", "[DONE]"]),
        ("careful", ["error"]),
        ("broken", ["error"]),
    ],
)
def test_a_stream_has_one_end(openai_server: Served, agent: str, wanted: list[str]) -> None:
    with openai_server.http() as http:
        body = {"model": agent, "messages": ASK, "stream": True}
        chunks = chunks_of(http.post("/v1/chat/completions", json=body).text)
    assert ends(chunks) == wanted
    said = "".join(
        choice["delta"].get("content", "")
        for chunk in chunks
        if "choices" in chunk
        for choice in chunk["choices"]
    )
    assert bool(said) == (agent != "broken")


NOT_DONE: list[tuple[str, Any]] = [
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
    ("tool_choice", "required"),
    ("functions", [{"name": "f", "parameters": {}}]),
    ("n", 2),
    ("n", True),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("temperature", 0.2),
    ("top_p", 0.5),
    ("max_tokens", 5),
    ("max_completion_tokens", 5),
    ("stop", ["x"]),
    ("seed", 7),
    ("logit_bias", {"50256": -100}),
    ("frequency_penalty", 1),
    ("reasoning_effort", "low"),
    ("modalities", ["text", "audio"]),
    ("store", True),
    ("web_search_options", {}),
]


@pytest.mark.parametrize(("name", "value"), NOT_DONE)
@pytest.mark.parametrize("stream", [False, True])
def test_what_it_does_not_do_is_refused_by_name(
    client: openai.OpenAI, name: str, value: Any, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match=f"{name}: not supported") as refused:
        client.chat.completions.create(
            model="default", messages=ASK, stream=stream, extra_body={name: value}
        )
    assert refused.value.param == name
    assert refused.value.code == "unsupported_parameter"
    assert refused.value.type == "invalid_request_error"


def test_an_unknown_parameter_gets_the_nearest_name(client: openai.OpenAI) -> None:
    for body, param, text in (
        ({"temprature": 1}, "temprature", "did you mean temperature"),
        ({"agent": "x"}, "agent", "unknown parameter; leave it out"),
        ({"stream_options": {"include_cost": True}}, "stream_options", "unknown field"),
        ({"stream": "yes"}, "stream", "stream"),
    ):
        with pytest.raises(openai.BadRequestError, match=text) as refused:
            client.chat.completions.create(model="default", messages=ASK, extra_body=body)
        assert refused.value.param == param


def test_a_message_holds_nothing_that_is_ignored(client: openai.OpenAI) -> None:
    called = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": ""}}
    with pytest.raises(openai.BadRequestError, match="function_call: not supported") as refused:
        client.chat.completions.create(model="default", messages=[called, *ASK])
    assert refused.value.param == "messages[0].function_call"


def test_what_asks_for_nothing_is_accepted(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(
        model="default",
        messages=ASK,
        n=1,
        tools=[],
        tool_choice="none",
        response_format={"type": "text"},
        logprobs=False,
        temperature=None,
        stop=[],
        user="anna",
        metadata={"job": "7"},
        safety_identifier="x",
        prompt_cache_key="y",
    )
    assert got.choices[0].message.content == "It is 42."
    echoed: Any = [*ASK, got.choices[0].message.model_dump(), *ASK]
    assert client.chat.completions.create(model="default", messages=echoed).choices


def threads_of(served: Served) -> int:
    """Count the threads, each of which is a run that began."""
    with served.http() as http:
        return len(http.get("/threads", params={"limit": 200}).json())


def test_a_run_that_failed_is_not_begun_again(openai_server: Served) -> None:
    with openai.OpenAI(base_url=f"{openai_server.url}/v1", api_key="x") as client:
        before = threads_of(openai_server)
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="broken", messages=ASK)
        assert threads_of(openai_server) == before + 1


def test_a_run_that_waits_is_an_error_not_an_answer(shared: Served) -> None:
    # with the client's own retries: none must run the agent again
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="unused") as client:
        before = threads_of(shared)
        with pytest.raises(openai.UnprocessableEntityError, match="waits for an approval") as waits:
            client.chat.completions.create(model="careful", messages=ASK)
        assert threads_of(shared) == before + 1
        said: Any = waits.value.body
        assert (said["code"], said["param"]) == ("waiting_for_answer", None)
        assert said["interrupts"][0]["value"]["tool"] == "calculate"
        assert waits.value.response.headers["x-thread-id"] == said["thread_id"]
        with shared.http() as http:
            assert len(http.get(f"/threads/{said['thread_id']}/approvals").json()) == 1


def test_a_stream_of_a_run_that_waits_ends_with_the_error(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="careful", messages=ASK, stream=True)
    chunks: list[Any] = []
    with pytest.raises(openai.APIError, match="waits for an approval") as waits:
        chunks.extend(stream)
    assert not any(chunk.choices[0].finish_reason for chunk in chunks)
    said: Any = waits.value.body
    assert said["interrupts"][0]["value"]["tool"] == "calculate"


def test_a_failure_in_a_stream_is_raised(openai_server: Served) -> None:
    with openai.OpenAI(base_url=f"{openai_server.url}/v1", api_key="x", max_retries=0) as client:
        stream = client.chat.completions.create(model="broken", messages=ASK, stream=True)
        with pytest.raises(openai.APIError, match="RuntimeError: no") as failed:
            list(stream)
        said: Any = failed.value.body
        with openai_server.http() as http:  # so that a client can look, or resume
            run = http.get(f"/runs/{said['run_id']}").json()
        assert (run["thread_id"], run["status"]) == (said["thread_id"], "failed")


@pytest.mark.slow
def test_pings_keep_a_silent_stream_and_the_client_reads_past_them(openai_server: Served) -> None:
    body = {"model": "silent", "messages": ASK, "stream": True}
    with openai_server.http() as http:
        for path, asked in (
            ("/v1/chat/completions", body),
            ("/agents/silent/stream", {"messages": ASK}),
        ):
            text = http.post(path, json=asked).text
            assert text.count(": ping\n\n") >= 3, path
    with openai.OpenAI(base_url=f"{openai_server.url}/v1", api_key="x", max_retries=0) as client:
        stream = client.chat.completions.create(model="silent", messages=ASK, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "one two"
