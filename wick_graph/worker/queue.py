"""The queue of runs: its schema, placement of runs that may begin, and the sweep.

Only a run that may begin at once has a job: at most one of each thread, and as many of a tenant as
may be `running`. A job's priority falls with the number of its tenant's runs in the queue and in
workers, by the tenant's weight, so the tenant with the fewest is served first. A job holds the ids
of its tenant and its run, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, Final

from wick_graph.config import AgentsFile
from wick_graph.config.scale import LimitsConfig
from wick_graph.errors import ConfigError, WickError, missing_extra
from wick_graph.store import SqlSaver
from wick_graph.store.row_format import bytes_text, pack_id, text_bytes, unpack_id
from wick_graph.store.sqlite import APPLICATION_ID

TASK: Final = "wick"
"""The name of procrastinate's task; its queues have the names of tenants."""

BATCH: Final = 200
"""The most runs that one transaction places."""

_log: Final = logging.getLogger("wick_graph.worker")

_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(%s::int, hashtext(%s))"

_PLACE: Final = """
WITH busy AS (
    SELECT count(*) AS n FROM streams WHERE tenant = %s AND ended IS NULL AND placed > 0
), next AS (
    SELECT rid FROM streams
    WHERE tenant = %s AND ended IS NULL AND placed = 0 AND status = 'queued'
    ORDER BY rid LIMIT greatest(0, least(%s, %s - (SELECT n FROM busy))) FOR UPDATE SKIP LOCKED
), chosen AS (
    UPDATE streams SET placed = %s FROM next, threads
    WHERE streams.rid = next.rid AND threads.id = streams.thread
    RETURNING streams.rid, encode(streams.run, 'hex') AS run,
        encode(threads.thread, 'hex') AS thread
)
INSERT INTO "{queue}".procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args)
SELECT %s, '{name}',
    (-100 * ((SELECT n FROM busy) + row_number() OVER (ORDER BY rid)) / %s)::int,
    run, jsonb_build_object('tenant', %s::text, 'thread', thread, 'run', run)
FROM chosen ON CONFLICT DO NOTHING
"""

_AGAIN: Final = """
INSERT INTO "{queue}".procrastinate_jobs (queue_name, task_name, queueing_lock, args)
SELECT tenant, '{name}', run, jsonb_build_object('tenant', tenant, 'thread', thread, 'run', run)
FROM unnest(%s::text[], %s::text[], %s::text[]) AS lost (tenant, thread, run) ON CONFLICT DO NOTHING
"""
"""Runs that had begun come before all that wait: their priority is 0."""

_HEADS: Final = """
UPDATE streams SET placed = 0 FROM (
    SELECT DISTINCT ON (thread) rid FROM streams WHERE ended IS NULL ORDER BY thread, rid
) AS heads WHERE heads.rid = streams.rid AND tenant IS NOT NULL AND placed IS NULL
"""

_STALLED: Final = (
    'DELETE FROM "{queue}".procrastinate_workers '
    "WHERE last_heartbeat < now() - make_interval(secs => {seconds})",
    """DELETE FROM "{queue}".procrastinate_jobs AS job
    WHERE status NOT IN ('todo', 'doing') OR (status = 'doing' AND (
        worker_id IS NULL
        OR queueing_lock NOT IN (SELECT encode(run, 'hex') FROM streams WHERE ended IS NULL)
    ))""",
)
"""Workers without a sign of life, their jobs, and jobs of runs that have ended."""

_FORGET: Final = """
DELETE FROM "{queue}".procrastinate_jobs
WHERE worker_id = %s AND status = 'doing' AND NOT id = ANY(%s::bigint[])
"""

_KNOWN: Final = """
SELECT count(*) FROM streams AS s JOIN threads AS t ON t.id = s.thread
WHERE t.tenant = %s AND t.thread = %s AND s.run = %s AND s.ended IS NULL
AND (s.status <> 'queued' OR s.placed > 0)
"""

