"""Which errors of a model call are tried again, and when."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest
from langchain_core import exceptions as langchain_exceptions
from langgraph.errors import GraphInterrupt

from wick_graph.errors import ConfigError
from wick_graph.models import RetryPolicy, classify, retry_delay

_ASKED = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions")


def refused(
    status: int, headers: Mapping[str, str] | None = None, text: str = "no", body: Any = None
) -> openai.APIStatusError:
    response = httpx2.Response(status, headers=dict(headers or {}), request=_ASKED)
    return openai.APIStatusError(text, response=response, body=body)


def by_anthropic(status: int, kind: str = "", text: str = "no") -> anthropic.APIStatusError:
    response = httpx2.Response(status, request=_ASKED)
    body = {"type": "error", "error": {"type": kind, "message": text}} if kind else None
    return anthropic.APIStatusError(text, response=response, body=body)


class GoogleServerError(Exception):
    """Shaped like google.genai's errors: an integer `code` and a response."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code} UNAVAILABLE.")
        self.code = code
        self.response = httpx.Response(code, headers={"Retry-After": "4"})


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def unreachable(cause: BaseException) -> Exception:
    return caused(openai.APIConnectionError(request=_ASKED), cause)


def garbled() -> Exception:
    try:
        json.loads("<html>")
    except ValueError as error:
        return error
    raise AssertionError


PASSING = [
    *(pytest.param(refused(s), id=f"status-{s}") for s in (408, 409, 425, 429, 500, 502, 503, 529)),
    pytest.param(by_anthropic(529, "overloaded_error"), id="anthropic-529"),
    pytest.param(by_anthropic(200, "overloaded_error"), id="anthropic-event-overloaded"),
    pytest.param(by_anthropic(200, "api_error"), id="anthropic-event-server"),
    pytest.param(
        openai.APIError("x", _ASKED, body={"type": "server_error", "code": None}),
        id="openai-event-server",
    ),
    pytest.param(openai.APIError("x", _ASKED, body={"code": "502"}), id="event-with-a-status"),
    pytest.param(openai.APITimeoutError(_ASKED), id="openai-timeout"),
    pytest.param(unreachable(httpx2.ConnectError("refused")), id="openai-refused"),
    pytest.param(unreachable(httpx2.RemoteProtocolError("peer closed")), id="openai-cut"),
    pytest.param(httpx.ReadTimeout("slow"), id="httpx-timeout"),
    pytest.param(httpx.RemoteProtocolError("peer closed"), id="httpx-cut"),
    pytest.param(httpx2.ReadError("reset"), id="httpx2-reset"),
    pytest.param(ollama.ResponseError("loading", 503), id="ollama-503"),
    pytest.param(ConnectionResetError("reset"), id="reset"),
    pytest.param(TimeoutError("slow"), id="timeout"),
    pytest.param(GoogleServerError(503), id="google-503"),
    pytest.param(
        caused(langchain_exceptions.ModelRateLimitError("x"), GoogleServerError(429)),
        id="langchain-around-google",
    ),
    pytest.param(langchain_exceptions.ModelAPIError("x"), id="langchain-server"),
    pytest.param(langchain_exceptions.ModelTimeoutError("x"), id="langchain-timeout"),
    pytest.param(garbled(), id="no-json"),
    pytest.param(ValueError("No generation chunks were returned"), id="empty-stream"),
]
LASTING = [
    *(pytest.param(refused(s), id=f"status-{s}") for s in (400, 401, 403, 404, 405, 422)),
    pytest.param(refused(503, {"x-should-retry": "false"}), id="told-not-to"),
    pytest.param(by_anthropic(200, "invalid_request_error"), id="anthropic-event-invalid"),
    pytest.param(
        openai.APIError("x", _ASKED, body={"type": "invalid_request_error"}),
        id="openai-event-invalid",
    ),
    pytest.param(ollama.ResponseError("model not found", 404), id="ollama-404"),
    pytest.param(unreachable(httpx2.UnsupportedProtocol("ftp")), id="no-http-address"),
    pytest.param(
        unreachable(caused(httpx2.ConnectError("x"), ssl.SSLCertVerificationError("expired"))),
        id="bad-certificate",
    ),
    pytest.param(langchain_exceptions.ModelAuthenticationError("x"), id="langchain-key"),
    pytest.param(GraphInterrupt(), id="interrupt"),
    pytest.param(asyncio.CancelledError(), id="cancelled"),
    pytest.param(KeyboardInterrupt(), id="ctrl-c"),
    pytest.param(ValueError("some bug"), id="bug"),
]
OVERFLOWING = [
    pytest.param(refused(400, text="maximum context length is 8192 tokens"), id="openai"),
    pytest.param(
        refused(400, body={"message": "no", "code": "context_length_exceeded"}), id="openai-code"
    ),
    pytest.param(refused(400, text="exceeds the available context size"), id="llama.cpp"),
    pytest.param(by_anthropic(400, "invalid_request_error", "prompt is too long"), id="anthropic"),
    pytest.param(
        by_anthropic(
            400, "invalid_request_error", "input length and `max_tokens` exceed context limit"
        ),
        id="anthropic-sum",
    ),
    pytest.param(refused(413), id="status-413"),
    pytest.param(
        refused(400, body={"message": "no", "type": "exceed_context_size_error"}),
        id="llama.cpp-type",
    ),
    pytest.param(
        openai.APIError("Your input exceeds the context window of this model", _ASKED, body=None),
        id="openai-event",
    ),
    pytest.param(langchain_exceptions.ContextOverflowError("x"), id="langchain"),
]


