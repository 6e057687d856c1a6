"""The shorter loop does what LangGraph's does, and serves only what it was compared with."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import re
import signal
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Annotated, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, EphemeralValue, Topic
from langgraph.channels.last_value import LastValueAfterFinish
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import _loop
from langgraph.pregel import main as pregel
from langgraph.runtime import RunControl
from langgraph.types import Command, Overwrite, RetryPolicy, interrupt
from typing_extensions import TypedDict

from tests.engine.lean_cases import (
    Ear,
    Numbered,
    World,
    case_of,
    killed_case,
    plain,
    seen,
    twice,
)
from tests.engine.support import Door, add, agent_of
from tests.support import forked
from tests.support.often import often
from wick_graph import Agent, BaseHook, SqlSaver, ToolContext, ToolResult, tool
from wick_graph.core.state import AgentState
from wick_graph.engine import pinned
from wick_graph.engine.channels import FastReducerChannel
from wick_graph.engine.graph import AgentGraph, RunGraph
from wick_graph.engine.lean_saves import IN_A_ROW, AsyncExecutor
from wick_graph.hooks import Tripwire
from wick_graph.langgraph_config import RUN
from wick_graph.runtime.context import Run
from wick_graph.store.saver import Direct
from wick_graph.testing import ScriptedModel, call, calls

Served = Callable[[], int]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Count the steps that the shorter loop has prepared."""
    agent_of("warm")[0].invoke("?")  # loads the module
    loop, count = pinned._found["lean"].LeanLoop, [0]
    original = loop._next_tasks

    def counting(self: Any) -> Any:
        made = original(self)
        count[0] += made is not None
        return made

    monkeypatch.setattr(loop, "_next_tasks", counting)
    return lambda: count[0]


# --- Both ways.


def assert_both_do_the_same(case: Any, seed: int | None = None) -> None:
    """Compare both loops, but for the number of items and of blobs: those of one loop vary too.

    A write that is stored before its message gets an id takes an item of its own. A traceback that
    is like another one takes no blob; each loop's tracebacks name its own functions.
    """
    ours, theirs = seen(case, lean=True), seen(case, lean=False)
    assert without_counts(ours) == without_counts(theirs), (seed, case)


def without_counts(found: list[str]) -> list[str]:
    """Leave the numbers of items and blobs out of what was seen."""
    varies = r"'(items|blobs)': \d+"
    return [re.sub(varies, "", one) if "'rows'" in one[:10] else one for one in found]


@settings(max_examples=often(200), deadline=None)
@given(st.randoms(use_true_random=False))
def test_both_loops_do_the_same(chance: Random) -> None:
    assert_both_do_the_same(case_of(chance))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_both_loops_do_the_same_ten_thousand_times(first: int) -> None:
    for seed in range(first, first + 500):
        assert_both_do_the_same(case_of(Random(seed)), seed)


def die_and_go_on(seed: int, folder: Path, lean: str, state: str) -> Any:
    """Return how the first process ended, and what the second one saw."""
    url = f"sqlite:///{folder}/{seed}-{lean}-{state}.db"
    args = [sys.executable, "-m", "tests.engine.lean_cases", str(seed), url, lean, state]
    ended = forked.run(args, capture_output=True, timeout=60)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    flushed = state == "flushed"
    rest = seen(
        killed_case(seed), lean=lean == "on", url=url, turns=slice(1, None), flushed=flushed
    )
    return ended.returncode, rest


@pytest.mark.parametrize("state", ["flushed", "waiting"])
@pytest.mark.parametrize(
    "seed", [1, 4, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 200))]
)
def test_a_killed_process_leaves_the_same(seed: int, state: str, tmp_path: Path) -> None:
    assert die_and_go_on(seed, tmp_path, "on", state) == die_and_go_on(seed, tmp_path, "off", state)


