"""Recorded writes are those that LangGraph gives to the saver, task by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from tests.foreign.graphs import GRAPHS, add, calls, config, model
from tests.foreign.test_record import plain
from wick_graph import langgraph_config
from wick_graph.debug import record
from wick_graph.foreign.run import NAMED
from wick_graph.store import SqlSaver, transactions

Writes = dict[str, list[tuple[str, Any]]]


class Spy(InMemorySaver):
    """Keeps what it is given, by task."""

    def __init__(self) -> None:
        super().__init__()
        self.given: Writes = defaultdict(list)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.given[task_id] += [(channel, value) for channel, value in writes]
        super().put_writes(config, writes, task_id, task_path)


def channels(writes: Iterable[tuple[str, Any]]) -> list[str]:
    """Name the written channels as people see them, each once, and the nodes that follow."""
    found = []
    for channel, value in writes:
        if channel.startswith("branch:to:"):
            found.append(f"-> {channel.removeprefix('branch:to:')}")
        elif channel == langgraph_config.TASKS:
            found.append(f"-> {value.node}")
        elif channel in NAMED or not channel.startswith(langgraph_config.HIDDEN):
            found.append(NAMED.get(channel, channel))
    return list(dict.fromkeys(found))


def kept(found: Any) -> list[str]:
    """Return a checkpoint's writes, in an order of their own, without ids of messages."""
    return sorted(repr(plain(write)) for write in found.pending_writes or ())


@pytest.mark.parametrize("name", GRAPHS)
def test_recorded_writes_equal_those_of_put_writes(name: str) -> None:
    spy, where = Spy(), cast("Any", config())
    made = GRAPHS[name](spy)
    with SqlSaver.from_url("sqlite://") as copies:
        with record(store=copies) as recording:
            for given in made.inputs:
                made.graph.invoke(given, where)
        told: dict[str, list[str]] = {}
        for entry in recording.moments("node.exit"):
            details = recording.details(entry)
            to = [f"-> {node}" for key in ("goto", "sends") for node in details.get(key, ())]
            named = [*(write["channel"] for write in details["writes"]), *to]
            told[entry.task or ""] = list(dict.fromkeys(named))
        seen = {task: channels(writes) for task, writes in spy.given.items()}
        ended = {task: wrote for task, wrote in seen.items() if wrote and task in told}
        assert ended
        assert {task: sorted(told[task]) for task in ended} == {
            task: sorted(wrote) for task, wrote in ended.items()
        }
        checked = 0
        for mine in spy.list(where):
            theirs = copies.get_tuple(mine.config)
            assert theirs is not None
            assert kept(theirs) == kept(mine)
            checked += len(mine.pending_writes or ())
        assert checked


def test_a_copy_costs_one_commit_for_each_superstep(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 20
    monkeypatch.setattr(transactions, "WAIT_SECONDS", 60.0)  # however slow the machine is
    asked = [calls(("add", {"a": n, "b": 1})) for n in range(turns)]
    graph: Any = create_agent(model(*asked, "done"), tools=[add])
    commits: list[str] = []
    with SqlSaver.from_url("sqlite://") as copies:
        copies._core._connection.set_trace_callback(  # type: ignore[union-attr]  # open
            lambda statement: commits.append(statement) if statement == "COMMIT" else None
        )
        with record(store=copies) as recording:
            graph.invoke({"messages": [("user", "add")]}, {"recursion_limit": 100})
        assert recording.problems == []
    steps = 2 * turns + 1
    assert steps <= len(commits) <= steps + 4
