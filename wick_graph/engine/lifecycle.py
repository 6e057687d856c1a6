"""A run from its opening to its end, around LangGraph's own loop: written once for both doors.

Read it from the top: what a caller may say of a run, the call and its input, `open_run`,
`finish_run`, `fail_run`, `close_run`. Helpers follow by subject. `lifecycle_turn` takes the thread,
`answers` checks what an input answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from wick_graph import langgraph_config
from wick_graph.constants import MAX_CONCURRENCY
from wick_graph.core.bridge import Leaves
from wick_graph.core.moments import DEBUGGER, NULL_PORT, Moment, Port, Ports, tell
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.state import problem
from wick_graph.core.stopping import CURRENT, LOST, PART, WATCH, alarm
from wick_graph.core.usage import Usage, usage_of
from wick_graph.durations import seconds
from wick_graph.engine import answers
from wick_graph.engine.answers import keep_finished_results, record_failure
from wick_graph.engine.thread_turn import acquire_thread, engine_store
from wick_graph.errors import (
    ConfigError,
    MessageError,
    NothingWaitsError,
    RunCancelled,
    RunError,
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
)
from wick_graph.journal.encode import Taking
from wick_graph.journal.run_start import Begun, Mode, about, start
from wick_graph.messages import text_of
from wick_graph.messages.base import dated
from wick_graph.runtime.context import AgentSpec, EngineStore, Run
from wick_graph.store import ThreadInfo
from wick_graph.store.leases import MAX_CHARGES, Asking
from wick_graph.types import THREAD_ID_PATTERN, OnBusy, StoppedBecause

STEPS_PER_ITERATION: Final = 3
"""Supersteps of one turn of the loop: modify_request, model, tools."""

CANCELLED: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, RunCancelled)

_OF_INVOKE: Final = ("values", ["updates", "values"])
"""How LangGraph's `invoke` streams: its caller learns of nothing before the end."""

_LONGEST_KEY: Final = 255

_TITLE_CHARS: Final = 80

_INPUT: Final = "wick_input"
"""The metadata of a run with a key that tells its input from another."""

_VERSION: Final = "wick_version"
"""The metadata of a checkpoint that tells the engine's version, the agent's make, and its code."""

_OURS: Final = uuid.UUID("6f2b8f0e-51d5-4c55-9b5e-0f2f6f5a7d41")

_log: Final = logging.getLogger("wick_graph")

Graph = CompiledStateGraph[Any, Any, Any, Any]

# --- what a caller may say of one run ------------------------------------------------------------


class RunOptions(TypedDict, total=False):
    """Options of one run, for every door that takes an input."""

    idempotency_key: str | None
    """Repeating a call with the same key and thread is harmless: a run that has ended gives its
    result again, one that died goes on. Without a thread id, the key decides the thread too."""
    on_busy: OnBusy
    """Where another run goes on in the thread: `reject` (the default) raises `ThreadBusyError`,
    `queue` waits its turn, `cancel_running` ends the other run."""
    deadline: str | float | None
    """How long the run may take, its time in a queue included (`90s`, `10m`, seconds); then what
    is under way is left, and the run ends with `stopped_because="limit"`."""
    force: bool
    """Go on although the thread is poisoned, at once; what it was charged with is forgotten."""
    debug: Any
    """A `wick_graph.debug.DebugSession`, which can stop the run at every moment of it."""


