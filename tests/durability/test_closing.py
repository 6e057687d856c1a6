"""Runs whose very end goes wrong: what cannot be stored, and cancelling at the edges of a run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.types import interrupt

from tests.durability.test_runs import SECONDS, Background, Held, through
from tests.support.orphans import assert_no_orphans
from wick_graph import Agent, BaseHook, events, tool
from wick_graph.engine import answers, lifecycle, thread_turn
from wick_graph.errors import StorageError
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.store.leases import Leases
from wick_graph.store.threads import Threads
from wick_graph.testing import ScriptedModel, call, error

ON: Any = {"configurable": {"thread_id": "t"}}


def agent_of(url: str, *steps: Any, tools: Any = ()) -> Agent:
    return Agent(model=ScriptedModel(list(steps)), tools=list(tools), store=url)


def store_of(agent: Agent) -> SqlSaver:
    assert isinstance(agent.store, SqlSaver)
    return agent.store


class Unstorable(BaseHook):
    """Writes to the state what no database holds, once."""

    name = "unstorable"
    phases = ("after_model",)

    def __init__(self) -> None:
        self.done = False

    def after_model(self, message: Any, ctx: Any) -> Any:
        if self.done or message.tool_calls:
            return None
        self.done = True
        return {"files": {"a": object()}}


async def run_through(agent: Agent, door: str) -> None:
    if door == "invoke":
        agent.invoke("go", thread_id="t")
    else:
        await agent.ainvoke("go", thread_id="t")


@pytest.mark.sisters(3)
@pytest.mark.parametrize("kept", [None, 1])
@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream"])
async def test_a_last_step_that_cannot_be_stored_fails_the_run_and_loses_nothing_else(
    url: str, door: str, kept: int | None
) -> None:
    effects = []

    def act() -> str:
        """Act."""
        effects.append(1)
        return "acted"

    steps: list[Any] = [call("act"), "an answer"]
    with Agent(
        model=ScriptedModel(steps), tools=[act], hooks=[Unstorable()], store=url, keep_latest=kept
    ) as agent:
        if door == "stream":
            *_, last = agent.stream("go", thread_id="t")
            assert isinstance(last, events.Failed)
            assert "cannot be stored" in last.error
        else:
            with pytest.raises(StorageError, match="cannot be stored"):
                await run_through(agent, door)
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("failed", "failed")
        assert "cannot be stored" in info.last_error
        values = agent.graph.get_state(ON).values
        said = [m.type for m in values["messages"] if m.type != "chat"]  # beside the record
        assert said == ["human", "ai", "tool"]
        assert isinstance(agent.store, SqlSaver)
        assert [run.status for run in Journal(agent.store, "t").runs()] == ["failed"]
        done = agent.invoke("go on", thread_id="t")
        assert [m.text for m in done.messages if m.type == "tool"] == ["acted"]
        assert (done.text, effects) == ("an answer", [1])
        assert_no_orphans(agent.store)


# --- cancelling at the edges ---------------------------------------------------------------------


def test_a_cancel_that_meets_a_run_as_it_takes_its_thread_ends_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent_of(url, "never said") as agent:
        opened, asked, together = Threads.open, Leases.ask_to_stop, Leases.together
        cancelling: list[Background] = []
        told = threading.Event()

        def ask(leases: Leases, *args: Any) -> bool:
            found = asked(leases, *args)
            told.set()
            return found

        def meet(threads: Threads, *args: Any, **kwargs: Any) -> Any:
            cancelling.append(Background(lambda: agent.cancel("t")))
            return opened(threads, *args, **kwargs)

        def taken(leases: Leases, work: Callable[[], Any], **how: Any) -> Any:
            made = together(leases, work, **how)
            assert told.wait(SECONDS)
            return made

        monkeypatch.setattr(Leases, "ask_to_stop", ask)
        monkeypatch.setattr(Leases, "together", taken)
        monkeypatch.setattr(Threads, "open", meet)
        assert agent.invoke("go", thread_id="t").stopped_because == "cancelled"
        assert cancelling[0].end() is True
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "cancelled")


def test_a_run_that_lost_its_thread_before_it_opened_it_leaves_it_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent_of(url, "said", "never said") as agent:
        agent.invoke("go", thread_id="t")
        opened = Threads.open

        def late(threads: Threads, *args: Any, **kwargs: Any) -> Any:
            lease = store_of(agent).leases.acquire("t", force=True)
            threads.note_end(lease, status="idle", stopped_because="cancelled")
            store_of(agent).leases.release(lease)
            return opened(threads, *args, **kwargs)

        monkeypatch.setattr(Threads, "open", late)
        assert agent.invoke("go", thread_id="t").stopped_because == "cancelled"
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "done")


def test_a_run_that_comes_to_its_own_end_keeps_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process sees it at work, and comes too late to end it: its question still stands."""
    held = Held()

    def ask() -> str:
        """Wait, then ask."""
        held.sync()()
        return str(interrupt("may I?"))

    with agent_of(url, call("ask"), "ok", tools=[ask]) as mine, agent_of(url, "x") as other:
        run = Background(lambda: mine.invoke("go", thread_id="t"))
        assert held.inside.wait(SECONDS)
        leases = store_of(other).leases
        force_acquire = leases.force_acquire

        def late(*args: Any) -> Any:
            held.go_on.set()
            assert run.end().stopped_because == "interrupted"
            return force_acquire(*args)

        monkeypatch.setattr(leases, "force_acquire", late)
        assert other.cancel("t") is True
        assert mine.threads.get("t").status == "waiting"
        assert mine.resume("t", "yes").text == "ok"
        assert other.cancel("t") is False


