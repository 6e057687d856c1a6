"""A run from its opening to its end, around LangGraph's own loop: written once for both doors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import convert_to_messages
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command

from wick_graph import keys
from wick_graph.constants import MAX_CONCURRENCY
from wick_graph.drive import Leaves
from wick_graph.errors import MessageError, RunCancelled, RunError
from wick_graph.messages.check import validate
from wick_graph.messages.lower import lower
from wick_graph.moments import Moment
from wick_graph.runtime import AgentSpec, Run
from wick_graph.store.leases import MAX_TRIES

if TYPE_CHECKING:
    from wick_graph.graph.agent_graph import AgentGraph

_OF_INVOKE = ("values", ["updates", "values"])
"""How LangGraph's `invoke` streams: its caller learns of nothing before the end."""
STEPS_PER_ITERATION = 3
"""Supersteps of one turn of the loop: modify_request, model, tools."""

CANCELLED = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, RunCancelled)


def is_nested(config: Mapping[str, Any] | None) -> bool:
    """Say whether the graph runs inside a task of another graph.

    A config with a thread of its own addresses a run of its own, wherever it is called from.
    """
    if keys.is_nested(config):
        return True
    return keys.thread_of(config) is None and keys.is_nested(var_child_runnable_config.get())


def limits(spec: AgentSpec) -> dict[str, Any]:
    """Compute what LangGraph must allow so that only our own limit ends a run."""
    return {
        "recursion_limit": STEPS_PER_ITERATION * spec.max_iterations + 2,
        "max_concurrency": MAX_CONCURRENCY,
    }


@dataclass(slots=True)
class Opened:
    """One call of `stream` or `astream`, with what it is supplied."""

    graph: AgentGraph
    run: Run
    saver: Any
    """The checkpointer, or None; ours has threads, leases and a ledger."""
    input: Any
    config: Any
    kwargs: dict[str, Any] = field(default_factory=dict)
    before: Any = None
    """The thread as the store knew it when the run was opened."""

    @classmethod
    def of(cls, graph: AgentGraph, input: Any, config: Any, kwargs: dict[str, Any]) -> Opened:
        """Supply the run's context and LangGraph's limits; the caller's own settings win.

        Raises:
            MessageError: The input holds a message that breaks a rule.
        """
        check_input(input)
        own = graph.config or {}
        saver = keys.configurable(config).get(keys.CHECKPOINTER, graph.checkpointer)
        saver = saver if isinstance(saver, BaseCheckpointSaver) else None
        run = keys.configurable(config).get(keys.RUN)
        if not isinstance(run, Run):
            run = Run(thread_id=keys.thread_of(config) or keys.thread_of(own))
        supplied = {k: v for k, v in limits(graph.spec).items() if k not in own}
        made = keys.with_configurable({**supplied, **(config or {})}, **{keys.RUN: run})
        run.resumed = input is None or isinstance(input, Command)
        run.told = run.port.active or kwargs.get("stream_mode") not in _OF_INVOKE
        if "run_id" not in (made.get("metadata") or {}):
            made = keys.with_metadata(made, run_id=run.run_id)
        if saver is not None and kwargs.get("durability") is None:
            kwargs = {**kwargs, "durability": "sync"}
        return cls(graph, run, saver, input, made, kwargs)

    @property
    def is_new_input(self) -> bool:
        """Whether this run brings something new, as against going on where the thread stands."""
        return self.input is not None and not isinstance(self.input, Command)


async def begin(opened: Opened, io: Leaves) -> None:
    """Open the run: mark the thread, and keep what an interrupted run had finished."""
    run, threads = opened.run, _threads(opened)
    if threads is not None and run.thread_id is not None:
        thread, agent, ttl = run.thread_id, opened.graph.spec.name, opened.graph.ttl
        await _take(opened, io, thread)
        opened.before = await io.either(
            lambda: threads.open(thread, agent=agent, ttl=ttl, run_id=run.run_id),
            lambda: threads.aopen(thread, agent=agent, ttl=ttl, run_id=run.run_id),
        )
    if run.port.active:
        data = {"input": opened.input, "thread_id": run.thread_id, "run_id": run.run_id}
        run.port.record(Moment("run", "enter", opened.graph.spec.name, data))
    if opened.is_new_input and opened.saver is not None:
        try:
            await keep_finished(opened, io)
        except BaseException as error:
            await fail(opened, io, error)
            raise


