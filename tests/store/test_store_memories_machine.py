"""Whatever is done to it, the long-term store holds and finds what LangGraph's in memory does."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from langgraph.store.base import GetOp, Item, PutOp
from langgraph.store.memory import InMemoryStore

from tests.store.encrypted import KEYS
from tests.store.goldens import embedded
from tests.store.test_store_threads import Clock
from tests.support.often import BY_NIGHT, often
from tests.support.postgres import with_schema
from wick_graph.store import Keys, SqlSaver, SqlStore
from wick_graph.store.verify import verify

INDEX: Any = {"embed": embedded, "dims": 4, "fields": ["text"]}
SPACES = st.sampled_from([("a",), ("a", "b"), ("ab",), ("a", "*"), ("%", "\ud800")])
PREFIXES = st.sampled_from(
    [(), ("a",), ("a", "b"), ("b",), ("*",), ("a", "*"), ("%",), ("\ud800",)]
)
NAMES = st.sampled_from(["k", "", "k\x00", "\x00"])
SCALARS: st.SearchStrategy[Any] = st.sampled_from([0, 1, True, 0.5, "x", "", None])
NESTED = st.one_of(
    SCALARS,
    st.lists(st.sampled_from([0, 1]), max_size=3),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from([0, 1, [1]])),
)
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-3, 3) | st.just(1.5), "text": st.text("abcd", max_size=3)},
    optional={"any": NESTED, "x": SCALARS},
)
NUMBERS = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
SAME = st.sampled_from(["$eq", "$ne"])
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-3, 3) | st.dictionaries(NUMBERS | SAME, st.integers(-3, 3), min_size=1),
        "any": NESTED,
        "x": SCALARS | st.dictionaries(SAME, SCALARS, min_size=1),
        "missing": SCALARS,
    },
)
PAGES = st.integers(0, 4)


def told(items: Any) -> list[Any]:
    return [(item.namespace, item.key, item.value) for item in items]


class Machine(RuleBasedStateMachine):
    keys: Keys | None = None

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.folder.name) / 'store.db'}"

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.url, self.clock, self.texts = self.new_url(), Clock(), 0
        self.model = InMemoryStore(index=INDEX)
        self.ends: dict[Any, tuple[float, float]] = {}
        """Of items with a TTL: when they expire, and their minutes."""
        self.other = SqlStore.from_url(self.url, tenant="other", keys=self.keys)
        self.other.put(("a",), "k", {"text": "of another tenant"})
        self.open()

    def open(self) -> None:
        self.store = SqlStore.from_url(self.url, index=INDEX, synchronous="NORMAL", keys=self.keys)
        self.store._core.clock = self.clock

    def new(self, value: dict[str, Any]) -> dict[str, Any]:
        """Make each text another one: the store in memory cannot embed one twice in a batch."""
        self.texts += 1
        return {**value, "text": f"{value['text']}{self.texts}"}

    @rule(space=SPACES, name=NAMES, value=VALUES, ttl=st.sampled_from([None, 1, 10]))
    def put(self, space: Any, name: str, value: dict[str, Any], ttl: float | None) -> None:
        made = self.new(value)
        self.store.put(space, name, made, ttl=ttl)
        self.model.put(space, name, made)
        self.ends.pop((space, name), None)
        if ttl is not None:
            self.ends[space, name] = self.clock() + ttl * 60, ttl

    @rule(space=SPACES, name=NAMES)
    def delete(self, space: Any, name: str) -> None:
        self.store.delete(space, name)
        self.model.delete(space, name)
        self.ends.pop((space, name), None)

    @rule(
        puts=st.lists(st.tuples(SPACES, NAMES, st.none() | VALUES), max_size=4),
        gets=st.lists(st.tuples(SPACES, NAMES), max_size=3),
    )
    def batch(self, puts: Any, gets: Any) -> None:
        ops: list[Any] = [GetOp(one[0], one[1], refresh_ttl=False) for one in gets]
        for space, name, value in puts:
            ops.append(PutOp(space, name, None if value is None else self.new(value)))
            self.ends.pop((space, name), None)
        ops += [GetOp(one[0], one[1], refresh_ttl=False) for one in gets]
        ours, theirs = self.store.batch(ops), self.model.batch(ops)
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if isinstance(one, Item):
                assert told([one]) == told([other])

    @rule(space=SPACES, name=NAMES)
    def read(self, space: Any, name: str) -> None:
        one, other = self.store.get(space, name), self.model.get(space, name)
        assert told([one] if one else []) == told([other] if other else [])
        if (space, name) in self.ends:
            ttl = self.ends[space, name][1]
            self.ends[space, name] = self.clock() + ttl * 60, ttl

    @rule(minutes=st.sampled_from([1, 5, 30]))
    def wait(self, minutes: float) -> None:
        self.clock.forward(minutes)
        for at, (end, _) in [*self.ends.items()]:
            if end <= self.clock():
                self.model.delete(*at)
                del self.ends[at]

    @rule(prefix=PREFIXES, wanted=FILTERS, limit=PAGES, offset=PAGES)
    def search(self, prefix: Any, wanted: dict[str, Any], limit: int, offset: int) -> None:
        ours = self.found(prefix, wanted)
        part: dict[str, Any] = {"filter": wanted, "limit": limit, "offset": offset}
        page = self.store.search(prefix, **part, refresh_ttl=False)
        assert told(page) == ours[offset : offset + limit]

    @invariant()
    def the_same_is_there(self) -> None:
        if hasattr(self, "store"):
            self.found((), {})

    @rule()
    def search_for_what_is_there(self) -> None:
        """Look for what each item has, and has in part."""
        for item in self.model.search((), limit=8):
            for name, value in item.value.items():
                wanted = [value]
                if isinstance(value, list):
                    wanted += [value[:-1], [*value, 0]]
                elif isinstance(value, dict):
                    wanted += [dict([*value.items()][:-1]), {**value, "z": None}]
                for one in wanted:
                    self.found((), {name: one})

    @rule(at=st.integers(0, 9), value=VALUES)
    def put_again_after_its_end(self, at: int, value: dict[str, Any]) -> None:
        if self.ends:
            place, (end, _) = [*self.ends.items()][at % len(self.ends)]
            self.wait((end - self.clock()) / 60 + 1)
            self.put(*place, value, None)

    def found(self, prefix: Any, wanted: dict[str, Any]) -> list[Any]:
        """Return what both find below a prefix."""
        every: dict[str, Any] = {"filter": wanted, "limit": 1_000}
        ours = told(self.store.search(prefix, **every, refresh_ttl=False))
        theirs = told(self.model.search(prefix, **every))
        for space in {space for space, *_ in theirs}:  # they list by namespace, we by age
            mine = [one for one in ours if one[0] == space]
            assert mine == [one for one in theirs if one[0] == space]
        assert len(ours) == len(theirs)
        return ours

    @rule(prefix=PREFIXES, wanted=FILTERS, query=st.text("abcd", min_size=1, max_size=3))
    def search_by_meaning(self, prefix: Any, wanted: dict[str, Any], query: str) -> None:
        every: dict[str, Any] = {"filter": wanted, "limit": 1_000, "query": query}
        ours = self.store.search(prefix, **every, refresh_ttl=False)
        theirs = self.model.search(prefix, **every)
        scores = [item.score or 0.0 for item in ours]
        assert scores == sorted(scores, reverse=True)
        assert scored(ours) == scored(theirs)

    @rule(prefix=PREFIXES, suffix=PREFIXES, depth=st.none() | st.integers(1, 3), offset=PAGES)
    def list_namespaces(self, prefix: Any, suffix: Any, depth: int | None, offset: int) -> None:
        held = InMemoryStore()  # the model keeps the names of empty namespaces
        for item in self.model.search((), limit=1_000):
            held.put(item.namespace, item.key, item.value)
        asked: Any = {"prefix": prefix, "suffix": suffix, "max_depth": depth, "offset": offset}
        assert self.store.list_namespaces(**asked) == held.list_namespaces(**asked)

    @rule(how=st.sampled_from(["open", "sweep"]))
    def maintain(self, how: str) -> None:
        if how == "sweep":
            self.store.sweep()
        else:
            self.store.close()
            self.open()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        assert told(self.other.search(())) == [(("a",), "k", {"text": "of another tenant"})]
        self.other.close()
        self.store.close()
        with SqlSaver.from_url(self.url, keys=self.keys) as saver:
            assert verify(saver).is_whole
        self.folder.cleanup()


def scored(items: Any) -> list[Any]:
    return sorted(
        (item.namespace, item.key, None if item.score is None else round(item.score, 4))
        for item in items
    )


class EncryptedMachine(Machine):
    keys = KEYS


EXAMPLES = settings(
    max_examples=often(100),
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
Machine.TestCase.settings = EXAMPLES
TestMachine = Machine.TestCase
EncryptedMachine.TestCase.settings = settings(EXAMPLES, max_examples=often(50))
TestEncryptedMachine = EncryptedMachine.TestCase


def test_the_same_on_postgres(postgres_server: str) -> None:
    made: list[str] = []

    class OnPostgres(Machine):
        def new_url(self) -> str:
            made.append(f"m_{secrets.token_hex(6)}")
            return with_schema(postgres_server, made[-1])

    examples = 30 if BY_NIGHT else 4
    try:
        run_state_machine_as_test(OnPostgres, settings=settings(EXAMPLES, max_examples=examples))
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as db:
            for schema in made:
                db.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
