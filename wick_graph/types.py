"""Types of ids and closed sets of words; imports nothing of wick_graph."""

from __future__ import annotations

import re
from typing import Final, Literal, NewType

ThreadId = NewType("ThreadId", str)
"""A conversation: `th_` and 16 hex digits if the engine makes the id, else the caller's own."""

RunId = NewType("RunId", str)
"""One input and everything that it sets in motion, a UUID."""

CallKey = NewType("CallKey", str)
"""A tool call in the ledger: the model step's task id and the call's index."""

StoppedBecause = Literal[
    "done", "limit", "empty", "guardrail", "interrupted", "cancelled", "failed"
]
"""Why a run came to its end; the one vocabulary for results, events and listings."""

GUARDRAIL: Final = "guardrail"
"""The reason of a run that a guardrail ended; no node works after it."""

Replay = Literal["safe", "never", "key"]
"""Whether a tool call that was in flight at a crash may run again."""

OnBusy = Literal["reject", "queue", "cancel_running"]
"""Concurrency policy of a thread: reject or queue the new run, or cancel the running one."""

Phase = Literal[
    "before_agent", "modify_request", "wrap_model_call", "after_model", "wrap_tool_call"
]
"""The phases of a hook, in the order in which a turn reaches them."""

AGENT_ID_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""The ids of agents (matched in full)."""

THREAD_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""What a caller may choose as a thread id (matched in full)."""
