"""The chain that every provider takes: its rules hold for any chain, and it keeps its beginning."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.messages import lowering
from wick_graph.messages.lowering import BEGIN, BLANK, UNANSWERED, Portable, portable

IDS = st.sampled_from(["c1", "c2", "functions.x:0", "f" * 70, "0"])
TEXTS = st.sampled_from(["a", "b c", " ", "\n"])
BLOCKS = st.lists(
    st.one_of(
        TEXTS,
        st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
        st.just({"type": "thinking", "thinking": "Hm.", "signature": "s"}),
        st.just({"type": "image_url", "image_url": "https://example.com/a.png"}),
    ),
    max_size=3,
)
CONTENTS: st.SearchStrategy[Any] = st.one_of(TEXTS, BLOCKS)


def asking(content: Any, ids: list[str], broken: list[str], name: str = "1 add") -> AIMessage:
    return AIMessage(
        content,
        tool_calls=[{"name": name, "args": {}, "id": i, "type": "tool_call"} for i in ids],
        invalid_tool_calls=[
            {"name": "add", "args": "{", "id": i, "error": "", "type": "invalid_tool_call"}
            for i in broken
            if i not in ids
        ],
    )


MESSAGES: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, CONTENTS),
    st.builds(SystemMessage, st.one_of(TEXTS, st.just([{"type": "text", "text": "x"}, "y"]))),
    st.builds(
        asking,
        CONTENTS,
        st.lists(IDS, max_size=3, unique=True),
        st.lists(IDS, max_size=1),
        st.sampled_from(["1 add", "add"]),
    ),
    st.builds(
        lambda content, call, status, name: ToolMessage(
            content, tool_call_id=call, status=status, name=name
        ),
        st.one_of(CONTENTS, st.just("")),
        IDS,
        st.sampled_from(["success", "error"]),
        st.sampled_from([None, "add"]),
    ),
)
CHAINS = st.lists(MESSAGES, max_size=9)


def data(messages: list[BaseMessage]) -> list[Any]:
    return [(type(m), m.model_dump(exclude={"id"})) for m in messages]


@settings(deadline=None)
@given(CHAINS)
def test_the_rules_hold_for_any_chain(chain: list[BaseMessage]) -> None:
    before = [message.model_dump() for message in chain]
    made = portable(chain)
    assert [message.model_dump() for message in chain] == before
    assert sum(isinstance(m, SystemMessage) for m in made) <= 1
    body = made[1:] if made and isinstance(made[0], SystemMessage) else made
    assert not body or isinstance(body[0], HumanMessage)
    assert body or not made
    open_: list[str] = []
    used: set[str] = set()
    for message in body:
        if isinstance(message, ToolMessage):
            open_.remove(message.tool_call_id)
            assert message.name in ("_1_add", "add")
            assert message.content or message.status != "error"
            continue
        assert not open_
        assert message.content or (isinstance(message, AIMessage) and message.tool_calls)
        if isinstance(message, AIMessage):
            assert not message.invalid_tool_calls
            open_ = [call["id"] or "" for call in message.tool_calls]
            assert all(len(i) <= 40 and i.replace("_", "").isalnum() for i in open_)
            assert not used.intersection(open_)
            used.update(open_)
    assert not open_
    assert portable(made) is made or data(portable(made)) == data(made)


@settings(deadline=None)
@given(CHAINS, st.data())
def test_the_cached_form_says_the_same_whatever_is_exchanged(
    chain: list[BaseMessage], drawn: st.DataObject
) -> None:
    draw: Any = drawn.draw
    cached = Portable()
    for _ in range(4):
        step = chain[: draw(st.integers(0, len(chain)))]
        if step and draw(st.booleans()):
            step[draw(st.integers(0, len(step) - 1))] = draw(MESSAGES)
        if draw(st.booleans()):
            step.append(SystemMessage("for this call alone"))
        assert data(cached.apply(step)) == data(portable(step))


USUAL: Any = {"name": "add", "args": {"n": 1}, "id": "c1", "type": "tool_call"}
CALLS: list[list[Any]] = [
    [],
    [USUAL],
    [USUAL, {**USUAL, "id": "c2"}],
    [USUAL, {**USUAL, "args": {"n": 2}}],  # providers refuse one id for two calls
    [{**USUAL, "id": ""}],
    [{**USUAL, "id": None}],
    [{**USUAL, "id": "c" * 41}],
    [{**USUAL, "name": "1add"}],
    [{**USUAL, "name": ""}],
    [{**USUAL, "name": None}],
    [{**USUAL, "index": 0}],
    [{**USUAL, "type": None, "index": 0}],
    [{name: value for name, value in USUAL.items() if name != "type"}],
    [{**{n: v for n, v in USUAL.items() if n != "type"}, "index": 0}],
]
NOTES: list[dict[str, Any]] = [{}, {"function_call": {"name": "add"}}, {"tool_calls": [USUAL]}]


def reply(content: Any, calls: list[Any], notes: dict[str, Any]) -> AIMessage:
    """Make a reply without pydantic's checks, as one from a store is made."""
    return AIMessage(content).model_copy(update={"tool_calls": calls, "additional_kwargs": notes})


