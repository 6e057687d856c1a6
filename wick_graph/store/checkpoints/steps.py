"""Saving one step: a checkpoint, or the writes of one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.base import WRITES_IDX_MAP

from wick_graph.store.checkpoints.cache import Lane, ThreadCache
from wick_graph.store.checkpoints.forks_meant import MeantForks
from wick_graph.store.checkpoints.reading import Reader, find
from wick_graph.store.checkpoints.strays import Strays
from wick_graph.store.checkpoints.writing import Writer
from wick_graph.store.checkpoints.written import NOTHING
from wick_graph.store.database import sql
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.digests import CHECKPOINTS, WRITES, changing, row_hash
from wick_graph.store.database.schema import checkpoints
from wick_graph.store.values.codec import Codec
from wick_graph.store.values.rows import (
    CheckpointBody,
    WritesBody,
    is_source,
    is_step,
    pack_id,
    text_bytes,
)

_KNOWN: Final = frozenset(
    {"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"}
)


class Step:
    """One transaction's access to a namespace of a thread."""

    def __init__(
        self,
        db: Database,
        cache: ThreadCache,
        codec: Codec,
        thread_id: str,
        ns: str,
        forks: MeantForks,
        strays: Strays,
    ) -> None:
        self._forks = forks
        self._strays = strays
        self._db = db
        self._cache = cache
        self._codec = codec
        self._thread_id = thread_id
        self._namespace = ns
        self._ns = cache.name(db, 0, ns)
        self._names = cache.scope(db, self._ns)
        self._lanes = cache.channels.setdefault(self._ns, {})
        self._writer = Writer(db, cache, codec, thread_id)

    def checkpoint(
        self,
        checkpoint: Mapping[str, Any],
        metadata: dict[str, Any],
        new_versions: Mapping[str, Any],
        parent: str | None,
        held: Mapping[str, Any],
    ) -> None:
        """Insert a checkpoint, or replace the one that has its id.

        `held` are the channels' own objects, of which the checkpoint may have copies.

        Raises:
            ThreadBusyError: It does not continue the thread's head, and no fork was meant.
        """
        own, before = pack_id(checkpoint["id"]), pack_id(parent) if parent else None
        head = self._cache.head(self._db, self._ns)
        if metadata.get("source") != "fork":  # which nobody makes without meaning it
            place = (self._thread_id, self._namespace)
            self._forks.check(place, own, before, None if head is None else head[0])
        self._warm(parent)
        writes = self._cache.take_written(self._ns, before)
        self._cache.saved[self._ns] = (checkpoint, metadata, new_versions, parent, held)
        body = self._body(checkpoint, new_versions, held, writes)
        self._number_outer(metadata.get("parents"))
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
            own,
            before,
            source,
            step,
            run,
        )
        self._writer.flush()
        self._put(context, meta, body)
        if self._strays:
            self._strays.sweep(self._db, self._cache.id, (self._ns, own))

    def _number_outer(self, parents: Any) -> None:
        """Let the checkpoints of graphs around this one have lower numbers than its own."""
        if isinstance(parents, dict):
            cache, db = self._cache, self._db
            for name, outer in parents.items():
                if isinstance(name, str) and isinstance(outer, str):
                    cache.reserve(db, name, pack_id(outer))

    def _put(self, context: tuple[Any, ...], meta: bytes | None, body: CheckpointBody) -> None:
        """Write a checkpoint's row: a new one has the next number, and is the head."""
        db, cache, own, parent = self._db, self._cache, context[2], context[3]
        step = cache.seq(db, self._ns, parent)
        body.seq = seq = cache.take_seq(db, self._namespace, own)
        sealed = cache.seals.seal(body.dump(), *context, meta)
        if db.execute(sql.PUT, (*context, 0, meta, sealed, seq)).rowcount:
            head = cache.heads.get(self._ns)
            if head is None or seq > head[1]:
                cache.heads[self._ns] = own, seq
            db.account.add(CHECKPOINTS, cache.id, row_hash((seq, 0), sealed), step)
            return
        keys = (checkpoints.c.thread == cache.id, checkpoints.c.ns == self._ns)
        body.seq = cache.seq(db, self._ns, own)
        sealed = cache.seals.seal(body.dump(), *context, meta)
        with changing(db, checkpoints, cache.id, *keys, checkpoints.c.id == own):
            db.execute(sql.REPLACE, (*context, 0, meta, sealed, seq))
        cache.heads.pop(self._ns, None)  # one that was hidden may be the head again

    def writes(
        self,
        checkpoint: str,
        writes: Sequence[tuple[str, Any]],
        task: str,
        path: str,
        *,
        alone: bool = False,
    ) -> None:
        """File a task's writes under a checkpoint; one that is there already stays.

        Errors, interrupts and resumes replace the earlier one of their task. The items of a task
        that is `alone` in its step lie where the channels will look for them.
        """
        keys = (self._cache.id, self._ns, pack_id(checkpoint), pack_id(task))
        home = None if alone else self._cache.lane(self._ns)
        made, lanes = WritesBody(), self._lanes
        written = self._cache.note_written(self._ns, keys[2])
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            lane = lanes.get(channel) or self._lane(channel)
            form = self._writer.write(lane, home, value)
            made.put(index, lane.id, form)
            written.setdefault(lane.id, []).append(value)
        self._writer.flush()
        row = (*keys, text_bytes(path))
        sealed = self._cache.seals.seal(made.dump(), *row)
        new = self._db.execute(sql.NEW_WRITES, (*row, sealed))
        if new.rowcount:
            self._count(keys, sealed)
        else:
            self._merge(keys, path, made)
        saved = self._cache.saved.get(self._ns)
        if saved is not None and saved[3] == checkpoint:
            # another thread was faster with the step's checkpoint, and did not know these writes
            self._cache.take_written(self._ns, keys[2])
            self.checkpoint(*saved)

    def _count(self, keys: tuple[int, int, bytes, bytes], sealed: bytes) -> None:
        step = self._cache.seq(self._db, self._ns, keys[2])
        if not step:
            self._strays.note(*keys[:3])
        self._db.account.add_body(WRITES, self._cache.id, sealed, step)

    def has_checkpoint(self, checkpoint: str) -> bool:
        """Say whether a checkpoint is stored already."""
        key = (self._cache.id, self._ns, pack_id(checkpoint), 1)
        return self._db.execute(sql.EXACT, key).fetchone() is not None

    def has_writes(self, checkpoint: str, writes: Sequence[tuple[str, Any]], task: str) -> bool:
        """Say whether all of a task's writes are stored already."""
        keys = (self._cache.id, self._ns, pack_id(checkpoint), pack_id(task))
        row = self._db.execute(sql.TASK, keys).fetchone()
        if row is None:
            return False
        what = f"table writes of thread {self._thread_id!r}"
        held = WritesBody.load(self._cache.seals.unseal(row[1], what, *keys, row[0])).entries()
        stored = {(index, channel) for index, channel, _ in held}
        wanted = {
            (WRITES_IDX_MAP.get(channel, at), self._number(channel))
            for at, (channel, _) in enumerate(writes)
        }
        return wanted <= stored

    def _merge(self, keys: tuple[int, int, bytes, bytes], path: str, later: WritesBody) -> None:
        """Add to what a task has written before."""
        old, sealed = self._db.execute(sql.TASK, keys).fetchone()
        what = f"table writes of thread {self._thread_id!r}"
        seals = self._cache.seals
        body = WritesBody.load(seals.unseal(sealed, what, *keys, old))
        if body.merge(later):
            row = (*keys, old or text_bytes(path))
            made = seals.seal(body.dump(), *row)
            self._db.execute(sql.PUT_WRITES, (*row, made))
            step = self._cache.seq(self._db, self._ns, keys[2])
            self._db.account.remove(WRITES, self._cache.id, row_hash((), sealed), step)
            self._count(keys, made)

    def _warm(self, parent: str | None) -> None:
        """Find out what can be shared, if this process does not know it."""
        if self._ns in self._cache.warm:
            return
        self._cache.warm.add(self._ns)
        row = find(self._db, self._cache, self._namespace, parent) if parent else None
        if row is not None:
            Reader(self._db, self._cache, self._codec, self._thread_id).warm(row)

    def _body(
        self,
        checkpoint: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        held: Mapping[str, Any],
        writes: Mapping[int, list[Any]],
    ) -> CheckpointBody:
        versions, marks = checkpoint["channel_versions"], self._cache.marks
        lanes = self._lanes
        values: list[Any] = []
        for channel, value in checkpoint["channel_values"].items():
            lane = lanes.get(channel) or self._lane(channel)
            version, own, last = versions.get(channel), held[channel], lane.last
            written = writes.get(lane.id) if channel in new_versions else NOTHING
            if written is NOTHING and last and last[1] is own and last[0] == version and not marks:
                values += (lane.id, last[2])  # most channels do not change
            else:
                values += (lane.id, self._writer.channel(lane, version, own, written, value))
        seen: list[Any] = []
        flats = self._cache.flats
        for node, channels in checkpoint["versions_seen"].items():
            number = self._number(node)
            known = flats.get(number)
            if known is None or known[0] != channels:
                known = flats[number] = dict(channels), self._flat(channels)
            seen += (number, known[1])
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
        names = self._names
        try:
            return [part for pair in versions.items() for part in (names[pair[0]], pair[1])]
        except KeyError:
            return [part for name, v in versions.items() for part in (self._number(name), v)]

    def _lane(self, channel: str) -> Lane:
        lane = self._lanes[channel] = self._cache.lane(self._number(channel))
        return lane

    def _number(self, name: str) -> int:
        number = self._names.get(name)
        return self._cache.name(self._db, self._ns, name) if number is None else number
