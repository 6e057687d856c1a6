"""Whatever is done to it, the long-term store holds and finds what LangGraph's in memory does."""

from __future__ import annotations

import asyncio
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
from langgraph.store.base import (
    NOT_PROVIDED,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
    TTLConfig,
)
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
TEXTS = st.text("abcd", max_size=3)
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-3, 3) | st.just(1.5), "text": TEXTS},
    optional={"any": NESTED, "x": SCALARS, "more": st.lists(TEXTS, max_size=3)},
)
INDEXED: st.SearchStrategy[Any] = st.sampled_from(
    [None, False, [], ["more[*]"], ["text", "more[*]"], ["more[0]", "n"]]
)
"""Fields of one item that are embedded; None for those of the store."""
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
WHOLE: Any = {"limit": st.just(1_000), "offset": st.just(0)}
READS: st.SearchStrategy[Any] = st.one_of(
    st.builds(GetOp, SPACES, NAMES, st.just(False)),
    st.builds(
        SearchOp,
        PREFIXES,
        filter=FILTERS,
        query=st.sampled_from([None, "ab"]),
        refresh_ttl=st.just(False),
        **WHOLE,
    ),
    st.builds(
        ListNamespacesOp,
        st.sampled_from(
            [
                None,
                (MatchCondition("prefix", ("a", "*")),),
                (MatchCondition("prefix", ("*",)), MatchCondition("suffix", ("b",))),
            ]
        ),
        max_depth=st.none() | st.integers(1, 2),
        **WHOLE,
    ),
)


def told(items: Any) -> list[Any]:
    return [(item.namespace, item.key, item.value) for item in items]


