"""Delete and prune threads without leaving orphan rows; sizes of threads."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from itertools import product
from typing import Any, Final, NamedTuple, Protocol

import ormsgpack
from sqlalchemy import (
    BigInteger,
    Column,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.constants import RUN_KNOWN_SECONDS
from wick_graph.errors import StorageError
from wick_graph.store import statements
from wick_graph.store.checkpoint_read import Reader, Row, ancestors, spans
from wick_graph.store.codec import (
    BLOB_MARK,
    HASH_BYTES,
    Codec,
    blob_key,
    hashes_in,
    is_text_key,
    unfold,
)
from wick_graph.store.connection import StoreConnection, drop_old
from wick_graph.store.dialect import Database
from wick_graph.store.digests import (
    BLOBS,
    EVENTS,
    LANE_BITS,
    PLACES,
    changing,
    drop_steps,
    erase,
    row_hash,
)
from wick_graph.store.journal_rows import ALL, KEY, RUN_BYTES, page_run
from wick_graph.store.queued import BEHIND
from wick_graph.store.row_format import Seals, WritesBody, bytes_text, text_bytes
from wick_graph.store.schema import (
    OWNED,
    blobs,
    calls,
    checkpoints,
    digests,
    events,
    items,
    leases,
    memories,
    moments,
    names,
    runs,
    streams,
    threads,
    writes,
)
from wick_graph.store.statements import checked
from wick_graph.store.texts import Prepared, compiled

# --- The long texts of a thread when its items are deleted or copied.


def drop_blobs(db: Database, seals: Seals, thread: int, garbage: frozenset[int]) -> None:
    """Delete the texts that only garbage items refer to.

    Call it in the transaction that declares the items garbage: later writers rely on every text
    that they find.
    """
    unused = {*keys(db, thread)}
    if not unused:
        return
    for rid, base, sealed in _items(db, thread):
        if rid not in garbage:
            body = seals.content(sealed, "table items", rid, base)
            unused -= {blob_key(hashed) for hashed in hashes_in(body, BLOB_MARK)}
    for key in unused:
        erase(db, blobs, thread, _of(thread), blobs.c.hash == key)


def keys(db: Database, thread: int) -> list[bytes]:
    """Return the keys of a thread's texts."""
    found = db.execute(*compiled(select(blobs.c.hash).where(_of(thread)))).fetchall()
    return [bytes(key) for (key,) in found if is_text_key(key)]


def copy(
    db: Database,
    old: Seals,
    source: int,
    to: Database,
    new: Seals,
    target: int,
    wanted: Collection[bytes],
) -> None:
    """Copy a thread's texts to another thread, in any database; their keys stay the same."""
    columns = (blobs.c.hash, blobs.c.size, blobs.c.body)
    found = db.execute(*compiled(select(*columns).where(_of(source)))).fetchall()
    for key, size, sealed in found:
        if bytes(key) in wanted:
            place = ("blobs", key[-HASH_BYTES:])
            body = new.seal(old.unseal(sealed, "table blobs", *place), *place)
            row = insert(blobs).values(thread=target, hash=key, size=size, body=body)
            to.execute(*compiled(row))
            to.account.add(BLOBS, target, row_hash((key, size), body))


def _of(thread: int) -> ColumnElement[bool]:
    return blobs.c.thread == literal(thread)


