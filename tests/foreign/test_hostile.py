"""A recording meets values, errors, stores and callers that it cannot trust."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sqlite3
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.foreign.graphs import config, loop
from tests.support import forked
from wick_graph.debug import record
from wick_graph.debug.recording import Recording
from wick_graph.errors import DebugError
from wick_graph.foreign.copies import RECORDED
from wick_graph.journal.tracebacks import MAX_BYTES, lines_of, traceback_of
from wick_graph.store import SqlSaver
from wick_graph.store.sqlite import BUSY_SECONDS


class Held(TypedDict, total=False):
    x: Any


def one(node: Any = lambda state: {}, saver: Any = None) -> Any:
    """Return a graph of one node."""
    return StateGraph(Held).add_node("a", node).add_edge(START, "a").compile(saver)


class Silent(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Hostile:
    """A value that refuses every look at it."""

    def __getattr__(self, name: str) -> Any:
        raise Silent

    def __repr__(self) -> str:
        raise Silent


class Untold(dict[str, Any]):
    """A mapping that refuses to be read."""

    def keys(self) -> Any:
        raise Silent


@pytest.mark.parametrize("make", [Hostile, Untold])
def test_a_value_that_refuses_to_be_read_never_fails_its_run(make: Any) -> None:
    value = make()
    with record(store="sqlite://") as recording:
        assert one().invoke({"x": value})["x"] is value
    recording.close()


def test_an_error_without_a_text_passes_through() -> None:
    def fail(state: Any) -> Any:
        raise Silent

    with record(store="sqlite://") as recording:
        with pytest.raises(Silent):
            one(fail).invoke({"x": 1})
        assert recording.moments("node.error")
    recording.close()


@pytest.mark.parametrize("given", ["x", 5, {"configurable": "abc"}])
def test_a_wrong_config_fails_as_without_a_recording(given: Any) -> None:
    errors = []
    with pytest.raises(AttributeError) as info:
        one().invoke({"x": 1}, given)
    errors.append(str(info.value))
    with record(store="sqlite://") as recording, pytest.raises(AttributeError) as info:
        one().invoke({"x": 1}, given)
    assert [str(info.value)] == errors
    assert len(recording.problems) == 1


def test_an_update_is_made_if_it_cannot_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    saver, where = InMemorySaver(), config()
    graph = one(saver=saver)
    with record(store="sqlite://") as recording:
        read = saver.get_tuple

        def once(given: Any) -> Any:
            if "checkpoint_id" in given["configurable"]:
                raise OSError("away")
            return read(given)

        monkeypatch.setattr(saver, "get_tuple", once)
        graph.update_state(where, {"x": 1}, as_node="a")
        monkeypatch.undo()
    assert graph.get_state(where).values == {"x": 1}
    assert recording.problems == ["a run was not recorded: OSError: away"]


def test_a_context_that_outlives_its_block_is_recorded_by_the_next() -> None:
    with record(store="sqlite://", scope="context") as first:
        inside = contextvars.copy_context()
    with record(store="sqlite://") as second:
        inside.run(one().invoke, {"x": 1})
    assert (len(first.runs), len(second.runs)) == (0, 1)
    second.close()


async def test_another_task_may_leave_the_block() -> None:
    async def block() -> AsyncIterator[Recording]:
        async with record(store="sqlite://") as made:
            yield made

    blocks = block()

    async def step() -> Any:
        return await anext(blocks, None)

    recording = await asyncio.create_task(step())
    await one().ainvoke({"x": 1})
    assert await asyncio.create_task(step()) is None
    assert len(recording.runs) == 1
    recording.close()


def test_a_block_may_be_entered_again_only_after_it_was_left() -> None:
    block = record(store="sqlite://")
    with block:
        with pytest.raises(DebugError, match="records already"):
            block.__enter__()
        one().invoke({"x": 1})
    with block as recording:
        one().invoke({"x": 2})
    assert len(recording.runs) == 2
    recording.close()


def test_a_store_that_cannot_be_opened_is_tried_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("checkpoints").write_text("a file")
    with record() as recording:
        for number in range(3):
            assert one().invoke({"x": number}) == {"x": number}
    assert len(recording.problems) == 3
    assert len([r for r in caplog.records if "the run itself goes on" in r.getMessage()]) == 1


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_copies_are_private_from_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made: list[int] = []
    link = Path.replace

    def replace(self: Path, target: Any) -> Any:
        made.append(stat.S_IMODE(self.stat().st_mode))
        return link(self, target)

    monkeypatch.setattr(Path, "replace", replace)

    def look(state: Any) -> Any:
        made.extend(stat.S_IMODE(file.stat().st_mode) for file in RECORDED.parent.iterdir())

    with record() as recording:
        one(look).invoke({"x": 1})
    recording.close()
    assert len(made) >= 2
    assert set(made) == {0o600}


def test_a_store_that_the_caller_names_is_not_swept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    with SqlSaver.from_url(url, ttl=0.001) as saver:
        loop(saver).graph.invoke({"n": 0}, config())
        (info,) = saver.threads.list()
        assert info.expires_at is not None
        assert info.expires_at - info.last_access < timedelta(milliseconds=2)  # it is rounded
    with record(store=url) as recording:
        one().invoke({"x": 1})
    assert recording.problems == []
    recording.close()
    with SqlSaver.from_url(url) as saver:
        assert saver.threads.look(info.thread_id) is not None


def test_a_run_that_failed_before_its_first_checkpoint_can_be_read() -> None:
    with record(store="sqlite://") as recording:
        with pytest.raises(Exception, match="no input"):
            one().invoke(None)
        session = recording.session()
        for moment in session.inspect.moments():
            session.goto(f"#{moment.seq}")
            assert session.inspect.state() == {}
        assert session.journal is not None
        (run,) = session.journal.runs()
        assert all(moment.at >= run.started for moment in session.inspect.moments())
    recording.close()


def test_long_notes_leave_room_for_the_frames() -> None:
    error = KeyError("ü" * 2_000)
    for _ in range(4):
        error.add_note("ü" * 2_000)
    try:
        raise error
    except KeyError as raised:
        found = traceback_of(raised)
    assert found is not None
    lines = lines_of(found)
    assert any("in test_long_notes" in line for line in lines)
    assert len("\n".join(lines).encode()) <= MAX_BYTES


def test_members_of_a_group_and_their_causes_are_kept() -> None:
    def member(text: str) -> ValueError:
        try:
            try:
                raise OSError(f"under {text}")
            except OSError as error:
                raise ValueError(text) from error
        except ValueError as made:
            return made

    try:
        raise ExceptionGroup("both", [member("one"), member("two")])
    except ExceptionGroup as raised:
        found = traceback_of(raised)
    assert found is not None
    assert [part["message"] for part in found] == [
        "both (2 sub-exceptions)",
        *("one", "two"),
        *("under one", "under two"),
    ]
    assert all(part["frames"] for part in found)


def test_a_locked_store_of_copies_does_not_hold_its_runs(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    SqlSaver.from_url(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with record(store=f"sqlite:///{file}") as recording:
            assert one().invoke({"x": 1}) == {"x": 1}
        assert time.monotonic() - began < BUSY_SECONDS
        assert "keeps it locked" in recording.problems[0]
        other.execute("ROLLBACK")
        with record(store=f"sqlite:///{file}") as again:
            one().invoke({"x": 2})
        assert again.problems == []
    recording.close()
    again.close()


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX's")
def test_a_disk_that_takes_no_more_is_not_told_as_damage(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from tests.foreign.test_hostile import one
from wick_graph.debug import record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with record(store="sqlite:///{tmp_path / "r.db"}") as made:
    one().invoke({{"x": 1}})
    resource.setrlimit(resource.RLIMIT_FSIZE, (350_000, 350_000))
    for n in range(4):
        one().invoke({{"x": __import__("os").urandom(90_000)}})
print(made.problems[0])
"""
    ran = forked.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "the disk is full" in ran.stdout, ran.stderr
