"""Life cycle of a run around LangGraph's loop, one body for `stream` and `astream`.

The order is: options, the call and its input, `open_run`, `finish_run`, `fail_run`, `close_run`.
Helpers follow by subject. `thread_turn` acquires the thread and gives it back; `answers` checks
answers in the input.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from wick_graph import langgraph_config
from wick_graph.constants import MAX_CONCURRENCY
from wick_graph.core.bridge import Bridge
from wick_graph.core.moments import (
    DEBUGGER,
    NULL_LISTENER,
    JournalOptions,
    Listener,
    Listeners,
    Moment,
    debugger_here,
    notify,
)
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.state import read_input
from wick_graph.core.stopping import CURRENT, LOST, PART, STOPS, WATCH, alarm
from wick_graph.core.usage import Usage, usage_of
from wick_graph.durations import seconds
from wick_graph.engine import answers, small
from wick_graph.engine.answers import keep_finished_results, record_failure
from wick_graph.engine.channels import STEP_NAMES
from wick_graph.engine.keys import input_hash, run_id_of
from wick_graph.engine.result import new_thread_id
from wick_graph.engine.thread_turn import (
    acquire_thread,
    give_back,
    refuse_other_state,
    run_store,
    title_of,
    withdraw,
)
from wick_graph.errors import (
    ConfigError,
    HookError,
    MessageError,
    NothingWaitsError,
    RunCancelled,
    RunError,
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
)
from wick_graph.journal.encode import MutationGuard
from wick_graph.journal.run_start import Begun, Mode, Opening, about, look, start
from wick_graph.runtime.context import AgentSpec, EngineStore, Run
from wick_graph.runtime.durability import input_can_wait
from wick_graph.store import ThreadInfo
from wick_graph.store.leases import MAX_CHARGES, Asking, Lease
from wick_graph.types import THREAD_ID_PATTERN, OnBusy, StoppedBecause

STEPS_PER_ITERATION: Final = 3
"""Supersteps of one turn of the loop: modify_request, model, tools."""

CANCELLED: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, RunCancelled)

_OF_INVOKE: Final = ("values", ["updates", "values"])
"""Stream modes of LangGraph's `invoke`: its caller observes no step before the end."""

_LONGEST_KEY: Final = 255

_INPUT: Final = "wick_input"
"""Metadata key of the input's hash, for runs with an idempotency key."""

_VERSION: Final = "wick_version"
"""Metadata key of a checkpoint's engine version, agent hash and code hash."""

_log: Final = logging.getLogger("wick_graph")

Graph = CompiledStateGraph[Any, Any, Any, Any]

# --- options -------------------------------------------------------------------------------------


class RunOptions(TypedDict, total=False):
    """Options of one run, for every door that takes an input."""

    idempotency_key: str | None
    """Makes it safe to repeat a call with the same key and thread: a finished run returns its
    result again, an interrupted one continues. Without a thread id, the key selects the thread."""
    on_busy: OnBusy
    """Policy if another run uses the thread: `reject` (the default) raises `ThreadBusyError`,
    `queue` waits its turn, `cancel_running` cancels the other run."""
    deadline: str | float | None
    """Time limit of the run, its time in the queue included (`90s`, `10m`, seconds). At the limit
    the run abandons running calls and ends with `stopped_because="limit"`."""
    force: bool
    """Continue a poisoned thread at once, and clear its crash count."""
    debug: Any
    """A `wick_graph.debug.DebugSession`, which can hold the run at each of its moments."""


def apply_options(
    run: Run, options: RunOptions, value: Mapping[str, Any] | None, config: dict[str, Any]
) -> dict[str, Any]:
    """Set a caller's options on the run, and return the config to run it with.

    Raises:
        ConfigError: An option is unknown or invalid.
    """
    unknown = sorted(set(options) - set(RunOptions.__annotations__))
    if unknown:
        raise ConfigError(
            f"there is no option {unknown[0]!r}; known: {', '.join(RunOptions.__annotations__)}"
        )
    run.on_busy = options.get("on_busy") or "reject"
    run.force = bool(options.get("force"))
    run.debugger = options.get("debug")
    if (limit := options.get("deadline")) is not None:
        run.deadline = seconds(limit)
    key = options.get("idempotency_key")
    if key is None:
        return config
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY:
        raise ConfigError(f"an idempotency key is a text of 1 to {_LONGEST_KEY} characters")
    run.key = key
    run.run_id = run_id_of(run.thread_id or "", key)
    return langgraph_config.with_metadata(
        config, run_id=run.run_id, **{_INPUT: input_hash(value or {})}
    )


