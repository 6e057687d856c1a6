"""Deferred writes: what may wait for the next commit, because it can be made again.

A step's writes are worth nothing once its checkpoint is stored. So the writes of a task that is
alone in its step are committed with the checkpoint that follows: one commit instead of two. Every
other transaction commits the deferred writes too, every read has them written first, and none
waits longer than `WAIT_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from wick_graph.errors import StorageError
from wick_graph.langgraph_config import PULL, PUSH, Address

WAIT_SECONDS: Final = 0.01
"""Age at which the flusher commits deferred writes; it also looks this often, so 20 ms at most."""

LATE_SECONDS: Final = 0.05
"""How long a step's checkpoint waits for the writes that LangGraph gave to another thread first."""

_OPEN: Final = 1_024
"""The most steps that are followed at a time."""


class CommitPolicy(NamedTuple):
    """What of one superstep may wait for the next commit; by default nothing."""

    began_from: str = ""
    """The checkpoint that the superstep began from; the policy is for this superstep alone."""
    checkpoint: bool = False
    """Its checkpoint may wait: a crash makes it again, or nothing follows before that commit."""
    call_results: bool = False
    """What its tool calls write may wait: the ledger has it, or the calls are safe to repeat."""
    single_call: bool = False
    """The superstep is one tool call."""


COMMIT_NOW: Final = CommitPolicy()


class Entry(Protocol):
    """One deferred write."""

    at: Address
    """The checkpoint that the entry builds on."""

    def apply(self, db: Any) -> None:
        """Write it within a transaction."""


@dataclass(slots=True)
class _Step:
    """The tasks that have written under a checkpoint so far, by kind."""

    checkpoint: str | None
    pulls: int = 0
    pushes: int = 0
    others: bool = False
    stored: bool = False
    """Its checkpoint is: what it writes now comes behind, and the checkpoint is stored again."""


class DeferredWrites:
    """Deferred writes per thread, in their order; shared by threads and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._waiting: dict[str, list[Entry]] = {}
        self._steps: OrderedDict[tuple[str, str], _Step] = OrderedDict()
        self._errors: dict[str, BaseException] = {}
        self._lost: OrderedDict[Address, BaseException] = OrderedDict()
        """By checkpoint, the error of what its tasks wrote and the database cannot hold."""
        self.since: float | None = None
        """When the oldest entry came, by the monotonic clock; None if nothing waits."""

    def writes_can_wait(
        self,
        at: Address,
        policy: CommitPolicy,
        path: str,
        *,
        marked: bool,
    ) -> bool:
        """Decide whether a task's writes may wait for the checkpoint that follows.

        They may if the task seems to be alone in its step, or if its result is durable elsewhere.
        Those with an error, an interrupt or an answer among them are `marked`, and never wait. New
        writes clear a kept error of the checkpoint.
        """
        with self._lock:
            self._lost.pop(at, None)
            step = self._step(at)
            self._came.notify_all()
            if marked:
                step.others = True
                return False
            if step.stored:
                return False
            if PUSH in path:
                step.pushes += 1
                return policy.call_results
            if PULL in path:
                step.pulls += 1
                return step.pulls == 1 and not step.pushes
            step.others = True
            return False

    def await_writes(self, at: Address, seconds: float) -> None:
        """Wait for the first writes of a step that is about to be stored.

        LangGraph gives writes and checkpoint to two threads, and either may come first. Only this
        order keeps them in one commit, and tells which elements the step may have changed.
        """
        thread = (at.thread_id, at.ns)

        def came() -> bool:
            step = self._steps.get(thread)  # or those of a later step, which began meanwhile
            return step is not None and (step.checkpoint or "") >= (at.checkpoint_id or "")

        with self._came:
            self._came.wait_for(came, seconds)

    def checkpoint_can_wait(self, at: Address, policy: CommitPolicy) -> bool:
        """Decide whether a checkpoint may wait for the next one.

        It may if the policy says so and the step was one node, or pushed tasks only.
        """
        with self._lock:
            known, step = self._steps.get((at.thread_id, at.ns)), self._step(at)
            late, step.stored = step is not known or step.stored, True
        if late or step.others:
            return False
        return policy.checkpoint and step.pulls == (0 if step.pushes else 1)

    def add(self, entry: Entry) -> None:
        """Defer an entry."""
        with self._lock:
            self._waiting.setdefault(entry.at.thread_id, []).append(entry)
            if self.since is None:
                self.since = time.monotonic()

    def holds(self, thread_id: str | None) -> bool:
        """Return whether a thread has deferred writes; for None, whether any thread has."""
        if self.since is None:
            return False
        return thread_id is None or thread_id in self._waiting

    def threads(self) -> list[str]:
        """Return the threads that have deferred writes."""
        with self._lock:
            return list(self._waiting)

    def take(self) -> dict[str, list[Entry]]:
        """Remove and return all entries."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
            self.since = None
            return taken

    def put_back(self, taken: dict[str, list[Entry]]) -> None:
        """Defer entries again, before all that came meanwhile; they are due at once."""
        with self._lock:
            for thread_id, entries in taken.items():
                self._waiting[thread_id] = [*entries, *self._waiting.get(thread_id, ())]
            if taken:
                self.since = time.monotonic() - WAIT_SECONDS

    def fail(self, at: Address, error: BaseException) -> None:
        """Keep the error of an entry that cannot be written.

        The next call to the thread raises it, and so does the next checkpoint that needs the entry.
        """
        with self._lock:
            self._errors.setdefault(at.thread_id, error)
            self._lost[at] = error
            while len(self._lost) > _OPEN:
                self._lost.popitem(last=False)

    def raise_lost_write(self, at: Address) -> None:
        """Raise, once, the kept error of what a checkpoint builds on."""
        if self._lost:
            with self._lock:
                error = self._lost.pop(at, None)
            if error is not None:
                raise error

    def forget_errors(self, thread_id: str) -> None:
        """Forget the kept errors of a thread: a caller reads its stored state, to go on from it."""
        if self._lost:
            with self._lock:
                for at in [at for at in self._lost if at.thread_id == thread_id]:
                    del self._lost[at]

    def raise_deferred_error(self, thread_id: str | None) -> None:
        """Raise, once, the kept error of a thread; for None, that of any thread."""
        if not self._errors:
            return
        with self._lock:
            if thread_id is None:
                thread_id = next(iter(self._errors), "")
            error = self._errors.pop(thread_id, None)
        if error is not None:
            raise error

    def _step(self, at: Address) -> _Step:
        key = (at.thread_id, at.ns)
        step = self._steps.get(key)
        if step is None or step.checkpoint != at.checkpoint_id:
            self._steps.pop(key, None)  # the one that began last is the last one
            step = self._steps[key] = _Step(at.checkpoint_id)
            while len(self._steps) > _OPEN:
                self._steps.popitem(last=False)
        return step


