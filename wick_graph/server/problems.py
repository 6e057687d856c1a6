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
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
    WickError,
)
from wick_graph.redact import Redactor

log: Final = logging.getLogger("wick_graph.server")
_STATUS: Final[tuple[tuple[type[WickError], int], ...]] = (
    (ThreadNotFoundError, 404),
    (ThreadBusyError, 409),
    (StorageError, 503),
    (MessageError, 400),
    (ExpressionError, 400),
    (ConfigError, 400),
)
_redactor: Final = Redactor()


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
            return Problem(status, _redactor.text(str(error)))
    return Problem(500, shown(error))


def shown(error: BaseException) -> str:
    """Say why a run failed, to somebody who must learn nothing of this machine."""
    if isinstance(error, StorageError):
        log.error("the store failed: %s", error)
        return "the store cannot be used now"
    if isinstance(error, WickError) and str(error):
        return _redactor.text(str(error))
    log.error("a run failed", exc_info=error)
    return "internal error"
