"""What must hold of a store's rows at any time: none belongs to something that is gone.

Everything is read row by row and compared as plain sets, with none of the store's own bookkeeping.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import ormsgpack
from sqlalchemy import Table, select

from wick_graph.store import SqlSaver
from wick_graph.store.codec import BLOB_MARK
from wick_graph.store.digests import LANE_BITS
from wick_graph.store.row_format import CheckpointBody, WritesBody, unseal
from wick_graph.store.schema import (
    OWNED,
    blobs,
    calls,
    checkpoints,
    clock,
    digests,
    events,
    facts,
    inbox,
    items,
    memories,
    metadata,
    moments,
    names,
    outbox,
    runs,
    streams,
    threads,
    tokens,
    writes,
)
from wick_graph.store.texts import compiled
from wick_graph.store.verify import verify

_PLACES = (1 << LANE_BITS) - 1


def assert_no_orphans(saver: SqlSaver) -> None:
    """Check every table that refers to rows of another one."""
    of_no_thread = {tokens, clock, inbox, outbox, facts, memories}
    checked = {*OWNED, moments, events, digests, items, names, threads, *of_no_thread}
    assert checked == {*metadata.tables.values()}, "a table that nobody checks"
    with saver._core.reading() as db:
        found = orphans(db)
        assert not found, found
    damaged = verify(saver).findings
    assert not damaged, damaged


def orphans(db: Any) -> dict[str, list[Any]]:
    """Return the rows that nothing needs, by what is wrong with them."""
    wrong: dict[str, list[Any]] = {}

    def refuse(why: str, rows: Iterable[Any]) -> None:
        if found := [*rows]:
            wrong[why] = found

    known = {row["id"] for row in _rows(db, threads)}
    for table in OWNED:
        rows = _rows(db, table)
        refuse(f"{table.name}: no thread", (r for r in rows if r["thread"] not in known))
    for table in (moments, events, digests):
        rids = [row["rid"] for row in _rows(db, table)]
        refuse(f"{table.name}: no thread", (rid for rid in rids if rid >> LANE_BITS not in known))
    lanes = {row["id"]: row["thread"] for row in _rows(db, names)}
    refuse("names: no thread", (lane for lane, thread in lanes.items() if thread not in known))
    scopes = {row["scope"] for row in _rows(db, names)}
    refuse("names: no namespace", (scope for scope in scopes if scope and scope not in lanes))
    refuse(
        "items: no lane", (r["rid"] for r in _rows(db, items) if r["rid"] >> LANE_BITS not in lanes)
    )
    states = {(r["thread"], r["ns"], r["id"]) for r in _rows(db, checkpoints)}
    refuse("checkpoints: no namespace", (at for at in states if lanes.get(at[1]) != at[0]))
    filed = {(r["thread"], r["ns"], r["checkpoint"]) for r in _rows(db, writes)}
    refuse("writes: no checkpoint", filed - states)
    refuse("items: not referred to", _unused_items(db))
    contents = _contents(db, lanes)
    refuse("blobs: not referred to", _unused_blobs(db, contents))
    refuse("calls: asked for by nobody", _unused_calls(db, contents))
    numbers = {(r["thread"], r["number"]) for r in _rows(db, runs)}
    pages = {(r["rid"] >> LANE_BITS, _run_of(r)) for r in _rows(db, moments)}
    refuse("moments: no run", pages - numbers)
    refuse("events: no run", _unused_events(db))
    return wrong


def _rows(db: Any, table: Table) -> list[dict[str, Any]]:
    found = db.execute(*compiled(select(table))).fetchall()
    return [dict(zip(table.columns.keys(), row, strict=True)) for row in found]


def _unsealed_checkpoint(row: dict[str, Any]) -> bytes:
    facts = [row[key] for key in ("thread", "ns", "id", "parent", "source", "step", "run", "meta")]
    return unseal(row["body"], "a checkpoint", *facts)


def _unsealed_writes(row: dict[str, Any]) -> bytes:
    facts = [row[key] for key in ("thread", "ns", "checkpoint", "task", "path")]
    return unseal(row["body"], "writes", *facts)


def _unused_items(db: Any) -> set[int]:
    forms: list[Any] = []
    for row in _rows(db, checkpoints):
        forms += [form for _, form in CheckpointBody.load(_unsealed_checkpoint(row)).forms()]
        forms += [] if row["meta"] is None else [ormsgpack.unpackb(row["meta"])]
    for row in _rows(db, writes):
        forms += [form for *_, form in WritesBody.load(_unsealed_writes(row)).entries()]
    used = {rid for form in forms for rid in _items_of(form)}
    bases = {row["rid"]: row["base"] for row in _rows(db, items)}
    used |= {base for rid in used if (base := bases.get(rid)) is not None}
    return bases.keys() - used


def _items_of(form: Any) -> Iterator[int]:
    if isinstance(form, int):
        yield form
    elif isinstance(form, list):
        for lane, *ranges in form[1:]:
            for start, count in zip(ranges[::2], ranges[1::2], strict=True):
                yield from range(lane << LANE_BITS | start, (lane << LANE_BITS | start) + count)


def _contents(db: Any, lanes: dict[int, int]) -> dict[int, bytes]:
    """Return all that each thread's state holds, in one piece; long texts that are apart too."""
    held: dict[int, list[bytes]] = defaultdict(list)
    for row in _rows(db, items):
        held[lanes[row["rid"] >> LANE_BITS]].append(
            unseal(row["body"], "an item", row["rid"], row["base"])
        )
    for row in _rows(db, checkpoints):
        held[row["thread"]].append(_unsealed_checkpoint(row))
    for row in _rows(db, writes):
        held[row["thread"]].append(_unsealed_writes(row))
    for row in _rows(db, blobs):
        if row["hash"].startswith(b"text"):
            held[row["thread"]].append(unseal(row["body"], "a text", "blobs", row["hash"][4:]))
    return {thread: b"\0".join(parts) for thread, parts in held.items()}


