"""Which rows are committed when: by node, by who is told, by the tool, by LangGraph's durability.

Another connection looks at the file at four points of a run: in each of two model calls, in the
tool between them, and when the run has returned. Nothing is written because time has passed. A
row of the table says up to which node everything is on disk at each point, and how the ledger knows
the call; what comes later waits, and a crash makes it again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from tests.store.store_graphs import put_writes_late
from wick_graph import Agent, BaseHook, SqlSaver, tool
from wick_graph.testing import ScriptedModel, call

Look = Callable[[str], None]


class Looking(ScriptedModel):
    """Look at the file before each reply."""

    def __init__(self, look: Look, *steps: Any) -> None:
        super().__init__(list(steps))
        object.__setattr__(self, "_look", look)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        object.__getattribute__(self, "_look")("model")
        return super()._generate(messages, *args, **kwargs)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def saver(path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{path}") as opened:
        opened._core._flusher.close()
        yield opened


def seen(path: Path) -> tuple[int, int, str]:
    """Count checkpoints and tasks with writes, and tell the ledger's states."""
    db = sqlite3.connect(path)
    try:
        (checkpoints,) = db.execute("SELECT count(*) FROM checkpoints").fetchone()
        (tasks,) = db.execute("SELECT count(*) FROM writes").fetchone()
        states = [state for (state,) in db.execute("SELECT state FROM calls ORDER BY rid")]
        return checkpoints, tasks, ",".join(states)
    finally:
        db.close()


def observe(
    saver: SqlSaver, path: Path, *, observed: bool, replay: Any, durability: Any
) -> dict[str, tuple[int, int, str]]:
    """Run one turn with a call and one without, and tell what was on disk at each point."""
    found: dict[str, tuple[int, int, str]] = {}

    def look(where: str) -> None:
        name = f"{where} 2" if where in found else where
        found[name] = seen(path)

    @tool(replay=replay)
    def act() -> str:
        """Act."""
        look("tool")
        return "acted"

    agent = Agent(model=Looking(look, call("act"), "ok"), tools=[act], store=saver)
    given: Any = {"messages": [("user", "?")]}
    config: Any = {"configurable": {"thread_id": "t"}}
    if observed:
        for _ in agent.graph.stream(given, config, stream_mode="updates", durability=durability):
            pass
    else:
        agent.graph.invoke(given, config, durability=durability)
    look("end")
    return found


NODES = (
    *("input", "start", "before_agent", "modify_request", "model"),
    *("tools", "modify_request 2", "model 2"),
)
"""After what a run of two model calls has its checkpoints, in their order."""
ALONE = {"model": "start", "tool": "model", "model 2": "model", "end": "model 2"}
"""The last node of which everything is committed, at each point, where nobody is told."""
OBSERVED = {
    **{"model": "modify_request", "tool": "model"},
    **{"model 2": "modify_request 2", "end": "model 2"},
}
ONCE = {"model": "", "tool": "intent", "model 2": "done", "end": "done"}
"""What the ledger knows of a call that may not simply be repeated."""
TOLD = {"model": "", "tool": "", "model 2": "done", "end": "done"}
NOTHING = {"model": "", "tool": "", "model 2": "", "end": ""}
TABLE = {
    ("alone", "never"): (ALONE, ONCE),
    ("alone", "key"): (ALONE, ONCE),
    ("alone", "safe"): (ALONE, NOTHING),
    ("observed", "never"): (OBSERVED, ONCE),
    ("observed", "key"): (OBSERVED, ONCE),
    ("observed", "safe"): (OBSERVED, TOLD),
}

every_row = pytest.mark.parametrize(("who", "replay"), TABLE)


@every_row
def test_what_is_committed_when(saver: SqlSaver, path: Path, who: str, replay: Any) -> None:
    found = observe(saver, path, observed=who == "observed", replay=replay, durability="sync")
    nodes, ledger = TABLE[who, replay]
    assert {at: NODES[checkpoints - 1] for at, (checkpoints, _, _) in found.items()} == nodes
    assert {at: NODES[tasks] for at, (_, tasks, _) in found.items()} == nodes
    assert {at: states for at, (_, _, states) in found.items()} == ledger


@every_row
def test_writes_that_come_after_their_checkpoint_change_nothing(
    saver: SqlSaver, path: Path, monkeypatch: pytest.MonkeyPatch, who: str, replay: Any
) -> None:
    """LangGraph gives both to threads, in no promised order; Python 3.13 often turns it round."""
    put_writes_late(monkeypatch)
    test_what_is_committed_when(saver, path, who, replay)


def test_whatever_is_told_is_on_disk(saver: SqlSaver, path: Path) -> None:
    """Whoever is told of a node finds its writes there, those of a call in the ledger."""

    @tool
    def act() -> str:
        """Act."""
        return "acted"

    agent = Agent(model=Looking(lambda _: None, call("act"), "ok"), tools=[act], store=saver)
    given: Any = {"messages": [("user", "?")]}
    config: Any = {"configurable": {"thread_id": "t"}}
    told = []
    for update in agent.graph.stream(given, config, stream_mode="updates", durability="sync"):
        told += update
        _, tasks, calls = seen(path)
        assert NODES[tasks] == NODES[1 + len(told)] or (told[-1], calls) == ("tools", "done"), told
    assert len(told) == len(NODES) - 2


