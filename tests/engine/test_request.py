"""The request and its overlay: any list a hook makes, written small, read back the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from wick_graph.core.request import ModelRequest, Section, from_overlay, to_overlay
from wick_graph.errors import HookError


def thread(n: int) -> list[BaseMessage]:
    return [HumanMessage(f"m{i}", id=f"i{i}") for i in range(n)]


def state_of(messages: list[BaseMessage]) -> dict[str, Any]:
    return {"messages": messages, "iteration": 3}


def texts(request: ModelRequest) -> list[str]:
    return [m.text for m in request.messages]


@given(st.integers(1, 12), st.lists(st.integers(-3, 11), max_size=20))
def test_any_list_can_be_said_and_comes_back(n: int, picks: list[int]) -> None:
    base = thread(n)
    wanted = [base[i] if 0 <= i < n else HumanMessage(f"own{i}") for i in picks]
    request = ModelRequest.of(base, state=state_of(base)).with_messages(wanted)
    assert texts(request) == [m.text for m in wanted]
    assert len(request.messages) == len(wanted)
    back = from_overlay(to_overlay(request, ""), state_of(base), "")
    assert back is not None
    assert texts(back) == [m.text for m in wanted]


def test_changes_make_new_requests() -> None:
    base = thread(3)
    request = ModelRequest.of(base, system=(Section("Base.", "agent"),))
    changed = (
        request.append_system("More.")
        .replace("i1", HumanMessage("other"))
        .drop("i0")
        .append(HumanMessage("last"))
        .with_tools(["b", "a", "b"])
        .with_settings(temperature=0)
    )
    assert texts(changed) == ["other", "m2", "last"]
    assert changed.system_text == "Base.\n\nMore."
    assert (changed.tools, changed.settings) == (("b", "a"), {"temperature": 0})
    assert texts(request) == ["m0", "m1", "m2"]
    assert request.system_text == "Base."
    assert isinstance(changed.to_messages()[0], SystemMessage)
    assert ModelRequest.of(base).to_messages() == base


def test_a_message_taken_out_is_a_copy() -> None:
    base = thread(3)
    request = ModelRequest.of(base)
    for taken in (request.messages[0], request.messages[-1], *request.messages[1:]):
        taken.content = "changed"
    assert [m.content for m in base] == ["m0", "m1", "m2"]
    with pytest.raises(IndexError):
        request.messages[3]


def test_naming_a_message_that_is_not_there_is_an_error() -> None:
    with pytest.raises(HookError, match="no message 'nope'"):
        ModelRequest.of(thread(1)).drop("nope")


def test_an_overlay_is_small_and_does_not_repeat_the_prompt() -> None:
    base = thread(1_000)
    prompt = "You are careful. " * 500
    request = ModelRequest.of(base, system=(Section(prompt, "agent"),), state=state_of(base))
    overlay = to_overlay(request.append(HumanMessage("one more")), prompt)
    assert len(repr(overlay)) < 500
    back = from_overlay(overlay, state_of(base), prompt)
    assert back is not None
    assert back.system_text == prompt


@pytest.mark.parametrize(
    "change",
    [
        {"iteration": 4},
        {"messages": thread(4)},
        {"messages": []},
        {"messages": [HumanMessage("m0", id="i0"), HumanMessage("m2", id="i2")]},
    ],
    ids=["iteration", "longer", "empty", "a-range-is-gone"],
)
def test_a_stale_overlay_is_not_used(change: dict[str, Any]) -> None:
    base = thread(3)
    request = ModelRequest.of(base, state=state_of(base)).with_messages([base[1], base[2]])
    assert from_overlay(to_overlay(request, ""), {**state_of(base), **change}, "") is None
    assert from_overlay(None, state_of(base), "") is None
