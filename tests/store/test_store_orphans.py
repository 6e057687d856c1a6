"""What is deleted takes along everything that only it needed, and nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage

from tests.store.conftest import Counts
from tests.support.orphans import assert_no_orphans
from wick_graph import Agent, BaseHook
from wick_graph.constants import RUN_KNOWN_SECONDS
from wick_graph.core.state import REMOVE_ALL
from wick_graph.store import SqlSaver, copying
from wick_graph.store.transactions import Transactions
from wick_graph.testing import ScriptedModel, call

ON: Any = {"configurable": {"thread_id": "t"}}
LONG = "a long text " * 100


class Knows(BaseHook):
    """Adds to the prompt what was said, so that the journal has something of its own to keep."""

    name = "knows"

    def modify_request(self, request: Any, ctx: Any) -> Any:
        said = next(m.text for m in reversed(ctx.state["messages"]) if m.type == "human")
        return request.append_system(f"somebody said {said} {LONG}")


def working(store: SqlSaver, *, turns: int = 3, journal: Any = "full") -> Agent:
    """Make an agent whose every turn has a call, and have it answer that often."""

    def act(n: int) -> str:
        """Act."""
        return f"{LONG} {n}"

    def steps(turn: int) -> list[Any]:
        return [call("act", n=turn), f"answer {turn}"]

    agent = Agent(
        model=ScriptedModel([step for turn in range(turns + 2) for step in steps(turn)]),
        tools=[act],
        hooks=[Knows()],
        store=store,
        journal=journal,
    )
    for turn in range(turns):
        agent.invoke(f"question {turn}", thread_id="t")
    return agent


def runs_of(saver: SqlSaver) -> list[str]:
    """Return the ids of the thread's runs, the oldest first."""
    found = [saved.metadata.get("run_id") for saved in saver.list(ON)]
    return list(dict.fromkeys(str(run) for run in reversed(found) if run))


def test_a_full_life_leaves_no_orphan(saver: SqlSaver, counts: Counts) -> None:
    agent = working(saver)
    assert_no_orphans(saver)
    saver.threads.fork("t", "whole")
    history = list(agent.graph.get_state_history(ON))
    for nth in (1, 6, len(history) - 1):
        at = history[nth].config["configurable"]["checkpoint_id"]
        saver.threads.fork("t", f"at{nth}", at)
    assert_no_orphans(saver)
    saver.copy_thread("t", "copy")
    saver.threads.keep_latest("t", 2)
    assert_no_orphans(saver)
    saver.prune(["whole"])
    assert agent.invoke("one more", thread_id="t").text == "answer 3"
    saver.delete_for_runs(runs_of(saver)[-1:])
    assert_no_orphans(saver)
    for info in saver.threads.list(limit=1_000):
        saver.threads.delete(info.thread_id)
    assert not any(counts().values())


def test_pruning_drops_the_calls_that_no_state_knows(saver: SqlSaver, counts: Counts) -> None:
    agent = working(saver)
    assert counts()["calls"] == 3
    saver.threads.keep_latest("t", 1)
    assert counts()["calls"] == 3  # the history still holds the replies that asked for them
    agent.graph.update_state(ON, {"messages": [RemoveMessage(REMOVE_ALL), HumanMessage("anew")]})
    saver.threads.keep_latest("t", 1)
    assert counts()["calls"] == 0
    assert_no_orphans(saver)


def test_a_call_that_was_under_way_stays_known_after_pruning(saver: SqlSaver) -> None:
    """The reply that asked for it stands, so whoever goes on must learn that it began."""

    def act() -> str:
        """Act."""
        raise KeyboardInterrupt

    agent = Agent(model=ScriptedModel([call("act"), "ok"]), tools=[act], store=saver)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke("go", thread_id="t")
    saver.threads.keep_latest("t", 1)
    assert_no_orphans(saver)
    told = agent.invoke("and now?", thread_id="t").messages
    assert ["outcome unknown" in m.text for m in told if m.type == "tool"] == [True]


def test_deleting_a_run_takes_its_journal_and_its_events_along(
    saver: SqlSaver, counts: Counts
) -> None:
    working(saver, turns=2)
    first, second = runs_of(saver)
    serve(saver, first, 3)
    serve(saver, second, 2)
    before = counts()
    saver.delete_for_runs([first])
    assert_no_orphans(saver)
    after = counts()
    for table in ("runs", "moments", "blobs", "streams", "events"):
        assert 0 < after[table] < before[table], table
    assert [row.run_id for row in saver.streams.of_thread("t")] == [second]
    assert [number for number, _ in saver.streams.read("t", 0)] == [4, 5]
    saver.delete_for_runs([second])
    assert_no_orphans(saver)
    left = {table: rows for table, rows in counts().items() if rows}
    assert left.keys() <= {"threads", "names", "leases", "events", "digests"}
    assert saver.streams.read("t", 0) == []
    assert serve(saver, str(UUID(int=9)), 1) == 6  # a number that was told is not told again


def test_more_runs_are_deleted_than_a_statement_can_name(saver: SqlSaver, counts: Counts) -> None:
    working(saver, turns=2)
    first, second = runs_of(saver)
    serve(saver, first, 3)
    saver.delete_for_runs([*(str(UUID(int=n)) for n in range(70_000)), first])
    assert runs_of(saver) == [second]
    assert counts()["streams"] == 0
    assert_no_orphans(saver)


