"""A run that has ended leaves nothing to the garbage collector: its messages are freed at once.

Else a process with many threads keeps the histories of ended runs until a full collection.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import add
from wick_graph import Agent, SqlSaver
from wick_graph.engine.lean import AsyncLoop, SyncLoop
from wick_graph.runtime.context import Run
from wick_graph.testing import ScriptedModel, call

_NEW = count()

Door = Callable[[Agent], Awaitable[None]]


def _at() -> Any:
    return {"configurable": {"thread_id": f"t{next(_NEW)}"}}


def _asked() -> Any:
    return {"messages": [{"role": "user", "content": "2+3?"}]}


async def _graph_ainvoke(agent: Agent) -> None:
    await agent.graph.ainvoke(_asked(), _at())


async def _graph_astream(agent: Agent) -> None:
    async for _ in agent.graph.astream(_asked(), _at(), stream_mode=["updates", "messages"]):
        pass


async def _graph_invoke(agent: Agent) -> None:
    agent.graph.invoke(_asked(), _at())


async def _graph_stream(agent: Agent) -> None:
    for _ in agent.graph.stream(_asked(), _at()):
        pass


async def _ainvoke(agent: Agent) -> None:
    await agent.ainvoke("2+3?")


async def _invoke(agent: Agent) -> None:
    agent.invoke("2+3?")


async def _astream(agent: Agent) -> None:
    async for _ in agent.astream("2+3?"):
        pass


async def _stream(agent: Agent) -> None:
    for _ in agent.stream("2+3?"):
        pass


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Let the collector free nothing."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    yield
    if was:
        gc.enable()


@pytest.mark.parametrize("door", [_ainvoke, _invoke, _astream, _stream], ids=lambda f: f.__name__)
def test_an_agents_run(door: Door, tmp_path: Path, uncollected: None) -> None:
    _leaves_nothing(door, tmp_path)


@pytest.mark.parametrize(
    "door",
    [_graph_ainvoke, _graph_invoke, _graph_astream, _graph_stream],
    ids=lambda f: f.__name__,
)
def test_a_graphs_run(door: Door, tmp_path: Path, uncollected: None) -> None:
    _leaves_nothing(door, tmp_path)


@pytest.mark.parametrize("door", [_ainvoke, _invoke], ids=lambda f: f.__name__)
def test_a_run_in_which_a_tool_fails(door: Door, tmp_path: Path, uncollected: None) -> None:
    _leaves_nothing(door, tmp_path, broken)


def broken(a: int, b: int) -> str:
    """Fail."""
    raise ValueError("it is broken")


def _leaves_nothing(door: Door, path: Path, fn: Callable[..., str] = add) -> None:
    model = ScriptedModel([call(fn.__name__, a=2, b=3), "5"] * 2, cursor="fifo")
    with SqlSaver.from_url(f"sqlite:///{path / 'a.db'}") as store:
        agent = Agent("a", model, tools=[fn], store=store)

        async def runs() -> None:
            before = _held()
            await door(agent)
            await door(agent)
            for _ in range(100):  # the store's thread may still hold what it has done
                if not (left := _held() - before):
                    break
                await asyncio.sleep(0.01)
            assert not left

        asyncio.run(runs())
    model.assert_complete()


def _held() -> Counter[str]:
    """Count what holds a run's messages, by class."""
    classes = map(type, gc.get_objects())
    return Counter(kind.__name__ for kind in classes if kind in (Run, AsyncLoop, SyncLoop))
