"""The server's options and limits, and the error bodies of its answers."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from wick_graph.constants import DEFAULT_PORT
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import (
    ConfigError,
    ExpressionError,
    MessageError,
    NothingWaitsError,
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
    WickError,
)

# --- What a server is told when it starts; every limit has a name.


DEFAULT_HOST: Final = "127.0.0.1"

OnDisconnect = Literal["continue", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server takes on; times are in seconds, sizes in bytes."""

    body: int = 4 * 1024 * 1024
    """A request's body."""
    depth: int = 64
    """Containers inside containers in a body."""
    values: int = 20_000
    """Keys, items and containers of a body together."""
    runs: int = 1_000
    """Runs that go on at once."""
    runs_per_tenant: int = 500
    threads_per_tenant: int = 100_000
    connections: int = 4_000
    """Open connections; one more is answered with 503."""
    requests_per_minute: int = 6_000
    """Of one token (or address, without tokens) over a minute."""
    header: float = 10.0
    """Until the head of a request is complete, and between two pieces of its body."""
    idle: float = 15.0
    """Of a kept connection between two requests."""
    ping: float = 15.0
    """Between two comments on a stream that has nothing to say."""
    send: float = 30.0
    """That a stream's reader may leave a piece unread."""
    drain: float = 20.0
    """For running steps to end after SIGTERM."""
    events_kept_of_runs: int = 20
    """Runs of a thread whose events can be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server is run.

    Raises:
        ConfigError: It would be open to the network without tokens, or a value is none of those
            that there are.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    auth: bool = True
    """False: whoever reaches it is the tenant `local` with all rights."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which it is reached, beside `localhost`, the loopback addresses and `host`."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use it, such as `https://example.org`."""
    allowed_callbacks: tuple[str, ...] = ()
    """Origins of HTTP tools that may be private, beside those of agents.yaml."""
    on_disconnect: OnDisconnect = "continue"
    """What becomes of a run whose reader leaves, where the request does not say."""
    reload: bool = False
    """Read agents.yaml anew when it changes."""
    otel: bool = False
    """Send traces by OpenTelemetry, as the variables OTEL_… say; needs the extra `otel`."""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.on_disconnect not in get_args(OnDisconnect):
            raise ConfigError(
                f"on_disconnect is {' or '.join(get_args(OnDisconnect))}, "
                f"and not {self.on_disconnect!r:.40}"
            )
        if not self.auth and not is_loopback(self.host):
            raise ConfigError(
                f"a server without tokens on {self.host} would be open to everybody who reaches "
                "it; leave out --no-auth, or bind 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Say whether an address to bind is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- What becomes of an error: a status and `{"error": …}` in words that give nothing away.


log: Final = logging.getLogger("wick_graph.server")

_STATUS: Final[tuple[tuple[type[WickError], int], ...]] = (
    (MessageError, 400),
    (ExpressionError, 400),
    (ConfigError, 400),
    (NothingWaitsError, 409),
)

_OPENAI: Final = "/v1/"
"""Below it OpenAI's clients ask, and errors have their form."""

_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


@dataclass(slots=True)
class Problem(Exception):  # an answer, not a failure
    """An answer to a request that cannot be met."""

    status: int
    error: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the answer's JSON."""
        return {"error": self.error, **self.more}


def error_body(problem: Problem, path: str) -> dict[str, Any]:
    """Return an answer's JSON in the form of those who ask at a path."""
    return openai_error(problem) if path.startswith(_OPENAI) else problem.body()


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return an answer's JSON as OpenAI's clients read it."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    code = _CODES.get(problem.status)
    said = {"message": problem.error, "type": kind, "param": None, "code": code}
    return {"error": {**said, **problem.more}}


def problem_of(error: BaseException) -> Problem:
    """Say how an error is answered; what it was stands in the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ThreadBusyError):
        return Problem(409, "thread is busy")
    if isinstance(error, ThreadNotFoundError):
        return Problem(404, "thread not found")
    if isinstance(error, StorageError):
        log.error("the store failed: %s", error)
        return Problem(503, "the store cannot be used now", headers={"Retry-After": "5"})
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return Problem(status, REDACTOR.text(str(error)))
    return Problem(500, public_message(error))


def public_message(error: BaseException) -> str:
    """Say why a run failed, to somebody who must learn nothing of this machine."""
    if isinstance(error, StorageError):
        log.error("the store failed: %s", error)
        return "the store cannot be used now"
    if isinstance(error, WickError) and str(error):
        return REDACTOR.text(str(error))
    log.error("a run failed", exc_info=error)
    return "internal error"


LOCAL: Final = "local"
"""The tenant of a server without tokens, and of the command line."""
