"""A step costs what is new in it, whatever was done to the lists."""

from __future__ import annotations

import copy
import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from tests.store.conftest import Counts, Outside
from tests.store.store_graphs import agent, config, looping_graph
from tests.support.orphans import assert_no_orphans
from wick_graph import Agent
from wick_graph.store import SqlSaver
from wick_graph.store.row_format import pack_id
from wick_graph.store.thread_cache import ThreadCache
from wick_graph.testing import ScriptedModel, call


class Line:
    """A line of checkpoints, put by hand."""

    def __init__(self, saver: SqlSaver, thread: str = "t") -> None:
        self.saver = saver
        self.thread = thread
        self.parent: str | None = None
        self.version: int | None = None
        self.step = 0
        self.run: dict[str, Any] = {}
        self.seen: dict[str, Any] | None = None
        """What the nodes have seen; by default one has seen all."""

    def put(self, id: str | None = None, **values: Any) -> str:
        self.version = self.saver.get_next_version(self.version, None)
        self.step += 1
        made: Any = {
            "v": 4,
            "id": id or str(uuid6(clock_seq=self.step)),
            "ts": f"2026-11-21T10:00:00.{self.step:06}+00:00",
            "channel_values": values,
            "channel_versions": dict.fromkeys(values, self.version),
            "versions_seen": self.seen or {"node": dict.fromkeys(values, self.version)},
            "updated_channels": sorted(values),
        }
        checkpoint: Checkpoint = made
        address = config(self.thread, checkpoint_ns="", checkpoint_id=self.parent, **self.run)
        versions = checkpoint["channel_versions"]
        self.saver.put(address, checkpoint, {"source": "loop", "step": self.step}, versions)
        self.parent = checkpoint["id"]
        return checkpoint["id"]

    def write(self, **writes: Any) -> None:
        """File what the next step writes, as LangGraph does before it puts a checkpoint."""
        address = config(self.thread, checkpoint_ns="", checkpoint_id=self.parent)
        self.saver.put_writes(address, [*writes.items()], f"task {self.step}")

    def get(self, checkpoint: str | None = None) -> dict[str, Any]:
        more = {"checkpoint_id": checkpoint} if checkpoint else {}
        found = self.saver.get_tuple(config(self.thread, **more))
        assert found is not None
        return found.checkpoint["channel_values"]


def message(n: int) -> AIMessage:
    return AIMessage(f"message {n} " + "x" * 300, id=f"id-{n}")


def size(path: Path) -> int:
    db = sqlite3.connect(path)
    try:
        pages, page = (db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "page_size"))
        return int(pages * page)
    finally:
        db.close()


def put_bytes(outside: Outside) -> int:
    """Bytes in all rows, without what pages waste."""
    columns = ("items.body", "checkpoints.body", "checkpoints.meta", "writes.body", "writes.path")
    sums = (f"SELECT sum(length({c})) AS n FROM {c.partition('.')[0]}" for c in columns)
    return int(outside.run(f"SELECT sum(n) FROM ({' UNION ALL '.join(sums)}) AS sums")[0][0])


@pytest.mark.sisters(3)
@pytest.mark.parametrize("make", [looping_graph, agent], ids=["graph", "create_agent"])
def test_bytes_per_step_do_not_grow(
    saver: SqlSaver, outside: Outside, make: Callable[..., Any]
) -> None:
    graph = make(saver, 200)
    given = {"messages": [HumanMessage("go", id="go")]}
    written: list[int] = []
    for _ in graph.stream(given, config(), durability="sync"):
        written.append(put_bytes(outside))
    assert len(written) >= 400
    steps = [b - a for a, b in itertools.pairwise(written)]
    first, last = sum(steps[20:120]), sum(steps[-100:])
    assert last <= 1.3 * first


def test_a_file_of_400_steps_is_small(saver: SqlSaver, path: Path) -> None:
    looping_graph(saver, 200).invoke({"messages": [HumanMessage("go", id="go")]}, config())
    assert size(path) < 2_000_000


def test_an_append_writes_one_item(saver: SqlSaver, counts: Counts) -> None:
    line = Line(saver)
    messages = [message(n) for n in range(50)]
    line.put(messages=messages)
    before = counts()["items"]
    line.put(messages=[*messages, message(50)])
    assert counts()["items"] - before <= 2  # the message, and the metadata once
    before = counts()["items"]
    line.put(messages=[*messages, message(50)])
    assert counts()["items"] == before


def edit(old: list[AnyMessage]) -> list[AnyMessage]:
    return [*old[:10], message(99), *old[11:]]


def rebuilt(old: list[AnyMessage]) -> list[AnyMessage]:
    return copy.deepcopy(old)


