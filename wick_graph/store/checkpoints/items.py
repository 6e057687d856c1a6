"""Items as they are stored: read in ranges, checked, and found again by what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wick_graph.errors import StorageError
from wick_graph.store.checkpoints.cache import ThreadCache, digest
from wick_graph.store.database import sql
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema import LANE_BITS, PLACES


class Item(NamedTuple):
    """One row of `items`."""

    rid: int
    head: bytes
    core: bytes
    full: bool
    """The row holds the content itself, and not the key of another one."""


def read_items(
    db: Database, cache: ThreadCache, first: int, last: int, thread_id: str
) -> Iterator[Item]:
    """Yield the items of a range of keys, with their check values verified.

    Raises:
        StorageError: if one is missing or damaged.
    """
    what = f"table items of thread {thread_id!r}"
    due, unseal = first, cache.seals.unseal
    for rid, base, sealed, based in db.execute(sql.ITEMS, (first, last)):
        head, core = take_head(unseal(sealed, what, rid, base))
        if base is not None:
            if based is None:
                raise _incomplete(what)
            core = take_head(unseal(based, what, base, None))[1]
        if rid != due:
            break
        due += 1
        yield Item(rid, head, core, base is None)
    if due != last + 1:
        raise _incomplete(what)


def learn(cache: ThreadCache, item: Item) -> None:
    """Remember where an item's content lies."""
    key = digest(item.core)
    cache.learn(item.rid >> LANE_BITS, item.head, key, item.rid & PLACES, full=item.full)


def learn_lately_read(db: Database, cache: ThreadCache, thread_id: str) -> None:
    """Remember where the content of lists lies that were read without looking at that.

    Nearly every list is continued, and found by the objects it holds; only what is made anew is
    looked for by its content.
    """
    ranges, cache.unlearned = cache.unlearned, []
    for first, last in ranges:
        for item in read_items(db, cache, first, last, thread_id):
            learn(cache, item)


def take_head(payload: bytes) -> tuple[bytes, bytes]:
    """Split an item's payload into head and core."""
    size = payload[0]
    start = 1
    if size == 255:
        size = int.from_bytes(payload[1:5], "little")
        start = 5
    return payload[start : start + size], payload[start + size :]


def _incomplete(what: str) -> StorageError:
    return StorageError(f"{what} is damaged: an item is missing; restore a backup")
