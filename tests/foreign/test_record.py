"""Each kind of graph is recorded with every saver, in both doors, and runs as without."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.foreign.graphs import GRAPHS, Made, config
from wick_graph.debug import record
from wick_graph.debug.recording import Recording
from wick_graph.store import SqlSaver

DROPPED = (
    *("langgraph_checkpoint_ns", "checkpoint_ns", "thread_id", "run_id", "parents"),
    *("langgraph_path", "ls_run_id", "created_at", "seen", "request"),
)
"""Keys of ids and times."""

SAVERS = ("sql", "memory", "sqlite", "none")

SOME = ("sql", "memory", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SAVERS[2:]))
"""In every run of the tests, and by night."""


@contextmanager
def saver_of(kind: str) -> Iterator[Any]:
    """Open a saver, or that of a database's URL."""
    if kind.startswith("postgresql://"):
        with SqlSaver.from_url(kind) as saver:
            yield saver
    elif kind == "sql":
        with SqlSaver.from_url("sqlite://") as saver:
            yield saver
    elif kind == "sqlite":
        with SqliteSaver.from_conn_string(":memory:") as other:
            yield other
    else:
        yield InMemorySaver() if kind == "memory" else None


@asynccontextmanager
async def async_saver_of(kind: str) -> AsyncIterator[Any]:
    """Open a saver for the async door."""
    if kind == "sqlite":
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver
    else:
        with saver_of(kind) as other:
            yield other


def stored(made: Made) -> dict[str, Any]:
    """Return the durability without races: a barrier's set changes while a saver reads it."""
    return {} if made.graph.checkpointer is None else {"durability": "sync"}


def run(made: Made, where: Any) -> list[Any]:
    """Give all inputs, and return the chunks."""
    modes = ["values", "updates", "messages"]
    return [
        [*made.graph.stream(one, where, stream_mode=modes, subgraphs=True, **stored(made))]
        for one in made.inputs
    ]


async def arun(made: Made, where: Any) -> list[Any]:
    """Do as `run` in the async door."""
    modes = ["values", "updates", "messages"]
    return [
        [
            chunk
            async for chunk in made.graph.astream(
                one, where, stream_mode=modes, subgraphs=True, **stored(made)
            )
        ]
        for one in made.inputs
    ]


def plain(value: Any) -> Any:
    """Return what may be compared: without ids and times."""
    if isinstance(value, BaseMessage):
        return type(value).__name__, value.content, getattr(value, "tool_calls", None)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in DROPPED}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if type(value).__name__ == "Interrupt":
        return "interrupt", value.value
    return str(value).partition(":")[0] if isinstance(value, str) and "-" in value else value


def check(recording: Recording, made: Made, where: Any, saver: Any) -> None:
    """Compare what was recorded with the graph's own account."""
    assert recording.problems == []
    assert len(recording.runs) == len(made.inputs)
    session = recording.session()
    own = {m.checkpoint: m.seq for m in recording.moments("node.enter") if m.level == ""}
    if saver is not None:
        for snapshot in made.graph.get_state_history(where):
            at = snapshot.config["configurable"]["checkpoint_id"]
            if at in own:
                shown = session.inspect.state(at=f"#{own.pop(at)}")
                assert plain_state(shown) == plain_values(session, made, snapshot.values)
        assert not own
    entered = Counter((m.node or "").rpartition("/")[2] for m in recording.moments("node.enter"))
    cached = Counter((m.node or "") for m in recording.moments("node.cached"))
    retried = Counter(m.node for m in recording.moments("node.retry"))
    for name, times in made.ran.items():
        assert entered[name] - cached[name] + retried[name] == times, name
    assert [m.what for m in recording.moments("run")] == ["run.enter", "run.exit"] * len(
        made.inputs
    )


def plain_values(session: Any, made: Made, values: Any) -> Any:
    """Return a snapshot as the debugger shows it."""
    shown = session._cursor.views.json.plain
    return plain_state(shown(values)) if isinstance(values, dict) else shown(values)


def plain_state(state: Any) -> Any:
    """Return a state without what `get_state` does not show: the functional API's `previous`."""
    if set(state) <= {"end", "previous"} and state:
        return state.get("end", state.get("previous"))
    return state or None


@pytest.mark.parametrize("kind", SAVERS)
@pytest.mark.parametrize("name", GRAPHS)
def test_each_graph_is_recorded_with_each_saver(name: str, kind: str) -> None:
    with saver_of(kind) as saver:
        made, where = GRAPHS[name](saver), config()
        with record(store="sqlite://") as recording:
            run(made, where)
            check(recording, made, where, saver)
            recording.close()


def test_each_graph_is_recorded_on_postgresql(postgres_url: str) -> None:
    for make in GRAPHS.values():
        with saver_of(postgres_url) as saver:
            made, where = make(saver), config()
            with record() as recording:
                run(made, where)
                check(recording, made, where, saver)


async def test_each_graph_is_recorded_on_postgresql_in_the_async_door(postgres_url: str) -> None:
    for make in GRAPHS.values():
        with saver_of(postgres_url) as saver:
            made, where = make(saver), config()
            if made.asynchronous:
                async with record() as recording:
                    await arun(made, where)
                    await asyncio.to_thread(check, recording, made, where, saver)


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("name", GRAPHS)
async def test_each_graph_is_recorded_in_the_async_door(name: str, kind: str) -> None:
    async with async_saver_of(kind) as saver:
        made, where = GRAPHS[name](saver), config()
        if not made.asynchronous:
            return
        async with record(store="sqlite://") as recording:
            await arun(made, where)
            if kind != "sqlite":
                check(recording, made, where, saver)
            else:
                await asyncio.to_thread(check, recording, made, where, saver)
            recording.close()


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_runs_the_same_with_and_without_a_recording(name: str, kind: str) -> None:
    chunks, kept = [], []
    for recorded in (False, True):
        with saver_of(kind) as saver:
            made, where = GRAPHS[name](saver), config()
            if recorded:
                with record(store="sqlite://") as recording:
                    chunks.append(plain(run(made, where)))
                recording.close()
            else:
                chunks.append(plain(run(made, where)))
            listed = [] if saver is None else list(saver.list(where))
            kept.append(
                [(plain(one.checkpoint["channel_values"]), plain(one.metadata)) for one in listed]
            )
    without, with_it = chunks
    for mode in ("values", "updates", "messages"):  # tasks of one step end in any order
        one, other = ([c for run in runs for c in run if c[1] == mode] for runs in chunks)
        if mode != "values":
            one, other = sorted(one, key=repr), sorted(other, key=repr)
        assert one == other
    assert len(without) == len(with_it)
    assert kept[0] == kept[1]
