"""When a step's commit may wait, and what is on disk before anything follows from it."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from tests.engine.support import Door
from tests.support.waiting import until
from wick_graph import Agent, BaseHook, SqlSaver, events, tool
from wick_graph.core.moments import Moment
from wick_graph.core.usage import Usage
from wick_graph.engine.streaming import QueueListener
from wick_graph.errors import RunCancelled
from wick_graph.testing import ScriptedModel, call, calls


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def saver(path: Path) -> Iterator[SqlSaver]:
    """A store in which nothing is written because time has passed."""
    with SqlSaver.from_url(f"sqlite:///{path}") as opened:
        opened._core._flusher.close()
        yield opened


def stored(path: Path, thread: str = "t") -> list[BaseMessage]:
    """What another program finds of a thread's messages."""
    with SqlSaver.from_url(f"sqlite:///{path}") as other:
        found = other.get_tuple({"configurable": {"thread_id": thread}})
    assert found is not None
    messages: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
    return messages


def in_ledger(path: Path) -> list[str]:
    """The states of the calls that another program finds."""
    db = sqlite3.connect(path)
    try:
        return [state for (state,) in db.execute("SELECT state FROM calls ORDER BY rid")]
    finally:
        db.close()


class Passing(BaseHook):
    """Stand around each call, and look before it is let through."""

    name = "passing"

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self.look()
        return next(call)


def counted(saver: SqlSaver, run: Callable[[int], object]) -> float:
    """Count the commits of a turn: those of a long run less those of a short one."""
    count = [0]

    def see(statement: str) -> None:  # on a slow machine a lease is renewed meanwhile
        renews = threading.current_thread().name == "wick-leases"
        count[0] += statement == "COMMIT" and not renews

    saver._core._connection.set_trace_callback(see)  # type: ignore[union-attr]  # it is SQLite's
    found = []
    for turns in (2, 12):
        before = count[0]
        run(turns)
        found.append(count[0] - before)
    return (found[1] - found[0]) / 10


@pytest.mark.parametrize(
    ("replay", "commits"),
    [pytest.param("never", 2, id="never"), pytest.param("safe", 1, id="safe")],
)
def test_commits_of_a_turn_that_nobody_is_told_of(
    saver: SqlSaver, door: Door, replay: Any, commits: int
) -> None:
    """An undeclared call: the reply with the call's intent, the result. A safe one: the reply."""

    def look(n: int) -> str:
        """Look."""
        return f"{n} found"

    def run(turns: int) -> None:
        model = ScriptedModel([*(call("look", n=n) for n in range(turns)), "done"])
        kept = tool(replay=replay)(look)
        door(Agent(model=model, tools=[kept], store=saver), "?", thread_id=f"t{turns}")

    assert round(counted(saver, run)) == commits  # a slow machine may put two into one


def test_an_agent_inside_a_call_says_nothing_of_the_step_around_it(
    saver: SqlSaver, door: Door
) -> None:
    """It shares the writer of the agent around it, which has a superstep of its own under way."""

    @tool(replay="never")
    def act() -> str:
        """Act."""
        return "acted"

    def run(turns: int) -> None:
        steps = [step for _ in range(turns) for step in (call("act"), "ok")]
        inner = Agent(name="inner", model=ScriptedModel(steps), tools=[act], store=saver)

        @tool(replay="never")
        def ask() -> str:
            """Ask the other agent, in this run's thread."""
            values = inner.graph.invoke({"messages": [("user", "?")]})
            return str(values["messages"][-1].text)

        model = ScriptedModel([*(call("ask") for _ in range(turns)), "done"])
        door(Agent(model=model, tools=[ask], store=saver), "?", thread_id=f"t{turns}")

    alone = 2  # as above: the reply with the call's intent, and the result
    inside = 4  # its input, its first step, its reply with an intent, the result
    assert counted(saver, run) < alone + inside + 0.5  # of two threads either may be the faster


