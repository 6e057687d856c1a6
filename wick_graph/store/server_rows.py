"""The rows of a server: its runs, the events that its readers got, and access tokens."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, ParamSpec, TypeVar, get_args

from sqlalchemy import bindparam, func, insert, select, update

from wick_graph.errors import ConfigError, StorageError, ThreadBusyError, ThreadNotFoundError
from wick_graph.store import cleanup, queued, statements
from wick_graph.store.cleanup import Event
from wick_graph.store.connection import StoreConnection, is_at_work, owner
from wick_graph.store.digests import LANE_BITS, PLACES, changing_run
from wick_graph.store.keeper import lease_seconds
from wick_graph.store.leases import check_free, is_held
from wick_graph.store.notices import topic
from wick_graph.store.row_format import Context, bytes_text, pack_id, text_bytes, unpack_id
from wick_graph.store.schema import leases, streams, threads, tokens
from wick_graph.store.statements import Now, checked
from wick_graph.store.texts import Prepared, compiled

# --- Access tokens of a server; only their hashes are stored.
#
# A token is `wk_<id>_<secret>`. The secret has 256 random bits and cannot be guessed, so a plain
# hash is enough. The id finds the row; the secret is compared in constant time.


TokenScope = Literal["read", "run", "approve", "debug", "admin"]

SCOPES: Final[tuple[TokenScope, ...]] = get_args(TokenScope)
"""Each includes `read`, and `admin` includes all; the others are independent."""

_FORM: Final = re.compile(r"wk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")

_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def includes(held: str, wanted: TokenScope) -> bool:
    """Return whether a token's scope includes the wanted one."""
    scopes = held.split(",")
    return wanted in scopes or "admin" in scopes or (wanted == "read" and scopes != [""])


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A token, without its secret."""

    id: str
    tenant: str
    name: str
    scope: str
    """One of `SCOPES`, or several with commas between them."""
    created: datetime
    expires: datetime | None
    revoked: datetime | None


class Tokens:
    """The tokens of all tenants of a database."""

    def __init__(self, core: StoreConnection) -> None:
        self._core = core

    def create(
        self, tenant: str, *, name: str = "", scope: str = "run", lasts: float | None = None
    ) -> tuple[str, TokenInfo]:
        """Make a token that lasts for some seconds; return it, this once, with its facts.

        The scope is one of `SCOPES`, or several with commas between them: `run,approve`.

        Raises:
            ConfigError: The tenant's name or the scope is refused.
        """
        if not _TENANT.fullmatch(tenant):
            raise ConfigError(
                f"the tenant {tenant!r:.80} is refused; use 1 to 64 letters, digits, and _ . -, "
                "and begin with a letter or digit"
            )
        unknown = next((one for one in scope.split(",") if one not in SCOPES), None)
        if unknown is not None:
            raise ConfigError(f"the scope {unknown!r:.80} is none of {', '.join(SCOPES)}")
        key, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with self._core.writing() as db:
            now = self._core.now()
            row = {
                "tenant": text_bytes(tenant),
                "token": text_bytes(key),
                "hash": _hash(secret),
                "name": text_bytes(name),
                "scopes": ",".join(one for one in SCOPES if one in scope.split(",")),
                "created": now,
                "expires": None if lasts is None else now + lasts,
            }
            db.execute(*compiled(insert(tokens).values(**checked(tokens, row, new=True))))
            made = self._one(db, key)
        assert made is not None
        return f"wk_{key}_{secret}", made[0]

    def check(self, token: str) -> TokenInfo | None:
        """Return the facts of a token; None if it is unknown, expired or revoked.

        An unknown id takes as long as a wrong secret.
        """
        form = _FORM.fullmatch(token)
        key, secret = form.groups() if form else ("", "")
        with self._core.reading() as db:
            found = self._one(db, key)
            now = self._core.now()
        info, expected = found or (None, bytes(32))
        if not hmac.compare_digest(_hash(secret), expected) or info is None:
            return None
        return info if _is_valid(info, now) else None

    def is_valid(self, key: str) -> bool:
        """Return whether the token with this id is known, and neither expired nor revoked."""
        with self._core.reading() as db:
            found = self._one(db, key)
            return found is not None and _is_valid(found[0], self._core.now())

    def list(self, tenant: str | None = None) -> list[TokenInfo]:
        """Return the tokens of a tenant, or of all; the oldest first."""
        query = select(*statements.TOKEN_COLUMNS).order_by(tokens.c.rid)
        if tenant is not None:
            query = query.where(tokens.c.tenant == text_bytes(tenant))
        with self._core.reading() as db:
            return [_info(row)[0] for row in db.execute(*compiled(query)).fetchall()]

    def revoke(self, key: str) -> bool:
        """Revoke a token by its id, or by the token itself; False if there is no such token."""
        form = _FORM.fullmatch(key)
        with self._core.writing() as db:
            mine = (tokens.c.token == text_bytes(form[1] if form else key),)
            ended = update(tokens).where(*mine)
            ended = ended.values(**checked(tokens, {"revoked": self._core.now()}))
            return bool(db.execute(*compiled(ended)).rowcount)

    def _one(self, db: Any, key: str) -> tuple[TokenInfo, bytes] | None:
        row = db.execute(statements.TOKEN, (text_bytes(key),)).fetchone()
        return None if row is None else _info(row)


def _is_valid(info: TokenInfo, now: float) -> bool:
    return info.revoked is None and (info.expires is None or info.expires.timestamp() > now)


def _info(row: Sequence[Any]) -> tuple[TokenInfo, bytes]:
    key, tenant, name, scope, created, expires, revoked, hashed = row
    info = TokenInfo(
        id=bytes_text(key),
        tenant=bytes_text(tenant),
        name=bytes_text(name),
        scope=scope,
        created=datetime.fromtimestamp(created, UTC),
        expires=None if expires is None else datetime.fromtimestamp(expires, UTC),
        revoked=None if revoked is None else datetime.fromtimestamp(revoked, UTC),
    )
    return info, bytes(hashed)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


# --- A server's runs and their events: rows beside a thread's own.
#
# Events of a thread are numbered from 1, and stored in pages, one for each write. A reader that
# lost its connection or its server continues after the last number that it saw.


RUNNING: Final = "running"

QUEUED: Final = "queued"

QUARANTINED: Final = "quarantined"

UNFINISHED: Final = frozenset({QUEUED, RUNNING, QUARANTINED})

_PLACE: Final = Prepared(
    lambda: select(streams.c.status, streams.c.first).where(
        streams.c.thread == bindparam("t"), streams.c.run == bindparam("r")
    ),
    *("t", "r"),
)

P = ParamSpec("P")

T = TypeVar("T")

_BY: Final = "by"
"""The key, in a row's data, of the server that executes the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """A run that a server was asked for."""

    thread_id: str
    run_id: str
    status: str
    """`queued`, `running`, `quarantined`, or why it stopped."""
    started: float
    ended: float | None
    first: int
    """The number of its first event."""
    asked: Mapping[str, Any]
    """The request, as data."""
    server: str = ""
    """The process and store that execute the run; empty if none does."""
    since: float = 0.0
    """When that server began."""
    named: bool = False
    """Whether the caller named the thread."""
    traceparent: str = ""
    """The span of the request, as W3C's header has it; empty for none."""
    external: bool = False
    """Whether workers execute the run."""
    dead: bool = False
    """Whether the run was ended because it killed its processes."""
    machine: str = ""
    """The machine with the files of the run's agent; empty if all machines share them."""

    @property
    def goes_on(self) -> bool:
        """Whether the run has not ended."""
        return self.status in UNFINISHED

    def tell(self, event: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Make an event of this run."""
        return {"event": event, "run_id": self.run_id, "data": data, "thread_id": self.thread_id}


_FIELDS: Final = {one.name for one in fields(StreamRow)}
"""A later release may store more beside the request."""


class ServerRuns:
    """The runs that a store's servers were asked for, and their events.

    `run` calls any of the methods in the store's thread.
    """

    def __init__(self, core: StoreConnection) -> None:
        self._core = core

    @property
    def server(self) -> str:
        """The name of this process and store; no other has it."""
        return f"{bytes_text(owner())}#{id(self._core):x}"

    def tenants_to_sweep(self) -> list[str]:
        """Return the tenants of the database that have expired threads."""
        query = select(threads.c.tenant).where(threads.c.expires_at <= Now()).distinct()
        with self._core.reading() as db:
            found = db.execute(*compiled(query)).fetchall()
        return sorted(bytes_text(name) for (name,) in found if name != b"\xff")

    def orphans(self) -> list[tuple[str, str, str]]:
        """Return tenant, thread and id of the begun runs of all tenants that no process executes.

        The oldest come first. This only reads; `claim` decides who executes a run.
        """
        query = select(
            threads.c.tenant, threads.c.thread, streams.c.run, leases.c.owner, leases.c.until
        )
        query = query.select_from(
            streams.join(threads, threads.c.id == streams.c.thread).outerjoin(
                leases, leases.c.thread == streams.c.thread
            )
        )
        begun = streams.c.status.in_((RUNNING, QUARANTINED))
        query = query.where(begun, streams.c.ended.is_(None)).order_by(streams.c.started)
        with self._core.reading() as db:
            rows = db.execute(*compiled(query)).fetchall()
        free = [row for row in rows if row[3] is None or not is_held(self._core, *row[3:])]
        return [
            (bytes_text(tenant), bytes_text(key), unpack_id(run))
            for tenant, key, run, *_ in free
            if tenant != b"\xff"
        ]

    def give_up(
        self,
        row: StreamRow,
        error: str,
        status: str = "failed",
        *,
        dead: bool = False,
        waits: bool = False,
    ) -> bool:
        """End an unfinished run that no server executes; its readers get the error.

        With `waits`, end it only if it still waits. Returns whether it has ended here.

        Raises:
            ThreadNotFoundError: The thread was deleted.
        """
        with self._core.writing(row.thread_id) as db:
            thread, row = self._as_it_is(db, row)
            if not row.goes_on or (waits and row.status != QUEUED):
                return False
            if row.status == QUEUED:
                row = self._numbered(db, thread, row)
            if dead:
                row = replace(row, dead=True)
                self._put_by(db, thread, row, "")
            self._cut(db, thread, row, status, error)
        return True

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call one of these methods in the store's thread."""
        return await self._core.worker.run(work, *args, **kwargs)

    def begin(
        self,
        thread_id: str,
        run_id: str,
        asked: Mapping[str, Any],
        key: bytes | None = None,
        most_threads: int | None = None,
        *,
        named: bool = False,
        machine: str = "",
    ) -> StreamRow | None:
        """Record the beginning of a run.

        A run that a dead server left in the thread ends, and its readers get an event.

        Returns:
            The row of the run; that of the earlier run if the key was used before; None if the
            thread would be new and its tenant has the most threads that it may have.

        Raises:
            ThreadBusyError: Another run goes on in the thread.
        """
        try:
            by: dict[str, Any] = {"named": named, **({"machine": machine} if machine else {})}
            return self._begin(thread_id, run_id, asked, key, most_threads, by)
        except StorageError:  # two servers may have taken the same key at the same moment
            if key is None or (known := self.by_key(key)) is None:
                raise
            return known

    def _begin(
        self,
        thread_id: str,
        run_id: str,
        asked: Mapping[str, Any],
        key: bytes | None,
        most_threads: int | None,
        by: dict[str, Any],
    ) -> StreamRow | None:
        core = self._core
        with core.writing(thread_id) as db:
            if key is not None and (known := self._by_key(db, key)) is not None:
                return known
            if most_threads is not None and self._is_full(db, thread_id, most_threads):
                return None
            thread = core.thread_for_writing(db, thread_id).id
            check_free(core, db, thread, thread_id)
            self._supersede(db, thread)
            first = cleanup.last_event(db, thread) + 1
            now = core.now()
            run = pack_id(run_id)
            by = {"server": self.server, "since": now, **by}
            body = self._seal(thread, thread_id, {**asked, _BY: by}, "stream", thread, run)
            with changing_run(db, thread, run):
                values = (thread, run, RUNNING, now, first, key, body, None, None)
                db.execute(statements.PUT_SERVER_RUN, values)
        return StreamRow(
            thread_id=thread_id,
            run_id=run_id,
            status=RUNNING,
            started=now,
            ended=None,
            first=first,
            asked=asked,
            **by,
        )

    def admit(
        self,
        thread_id: str,
        run_id: str,
        asked: Mapping[str, Any],
        key: bytes | None = None,
        most_threads: int | None = None,
        *,
        named: bool = False,
        waits: bool = False,
        traceparent: str = "",
    ) -> StreamRow | None:
        """Record a run that a worker is to execute; it is `queued`.

        With `waits`, it waits for earlier runs of its thread, in the order of arrival.
        `traceparent` is the span that asks for it; the rest is as in `begin`.

        Raises:
            ThreadBusyError: Another run goes on in the thread, and this one does not wait.
        """
        core = self._core
        by: dict[str, Any] = {"named": named, "external": True}
        if traceparent:
            by["traceparent"] = traceparent
        try:
            with core.writing(thread_id) as db:
                if key is not None and (known := self._by_key(db, key)) is not None:
                    return known
                if most_threads is not None and self._is_full(db, thread_id, most_threads):
                    return None
                thread = core.thread_for_writing(db, thread_id).id
                alone, last = db.execute(queued.OPEN_RUNS, (thread,)).fetchone()
                if not waits:
                    if alone:
                        raise ThreadBusyError(f"thread {thread_id} is busy: a run of it goes on")
                    check_free(core, db, thread, thread_id)
                now, first = core.now(), max(queued.BEHIND, last or 0) + 1
                run = pack_id(run_id)
                body = self._seal(thread, thread_id, {**asked, _BY: by}, "stream", thread, run)
                placed = None if alone else 0.0
                values = (thread, run, QUEUED, now, first, key, body, core.tenant, placed)
                with changing_run(db, thread, run):
                    db.execute(statements.PUT_SERVER_RUN, values)
        except StorageError:  # two servers may have taken the same key at the same moment
            if key is None or (known := self.by_key(key)) is None:
                raise
            return known
        return StreamRow(
            thread_id=thread_id,
            run_id=run_id,
            status=QUEUED,
            started=now,
            ended=None,
            first=first,
            asked=asked,
            **by,
        )

    def unfinished(self) -> list[tuple[str, str, int, float]]:
        """Return tenant, status, number and first arrival of workers' runs, for all tenants."""
        mine = (streams.c.ended.is_(None), streams.c.tenant.is_not(None))
        groups = (streams.c.tenant, streams.c.status)
        query = select(*groups, func.count(), func.min(streams.c.started)).where(*mine)
        with self._core.reading() as db:
            rows = db.execute(*compiled(query.group_by(*groups))).fetchall()
        return sorted((bytes_text(tenant), *rest) for tenant, *rest in rows)

    def waiting(self) -> int:
        """Count the queued runs of the tenant."""
        with self._core.reading() as db:
            row = db.execute(queued.WAITING_RUNS, (self._core.tenant, QUEUED)).fetchone()
        return int(row[0])

    def quarantine(self, row: StreamRow) -> None:
        """Mark a run that is to be executed in a process of its own; it goes on.

        Raises:
            ThreadNotFoundError: The thread was deleted.
        """
        with self._core.writing(row.thread_id) as db:
            thread, row = self._as_it_is(db, row)
            run = pack_id(row.run_id)
            if row.status == RUNNING:
                with changing_run(db, thread, run):
                    db.execute(queued.MARK_RUN, (QUARANTINED, row.first, thread, run))

    def make_thread(
        self, thread_id: str, agent: str | None, ttl: str | float | None, most_threads: int
    ) -> bool | None:
        """Make a thread without a run; False if it is there, None if its tenant has the most."""
        core, key = self._core, text_bytes(thread_id)
        with core.writing(thread_id) as db:
            if core.thread(db, thread_id) is not None:
                return False
            if self._is_full(db, thread_id, most_threads):
                return None
            number = core.new_thread(db, thread_id, "idle", core.ttl_rules.chosen(ttl, thread_id))[
                0
            ]
            if agent is not None:
                mine = (threads.c.tenant == core.tenant, threads.c.id == number)
                named = update(threads).where(*mine, threads.c.thread == key)
                db.execute(
                    *compiled(named.values(**checked(threads, {"agent": text_bytes(agent)})))
                )
        return True

    def claim(self, row: StreamRow, instead_of: str = "") -> StreamRow | None:
        """Claim an unfinished run that no server executes, or the given one; None if it has ended.

        A queued run begins: its row gets the number of its first event.

        Raises:
            ThreadBusyError: Another server executes it, or another run goes on in its thread.
            ThreadNotFoundError: The thread was deleted.
        """
        with self._core.writing(row.thread_id) as db:
            thread, row = self._as_it_is(db, row)
            if not row.goes_on:
                return None
            check_free(self._core, db, thread, row.thread_id)
            for status in (RUNNING, QUARANTINED):
                found = db.execute(statements.RUNS_IN, (self._core.tenant, thread, status))
                for other in map(self._row, found.fetchall()):
                    if not instead_of or other.server != instead_of:
                        self._refuse_anothers(db, thread, other)
            if row.status == QUEUED:
                run = pack_id(row.run_id)
                if db.execute(queued.EARLIER_RUNS, (thread, thread, run)).fetchone()[0]:
                    raise ThreadBusyError(f"thread {row.thread_id} has runs that came earlier")
                row = self._numbered(db, thread, row)
            self._put_by(db, thread, row, self.server)
        return row

    def note_machine(self, row: StreamRow) -> None:
        """Note which machine has the files of a run that this process has claimed."""
        with self._core.writing(row.thread_id) as db:
            self._put_by(db, self._thread(db, row.thread_id), row, self.server)

    def leave(self, row: StreamRow) -> None:
        """Release a run that has not ended, so that any server may claim it; not another server's.

        Raises:
            ThreadNotFoundError: The thread was deleted.
        """
        with self._core.writing(row.thread_id) as db:
            thread, row = self._as_it_is(db, row)
            if row.goes_on and row.server == self.server:
                self._put_by(db, thread, row, "")

    def append(
        self, row: StreamRow, last: int, added: Sequence[Event], status: str | None = None
    ) -> None:
        """Append events to a run.

        Args:
            row: The run.
            last: The number of the last event.
            added: The events.
            status: Why the run stopped, if its last event is among them. Events and status are
                written together, so a resumed run never ends a second time.

        Raises:
            ThreadBusyError: Another server ended the run meanwhile; nothing is written.
            ThreadNotFoundError: The thread was deleted meanwhile.
        """
        with self._core.writing(row.thread_id) as db:
            thread, now = self._state(db, row)
            if now not in UNFINISHED:
                raise ThreadBusyError(f"the run {row.run_id} was ended by another server")
            rid = thread << LANE_BITS | last
            body = self._seal(thread, row.thread_id, list(added), "events", rid)
            cleanup.add_page(db, thread, rid, body)
            if status is not None:
                self._end(db, thread, row, status)

    def trim(self, thread_id: str, keep: int) -> None:
        """Delete the events of all but the last `keep` runs of a thread."""
        with self._core.writing(thread_id) as db:
            cleanup.trim_events(db, self._thread(db, thread_id), keep)

    def get(self, thread_id: str, run_id: str) -> StreamRow | None:
        """Return a run of a thread."""
        with self._core.reading(thread_id) as db:
            return self._one(db, streams.c.run == pack_id(run_id), self._is(thread_id))

    def by_run(self, run_id: str) -> StreamRow | None:
        """Return a run of any thread."""
        with self._core.reading() as db:
            row = db.execute(statements.RUN, (self._core.tenant, pack_id(run_id))).fetchone()
        return None if row is None else self._row(row)

    def by_key(self, key: bytes) -> StreamRow | None:
        """Return the run with a hashed idempotency key."""
        with self._core.reading() as db:
            return self._by_key(db, key)

    def of_thread(self, thread_id: str, limit: int = 100) -> list[StreamRow]:
        """Return a thread's runs, the newest first."""
        with self._core.reading(thread_id) as db:
            query = self._query().where(self._is(thread_id)).order_by(streams.c.first.desc())
            return [self._row(row) for row in db.execute(*compiled(query.limit(limit))).fetchall()]

    def open_in(self, thread_id: str) -> list[StreamRow]:
        """Return the unfinished runs of a thread, the oldest first."""
        with self._core.reading(thread_id) as db:
            query = self._query().where(self._is(thread_id), streams.c.ended.is_(None))
            rows = db.execute(*compiled(query.order_by(streams.c.first))).fetchall()
            return [self._row(row) for row in rows]

    def latest(self, limit: int) -> list[StreamRow]:
        """Return the runs of all threads that began last."""
        with self._core.reading() as db:
            query = self._query().order_by(streams.c.started.desc(), streams.c.rid.desc())
            return [self._row(row) for row in db.execute(*compiled(query.limit(limit))).fetchall()]

    def running(self) -> list[StreamRow]:
        """Return the runs that have not ended, the oldest first."""
        with self._core.reading() as db:
            query = self._query().where(streams.c.status == RUNNING).order_by(streams.c.started)
            return [self._row(row) for row in db.execute(*compiled(query)).fetchall()]

    def last(self, row: StreamRow) -> int:
        """Return the number of a run's last event, stored or not; below its first if it has none.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        with self._core.reading(row.thread_id) as db:
            thread = self._thread(db, row.thread_id)
            last = min(cleanup.last_event(db, thread), cleanup.last_number(db, thread, row.first))
            return max(last, row.first - 1)

    def read(
        self, thread_id: str, after: int, row: StreamRow | None = None
    ) -> list[tuple[int, Event]]:
        """Return some pages of the events after a number, with their numbers.

        With a run's row, return no events of later runs.

        Raises:
            ThreadNotFoundError: There is no such thread.
            StorageError: A page is damaged.
        """
        with self._core.reading(thread_id) as db:
            thread = self._thread(db, thread_id)
            high = PLACES if row is None else cleanup.last_number(db, thread, row.first)
            seals = self._core.seals(thread, text_bytes(thread_id))
            return cleanup.events_after(db, thread, after, high, seals)

    def look(self, row: StreamRow, after: int) -> tuple[list[tuple[int, Event]], bool]:
        """Return some pages of a run's events after a number, and whether the run goes on.

        Raises:
            ThreadNotFoundError: There is no such thread.
            StorageError: A page is damaged.
        """
        key = text_bytes(row.thread_id)
        with self._core.reading(row.thread_id) as db:
            thread = self._thread(db, row.thread_id)
            status, first = db.execute(_PLACE, (thread, pack_id(row.run_id))).fetchone() or ("", 0)
            if status == QUEUED or not status:
                return [], status == QUEUED
            high = cleanup.last_number(db, thread, first)
            seals = self._core.seals(thread, key)
            after = after if after < queued.BEHIND else first - 1  # it waited when its reader came
            events = cleanup.events_after(db, thread, after, high, seals)
        return events, status in UNFINISHED

    async def run_and_tell(
        self, thread_id: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call one of these methods as `run` does, then tell all processes of the thread."""
        made = await self.run(work, *args, **kwargs)
        self._core.notices.tell(self.topic(thread_id))
        return made

    def topic(self, thread_id: str, kind: str = "thread") -> str:
        """Return the topic of notices about a thread."""
        return topic(kind, self._core.tenant, text_bytes(thread_id))

    # --- Inside a transaction.

    def _thread(self, db: Any, thread_id: str) -> int:
        thread = self._core.thread(db, thread_id)
        if thread is None:
            raise ThreadNotFoundError(f"there is no thread {thread_id!r}")
        return thread.id

    def _is_full(self, db: Any, thread_id: str, most: int) -> bool:
        """Return whether a new thread would exceed its tenant's limit."""
        if self._core.thread(db, thread_id) is not None:
            return False
        row = db.execute(statements.THREADS, (self._core.tenant,)).fetchone()
        return bool(row is not None and row[0] >= most)

    def _state(self, db: Any, row: StreamRow) -> tuple[int, str]:
        """Return the number of a run's thread, and the run's status."""
        key, run = text_bytes(row.thread_id), pack_id(row.run_id)
        found = db.execute(statements.STATE, (self._core.tenant, key, run)).fetchone()
        if found is None:
            raise ThreadNotFoundError(f"there is no thread {row.thread_id!r}")
        return found[0], found[1]

    def _as_it_is(self, db: Any, row: StreamRow) -> tuple[int, StreamRow]:
        """Return the number of a run's thread, and its row as the database has it now.

        The caller may have read it before another process let the run begin.
        """
        mine = streams.c.run == pack_id(row.run_id), self._is(row.thread_id)
        found = db.execute(*compiled(self._query().where(*mine))).fetchone()
        if found is None:
            raise ThreadNotFoundError(f"there is no thread {row.thread_id!r}")
        return found[6], self._row(found)

    def _numbered(self, db: Any, thread: int, row: StreamRow) -> StreamRow:
        """Let a queued run begin: its events follow those of the thread."""
        first, run = cleanup.last_event(db, thread) + 1, pack_id(row.run_id)
        with changing_run(db, thread, run):
            db.execute(queued.MARK_RUN, (RUNNING, first, thread, run))
        return replace(row, status=RUNNING, first=first)

    def _running(self, thread: int) -> tuple[Any, ...]:
        return self._core.tenant, thread, RUNNING

    def _refuse_anothers(self, db: Any, thread: int, row: StreamRow) -> None:
        """Refuse if another server executes a run: it may be about to take its lease, or to end."""
        if row.server in ("", self.server):
            return
        now, lease = self._core.now(), db.execute(statements.HOLDER, (thread,)).fetchone()
        has_expired = lease is not None and row.since < lease[1] < now
        server = text_bytes(row.server.rpartition("#")[0])
        at_work = is_at_work(server, now - row.since, lease_seconds(self._core))
        if has_expired or not at_work:
            return
        raise ThreadBusyError(f"thread {row.thread_id} is busy: a run of another server goes on")

    def _put_by(self, db: Any, thread: int, row: StreamRow, server: str) -> None:
        by = {"server": server, "since": self._core.now(), "named": row.named}
        more = {name: getattr(row, name) for name in ("traceparent", "external", "dead", "machine")}
        by |= {name: value for name, value in more.items() if value}
        run = pack_id(row.run_id)
        body = self._seal(thread, row.thread_id, {**row.asked, _BY: by}, "stream", thread, run)
        with changing_run(db, thread, run):
            db.execute(statements.PUT_BODY, (body, thread, run))

    def _supersede(self, db: Any, thread: int) -> None:
        for row in map(self._row, db.execute(statements.RUNS_IN, self._running(thread)).fetchall()):
            self._refuse_anothers(db, thread, row)
            self._cut(db, thread, row, "cancelled", "the run was cut off, and a new message came")

    def _cut(self, db: Any, thread: int, row: StreamRow, status: str, error: str) -> None:
        rid = thread << LANE_BITS | max(cleanup.last_event(db, thread) + 1, row.first)
        event = row.tell("error", {"error": error, "stopped_because": status})
        body = self._seal(thread, row.thread_id, [event], "events", rid)
        cleanup.add_page(db, thread, rid, body)
        self._end(db, thread, row, status)

    def _end(self, db: Any, thread: int, row: StreamRow, status: str) -> None:
        run = pack_id(row.run_id)
        with changing_run(db, thread, run):
            db.execute(statements.END_RUN, (status, self._core.now(), thread, run))
        if row.external:  # the next one of the thread may begin
            db.execute(queued.NEXT_RUN, (0.0, thread, thread))

    def _by_key(self, db: Any, key: bytes) -> StreamRow | None:
        row = db.execute(statements.RUN_OF_KEY, (self._core.tenant, key)).fetchone()
        return None if row is None else self._row(row)

    def _query(self) -> Any:
        return statements.server_runs(self._core.tenant)

    def _is(self, thread_id: str) -> Any:
        return threads.c.thread == text_bytes(thread_id)

    def _one(self, db: Any, *where: Any) -> StreamRow | None:
        row = db.execute(*compiled(self._query().where(*where))).fetchone()
        return None if row is None else self._row(row)

    def _seal(self, thread: int, thread_id: str, value: Any, *context: Context) -> bytes:
        payload = json.dumps(value, separators=(",", ":"), default=str).encode("ascii")
        return self._core.seals(thread, text_bytes(thread_id)).seal(payload, *context)

    def _row(self, row: Sequence[Any]) -> StreamRow:
        key, run, status, started, ended, first, thread, body = row
        unseal = self._core.seals(thread, bytes(key)).unseal
        asked = json.loads(unseal(body, "a row of streams", "stream", thread, run))
        by = {name: value for name, value in asked.pop(_BY, {}).items() if name in _FIELDS}
        return StreamRow(
            thread_id=bytes_text(key),
            run_id=unpack_id(run),
            status=status,
            started=started,
            ended=ended,
            first=first,
            asked=asked,
            **by,
        )
