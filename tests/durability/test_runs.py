"""A run's life cycle: waiting one's turn, cancelling, deadlines, and asking twice for one thing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from tests.support.recorded import until_done
from tests.support.waiting import until
from wick_graph import Agent, BaseHook, ToolCall, events, tool
from wick_graph.engine import answers, thread_turn
from wick_graph.errors import (
    ConfigError,
    ModelError,
    NothingWaitsError,
    RunError,
    StorageError,
    ThreadBusyError,
)
from wick_graph.hooks import ApprovalHook, Approve, Reject
from wick_graph.journal import Journal
from wick_graph.testing import ScriptedModel, call, calls, empty, error

DOORS = pytest.mark.parametrize("door", ["invoke", "ainvoke"])
SECONDS = 60


def agent_of(path: Path | None, *steps: Any, tools: Any = (), **more: Any) -> Agent:
    store = None if path is None else f"sqlite:///{path}"
    return Agent(model=ScriptedModel(list(steps)), tools=tools, store=store, **more)


def through(door: str, agent: Agent, text: str, **more: Any) -> Any:
    if door == "invoke":
        return agent.invoke(text, **more)
    return asyncio.run(agent.ainvoke(text, **more))


class Held:
    """A tool that tells when it has begun, and waits until it may end."""

    def __init__(self) -> None:
        self.inside, self.go_on, self.left = (threading.Event() for _ in range(3))

    def sync(self) -> Any:
        def hold() -> str:
            """Wait."""
            self.inside.set()
            self.go_on.wait(SECONDS)
            return "held"

        return hold

    def async_(self) -> Any:
        async def hold() -> str:
            """Wait."""
            self.inside.set()
            try:
                while not self.go_on.is_set():
                    await asyncio.sleep(0.002)
            except asyncio.CancelledError:
                self.left.set()
                raise
            return "held"

        return hold


class Background:
    """A run in a thread of its own, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self.outcome = work()
        except BaseException as error:
            self.outcome = error

    def end(self) -> Any:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return self.outcome


def standing_in_line() -> int:
    """Count the runs of this process that wait for a thread."""
    return sum(map(len, thread_turn._lines.values()))


def texts(agent: Agent, thread: str = "t") -> list[str]:
    values = agent.graph.get_state({"configurable": {"thread_id": thread}}).values
    return [f"{m.type} {m.text}" for m in values.get("messages", [])]


# --- concurrent runs -----------------------------------------------------------------------------


@DOORS
def test_queued_runs_come_one_after_the_other_in_their_order(tmp_path: Path, door: str) -> None:
    held = Held()
    script = [call("hold"), "first", "second", "third"]
    with agent_of(tmp_path / "t.db", *script, tools=[held.sync()]) as agent:
        first = Background(lambda: through(door, agent, "1", thread_id="t"))
        assert held.inside.wait(SECONDS)
        waiting: list[Background] = []
        for n in ("2", "3"):
            waiting.append(
                Background(
                    lambda n=n: through(door, agent, n, thread_id="t", on_busy="queue")  # type: ignore[misc]
                )
            )
            until(lambda: standing_in_line() == len(waiting), "nobody stands in line")
        held.go_on.set()
        assert [run.end().text for run in (first, *waiting)] == ["first", "second", "third"]
        said = [text for text in texts(agent) if text.startswith("human")]
        assert said == ["human 1", "human 2", "human 3"]


@DOORS
def test_a_run_may_take_the_place_of_the_running_one(tmp_path: Path, door: str) -> None:
    held = Held()
    hold = held.async_() if door == "ainvoke" else held.sync()
    script = [calls(("hold", {}), ("act", {})), "second"]

    acted = threading.Event()

    def act() -> str:
        """Do something."""
        acted.set()
        return "acted"

    with agent_of(tmp_path / "t.db", *script, tools=[hold, act]) as agent:
        first = Background(lambda: through(door, agent, "1", thread_id="t"))
        assert held.inside.wait(SECONDS)
        assert acted.wait(SECONDS)
        until_done(f"sqlite:///{tmp_path}/t.db")
        result = through(door, agent, "2", thread_id="t", on_busy="cancel_running")
        assert result.text == "second"
        assert first.end().stopped_because == "cancelled"
        held.go_on.set()
        assert held.left.is_set() == (door == "ainvoke")
        assert texts(agent)[0] == "human 1"
        assert texts(agent)[2].startswith("tool Error: interrupted, outcome unknown")
        assert texts(agent)[3:] == ["tool acted", "human 2", "ai second"]


