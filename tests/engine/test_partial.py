"""A reply that was cut off: what its reader got is in the thread, and a resume gives it whole."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from wick_graph import Agent, BaseHook, ModelRequest
from wick_graph.engine import lifecycle
from wick_graph.events import ChatModelStream, Done, Failed
from wick_graph.messages.base import is_partial
from wick_graph.messages.chain import pretty_print
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls, delay

REPLY = "one two three four five six seven eight"
AT: Any = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as saver:
        yield saver


def slow(*steps: Any) -> ScriptedModel:
    return ScriptedModel([*steps], chunk_delay=0.05)


def cut(agent: Agent, given: Any = "Count.", after: int = 5) -> str:
    """Take a turn and leave in the middle of the reply; return what was read."""
    got: list[str] = []
    events: Any = agent.stream(given, thread_id="t")
    for event in events:
        if isinstance(event, ChatModelStream):
            got.append(event.delta)
            if len("".join(got)) > after:
                break
    events.close()
    return "".join(got)


def acut(agent: Agent, given: Any = "Count.", after: int = 5) -> str:
    """Do the same in a loop."""
    got: list[str] = []

    async def read() -> None:
        events: Any = agent.astream(given, thread_id="t")
        async for event in events:
            if isinstance(event, ChatModelStream):
                got.append(event.delta)
                if len("".join(got)) > after:
                    break
        await events.aclose()

    asyncio.run(read())
    return "".join(got)


DOORS = pytest.mark.parametrize("leave", [cut, acut])
Leave = Callable[..., str]


def thread(agent: Agent) -> list[tuple[str, str]]:
    values = agent.graph.get_state(AT).values
    return [(m.type, m.text) for m in values["messages"]]


def asked(model: ScriptedModel) -> list[tuple[str, str]]:
    return [(m.type, m.text) for m in model.calls[-1].messages]


@DOORS
def test_what_the_reader_got_is_in_the_thread_and_the_next_call_reads_it(
    store: Any, leave: Leave
) -> None:
    with Agent("counts", slow(REPLY), store=store) as agent:
        read = leave(agent)
        assert read.strip()
        assert REPLY.startswith(read)
        assert read != REPLY
        assert thread(agent) == [("human", "Count."), ("ai", read)]
        last = agent.graph.get_state(AT).values["messages"][-1]
        assert is_partial(last)
        assert "(cut off here: the run was cancelled)" in pretty_print([last])
        assert agent.graph.get_state(AT).next == ("model",)
    model = ScriptedModel(["Good."])
    with Agent("counts", model, store=store) as agent:
        assert agent.invoke("Go on.", thread_id="t").text == "Good."
        assert asked(model) == [("human", "Count."), ("ai", read), ("human", "Go on.")]
        assert thread(agent) == [*asked(model), ("ai", "Good.")]


@DOORS
def test_a_resume_gives_the_whole_reply_in_its_place(store: Any, leave: Leave) -> None:
    model = slow(REPLY, REPLY, REPLY)
    model.cursor = "fifo"
    with Agent("counts", model, store=store) as agent:
        leave(agent)
        events: Any = agent.stream_resume("t")
        seen = ""
        for event in events:
            if isinstance(event, ChatModelStream):
                seen += event.delta
                if len(seen) > 14:
                    break
        events.close()
        assert thread(agent) == [("human", "Count."), ("ai", seen)]
        assert agent.resume("t").text == REPLY
        assert asked(model) == [("human", "Count.")]
        assert thread(agent) == [("human", "Count."), ("ai", REPLY)]


def test_a_cancellation_from_elsewhere_stores_it_too(store: Any) -> None:
    if isinstance(store, InMemorySaver):
        pytest.skip("no other process reaches it")
    with Agent("counts", slow(REPLY), store=store) as agent:
        got: list[str] = []
        last: Any = None
        other = threading.Thread(target=agent.cancel, args=("t",))
        for event in agent.stream("Count.", thread_id="t"):
            if isinstance(event, ChatModelStream):
                got.append(event.delta)
                if len(got) == 3:
                    other.start()
            last = event
        other.join()
        assert isinstance(last, Failed)
        assert last.stopped_because == "cancelled"
        assert thread(agent) == [("human", "Count."), ("ai", "".join(got))]


def leave_behind(agent: Agent, reached: threading.Event, left: threading.Event) -> str:
    """Leave at the first piece of a reply, when the run has gone on to another step."""
    events: Any = agent.stream("Count.", thread_id="t")
    read = next(e.delta for e in events if isinstance(e, ChatModelStream))
    assert reached.wait(60)
    events.close()
    left.set()
    return str(read)


def aleave_behind(agent: Agent, reached: threading.Event, left: threading.Event) -> str:
    """Do the same in a loop."""

    async def leave() -> str:
        events: Any = agent.astream("Count.", thread_id="t")
        async for event in events:
            if isinstance(event, ChatModelStream):
                assert await asyncio.to_thread(reached.wait, 60)
                await events.aclose()
                left.set()
                return event.delta
        raise AssertionError

    return asyncio.run(leave())


@pytest.mark.parametrize("leave", [leave_behind, aleave_behind])
@pytest.mark.parametrize("step", ["tools", "model"])
def test_a_reader_that_is_behind_gets_no_stored_reply_twice(
    store: Any, leave: Leave, step: str
) -> None:
    reached, left = threading.Event(), threading.Event()

    class Signal(BaseHook):
        async def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
            if len(request.messages) > 1:
                reached.set()
            return await next(request)

    def stay(until_left: bool) -> str:
        """Stay."""
        if until_left:
            reached.set()
            assert left.wait(60)
        return "stayed"

    first = calls(("stay", {"until_left": step == "tools"}), text=REPLY)
    model = ScriptedModel([first, delay(60, "Never.")])
    with Agent("counts", model, tools=[stay], hooks=[Signal()], store=store) as agent:
        assert leave(agent, reached, left) != REPLY
        said = [text for kind, text in thread(agent) if kind == "ai"]
        assert said == [REPLY]
        assert agent.graph.get_state(AT).next == (step,)


def test_a_deadline_cuts_off_likewise(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rings: list[Callable[[], object]] = []  # it is over when the test says so

    def alarm(seconds: float, ring: Callable[..., object], *args: Any) -> Callable[[], None]:
        rings.append(functools.partial(ring, *args))
        return lambda: None

    monkeypatch.setattr(lifecycle, "alarm", alarm)
    with Agent("counts", slow(" ".join([REPLY] * 9)), store=store) as agent:
        events = []
        for event in agent.stream("Count.", thread_id="t", deadline=60):
            events.append(event)
            if isinstance(event, ChatModelStream):
                rings.pop()() if rings else None
        assert isinstance(events[-1], Done)
        assert events[-1].stopped_because == "limit"
        got = "".join(e.delta for e in events if isinstance(e, ChatModelStream))
        assert got
        assert thread(agent) == [("human", "Count."), ("ai", got)]


@DOORS
def test_steps_before_it_stay_as_they_are(store: Any, leave: Leave) -> None:
    steps = [calls(("add", {"a": 1, "b": 2}), text="Let me see."), REPLY]
    with Agent("counts", slow(*steps), tools=[add], store=store) as agent:
        read = leave(agent, after=15)
        cut_off = read.removeprefix("Let me see.")
        assert cut_off
        kept = [("human", "Count."), ("ai", "Let me see."), ("tool", "3")]
        assert thread(agent) == [*kept, ("ai", cut_off)]
    model = ScriptedModel(["Good."], cursor="fifo")
    with Agent("counts", model, tools=[add], store=store) as agent:
        agent.invoke("Go on.", thread_id="t")
        assert asked(model) == [*kept, ("ai", cut_off), ("human", "Go on.")]


def test_without_a_reader_and_without_a_text_nothing_is_stored(store: Any) -> None:
    with Agent("counts", slow(delay(60, REPLY), " "), store=store) as agent:

        async def run() -> None:
            task = asyncio.create_task(agent.ainvoke("Count.", thread_id="t"))
            while not agent.graph.get_state(AT).next:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(run())
        assert thread(agent) == [("human", "Count.")]
        events: Any = agent.stream("Count.", thread_id="t", tokens=False)
        next(events)
        events.close()
        assert {kind for kind, _ in thread(agent)} == {"human"}


@DOORS
def test_edits_forks_and_messages_sent_back_take_it_as_a_message(
    tmp_path: Path, leave: Leave
) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        model = slow(REPLY, "Good.", "Fine.", "Well.")
        with Agent("counts", model, store=store) as agent:
            read = leave(agent)
            store.threads.fork("t", "copy")
            fork: Any = {"configurable": {"thread_id": "copy"}}
            texts = [m.text for m in agent.graph.get_state(fork).values["messages"]]
            assert texts == ["Count.", read]
            sent = agent.graph.get_state(AT).values["messages"]
            assert agent.invoke([*sent, {"role": "user", "content": "And?"}], thread_id="t").text
            assert [kind for kind, _ in thread(agent)] == ["human", "ai", "human", "ai"]
            agent.graph.update_state(fork, {"messages": [AIMessage("Edited.")]}, as_node="model")
            held = agent.graph.get_state(fork).values["messages"]
            assert [m.text for m in held] == ["Count.", read, "Edited."]


def test_a_resume_after_an_edit_takes_it_out_of_the_thread_too(store: Any) -> None:
    model = slow(REPLY, REPLY)
    with Agent("counts", model, store=store) as agent:
        cut(agent)
        agent.graph.update_state(AT, {"todos": []}, as_node="modify_request")
        assert [kind for kind, _ in thread(agent)] == ["human", "ai"]
        assert agent.resume("t").text == REPLY
        assert asked(model) == [("human", "Count.")]
        assert thread(agent) == [("human", "Count."), ("ai", REPLY)]


def test_a_run_from_an_earlier_checkpoint_leaves_it_where_it_is(store: Any) -> None:
    model = slow("Hello.", REPLY, "Hi.", REPLY)
    model.cursor = "fifo"
    with Agent("counts", model, store=store) as agent:
        agent.invoke("Hello?", thread_id="t")
        start = [s.config for s in agent.graph.get_state_history(AT) if s.next == ("model",)][-1]
        read = cut(agent)
        head: Any = agent.graph.get_state(AT).config
        assert agent.graph.invoke(None, start)["messages"][-1].text == "Hi."
        held = agent.graph.get_state(head).values["messages"]
        assert [m.text for m in held] == ["Hello?", "Hello.", "Count.", read]
        again = agent.graph.invoke(None, head)["messages"]
        assert [m.text for m in again] == ["Hello?", "Hello.", "Count.", REPLY]