def apply_options(
    run: Run, options: RunOptions, value: Mapping[str, Any] | None, config: dict[str, Any]
) -> dict[str, Any]:
    """Note a caller's options in the run, and return the config to run it with.

    Raises:
        ConfigError: An option is unknown or refused.
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
    messages = (value or {}).get("messages") or ()
    return langgraph_config.with_metadata(
        config, run_id=run.run_id, **{_INPUT: _input_hash(messages)}
    )


# --- the call and its input ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreviousResult:
    """The end of a run that was asked for again."""

    values: dict[str, Any]
    interrupts: tuple[Any, ...]

    def chunks(self, kwargs: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what LangGraph's stream would yield of a run that does nothing more."""
        modes = kwargs.get("stream_mode") or "values"
        asked = {"__interrupt__": self.interrupts}
        if kwargs.get("version") == "v2":
            if "values" in modes:
                told = {"type": "values", "ns": (), "data": self.values}
                yield {**told, "interrupts": self.interrupts}
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
    """One call of `stream` or `astream`, with what it is supplied."""

    graph: Graph
    spec: AgentSpec
    ttl: float | str | None
    """Seconds that the thread is kept when it is idle; None for ever, `store` as the store says."""
    run: Run
    saver: BaseCheckpointSaver[Any] | None
    """The checkpointer."""
    store: EngineStore | None
    """The checkpointer, if it has threads, leases, a ledger and a journal; None if it has not."""
    input: Any
    config: Any
    kwargs: dict[str, Any] = field(default_factory=dict)
    before: ThreadInfo | None = None
    """The thread as the store knew it when the run was opened."""
    poisoned: bool = False
    """Going on took the process down too often: that is why the run is refused."""
    previous: PreviousResult | None = None
    """The end of the run that is asked for again."""
    untouched: bool = False
    """The run leaves the thread as it was."""
    unfinished: bool | None = None
    """The thread's last step has results that no checkpoint holds; None if nobody has looked."""
    undo: ExitStack = field(default_factory=ExitStack, repr=False)
    """What is undone when the run is closed."""

    @property
    def is_new_input(self) -> bool:
        """Whether this run brings something new, as against going on where the thread stands."""
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
        MessageError: The input holds a message that breaks a rule.
        ConfigError: The thread id is refused.
    """
    check_input(input)
    thread = langgraph_config.thread_of(config)
    if thread is not None and not THREAD_ID_PATTERN.fullmatch(thread):
        raise ConfigError(
            f"the thread id {thread!r:.80} is refused; use 1 to 128 letters, digits, and _ . : -"
        )
    own: Mapping[str, Any] = graph.config or {}
    if (config or {}).get("recursion_limit") == DEFAULT_RECURSION_LIMIT:
        # LangChain's doors (batch, astream_events, a chain) put their default in: nobody's wish
        config = {key: value for key, value in config.items() if key != "recursion_limit"}
    given = langgraph_config.configurable(config)
    saver = given.get(langgraph_config.CHECKPOINTER, graph.checkpointer)
    saver = saver if isinstance(saver, BaseCheckpointSaver) else None
    run = given.get(langgraph_config.RUN)
    if not isinstance(run, Run):
        run = Run(thread_id=thread or langgraph_config.thread_of(own))
    run.resumed = input is None or isinstance(input, Command)
    run.observed = run.port.active or kwargs.get("stream_mode") not in _OF_INVOKE
    supplied = {k: v for k, v in limits(spec).items() if k not in own}
    live = {langgraph_config.RUN: run, langgraph_config.WRITER: run.writer}
    made = langgraph_config.with_configurable({**supplied, **(config or {})}, **live)
    if "run_id" not in (made.get("metadata") or {}):
        made = langgraph_config.with_metadata(made, run_id=run.run_id)
    if saver is not None:
        made = langgraph_config.with_metadata(made, **{_VERSION: _version_of(spec)})
        if kwargs.get("durability") is None:
            kwargs = {**kwargs, "durability": "sync"}
    return RunCall(graph, spec, ttl, run, saver, engine_store(saver), input, made, kwargs)


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
    if wrong is not None:  # a message's own sentence stands alone
        of_message = wrong.startswith("messages: message[")
        raise MessageError(wrong.removeprefix("messages: ") if of_message else wrong)


def limits(spec: AgentSpec) -> dict[str, Any]:
    """Compute what LangGraph must allow so that only our own limit ends a run."""
    return {
        "recursion_limit": STEPS_PER_ITERATION * spec.max_iterations + 2,
        "max_concurrency": MAX_CONCURRENCY,
    }


def is_nested(config: Mapping[str, Any] | None) -> bool:
    """Say whether the graph runs inside a task of another graph.

    A config with a thread of its own addresses a run of its own, wherever it is called from.
    """
    if langgraph_config.is_nested(config):
        return True
    return langgraph_config.thread_of(config) is None and langgraph_config.is_nested(
        var_child_runnable_config.get()
    )


# --- opening -------------------------------------------------------------------------------------


async def open_run(call: RunCall, io: Leaves) -> None:
    """Open the run: take the thread, and keep what an interrupted run had finished.

    Whatever it raises is for `fail_run` to close, and a lease that it took is in the run by then.

    Raises:
        ThreadNotFoundError: There is nothing to go on with.
        ThreadBusyError: Another run goes on in the thread.
        RunError: The thread is poisoned: only a new message, or force, goes on from here. Or the
            run's idempotency key was used for another input.
        RunCancelled: The run was asked to stop before it began.
    """
    run, store = call.run, call.store
    attach_debugger(call)
    start_deadline(call)
    await refuse_strays(call, io)
    if store is not None and run.thread_id is not None:
        await refuse_unknown_thread(call, store, io)
        await acquire_thread(
            run, store.leases, io, lambda: begin_thread(call, store), asking_of(call)
        )
    await find_previous_run(call, io)
    if call.previous is not None:
        return
    refuse_poisoned(call)
    await warn_if_version_changed(call, io)
    saver, config = call.saver, call.config
    with leaves_untouched(call):
        await answers.refuse_results(call.input, saver, config, io)
        await answers.bind_rules(run, saver, store, config, call.before, io)
        call.input = _dated(call.input)
        await start_journal(call, io)
        call.input = await answers.store_answers(call.input, saver, config, run, io)
    if saver is not None and call.is_new_input and (store is None or call.unfinished):
        await keep_finished_results(call.graph, saver, config, io)


def attach_debugger(call: RunCall) -> None:
    """Find the debugger of the run, and let deadlines follow its clock."""
    run, own = call.run, call.kwargs.get("debug")
    if own is not None and not isinstance(own, int):  # LangGraph's own switch is a bool
        run.debugger = call.kwargs.pop("debug")
    if run.debugger is None:
        run.debugger = DEBUGGER.get()
    if run.debugger is not None:
        run.observed = True
        call.undo.callback(WATCH.set, WATCH.get())
        WATCH.set(run.debugger.clock)
        call.undo.callback(DEBUGGER.set, DEBUGGER.get())
        DEBUGGER.set(run.debugger.below)


def start_deadline(call: RunCall) -> None:
    """Let the run be stopped: by its deadline, and with the run that it is a part of."""
    run, outer = call.run, CURRENT.get()
    limit = call.spec.deadline if run.deadline is None else run.deadline
    run.stop.waits = limit is not None or call.saver is not None or outer is not None
    if outer is not None and outer is not run.stop:
        call.undo.enter_context(outer.ending(lambda: run.stop.ask(outer.because, outer.text)))
    if limit is not None:
        text = f"the run was longer than its deadline of {limit:g} s"
        call.undo.callback(alarm(limit, run.stop.ask, "limit", text))


async def refuse_strays(call: RunCall, io: Leaves) -> None:
    """Refuse results and messages of the thread's own past that do not fit it.

    The graph's input replaces messages by their ids, as LangGraph's does; an agent's does not.

    Raises:
        MessageError: Names the call or the message; nothing is stored.
    """
    run = call.run
    if not (run.answers or run.named):
        return
    if run.key is not None and await _newest_of(call, io) is not None:  # it is asked for again
        return
    graph, held = call.graph, list[BaseMessage]()
    if call.saver is not None and langgraph_config.thread_of(call.config) is not None:
        at: Any = {**call.config, "metadata": {}}
        state: Any = await io.either(lambda: graph.get_state(at), lambda: graph.aget_state(at))
        held = state.values.get("messages") or []
    messages = answers.fitted(call.input["messages"], held, run.answers, named=run.named)
    call.input = {**call.input, "messages": messages}


async def refuse_unknown_thread(call: RunCall, store: EngineStore, io: Leaves) -> None:
    """Refuse to go on in a thread that does not exist; no trace of it is left."""
    given = call.input
    if isinstance(given, Mapping) and given.get("messages"):
        return
    thread, threads = call.run.thread_id or "", store.threads
    known = await io.either(lambda: threads.get(thread), lambda: threads.aget(thread))
    if known is None or not known.steps:
        if call.is_new_input:
            raise MessageError("messages must not be empty")
        raise ThreadNotFoundError(f"there is no thread {thread} to go on with; send a message")


def asking_of(call: RunCall) -> Asking:
    """Say how the run asks for its thread."""
    run, outer = call.run, CURRENT.get()
    part = PART.get() or (outer is not None and outer is not run.stop)
    begins = run.run_id if call.is_new_input else None
    return Asking(begins=begins, pardon=run.force, part=part)


def begin_thread(call: RunCall, store: EngineStore) -> None:
    """Set the thread to `running`, with the commit that takes its lease."""
    run, threads, thread = call.run, store.threads, call.run.thread_id or ""
    lease = run.writer.lease
    assert lease is not None
    call.before = threads.open(
        thread,
        agent=call.spec.name,
        ttl=call.ttl,
        run_id=run.run_id,
        title=title_of(call.input),
        lease=lease,
        resumes=not call.is_new_input,
    )
    run.ledger = store.ledger(lease)
    run.waited = call.before is not None and call.before.status == "waiting"
    if call.is_new_input and call.before is not None:
        call.unfinished = threads.has_writes(thread, "messages")


def refuse_poisoned(call: RunCall) -> None:
    """Refuse to go on where going on has taken the process down too often."""
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
    """Leave the thread as it was, if the input is refused within the block."""
    try:
        yield
    except (MessageError, NothingWaitsError):
        call.untouched = True
        raise


# --- ending --------------------------------------------------------------------------------------


async def finish_run(call: RunCall, io: Leaves) -> None:
    """Close a run that LangGraph's loop left without an error."""
    run = call.run
    if call.previous is None and not run.ended:
        run.stopped = "interrupted"
        if not run.ran and not call.is_new_input:
            run.stopped = await final_reason(call, io)
    await close_run(call, io, None)