CHANGES: list[Any] = [
    pytest.param(lambda old: [*old, message(99)], 1, id="append"),
    pytest.param(edit, 1, id="edit"),
    pytest.param(lambda old: old[:7] + old[8:], 0, id="remove"),
    pytest.param(lambda old: old[15:], 0, id="trim"),
    pytest.param(lambda old: old[::-1], 0, id="reverse"),
    pytest.param(lambda old: [message(99), *old], 1, id="prepend"),
    pytest.param(lambda old: [], 0, id="clear"),
    pytest.param(lambda old: [*old, *old], 0, id="twice"),
    pytest.param(rebuilt, 0, id="copies of all"),
    pytest.param(lambda old: rebuilt(edit(old)), 1, id="copies with an edit"),
]


@pytest.mark.sisters(3)
@pytest.mark.parametrize("how", ["warm", "another saver", "another process's view"])
@pytest.mark.parametrize(("change", "new"), CHANGES)
def test_a_changed_list_is_right_and_shares(
    url: str, counts: Counts, change: Callable[[Any], Any], new: int, how: str
) -> None:
    old = [message(n) for n in range(20)]
    with SqlSaver.from_url(url) as first, SqlSaver.from_url(url) as second:
        line = Line(first)
        one = line.put(messages=old)
        line.put(messages=old)
        if how != "warm":
            line.saver = second
        if how == "another process's view":
            old = line.get()["messages"]
        before = counts()["items"]
        changed = change(old)
        two = line.put(messages=changed)
        assert counts()["items"] - before == new
        assert line.get(one)["messages"] == old
        assert line.get(two)["messages"] == changed
        third = line.put(messages=[*changed, message(100)])
        assert counts()["items"] - before == new + 1
        assert line.get(third)["messages"] == [*changed, message(100)]


def test_forks_share_with_their_parent(saver: SqlSaver, counts: Counts) -> None:
    line = Line(saver)
    base = [message(n) for n in range(30)]
    root = line.put(messages=base)
    before = counts()["items"]
    branches = {}
    for n in range(6):
        line.parent = root
        values = line.get(root)["messages"]
        branches[line.put(messages=[*values, message(100 + n)])] = n
    assert counts()["items"] - before <= 7
    for checkpoint, n in branches.items():
        assert line.get(checkpoint)["messages"] == [*base, message(100 + n)]


def test_a_dict_shares_per_key(saver: SqlSaver, counts: Counts) -> None:
    line = Line(saver)
    files = {f"file {n}": f"content {n} " + "x" * 200 for n in range(40)}
    one = line.put(files=files)
    before = counts()["items"]
    changed = {**files, "file 7": "other " + "y" * 200, "new": "z" * 100}
    two = line.put(files=changed)
    del (smaller := dict(changed))["file 3"]
    three = line.put(files=smaller)
    assert counts()["items"] - before <= 3
    for checkpoint, expected in ((one, files), (two, changed), (three, smaller)):
        assert list(line.get(checkpoint)["files"].items()) == list(expected.items())


def test_values_that_only_look_equal_are_kept_apart(saver: SqlSaver) -> None:
    line = Line(saver)
    first = [[1], ["a" * 99]]
    one = line.put(values=first, table={1: "x" * 99})
    two = line.put(values=[[True], first[1]], table={True: "x" * 99})
    assert type(line.get(one)["values"][0][0]) is int
    assert line.get(two)["values"][0][0] is True
    assert list(line.get(two)["table"]) == [True]
    assert type(next(iter(line.get(two)["table"]))) is bool


def test_a_list_that_grows_in_place_is_seen(saver: SqlSaver) -> None:
    line = Line(saver)
    growing = ["a" * 100]
    one = line.put(topic=growing)
    growing.append("b" * 100)
    two = line.put(topic=growing)
    assert line.get(one)["topic"] == ["a" * 100]
    assert line.get(two)["topic"] == ["a" * 100, "b" * 100]


def test_an_id_given_after_the_write_does_not_cost_a_copy(
    saver: SqlSaver, outside: Outside
) -> None:
    line = Line(saver)
    line.put(messages=[message(0)])
    late = ToolMessage("t" * 5_000, tool_call_id="c")
    here = config("t", checkpoint_ns="", checkpoint_id=line.parent)
    before = put_bytes(outside)
    saver.put_writes(here, [("messages", [late])], "task")
    late.id = "given-late"  # as add_messages does
    line.put(messages=[message(0), late])
    assert put_bytes(outside) - before < 7_000
    assert line.get()["messages"][1].id == "given-late"
    at = saver.get_tuple(here)
    assert at is not None
    assert at.pending_writes is not None
    assert at.pending_writes[0][2][0].id is None


