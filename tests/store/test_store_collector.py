"""The garbage collector is put off while much is read, and goes on whatever happens meanwhile."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint

from wick_graph import SqlSaver
from wick_graph.store.warm import collector_put_off


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_goes_on_when_the_last_one_has_ended() -> None:
    begun, end = threading.Event(), threading.Event()

    def longer() -> None:
        with collector_put_off():
            begun.set()
            end.wait(60)

    other = threading.Thread(target=longer)
    with collector_put_off():
        other.start()
        assert begun.wait(60)
        with collector_put_off():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert not gc.isenabled(), "the other one has not ended"
    end.set()
    other.join(60)
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collector_put_off():
        1 / 0  # noqa: B018  # it raises
    assert gc.isenabled()


def test_it_stays_off_for_a_program_that_has_it_off() -> None:
    gc.disable()
    with collector_put_off():
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()
    with collector_put_off():
        assert not gc.isenabled()
    assert gc.isenabled()


FORK = """
import gc, os
from wick_graph.store.warm import collector_put_off
with collector_put_off():
    if not (child := os.fork()):
        assert gc.isenabled()
        with collector_put_off():
            assert not gc.isenabled()
        os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not gc.isenabled()
assert gc.isenabled()
"""


def test_it_goes_on_in_a_fork() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)


def test_a_long_thread_is_read_without_it(tmp_path: Path) -> None:
    url, at = f"sqlite:///{tmp_path / 'long.db'}", {"thread_id": "t", "checkpoint_ns": ""}
    config: Any = {"configurable": at}
    messages = [AIMessage(f"{n}", id=f"m{n}") for n in range(2_000)]
    checkpoint: Any = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": messages}
    checkpoint["channel_versions"] = {"messages": 1}
    with SqlSaver.from_url(url) as saver:
        saver.put(config, checkpoint, {"source": "input", "step": -1}, {"messages": 1})
    runs: list[int] = []

    def seen(phase: str, info: dict[str, Any]) -> None:
        runs.extend([info["generation"]] * (phase == "start"))

    before = gc.get_threshold()
    with SqlSaver.from_url(url) as saver:
        gc.collect()
        gc.callbacks.append(seen)
        gc.set_threshold(700, 10, 10)  # Python's own
        try:
            found = saver.get_tuple(config)
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(seen)
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == messages
    assert len(runs) <= 2, "it looked through what was being read"
    assert gc.isenabled()
