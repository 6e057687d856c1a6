"""A run from its opening to its end, around LangGraph's own loop: written once for both doors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command

from wick_graph import keys
from wick_graph.constants import MAX_CONCURRENCY
from wick_graph.drive import Leaves
from wick_graph.errors import (
    ConfigError,
    MessageError,
    RunCancelled,
    RunError,
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
)
from wick_graph.graph import (
    lifecycle_again,
    lifecycle_history,
    lifecycle_policy,
    lifecycle_stamp,
)
from wick_graph.graph.answers import take_answers
from wick_graph.graph.failing import record_failure
from wick_graph.graph.lifecycle_again import Earlier
from wick_graph.graph.lifecycle_turn import take_turn
from wick_graph.graph.recording import listen, record_run
from wick_graph.messages.stamps import dated
from wick_graph.moments import Moment
from wick_graph.pausing import alarm
from wick_graph.redact import REDACTOR
from wick_graph.runtime import AgentSpec, Run
from wick_graph.stopping import CURRENT, LOST, PART
from wick_graph.store.checkpoints.leases import Asking
from wick_graph.store.checkpoints.suspects import MAX_CHARGES
from wick_graph.types import THREAD_ID_PATTERN, StoppedBecause
from wick_graph.updates import problem

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
    poisoned: bool = False
    """Going on took the process down too often: that is why the run is refused."""
    earlier: Earlier | None = None
    """The end of the run that is asked for again."""
    untouched: bool = False
    """The run leaves the thread as it was."""
    unfinished: bool | None = None
    """The thread's last step has results that no checkpoint holds; None if nobody has looked."""
    leave: ExitStack = field(default_factory=ExitStack, repr=False)
    """What is undone when the run is closed."""

    @classmethod
    def of(cls, graph: AgentGraph, input: Any, config: Any, kwargs: dict[str, Any]) -> Opened:
        """Supply the run's context and LangGraph's limits; the caller's own settings win.

        Raises:
            MessageError: The input holds a message that breaks a rule.
        """
        check_input(input)
        thread = keys.thread_of(config)
        if thread is not None and not THREAD_ID_PATTERN.fullmatch(thread):
            raise ConfigError(
                f"the thread id {thread!r:.80} is refused; "
                "use 1 to 128 letters, digits, and _ . : -"
            )
        own = graph.config or {}
        if (config or {}).get("recursion_limit") == DEFAULT_RECURSION_LIMIT:
            # LangChain's doors (batch, astream_events, a chain) put their default in: nobody's wish
            config = {key: value for key, value in config.items() if key != "recursion_limit"}
        saver = keys.configurable(config).get(keys.CHECKPOINTER, graph.checkpointer)
        saver = saver if isinstance(saver, BaseCheckpointSaver) else None
        run = keys.configurable(config).get(keys.RUN)
        if not isinstance(run, Run):
            run = Run(thread_id=keys.thread_of(config) or keys.thread_of(own))
        supplied = {k: v for k, v in limits(graph.spec).items() if k not in own}
        live = {keys.RUN: run, keys.WRITER: run.writer}
        made = keys.with_configurable({**supplied, **(config or {})}, **live)
        run.resumed = input is None or isinstance(input, Command)
        run.observed = run.port.active or kwargs.get("stream_mode") not in _OF_INVOKE
        if "run_id" not in (made.get("metadata") or {}):
            made = keys.with_metadata(made, run_id=run.run_id)
        if saver is not None:
            made = keys.with_metadata(
                made, **{lifecycle_stamp.STAMP: lifecycle_stamp.stamp_of(graph.spec)}
            )
        if saver is not None and kwargs.get("durability") is None:
            kwargs = {**kwargs, "durability": "sync"}
        return cls(graph, run, saver, input, made, kwargs)

    @property
    def is_new_input(self) -> bool:
        """Whether this run brings something new, as against going on where the thread stands."""
        return self.input is not None and not isinstance(self.input, Command)


async def begin(opened: Opened, io: Leaves) -> None:
    """Open the run: take the thread, and keep what an interrupted run had finished.

    Whatever it raises is for `fail` to close, and a lease that it took is in the run by then.

    Raises:
        ThreadNotFoundError: There is nothing to go on with.
        ThreadBusyError: Another run goes on in the thread.
        RunError: The thread is poisoned: only a new message, or force, goes on from here. Or the
            run's idempotency key was used for another input.
        RunCancelled: The run was asked to stop before it began.
    """
    run, threads = opened.run, _threads(opened)
    listen(opened)
    set_limits(opened)
    if (run.answers or run.named) and not await lifecycle_again.is_repeated(opened, io):
        await lifecycle_history.refuse_strays(opened, io)
    if threads is not None and run.thread_id is not None:
        await _refuse_nothing(opened, io, threads)
        asking = _asking(opened)
        await take_turn(run, opened.saver.leases, io, lambda: _open(opened, threads), asking)
        await lifecycle_again.look_back(opened, io)
        if opened.earlier is not None:
            return
        _refuse_poison(opened)
        await lifecycle_stamp.compare(opened, io)
    elif run.key is not None:
        await lifecycle_again.look_back(opened, io)
        if opened.earlier is not None:
            return
    await lifecycle_policy.refuse_results(opened, io)
    await lifecycle_policy.bind(opened, io)
    opened.input = _dated(opened.input)
    await record_run(opened, io)
    await take_answers(opened, io)
    news = opened.is_new_input and opened.saver is not None
    if news and (threads is None or opened.unfinished):
        await keep_finished(opened, io)


