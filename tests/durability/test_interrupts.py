"""Ctrl-C in the middle of what must happen whole: it is raised, and nothing breaks.

Python raises KeyboardInterrupt between any two steps of the main thread.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from wick_graph import Agent, BaseHook, SqlSaver, machine
from wick_graph.core import bridge
from wick_graph.engine import graph, lifecycle, thread_turn
from wick_graph.store.leases import Leases
from wick_graph.store.sqlite import Sqlite
from wick_graph.store.threads import Threads
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel, call


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, as in a program."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c(times: int = 1) -> None:
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        yield Agent("a", ScriptedModel(["One.", "Two."]), store=store)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_opening_leaves_its_thread_free(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    acquire, ended = Leases.acquire, []

    def interrupted(self: Leases, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(Leases, "acquire", acquire)
        if when == "before":
            ctrl_c()
        made = acquire(self, *args, **more)
        if when == "after":
            ctrl_c()
        ended.append(made)
        return made

    monkeypatch.setattr(Leases, "acquire", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke("Go.", thread_id="t")
    assert ended, "the lease was taken to its end"
    assert agent.invoke("Go on.", thread_id="t").stopped_because == "done"


@pytest.mark.usefixtures("interrupts")
def test_who_asks_twice_does_not_wait(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire, ended = Leases.acquire, []

    def interrupted(self: Leases, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(Leases, "acquire", acquire)
        ctrl_c(2)
        ended.append(True)
        return acquire(self, *args, **more)

    monkeypatch.setattr(Leases, "acquire", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke("Go.", thread_id="t")
    assert not ended
    assert agent.invoke("Go on.", thread_id="t").stopped_because == "done"


@pytest.mark.usefixtures("interrupts")
def test_a_handler_of_the_program_is_put_back_and_called_once(agent: Agent) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    mine = signal.getsignal(signal.SIGINT)
    assert agent.invoke("Go.", thread_id="t").text == "One."
    assert signal.getsignal(signal.SIGINT) is mine
    ctrl_c()
    assert heard == [signal.SIGINT]


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("where", [(Threads, "note_end"), (Leases, "release")], ids=str)
def test_a_run_that_closes_is_closed_before_the_ctrl_c(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, where: tuple[Any, str]
) -> None:
    cls, name = where
    method = getattr(cls, name)

    def interrupted(self: Any, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(cls, name, method)
        ctrl_c()
        return method(self, *args, **more)

    monkeypatch.setattr(cls, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke("Go.", thread_id="t")
    info = agent.threads.get("t")
    assert info is not None
    assert (info.status, info.stopped_because) == ("idle", "done"), "it had ended by itself"
    assert agent.invoke("Go on.", thread_id="t").text == "Two."


CLOSING = {module.__file__ for module in (bridge, graph, lifecycle, machine, thread_turn)}
"""The files of what closes a run."""


class Instant:
    """A Ctrl-C at one of the steps of a run's closing, the first steps of functions included."""

    def __init__(self, number: int, times: int) -> None:
        self.left, self.times, self.closes = number, times, False

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename not in CLOSING:
            return None
        self.closes = self.closes or frame.f_code.co_name == "__aexit__"
        if self.closes and event in ("call", "line"):
            self.left -= 1
            if not self.left:
                ctrl_c(self.times)
        return self


@pytest.mark.usefixtures("interrupts")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(("door", "times"), [("invoke", 1), ("stream", 1), ("invoke", 2)])
def test_a_ctrl_c_at_any_step_of_the_closing_leaves_the_thread_free(
    tmp_path: Path, door: str, times: int
) -> None:
    before, number, known = sys.gettrace(), 0, {"idle done", "idle cancelled"}
    if times > 1:  # it does not wait until the end is stored
        known.add("running None")
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        drawn = Agent("a", ScriptedModel(["One.", "Two."]), store=store).graph
        while True:
            number += 1
            at: Any = {"configurable": {"thread_id": f"t{number}"}}
            instant = Instant(number, times)
            sys.settrace(instant)
            try:
                given: Any = {"messages": [("user", "Go.")]}
                drawn.invoke(given, at) if door == "invoke" else list(drawn.stream(given, at))
            except KeyboardInterrupt:
                pass
            else:
                assert instant.left > 0
                break
            finally:
                sys.settrace(before)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            info = store.threads.get(f"t{number}")
            assert info is not None
            assert f"{info.status} {info.stopped_because}" in known, number
            drawn.invoke({"messages": [("user", "Go on.")]}, at)
    assert number > 50