def test_a_refused_value_leaves_nothing_behind(saver: SqlSaver, counts: Counts) -> None:
    line = Line(saver)
    line.put(messages=[message(0)])
    before = counts()
    with pytest.raises(Exception, match="cannot be stored"):
        line.put(messages=[message(0), message(1)], bad=object())
    assert counts() == before
    line.put(messages=[message(0), message(1)])
    assert line.get()["messages"] == [message(0), message(1)]


def no_rows(counts: dict[str, int], but: tuple[str, ...] = ()) -> bool:
    return not any(rows for table, rows in counts.items() if table not in but)


def test_deleting_leaves_no_row(saver: SqlSaver, counts: Counts) -> None:
    for thread in ("a", "b"):
        agent(saver).invoke({"messages": [HumanMessage("go")]}, config(thread))
    saver.delete_thread("a")
    assert_no_orphans(saver)
    assert saver.get_tuple(config("a")) is None
    assert saver.get_tuple(config("b")) is not None
    saver.delete_thread("b")
    assert no_rows(counts())


@pytest.mark.parametrize("how", ["delete", "sweep"])
def test_an_agents_and_a_servers_rows_go_with_their_thread(
    saver: SqlSaver, url: str, counts: Counts, how: str
) -> None:
    def act() -> str:
        """Act."""
        return "x" * 200

    with Agent(model=ScriptedModel([call("act"), "ok"]), tools=[act], store=url) as doing:
        doing.invoke("?", thread_id="t")
    row = saver.streams.begin("t", str(UUID(int=1)), {"agent": "a"})
    assert row is not None
    saver.streams.append(row, 1, [{"event": "done", "data": {}}], "done")
    before = counts()
    filled = ("calls", "leases", "streams", "events", "checkpoints", "writes", "items", "names")
    assert [table for table in filled if not before[table]] == []
    if how == "delete":
        saver.threads.delete("t")
    else:
        now = saver.clock()
        saver.clock = lambda: now + 7200
        assert saver.sweep() == ["t"]
    assert no_rows(counts())


def test_pruning_leaves_no_unused_item(saver: SqlSaver, counts: Counts) -> None:
    line = Line(saver)
    line.put(messages=[message(n) for n in range(30)], other=["o" * 200] * 3)
    kept = [message(n) for n in range(5)]
    line.put(messages=kept, other=["p" * 200])
    saver.prune(["t"])
    assert line.get() == {"messages": kept, "other": ["p" * 200]}
    assert counts()["checkpoints"] == 1
    assert counts()["items"] <= 7
    assert_no_orphans(saver)
    line.put(messages=[*kept, message(7)], other=["o" * 200])
    assert line.get()["messages"] == [*kept, message(7)]


def test_deleting_a_run_leaves_no_unused_item(saver: SqlSaver, counts: Counts) -> None:
    graph = agent(saver)
    for run in ("1", "2"):
        graph.invoke({"messages": [HumanMessage(run)]}, {**config(), "metadata": {"run_id": run}})
    saver.delete_for_runs(["1", "2"])
    assert no_rows(counts(), but=("threads", "names", "digests"))
    assert saver.get_tuple(config()) is None


def test_a_copied_thread_stands_on_its_own(saver: SqlSaver, counts: Counts) -> None:
    graph = agent(saver)
    graph.invoke({"messages": [HumanMessage("go", id="go")]}, config("a"))
    expected = [*saver.list(config("a"))]
    saver.copy_thread("a", "b")
    saver.delete_thread("a")
    assert_no_orphans(saver)
    copied = [*saver.list(config("b"))]
    assert [c.checkpoint for c in copied] == [c.checkpoint for c in expected]
    assert [c.metadata for c in copied] == [c.metadata for c in expected]
    assert [c.pending_writes for c in copied] == [c.pending_writes for c in expected]
    graph.invoke({"messages": [HumanMessage("more")]}, config("b"))
    saver.delete_thread("b")
    assert no_rows(counts())


def test_a_generation_that_changed_elsewhere_is_noticed(url: str) -> None:
    with SqlSaver.from_url(url) as first, SqlSaver.from_url(url) as second:
        line = Line(first)
        messages = [message(n) for n in range(10)]
        line.put(messages=messages)
        line.put(messages=messages[:2])
        second.prune(["t"])  # removes the items of messages 2 to 9
        again = line.put(messages=messages)
        assert line.get(again)["messages"] == messages
        second.delete_thread("t")
        line.parent = None
        last = line.put(messages=messages)
        assert line.get(last)["messages"] == messages


LONG = "A long text, the same at each step. " * 800


def surrounded(n: int, text: str = LONG) -> dict[str, Any]:
    """A value that is new at each step, but for the long text in it."""
    return {"system": [[f"step {n}", "hook"], [text, "hook"]], "stamp": [n, f"id-{n}"]}


