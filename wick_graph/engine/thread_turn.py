"""Concurrency policy of a thread: reject, queue or cancel the running run.

`reject` is told at once, `queue` waits its turn, `cancel_running` ends the other one. A run of
this process is asked to stop and given a moment to close; one of another process is fenced off,
and stops when it notices. A run that goes on where a process died waits for the one place that
there is for such runs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from wick_graph.core.bridge import Bridge
from wick_graph.core.stopping import LOST
from wick_graph.errors import ConfigError, StorageError, ThreadBusyError
from wick_graph.runtime.context import EngineStore, Run
from wick_graph.store.leases import PLACE, Asking, Lease, Leases, Suspected, Waiting
from wick_graph.store.saver import SqlSaver

GRACE_SECONDS: Final = 5.0
"""How long a run that was asked to stop may take to close before it is fenced off."""

_FIRST_SECONDS: Final = 0.005

_LONGEST_SECONDS: Final = 0.1

_OTHERS: Final = 8
"""Runs in a row that are asked to make room before one is forced to."""

_lines: Final[dict[tuple[int, int, str], deque[Run]]] = {}
"""Runs of this process that wait, by process, store and thread, in the order of their coming."""


def engine_store(saver: object) -> EngineStore | None:
    """Return a checkpointer that serves runs in full; LangGraph's own savers do not."""
    return saver if isinstance(saver, SqlSaver) else None


def _nothing() -> None:
    """Do nothing more."""


async def acquire_thread(
    run: Run,
    leases: Leases,
    bridge: Bridge,
    then: Callable[[], object] = _nothing,
    asking: Asking = Asking(),  # noqa: B008 - it is frozen
) -> None:
    """Take the lease of the run's thread, now or when it is free; do `then` with the same commit.

    A suspect waits until its back-off is over and no other suspect is at work in this process.

    Raises:
        ThreadBusyError: Another run goes on there, and this one does not wait for it.
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
    """Take the lease of a suspect, when it is its turn; False if it is none any more."""
    thread = run.thread_id or ""
    try:
        standing = await bridge.uninterruptible(
            lambda: leases.judge(thread, asking), lambda: leases.ajudge(thread, asking)
        )
    except ThreadBusyError:
        return False  # whoever has it now is told of, waited for, or cancelled
    if not standing.waits:
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
    """See whether the suspect that has the place is none any more."""
    if (watched := PLACE.look()) is None:
        return
    leases, lease = watched
    with suppress(StorageError):  # then it is seen at the next look
        if await bridge.call(
            lambda: leases.has_progressed(lease), lambda: leases.ahas_progressed(lease)
        ):
            PLACE.clear(watched)


async def cancel(store: EngineStore, thread_id: str, bridge: Bridge) -> bool:
    """End the run that goes on in a thread, wherever it runs; False if there is none.

    It is the run that held the thread when this was called, and no later one. A run that comes to
    its own end meanwhile keeps that end.
    """
    leases, threads = store.leases, store.threads
    epoch = await bridge.call(lambda: leases.epoch(thread_id), lambda: leases.aepoch(thread_id))
    if epoch is None:
        return False
    if await _ended_by_itself(leases, thread_id, epoch, bridge):
        return True

    def end() -> None:
        lease = leases.wrest(thread_id, epoch)
        if lease is not None:
            threads.close(thread_id, status="idle", stopped_because="cancelled", lease=lease)
            leases.release(lease)

    await bridge.uninterruptible(lambda: leases.together(end), lambda: leases.atogether(end))
    return True


async def _acquire(
    run: Run,
    leases: Leases,
    bridge: Bridge,
    then: Callable[[], object],
    asking: Asking,
) -> None:
    def ready(lease: Lease) -> None:
        lease.on_stop = _stopper(run, lease)

    def take() -> None:
        run.writer.lease = leases.take(run.thread_id or "", asking, judged=True, ready=ready)
        then()

    await bridge.uninterruptible(lambda: leases.together(take), lambda: leases.atogether(take))


def _stopper(run: Run, lease: Lease) -> Callable[[str], object]:
    """Make what tells a run that it is to stop, or has lost its thread."""

    def stop(text: str) -> object:
        if text or lease.forced:
            return run.stop.ask("cancelled", text or "another run took its place in the thread")
        return run.stop.ask(LOST, "the thread was taken over by another run")

    return stop


async def _wait_in_queue(
    run: Run, leases: Leases, bridge: Bridge, then: Callable[[], object], asking: Asking
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
    run: Run, leases: Leases, bridge: Bridge, then: Callable[[], object], asking: Asking
) -> None:
    thread = run.thread_id or ""
    for _ in range(_OTHERS):
        try:
            return await _acquire(run, leases, bridge, then, asking)
        except ThreadBusyError:
            epoch = await bridge.call(lambda: leases.epoch(thread), lambda: leases.aepoch(thread))
            if epoch is not None and not await _ended_by_itself(leases, thread, epoch, bridge):
                break
    return await _acquire(run, leases, bridge, then, replace(asking, force=True))


async def _ended_by_itself(leases: Leases, thread: str, epoch: int, bridge: Bridge) -> bool:
    """Ask a run of this process to stop, and wait until it has; False if it has not.

    The run is known by its epoch: who takes the thread after it is not meant.
    """
    if not leases.ask_to_stop(thread, "the run was cancelled", epoch):
        return False
    waited = 0.0
    while waited < GRACE_SECONDS:
        now = await bridge.call(lambda: leases.epoch(thread), lambda: leases.aepoch(thread))
        if now != epoch:
            return True
        await bridge.sleep(_FIRST_SECONDS)
        waited += _FIRST_SECONDS
    return False
