"""Restarts punish nobody innocent: who is charged with the death of a process, and who never is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Folder
from wick_graph import Agent, SqlSaver, tool
from wick_graph.errors import ModelError, RunError
from wick_graph.events import Done
from wick_graph.store import leases
from wick_graph.store.leases import MAX_CHARGES, unpacked
from wick_graph.store.verify import verify
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls

SIX = [f"t{n}" for n in range(6)]
SECONDS = 120


@pytest.fixture
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once; forked children inherit it."""
    monkeypatch.setattr(leases, "BACKOFF_SECONDS", (0.0, 0.0, 0.0))


class Life:
    """A process that works on threads until it is killed, or is at its end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            signal.alarm(SECONDS)  # it does not outlive a test that gave up
            try:
                work()
                code = 0
            finally:
                os._exit(code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Notes:
    """Lines that several processes write, in the order of their coming."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text + "\n")

    def read(self) -> list[str]:
        return self.path.read_text().splitlines()

    def until(self, seen: Callable[[list[str]], object]) -> list[str]:
        end = time.monotonic() + SECONDS
        while not seen(lines := self.read()):
            assert time.monotonic() < end, lines
            time.sleep(0.01)
        return lines


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


def charges(url: str, thread: str) -> int:
    """Read what a thread's run is charged with."""
    with SqlSaver.from_url(url) as store, store._core.reading() as db:
        number = store._core.thread(db, thread)
        assert number is not None
        query = "SELECT tries FROM leases WHERE thread = " + str(number.id)
        return unpacked(db.execute(query).fetchone()[0])[0]


def waiting_agent(url: str, notes: Notes, open_: Path, thread: str = "") -> Agent:
    """Make an agent whose model is slow: it answers as soon as a file is there."""

    class Slow(ScriptedModel):
        async def _agenerate(self, *args: Any, **more: Any) -> Any:
            notes.write(f"{os.getpid()} asked {thread}")
            while not os.path.exists(open_):  # noqa: ASYNC240, PTH110 - a file that a test makes
                await asyncio.sleep(0.01)
            return await super()._agenerate(*args, **more)

    steps: Any = [f"an answer to {thread}"]
    return Agent(model=Slow(steps), store=url)  # type: ignore[call-arg]  # as of ScriptedModel


def go_on_with(url: str, notes: Notes, open_: Path, threads: list[str]) -> None:
    """Work on threads side by side: begin those that are new, go on with the others."""

    async def one(thread: str) -> None:
        agent = waiting_agent(url, notes, open_, thread)
        known = await agent.threads.aget(thread)
        if known is None or not known.steps:
            result = await agent.ainvoke("?", thread_id=thread)
        else:
            result = await agent.aresume(thread)
        notes.write(f"{os.getpid()} done {thread} {result.text}")

    async def work() -> None:
        await asyncio.gather(*map(one, threads))

    asyncio.run(work())


@pytest.mark.slow
def test_six_threads_that_wait_for_a_model_survive_five_kills(
    url: str, notes: Notes, tmp_path: Path
) -> None:
    open_ = tmp_path / "open"
    for n in range(5):
        life = Life(lambda: go_on_with(url, notes, open_, SIX))
        mine = f"{life.pid} asked"
        notes.until(lambda lines: sum(x.startswith(mine) for x in lines) >= (1 if n else 6))  # noqa: B023
        time.sleep(0.5)  # what waited to be committed is committed
        if n:  # the others wait for the one that is tried alone
            assert sum(x.startswith(mine) for x in notes.read()) == 1
        life.kill()
    assert sum(charges(url, thread) for thread in SIX) <= 4
    assert max(charges(url, thread) for thread in SIX) < MAX_CHARGES - 1, "one pays for all"
    open_.touch()
    assert Life(lambda: go_on_with(url, notes, open_, SIX)).wait() == 0
    assert [line.split(" ", 2)[2] for line in notes.read()[-12:] if "done" in line]
    for thread in SIX:
        assert any(f"done {thread} an answer to {thread}" in line for line in notes.read())


