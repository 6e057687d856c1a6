"""Concurrency policy of a thread: reject, queue or cancel the running run.

`reject` raises at once, `queue` waits its turn, `cancel_running` ends the running run. The engine
asks a run of this process to stop and gives it a moment to close. It fences off a run of another
process, which stops when it notices. A run that continues after a crash is a suspect: only one
suspect at a time runs in a process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import (
    ensure_config,
    get_callback_manager_for_config,
    merge_configs,
)

from wick_graph.core.bridge import Bridge
from wick_graph.core.stopping import LOST
from wick_graph.errors import ConfigError, StorageError, ThreadBusyError
from wick_graph.messages import text_of
from wick_graph.messages.base import Lent
from wick_graph.runtime.context import EngineStore, Run
from wick_graph.store.leases import PLACE, Asking, Lease, Leases, Suspected, Waiting
from wick_graph.store.saver import SqlSaver
from wick_graph.store.threads import ThreadInfo
from wick_graph.types import MessageList

_TITLE_CHARS: Final = 80

GRACE_SECONDS: Final = 5.0
"""Grace period of a run that was asked to stop, before it is fenced off."""

_FIRST_SECONDS: Final = 0.005

_LONGEST_SECONDS: Final = 0.1

_OTHERS: Final = 8
"""Runs that are asked to stop in turn, before the next lease is acquired by force."""

_lines: Final[dict[tuple[int, int, str], deque[Run]]] = {}
"""Waiting runs of this process, by process, store and thread, in order of arrival."""


def engine_store(saver: object) -> EngineStore | None:
    """Return the checkpointer if it is an engine store; None for LangGraph's own savers."""
    return saver if isinstance(saver, SqlSaver) else None


def run_store(saver: object, graph: object, run: Run) -> EngineStore | None:
    """Return the engine store of a run, which learns the classes of its graph; else None."""
    store = engine_store(saver)
    if store is not None:
        run.writer.told = store.note_graph(graph)
    return store


def _nothing(lease: Lease) -> None:
    """Do nothing more."""


async def acquire_thread(
    run: Run,
    leases: Leases,
    bridge: Bridge,
    then: Callable[[Lease], object] = _nothing,
    asking: Asking = Asking(),  # noqa: B008 - it is frozen
) -> None:
    """Acquire the lease of the run's thread; call `then` with it in the same commit.

    A suspect waits until its back-off is over and no other suspect runs in this process.

    Raises:
        ThreadBusyError: Another run uses the thread, and this one does not wait.
        RunCancelled: The run was asked to stop while it waited.
    """
    policy = {
        "reject": _acquire,
        "queue": _wait_in_queue,
        "cancel_running": _cancel_and_acquire,
    }.get(run.on_busy)
    if policy is None:
        raise ConfigError(
            f"on_busy is reject, queue or cancel_running, and not {run.on_busy!r:.40}"
        )
    while True:
        try:
            return await policy(run, leases, bridge, then, asking)
        except Suspected:
            pass
        if await _acquire_as_suspect(
            run, leases, bridge, partial(policy, run, leases, bridge, then), asking
        ):
            return None


async def _acquire_as_suspect(
    run: Run, leases: Leases, bridge: Bridge, policy: Callable[[Asking], Any], asking: Asking
) -> bool:
    """Acquire a suspect's lease in its turn; return False if it is no longer a suspect."""
    thread = run.thread_id or ""
    try:
        standing = await bridge.uninterruptible(leases.judge, leases.ajudge, thread, asking)
    except ThreadBusyError:
        return False  # the caller's policy decides about the present owner
    if not standing.needs_slot:
        return False
    waiting = Waiting(standing, leases.now)
    PLACE.join(waiting)
    try:
        while not PLACE.enter(waiting):
            run.stop.check()
            await _clear_finished_suspect(bridge)
            await bridge.sleep(_LONGEST_SECONDS / 2)
        await policy(replace(asking, place=waiting))
        lease = run.writer.lease
        assert lease is not None
        PLACE.watch(waiting, (leases, lease))
    except BaseException:
        PLACE.leave(waiting)
        raise
    return True