def test_tools_of_one_reply_run_at_the_same_time(served: Served) -> None:
    gate: list[asyncio.Event] = []

    async def meet(n: int) -> str:
        """Wait until two have come."""
        gate.append(asyncio.Event())
        if len(gate) == 2:
            for event in gate:
                event.set()
        await gate[n].wait()
        return "met"

    agent, _ = agent_of(calls(("meet", {"n": 0}), ("meet", {"n": 1})), "done", tools=[meet])
    assert asyncio.run(agent.ainvoke("?")).text == "done"
    assert served() > 0


class Own(TypedDict, total=False):
    """Channels that a step changes without a write to them, and one that it does not."""

    once: Annotated[str, EphemeralValue]
    topic: Annotated[list[str], Topic(str)]
    log: Annotated[list[str], operator.add]
    late: Annotated[str, LastValueAfterFinish]


def joined(old: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*old, *(line for write in writes for line in write)]


class Log(TypedDict, total=False):
    """A channel that LangGraph makes of all its writes."""

    log: Annotated[list[str], DeltaChannel(joined)]


@tool
def note(text: str, ctx: ToolContext) -> ToolResult:
    """Note a text."""
    more = {"once": text, "topic": text} if text == "one" else {}
    return ToolResult(ctx.call_id, ctx.name, "ok", update={"log": [text], **more})


class Noting(BaseHook):
    """Note a text before the first step, which may be the last that changes the state."""

    name = "noting"

    def before_agent(self, state: Any, ctx: Any) -> Any:
        return {"once": "first", "topic": "first", "late": "first"}


class Refusing(BaseHook):
    """Refuse a question."""

    name = "refusing"

    def before_agent(self, state: Any, ctx: Any) -> Any:
        raise Tripwire("no")


DOORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "invoke": lambda graph, given, config: graph.invoke(given, config),
    "ainvoke": lambda graph, given, config: asyncio.run(graph.ainvoke(given, config)),
    "stream": lambda graph, given, config: [
        *graph.stream(given, config, stream_mode=["updates", "values"])
    ],
}


def states_of(way: str, hooks: list[BaseHook]) -> tuple[list[str], Any]:
    """Return what a door gives for two turns, and what is in the thread then."""
    script: Any = [call("note", text="one"), call("note", text="two"), "Done.", "Again."]
    options: Any = {"state_schema": Own, "store": "sqlite://", "hooks": hooks}
    graph = Agent(model=ScriptedModel(script), tools=[note], **options).graph
    config: Any = {"configurable": {"thread_id": "t"}}
    given = [{"messages": [HumanMessage(text, id=text)]} for text in "ab"]
    found = Numbered().all([plain(DOORS[way](graph, one, config)) for one in given])
    return found, {**graph.get_state(config).values, "messages": ()}


