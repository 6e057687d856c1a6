"""Every promised number, in one place; imports nothing of wick_graph."""

from __future__ import annotations

from typing import Final

MAX_ITERATIONS: Final = 25
"""Model calls in one run."""

OUTPUT_RETRIES: Final = 2
"""How often a run asks its model again for a valid output."""

MAX_RESULT_CHARS: Final = 80_000
"""Code points of a tool's output; from a longer one the engine cuts out the middle."""

RESULT_HEAD_CHARS: Final = 2_000

RESULT_TAIL_CHARS: Final = 2_000

CONTEXT_THRESHOLD: Final = 0.85
"""Fraction of the context window at which a history is summarised."""

DEFAULT_CONTEXT_WINDOW: Final = 128_000
"""Tokens, if neither the configuration nor the model gives a figure."""

CHARS_PER_TOKEN: Final = 4

SUMMARY_MAX_WORDS: Final = 2_000

SUMMARY_MAX_TOKENS: Final = 4_096

COMPACTION_MESSAGES: Final = 20
"""Messages behind the last summary, above which `compact` makes the next one."""

COMPACTION_PERCENT: Final = 75
"""Per cent of the context window, above which `compact` makes the next summary."""

COMPACTION_KEEP: Final = 4
"""Messages that `compact` leaves as they are."""

COMPACTION_TOKENS: Final = 1_024
"""Tokens of a summary that `compact` makes."""

COMPACTION_TEMPERATURE: Final = 0.3

COMPACTION_SECONDS: Final = 120.0
"""Time limit of the summariser in `compact`, and of the wait for a busy thread after it."""

KEEP_RATIO: Final = 0.10
"""Fraction of the messages that a summary leaves as they are."""

KEEP_MIN_MESSAGES: Final = 2

OLD_ARGUMENT_CHARS: Final = 2_000
"""Code points of an old write's content that a summariser sees."""

THREAD_TTL_SECONDS: Final = 3_600

SWEEP_INTERVAL_SECONDS: Final = 300

LEASE_SECONDS: Final = 30.0
"""Seconds that a lease holds without being renewed; a frozen owner then loses it."""

POOL_SIZE: Final = 4
"""Sessions of a process with its PostgreSQL server; one serves one transaction at a time."""

WARM_BYTES: Final = 64 * 1024 * 1024
"""Bytes, as encoded, of all messages that a store keeps in memory between the runs of threads."""

RUN_KNOWN_SECONDS: Final = 86_400
"""How long a server remembers an ended run after the run's last checkpoint was pruned."""

TODO_STATUSES: Final = ("pending", "in_progress", "done")

LOOP_MAX_TOKENS: Final = 4_096
"""Tokens of one reply of the loop's model, unless the model's settings give a limit."""

TRACE_PREVIEW_CHARS: Final = 500

EVENT_QUEUE_SIZE: Final = 64
"""Events that queue for a slow reader before the run waits for it."""

DEFAULT_PORT: Final = 8_000

MAX_CONCURRENCY: Final = 32
"""Tool calls of one run that run at once."""

DEFAULT_TOOL_TIMEOUT_SECONDS: Final = 300.0

MAX_NESTING: Final = 100
"""Levels of lists and objects in the arguments of a call, and in a message."""

TOO_DEEP: Final = f"nested deeper than {MAX_NESTING} levels; flatten it"

MAX_ANSWER_PARTS: Final = 100_000
"""Keys, items and containers in the JSON with which another server answers a tool call."""

TURNING: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Code points that turn the direction in which a text is read: a listing shows them as escapes."""
