"""What goes in comes out; what has no place is refused when it is written."""

from __future__ import annotations

import enum
import ipaddress
import math
import re
import sys
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from ormsgpack import Ext
from pydantic import BaseModel

from tests.store.store_graphs import config, looping_graph
from tests.support.often import often
from wick_graph.core.request import ModelRequest, to_overlay
from wick_graph.core.usage import Usage
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver, StoredObject
from wick_graph.store.allowlist import AllowList
from wick_graph.store.codec import KEYS, MAX_DEPTH, MAX_NESTED, Codec, Tag

CODEC = Codec()


def through(value: Any, codec: Codec = CODEC) -> Any:
    head, core = codec.split(value)
    assert same(codec.join(head, core), value)
    for one in joined([(head, core)] * 2, codec):
        assert same(one, value)
        if isinstance(value, BaseMessage):
            assert one.__pydantic_extra__ == value.__pydantic_extra__
            assert list(one.__dict__) == list(value.__dict__)
            assert one.__pydantic_fields_set__ == codec.join(head, core).__pydantic_fields_set__
    return codec.loads_typed(codec.dumps_typed(value))


def joined(items: list[tuple[bytes, bytes]], codec: Codec = CODEC) -> list[Any]:
    """Rebuild many values as a history is read."""
    values, left = codec.joined(items)
    for at in left:
        assert values[at] is None
        values[at] = codec.join(*items[at])
    return values