async def _clear_finished_suspect(bridge: Bridge) -> None:
    """Free the place of a running suspect that has made progress."""
    if (watched := PLACE.look()) is None:
        return
    leases, lease = watched
    with suppress(StorageError):  # the next look repeats it
        if await bridge.call(leases.has_progressed, leases.ahas_progressed, lease):
            PLACE.clear(watched)


async def refuse_other_state(
    run: Run,
    graph: Any,
    store: EngineStore,
    before: ThreadInfo | None,
    at: Any,
    bridge: Bridge,
) -> None:
    """Refuse a thread of another agent or graph if this one would drop a part of its state.

    The thread keeps the name of its agent, and its TTL.

    Raises:
        ConfigError: It would.
    """
    if before is None or before.agent in (None, graph.spec.name):
        return
    saver, threads, thread = graph.checkpointer, store.threads, before.thread_id
    saved: Any = await bridge.call(saver.get_tuple, saver.aget_tuple, at)
    held = {} if saved is None else saved.checkpoint["channel_values"]
    lost = [name for name in held if name not in graph.channels and _is_state(name)]
    if not lost:
        return
    end = before.expires_at
    ttl = None if end is None else (end - before.last_access).total_seconds()
    mine: Any = {"ttl": ttl, "run_id": run.run_id, "lease": run.writer.lease}
    back, leases = partial(threads.open, thread, agent=before.agent, **mine), store.leases
    await bridge.uninterruptible(leases.together, leases.atogether, back)
    kind = "graph" if graph.spec.guest else "agent"
    raise ConfigError(
        f"the thread {thread} belongs to the agent {before.agent}, and the {kind} "
        f"{graph.spec.name} has no channel {lost[0]} for its state; start another thread"
    )


def _is_state(channel: str) -> bool:
    """Return whether a channel is of the state, not of LangGraph's own."""
    return ":" not in channel and not channel.startswith("__")


async def withdraw(run: Run, store: EngineStore, before: ThreadInfo | None, bridge: Bridge) -> None:
    """Take the last input out of a thread, with all steps since, also those before a crash."""
    threads, thread = store.threads, run.thread_id or ""
    await bridge.uninterruptible(threads.withdraw, threads.awithdraw, thread)
    if before is None or before.title is None:  # it is from the input
        await bridge.call(threads.rename, threads.arename, thread, None)


async def give_back(
    leases: Leases, lease: Lease, charges: int, bridge: Bridge
) -> StorageError | None:
    """Give a run's lease back; return why earlier writes of its thread cannot be stored."""

    def end() -> StorageError | None:
        try:
            leases.release(lease, charges=charges)
        except StorageError as failure:
            return failure
        return None

    refused: StorageError | None = await bridge.uninterruptible(
        leases.together, leases.atogether, end
    )
    if refused is None:
        leases.note_released(lease)
    return refused


async def cancel(store: EngineStore, thread_id: str, bridge: Bridge) -> bool:
    """Cancel the running run of a thread, in any process; return False if there is none.

    Only the run that held the thread at the call is cancelled, never a later one. A run that ends
    by itself meanwhile keeps its own result.
    """
    leases, threads = store.leases, store.threads
    epoch = await bridge.call(leases.epoch, leases.aepoch, thread_id)
    if epoch is None:
        return False
    if await _ended_by_itself(leases, thread_id, epoch, bridge):
        return True

    def end() -> None:
        lease = leases.force_acquire(thread_id, epoch)
        if lease is not None:
            threads.note_end(lease, status="idle", stopped_because="cancelled")
            leases.release(lease)

    await bridge.uninterruptible(leases.together, leases.atogether, end)
    return True


async def _acquire(
    run: Run,
    leases: Leases,
    bridge: Bridge,
    then: Callable[[Lease], object],
    asking: Asking,
) -> None:
    def ready(lease: Lease) -> None:
        lease.on_stop = partial(_stop, run, lease)

    thread = run.thread_id or ""

    def take() -> None:
        with leases.opening(thread):
            lease = run.writer.lease = leases.acquire(thread, asking, judged=True, ready=ready)
            then(lease)

    # No caller learns of a run before its first step; that commit makes this one durable too. Only
    # what may take the machine down is on its disk before it begins.
    light = asking.place is None
    await bridge.uninterruptible(leases.together, leases.atogether, take, light=light)


