"""Open recordings of threads, and the sessions of the page's users over them."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request

from wick_graph.core.state import StateSchema
from wick_graph.debug import protocol, terminal
from wick_graph.debug.answers import Answers
from wick_graph.errors import DebugError, ThreadBusyError, WickError
from wick_graph.server.guard import SECRET, RequestContext
from wick_graph.service.options import Problem, public_message
from wick_graph.store import SqlSaver

if TYPE_CHECKING:
    from wick_graph.debug.session import DebugSession

_OPEN: Final = 16
"""Recordings that stay open."""

SILENT: Final = 60.0
"""Seconds after which an unused session ends, and a run that it holds goes on."""

_LOOK: Final = 5.0
"""Seconds between two looks for silent sessions."""


SESSIONS: Final = 16
"""Sessions of one tenant at a time."""

_SOON: Final = 10.0
"""Seconds that a command is waited for; then the page asks again."""

_NOT_HERE: Final = "a browser does not read or write files of the server; use wick debug"

_REFUSED: Final = dict.fromkeys(("save", "source", "export", "edit"), _NOT_HERE)

_AT_ONCE: Final = ("pause", "abort")
"""Commands that reach a run that goes on."""


class Session:
    """A session of one user over a thread; a thread has one at a time.

    Its commands are the debugger's own, and run in a Python thread of the session.

    Args:
        tenant: The tenant.
        answers: What shows the values of its thread.
        debugger: The session that it begins with.
        agent: Makes the agent when something must execute; raises if that is not allowed.
        refused: Further commands that it does not take, each with the reason.
        holders: `Runs.holders` of the tenant.
    """

    def __init__(
        self,
        tenant: str,
        answers: Answers,
        debugger: DebugSession,
        agent: Callable[[], Any],
        refused: Mapping[str, str],
        holders: dict[str, Callable[[], Any]],
    ) -> None:
        self.tenant, self.thread_id, self.answers = tenant, answers.thread_id, answers
        self.name: Final = secrets.token_hex(8)
        self.used = time.monotonic()
        self.debugger: Final = debugger
        debugger.hides = True
        self.shell: Final = terminal.Shell(
            debugger, terminal.Doors(agent=agent, look=agent), refused={**_REFUSED, **refused}
        )
        self.holders: Final = holders
        self.is_waiting = False
        """Whether it waits for a run that others start."""
        self._said: deque[str] = deque(maxlen=1_000)
        debugger.outputs.listen(lambda output: self._said.append(output.text))
        self._worker: Final = ThreadPoolExecutor(1, "wick-page")
        self._work: Future[terminal.Reply] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a command goes on."""
        return self._work is not None and not self._work.done()

    def begin(self, line: str, at: int | None) -> None:
        """Begin a command, with the cursor at a moment.

        Raises:
            Problem: The session was closed.
            ThreadBusyError: Another one goes on.
        """
        if line in _AT_ONCE and self.is_busy:
            self._interrupt(line)
        elif self.is_busy:
            raise ThreadBusyError("a command goes on in this session; pause it, or abort it")
        else:
            self.is_waiting = line == "hold"  # at once: a run may start before the worker does
            try:
                self._work = self._worker.submit(self._do, line, at)
            except RuntimeError:  # another request has closed it meanwhile
                raise Problem(404, "session not found") from None

    def _interrupt(self, line: str) -> None:
        self.is_waiting = False
        if line == "pause":
            self.shell.session.pause()
        else:
            Thread(target=self._abort, name="wick-page-abort", daemon=True).start()

    def _abort(self) -> None:
        with suppress(WickError):
            self.shell.session.abort("stopped in the page")

    def _do(self, line: str, at: int | None) -> terminal.Reply:
        session = self.shell.session
        if session is self.debugger:
            self.answers.catch_up(session)
        if at is not None and session.here is not None and session.here.seq != at:
            session.goto(self.answers.place_of(session, at))
        if line == "hold":
            return self._wait_for_a_run()
        reply = self.shell.execute(line)
        self.shell.session.hides = True  # also of a sub-agent, and of a replay
        return reply

    def _wait_for_a_run(self) -> terminal.Reply:
        """Hold the next run of the thread that others start."""
        while self.is_waiting:
            with suppress(DebugError):  # there was none yet
                return self.shell.stopped(self.debugger.wait_for_run(0.5))
        return terminal.Reply.of("no run is waited for any more")

    def holder(self) -> DebugSession | None:
        """Return the session to hold a run that starts; None if it waits for none."""
        return self.debugger if self.is_waiting and self.is_busy else None

    async def answer(self) -> protocol.ConsoleAnswer:
        """Return the reply to the command, or what is known while it goes on."""
        work, reply, error = self._work, terminal.Reply(), ""
        if work is not None:
            waited = asyncio.wrap_future(work)
            waited.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([waited], timeout=_SOON)
            if work.done():
                try:
                    reply = work.result()
                except Problem as refused:
                    error = refused.error
                except Exception as failed:  # of the debugger, or the agent's own
                    error = str(failed) if isinstance(failed, WickError) else public_message(failed)
        said = [self._said.popleft() for _ in range(len(self._said))]
        answers = self.answers
        return protocol.ConsoleAnswer(
            lines=answers.lines([*said, *reply.lines]),
            error="".join(answers.lines([error])),
            running=work is not None and not work.done(),
            stop=None if reply.stop is None else answers.stop(reply.stop),
            plan=[] if self.shell.plan is None else answers.planned(self.shell.plan.will_execute),
            session=await asyncio.to_thread(answers.described, self.name, self.shell.session),
        )

    def close(self, note: str = "") -> Thread:
        """End the session: a run of its own is kept for later; with a note, it goes on.

        Returns:
            The thread that waits until the run can be left.
        """
        self.is_waiting = False
        self._worker.shutdown(wait=False)
        work = Thread(target=self._leave, args=(note,), name="wick-page-end", daemon=True)
        work.start()
        return work

    def _leave(self, note: str) -> None:
        with suppress(WickError):
            if note and (self.debugger.held or self.debugger.mode == "LIVE running"):
                self.debugger.detach("continue", note=note)
                self.debugger.wait()
        self.shell.close()
        self.debugger.close()
        if self.holders.get(self.thread_id) == self.holder:
            del self.holders[self.thread_id]


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
        self._timer: Timer | None = None

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

    def fresh(self, saver: SqlSaver, thread_id: str) -> Answers:
        """Return answers about a thread that has no recording yet."""
        return Answers(saver, thread_id, self._opened)

    def begin(self, made: Callable[[], Session], tenant: str, thread_id: str) -> Session:
        """Open a session.

        Raises:
            Problem: The tenant has too many.
            ThreadBusyError: Another session is open over the thread.
        """
        self._check_free(tenant, thread_id)
        session = made()  # may take long: unlocked
        try:
            with self._lock:
                self._check_free(tenant, thread_id)
                self._sessions[session.name] = session
                session.holders[thread_id] = session.holder
        except (Problem, ThreadBusyError):
            session.close()
            raise
        self._watch()
        return session

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
        found.close()

    def close(self) -> None:
        """Close all sessions, when the server ends."""
        with self._lock:
            found = [*self._sessions.values()]
            self._sessions.clear()
        for work in [session.close() for session in found]:
            work.join(_SOON)

    def _check_free(self, tenant: str, thread_id: str) -> None:
        with self._lock:
            self._drop_silent()
            held = [s.thread_id for s in self._sessions.values() if s.tenant == tenant]
        if thread_id in held:
            raise ThreadBusyError(f"a session is open over the thread {thread_id}")
        if len(held) >= SESSIONS:
            raise Problem(429, f"{len(held)} sessions are open; close one")

    def _watch(self) -> None:
        """Look for silent sessions as long as there is any."""
        with self._lock:
            self._drop_silent()
            if self._sessions and (self._timer is None or self._timer.finished.is_set()):
                self._timer = Timer(_LOOK, self._watch_again)
                self._timer.daemon = True
                self._timer.start()

    def _watch_again(self) -> None:
        self._timer = None
        self._watch()

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for name, held in [*self._sessions.items()]:
            if held.used < now - SILENT:
                del self._sessions[name]
                held.close(f"the page was silent for {SILENT:.0f} s")


async def answers_of(context: RequestContext, request: Request, thread_id: str) -> Answers:
    """Return the answers about a thread of the caller's tenant.

    Raises:
        Problem: There is no such thread.
    """
    info = await context.thread(thread_id)
    agents = context.tenant.agents
    known = info.agent is not None and info.agent in agents
    agent = await context.agent(info.agent) if known else None
    state = None if agent is None or agent.spec.guest else agent.spec.state
    recordings: Recordings = request.app.state.recordings
    of = recordings.of
    return await asyncio.to_thread(of, context.tenant.name, context.saver, thread_id, state)


async def is_admitted(context: RequestContext, request: Request) -> bool:
    """Return whether the token is still valid, and the browser signed in; for long answers."""
    headers = request.headers
    if context.options.auth and "authorization" not in headers:
        cookies = "; ".join(headers.getlist("cookie"))
        if request.app.state.sign_ins.find(cookies, headers.get(SECRET, "")) is None:
            return False
    return await context.is_admitted()