# --- A daemon thread that commits writes that were deferred long enough; it ends when idle.


_IDLE_SECONDS: Final = 0.5

_AFTER_FAILURE: Final = 1.0


class Flushable(Protocol):
    """A store, as the flusher sees it."""

    deferred: DeferredWrites

    def flush(self) -> None:
        """Commit all deferred writes."""


class Flusher:
    """Commits the deferred writes of one store in time; its thread holds the store until then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._end = SimpleQueue[None]()  # a finalizer in the thread itself may put into it

    def wake(self, store: Flushable) -> None:
        """Make sure that the thread of its store runs; cheap if it does already."""
        if self._thread is not None:  # a thread that leaves looks again at what waits
            return
        with self._lock:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(
                    target=self._run, args=(store,), name="wick-flush", daemon=True
                )
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._end.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _goes_on(self, seconds: float) -> bool:
        """Wait, and return whether it was not closed meanwhile."""
        if not self._is_closed:
            with suppress(Empty):
                self._end.get(timeout=seconds)
        return not self._is_closed

    def _run(self, store: Flushable) -> None:
        quiet = 0.0
        while self._goes_on(WAIT_SECONDS):
            since = store.deferred.since
            if since is None:
                quiet += WAIT_SECONDS
                if quiet >= _IDLE_SECONDS and self._leave(store):
                    return
                continue
            quiet = 0.0
            if time.monotonic() - since >= WAIT_SECONDS:
                self._flush(store)

    def _flush(self, store: Flushable) -> None:
        try:
            store.flush()
        except StorageError:  # the writes stay deferred, and the next call raises the error
            self._goes_on(_AFTER_FAILURE)

    def _leave(self, store: Flushable) -> bool:
        with self._lock:
            thread, self._thread = self._thread, None
            if store.deferred.since is not None:  # it came before the thread had left
                self._thread = thread
                return False
            return True
