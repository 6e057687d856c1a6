"""Events: their order and payloads, one end, a bounded queue, and readers who leave."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.types import interrupt

from tests.engine.support import agent_of, wild
from tests.support import forked
from wick_graph import Agent, BaseHook, ai, events, tool
from wick_graph.constants import EVENT_QUEUE_SIZE
from wick_graph.engine.streaming import text_piece
from wick_graph.errors import MessageError, RunCancelled
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, attempts, call, calls, cut_stream, error, text


def read(agent: Agent, given: Any, style: str, **options: Any) -> list[events.Event]:
    if style == "stream":
        return list(agent.stream(given, **options))

    async def collect() -> list[events.Event]:
        return [event async for event in agent.astream(given, **options)]

    return asyncio.run(collect())


both = pytest.mark.parametrize("style", ["stream", "astream"])


@both
def test_the_order_of_one_tool_cycle(style: str) -> None:
    agent, _ = agent_of(calls(("add", {"a": 1, "b": 2}), text="Let me see"), "It is three")
    seen = read(agent, "?", style)
    names = [e.event for i, e in enumerate(seen) if i == 0 or e.event != seen[i - 1].event]
    turn = ["on_chat_model_start", "on_chat_model_stream", "on_chat_model_end"]
    assert names == [*turn, "on_tool_start", "on_tool_end", *turn, "done"]
    pieces = "".join(e.delta for e in seen if isinstance(e, events.ChatModelStream))
    assert pieces == "Let me seeIt is three"
    tool = [e for e in seen if isinstance(e, events.ToolStart | events.ToolEnd)]
    assert {e.run_id for e in tool} == {"call_1_1"}
    done = seen[-1]
    assert isinstance(done, events.Done)
    assert done.result.text == "It is three"
    assert {e.thread_id for e in seen} == {done.result.thread_id}


@both
def test_the_wire_form_has_the_names_that_readers_know(style: str) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "ok")
    wire = [json.loads(json.dumps(e.to_dict())) for e in read(agent, "?", style)]
    data = {w["event"]: w.get("data") for w in wire}
    assert data["on_tool_start"] == {"args": {"a": 1, "b": 2}, "input": {"a": 1, "b": 2}}
    assert data["on_tool_end"] == {"output": "3"}
    piece = {"delta": "ok", "chunk": {"content": "ok"}, "message_id": "msg_2"}
    assert data["on_chat_model_stream"] == piece
    assert data["done"]["stop_reason"] == "done"
    assert data["done"]["total_duration_ms"] >= 0
    assert all(set(w) <= {"event", "name", "run_id", "data", "thread_id"} for w in wire)


@both
def test_a_failed_run_ends_with_one_error_and_nothing_after_it(style: str) -> None:
    agent, _ = agent_of(error(ValueError("no")))
    *before, last = read(agent, "?", style)
    assert isinstance(last, events.Failed)
    assert last.error == "LLM call: ValueError: no"
    told = {"error": "LLM call: ValueError: no", "stopped_because": "failed"}
    assert last.to_dict()["data"] == told
    assert not any(isinstance(e, events.Done | events.Failed) for e in before)


@both
def test_a_failed_tool_is_told_with_its_bare_error(style: str) -> None:
    def boom() -> str:
        """Fail."""
        raise ValueError("broken")

    agent, _ = agent_of(call("boom"), "ok", tools=[boom])
    [end] = [e for e in read(agent, "?", style) if isinstance(e, events.ToolEnd)]
    assert end.data() == {"output": "Error: ValueError: broken", "error": "ValueError: broken"}


def test_a_refused_input_raises_before_the_first_event() -> None:
    agent, _ = agent_of("never")
    with pytest.raises(MessageError):
        agent.stream("")
    with pytest.raises(MessageError):
        agent.astream("")


@both
def test_a_cut_stream_is_told_and_tried_again(style: str) -> None:
    agent, _ = agent_of(attempts(cut_stream(2, "half of it"), "the whole of it"))
    seen = read(agent, "?", style)
    kinds = [type(e).__name__ for e in seen]
    again = kinds.index("ChatModelRetry")
    assert "ChatModelStream" in kinds[:again]
    assert "".join(e.delta for e in seen[again:] if isinstance(e, events.ChatModelStream)) == (
        "the whole of it"
    )
    assert seen[-1].result.messages[-1].text == "the whole of it"  # type: ignore[union-attr]  # the last event is Done


@both
def test_an_interrupt_is_an_event_before_the_end(style: str) -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt({"q": 1}))

    agent, _ = agent_of(call("ask"), "ok", tools=[ask])
    *_, asked, done = read(agent, "?", style)
    assert isinstance(asked, events.Interrupted)
    assert (asked.value, bool(asked.interrupt_id)) == ({"q": 1}, True)
    assert isinstance(done, events.Done)
    assert done.stopped_because == "interrupted"


@both
def test_the_run_waits_for_a_slow_reader_and_loses_nothing(style: str) -> None:
    made = 0
    words = [f"w{i} " for i in range(EVENT_QUEUE_SIZE * 5)]
    ahead: list[int] = []

    class Counting(ScriptedModel):
        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal made
            for chunk in super()._stream(*args, **kwargs):
                made += 1
                yield chunk

        async def _astream(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal made
            async for chunk in super()._astream(*args, **kwargs):
                made += 1
                yield chunk

    script: Any = [text(chunks=words)]
    model: Any = Counting
    agent = Agent(model=model(script))
    got: list[str] = []

    def note(event: events.Event) -> None:
        if isinstance(event, events.ChatModelStream):
            got.append(event.delta)
            ahead.append(made - len(got))

    async def aread() -> None:
        async for event in agent.astream("?"):
            note(event)
            await asyncio.sleep(0)

    if style == "stream":
        for event in agent.stream("?"):
            note(event)
    else:
        asyncio.run(aread())
    assert "".join(got) == "".join(words)
    assert max(ahead) <= EVENT_QUEUE_SIZE + 3


def test_a_sync_reader_who_leaves_cancels_the_run() -> None:
    agent = Agent(model=ScriptedModel([text(chunks=["x "] * 2_000), "second"]))
    stream = agent.stream("?", thread_id="t")
    for event in stream:
        if isinstance(event, events.ChatModelStream):
            break
    stream.close()  # type: ignore[attr-defined]  # a generator, typed as an iterator
    info = agent.threads.get("t")
    assert (info.status, info.stopped_because) == ("idle", "cancelled")
    assert agent.invoke("again", thread_id="t").text


def test_an_async_reader_who_leaves_cancels_the_run() -> None:
    agent = Agent(model=ScriptedModel([text(chunks=["x "] * 2_000), "second"]))

    async def run() -> None:
        stream = agent.astream("?", thread_id="t")
        async for event in stream:
            if isinstance(event, events.ChatModelStream):
                break
        await stream.aclose()  # type: ignore[attr-defined]  # a generator, typed as an iterator
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "cancelled")
        assert (await agent.ainvoke("again", thread_id="t")).text

    asyncio.run(run())


def test_streams_of_many_threads_do_not_mix() -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "three")
    seen: dict[str, set[str | None]] = {}

    def work(name: str) -> None:
        seen[name] = {e.thread_id for e in agent.stream("?", thread_id=name)}

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == {f"t{i}": {f"t{i}"} for i in range(6)}


def test_the_vocabulary_is_closed() -> None:
    names = {kind.event for kind in get_args(events.Event)}
    assert names == {
        "on_chat_model_start",
        "on_chat_model_stream",
        "on_chat_model_retry",
        "on_chat_model_end",
        "on_tool_start",
        "on_tool_end",
        "on_output",
        "on_subagent",
        "interrupt",
        "done",
        "error",
    }


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_run_that_is_cancelled_ends_with_an_error_event(kind: str) -> None:
    """The same name and data as over HTTP, and `invoke` gives the same as ever."""
    agent = Agent(model=ScriptedModel([text(chunks=["x "] * 500)], chunk_delay=0.01))

    def seen() -> list[Any]:
        found = []
        for event in agent.stream("?", thread_id="t"):
            found.append(event)
            if isinstance(event, events.ChatModelStream) and len(found) < 4:
                agent.cancel("t")
        return found

    async def aseen() -> list[Any]:
        found = []
        async for event in agent.astream("?", thread_id="t"):
            found.append(event)
            if isinstance(event, events.ChatModelStream) and len(found) < 4:
                await asyncio.to_thread(agent.cancel, "t")
        return found

    last = (seen() if kind == "sync" else asyncio.run(aseen()))[-1]
    assert isinstance(last, events.Failed)
    assert last.to_dict() == {
        "event": "error",
        "run_id": last.run_id,
        "thread_id": "t",
        "data": {"error": "run cancelled", "stopped_because": "cancelled"},
    }
    assert last.result.stopped_because == "cancelled"


@both
def test_the_pieces_of_calls_and_of_reasoning_are_told(style: str) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "ok")
    pieces = [e for e in read(agent, "?", style) if isinstance(e, events.ChatModelStream)]
    calls = [piece for e in pieces for piece in e.calls]
    assert (calls[0]["name"], calls[0]["index"]) == ("add", 0)
    assert json.loads("".join(piece["args"] for piece in calls)) == {"a": 1, "b": 2}
    assert {e.message_id for e in pieces} == {"msg_1", "msg_2"}

    thought: list[Any] = [
        {"type": "thinking", "thinking": "Let me see.", "signature": "s", "index": 0},
        {"type": "text", "text": "ok", "index": 1},
    ]
    agent, _ = agent_of(AIMessage(thought))
    pieces = [e for e in read(agent, "?", style) if isinstance(e, events.ChatModelStream)]
    assert "".join(e.reasoning for e in pieces) == "Let me see."
    assert "".join(e.delta for e in pieces) == "ok"


class Asker(BaseHook):
    name = "asker"

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        interrupt("May I?")
        return next(call)


@both
def test_a_call_starts_once_and_not_before_its_approval(style: str) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "ok", hooks=[Asker()])
    first = [type(e).__name__ for e in read(agent, "?", style, thread_id="t")]
    assert "Interrupted" in first
    assert "ToolStart" not in first
    second = [type(e).__name__ for e in agent.stream_resume("t", True)]
    assert [kind for kind in second if kind.startswith("Tool")] == ["ToolStart", "ToolEnd"]


@both
def test_a_tool_that_asks_has_begun_before_the_answer(style: str) -> None:
    def ask() -> str:
        """Ask the person."""
        return f"they say {interrupt('What?')}"

    agent, _ = agent_of(call("ask"), "ok", tools=[ask])
    first = [type(e).__name__ for e in read(agent, "?", style, thread_id="t")]
    second = [type(e).__name__ for e in agent.stream_resume("t", "yes")]
    both_runs = [kind for kind in (*first, *second) if kind.startswith("Tool")]
    assert both_runs == ["ToolStart", "ToolEnd"]


def test_a_piece_of_text_is_the_event_that_its_class_makes() -> None:
    made = text_piece("m", "piece", "msg_1", "r1", "t1")
    own = events.ChatModelStream(
        name="m", delta="piece", message_id="msg_1", run_id="r1", thread_id="t1"
    )
    assert (made, repr(made), hash(made)) == (own, repr(own), hash(own))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.delta = "other"  # type: ignore[misc]  # the point of the test


class _KeepsItsPieces(GenericFakeChatModel):
    """It gives the same objects for each reply."""

    kept: list[ChatGenerationChunk]

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        yield from self.kept

    async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self.kept:
            yield piece


@both
def test_each_reply_has_its_own_name_even_if_its_pieces_are_the_same_objects(style: str) -> None:
    pieces = [ChatGenerationChunk(message=AIMessageChunk(content=one)) for one in "abc"]
    with SqlSaver.from_url("sqlite://") as saver:
        model = _KeepsItsPieces(messages=iter(()), kept=pieces)
        agent = Agent(model=model, store=saver)
        told = list[str]()
        for _ in range(2):
            seen = read(agent, "?", style, thread_id="t")
            [name] = {e.message_id for e in seen if isinstance(e, events.ChatModelStream)}
            told.append(name)
        config: Any = {"configurable": {"thread_id": "t"}}
        held = agent.graph.get_state(config).values["messages"]
    assert [one.id for one in held if isinstance(one, AIMessage)] == told
    assert [piece.message.id for piece in pieces] == [None] * 3


@tool(return_direct=True)
def final() -> str:
    """Give the answer itself."""
    return "42"


class Instead(BaseHook):
    """Answer in the model's place."""

    name = "instead"

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        return ai("By hand.")