async def final_reason(call: RunCall, io: Leaves) -> StoppedBecause:
    """Say why a thread stopped that was asked to go on, and of which no node had to run."""
    graph, config, before = call.graph, call.config, call.before
    because: Any = (before.stopped_because if before is not None else None) or "done"
    if before is None or before.status == "waiting":
        return because  # type: ignore[no-any-return]  # the store's text is one of these
    state: Any = await io.either(lambda: graph.get_state(config), lambda: graph.aget_state(config))
    return because if state.next else state.values.get("stop_reason") or "done"


async def fail_run(call: RunCall, io: Leaves, error: BaseException) -> BaseException | None:
    """Close a run that an error or a cancellation ended; the thread can be used again.

    An answer that is refused leaves the thread as it was: it still waits for one.

    Returns:
        What the caller is to be told; None of a run that stopped because it was asked to.
    """
    run, before = call.run, call.before
    if isinstance(error, RunCancelled | ThreadBusyError):
        if run.stop.because == LOST:
            error = ThreadBusyError(f"{run.stop.text}; nothing more of this run was stored")
        elif run.stop.because:
            run.stopped = "limit" if run.stop.because == "limit" else "cancelled"
            await close_run(call, io, None)
            return None
    run.stopped = "cancelled" if isinstance(error, CANCELLED) else "failed"
    waited = before is not None and before.stopped_because == "interrupted"
    if waited and not run.ran and not call.is_new_input and not call.poisoned:
        run.stopped = "interrupted"
    if run.stopped == "failed" and call.saver is not None:
        await record_failure(run, call.saver, call.spec.name, error, io)
    await close_run(call, io, error)
    return error


