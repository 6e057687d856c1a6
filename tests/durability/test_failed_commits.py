"""One commit fails, as on a full disk, and the next ones do not: what is stored stays whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.orphans import assert_no_orphans
from wick_graph import Agent, tool
from wick_graph.errors import StorageError
from wick_graph.hooks import ApprovalHook
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.store.threads import Threads
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel, call

Refuse = Callable[..., None]


@pytest.fixture
def store(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url) as opened:
        yield opened


@pytest.fixture
def refuse(store: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let some of the next commits fail, by number.

    All is real but the database's answer to COMMIT: no disk is full for one chosen commit alone.
    """
    core = store._core
    real = core._commit

    def chosen(*numbers: int) -> None:
        made = 0

        def commit() -> None:
            nonlocal made
            if core._group is not None:
                made += 1
                if made in numbers:
                    full = core._errors[0]("database or disk is full")
                    core._fail(core._group, core._explained(full))
                    return
            real()

        monkeypatch.setattr(core, "_commit", commit)

    return chosen


def assert_whole(store: SqlSaver) -> None:
    found = verify(store)
    assert found.is_whole, found.findings


@pytest.mark.parametrize("alone", [True, False])
def test_a_call_whose_commit_failed_is_written_anew(
    store: SqlSaver, refuse: Refuse, alone: bool
) -> None:
    """Also if it shares a commit, which fails after the call is done: a retry hook repeats it."""
    lease = store.leases.acquire("t")
    ledger = store.ledger(lease)
    ledger.begin("known", "tool", {"a": 1}, "never")
    writing: list[Callable[[], object]] = [
        lambda: ledger.begin("new", "tool", {"a": 1}, "never"),
        lambda: ledger.finish("known", "tool", {"a": 1}, {"output": "x"}),
        lambda: ledger.mark_waiting("new", "tool", {"a": 1}),
    ]
    for write in writing:
        refuse(1)
        with pytest.raises(StorageError):
            write() if alone else store.leases.together(write)
        assert_whole(store)
        write()
        assert_whole(store)
    store.leases.release(lease)


@pytest.mark.sisters(6)
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("nth", range(1, 7))
def test_no_writes_stay_without_their_checkpoint(
    store: SqlSaver, refuse: Refuse, nth: int, asynchronous: bool
) -> None:
    agent = Agent("A", ScriptedModel(["one", "two", "three"], cursor="fifo"), store=store)

    def run() -> Any:
        if asynchronous:
            return asyncio.run(agent.ainvoke("hi", thread_id="t"))
        return agent.invoke("hi", thread_id="t")

    refuse(nth)
    try:
        run()
    except StorageError:
        refuse()
        assert_whole(store)
    refuse()
    assert run().stopped_because == "done"
    assert_whole(store)
    store.prune(["t"])
    store.copy_thread("t", "copy")
    assert_whole(store)
    assert_no_orphans(store)
    assert not store._core.strays, "a healthy run looks for nothing"


def test_strays_of_a_process_that_died_are_pruned_and_not_copied(store: SqlSaver) -> None:
    agent = Agent("A", ScriptedModel(["one", "two"]), store=store)
    agent.invoke("hi", thread_id="t")
    head: Any = agent.graph.get_state({"configurable": {"thread_id": "t"}}).config
    stray = "0" + head["configurable"]["checkpoint_id"][1:]
    gone = {"configurable": {**head["configurable"], "checkpoint_id": stray}}
    for name in ("", "inner:1"):
        at: Any = {"configurable": {**gone["configurable"], "checkpoint_ns": name}}
        store.put_writes(at, [("messages", ["never"])], "00000000-0000-0000-0000-000000000001")
    store._core.strays.__init__()  # type: ignore[misc]  # as in a new process
    assert not verify(store).is_whole
    store.copy_thread("t", "copy")
    store.threads.keep_latest("t", 1_000)
    assert_whole(store)
    store.prune(["copy"])
    assert_whole(store)
    assert_no_orphans(store)


