"""Whether a failed model call is worth another attempt, and after how long; pure functions.

Errors are recognised by what they carry (a status, a response, the names of their classes), never
by importing a provider's package, so any SDK's errors are understood, installed or not.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal

from wick_graph.errors import ConfigError

Verdict = Literal["retry", "overflow", "fatal"]
"""Try again, shorten the conversation and try again, or give up."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a failed model call is tried again.

    Raises:
        ConfigError: there would be no attempt at all, or a time is negative.
    """

    attempts: int = 3
    """Calls in all, including the first."""
    base: float = 0.5
    """Seconds; the longest first wait, doubled for each further one."""
    cap: float = 60.0
    """Seconds; no single wait is longer, even if the provider asks for more."""
    total: float = 120.0
    """Seconds from the first call, after which no further wait begins."""
    on: tuple[type[BaseException], ...] | Callable[[BaseException], bool] | None = None
    """Errors that are worth another attempt; None for transient ones, by `classify`."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError("a model needs at least one attempt; retries count from 0")
        if not all(math.isfinite(t) and t >= 0 for t in (self.base, self.cap, self.total)):
            raise ConfigError("the times of a retry policy must be zero or more seconds")


def retry_delay(
    error: BaseException,
    attempt: int,
    policy: RetryPolicy,
    elapsed: float,
    rng: Callable[[], float],
    *,
    now: float | None = None,
) -> float | None:
    """Decide how many seconds to wait before the next attempt, or None for no further one.

    `attempt` is the number of the failed attempt, from 1; `elapsed` is in seconds since the first
    one began. A wait that the provider asks for (`retry-after-ms`, `Retry-After` in seconds or as
    a date) is respected, up to the policy's cap. Otherwise `rng`, which returns numbers from 0 to
    1 (`random.random`), draws the wait evenly between zero and a limit that doubles with each
    attempt. `now`, in seconds since the epoch, replaces the clock if a date comes without the
    provider's own time.
    """
    if attempt >= policy.attempts or not _is_worth_it(error, policy):
        return None
    asked = _asked_wait(error, now)
    if asked is None:
        limit = min(policy.cap, policy.base * 2.0 ** min(attempt - 1, 60))
        delay = rng() * limit
    else:
        delay = min(asked, policy.cap)
    return delay if elapsed + delay <= policy.total else None


def _is_worth_it(error: BaseException, policy: RetryPolicy) -> bool:
    """Say whether the policy allows another attempt after this error."""
    verdict = classify(error)
    if policy.on is None or verdict == "overflow":
        return verdict == "retry"
    return isinstance(error, policy.on) if isinstance(policy.on, tuple) else policy.on(error)


def classify(error: BaseException) -> Verdict:
    """Classify an error: a transient fault, a conversation that is too long, or a lasting fault.

    Statuses 408, 409, 425, 429 and 5xx, time-outs, broken connections, cut streams and unreadable
    answers are transient; any other 4xx and everything unknown is lasting. Control-flow exceptions
    (cancellation, an interrupt) are never tried again.
    """
    if not isinstance(error, Exception):
        return "fatal"
    chain = tuple(_causes(error))
    if any(_is_overflow(link) for link in chain):
        return "overflow"
    for link in chain:
        verdict = _verdict(link)
        if verdict is not None:
            return verdict
    return "fatal"


_RETRY_STATUS: Final = frozenset({408, 409, 425, 429})

_OVERFLOW_STATUS: Final = frozenset({None, 400, 422, 500})
"""Statuses with which a text about the context counts; None is an error event in a stream."""

_PASSING_KINDS: Final = frozenset(
    {
        "api_error",
        "internal_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "server_is_overloaded",
        "service_unavailable",
        "timeout",
        "timeout_error",
    }
)
"""Types and codes that an error event carries when it arrives in the middle of a stream."""

_PASSING_CLASSES: Final = frozenset(
    {
        "APIConnectionError",  # openai, anthropic
        "APITimeoutError",
        "IncompleteRead",  # http.client
        "NetworkError",  # httpx, httpx2
        "ProxyError",
        "RemoteProtocolError",
        "TimeoutException",
        "ChunkedEncodingError",  # requests, by way of google
        "ConnectionError",
        "Timeout",
        "ClientConnectionError",  # aiohttp, by way of google
        "ClientPayloadError",
        "ServiceUnavailable",  # google.api_core
        "DeadlineExceeded",
        "SSLError",
        "gaierror",
    }
)

_GARBLED: Final = re.compile(
    r"No generation chunks were returned"
    r"|Unexpected response type from OpenAI-compatible endpoint"
    r"|Received response with null value for 'choices'"
)
"""LangChain's texts for an invalid answer: an empty body, or a gateway's own page."""

