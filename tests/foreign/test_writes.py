"""Recorded writes are those that LangGraph gives to the saver, task by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from tests.foreign.graphs import GRAPHS, add, calls, config, model
from tests.foreign.test_record import plain
from wick_graph import langgraph_config
from wick_graph.debug import record
from wick_graph.foreign.run import NAMED
from wick_graph.store import SqlSaver, commit_policy

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


def test_copies_are_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 20
    monkeypatch.setattr(commit_policy, "WAIT_SECONDS", 60.0)  # however slow the machine is
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
    assert 0 < len(commits) < turns


class _Told(TypedDict):
    messages: Annotated[list[Any], add_messages]
    parts: dict[str, list[int]]


def _tell(state: _Told) -> Any:
    if state["messages"]:
        state["messages"][-1].content += " (changed)"  # as a careless node does
    if "parts" in state:
        state["parts"]["seen"].append(0)
    return {"messages": [AIMessage("told")], "parts": {"seen": [len(state["messages"])]}}


def test_a_copy_that_is_committed_later_holds_what_a_saver_got() -> None:
    made = StateGraph(_Told)
    for name, after in (("a", START), ("b", "a"), ("c", "b")):
        made.add_node(name, _tell)
        made.add_edge(after, name)
    saver = InMemorySaver()
    graph: Any = made.compile(checkpointer=saver)
    at: Any = {"configurable": {"thread_id": "t"}}
    with SqlSaver.from_url("sqlite://") as copies:
        with record(store=copies) as recording:
            for _ in range(3):
                graph.invoke(
                    {"messages": []}, at, durability="sync"
                )  # else its own saver may be late
        assert recording.problems == []
        kept = {one.config["configurable"]["checkpoint_id"]: one for one in copies.list(at)}
        for mine in saver.list(at):
            theirs = kept[mine.config["configurable"]["checkpoint_id"]]
            held, wanted = (one.checkpoint["channel_values"] for one in (theirs, mine))
            assert held.keys() == wanted.keys()
            assert held.get("parts") == wanted.get("parts")
            assert held.get("messages", [])[-1:] == wanted.get("messages", [])[-1:]
            assert theirs.checkpoint["versions_seen"] == mine.checkpoint["versions_seen"]
