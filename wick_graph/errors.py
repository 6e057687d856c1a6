"""Every error that wick_graph raises, as one tree.

    WickError                    what an application catches
    ├── ConfigError              agents.yaml, a constructor argument, a flag (also ValueError)
    ├── ExpressionError          an expression is invalid, or has no value (also ValueError)
    ├── MessageError             a message or a chain breaks a rule (also ValueError)
    ├── ModelError               a model cannot be found, built or called
    ├── ToolError                a tool failed; its text goes to the model
    │   └── RefusedError         a rule forbids the call, such as a path outside its root
    ├── HookError                a hook broke its contract
    ├── RunError                 a run ended without an answer
    │   ├── NothingWaitsError    an answer came, but no call waits for one
    │   └── OutputError          a run has no valid output
    ├── ReplayError              a run differs from its recording
    ├── DebugError               the debugger cannot carry out a command
    ├── ServerError              a server refuses, or cannot be reached
    ├── DeliveryError            a channel of a gateway could not send a message
    └── StorageError             the database refuses or is damaged
        ├── ThreadNotFoundError  no thread has this id
        └── ThreadBusyError      another run holds the thread

    RunCancelled                 a signal, not an error: ends a run after its reader has left;
                                 a BaseException, so that no `except Exception` swallows it

Constructors have no side effects. Each class has a stable `code` for scripts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

_LONGEST: Final = 64
"""Longest word to find a neighbour for: a comparison costs the square of the length."""


def describe(error: BaseException) -> str:
    """Describe an error: a `WickError` by its text alone, any other by its type and its text.

    Never raises, even if the exception's own `__str__` does.
    """
    name = type(error).__name__
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    if not text:
        return name
    return text if isinstance(error, WickError) or name in text else f"{name}: {text}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Find the candidate that looks most like a word, without regard to case.

    Returns None when nothing is close enough to be worth suggesting.
    """
    if len(word) > _LONGEST:
        return None
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Phrase the nearest candidate as `; did you mean X?`, or return an empty text."""
    guess = nearest(word, words)
    return f"; did you mean {guess}?" if guess else ""


def missing_extra(what: str, package: str, extra: str) -> str:
    """Phrase the refusal of a feature that needs an extra, with the command that installs it."""
    return f'{what} needs {package}, which is not installed; run pip install "wick-graph[{extra}]"'


class WickError(Exception):
    """Base of all errors; its text is one sentence: what is wrong, and what to do."""

    code: ClassVar[str] = "wick"


class ConfigError(WickError, ValueError):
    """Refuse a configuration, with its file, line and key path if it has them."""

    code = "config"


class ExpressionError(WickError, ValueError):
    """Refuse an expression, or say why it has no value; names the column, counted from 1."""

    code = "expression"

    def __init__(self, problem: str, position: int | None = None) -> None:
        super().__init__(problem if position is None else f"column {position}: {problem}")
        self.problem = problem
        self.position = position


class MessageError(WickError, ValueError):
    """Refuse a message or a chain of messages, with the index of the first offender."""

    code = "message"


class ModelError(WickError):
    """Report a model that cannot be found, built or called."""

    code = "model"


class ToolError(WickError):
    """Signal from inside a tool that it failed; the model reads `Error: <text>`."""

    code = "tool"


class RefusedError(ToolError):
    """Signal that a rule forbids what a call asks for; it is put on record too."""

    code = "refused"


class HookError(WickError):
    """Report a hook that broke its contract, by the hook's name and phase."""

    code = "hook"


class RunError(WickError):
    """Report a run that ended without an answer; the thread can go on with the next message."""

    code = "run"


class NothingWaitsError(RunError):
    """Refuse a decision about a call in a thread where no call waits for one."""

    code = "nothing_waits"


class OutputError(RunError):
    """Report a run without an output of its agent's type; the thread can go on."""

    code = "output"


class ReplayError(WickError):
    """Report a request or a call that a recording does not hold, with the nearest one it holds."""

    code = "replay"


class DebugError(WickError):
    """Refuse a debugger command: no such moment, no such place, or nothing to run."""

    code = "debug"


class ServerError(WickError):
    """Report a server's refusal, or that the server cannot be reached (status 0)."""

    code = "server"

    def __init__(self, text: str, status: int = 0, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.body = dict(body or {})


class DeliveryError(WickError):
    """Report a message that a channel could not send.

    Args:
        text: What is wrong, as a sentence.
        retry_after: Seconds after which the platform wants the next try; None to let us choose.
        permanent: Whether no later try can succeed: the chat is gone, the text is refused.
    """

    code = "delivery"

    def __init__(
        self, text: str, *, retry_after: float | None = None, permanent: bool = False
    ) -> None:
        super().__init__(text)
        self.retry_after, self.permanent = retry_after, permanent


class StorageError(WickError):
    """Report a database that refuses, is damaged, is newer, or belongs to another program."""

    code = "storage"


class ThreadNotFoundError(StorageError):
    """Report a thread id that the store does not hold."""

    code = "thread_not_found"


class ThreadBusyError(StorageError):
    """Report a thread that another run holds."""

    code = "thread_busy"


class RunCancelled(BaseException):
    """Signal that a run must end because its caller no longer waits for it."""