def test_a_long_text_in_new_surroundings_is_stored_once(
    saver: SqlSaver, outside: Outside, counts: Counts
) -> None:
    line = Line(saver)
    put = [line.put(request=surrounded(n)) for n in range(50)]
    assert counts()["blobs"] == 1
    assert put_bytes(outside) < 150_000
    for n, checkpoint in enumerate(put):
        assert line.get(checkpoint)["request"] == surrounded(n)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"a": (LONG, [LONG + "x"])}, LONG], id="nested"),
        pytest.param({"a": {"b": {"c": [("é" * 400,)]}}}, id="bytes"),
        pytest.param({"a": {"k" * 600: [LONG]}}, id="key"),
        pytest.param({"a": ["\ud800" * 600, "\x00" * 600]}, id="odd"),
        pytest.param([LONG, [LONG]], id="element"),
    ],
)
def test_a_value_with_long_texts_comes_back_equal(saver: SqlSaver, url: str, value: Any) -> None:
    line = Line(saver)
    line.put(value=value)
    line.put(value=[value, [LONG]])
    assert line.get()["value"] == [value, [LONG]]
    with SqlSaver.from_url(url) as other:
        line.saver = other
        assert line.get()["value"] == [value, [LONG]]
        line.put(value=[[LONG], value])
        assert line.get()["value"] == [[LONG], value]


def test_long_texts_go_with_what_refers_to_them(saver: SqlSaver, counts: Counts) -> None:
    line = Line(saver)
    line.put(request=surrounded(0, LONG + "old"))
    line.put(request=surrounded(1))
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    assert counts()["blobs"] == 1 + 2
    assert line.get()["request"] == surrounded(1)
    line.put(request=surrounded(2, LONG + "old"))
    assert line.get()["request"] == surrounded(2, LONG + "old")
    saver.delete_thread("t")
    line.thread = "copy"
    assert line.get()["request"] == surrounded(1)
    saver.delete_thread("copy")
    assert no_rows(counts())


def test_a_text_that_is_missing_is_an_error(saver: SqlSaver, outside: Outside) -> None:
    line = Line(saver)
    line.put(request=surrounded(0))
    outside.run("DELETE FROM blobs")
    with pytest.raises(Exception, match="table blobs of thread 't' is damaged"):
        line.get()


@pytest.mark.parametrize("late", [("x", "y"), ("y",)])
def test_a_subgraphs_checkpoint_may_be_stored_before_its_graphs(
    saver: SqlSaver, late: tuple[str, ...]
) -> None:
    """LangGraph stores in the background; the order is that in which they were made."""
    made = {name: empty_checkpoint() for name in ("x", "y", "inner", "z")}
    outer, inner = config("t", checkpoint_ns=""), config("t", checkpoint_ns="in:1")

    def put(name: str) -> None:
        known: Any = {"source": "loop", "step": 1, "parents": {}}
        if name == "inner":
            known["parents"] = {"": made["y"]["id"]}
        parent = {"y": "x", "z": "y"}.get(name)
        at = dict(inner["configurable"] if name == "inner" else outer["configurable"])
        if parent:
            at["checkpoint_id"] = made[parent]["id"]
            saver.get_tuple({"configurable": at})
        saver._core.forks.allow(("t", ""), pack_id(made["x"]["id"]))
        saver.put({"configurable": at}, made[name], known, {})

    for name in ("x", "y"):
        if name not in late:
            put(name)
    for name in ("inner", *late, "z"):
        put(name)
    listed = [one.config["configurable"]["checkpoint_id"] for one in saver.list(config("t"))]
    assert listed == [made[name]["id"] for name in ("z", "inner", "y", "x")]
    head = saver.get_tuple(outer)
    assert head is not None
    assert head.checkpoint["id"] == made["z"]["id"]
    upto = config("t", checkpoint_id=made["y"]["id"])
    assert [*saver.list(inner, before=upto)] == []


def test_a_thread_remembers_its_latest_long_texts_and_no_others() -> None:
    """What no thread has is one object for all; a thread that has some has its own."""
    caches = [ThreadCache(number, 1) for number in (1, 2)]
    for number in range(40):
        caches[0].keep_text(f"{number}", b"hash")
    caches[0].note_unlearned([(1, 2)])
    caches[0].note_unlearned([(3, 4)])
    assert [*caches[0].texts_apart] == [f"{number}" for number in range(8, 40)]
    assert [*caches[0].unlearned] == [(1, 2), (3, 4)]
    assert not caches[1].texts_apart
    assert not caches[1].unlearned
    caches[0].rest()
    assert not caches[0].texts_apart