class Machine(RuleBasedStateMachine):
    """The store, LangGraph's in memory beside it, and another tenant that uses the same names."""

    keys: Keys | None = None

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.folder.name) / 'store.db'}"

    @initialize(minutes=st.sampled_from([None, 5]), refresh=st.booleans())
    def begin(self, minutes: float | None, refresh: bool) -> None:
        self.ttl: TTLConfig = {"default_ttl": minutes, "refresh_on_read": refresh}
        self.folder = tempfile.TemporaryDirectory()
        self.url, self.clock, self.texts = self.new_url(), Clock(), 0
        self.model = InMemoryStore(index=INDEX)
        self.ends: dict[Any, tuple[float, float]] = {}
        """Of items with a TTL: when they expire, and their minutes."""
        self.others: dict[Any, Any] = {}
        """The items of the other tenant."""
        self.open()

    def open(self) -> None:
        more: Any = {"index": INDEX, "synchronous": "NORMAL", "keys": self.keys}
        self.store = SqlStore.from_url(self.url, ttl=self.ttl, **more)
        self.other = SqlStore.from_url(self.url, tenant="other", **more)
        self.store._core.clock = self.other._core.clock = self.clock

    def close(self) -> None:
        self.store.close()
        self.other.close()

    def new(self, value: dict[str, Any]) -> dict[str, Any]:
        """Make each text another one: the store in memory cannot embed one twice in a batch."""
        self.texts += 1
        made = {**value, "text": f"{value['text']}{self.texts}"}
        if "more" in value:
            made["more"] = [f"{text}{self.texts}.{at}" for at, text in enumerate(value["more"])]
        return made

    def without_vectors(self, space: Any, name: str) -> None:
        """Forget what the store in memory keeps of an item that is put again: other vectors."""
        self.model._vectors[space].pop(name, None)

    @rule(
        space=SPACES,
        name=NAMES,
        value=VALUES,
        ttl=st.sampled_from([None, 1, 10, NOT_PROVIDED]),
        index=INDEXED,
    )
    def put(self, space: Any, name: str, value: dict[str, Any], ttl: Any, index: Any) -> None:
        made = self.new(value)
        self.store.put(space, name, made, ttl=ttl, index=index)
        self.without_vectors(space, name)
        self.model.put(space, name, made, index=index)
        self.ends.pop((space, name), None)
        if ttl is NOT_PROVIDED:
            ttl = self.ttl["default_ttl"]
        if ttl is not None:
            self.ends[space, name] = self.clock() + ttl * 60, ttl

    @rule(space=SPACES, name=NAMES, value=st.none() | VALUES, sync=st.booleans())
    def another_tenant_writes(self, space: Any, name: str, value: Any, sync: bool) -> None:
        put = PutOp(space, name, value)
        if sync:
            self.other.batch([put])
        else:
            asyncio.run(self.other.abatch([put]))
        self.others.pop((space, name), None)
        if value is not None:
            self.others[space, name] = value

    @rule(space=SPACES, name=NAMES, query=st.sampled_from([None, "ab"]))
    def another_tenant_reads(self, space: Any, name: str, query: str | None) -> None:
        """Find its own items, and let the TTL of no other begin again."""
        item = self.other.get(space, name)
        assert (item and item.value) == self.others.get((space, name))
        found = self.other.search((), query=query, limit=1_000)
        assert {(one.namespace, one.key): one.value for one in found} == self.others
        spaces = {space for space, _ in self.others}
        assert self.other.list_namespaces(limit=1_000) == sorted(spaces)

    @rule(space=SPACES, name=NAMES)
    def delete(self, space: Any, name: str) -> None:
        self.store.delete(space, name)
        self.model.delete(space, name)
        self.ends.pop((space, name), None)

    @rule(
        puts=st.lists(st.tuples(SPACES, NAMES, st.none() | VALUES, INDEXED), max_size=5),
        reads=st.lists(READS, max_size=4),
        sync=st.booleans(),
        data=st.data(),
    )
    def batch(self, puts: Any, reads: Any, sync: bool, data: Any) -> None:
        """Mix writes, often of the same item, with reads: these come first, the last write counts.

        The order of the operations is any.
        """
        ops: list[Any] = [
            PutOp(space, name, value and self.new(value), index)
            for space, name, value, index in puts
        ]
        ops = data.draw(st.permutations([*ops, *reads]))
        ours = self.store.batch(ops) if sync else asyncio.run(self.store.abatch(ops))
        listed = self.held()
        for op in ops:
            if isinstance(op, PutOp):
                self.ends.pop((op.namespace, op.key), None)
        theirs = self.model.batch([op for op in ops if not isinstance(op, PutOp)])
        for op, one in zip(ops, ours, strict=True):
            if isinstance(op, PutOp):
                assert one is None
            elif isinstance(op, ListNamespacesOp):
                theirs.pop(0)
                assert one == listed.batch([op])[0]
            elif isinstance(op, GetOp):
                assert told([one] if one else []) == told([one for one in theirs[:1] if one])
                theirs.pop(0)
            else:
                assert sorted(map(repr, scored(one))) == sorted(map(repr, scored(theirs.pop(0))))
        last = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for op in last.values():
            self.without_vectors(op.namespace, op.key)
            self.model.batch([op])  # it counts an equal text of two items once, and then raises

    def refreshed(self, *places: Any) -> None:
        """Note that the TTL of items begins again."""
        for at in places:
            if at in self.ends:
                self.ends[at] = self.clock() + self.ends[at][1] * 60, self.ends[at][1]

    @rule(space=SPACES, name=NAMES, refresh=st.none() | st.booleans())
    def read(self, space: Any, name: str, refresh: bool | None) -> None:
        one, other = self.store.get(space, name, refresh_ttl=refresh), self.model.get(space, name)
        assert told([one] if one else []) == told([other] if other else [])
        if self.ttl["refresh_on_read"] if refresh is None else refresh:
            self.refreshed((space, name))

    @rule(prefix=PREFIXES, wanted=FILTERS, limit=PAGES, query=st.sampled_from([None, "ab"]))
    def search_and_refresh(self, prefix: Any, wanted: Any, limit: int, query: Any) -> None:
        """The TTL of what is found begins again, and of nothing else that was looked at."""
        every: Any = {"filter": wanted, "limit": limit, "query": query}
        found = self.store.search(prefix, **every, refresh_ttl=True)
        self.refreshed(*((one.namespace, one.key) for one in found))

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
            self.put(*place, value, None, None)

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

    @rule(
        prefix=PREFIXES,
        suffix=PREFIXES,
        depth=st.none() | st.integers(1, 3),
        limit=st.integers(0, 4) | st.just(1_000),
        offset=PAGES,
    )
    def list_namespaces(self, prefix: Any, suffix: Any, **more: Any) -> None:
        asked: Any = {"prefix": prefix, "suffix": suffix, "max_depth": more.pop("depth"), **more}
        assert self.store.list_namespaces(**asked) == self.held().list_namespaces(**asked)

    def held(self) -> InMemoryStore:
        """Return the model without the names of empty namespaces, which it keeps."""
        held = InMemoryStore()
        for item in self.model.search((), limit=1_000):
            held.put(item.namespace, item.key, item.value)
        return held

    @rule(how=st.sampled_from(["open", "sweep", "another tenant sweeps"]))
    def maintain(self, how: str) -> None:
        if how == "open":
            self.close()
            self.open()
        else:
            (self.store if how == "sweep" else self.other).sweep()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.close()
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