def same(a: Any, b: Any) -> bool:
    """Equality that tells 1 from True and knows that NaN is NaN, at any depth."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (
            math.isnan(a)
            if math.isnan(b)
            else (a == b and math.copysign(1, a) == math.copysign(1, b))
        )
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return len(a) == len(b) and all(same(x, y) for x, y in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=False))
    if isinstance(a, BaseMessage):
        return same(a.__dict__, b.__dict__) and a == b
    return bool(a == b)


texts = st.text(st.characters(), max_size=12)  # every code point, lone surrogates too
keys = st.one_of(texts, st.integers(), st.booleans(), st.none(), st.tuples(texts, st.integers()))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    texts,
    st.binary(max_size=20),
    st.dates(),
    st.times(),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5.5))])),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.frozensets(st.integers(), max_size=4),
    st.sets(texts, max_size=4),
)
data = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=5),
    ),
    max_leaves=20,
)


@settings(max_examples=often(150), deadline=None)
@given(data)
def test_nested_data(value: Any) -> None:
    assert same(through(value), value)


json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
contents = st.one_of(texts, st.lists(st.dictionaries(texts, json, max_size=3), max_size=3))
common = {
    "content": contents,
    "id": st.none() | texts,
    "name": st.none() | texts,
    "additional_kwargs": st.dictionaries(texts, json, max_size=3),
    "response_metadata": st.dictionaries(texts, json, max_size=3),
}
calls = st.lists(
    st.fixed_dictionaries(
        {
            "name": texts,
            "args": st.dictionaries(texts, json, max_size=3),
            "id": st.none() | texts,
            "type": st.just("tool_call"),
        }
    ),
    max_size=3,
)
usage = st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})
status = st.sampled_from(["success", "error"])
CLASSES: list[Any] = [
    pytest.param(HumanMessage, {}, id="human"),
    pytest.param(HumanMessageChunk, {}, id="human chunk"),
    pytest.param(SystemMessage, {}, id="system"),
    pytest.param(SystemMessageChunk, {}, id="system chunk"),
    pytest.param(AIMessage, {"tool_calls": calls, "usage_metadata": usage}, id="ai"),
    pytest.param(AIMessageChunk, {"usage_metadata": usage}, id="ai chunk"),
    pytest.param(
        ToolMessage, {"tool_call_id": texts, "status": status, "artifact": json}, id="tool"
    ),
    pytest.param(ToolMessageChunk, {"tool_call_id": texts}, id="tool chunk"),
    pytest.param(ChatMessage, {"role": texts}, id="chat"),
    pytest.param(ChatMessageChunk, {"role": texts}, id="chat chunk"),
    pytest.param(FunctionMessage, {"name": texts}, id="function"),
    pytest.param(FunctionMessageChunk, {"name": texts}, id="function chunk"),
]


def _stored_type(cls: type[BaseMessage]) -> dict[str, Any]:
    return {name: strategy for name, strategy in common.items() if name in cls.model_fields}


@pytest.mark.parametrize(("cls", "own"), CLASSES)
def test_every_message_class(cls: type[BaseMessage], own: dict[str, Any]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.fixed_dictionaries({**_stored_type(cls), **own}), st.booleans())
    def check(fields: dict[str, Any], extra: bool) -> None:
        if extra:
            fields = {**fields, "more": [1]}
        message = cls(**fields)
        back = through(message)
        assert type(back) is cls
        assert same(back, message)
        assert back.__dict__.keys() == message.__dict__.keys()
        assert back.model_dump() == message.model_dump()
        assert repr(back) == repr(message)

    check()


def test_a_tool_call_chunk_is_whole() -> None:
    chunk = tool_call_chunk(name="a", args='{"x"', id="1", index=0)
    message = AIMessageChunk(content="", tool_call_chunks=[chunk], chunk_position="last")
    assert same(through(message), message)
    assert through(message) + message == message + message


def test_a_rebuilt_message_can_be_changed_alone() -> None:
    first, second = through(AIMessage("x")), through(AIMessage("x"))
    first.tool_calls.append({"name": "a", "args": {}, "id": "1"})
    first.additional_kwargs["k"] = 1
    assert second.tool_calls == []
    assert second.additional_kwargs == {}
    assert first.model_copy(update={"content": "y"}).content == "y"


def test_messages_of_one_history_share_nothing() -> None:
    call: Any = {"name": "a", "args": {"n": [1]}, "id": "c", "type": "tool_call"}
    for whole in (
        AIMessage("x", id="1"),
        AIMessage("x", id="1", tool_calls=[call], additional_kwargs={"k": {"l": []}}),
        AIMessage("x", id="1", more={"m": []}),  # a field of its own
        ToolMessage([{"type": "text", "text": "x"}], tool_call_id="c", id="2"),
        HumanMessage("x", id="3"),
        HumanMessage("x", id="3", additional_kwargs={"set": {1}}),
    ):
        before = whole.model_dump()
        first, second = joined([CODEC.split(whole)] * 2)
        for held in (first.__dict__, first.__pydantic_extra__):
            for value in held.values():
                if isinstance(value, list):
                    value.append("new")
                elif isinstance(value, dict):
                    value["new"] = 1
        first.name, first.example = "other", [1]
        first.__pydantic_fields_set__.add("new")
        third = joined([CODEC.split(whole)])[0]
        for other in (second, third):
            assert other.model_dump() == before
            assert not {"name", "example", "new"} & other.__pydantic_fields_set__


@pytest.mark.parametrize(
    ("message", "is_left"),
    [
        (AIMessage("x", id="i" * 32), False),
        (AIMessage("x" * 300, id="i" * 32), False),
        (AIMessage("x" * 70_000, id="i" * 32), True),
        (AIMessage("x", id="short"), True),
        (AIMessage("x", id="i" * 300), True),
        (AIMessage("x"), True),
        (AIMessage("x", id="\ud800" * 32), True),
        (AIMessage("x", id="i" * 32, additional_kwargs={"k": (1, 2)}), True),
        (AIMessage("x", id="i" * 32, more=1), True),
    ],
)
def test_only_usual_messages_are_rebuilt_the_short_way(message: Any, is_left: bool) -> None:
    pair = CODEC.split(message)
    assert bool(CODEC.joined([pair])[1]) is is_left
    assert same(joined([pair])[0], message)


def test_an_unknown_class_or_field_is_no_message() -> None:
    head = CODEC.pack("i" * 32)
    for parts in ([99, {"c": "x"}], [2, {"c": "x", "?": 1}]):
        core = CODEC.pack(Ext(Tag.COMPACT, CODEC.pack(parts)))
        with pytest.raises((KeyError, StorageError)):
            joined([(head, core)])


VALUES: list[Any] = [
    RemoveMessage(id="x"),
    Document("text", metadata={"a": 1}, id="d"),
    Send("node", {"messages": [HumanMessage("x", id="1")]}),
    Send("node", [1], timeout=3.5),
    TimeoutPolicy(run_timeout=2.0, refresh_on="heartbeat"),
    Interrupt({"q": 1}, "id", response_schema={"type": "object"}),
    Command(graph="g", update={"a": [1]}, resume={"b": 2}, goto=[Send("n", 1), "m"]),
    Overwrite([1, 2]),
    _DeltaSnapshot([1, {"a": 2}]),
    Path("/a/b"),
    deque([1, 2], maxlen=5),
    Decimal("-1.50"),
    datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    time(1, 2, 3, tzinfo=UTC),
    date(1, 1, 1),
    timedelta(days=-3, microseconds=5),
    UUID(int=5),
    2**64,
    -(2**200),
    "\ud800 lone",
    {"\ud800": "\x00"},
    {1: "a", "1": "b", (1, "x"): [2], None: 3, 2.5: 4},
    {"a": {"b": [(), set(), frozenset({1}), b"\x00"]}},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_single_values(value: Any) -> None:
    back = through(value)
    assert type(back) is type(value)
    assert back == value
    assert through([value]) == [value]


def test_a_zone_keeps_its_name_and_fold() -> None:
    value = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    back = through(value)
    assert (back.tzinfo.key, back.fold) == ("Europe/Berlin", 1)


def test_what_comes_back_plainer() -> None:
    class Chain(list[Any]):
        pass

    class Name(str):
        __slots__ = ()

    for given_value, expected in (
        (Chain([1, Chain()]), [1, []]),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        ({Name("k"): Name("v")}, {"k": "v"}),
        (bytearray(b"x"), b"x"),
        ([bytearray(b"x"), "\ud800"], [b"x", "\ud800"]),
    ):
        back = CODEC.unpack(CODEC.pack(given_value))
        assert same(back, expected)


def test_an_exception_is_its_text() -> None:
    class Mute(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

    for error, text in ((ValueError("boom"), "ValueError('boom')"), (Mute(), "Mute()")):
        assert CODEC.unpack(CODEC.pack([error])) == [text]
    older = Ext(Tag.EXCEPTION, ormsgpack.packb(["json.JSONDecodeError", "it's"]))
    assert CODEC.unpack(ormsgpack.packb(older)) == 'JSONDecodeError("it\'s")'


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: int
    more: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fixed:
    x: int


class Model(BaseModel):
    x: int
    inner: Fixed | None = None
    _hidden: int = 3


class Pair(NamedTuple):
    a: int
    b: str


class MyMessage(HumanMessage):
    extra: int = 1


OWN: list[Any] = [
    Colour.RED,
    Level.LOW,
    Word.YES,
    Bits.A | Bits.B,
    Point(1, [Fixed(2)]),
    Fixed(3),
    Model(x=1, inner=Fixed(2)),
    Pair(1, "b"),
    MyMessage(content="x", id="1", extra=5),
]
OWN_TYPES = [type(value) for value in OWN]


def test_a_usage_is_stored_without_its_keys() -> None:
    usage = Usage(12_000, 300, 12_300, 11_000, calls=7).to_dict()
    assert KEYS[0] == tuple(usage)
    packed = CODEC.pack_keyed(usage)
    assert packed is not None
    assert len(packed) < 24 < len(CODEC.pack(usage))
    assert list(CODEC.unpack(packed).items()) == list(usage.items())


def test_the_numbers_of_known_keys_stay() -> None:
    assert {  # on disk: add, never change
        0: (
            *("input_tokens", "output_tokens", "total_tokens"),
            *("cache_read", "cache_write", "reasoning", "calls"),
        ),
        1: ("stamp", "system", "tools", "settings", "withheld", "messages"),
        2: ("messages",),
    } == KEYS


def test_keys_of_a_newer_release_are_named_as_such() -> None:
    packed = CODEC.pack(Ext(Tag.KEYED, CODEC.pack([99, 1])))
    with pytest.raises(StorageError, match="unknown keys 99; upgrade wick_graph"):
        CODEC.unpack(packed)


def test_an_overlay_is_stored_without_its_keys() -> None:
    overlay = to_overlay(ModelRequest.of([HumanMessage("go", id="a")], tools=("look",)), "")
    assert KEYS[1] == tuple(overlay)
    packed = CODEC.pack_keyed(overlay)
    assert packed is not None
    assert list(CODEC.unpack(packed).items()) == list(overlay.items())


@pytest.mark.parametrize(
    "value",
    [
        *({}, [], {"calls": 1}, dict.fromkeys(reversed(KEYS[0]), 1), OrderedDict.fromkeys(KEYS[0])),
        dict.fromkeys((*KEYS[0], "more"), 1),
    ],
)
def test_other_dicts_keep_their_keys(value: Any) -> None:
    assert CODEC.pack_keyed(value) is None


@pytest.mark.parametrize("value", OWN, ids=lambda value: type(value).__name__)
def test_own_types_are_refused_unless_allowed(value: Any) -> None:
    name = type(value).__name__
    for wrapped in (value, [value], {"a": (value,)}, Send("n", value), {1: value}):
        with pytest.raises(StorageError, match=rf"allow=\[{name}\]"):
            CODEC.pack(wrapped)


@pytest.mark.parametrize("how", ["classes", "pairs"])
@pytest.mark.parametrize("value", OWN, ids=lambda value: type(value).__name__)
def test_own_types_round_trip_when_allowed(value: Any, how: str) -> None:
    if how == "classes":
        codec = Codec(AllowList(OWN_TYPES))
    else:
        pairs = [(cls.__module__, cls.__name__) for cls in OWN_TYPES]
        codec = Codec().with_msgpack_allowlist(pairs)
    back = codec.unpack(codec.pack([value, {"a": value}]))
    assert type(back[0]) is type(value)
    assert back == [value, {"a": value}]
    fresh = Codec(AllowList(OWN_TYPES))
    assert fresh.unpack(codec.pack(value)) == value


@pytest.mark.parametrize("value", OWN, ids=lambda value: type(value).__name__)
def test_a_class_that_is_not_known_is_data_and_is_kept(value: Any) -> None:
    stored = Codec(AllowList(OWN_TYPES)).pack([value])
    back = CODEC.unpack(stored)
    assert type(back[0]) is StoredObject
    assert back[0].name == f"{__name__}:{type(value).__qualname__}"
    assert CODEC.unpack(CODEC.pack(back)) == back
    assert Codec(AllowList(OWN_TYPES)).unpack(CODEC.pack(back)) == [value]


def test_a_class_that_changed_is_data_and_is_kept() -> None:
    class Colour(enum.Enum):
        BLUE = "blue"

    Colour.__module__, Colour.__qualname__ = __name__, "Colour"
    stored = Codec(AllowList(OWN_TYPES)).pack(OWN[0])
    back = Codec(AllowList([Colour])).unpack(stored)
    assert back == StoredObject(f"{__name__}:Colour", "RED")
    assert Codec(AllowList(OWN_TYPES)).unpack(Codec(AllowList([Colour])).pack(back)) is OWN[0]


def test_a_loaded_class_is_not_found_by_its_name() -> None:
    """`StoredObject` and the tables of the codec are the only doors from a name to a class."""
    for name in (f"{__name__}:Point", "pathlib:Path", "wick_graph.store.saver:SqlSaver"):
        forged = CODEC.pack(StoredObject(name, {"x": 1}))
        assert CODEC.unpack(forged) == StoredObject(name, {"x": 1})


FOREIGN: list[Any] = [
    AgentAction(tool="t", tool_input={"q": [1]}, log="l"),
    AgentActionMessageLog(tool="t", tool_input="q", log="l", message_log=[AIMessage("m", id="1")]),
    AgentFinish(return_values={"a": 1}, log="l"),
    AgentStep(action=AgentAction(tool="t", tool_input="q", log=""), observation=[1]),
    ChatGeneration(message=AIMessage("m", id="1")),
    ChatPromptValue(messages=[HumanMessage("h", id="1")]),
    re.compile("a.c", re.IGNORECASE | re.DOTALL),
    re.compile(b"\\x00"),
    *map(ipaddress.ip_address, ("127.0.0.1", "fe80::1%eth0")),
    *map(ipaddress.ip_interface, ("10.0.0.1/8", "fe80::1/64")),
    *map(ipaddress.ip_network, ("10.0.0.0/8", "fe80::/64")),
]


@pytest.mark.parametrize("value", FOREIGN, ids=lambda value: type(value).__name__)
def test_classes_of_the_library_and_of_langchain_need_no_permission(value: Any) -> None:
    back = CODEC.unpack(CODEC.pack([value, {"a": (value,)}]))
    assert type(back[0]) is type(value)
    assert back == [value, {"a": (value,)}]


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype="<f4").reshape(2, 3),
        np.arange(6, dtype=">i8").reshape(2, 3).T,
        np.zeros((0, 3)),
        np.array(5),
        np.array([True, False]),
        np.array(["a", "bcd"]),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
        np.float64(1.5),
        np.int64(7),
        np.complex64(1 + 2j),
    ],
    ids=repr,
)
def test_numpy_is_data(value: Any) -> None:
    back = CODEC.unpack(CODEC.pack({"a": [value]}))["a"][0]
    assert (type(back), back.dtype, back.shape) == (type(value), value.dtype, value.shape)
    assert np.array_equal(back, value)
    if isinstance(back, np.ndarray):
        assert back.flags.writeable


@pytest.mark.parametrize(
    "value", [np.array([object()]), np.zeros(1, dtype=[("a", "f4")])], ids=["objects", "records"]
)
def test_numpys_objects_are_refused(value: Any) -> None:
    with pytest.raises(StorageError, match="cannot be stored"):
        CODEC.pack(value)


def test_without_numpy_an_array_is_data_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = CODEC.pack([np.arange(3), np.int64(7)])
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "numpy", None)
        back = CODEC.unpack(stored)
        assert [type(one) for one in back] == [StoredObject, StoredObject]
        again = CODEC.pack(back)
    assert list(CODEC.unpack(again)[0]) == [0, 1, 2]
    assert type(CODEC.unpack(again)[1]) is np.int64


@pytest.mark.parametrize(
    "value", [object(), lambda: 1, Codec, 1j, iter([]), pytest], ids=lambda v: type(v).__name__
)
def test_everything_else_is_refused(value: Any) -> None:
    with pytest.raises(StorageError, match="cannot be stored"):
        CODEC.pack({"a": [value]})


def test_depth() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert CODEC.unpack(CODEC.pack(value)) == value
    for wrap in (lambda v: [v], lambda v: {"a": v}, lambda v: (v,)):
        value = 1
        for _ in range(600):
            value = wrap(value)
        for refused in (value, ["\ud800", value]):
            with pytest.raises(StorageError, match="nested deeper"):
                CODEC.pack(refused)


@pytest.mark.parametrize("levels", [MAX_NESTED, MAX_NESTED + 1])
@pytest.mark.parametrize("core", [1, "\ud800", {1: 2}])
def test_what_can_be_written_can_be_read(levels: int, core: Any) -> None:
    for wrap in (lambda v: (v,), lambda v: {1: v}):
        value = core
        for _ in range(levels - 1):
            value = wrap(value)
        try:
            stored = CODEC.pack(value)
        except StorageError:
            assert levels > MAX_NESTED or core != 1
        else:
            assert CODEC.unpack(stored) == value


def test_the_graphs_own_list_is_taken(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        clone = saver.with_allowlist({(Point.__module__, "Point")})
        assert saver.with_allowlist(set()) is saver
        looping_graph(clone, 1).invoke({"messages": []}, config())
        at = clone.get_tuple(config())
        assert at is not None
        clone.put_writes(at.config, [("log", [Point(1)])], "task")
        with pytest.raises(StorageError, match="Point"):
            saver.put_writes(at.config, [("log", [Point(1)])], "other")
        found = clone.get_tuple(config())
        assert found is not None
        assert found.pending_writes is not None
        assert found.pending_writes[-1][2] == [Point(1)]
        other = saver.get_tuple(config())
        assert other is not None
        assert other.pending_writes is not None
        assert other.pending_writes[-1][2] == [
            StoredObject(f"{__name__}:Point", {"x": 1, "more": []})
        ]


def test_odd_text_survives_everywhere(url: str) -> None:
    odd = "nul \x00 lone \ud800 end"
    given_state = {"messages": [HumanMessage(odd, id=odd)], "log": [odd], "files": {odd: odd}}
    thread: RunnableConfig = {"configurable": {"thread_id": odd}, "metadata": {"note": "\ud800"}}
    with SqlSaver.from_url(url) as saver:
        looping_graph(saver, 1).invoke(given_state, thread)
    with SqlSaver.from_url(url) as saver:
        values = looping_graph(saver, 1).get_state(thread).values
        assert (values["messages"][0].content, values["messages"][0].id) == (odd, odd)
        assert values["log"][0] == odd
        assert values["files"][odd] == odd
        saver.delete_thread(odd)
        assert saver.get_tuple(thread) is None


FIRM = [KeyboardInterrupt(), SystemExit(2), GeneratorExit(), MemoryError()]
"""What says nothing of the value at hand."""


class Cut:
    """Raises an error at a chosen call of a codec's method."""

    def __init__(self, method: Any, at: int, error: BaseException) -> None:
        self.method, self.left, self.error = method, at, error

    def __call__(self, *args: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise self.error
        return self.method(*args)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("error", FIRM, ids=repr)
@pytest.mark.parametrize("method", ["_read", "_extend"])
def test_what_is_not_of_the_value_leaves_the_codec_as_it_is(
    method: str, error: BaseException, at: int
) -> None:
    """From any depth: `ormsgpack` hides what its hooks raise."""
    value = [({1, 2}, (3, ({4},))), HumanMessage("hi", id="m")]
    codec, data = Codec(), CODEC.pack(value)
    act: Any = (lambda: codec.unpack(data)) if method == "_read" else (lambda: codec.pack(value))
    setattr(codec, method, Cut(getattr(codec, method), at, error))
    with pytest.raises(type(error)) as raised:
        act()
    assert raised.value is error
    assert codec.unpack(codec.pack(value)) == value
    assert codec.pack({1: 2}) == CODEC.pack({1: 2}), "nothing of it is left for the next value"


def test_a_ctrl_c_at_the_first_step_of_a_hook_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    data, unpackb, calls = CODEC.pack(({1}, 2)), ormsgpack.unpackb, list[int]()

    def unpack(data: bytes, *, ext_hook: Any) -> Any:
        def hook(tag: int, body: bytes) -> Any:
            calls.append(tag)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return ext_hook(tag, body)

        return unpackb(data, ext_hook=hook)

    monkeypatch.setattr(ormsgpack, "unpackb", unpack)
    with pytest.raises(KeyboardInterrupt):
        CODEC.unpack(data)
    assert CODEC.unpack(data) == ({1}, 2)
    with pytest.raises(StorageError, match="unknown format"):
        CODEC.unpack(data[:-1])
