"""Commits that do not wait for the disk: those that open a run, and no other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from wick_graph import Agent, tool
from wick_graph.engine.channels import STEP_NAMES
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.sqlite import Connection
from wick_graph.store.threads import Threads
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel, call

LIGHT, WHOLE = "NORMAL", "FULL"


class Levels:
    """How durable each commit of a saver's connection is, as SQLite was told."""

    def __init__(self, saver: SqlSaver) -> None:
        self.found: list[str] = []
        self._now = WHOLE
        db: Any = saver._core._connection
        assert isinstance(db, sqlite3.Connection)
        db.set_trace_callback(self._see)

    def _see(self, statement: str) -> None:
        if statement.startswith("PRAGMA synchronous="):
            self._now = statement.partition("=")[2]
        if statement == "COMMIT":
            self.found.append(self._now)


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqlSaver]:
    """A saver with a file, whose flusher never comes."""
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/light.db") as made:
        made.threads.list()
        made._core._flusher.close()
        yield made


@pytest.fixture
def levels(saver: SqlSaver) -> Levels:
    return Levels(saver)


def agent_on(saver: SqlSaver, *steps: Any) -> Agent:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    return Agent(model=ScriptedModel(list(steps)), tools=[look], store=saver)


async def test_only_the_opening_of_a_run_is_light(saver: SqlSaver, levels: Levels) -> None:
    agent = agent_on(saver, call("look"), "Done.", "Again.")
    await agent.ainvoke("?", thread_id="t")
    assert levels.found == [LIGHT, WHOLE, WHOLE, WHOLE, WHOLE]
    await agent.ainvoke("?", thread_id="t")
    assert levels.found[5:] == [LIGHT, WHOLE, WHOLE]


def test_who_writes_beside_an_opening_gets_a_commit_of_its_own(
    saver: SqlSaver, levels: Levels
) -> None:
    core = saver._core
    with core.batch():
        core.together(lambda: saver.leases.acquire("a"), light=True)
        core.together(lambda: saver.leases.acquire("b"), light=True)
        saver.threads.rename("a", "whole")
        core.together(lambda: saver.leases.acquire("c"), light=True)
    assert levels.found == [LIGHT, WHOLE]


def test_an_opening_takes_nothing_along_that_waits(saver: SqlSaver, levels: Levels) -> None:
    """What was deferred by others becomes durable with the next commit, as it was told."""
    at: RunnableConfig = {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}
    at = saver.put(at, empty_checkpoint(), {"source": "input", "step": -1}, {})
    saver.put_writes(at, [("messages", "waits")], "task", "~__pregel_pull, think")
    assert saver._core.deferred.holds("other")
    saver._core.together(lambda: saver.leases.acquire("a"), light=True)
    assert not saver._core.deferred.holds("other")
    assert levels.found == [WHOLE, WHOLE]


def test_a_store_that_is_never_whole_stays_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/light.db"
    with SqlSaver.from_url(url, synchronous="NORMAL") as saver:
        saver.threads.list()
        levels = Levels(saver)
        levels._now = LIGHT
        agent_on(saver, "Done.").invoke("?", thread_id="t")
    assert set(levels.found) == {LIGHT}


def test_an_opening_that_fails_leaves_neither_thread_nor_lease(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, opened = agent_on(saver, "Done."), Threads.open

    def refused(threads: Threads, *args: Any, **kwargs: Any) -> Any:
        opened(threads, *args, **kwargs)
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Threads, "open", refused)
        with pytest.raises(StorageError, match="the disk is full"):
            agent.invoke("?", thread_id="t")
    assert saver.threads.get("t") is None
    with saver._core.reading() as db:
        assert db.execute("SELECT count(*) FROM leases").fetchone()[0] == 0
    assert agent.invoke("?", thread_id="t").text == "Done."


def test_the_writers_of_an_opening_fail_together_and_no_other(saver: SqlSaver) -> None:
    core, threads = saver._core, saver.threads

    def half() -> None:
        with core.as_one("b"):
            saver.leases.acquire("b")
            raise ValueError("half way")

    with core.batch():
        core.together(lambda: saver.leases.acquire("a"))
        with pytest.raises(ValueError, match="half way"):
            core.together(half)
        core.together(lambda: saver.leases.acquire("c"))
    assert [threads.get(name) is not None for name in "abc"] == [True, False, True]


def test_an_interrupt_leaves_no_level_behind(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, left = Connection.execute, ["PRAGMA synchronous=NORMAL"]

    def interrupted(db: Connection, text: Any, values: Any = (), /) -> Any:
        made = execute(db, text, values)
        if text in left:
            left.remove(text)
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(Connection, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent_on(saver, "Never said.").invoke("?", thread_id="t")
    with saver._core.writing("t") as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2


def put(saver: SqlSaver, ns: str = "") -> None:
    at: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ns}}
    made = empty_checkpoint()
    made["channel_values"], made["channel_versions"] = {"a": 1}, {"a": 1}
    saver.put(at, made, {"source": "loop", "step": 1}, {"a": 1})


def test_what_another_writer_of_the_commit_stored_is_seen_by_an_opening(saver: SqlSaver) -> None:
    with saver._core.batch():
        put(saver)
        saver.threads.rename("t", "a title")
        found = saver.threads.open("t", agent="a", ttl=60.0, run_id="r")
    assert found is not None
    assert (found.steps, found.title) == (1, "a title")


def test_names_are_known_in_a_thread_that_was_read_before(saver: SqlSaver) -> None:
    put(saver, "sub")
    at: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": "sub"}}
    assert saver.get_tuple(at) is not None
    agent = agent_on(saver, "Done.")
    assert agent.invoke("?", thread_id="t").text == "Done."
    held = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert [message.content for message in held] == ["?", "Done."]


def test_a_new_thread_has_the_names_of_a_turn_and_no_more(saver: SqlSaver) -> None:
    agent_on(saver, call("look"), "Done.").invoke("?", thread_id="t")
    with saver._core.reading() as db:
        rows = db.execute("SELECT text FROM names WHERE scope > 0 ORDER BY id").fetchall()
    assert [bytes(text).decode() for (text,) in rows] == [*STEP_NAMES]
    assert verify(saver).is_whole
