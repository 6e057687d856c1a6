"""What a run may never use is small, and made when it is first used."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langgraph.pregel._utils import get_new_channel_versions

from wick_graph.engine import lean_state
from wick_graph.engine.small import MANY, ExitStack, Few, WeakMethod, own_names


def test_a_queue_of_few_gives_the_first_one_first() -> None:
    queue = Few([1, 2])
    queue.append(3)
    assert [queue.popleft() for _ in range(3)] == [1, 2, 3]


def test_a_stack_calls_the_last_one_first() -> None:
    called: list[int] = []
    with ExitStack() as stack:
        stack.callback(called.append, 1)
        stack.callback(called.append, 2)
    assert called == [2, 1]


async def test_a_waiter_is_woken_by_a_chunk_and_takes_none() -> None:
    chunks = lean_state.Chunks()
    with pytest.raises(asyncio.QueueEmpty):
        chunks.get_nowait()
    waiter = asyncio.ensure_future(chunks.wait())
    await asyncio.sleep(0)
    assert not waiter.done()
    chunks.put_nowait("a")
    await waiter
    chunks.put_nowait("b")
    assert [chunks.get_nowait(), chunks.get_nowait()] == ["a", "b"]


async def test_many_chunks_keep_their_order() -> None:
    chunks = lean_state.Chunks()
    for number in range(3 * MANY):
        chunks.put_nowait(number)
    assert type(chunks._queue) is not Few
    assert [chunks.get_nowait() for _ in range(3 * MANY)] == [*range(3 * MANY)]


class Runner:
    """Commits tasks."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def commit(self, task: Any, error: BaseException | None) -> None:
        """Note it."""
        self.done.append((task, error))


def test_futures_count_from_the_first_one_on() -> None:
    runner = Runner()
    futures = lean_state.Futures(
        event=threading.Event(),
        callback=weakref.WeakMethod(runner.commit),
        should_stop=bool,
        future_type=Future,
    )
    assert not futures
    one: Future[None] = Future()
    two: Future[None] = Future()
    futures[one], futures[two] = "first", "second"
    one.set_result(None)
    assert futures.counter == 1
    assert not futures.event.is_set()
    two.set_result(None)
    assert futures.event.is_set()
    assert runner.done == [("first", None), ("second", None)]
    assert futures.done == {one, two}


def test_a_weak_method_keeps_no_object() -> None:
    runner = Runner()
    method = WeakMethod(runner.commit)
    found = method()
    assert found is not None
    found("task", None)
    assert runner.done == [("task", None)]
    del found, runner
    assert method() is None


def test_the_names_of_a_class_are_those_without_a_default() -> None:
    class Base:
        one: int
        two: int = 2

    class Above(Base):
        three: str
        one: int

    class Own(Above):
        __slots__ = own_names(Above)

    assert own_names(Above) == ("three", "one")
    made = Own()
    made.one = 1
    assert "one" not in vars(made)
    assert not hasattr(made, "three")


def test_a_task_gets_the_child_that_langchain_makes() -> None:
    for kind in (CallbackManagerForChainRun, AsyncCallbackManagerForChainRun):
        manager = kind(
            run_id=uuid4(),
            handlers=[],
            inheritable_handlers=[],
            tags=["own"],
            inheritable_tags=["a"],
            metadata={"own": 1},
            inheritable_metadata={"b": 2},
        )
        ours, theirs = lean_state.child_of(manager, "step"), manager.get_child("step")
        assert type(ours) is type(theirs)
        assert vars(ours) == vars(theirs)
        ours.add_tags(["more"])
        assert manager.get_child("step").tags == theirs.tags


@pytest.mark.parametrize("before", [{}, {"a": 1}, {"a": 1, "b": 2}])
def test_the_new_versions_are_those_that_langgraph_finds(before: Any) -> None:
    now: Any = {"a": 1, "b": 3, "c": 3}
    assert lean_state.new_versions(before, now) == get_new_channel_versions(before, now)
