"""Saving one step: a checkpoint, or the writes of one task."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.base import WRITES_IDX_MAP

from wick_graph.store import sql
from wick_graph.store.cache import ThreadCache
from wick_graph.store.codec import Codec
from wick_graph.store.reading import Reader, find
from wick_graph.store.rows import (
    CheckpointBody,
    WritesBody,
    bytes_text,
    is_source,
    is_step,
    pack_id,
    seal,
    text_bytes,
    unseal,
)
from wick_graph.store.writing import Writer

_KNOWN: Final = frozenset(
    {"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"}
)


class Step:
    """One transaction's access to a namespace of a thread."""

    def __init__(
        self, db: sqlite3.Connection, cache: ThreadCache, codec: Codec, thread_id: str, ns: str
    ) -> None:
        self._db = db
        self._cache = cache
        self._codec = codec
        self._thread_id = thread_id
        self._namespace = ns
        self._ns = cache.name(db, 0, ns)
        self._writer = Writer(db, cache, codec)

    def checkpoint(
        self,
        checkpoint: Mapping[str, Any],
        metadata: dict[str, Any],
        new_versions: Mapping[str, Any],
        parent: str | None,
    ) -> None:
        """Insert a checkpoint, or replace the one that has its id."""
        self._warm(parent)
        body = self._body(checkpoint, new_versions)
        rest = dict(metadata)
        source = rest.pop("source") if is_source(rest.get("source")) else None
        step = rest.pop("step") if is_step(rest.get("step")) else None
        run = pack_id(rest.pop("run_id")) if type(rest.get("run_id")) is str else None
        meta: bytes | None = None
        if rest:
            home = self._cache.lane(self._ns)
            meta = ormsgpack.packb(self._writer.share(home, self._codec.pack(rest)))
        context = (
            self._cache.id,
            self._ns,
            pack_id(checkpoint["id"]),
            None if not parent else pack_id(parent),
            source,
            step,
            run,
        )
        self._writer.flush()
        sealed = seal(body.dump(), *context, meta)
        self._db.execute(sql.PUT, (*context, 0, meta, sealed))

    def writes(
        self, checkpoint: str, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> None:
        """File a task's writes under a checkpoint; one that is there already stays.

        Errors, interrupts and resumes replace the earlier one of their task.
        """
        keys = (self._cache.id, self._ns, pack_id(checkpoint), pack_id(task))
        body, path = self._filed(keys, path)
        held = {index for index, _, _ in body.entries()}
        later = WritesBody()
        home = self._cache.lane(self._ns)
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            if index < 0 or index not in held:
                number = self._number(channel)
                form = self._writer.write(self._cache.lane(number), home, value)
                later.flat += (index, number, form)
        if body.merge(later):
            self._writer.flush()
            row = (*keys, text_bytes(path))
            self._db.execute(sql.PUT_WRITES, (*row, seal(body.dump(), *row)))

    def _filed(self, keys: tuple[int, int, bytes, bytes], path: str) -> tuple[WritesBody, str]:
        row = self._db.execute(sql.TASK, keys).fetchone()
        if row is None:
            return WritesBody(), path
        what = f"table writes of thread {self._thread_id!r}"
        body = WritesBody.load(unseal(row[1], what, *keys, row[0]))
        return body, path or bytes_text(row[0])

    def _warm(self, parent: str | None) -> None:
        """Find out what can be shared, if this process does not know it."""
        if self._ns in self._cache.warm:
            return
        self._cache.warm.add(self._ns)
        row = find(self._db, self._cache, self._namespace, parent) if parent else None
        if row is not None:
            Reader(self._db, self._cache, self._codec, self._thread_id).warm(row)

    def _body(
        self, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> CheckpointBody:
        versions = checkpoint["channel_versions"]
        values: list[Any] = []
        for channel, value in checkpoint["channel_values"].items():
            number = self._number(channel)
            lane = self._cache.lane(number)
            new = channel in new_versions
            values += (number, self._writer.channel(lane, versions.get(channel), new, value))
        seen: list[Any] = []
        for node, channels in checkpoint["versions_seen"].items():
            seen += (self._number(node), self._flat(channels))
        updated = checkpoint.get("updated_channels")
        extra = {key: value for key, value in checkpoint.items() if key not in _KNOWN}
        return CheckpointBody(
            checkpoint["v"],
            checkpoint["ts"],
            self._flat(versions),
            seen,
            values,
            None if updated is None else [self._number(channel) for channel in updated],
            self._codec.pack(extra) if extra else None,
        )

    def _flat(self, versions: Mapping[str, Any]) -> list[Any]:
        flat: list[Any] = []
        for channel, version in versions.items():
            flat += (self._number(channel), version)
        return flat

    def _number(self, name: str) -> int:
        return self._cache.name(self._db, self._ns, name)
