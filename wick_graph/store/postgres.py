"""PostgreSQL: many processes on many machines; each locks the threads that it writes to.

The first statement of a transaction that writes to a thread locks the thread's row and increments
its version. No transaction waits for a row while it holds one. The clock is the server's: each
transaction begins by reading it, and this machine's steady clock continues from there. To set the
time for a role or a database, set `wick.now`; tests do. Sessions keep no state (`store.sessions`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from sqlalchemy import BigInteger, Float, Integer, LargeBinary, SmallInteger, Table, Text
from sqlalchemy.schema import CreateIndex, CreateTable

from wick_graph.constants import POOL_SIZE
from wick_graph.errors import StorageError, missing_extra
from wick_graph.store import sessions, statements
from wick_graph.store.dialect import (
    OPENING,
    Database,
    Dialect,
    Floats,
    Now,
    Synchronous,
    ThreadRow,
)
from wick_graph.store.digests import (
    MIGRATIONS,
    OLDEST_BESIDE,
    QUEUE_INDEXES,
    SCHEMA_VERSION,
    Migration,
)
from wick_graph.store.schema import metadata
from wick_graph.store.sessions import DIALECT, Postgres
from wick_graph.store.sqlite import APPLICATION_ID
from wick_graph.store.statements import POSTGRES_NOW

if TYPE_CHECKING:
    from psycopg import Connection


# --- PostgreSQL URLs: the server, our schema, and the secrets to hide.


_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_TIMEOUT: Final = re.compile(r"[0-9]+(ms|s|min)?")

_MISSING: Final = missing_extra("a PostgreSQL store", "psycopg", "postgres")


@dataclass(frozen=True, slots=True)
class Target:
    """The server, database and schema of a store."""

    conninfo: str = field(repr=False)
    schema: str
    timeout: str
    """The longest time of one statement."""
    name: str
    """The name in messages, without user and password."""
    secrets: tuple[str, ...] = field(repr=False)

    def redacted(self, text: str) -> str:
        """Remove the URL's secrets from a text of the driver."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())


_UNREADABLE: Final = (
    "the store's URL cannot be read; write postgresql://user:password@host:5432/name"
)