@pytest.mark.parametrize("hooks", [[Noting()], [Noting(), Refusing()]], ids=["run", "refused"])
@pytest.mark.parametrize("way", DOORS)
def test_a_channel_of_the_users_own_is_the_same(
    way: str, hooks: list[BaseHook], served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, kept = states_of(way, hooks)
    assert served() > 0
    monkeypatch.setitem(pinned.switch, "lean", False)
    assert (found, kept) == states_of(way, hooks)
    if len(hooks) > 1:
        assert "'once': 'first'" in found[0], "of the last step that changed the state"
        assert "once" not in kept


def test_a_channel_made_of_all_its_writes_is_not_served(door: Door, served: Served) -> None:
    script: Any = [call("note", text="two"), "Done."]
    agent = Agent(model=ScriptedModel(script), tools=[note], state_schema=Log)
    assert door(agent, "?", thread_id="t").text == "Done."
    assert agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["log"] == ["two"]
    assert served() == 0


def test_a_channel_that_was_made_of_its_writes_goes_on_as_a_sum(door: Door) -> None:
    class Sum(TypedDict, total=False):
        log: Annotated[list[str], operator.add]

    class Saying(BaseHook):
        name = "saying"

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return {"log": ["said"]}

    with SqlSaver.from_url("sqlite://") as saver:
        for schema in (Log, Sum, Sum):
            options: Any = {"state_schema": schema, "store": saver, "hooks": [Saying()]}
            agent = Agent(model=ScriptedModel(["Done."] * 3), **options)
            assert door(agent, "?", thread_id="t").text == "Done."
        held = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["log"]
    assert held == ["said"] * 3


class Texts(list[str]):
    """A list of one's own."""


@pytest.mark.parametrize(
    "value",
    [["b"], ("b",), Texts(["b"]), [], None, Overwrite(["b"]), {"__overwrite__": ["b"]}, {"b": 1}],
    ids=repr,
)
@pytest.mark.parametrize("held", [["a"], None], ids=repr)
def test_a_reducer_gets_what_langgraph_gives_it(value: Any, held: Any) -> None:
    def reduced(channel: Any, *values: Any) -> Any:
        channel.key = "log"
        if held is not None:
            channel = channel.from_checkpoint(list(held))
        return channel.update(list(values)), channel.get()

    def join(old: Any, new: Any) -> Any:
        return [old, new]

    for values in ([value], [value, ["c"]], [["c"], value]):
        theirs = reduced(BinaryOperatorAggregate(list, join), *values)
        assert reduced(FastReducerChannel(list, join), *values) == theirs


class _Loop:
    """What gives its checkpoints to an executor."""

    def __init__(self, saver: SqlSaver) -> None:
        self.checkpointer = saver

    def _checkpointer_put_after_previous(self) -> None:
        raise AssertionError("it is saved directly")


async def test_what_is_written_behind_a_checkpoint_is_saved_behind_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(Direct, "checkpoint", lambda *args: saved.append(args[3]))
    monkeypatch.setattr(Direct, "writes", lambda *args: saved.append(args[1]))
    with SqlSaver.from_url("sqlite://") as saver:
        executor = AsyncExecutor({})
        executor.submit(saver.aput_writes, "before")
        assert saved == ["before"]
        put, many = _Loop(saver)._checkpointer_put_after_previous, IN_A_ROW
        for number in range(many):
            assert executor.submit(put, None, (), {}, number, {}).done()
        executor.submit(
            put, None, (), {}, "a checkpoint", {}
        )  # others of the loop get a turn first
        last = executor.submit(saver.aput_writes, "behind")
        assert saved == ["before", *range(many)]
        await last
        executor.submit(saver.aput_writes, "after")
        assert executor.submit(put, None, (), {}, "the next", {}).done()
    assert saved == ["before", *range(many), "a checkpoint", "behind", "after", "the next"]


@pytest.mark.parametrize(("observed", "most"), [(False, 2), (True, 0)], ids=["alone", "read"])
async def test_beside_others_few_checkpoints_are_saved_without_a_turn_of_the_loop(
    observed: bool, most: int, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(Direct, "checkpoint", lambda *args: saved.append(args[3]))
    config: Any = {"configurable": {RUN: Run(observed=observed)}}
    with SqlSaver.from_url("sqlite://") as saver:
        executor, put = AsyncExecutor(config), _Loop(saver)._checkpointer_put_after_previous
        for _ in range(2):
            saved.clear()
            asyncio.get_running_loop().call_soon(saved.append, "another")
            for number in range(most):
                assert executor.submit(put, None, (), {}, number, {}).done()
            await executor.submit(put, None, (), {}, "in its turn", {})
            assert saved == [*range(most), "another", "in its turn"]


async def test_a_run_that_is_cancelled_saves_its_next_checkpoint_in_its_turn(
    served: Served,
) -> None:
    """As LangGraph's task would: so the run ends there, and no later node begins."""
    later: list[str] = []

    class Cancelling(BaseHook):
        async def modify_request(self, request: Any, ctx: Any) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return request

        async def wrap_model_call(self, request: Any, next: Any) -> Any:
            later.append("model")
            return await next(request)

    with SqlSaver.from_url("sqlite://") as saver:
        agent, _ = agent_of("Done.", hooks=[Cancelling()], store=saver)
        with contextlib.suppress(asyncio.CancelledError):
            await agent.ainvoke("?", thread_id="t")
    assert served() > 0
    assert not later


async def test_the_input_is_stored_with_the_ids_of_its_messages(tmp_path: Path) -> None:
    """A stream tells of each step, so the input is saved at once: by then its messages have ids."""
    at: Any = {"configurable": {"thread_id": "t"}}
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/ids.db") as saver:
        agent, _ = agent_of(*["Done."] * 10, store=saver)
        for number in range(10):
            said = {"messages": [HumanMessage(f"{number}")]}
            async for _ in agent.graph.astream(said, at, stream_mode="updates"):
                pass
        state = await agent.graph.aget_state(at)
        ids = {message.content: message.id for message in state.values["messages"]}
        stored = [
            message
            async for saved in saver.alist(at)
            for message in saved.checkpoint["channel_values"].get("__start__", {"messages": ()})[
                "messages"
            ]
        ]
    assert len(stored) == 10
    assert [message.id for message in stored] == [ids[message.content] for message in stored]


# --- What is served, and what is not.


def test_a_turn_is_served(door: Door, served: Served) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "3")
    assert door(agent, "?").text == "3"
    assert served() == 8  # the input, six steps, and the end


@pytest.mark.parametrize("heard", [False, True])
async def test_a_run_without_handlers_ends_without_tasks(heard: bool) -> None:
    loop, made = asyncio.get_running_loop(), list[str]()

    def noting(loop: Any, coro: Any, **given: Any) -> Any:
        made.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop, **given)

    graph: Any = agent_of("3", "4")[0].graph
    ear = Ear(World(case_of(Random(0)), flushed=False))
    given: Any = {"messages": [("user", "?")]}
    await graph.ainvoke(given)
    loop.set_task_factory(noting)
    try:
        await graph.ainvoke(given, {"callbacks": [ear] if heard else []})
    finally:
        loop.set_task_factory(None)
    ends = [name for name in made if name.endswith(("on_chain_end", "__aexit__"))]
    assert (ends.count("AsyncExitStack.__aexit__"), len(ends) > 1) == (0, heard)
    assert ("chain ends" in ear.world.notes) == heard


