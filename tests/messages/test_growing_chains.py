"""Lowering goes on from any part of a chain that it has seen, and gives what a fresh one gives."""

from __future__ import annotations

import copy
import pickle
import random
from operator import add
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage

from tests.messages.counted import Counted
from wick_graph.messages.base import Lent, PrefixTexts, changed, exchanged, private
from wick_graph.messages.lowering import Lowering, Portable
from wick_graph.types import MessageList


def any_message(chance: random.Random, number: int, records: bool) -> BaseMessage:
    """Make a message, often one that does not fit behind the last."""
    kind = chance.randrange(8 if records else 7)
    call_id = chance.choice(["a", "b", "not portable!", f"c{number}"])
    if kind < 2:
        return HumanMessage(chance.choice(["hello", " "]), id=f"m{number}")
    if kind < 5:
        names = [call_id, "second"][: chance.randrange(3)]
        calls: Any = [{"name": "f", "args": {}, "id": one, "type": "tool_call"} for one in names]
        marks: Any = {"wick": {"step": "s"}}
        text = chance.choice(["", "said"])
        return AIMessage(text, tool_calls=calls, name="x", response_metadata=marks, id=f"m{number}")
    if kind < 7:
        return ToolMessage("done", tool_call_id=call_id, name="f", id=f"m{number}")
    notes = {"metadata": {"tool_call_id": call_id}}
    return ChatMessage(
        content="failed", role="error", name="y", additional_kwargs=notes, id=f"m{number}"
    )


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_chain_whose_end_changes(seed: int, records: bool) -> None:
    chance = random.Random(seed)
    chain: list[BaseMessage] = []
    lowering, portable = Lowering("x"), Portable()
    for number in range(60):
        chain = list(chain)
        step = chance.randrange(5)
        if step < 3:
            chain += [any_message(chance, number, records) for _ in range(chance.randrange(4))]
        elif step == 3 and chain:  # the same content in new objects, as a later run reads it
            at = max(0, len(chain) - chance.randrange(1, 6))
            chain[at:] = map(private, chain[at:])
        elif chain:
            del chain[chance.randrange(len(chain)) :]
        made = portable.apply(lowering.lower(chain))
        fresh = Portable().apply(Lowering("x").lower(chain))
        assert [m.model_dump() for m in made] == [m.model_dump() for m in fresh]
        held = {id(m) for m in chain}
        assert [id(m) in held for m in made] == [id(m) in held for m in fresh]


# --- lists whose readers may change the messages -------------------------------------------------

WAYS: list[Any] = [
    lambda lent: [*lent],
    lambda lent: [lent[i] for i in range(len(lent))],
    lambda lent: [lent[-1 - i] for i in range(len(lent))],
    lambda lent: lent[:],
    lambda lent: lent[::-1],
    lambda lent: [*reversed(lent)],
    lambda lent: add(lent, []),
    lambda lent: add([], lent),
    lambda lent: lent * 1,
    lambda lent: lent.copy(),
    lambda lent: list(lent),
    lambda lent: tuple(lent),
    lambda lent: sorted(lent, key=str),
    lambda lent: [lent.pop(0), lent.pop(), *lent],
    lambda lent: (lent.reverse(), [*lent])[1],
    lambda lent: (lent.append(lent[0]), [*lent])[1],
    lambda lent: (lent.insert(0, lent[1]), [*lent])[1],
    lambda lent: (lent.__delitem__(0), [*lent])[1],
    lambda lent: (lent.sort(key=str), [*lent])[1],
    lambda lent: MessageList(lent),
    copy.copy,
    copy.deepcopy,
    lambda lent: pickle.loads(pickle.dumps(lent)),
]


@pytest.mark.parametrize("way", WAYS)
def test_who_reads_a_lent_list_gets_copies(way: Any) -> None:
    own = [HumanMessage(f"{i}", id=f"m{i}") for i in range(4)]
    before = [m.model_dump() for m in own]
    read = way(Lent(own))
    assert {m.id for m in read} <= {m.id for m in own}
    for message in read:
        assert all(message is not one for one in own)
        message.content = "LEAK"
    assert [m.model_dump() for m in own] == before


def test_a_copy_is_made_once() -> None:
    lent = Lent([HumanMessage("a"), HumanMessage("b")])
    assert lent[0] is lent[0] is next(iter(lent))
    lent[1].content = "mine"
    assert [m.content for m in lent] == ["a", "mine"]
    assert lent == [lent[0], lent[1]]
    with pytest.raises(IndexError):
        lent[2]


def test_the_positions_of_exchanged_messages_are_exact() -> None:
    seen: list[Any] = [object() for _ in range(6)]
    for mask in range(2**6):
        for length in range(9):
            other = (object() if mask >> at & 1 else one for at, one in enumerate(seen))
            now = [*other, object(), object()][:length]
            wanted = [at for at in range(6) if mask >> at & 1 and at < length]
            assert exchanged(seen, now) == wanted
            assert changed(seen, now) == [*wanted, *range(6, length)]


def test_texts_are_told_from_blocks_whatever_changes() -> None:
    chance = random.Random(5)
    texts, chain = PrefixTexts(), list[BaseMessage]()
    for number in range(400):
        chain = list(chain)
        step = chance.randrange(6)
        content: Any = chance.choice(["a", "a", "a", [{"type": "text"}]])
        if step < 3:
            chain.append(HumanMessage(content, id=f"m{number}"))
        elif step == 3 and chain:
            chain[chance.randrange(len(chain))] = HumanMessage(content, id=f"m{number}")
        elif step == 4:
            del chain[chance.randrange(len(chain) + 1) :]
        assert texts.hold(chain) is all(isinstance(one.content, str) for one in chain)


def test_texts_that_are_known_are_not_read_again() -> None:
    old, texts = Counted(content="some text"), PrefixTexts()
    assert texts.hold([old])
    reads = old.reads
    blocks = HumanMessage([{"type": "text", "text": "x"}])
    assert [texts.hold([old, blocks]), texts.hold([old, blocks]), texts.hold([old])] == [0, 0, 1]
    assert old.reads == reads
