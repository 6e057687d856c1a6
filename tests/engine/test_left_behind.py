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
from langchain_core.language_models import FakeListChatModel

from tests.engine.support import add
from wick_graph import Agent, BaseHook, SqlSaver
from wick_graph.core.moments import Moment
from wick_graph.engine.lean import AsyncLoop, SyncLoop
from wick_graph.hooks import Tripwire
from wick_graph.journal.recorder import JournalListener
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


def test_a_lease_that_is_settled_later_holds_no_run(tmp_path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'a.db'}") as store:
        lease = store.leases.acquire("t")
        lease.on_stop = print
        store.leases.release(lease)
        store.leases.settle(at_once=True)
    assert lease.on_stop is None


class Hearing(BaseHook):
    """A hook that sees the agent's requests."""

    name = "hearing"

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        return next(request)


@pytest.mark.parametrize("hooks", [[], [Hearing()]], ids=["none", "one"])
def test_a_request_holds_its_visit_only_for_a_hook(
    hooks: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    record = JournalListener.record

    def noted(self: JournalListener, moment: Moment) -> None:
        if moment.phase == "request":
            seen.append(moment.data["request"].ctx)
        record(self, moment)

    monkeypatch.setattr(JournalListener, "record", noted)
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'a.db'}") as store:
        Agent("a", ScriptedModel(["5"]), store=store, hooks=hooks).invoke("2+3?")
    assert [ctx is None for ctx in seen] == [not hooks]


class Tripping(FakeListChatModel):
    """A model that ends the run as a guardrail does."""

    def _call(self, *args: Any, **kwargs: Any) -> str:
        raise Tripwire("enough", answer="No.")


def test_a_tripwire_without_hooks_counts_the_model_call(tmp_path: Path) -> None:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'a.db'}") as store:
        agent = Agent("a", Tripping(responses=[""]), store=store)
        made = agent.invoke("2+3?")
        state = agent.graph.get_state({"configurable": {"thread_id": made.thread_id}})
    assert (made.text, made.stopped_because, state.values["iteration"]) == ("No.", "guardrail", 1)


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