def _items(db: Database, thread: int) -> Iterator[tuple[int, int | None, bytes]]:
    lanes = select(names.c.id).where(names.c.thread == thread)
    for (lane,) in db.execute(*compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        own = select(items).where(items.c.rid.between(low, low | PLACES))
        yield from db.execute(*compiled(own))


# --- The ledger of a thread when its checkpoints are deleted: the rows that are still of use.
#
# A call's key begins with the id of the step that made it, and so do the facts recorded beside the
# call. The reply that asked for the call holds that id, and so does what its task was sent. If no
# stored value holds it, no run, resume or fork can ask for the row any more.


_UUID: Final = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")

_BESIDE: Final = re.compile(r"(?::\d+)?(?:/\w+)?\Z")
"""What follows a step's id in a key: the call's index, and the name of a fact beside the call."""


def step_of(key: str) -> str:
    """Return the id of the step that a key of the ledger belongs to."""
    return _BESIDE.sub("", key, count=1)


def drop_calls(
    db: Database,
    seals: Seals,
    thread: int,
    garbage: Collection[int],
    bodies: Iterable[bytes],
) -> None:
    """Delete the calls that no stored value refers to any more.

    Args:
        db: The transaction that deleted the checkpoints.
        seals: How the thread's rows are opened.
        thread: The thread's number.
        garbage: Items that are about to be deleted.
        bodies: The bodies of the checkpoints and the pending writes.
    """
    mine = select(calls.c.rid, calls.c.key).where(calls.c.thread == thread)
    by_step: dict[bytes, list[int]] = {}
    for rid, key in db.execute(*compiled(mine)).fetchall():
        step = step_of(bytes_text(key))
        if step and step.isascii():  # other texts may be encoded differently in values: keep them
            by_step.setdefault(text_bytes(step), []).append(rid)
    if not by_step:
        return
    others = {step for step in by_step if not _UUID.fullmatch(step)}
    for content in _contents(db, seals, thread, garbage, bodies):
        if not by_step:  # all are in use: stop reading
            return
        for step in {*_UUID.findall(content), *(other for other in others if other in content)}:
            by_step.pop(step, None)
            others.discard(step)
    for rids in by_step.values():
        erase(db, calls, thread, calls.c.rid.in_(rids))


def _contents(
    db: Database,
    seals: Seals,
    thread: int,
    garbage: Collection[int],
    bodies: Iterable[bytes],
) -> Iterator[bytes]:
    yield from bodies
    what = "a stored value"
    lanes = select(names.c.id).where(names.c.thread == thread)
    for (lane,) in db.execute(*compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        own = select(items).where(items.c.rid.between(low, low | PLACES))
        for rid, base, sealed in db.execute(*compiled(own)).fetchall():
            if rid not in garbage:
                yield seals.unseal(sealed, what, rid, base)
    texts = select(blobs.c.hash, blobs.c.body).where(blobs.c.thread == thread)
    for key, sealed in db.execute(*compiled(texts)).fetchall():
        if is_text_key(key):
            yield seals.unseal(sealed, what, "blobs", key[-HASH_BYTES:])


# --- Pages of a thread's events, inside a transaction.


_PAGES: Final = 32
"""Pages per read."""

Event = Mapping[str, Any]


def last_event(db: Any, thread: int) -> int:
    """Return the number of a thread's last event; 0 if it has none."""
    low = thread << LANE_BITS
    row = db.execute(statements.LAST_EVENT, (low, low | PLACES)).fetchone()
    return 0 if row is None or row[0] is None else row[0] & PLACES


def last_number(db: Any, thread: int, first: int) -> int:
    """Return the highest number that an event of a run may have, by its first event."""
    later = (streams.c.thread == thread, streams.c.first > first)
    row = db.execute(*compiled(select(func.min(streams.c.first)).where(*later))).fetchone()
    return PLACES if row is None or row[0] is None else row[0] - 1


def events_after(
    db: Any, thread: int, after: int, high: int, seals: Any
) -> list[tuple[int, Event]]:
    """Return some pages of the events after a number, with their numbers.

    Raises:
        StorageError: A page is damaged.
    """
    low, found = thread << LANE_BITS, list[tuple[int, Event]]()
    wanted = (low + after + 1, low | high, _PAGES, 0)
    for rid, body in db.execute(statements.EVENTS, wanted).fetchall():
        page = json.loads(seals.unseal(body, "a page of events", "events", rid))
        start = (rid & PLACES) - len(page) + 1
        found += [(start + i, event) for i, event in enumerate(page) if start + i > after]
    return found


def add_page(db: Any, thread: int, rid: int, sealed: bytes) -> None:
    """Write a page."""
    db.execute(statements.PUT_EVENTS, (rid, sealed))
    db.account.add_body(EVENTS, thread, sealed)


def trim_events(db: Any, thread: int, keep: int) -> None:
    """Delete the events of all but the last `keep` runs of a thread."""
    begins = select(streams.c.first).where(
        streams.c.thread == thread,
        streams.c.first < BEHIND,
    )
    oldest = begins.order_by(streams.c.first.desc()).limit(1).offset(keep - 1)
    row = db.execute(*compiled(oldest)).fetchone()
    if row is not None:
        low = thread << LANE_BITS
        old = events.c.rid.between(low, low | (row[0] - 1))
        erase(db, events, thread, old)


# --- A thread's journal and its server's events when runs are deleted.


_REFERENCE: Final = b"#"
"""The mark before a blob's hash in a page, and in what a page refers to."""

_ZLIB: Final = b"\x01"
"""The first byte of a compressed content."""


def drop_runs(db: Database, seals: Seals, thread: int, gone: Collection[bytes]) -> None:
    """Delete runs with their moments, and the values that no other run's moments refer to."""
    ids = frozenset(gone)
    found = db.execute(statements.JOURNAL_RUNS, (thread,)).fetchall() if ids else []
    numbers = {row[0] for row in found if row[1] in ids}
    if not numbers:
        return
    for rid, sealed in _pages(db, thread):
        if page_run(seals, rid, sealed) in numbers:
            erase(db, moments, thread, moments.c.rid == rid)
    for number in numbers:
        erase(db, runs, thread, runs.c.thread == thread, runs.c.number == number)
    _drop_values(db, seals, thread)


def _drop_values(db: Database, seals: Seals, thread: int) -> None:
    """Delete the journal's values that nothing refers to."""
    found = db.execute(statements.BLOBS, (thread,)).fetchall()
    held = {bytes(key): body for key, _, body in found if len(key) == HASH_BYTES}
    todo = list(_roots(db, seals, thread))
    while todo:
        for hashed in {*hashes_in(todo.pop(), _REFERENCE)} & held.keys():
            todo += _content(seals, held.pop(hashed), 0, thread, hashed)
    for hashed in held:
        erase(db, blobs, thread, blobs.c.thread == thread, blobs.c.hash == hashed)
    if not db.execute(
        statements.JOURNAL_RUNS, (thread,)
    ).fetchall():  # the key hides nothing any more
        erase(db, blobs, thread, blobs.c.thread == thread, blobs.c.hash == KEY)


def _roots(db: Database, seals: Seals, thread: int) -> Iterator[bytes]:
    for rid, sealed in _pages(db, thread):
        yield from _content(seals, sealed, RUN_BYTES, "moments", rid)
    for number, *_, sealed in db.execute(statements.JOURNAL_RUNS, (thread,)).fetchall():
        yield from _content(seals, sealed, None, thread, number)


def _pages(db: Database, thread: int) -> Iterable[Any]:
    low = thread << LANE_BITS
    return db.execute(statements.PAGES_FROM, (low, low | PLACES, ALL, 0)).fetchall()


def _content(seals: Seals, sealed: bytes, mark_at: int | None, *context: Any) -> list[bytes]:
    """Return a row's content, unfolded; nothing if the row is damaged."""
    try:
        body = seals.unseal(sealed, "a row", *context)
    except StorageError:
        return []
    if mark_at is None or body[mark_at : mark_at + 1] != _ZLIB:
        return [body]
    return [unfold(body[mark_at + 1 :])]


def drop_streams(
    db: Database, seals: Seals, thread: int, gone: Collection[bytes], before: float
) -> None:
    """Delete a server's rows of runs that are deleted, or long over and without a checkpoint.

    A run that ended later than `before` stays known: a second request with its idempotency key
    gets this run, not a new one.
    """
    left = select(checkpoints.c.run).where(checkpoints.c.thread == thread)
    over = and_(
        streams.c.ended < before, streams.c.run.not_in(left.where(checkpoints.c.run.is_not(None)))
    )
    ids = frozenset(gone)
    query = select(streams.c.rid, streams.c.first, streams.c.run, over)
    query = query.where(streams.c.thread == thread).order_by(streams.c.first)
    found = db.execute(*compiled(query)).fetchall()
    later = [row[1] for row in found][1:]
    ranges = zip([0, *later], [*later, PLACES + 1], strict=True)  # earlier events go too
    for (rid, _, run, is_over), (first, end) in zip(found, ranges, strict=False):
        if is_over or run in ids:
            erase(db, streams, thread, streams.c.rid == rid)
            _drop_events(db, seals, thread, first, end)


def _drop_events(db: Database, seals: Seals, thread: int, first: int, end: int) -> None:
    """Delete events; keep the thread's last number in use with an empty page."""
    low, last = thread << LANE_BITS, last_event(db, thread)
    own = events.c.rid.between(low | first, low | (end - 1))
    dropped = erase(db, events, thread, own)
    if dropped and first <= last < end:
        rid = low | last
        add_page(db, thread, rid, seals.seal(b"[]", "events", rid))


# --- The size of a store's threads, and giving back free space.


_PARTS: Final[dict[str, tuple[Table, ...]]] = {
    "checkpoints": (checkpoints, writes),
    "ledger": (calls,),
    "journal": (runs,),
    "texts": (blobs,),
    "streams": (streams,),
}


def sizes(core: StoreConnection) -> dict[str, dict[str, int]]:
    """Return the bytes of content of each thread, by purpose.

    The database's own overhead and free pages are not counted.
    """
    with core.reading() as db:
        query = select(threads.c.id, threads.c.thread).where(threads.c.tenant == core.tenant)
        found = {row[0]: bytes_text(row[1]) for row in db.execute(*compiled(query)).fetchall()}
        made: dict[str, dict[str, int]] = {thread: {} for thread in found.values()}

        def add(part: str, query: Any) -> None:
            for number, size in db.execute(*compiled(query)).fetchall():
                if number in found:
                    own = made[found[number]]
                    own[part] = own.get(part, 0) + int(size or 0)

        for part, tables in _PARTS.items():
            for table in tables:
                add(part, select(table.c.thread, _bytes(table)).group_by(table.c.thread))
        low = names.c.id * (1 << LANE_BITS)
        lanes = items.join(names, items.c.rid.between(low, low + PLACES))
        add(
            "messages and state",
            select(names.c.thread, _bytes(items)).select_from(lanes).group_by(names.c.thread),
        )
        low = threads.c.id * (1 << LANE_BITS)
        pages = moments.join(threads, moments.c.rid.between(low, low + PLACES))
        add(
            "journal",
            select(threads.c.id, _bytes(moments)).select_from(pages).group_by(threads.c.id),
        )
    return made


def _bytes(table: Table) -> ColumnElement[int]:
    return func.sum(func.length(table.c.body))


def vacuum(core: StoreConnection) -> None:
    """Give free space back to the file system, a part at a time."""
    more = True
    while more:
        with core.idle() as db:
            more = core.dialect.shrink(db)


# --- Deleting, pruning and copying threads, without an orphan row.


BATCH: Final = 1_000
"""The most rows that one transaction deletes."""

Wanted = Callable[[list[Row]], set[int]]
"""Chooses the checkpoints that are kept."""

_GONE: Final = b"\xff"
"""The tenant of threads that are being deleted; no text encodes to it."""

GONE: Final = "deleted"
"""The status of such threads."""

_TOGETHER: Final = 32
"""The most threads that one transaction deletes."""

_MARKS: Final = ("tenant", "thread", "status")

_MARK: Final = Prepared(
    lambda: (
        update(threads)
        .where(threads.c.id == bindparam("t"))
        .values(**checked(threads, {name: bindparam(name) for name in _MARKS}))
    ),
    *_MARKS,
    "t",
)


class Writing(Protocol):
    """A function that begins a transaction."""

    def __call__(self, *, alone: bool) -> AbstractContextManager[Database]:
        """Hold the database for writing."""


_NO_LEASE: Final = Prepared(lambda: delete(leases).where(leases.c.thread == bindparam("t")), "t")


def mark_deleted(db: Database, numbers: Collection[int]) -> None:
    """Hide threads that are to be deleted, so that no reader sees half of one.

    Their runs end at once: a write would make the thread anew, or leave rows behind.
    """
    db.executemany(_MARK, [(_GONE, b"%d" % number, GONE, number) for number in numbers])
    db.executemany(_NO_LEASE, [(number,) for number in numbers])


ABOUT: Final = ("__langgraph", "threads")
"""The namespace of long-term items that are about a thread, by its id, and go with it."""

_ABOUT: Final = b"".join(text_bytes(label) + b"\x00" for label in ABOUT) + b"\x00"


def drop_about(db: Database, tenant: bytes, keys: Iterable[bytes]) -> None:
    """Delete the items that are about threads."""
    wanted = [_ABOUT + key for key in keys]
    own = (memories.c.tenant == tenant, memories.c.key.in_(wanted))
    db.execute(*compiled(delete(memories).where(*own)))


def marked_deleted(db: Database) -> list[int]:
    """Return the threads that are marked as deleted, here or by a process that died."""
    statement = select(threads.c.id).where(threads.c.tenant == _GONE)
    return [row[0] for row in db.execute(*compiled(statement))]


def remove(writing: Writing, numbers: Iterable[int]) -> None:
    """Delete all rows of threads that are marked as deleted, at most `BATCH` in a transaction."""
    known = sorted(numbers)
    for start in range(0, len(known), _TOGETHER):
        group, more = known[start : start + _TOGETHER], True
        while more:
            with writing(alone=True) as db:
                more = _remove_some(db, group)


def _remove_some(db: Database, group: Sequence[int]) -> bool:
    """Delete one batch; False when the threads themselves are gone."""
    texts, left = _texts_of(len(group)), BATCH
    db.execute(texts.lock, group)  # others may remove them at the same time
    lanes = [row[0] for row in db.execute(texts.lanes, group).fetchall()]
    steps: list[tuple[Prepared, Sequence[int]]] = [(text, group) for text in texts.own]
    pages: list[tuple[Prepared, Sequence[int]]] = [(one, group) for one in _PAGES_OF]
    for text, owners in (*pages, (_ITEMS_OF, lanes)):
        starts, ends = _merged((owner, owner) for owner in owners)
        ranges = zip(starts, ends, strict=True)
        steps += [(text, (low << LANE_BITS, high << LANE_BITS | PLACES)) for low, high in ranges]
    for text, values in (*steps, (texts.names, group)):
        left -= db.execute(text, (*values, left)).rowcount
        if left <= 0:
            return True
    db.execute(texts.threads, group)
    return False


def _some(key: Column[Any], *conditions: ColumnElement[bool]) -> Any:
    """Delete rows, so many at most."""
    some = select(key).where(*conditions).limit(bindparam("most")).offset(literal_column("0"))
    return delete(key.table).where(key.in_(some))


def _within(table: Table) -> Prepared:
    rid = table.c.rid
    low, high = (bindparam(name, type_=BigInteger) for name in ("low", "high"))
    return Prepared(lambda: _some(rid, rid.between(low, high)), "low", "high", "most")


_PAGES_OF: Final = tuple(map(_within, (moments, events, digests)))

_ITEMS_OF: Final = _within(items)


class _Texts(NamedTuple):
    """Statements about a group of threads."""

    lock: Prepared
    lanes: Prepared
    own: tuple[Prepared, ...]
    names: Prepared
    threads: Prepared


@cache
def _texts_of(size: int) -> _Texts:
    order = [f"t{number}" for number in range(size)]
    group: list[Any] = [bindparam(name) for name in order]
    lanes, mine = names.c.thread.in_(group), threads.c.id.in_(group)
    locked = select(threads.c.id).where(mine).order_by(threads.c.id).with_for_update()
    keys = [one.c.thread if one.name == "leases" else one.c.rid for one in OWNED]
    return _Texts(
        lock=Prepared(lambda: locked, *order),
        lanes=Prepared(lambda: select(names.c.id).where(lanes), *order),
        own=tuple(
            Prepared(partial(_some, key, table.c.thread.in_(group)), *order, "most")
            for key, table in zip(keys, OWNED, strict=True)
        ),
        names=Prepared(lambda: _some(names.c.id, lanes), *order, "most"),
        threads=Prepared(lambda: delete(threads).where(mine), *order),
    )


def delete_thread(
    core: StoreConnection, thread_id: str, *checks: Callable[[Any, int], None]
) -> bool:
    """Delete a thread with all its rows, if the checks let it; False if there was none."""
    with core.writing(thread_id, alone=True) as db:
        key = text_bytes(thread_id)
        own = (threads.c.tenant == core.tenant, threads.c.thread == key)
        found = [row[0] for row in db.execute(*compiled(select(threads.c.id).where(*own)))]
        for check, number in product(checks, found):
            check(db, number)
        mark_deleted(db, found)
        drop_about(db, core.tenant, [key])
        core.caches.pop(key, None)
    remove(core.writing, found)
    return bool(found)


def prune_thread(
    core: StoreConnection,
    codec: Codec,
    thread_id: str,
    wanted: Wanted,
    gone: Collection[bytes] = (),
) -> None:
    """Delete a thread's checkpoints except the wanted ones and what those are rebuilt from.

    `wanted` gets all rows, oldest first, and returns the keys of those to keep. Delta channels
    need the writes of ancestors: these stay, hidden, back to each channel's last stored value.
    Rows that are of no more use go too: calls of the ledger, long texts, a server's rows of runs
    that are long over, and the journal of the runs that are `gone`. Items that nothing refers to
    are deleted afterwards, in bounded transactions.
    """
    with core.writing(thread_id, alone=True) as db:
        garbage = prune(core, codec, db, thread_id, wanted, gone)
    for start in range(0, len(garbage), BATCH):
        with core.writing(thread_id, alone=True) as db:
            cache = core.thread(db, thread_id)
            if cache is not None:
                drop_items(db, cache.id, garbage[start : start + BATCH])


def threads_of_runs(
    core: StoreConnection,
    gone: Collection[bytes],
    tables: Sequence[Table] = (checkpoints, runs, streams),
) -> list[str]:
    """Return the threads that have rows of these runs in these tables."""
    found: dict[str, None] = {}
    packed = [*gone]
    with core.reading() as db:
        for table in tables:
            for start in range(0, len(packed), BATCH):
                query = (
                    select(threads.c.thread)
                    .join(table, table.c.thread == threads.c.id)
                    .where(threads.c.tenant == core.tenant)
                    .where(table.c.run.in_(packed[start : start + BATCH]))
                    .distinct()
                )
                found |= dict.fromkeys(
                    bytes_text(key) for (key,) in db.execute(*compiled(query)).fetchall()
                )
    return [*found]


def prune(
    core: StoreConnection,
    codec: Codec,
    db: Database,
    thread_id: str,
    wanted: Wanted,
    gone: Collection[bytes] = (),
) -> list[int]:
    """Do as `prune_thread` within the caller's transaction, and return the items to drop."""
    cache = core.thread(db, thread_id)
    if cache is None:
        return []
    garbage = _drop_checkpoints(core, Reader(db, cache, codec, thread_id), wanted)
    drop_runs(db, cache.seals, cache.id, gone)
    before = core.now() - RUN_KNOWN_SECONDS
    drop_streams(db, cache.seals, cache.id, gone, before)
    return garbage


def _drop_checkpoints(core: StoreConnection, reader: Reader, wanted: Wanted) -> list[int]:
    db, number = reader.db, reader.cache.id
    rows = all_rows(db, number)
    stored = ((row.ns, row.id) for row, _ in rows)
    strays = drop_old(db, number, stored, reader.cache.find_name(db, 0, ""))
    kept = wanted([row for row, hidden in rows if not hidden])
    if len(kept) == len(rows) and not strays:
        return []
    needed = _needed(db, reader, [row for row, _ in rows if row.rid in kept])
    for row, hidden in rows:
        if row.rid not in kept and row.rid not in needed:
            _drop(db, row)
        elif row.rid not in kept and not hidden:
            _hide(db, row)
    garbage = _garbage(db, reader)
    unused = frozenset(garbage)
    seals = reader.cache.seals
    drop_blobs(db, seals, number, unused)
    drop_calls(db, seals, number, unused, _bodies(db, reader))
    db.execute(statements.GENERATION, (1, number))
    core.caches.pop(text_bytes(reader.thread_id), None)
    return garbage


def _bodies(db: Database, reader: Reader) -> Iterator[bytes]:
    """Yield the bodies of a thread's checkpoints and pending writes."""
    what, unseal = f"thread {reader.thread_id!r}", reader.cache.seals.unseal
    for row, _ in all_rows(db, reader.cache.id):
        yield unseal(row.body, what, *row.context())
    for *keys, sealed in db.execute(*compiled(writes_of(reader.cache.id))).fetchall():
        yield unseal(sealed, what, *keys)


def drop_items(db: Database, thread: int, garbage: list[int]) -> None:
    """Delete items of a thread that nothing refers to any more."""
    for start in range(0, len(garbage), BATCH):
        erase(db, items, thread, items.c.rid.in_(garbage[start : start + BATCH]))


def all_rows(db: Database, number: int) -> list[tuple[Row, bool]]:
    """Return a thread's checkpoints, oldest first, and whether each is hidden."""
    statement = (
        select(*statements.COLUMNS, checkpoints.c.hidden)
        .where(checkpoints.c.thread == number)
        .order_by(checkpoints.c.seq)
    )
    return [(Row(*row[:-1]), bool(row[-1])) for row in db.execute(*compiled(statement))]


def _drop(db: Database, row: Row) -> None:
    own = (
        writes.c.thread == row.thread,
        writes.c.ns == row.ns,
        writes.c.checkpoint == row.id,
    )
    erase(db, writes, row.thread, *own)
    erase(db, checkpoints, row.thread, checkpoints.c.rid == row.rid)
    drop_steps(db, row.thread, [row.seq])


def _hide(db: Database, row: Row) -> None:
    hidden = update(checkpoints).where(checkpoints.c.rid == row.rid).values(hidden=1)
    with changing(db, checkpoints, row.thread, checkpoints.c.rid == row.rid):
        db.execute(*compiled(hidden))


def _needed(db: Database, reader: Reader, kept: Iterable[Row]) -> set[int]:
    """Return the ancestors from which delta channels of kept checkpoints are rebuilt."""
    needed: set[int] = set()
    for row in kept:
        open_channels = _unstored(reader, row)
        for ancestor in ancestors(db, row) if open_channels else ():
            needed.add(ancestor.rid)
            stored = {channel for channel, _ in reader.body(ancestor).forms()}
            open_channels -= stored
            if not open_channels:
                break
    return needed


def _unstored(reader: Reader, row: Row) -> set[int]:
    """Return the delta channels that a checkpoint holds no value of."""
    counted = reader.metadata(row).get("counters_since_delta_snapshot") or {}
    stored = {channel for channel, _ in reader.body(row).forms()}
    numbers = (reader.cache.find_name(reader.db, row.ns, channel) for channel in counted)
    return {number for number in numbers if number is not None} - stored


def _garbage(db: Database, reader: Reader) -> list[int]:
    """Return the keys of a thread's items that no checkpoint and no write refers to."""
    number = reader.cache.id
    live: list[tuple[int, int]] = []
    for row, _ in all_rows(db, number):
        forms = [form for _, form in reader.body(row).forms()]
        if row.meta is not None:
            forms.append(ormsgpack.unpackb(row.meta))
        for form in forms:
            live += spans(form)
    for *keys, sealed in db.execute(*compiled(writes_of(number))):
        what = f"table writes of thread {reader.thread_id!r}"
        body = reader.cache.seals.unseal(sealed, what, *keys)
        for _, _, form in WritesBody.load(body).entries():
            live += spans(form)
    starts, ends = _merged(live)
    used: set[int] = set()
    unused: list[int] = []
    for rid, base in _items_of(db, number):
        at = bisect_right(starts, rid) - 1
        if at >= 0 and rid <= ends[at]:
            if base is not None:
                used.add(base)
        else:
            unused.append(rid)
    return [rid for rid in unused if rid not in used]


def writes_of(number: int) -> Any:
    """Select a thread's pending writes, with the columns that their check values cover."""
    columns = (writes.c.thread, writes.c.ns, writes.c.checkpoint, writes.c.task, writes.c.path)
    return select(*columns, writes.c.body).where(writes.c.thread == number)


def _items_of(db: Database, number: int) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    lanes = select(names.c.id).where(names.c.thread == number)
    for (lane,) in db.execute(*compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        own = select(items.c.rid, items.c.base).where(items.c.rid.between(low, low | PLACES))
        found += db.execute(*compiled(own)).fetchall()
    return found


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Join ranges that meet; return the starts and the ends."""
    starts: list[int] = []
    ends: list[int] = []
    for first, last in sorted(set(spans)):
        if ends and first <= ends[-1] + 1:
            ends[-1] = max(ends[-1], last)
        else:
            starts.append(first)
            ends.append(last)
    return starts, ends
