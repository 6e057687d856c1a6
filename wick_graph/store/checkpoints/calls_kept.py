"""The ledger of a thread when its checkpoints are deleted: which rows can still be asked for.

A call's key begins with the id of the step that made it, and so does whatever was filed beside
the call. That id stands in the reply that asked for the call, and in what its task was sent. A row
of which no stored value holds that id is one that no run, resume or fork can ask for any more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from sqlalchemy import select

from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import erase
from wick_graph.store.database.schema import LANE_BITS, PLACES, blobs, calls, items, names
from wick_graph.store.sealed.sealing import Seals
from wick_graph.store.values.blobs import HASH_BYTES, is_text_key
from wick_graph.store.values.rows import bytes_text, text_bytes

_UUID: Final = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_BESIDE: Final = re.compile(r"(?::\d+)?(?:/\w+)?\Z")
"""What follows a step's id in a key: the call's index, and what is filed beside the call."""


def step_of(key: str) -> str:
    """Return the id of the step that a key of the ledger belongs to."""
    return _BESIDE.sub("", key, count=1)


def drop(
    db: Database,
    seals: Seals,
    thread: int,
    garbage: Collection[int],
    bodies: Iterable[bytes],
) -> None:
    """Delete the calls of which no stored value knows any more.

    Args:
        db: The transaction that deleted the checkpoints.
        seals: How the thread's rows are opened.
        thread: The thread's number.
        garbage: Items that are about to be deleted.
        bodies: What the checkpoints and the pending writes hold themselves.
    """
    mine = select(calls.c.rid, calls.c.key).where(calls.c.thread == thread)
    by_step: dict[bytes, list[int]] = {}
    for rid, key in db.execute(*compiled(mine)).fetchall():
        step = step_of(bytes_text(key))
        if step and step.isascii():  # what is written otherwise somewhere else is not looked for
            by_step.setdefault(text_bytes(step), []).append(rid)
    if not by_step:
        return
    others = {step for step in by_step if not _UUID.fullmatch(step)}
    for content in _contents(db, seals, thread, garbage, bodies):
        if not by_step:  # all are known; what is left need not be read
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