@pytest.mark.usefixtures("interrupts")
def test_who_asks_twice_does_not_wait_for_the_closing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    def interrupted(self: Leases, *args: Any, **more: Any) -> Any:
        ctrl_c(2)
        ended.append(True)

    with monkeypatch.context() as patched:
        patched.setattr(Leases, "release", interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.invoke("Go.", thread_id="t")
    assert not ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert agent.invoke("Go on.", thread_id="t").text == "Two."


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("phase", ["before_agent", "modify_request", "after_model"])
def test_no_ctrl_c_waits_for_a_hook(tmp_path: Path, phase: str) -> None:
    done: list[str] = []

    class Slow(BaseHook):
        name = "slow"

    def slow(self: Slow, *args: Any) -> None:
        ctrl_c()
        done.append("to its end")

    setattr(Slow, phase, slow)
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        agent = Agent("a", ScriptedModel(["One.", "Two."]), hooks=[Slow()], store=store)
        with pytest.raises(KeyboardInterrupt):
            agent.invoke("Go.", thread_id="t")
        assert done == []
        info = store.threads.get("t")
    assert info is not None
    assert (info.status, info.stopped_because) == ("idle", "cancelled")


STEPS = 8
"""At least as many transactions as a run with a tool begins in the main thread."""


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
def adder(tmp_path: Path) -> Iterator[Agent]:
    model = ScriptedModel([call("add", a=1, b=2), "3."])
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/wick.db") as store:
        store.threads.list()
        yield Agent("a", model, tools=[add], store=store)


@pytest.mark.usefixtures("interrupts")
def test_a_ctrl_c_in_the_middle_of_a_transaction_is_just_that(
    adder: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised as it is, when the transaction is whole; the store goes on."""
    begin, left, main = Sqlite.begin, [0], threading.main_thread()
    store: Any = adder.store

    def interrupted(self: Sqlite, *args: Any, **more: Any) -> Any:
        made = begin(self, *args, **more)
        if threading.current_thread() is main:
            left[0] -= 1
            if left[0] == 0:
                ctrl_c()
        return made

    monkeypatch.setattr(Sqlite, "begin", interrupted)
    came = 0
    for at in range(1, STEPS):
        left[0] = at
        try:
            adder.invoke("1 + 2?", thread_id=f"t{at}")
        except KeyboardInterrupt:
            came += 1
        left[0] = 0
        assert adder.invoke("1 + 2?", thread_id=f"after-{at}").text == "3."
    assert came >= 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert verify(store).is_whole


@pytest.mark.usefixtures("interrupts")
def test_no_ctrl_c_waits_for_a_long_read(adder: Agent) -> None:
    """Such as that of `wick verify`; wherever it is left, the store goes on."""
    store: Any = adder.store
    adder.invoke("1 + 2?", thread_id="t")
    done: list[str] = []

    def read() -> None:
        with store._core.reading() as db:
            db.execute("SELECT 1")
            ctrl_c()
            done.append("to its end")

    with pytest.raises(KeyboardInterrupt):
        read()
    assert done == []
    with suppress(KeyboardInterrupt), store._core.reading() as db:
        end = store._core._end
        store._core._end = lambda db: ctrl_c()
        db.execute("SELECT 1")
    store._core._end = end
    assert store._core._connection.in_transaction
    assert adder.invoke("1 + 2?", thread_id="next").text == "3."


@pytest.mark.usefixtures("interrupts")
def test_no_ctrl_c_waits_for_maintenance(adder: Agent) -> None:
    store: Any = adder.store
    done: list[str] = []

    def tidy() -> None:
        with store._core.idle():
            ctrl_c()
            done.append("to its end")

    with pytest.raises(KeyboardInterrupt):
        tidy()
    assert done == []
    assert adder.invoke("1 + 2?", thread_id="t").text == "3."


@pytest.mark.usefixtures("interrupts")
def test_no_ctrl_c_waits_for_another_thread(adder: Agent) -> None:
    store: Any = adder.store
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with store._core.reading():
            held.set()
            free.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    timer = threading.Timer(0.1, ctrl_c)
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        store.threads.pin("t")
    assert time.monotonic() - began < 30
    free.set()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert adder.invoke("1 + 2?", thread_id="t").text == "3."


@pytest.mark.usefixtures("interrupts")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_of_a_thread_has_the_handler_of_the_program(adder: Agent) -> None:
    """A thread forks while the main thread waits for the database, or writes."""
    store: Any = adder.store
    codes: list[int] = []

    def fork() -> None:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
            codes.append(os.waitpid(pid, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    while thread.is_alive():
        store.threads.list()
    assert codes == [0] * 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
