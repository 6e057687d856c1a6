"""The rows of the journal: pages of moments, runs, blobs; runs found without their thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

from wick_graph.errors import StorageError, ThreadNotFoundError
from wick_graph.store.checkpoint_read import Reader, delta_history, find_anywhere
from wick_graph.store.codec import Codec
from wick_graph.store.connection import Recorder, StoreConnection, is_alive
from wick_graph.store.dialect import Database
from wick_graph.store.digests import BLOBS, LANE_BITS, MOMENTS, PLACES, RUN_ROW, RUNS, row_hash
from wick_graph.store.later import schema, sql, statements
from wick_graph.store.row_format import Seals, bytes_text, pack_id, text_bytes, unpack_id
from wick_graph.store.texts import Prepared
from wick_graph.store.thread_cache import ThreadCache

# --- The rows of a thread's journal: pages of moments, runs, and blobs.
#
# The journal (`wick_graph.journal`) defines the content of a page; the store only sees bytes with a
# check value. Pages are added and never changed. A page's key ends in the number of its last
# moment.


KEY: Final = b""
"""The hash of the blob that holds the thread's key instead of content."""

_KEY_BYTES: Final = 16

_PAGES: Final = 64
"""Pages per read."""

ALL: Final = 2**62


@dataclass(slots=True, kw_only=True)
class RunRow:
    """A row of `runs`."""

    number: int
    run: bytes
    branch: int
    status: str
    started: float
    ended: float | None
    body: bytes | None
    """None if the row is damaged."""


