"""Messages that are kept between runs: never older than the head, and never anybody else's."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr
from typing_extensions import TypedDict

from tests.engine.warm_process import Adder, act, adding, shown
from tests.source import ROOT
from tests.store.encrypted import KEYS
from tests.support import forked
from tests.support.postgres import connected
from wick_graph import Agent, BaseHook, SqlSaver
from wick_graph.constants import WARM_BYTES
from wick_graph.errors import ConfigError, StorageError
from wick_graph.hooks import SummarizationHook
from wick_graph.models.resolve import ModelChoice
from wick_graph.store.verify import verify
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, calls

WAIT = 120.0


class Other:
    """A second process on the same store."""

    def __init__(self, url: str) -> None:
        line = [sys.executable, "-m", "tests.engine.warm_process", url]
        self.process = forked.Popen(line, cwd=ROOT, stdin=-1, stdout=-1, text=True)

    def do(self, what: str) -> None:
        """Let it do something, and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer == ("" if what == "die" else "ok\n")

    def end(self) -> None:
        self.process.communicate(timeout=WAIT)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    made = Other(f"sqlite:///{tmp_path / 't.db'}")
    yield made
    made.end()


def turn(agent: Agent, model: Adder, url: str, thread: str = "t", **cold: Any) -> None:
    """Take a turn, and compare what the model was sent with what another store reads."""
    before = len(model.seen)
    result = agent.invoke("hello", thread_id=thread)
    with SqlSaver.from_url(url, **cold) as saver:
        saved = saver.get_tuple({"configurable": {"thread_id": thread}})
    assert saved is not None
    held = saved.checkpoint["channel_values"]["messages"]
    sent = shown(held)
    assert model.seen[before:] == [sent[:-3], sent[:-1]]
    assert shown(result.messages) == sent
    assert [m.model_dump() for m in result.messages] == [m.model_dump() for m in held]


def kept(saver: SqlSaver) -> int:
    return len(saver._core.warm)


def test_what_another_process_did_between_two_turns(tmp_path: Path, other: Other) -> None:
    """It writes, edits, removes, forks, prunes, and makes the same thread again."""
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url) as saver:
        agent, model = adding(saver)
        for what in ("turn", "append", "edit", "fork", "turn", "remove", "again", "prune", "turn"):
            turn(agent, model, url)
            turn(agent, model, url)
            assert kept(saver) == 1
            other.do(what)
        turn(agent, model, url)


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_changes(tmp_path: Path, other: Other, seed: int) -> None:
    """From both processes, also within this one."""
    url, chance = f"sqlite:///{tmp_path / 't.db'}", random.Random(seed)
    with SqlSaver.from_url(url) as saver:
        agent, model = adding(saver)
        for _ in range(15):
            turn(agent, model, url)
            what = chance.choice(["turn", "append", "edit", "remove", "fork", "again", "prune"])
            if chance.random() < 0.5:
                other.do(what)
            else:
                act(agent, saver, what)


def test_a_process_that_dies_between_two_turns(tmp_path: Path, other: Other) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url) as saver:
        agent, model = adding(saver)
        turn(agent, model, url)
        turn(agent, model, url)
        other.do("die")
        assert other.process.wait(WAIT) == 9
        agent.resume("t")
        turn(agent, model, url)
        assert sum(message == "kill me" for _, message, _ in model.seen[-1]) == 1


def test_postgres(postgres_url: str) -> None:
    """The same, where other processes lock rows."""
    other = Other(postgres_url)
    with SqlSaver.from_url(postgres_url) as saver:
        agent, model = adding(saver)
        for what in ("turn", "edit", "again", "fork"):
            turn(agent, model, postgres_url)
            other.do(what)
        turn(agent, model, postgres_url)
    other.end()