@DOORS
def test_a_run_that_began_meanwhile_is_asked_to_stop_too(
    tmp_path: Path, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that was to be cancelled ends by itself, and a queued one takes its place."""
    steps: list[Any] = [call("hold"), "first", call("hold"), "third"]
    helds = [Held(), Held()]
    used = iter([one.sync() for one in helds])

    def hold() -> str:
        """Wait."""
        return str(next(used)())

    with Agent(
        model=ScriptedModel(steps, cursor="fifo"), tools=[hold], store=f"sqlite:///{tmp_path}/t.db"
    ) as agent:
        store: Any = agent.store
        ask, others = store.leases.ask_to_stop, list[Background]()

        def late(*given: Any) -> bool:
            if len(others) == 1:
                helds[0].go_on.set()
                assert others[0].end().text == "first"
                others.append(Background(lambda: through(door, agent, "2", thread_id="t")))
                assert helds[1].inside.wait(SECONDS)
            return bool(ask(*given))

        others.append(Background(lambda: through(door, agent, "1", thread_id="t")))
        assert helds[0].inside.wait(SECONDS)
        monkeypatch.setattr(store.leases, "ask_to_stop", late)
        result = through(door, agent, "3", thread_id="t", on_busy="cancel_running")
        helds[1].go_on.set()
        assert (result.text, others[1].end().stopped_because) == ("third", "cancelled")
        assert [run.status for run in Journal(store, "t").runs()] == ["ended"] * 3


@DOORS
def test_a_question_of_a_run_that_lost_its_thread_is_no_failure_of_a_hook(
    tmp_path: Path, door: str
) -> None:
    class Taken(BaseHook):
        name = "taken"
        phases = ("wrap_tool_call",)

        def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
            leases.release(leases.acquire("t", force=True))
            return next(call)

    with agent_of(
        tmp_path / "t.db",
        call("hold"),
        tools=[Held().sync()],
        hooks=[Taken(), ApprovalHook({"hold": True})],
    ) as agent:
        store: Any = agent.store
        leases = store.leases
        assert through(door, agent, "1", thread_id="t").stopped_because == "cancelled"


def test_a_run_of_another_process_is_cancelled_too(tmp_path: Path) -> None:
    path, ready = tmp_path / "t.db", os.pipe()

    async def hold() -> str:
        """Wait."""
        os.write(ready[1], b"x")
        await asyncio.sleep(SECONDS)
        return "held"

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with agent_of(path, call("hold"), "ok", tools=[hold]) as agent:
                result = asyncio.run(agent.ainvoke("1", thread_id="t"))
            code = 7 if result.stopped_because == "cancelled" else 2
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    with agent_of(path, "second", tools=[hold]) as agent:
        assert agent.cancel("t")
        assert not agent.cancel("t")
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "cancelled")
        _, status = os.waitpid(pid, 0)  # it notices within a second, and leaves its tool
        assert os.WEXITSTATUS(status) == 7
        assert agent.threads.get("t").stopped_because == "cancelled"


@DOORS
def test_cancelling_reaches_the_model_and_the_thread_goes_on(tmp_path: Path, door: str) -> None:
    inside, gone = threading.Event(), threading.Event()

    class Slow(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "slow"

        def _generate(self, messages: list[BaseMessage], *args: Any, **kw: Any) -> ChatResult:
            if len(messages) == 1:
                inside.set()
                gone.wait(SECONDS)
            return ChatResult(generations=[ChatGeneration(message=AIMessage("hello"))])

        async def _agenerate(self, messages: Any, *args: Any, **kw: Any) -> ChatResult:
            if len(messages) == 1:
                inside.set()
                await asyncio.sleep(SECONDS)
            return self._generate([])

    with Agent(model=Slow(), store=f"sqlite:///{tmp_path}/t.db") as agent:
        first = Background(lambda: through(door, agent, "1", thread_id="t"))
        assert inside.wait(SECONDS)
        started = time.monotonic()
        assert agent.cancel("t")
        assert time.monotonic() - started < SECONDS / 2
        assert first.end().stopped_because == "cancelled"
        gone.set()
        assert agent.invoke("2", thread_id="t").text == "hello"
        assert texts(agent) == ["human 1", "human 2", "ai hello"]


def test_cancelling_reaches_a_run_inside_of_a_tool(tmp_path: Path) -> None:
    held = Held()
    inner = agent_of(None, call("hold"), "inner", tools=[held.sync()])

    def delegate() -> str:
        """Ask another agent."""
        return inner.invoke("deeper", thread_id="child").text

    with agent_of(tmp_path / "t.db", call("delegate"), "ok", tools=[delegate]) as agent, inner:
        first = Background(lambda: agent.invoke("1", thread_id="t"))
        assert held.inside.wait(SECONDS)
        assert agent.cancel("t")
        assert first.end().stopped_because == "cancelled"
        until = time.monotonic() + SECONDS
        while inner.threads.get("child").status == "running" and time.monotonic() < until:
            time.sleep(0.01)
        assert inner.threads.get("child").stopped_because == "cancelled"
        held.go_on.set()


def test_a_reader_who_leaves_need_not_wait_for_the_tool(tmp_path: Path) -> None:
    held = Held()
    with agent_of(tmp_path / "t.db", call("hold"), "ok", tools=[held.sync()]) as agent:
        stream: Any = agent.stream("1", thread_id="t")
        for event in stream:
            if isinstance(event, events.ToolStart):
                break
        assert held.inside.wait(SECONDS)
        started = time.monotonic()
        stream.close()
        assert time.monotonic() - started < SECONDS / 2
        assert agent.threads.get("t").stopped_because == "cancelled"
        held.go_on.set()


def test_nothing_changes_a_thread_while_a_run_goes_on_in_it(tmp_path: Path) -> None:
    """An update from outside would make the run die of a thread that changed under its feet."""
    held = Held()
    config: Any = {"configurable": {"thread_id": "t"}}
    with agent_of(tmp_path / "t.db", call("hold"), "ok", tools=[held.sync()]) as agent:
        first = Background(lambda: agent.invoke("1", thread_id="t"))
        assert held.inside.wait(SECONDS)
        with pytest.raises(ThreadBusyError, match="thread t is busy: another run goes on in it"):
            agent.graph.update_state(config, {"summary": "changed"})
        held.go_on.set()
        assert first.end().text == "ok"
        agent.graph.update_state(config, {"summary": "changed"})
        assert agent.graph.get_state(config).values["summary"] == "changed"


def test_an_unknown_way_of_being_busy_is_refused() -> None:
    with agent_of(None, "ok") as agent:
        with pytest.raises(ConfigError, match="on_busy is reject, queue or cancel_running"):
            agent.invoke("1", on_busy="wait")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="there is no option 'on_bussy'"):
            agent.invoke("1", on_bussy="queue")  # type: ignore[call-arg]


# --- deadlines -----------------------------------------------------------------------------------


@DOORS
@pytest.mark.parametrize("store", [True, False])
def test_a_deadline_ends_a_run_politely(tmp_path: Path, door: str, store: bool) -> None:
    held = Held()
    hold = held.async_() if door == "ainvoke" else held.sync()
    model = ScriptedModel([call("hold"), "ok"])
    url: Any = f"sqlite:///{tmp_path}/t.db" if store else False
    with Agent(model=model, tools=[hold], store=url, deadline=0.3) as agent:
        result = through(door, agent, "1", thread_id="t")
        held.go_on.set()
        assert (result.stopped_because, result.text) == ("limit", "")
        if store:
            info = agent.threads.get("t")
            assert (info.status, info.stopped_because) == ("idle", "limit")
            assert info.last_error == "the run was longer than its deadline of 0.3 s"
    if store:  # without a deadline, which a busy machine would not keep
        with Agent(model=model, tools=[hold], store=url) as agent:
            assert agent.resume("t").text == "ok"


def test_one_call_may_have_a_deadline_of_its_own(tmp_path: Path) -> None:
    held = Held()
    with agent_of(tmp_path / "t.db", call("hold"), "ok", tools=[held.sync()]) as agent:
        first = Background(lambda: agent.invoke("1", thread_id="t"))
        assert held.inside.wait(SECONDS)
        late = agent.invoke("2", thread_id="t", on_busy="queue", deadline="0.1s")
        assert late.stopped_because == "limit"
        held.go_on.set()
        assert first.end().text == "ok"
        assert texts(agent)[-1] == "ai ok"


# --- asking twice --------------------------------------------------------------------------------


@DOORS
def test_the_same_key_is_the_same_run(tmp_path: Path, door: str) -> None:
    with agent_of(tmp_path / "t.db", "one", "two") as agent:
        first = through(door, agent, "hello", thread_id="t", idempotency_key="k1")
        again = through(door, agent, "hello", thread_id="t", idempotency_key="k1")
        assert (again.text, again.run_id, again.usage) == ("one", first.run_id, first.usage)
        assert again.stopped_because == "done"
        other = through(door, agent, "hello", thread_id="t", idempotency_key="k2")
        assert (other.text, other.run_id == first.run_id) == ("two", False)
        # also when the thread went on since
        late = through(door, agent, "hello", thread_id="t", idempotency_key="k1")
        assert (late.text, len(late.messages)) == ("one", 2)
        assert texts(agent) == ["human hello", "ai one", "human hello", "ai two"]
        assert agent.threads.get("t").status == "idle"


def test_another_input_under_the_same_key_is_refused(tmp_path: Path) -> None:
    with agent_of(tmp_path / "t.db", "one", "two") as agent:
        agent.invoke("hello", thread_id="t", idempotency_key="k")
        with pytest.raises(RunError, match="the idempotency key 'k' was used for another input"):
            agent.invoke("bye", thread_id="t", idempotency_key="k")
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "done")
        assert texts(agent) == ["human hello", "ai one"]
        with pytest.raises(ConfigError, match="an idempotency key is a text"):
            agent.invoke("hello", thread_id="t", idempotency_key="")


def test_a_key_without_a_thread_finds_its_thread_again(tmp_path: Path) -> None:
    with agent_of(tmp_path / "t.db", "one", "two") as agent:
        first = agent.invoke("hello", idempotency_key="k")
        assert agent.invoke("hello", idempotency_key="k").thread_id == first.thread_id
        assert len(agent.threads.list()) == 1


@pytest.mark.parametrize("thread", ["t", None])
def test_a_key_may_be_any_text(tmp_path: Path, thread: str | None) -> None:
    with agent_of(tmp_path / "t.db", "one", "two") as agent:
        for key in ("\ud800", "ключ"):
            first = agent.invoke("hello", thread_id=thread, idempotency_key=key)
            again = agent.invoke("hello", thread_id=thread, idempotency_key=key)
            assert again == first
        namespace = uuid.UUID("6f2b8f0e-51d5-4c55-9b5e-0f2f6f5a7d41")
        made = uuid.uuid5(namespace, f"{first.thread_id}\0ключ")
        assert first.run_id == str(made), "as earlier versions made it"


@DOORS
@pytest.mark.parametrize("own", [True, False], ids=["own store", "LangGraph's saver"])
def test_a_key_tells_the_usage_of_its_run_again(tmp_path: Path, door: str, own: bool) -> None:
    store: Any = f"sqlite:///{tmp_path / 't.db'}" if own else InMemorySaver()
    with Agent("it", ScriptedModel(["one", empty(), "three"], cursor="fifo"), store=store) as agent:
        through(door, agent, "hello", thread_id="t")
        first = through(door, agent, "go", thread_id="t", idempotency_key="k")
        assert (first.stopped_because, first.usage.calls) == ("empty", 1)
        again = through(door, agent, "go", thread_id="t", idempotency_key="k")
        assert (again.usage, again.thread_usage) == (first.usage, first.thread_usage)
        through(door, agent, "more", thread_id="t")
        late = through(door, agent, "go", thread_id="t", idempotency_key="k")
        assert late.usage == first.usage


def test_a_key_tells_the_usage_by_the_replies_if_its_input_is_dropped(tmp_path: Path) -> None:
    with agent_of(tmp_path / "t.db", "one", "two", keep_latest=1) as agent:
        agent.invoke("hello", thread_id="t")
        first = agent.invoke("go", thread_id="t", idempotency_key="k")
        assert agent.invoke("go", thread_id="t", idempotency_key="k").usage == first.usage


def test_a_key_goes_on_with_what_a_crash_left(tmp_path: Path) -> None:
    path, effects = tmp_path / "t.db", tmp_path / "effects"

    def act() -> str:
        """Have an effect."""
        with effects.open("a") as file:
            file.write("x")
        return "acted"

    @tool(replay="safe")
    def die_once() -> str:
        """Take the process down, the first time."""
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "lived"

    script = [call("act"), call("die_once"), "ok"]
    pid = os.fork()
    if pid == 0:
        agent_of(path, *script, tools=[act, die_once]).invoke(
            "go", thread_id="t", idempotency_key="k"
        )
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    with agent_of(path, *script, tools=[act, die_once]) as agent:
        result = agent.invoke("go", thread_id="t", idempotency_key="k")
        assert (result.text, effects.read_text()) == ("ok", "x")
        assert [m.type for m in result.messages].count("human") == 1


def test_two_that_ask_at_the_same_time_get_one_run(tmp_path: Path) -> None:
    held = Held()
    with agent_of(tmp_path / "t.db", call("hold"), "ok", tools=[held.sync()]) as agent:
        asked: Any = {"thread_id": "t", "idempotency_key": "k", "on_busy": "queue"}
        first = Background(lambda: agent.invoke("go", **asked))
        assert held.inside.wait(SECONDS)
        second = Background(lambda: agent.invoke("go", **asked))
        time.sleep(0.05)
        held.go_on.set()
        one, two = first.end(), second.end()
        assert (one.text, two.text, one.run_id) == ("ok", "ok", two.run_id)
        assert texts(agent).count("human go") == 1


def test_a_key_that_waits_for_an_answer_shows_its_question_again(tmp_path: Path) -> None:
    runs: list[int] = []

    def ask() -> str:
        """Ask somebody."""
        runs.append(1)
        return f"they said {interrupt('which one?')}"

    with agent_of(tmp_path / "t.db", call("ask"), "ok", tools=[ask]) as agent:
        first = agent.invoke("go", thread_id="t", idempotency_key="k")
        again = agent.invoke("go", thread_id="t", idempotency_key="k")
        assert again.stopped_because == "interrupted"
        assert [i.id for i in again.interrupts] == [i.id for i in first.interrupts]
        assert len(runs) == 1
        assert agent.threads.get("t").status == "waiting"
        assert agent.resume("t", "this").text == "ok"
        assert agent.invoke("go", thread_id="t", idempotency_key="k").stopped_because == "done"


@DOORS
@pytest.mark.parametrize("own", [True, False], ids=["own store", "LangGraph's saver"])
def test_a_key_shows_the_open_questions_alone(tmp_path: Path, door: str, own: bool) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    both = calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    store: Any = f"sqlite:///{tmp_path / 't.db'}" if own else InMemorySaver()
    model, hooks = ScriptedModel([both, "ok"]), [ApprovalHook({"pay": True})]
    with Agent("it", model, tools=[pay], hooks=hooks, store=store) as agent:
        first = through(door, agent, "go", thread_id="t", idempotency_key="k")
        assert [one.value["args"]["amount"] for one in first.interrupts] == [1, 2]
        left = agent.resume("t", {first.interrupts[0].id: Approve()})
        again = through(door, agent, "go", thread_id="t", idempotency_key="k")
        assert (again.stopped_because, paid) == ("interrupted", [1])
        assert again.interrupts == left.interrupts == first.interrupts[1:]
        said = [[(m.type, m.text) for m in one.messages] for one in (left, again)]
        assert said[0] == said[1]  # with what the finished call wrote
        assert said[0][-1] == ("tool", "paid 1")
        done = agent.resume("t", {again.interrupts[0].id: Reject("too much")})
        assert (done.text, paid) == ("ok", [1])


def test_a_key_goes_on_if_all_questions_have_their_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> str:
        """Ask somebody."""
        return f"they said {interrupt('which one?')}"

    async def fail(*_: Any) -> None:
        raise StorageError("the disk is full")

    with agent_of(tmp_path / "t.db", call("ask"), "ok", tools=[ask]) as agent:
        agent.invoke("go", thread_id="t", idempotency_key="k")
        with monkeypatch.context() as broken:
            broken.setattr(answers, "drop_partial", fail)  # the answer is stored before it
            with pytest.raises(StorageError, match="disk is full"):
                agent.resume("t", "this")
        assert agent.threads.get("t").status == "waiting"
        done = agent.invoke("go", thread_id="t", idempotency_key="k")
        assert (done.text, done.stopped_because) == ("ok", "done")
        assert "tool they said this" in texts(agent)


def test_a_run_that_failed_is_tried_again_under_its_key(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with agent_of(path, error("no"), "ok") as agent:
        with pytest.raises(ModelError):
            agent.invoke("go", thread_id="t", idempotency_key="k")
        assert agent.invoke("go", thread_id="t", idempotency_key="k").text == "ok"
        assert texts(agent)[0::2] == ["human go", "ai ok"]  # the record of the failure between


@DOORS
def test_a_key_is_one_run_in_langgraph_s_own_saver_too(door: str) -> None:
    agent = Agent(
        "it", ScriptedModel([error("no"), "one", "two"], cursor="fifo"), store=InMemorySaver()
    )
    with pytest.raises(ModelError):
        through(door, agent, "go", thread_id="t", idempotency_key="k")
    for _ in range(3):
        again = through(door, agent, "go", thread_id="t", idempotency_key="k")
        assert (again.text, again.stopped_because) == ("one", "done")
    with pytest.raises(RunError, match="used for another input"):
        through(door, agent, "other", thread_id="t", idempotency_key="k")
    assert through(door, agent, "more", thread_id="t").text == "two"
    assert through(door, agent, "go", thread_id="t", idempotency_key="k").text == "one"


@DOORS
def test_a_key_that_waits_in_langgraph_s_own_saver(door: str) -> None:
    def ask() -> str:
        """Ask somebody."""
        return f"they said {interrupt('which one?')}"

    model = ScriptedModel([call("ask"), "ok"], cursor="fifo")
    agent = Agent("it", model, tools=[ask], store=InMemorySaver())
    first = through(door, agent, "go", thread_id="t", idempotency_key="k")
    again = through(door, agent, "go", thread_id="t", idempotency_key="k")
    assert again.stopped_because == "interrupted"
    assert [i.id for i in again.interrupts] == [i.id for i in first.interrupts]
    assert agent.resume("t", "this").text == "ok"
    done = through(door, agent, "go", thread_id="t", idempotency_key="k")
    assert (done.text, done.stopped_because) == ("ok", "done")


@DOORS
@pytest.mark.parametrize("answer", [Approve(), {"decision": "approve"}, {"0" * 32: Approve()}])
def test_a_decision_that_nothing_waits_for_is_refused(
    tmp_path: Path, door: str, answer: Any
) -> None:
    with agent_of(tmp_path / "t.db", "one", "two") as agent:
        agent.invoke("go", thread_id="t")
        go_on = agent.resume if door == "invoke" else lambda *a: asyncio.run(agent.aresume(*a))
        with pytest.raises(NothingWaitsError, match="nothing in thread t waits for a decision"):
            go_on("t", answer)
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "done")
        assert agent.resume("t").text == "one"
        assert agent.invoke("more", thread_id="t").text == "two"


# --- what a thread says of itself ----------------------------------------------------------------


def test_a_thread_is_called_by_the_first_line_that_was_said_in_it(tmp_path: Path) -> None:
    with agent_of(tmp_path / "t.db", "one", "two", "three") as agent:
        agent.invoke(f"\n  Plan my week  \n{'x' * 200}", thread_id="t")
        agent.invoke("And the next", thread_id="t")
        assert agent.threads.get("t").title == "Plan my week"
        agent.threads.rename("t", "Weeks")
        agent.invoke("y" * 200, thread_id="u")
        titles = {info.thread_id: info.title for info in agent.threads.list()}
        assert titles == {"t": "Weeks", "u": "y" * 79 + "…"}
        with pytest.raises(StorageError, match="there is no thread"):
            agent.threads.rename("nobody", "x")


def test_going_on_under_another_agent_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.db"
    with agent_of(path, error("no")) as agent, pytest.raises(ModelError):
        agent.invoke("go", thread_id="t")
    with caplog.at_level(logging.WARNING, "wick_graph"):
        with agent_of(path, error("no")) as same, pytest.raises(ModelError):
            same.resume("t")
        assert not caplog.records
        with agent_of(path, "ok", "more", system_prompt="Other.") as other:
            other.resume("t")
            other.invoke("a new message is no such case", thread_id="t")
    [record] = caplog.records
    said = record.getMessage()
    assert said.startswith("thread t goes on under another version of the agent agent than")
    assert said.endswith("changed: its prompt, tools, hooks or limits")


@pytest.mark.parametrize("door", ["resume", "aresume"])
def test_a_fork_from_any_checkpoint_ends_as_its_source_did(tmp_path: Path, door: str) -> None:
    ran: list[int] = []

    def act(n: int) -> str:
        """Act."""
        ran.append(n)
        return f"did {n}"

    with agent_of(tmp_path / "t.db", call("act", n=1), "ok", tools=[act]) as agent:
        whole = agent.invoke("?", thread_id="t")
        steps = list(agent.threads.history("t"))
        for at in steps:
            fork = f"from.{at.step}"
            agent.threads.fork("t", fork, at.checkpoint_id)
            again = agent.resume(fork) if door == "resume" else asyncio.run(agent.aresume(fork))
            assert [m.text for m in again.messages] == [m.text for m in whole.messages], at.step
            assert again.stopped_because == "done", at.step
            known = agent.threads.get(fork)
            assert known is not None
            assert (known.status, known.stopped_because) == ("idle", "done"), at.step
        assert len(steps) > 5