@both
@pytest.mark.parametrize(
    ("step", "options", "said"),
    [
        (call("final"), {"tools": [final]}, "42"),
        ("never", {"hooks": [Instead()]}, "By hand."),
        (
            wild("final"),
            {"tools": [final], "max_iterations": 1},
            "Stopped after 1 step without a final answer.",
        ),
        ("Said.", {}, "Said."),
    ],
    ids=["tool", "hook", "limit", "model"],
)
def test_a_reader_gets_the_last_words_once(
    style: str, step: Any, options: dict[str, Any], said: str
) -> None:
    agent = Agent(model=ScriptedModel([step]), **options)
    pieces = [e for e in read(agent, "?", style) if isinstance(e, events.ChatModelStream)]
    assert "".join(e.delta for e in pieces) == said
    assert agent.invoke("?").text == said


LEFT = """
import sys
from wick_graph import Agent
from wick_graph.testing import ScriptedModel
long = " ".join(map(str, range(5_000)))  # more than waits for a reader
agent = Agent(model=ScriptedModel([long]), store=sys.argv[1] or None)
left = agent.stream("x", thread_id="t")
print(next(left).event)
"""


def test_a_process_ends_though_it_read_a_stream_in_part(tmp_path: Path) -> None:
    """Its run ends as if its reader had left: Python stops the threads, and none could wait."""
    stored = f"sqlite:///{tmp_path}/store.db"
    for url in (stored, ""):
        command = [sys.executable, "-c", LEFT, url]
        done = forked.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "on_chat_model_start\n", "")
    with SqlSaver.from_url(stored) as saver:
        info = saver.threads.get("t")
        assert info is not None
        assert (info.status, info.stopped_because) == ("idle", "cancelled")


