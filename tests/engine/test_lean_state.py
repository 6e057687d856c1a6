"""The state of the shorter loop, against LangGraph's, for channels and writes made at random."""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.channels import (
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    Topic,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base import id as ids
from langgraph.pregel import _algo, _checkpoint, _io
from langgraph.types import Overwrite

from tests.support.often import often
from wick_graph.engine import lean_state
from wick_graph.engine.channels import MISSING, with_fast_copy

MAKES: Final[tuple[Any, ...]] = (
    lambda: BinaryOperatorAggregate(list, operator.add),
    lambda: with_fast_copy(BinaryOperatorAggregate(list, operator.add)),
    lambda: with_fast_copy(BinaryOperatorAggregate(list, operator.add)),
    lambda: EphemeralValue(list, guard=False),
    lambda: with_fast_copy(EphemeralValue(list, guard=False)),
    lambda: LastValue(list),
    lambda: LastValueAfterFinish(list),
    lambda: NamedBarrierValue(str, {"a", "b"}),
    lambda: Topic(str),
    lambda: Topic(str, accumulate=True),
)


class Both:
    """The same channels twice: ours, and LangGraph's."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        names = chance.sample("abcdefgh", chance.randint(1, 8))
        made = {name: chance.randrange(len(MAKES)) for name in names}
        self.kinds = {name: MAKES[kind]() for name, kind in made.items()}
        self.ours = lean_state.Channels(self._channels())
        self.theirs: Mapping[str, Any] = self._channels()
        self.our_last: Any = empty_checkpoint()
        self.their_last: Any = {**empty_checkpoint(), "channel_versions": {}, "versions_seen": {}}

    def _channels(self) -> dict[str, Any]:
        found = {name: kind.from_checkpoint(MISSING) for name, kind in self.kinds.items()}
        for name, channel in found.items():
            channel.key = name
        return found

    def writes(self) -> list[tuple[str, Any]]:
        """Return writes that no channel refuses; now and then one to no channel."""
        names = self.chance.sample(list(self.kinds), self.chance.randint(0, len(self.kinds)))
        found = [(name, self.value(name)) for name in names for _ in range(self.times(name))]
        return [*found, ("nowhere", 1)] if self.chance.random() < 0.1 else found

    def times(self, name: str) -> int:
        return 1 if type(self.kinds[name]) in (LastValue, LastValueAfterFinish) else 2

    def value(self, name: str) -> Any:
        kind = type(self.kinds[name])
        if kind is NamedBarrierValue:
            return self.chance.choice("ab")
        if kind is Topic:
            return self.chance.choice(([], ["t"], "t"))
        return self.chance.choice(([], ["x"], ["y", "z"]))

    def step(self) -> tuple[Any, Any]:
        """Apply the same writes to both, and return what each says."""
        triggers = self.chance.choice(((), tuple(self.kinds)))
        writes = self.writes()
        cut = self.chance.randint(0, len(writes))
        args = [
            ((), f"n{at}", part, triggers) for at, part in enumerate((writes[:cut], writes[cut:]))
        ]
        nodes: Any = {name: ["n"] for name in self.chance.choice((self.kinds, ()))}
        said = []
        ways: Any = (
            (lean_state.apply_writes, self.our_last, self.ours),
            (_algo.apply_writes, self.their_last, self.theirs),
        )
        for apply, last, channels in ways:
            tasks = [_algo.PregelTaskWrites(*one) for one in args]
            said.append(apply(last, channels, tasks, _algo.increment, nodes))
        return said[0], said[1]


def order(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(found.items())


@settings(max_examples=often(300), deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_channels_are_langgraphs_after_each_step(chance: Random) -> None:
    both, saved = Both(chance), list[tuple[Any, Any]]()
    names = chance.sample(list(both.kinds), len(both.kinds))
    for step in range(chance.randint(1, 5)):
        ours, theirs = both.step()
        assert ours == theirs
        assert order(both.ours.read(names)) == order(_io.read_channels(both.theirs, names))
        assert order(both.ours.read(names)) == order(_io.read_channels(both.ours, names))
        both.our_last = lean_state.checkpoint_of(both.our_last, both.ours, step, ours)
        both.their_last = _checkpoint.create_checkpoint(
            both.their_last, both.theirs, step, updated_channels=theirs
        )
        assert list(both.our_last) == list(both.their_last)
        for part in ("v", "updated_channels"):
            assert both.our_last[part] == both.their_last[part]
        for part in ("channel_values", "channel_versions"):
            assert order(both.our_last[part]) == order(both.their_last[part])
        assert both.our_last["versions_seen"] == both.their_last["versions_seen"]
        copies = (lean_state.copy_of(both.our_last), _checkpoint.copy_checkpoint(both.their_last))
        saved.append(copies)
    for ours, theirs in saved:
        for part in ("channel_values", "channel_versions", "versions_seen"):
            assert ours[part] == theirs[part], "what is saved does not change with later steps"


@settings(max_examples=often(300), deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_route_reads_what_langgraph_lets_it_read(chance: Random) -> None:
    both = Both(chance)
    for _ in range(chance.randint(0, 3)):
        both.step()
    for fresh in (False, True):
        names = chance.sample(list(both.kinds), chance.randint(0, len(both.kinds)))
        task = _algo.PregelTaskWrites((), "n", both.writes(), ())
        given: Any = {}, task, names, fresh
        ours = lean_state.local_read(None, both.ours, *given)
        assert order(ours) == order(_algo.local_read(None, both.theirs, *given))  # type: ignore[arg-type]  # no pad
        assert both.ours.read(both.kinds) == _io.read_channels(both.theirs, [*both.kinds])


def test_a_topic_is_read_as_a_copy() -> None:
    channels = lean_state.Channels({"t": Topic(str).from_checkpoint(["a"])})
    channels.read(["t"])["t"].append("b")
    assert channels.read(["t"]) == {"t": ["a"]}


def test_an_overwritten_value_is_noted() -> None:
    channels = lean_state.Channels(
        {"c": with_fast_copy(BinaryOperatorAggregate(list, operator.add))}
    )
    task = _algo.PregelTaskWrites((), "n", [("c", Overwrite(["a"]))], ())
    last: Any = empty_checkpoint()
    assert lean_state.apply_writes(last, channels, [task], _algo.increment, {}) == {"c"}
    assert channels.read(["c"]) == {"c": ["a"]}


@pytest.mark.parametrize("step", [-1, 0, 7, 0x4001])
@pytest.mark.parametrize("back", [False, True])
def test_an_id_is_langgraphs(step: int, back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ids.uuid6(clock_seq=step)
    now = 0 if back else 2_000_000_000_123_456_789
    monkeypatch.setattr(lean_state, "getrandbits", lambda bits: 0x0123456789AB)
    monkeypatch.setattr(random, "getrandbits", lambda bits: 0x0123456789AB)
    monkeypatch.setattr(time, "time_ns", lambda: now)
    last = vars(ids)["_last_v6_timestamp"]
    ours = lean_state.checkpoint_id(step)
    assert ours > str(made)
    then = vars(ids)["_last_v6_timestamp"]
    monkeypatch.setitem(vars(ids), "_last_v6_timestamp", last)
    assert ours == str(ids.uuid6(clock_seq=step))
    assert then == vars(ids)["_last_v6_timestamp"]
    monkeypatch.setitem(vars(ids), "_last_v6_timestamp", None)
    assert lean_state.checkpoint_id(step)[-17:] == ours[-17:]
