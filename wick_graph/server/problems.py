"""What becomes of an error: a status and `{"error": …}` in words that give nothing away."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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
from wick_graph.redact import REDACTOR

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


def told(problem: Problem, path: str) -> dict[str, Any]:
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
    return Problem(500, shown(error))


def shown(error: BaseException) -> str:
    """Say why a run failed, to somebody who must learn nothing of this machine."""
    if isinstance(error, StorageError):
        log.error("the store failed: %s", error)
        return "the store cannot be used now"
    if isinstance(error, WickError) and str(error):
        return REDACTOR.text(str(error))
    log.error("a run failed", exc_info=error)
    return "internal error"