async def close_run(call: RunCall, io: Leaves, error: BaseException | None) -> None:
    """Write down how the run ended, and give its thread back.

    Raises:
        StorageError: The last of what the run made cannot be stored. The thread stands before
            that, as failed, and what came before it is stored.
    """
    run, store = call.run, call.store
    call.undo.close()
    notify_end(run, error)
    lease = run.writer.lease
    if store is None or lease is None:  # it never had the thread
        return
    late = await prune(call, store, io) if error is None and not lease.lost else None
    if late is not None:
        error, run.stopped = late, "failed"
        notify_end(run, late)
    run.writer.lease = None
    threads, leases, thread = store.threads, store.leases, lease.thread_id
    status = thread_status(call, error)
    # A run that came to an end of its own is cleared; one that was cut off has shown nothing.
    charges = lease.charges if call.poisoned or run.stopped == "cancelled" else 0

    def close() -> None:
        try:
            threads.close(thread, lease=lease, **status)
        except StorageError as failure:
            run.stopped = "failed"
            notify_end(run, failure)
            with suppress(StorageError):
                threads.close(thread, lease=lease, **thread_status(call, failure))
            raise
        finally:
            leases.release(lease, charges=charges)

    await io.whole(lambda: leases.together(close), lambda: leases.atogether(close))
    if late is not None:
        raise late


