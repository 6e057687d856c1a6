"""Counting tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from wick_graph.core.usage import Usage, usage_of

_counts = st.builds(Usage, *[st.integers(min_value=0, max_value=10**9)] * 7)


def replied(**usage: Any) -> AIMessage:
    message = AIMessage("x")
    message.usage_metadata = usage or None  # type: ignore[assignment]  # also what breaks its type
    return message


def test_everything_a_provider_reports_is_read() -> None:
    message = replied(
        input_tokens=100,
        output_tokens=20,
        total_tokens=120,
        input_token_details={"cache_read": 60, "cache_creation": 30},
        output_token_details={"reasoning": 15},
    )
    assert usage_of(message) == Usage(100, 20, 120, 60, 30, 15, 1)


def test_cache_writes_by_life_time_are_added_up() -> None:
    details = {
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 3,
        "ephemeral_1h_input_tokens": 4,
    }
    message = replied(input_tokens=9, output_tokens=1, total_tokens=10, input_token_details=details)
    assert usage_of(message).cache_write == 7


def test_a_total_that_is_not_reported_is_the_sum() -> None:
    assert usage_of(replied(input_tokens=3, output_tokens=4)).total_tokens == 7


@pytest.mark.parametrize(
    "usage", [{}, {"input_tokens": None}, {"input_tokens": "many", "input_token_details": 3}]
)
def test_a_call_without_counts_is_still_a_call(usage: dict[str, Any]) -> None:
    assert usage_of(replied(**usage)) == Usage(calls=1)


def test_only_replies_use_tokens() -> None:
    assert usage_of(HumanMessage("x")) == Usage()


@given(_counts, _counts)
def test_usage_adds_up_and_survives_storage(a: Usage, b: Usage) -> None:
    both = a + b
    assert both.to_dict() == {k: v + b.to_dict()[k] for k, v in a.to_dict().items()}
    assert Usage.from_dict(both.to_dict()) == both


def test_usage_of_another_version_can_be_read() -> None:
    assert Usage.from_dict({"input_tokens": 4, "new_field": 1}) == Usage(input_tokens=4)
