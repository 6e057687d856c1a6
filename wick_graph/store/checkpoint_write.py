"""Save one superstep: its checkpoint and its writes, at once or with the next commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress
from operator import itemgetter, methodcaller, ne
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
    leads_on,
)
from wick_graph.store.checkpoint_read import Reader, find
from wick_graph.store.codec import NIL, Codec
from wick_graph.store.commit_policy import Entry
from wick_graph.store.connection import StoreConnection, Strays
from wick_graph.store.dialect import Database
from wick_graph.store.digests import CHECKPOINTS, WRITES, changing, row_hash
from wick_graph.store.later import schema, statements
from wick_graph.store.leases import Lease, fence, waits_for_first_step, writer_of
from wick_graph.store.row_format import (
    CheckpointBody,
    Form,
    WritesBody,
    is_source,
    is_step,
    pack_id,
    pack_path,
    text_bytes,
)
from wick_graph.store.sharing import NOTHING, ItemWriter
from wick_graph.store.thread_cache import AllowedBranches, ThreadCache

# --- Saving one superstep: a checkpoint, or the writes of one task.


_ITEMS: Final = methodcaller("items")

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
        self._lanes = cache.lanes
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
        space = self._space
        head = space.head if space.knows_head else self._cache.head(self._db, self._ns)
        if metadata.get("source") != "fork":  # a fork is never made by accident
            place = (self._thread_id, self._namespace)
            self._forks.check(place, own, before, None if head is None else head[0])
        if not space.warm:
            self._warm(parent)
        writes = self._cache.take_written(self._ns, before)
        given = (checkpoint, metadata, new_versions, parent, held)
        space.saved = None if is_last else given
        body = self._body(checkpoint, new_versions, held, writes)
        if outer := metadata.get("parents"):
            self._number_outer(outer)
        rest = dict(metadata)
        source = rest.pop("source") if is_source(rest.get("source")) else None
        step = rest.pop("step") if is_step(rest.get("step")) else None
        run = pack_id(rest.pop("run_id")) if type(rest.get("run_id")) is str else None
        meta = self._meta(rest) if rest else None
        context = (self._cache.id, self._ns, own, before, source, step, run)
        self._writer.flush()
        self._put(context, meta, body)
        if self._strays:
            self._strays.sweep(self._db, self._cache.id, (self._ns, own))

    def end_waiting(self) -> None:
        """Set a thread that waits to `idle`: a caller's update left no node that asks again."""
        own = (self._cache.id, "waiting")
        self._db.execute(statements.END_WAITING, ("idle", "done", *own))

    def _meta(self, rest: dict[str, Any]) -> bytes:
        """Return the metadata of a row's column; of one run it is the same again and again."""
        packed, space = self._codec.pack(rest), self._space
        if space.meta is None or space.meta[0] != packed:
            home = self._cache.lane(self._ns)
            space.meta = packed, ormsgpack.packb(self._writer.share(home, packed))
        return space.meta[1]

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
        made, names, lanes = WritesBody(), self._names, self._lanes
        written, form_of = self._cache.note_written(self._ns, keys[2]), self._writer.form
        form: Form
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            number = names.get(channel) or self._number(channel)
            if value is None:  # mostly it only tells which node comes next
                form = NIL
            else:
                lane = lanes.get(number) or self._cache.lane(number)
                form = form_of(value, lane, home or lane, NOTHING, keep=False)
            if index < 0:  # it may replace an earlier one
                made.put(index, number, form)
            else:  # as `put` does, without a call
                made.flat += (index, number, form)
            written[number].append(value)
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
        """Read the parent checkpoint, which this process does not know, for what can be shared."""
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
        values = self._forms(checkpoint, new_versions, held, writes)
        seen = self._seen(checkpoint["versions_seen"])
        versions = self._flat(checkpoint["channel_versions"])
        updated = checkpoint.get("updated_channels")
        extra: bytes | None = None
        if not _KNOWN.issuperset(checkpoint):
            extra = self._codec.pack({k: v for k, v in checkpoint.items() if k not in _KNOWN})
        changed = None if updated is None else self._numbers(updated)
        v, ts = checkpoint["v"], checkpoint["ts"]
        return CheckpointBody(v, ts, versions, seen, values, changed, extra)

    def _forms(
        self,
        checkpoint: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        held: Mapping[str, Any],
        writes: Mapping[int, list[Any]],
    ) -> list[Any]:
        """Return channel, form, channel, form, …, and remember them for the next checkpoint."""
        versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
        cache, lanes, form_of = self._cache, self._lanes, self._writer.form
        marks, numbers = cache.marks, self._numbers(values)
        flat: list[Any] = []
        for number, (channel, value) in zip(numbers, values.items(), strict=True):
            if value is None:  # as above
                flat += (number, NIL)
                continue
            lane = lanes.get(number) or cache.lane(number)
            version, own = versions.get(channel), held[channel]
            if channel in new_versions:
                form = form_of(value, lane, lane, writes.get(number), keep=True)
            elif lane.value is own and lane.version == version and lane.form and not marks:
                flat += (number, lane.form)
                continue
            else:
                form = form_of(value, lane, lane, NOTHING, keep=True)
            lane.version, lane.value, lane.form = version, own, form
            flat += (number, form)
        for channel in {*self._space.valued} - values.keys():  # its next value has a new version
            cache.lane(self._number(channel)).forget()
        self._space.valued = (*values,)
        return flat

    def _seen(self, nodes: Mapping[str, Mapping[str, Any]]) -> list[Any]:
        """Return node, [channel, version, …], node, …; from step to step few nodes change."""
        known, flats = self._space.seen, self._space.flats
        all_seen = [*map(tuple, map(chain.from_iterable, map(_ITEMS, nodes.values())))]
        news = map(ne, all_seen, map(known.get, nodes))
        for node, seen in compress(zip(nodes, all_seen, strict=True), news):
            flats[node], known[node] = self._flat(nodes[node]), seen
        pairs = zip(self._numbers(nodes), map(flats.__getitem__, nodes), strict=True)
        return [*chain.from_iterable(pairs)]

    def _flat(self, versions: Mapping[str, Any]) -> list[Any]:
        pairs = zip(self._numbers(versions), versions.values(), strict=True)
        return [*chain.from_iterable(pairs)]

    def _numbers(self, names: Iterable[str]) -> list[Any]:
        numbers = [*map(self._names.get, names)]
        return [*map(self._number, names)] if None in numbers else numbers

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


