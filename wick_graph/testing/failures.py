"""What a script says when the code under test did not follow it, or broke on purpose.

    ScriptFailure            also AssertionError: a test fails loudly
    ├── UnexpectedModelCall  a call for which the script has no step
    ├── UnconsumedSteps      steps that no call took
    └── ScriptMismatch       a step that does not fit the tools that are bound

The scripted provider failures carry what the real ones carry (`status_code`, `response`), so
that code which retries needs to know nothing of scripts.
"""

from __future__ import annotations

import httpx
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelConnectionError,
    ModelRateLimitError,
    ModelTimeoutError,
)


class ScriptFailure(AssertionError):
    """Root of the ways in which code and script can disagree."""


class UnexpectedModelCall(ScriptFailure):
    """Report a call for which the script has no step: lane, cursor, nearest step, last messages."""


class UnconsumedSteps(ScriptFailure):
    """Report the steps that were never taken, by lane and number."""


class ScriptMismatch(ScriptFailure):
    """Report a scripted tool call that the bound tools would not accept."""


class ScriptedRateLimit(ModelRateLimitError):
    """Stand for a provider's 429; `response.headers` has `Retry-After` if the script says so."""

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("rate limit reached (scripted)")
        self.status_code = 429
        self.retry_after = retry_after
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        request = httpx.Request("POST", "http://scripted.invalid/chat/completions")
        self.response = httpx.Response(429, headers=headers, request=request)


class ScriptedTimeout(ModelTimeoutError, TimeoutError):
    """Stand for a provider that did not answer in time."""


class ScriptedCut(ModelConnectionError, ConnectionError):
    """Stand for a connection that was closed in the middle of a reply."""


class ScriptedOverflow(ContextOverflowError):
    """Stand for a provider's refusal of a prompt that is longer than its context window."""