def test_a_run_is_deleted_of_which_only_the_journal_was_left(
    saver: SqlSaver, counts: Counts
) -> None:
    working(saver, turns=2)
    first = runs_of(saver)[0]
    saver.threads.keep_latest("t", 1)
    assert first not in runs_of(saver)
    assert counts()["runs"] == 2
    saver.delete_for_runs([first])
    assert counts()["runs"] == 1
    assert_no_orphans(saver)


def serve(saver: SqlSaver, run: str, told: int) -> int:
    """Do as a server whose run tells so much; return the number of the last that it told."""
    row = saver.streams.begin("t", run, {"agent": "a"}, run.encode())
    assert row is not None
    for n in range(told):
        last = row.first + n
        saver.streams.append(row, last, [{"event": "x", "n": n}], "done" if n == told - 1 else None)
    return last


@pytest.mark.parametrize(
    ("age", "known"), [(RUN_KNOWN_SECONDS - 60, 2), (RUN_KNOWN_SECONDS + 60, 1)]
)
def test_a_server_knows_a_pruned_run_for_a_day(saver: SqlSaver, age: float, known: int) -> None:
    agent = working(saver, turns=1)
    serve(saver, first := runs_of(saver)[0], 2)
    now = saver.clock()
    saver.clock = lambda: now + age
    agent.invoke("more", thread_id="t")
    serve(saver, runs_of(saver)[-1], 2)
    saver.threads.keep_latest("t", 1)
    assert len(saver.streams.of_thread("t")) == known
    assert (saver.streams.by_key(first.encode()) is not None) is (known == 2)
    assert len(saver.streams.read("t", 0)) == 2 * known
    assert_no_orphans(saver)


def test_events_of_pruned_runs_leave_one_row_however_often(saver: SqlSaver, counts: Counts) -> None:
    """The number of the thread's last event is not free; those before it are of no use."""
    agent, now = working(saver, turns=1), saver.clock()
    for day in (1, 2):
        serve(saver, runs_of(saver)[-1], 2)
        later = now + day * (RUN_KNOWN_SECONDS + 60)
        saver.clock = lambda at=later: at  # type: ignore[misc]  # it is of this turn
        agent.invoke(f"day {day}", thread_id="t")
        saver.threads.keep_latest("t", 1)
        assert (counts()["events"], counts()["streams"]) == (1, 0)


def killed(work: Callable[[], object]) -> None:
    """Run in a fork that must be killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


POINTS = {
    "with the first rows": (copying._Copy, "_checkpoint"),
    "before what was later is cut off": (copying, "_cut"),
    "before it is named": (copying, "_note"),
    "before the commit": (Transactions, "_commit"),
}


@pytest.mark.parametrize("point", list(POINTS))
def test_a_fork_is_whole_or_not_there(
    url: str, saver: SqlSaver, counts: Counts, point: str
) -> None:
    agent = working(saver, turns=2)
    middle = [*agent.graph.get_state_history(ON)][4].config["configurable"]["checkpoint_id"]
    before, (where, what) = counts(), POINTS[point]

    def fork() -> None:
        with SqlSaver.from_url(url) as mine:
            if point == "before the commit":
                named = copying._note

                def last(*args: Any) -> None:
                    named(*args)
                    setattr(where, what, die)

                vars(copying)["_note"] = last
            else:
                setattr(where, what, die)
            mine.threads.fork("t", "u", middle)

    killed(fork)
    assert counts() == before
    assert saver.threads.get("u") is None
    made = saver.threads.fork("t", "u", middle)  # the name is free: nothing of it is there
    assert made.steps < saver.threads.get("t").steps  # type: ignore[union-attr]  # it is there
    assert_no_orphans(saver)


def test_a_fork_is_one_commit(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = working(saver, turns=2)
    middle = [*agent.graph.get_state_history(ON)][4].config["configurable"]["checkpoint_id"]
    commits: list[str] = []
    original = Transactions._commit

    def counted(store: Any) -> None:
        if store._group is not None and store._group.members:
            commits.append("commit")
        original(store)

    monkeypatch.setattr(Transactions, "_commit", counted)
    copying.fork_thread(saver._core, saver.serde, "t", "u", middle)
    assert commits == ["commit"]


@pytest.mark.parametrize("again", [False, True])
def test_a_run_whose_thread_is_being_deleted_writes_nothing_more(
    saver: SqlSaver, counts: Counts, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Neither to the rows that are being removed, nor to a new thread of that name."""

    def drop() -> str:
        """Drop the thread."""
        with monkeypatch.context() as patch:
            patch.setattr("wick_graph.store.cleanup.remove", lambda *_: None)  # it takes long
            saver.threads.delete("t")
        if again:
            Agent(model=ScriptedModel(["anew"]), store=saver).invoke("go", thread_id="t")
        return "dropped"

    agent = Agent(model=ScriptedModel([call("drop"), "Done."]), tools=[drop], store=saver)
    assert agent.invoke("go", thread_id="t").stopped_because == "cancelled"
    if again:
        messages = agent.graph.get_state(ON).values["messages"]
        assert [m.text for m in messages] == ["go", "anew"]
        saver.threads.delete("t")
    assert saver.threads.get("t") is None
    saver.sweep()
    assert not any(counts().values())
