"""Sessions of a PostgreSQL server, which all stores of a process share.

A store holds a session from the beginning of a transaction to its end, and what it sets there is
for that transaction alone. So any session serves any store, even behind a pooler that gives each
transaction another one.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect
from sqlalchemy.sql import Executable, Insert

from wick_graph.errors import StorageError
from wick_graph.machine import at_fork
from wick_graph.store.blocks import block
from wick_graph.store.dialect import OPENING, Rows
from wick_graph.store.digests import Account
from wick_graph.store.texts import Compiler, Prepared, StatementText, made_text

if TYPE_CHECKING:
    from psycopg import Connection


# --- The pool of a process: a few sessions, and those who wait for one.


WAIT_SECONDS: Final = 30.0
"""The longest wait for a session; each is held for one transaction."""

_OPEN: Final = (2, 3)
"""libpq's numbers for a transaction, and for a failed one."""


Connect = Callable[[], "tuple[Connection[Any], Any]"]
"""Opens a session, and returns its mark too."""


class Session:
    """One session of the server."""

    __slots__ = ("born", "holder", "mark", "raw")

    def __init__(self, born: int) -> None:
        self.born = born
        """The pool's count of losses when it was opened."""
        self.holder = 0
        """The thread that took it."""
        self.raw: Any = None
        """Psycopg's connection, as soon as it is open."""
        self.mark: Any = None
        """Another one after each crash of the server."""

    @property
    def is_open(self) -> bool:
        """Whether a transaction is under way."""
        return not self.raw.closed and self.raw.pgconn.transaction_status in _OPEN

    @property
    def is_free(self) -> bool:
        """Whether it can serve the next transaction."""
        return not self.raw.closed and self.raw.pgconn.transaction_status == 0