def copied(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db, closing(sqlite3.connect(target)) as to:
        db.backup(to)


@pytest.mark.parametrize("others", range(3))
def test_a_backup_that_is_restored_below_a_process(tmp_path: Path, others: int) -> None:
    """Other messages are in the places of those that it has kept, or none are."""
    file, saved = tmp_path / "t.db", tmp_path / "saved.db"
    url = f"sqlite:///{file}"
    with SqlSaver.from_url(url) as saver, SqlSaver.from_url(url) as second:
        agent, model = adding(saver)
        turn(agent, model, url)
        copied(file, saved)
        turn(agent, model, url)
        turn(agent, model, url)
        copied(saved, file)
        for _ in range(others):
            adding(second)[0].invoke("hello", thread_id="t")
        turn(agent, model, url)
        assert verify(saver).is_whole


@pytest.mark.parametrize("others", range(2))
def test_the_same_on_postgres(postgres_url: str, others: int) -> None:
    with (
        SqlSaver.from_url(postgres_url) as saver,
        SqlSaver.from_url(postgres_url) as second,
        connected(postgres_url) as db,
    ):
        agent, model = adding(saver)
        turn(agent, model, postgres_url)
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = [Identifier(name) for (name,) in db.execute(query)]
        for n, table in enumerate(tables):
            db.execute(SQL("CREATE TEMP TABLE {} AS TABLE {}").format(Identifier(f"s{n}"), table))
        turn(agent, model, postgres_url)
        turn(agent, model, postgres_url)
        db.execute(SQL("TRUNCATE {}").format(SQL(", ").join(tables)))
        for n, table in enumerate(tables):
            text = "INSERT INTO {} OVERRIDING SYSTEM VALUE TABLE {}"
            db.execute(SQL(text).format(table, Identifier(f"s{n}")))
        for _ in range(others):
            adding(second)[0].invoke("hello", thread_id="t")
        turn(agent, model, postgres_url)
        assert verify(saver).is_whole


def test_an_encrypted_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        agent, model = adding(saver)
        for _ in range(3):
            turn(agent, model, url, keys=KEYS)


def test_tenants_with_the_same_thread(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with (
        SqlSaver.from_url(url, tenant="a") as one,
        SqlSaver.from_url(url, tenant="b") as two,
    ):
        (first, said), (second, heard) = adding(one), adding(two)
        turn(first, said, url, tenant="a")
        for _ in range(2):
            turn(first, said, url, tenant="a")
            turn(second, heard, url, tenant="b")
        assert len(heard.seen[-1]) == 7


# --- whose the messages are ----------------------------------------------------------------------


def spoil(messages: Any) -> None:
    """Change everything that can be reached."""
    for message in messages:
        message.content = "LEAK"
        message.additional_kwargs["LEAK"] = {}
        for call in getattr(message, "tool_calls", ()):
            call["args"]["LEAK"] = True
            call["name"] = "LEAK"


class Vandal(BaseHook):
    """Change all that a hook gets."""

    name = "vandal"

    def before_agent(self, state: Any, ctx: Any) -> None:
        spoil(state["messages"])

    def modify_request(self, request: Any, ctx: Any) -> Any:
        spoil(request.messages)
        spoil(request.base)
        return request

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        spoil(request.state["messages"])
        return next(request)

    def after_model(self, message: Any, ctx: Any) -> None:
        spoil([message])


class Handler(BaseCallbackHandler):
    """Change all that LangChain's callbacks get."""

    def on_chain_start(self, serialized: Any, inputs: Any, **_: Any) -> None:
        spoil(inputs.get("messages") or () if isinstance(inputs, dict) else ())


def _by_state(agent: Agent) -> None:
    spoil(agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"])


def _by_history(agent: Agent) -> None:
    for state in agent.graph.get_state_history({"configurable": {"thread_id": "t"}}):
        spoil(state.values.get("messages") or ())


def _by_result(agent: Agent) -> None:
    spoil(agent.invoke("hi", thread_id="t").messages)


def _by_slice(agent: Agent) -> None:
    messages = agent.invoke("hi", thread_id="t").messages
    spoil(messages[1:5])
    spoil([messages.pop()])
    spoil(reversed(messages))
    spoil(messages.__add__([]))
    spoil(list.__add__([], messages[:0]) + messages)
    spoil(sorted(messages, key=str))


def _by_graph(agent: Agent) -> None:
    at: Any = {"configurable": {"thread_id": "t"}}
    given = HumanMessage("hi", id="mine")
    spoil(agent.graph.invoke({"messages": [given]}, at)["messages"])
    spoil([given])


def _by_stream(mode: Any, **options: Any) -> Any:
    def by_stream(agent: Agent) -> None:
        at: Any = {"configurable": {"thread_id": "t"}}
        given: Any = {"messages": [("user", "hi")]}
        for chunk in agent.graph.stream(given, at, stream_mode=mode, **options):
            _spoil_deep(chunk)

    return by_stream


def _by_astream(agent: Agent) -> None:
    async def read() -> None:
        at: Any = {"configurable": {"thread_id": "t"}}
        given: Any = {"messages": [("user", "hi")]}
        async for chunk in agent.graph.astream(given, at, stream_mode=["values", "updates"]):
            _spoil_deep(chunk)

    asyncio.run(read())


def _by_events(agent: Agent) -> None:
    for event in agent.stream("hi", thread_id="t"):
        _spoil_deep(getattr(event, "__dict__", {}))
        _spoil_deep([getattr(event, name, None) for name in getattr(event, "__slots__", ())])


def _by_callbacks(agent: Agent) -> None:
    at: Any = {"configurable": {"thread_id": "t"}, "callbacks": [Handler()]}
    agent.graph.invoke({"messages": [("user", "hi")]}, at)


def _spoil_deep(value: Any) -> None:
    if isinstance(value, BaseMessage):
        spoil([value])
    elif isinstance(value, dict):
        for one in [*value.values()]:
            _spoil_deep(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _spoil_deep(one)


@pytest.mark.parametrize(
    "way",
    [
        *(_by_state, _by_history, _by_result, _by_slice, _by_graph, _by_astream, _by_events),
        *(_by_callbacks, *map(_by_stream, ("values", ["values", "updates"], "updates"))),
        *map(_by_stream, ("tasks", "debug", "checkpoints", ["values", "debug"])),
        *(_by_stream(mode, subgraphs=True) for mode in ("values", ["values", "updates"])),
        _by_stream(["values"], subgraphs=True, version="v2"),
        *(_by_stream(["values"], output_keys="messages", version=v) for v in ("v1", "v2")),
    ],
)
def test_nobody_changes_what_is_kept(tmp_path: Path, way: Any) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url) as saver:
        agent, model = adding(saver)
        for _ in range(3):
            turn(agent, model, url)
        way(agent)
        model.seen.clear()
        turn(agent, model, url)
        older = [said for said in model.seen[-1] if said[0] != "human"][:9]
        assert "LEAK" not in repr(older)


def test_tuples_of_ones_own_are_streamed_as_they_are(tmp_path: Path) -> None:
    given: list[Any] = [(), (1,), (1, 2), {"type": "values", "data": 1}]

    class Writing(BaseHook):
        name = "writing"

        def before_agent(self, state: Any, ctx: Any) -> None:
            list(map(get_stream_writer(), given))

    with SqlSaver.from_url(f"sqlite:///{tmp_path / 't.db'}") as saver:
        agent, _ = adding(saver, hooks=[Writing()])
        for _ in range(2):
            at: Any = {"configurable": {"thread_id": "t"}}
            asked: Any = {"messages": [("user", "hi")]}
            assert [*agent.graph.stream(asked, at, stream_mode="custom")] == given


def test_hooks_and_models_change_copies(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url) as saver:
        quiet, _ = adding(saver)
        quiet.invoke("hello", thread_id="t")
        agent, model = adding(saver, hooks=[Vandal()], vandal=True)
        for _ in range(3):
            agent.invoke("hello", thread_id="t")
            asyncio.run(agent.ainvoke("hello", thread_id="t"))
    assert len(model.seen) == 12
    assert "LEAK" not in repr(model.seen)


def test_a_foreign_graph_gets_its_own(tmp_path: Path) -> None:
    """It may change what it gets in place."""
    url = f"sqlite:///{tmp_path / 't.db'}"

    def node(state: Any) -> Any:
        spoil(state["messages"])
        return {"messages": [AIMessage("foreign")]}

    builder = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    with SqlSaver.from_url(url) as saver:
        agent, model = adding(saver)
        turn(agent, model, url)
        turn(agent, model, url)
        at: Any = {"configurable": {"thread_id": "t"}}
        foreign: Any = builder.compile(checkpointer=saver)
        foreign.invoke({"messages": [("user", "x")]}, at)
        turn(agent, model, url)
        assert "LEAK" not in repr(model.seen[-1][:8])


# --- how much is kept ----------------------------------------------------------------------------


@dataclass
class Order:
    """A class that only one agent's state names."""

    number: int


class Shop(TypedDict, total=False):
    """That agent's state."""

    order: Order


def test_a_class_that_only_the_next_agent_knows(tmp_path: Path) -> None:
    """What another agent read without the class is not kept for it."""
    url = f"sqlite:///{tmp_path / 't.db'}"
    told = HumanMessage("x", additional_kwargs={"order": Order(1)})
    with SqlSaver.from_url(url, allow=[Order]) as saver:
        at: Any = {"configurable": {"thread_id": "t"}}
        adding(saver)[0].graph.update_state(at, {"messages": [told]}, as_node="tools")
    read: list[Any] = []

    class Reading(BaseHook):
        name = "reading"

        def before_agent(self, state: Any, ctx: Any) -> None:
            read.append(state["messages"][0].additional_kwargs["order"])

    with SqlSaver.from_url(url) as saver:
        adding(saver, hooks=[Reading()])[0].invoke("hi", thread_id="t")
        knowing, _ = adding(saver, hooks=[Reading()], state_schema=Shop)
        for _ in range(2):
            knowing.invoke("hi", thread_id="t")
        assert kept(saver) == 1
    assert [type(one).__name__ for one in read] == ["StoredObject", "Order", "Order"]


def test_a_long_thread_is_read_as_it_was_stored_or_said_to_be_damaged(tmp_path: Path) -> None:
    """Messages are read in lists; each is checked, and what is unusual of one stays its own."""
    path = tmp_path / "t.db"
    stored = [
        HumanMessage(
            f"m{at}" if at % 40 else "long " * 300,
            id=f"{at:032}" if at % 50 else f"{at}",
            additional_kwargs={"odd": (at,)} if at % 64 == 63 else {},
        )
        for at in range(300)
    ]
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        at: Any = {"configurable": {"thread_id": "t"}}
        adding(saver)[0].graph.update_state(at, {"messages": stored}, as_node="tools")
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT rid, body FROM items ORDER BY rid").fetchall()
    found = [row for row in rows if any(mark in row[1] for mark in (b"m1", b"m129", b"m299"))]
    for rid, body in (found[0], found[len(found) // 2], found[-1]):
        copy = tmp_path / f"{rid}.db"
        copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy)) as db, db:
            db.execute("UPDATE items SET body = ? WHERE rid = ?", (body[:-1] + b"?", rid))
        said = pytest.raises(StorageError, match="table items of thread 't' is damaged")
        with SqlSaver.from_url(f"sqlite:///{copy}") as saver, said:
            adding(saver)[0].invoke("hello", thread_id="t")
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        agent, model = adding(saver)
        turn(agent, model, f"sqlite:///{path}")
        assert kept(saver) == 1


def test_none_is_kept_with_0(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url, warm_bytes=0) as saver:
        agent, model = adding(saver)
        for _ in range(3):
            turn(agent, model, url)
        assert kept(saver) == 0


def test_bytes_bound_what_is_kept(tmp_path: Path) -> None:
    """Long texts, which are stored apart, count too; the thread that was used least goes first."""
    url = f"sqlite:///{tmp_path / 't.db'}"
    with SqlSaver.from_url(url, warm_bytes=12_000) as saver:
        agent, _ = adding(saver)
        for _ in range(2):
            for name in ("a", "b", "c"):
                agent.invoke("x" * 5_000, thread_id=name)
        assert 0 < saver._core.warm.size <= 12_000
        assert list(saver._core.warm._kept) == [b"b", b"c"]
        for _ in range(3):
            agent.invoke("x" * 5_000, thread_id="b")
        assert kept(saver) == saver._core.warm.size == 0, "a thread that is too large is not kept"


def test_models_made_for_each_call_do_not_pile_up(tmp_path: Path) -> None:
    """What is known of a thread's messages holds the models that it is for."""

    class Choosing(BaseHook):
        name = "choosing"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            made = Claude(
                model_name="claude-haiku-4-5", timeout=None, stop=None, api_key=SecretStr("none")
            )
            return next(
                replace(request, model=ModelChoice(model=made, name="claude", context_window=1_000))
            )

    class Claude(ChatAnthropic):
        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("hi"))])

    with SqlSaver.from_url(f"sqlite:///{tmp_path / 't.db'}") as saver:
        agent, _ = adding(saver, hooks=[Choosing()])
        for _ in range(40):
            agent.invoke("hello", thread_id="t")
        (held,) = agent.graph.spec.caches.values()
    assert 0 < len(held.fittings) <= 16


