"""A step is stored by what changed in it, and its rows are those of a whole encoding."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from tests.store.encrypted import KEYS as ENCRYPTED
from tests.store.store_graphs import config
from tests.store.test_store_sharing import Line
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver, commit_policy
from wick_graph.store.checkpoint_write import CheckpointWriter, StepTransaction
from wick_graph.store.codec import KEYS, NIL, Codec
from wick_graph.store.shapes import BY_CLASS, ID
from wick_graph.store.sharing import NOTHING, ItemWriter
from wick_graph.store.thread_cache import ChannelItems
from wick_graph.testing import ScriptedModel

CHANNELS = ("messages", "usage", "request", "notes", "count", "branch:to:a", "branch:to:b")
NODES = ("__input__", "a", "b", "c")
METADATA: tuple[dict[str, Any], ...] = (
    {"parents": {}, "mine": 1},
    {"parents": {}, "mine": True},
    {"mine": 1, "parents": {}},
    {"parents": {"": "another"}, "mine": 1.0},
    {},
)


class Steps:
    """Steps of two namespaces that are made at random, by two savers of one store."""

    def __init__(self, saver: SqlSaver, chance: Random) -> None:
        self.savers = saver, saver.with_allowlist([("decimal", "Context")])
        self.chance, self.version, self.number = chance, 0, 0
        self.state: dict[str, dict[str, Any]] = {"": {}, "sub": {}}
        self.versions: dict[str, dict[str, int]] = {"": {}, "sub": {}}
        self.seen: dict[str, dict[str, Any]] = {"": {}, "sub": {}}
        self.parent: dict[str, str | None] = {"": None, "sub": None}
        self.put: list[tuple[str, Any, Any]] = []

    def value(self, channel: str, before: Any) -> Any:
        """Make a value of a channel: another one, the same object again, or none."""
        self.number += 1
        if channel.startswith("branch") or self.chance.random() < 0.1:
            return None
        if channel == "messages":
            return self.messages(before or [])
        if channel == "usage":
            return {"input_tokens": self.number, "output_tokens": 2, "note": "x" * 99}
        if channel == "request":
            return overlay(self.number % 3, "p" * self.chance.choice([0, 90, 400]))
        if channel == "notes":
            if isinstance(before, list) and self.chance.random() < 0.5:
                before.append(f"{self.number} " * 40)  # it is the same object
                return before
            if isinstance(before, dict):
                return {**before, f"k{self.number}": "w" * 99}
            return self.chance.choice([before, ["x" * 99, "y" * 99], [], {"a": [1] * 99}, "z" * 99])
        return self.number

    def messages(self, before: list[Any]) -> list[Any]:
        """Continue a list, or change it in its middle."""
        made = [*before, HumanMessage("text " * 9, id=f"m{self.number}")]
        if len(made) > 2 and self.chance.random() < 0.4:
            at = self.chance.randrange(len(made))
            made[at : at + 1] = self.chance.choice([[], [made[0]], [made[at], made[-1], made[at]]])
        return made

    def step(self) -> None:
        """Store what a task wrote, and the checkpoint after it."""
        ns, saver = self.chance.choice(("", "", "sub")), self.chance.choice(self.savers)
        state, versions, seen = dict(self.state[ns]), self.versions[ns], self.seen[ns]
        self.version += 1
        changed = self.chance.sample(CHANNELS, self.chance.randrange(4))
        for channel in changed:
            versions[channel] = self.version
            if self.chance.random() < 0.2:
                state.pop(channel, None)
            else:
                state[channel] = self.value(channel, state.get(channel))
        node = self.chance.choice(NODES)
        seen[node] = {**seen.get(node, {}), **dict.fromkeys(changed, self.version)}
        at = config("t", checkpoint_ns=ns, checkpoint_id=self.parent[ns])
        if self.parent[ns] and changed:
            wrote = [(channel, state.get(channel)) for channel in changed]
            task = str(UUID(int=self.version))
            for path in self.chance.choice(
                [["~__pregel_pull, a"], [""], ["~__pregel_pull, a", ""]]
            ):
                saver.put_writes(at, wrote[:: -1 if not path else 1], task + path, path)
        checkpoint: Any = {
            "v": 4,
            "id": str(UUID(int=2**100 + self.version)),
            "ts": f"2026-11-21T10:00:00.{self.version:06}+00:00",
            "channel_values": state,
            "channel_versions": dict(versions),
            "versions_seen": {node: dict(one) for node, one in seen.items()},
            "updated_channels": self.chance.choice([None, sorted(changed)]),
            **self.chance.choice([{}, {}, {"unknown": self.version}]),
        }
        metadata: Any = {"source": "loop", "step": self.version, **self.chance.choice(METADATA)}
        told = changed[self.chance.random() < 0.3 :]  # not always all
        saver.put(at, checkpoint, metadata, dict.fromkeys(told, self.version))
        self.parent[ns], self.state[ns] = checkpoint["id"], state
        self.put.append((ns, deepcopy(checkpoint), metadata))


def rows(saver: SqlSaver) -> Iterator[Any]:
    with saver._core.reading(None) as db:
        found = db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        for (table,) in sorted(found):
            if table != "clock":
                yield table, db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def types_of(values: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in values.items()}


def stored(seed: int, *, together: bool) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the rows of a case, what was put, and what is read."""
    chance = Random(seed)
    with SqlSaver.from_url("sqlite://") as saver:
        saver.clock = lambda: 1_800_000_000.0
        steps = Steps(saver, chance)
        for _ in range(chance.randrange(1, 20)):
            if together:
                with saver._core.as_one("t"):
                    for _ in range(chance.randrange(5)):
                        steps.step()
            else:
                steps.step()
        read = []
        for ns, checkpoint, _ in steps.put:
            at = config("t", checkpoint_ns=ns, checkpoint_id=checkpoint["id"])
            found = saver.get_tuple(at)
            assert found is not None
            read.append((ns, found.checkpoint, found.metadata))
        return [*rows(saver)], steps.put, read