async def _refuse_nothing(opened: Opened, io: Leaves, threads: Any) -> None:
    """Refuse to go on in a thread that does not exist; no trace of it is left."""
    given = opened.input
    if isinstance(given, Mapping) and given.get("messages"):
        return
    thread = opened.run.thread_id
    known = await io.either(lambda: threads.get(thread), lambda: threads.aget(thread))
    if known is None or not known.steps:
        if opened.is_new_input:
            raise MessageError("messages must not be empty")
        raise ThreadNotFoundError(f"there is no thread {thread} to go on with; send a message")


def set_limits(opened: Opened) -> None:
    """Let the run be stopped: by its deadline, and with the run that it is a part of."""
    run, outer = opened.run, CURRENT.get()
    seconds = opened.graph.spec.deadline if run.deadline is None else run.deadline
    run.stop.waits = seconds is not None or opened.saver is not None or outer is not None
    if outer is not None and outer is not run.stop:
        opened.leave.enter_context(outer.ending(lambda: run.stop.ask(outer.because, outer.text)))
    if seconds is not None:
        text = f"the run was longer than its deadline of {seconds:g} s"
        opened.leave.callback(alarm(seconds, run.stop.ask, "limit", text))


def _about(opened: Opened) -> dict[str, Any]:
    spec, title = opened.graph.spec, lifecycle_stamp.title_of(opened.input)
    run_id = opened.run.run_id
    about = {"agent": spec.name, "ttl": opened.graph.ttl, "run_id": run_id, "title": title}
    return {**about, "resumes": not opened.is_new_input}


def _open(opened: Opened, threads: Any) -> None:
    run = opened.run
    opened.before = threads.open(run.thread_id, lease=run.writer.lease, **_about(opened))
    run.ledger = opened.saver.ledger(run.writer.lease)
    run.waited = opened.before is not None and opened.before.status == "waiting"
    if opened.is_new_input and opened.before is not None:
        opened.unfinished = threads.has_writes(run.thread_id, "messages")


def _asking(opened: Opened) -> Asking:
    """Say how the run asks for its thread."""
    run, outer = opened.run, CURRENT.get()
    part = PART.get() or (outer is not None and outer is not run.stop)
    begins = run.run_id if opened.is_new_input else None
    return Asking(begins=begins, pardon=run.force, part=part)


def _refuse_poison(opened: Opened) -> None:
    """Refuse to go on where going on has taken the process down too often."""
    lease = opened.run.writer.lease
    if lease is not None and lease.charges >= MAX_CHARGES:
        opened.poisoned = True
        raise RunError(
            f"poison: the process died {lease.charges} times while the run of thread "
            f"{lease.thread_id} was the only suspect in it, at the same step; send a new message "
            f"to go on without that step, or run it again with `wick threads retry "
            f"{lease.thread_id}` or resume(…, force=True)"
        )


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
    if opened.earlier is not None:
        await _close(opened, io, None)
        return
    if not run.ended:
        run.stopped = "interrupted"
    if not run.ran and not opened.is_new_input:
        run.stopped = await _stands(opened, io)
    await _close(opened, io, None)


async def _stands(opened: Opened, io: Leaves) -> StoppedBecause:
    """Say why a thread stopped that was asked to go on, and of which no node had to run."""
    graph, config, before = opened.graph, opened.config, opened.before
    because: StoppedBecause = getattr(before, "stopped_because", None) or "done"
    if before is None or before.status == "waiting":
        return because
    state: Any = await io.either(lambda: graph.get_state(config), lambda: graph.aget_state(config))
    return because if state.next else state.values.get("stop_reason") or "done"


async def fail(opened: Opened, io: Leaves, error: BaseException) -> BaseException | None:
    """Close a run that an error or a cancellation ended; the thread can be used again.

    An answer that is refused leaves the thread as it was: it still waits for one.

    Returns:
        What the caller is to be told; None of a run that stopped because it was asked to.
    """
    run, before = opened.run, opened.before
    if isinstance(error, RunCancelled | ThreadBusyError):
        if run.stop.because == LOST:
            error = ThreadBusyError(f"{run.stop.text}; nothing more of this run was stored")
        elif run.stop.because:
            run.stopped = "limit" if run.stop.because == "limit" else "cancelled"
            await _close(opened, io, None)
            return None
    run.stopped = "cancelled" if isinstance(error, CANCELLED) else "failed"
    waited = before is not None and before.stopped_because == "interrupted"
    if waited and not run.ran and not opened.is_new_input and not opened.poisoned:
        run.stopped = "interrupted"
    if run.stopped == "failed":
        await record_failure(opened, io, error)
    await _close(opened, io, error)
    return error