@pytest.mark.slow
def test_a_reply_of_six_calls_that_gets_one_further_each_time_is_never_refused(
    url: str, no_backoff: None
) -> None:
    @tool(replay="safe")
    def die(n: int) -> str:
        """Take the process down when the calls of this life are recorded."""
        if int(os.environ["LIFE"]) < 6:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    @tool(replay="safe")
    def step(n: int) -> str:
        """Be done in the life that it is the turn of."""
        while int(os.environ["LIFE"]) < n:
            time.sleep(0.005)
        return f"done {n}"

    script: Any = [calls(*(("step", {"n": n}) for n in range(1, 6)), ("die", {"n": 0})), "ok"]

    def live(n: int) -> int:
        def work() -> None:
            os.environ["LIFE"] = str(n)
            with Agent(model=ScriptedModel(script), tools=[step, die], store=url) as agent:
                if n == 1:
                    agent.invoke("?", thread_id="t")
                else:
                    agent.resume("t")

        return Life(work).wait()

    assert [live(n) for n in range(1, 7)] == [-signal.SIGKILL] * 5 + [0]
    with Agent(model=ScriptedModel(script), tools=[step, die], store=url) as agent:
        state = agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert [m.text for m in state[2:]] == [f"done {n}" for n in range(1, 6)] + ["alive", "ok"]


def deadly_agent(url: str, notes: Notes, **more: Any) -> Agent:
    @tool(replay="safe")
    def deadly() -> str:
        """Take the process down, unless it was mended."""
        notes.write(f"{os.getpid()} deadly")
        if "MENDED" not in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return "mended"

    script = more.pop("script", [call("deadly"), "ok", "fine"])
    return Agent(model=ScriptedModel(script), tools=[deadly], store=url, **more)


def poison(url: str, notes: Notes, thread: str = "t") -> None:
    """Let a thread take down as many processes as poison it."""

    def first() -> None:
        deadly_agent(url, notes).invoke("?", thread_id=thread)

    def again() -> None:
        deadly_agent(url, notes).resume(thread)

    for work in (first, *[again] * MAX_CHARGES):
        assert Life(work).wait() == -signal.SIGKILL


def test_the_one_deadly_thread_among_six_is_poisoned_and_the_others_finish(
    url: str, notes: Notes, tmp_path: Path, no_backoff: None
) -> None:
    open_ = tmp_path / "open"

    def live() -> None:
        async def deadly() -> None:
            agent = deadly_agent(url, notes)
            known = await agent.threads.aget("d")
            if known is None:
                while sum("asked" in line for line in notes.read()) < 5:
                    await asyncio.sleep(0.01)
                await agent.ainvoke("?", thread_id="d")
            try:
                await agent.aresume("d")
            except RunError as error:
                notes.write(f"{os.getpid()} refused {error}")

        async def work() -> None:
            others = asyncio.to_thread(go_on_with, url, notes, open_, SIX[:5])
            await asyncio.gather(deadly(), others)

        asyncio.run(work())

    assert Life(live).wait() == -signal.SIGKILL
    open_.touch()
    lives = 0
    while Life(live).wait() != 0:
        lives += 1
        assert lives <= MAX_CHARGES
    lines = notes.read()
    assert sum("deadly" in line for line in lines) == 1 + MAX_CHARGES
    assert [line for line in lines if "refused poison" in line]
    for thread in SIX[:5]:
        assert any(f"done {thread}" in line for line in lines)
        assert charges(url, thread) == 0


