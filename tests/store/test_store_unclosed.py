"""A store that was dropped without being closed: what waits is written, and nothing of it stays."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from tests.store.store_graphs import config
from tests.store.test_store_sharing import Line
from tests.support.waiting import until
from wick_graph import Agent
from wick_graph.store import SqlSaver, keeper
from wick_graph.testing import ScriptedModel

OF_A_STORE = ("wick-leases", "wick-store", "wick-flush")


def of_stores() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name in OF_A_STORE}


async def test_nothing_of_it_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.02)
    before = of_stores()

    async def use() -> tuple[weakref.ref[Any], ...]:
        agent = Agent(model=ScriptedModel(["a", "b"]), store=url)
        agent.invoke("one", thread_id="t")
        await agent.ainvoke("two", thread_id="t")
        assert {one.name for one in of_stores() - before} >= {"wick-leases", "wick-store"}
        store: Any = agent.store
        return tuple(map(weakref.ref, (agent, store._core, store._core._connection)))

    made = await use()

    def is_gone() -> bool:
        gc.collect()
        return not (of_stores() - before or any(one() for one in made))

    until(is_gone, lambda: f"{of_stores() - before}, {[one() for one in made]}")
    with Agent(model=ScriptedModel(["a", "b", "c"]), store=url) as again:
        assert [one.text for one in again.invoke("three", thread_id="t").messages[-2:]] == [
            "three",
            "c",
        ]


def test_what_waits_is_written_before_it_goes(url: str) -> None:
    """The writes of a task that is alone in its step may wait for the checkpoint that follows."""

    def use() -> weakref.ref[Any]:
        saver = SqlSaver.from_url(url)
        line = Line(saver)
        at = config("t", checkpoint_ns="", checkpoint_id=line.put(log=["a"]))
        saver.put_writes(at, [("log", "kept")], "task", "~__pregel_pull, think")
        assert saver._core.deferred.since is not None
        return weakref.ref(saver._core)

    made = use()

    def is_gone() -> bool:
        gc.collect()
        return made() is None

    until(is_gone, "the store is dropped")
    with SqlSaver.from_url(url) as saver:
        found = saver.get_tuple(config("t"))
        assert found is not None
        assert found.pending_writes == [("task", "log", "kept")]
