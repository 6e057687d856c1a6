"""The long texts of a thread when its items are deleted or copied."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import delete, insert, literal, select
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.store import sql
from wick_graph.store.blobs import hashes_in, is_text_key, key_of
from wick_graph.store.cache import PLACES
from wick_graph.store.codec import BLOB_MARK
from wick_graph.store.dialect import Database
from wick_graph.store.schema import LANE_BITS, blobs, items, names


def drop(db: Database, thread: int, garbage: frozenset[int]) -> None:
    """Delete the texts that only garbage items refer to.

    This must be in the transaction that declares the items garbage: whoever writes afterwards
    relies on every text that he finds.
    """
    found = db.execute(*sql.compiled(select(blobs.c.hash).where(_of(thread)))).fetchall()
    unused = {key for (key,) in found if is_text_key(key)}
    if not unused:
        return
    for rid, body in _bodies(db, thread):
        if rid not in garbage:
            unused -= {key_of(hashed) for hashed in hashes_in(body, BLOB_MARK)}
    for key in unused:
        db.execute(*sql.compiled(delete(blobs).where(_of(thread), blobs.c.hash == key)))


def copy(db: Database, source: int, target: int, to: Database | None = None) -> None:
    """Copy a thread's texts to another, here or elsewhere; their keys stay as they are."""
    columns = (blobs.c.hash, blobs.c.size, blobs.c.body)
    found = db.execute(*sql.compiled(select(*columns).where(_of(source)))).fetchall()
    for key, size, body in found:
        if is_text_key(key):
            row = insert(blobs).values(thread=target, hash=key, size=size, body=body)
            (to or db).execute(*sql.compiled(row))


def _of(thread: int) -> ColumnElement[bool]:
    return blobs.c.thread == literal(thread)


def _bodies(db: Database, thread: int) -> Iterator[tuple[int, bytes]]:
    lanes = select(names.c.id).where(names.c.thread == thread)
    for (lane,) in db.execute(*sql.compiled(lanes)).fetchall():
        low = lane << LANE_BITS
        own = select(items.c.rid, items.c.body).where(items.c.rid.between(low, low | PLACES))
        yield from db.execute(*sql.compiled(own))