def test_poison_is_cleared_by_force(
    url: str, notes: Notes, no_backoff: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(url, notes)
    monkeypatch.setenv("MENDED", "1")
    with deadly_agent(url, notes) as agent:
        with pytest.raises(RunError, match=r"wick threads retry t` or resume\(…, force=True\)"):
            agent.resume("t")
        assert agent.resume("t", force=True).text == "ok"
        assert agent.resume("t").text == "ok"
        assert charges(url, "t") == 0


async def test_poison_is_cleared_by_force_in_the_async_door_and_in_streams(
    url: str, notes: Notes, no_backoff: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread in ("a", "b", "c"):
        poison(url, notes, thread)
    monkeypatch.setenv("MENDED", "1")
    with deadly_agent(url, notes) as agent:
        with pytest.raises(RunError, match="poison"):
            await agent.aresume("a")
        assert (await agent.aresume("a", force=True)).text == "ok"
        *_, last = [event async for event in agent.astream_resume("b", force=True)]
        assert isinstance(last, Done)
        *_, end = agent.stream_resume("c", force=True)
        assert isinstance(end, Done)


def test_a_forced_thread_is_poisoned_again_by_as_many_charges(
    url: str, notes: Notes, no_backoff: None
) -> None:
    poison(url, notes)
    deaths = len(notes.read())

    def again(force: bool) -> None:
        deadly_agent(url, notes).resume("t", force=force)

    assert Life(lambda: again(True)).wait() == -signal.SIGKILL
    for _ in range(MAX_CHARGES - 1):
        assert Life(lambda: again(False)).wait() == -signal.SIGKILL
    with deadly_agent(url, notes) as agent, pytest.raises(RunError, match="poison"):
        agent.resume("t")
    assert len(notes.read()) == deaths + MAX_CHARGES


@pytest.mark.slow
def test_a_charged_run_waits_before_it_is_tried_again_whatever_restarts(
    url: str, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BACKOFF_SECONDS", (0.0, 3.0, 6.0))
    Life(lambda: deadly_agent(url, notes).invoke("?", thread_id="t")).wait()
    Life(lambda: deadly_agent(url, notes).resume("t")).wait()
    lives = [Life(lambda: deadly_agent(url, notes).resume("t")) for _ in range(1)]
    time.sleep(1.0)
    lives[0].kill()  # it waited, and is charged with nothing
    assert len(notes.read()) == 2
    began = time.monotonic()
    assert Life(lambda: deadly_agent(url, notes).resume("t")).wait() == -signal.SIGKILL
    assert time.monotonic() - began > 1.0, "the first waiting counts too"
    assert charges(url, "t") == 1
    assert len(notes.read()) == 3


def test_a_run_that_waits_can_be_stopped(
    url: str, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BACKOFF_SECONDS", (0.0, 60.0, 60.0))
    Life(lambda: deadly_agent(url, notes).invoke("?", thread_id="t")).wait()
    Life(lambda: deadly_agent(url, notes).resume("t")).wait()
    began = time.monotonic()
    with deadly_agent(url, notes, deadline=0.5) as agent:
        assert agent.resume("t").stopped_because == "limit"
        assert time.monotonic() - began < 20
        assert charges(url, "t") == 1


def test_a_failure_of_its_own_clears_a_run(
    url: str, notes: Notes, monkeypatch: pytest.MonkeyPatch, no_backoff: None
) -> None:
    """Who lived to say what was wrong has not taken the process down."""
    Life(lambda: deadly_agent(url, notes).invoke("?", thread_id="t")).wait()
    Life(lambda: deadly_agent(url, notes).resume("t")).wait()
    monkeypatch.setenv("MENDED", "1")
    with deadly_agent(url, notes, script=[call("deadly")]) as agent, pytest.raises(ModelError):
        agent.resume("t")
    assert charges(url, "t") == 0


def test_a_shut_down_never_counts(url: str, notes: Notes, tmp_path: Path) -> None:
    """SIGTERM with a handler, as servers have it: the run is cancelled, however often."""
    open_ = tmp_path / "open"

    async def main() -> None:
        agent = waiting_agent(url, notes, open_, "t")
        known = await agent.threads.aget("t")
        run = agent.aresume("t") if known else agent.ainvoke("?", thread_id="t")
        task = asyncio.ensure_future(run)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait([task])

    for n in range(6):
        life = Life(lambda: asyncio.run(main()))
        notes.until(lambda lines: len(lines) > n)  # noqa: B023
        os.kill(life.pid, signal.SIGTERM if n else signal.SIGKILL)
        life.wait()
    assert charges(url, "t") == 0
    open_.touch()
    with waiting_agent(url, notes, open_, "t") as agent:
        assert asyncio.run(agent.aresume("t")).text == "an answer to t"


@pytest.mark.slow
def test_two_processes_on_one_store_try_one_suspect_each(
    url: str, notes: Notes, tmp_path: Path
) -> None:
    open_ = tmp_path / "open"
    life = Life(lambda: go_on_with(url, notes, open_, SIX))
    notes.until(lambda lines: len(lines) >= 6)
    time.sleep(0.5)
    life.kill()
    halves = SIX[:3], SIX[3:]
    lives = [Life(lambda half=half: go_on_with(url, notes, open_, half)) for half in halves]  # type: ignore[misc]  # a lambda with a default
    notes.until(lambda lines: len(lines) >= 8)
    time.sleep(0.3)
    assert len(notes.read()) == 8
    lives[0].kill()
    assert sorted(charges(url, thread) for thread in SIX) == [0] * 6, "the dead one is not judged"
    open_.touch()
    assert Life(lambda: go_on_with(url, notes, open_, SIX[:3])).wait() == 0
    assert lives[1].wait() == 0
    assert {line.split()[2] for line in notes.read() if " done " in line} == set(SIX)


@pytest.mark.slow
def test_a_new_message_leaves_the_step_and_what_it_was_charged_with(
    url: str, notes: Notes, no_backoff: None
) -> None:
    poison(url, notes)
    with deadly_agent(url, notes) as agent:
        assert agent.invoke("leave it", thread_id="t").text == "ok"
    assert charges(url, "t") == 0


def test_a_run_with_a_key_that_dies_each_time_is_poisoned_too(
    url: str, notes: Notes, no_backoff: None
) -> None:
    def live() -> None:
        deadly_agent(url, notes).invoke("?", thread_id="t", idempotency_key="k")

    for _ in range(1 + MAX_CHARGES):
        assert Life(live).wait() == -signal.SIGKILL
    with deadly_agent(url, notes) as agent, pytest.raises(RunError, match="poison"):
        agent.invoke("?", thread_id="t", idempotency_key="k")
    assert len(notes.read()) == 1 + MAX_CHARGES


def test_what_was_cut_off_before_its_first_step_is_poisoned_too(
    url: str, notes: Notes, no_backoff: None
) -> None:
    """A hook that takes the process down, in a run that a caller repeats under its key."""
    from wick_graph import BaseHook  # noqa: PLC0415 - the hook is this test's own

    class Deadly(BaseHook):
        def before_agent(self, state: Any, ctx: Any) -> None:
            notes.write("deadly")
            os.kill(os.getpid(), signal.SIGKILL)

    def agent() -> Agent:
        return Agent(model=ScriptedModel(["ok"]), hooks=[Deadly()], store=url)

    for _ in range(1 + MAX_CHARGES):
        life = Life(lambda: agent().invoke("?", thread_id="t", idempotency_key="k"))
        assert life.wait() == -signal.SIGKILL
    with agent() as last, pytest.raises(RunError, match="poison"):
        last.invoke("?", thread_id="t", idempotency_key="k")


def test_a_process_that_was_only_frozen_is_no_death(url: str) -> None:
    """A lease that ran out while its owner lives: nobody is charged."""
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as other:
        ahead = [0.0]
        other.clock = lambda: time.time() + ahead[0]
        place = leases.Waiting(leases.INNOCENT, time.time)
        from wick_graph.store.leases import Asking  # noqa: PLC0415 - of this test alone

        life = Life(lambda: SqlSaver.from_url(url).leases.acquire("t"))
        life.wait()
        lease = one.leases.acquire("t", Asking(place=place))
        assert lease.mark is not None
        ahead[0] = 40.0
        assert other.leases.judge("t", Asking()).charges == 0
        assert other.leases.acquire("t").charges == 0


def test_the_command_runs_a_poisoned_thread_again(
    tmp_path: Path, notes: Notes, no_backoff: None
) -> None:
    (tmp_path / "checkpoints").mkdir()
    url = f"sqlite:///{tmp_path}/checkpoints/wick.db"
    script = {"steps": [{"calls": [{"tool": "deadly"}], "unchecked": True}, "ok"]}
    folder = Folder(tmp_path).write(
        agents=json.dumps({"agents": {"agent": {"model": "scripted:talk.yaml"}}}),
        talk=json.dumps(script),
    )
    poison(url, notes, "mine")
    refused = folder.wick("resume", "mine")
    assert refused.code == 1
    assert "poison: the process died 3 times" in refused.err
    assert "wick threads retry mine" in refused.err
    again = folder.wick("threads", "retry", "mine")
    assert again.code == 0, again.err
    assert again.out.strip() == "ok"
    assert folder.thread("mine").status == "idle"
    assert charges(url, "mine") == 0


def test_what_a_child_gets_done_clears_its_parent(url: str, no_backoff: None) -> None:
    """Each life takes the child one step further, and dies there; the parent stands still."""

    @tool(replay="safe")
    def step(n: int) -> str:
        """Be done, unless it is this life's turn to die here."""
        if n == int(os.environ["LIFE"]):
            time.sleep(0.5)  # what came before is committed
            os.kill(os.getpid(), signal.SIGKILL)
        return f"done {n}"

    def live(n: int) -> int:
        def work() -> None:
            os.environ["LIFE"] = str(n)
            steps = ScriptedModel([*(call("step", n=n) for n in range(1, 6)), "from below"])
            child = Agent("child", steps, tools=[step], store=url)
            below = delegation({"child": Subagent(child, "works")})
            told = ScriptedModel([call("delegate_to_agent", agent="child", task="do"), "ok"])
            agent = Agent(model=told, tools=[below], store=url)
            known = agent.threads.get("t")
            made = agent.resume("t") if known else agent.invoke("?", thread_id="t")
            assert made.text == "ok"

        return Life(work).wait()

    assert [live(n) for n in range(1, 7)] == [-signal.SIGKILL] * 5 + [0]
    assert charges(url, "t") == 0


def test_a_deadly_child_poisons_its_parent_and_does_not_wait_for_it(
    url: str, notes: Notes, no_backoff: None
) -> None:
    def child() -> Agent:
        return deadly_agent(url, notes, name="child")

    def agent(child: Agent) -> Agent:
        below = delegation({"child": Subagent(child, "works")})
        told = ScriptedModel([call("delegate_to_agent", agent="child", task="do"), "ok"])
        return Agent(model=told, tools=[below], store=url)

    assert Life(lambda: agent(child()).invoke("?", thread_id="t")).wait() == -signal.SIGKILL
    deaths = 1
    while Life(lambda: agent(child()).resume("t")).wait() == -signal.SIGKILL:
        deaths += 1
        assert deaths <= 2 + MAX_CHARGES
    assert deaths >= 1 + MAX_CHARGES
    with child() as below, agent(below) as last, pytest.raises(RunError, match="poison"):
        last.resume("t")


def test_a_process_that_goes_down_on_purpose_leaves_a_whole_store(url: str) -> None:
    """What it notes of the suspect that runs alone is under the row's checksum."""
    with SqlSaver.from_url(url) as store:
        lease = store.leases.acquire("t")
        lease.mark = b"recorded"
        store.leases.note_shutdown()
        assert verify(store).findings == []