# --- the call and its input ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreviousResult:
    """Result of a finished run, for a repeated call."""

    values: dict[str, Any]
    interrupts: tuple[Any, ...]

    def chunks(self, kwargs: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what LangGraph's stream yields for a run that has nothing left to do."""
        modes = kwargs.get("stream_mode") or "values"
        asked = {"__interrupt__": self.interrupts}
        if kwargs.get("version") == "v2":
            if "values" in modes:
                chunk = {"type": "values", "ns": (), "data": self.values}
                yield {**chunk, "interrupts": self.interrupts}
        elif isinstance(modes, str):
            if modes == "values":
                yield {**self.values, **asked} if self.interrupts else self.values
        else:
            if "updates" in modes and self.interrupts:
                yield ("updates", asked)
            if "values" in modes:
                yield ("values", self.values)


@dataclass(slots=True)
class RunCall:
    """One call of `stream` or `astream`, with its supplied context."""

    graph: Graph
    spec: AgentSpec
    ttl: float | str | None
    """TTL of the idle thread in seconds; None keeps it forever, `store` uses the store's TTL."""
    run: Run
    saver: BaseCheckpointSaver[Any] | None
    """The checkpointer."""
    store: EngineStore | None
    """The checkpointer, if it has threads, leases, a ledger and a journal; else None."""
    input: Any
    config: Any
    kwargs: dict[str, Any] = field(default_factory=dict)
    last_only: bool = False
    """Of all chunks, only the last state and interrupts are read."""
    before: ThreadInfo | None = None
    """The thread's row before the run was opened."""
    poisoned: bool = False
    """The run was refused because continuing the thread crashed the process too often."""
    previous: PreviousResult | None = None
    """The result of the earlier run, if this call repeats it."""
    untouched: bool = False
    """The run leaves the thread unchanged."""
    unfinished: bool | None = None
    """The thread's last step has results that no checkpoint holds; None if not yet known."""
    journal: Opening | None = None
    """The thread's journal before this run; None without one."""
    undo: small.ExitStack = field(default_factory=small.ExitStack, repr=False)
    """Callbacks that run when the run is closed."""

    @property
    def is_new_input(self) -> bool:
        """Whether this run has a new input; else it continues the thread."""
        return self.input is not None and not isinstance(self.input, Command)


def prepare(
    graph: Graph,
    spec: AgentSpec,
    ttl: float | str | None,
    input: Any,
    config: Any,
    kwargs: dict[str, Any],
) -> RunCall:
    """Supply the run's context and LangGraph's limits; the caller's own settings win.

    Raises:
        MessageError: The input holds an invalid message.
        ConfigError: The thread id is invalid.
    """
    input = read_input(input, spec.state.names)
    thread = langgraph_config.thread_of(config)
    if thread is not None and not THREAD_ID_PATTERN.fullmatch(thread):
        raise ConfigError(
            f"the thread id {thread!r:.80} is refused; use 1 to 128 letters, digits, and _ . : -"
        )
    own: Mapping[str, Any] = graph.config or {}
    if (config or {}).get("recursion_limit") == DEFAULT_RECURSION_LIMIT:
        # LangChain (batch, astream_events, a chain) fills in its own default
        config = {key: value for key, value in config.items() if key != "recursion_limit"}
    given = langgraph_config.configurable(config)
    saver = given.get(langgraph_config.CHECKPOINTER, graph.checkpointer)
    saver = saver if isinstance(saver, BaseCheckpointSaver) else None
    run = given.get(langgraph_config.RUN)
    thread = thread or langgraph_config.thread_of(own)
    if thread is None and saver is not None and isinstance(input, Mapping):
        thread = new_thread_id()  # a chain and a batch seldom name one
        config = langgraph_config.with_configurable(config, thread_id=thread)
    if not isinstance(run, Run):
        run = Run(thread_id=thread)
    run.resumed = input is None or isinstance(input, Command)
    run.observed = run.listener.active or kwargs.get("stream_mode") not in _OF_INVOKE
    if spec.context is not None or run.context is not None:
        kwargs = {**kwargs, "context": run.with_context(spec, kwargs.get("context"))}
    supplied = {k: v for k, v in limits(spec).items() if k not in own}
    live: dict[str, Any] = {langgraph_config.RUN: run, langgraph_config.WRITER: run.writer}
    if graph.store is None and langgraph_config.LONG_TERM in given:
        live[langgraph_config.RUNTIME] = given[langgraph_config.LONG_TERM]
    made = langgraph_config.with_configurable({**supplied, **(config or {})}, **live)
    if "run_id" not in (made.get("metadata") or {}):
        made = langgraph_config.with_metadata(made, run_id=run.run_id)
    if saver is not None:
        made = langgraph_config.with_metadata(made, **{_VERSION: _version_of(spec)})
        if kwargs.get("durability") is None:
            kwargs = {**kwargs, "durability": "sync"}
    return RunCall(graph, spec, ttl, run, saver, run_store(saver, graph, run), input, made, kwargs)


def limits(spec: AgentSpec) -> dict[str, Any]:
    """Compute LangGraph's limits so that only the engine's own limit ends a run."""
    return {
        "recursion_limit": STEPS_PER_ITERATION * spec.max_iterations + 2,
        "max_concurrency": MAX_CONCURRENCY,
    }


def is_nested(config: Mapping[str, Any] | None) -> bool:
    """Return whether the graph runs inside a task of another graph.

    A config with its own thread id starts a run of its own, wherever the call comes from.
    """
    if langgraph_config.is_nested(config):
        return True
    return langgraph_config.thread_of(config) is None and langgraph_config.is_nested(
        var_child_runnable_config.get()
    )


# --- opening -------------------------------------------------------------------------------------


async def open_run(call: RunCall, bridge: Bridge) -> None:
    """Open the run: acquire the thread, and keep the results of an interrupted run.

    After any error the caller must call `fail_run`; an acquired lease is in the run by then.

    Raises:
        ThreadNotFoundError: The thread does not exist, and there is no new message.
        ThreadBusyError: Another run uses the thread.
        ConfigError: The thread has state of another agent that this one would drop.
        RunError: The thread is poisoned: only a new message or `force` continues it. Or the run's
            idempotency key was used for another input.
        RunCancelled: The run was cancelled before it began.
    """
    run, store = call.run, call.store
    attach_debugger(call)
    start_deadline(call)
    await refuse_strays(call, bridge)
    if store is not None and run.thread_id is not None:
        await acquire_thread(
            run, store.leases, bridge, lambda it: begin_thread(call, store, it), asking_of(call)
        )
        call.untouched = True
        await refuse_other_state(run, call.graph, store, call.before, call.config, bridge)
        call.untouched = False
    await find_previous_run(call, bridge)
    if call.previous is not None:
        return
    refuse_poisoned(call)
    await warn_if_version_changed(call, bridge)
    saver, config = call.saver, call.config
    with leaves_untouched(call):
        await answers.refuse_results(call.input, saver, config, bridge)
        await answers.bind_rules(run, saver, store, config, call.before, bridge)
        call.input = answers.with_dates(call.input)
        await start_journal(call, bridge)
        call.input = await answers.store_answers(call.input, saver, config, run, bridge)
    if call.spec.guest:
        return
    if saver is not None and call.is_new_input and (store is None or call.unfinished):
        await keep_finished_results(call.graph, saver, config, bridge)
    elif saver is not None and not call.is_new_input:
        await answers.drop_partial(run, call.graph, saver, config, bridge)


def attach_debugger(call: RunCall) -> None:
    """Set the debugger of the run, and make deadlines follow its clock."""
    run, own = call.run, call.kwargs.get("debug")
    if own is not None and not isinstance(own, int):  # LangGraph's own switch is a bool
        run.debugger = call.kwargs.pop("debug")
    if run.debugger is None and not call.spec.guest:  # a graph's seams tell of its runs
        run.debugger = debugger_here()
    if run.debugger is not None:
        run.observed = True
        call.undo.callback(WATCH.set, WATCH.get())
        WATCH.set(run.debugger.clock)
        call.undo.callback(DEBUGGER.set, DEBUGGER.get())
        DEBUGGER.set(run.debugger.below)


def start_deadline(call: RunCall) -> None:
    """Make the run stop at its deadline, and with its parent run."""
    run, outer = call.run, CURRENT.get()
    limit = call.spec.deadline if run.deadline is None else run.deadline
    run.stop.waits = limit is not None or call.saver is not None or outer is not None
    if outer is not None and outer is not run.stop:
        call.undo.enter_context(outer.ending(lambda: run.stop.ask(outer.because, outer.text)))
    if limit is not None:
        text = f"the run was longer than its deadline of {limit:g} s"
        call.undo.callback(alarm(limit, run.stop.ask, "limit", text))


async def refuse_strays(call: RunCall, bridge: Bridge) -> None:
    """Refuse tool results and known messages that do not match the thread.

    The graph's input replaces messages by id, as LangGraph's does; an agent's input does not.

    Raises:
        MessageError: Names the call or the message; nothing is stored.
    """
    run = call.run
    if not (run.answers or run.named):
        return
    if run.key is not None and await _newest_of(call, bridge) is not None:  # a repeated call
        return
    graph, held = call.graph, list[BaseMessage]()
    if call.saver is not None and langgraph_config.thread_of(call.config) is not None:
        at: Any = {**call.config, "metadata": {}}
        state: Any = await bridge.call(graph.get_state, graph.aget_state, at)
        held = answers.messages_in(state.values)
    messages = answers.fitted(call.input["messages"], held, run.answers, named=run.named)
    call.input = {**call.input, "messages": messages}


def asking_of(call: RunCall) -> Asking:
    """Return how the run requests its thread."""
    run, outer = call.run, CURRENT.get()
    part = PART.get() or (outer is not None and outer is not run.stop)
    begins = run.run_id if call.is_new_input else None
    return Asking(begins=begins, pardon=run.force, part=part)


def refuse_unknown_thread(call: RunCall) -> None:
    """Refuse to continue a thread that does not exist; the commit that opens it stores nothing."""
    given, before = call.input, call.before
    if (isinstance(given, Mapping) and given.get("messages")) or (before and before.steps):
        return
    if call.is_new_input:
        raise MessageError("messages must not be empty")
    thread = call.run.thread_id
    raise ThreadNotFoundError(f"there is no thread {thread} to go on with; send a message")


def begin_thread(call: RunCall, store: EngineStore, lease: Lease) -> None:
    """Set the thread to `running`, in the commit that acquires its lease."""
    run, threads, thread = call.run, store.threads, call.run.thread_id or ""
    lease.names = () if call.spec.guest else STEP_NAMES
    call.before = threads.open(
        thread,
        agent=call.spec.name,
        ttl=call.ttl,
        run_id=run.run_id,
        title=title_of(call.input),
        lease=lease,
        resumes=not call.is_new_input,
    )
    refuse_unknown_thread(call)
    run.ledger = store.ledger(lease)
    run.waited = call.before is not None and call.before.status == "waiting"
    run.writer.fresh = call.before is None or not call.before.steps
    run.writer.input_waits = input_can_wait(observed=run.observed)
    if call.is_new_input and not run.writer.fresh:
        call.unfinished = threads.has_writes(thread, "messages")
    if _options(call).level != "off":
        at = langgraph_config.configurable(call.config).get(langgraph_config.CHECKPOINT_ID)
        call.journal = look(store.journal_rows(thread), lease.thread, at)


def refuse_poisoned(call: RunCall) -> None:
    """Refuse to continue a thread if that crashed the process too often."""
    lease = call.run.writer.lease
    if lease is not None and lease.charges >= MAX_CHARGES:
        call.poisoned = True
        raise RunError(
            f"poison: the process died {lease.charges} times while the run of thread "
            f"{lease.thread_id} was the only suspect in it, at the same step; send a new message "
            f"to go on without that step, or run it again with `wick threads retry "
            f"{lease.thread_id}` or resume(…, force=True)"
        )


@contextmanager
def leaves_untouched(call: RunCall) -> Iterator[None]:
    """Mark the thread as untouched if the block refuses the input."""
    try:
        yield
    except (MessageError, NothingWaitsError):
        call.untouched = True
        raise


# --- ending --------------------------------------------------------------------------------------


async def finish_run(call: RunCall, bridge: Bridge) -> None:
    """Close a run after LangGraph's loop returned without an error."""
    run = call.run
    try:
        if call.previous is None and not run.ended:
            run.stopped = "interrupted"
            if not run.ran and not call.is_new_input:
                run.stopped = await final_reason(call, bridge)
        if run.withdrawn and call.store is not None:
            await withdraw(run, call.store, call.before, bridge)
    except BaseException:
        call.untouched = True  # why it had stopped is not known
        raise
    finally:
        await close_run(call, bridge, None)


async def final_reason(call: RunCall, bridge: Bridge) -> StoppedBecause:
    """Return why a thread had stopped, for a resumed run in which no node ran."""
    graph, before = call.graph, call.before
    if before is None:
        return "done"
    # An update of the state may have dropped the step that waited, and its questions with it.
    state: Any = await bridge.call(graph.get_state, graph.aget_state, call.config)
    because: Any = before.stopped_because if state.next else state.values.get("stop_reason")
    return because or "done"


async def fail_run(call: RunCall, bridge: Bridge, error: BaseException) -> BaseException | None:
    """Close a run after an error or a cancellation; the thread can be used again.

    After a refused answer the thread still waits for one.

    Returns:
        The error to raise; None if the run stopped at its deadline or was cancelled.
    """
    run, before = call.run, call.before
    if isinstance(error, HookError) and isinstance(error.__cause__, STOPS) and run.stop.because:
        error = error.__cause__  # of a hook that writes to the thread, as one for approvals does
    if isinstance(error, STOPS):
        if run.stop.because == LOST:
            error = ThreadBusyError(f"{run.stop.text}; nothing more of this run was stored")
        elif run.stop.because:
            late = run.stop.because == "limit"
            run.stopped, run.reason = ("limit", run.stop.text) if late else ("cancelled", "")
            await _record_and_close(call, bridge, None)
            return None
    run.stopped = "cancelled" if isinstance(error, CANCELLED) else "failed"
    waited = before is not None and before.stopped_because == "interrupted"
    if waited and not run.ran and not call.is_new_input and not call.poisoned:
        run.stopped = "interrupted"
    await _record_and_close(call, bridge, error)
    return error


async def _record_and_close(call: RunCall, bridge: Bridge, error: BaseException | None) -> None:
    """Store what a failure or a cancellation leaves, and close the run in any case."""
    run, graph, saver, name = call.run, call.graph, call.saver, call.spec.name
    try:
        if saver is None or call.spec.guest:
            return
        if run.stopped == "failed" and error is not None:
            await record_failure(run, saver, name, error, bridge)
        elif run.stopped in ("cancelled", "limit"):
            await answers.record_partial(run, graph, saver, name, bridge)
    finally:
        await close_run(call, bridge, error)


async def close_run(call: RunCall, bridge: Bridge, error: BaseException | None) -> None:
    """Store how the run ended, and release its thread.

    Raises:
        StorageError: The last writes of the run cannot be stored. All earlier ones are, and the
            thread is marked as failed.
    """
    run, store = call.run, call.store
    call.undo.close()
    notify_end(run, error)
    lease = run.writer.lease
    if store is None or lease is None:  # it never acquired the thread
        return
    late, cut = None, None
    try:
        late = await prune(call, store, bridge) if error is None and not lease.lost else None
    except asyncio.CancelledError as cancelled:  # it goes on when the thread is given back
        cut = cancelled
    if late is not None:
        error, run.stopped = late, "failed"
        notify_end(run, late)
    run.writer.lease = None
    threads, leases = store.threads, store.leases
    status = thread_status(call, error)
    # A run that ended by itself clears its charges; a cancelled one proves nothing.
    charges = lease.charges if call.poisoned or run.stopped == "cancelled" else 0
    threads.note_end(lease, **status)
    if (refused := await give_back(leases, lease, charges, bridge)) is not None:
        run.stopped = "failed"
        notify_end(run, refused)
        threads.note_end(lease, **thread_status(call, refused))
        with suppress(StorageError):
            await give_back(leases, lease, charges, bridge)
        raise refused
    if run.caches is not None:  # the journal is written, and needs them no more
        run.caches.leave(run)
    if (first := late or cut) is not None:
        raise first


def notify_end(run: Run, error: BaseException | None) -> None:
    """Notify the listener of the run's end."""
    if run.listener.active:
        data = {"stopped_because": run.stopped, "error": error, "run_id": run.run_id}
        with suppress(RunCancelled):  # a reader who has left does not keep the run from closing
            run.listener.record(Moment("run", "exit" if error is None else "error", "", data))


async def prune(call: RunCall, store: EngineStore, bridge: Bridge) -> StorageError | None:
    """Delete old checkpoints once the thread has twice as many as `keep_latest`.

    Returns:
        The store's error, also one of a deferred write; None on success.
    """
    kept, threads, thread = call.spec.keep_latest, store.threads, call.run.thread_id or ""
    if kept is None or call.untouched:
        return None
    made = STEPS_PER_ITERATION * (call.run.usage.calls + 1)
    if (call.before.steps if call.before is not None else 0) + made < 2 * kept:
        return None
    try:
        await bridge.uninterruptible(threads.keep_latest, threads.akeep_latest, thread, kept)
    except StorageError as failure:
        return failure
    return None


def thread_status(call: RunCall, error: BaseException | None) -> dict[str, Any]:
    """Return the thread's status after the run; an untouched thread keeps its status."""
    run, before = call.run, call.before
    if call.untouched and before is not None:
        status = "failed" if before.status == "running" else before.status
        because = before.stopped_because or ("failed" if status == "failed" else "done")
        return {"status": status, "stopped_because": because, "error": before.last_error}
    stopped, text = run.stopped or "done", run.reason or None
    if error is not None and stopped != "cancelled":
        text = REDACTOR.text(str(error) or type(error).__name__)
    status = {"interrupted": "waiting", "failed": "failed"}.get(stopped, "idle")
    return {"status": status, "stopped_because": stopped, "error": text}


# --- idempotency: repeated calls -----------------------------------------------------------------
#
# The run's id derives from its thread and its key, and each of its checkpoints holds that id and a
# hash of the input. So a finished run returns its result again, a run that crashed or failed
# continues, and another input under the same key is refused.


async def find_previous_run(call: RunCall, bridge: Bridge) -> None:
    """Find the earlier run with the same key, to return its result or to continue it.

    Raises:
        RunError: The key was used for another input.
    """
    run, before = call.run, call.before
    if run.key is None or (before is None and call.store is not None):  # the thread is new
        return
    saved = await _newest_of(call, bridge)
    if saved is None:
        return
    call.untouched = True
    if saved.metadata.get(_INPUT) != (call.config.get("metadata") or {}).get(_INPUT):
        raise RunError(
            f"the idempotency key {run.key!r:.80} was used for another input in thread "
            f"{run.thread_id}; take a new key for a new input"
        )
    graph = call.graph
    at, is_head = await _end_of_turn(call, saved, bridge)
    state: Any = await bridge.call(graph.get_state, graph.aget_state, at)
    asked = await answers.unanswered(call.saver, at, state.interrupts, bridge)
    asks = bool(asked) if before is None else before.status == "waiting"
    is_open = bool(asked) or not state.interrupts
    waits = is_head and asks and is_open and bool(state.next)  # an update may have dropped it
    if is_head and state.next and not waits:
        call.untouched = False
        call.input, run.resumed = None, True
        return
    if waits:  # a look at the head, not at a checkpoint, has what its finished calls wrote
        state = await bridge.call(graph.get_state, graph.aget_state, _thread_config(call))
    known = graph.output_channels
    names = [known] if isinstance(known, str) else known
    values = {name: state.values[name] for name in names if name in state.values}
    call.previous = PreviousResult(values, asked if waits else ())
    run.usage = await _used(call, state.values, bridge)
    run.stopped = state.values.get("stop_reason") or ("cancelled" if state.next else "done")
    run.reason = (before.last_error or "") if is_head and before is not None else ""
    if waits:
        run.stopped = "interrupted"


async def _end_of_turn(call: RunCall, saved: Any, bridge: Bridge) -> tuple[Any, bool]:
    """Find the last checkpoint of a run's turn, which other runs may have continued.

    Returns:
        The config of that checkpoint, and whether it is the thread's head.
    """
    saver, where, own = call.saver, _thread_config(call), _id_of(saved)
    assert saver is not None
    later: list[Any] = []

    def walk() -> None:
        for found in saver.list(where):
            if _id_of(found) == own:
                return
            later.append((found.config, found.metadata.get("source")))

    async def awalk() -> None:
        async for found in saver.alist(where):
            if _id_of(found) == own:
                return
            later.append((found.config, found.metadata.get("source")))

    await bridge.call(walk, awalk)
    end = saved.config
    while later and later[-1][1] != "input":
        end = later.pop()[0]
    return end, not later


async def _newest_of(call: RunCall, bridge: Bridge, **more: Any) -> Any:
    """Return the last checkpoint with the run's id; None if there is none, or no store.

    `more` are other keys of its metadata.
    """
    saver, where, wanted = call.saver, _thread_config(call), {"run_id": call.run.run_id, **more}
    if saver is None:
        return None

    def newest() -> Any:
        return next(iter(saver.list(where, filter=wanted, limit=1)), None)

    async def anewest() -> Any:
        async for found in saver.alist(where, filter=wanted, limit=1):
            return found
        return None

    return await bridge.call(newest, anewest)


def _thread_config(call: RunCall) -> Any:
    own = {langgraph_config.THREAD_ID: call.run.thread_id, langgraph_config.CHECKPOINT_NS: ""}
    return langgraph_config.with_configurable(None, **own)


def _id_of(saved: Any) -> Any:
    return langgraph_config.configurable(saved.config).get(langgraph_config.CHECKPOINT_ID)


async def _used(call: RunCall, values: Mapping[str, Any], bridge: Bridge) -> Usage:
    """Return the usage of the earlier run: what its thread counts since its input.

    The replies do not tell it: an empty one is not kept, and hooks and sub-agents call models, too.
    """
    begun = None if call.spec.guest else await _newest_of(call, bridge, source="input")
    if begun is None:  # a guest counts no usage; `keep_latest` drops checkpoints
        return _used_by_replies(values.get("messages") or ())
    before = begun.checkpoint["channel_values"].get("usage") or {}
    counted = values.get("usage") or {}
    return Usage.from_dict({name: n - before.get(name, 0) for name, n in counted.items()})


def _used_by_replies(messages: Sequence[BaseMessage]) -> Usage:
    """Sum the usage of the replies since the last input."""
    used = Usage()
    for message in reversed(messages):
        if message.type == "human":
            break
        if message.type == "ai":
            used += usage_of(message)
    return used


# --- the version stamp: engine and agent that made a checkpoint ----------------------------------


def _version_of(spec: AgentSpec) -> str:
    """Return the version stamp: engine version, agent hash, code hash."""
    known = about(spec)
    return f"{known['versions'].get('wick-graph') or 'unknown'} {known['graph']} {known['code']}"


async def warn_if_version_changed(call: RunCall, bridge: Bridge) -> None:
    """Warn if a resumed run was begun by another version of the agent or the engine.

    A new message causes no warning: agents often change between two messages.
    """
    saver, at = call.saver, call.config
    if saver is None or call.is_new_input or call.before is None:
        return
    saved: Any = await bridge.call(saver.get_tuple, saver.aget_tuple, at)
    was = str((saved.metadata if saved is not None else {}).get(_VERSION) or "").split(" ")
    now = _version_of(call.spec).split(" ")
    if len(was) != len(now) or was == now:
        return
    what = ("the engine", "its prompt, tools, hooks or limits", "the code of its tools or hooks")
    other = ", ".join(name for name, old, new in zip(what, was, now, strict=True) if old != new)
    engines = f" (wick-graph {was[0]}, now {now[0]})" if was[0] != now[0] else ""
    _log.warning(
        "thread %s goes on under another version of the agent %s than it stopped with: "
        "changed: %s%s",
        langgraph_config.thread_of(at),
        call.spec.name,
        other,
        engines,
    )


# --- the journal ---------------------------------------------------------------------------------


async def start_journal(call: RunCall, bridge: Bridge) -> None:
    """Start the run's journal, and notify the listener of the run's start."""
    run, spec, lease = call.run, call.spec, call.run.writer.lease
    if call.journal is not None and lease is not None:
        known: dict[str, Any] = {"about": about(spec), "model": spec.model.model}
        guard = MutationGuard.of(spec.hooks)
        begun = Begun(run_id=run.run_id, mode=_mode(call), guard=guard, **known)
        run.journal, call.journal = start(call.journal, begun, _options(call)), None
        lease.before_commit = run.journal.along
    recorder: Listener = NULL_LISTENER if run.journal is None else run.journal
    if run.debugger is not None:
        recorder = run.debugger.attach(run, bridge, spec, run.journal, call.saver)
    run.listener = Listeners.of(recorder, run.listener)
    if not run.listener.active:
        return
    data = {"input": call.input, "thread_id": run.thread_id, "run_id": run.run_id}
    await notify(run.listener, Moment("run", "enter", spec.name, data))


def _options(call: RunCall) -> JournalOptions:
    """Return the settings of the run's journal; a debugger needs one."""
    options = call.spec.journal
    if call.run.debugger is not None and options.level == "off":
        return replace(options, level="steps")
    return options


def _mode(call: RunCall) -> Mode:
    return "input" if call.is_new_input else "resume" if call.input is None else "answer"
