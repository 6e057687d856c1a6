"""OpenAI's own client against the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server.support import AGENTS, Served, serving

pytestmark = pytest.mark.xdist_group("openai")  # they share a server


@pytest.fixture
def client(shared: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{shared.url}/v1", api_key="unused", max_retries=0)


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
    client = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="a valid token is needed") as refused:
        client.models.list()
    assert refused.value.code == "invalid_api_key"
    client = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=guarded.wick("token", "create"))
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
        ("careful", ["stop", "[DONE]"]),
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


def test_a_failure_in_a_stream_is_raised(openai_server: Served) -> None:
    client = openai.OpenAI(base_url=f"{openai_server.url}/v1", api_key="x", max_retries=0)
    stream = client.chat.completions.create(model="broken", messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="RuntimeError: no"):
        list(stream)


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
    client = openai.OpenAI(base_url=f"{openai_server.url}/v1", api_key="x", max_retries=0)
    stream = client.chat.completions.create(model="silent", messages=ASK, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "one two"
