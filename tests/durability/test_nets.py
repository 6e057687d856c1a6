"""What stops a run that lost its thread: each net by itself, with the others taken away."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from wick_graph import Agent, SqlSaver, tool
from wick_graph.constants import LEASE_SECONDS
from wick_graph.errors import ThreadBusyError
from wick_graph.store import keeper
from wick_graph.store.leases import Lease, Leases
from wick_graph.store.ledger import Execute, Finished, OutcomeUnknown
from wick_graph.store.thread_cache import AllowedBranches
from wick_graph.testing import ScriptedModel, call
from wick_graph.types import Replay

SECONDS = 60
NETS = {
    "look": (Leases, "check_ownership"),
    "renew": (Leases, "renew"),
    "head": (AllowedBranches, "check"),
}
"""What else notices a run that lost its thread: the keeper, twice, and the check of the head."""


def taken_over(mine: SqlSaver, other: SqlSaver) -> Lease:
    """Let the first store's lease come to its end unrenewed, and take the thread as the other."""
    later = time.time() + LEASE_SECONDS + 1
    mine.clock = other.clock = lambda: later
    return other.leases.acquire("t")


def without(monkeypatch: pytest.MonkeyPatch, *nets: str) -> None:
    """Take nets away."""
    for net in nets:
        monkeypatch.setattr(*NETS[net], lambda *_args, **_more: None)


@pytest.fixture
def mine(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url) as opened:
        yield opened


@pytest.fixture
def other(url: str) -> Iterator[SqlSaver]:
    """Another user of the same database."""
    with SqlSaver.from_url(url) as opened:
        yield opened