_LASTING_CLASSES: Final = frozenset(
    {"UnsupportedProtocol", "LocalProtocolError", "InvalidURL", "SSLCertVerificationError"}
)
"""What SDKs wrap as a connection error although no further attempt can help."""

_OVERFLOW_TEXT: Final = re.compile(
    r"context_length_exceeded"
    r"|exceed_context_size"
    r"|contextwindowexceeded"
    r"|maximum context length"
    r"|maximum number of tokens allowed"
    r"|(?:prompt|input) is too long"
    r"|exceeds? the (?:model'?s? )?(?:available |maximum )?context (?:size|window|length|limit)"
    r"|exceed(?:s|ed)? context limit"
    r"|input tokens exceed"
    r"|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)

_SCANNED_CHARS: Final = 4_000

_CHAIN_LENGTH: Final = 8


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first."""
    link: BaseException | None = error
    for _ in range(_CHAIN_LENGTH):
        if link is None:
            return
        yield link
        link = link.__cause__


def _verdict(error: BaseException) -> Verdict | None:
    """Return the verdict on one error; None if its cause must decide."""
    status = _status(error)
    if status is not None:
        return "retry" if _status_passes(status, error) else "fatal"
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _LASTING_CLASSES or any(_lasts(link) for link in _causes(error)):
        return "fatal"
    if getattr(error, "is_retryable", None) is True or names & _PASSING_CLASSES:
        return "retry"
    if isinstance(error, TimeoutError | ConnectionError) or _is_garbled(error):
        return "retry"
    kinds = _kinds(error)
    if kinds & _PASSING_KINDS:
        return "retry"
    return "fatal" if kinds else None


def _is_garbled(error: BaseException) -> bool:
    """Say whether the answer came with status 200 but cannot be read."""
    if isinstance(error, json.JSONDecodeError):
        return True
    plain = type(error) in (TypeError, ValueError)
    return plain and _GARBLED.search(str(error)[:_SCANNED_CHARS]) is not None


def _lasts(error: BaseException) -> bool:
    return any(cls.__name__ in _LASTING_CLASSES for cls in type(error).__mro__)


def _status_passes(status: int, error: BaseException) -> bool:
    if _header(error, "x-should-retry") == "false":
        return False
    return status >= 500 or status in _RETRY_STATUS


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of a refusal, from the error, its body, or its response."""
    response = getattr(error, "response", None)
    candidates = (
        getattr(error, "status_code", None),
        getattr(error, "code", None),  # google; some gateways write it into a stream's error event
        getattr(response, "status_code", None),
    )
    for value in candidates:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None


def _kinds(error: BaseException) -> set[str]:
    """Return a provider's names of an error: `type` and `code`, also inside the body."""
    body = getattr(error, "body", None)
    places: list[Any] = [getattr(error, "type", None), getattr(error, "code", None)]
    for level in (body, body.get("error") if isinstance(body, Mapping) else None):
        if isinstance(level, Mapping):
            places += [level.get("type"), level.get("code")]
    return {word.lower() for word in places if isinstance(word, str) and word != "error"}


def _is_overflow(error: BaseException) -> bool:
    if any(cls.__name__ == "ContextOverflowError" for cls in type(error).__mro__):
        return True
    status = _status(error)
    if status == 413:  # the whole request is too large, whatever the text says
        return True
    if status not in _OVERFLOW_STATUS:
        return False
    if status is None and not _from_provider(error):
        return False
    said = " ".join((str(error)[:_SCANNED_CHARS], *_kinds(error)))
    return _OVERFLOW_TEXT.search(said) is not None


def _from_provider(error: BaseException) -> bool:
    """Say whether the error came from a provider at all; any ValueError may mention contexts."""
    return any(hasattr(error, name) for name in ("status_code", "body", "response"))


def _headers(error: BaseException) -> Mapping[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        headers = getattr(error, "headers", None)
    try:
        return {str(k).lower(): str(v) for k, v in dict(headers or {}).items()}
    except (TypeError, ValueError):
        return {}


def _header(error: BaseException, name: str) -> str | None:
    for link in _causes(error):
        value = _headers(link).get(name)
        if value is not None:
            return value.strip()
    return None


def _asked_wait(error: BaseException, now: float | None) -> float | None:
    """Return the wait in seconds that the provider asks for; None if it asks for none."""
    millis = _number(_header(error, "retry-after-ms"))
    if millis is not None:
        return millis / 1000
    text = _header(error, "retry-after")
    if text is None:
        return _number(getattr(error, "retry_after", None))
    plain = _number(text)
    if plain is not None:
        return plain
    until = _timestamp(text)
    if until is None:
        return None
    here = _timestamp(_header(error, "date") or "")  # the provider's clock, if it sends one
    if here is None:
        here = time.time() if now is None else now
    return max(until - here, 0.0)


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # anything else raises, and is caught
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _timestamp(text: str) -> float | None:
    try:
        parsed = parsedate_to_datetime(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