def _stop(run: Run, lease: Lease, text: str) -> object:
    """Stop a run, or tell it that it lost its thread."""
    if text or lease.forced:
        return run.stop.ask("cancelled", text or "another run took its place in the thread")
    return run.stop.ask(LOST, "the thread was taken over by another run")


async def _wait_in_queue(
    run: Run, leases: Leases, bridge: Bridge, then: Callable[[Lease], object], asking: Asking
) -> None:
    place = (os.getpid(), id(leases), run.thread_id or "")
    line = _lines.setdefault(place, deque())
    line.append(run)
    pause = _FIRST_SECONDS
    try:
        while True:
            run.stop.check()
            if line[0] is run:
                try:
                    await _acquire(run, leases, bridge, then, asking)
                except ThreadBusyError:
                    pass
                else:
                    return
            await bridge.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)
    finally:
        line.remove(run)
        if not line and _lines.get(place) is line:
            del _lines[place]


async def _cancel_and_acquire(
    run: Run, leases: Leases, bridge: Bridge, then: Callable[[Lease], object], asking: Asking
) -> None:
    thread = run.thread_id or ""
    for _ in range(_OTHERS):
        try:
            return await _acquire(run, leases, bridge, then, asking)
        except ThreadBusyError:
            epoch = await bridge.call(leases.epoch, leases.aepoch, thread)
            if epoch is not None and not await _ended_by_itself(leases, thread, epoch, bridge):
                asking = replace(asking, over=epoch)  # unless it has left: then the next is asked
    return await _acquire(run, leases, bridge, then, replace(asking, force=True))


async def _ended_by_itself(leases: Leases, thread: str, epoch: int, bridge: Bridge) -> bool:
    """Ask a run of this process to stop, and wait for it; return False if it does not stop.

    The epoch identifies the run, so a later owner of the thread is not stopped.
    """
    if not leases.ask_to_stop(thread, "the run was cancelled", epoch):
        return False
    waited = 0.0
    while waited < GRACE_SECONDS:
        now = await bridge.call(leases.epoch, leases.aepoch, thread)
        if now != epoch:
            return True
        await bridge.sleep(_FIRST_SECONDS)
        waited += _FIRST_SECONDS
    return False


def title_of(input: Any) -> str | None:
    """Make a thread's title from the first line of the first human message."""
    messages = input.get("messages") if isinstance(input, dict) else None
    for message in messages if isinstance(messages, list) else ():
        human = isinstance(message, BaseMessage) and message.type == "human"
        text = text_of(message) if human else ""
        line = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if line:
            return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1]}…"
    return None


# --- Messages that are kept between runs: which runs may read them, and how they leave the engine.
#
# Code outside of the engine may change no kept message: the next run would find the change, and no
# row of the store has it.


_LENT_MODES: Final = frozenset({"values", "updates", "messages", "custom"})
"""Stream modes that show nothing of the thread's older messages, or that `lent` takes care of."""


def keep_messages(graph: Any, run: Run, config: Any, kwargs: Mapping[str, Any]) -> None:
    """Let LangGraph's loop read kept messages, if they leave the engine through `lent` alone.

    Debuggers, callback handlers and other stream modes get what the loop holds.
    """
    asked = kwargs.get("stream_mode") or graph.stream_mode
    modes = {asked} if isinstance(asked, str) else {*asked}
    if run.writer.lease is None or run.writer.fresh or run.debugger is not None:
        return
    if not modes <= _LENT_MODES:
        return
    whole = merge_configs(ensure_config(), graph.config, config)
    if not get_callback_manager_for_config(whole).handlers:
        run.writer.keeps = "messages"


def lent(chunk: Any) -> Any:
    """Return what a stream yields, with lists of messages that the reader may change."""
    if type(chunk) is tuple and chunk:  # behind the place of a subgraph, the mode, or both
        return (*chunk[:-1], _lent(chunk[-1]))
    return _lent(chunk)


def _lent(chunk: Any) -> Any:
    data = chunk.get("data") if type(chunk) is dict and chunk.get("type") == "values" else None
    if (made := _lent_state(data)) is not data:
        return {**chunk, "data": made}
    return _lent_state(chunk)


def _lent_state(state: Any) -> Any:
    if type(state) is MessageList:
        return Lent(state)
    if type(state) is dict and type(held := state.get("messages")) is MessageList:
        return {**state, "messages": Lent(held)}
    return state