_LEADS: Final = """
SELECT pg_try_advisory_xact_lock({application}, hashtext('{queue}/sweep')) AND NOT EXISTS (
    SELECT 1 FROM "{queue}".procrastinate_workers
    WHERE id < %s AND last_heartbeat > now() - make_interval(secs => {seconds})
)
"""
"""The worker leads that was registered first, unless it is frozen: so it holds no lock while it
does nothing."""

_LOST: Final = """
SELECT s.tenant, t.thread, s.run FROM streams AS s JOIN threads AS t ON t.id = s.thread
WHERE s.ended IS NULL AND s.tenant IS NOT NULL AND s.placed > 0 AND s.status = 'queued'
AND NOT EXISTS (
    SELECT 1 FROM "{queue}".procrastinate_jobs WHERE queueing_lock = encode(s.run, 'hex')
) ORDER BY s.rid LIMIT 1000
"""

_WAITING: Final = """
SELECT DISTINCT tenant FROM streams WHERE ended IS NULL AND tenant IS NOT NULL AND placed = 0
"""


RunIds = tuple[str, str, str]
"""The tenant, the thread and the id of a run."""


def library() -> Any:
    """Import procrastinate.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import procrastinate  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise ConfigError(missing_extra("workers", "procrastinate", "workers")) from None
    return procrastinate


class RunQueue:
    """The queue of a database, for all its tenants.

    Raises:
        ConfigError: The store is not PostgreSQL, or procrastinate is not installed.
        StorageError: The database cannot be used.
    """

    def __init__(self, file: AgentsFile) -> None:
        if not file.store_url.startswith("postgres"):
            raise ConfigError(
                "workers need PostgreSQL; name a database as store:, or leave the mode embedded"
            )
        schema = library().schema.SchemaManager.get_schema()
        self.limits: Callable[[], LimitsConfig] = lambda: file.limits
        """Returns the limits of tenants, which a reload may change."""
        self.schema = file.workers.queue_schema
        self.saver = SqlSaver.from_url(
            file.store_url, keys=file.keys_source, pool_size=file.pool.size
        )
        """A store of the queue's own: it shares the process's sessions, and waits for no run."""
        self.tell: Callable[[], object] = lambda: None
        """Called after jobs were added."""
        self._make(schema)

    def close(self) -> None:
        """Close the store."""
        self.saver.close()

    def _make(self, schema: str) -> None:
        """Make the schema of the queue if there is none."""
        with self.saver._core.writing(alone=True) as db:
            db.execute(_ONE_AT_A_TIME, (APPLICATION_ID, self.schema))
            found = db.execute("SELECT to_regclass(%s)", (f'"{self.schema}".procrastinate_jobs',))
            if found.fetchone()[0] is None:
                made: Any = db
                made.script(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
                made.script(f'SET LOCAL search_path TO "{self.schema}"; {schema}')
                # A NOTIFY in each commit that places a run would let these commits wait in line.
                made.script(
                    "DROP TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1 "
                    "ON procrastinate_jobs"
                )

    def query(self, text: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Run one of procrastinate's statements in a transaction of its own."""
        with self.saver._core.writing(alone=True) as db:
            db.execute(self._path)
            cursor: Any = db.execute(text, arguments)  # type: ignore[arg-type]  # by name
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in (cursor if names else ())]

    @property
    def _path(self) -> str:
        """Let the functions of procrastinate's triggers find its tables in this transaction."""
        return (
            "SELECT set_config('search_path', "
            f"current_setting('search_path') || ', \"{self.schema}\"', true)"
        )

    def waiting(self, tenant: str) -> int:
        """Return how many runs of a tenant may wait."""
        return self.limits().share(tenant).waiting

    async def place(self, tenant: str) -> None:
        """Give waiting runs of a tenant to the workers; if this fails, the sweep does it."""
        try:
            placed = await self.saver.streams.run(self.place_now, tenant)
        except WickError as error:
            _log.warning("runs of %s are placed by the next sweep: %s", tenant, error)
            return
        if placed:
            self.tell()

    def place_now(self, tenant: str) -> int:
        """Place waiting runs of a tenant in one short transaction; return how many."""
        share, core = self.limits().share(tenant), self.saver._core
        key = text_bytes(tenant)
        with core.writing(alone=True) as db:
            db.execute(_ONE_AT_A_TIME, (APPLICATION_ID, f"{self.schema}/{tenant}"))
            db.execute(self._path)
            limits = (BATCH, share.running, core.now())
            values = (key, key, *limits, tenant, share.weight, tenant)
            return db.execute(self._of(_PLACE), values).rowcount

    def requeue(self, runs: Collection[RunIds]) -> int:
        """Add jobs for runs that no worker executes; return how many were added."""
        if not runs:
            return 0
        tenants = [tenant for tenant, _, _ in runs]
        threads = [text_bytes(thread_id).hex() for _, thread_id, _ in runs]
        keys = [pack_id(run_id).hex() for _, _, run_id in runs]
        with self.saver._core.writing(alone=True) as db:
            db.execute(self._path)
            return db.execute(self._of(_AGAIN), (tenants, threads, keys)).rowcount

    def knows(self, tenant: str, thread_id: str, run_id: str) -> bool:
        """Return whether a tenant has an unfinished run that was placed or has begun."""
        with self.saver._core.reading() as db:
            row = db.execute(
                _KNOWN, (text_bytes(tenant), text_bytes(thread_id), pack_id(run_id))
            ).fetchone()
        return bool(row[0])

    def forget(self, worker: int, active: Collection[int]) -> None:
        """Delete the jobs of a worker that it does not work on; the sweep adds others if needed."""
        with self.saver._core.writing(alone=True) as db:
            db.execute(self._path)
            db.execute(self._of(_FORGET), (worker, [*active]))

    def later(self, seconds: float) -> datetime:
        """Return a moment by the database's clock."""
        return datetime.fromtimestamp(self.saver._core.now() + seconds, UTC)

    def sweep(self, worker: int, beat: float, seconds: float) -> int:
        """Repair the queue from the rows, if this worker leads; return how many jobs were added.

        Args:
            worker: The number of this worker.
            beat: A worker without a sign of life for so long does not lead.
            seconds: A worker without one for so long counts as dead.
        """
        found = self._looked(worker, beat, seconds)
        if found is None:
            return 0
        lost, waiting = found
        orphans = self.saver.streams.orphans()
        made = self.requeue([*lost, *orphans])
        return made + sum(map(self.place_now, waiting))

    def _looked(
        self, worker: int, beat: float, seconds: float
    ) -> tuple[list[RunIds], list[str]] | None:
        with self.saver._core.writing(alone=True) as db:
            db.execute(self._path)
            leads = self._of(_LEADS, seconds=repr(float(beat)), application=str(APPLICATION_ID))
            if not db.execute(leads, (worker,)).fetchone()[0]:
                return None
            db.execute(_HEADS)
            for text in _STALLED:
                db.execute(self._of(text, seconds=repr(float(seconds))))
            found = db.execute(self._of(_LOST)).fetchall()
            lost = [
                (bytes_text(bytes(row[0])), bytes_text(bytes(row[1])), unpack_id(bytes(row[2])))
                for row in found
            ]
            waiting = [bytes_text(bytes(row[0])) for row in db.execute(_WAITING).fetchall()]
        return lost, waiting

    def _of(self, text: str, **more: str) -> str:
        return text.format(queue=self.schema, name=TASK, **more)


def ids_in(arguments: Any) -> RunIds | None:
    """Return the ids that a job holds; None if it holds none."""
    try:
        thread, run = (bytes.fromhex(arguments[name]) for name in ("thread", "run"))
        return str(arguments["tenant"]), bytes_text(thread), unpack_id(run)
    except (KeyError, TypeError, ValueError):
        return None
