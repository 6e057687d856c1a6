"""Save one superstep: its checkpoint and its writes, at once or with the next commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
)

from wick_graph.errors import StorageError
from wick_graph.langgraph_config import (
    CHECKPOINTER,
    CONFIGURABLE,
    DURABILITY,
    PUSH,
    READ,
    RESUMING,
    RUN,
    RUNTIME,
    TASK_ID,
    WRITER,
    Address,
    address_of,
)
from wick_graph.store.checkpoint_read import Reader, find
from wick_graph.store.codec import Codec
from wick_graph.store.commit_policy import Apply, Entry
from wick_graph.store.connection import StoreConnection, Strays
from wick_graph.store.dialect import Database
from wick_graph.store.digests import CHECKPOINTS, WRITES, changing, row_hash
from wick_graph.store.later import schema, statements
from wick_graph.store.leases import Lease, fence, waits_for_first_step, writer_of
from wick_graph.store.row_format import (
    CheckpointBody,
    WritesBody,
    is_source,
    is_step,
    pack_id,
    pack_path,
)
from wick_graph.store.sharing import NOTHING, ItemWriter
from wick_graph.store.thread_cache import AllowedBranches, ChannelItems, ThreadCache

# --- Saving one superstep: a checkpoint, or the writes of one task.


_KNOWN: Final = frozenset(
    {"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"}
)


class StepTransaction:
    """One transaction's access to a namespace of a thread."""

    def __init__(
        self,
        db: Database,
        cache: ThreadCache,
        codec: Codec,
        thread_id: str,
        ns: str,
        forks: AllowedBranches,
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
        self._space = cache.space(self._ns)
        self._lanes = self._space.channels
        self._writer = ItemWriter(db, cache, codec, thread_id)

    def begin_names(self, texts: Iterable[str]) -> None:
        """Name, in a new thread, what its steps are going to name: each alone costs a statement."""
        if not self._names:
            self._cache.name_all(self._db, self._ns, texts)
            self._names = self._cache.scope(self._db, self._ns)

    def checkpoint(
        self,
        checkpoint: Mapping[str, Any],
        metadata: dict[str, Any],
        new_versions: Mapping[str, Any],
        parent: str | None,
        held: Mapping[str, Any],
        *,
        is_last: bool = False,
    ) -> None:
        """Insert a checkpoint, or replace the one that has its id.

        `held` are the channels' own objects; the checkpoint may have copies of them. It `is_last`
        if none of its step's writes can come after it.

        Raises:
            ThreadBusyError: It does not continue the thread's head, and no branch is allowed.
        """
        own, before = pack_id(checkpoint["id"]), pack_id(parent) if parent else None
        head = self._cache.head(self._db, self._ns)
        if metadata.get("source") != "fork":  # a fork is never made by accident
            place = (self._thread_id, self._namespace)
            self._forks.check(place, own, before, None if head is None else head[0])
        self._warm(parent)
        writes = self._cache.take_written(self._ns, before)
        given = (checkpoint, metadata, new_versions, parent, held)
        self._space.saved = None if is_last else given
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
        """Reserve lower numbers for the checkpoints of the graphs around this one."""
        if isinstance(parents, dict):
            cache, db = self._cache, self._db
            for name, outer in parents.items():
                if isinstance(name, str) and isinstance(outer, str):
                    cache.reserve(db, name, pack_id(outer))

    def _put(self, context: tuple[Any, ...], meta: bytes | None, body: CheckpointBody) -> None:
        """Write a checkpoint's row; a new one gets the next number and becomes the head."""
        db, cache, own, parent = self._db, self._cache, context[2], context[3]
        step = cache.seq(db, self._ns, parent)
        body.seq = seq = cache.take_seq(db, self._namespace, own)
        sealed = cache.seals.seal(body.dump(), *context, meta)
        if db.execute(statements.PUT, (*context, 0, meta, sealed, seq)).rowcount:
            space = self._space
            if space.head is None or seq > space.head[1]:
                space.head, space.knows_head = (own, seq), True
            db.account.add(CHECKPOINTS, cache.id, row_hash((seq, 0), sealed), step)
            return
        body.seq = cache.seq(db, self._ns, own)
        sealed = cache.seals.seal(body.dump(), *context, meta)
        at = schema.checkpoints.c
        keys = (at.thread == cache.id, at.ns == self._ns, at.id == own)
        with changing(db, schema.checkpoints, cache.id, *keys):
            db.execute(statements.REPLACE, (*context, 0, meta, sealed, seq))
        cache.is_new = False
        self._space.head, self._space.knows_head = None, False  # a hidden one may be it again

    def writes(
        self,
        checkpoint: str,
        writes: Sequence[tuple[str, Any]],
        task: str,
        path: str,
        *,
        alone: bool = False,
    ) -> None:
        """Store a task's writes under a checkpoint; those that are there already stay.

        Errors, interrupts and resumes replace the earlier one of their task. The items of a task
        that is `alone` in its step go to the lanes where the channels will look for them.
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
        row = (*keys, pack_path(path))
        sealed = self._cache.seals.seal(made.dump(), *row)
        new = self._db.execute(statements.NEW_WRITES, (*row, sealed))
        if new.rowcount:
            self._count(keys, sealed)
        else:
            self._merge(keys, path, made)
        saved = self._space.saved
        if saved is not None and saved[3] == checkpoint:
            # another thread stored the step's checkpoint first, without knowing these writes
            self._cache.take_written(self._ns, keys[2])
            self.checkpoint(*saved)

    def _count(self, keys: tuple[int, int, bytes, bytes], sealed: bytes) -> None:
        step = self._cache.seq(self._db, self._ns, keys[2])
        if not step:
            self._strays.note(*keys[:3])
        self._db.account.add_body(WRITES, self._cache.id, sealed, step)

    def has_checkpoint(self, checkpoint: str) -> bool:
        """Return whether a checkpoint is stored already."""
        key = (self._cache.id, self._ns, pack_id(checkpoint), 1)
        return self._db.execute(statements.EXACT, key).fetchone() is not None

    def has_writes(self, checkpoint: str, writes: Sequence[tuple[str, Any]], task: str) -> bool:
        """Return whether all of a task's writes are stored already."""
        keys = (self._cache.id, self._ns, pack_id(checkpoint), pack_id(task))
        row = self._db.execute(statements.TASK, keys).fetchone()
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
        """Add to a task's earlier writes."""
        old, sealed = self._db.execute(statements.TASK, keys).fetchone()
        what = f"table writes of thread {self._thread_id!r}"
        seals = self._cache.seals
        body = WritesBody.load(seals.unseal(sealed, what, *keys, old))
        if body.merge(later):
            row = (*keys, old or pack_path(path))
            made = seals.seal(body.dump(), *row)
            self._db.execute(statements.PUT_WRITES, (*row, made))
            step = self._cache.seq(self._db, self._ns, keys[2])
            self._db.account.remove(WRITES, self._cache.id, row_hash((), sealed), step)
            self._count(keys, made)

    def _warm(self, parent: str | None) -> None:
        """Read the parent checkpoint for what can be shared, if this process does not know it."""
        if self._space.warm:
            return
        self._space.warm = True
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
        self._forget_absent(checkpoint["channel_values"])
        seen: list[Any] = []
        flats = self._cache.flats
        names = self._names
        for node, channels in checkpoint["versions_seen"].items():
            number = names.get(node) or self._number(node)
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
            None if updated is None else [names.get(one) or self._number(one) for one in updated],
            self._codec.pack(extra) if extra else None,
        )

    def _forget_absent(self, values: Mapping[str, Any]) -> None:
        """Forget what channels without a value held; they get a new version with their next."""
        if len(self._lanes) > len(values):
            for channel, lane in self._lanes.items():
                if lane.last is not None and channel not in values:
                    lane.forget()

    def _flat(self, versions: Mapping[str, Any]) -> list[Any]:
        names = self._names
        flat: list[Any] = [None] * (2 * len(versions))
        if names.keys() >= versions.keys():
            flat[::2] = map(names.__getitem__, versions)
        else:
            flat[::2] = map(self._number, versions)
        flat[1::2] = versions.values()
        return flat

    def _lane(self, channel: str) -> ChannelItems:
        lane = self._lanes[channel] = self._cache.lane(self._number(channel))
        return lane

    def _number(self, name: str) -> int:
        number = self._names.get(name)
        return self._cache.name(self._db, self._ns, name) if number is None else number