def _unused_blobs(db: Any, contents: dict[int, bytes]) -> list[Any]:
    journal = _journal(db)
    unused = []
    for row in _rows(db, blobs):
        thread, key = row["thread"], row["hash"]
        if key == b"":
            needed = any(run["thread"] == thread for run in _rows(db, runs))
        elif key.startswith(b"text"):
            needed = BLOB_MARK + key[4:] in contents.get(thread, b"")
        else:
            needed = b"#" + key in journal.get(thread, b"")
        if not needed:
            unused.append((thread, key))
    return unused


def _journal(db: Any) -> dict[int, bytes]:
    held: dict[int, list[bytes]] = defaultdict(list)
    for row in _rows(db, moments):
        page = unseal(row["body"], "a page", "moments", row["rid"])
        held[row["rid"] >> LANE_BITS].append(_unfolded(page[4:]))
    for row in _rows(db, runs):
        held[row["thread"]].append(unseal(row["body"], "a run", row["thread"], row["number"]))
    for row in _rows(db, blobs):
        if len(row["hash"]) == 16:
            body = unseal(row["body"], "a value", row["thread"], row["hash"])
            held[row["thread"]].append(_unfolded(body))
    return {thread: b"\0".join(parts) for thread, parts in held.items()}


def _unfolded(content: bytes) -> bytes:
    return zlib.decompress(content[1:]) if content[:1] == b"\x01" else content


def _unused_calls(db: Any, contents: dict[int, bytes]) -> list[Any]:
    """List calls whose step stands in no value: `STEP:INDEX`, and what is filed beside a call."""
    return [
        row["key"]
        for row in _rows(db, calls)
        if row["key"].partition(b"/")[0].rpartition(b":")[0].strip()
        and row["key"].partition(b"/")[0].rpartition(b":")[0]
        not in contents.get(row["thread"], b"")
    ]


def _run_of(row: dict[str, Any]) -> int:
    return int.from_bytes(unseal(row["body"], "a page", "moments", row["rid"])[:4], "little")


def _unused_events(db: Any) -> list[int]:
    first: dict[int, int] = {}
    for row in _rows(db, streams):
        first[row["thread"]] = min(row["first"], first.get(row["thread"], row["first"]))
    return [
        row["rid"]
        for row in _rows(db, events)
        if unseal(row["body"], "a page", "events", row["rid"]) != b"[]"
        and row["rid"] & _PLACES < first.get(row["rid"] >> LANE_BITS, _PLACES)
    ]
