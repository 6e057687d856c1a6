"""A clock that is set, forwards or backwards: threads go on, in order, and nothing is deleted.

Both clocks that order might wrongly depend on are set: the store's, and the time inside of
LangGraph's checkpoint ids.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import id as ids

from tests.server.support import Served
from tests.source import ROOT
from tests.store.goldens import nested
from tests.store.store_graphs import config, looping_graph
from wick_graph import Agent
from wick_graph.debug import DebugSession
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel, call

MINUTES, YEAR = 120.0, 365 * 24 * 3_600.0
SHIFTS = [pytest.param(by, id=f"{by:+.0f} s") for by in (-MINUTES, MINUTES, -YEAR, YEAR)]
SITE = """
import os, time

ahead, now, now_ns = float(os.environ["AHEAD"]), time.time, time.time_ns
time.time = lambda: now() + ahead
time.time_ns = lambda: now_ns() + int(ahead * 1e9)
"""
SetClock = Callable[[float], None]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set this machine's clock, as another process would find it that begins now."""
    now, now_ns = time.time, time.time_ns

    def by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now() + seconds)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + int(seconds * 1e9))
        monkeypatch.setattr(ids, "_last_v6_timestamp", None)

    return by


def act(what: str) -> str:
    """Act."""
    return f"done {what}"


def turns(url: str, first: int, count: int = 2) -> None:
    """Run turns in a saver of their own, as another process does."""
    steps: list[Any] = []
    for n in range(first + count):  # it finds its place by what was said
        steps += [call("act", what=str(n)), f"answer {n}"]
    with SqlSaver.from_url(url) as saver:
        agent = Agent("one", ScriptedModel(steps), tools=[act], store=saver)
        for n in range(first, first + count):
            assert agent.invoke(f"question {n}", thread_id="t").stopped_because == "done"


def check(url: str, count: int, newest: set[str]) -> None:
    """Look at the thread through every door that orders anything."""
    with SqlSaver.from_url(url) as saver:
        agent = Agent("one", ScriptedModel([]), tools=[act], store=saver)
        state = agent.graph.get_state(config("t"))
        asked = [m.content for m in state.values["messages"] if m.type == "human"]
        assert asked == [f"question {n}" for n in range(count)]
        listed = [one.config["configurable"]["checkpoint_id"] for one in saver.list(config("t"))]
        assert listed == [step.checkpoint_id for step in saver.threads.history("t")]
        assert listed[0] == state.config["configurable"]["checkpoint_id"]
        parents = {step.checkpoint_id: step.parent_id for step in saver.threads.history("t")}
        assert [parents[one] for one in listed] == [*listed[1:], None]
        behind = saver.list(config("t"), before=config("t", checkpoint_id=listed[2]))
        assert [one.config["configurable"]["checkpoint_id"] for one in behind] == listed[3:]
        assert set(listed) >= newest
        journal = Journal(saver, "t")
        assert [run.branch for run in journal.runs()] == [0] * count
        with DebugSession.open(saver, "t") as session:
            assert session.inspect.where() is not None
        saver.threads.fork("t", "forked", listed[4])
        forked = [step.checkpoint_id for step in saver.threads.history("forked")]
        assert forked == listed[4:]
        saver.threads.keep_latest("t", 3)
        assert [step.checkpoint_id for step in saver.threads.history("t")] == listed[:3]
        assert agent.graph.get_state(config("t")).values == state.values
        assert verify(saver).is_whole


@pytest.mark.sisters
@pytest.mark.parametrize("by", SHIFTS)
def test_an_agent_goes_on(url: str, set_clock: SetClock, by: float) -> None:
    turns(url, 0)
    set_clock(by)
    turns(url, 2)
    set_clock(0)
    turns(url, 4)
    check(url, 6, set())