def test_a_handler_gets_the_whole_way(door: Door, served: Served) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "3")
    ear = Ear(World(case_of(Random(0)), flushed=False))
    assert door(agent, "?", config={"callbacks": [ear]}).text == "3"
    assert served() == 0
    assert "chain ends" in ear.world.notes


@pytest.mark.parametrize(
    "options",
    [
        {"interrupt_before": ["tools"]},
        {"interrupt_after": "*"},
        {"durability": "async"},
        {"durability": "exit"},
        {"stream_mode": "debug"},
        {"stream_mode": ["values", "tasks"]},
        {"stream_mode": "messages"},
        {"print_mode": "values"},
        {"subgraphs": True},
        {"something_new": 1},
    ],
    ids=str,
)
def test_what_is_not_compared_is_not_served(options: dict[str, Any]) -> None:
    graph: Any = agent_of("3")[0].graph
    assert pinned.lean_for(graph, {}, {}) is not None
    assert pinned.lean_for(graph, {}, options) is None


@pytest.mark.parametrize(
    "options", [{"durability": "sync"}, {"stream_mode": "custom"}, {"control": RunControl()}]
)
def test_what_is_compared_is_served(options: dict[str, Any]) -> None:
    assert pinned.lean_for(agent_of("3")[0].graph, {}, options) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry_policy", (RetryPolicy(),)),
        ("step_timeout", 1.0),
        ("interrupt_before_nodes", ["tools"]),
        ("cache", object()),
    ],
)
def test_a_graph_with_extras_is_not_served(name: str, value: Any) -> None:
    graph: Any = agent_of("3")[0].graph.copy()
    setattr(graph, name, value)
    assert pinned.lean_for(graph, {}, {}) is None


