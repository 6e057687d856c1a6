"""A process is killed at any moment: what the saver said is stored is there."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from tests.store.store_graphs import Named, State, config
from tests.store.test_store_concurrency import intact
from wick_graph import langgraph_config
from wick_graph.store import SqlSaver
from wick_graph.store.commit_policy import CommitPolicy
from wick_graph.store.leases import Writer
from wick_graph.store.verify import verify

KILLS = 24
LINES = (1, 40)
SECONDS = 0.004


class Told(SqlSaver):
    """Notes in a file, which outlives the process, what it has told LangGraph to be stored."""

    notes: int

    def note(self, kind: str, *what: str) -> None:
        os.write(self.notes, f"{kind} {' '.join(what)}\n".encode())

    def put(self, config: RunnableConfig, *args: Any) -> RunnableConfig:
        made = super().put(config, *args)
        if not self._core.deferred.holds(None):  # else it waits, and may be made again
            self.note("checkpoint", made["configurable"]["checkpoint_id"])
        return made

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        super().put_writes(config, writes, task_id, task_path)
        if "__pregel_push" in task_path and langgraph_config.WRITER not in config["configurable"]:
            self.note("writes", config["configurable"]["checkpoint_id"], task_id)


def working_graph(saver: Told) -> Any:
    """A node, then three tasks at once, again and again; each node notes that it begins."""

    def think(state: State) -> State:
        n = state.get("count", 0)
        saver.note("began", str(n))
        return {"count": n + 1, "log": [f"think {n} " + "x" * 300]}

    def spread(state: State) -> list[Send]:
        return [Send("work", {"name": f"{state['count']}-{i}"}) for i in range(3)]

    def work(state: Named, config: RunnableConfig) -> State:
        writer = config["configurable"].get(langgraph_config.WRITER)
        if writer is not None:  # as if the results were on record
            writer.policy = CommitPolicy(langgraph_config.began_from(config), True, True)
        return {"log": [f"work {state['name']} " + "y" * 300]}

    def more(state: State) -> str:
        return "think" if state["count"] < 1_000_000 else END

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("work", work)
    builder.add_node("join", lambda state: {"files": {"n": str(state["count"])}})
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", spread, ["work"])
    builder.add_edge("work", "join")
    builder.add_conditional_edges("join", more, ["think", END])
    return builder.compile(checkpointer=saver)


def lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def killed(work: Callable[[], object], log: Path, more: int, delay: float) -> None:
    """Run in a fork and kill it a moment after it has written so many lines more."""
    before = len(lines(log))
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    while len(lines(log)) < before + more and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.0005)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it ended by itself"


def stored(url: str) -> tuple[set[str], set[tuple[str, str]], Any]:
    with SqlSaver.from_url(url) as saver:
        found = [*saver.list(config())]
        ids = {one.checkpoint["id"] for one in found}
        writes = {
            (one.checkpoint["id"], task) for one in found for task, _, _ in one.pending_writes or ()
        }
        return ids, writes, found[0].checkpoint["channel_values"] if found else {}


@pytest.mark.parametrize("run", ["foreign", "recorded"])
def test_what_was_told_is_there_after_a_kill(url: str, tmp_path: Path, run: str) -> None:
    chance = random.Random(7)
    log = tmp_path / "notes"
    more: dict[str, Any] = {}
    if run == "recorded":
        more[langgraph_config.WRITER] = Writer()

    def work() -> None:
        saver = Told.from_url(url)
        saver.notes = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        graph = working_graph(saver)
        fresh = saver.get_tuple(config()) is None
        given = {"messages": [HumanMessage("go", id="go")]} if fresh else None
        graph.invoke(given, config("t", **more), durability="sync")

    reached = 0
    for _ in range(KILLS):
        killed(work, log, chance.randint(*LINES), chance.uniform(0, SECONDS))
        notes = lines(log)
        ids, writes, values = stored(url)
        assert {note[1] for note in notes if note[0] == "checkpoint"} <= ids
        assert {(note[1], note[2]) for note in notes if note[0] == "writes"} <= writes
        begun = max((int(note[1]) for note in notes if note[0] == "began"), default=0)
        assert values.get("count", 0) >= begun  # a node began, so what came before it stands
        reached = max(reached, begun)
        logged = values.get("log", [])
        assert len(logged) == len({*logged})
    assert reached > 3  # the kills did hit a run under way
    assert intact(url)


@pytest.mark.parametrize("force", [False, True])
def test_writes_before_their_checkpoint_go_with_the_next_lease_after_a_kill(
    url: str, *, force: bool
) -> None:
    """With `durability="async"` LangGraph stores a task's writes before its step's checkpoint."""

    def die() -> None:
        saver = SqlSaver.from_url(url)
        graph = StateGraph(State)
        graph.add_node("think", lambda _: {"count": 1})
        graph.add_edge(START, "think")
        graph.compile(checkpointer=saver).invoke({"count": 0}, config("t"))
        lease = saver.leases.acquire("t")
        later = config("t", checkpoint_id=str(uuid6()), **{langgraph_config.WRITER: Writer(lease)})
        saver.put_writes(later, [("count", 2), (ERROR, "none")], "task", "")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            die()
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    with SqlSaver.from_url(url) as saver:
        query = "SELECT count(*) FROM writes WHERE checkpoint NOT IN (SELECT id FROM checkpoints)"
        with saver._core.reading() as db:
            assert db.execute(query).fetchone()[0] == 1
        assert verify(saver).findings == []
        lease = saver.leases.acquire("t", force=force)
        with saver._core.reading() as db:
            assert db.execute(query).fetchone()[0] == 0
        saver.leases.release(lease)
        assert verify(saver).findings == []
        held = saver.get_tuple(config("t"))
        assert held is not None
        assert held.checkpoint["channel_values"]["count"] == 1
