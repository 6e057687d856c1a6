"""Ctrl-C in the middle of what must happen whole: it is raised, and nothing breaks.

Python raises KeyboardInterrupt between any two steps of the main thread.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wick_graph import Agent, SqlSaver
from wick_graph.store.leases import Leases
from wick_graph.testing import ScriptedModel


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