class Held:
    """A run that stands inside of a tool until it is let go."""

    def __init__(self, store: SqlSaver, replay: Replay) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.ended = threading.Event()

        @tool(replay=replay)
        def hold() -> str:
            """Wait."""
            self.inside.set()
            self.go_on.wait(SECONDS)
            return "held"

        self.agent = Agent(model=ScriptedModel([call("hold"), "ok"]), tools=[hold], store=store)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.agent.invoke("?", thread_id="t")
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def __enter__(self) -> Held:
        self._thread.start()
        assert self.inside.wait(SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        self.go_on.set()
        self._thread.join(SECONDS)


def texts(store: SqlSaver) -> list[str]:
    found = store.get_tuple({"configurable": {"thread_id": "t"}})
    assert found is not None
    return [message.text for message in found.checkpoint["channel_values"]["messages"]]


def test_the_fence_alone_stops_a_run_that_lost_its_thread(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "look", "renew", "head")
    with Held(mine, "safe") as run:  # such a call asks the ledger nothing
        taken_over(mine, other)
        run.go_on.set()
        assert run.ended.wait(SECONDS)
    assert isinstance(run.error, ThreadBusyError), run.error
    assert texts(other) == ["?", ""]


def test_the_ledger_alone_stops_a_run_that_lost_its_thread(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "look", "renew", "head")
    with Held(mine, "never") as run:
        taken_over(mine, other)
        run.go_on.set()
        assert run.ended.wait(SECONDS)
    assert isinstance(run.error, ThreadBusyError), run.error
    assert states(other) == ["intent"]


@pytest.mark.sisters
def test_the_keepers_look_alone_ends_a_run_that_lost_its_thread(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool never returns, so that the run writes nothing which a fence could refuse."""
    without(monkeypatch, "renew", "head")
    with Held(mine, "never") as run:
        taken_over(mine, other)
        assert run.ended.wait(SECONDS / 2)
        assert isinstance(run.error, ThreadBusyError), run.error


def test_the_head_alone_stops_a_run_that_lost_its_thread(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a graph of others, whose runs have no lease: whoever comes second is refused."""
    without(monkeypatch, "look", "renew")
    with Held(mine, "safe") as run:
        monkeypatch.setattr(
            sys.modules[Leases.__module__], "_epoch_of", lambda *given: given[-1].epoch
        )
        other.leases.release(taken_over(mine, other))
        graph = Agent(model=ScriptedModel(["mine"]), store=other).graph
        config: Any = {"configurable": {"thread_id": "t"}}
        graph.update_state(config, {"messages": [("user", "by hand")]}, as_node="__start__")
        run.go_on.set()
        assert run.ended.wait(SECONDS)
    assert isinstance(run.error, ThreadBusyError), run.error
    assert texts(other)[-1] == "by hand"


# --- the ledger ----------------------------------------------------------------------------------


@pytest.fixture
def lost(mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> tuple[Lease, Lease]:
    """A lease under which one call was begun, and the lease of who took its thread."""
    without(monkeypatch, "look", "renew")
    lease = mine.leases.acquire("t")
    assert mine.ledger(lease).begin("step:0", "act", {}, "never") == Execute(again=False)
    return lease, taken_over(mine, other)


def states(store: SqlSaver) -> list[str]:
    """The states of all calls, as the database has them."""
    with store._core.reading() as db:
        rows = db.execute("SELECT key, state FROM calls ORDER BY rid").fetchall()
    return [state for _, state in rows]


def test_a_lost_lease_finishes_no_call(
    mine: SqlSaver, other: SqlSaver, lost: tuple[Lease, Lease]
) -> None:
    with pytest.raises(ThreadBusyError, match="taken over by another run"):
        mine.ledger(lost[0]).finish("step:0", "act", {}, {"output": "a zombie's"})
    assert states(other) == ["intent"]
    assert other.ledger(lost[1]).recorded("step:0", "act", {}) is None
    assert isinstance(other.ledger(lost[1]).begin("step:0", "act", {}, "never"), OutcomeUnknown)


def test_a_lost_lease_begins_no_call(
    mine: SqlSaver, other: SqlSaver, lost: tuple[Lease, Lease]
) -> None:
    with pytest.raises(ThreadBusyError, match="taken over by another run"):
        mine.ledger(lost[0]).begin("step:1", "act", {}, "never")
    assert states(other) == ["intent"]


def test_a_lost_lease_marks_no_call_as_waiting(
    mine: SqlSaver, other: SqlSaver, lost: tuple[Lease, Lease]
) -> None:
    with pytest.raises(ThreadBusyError, match="taken over by another run"):
        mine.ledger(lost[0]).mark_waiting("step:0", "act", {})
    assert states(other) == ["intent"]


def test_a_call_with_a_key_is_told_that_it_runs_again(mine: SqlSaver) -> None:
    """It may run as often as its run dies; whether the thread goes on, its charges decide."""
    ledger = mine.ledger(mine.leases.acquire("t"))
    said = [ledger.begin("step:0", "act", {}, "key") for _ in range(5)]
    assert said == [Execute(again=False), *[Execute(again=True)] * 4]


def test_a_call_that_was_under_way_is_unknown_for_good(mine: SqlSaver, other: SqlSaver) -> None:
    """Its intent is on disk when `begin` returns, and no later try runs it, not even by right."""
    ledger = mine.ledger(mine.leases.acquire("t"))
    assert ledger.begin("step:0", "act", {}, "never") == Execute(again=False)
    assert states(other) == ["intent"]
    assert ledger.begin("step:0", "act", {}, "never") == OutcomeUnknown()
    assert ledger.begin("step:0", "act", {}, "safe") == OutcomeUnknown()
    assert states(other) == ["unknown"]


def test_a_call_that_waits_is_run_by_right(mine: SqlSaver) -> None:
    ledger = mine.ledger(mine.leases.acquire("t"))
    ledger.begin("step:0", "act", {}, "never")
    ledger.mark_waiting("step:0", "act", {})
    assert ledger.lookup("step:0", "act", {}) is None
    assert ledger.begin("step:0", "act", {}, "never") == Execute(again=True)


def test_a_finished_call_is_found_under_its_own_arguments_alone(mine: SqlSaver) -> None:
    ledger = mine.ledger(mine.leases.acquire("t"))
    ledger.begin("step:0", "act", {"n": 1}, "never")
    ledger.finish("step:0", "act", {"n": 1}, {"output": "one"})
    assert ledger.recorded("step:0", "act", {"n": 1}) == Finished({"output": "one"})
    for name, args in (("act", {"n": 2}), ("act", {}), ("other", {"n": 1})):
        assert ledger.recorded("step:0", name, args) is None
        assert ledger.lookup("step:0", name, args) is None


# --- the lease -----------------------------------------------------------------------------------


def test_a_lost_lease_given_back_leaves_the_new_owners_alone(
    mine: SqlSaver, other: SqlSaver, lost: tuple[Lease, Lease]
) -> None:
    mine.leases.release(lost[0])
    assert other.leases.epoch("t") == lost[1].epoch
    with pytest.raises(ThreadBusyError):
        mine.leases.acquire("t")


def test_a_lost_lease_is_not_renewed(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "look")
    told: list[str] = []
    lease = mine.leases.acquire("t", ready=lambda made: setattr(made, "on_stop", told.append))
    taken = taken_over(mine, other)
    mine.leases.renew()
    assert lease.lost
    assert told == [""]
    assert other.leases.epoch("t") == taken.epoch


def test_a_lease_that_is_renewed_stays(mine: SqlSaver, other: SqlSaver) -> None:
    passed = [time.time()]
    for store in (mine, other):
        store.clock = lambda: passed[0]
    mine.leases.acquire("t")
    for _ in range(3):
        passed[0] += 20
        with pytest.raises(ThreadBusyError):
            other.leases.acquire("t")
        mine.leases.renew()


def test_a_lease_that_is_not_renewed_ends(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner lives, and may stand still."""
    without(monkeypatch, "look", "renew")
    passed = [time.time()]
    mine.clock = other.clock = lambda: passed[0]
    lease = mine.leases.acquire("t")
    passed[0] += LEASE_SECONDS - 1
    assert other.leases.epoch("t") == lease.epoch
    passed[0] += 2
    assert other.leases.epoch("t") is None
    other.leases.acquire("t")


def test_the_keeper_renews_often_enough(mine: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own turns, so that a slow machine changes nothing."""
    home: Any = keeper
    seconds: float = home.LEASE_SECONDS / home.LOOK_SECONDS
    monkeypatch.setattr(home, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(home, "LEASE_SECONDS", 0.005 * seconds)
    turns: list[str] = []
    twice = threading.Event()

    def note(leases: Leases, turn: str) -> None:
        assert leases is mine.leases
        turns.append(turn)
        if turns.count("renew") == 2:
            twice.set()

    monkeypatch.setattr(Leases, "check_ownership", lambda leases: note(leases, "look"))
    monkeypatch.setattr(Leases, "renew", lambda leases: note(leases, "renew"))
    mine.leases.acquire("t")
    assert twice.wait(SECONDS)
    first, second = [at for at, turn in enumerate(turns) if turn == "renew"][:2]
    assert first + 1 < seconds
    assert second - first < seconds


def test_a_run_that_lost_its_thread_does_not_say_how_it_ended(
    mine: SqlSaver, other: SqlSaver, lost: tuple[Lease, Lease]
) -> None:
    run = "11111111-1111-4111-8111-111111111111"
    other.threads.open("t", agent="a", ttl=None, run_id=run, lease=lost[1])
    mine.threads.note_end(lost[0], status="failed", stopped_because="failed")
    mine.leases.release(lost[0])
    info = other.threads.get("t")
    assert info is not None
    assert (info.status, info.stopped_because) == ("running", None)


def test_a_lease_of_a_thread_that_was_deleted_writes_nothing(
    mine: SqlSaver, other: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "look", "renew")
    lease = mine.leases.acquire("t")
    other.threads.delete("t")
    with pytest.raises(ThreadBusyError):
        mine.ledger(lease).begin("step:0", "act", {}, "never")
    assert states(other) == []
    assert other.threads.get("t") is None


def test_a_request_to_stop_is_for_one_epoch(mine: SqlSaver) -> None:
    told: list[str] = []
    lease = mine.leases.acquire("t", ready=lambda made: setattr(made, "on_stop", told.append))
    assert not mine.leases.ask_to_stop("t", "not you", lease.epoch + 1)
    assert not mine.leases.ask_to_stop("another", "not you")
    assert told == []
    assert mine.leases.ask_to_stop("t", "you", lease.epoch)
    assert told == ["you"]


def test_each_owner_has_an_epoch_of_its_own(mine: SqlSaver, other: SqlSaver) -> None:
    seen = []
    for _ in range(20):
        for store in (mine, other):
            lease = store.leases.acquire("t")
            seen.append(lease.epoch)
            store.leases.release(lease)
    assert len({*seen}) == len(seen)


def test_a_thread_is_wrested_from_the_owner_that_was_meant_alone(
    mine: SqlSaver, other: SqlSaver
) -> None:
    first = mine.leases.acquire("t")
    mine.leases.release(first)
    second = mine.leases.acquire("t")
    assert other.leases.force_acquire("t", first.epoch) is None
    assert other.leases.epoch("t") == second.epoch
    assert other.leases.force_acquire("t", second.epoch) is not None