def test_a_wrong_number_of_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="warm_bytes is a number of bytes, 0 for none, not -1"):
        SqlSaver.from_url(f"sqlite:///{tmp_path / 't.db'}", warm_bytes=-1)


def test_a_warm_turn_costs_what_is_new(tmp_path: Path) -> None:
    """Calls of functions, in the cheapest of three turns: what waits may be written between."""
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 't.db'}") as saver:
        agent, _ = adding(saver)
        counts = []
        for name, size in (("short", 20), ("long", 1_000)):
            at: Any = {"configurable": {"thread_id": name}}
            told = [HumanMessage("x") if i % 2 else AIMessage("y") for i in range(size)]
            agent.graph.update_state(at, {"messages": told}, as_node="model")
            for _ in range(3):
                agent.invoke("hello", thread_id=name)
            asks = partial(agent.invoke, "hello", thread_id=name)
            counts.append(min(_calls_of(asks) for _ in range(3)))
    assert counts[1] <= 1.15 * counts[0]


def _calls_of(work: Any) -> int:
    made = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


# --- what agents do to their own threads ---------------------------------------------------------


def _summarising(saver: SqlSaver) -> tuple[Agent, Adder]:
    summaries = FakeListChatModel(responses=["what was said"])
    return adding(saver, hooks=[SummarizationHook(600, summaries)])


