"""Open recordings of threads, and the sessions of the page's users over them."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from wick_graph.core.state import StateSchema
from wick_graph.debug.answers import Answers
from wick_graph.errors import ThreadBusyError
from wick_graph.service.options import Problem
from wick_graph.store import SqlSaver

if TYPE_CHECKING:
    from wick_graph.debug.session import DebugSession

_OPEN: Final = 16
"""Recordings that stay open."""

SILENT: Final = 60.0
"""Seconds after which an unused session makes room for another."""


@dataclass(slots=True)
class Session:
    """A session of one user over a thread; a thread has one at a time."""

    tenant: str
    thread_id: str
    debugger: DebugSession
    answers: Answers
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    used: float = 0.0


class Recordings:
    """The open recordings of a server's tenants; all methods are thread-safe.

    Args:
        opened: `DebugSession.open`.
    """

    def __init__(self, opened: Callable[..., DebugSession]) -> None:
        self._opened = opened
        self._lock = threading.RLock()
        self._open: OrderedDict[tuple[str, str, str, int], Answers] = OrderedDict()
        self._sessions: dict[str, Session] = {}

    def of(
        self, tenant: str, saver: SqlSaver, thread_id: str, state: StateSchema | None
    ) -> Answers:
        """Return the answers about a thread; they stay open for the next question."""
        begun = saver.threads.get(thread_id)  # a thread made again under an old id is another one
        made = "" if begun is None else begun.created.isoformat()
        key = (tenant, thread_id, made, id(saver))  # a tenant's store may be closed and opened
        with self._lock:
            found = self._open.get(key)
            if found is None:
                found = self._open[key] = Answers(saver, thread_id, self._opened, state)
            self._open.move_to_end(key)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)  # one still in use ends with its last user
        return found

    def begin(self, tenant: str, thread_id: str, answers: Answers) -> Session:
        """Open a session.

        Raises:
            ThreadBusyError: Another session is open over the thread.
        """
        self._check_free(tenant, thread_id)
        made = Session(tenant, thread_id, answers.session(), answers)  # may take long: unlocked
        try:
            with self._lock:
                self._check_free(tenant, thread_id)
                made.used = time.monotonic()
                self._sessions[made.name] = made
        except ThreadBusyError:
            made.debugger.close()
            raise
        return made

    def session(self, tenant: str, name: str) -> Session:
        """Return a session of a tenant.

        Raises:
            Problem: There is no such session.
        """
        with self._lock:
            self._drop_silent()
            found = self._sessions.get(name)
            if found is None or found.tenant != tenant:
                raise Problem(404, "session not found")
            found.used = time.monotonic()
        return found

    def end(self, tenant: str, name: str) -> None:
        """Close a session; raises as `session`."""
        found = self.session(tenant, name)
        with self._lock:
            self._sessions.pop(name, None)
        found.debugger.close()

    def _check_free(self, tenant: str, thread_id: str) -> None:
        with self._lock:
            self._drop_silent()
            held = [(one.tenant, one.thread_id) for one in self._sessions.values()]
        if (tenant, thread_id) in held:
            raise ThreadBusyError(f"a session is open over the thread {thread_id}")

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for name, held in [*self._sessions.items()]:
            if held.used < now - SILENT:
                del self._sessions[name]
                held.debugger.close()
