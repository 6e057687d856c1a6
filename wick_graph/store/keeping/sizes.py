"""What a store's threads take up, and giving back what nobody uses."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Table, func, select

from wick_graph.store.checkpoints.core import Core
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.schema import (
    LANE_BITS,
    PLACES,
    blobs,
    calls,
    checkpoints,
    items,
    moments,
    names,
    runs,
    streams,
    threads,
    writes,
)
from wick_graph.store.values.rows import bytes_text

_PARTS: Final[dict[str, tuple[Table, ...]]] = {
    "checkpoints": (checkpoints, writes),
    "ledger": (calls,),
    "journal": (runs,),
    "texts": (blobs,),
    "streams": (streams,),
}


def sizes(core: Core) -> dict[str, dict[str, int]]:
    """Return the bytes of content of each thread, by what they are for.

    What the database needs around its rows, and free pages, are not counted.
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


def vacuum(core: Core) -> None:
    """Give free space back to the file system, some at a time."""
    more = True
    while more:
        with core.idle() as db:
            more = core.dialect.shrink(db)