class Waiter:
    """A thread that waits for a session; the thread that gives one back hands it on."""

    __slots__ = ("came", "session", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.came = threading.Event()
        self.session: Session | None = None


class Pool:
    """The sessions of this process with one server, as one user; first come, first served."""

    def __init__(self, key: str, connect: Connect, name: str) -> None:
        self.key, self._connect, self._name = key, connect, name
        self.size = 0
        """The most sessions, but for a thread that holds one already: it never waits."""
        self.users: WeakSet[Postgres] = WeakSet()
        """The open stores; one that was dropped without being closed is none of them."""
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._held: set[Session] = set()
        self._line: deque[Waiter] = deque()
        self.losses = 0
        """How often a session was lost, or the pool was closed."""

    def take(self) -> Session:
        """Take a session, and open one if all are held and there may be more.

        Raises:
            StorageError: The server cannot be reached, or no session came free in time.
        """
        session = self._taken(Waiter(threading.get_ident()))
        if session.raw is None:
            try:
                session.raw, session.mark = self._connect()
            except BaseException:
                self._drop(session)
                raise
        return session

    def _taken(self, me: Waiter) -> Session:
        with self._lock:
            if any(one.holder == me.thread for one in self._held):
                return self._next(me)
            self._line.append(me)
            self._hand_on()
        try:
            me.came.wait(WAIT_SECONDS)
        except BaseException:  # such as an interrupt
            self._drop(me.session)
            raise
        finally:
            with self._lock:
                if me.session is None:
                    self._line.remove(me)
        if me.session is None:
            raise StorageError(
                f"{self._name} is busy: all {self.size} sessions of this process were in use "
                f"for {WAIT_SECONDS:.0f} s; raise pool: {{size:}} in agents.yaml"
            )
        return me.session

    def _drop(self, session: Session | None) -> None:
        """Forget a session that cannot be used."""
        if session is not None:
            with self._lock:
                self._held.discard(session)
                self._hand_on()
            if session.raw is not None:
                session.raw.close()

    def _hand_on(self) -> None:
        while self._line and (self._idle or len(self._held) < self.size):
            first = self._line.popleft()
            first.session = self._next(first)
            first.came.set()

    def _next(self, waiter: Waiter) -> Session:
        session = self._idle.pop() if self._idle else Session(self.losses)
        session.holder = waiter.thread
        self._held.add(session)
        return session

    def give(self, session: Session) -> None:
        """Give a session back; if it was lost, the idle ones, which likely are too, are closed."""
        free, closing = session.is_free, [session]
        with self._lock:
            self._held.discard(session)
            if not free:
                self.losses += 1
                closing += self._idle
                self._idle = []
            elif session.born == self.losses and len(self._idle) + len(self._held) < self.size:
                self._idle.append(session)
                closing = []
            self._hand_on()
        for one in closing:
            one.raw.close()

    @contextmanager
    def session(self) -> Iterator[Connection[Any]]:
        """Hold a session of psycopg's, in no transaction; end any that you begin.

        Raises:
            StorageError: As in `take`.
        """
        taken = self.take()
        try:
            yield taken.raw
        finally:
            self.give(taken)

    def close(self) -> None:
        """Close all sessions, those in use as soon as they are given back."""
        with self._lock:
            closing, self._idle = self._idle, []
            self.losses += 1
        for one in closing:
            one.raw.close()


_pools: Final[dict[str, Pool]] = {}

at_fork(after_in_child=_pools.clear)  # the sessions belong to the parent


def join(conninfo: str, size: int, connect: Connect, name: str) -> Pool:
    """Return the pool of a server for one more store; the largest size that any asks for holds.

    Hold `OPENING` until the store is one of its users.
    """
    pool = _pools.get(conninfo)
    if pool is not None and not pool.users:  # the last one was dropped
        pool.close()
        pool = None
    if pool is None:
        pool = _pools[conninfo] = Pool(conninfo, connect, name)
    pool.size = max(pool.size, size)
    return pool


def leave(pool: Pool, store: Postgres) -> None:
    """Note that a store no longer uses a pool; the last one closes it."""
    with OPENING:
        pool.users.discard(store)
        if pool.users:
            return
        if _pools.get(pool.key) is pool:
            del _pools[pool.key]
    pool.close()


# --- What a transaction has done, for a session that is lost in its middle.


_STEPS: Final = 4096
"""The most statements, rows and pages that are kept of a transaction; of a longer one none are."""

_SOME: Final = 32
"""Statements after which they are weighed, and rows of one that is weighed at once."""

_PAGE: Final = 4096
"""Bytes of a page: a transaction keeps at most 16 MiB."""

_TRIES: Final = 4
"""How often a transaction is done again."""

_PAUSE: Final = 0.05

_INSERTS: Final = re.compile(r"INSERT INTO (\w+) .* RETURNING \1\.(\w+)", re.DOTALL)

_STATUS: Final = "SELECT pg_xact_status(%s::xid8)"

_DONE, _UNDONE = "committed", "aborted"

Work = Callable[["Connection[Any]", str, Any], Any]
"""Sends a text, which may be of several statements, with values."""


class Steps:
    """The statements of a transaction, and what they returned."""

    __slots__ = ("_weighed", "begin", "done", "left", "mark", "tries", "xid")

    def __init__(self, begin: str, xid: str | None, mark: Any) -> None:
        self.begin, self.mark = begin, mark
        self.xid = xid
        """The server's number of the transaction; None if it only reads."""
        self.done: list[tuple[Work, str, Any, Any]] = []
        self.tries = _TRIES
        self.left = _STEPS
        self._weighed = 0

    def weigh(self) -> None:
        """Count the statements since the last time; keep none if there are too many."""
        self.left -= sum(map(_kept, self.done[self._weighed :]))
        self._weighed = len(self.done)
        if self.left < 0:
            self.done, self.tries = [], 0


def _execute(raw: Connection[Any], text: str, values: Any) -> Rows:
    cursor = raw.execute(text, values or None, binary=True)
    if text == "COMMIT" and cursor.statusmessage != text:
        raise raw.InternalError("a part of the transaction had failed, so it was rolled back")
    made: Rows = cursor
    return made


def _execute_many(raw: Connection[Any], text: str, values: Any) -> list[Any]:
    raw.cursor().executemany(text, values)
    rows: list[Any] = values
    return rows


def _script(raw: Connection[Any], text: str, values: Any) -> list[Any]:
    cursor = raw.execute(text, prepare=False)
    while cursor.nextset():
        pass
    return list(cursor.fetchall()) if cursor.description else []


def _is_same(raw: Connection[Any], made: Any, before: Any, text: str) -> bool:
    """Return whether a statement did again what it had done.

    A row that it made gets the number of the first one, which the server has given to no other.
    """
    if isinstance(made, list):
        return bool(made == before)
    told, known, inserts = _told(made), _told(before), _INSERTS.match(text)
    if inserts is None or len(told[1]) != 1 or len(known[1]) != 1:
        return bool(told == known)
    new, old = (int.from_bytes(values[0], "big") for _, values in (told, known))
    table, column = inserts.groups()
    if new > old:  # else the server has forgotten that it gave the number
        raw.execute(f"UPDATE {table} SET {column} = %s WHERE {column} = %s", (old, new))
    return new >= old


def _kept(step: tuple[Work, str, Any, Any]) -> int:
    """Return how much is kept of a statement: itself, its rows, and the pages of their content."""
    _, _, values, made = step
    if isinstance(made, list):
        size = sum(len(one) for row in made for one in row if isinstance(one, bytes))
        return 1 + len(made) + size // _PAGE
    result = made.pgresult
    size = sum(len(one) for one in values if isinstance(one, bytes))
    for at in range(result.nfields):
        if result.fsize(at) < 0:  # of no fixed width
            size += sum(len(result.get_value(row, at) or b"") for row in range(result.ntuples))
    return 1 + int(result.ntuples) + size // _PAGE


def _told(cursor: Any) -> tuple[Any, list[Any]]:
    result = cursor.pgresult
    columns = range(result.nfields)
    values = [result.get_value(row, at) for row in range(result.ntuples) for at in columns]
    return result.command_status, values


# --- A store's transactions on sessions of the pool, by the store's statements.


class _Compiler(PGCompiler):
    """Takes ON CONFLICT as SQLite's module makes it, which makes all statements.

    The import of PostgreSQL's own is a twentieth of the import of an agent.
    """

    def _on_conflict_target(self, clause: Any, **kw: Any) -> str:
        if not hasattr(clause, "constraint_target"):
            clause.constraint_target = None
        return str(super()._on_conflict_target(clause, **kw))  # type: ignore[no-untyped-call]  # not typed there


DIALECT: Final = PGDialect(paramstyle="format")  # type: ignore[no-untyped-call]  # not typed there
DIALECT.statement_compiler = _Compiler

_texts: Final[dict[str | Prepared, str]] = {}


_compiler: Final = Compiler(DIALECT)


def _without_keys(statement: Executable) -> Executable:
    """Return a statement that returns no keys of what it inserts."""
    return statement.inline() if isinstance(statement, Insert) else statement


class Postgres:
    """A store's way to the pool; each statement is translated once, and bytes pass as they are.

    If the session is lost in the middle of a transaction, the transaction's statements are sent
    again in another one. It goes on if all that it was told is as it was, so its caller sees
    nothing. If a commit got no answer, the server knows whether it has succeeded.
    """

    def __init__(self, pool: Pool, local: str, driver: Any) -> None:
        self.pool, self._local, self._driver = pool, local, driver
        pool.users.add(self)
        self._session: Session | None = None
        self._losses = pool.losses
        self._closed = False
        self.is_lost = False
        """A session was lost, so it answers no more: another server may have taken over, which
        knows less than the store's caches."""
        self._steps: Steps | None = None
        """What the open transaction has done, if it can be done again."""
        self.account = Account()
        self.errors: tuple[type[Exception], ...] = (driver.Error,)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, even a failed one."""
        return self._session is not None

    def execute(self, text: str | Prepared, values: Sequence[Any] = (), /) -> Rows:
        """Run a prepared statement, by its SQLite text, or one that was made for this call."""
        known = _texts.get(text)
        if known is None:
            if isinstance(text, StatementText):
                known, values = _compiler.text(_without_keys(text.statement))
            else:
                known = _texts[text] = _translated(text)
        if self._session is not None:
            return self._run(known, values)
        self.script(f"BEGIN; SELECT {self._local}")
        try:
            return self._run(known, values)
        finally:
            if self._session is not None:
                self.script("COMMIT")  # which rolls back if the statement failed

    def executemany(self, text: str | Prepared, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each row of values, without waiting in between."""
        known = _texts.get(text)
        if known is None:
            known = _translated(text)
            if isinstance(text, Prepared):
                _texts[text] = known
        self._send(_execute_many, known, [*rows])

    def script(self, text: str) -> list[Any]:
        """Run several statements without values in one round trip; return the last one's rows."""
        made: list[Any] = self._send(_script, text, ())
        return made

    def begin(self, text: str) -> float:
        """Begin a transaction by a script, which returns the time, and its number if it writes."""
        *_, moment, xid = self.script(text)[0]
        self._steps = Steps(text, xid, self._session.mark if self._session else None)
        return float(moment)

    def close(self) -> None:
        """Let go of the pool; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if (session := self._session) is not None:
            session.raw.close()
            self._rest()
        leave(self.pool, self)

    def _run(self, text: str, values: Sequence[Any]) -> Rows:
        if text == "ROLLBACK":
            self._steps = None
        made: Rows = self._send(_execute, text, values)
        return made

    def _send(self, work: Work, text: str, values: Any) -> Any:
        """Do something in the session; if it is lost, in the next one."""
        steps = self._steps
        try:
            with self._holding() as raw:
                made = work(raw, text, values)
        except self.errors:
            if steps is None or not self.is_lost:
                raise
            status = self._outcome(steps) if text == "COMMIT" else _UNDONE
            if status == _DONE:
                return ()
            if status != _UNDONE or not self._begin_again(steps):
                raise
            return self._send(work, text, values)
        if steps is not None and steps.left >= 0:
            done = steps.done
            done.append((work, text, values, made))
            if not len(done) % _SOME or (work is _execute and made.rowcount > _SOME):
                steps.weigh()
        return made

    def _outcome(self, steps: Steps) -> str | None:
        """Ask the server how a transaction ended; None if it does not say.

        A server that has crashed may give the number of a lost transaction to another one.
        """
        if steps.xid is None:  # it only read
            return _DONE
        for tries in range(2 * _TRIES):
            time.sleep(_PAUSE * tries)
            try:
                taken = self.pool.take()
            except StorageError:  # it is away
                return None
            try:
                found = taken.raw.execute(_STATUS, (steps.xid,), prepare=False).fetchone()
            except self.errors:
                continue
            finally:
                self.pool.give(taken)
            if found[0] == _UNDONE or (found[0] == _DONE and taken.mark == steps.mark):
                return str(found[0])
        return None

    def _begin_again(self, steps: Steps) -> bool:
        """Do a transaction again after a loss; False if it cannot be what it was."""
        try:
            while steps.tries and self.is_lost:
                steps.tries -= 1
                with suppress(StorageError, *self.errors):
                    if self._is_repeated(steps):
                        self._steps = steps
                        return True
                    break
            return False
        finally:
            if self._steps is None:  # half of it may be there, as after an interrupt
                if self._session is not None:
                    self._session.raw.close()
                    self._rest()
                self.is_lost = True

    def _is_repeated(self, steps: Steps) -> bool:
        self._session = self.pool.take()
        self.is_lost = False
        steps.mark = self._session.mark
        steps.xid = self.script(steps.begin)[0][-1]
        for work, text, values, made in steps.done:
            with self._holding() as raw:
                if not _is_same(raw, work(raw, text, values), made, text):
                    return False
        return True

    @block
    def _holding(self) -> Iterator[Connection[Any]]:
        """Hold a session for a statement, and as long as a transaction is open."""
        if self._session is None and self._losses != self.pool.losses:
            self.is_lost = True
        if self.is_lost or self._closed:
            raise self._driver.OperationalError("the session is over")
        if self._session is None:
            self._session = self.pool.take()
        try:
            yield self._session.raw
        finally:
            self._rest()

    def _rest(self) -> None:
        session = self._session
        if session is not None and not session.is_open:
            self._session = None
            self.is_lost = not session.is_free
            self._steps = None
            self.pool.give(session)


def _translated(text: str | Prepared) -> str:
    """Return PostgreSQL's text of a prepared statement; any other text is returned as it is."""
    if not isinstance(text, Prepared):
        return text
    return made_text("postgresql", text.name) or translated(text)


def translated(text: Prepared) -> str:
    """Make PostgreSQL's text of a prepared statement."""
    made: Any = _without_keys(text.statement)
    made = made.compile(dialect=DIALECT)
    assert made.positiontup == list(text.order), (made.positiontup, text.order)
    return str(made)