def notify_end(run: Run, error: BaseException | None) -> None:
    """Tell who listens how the run ended."""
    if run.port.active:
        data = {"stopped_because": run.stopped, "error": error, "run_id": run.run_id}
        with suppress(RunCancelled):  # a reader who has left does not keep the run from closing
            run.port.record(Moment("run", "exit" if error is None else "error", "", data))


async def prune(call: RunCall, store: EngineStore, io: Leaves) -> StorageError | None:
    """Delete old checkpoints when the thread has twice those that are to be kept.

    Returns:
        What the store said of it, or of what waited and cannot be stored; None if all is well.
    """
    kept, threads, thread = call.spec.keep_latest, store.threads, call.run.thread_id or ""
    if kept is None or call.untouched:
        return None
    made = STEPS_PER_ITERATION * (call.run.usage.calls + 1)
    if (call.before.steps if call.before is not None else 0) + made < 2 * kept:
        return None
    try:
        await io.whole(
            lambda: threads.keep_latest(thread, kept), lambda: threads.akeep_latest(thread, kept)
        )
    except StorageError as failure:
        return failure
    return None


def thread_status(call: RunCall, error: BaseException | None) -> dict[str, Any]:
    """Say how the thread stands after the run; one that did nothing leaves it as it was."""
    run, before = call.run, call.before
    if call.untouched and before is not None:
        status = "failed" if before.status == "running" else before.status
        because = before.stopped_because or ("failed" if status == "failed" else "done")
        return {"status": status, "stopped_because": because, "error": before.last_error}
    stopped = run.stopped or "done"
    text = run.stop.text if stopped == "limit" and run.stop.because else None
    if error is not None and stopped != "cancelled":
        text = REDACTOR.text(str(error) or type(error).__name__)
    status = {"interrupted": "waiting", "failed": "failed"}.get(stopped, "idle")
    return {"status": status, "stopped_because": stopped, "error": text}


# --- messages of the input -----------------------------------------------------------------------


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


def title_of(input: Any) -> str | None:
    """Make a thread's title of the first line that a person says in it."""
    messages = input.get("messages") if isinstance(input, dict) else None
    for message in messages if isinstance(messages, list) else ():
        human = isinstance(message, BaseMessage) and message.type == "human"
        text = text_of(message) if human else ""
        line = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if line:
            return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1]}…"
    return None


# --- idempotency: the same run asked for twice ---------------------------------------------------
#
# The run's id is made of its thread and its key, and each of its checkpoints bears that id and a
# hash of the input. So a run that has ended gives its result again, one that a crash or a failure
# ended goes on, and another input under the same key is refused.


def run_id_of(thread_id: str, key: str) -> str:
    """Make the id of a run of its thread and its caller's key."""
    return str(uuid.uuid5(_OURS, f"{thread_id}\0{key}"))


