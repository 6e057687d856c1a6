"""The long texts of a thread when its items are deleted or copied."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import insert, literal, select
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import BLOBS, erase, row_hash
from wick_graph.store.database.schema import LANE_BITS, PLACES, blobs, items, names
from wick_graph.store.sealed.sealing import Seals
from wick_graph.store.values.blobs import HASH_BYTES, hashes_in, is_text_key, key_of
from wick_graph.store.values.codec import BLOB_MARK


def drop(db: Database, seals: Seals, thread: int, garbage: frozenset[int]) -> None:
    """Delete the texts that only garbage items refer to.

    This must be in the transaction that declares the items garbage: whoever writes afterwards
    relies on every text that he finds.
    """
    unused = {*keys(db, thread)}
    if not unused:
        return
    for rid, base, sealed in _items(db, thread):
        if rid not in garbage:
            body = seals.content(sealed, "table items", rid, base)
            unused -= {key_of(hashed) for hashed in hashes_in(body, BLOB_MARK)}
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
    """Copy a thread's texts to another, here or elsewhere; their keys stay as they are."""
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