STUCK = """
import time
from wick_graph import Agent, BaseHook
from wick_graph.engine import streaming
from wick_graph.testing import ScriptedModel
streaming._EXIT_SECONDS = 0.5
class Stuck(BaseHook):
    name = "stuck"
    async def awrap_model_call(self, request, next):
        time.sleep(1_000)  # nothing else of its loop runs meanwhile
left = Agent(model=ScriptedModel(["x"]), hooks=[Stuck()]).stream("x")
print(next(left).event)
"""


def test_a_process_waits_for_no_run_that_cannot_be_stopped() -> None:
    command = [sys.executable, "-c", STUCK]
    done = forked.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on_chat_model_start\n", "")


def test_a_fork_may_close_a_stream_that_its_parent_reads() -> None:
    agent, _ = agent_of("one two three", store=None)
    stream = agent.stream("x")
    next(stream)
    pid = os.fork()
    if pid == 0:
        try:
            stream.close()  # type: ignore[attr-defined]  # a generator has it
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert list(stream)[-1].event == "done"


class Unusual(BaseException):
    """What no code expects."""


@both
@pytest.mark.timeout(60)
@pytest.mark.parametrize("raised", [RunCancelled, GeneratorExit, Unusual])
def test_whatever_a_tool_raises_one_event_ends_the_stream(
    style: str, raised: type[BaseException]
) -> None:
    def leave() -> str:
        """Leave."""
        raise raised

    with SqlSaver.from_url("sqlite://") as store:
        agent, _ = agent_of(call("leave"), "done", tools=[leave], store=store)
        *before, last = read(agent, "?", style, thread_id="t")
        info = store.threads.get("t")
    assert not any(isinstance(event, events.Done | events.Failed) for event in before)
    assert info is not None
    assert info.status != "running"
    if raised is GeneratorExit:  # no coroutine can tell it from its closing: it is an answer
        assert isinstance(last, events.Done)
        return
    assert isinstance(last, events.Failed)
    assert isinstance(last.exception, raised)
    failed = raised is Unusual
    assert last.stopped_because == ("failed" if failed else "cancelled")
    assert last.error == ("Unusual" if failed else events.CANCELLED)