@pytest.mark.parametrize("closes", [False, True])
def test_how_a_run_ended_is_written_when_that_is_possible(
    store: SqlSaver,
    refuse: Refuse,
    url: str,
    closes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("A", ScriptedModel(["one", "two"]), store=store)
    real = store.leases.together

    def closing(work: Callable[[], Any], **how: Any) -> Any:
        if agent.graph.get_state({"configurable": {"thread_id": "t"}}).values.get("messages"):
            refuse(1)
        return real(work, **how)

    monkeypatch.setattr(store.leases, "together", closing)  # it only tells when the run is closed
    with pytest.raises(StorageError):
        agent.invoke("hi", thread_id="t")
    assert getattr(store.threads.get("t"), "status", "") == "running"
    if closes:
        store.close()
    else:
        store.leases.settle(at_once=True)
    with SqlSaver.from_url(url) as other:
        info = other.threads.get("t")
        assert info is not None
        assert (info.status, info.stopped_because) == ("idle", "done")
        assert other.leases.epoch("t") is None
        assert_whole(other)


def ask() -> str:
    """Ask."""
    return "asked"


@pytest.mark.parametrize("reply", ["Done.", call("ask")])
def test_a_new_run_writes_the_end_that_the_last_one_could_not(
    store: SqlSaver, refuse: Refuse, url: str, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor could the first run after it: the thread is free, and both know of the first one's end.

    The thread must not look busy until the lease has expired.
    """
    asks = Agent(
        "A",
        ScriptedModel(["one", reply, "three"]),
        tools=[tool(ask)],
        hooks=[ApprovalHook({"ask": True})],
        store=store,
    )
    asks.invoke("hi", thread_id="t")
    release = store.leases.release

    def full(*args: Any, **how: Any) -> None:
        refuse(*range(1, 100))
        release(*args, **how)

    store.leases.release = full  # type: ignore[method-assign]  # it only tells when the run ends
    for text in ("go on", "and?"):
        with pytest.raises(StorageError):
            asks.invoke(text, thread_id="t")
    store.leases.release = release  # type: ignore[method-assign]  # as above
    refuse()
    before: list[Any] = []
    opens = Threads.open

    def opened(*args: Any, **how: Any) -> Any:
        before.append(opens(*args, **how))
        return before[-1]

    monkeypatch.setattr(Threads, "open", opened)
    asks.invoke("and now?", thread_id="t")
    ended = "waiting" if reply != "Done." else "idle"
    assert [one.status for one in before] == [ended]
    with SqlSaver.from_url(url) as other:
        assert [run.status for run in Journal(other, "t").runs()] == ["ended"] * 3
        assert_whole(other)


def test_an_owed_lease_may_come_while_others_are_looked_through(store: SqlSaver) -> None:
    """The thread that renews all leases looks through them while runs end."""
    owed: Any = store._core.owed

    class Arriving:
        @property
        def since(self) -> float:
            owed[len(owed), 2] = self
            return float("inf")

    owed[0, 1] = Arriving()
    store.leases.settle()
    owed.clear()


def test_what_is_done_together_fails_together(store: SqlSaver, refuse: Refuse, url: str) -> None:
    """Another thread reads between the two: it commits what is open, and that fails."""
    lease = store.leases.acquire("t")
    ledger = store.ledger(lease)
    readers: list[threading.Thread] = []

    def both() -> None:
        ledger.begin("first", "tool", {}, "never")
        readers.append(threading.Thread(target=store.leases.check_ownership))
        readers[0].start()
        readers[0].join(0.3)
        ledger.begin("second", "tool", {}, "never")

    refuse(1)
    with pytest.raises(StorageError):
        store.leases.together(both)
    readers[0].join()
    with SqlSaver.from_url(url) as other:
        again = other.ledger(lease)
        assert [again.begun(key, "tool", {}) for key in ("first", "second")] == [None, None]