def both_ways(chain: list[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Make a chain portable as it is done, and without what is quick about it."""
    whole = Portable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "_is_said", lambda _: False)
        patch.setattr(whole, "_takes_as_it_is", lambda _: False)
        full = whole.apply(chain)
    return Portable().apply(chain), full


@pytest.mark.parametrize("calls", CALLS)
def test_the_quick_way_says_what_the_whole_one_says(calls: list[Any]) -> None:
    ids = [call["id"] for call in calls]
    for content, notes, before, name, text in itertools.product(
        ["", " ", "said", ["said"]], NOTES, [[], [USUAL]], [None, "add", "1add"], ["", " ", "1"]
    ):
        chain = [
            HumanMessage(content or [""]),
            *(
                [reply("", before, {}), ToolMessage(text, tool_call_id="c1", name=name)]
                * len(before)
            ),
            reply(content, calls, notes),
            *(ToolMessage(text, tool_call_id=one, name=name, status="error") for one in ids if one),
        ]
        made, full = both_ways(chain)
        assert data(made) == data(full)
        held = {*map(id, chain)}
        assert [id(m) in held for m in made] == [id(m) in held for m in full]


@settings(deadline=None)
@given(CHAINS, st.integers(0, 9))
def test_the_quick_way_notes_what_the_whole_one_notes(chain: list[BaseMessage], cut: int) -> None:
    quick, whole = Portable(), Portable()
    for step in (chain[:cut], chain, chain[:-1], [*chain, HumanMessage("more")]):
        made = quick.apply(step)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(whole, "_take_usual", lambda _: len(whole._seen))
            assert data(made) == data(whole.apply(step))
        assert (made is step) == (whole.apply(step) is step)
        for name in ("_marks", "_open", "_uses", "_same"):
            assert getattr(quick, name) == getattr(whole, name)


@settings(deadline=None)
@given(CHAINS, MESSAGES)
def test_a_chain_that_grows_by_a_turn_keeps_its_beginning(
    chain: list[BaseMessage], more: BaseMessage
) -> None:
    if isinstance(more, ToolMessage) or all(isinstance(m, SystemMessage) for m in chain):
        return  # an answer belongs to the chain as it stands; a second system message to the first
    before, after = data(portable(chain)), data(portable([*chain, more]))
    if "(the conversation begins)" in str(before[-1:]):
        return  # nobody has said anything yet: no model is asked before somebody has
    assert after[: len(before)] == before


def test_nothing_is_copied_where_nothing_is_wrong() -> None:
    chain: list[BaseMessage] = [
        SystemMessage("s"),
        HumanMessage("q"),
        asking("", ["c1"], []).model_copy(
            update={"tool_calls": [{"name": "a", "args": {}, "id": "c1", "type": "tool_call"}]}
        ),
        ToolMessage("1", tool_call_id="c1", name="a"),
        AIMessage("done"),
    ]
    cached = Portable()
    assert cached.apply(chain) is chain
    longer = [SystemMessage("another"), *chain[1:], HumanMessage("more")]
    assert cached.apply(longer) is longer


@pytest.mark.parametrize(
    ("chain", "shown"),
    [
        ([HumanMessage("a"), SystemMessage("b")], [("human", "a"), ("human", "[system] b")]),
        (
            [SystemMessage("a"), SystemMessage("b"), HumanMessage("c")],
            [("system", "a\n\nb"), ("human", "c")],
        ),
        ([SystemMessage("a")], [("system", "a"), ("human", BEGIN)]),
        ([AIMessage("a"), HumanMessage("b")], [("human", BEGIN), ("ai", "a"), ("human", "b")]),
        ([HumanMessage(" ")], [("human", BLANK)]),
        ([HumanMessage("a"), AIMessage(" "), HumanMessage("b")], [("human", "a"), ("human", "b")]),
        (
            [HumanMessage("a"), asking("", ["c1"], []), HumanMessage("b")],
            [("human", "a"), ("ai", ""), ("tool", UNANSWERED), ("human", "b")],
        ),
        ([HumanMessage("a"), ToolMessage("1", tool_call_id="c1")], [("human", "a")]),
    ],
)
def test_what_is_made_of_it(chain: list[BaseMessage], shown: list[tuple[str, str]]) -> None:
    assert [(message.type, message.text) for message in portable(chain)] == shown
