"""The numbers that are promised, in one place."""

from __future__ import annotations

from typing import Any

import pytest

from wick_graph import constants as c

PROMISED = [
    pytest.param([c.MAX_ITERATIONS], [25], id="K1"),
    pytest.param(
        [c.MAX_RESULT_CHARS, c.RESULT_HEAD_CHARS, c.RESULT_TAIL_CHARS],
        [80_000, 2_000, 2_000],
        id="K2",
    ),
    pytest.param([c.CONTEXT_THRESHOLD, c.DEFAULT_CONTEXT_WINDOW], [0.85, 128_000], id="K3"),
    pytest.param([c.CHARS_PER_TOKEN], [4], id="K4"),
    pytest.param([c.SUMMARY_MAX_WORDS, c.SUMMARY_MAX_TOKENS], [2_000, 4_096], id="K5"),
    pytest.param([c.KEEP_RATIO, c.KEEP_MIN_MESSAGES], [0.10, 2], id="K6"),
    pytest.param([c.OLD_ARGUMENT_CHARS], [2_000], id="K7"),
    pytest.param([c.THREAD_TTL_SECONDS, c.SWEEP_INTERVAL_SECONDS], [3_600, 300], id="K8"),
    pytest.param([c.TODO_STATUSES], [("pending", "in_progress", "done")], id="K9"),
    pytest.param([c.LOOP_MAX_TOKENS], [4_096], id="K10"),
    pytest.param([c.TRACE_PREVIEW_CHARS], [500], id="K11"),
    pytest.param([c.EVENT_QUEUE_SIZE], [64], id="K12"),
    pytest.param([c.DEFAULT_PORT], [8_000], id="K13"),
    pytest.param([c.WARM_BYTES], [67_108_864], id="K14"),
]


@pytest.mark.parametrize(("numbers", "promised"), PROMISED)
def test_a_promised_number_is_what_it_was(numbers: list[Any], promised: list[Any]) -> None:
    assert numbers == promised
