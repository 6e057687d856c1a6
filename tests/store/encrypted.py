"""A store with something in each table that holds content, and ways to look at its rows."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Table, select

from wick_graph import Agent, BaseHook
from wick_graph.journal import Journal
from wick_graph.store import Keys, SqlSaver, verify
from wick_graph.store.digests import LANE_BITS, PLACES
from wick_graph.store.row_format import CHECK_BYTES
from wick_graph.store.schema import metadata, names
from wick_graph.store.texts import compiled
from wick_graph.testing import ScriptedModel, call

CANARY = "canary-7f3a9c"
LONG = f"{CANARY} in a long text " * 60
RUN = str(UUID(int=7))


def key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


KEYS = Keys([key("new"), key("old")])
NEW = Keys([key("new")])
OLD = Keys([key("old")])
OTHER = Keys([key("other")])
ON: Any = {"configurable": {"thread_id": "a"}}


class Says(BaseHook):
    """Puts the canary into the prompt, so that the journal keeps it."""

    name = "says"

    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request.append_system(f"the prompt has a {LONG}")


def agent_of(store: SqlSaver, turns: int = 2) -> Agent:
    """Make an agent that calls a tool in each turn, and then answers."""

    def act(what: str, n: int) -> str:
        """Act."""
        return f"{LONG} {what} {n}"

    steps: list[Any] = []
    for turn in range(turns):
        steps += [call("act", what=CANARY, n=turn), f"{CANARY} {turn}"]
    return Agent(
        "helper", ScriptedModel(steps), tools=[act], hooks=[Says()], store=store, journal="full"
    )


def fill(saver: SqlSaver, *thread_ids: str) -> None:
    """Let threads have two turns each, asked for at a server, of which the last one failed."""
    for thread_id in thread_ids or ("a",):
        agent = agent_of(saver)
        for turn in range(2):
            agent.invoke(f"{CANARY} question {turn}", thread_id=thread_id)
        config: Any = {"configurable": {"thread_id": thread_id}}
        agent.graph.update_state(config, {"summary": f"{CANARY} summary"})
        number = sum(map(ord, thread_id))
        row = saver.streams.begin(thread_id, str(UUID(int=number)), {"messages": CANARY})
        assert row is not None
        saver.streams.append(row, row.first, [{"event": "text", "data": CANARY}], "done")
        saver.threads.close(
            thread_id, status="failed", stopped_because="failed", error=f"{CANARY} broke"
        )


@dataclass(frozen=True)
class Sealed:
    """One row that is encrypted."""

    table: str
    rid: int
    thread_id: str
    context: tuple[Any, ...]
    body: bytes


def sealed_rows(saver: SqlSaver) -> list[Sealed]:
    """List all encrypted rows, with what each is bound to."""
    return [row for thread_id in _ids(saver) for row in _of(saver, thread_id)]


def _ids(saver: SqlSaver) -> list[str]:
    return sorted(info.thread_id for info in saver.threads.list())


def _of(saver: SqlSaver, thread_id: str) -> Iterator[Sealed]:
    core = saver._core
    with core.reading(thread_id) as db:
        cache = core.thread(db, thread_id)
        assert cache is not None
        mine = select(names.c.id).where(names.c.thread == cache.id)
        lanes = [row[0] for row in db.execute(*compiled(mine)).fetchall()]

        def found(table: Table, columns: Any, place: Any, where: Any) -> Iterator[Sealed]:
            query = select(table.c.rid, table.c.body, *columns).where(where).order_by(table.c.rid)
            for rid, body, *rest in db.execute(*compiled(query)).fetchall():
                if body is not None:
                    yield Sealed(table.name, rid, thread_id, place(cache.seals, rid, rest), body)

        for table, columns, place in verify.BY_THREAD:
            yield from found(table, columns, place, table.c.thread == cache.id)
        for table, columns, place in verify.BY_RANGE:
            for owner in lanes if table.name == "items" else [cache.id]:
                low = owner << LANE_BITS
                yield from found(table, columns, place, table.c.rid.between(low, low | PLACES))


def one_of_each(rows: Sequence[Sealed], thread_id: str) -> dict[str, Sealed]:
    """Choose a row of every table; of the blobs, a long text of a value."""
    chosen: dict[str, Sealed] = {}
    for row in rows:
        if row.thread_id != thread_id or (row.table == "blobs" and row.context[0] != "blobs"):
            continue
        if row.table == "items" and row.context[1] is not None:
            continue  # a row that repeats another one's content
        chosen.setdefault(row.table, row)
    return chosen


def readers(thread_id: str) -> dict[str, Callable[[SqlSaver], Any]]:
    """Return for each table how its rows are read, as users do."""
    config: Any = {"configurable": {"thread_id": thread_id}}

    def states(saver: SqlSaver) -> Any:
        return [*saver.list(config)]

    def calls(saver: SqlSaver) -> Any:
        lease = saver.leases.acquire(thread_id)
        try:
            ledger = saver.ledger(lease)
            with saver._core.reading() as db:
                query = f"SELECT key FROM calls WHERE thread={lease.thread} ORDER BY rid"
                held = bytes(db.execute(query).fetchall()[0][0]).decode()
            return ledger.recorded(held, "act", {"what": CANARY, "n": 0})
        finally:
            saver.leases.release(lease)

    def journal(saver: SqlSaver) -> Any:
        return Journal(saver, thread_id).problems()

    return {
        **dict.fromkeys(("items", "checkpoints", "writes", "blobs"), states),
        "calls": calls,
        "streams": lambda saver: saver.streams.of_thread(thread_id),
        "events": lambda saver: saver.streams.read(thread_id, 0),
        "moments": journal,
        "runs": journal,
    }


def dump(outside: Any) -> dict[str, list[Any]]:
    """Read every row of every table, as another program does."""
    tables = metadata.tables
    return {name: outside.run(f"SELECT * FROM {name} ORDER BY 1") for name in tables}


def _unfolded(data: bytes) -> bytes:
    """Return what a compressed result of a call in the ledger holds, if this is one."""
    with suppress(zlib.error):
        if data[CHECK_BYTES + 1 : CHECK_BYTES + 2] == b"\xc1":
            return zlib.decompress(data[CHECK_BYTES + 2 :])
    return b""


def places_of(outside: Any, text: str) -> set[str]:
    """Name the columns in which a text can be read."""
    found = set()
    for name, rows in dump(outside).items():
        columns = [column.name for column in metadata.tables[name].columns]
        for row in rows:
            for column, value in zip(columns, row, strict=False):  # PostgreSQL has one more
                data = (
                    bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                )
                if text.encode() in data + _unfolded(data):
                    found.add(f"{name}.{column}")
    return found