def driver() -> Any:
    """Import psycopg.

    Raises:
        StorageError: It is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise StorageError(_MISSING) from None
    return psycopg


def target_of(url: str) -> Target:
    """Parse `postgresql://user:password@host:port/name?schema=wick`; libpq takes other options.

    Raises:
        StorageError: The URL cannot be parsed; the text never quotes it, because it may hold a
            password.
    """
    psycopg = driver()
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StorageError(_UNREADABLE) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema, timeout = options.pop("schema", "wick"), options.pop("statement_timeout", "30s")
    if not _SCHEMA.fullmatch(schema):
        raise StorageError(
            "the schema of a PostgreSQL store is not valid; use letters, digits and _ in ?schema="
        )
    if not _TIMEOUT.fullmatch(timeout):
        raise StorageError("statement_timeout takes a time such as 30s or 500ms")
    query = urlencode(options, quote_via=quote)
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    try:
        known = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.Error:
        raise StorageError(_UNREADABLE) from None
    host, port = known.get("host") or "localhost", known.get("port") or "5432"
    name = f"{known.get('dbname') or known.get('user') or ''} at {host}:{port} (schema {schema})"
    secrets = {str(known[key]) for key in ("password", "sslpassword") if known.get(key)}
    secrets |= {quote(secret, safe="") for secret in secrets}
    if parts.password:
        secrets.add(parts.password)
    return Target(conninfo, schema, timeout, name, tuple(sorted(secrets, key=len, reverse=True)))


# --- Our tables in a PostgreSQL schema: made, brought up to date, and checked.
#
# The table `wick_meta` marks them as ours and holds their version. All changes of the schema are
# one transaction under one lock, so one process makes them while others wait. Programs of two
# releases may work side by side: the newer one migrates first, and its schema names the oldest
# one with programs that it serves. So a schema only adds, and the next one drops what is no
# longer used.


_TYPES: Final = {
    BigInteger: "bigint",
    Integer: "integer",
    SmallInteger: "smallint",
    LargeBinary: "bytea",
    Text: "text",
    Float: "double precision",
}

_NO_COLUMN: Final = "42703"

_LOCK_TAKEN: Final = ("55P03", "57014", "40P01")
"""The error codes of a lock that was not free in time."""

_OWN: Final = {
    "threads": ("version bigint",),
    "memories": ("dims integer", "floats real[]"),
}
"""Columns that SQLite's tables lack. `version` counts the transactions that wrote to a thread; a
process's cache is for one version. `floats` has an item's vectors, of `dims` numbers each."""

_META: Final = """
SELECT application, version, (to_jsonb(m)->>'oldest')::int FROM "{schema}".wick_meta m
"""

_FOUND: Final = """
WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname = '{schema}')
SELECT c.relname, a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attgenerated::text,
    CASE WHEN a.attgenerated = '' AND a.attidentity = '' AND t.typtype <> 'd' THEN CASE
        WHEN d.oid IS NOT NULL THEN pg_get_expr(d.adbin, d.adrelid)
        WHEN NOT a.attnotnull THEN 'NULL' END END
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_attribute a ON a.attrelid = c.oid
LEFT JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT c.relname, 'unique ' || array_to_string(array(
    SELECT a.attname FROM unnest(i.indkey) WITH ORDINALITY k(n, at)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.n ORDER BY k.at), ','), NULL
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_index i ON i.indrelid = c.oid
WHERE i.indisunique
UNION ALL SELECT c.relname, 'trigger ' || t.tgname, NULL
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_trigger t ON t.tgrelid = c.oid
UNION ALL SELECT c.relname, 'rule ' || r.rulename, NULL
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_rewrite r ON r.ev_class = c.oid
WHERE c.relkind <> 'v'
UNION ALL SELECT c.relname, 'constraint ' || k.conname, NULL
FROM ours n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_constraint k ON k.conrelid = c.oid
WHERE k.contype IN ('c', 'f', 'x')
"""

_HARMLESS: Final = re.compile(r"NULL(::[\w ]+)?|true|false|-?\d+|'[^']*'::[\w ]+")
"""Defaults of columns that a later release added: constants, which run nothing."""

_MIGRATE: Final = "run `wick store migrate`"


def version_of(db: Postgres, target: Target, newest: int) -> int:
    """Return the schema's version; 0 if there are no tables of ours yet.

    Raises:
        StorageError: It holds tables of another program, or of a release that serves no programs
            of this one; nothing was changed.
    """
    names = {name for name, *_ in _found(db, target)}
    if "wick_meta" not in names:
        taken = sorted(names.intersection(metadata.tables))
        if taken:
            raise StorageError(
                f"the database {target.name} has tables of another program ({taken[0]}); "
                "name another one with ?schema="
            )
        return 0
    try:
        rows = db.script(_META.format(schema=target.schema))
    except db.errors as error:
        if getattr(error, "sqlstate", None) != _NO_COLUMN:
            raise
        rows = []
    if len(rows) != 1 or rows[0][0] != APPLICATION_ID:
        raise StorageError(
            f"the database {target.name} belongs to another program: its wick_meta is not ours; "
            "name another one with ?schema="
        )
    _, version, oldest = rows[0]
    if version > newest and (oldest is None or oldest > newest):
        raise StorageError(
            f"the database {target.name} was written by a newer wick_graph (schema {version}, "
            f"this one knows {newest}); upgrade wick_graph"
        )
    return int(version)


def is_read_only(db: Postgres, target: Target) -> bool:
    """Return whether this session may not write: a standby, a read-only role, or no rights."""
    held = f"has_table_privilege(to_regclass('\"{target.schema}\".threads'), 'UPDATE')"
    query = f"SELECT current_setting('transaction_read_only') = 'on' OR NOT coalesce({held}, true)"
    return bool(db.script(query)[0][0])


def prepare(db: Postgres, target: Target) -> None:
    """Make the tables if there are none, and compare them with ours.

    Raises:
        StorageError: As in `version_of`, or they are of an older release, or another program has
            changed them.
    """
    version = version_of(db, target, SCHEMA_VERSION)
    if not version:
        version = migrate(db, target, MIGRATIONS)
    if version < SCHEMA_VERSION:
        raise StorageError(
            f"the database {target.name} has schema {version}, and this wick_graph needs "
            f"{SCHEMA_VERSION}; {_MIGRATE} once, and then open it again"
        )
    check(db, target)


def migrate(db: Postgres, target: Target, steps: Sequence[Migration]) -> int:
    """Bring the tables up to the newest schema, or make them; return the version from then on.

    Programs may work meanwhile. They wait while the tables change, and not while this waits: it
    gives up and tries again until all tables are free at the same moment.

    Raises:
        StorageError: As in `version_of`, or the tables were not free for a minute.
    """
    newest = len(steps) + 1
    until = time.monotonic() + MIGRATE_SECONDS
    while True:
        try:
            return _migrated(db, target, steps, newest)
        except db.errors as error:
            if getattr(error, "sqlstate", None) not in _LOCK_TAKEN or db.is_lost:
                raise
            if time.monotonic() > until:
                raise StorageError(
                    f"the tables of the database {target.name} were in use for "
                    f"{MIGRATE_SECONDS:.0f} s; end long transactions and {_MIGRATE} again"
                ) from error
        time.sleep(_PAUSE)


def _migrated(db: Postgres, target: Target, steps: Sequence[Migration], newest: int) -> int:
    one = f"SELECT pg_advisory_xact_lock({APPLICATION_ID}, hashtext('{target.schema}'))"
    db.script(f"{_BEGIN[True]}; SELECT {local_settings(target.schema)}; {one}")
    try:
        version = version_of(db, target, newest)
        if version < newest:
            if version:
                _take_tables(db, target)
                for step in steps[version - 1 :]:
                    step(db)
            else:
                for statement in schema_statements(target.schema):
                    db.script(statement)
            db.script(
                "ALTER TABLE wick_meta ADD COLUMN IF NOT EXISTS oldest integer; "
                f"UPDATE wick_meta SET version = {newest}, oldest = {OLDEST_BESIDE}"
            )
        db.script("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.script("ROLLBACK")
        raise
    return max(version, newest)


def _take_tables(db: Postgres, target: Target) -> None:
    """Lock all tables, or fail within a moment: sooner than the server looks for deadlocks.

    A transaction that writes locks a row of `threads` first, so it waits while it holds nothing.
    """
    found = sorted({name for name, *_ in _found(db, target)} & {*metadata.tables})
    rest = ", ".join(name for name in found if name != "threads")
    db.script("SET LOCAL lock_timeout TO '900ms'; LOCK TABLE threads IN ACCESS EXCLUSIVE MODE")
    db.script(f"SET LOCAL statement_timeout TO '500ms'; LOCK TABLE {rest} IN ACCESS EXCLUSIVE MODE")
    db.script("SET LOCAL statement_timeout TO 0")


def schema_statements(schema: str) -> Iterator[str]:
    """Yield the statements that make a schema with our tables and indexes, in order."""
    yield f'CREATE SCHEMA IF NOT EXISTS "{schema}"'
    yield "CREATE TABLE wick_meta (application bigint NOT NULL, version integer NOT NULL)"
    yield f"INSERT INTO wick_meta VALUES ({APPLICATION_ID}, {SCHEMA_VERSION})"
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=DIALECT))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            # The schema does not name PostgreSQL, which would load its dialect for SQLite too.
            where = index.dialect_options["sqlite"]["where"]
            index.dialect_options["postgresql"]["where"] = where
            yield str(CreateIndex(index).compile(dialect=DIALECT))
    yield f"ALTER TABLE threads ADD COLUMN {_OWN['threads'][0]} NOT NULL DEFAULT 0"
    added = ", ".join(f"ADD COLUMN {column}" for column in _OWN["memories"])
    yield f"ALTER TABLE memories {added}, ALTER COLUMN floats SET STORAGE EXTERNAL"
    yield "ALTER TABLE threads SET (fillfactor = 50)"
    yield from QUEUE_INDEXES


def check(db: Postgres, target: Target) -> None:
    """Compare the schema with ours: it has our tables, and nothing in them runs by itself.

    Tables and columns that a later release added are accepted.

    Raises:
        StorageError: It differs; the text names the first difference. Nothing was changed.
    """
    found: dict[str, dict[str, str | None]] = {}
    for name, part, default in _found(db, target):
        found.setdefault(name, {})[part] = default
    for name, table in metadata.tables.items():
        there, ours = found.get(name, {}), _expected(table)
        names = {part.partition(" ")[0] for part in ours if not part.startswith("unique ")}
        differing = sorted(
            part
            for part in there.keys() ^ ours
            if part in ours
            or part.partition(" ")[0] in names
            or not _HARMLESS.fullmatch(there[part] or "")
        )
        if differing:
            what = f"{name}, {differing[0]}" if name in found else f"table {name} is missing"
            raise StorageError(
                f"the database {target.name} was changed by another program: {what}; "
                "restore a backup"
            )


def _found(db: Postgres, target: Target) -> list[tuple[str, str, str | None]]:
    """Return the parts of each table; with an added column that harms nothing, its default."""
    rows = db.script(_FOUND.format(schema=target.schema))
    return [(str(name), str(part), default) for name, part, default in rows]


def _expected(table: Table) -> set[str]:
    parts = {f"unique {','.join(column.name for column in table.primary_key)}"}
    for column in table.columns:
        kind = next(text for cls, text in _TYPES.items() if type(column.type) is cls)
        parts.add(f"{column.name} {kind}")
    for constraint in table.constraints:
        columns = ",".join(column.name for column in getattr(constraint, "columns", ()))
        parts.add(f"unique {columns}")
    for index in table.indexes:
        if index.unique:
            parts.add(f"unique {','.join(column.name for column in index.columns)}")
    return parts.union(_OWN.get(table.name, ()))


MIGRATE_SECONDS: Final = 60.0
"""The longest time for which a migration tries to have all tables for itself."""

_PAUSE: Final = 0.2

CONNECT_SECONDS: Final = 10

LOCK_SECONDS: Final = 5
"""The longest wait for a thread that another process writes to."""

AWAY_SECONDS: Final = 15.0
"""How long calls wait for a server that was there before: another takes over in a few seconds."""

IDLE_SECONDS: Final = 30
"""Seconds after which the server ends an idle transaction, if its process is frozen or cut off."""

_SOON: Final = 2
"""How often a statement is sent before the server keeps its plan."""

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
"""Prefixes of the error codes that end a session."""

_AGAIN: Final = ("40001", "40P01")

_BY_STATEMENT: Final = "statement pooling mode"

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
    "or may not be stored, so check before you try again"
)

_SERVED: Final = "SELECT pg_backend_pid(), pg_stat_get_bgwriter_stat_reset_time()::text"
"""The process of the server, and since when it counts: it begins again after each crash."""

_STARTED: Final = "SELECT extract(epoch FROM pg_postmaster_start_time())::float8"


class PostgresDialect(Dialect):
    """One schema of a PostgreSQL database."""

    locks = True
    lasts = True

    def __init__(
        self,
        target: Target,
        synchronous: Synchronous = "FULL",
        *,
        reads_only: bool = False,
        pool_size: int = POOL_SIZE,
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise StorageError(f"synchronous must be FULL or NORMAL, not {synchronous!r}")
        self._driver = driver()
        self.errors = (self._driver.Error,)
        self._target = target
        self._local = local_settings(target.schema, target.timeout, synchronous)
        self._pool_size = pool_size
        self._ahead = time.time() - time.monotonic()
        self._known = False
        """The server was reached."""
        self._since: float | None = None
        """Since when it is not; None if it is."""
        self._reads_only = self.reads_only = reads_only

    @property
    def name(self) -> str:
        """The names of the server, the database and the schema."""
        return f"the database {self._target.name}"

    def now(self) -> float:
        """Return the server's time of the last transaction plus the steady time since then."""
        return time.monotonic() + self._ahead

    def open(self, now: Now) -> Database:
        """Look at the tables, and make them if there are none."""
        db = self._connected()
        try:
            self.reads_only = self._reads_only or is_read_only(db, self._target)
            prepare(db, self._target)
        except self.errors as error:
            db.close()
            raise self.explained(error) from error
        except BaseException:
            db.close()
            raise
        return db

    def begin(self, db: Database, now: Now, *, write: bool, light: bool = False) -> int:
        """Begin a transaction and read the time; each thread's version shows other writers.

        None is light: a server may restart while the run goes on.
        """
        assert isinstance(db, Postgres)
        own = now == self.now
        clock = POSTGRES_NOW if own else f"set_config('wick.now', '{now()!r}', true)"
        number = "pg_current_xact_id()::text" if write else "NULL"
        moment = db.begin(f"{_BEGIN[write]}; SELECT {self._local}, {clock}, {number}")
        if own:
            self._ahead = moment - time.monotonic()
        return 0

    def began(self, db: Database) -> float:
        """Return when the server started."""
        assert isinstance(db, Postgres)
        return float(db.script(_STARTED)[0][0])

    def explained(self, error: Exception) -> StorageError:
        """Turn an error of the server or the connection into a sentence with a remedy."""
        code = getattr(error, "sqlstate", None) or ""
        text = self._target.redacted(str(error)) or type(error).__name__
        advice = next((say for codes, say in _ADVICE if code.startswith(codes)), None)
        if _BY_STATEMENT in text:
            advice = "a pooler in this mode has no transactions; set it to transaction mode"
        if advice is None:
            cut = code.startswith(_LOST) or isinstance(error, self._driver.OperationalError)
            advice = _CUT if cut else "see the cause"
        return StorageError(f"the database {self._target.name} failed ({text}): {advice}")

    def is_final(self, error: BaseException) -> bool:
        """Return whether the same write would fail again."""
        final = (
            *(self._driver.IntegrityError, self._driver.ProgrammingError),
            *(self._driver.DataError, self._driver.NotSupportedError),
        )
        return not isinstance(error, self.errors) or isinstance(error, final)

    def is_lost(self, db: Database) -> bool:
        """Return whether the session is over."""
        return isinstance(db, Postgres) and db.is_lost

    def version(self, db: Database) -> int:
        """Return the version of the schema in the database."""
        return int(db.execute("SELECT version FROM wick_meta").fetchone()[0])

    def may_pass(self, error: BaseException) -> bool:
        """Return whether another transaction was in the way, or the connection was lost."""
        code = getattr(error, "sqlstate", None) or ""
        lost = not code and isinstance(error, self._driver.OperationalError)
        return lost or code.startswith((*_AGAIN, *_LOST))

    def find(self, db: Database, tenant: bytes, key: bytes) -> ThreadRow | None:
        """Return the row of a thread with its version."""
        row: ThreadRow | None = db.execute(_FIND, (tenant, key)).fetchone()
        return row

    def lock(self, db: Database, tenant: bytes, key: bytes, *, wait: bool) -> ThreadRow | None:
        """Lock a thread and increment its version."""
        row: ThreadRow | None = db.execute(_WAIT if wait else _TRY, (tenant, key)).fetchone()
        return row

    def alone(self, db: Database) -> None:
        """Wait for the transactions that make threads, and block new ones."""
        assert isinstance(db, Postgres)
        db.script("LOCK TABLE threads IN SHARE ROW EXCLUSIVE MODE")

    def make(self, db: Database, values: Sequence[Any]) -> int | None:
        """Insert a thread, unless another transaction does so first; then wait for it."""
        row = db.execute(statements.NEW_THREAD_OR_NONE, values).fetchone()
        return None if row is None else int(row[0])

    def exists(self) -> bool:
        """Return whether there are tables of ours."""
        db = self._connected()
        try:
            return version_of(db, self._target, SCHEMA_VERSION) > 0
        except self.errors as error:
            raise self.explained(error) from error
        finally:
            db.close()

    def migrate(self) -> int:
        """Bring the tables up to the newest schema; return its number, or that of a newer one."""
        db = self._connected()
        try:
            version = migrate(db, self._target, MIGRATIONS)
            check(db, self._target)
        except self.errors as error:
            raise self.explained(error) from error
        finally:
            db.close()
        return version

    def _connected(self) -> Postgres:
        with OPENING:
            pool = sessions.join(self._target.conninfo, self._pool_size, self._session, self.name)
            return Postgres(pool, self._local, self._driver)

    def _session(self) -> tuple[Connection[Any], Any]:
        """Open a session.

        A pooler shows by the server's process, which is not the one that it named itself. The next
        transaction may be of another process then, so the server keeps no plans of statements.
        """
        raw, mark = self._reached()
        raw.adapters.register_dumper(int, self._driver.types.numeric.Int8BinaryDumper)
        as_array = {"oid": self._driver.adapters.types["float4"].array_oid}
        dumper = type("FloatsDumper", (self._driver.types.string.BytesBinaryDumper,), as_array)
        raw.adapters.register_dumper(Floats, dumper)
        return raw, mark

    def _reached(self) -> tuple[Connection[Any], Any]:
        """Open a session; wait some seconds for a server that was there before."""
        pause = _PAUSE / 4
        while True:
            try:
                made = self._connect()
            except self.errors as error:
                now = time.monotonic()
                if self._since is None:
                    self._since = now
                if now - self._since + pause > (AWAY_SECONDS if self._known else 0):
                    text = self._target.redacted(str(error))
                    raise StorageError(
                        f"the database {self._target.name} cannot be reached ({text}); check that "
                        "the server runs, and the address, user and password"
                    ) from None
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
            else:
                self._known, self._since = True, None
                return made

    def _connect(self) -> tuple[Connection[Any], Any]:
        raw: Connection[Any] = self._driver.connect(
            self._target.conninfo, autocommit=True, prepare_threshold=_SOON, **self._settings()
        )
        try:
            served, mark = raw.execute(_SERVED, prepare=False).fetchone() or (0, None)
        except BaseException:
            raw.close()
            raise
        if served != raw.info.backend_pid:
            raw.prepare_threshold = None
        return raw, mark

    def direct(self) -> tuple[Any, str]:
        """Open a session for notices alone, which notes within seconds that the server is away."""
        soon = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
        ours = {**self._settings(), **soon, "tcp_user_timeout": 10_000}
        ours["application_name"] = "wick_graph notices"
        try:
            raw = self._driver.connect(self._target.conninfo, autocommit=True, **ours)
        except self.errors as error:
            raise self.explained(error) from None
        return raw, f"wick_{blake2b(self._target.schema.encode(), digest_size=8).hexdigest()}"

    def _settings(self) -> dict[str, Any]:
        """Return our defaults for libpq's settings that the URL does not set."""
        known = self._driver.conninfo.conninfo_to_dict(self._target.conninfo)
        ours = {
            "connect_timeout": CONNECT_SECONDS,
            "client_encoding": "UTF8",
            "application_name": "wick_graph",
            "keepalives_idle": IDLE_SECONDS,
            "tcp_user_timeout": IDLE_SECONDS * 1000,
        }
        known.pop("client_encoding", None)
        return {name: value for name, value in ours.items() if name not in known}


def local_settings(schema: str, timeout: str = "0", synchronous: Synchronous = "FULL") -> str:
    """Return what a transaction sets for itself, as the columns of a SELECT."""
    values = {
        "search_path": f'"{schema}"',
        "statement_timeout": timeout,
        "lock_timeout": f"{LOCK_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
        "synchronous_commit": "on" if synchronous == "FULL" else "off",
    }
    return ", ".join(f"set_config('{name}', '{value}', true)" for name, value in values.items())


def postgres(
    url: str, synchronous: Synchronous, *, reads_only: bool = False, pool_size: int = POOL_SIZE
) -> PostgresDialect:
    """Return the database of a PostgreSQL URL, without opening it.

    Raises:
        StorageError: The URL cannot be parsed, or psycopg is not installed.
    """
    return PostgresDialect(target_of(url), synchronous, reads_only=reads_only, pool_size=pool_size)