async def _take(opened: Opened, io: Leaves, thread: str) -> None:
    """Take the thread's lease, unless going on has taken the process down too often.

    Raises:
        ThreadBusyError: Another run goes on in the thread.
        RunError: The thread is poisoned; only a new message goes on from here.
    """
    leases = opened.saver.leases
    lease = await io.either(lambda: leases.take(thread), lambda: leases.atake(thread))
    if lease.tries >= MAX_TRIES and not opened.is_new_input:
        tries = lease.tries
        poisoned = RunError(
            f"poison: {tries} runs in a row died at the same step of thread {thread}; "
            "send a new message to go on without that step"
        )
        opened.run.lease = lease
        await fail(opened, io, poisoned, tries=tries)
        raise poisoned
    opened.run.lease = lease
    opened.run.ledger = opened.saver.ledger(lease)


async def keep_finished(opened: Opened, io: Leaves) -> None:
    """Commit the results of tool calls that an interrupted step had finished.

    LangGraph drops a step's pending writes when a new input comes; without this the results of
    finished calls would be lost, and those calls would look as if they had never run.
    """
    graph, saver = opened.graph, opened.saver
    assert saver is not None
    # Under this run's own id LangGraph would take the new input for a repetition of this commit.
    config: Any = {**opened.config, "metadata": {}}
    if keys.thread_of(config) is None or keys.configurable(config).get(keys.CHECKPOINT_ID):
        return
    saved: Any = await io.either(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))
    if saved is None or not any(
        channel == "messages" for _, channel, _ in saved.pending_writes or ()
    ):
        return
    state: Any = await io.either(lambda: graph.get_state(config), lambda: graph.aget_state(config))
    finished = [
        message
        for task in state.tasks
        if task.name == "tools" and task.result
        for message in task.result.get("messages") or ()
    ]
    if finished:
        update = {"messages": finished}
        await io.either(
            lambda: graph.update_state(config, update, as_node="tools"),
            lambda: graph.aupdate_state(config, update, as_node="tools"),
        )


async def end(opened: Opened, io: Leaves) -> None:
    """Close a run that LangGraph's loop left without an error."""
    run = opened.run
    if not run.ended:
        run.stopped = "interrupted"
    if not run.ran and opened.input is None:  # a finished thread was asked to go on: nothing did
        run.stopped = getattr(opened.before, "stopped_because", None) or "done"
    await _close(opened, io, None)


async def fail(opened: Opened, io: Leaves, error: BaseException, *, tries: int = 0) -> None:
    """Close a run that an error or a cancellation ended; the thread can be used again."""
    opened.run.stopped = "cancelled" if isinstance(error, CANCELLED) else "failed"
    await _close(opened, io, error, tries)


async def _close(opened: Opened, io: Leaves, error: BaseException | None, tries: int = 0) -> None:
    run, threads = opened.run, _threads(opened)
    if run.port.active:
        data = {"stopped_because": run.stopped, "error": error, "run_id": run.run_id}
        run.port.record(Moment("run", "exit" if error is None else "error", "", data))
    if threads is None or run.thread_id is None:
        return
    if run.lease is not None and run.lease.lost:  # the thread is another run's by now
        return
    thread, stopped = run.thread_id, run.stopped or "done"
    status = {"interrupted": "waiting", "failed": "failed"}.get(stopped, "idle")
    text = None if error is None or stopped == "cancelled" else str(error) or type(error).__name__
    await io.either(
        lambda: threads.close(thread, status=status, stopped_because=stopped, error=text),
        lambda: asyncio.shield(
            threads.aclose(thread, status=status, stopped_because=stopped, error=text)
        ),
    )
    lease, run.lease = run.lease, None
    if lease is not None:
        leases = opened.saver.leases
        await io.either(
            lambda: leases.release(lease, tries=tries),
            lambda: asyncio.shield(leases.arelease(lease, tries=tries)),
        )


def check_input(input: Any) -> None:
    """Refuse a bad message before anything is stored.

    Raises:
        MessageError: Names the message by its index in the input.
    """
    if not isinstance(input, Mapping) or input.get("messages") is None:
        return
    given = input["messages"]
    try:
        messages = convert_to_messages(given if isinstance(given, list | tuple) else [given])
    except (ValueError, TypeError, NotImplementedError) as error:
        raise MessageError(f"messages: {str(error).splitlines()[0]}") from None
    validate(lower([m for m in messages if m.type != "remove"]))


def _threads(opened: Opened) -> Any:
    """Return the store's list of threads; LangGraph's own savers have none."""
    return getattr(opened.saver, "threads", None)
