"""The server's options and limits, and its error answers."""

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

# --- The options and limits of a server.


DEFAULT_HOST: Final = "127.0.0.1"

OnDisconnect = Literal["continue", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server; times are in seconds, sizes in bytes."""

    body: int = 4 * 1024 * 1024
    """Size of a request's body."""
    depth: int = 64
    """Levels of nested containers in a body."""
    values: int = 20_000
    """Keys, items and containers in a body together."""
    runs: int = 2_000
    """Concurrent runs."""
    runs_per_tenant: int = 1_000
    threads_per_tenant: int = 100_000
    connections: int = 4_000
    """Open connections; further ones get 503."""
    requests_per_minute: int = 6_000
    """Requests per token, or per address without tokens."""
    header: float = 10.0
    """Until the head of a request is complete, and again until its body is."""
    idle: float = 15.0
    """Until an idle kept-alive connection is closed."""
    ping: float = 15.0
    """Between two pings on a silent stream."""
    send: float = 30.0
    """Until a stalled client is disconnected."""
    drain: float = 20.0
    """For running steps to end after SIGTERM."""
    events_kept_of_runs: int = 20
    """Latest runs of a thread that keep their events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server.

    Raises:
        ConfigError: The server would be open to the network without tokens, or a value is unknown.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    auth: bool = True
    """If False, every caller is the tenant `local` with all rights."""
    allowed_hosts: tuple[str, ...] = ()
    """Accepted host names, besides `localhost`, the loopback addresses and `host`."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use the server, such as `https://example.org`."""
    allowed_callbacks: tuple[str, ...] = ()
    """Private origins that HTTP tools may have, besides those in agents.yaml."""
    on_disconnect: OnDisconnect = "continue"
    """What to do with a run when its client disconnects, unless the request says."""
    reload: bool = False
    """Reload agents.yaml when it changes."""
    otel: bool = False
    """Export traces as the variables OTEL_… configure; needs the extra `otel`."""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.on_disconnect not in get_args(OnDisconnect):
            raise ConfigError(
                f"on_disconnect must be {' or '.join(get_args(OnDisconnect))}, "
                f"not {self.on_disconnect!r:.40}"
            )
        if not self.auth and not is_loopback(self.host):
            raise ConfigError(
                f"a server without tokens on {self.host} would be open to everyone who can "
                "reach it; drop --no-auth, or use --host 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- Error answers: a status and `{"error": …}` without details of the host.


log: Final = logging.getLogger("wick_graph.server")

_STATUS: Final[tuple[tuple[type[WickError], int], ...]] = (
    (MessageError, 400),
    (ExpressionError, 400),
    (ConfigError, 400),
    (NothingWaitsError, 409),
)

OPENAI_PATH: Final = "/v1/"
"""Path prefix of OpenAI's API; its errors have OpenAI's format."""

_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


@dataclass(slots=True)
class Problem(Exception):  # an answer, not a failure
    """An error answer to a request."""

    status: int
    error: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the answer's JSON."""
        return {"error": self.error, **self.more}


def error_body(problem: Problem, path: str) -> dict[str, Any]:
    """Return the JSON of an error answer, in the format of a path's clients."""
    return openai_error(problem) if path.startswith(OPENAI_PATH) else problem.body()


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return the JSON of an error answer in OpenAI's format."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    code = _CODES.get(problem.status)
    said = {"message": problem.error, "type": kind, "param": None, "code": code}
    return {"error": {**said, **problem.more}}


def problem_of(error: BaseException) -> Problem:
    """Convert an error to an error answer; log what the answer omits."""
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
    """Describe why a run failed, without details of the host."""
    if isinstance(error, ThreadBusyError | ThreadNotFoundError):
        return problem_of(error).error
    if isinstance(error, StorageError):
        log.error("the store failed: %s", error)
        return "the store cannot be used now"
    if isinstance(error, WickError) and str(error):
        return REDACTOR.text(str(error))
    log.error("a run failed", exc_info=error)
    return "internal error"


LOCAL: Final = "local"
"""The tenant of a server without tokens, and of the command line."""
