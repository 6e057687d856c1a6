"""Every number that is a promise, in one place; imports nothing of ours."""

from __future__ import annotations

from typing import Final

MAX_ITERATIONS: Final = 25
"""Model calls in one run."""

MAX_RESULT_CHARS: Final = 80_000
"""Code points of a tool's output before its middle is cut out."""

RESULT_HEAD_CHARS: Final = 2_000

RESULT_TAIL_CHARS: Final = 2_000

CONTEXT_THRESHOLD: Final = 0.85
"""Part of the context window at which a history is summarised."""

DEFAULT_CONTEXT_WINDOW: Final = 128_000
"""Tokens, where neither the configuration nor the model says."""

CHARS_PER_TOKEN: Final = 4

SUMMARY_MAX_WORDS: Final = 2_000

SUMMARY_MAX_TOKENS: Final = 4_096

KEEP_RATIO: Final = 0.10
"""Part of the messages that a summary leaves as they are."""

KEEP_MIN_MESSAGES: Final = 2

OLD_ARGUMENT_CHARS: Final = 2_000
"""Code points of an old write's content that a summariser is shown."""

THREAD_TTL_SECONDS: Final = 3_600

SWEEP_INTERVAL_SECONDS: Final = 300

RUN_KNOWN_SECONDS: Final = 86_400
"""How long a server knows a run that has ended, once the run's last checkpoint was pruned."""

TODO_STATUSES: Final = ("pending", "in_progress", "done")

LOOP_MAX_TOKENS: Final = 4_096
"""Tokens that one reply of the loop's model may have, unless the model's settings say."""

TRACE_PREVIEW_CHARS: Final = 500

EVENT_QUEUE_SIZE: Final = 64
"""Events that wait for a slow reader before the run waits for it."""

DEFAULT_PORT: Final = 8_000

MAX_CONCURRENCY: Final = 32
"""Tool calls of one run that are on their way at once."""

DEFAULT_TOOL_TIMEOUT_SECONDS: Final = 300.0

MAX_NESTING: Final = 100
"""Levels of lists and objects in the arguments of a call, and in a message."""

TOO_DEEP: Final = f"nested deeper than {MAX_NESTING} levels; flatten it"

MAX_ANSWER_PARTS: Final = 100_000
"""Keys, items and containers in the JSON that another server answers a tool's call with."""

TURNING: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Code points that turn the direction in which a text is read: a listing shows them as escapes."""