def test_a_reserved_key_is_not_served() -> None:
    graph: Any = agent_of("3")[0].graph
    config = {"configurable": {"__pregel_runner_submit": print}}
    assert pinned.lean_for(graph, config, {}) is None


def test_an_agent_in_another_graph_is_not_served(served: Served) -> None:
    outer: Any = StateGraph(AgentState)
    outer.add_node("agent", agent_of(call("add", a=1, b=2), "3")[0].graph)
    outer.add_edge(START, "agent")
    outer.add_edge("agent", END)
    made = outer.compile().invoke({"messages": [("user", "?")]})
    assert made["messages"][-1].text == "3"
    assert served() == 0


@pytest.mark.parametrize("where", ["release", "source", "function"])
def test_another_langgraph_runs_its_own_loop(
    where: str, door: Door, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "_found", {} if where != "function" else dict(pinned._found))
    if where == "release":
        monkeypatch.setattr(pinned, "RELEASES", frozenset({"1.2.21"}))
        monkeypatch.setitem(pinned._USED, "_loop", ("PregelLoop.gone",))
    elif where == "source":
        monkeypatch.setitem(pinned.SOURCES, "langgraph.pregel._loop", "0" * 16)
    else:
        own = pregel._output
        monkeypatch.setattr(pregel, "_output", lambda *args, **kwargs: own(*args, **kwargs))
    agent, _ = agent_of(call("add", a=1, b=2), "3")
    assert door(agent, "?").text == "3"
    assert served() == 0


# --- A stream of messages alone: LangGraph's own loop, whose pieces are put at once.


async def pieces_of(agent: Agent, **options: Any) -> list[Any]:
    """Return the chunks of a run, without what differs from run to run."""
    given = {"messages": [("user", "?")]}
    found = []
    async for chunk, about in agent.graph.astream(given, stream_mode="messages", **options):
        node = about["langgraph_node"], about["langgraph_step"]
        found.append((type(chunk).__name__, chunk.content, node))
    return found


@pytest.mark.parametrize("delay", [None, 0.001])
def test_a_stream_of_messages_is_the_same(
    delay: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> list[Any]:
        inner = ScriptedModel(["told in a thread", "and again"])

        def ask(n: int) -> str:
            """Ask another model in the thread of a tool."""
            return str(inner.invoke(f"{n}").content)

        script: Any = [
            call("ask", n=1),
            calls(("ask", {"n": 2}), text="Once more"),
            "It is done now",
        ]
        model = ScriptedModel(script, chunk_delay=delay)
        return asyncio.run(pieces_of(Agent(model=model, tools=[ask], store=False)))

    served, used = made(), pinned.lean_for_messages({"stream_mode": "messages"})
    assert used is not None
    monkeypatch.setitem(pinned.switch, "lean", False)
    assert pinned.lean_for_messages({"stream_mode": "messages"}) is None
    assert served == made()
    assert "".join(text for _, text, (node, _) in served if node == "tools") != ""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stream_mode": ["messages", "custom"]},
        {"stream_mode": "messages", "subgraphs": True},
        {"stream_mode": "messages", "print_mode": "messages"},
    ],
    ids=str,
)
def test_other_streams_of_messages_are_langgraphs(options: dict[str, Any]) -> None:
    assert pinned.lean_for_messages(options) is None


def test_nothing_of_langgraph_is_replaced(served: Served) -> None:
    assert pinned.is_release()
    assert pinned.is_own(pinned.in_use())
    assert pinned.in_use() == pinned._found["in_use"]


