from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick_graph.durations import LIMIT_PATTERN, LONGEST_SECONDS, PATTERN, human, seconds
from wick_graph.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("7d", 604_800.0),
        ("1h30m", 5400.0),
        ("1d2h3m4.5s", 93_784.5),
        ("0.5h", 1800.0),
        ("90", 90.0),
        (90, 90.0),
        (0.25, 0.25),
        (0, 0.0),
        ("never", None),
    ],
)
def test_reads(value: Any, expected: float | None) -> None:
    assert seconds(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("", id="empty"),
        pytest.param("h", id="unit-alone"),
        pytest.param("1 h", id="space"),
        pytest.param(" 1h", id="space-before"),
        pytest.param("1h\n", id="newline-after"),
        pytest.param("1H", id="capital"),
        pytest.param("1w", id="unknown-unit"),
        pytest.param("-1h", id="negative"),
        pytest.param("+1h", id="sign"),
        pytest.param("01h", id="octal-look"),
        pytest.param(".5h", id="no-digit-before-the-point"),
        pytest.param("1e3s", id="exponent"),
        pytest.param("30m1h", id="wrong-order"),
        pytest.param("1h1h", id="unit-twice"),
        pytest.param("1:30", id="sexagesimal"),
        pytest.param("Never", id="capital-never"),
        pytest.param("nan", id="nan-text"),
        pytest.param("\u0661h", id="arabic-digit"),
        pytest.param("1" * 100_000 + "h", id="very-long"),
        pytest.param(True, id="true"),
        pytest.param(None, id="none"),
        pytest.param(-1, id="negative-number"),
        pytest.param(float("nan"), id="nan"),
        pytest.param([], id="list"),
        pytest.param(b"1h", id="bytes"),
    ],
)
def test_refuses_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^not a duration; write 30s, 5m, 1h, 7d, never, or a"):
        seconds(value)


@pytest.mark.parametrize("value", ["36501d", LONGEST_SECONDS + 1, float("inf"), 10**400])
def test_refuses_more_than_a_hundred_years(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^longer than a hundred years; write never$"):
        seconds(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "never"),
        (0, "0s"),
        (0.25, "0.25s"),
        (30, "30s"),
        (300, "5m"),
        (3600, "1h"),
        (5400, "1h30m"),
        (604_800, "7d"),
        (3599.9999, "1h"),
        (-90, "-1m30s"),
    ],
)
def test_writes(value: float | None, expected: str) -> None:
    assert human(value) == expected


@given(st.integers(min_value=0, max_value=LONGEST_SECONDS * 1000))
def test_reads_what_it_writes(milliseconds: int) -> None:
    assert seconds(human(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-4)


@pytest.mark.parametrize(
    "text",
    ["never", "0", "0s", "0d0.00s", "0.01s", "90", "1h30m", "30m1h", "", "00s", "1.s"],
)
def test_the_patterns_take_what_is_above_0(text: str) -> None:
    try:
        found = seconds(text)
    except ConfigError:
        found = 0.0
    assert bool(re.search(PATTERN, text)) is (found != 0)
    assert bool(re.search(LIMIT_PATTERN, text)) is bool(found)
