"""Writes whose checkpoint is not stored: it comes in a moment, or its commit has failed.

LangGraph saves in the background, so writes may be filed before the checkpoint that they name.
Those that stay without it belong to nothing, and are deleted as soon as it cannot come any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import exists, select

from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import erase
from wick_graph.store.database.schema import checkpoints, writes


class Strays:
    """The writes of this process that were filed before their checkpoint; mostly there are none."""

    def __init__(self) -> None:
        self._early: dict[int, set[tuple[int, bytes]]] = {}
        """By thread: the namespaces and ids of checkpoints."""

    def __bool__(self) -> bool:
        return bool(self._early)

    def note(self, thread: int, ns: int, checkpoint: bytes) -> None:
        """Note that writes were filed under a checkpoint that is not stored."""
        self._early.setdefault(thread, set()).add((ns, checkpoint))

    def sweep(self, db: Database, thread: int, before: tuple[int, bytes] | None = None) -> None:
        """Delete what has no checkpoint: all of a thread whose run is over, or what is older.

        `before` is a checkpoint that is stored now: no older one of its namespace comes after it.
        Places where nothing is left to delete are forgotten; others are looked at again, because
        the transaction may fail.
        """
        early = self._early.get(thread, set())
        for ns, checkpoint in [*early]:
            if before is not None and (ns != before[0] or checkpoint >= before[1]):
                continue
            if not _erase(db, thread, ns, checkpoint):
                early.discard((ns, checkpoint))
        if not early:
            self._early.pop(thread, None)


def drop_old(
    db: Database, thread: int, stored: Iterable[tuple[int, bytes]], root: int | None
) -> int:
    """Delete the writes of a thread whose checkpoint is not stored, and cannot come any more.

    That is so where its namespace, or the graph around all others, `root`, has a newer checkpoint.
    Returns how many there were.
    """
    known, latest, dropped = set(stored), dict[int, bytes](), 0
    for ns, checkpoint in known:
        latest[ns] = max(checkpoint, latest.get(ns, b""))
    newest = b"" if root is None else latest.get(root, b"")
    query = select(writes.c.ns, writes.c.checkpoint).where(writes.c.thread == thread).distinct()
    for ns, found in db.execute(*compiled(query)).fetchall():
        checkpoint = bytes(found)
        if (ns, checkpoint) not in known and checkpoint < max(newest, latest.get(ns, b"")):
            dropped += _erase(db, thread, ns, checkpoint)
    return dropped


def _erase(db: Database, thread: int, ns: int, checkpoint: bytes) -> int:
    """Delete the writes under a checkpoint unless that is stored; return how many there were."""
    mine = (writes.c.thread == thread, writes.c.ns == ns, writes.c.checkpoint == checkpoint)
    own = checkpoints.c
    stored = exists().where(own.thread == thread, own.ns == ns, own.id == checkpoint)
    return erase(db, writes, thread, *mine, ~stored, step=0)