@pytest.mark.parametrize("replay", ["never", "safe"])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_reply_is_durable_before_anything_that_it_calls_runs(
    saver: SqlSaver, path: Path, door: Door, replay: Any, hooked: bool
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def look() -> None:
        reply = stored(path)[-1]
        assert isinstance(reply, AIMessage)
        seen.append((str(reply.tool_calls[0]["id"]), in_ledger(path)))

    def work(n: int) -> str:
        """Work."""
        look()
        return "worked"

    model = ScriptedModel([call("work", n=1), call("work", n=2), "done"])
    hooks = [Passing(look)] if hooked else []
    kept = tool(replay=replay)(work)
    door(Agent(model=model, tools=[kept], hooks=hooks, store=saver), "?", thread_id="t")
    ids = [m.tool_calls[0]["id"] for m in stored(path) if isinstance(m, AIMessage) and m.tool_calls]
    assert [name for name, _ in seen] == [name for name in ids for _ in range(1 + hooked)]
    if replay == "never":
        assert [states for _, states in seen[hooked :: 1 + hooked]] == [
            ["intent"],
            ["done", "intent"],
        ]


def test_the_answer_is_durable_when_the_run_returns(
    saver: SqlSaver, path: Path, door: Door
) -> None:
    result = door(Agent(model=ScriptedModel(["forty-two"]), store=saver), "?", thread_id="t")
    assert stored(path)[-1].text == result.text == "forty-two"


def reads(agent: Agent, style: str, look: Callable[[events.Event], None]) -> None:
    if style == "stream":
        for event in agent.stream("?", thread_id="t"):
            look(event)
        return

    async def collect() -> None:
        async for event in agent.astream("?", thread_id="t"):
            look(event)

    asyncio.run(collect())


@pytest.mark.parametrize("style", ["stream", "astream"])
@pytest.mark.parametrize("replay", ["never", "safe"])
def test_whoever_reads_of_a_reply_or_a_result_finds_it_on_disk(
    saver: SqlSaver, path: Path, style: str, replay: Any
) -> None:
    def look(n: int) -> str:
        """Look."""
        return f"{n} found"

    seen: list[str] = []

    def check(event: events.Event) -> None:
        if isinstance(event, events.ChatModelEnd):
            replies = [str(m.text) for m in stored(path) if isinstance(m, AIMessage)]
            assert event.content in replies
            seen.append("reply")
        elif isinstance(event, events.ToolEnd):
            assert in_ledger(path).count("done") > seen.count("result")
            seen.append("result")

    model = ScriptedModel([calls(("look", {"n": 1}), text="let me see"), "it is one"])
    agent = Agent(model=model, tools=[tool(replay=replay)(look)], store=saver)
    reads(agent, style, check)
    assert seen == ["reply", "result", "reply"]


@pytest.mark.parametrize("style", ["stream", "astream"])
def test_nobody_is_told_of_a_reply_that_is_not_kept(saver: SqlSaver, style: str) -> None:
    class Breaking(BaseHook):
        name = "breaking"

        def after_model(self, message: Any, ctx: Any) -> Any:
            raise ValueError("no")

    seen: list[str] = []
    agent = Agent(model=ScriptedModel(["lost"]), hooks=[Breaking()], store=saver)
    reads(agent, style, lambda event: seen.append(event.event))
    assert "on_chat_model_end" not in seen
    assert seen[-1] == "error"


def test_a_reader_who_has_left_stops_a_run_that_goes_on_but_not_its_closing() -> None:
    """The last reply is told of when the run ends; a thread must come free all the same."""
    reply = Moment("model", "response", "m", {"reply": AIMessage("x"), "usage": Usage()})
    for later, stops in ((Moment("run", "exit"), False), (Moment("node", "enter"), True)):
        listener = QueueListener("run", "t", tokens=False)
        listener.record(reply)
        assert listener.events.empty()
        listener.closed = True
        with pytest.raises(RunCancelled) if stops else nullcontext():
            listener.record(later)


def test_an_ended_run_is_freed(saver: SqlSaver, door: Door) -> None:
    """A store that knows a thread keeps nothing of the runs in it, nor what they wrote."""
    found: list[weakref.ref[Any]] = []

    def look() -> str:
        """Look at the run's journal."""
        [lease] = saver.leases._held
        found.append(weakref.ref(lease.before_commit.__self__))  # type: ignore[union-attr]  # the run has a journal
        return "found"

    made = Agent(model=ScriptedModel([call("look"), "done"]), tools=[tool(look)], store=saver)
    assert door(made, "?", thread_id="t").text == "done"

    def is_freed() -> bool:
        gc.collect()
        return [one() for one in found] == [None]

    until(is_freed, "the run is freed")  # the store's thread may still be about to let go
    assert not saver._core.owed