async def _close(opened: Opened, io: Leaves, error: BaseException | None) -> None:
    """Write down how the run ended, and give its thread back.

    Raises:
        StorageError: The last of what the run made cannot be stored. The thread stands before
            that, as failed, and what came before it is stored.
    """
    run, threads = opened.run, _threads(opened)
    opened.leave.close()
    _tell_end(run, error)
    lease = run.writer.lease
    if threads is None or lease is None:  # it never had the thread
        return
    late: StorageError | None = None
    if error is None and not lease.lost and _may_forget(opened):
        kept = opened.graph.spec.keep_latest
        try:
            await io.whole(
                lambda: threads.keep_latest(run.thread_id, kept),
                lambda: threads.akeep_latest(run.thread_id, kept),
            )
        except StorageError as failure:  # of pruning, or of what waited and cannot be stored
            error, late, run.stopped = failure, failure, "failed"
            _tell_end(run, late)
    run.writer.lease = None
    leases, told = opened.saver.leases, _told(opened, error)
    # A run that came to an end of its own is cleared; one that was cut off has shown nothing.
    charges = lease.charges if opened.poisoned or run.stopped == "cancelled" else 0

    def close() -> None:
        try:
            threads.close(run.thread_id, lease=lease, **told)
        except StorageError as failure:
            run.stopped = "failed"
            _tell_end(run, failure)
            with suppress(StorageError):
                threads.close(run.thread_id, lease=lease, **_told(opened, failure))
            raise
        finally:
            leases.release(lease, charges=charges)

    await io.whole(lambda: leases.together(close), lambda: leases.atogether(close))
    if late is not None:
        raise late


def _tell_end(run: Run, error: BaseException | None) -> None:
    """Tell who listens how the run ended."""
    if run.port.active:
        data = {"stopped_because": run.stopped, "error": error, "run_id": run.run_id}
        with suppress(RunCancelled):  # a reader who has left does not keep the run from closing
            run.port.record(Moment("run", "exit" if error is None else "error", "", data))


def _may_forget(opened: Opened) -> bool:
    """Say whether a thread has twice the checkpoints that are to be kept: it is seldom pruned."""
    kept = opened.graph.spec.keep_latest
    if kept is None or opened.untouched:
        return False
    made = STEPS_PER_ITERATION * (opened.run.usage.calls + 1)
    return (opened.before.steps if opened.before is not None else 0) + made >= 2 * kept


def _told(opened: Opened, error: BaseException | None) -> dict[str, Any]:
    """Say how the thread stands after the run; one that did nothing leaves it as it was."""
    run, before = opened.run, opened.before
    if opened.untouched and before is not None:
        status = "failed" if before.status == "running" else before.status
        because = before.stopped_because or ("failed" if status == "failed" else "done")
        return {"status": status, "stopped_because": because, "error": before.last_error}
    stopped = run.stopped or "done"
    text = run.stop.text if stopped == "limit" and run.stop.because else None
    if error is not None and stopped != "cancelled":
        text = REDACTOR.text(str(error) or type(error).__name__)
    status = {"interrupted": "waiting", "failed": "failed"}.get(stopped, "idle")
    return {"status": status, "stopped_because": stopped, "error": text}


def check_input(input: Any) -> None:
    """Refuse what would poison a thread before anything is stored.

    Raises:
        MessageError: Names the message by its index in the input, or the channel.
    """
    if isinstance(input, Command):
        input = dict(input._update_as_tuples())
    if input is None:
        return
    if not isinstance(input, Mapping):
        raise MessageError(
            f"the input must be a mapping with messages, not a {type(input).__name__}"
        )
    wrong = problem({key: value for key, value in input.items() if value is not None})
    if wrong is not None:
        raise MessageError(_plain(wrong))


def _dated(input: Any) -> Any:
    """Return an input whose new messages have a time before LangGraph stores them.

    The store then keeps their texts once: the input and the state hold the same content. A message
    with an id may replace another one, whose time the reducer knows.
    """
    messages = input.get("messages") if isinstance(input, Mapping) else None
    if not isinstance(messages, list):
        return input
    new = [dated(m) if isinstance(m, BaseMessage) and m.id is None else m for m in messages]
    return {**input, "messages": new}


def _plain(wrong: str) -> str:
    """Let a message's own sentence stand alone."""
    return wrong.removeprefix("messages: ") if wrong.startswith("messages: message[") else wrong


def _threads(opened: Opened) -> Any:
    """Return the store's list of threads; LangGraph's own savers have none."""
    return getattr(opened.saver, "threads", None)
