"""OpenAI's own client against the server."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.server.support import Served


@pytest.fixture
def client(shared: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{shared.url}/v1", api_key="unused", max_retries=0)


ASK: Any = [{"role": "user", "content": "What is 21*2?"}]


def test_the_agents_are_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["default", "slow", "careful"]


def test_a_chat_that_uses_a_tool(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(model="default", messages=ASK)
    assert got.choices[0].message.content == "It is 42."
    assert got.choices[0].finish_reason == "stop"
    assert got.usage is not None
    assert got.usage.total_tokens > 0


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
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="nobody", messages=ASK)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="default", messages=[])