def test_a_function_that_makes_checkpoints_may_be_replaced(
    door: Door, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, made = vars(_loop)["create_checkpoint"], list[Any]()

    def noting(*args: Any, **kwargs: Any) -> Any:
        made.append(own(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(_loop, "create_checkpoint", noting)
    assert door(agent_of("3")[0], "?").text == "3"
    assert (served(), bool(made)) == (0, True)


def test_what_is_replaced_for_a_time_is_served_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may record other graphs before its first agent runs."""
    graph: Any = agent_of("3")[0].graph
    monkeypatch.setattr(pinned, "_found", {})
    with monkeypatch.context() as while_recorded:
        while_recorded.setattr(pregel, "_output", lambda *args, **kwargs: None)
        assert pinned.lean_for(graph, {}, {}) is None
    assert pinned.lean_for(graph, {}, {}) is not None


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (pregel.Pregel, ("invoke", "ainvoke")),
        (CompiledStateGraph, ("invoke", "ainvoke")),
        (RunGraph, ("invoke", "ainvoke")),
        (RunGraph, ("stream", "astream")),
    ],
)
def test_an_invoke_that_a_library_has_replaced_is_called(
    where: Any, names: tuple[str, ...], door: Door, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools that trace or bill wrap LangGraph's own; the loop inside is served as ever."""
    asked: list[Any] = []

    def wrapped(own: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            asked.append(args[1])
            return own(*args, **kwargs)

        return wrapper

    with monkeypatch.context() as while_traced:
        for name in names:
            while_traced.setattr(where, name, wrapped(getattr(where, name)))
        assert door(agent_of(call("add", a=1, b=2), "3")[0], "?").text == "3"
        assert (len(asked), served() > 0) == (1, True)
    assert door(agent_of("3")[0], "?").text == "3"
    assert len(asked) == 1


def test_a_graph_with_a_stream_of_its_own_is_asked_by_it() -> None:
    """As LangGraph's `invoke` does: of an object, or of a class."""
    asked: list[str] = []

    class Own(AgentGraph):
        def stream(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("class")
            return super().stream(*args, **kwargs)

    graph: Any = agent_of("3")[0].graph
    own = graph.stream

    def stream(*args: Any, **kwargs: Any) -> Any:
        asked.append("object")
        return own(*args, **kwargs)

    graph.stream = stream
    given = {"messages": [("user", "?")]}
    assert graph.invoke(given)["messages"][-1].text == "3"
    del graph.stream
    graph.__class__ = Own
    assert graph.copy().invoke(given)["messages"][-1].text == "3"
    assert asked == ["object", "class"]


async def test_a_run_whose_coroutine_is_closed_ends_without_waiting() -> None:
    graph = agent_of("3")[0].graph
    run = graph.ainvoke({"messages": [("user", "?")]}, {"configurable": {"thread_id": "t"}})
    run.send(None)
    run.close()


def test_a_saver_with_its_own_put_is_asked(door: Door, tmp_path: Path, served: Served) -> None:
    class Counting(SqlSaver):
        puts = 0

        def put(self, *args: Any, **kwargs: Any) -> Any:
            self.puts += 1
            return super().put(*args, **kwargs)

        async def aput(self, *args: Any, **kwargs: Any) -> Any:
            self.puts += 1
            return await super().aput(*args, **kwargs)

    with Counting.from_url(f"sqlite:///{tmp_path}/s.db") as saver:
        agent = Agent(model=agent_of(call("add", a=1, b=2), "3")[1], tools=[add], store=saver)
        assert door(agent, "?").text == "3"
        assert saver.puts == 8
    assert served() == 8


class AskAfterTask(BaseHook):
    """A hook that asks once a tool has answered, when a task of its own is done."""

    def modify_request(self, request: Any, ctx: Any) -> Any:
        """Start a task, wait for it, and ask."""
        if len(ctx.state["messages"]) > 1:
            interrupt({"n": twice(2).result()})
        return request


def test_an_interrupt_leaves_the_checkpoint_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """LangGraph applies the writes of what was interrupted, for a last state; none is stored."""
    config: Any = {"configurable": {"thread_id": "t"}}
    given, original = list[tuple[Any, Any]](), Direct.checkpoint

    def noting(self: Any, behind: Any, at: Any, checkpoint: Any, *rest: Any) -> Any:
        given.append((checkpoint["versions_seen"], deepcopy(checkpoint["versions_seen"])))
        return original(self, behind, at, checkpoint, *rest)

    monkeypatch.setattr(Direct, "checkpoint", noting)
    with SqlSaver.from_url("sqlite://") as saver:
        made = agent_of(call("add", a=1, b=2), "3", hooks=[AskAfterTask()], store=saver)[0]
        found = made.graph.invoke({"messages": [("user", "?")]}, config)
        assert [one.value for one in found["__interrupt__"]] == [{"n": 4}]
        assert len(given) > 1
        assert all(now == then for now, then in given), "what waits for its commit has changed"
        assert made.graph.get_state(config).next == ("modify_request",)
        found = made.graph.invoke(Command(resume="now"), config)
    assert found["messages"][-1].content == "3"


class Keeping(InMemorySaver):
    """A saver that keeps checkpoints as they are given, and gives them again."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.kept[checkpoint["id"]] = checkpoint
        return super().put(config, checkpoint, metadata, new_versions)

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        return found and found._replace(checkpoint=self.kept[found.checkpoint["id"]])


class AskEachTime(BaseHook):
    """A hook that asks before each call of the model."""

    def modify_request(self, request: Any, ctx: Any) -> Any:
        """Ask."""
        interrupt("?")
        return request


def test_a_resume_leaves_the_checkpoints_before_it(served: Served) -> None:
    saver, config = Keeping(), cast("Any", {"configurable": {"thread_id": "t"}})
    made = agent_of(call("add", a=1, b=2), call("add", a=1, b=2), "3", hooks=[AskEachTime()])[0]
    made.graph.checkpointer = saver
    made.graph.invoke({"messages": [("user", "?")]}, config)
    for _ in range(3):
        before = {one: deepcopy(kept["versions_seen"]) for one, kept in saver.kept.items()}
        head = max(before)
        found = made.graph.invoke(Command(resume="yes"), config)
        changed = [one for one, seen in before.items() if saver.kept[one]["versions_seen"] != seen]
        assert set(changed) <= {head}
    assert found["messages"][-1].content == "3"
    assert served() > 0


class Spoiling(InMemorySaver):
    """A saver that takes apart what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[list[str]] = []

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        taken = dict(new_versions.popitem() for _ in range(len(new_versions)))
        self.told.append(sorted(taken))
        made = super().put(config, deepcopy(checkpoint), deepcopy(metadata), taken)
        for part in ("channel_versions", "channel_values", "versions_seen"):
            checkpoint[part].clear()
        return made


def test_a_saver_may_take_apart_what_it_is_given(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it gets is its own, as in LangGraph's loop."""

    def run() -> list[Any]:
        saver, config = Spoiling(), cast("Any", {"configurable": {"thread_id": "t"}})
        made = agent_of(call("add", a=1, b=2), "3")[0]
        made.graph.checkpointer = saver
        made.graph.invoke({"messages": [("user", "?")]}, config)
        stored = [(one.checkpoint, one.metadata) for one in saver.list(config)]
        versions = [[sorted(c["channel_versions"]), c["versions_seen"].keys()] for c, _ in stored]
        return [saver.told, versions, made.graph.get_state(config).values["messages"][-1].content]

    mine = run()
    assert served() > 0
    monkeypatch.setitem(pinned.switch, "lean", False)
    assert mine == run()
    assert mine[1][-1][0] == ["__start__"]