@dataclass(slots=True)
class Batch:
    """The additions of one transaction to a journal."""

    page: tuple[int, bytes] | None = None
    """The number of its last moment, and its content."""
    first: int = 0
    """The number of its first moment."""
    blobs: list[tuple[bytes, bytes]] = field(default_factory=list)
    run: RunRow | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it was read."""

    last: int
    body: bytes | None
    """None if the row is damaged."""


class JournalRows:
    """The journal of one thread in a store."""

    def __init__(self, core: StoreConnection, codec: Codec, thread_id: str) -> None:
        self._core = core
        self.codec = codec
        self.thread_id = thread_id
        self._name = text_bytes(thread_id)
        self._number: int | None = None
        self._kept: list[Batch] = []
        self._cache: ThreadCache | None = None
        self._reader: Reader | None = None
        self.is_sharing = False
        """Whether equal parts of checkpoints are the same objects."""

    # --- Writing.

    def write(self, db: Database, thread: int, *batches: Batch) -> None:
        """Add batches in the caller's transaction, and those of a rolled-back one again.

        The transaction may still fail, already here, and be tried again without these batches. So
        the last ones are kept until a commit.
        """
        kept, self._kept = self._kept, [*self._kept, *batches][-_PAGES:]
        for one in (*self._missing(db, thread, kept), *batches):
            self._put(db, thread, one)

    def is_overtaken(self, db: Database, thread: int) -> bool:
        """Return whether others have taken the numbers of a rolled-back transaction's moments.

        Its batches are forgotten then.
        """
        cache, missing = self._cache, self._missing(db, thread, self._kept)
        first = next((one.first for one in missing if one.page is not None), None)
        if first is None or self.last(db, thread) < first:
            self._cache = cache  # `write` asks again
            return False
        self._kept = []
        return True

    @property
    def is_unsure(self) -> bool:
        """Whether a batch is not known to be committed."""
        return bool(self._kept)

    def ends_transaction(self, error: Exception) -> bool:
        """Return whether the open transaction cannot go on after an error: it must be raised."""
        dialect = self._core.dialect
        return isinstance(error, dialect.errors) and not dialect.is_final(error)

    def _put(self, db: Database, thread: int, batch: Batch) -> None:
        _add(db, self._seals(thread), thread, batch)
        self._core.when_committed(partial(self._forget, batch))

    def _forget(self, batch: Batch) -> None:
        self._kept = [one for one in self._kept if one is not batch]

    def recorder(self) -> Recorder | None:
        """Return what adds moments to each transaction that writes to the thread, or None."""
        return self._core.recorders.get(self.thread_id)

    def set_recorder(self, recorder: Recorder | None) -> None:
        """Set or remove it."""
        if recorder is None:
            self._core.recorders.pop(self.thread_id, None)
        else:
            self._core.recorders[self.thread_id] = recorder

    def flush_into(self, add: Callable[[Database, int], None]) -> None:
        """Call such a function in a transaction of its own; make the thread if there is none.

        It may be called again, if the transaction was rolled back.
        """

        def work(db: Database) -> None:
            add(db, self._core.thread_for_writing(db, self.thread_id).id)

        self._core.apply(self.thread_id, work)

    def flush(self, apply: Any) -> None:
        """Run a function in a transaction of its own, and commit it."""
        with self._core.writing(self.thread_id) as db:
            apply(db)

    @property
    def is_encrypted(self) -> bool:
        """Whether the database must reveal nothing of a value, not even its hash."""
        return self._core.sealing.keys is not None

    async def aflush(self, apply: Any) -> None:
        """Do `flush` in the store's thread."""
        await self._core.worker.run(self.flush, apply)

    def _missing(self, db: Database, thread: int, kept: list[Batch]) -> list[Batch]:
        """Return those of these batches that were rolled back; others of their commit may stand."""
        cache, before = self._core.caches.get(self._name), self._cache
        self._cache = cache
        if cache is not None and cache is before:
            return []
        return [one for one in kept if not self._is_there(db, thread, one)]

    def _is_there(self, db: Database, thread: int, batch: Batch) -> bool:
        if batch.page is None:  # a run's row alone, which may be written again
            return False
        rid = thread << LANE_BITS | batch.page[0]
        row = db.execute(statements.PAGES_FROM, (rid, rid, 1, 0)).fetchone()
        return row is not None and self._unsealed(thread, row[1], "moments", rid) == batch.page[1]

    # --- Reading.

    def reading(self) -> Any:
        """Hold one consistent view of the thread."""
        return self._core.reading(self.thread_id)

    def joining(self) -> Any:
        """Read in the transaction that writes to the thread now."""
        return self._core.writing(self.thread_id)

    def now(self) -> float:
        """Return the store's time."""
        return self._core.now()

    async def run_in_store(self, work: Any) -> Any:
        """Run a function in the store's thread."""
        return await self._core.worker.run(work)

    def thread(self, db: Database) -> int:
        """Return the thread's number.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        row = db.execute(statements.THREAD, (self._core.tenant, self._name)).fetchone()
        if row is None:
            raise ThreadNotFoundError(
                f"there is no thread {self.thread_id!r}; list the threads to see them"
            )
        return int(row[0])

    def is_new(self, thread: int) -> bool:
        """Return, once, whether the open transaction knows that the thread has no row here yet."""
        core, cache = self._core, self._core.caches.get(self._name)
        known = cache is not None and cache.id == thread and core.knows_now(cache)
        return known and cache is not None and cache.last == 0 and cache.is_first("journal")

    def last(self, db: Database, thread: int) -> int:
        """Return the number of the thread's last moment; 0 if there is none."""
        low = thread << LANE_BITS
        row = db.execute(statements.LAST_PAGE, (low, low | PLACES)).fetchone()
        return 0 if row[0] is None else int(row[0]) & PLACES

    def pages(self, db: Database, thread: int, after: int, most: int = _PAGES) -> list[Page]:
        """Return the next pages that end after a moment, in order."""
        low = thread << LANE_BITS
        found = db.execute(
            statements.PAGES_FROM, (low | after + 1, low | PLACES, most, 0)
        ).fetchall()
        return [
            Page(rid & PLACES, self._unsealed(thread, body, "moments", rid)) for rid, body in found
        ]

    def pages_back(
        self, db: Database, thread: int, upto: int, most: int = _PAGES
    ) -> Iterator[Page]:
        """Yield pages backwards, from the one with a given moment; read `most` at a time."""
        low = thread << LANE_BITS
        held = db.execute(statements.PAGES_FROM, (low | upto, low | PLACES, 1, 0)).fetchone()
        at = held[0] if held is not None else low | upto
        while found := db.execute(statements.PAGES_TO, (low, at, most, 0)).fetchall():
            for rid, body in found:
                yield Page(rid & PLACES, self._unsealed(thread, body, "moments", rid))
            at = found[-1][0] - 1

    def run_rows(self, db: Database, thread: int) -> list[RunRow]:
        """Return the thread's runs, the oldest first."""
        return [
            self._run(thread, row)
            for row in db.execute(statements.JOURNAL_RUNS, (thread,)).fetchall()
        ]

    def last_run(self, db: Database, thread: int) -> RunRow | None:
        """Return the thread's latest run."""
        row = db.execute(statements.LAST_RUN, (thread, 1, 0)).fetchone()
        return None if row is None else self._run(thread, row)

    def blob(self, db: Database, thread: int, hashed: bytes) -> bytes:
        """Return a blob's content.

        Raises:
            StorageError: It is missing or damaged.
        """
        row = db.execute(statements.BLOB, (thread, hashed)).fetchone()
        if row is None:
            raise StorageError(
                f"table blobs of thread {self.thread_id!r} is damaged: a value is missing; "
                "restore a backup"
            )
        what = f"table blobs of thread {self.thread_id!r}"
        return self._seals(thread).unseal(row[0], what, thread, hashed)

    def contents(self, db: Database, thread: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the hash and the content of each blob; damaged ones are left out."""
        for hashed, _, sealed in db.execute(statements.BLOBS, (thread,)).fetchall():
            body = self._unsealed(thread, sealed, thread, hashed)
            if body is not None:
                yield hashed, body

    def secret(self, db: Database, thread: int) -> bytes | None:
        """Return the thread's key; None before its first run."""
        row = db.execute(statements.BLOB, (thread, KEY)).fetchone()
        return None if row is None else self.blob(db, thread, KEY)

    def is_running(self, db: Database, thread: int) -> bool:
        """Return whether a run holds the thread now."""
        row = db.execute(statements.HOLDER, (thread,)).fetchone()
        return row is not None and row[1] > self._core.now() and is_alive(row[0])

    def parent_of(self, db: Database, thread: int, checkpoint: bytes) -> bytes | None:
        """Return the parent of a checkpoint of the outermost namespace."""
        row = db.execute(statements.PARENT, (thread, checkpoint)).fetchone()
        return None if row is None else row[0]

    def head(self, db: Database, thread: int) -> bytes | None:
        """Return the thread's latest checkpoint."""
        found: bytes | None = db.execute(statements.HEAD_OF_ALL, (thread, 1, 0)).fetchone()[0]
        return found

    def head_id(self, db: Database, thread: int) -> str | None:
        """Return the id of the thread's latest checkpoint."""
        head = self.head(db, thread)
        return None if head is None else unpack_id(head)

    def last_id_of_run(self, db: Database, thread: int, run: bytes) -> str | None:
        """Return the id of the latest checkpoint that a run made."""
        found = self.last_of_run(db, thread, run)
        return None if found is None else unpack_id(found)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Let equal parts of checkpoints be the same objects, which the block must not change."""
        self.is_sharing, self._reader = True, None
        try:
            yield
        finally:
            self.is_sharing, self._reader = False, None

    def checkpoint(self, db: Database, checkpoint_id: str) -> CheckpointTuple | None:
        """Return a checkpoint with its writes; items are read once."""
        cache = self._core.thread(db, self.thread_id)
        row = None if cache is None else find_anywhere(db, cache, checkpoint_id)
        if cache is None or row is None:
            return None
        if self._reader is None:
            self._reader = Reader(db, cache, self.codec, self.thread_id)
        self._reader = self._reader.continued(db, cache)
        if self.is_sharing and self._reader.made is None:
            self._reader.made = {}
        return self._reader.checkpoint(row)

    def deltas(
        self, db: Database, checkpoint_id: str, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of delta channels up to a checkpoint, as the saver does."""
        cache = self._core.thread(db, self.thread_id)
        row = None if cache is None else find_anywhere(db, cache, checkpoint_id)
        reader = None if cache is None else Reader(db, cache, self.codec, self.thread_id)
        return delta_history(reader, row, channels)

    def last_of_run(self, db: Database, thread: int, run: bytes) -> bytes | None:
        """Return the latest checkpoint that a run made."""
        row = db.execute(statements.LAST_OF_RUN, (thread, run, 1, 0)).fetchone()
        found: bytes | None = row[0]
        return found

    def size(self, db: Database, thread: int) -> int:
        """Return the bytes of the journal's content."""
        low = thread << LANE_BITS
        paged = db.execute(statements.PAGE_BYTES, (low, low | PLACES)).fetchone()[0]
        kept = db.execute(statements.BLOB_BYTES, (thread,)).fetchone()[0]
        return int(paged or 0) + int(kept or 0)

    def _run(self, thread: int, row: Sequence[Any]) -> RunRow:
        number, run, branch, status, started, ended, sealed = row
        body = self._unsealed(thread, sealed, thread, number)
        return RunRow(
            number=number,
            run=run,
            branch=branch,
            status=status,
            started=started,
            ended=ended,
            body=body,
        )

    def _seals(self, thread: int) -> Seals:
        return self._core.seals(thread, self._name)

    def _unsealed(self, thread: int, sealed: bytes, *context: Any) -> bytes | None:
        try:
            return self._seals(thread).unseal(sealed, "a row", *context)
        except StorageError:
            return None


def copy(db: Database, old: Seals, source: int, to: Database, new: Seals, target: int) -> None:
    """Copy a thread's journal to another thread, in any database; leave damaged rows out."""

    def moved(sealed: bytes, before: tuple[Any, ...], after: tuple[Any, ...]) -> bytes | None:
        try:
            return new.seal(old.unseal(sealed, "the journal", *before), *after)
        except StorageError:
            return None

    low = source << LANE_BITS
    for rid, sealed in db.execute(statements.PAGES_FROM, (low, low | PLACES, ALL, 0)).fetchall():
        made = target << LANE_BITS | rid & PLACES
        body = moved(sealed, ("moments", rid), ("moments", made))
        if body is not None:
            to.execute(statements.PUT_PAGE, (made, body))
            to.account.add_body(MOMENTS, target, body)
    for number, *rest, sealed in db.execute(statements.JOURNAL_RUNS, (source,)).fetchall():
        body = moved(sealed, (source, number), (target, number))
        if body is not None:
            to.execute(statements.PUT_JOURNAL_RUN, (target, number, *rest, body))
            to.account.add(RUNS, target, row_hash((number, *rest), body))
    for hashed, size, sealed in db.execute(statements.BLOBS, (source,)).fetchall():
        body = moved(sealed, (source, hashed), (target, hashed))
        if body is not None:
            to.execute(statements.NEW_BLOB, (target, hashed, size, body))
            to.account.add(BLOBS, target, row_hash((hashed, size), body))


RUN_BYTES: Final = 4
"""A page's content begins with the number of its run, little-endian."""


def page_run(seals: Seals, rid: int, sealed: bytes) -> int | None:
    """Return the number of the run that a sealed page belongs to; None if it cannot be read."""
    try:
        content = seals.content(sealed, "a page", "moments", rid)
    except StorageError:
        return None
    return int.from_bytes(content[:RUN_BYTES], "little")


def _add(db: Database, seals: Seals, thread: int, batch: Batch) -> None:
    seal = seals.seal
    for hashed, body in batch.blobs:
        facts, sealed = (hashed, len(body)), seal(body, thread, hashed)
        if db.execute(statements.NEW_BLOB, (thread, *facts, sealed)).rowcount:
            db.account.add(BLOBS, thread, row_hash(facts, sealed))
    if batch.page is not None:
        last, content = batch.page
        rid = thread << LANE_BITS | last
        sealed = seal(content, "moments", rid)
        if db.execute(statements.PUT_PAGE, (rid, sealed)).rowcount:
            db.account.add_body(MOMENTS, thread, sealed)
    if batch.run is not None:
        row = batch.run
        keys = (thread, row.number, row.run, row.branch, row.status, row.started, row.ended)
        sealed = seal(row.body or b"", thread, row.number)
        before = db.execute(RUN_ROW, (thread, row.number)).fetchone()
        db.execute(statements.PUT_JOURNAL_RUN, (*keys, sealed))
        columns = [*keys[1:]]
        if before is not None:  # the run's id and start stay as they were
            db.account.remove(RUNS, thread, row_hash(before[:-1], before[-1]))
            columns[1], columns[4] = before[1], before[4]
        db.account.add(RUNS, thread, row_hash(columns, sealed))


# --- Recorded runs, across threads.


def _runs() -> Any:
    own, thread = schema.runs.c, schema.threads.c
    query = sql.select(thread.thread, own.run, own.status, own.started, own.ended)
    query = query.join(schema.threads, thread.id == own.thread)
    return query.where(thread.tenant == sql.bindparam("tenant"))


def _by_id() -> Any:
    own = schema.runs.c
    return _runs().where(own.run == sql.bindparam("r")).order_by(own.started.desc())


def _latest() -> Any:
    own = schema.runs.c
    query = _runs().order_by(own.started.desc(), own.rid.desc())
    return query.limit(sql.bindparam("n")).offset(sql.bindparam("o"))


def _below() -> Any:
    started = schema.runs.c.started
    query = _runs().where(
        schema.threads.c.parent == sql.bindparam("p"),
        started >= sql.bindparam("low"),
        started <= sql.bindparam("high"),
    )
    return query.order_by(started)


_BY_ID: Final = Prepared(_by_id, "tenant", "r")

_LATEST: Final = Prepared(_latest, "tenant", "n", "o")

_BELOW: Final = Prepared(_below, "tenant", "p", "low", "high")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The thread and the times of a recorded run."""

    thread_id: str
    run_id: str
    status: str
    started: float
    ended: float | None
    """None while it goes on, or if its process died."""


class RecordedRuns:
    """The recorded runs of a tenant, over all its threads."""

    def __init__(self, core: StoreConnection) -> None:
        self._core = core

    def by_id(self, run_id: str) -> RecordedRun | None:
        """Return a run; if a crash cut it in two, its latest part."""
        found = self._all(_BY_ID, pack_id(run_id))
        return found[0] if found else None

    def latest(self, limit: int) -> list[RecordedRun]:
        """Return the runs that began last."""
        return self._all(_LATEST, limit, 0)

    def below(self, thread_id: str, since: float, until: float) -> list[RecordedRun]:
        """Return the runs of a thread's children that began between two times."""
        return self._all(_BELOW, text_bytes(thread_id), since, until)

    def _all(self, query: Any, *values: Any) -> list[RecordedRun]:
        with self._core.reading() as db:
            rows: Sequence[Any] = db.execute(query, (self._core.tenant, *values)).fetchall()
        return [
            RecordedRun(bytes_text(thread), unpack_id(run), status, started, ended)
            for thread, run, status, started, ended in rows
        ]
