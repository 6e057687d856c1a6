"""A daemon thread that commits what has waited long enough; it ends when nothing comes any more."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Final, Protocol

from wick_graph.errors import StorageError
from wick_graph.store.database.pending import WAIT_SECONDS, Pending

_IDLE_SECONDS: Final = 0.5
_AFTER_FAILURE: Final = 1.0


class Flushed(Protocol):
    """What the flusher works for."""

    pending: Pending

    def flush(self) -> None:
        """Commit everything that waits."""


class Flusher:
    """Looks after the pending entries of one store; holds the store weakly."""

    def __init__(self, store: Flushed) -> None:
        self._store = weakref.ref(store)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def wake(self) -> None:
        """Make sure that somebody looks; cheap where the thread runs already."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="wick-flush", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        quiet = 0.0
        while not self._stop.wait(WAIT_SECONDS):
            store = self._store()
            if store is None:
                return
            since = store.pending.since
            if since is None:
                quiet += WAIT_SECONDS
                if quiet >= _IDLE_SECONDS and self._leave(store):
                    return
                continue
            quiet = 0.0
            if time.monotonic() - since >= WAIT_SECONDS:
                self._flush(store)
            del store

    def _flush(self, store: Flushed) -> None:
        try:
            store.flush()
        except StorageError:  # what waits still waits, and the next call tells of it
            self._stop.wait(_AFTER_FAILURE)

    def _leave(self, store: Flushed) -> bool:
        with self._lock:
            if store.pending.since is not None:
                return False
            self._thread = None
            return True