@pytest.mark.parametrize("by", SHIFTS)
def test_a_graph_of_langgraph_goes_on(url: str, set_clock: SetClock, by: float) -> None:
    with SqlSaver.from_url(url) as saver:
        looping_graph(saver, 2).invoke({"log": ["in"]}, config())
    set_clock(by)
    with SqlSaver.from_url(url) as saver:
        graph = looping_graph(saver, 4)
        graph.invoke({"log": ["again"]}, config())
        at = [*graph.get_state_history(config())]
        assert [one.metadata["step"] for one in at] == [*range(len(at) - 2, -2, -1)]
        changed = graph.update_state(config(), {"log": ["by hand"]})
        assert graph.get_state(config()).config == changed
        forked = graph.update_state(at[4].config, {"log": ["a fork"]})
        assert graph.get_state(config()).config == forked
        assert graph.get_state(config()).values["log"][-1] == "a fork"
        assert verify(saver).is_whole


@pytest.mark.parametrize("by", SHIFTS)
def test_a_subgraph_is_replayed_from_before_its_graphs_checkpoint(
    url: str, set_clock: SetClock, by: float
) -> None:
    """LangGraph asks for the subgraph's latest checkpoint `before` one of the outer graph."""
    with SqlSaver.from_url(url) as saver:
        graph = nested(saver)
        graph.invoke({"log": ["in"]}, config())
        set_clock(by)
        outer = graph.get_state(config())
        inner = outer.tasks[0].state["configurable"]["checkpoint_ns"]
        before = config("t", checkpoint_ns=inner)
        assert [*saver.list(before, before=outer.config)] == []
        first = [*saver.list(before)]
        update = graph.update_state(outer.config, {"log": ["later"]}, as_node="before")
        assert len([*saver.list(before, before=update)]) == len(first)
        unknown = config("t", checkpoint_id="ffffffff-ffff-6fff-bfff-ffffffffffff")
        assert len([*saver.list(before, before=unknown)]) == len(first)


@pytest.mark.parametrize("by", SHIFTS)
def test_nothing_is_swept(tmp_path: Path, set_clock: SetClock, by: float) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    turns(url, 0)
    set_clock(by)
    with SqlSaver.from_url(url) as saver:
        assert (saver.sweep(), saver.sweep()) == ([], [])
    turns(url, 2)
    set_clock(0)
    with SqlSaver.from_url(url) as saver:
        assert (saver.sweep(), saver.sweep()) == ([], [])
    turns(url, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Served]:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE, "utf-8")
    path = os.pathsep.join([str(site), str(ROOT)])
    agents = "store: sqlite:///wick.db\nagents:\n  default: {model: 'scripted:talk.yaml'}\n"
    served = Served(tmp_path, ("--no-auth",), {"PYTHONPATH": path, "AHEAD": "0"})
    yield served.write(agents=agents, talk="steps: [one, two, three, four, five, six]\n")
    if served.process is not None:
        served.process.kill()
        served.process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("by", [-MINUTES, pytest.param(YEAR, marks=pytest.mark.slow)])
def test_commands_and_servers_go_on(folder: Served, by: float) -> None:
    for at, ahead in enumerate((0.0, by, 0.0)):
        folder.env["AHEAD"] = str(ahead)
        folder.wick("run", f"question {2 * at}", "--thread", "t")
        assert folder.wick("threads", "prune", "--json") == json.dumps({"deleted": []}, indent=2)
        folder.start()
        with folder.http() as http:
            body = {"messages": [{"role": "user", "content": f"question {2 * at + 1}"}]}
            got = http.post("/agents/default/invoke", json={**body, "thread_id": "t"})
            assert got.status_code == 200, got.text
        folder.stop()
    shown = json.loads(folder.wick("threads", "show", "t", "--json"))
    asked = [m["content"] for m in shown["messages"] if m["role"] == "user"]
    assert asked == [f"question {n}" for n in range(6)]
    assert json.loads(folder.wick("store", "verify", "--json"))["findings"] == []
