"""Two writers on one thread: never a fork that nobody meant."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.source import ROOT
from tests.store.store_graphs import agent, config, looping_graph
from tests.store.test_store_sharing import Line
from tests.support import forked
from wick_graph.errors import ThreadBusyError
from wick_graph.store import SqlSaver


def given(text: str) -> Any:
    return {"messages": [HumanMessage(text, id=text)]}


def test_the_second_of_two_runs_is_refused(saver: SqlSaver) -> None:
    graph = looping_graph(saver, 2)
    graph.invoke(given("first"), config())
    one = graph.stream(given("one"), config(), durability="sync")
    two = graph.stream(given("two"), config(), durability="sync")
    next(one)
    with pytest.raises(ThreadBusyError, match="changed by another run"):
        list(two) + list(one)
    ids = [m.id for m in graph.get_state(config()).values["messages"]]
    assert [name for name in ids if name in ("first", "one", "two")] == ["first", "one", "two"]


def test_two_runs_that_begin_one_thread(saver: SqlSaver) -> None:
    first, second = Line(saver), Line(saver)
    for _ in range(2):  # both look before either writes
        assert saver.get_tuple(config()) is None
    first.put(log=["a"])
    with pytest.raises(ThreadBusyError):
        second.put(log=["b"])
    assert first.get() == {"log": ["a"]}


def test_an_update_during_a_run_stops_the_run(saver: SqlSaver) -> None:
    graph = looping_graph(saver, 5)
    run = graph.stream(given("one"), config(), durability="sync")
    next(run)
    graph.update_state(config(), {"messages": [AIMessage("by hand", id="u")]}, as_node="think")
    with pytest.raises(ThreadBusyError):
        list(run)
    assert graph.get_state(config()).values["messages"][-1].id == "u"


def test_a_fork_that_was_asked_for_is_made(url: str) -> None:
    with SqlSaver.from_url(url) as first:
        looping_graph(first, 3).invoke(given("one"), config())
    with SqlSaver.from_url(url) as second:  # which knows nothing of what the first one did
        graph = looping_graph(second, 3)
        middle = [s for s in graph.get_state_history(config()) if s.next == ("act",)][-1]
    with SqlSaver.from_url(url) as third:
        graph = looping_graph(third, 3)
        graph.invoke(None, middle.config)
        graph.update_state(middle.config, {"messages": [AIMessage("x", id="x")]}, as_node="think")
        assert graph.get_state(config()).values["messages"][-1].id == "x"


def test_a_clock_that_goes_back_does_not_stop_a_run(saver: SqlSaver) -> None:
    line = Line(saver)
    ids = [line.put(log=[str(n)]) for n in range(3)]
    line.parent = ids[2]
    saver.get_tuple(config("t", checkpoint_id=ids[0]))
    line.parent = ids[0]
    early = line.put(id="00000000-0000-6000-8000-000000000000", log=["fork"])
    line.parent = early
    assert line.put(log=["after"])
    assert line.get() == {"log": ["after"]}


STARTED = """\
import json, sys
from tests.store.test_store_writers import take_turns
print("ready", flush=True)
sys.stdin.read()
print(json.dumps(take_turns(*sys.argv[1:])))
"""


def take_turns(url: str, name: str) -> list[str]:
    acknowledged = []
    with SqlSaver.from_url(url, synchronous="NORMAL") as saver:
        graph = agent(saver, turns=2)
        for n in range(15):
            try:
                graph.invoke(given(f"{name}-{n}"), config(), durability="sync")
            except ThreadBusyError:
                continue
            acknowledged.append(f"{name}-{n}")
    return acknowledged


@pytest.mark.sisters
def test_two_processes_on_one_thread_lose_no_turn(url: str) -> None:
    command = [sys.executable, "-c", STARTED, url]
    pipes: Any = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    workers = [forked.Popen([*command, name], cwd=ROOT, **pipes) for name in "ab"]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()  # both start at once
    acknowledged = set[str]()
    for worker in workers:
        assert worker.stdout is not None
        with worker.stdout as said:
            acknowledged |= {*json.loads(said.read())}
        assert worker.wait(60) == 0
    with SqlSaver.from_url(url) as saver:
        messages = agent(saver).get_state(config()).values["messages"]
    present = [m.id for m in messages if m.type == "human"]
    assert acknowledged <= {*present}
    assert len(present) == len({*present})
