"""Two clocks: the wall's, which people set, and a steady one, which only runs.

Idle time is told by the wall clock, because a store outlives the machine's boot. So the store
remembers when it was used last by both clocks. Where they disagree about the time since then, the
wall clock was set, and idle time begins to count anew. After a restart of the machine there is no
steady time to compare with: a gap of more than an hour cannot be told from a clock that is wrong,
and counts as one.
"""

from __future__ import annotations

import time
from typing import Any, Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from wick_graph.store.checkpoints.owners import boot
from wick_graph.store.database.compiling import checked, compiled, prepared
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.schema import clock, threads
from wick_graph.store.values.rows import text_bytes

JUMP_SECONDS: Final = 3600.0
"""How far the two clocks may be apart before the wall clock counts as set."""
_ROW: Final = 1
_b = bindparam
_LAST: Final = prepared(
    select(clock.c.boot, clock.c.wall, clock.c.steady, clock.c.since).where(clock.c.rid == _b("r")),
    "r",
)
_values: Final[dict[str, Any]] = {name: _b(name) for name in ("boot", "wall", "steady", "since")}
_row = upsert(clock).values(rid=_b("r"), **checked(clock, _values, new=True))
_NOTE: Final = prepared(
    _row.on_conflict_do_update(
        index_elements=["rid"], set_={name: _row.excluded[name] for name in (*_values, "checksum")}
    ),
    *("r", "boot", "wall", "steady", "since"),
)
SINCE: Final = func.coalesce(select(clock.c.since).scalar_subquery(), 0.0)
"""The time from which on idleness counts."""


def steady_time() -> float:
    """Return the seconds since the machine was started, the time that it slept included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def note_time(db: Database, wall: float, steady: float) -> float | None:
    """Note that the store is used now, in the transaction that uses it.

    Returns:
        By how much the wall clock seems to have been set since the last use; None if it was not.
    """
    here = text_bytes(boot())
    row = db.execute(_LAST, (_ROW,)).fetchone()
    since = 0.0 if row is None else row[3]
    if row is not None and bytes(row[0]) == here:
        off = wall - row[1] - (steady - row[2])
    else:  # the machine was restarted, or this is another one; or nobody has noted anything yet
        last = db.execute(*compiled(select(func.max(threads.c.last_access)))).fetchone()[0]
        used = [at for at in (last, None if row is None else row[1]) if at is not None]
        off = wall - max(used) if used else 0.0
    jumped = abs(off) > JUMP_SECONDS
    db.execute(_NOTE, (_ROW, here, wall, steady, wall if jumped else since))
    return off if jumped else None