@every_row
def test_without_a_saver_s_promise_the_ledger_keeps_its_own(
    saver: SqlSaver, path: Path, who: str, replay: Any
) -> None:
    """With `exit` there is one checkpoint, at the end; calls are on record all the same."""
    found = observe(saver, path, observed=who == "observed", replay=replay, durability="exit")
    _, ledger = TABLE[who, replay]
    assert {at: (one, two) for at, (one, two, _) in found.items()} == {
        **dict.fromkeys(("model", "tool", "model 2"), (0, 0)),
        "end": (1, 0),
    }
    assert {at: states for at, (_, _, states) in found.items()} == ledger


@every_row
def test_what_is_written_in_the_background_is_there_at_the_end(
    saver: SqlSaver, path: Path, who: str, replay: Any
) -> None:
    """With `async` LangGraph says when it hands a step over; the ledger waits for nobody."""
    found = observe(saver, path, observed=who == "observed", replay=replay, durability="async")
    _, ledger = TABLE[who, replay]
    assert found["end"][:2] == (len(NODES), len(NODES) - 1)
    assert {at: states for at, (_, _, states) in found.items()} == ledger
    assert [*found] == ["model", "tool", "model 2", "end"]


class Late(SqlSaver):
    """Save the checkpoint after one node only when the next node has run.

    With `async` LangGraph saves in the background; this is a slow disk at its worst. All else is
    saved in the order in which it was made.
    """

    def late(self, path: Path, after: str) -> None:
        """Say which checkpoint comes late."""
        self._path, self._step = path, NODES.index(after) - 1
        self._saved: set[str] = set()
        self._late = ""
        self._ran = False
        self._news = threading.Condition()
        self.committed: bool | None = None

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        is_late = metadata["step"] == self._step
        if is_late:
            self._say("_late", checkpoint["id"])
            self._wait(lambda: self._ran)
        before, *_ = seen(self._path)
        try:
            return super().put(config, checkpoint, metadata, new_versions)
        finally:
            if is_late:
                self.committed = seen(self._path)[0] > before
            self._say("_saved", self._saved | {checkpoint["id"]})

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        began_from = config["configurable"]["checkpoint_id"]
        self._wait(lambda: began_from in self._saved or began_from == self._late)
        if began_from == self._late:
            self.run_next()
        super().put_writes(config, writes, task_id, task_path)

    def run_next(self) -> None:
        """Note that the next node runs, and let it stand still until the checkpoint is saved."""
        self._say("_ran", True)
        self._wait(lambda: self._late in self._saved)

    def _say(self, name: str, value: Any) -> None:
        with self._news:
            setattr(self, name, value)
            self._news.notify_all()

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(until, 60)


class Opening(BaseHook):
    """Do something before each input that a crash would do again."""

    name = "opening"

    def before_agent(self, state: Any, ctx: Any) -> None:
        """Do nothing that is to be seen."""


@pytest.mark.parametrize("who", ["alone", "observed"])
@pytest.mark.parametrize("hooks", [(), (Opening(),)], ids=["plain", "hooked"])
@pytest.mark.parametrize("after", NODES[2:7])
def test_no_later_node_decides_about_a_checkpoint(
    path: Path, after: str, hooks: tuple[BaseHook, ...], who: str
) -> None:
    """What may wait is said for one superstep: a late checkpoint finds no word about it."""

    @tool(replay="never")
    def act() -> str:
        """Act."""
        return "acted"

    with Late.from_url(f"sqlite:///{path}") as saver:
        saver._core._flusher.close()
        saver.late(path, after)
        agent = Agent(
            model=ScriptedModel([call("act"), "ok"]), tools=[act], hooks=hooks, store=saver
        )
        given: Any = {"messages": [("user", "?")]}
        config: Any = {"configurable": {"thread_id": "t"}}
        if who == "observed":
            modes: Any = {"stream_mode": "updates", "durability": "async"}
            assert [*agent.graph.stream(given, config, **modes)]
        else:
            agent.graph.invoke(given, config, durability="async")
    assert saver.committed is True


def test_a_late_reply_does_not_wait_for_calls_that_have_begun(path: Path) -> None:
    """The intents were to take it along, and are committed already."""
    with Late.from_url(f"sqlite:///{path}") as saver:
        saver._core._flusher.close()
        saver.late(path, "model")

        @tool(replay="never")
        def act() -> str:
            """Act."""
            saver.run_next()
            return "acted"

        agent = Agent(model=ScriptedModel([call("act"), "ok"]), tools=[act], store=saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        agent.graph.invoke({"messages": [("user", "?")]}, config, durability="async")
    assert saver.committed is True


@pytest.mark.parametrize("observed", [False, True])
def test_an_input_is_committed_with_its_first_step_unless_steps_are_told(
    saver: SqlSaver, observed: bool
) -> None:
    """No node runs between the two, so a crash between them would leave nothing to go on with."""
    made, commits = [0], list[int]()

    def see(statement: str) -> None:
        made[0] += statement.startswith("INSERT INTO checkpoints")
        if statement == "COMMIT":
            commits.append(made[0])

    agent = Agent(model=ScriptedModel(["ok"]), store=saver)
    saver._core._connection.set_trace_callback(see)  # type: ignore[union-attr]  # it is SQLite's
    given: Any = {"messages": [("user", "?")]}
    config: Any = {"configurable": {"thread_id": "t"}}
    if observed:
        assert list(agent.graph.stream(given, config, stream_mode="updates"))
    else:
        agent.graph.invoke(given, config)
    assert commits[0] == 0  # the lease
    assert (1 in commits) == observed
    assert 2 in commits