_CHANGED: Final = frozenset({list, dict, set, tuple})
"""Types of values that may be changed in place before they are written, or that hold such a one."""


def _apart(value: Any) -> Any:
    """Copy a value; LangGraph's deferred joins are a tuple that holds a set."""
    if type(value) is tuple:
        return tuple([_apart(one) if type(one) in _CHANGED else one for one in value])
    return value.copy()


MAX_WRITES: Final = 100_000
"""The most writes that one task may make."""

Now = Callable[[], None]
"""Saves in one transaction what may not wait."""


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
        if waits or not is_last:  # then it is written again, if writes of its step come behind it
            values = dict(held)
            for name in compress(held, map(_CHANGED.__contains__, map(type, held.values()))):
                values[name] = _apart(held[name])
            kept: Any = {**checkpoint, "channel_values": values}
            checkpoint = kept
        given = (checkpoint, metadata, new_versions, held, is_last)
        return self._now_or_later(_CheckpointEntry(at, self, lease, *given), waits=waits)

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
        replaces = not WRITES_IDX_MAP.keys().isdisjoint(map(itemgetter(0), writes))
        waits = self.core.deferred.writes_can_wait(at, policy, path, marked=replaces)
        alone = waits and (PUSH not in path or policy.single_call)
        if waits:
            writes = [
                (one[0], _apart(one[1])) if type(one[1]) in _CHANGED else one for one in writes
            ]
        given = (writes, task_id, path, alone, replaces)
        return self._now_or_later(_WritesEntry(at, self, lease, *given), waits=waits)

    def step(self, db: Database, at: Address, lease: Lease | None) -> StepTransaction:
        """Check the lease, once per member of a transaction, and return its access."""
        core, of = self.core, (self.core.member, id(lease), id(self.codec), at.ns)
        if core.step is not None:
            cache = core.caches.get(text_bytes(at.thread_id))
            if core.step[0] == (*of, id(cache)):
                known: StepTransaction = core.step[1]
                return known
        cache = core.thread_for_writing(db, at.thread_id)
        fence(core, db, lease, cache.id, at.thread_id)
        made = StepTransaction(db, cache, self.codec, at.thread_id, at.ns, core.forks, core.strays)
        if lease is not None and lease.names and not at.ns and cache.is_first("names"):
            made.begin_names(lease.names)
        core.step = ((*of, id(cache)), made)
        return made

    def _now_or_later(self, entry: Entry, *, waits: bool) -> Now | None:
        if waits:
            self.core.later(entry)
            return None
        # LangGraph may save a checkpoint after its tasks' writes, and it needs none of them
        return partial(self.core.apply, entry.at.thread_id, entry.apply, regardless=True)


# The entries are objects, not functions with cells: hundreds of threads have some that wait, and
# the garbage collector counts each cell.


@dataclass(slots=True)
class _CheckpointEntry:
    """A checkpoint to save."""

    at: Address
    writer: CheckpointWriter
    lease: Lease | None
    checkpoint: Mapping[str, Any]
    metadata: dict[str, Any]
    versions: Mapping[str, Any]
    held: Mapping[str, Any]
    is_last: bool
    again: bool = False
    """An earlier commit may have succeeded, though its answer was lost."""

    def apply(self, db: Database) -> None:
        """Save it."""
        self.writer.core.deferred.raise_lost_write(self.at)
        step = self.writer.step(db, self.at, self.lease)
        again, self.again = self.again, True
        if not (again and step.has_checkpoint(self.checkpoint["id"])):
            is_update = self.lease is None and self.metadata.get("source") == "update"
            if is_update and not self.at.ns and not leads_on(self.held):
                step.end_waiting()
            given = (self.checkpoint, self.metadata, self.versions)
            step.checkpoint(*given, self.at.checkpoint_id, self.held, is_last=self.is_last)


@dataclass(slots=True)
class _WritesEntry:
    """The writes of a task to save."""

    at: Address
    writer: CheckpointWriter
    lease: Lease | None
    writes: Sequence[tuple[str, Any]]
    task: str
    path: str
    alone: bool
    replaces: bool
    again: bool = False
    """As above."""

    def apply(self, db: Database) -> None:
        """Save them."""
        step, checkpoint = self.writer.step(db, self.at, self.lease), self.at.checkpoint_id or ""
        again, self.again = self.again, True
        if self.replaces or not (again and step.has_writes(checkpoint, self.writes, self.task)):
            step.writes(checkpoint, self.writes, self.task, self.path, alone=self.alone)