# --- Saving a superstep's parts: at once, or with the next commit if that loses nothing.


_LANGGRAPHS: Final = frozenset(
    {
        *EXCLUDED_METADATA_KEYS,
        *(RUN, WRITER, RUNTIME, RESUMING, CHECKPOINTER, READ, TASK_ID, DURABILITY),
    }
)
"""Keys of a config that never are a checkpoint's; the others of that kind begin with `__`."""


def metadata_of(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's metadata with what its run's config adds, as LangGraph does."""
    made = {k: v.replace("\0", "") if isinstance(v, str) else v for k, v in metadata.items()}
    for given in (config.get("metadata"), config.get(CONFIGURABLE)):
        if not given:
            continue
        own = given.keys() - _LANGGRAPHS
        for key in given if len(own) > 1 else own:  # in their order
            value = given[key]
            if key in made or key not in own or key.startswith("__"):
                continue
            if isinstance(value, str):
                made[key] = value.replace("\0", "")
            elif isinstance(value, int | float):
                made[key] = value
    return made


_CHANGED: Final = frozenset({list, dict})
"""Types of values that a reducer may change in place before they are written."""

MAX_WRITES: Final = 100_000
"""The most writes that one task may make."""

Now = Callable[[], None]
"""Saves in one transaction what may not wait."""


class Attempts:
    """Whether a save was tried before: its commit may have succeeded though the answer was lost."""

    __slots__ = ("_once",)

    def __init__(self) -> None:
        self._once = False

    def again(self) -> bool:
        """Note a try; return whether there was one before."""
        before, self._once = self._once, True
        return before


@dataclass(slots=True)  # not frozen: one is made for each call
class CheckpointWriter:
    """Saves checkpoints and writes of one store, at once or deferred."""

    core: StoreConnection
    codec: Codec

    def checkpoint(
        self,
        at: Address,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: dict[str, Any],
        new_versions: ChannelVersions,
        *,
        is_last: bool = False,
    ) -> Now | None:
        """Defer a checkpoint if the policy allows it; otherwise return what saves it.

        `metadata` has what the run's config adds. It `is_last` if none of its step's writes can
        come after it.
        """
        lease, policy = writer_of(config, at.checkpoint_id)
        waits = self.core.deferred.checkpoint_can_wait(at, policy)
        waits = waits or waits_for_first_step(config, at, metadata.get("source"))
        held = checkpoint["channel_values"]
        if waits:
            values = {n: v.copy() if type(v) in _CHANGED else v for n, v in held.items()}
            kept: Any = {**checkpoint, "channel_values": values}
            checkpoint = kept

        attempts = Attempts()

        def save(db: Database) -> None:
            self.core.deferred.raise_lost_write(at)
            step = self._step(db, at, lease)
            if not (attempts.again() and step.has_checkpoint(checkpoint["id"])):
                given = (checkpoint, metadata, new_versions, at.checkpoint_id, held)
                step.checkpoint(*given, is_last=is_last)

        return self._now_or_later(at, save, waits=waits)

    def writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        path: str,
    ) -> Now | None:
        """Defer a task's writes if the policy allows it; otherwise return what saves them.

        Raises:
            StorageError: There are more than `MAX_WRITES`.
        """
        at = address_of(config)
        if not writes:
            return None
        if len(writes) > MAX_WRITES:
            raise StorageError(
                f"a task that writes {len(writes):,} times cannot be stored, {MAX_WRITES:,} is the "
                "most; let it write one list"
            )
        lease, policy = writer_of(config, at.checkpoint_id)
        # such a write replaces the task's last one: written twice it is the same
        replaces = not WRITES_IDX_MAP.keys().isdisjoint([name for name, _ in writes])
        waits = self.core.deferred.writes_can_wait(at, policy, path, marked=replaces)
        alone = waits and (PUSH not in path or policy.single_call)
        if waits:
            writes = [(name, v.copy() if type(v) in _CHANGED else v) for name, v in writes]

        attempts = Attempts()

        def save(db: Database) -> None:
            step, checkpoint = self._step(db, at, lease), at.checkpoint_id or ""
            if replaces or not (attempts.again() and step.has_writes(checkpoint, writes, task_id)):
                step.writes(checkpoint, writes, task_id, path, alone=alone)

        return self._now_or_later(at, save, waits=waits)

    def _step(self, db: Database, at: Address, lease: Lease | None) -> StepTransaction:
        """Check the lease, once per member of a transaction, and return its access."""
        cache = self.core.thread_for_writing(db, at.thread_id)
        of = (self.core.member, id(lease), id(self.codec), id(cache), at.ns)
        if self.core.step is not None and self.core.step[0] == of:
            known: StepTransaction = self.core.step[1]
            return known
        fence(self.core, db, lease, cache.id, at.thread_id)
        made = StepTransaction(
            db, cache, self.codec, at.thread_id, at.ns, self.core.forks, self.core.strays
        )
        if lease is not None and lease.names and not at.ns and cache.is_first("names"):
            made.begin_names(lease.names)
        self.core.step = (of, made)
        return made

    def _now_or_later(self, at: Address, save: Apply, *, waits: bool) -> Now | None:
        if waits:
            self.core.later(Entry(at, save))
            return None

        def now() -> None:
            # LangGraph may save a checkpoint after its tasks' writes, and it needs none of them
            self.core.apply(at.thread_id, save, regardless=True)

        return now