@pytest.mark.parametrize("together", [True, False])
def test_the_rows_are_those_of_a_whole_encoding(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of the step before saves work, and changes no byte."""
    monkeypatch.setattr(commit_policy, "WAIT_SECONDS", 60.0)  # else a slow machine commits between
    quick = [stored(seed, together=together) for seed in range(80)]
    for _, put, read in quick:
        assert put == read
        assert [types_of(one[2]) for one in put] == [types_of(one[2]) for one in read]
    whole, step_of, packed = StepTransaction._body, CheckpointWriter.step, StepTransaction._meta

    def forgetful(self: StepTransaction, *given: Any) -> Any:
        space = self._space
        space.seen, space.flats = {}, {}
        for lane in self._lanes.values():
            lane.form = None
        return whole(self, *given)

    def meta(self: StepTransaction, rest: dict[str, Any]) -> bytes:
        self._space.meta = None
        return packed(self, rest)

    def anew(self: CheckpointWriter, *given: Any) -> StepTransaction:
        self.core.step = None
        return step_of(self, *given)

    monkeypatch.setattr(StepTransaction, "_body", forgetful)
    monkeypatch.setattr(StepTransaction, "_meta", meta)
    monkeypatch.setattr(CheckpointWriter, "step", anew)
    for seed, case in enumerate(quick):
        assert stored(seed, together=together) == case, seed


def test_ranges_are_as_few_as_they_can_be() -> None:
    """New elements of parallel tasks go to their home, with all that come behind them."""
    a, b, c, d = (HumanMessage("text " * 9, id=name) for name in "abcd")
    with SqlSaver.from_url("sqlite://") as saver, saver._core.writing("t") as db:
        cache = saver._core.thread_for_writing(db, "t")
        writer, lane, home = ItemWriter(db, cache, saver.serde, "t"), cache.lane(7), cache.lane(8)

        def form(value: Any, to: ChannelItems, *, keep: bool = False) -> Any:
            return writer.form(value, lane, to, NOTHING, keep=keep)

        assert form([a, b], lane) == [0, [7, 0, 2]]
        assert form([a, c, b], home) == [0, [7, 0, 1], [8, 0, 2]]
        assert form([a, b, d, a], lane) == [0, [7, 0, 3, 0, 1]]
        assert form([a, b], lane, keep=True) == [0, [7, 0, 2]]
        assert form([a, b, d], lane, keep=True) == [0, [7, 0, 3]]
        assert form([b, d, c, a], lane, keep=True) == [0, [7, 1, 3, 0, 1]]
        assert form([b, d, c, a, b, d], lane, keep=True) == [0, [7, 1, 3, 0, 3]]


def test_an_element_that_is_gone_is_not_taken_for_another_one() -> None:
    """Python gives the ids of objects that are gone to new ones."""
    with SqlSaver.from_url("sqlite://") as saver, saver._core.writing("t") as db:
        cache = saver._core.thread_for_writing(db, "t")
        writer, lane = ItemWriter(db, cache, saver.serde, "t"), cache.lane(7)
        for n in range(50):
            value = [HumanMessage(f"{n} " * 40, id=f"m{n}")]
            assert writer.form(value, lane, lane, NOTHING, keep=False) == [0, [7, n, 1]]


@dataclass
class Own:
    """A class that only one saver may store."""

    n: int


def test_savers_in_one_transaction_store_by_their_own_codecs() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        knowing = saver.with_allowlist([(Own.__module__, "Own")])
        line = Line(saver)
        with saver._core.as_one("t"):
            line.put(one=1)
            line.saver = knowing
            line.put(own=Own(1))
            line.saver = saver
            with pytest.raises(StorageError, match="Own cannot be stored"):
                line.put(own=Own(2))


def test_the_objects_of_a_channel_without_a_value_are_forgotten() -> None:
    held = [HumanMessage("text " * 9, id="m")]
    gone = weakref.ref(held[0])
    with SqlSaver.from_url("sqlite://") as saver:
        line = Line(saver)
        line.put(messages=held, count=1)
        held.clear()
        assert gone() is not None
        line.put(count=2)
        gc.collect()
        assert gone() is None


def items(saver: SqlSaver) -> int:
    with saver._core.reading(None) as db:
        found: int = db.execute("SELECT count(*) FROM items").fetchone()[0]
        return found


def test_what_was_read_of_a_channel_is_forgotten_when_it_has_no_value_any_more(url: str) -> None:
    """A channel that was emptied before has no lane in a process that has only read it."""
    with SqlSaver.from_url(url) as saver:
        Line(saver).put(notes=["text " * 40])
        before = items(saver)
    with SqlSaver.from_url(url) as saver:
        line = Line(saver)
        head = saver.get_tuple(config("t"))
        assert head is not None
        line.parent, line.version = head.checkpoint["id"], 1 << 40
        line.put(notes=None)
        line.put()
        line.put(notes=["a"])
        assert items(saver) == before
        assert line.get() == {"notes": ["a"]}


def test_a_dict_of_known_keys_that_replaces_another_one_is_stored_without_them() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        line = Line(saver)
        line.put(usage={"note": ["text " * 40]})
        before = items(saver)
        usage: dict[str, Any] = {**dict.fromkeys(KEYS[0], 1_000_000), "calls": [1]}
        line.put(usage=usage)
        assert items(saver) == before
        assert line.get() == {"usage": usage}


def overlay(turn: int, prompt: str | None = None) -> dict[str, Any]:
    made = [[turn, "i" * 36], [[prompt, "agent"]], ["look"], {}, False, [["a" * 36, "b" * 36]]]
    return dict(zip(KEYS[1], made, strict=True))


@pytest.mark.parametrize("keys", [None, ENCRYPTED], ids=["plain", "encrypted"])
def test_a_request_is_one_item_and_a_long_one_is_stored_in_its_parts(keys: Any) -> None:
    with SqlSaver.from_url("sqlite://", keys=keys) as saver:
        line = Line(saver)
        line.put()
        news, before = [], items(saver)
        given = [overlay(1), overlay(2), overlay(3, "p" * 400), overlay(4, "p" * 400), overlay(5)]
        for request in given:
            line.put(request=request)
            assert line.get() == {"request": request}
            assert list(line.get()["request"]) == list(KEYS[1])
            news.append(items(saver) - before)
            before = items(saver)
        assert news == [1, 1, len(KEYS[1]), 1, 2]  # of the last ones: the stamp, and the prompt


def test_a_saver_that_has_not_read_a_request_finds_its_item_again(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        line = Line(saver)
        line.put(request=overlay(1))
        before = items(saver)
    with SqlSaver.from_url(url) as saver:
        line.saver = saver
        line.put(request=overlay(1))
        assert items(saver) == before


def test_a_request_that_is_changed_in_place_is_noticed_in_debug_mode() -> None:
    class State(TypedDict):
        request: dict[str, Any]
        n: int

    def silent(state: State) -> dict[str, Any]:
        state["request"]["settings"]["temperature"] = 1
        return {"n": 1}

    with SqlSaver.from_url("sqlite://", debug=True) as saver:
        graph: Any = StateGraph(State)
        graph.add_sequence([("asks", lambda s: {"request": overlay(1)}), ("silent", silent)])
        graph.add_edge(START, "asks")
        with pytest.raises(StorageError, match="channel 'request' was changed in place"):
            graph.compile(saver).invoke({"n": 0}, config("t"), durability="sync")


def test_what_a_node_has_seen_is_encoded_again_only_if_it_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, encoded = StepTransaction._flat, list[Any]()

    def noting(self: StepTransaction, versions: Any) -> Any:
        encoded.append(versions)
        return real(self, versions)

    monkeypatch.setattr(StepTransaction, "_flat", noting)
    with SqlSaver.from_url("sqlite://") as saver:
        line = Line(saver)
        seen: dict[str, dict[str, int]] = {"a": {"x": 1}, "b": {"x": 1}}
        for changed in (None, None, "a", "b", "c"):
            if changed is not None:
                seen = {**seen, changed: {"x": 2}}
            encoded.clear()
            line.seen = seen
            line.put(x=1)
            news = 2 if line.step == 1 else changed is not None
            assert len(encoded) == news + 1  # and the channels' versions


def test_a_request_is_the_same_item_in_its_write_and_in_the_checkpoint_after_it() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        agent = Agent("a", ScriptedModel(["1", "2", "3"]), store=saver)
        found: list[int] = []
        for text in "123":
            agent.invoke(text, thread_id="t")
            found.append(items(saver))
        first, second = found[1] - found[0], found[2] - found[1]
        assert first == second == 4  # the input, two messages, a request


def test_an_object_is_written_by_all_fields_that_differ_from_their_defaults() -> None:
    usage: Any = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    bare = AIMessage("text", name="n", tool_calls=[{"name": "f", "args": {}, "id": "c"}])
    del bare.__dict__["name"], bare.__dict__["additional_kwargs"], bare.__dict__["content"]
    objects: list[Any] = [
        bare,
        AIMessage.model_construct(content=None, name="", tool_calls=(), invalid_tool_calls=[]),
        AIMessage("", id="i", usage_metadata=usage),
        ToolMessage("text", tool_call_id="c", artifact=0, status="error"),
        ToolMessage.model_construct(content="text", tool_call_id=None, artifact=False),
        Document("text", metadata={"a": 1}),
    ]
    for value in objects:
        shape = BY_CLASS[type(value)]
        wanted = {}
        for name, letter, default in shape.fields:
            if name in vars(value):
                field = vars(value)[name]
                if type(field) is not type(default) or field != default:
                    wanted[letter] = field
        assert shape.write(value)[1] == wanted
        assert list(shape.write(value)[1]) == list(wanted)
        wanted.pop(ID, None)
        assert shape.write(value, with_id=False)[1] == wanted


def test_none_is_encoded_as_the_codec_does() -> None:
    assert Codec().pack(None) == NIL