def thread_id_of(agent: str, key: str) -> str:
    """Make the id of the thread that a run with a key begins, the same each time."""
    made = blake2b(f"{agent}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return f"th_{made.hexdigest()}"


def _input_hash(messages: Sequence[BaseMessage]) -> str:
    """Tell an input from others, whatever ids its messages bear."""
    said = [[message.type, message.content] for message in messages]
    text = json.dumps(said, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


async def find_previous_run(call: RunCall, io: Leaves) -> None:
    """Find the run that a key was used for: its end is given again, or it goes on.

    Raises:
        RunError: The key was used for another input.
    """
    run, before = call.run, call.before
    if run.key is None or (before is None and call.store is not None):  # the thread is new
        return
    saved = await _newest_of(call, io)
    if saved is None:
        return
    call.untouched = True
    if saved.metadata.get(_INPUT) != (call.config.get("metadata") or {}).get(_INPUT):
        raise RunError(
            f"the idempotency key {run.key!r:.80} was used for another input in thread "
            f"{run.thread_id}; take a new key for a new input"
        )
    graph = call.graph
    at, is_head = await _end_of_turn(call, saved, io)
    state: Any = await io.either(lambda: graph.get_state(at), lambda: graph.aget_state(at))
    asks = bool(state.interrupts) if before is None else before.status == "waiting"
    waits = is_head and asks
    if is_head and state.next and not waits:
        call.untouched = False
        call.input, run.resumed = None, True
        return
    known = graph.output_channels
    names = [known] if isinstance(known, str) else known
    values = {name: state.values[name] for name in names if name in state.values}
    call.previous = PreviousResult(values, tuple(state.interrupts) if waits else ())
    run.usage = _used(values.get("messages") or ())
    run.stopped = state.values.get("stop_reason") or ("cancelled" if state.next else "done")
    if waits:
        run.stopped = "interrupted"


async def _end_of_turn(call: RunCall, saved: Any, io: Leaves) -> tuple[Any, bool]:
    """Find where the turn that a run began has come to: other runs may have gone on with it.

    Returns:
        The config of its last checkpoint, and whether that is the thread's.
    """
    saver, where, own = call.saver, _whole_thread(call), _id_of(saved)
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

    await io.either(walk, awalk)
    end = saved.config
    while later and later[-1][1] != "input":
        end = later.pop()[0]
    return end, not later


async def _newest_of(call: RunCall, io: Leaves) -> Any:
    """Return the last checkpoint of the run's id; None if there is none, or no store."""
    saver, where, wanted = call.saver, _whole_thread(call), {"run_id": call.run.run_id}
    if saver is None:
        return None

    def newest() -> Any:
        return next(iter(saver.list(where, filter=wanted, limit=1)), None)

    async def anewest() -> Any:
        async for found in saver.alist(where, filter=wanted, limit=1):
            return found
        return None

    return await io.either(newest, anewest)


def _whole_thread(call: RunCall) -> Any:
    own = {langgraph_config.THREAD_ID: call.run.thread_id, langgraph_config.CHECKPOINT_NS: ""}
    return langgraph_config.with_configurable(None, **own)


def _id_of(saved: Any) -> Any:
    return langgraph_config.configurable(saved.config).get(langgraph_config.CHECKPOINT_ID)


def _used(messages: Sequence[BaseMessage]) -> Usage:
    """Count what the replies since the last input have used."""
    used = Usage()
    for message in reversed(messages):
        if message.type == "human":
            break
        if message.type == "ai":
            used += usage_of(message)
    return used


# --- the version stamp: under which agent and which engine a thread stopped ----------------------


def _version_of(spec: AgentSpec) -> str:
    """Write down under which engine and which agent a checkpoint is made."""
    known = about(spec)
    engine = known["versions"].get("wick-graph") or "unknown"
    return f"{engine} {known['graph']} {known['code']}"


async def warn_if_version_changed(call: RunCall, io: Leaves) -> None:
    """Warn where a run goes on that another make of the agent, or another engine, began.

    A new message is no such case: agents are changed between two messages all the time.
    """
    saver, config = call.saver, call.config
    if saver is None or call.is_new_input or call.before is None:
        return
    saved: Any = await io.either(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))
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
        langgraph_config.thread_of(config),
        call.spec.name,
        other,
        engines,
    )


# --- the journal ---------------------------------------------------------------------------------


async def start_journal(call: RunCall, io: Leaves) -> None:
    """Begin the run's journal, and tell whoever listens that the run begins."""
    run, spec, store = call.run, call.spec, call.store
    lease, options = run.writer.lease, spec.journal
    if run.debugger is not None and options.level == "off":
        options = replace(options, level="steps")
    if store is not None and lease is not None and options.level != "off":
        rows = store.journal_rows(lease.thread_id)
        begun = Begun(
            run_id=run.run_id,
            mode=_mode(call),
            checkpoint_id=langgraph_config.configurable(call.config).get(
                langgraph_config.CHECKPOINT_ID
            ),
            about=about(spec),
            model=spec.model.model,
            taking=Taking.of(spec.hooks),
        )

        def work() -> None:
            run.journal = start(rows, lease, begun, options)

        await io.either(work, lambda: rows.run_in_store(work))
        lease.before_commit = run.journal.along
    recorder: Port = NULL_PORT if run.journal is None else run.journal
    if run.debugger is not None:
        recorder = run.debugger.attach(run, io, spec, run.journal, call.saver)
    run.port = Ports.of(recorder, run.port)
    if not run.port.active:
        return
    data = {"input": call.input, "thread_id": run.thread_id, "run_id": run.run_id}
    await tell(run.port, Moment("run", "enter", spec.name, data))


def _mode(call: RunCall) -> Mode:
    if call.is_new_input:
        return "input"
    return "resume" if call.input is None else "answer"