def test_a_cancel_ends_the_run_that_was_there_and_no_later_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Held(), Held()
    steps = call("one"), call("two"), "ok"

    async def one() -> str:
        """Wait."""
        first.inside.set()
        await asyncio.sleep(SECONDS)
        return "never"

    def two() -> str:
        """Wait."""
        second.sync()()
        return "two"

    with agent_of(url, *steps, tools=[one, two]) as agent:
        was = Background(lambda: agent.invoke("1", thread_id="t"))
        assert first.inside.wait(SECONDS)
        later = Background(lambda: agent.invoke("2", thread_id="t", on_busy="queue"))
        leases = store_of(agent).leases
        epoch, looks = leases.epoch, [0]

        def look(thread_id: str) -> Any:
            looks[0] += 1
            if looks[0] == 2:  # it was asked to stop; before anybody looks, the next one is there
                assert second.inside.wait(SECONDS)
            return epoch(thread_id)

        monkeypatch.setattr(leases, "epoch", look)
        assert agent.cancel("t") is True
        assert was.end().stopped_because == "cancelled"
        second.go_on.set()
        assert later.end().text == "ok"


@pytest.mark.parametrize("door", ["invoke", "ainvoke"])
def test_a_tool_that_blocks_is_left_behind_and_counts_as_unknown(
    url: str, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can be ended from outside: the run ends at once, the tool when it likes."""
    monkeypatch.setattr(thread_turn, "GRACE_SECONDS", SECONDS)
    held, ended = Held(), threading.Event()

    @tool(replay="never")
    def block() -> str:
        """Wait, whatever happens."""
        held.sync()()
        ended.set()
        return "too late"

    with agent_of(url, call("block"), "ok", tools=[block]) as agent:
        run = Background(lambda: through(door, agent, "go", thread_id="t"))
        assert held.inside.wait(SECONDS)
        began = time.monotonic()
        assert agent.cancel("t") is True
        assert time.monotonic() - began < SECONDS / 2
        assert run.end().stopped_because == "cancelled"
        assert not ended.is_set()
        done = agent.invoke("and now?", thread_id="t")
        held.go_on.set()
        assert ended.wait(SECONDS)
        told = [m.text for m in done.messages if m.type == "tool"]
        assert len(told) == 1
        assert "outcome unknown" in told[0]
        assert [m.text for m in agent.graph.get_state(ON).values["messages"]] == [
            m.text for m in done.messages
        ]


@pytest.mark.parametrize("at", ["the record", "the pruning", "the reason"])
async def test_a_cancellation_at_the_very_end_gives_the_thread_back(
    url: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = [error("no")] if at == "the record" else ["one", "two"]
    with Agent(model=ScriptedModel(steps), store=url, keep_latest=1) as agent:
        there = asyncio.Event()

        def held(real: Callable[..., Any]) -> Callable[..., Any]:
            async def wait(*args: Any, **kwargs: Any) -> Any:
                there.set()
                await asyncio.sleep(0.2)
                return await real(*args, **kwargs)

            return wait

        if at == "the record":
            monkeypatch.setattr(answers, "_saved", held(answers._saved))
        elif at == "the pruning":
            monkeypatch.setattr(Threads, "akeep_latest", held(Threads.akeep_latest))
        else:
            agent.invoke("go", thread_id="t")
            monkeypatch.setattr(lifecycle, "final_reason", held(lifecycle.final_reason))
        last = at == "the reason"
        run = agent.aresume("t") if last else agent.ainvoke("go", thread_id="t")
        task = asyncio.ensure_future(run)
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert agent.threads.get("t").status == ("failed" if at == "the record" else "idle")
        assert store_of(agent).leases.epoch("t") is None
