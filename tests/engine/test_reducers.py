"""The messages' reducer: what it does to a list, and that branches never mislead each other."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Overwrite

from wick_graph import Agent
from wick_graph.core.state import add_numbers, last, merge, reduce_messages
from wick_graph.testing import ScriptedModel
from wick_graph.types import MessageList


def asking(*ids: str, id: str = "ai") -> AIMessage:
    calls: Any = [{"name": "t", "args": {}, "id": i, "type": "tool_call"} for i in ids]
    return AIMessage("", id=id, tool_calls=calls)


def answer(call_id: str, text: str = "") -> ToolMessage:
    return ToolMessage(text or call_id, tool_call_id=call_id, name="t", id=f"to-{call_id}{text}")


def ids(messages: Any) -> list[str | None]:
    return [m.id for m in messages]


def test_it_takes_what_langgraphs_own_takes() -> None:
    forms: list[Any] = [
        HumanMessage("a", id="1"),
        [HumanMessage("a", id="1"), ("user", "b")],
        {"role": "user", "content": "a"},
        "text",
        [AIMessageChunk(content="piece", id="2")],
    ]
    for form in forms:
        ours = reduce_messages([], form)
        theirs = add_messages([], form)
        assert [(m.type, m.content) for m in ours] == [(m.type, m.content) for m in theirs]  # type: ignore[union-attr]  # add_messages is typed for every form at once
        assert all(m.id for m in ours)


def test_messages_that_an_overwrite_left_without_ids_keep_the_ids_that_they_get() -> None:
    config: Any = {"configurable": {"thread_id": "t"}}
    with Agent(model=ScriptedModel([]), store="sqlite://") as agent:
        graph = agent.graph
        graph.update_state(config, {"messages": Overwrite([HumanMessage("a"), AIMessage("b")])})
        graph.update_state(config, {"messages": [HumanMessage("c")]})
        named = ids(graph.get_state(config).values["messages"])
        assert None not in named
        graph.update_state(config, {"messages": [RemoveMessage(named[0] or "")]})
        assert ids(graph.get_state(config).values["messages"]) == named[1:]


def test_a_known_id_replaces_and_a_removal_is_idempotent() -> None:
    first = reduce_messages([], [HumanMessage("a", id="1"), HumanMessage("b", id="2")])
    second = reduce_messages(first, [HumanMessage("A", id="1")])
    assert [m.content for m in second] == ["A", "b"]
    assert [m.content for m in first] == ["a", "b"]
    third = reduce_messages(second, [RemoveMessage("1"), RemoveMessage("1"), RemoveMessage("x")])
    assert ids(third) == ["2"]
    assert ids(
        reduce_messages(third, [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("n", id="9")])
    ) == ["9"]


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_answers_stand_in_call_order_whenever_they_come(order: tuple[str, ...]) -> None:
    messages = reduce_messages([], [asking("a", "b", "c"), HumanMessage("later", id="h")])
    for call_id in order:
        messages = reduce_messages(messages, [answer(call_id)])
    assert ids(messages) == ["ai", "to-a", "to-b", "to-c", "h"]


def test_a_second_answer_to_a_call_replaces_the_first() -> None:
    messages = reduce_messages(
        [], [asking("a"), answer("a", "interrupted"), HumanMessage("h", id="h")]
    )
    assert [m.text for m in reduce_messages(messages, answer("a", "late"))] == ["", "late", "h"]


def test_an_answer_goes_to_the_latest_call_of_its_id() -> None:
    messages = reduce_messages([], [asking("a", id="1"), answer("a", "x"), asking("a", id="2")])
    assert ids(reduce_messages(messages, answer("a", "y"))) == ["1", "to-ax", "2", "to-ay"]


def test_branches_that_grew_from_one_list_do_not_mislead_each_other() -> None:
    base = reduce_messages([], [HumanMessage("0", id="0")])
    left = reduce_messages(base, [HumanMessage("L", id="x"), HumanMessage("l", id="y")])
    right = reduce_messages(base, [HumanMessage("R", id="y"), HumanMessage("r", id="x")])
    assert ids(left) == ["0", "x", "y"]
    assert ids(right) == ["0", "y", "x"]
    assert [m.content for m in reduce_messages(left, HumanMessage("new", id="y"))] == [
        "0",
        "L",
        "new",
    ]
    assert [m.content for m in reduce_messages(right, HumanMessage("new", id="y"))] == [
        "0",
        "new",
        "r",
    ]


_OPS = st.lists(
    st.tuples(st.sampled_from(["say", "ask", "answer", "remove", "fork"]), st.integers(0, 5)),
    max_size=30,
)


@given(_OPS)
def test_any_history_gives_what_a_plain_index_would_give(ops: list[tuple[str, int]]) -> None:
    """After every step each id is found where it stands, on every branch that was ever made."""
    branches = [reduce_messages([], [])]
    for op, n in ops:
        now = branches[n % len(branches)]
        if op == "fork":
            branches.append(now)
            continue
        made: Any = {
            "say": HumanMessage("x", id=f"h{n}"),
            "ask": asking(f"c{n}", f"d{n}", id=f"ai{n}"),
            "answer": answer(f"c{n}"),
            "remove": RemoveMessage(f"h{n}"),
        }[op]
        branches.append(reduce_messages(now, [made]))
    for branch in branches:
        assert len(set(ids(branch))) == len(branch)
        assert [branch.find(m.id or "") for m in branch] == list(range(len(branch)))
        assert branch.find("nobody") is None


def test_it_is_a_plain_list_to_everybody_else() -> None:
    messages = reduce_messages([], [HumanMessage("a", id="1")])
    assert isinstance(messages, list)
    copy = pickle.loads(pickle.dumps(messages))  # our own bytes, made a line above
    assert type(copy) is list
    assert copy == messages
    assert messages.index(messages[0]) == 0


def test_appending_costs_what_is_new() -> None:
    """Count the messages that are looked at, not the time: only a handful for a long thread."""
    looked_at = 0

    class Watched(HumanMessage):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looked_at
            if name == "id":
                looked_at += 1
            return super().__getattribute__(name)

    messages = MessageList([Watched(content="x", id=str(i)) for i in range(2_000)])
    looked_at = 0
    for i in range(10):
        messages = reduce_messages(messages, [asking(f"c{i}", id=f"ai{i}")])
        messages = reduce_messages(messages, [answer(f"c{i}")])
    assert looked_at < 200


def test_the_small_reducers() -> None:
    assert last([1], [2]) == [2]
    assert merge({"a": 1, "b": 1}, {"b": 2}) == {"a": 1, "b": 2}
    assert merge(None, None) == {}
    assert add_numbers({"a": 1}, {"a": 2, "b": 3}) == {"a": 3, "b": 3}


def test_a_message_of_another_branch_replaces_nothing() -> None:
    """Two branches share what they know of places; the same place holds another message in each."""
    base = reduce_messages([], [HumanMessage("a", id="a")])
    one = reduce_messages(base, [HumanMessage("x", id="x")])
    other = reduce_messages(base, [HumanMessage("y", id="y")])
    assert other.find("x") is None
    assert [m.id for m in reduce_messages(other, [HumanMessage("x", id="x")])] == ["a", "y", "x"]
    removed = reduce_messages(other, [RemoveMessage(id="x")])
    assert [m.id for m in removed] == ["a", "y"]
    assert [m.id for m in one] == ["a", "x"]
