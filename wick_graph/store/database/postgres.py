"""PostgreSQL: many processes on many machines, each of which locks the threads that it writes to.

A thread's row is locked and its version counted up in one statement, the first of a transaction
that writes to the thread. Nobody waits for a row while he holds one. The clock is the server's:
each transaction begins by asking for it, and the time goes on from there by this machine's steady
clock. Who sets `wick.now` for a session, a role or a database sets the time; so do tests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from wick_graph.errors import StorageError
from wick_graph.store.database import postgres_schema, sql
from wick_graph.store.database.compiling import POSTGRES_NOW
from wick_graph.store.database.dialect import Database, Dialect, Now, Synchronous, ThreadRow
from wick_graph.store.database.postgres_db import Postgres
from wick_graph.store.database.postgres_url import Target, driver, target_of

CONNECT_SECONDS: Final = 10
LOCK_SECONDS: Final = 5
"""Longest wait for a thread that somebody else writes to."""
IDLE_SECONDS: Final = 30
"""Time after which the server gives up a transaction whose process was frozen or cut off."""
_SOON: Final = 2
"""Times that a statement is sent before the server keeps its plan."""
_BEGIN: Final = {
    True: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    False: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
_LOCKED: Final = "RETURNING id, generation, last_access, ttl, version"
_WAIT: Final = (
    f"UPDATE threads SET version = version + 1 WHERE tenant = %s AND thread = %s {_LOCKED}"
)
_TRY: Final = (
    "UPDATE threads SET version = version + 1 WHERE id = (SELECT id FROM threads "
    f"WHERE tenant = %s AND thread = %s FOR UPDATE SKIP LOCKED) {_LOCKED}"
)
_FIND: Final = (
    "SELECT id, generation, last_access, ttl, version FROM threads "
    "WHERE tenant = %s AND thread = %s"
)
_LOST: Final = ("08", "57P0", "25P03", "25P04")
"""Beginnings of the codes with which a server ends a session."""
_AGAIN: Final = ("40001", "40P01")
_ADVICE: Final = (
    (("55P03",), "another process keeps it locked; try again"),
    (_AGAIN, "another process wrote the same rows; try again"),
    (("57014",), "a statement took too long; try again, or raise ?statement_timeout="),
    (("53100",), "the disk is full; free some space and try again"),
    (("53",), "the server has no room for this; try again later"),
    (("25006",), "it is read-only; name the primary server"),
    (("28", "42501"), "the server does not allow this; check the user and its rights"),
    (("3D", "3F"), "there is no such database or schema; make it, or name another"),
    (("42P01",), "a table is gone; restore a backup"),
    (("XX",), "it is damaged; restore a backup"),
)
_CUT: Final = (
    "the connection was lost, and is opened again at the next call; what was not acknowledged may "
    "or may not be stored, so look before you try again"
)
_STARTED: Final = "SELECT extract(epoch FROM pg_postmaster_start_time())::float8"


class PostgresDialect(Dialect):
    """One schema of a PostgreSQL database."""

    locks = True
    lasts = True

    def __init__(
        self, target: Target, synchronous: Synchronous = "FULL", *, reads_only: bool = False
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise StorageError(f"synchronous must be FULL or NORMAL, not {synchronous!r}")
        self._driver = driver()
        self.errors = (self._driver.Error,)
        self._target = target
        self._commit = "on" if synchronous == "FULL" else "off"
        self._ahead = time.time() - time.monotonic()
        self._reads_only = self.reads_only = reads_only

    @property
    def name(self) -> str:
        """The server's, the database's and the schema's names."""
        return f"the database {self._target.name}"

    def now(self) -> float:
        """Return the server's time as of the last transaction, gone on by the steady clock."""
        return time.monotonic() + self._ahead

    def open(self, now: Now) -> Database:
        """Connect, and make the tables where there are none."""
        db = self._connected()
        try:
            self.reads_only = self._reads_only or postgres_schema.is_read_only(db, self._target)
            postgres_schema.prepare(db, self._target, reads_only=self.reads_only)
        except self.errors as error:
            db.close()
            raise self.explained(error) from error
        except BaseException:
            db.close()
            raise
        return db

    def begin(self, db: Database, now: Now, *, write: bool) -> int:
        """Begin a transaction and ask for the time; who else wrote is seen at each thread."""
        assert isinstance(db, Postgres)
        own = now == self.now
        clock = POSTGRES_NOW if own else f"set_config('wick.now', '{now()!r}', true)"
        ((moment, path),) = db.script(
            f"{_BEGIN[write]}; SELECT {clock}, current_setting('search_path')"
        )
        if path.strip('"') != self._target.schema:
            db.script("ROLLBACK")
            raise StorageError(
                f"the database {self._target.name} answers from another session than the one that "
                "was opened; a pooler in between must be in session mode"
            )
        if own:
            self._ahead = moment - time.monotonic()
        return 0

    def began(self, db: Database) -> float:
        """Return when the server was started."""
        assert isinstance(db, Postgres)
        return float(db.script(_STARTED)[0][0])

    def explained(self, error: Exception) -> StorageError:
        """Return the sentence for an error of the server or of the connection."""
        code = getattr(error, "sqlstate", None) or ""
        text = self._target.redacted(str(error)) or type(error).__name__
        advice = next((say for codes, say in _ADVICE if code.startswith(codes)), None)
        if advice is None:
            cut = code.startswith(_LOST) or isinstance(error, self._driver.OperationalError)
            advice = _CUT if cut else "see the cause"
        return StorageError(f"the database {self._target.name} failed ({text}): {advice}")

    def is_final(self, error: BaseException) -> bool:
        """Say whether the same write would fail again."""
        final = (
            *(self._driver.IntegrityError, self._driver.ProgrammingError),
            *(self._driver.DataError, self._driver.NotSupportedError),
        )
        return not isinstance(error, self.errors) or isinstance(error, final)

    def is_lost(self, db: Database) -> bool:
        """Say whether the session is over."""
        return isinstance(db, Postgres) and db.raw.closed

    def may_pass(self, error: BaseException) -> bool:
        """Say whether others were in the way, or the connection was lost."""
        code = getattr(error, "sqlstate", None) or ""
        lost = not code and isinstance(error, self._driver.OperationalError)
        return lost or code.startswith((*_AGAIN, *_LOST))

    def find(self, db: Database, tenant: bytes, key: bytes) -> ThreadRow | None:
        """Return the row of a thread with its version."""
        row: ThreadRow | None = db.execute(_FIND, (tenant, key)).fetchone()
        return row

    def lock(self, db: Database, tenant: bytes, key: bytes, *, wait: bool) -> ThreadRow | None:
        """Lock a thread and count its version up."""
        row: ThreadRow | None = db.execute(_WAIT if wait else _TRY, (tenant, key)).fetchone()
        return row

    def alone(self, db: Database) -> None:
        """Wait for all that are making a thread, and let nobody begin."""
        assert isinstance(db, Postgres)
        db.script("LOCK TABLE threads IN SHARE ROW EXCLUSIVE MODE")

    def make(self, db: Database, values: Sequence[Any]) -> int | None:
        """Insert a thread, unless somebody else does so first; then wait for him."""
        row = db.execute(sql.NEW_THREAD_OR_NONE, values).fetchone()
        return None if row is None else int(row[0])

    def exists(self) -> bool:
        """Say whether our tables are there."""
        db = self._connected()
        try:
            return postgres_schema.version_of(db, self._target) > 0
        except self.errors as error:
            raise self.explained(error) from error
        finally:
            db.close()

    def _connected(self) -> Postgres:
        try:
            raw = self._driver.connect(
                self._target.conninfo,
                autocommit=True,
                prepare_threshold=_SOON,
                **self._settings(),
            )
        except self.errors as error:
            text = self._target.redacted(str(error))
            raise StorageError(
                f"the database {self._target.name} cannot be reached ({text}); check that the "
                "server runs, and the address, user and password"
            ) from None
        raw.adapters.register_dumper(int, self._driver.types.numeric.Int8BinaryDumper)
        try:
            db = Postgres(raw)
            db.script(
                f"""SET search_path TO "{self._target.schema}";
                SET statement_timeout TO '{self._target.timeout}';
                SET lock_timeout TO '{LOCK_SECONDS}s';
                SET idle_in_transaction_session_timeout TO '{IDLE_SECONDS}s';
                SET synchronous_commit TO {self._commit};
                SET client_encoding TO 'UTF8'"""
            )
        except self.errors as error:
            raw.close()
            raise self.explained(error) from error
        return db

    def _settings(self) -> dict[str, Any]:
        """Return libpq's settings that the URL does not name."""
        known = self._driver.conninfo.conninfo_to_dict(self._target.conninfo)
        ours = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "wick_graph",
            "keepalives_idle": IDLE_SECONDS,
            "tcp_user_timeout": IDLE_SECONDS * 1000,
        }
        return {name: value for name, value in ours.items() if name not in known}


def postgres(url: str, synchronous: Synchronous, *, reads_only: bool = False) -> PostgresDialect:
    """Return the database that a PostgreSQL URL means; nothing is opened yet.

    Raises:
        StorageError: the URL cannot be read, or psycopg is not installed.
    """
    return PostgresDialect(target_of(url), synchronous, reads_only=reads_only)
