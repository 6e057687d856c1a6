"""A thread's journal and its server's events when runs are deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from sqlalchemy import and_, select

from wick_graph.errors import StorageError
from wick_graph.store.database import journal_sql
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import erase
from wick_graph.store.database.schema import (
    LANE_BITS,
    PLACES,
    blobs,
    checkpoints,
    events,
    moments,
    runs,
    streams,
)
from wick_graph.store.keeping import pages
from wick_graph.store.keeping.journal_rows import ALL, KEY, RUN_BYTES, page_run
from wick_graph.store.sealed.sealing import Seals
from wick_graph.store.values.blobs import HASH_BYTES, hashes_in
from wick_graph.store.values.folding import unfold

_REFERENCE: Final = b"#"
"""Stands before a blob's hash in a page, and in what a page refers to."""
_ZLIB: Final = b"\x01"
"""The first byte of a content that is compressed."""


def drop_runs(db: Database, seals: Seals, thread: int, gone: Collection[bytes]) -> None:
    """Delete runs with their moments, and the values that no other run's moments hold."""
    ids = frozenset(gone)
    found = db.execute(journal_sql.RUNS, (thread,)).fetchall() if ids else []
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
    """Delete the journal's values that nothing leads to."""
    found = db.execute(journal_sql.BLOBS, (thread,)).fetchall()
    held = {bytes(key): body for key, _, body in found if len(key) == HASH_BYTES}
    todo = list(_roots(db, seals, thread))
    while todo:
        for hashed in {*hashes_in(todo.pop(), _REFERENCE)} & held.keys():
            todo += _content(seals, held.pop(hashed), 0, thread, hashed)
    for hashed in held:
        erase(db, blobs, thread, blobs.c.thread == thread, blobs.c.hash == hashed)
    if not db.execute(journal_sql.RUNS, (thread,)).fetchall():  # the key hides nothing any more
        erase(db, blobs, thread, blobs.c.thread == thread, blobs.c.hash == KEY)


def _roots(db: Database, seals: Seals, thread: int) -> Iterator[bytes]:
    for rid, sealed in _pages(db, thread):
        yield from _content(seals, sealed, RUN_BYTES, "moments", rid)
    for number, *_, sealed in db.execute(journal_sql.RUNS, (thread,)).fetchall():
        yield from _content(seals, sealed, None, thread, number)


def _pages(db: Database, thread: int) -> Iterable[Any]:
    low = thread << LANE_BITS
    return db.execute(journal_sql.PAGES_FROM, (low, low | PLACES, ALL, 0)).fetchall()


def _content(seals: Seals, sealed: bytes, mark_at: int | None, *context: Any) -> list[bytes]:
    """Return a row's content, unfolded; nothing of a damaged one, which leads nowhere."""
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
    """Delete what a server keeps of runs that are deleted, or long over and without a checkpoint.

    A run that ended later than `before` stays known: whoever asks for it again under its
    idempotency key gets it, and not a second one.
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
    ranges = zip([0, *later], [*later, PLACES + 1], strict=True)  # what stood before goes too
    for (rid, _, run, is_over), (first, end) in zip(found, ranges, strict=False):
        if is_over or run in ids:
            erase(db, streams, thread, streams.c.rid == rid)
            _drop_events(db, seals, thread, first, end)


def _drop_events(db: Database, seals: Seals, thread: int, first: int, end: int) -> None:
    """Delete events; an empty page stays for the thread's last one, whose number is not free."""
    low, last = thread << LANE_BITS, pages.last(db, thread)
    own = events.c.rid.between(low | first, low | (end - 1))
    dropped = erase(db, events, thread, own)
    if dropped and first <= last < end:
        rid = low | last
        pages.add(db, thread, rid, seals.seal(b"[]", "events", rid))