@pytest.mark.parametrize("error", PASSING)
def test_passing_faults_are_tried_again(error: BaseException) -> None:
    assert classify(error) == "retry"
    assert retry_delay(error, 1, RetryPolicy(), 0.0, random.random) is not None


@pytest.mark.parametrize("error", LASTING)
def test_lasting_faults_are_not_tried_again(error: BaseException) -> None:
    assert classify(error) == "fatal"
    assert retry_delay(error, 1, RetryPolicy(), 0.0, random.random) is None


@pytest.mark.parametrize("error", OVERFLOWING)
def test_a_conversation_that_is_too_long_is_told_apart(error: BaseException) -> None:
    assert classify(error) == "overflow"
    assert retry_delay(error, 1, RetryPolicy(), 0.0, random.random) is None


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(refused(429, text="maximum context length per minute"), id="rate-limit"),
        pytest.param(ValueError("maximum context length"), id="not-from-a-provider"),
    ],
)
def test_other_talk_of_contexts_is_no_overflow(error: BaseException) -> None:
    assert classify(error) != "overflow"


_NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        pytest.param({"Retry-After": "7"}, 7.0, id="seconds"),
        pytest.param({"retry-after": "1.5"}, 1.5, id="fraction"),
        pytest.param({"Retry-After": "0"}, 0.0, id="at-once"),
        pytest.param({"Retry-After": formatdate(_NOW + 9, usegmt=True)}, 9.0, id="date"),
        pytest.param({"Retry-After": formatdate(_NOW - 9, usegmt=True)}, 0.0, id="past-date"),
        pytest.param(
            {
                "Retry-After": formatdate(_NOW + 5_005, usegmt=True),
                "Date": formatdate(_NOW + 5_000, usegmt=True),
            },
            5.0,
            id="by-the-providers-clock",
        ),
        pytest.param({"retry-after-ms": "250", "Retry-After": "9"}, 0.25, id="milliseconds"),
        pytest.param({"Retry-After": "3600"}, 60.0, id="capped"),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_kept_to(
    headers: Mapping[str, str], delay: float
) -> None:
    error = refused(429, headers)
    assert retry_delay(error, 1, RetryPolicy(), 0.0, lambda: 0.5, now=_NOW) == delay


@pytest.mark.parametrize("asked", ["soon", "-3", "nan", "inf", "", "9" * 400, "Mon, 99 Foo 2026"])
def test_a_wait_that_cannot_be_read_is_passed_over(asked: str) -> None:
    error = refused(429, {"Retry-After": asked})
    assert retry_delay(error, 1, RetryPolicy(base=8.0), 0.0, lambda: 0.5) == 4.0


def test_the_wait_is_found_on_the_error_that_was_wrapped() -> None:
    error = caused(langchain_exceptions.ModelRateLimitError("x"), GoogleServerError(429))
    assert retry_delay(error, 1, RetryPolicy(), 0.0, lambda: 0.5) == 4.0


def test_waits_grow_and_are_drawn_from_zero_up() -> None:
    policy = RetryPolicy(attempts=99, base=0.5, cap=3.0, total=1e9)
    longest = [retry_delay(TimeoutError(), n, policy, 0.0, lambda: 1.0) for n in (1, 2, 3, 4, 98)]
    shortest = [retry_delay(TimeoutError(), n, policy, 0.0, lambda: 0.0) for n in (1, 2, 3)]
    assert longest == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert shortest == [0.0, 0.0, 0.0]


def test_attempts_come_to_an_end() -> None:
    policy = RetryPolicy(attempts=3)
    waits = [retry_delay(refused(500), n, policy, 0.0, random.random) for n in (1, 2, 3)]
    assert [wait is None for wait in waits] == [False, False, True]


def test_no_wait_is_begun_that_ends_beyond_the_total() -> None:
    policy = RetryPolicy(attempts=99, total=120.0)
    error = refused(429, {"Retry-After": "30"})
    assert retry_delay(error, 1, policy, 90.0, random.random) == 30.0
    assert retry_delay(error, 1, policy, 90.1, random.random) is None


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1.0}, {"cap": float("nan")}])
def test_a_senseless_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**wrong)


def test_a_chain_of_causes_that_bites_its_tail_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first) == "fatal"