def _delegating(saver: SqlSaver) -> tuple[Agent, Adder]:
    inner, model = adding(saver)
    outer = ScriptedModel(
        [calls(("delegate_to_agent", {"agent": "inner", "task": "go"})), "done"] * 6
    )
    tool = delegation({"inner": Subagent(inner, "Does it.")})
    return Agent("outer", outer, tools=[tool], store=saver), model


class Removing(BaseHook):
    """Remove the oldest turn at the beginning of each run."""

    name = "removing"

    def before_agent(self, state: Any, ctx: Any) -> Any:
        if len(state["messages"]) > 8:
            return {"messages": [RemoveMessage(id=m.id) for m in state["messages"][:4]]}
        return None


def _removing(saver: SqlSaver) -> tuple[Agent, Adder]:
    return adding(saver, hooks=[Removing()])


@pytest.mark.parametrize("build", [_summarising, _delegating, _removing])
def test_kept_or_not_models_read_the_same(tmp_path: Path, build: Any) -> None:
    seen = []
    for size in (0, WARM_BYTES):
        with SqlSaver.from_url(f"sqlite:///{tmp_path / f'{size}.db'}", warm_bytes=size) as saver:
            agent, model = build(saver)
            results = [agent.invoke(f"hello {n} " * 100, thread_id="t") for n in range(6)]
            assert kept(saver) == bool(size)
            seen.append((model.seen, [shown(result.messages) for result in results]))
    without, kept_too = (re.sub('id="[0-9a-f]+"', "", repr(one)) for one in seen)
    assert without == kept_too
    assert ("what was said" in repr(seen)) == (build is _summarising)
