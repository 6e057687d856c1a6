"""Writers that share one commit, and the errors that they share with it."""

from __future__ import annotations

import threading
import time
from typing import Final

from wick_graph.errors import StorageError
from wick_graph.store.database.dialect import ThreadRow
from wick_graph.store.database.pending import Entry

MEMBERS: Final = 64
"""Writers that one commit serves at most."""
SECONDS: Final = 0.02
"""Age at which a commit waits for nobody else."""


class Group:
    """One transaction's writers."""

    __slots__ = (
        "_done",
        "callers",
        "error",
        "held",
        "locked",
        "members",
        "settled",
        "started",
        "taken",
    )

    def __init__(self) -> None:
        self.members = 0
        """Who has written: callers, and for each thread what had waited."""
        self.callers = 0
        self.started = time.monotonic()
        self.taken: list[dict[str, list[Entry]]] = []
        """What waited and is committed with it."""
        self.locked = False
        """Rows of threads are locked, so that it may not wait for any other."""
        self.held: dict[str, ThreadRow] = {}
        """The locked threads as they are in this transaction."""
        self.error: StorageError | None = None
        self.settled = False
        self._done: threading.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether the commit may not be put off any further."""
        return self.members >= MEMBERS or time.monotonic() - self.started > SECONDS

    def follow(self) -> threading.Event:
        """Return the event that tells of the commit; call it while you hold the database."""
        if self._done is None:
            self._done = threading.Event()
        return self._done

    def settle(self, error: StorageError | None = None) -> None:
        """Tell everybody how the commit went."""
        self.error = error
        self.settled = True
        if self._done is not None:
            self._done.set()

    def check(self) -> None:
        """Raise what the commit failed with.

        Raises:
            StorageError: for every member anew.
        """
        if self.error is not None:
            raise StorageError(str(self.error)) from self.error
