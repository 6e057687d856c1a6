"""A commit is done, and its answer is lost on the way: nobody may be worse off than without one."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from tests.support.orphans import assert_no_orphans
from tests.support.proxy import LossyProxy
from wick_graph import Agent, tool
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.server_rows import ServerRuns
from wick_graph.testing import ScriptedModel, call

COMMITS = 6
"""As many commits as the run below makes, at most."""


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[LossyProxy]:
    made = LossyProxy(postgres_url)
    yield made
    made.close()


def losing(proxy: LossyProxy, nth: int) -> None:
    """Lose the answer to the n-th commit from now on."""
    proxy.commits = 0
    proxy.lose = lambda number: number == nth


def test_a_lease_whose_commit_was_not_answered_is_taken(proxy: LossyProxy) -> None:
    with SqlSaver.from_url(proxy.url) as saver:
        losing(proxy, 1)
        lease = saver.leases.acquire("t")
        with SqlSaver.from_url(proxy.url) as other:  # it is held against everybody else
            assert other.leases.epoch("t") == lease.epoch
            saver.leases.release(lease)
            assert other.leases.epoch("t") is None


def failing(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next commit fail without getting there."""
    inner: Any = saver._core._connection
    left = [1]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def execute(self, text: str, *values: Any) -> Any:
            if text == "COMMIT" and left:
                left.pop()
                raise sqlite3.OperationalError("disk I/O error")
            return inner.execute(text, *values)

    monkeypatch.setattr(saver._core, "_connection", Failing())


def test_a_taking_that_failed_is_not_taken_for_the_next_owners(
    url_of_sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is closed only later; the thread is somebody else's by then."""
    taken: list[Any] = []
    with SqlSaver.from_url(url_of_sqlite) as saver, SqlSaver.from_url(url_of_sqlite) as other:
        saver.threads.open("t", agent="a", ttl=60, run_id="r0")
        failing(saver, monkeypatch)
        with pytest.raises(StorageError):
            saver.leases.together(lambda: taken.append(saver.leases.acquire("t")))
        theirs = other.leases.acquire("t")
        other.threads.open("t", agent="a", ttl=60, run_id="r1", lease=theirs)
        saver.threads.note_end(taken[0], status="failed", stopped_because="failed")
        saver.leases.release(taken[0])
        assert other.threads.get("t").status == "running"  # type: ignore[union-attr]  # it is there
        assert other.leases.epoch("t") == theirs.epoch


def test_a_question_that_is_written_again_takes_the_place_of_the_last(
    url_of_sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that says that a failed commit may be tried again."""
    with SqlSaver.from_url(url_of_sqlite) as saver:
        monkeypatch.setattr(saver._core.dialect, "may_pass", lambda error: True)
        on: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        on = saver.put(on, empty_checkpoint(), {"source": "input", "step": -1}, {})
        saver.put_writes(on, [("__interrupt__", "the first")], "task")
        failing(saver, monkeypatch)
        saver.put_writes(on, [("__interrupt__", "the second")], "task")
        saved = saver.get_tuple(on)
        assert saved is not None
        assert [value for *_, value in saved.pending_writes or ()] == ["the second"]


@pytest.fixture
def url_of_sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'threads.db'}"


@pytest.mark.sisters(2)
@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
def test_a_run_one_of_whose_commits_was_not_answered_goes_on(proxy: LossyProxy, nth: int) -> None:
    effects: Counter[int] = Counter()

    @tool(replay="never")
    def act(n: int) -> str:
        """Act."""
        effects[n] += 1
        return f"acted {n}"

    steps: list[Any] = [call("act", n=1), call("act", n=2), "ok"]
    with Agent(model=ScriptedModel(steps), tools=[act], store=proxy.url) as agent:
        agent.threads.list()
        losing(proxy, nth)
        done = agent.invoke("go", thread_id="t")
        assert proxy.commits > nth, "no such commit"
        assert done.text == "ok"
        assert [m.text for m in done.messages if m.type == "tool"] == ["acted 1", "acted 2"]
        assert effects == {1: 1, 2: 1}
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "done")
        said = [m.type for m in done.messages if m.type != "chat"]  # beside what is recorded
        assert said == ["human", "ai", "tool", "ai", "tool", "ai"]
        assert isinstance(agent.store, SqlSaver)
        assert_no_orphans(agent.store)


def test_two_servers_that_get_one_key_at_one_moment_begin_one_run(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, superseded = threading.Barrier(2, timeout=60), ServerRuns._supersede

    def meet(streams: ServerRuns, *args: Any) -> None:
        both.wait()  # both have looked for the key, and found nothing
        superseded(streams, *args)

    monkeypatch.setattr(ServerRuns, "_supersede", meet)
    outcomes: list[Any] = []

    def begin(saver: SqlSaver, n: int) -> None:
        try:
            row = saver.streams.begin(f"t{n}", str(UUID(int=n)), {"input": "same"}, b"key")
            outcomes.append(None if row is None else row.run_id)
        except BaseException as error:
            outcomes.append(error)

    with SqlSaver.from_url(postgres_url) as one, SqlSaver.from_url(postgres_url) as other:
        asking = [threading.Thread(target=begin, args=args) for args in ((one, 1), (other, 2))]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert len(outcomes) == 2
        assert outcomes[0] == outcomes[1]
        assert outcomes[0] in (str(UUID(int=1)), str(UUID(int=2)))
        assert [row.run_id for row in one.streams.latest(9)] == [outcomes[0]]
        assert [info.thread_id for info in one.threads.list()] == [f"t{UUID(outcomes[0]).int}"]
        assert_no_orphans(other)
