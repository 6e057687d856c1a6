"""`SqlSaver`: LangGraph's checkpointer on one SQL database."""

from __future__ import annotations

import asyncio
import copy
import os
import random
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from wick_graph.constants import POOL_SIZE, WARM_BYTES
from wick_graph.errors import StorageError
from wick_graph.langgraph_config import TASK_ID, WRITER, Address, address_of, configurable
from wick_graph.store.allowlist import AllowList, graph_above
from wick_graph.store.checkpoint_list import Listing
from wick_graph.store.checkpoint_read import Reader, Row, delta_history, find
from wick_graph.store.checkpoint_write import CheckpointWriter, metadata_of
from wick_graph.store.codec import Codec
from wick_graph.store.connection import StoreConnection, Ttl
from wick_graph.store.dialect import POSTGRES, Dialect, Synchronous
from wick_graph.store.digests import SCHEMA_VERSION
from wick_graph.store.encryption import Keys, check_keys
from wick_graph.store.journal_rows import JournalRows, RecordedRuns
from wick_graph.store.later import cleanup, copying
from wick_graph.store.leases import (
    Lease,
    Leases,
    Writer,
    is_fresh,
    keeper_of,
    late_seconds,
)
from wick_graph.store.ledger import Ledger, RecordedCalls
from wick_graph.store.notices import Notices
from wick_graph.store.row_format import pack_id
from wick_graph.store.sqlite import Sqlite, path_of
from wick_graph.store.threads import Sweeper, Threads, sweep

if TYPE_CHECKING:
    from wick_graph.store.mailbox import Mailbox
    from wick_graph.store.server_rows import ServerRuns, Tokens

# --- From a store's URL to its database.


def dialect_of(
    url: str,
    synchronous: Synchronous = "FULL",
    *,
    reads_only: bool = False,
    pool_size: int = POOL_SIZE,
) -> Dialect:
    """Return the database of a URL, without opening it.

    With `reads_only` it is never changed, even if this process has the right to.

    Raises:
        StorageError: The URL cannot be read, or is of an unsupported database; the text never
            quotes the URL, which may hold a password.
    """
    if url.partition("://")[0] in POSTGRES:
        from wick_graph.store.postgres import postgres  # noqa: PLC0415  # slow, and seldom used

        return postgres(url, synchronous, reads_only=reads_only, pool_size=pool_size)
    return Sqlite(path_of(url), synchronous, reads_only=reads_only)


_RANDOM_BITS: Final = 20


class SqlSaver(BaseCheckpointSaver[int]):
    """A checkpointer for any LangGraph graph, from any thread, in any event loop, after a fork.

    Checkpoints share lists and dicts element by element, so a step stores only what is new in it.
    An element that is changed in place is stored again if a step writes it, and not otherwise
    (`debug=True` names it). If two runs continue one thread at the same time, the second gets a
    `ThreadBusyError`. Nothing that the database holds is run or imported.
    """

    serde: Codec

    def __init__(self, core: StoreConnection, codec: Codec) -> None:
        super().__init__(serde=codec)
        self._core = core
        self.leases = Leases(core)
        """The right to write to threads; each run of a wick_graph agent takes one lease."""
        self.closing: list[Callable[[], object]] = []
        """Functions to call before the database is closed; none may raise."""

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        ttl: Ttl | Mapping[str, Ttl] = "1h",
        tenant: str = "local",
        synchronous: Synchronous = "FULL",
        allow: Iterable[type] = (),
        debug: bool | None = None,
        keys: Keys | str | None = None,
        read_only: bool = False,
        warm_bytes: int = WARM_BYTES,
        lease: float | None = None,
        pool_size: int = POOL_SIZE,
    ) -> Self:
        """Open `sqlite:///path.db`, or `sqlite://` for a database in memory.

        A sweep deletes threads that were idle for longer than `ttl` (`30s`, `5m`, `7d`, `never`);
        `{"": "7d", "scratch": "5m"}` sets another one for threads `scratch:…`.
        `synchronous="NORMAL"` is faster, but may lose the last commits when the machine loses
        power. `allow` names classes that may be stored besides those that the compiled graph
        names: dataclasses, enums, pydantic models, named tuples.
        With `debug`, a step fails if it would miss an element that was changed in place; all
        elements are encoded again for this. By default it is on if the environment says
        `WICK_DEBUG=1`. `keys` (`file:PATH`, `env:NAME`, or `Keys`) encrypts all content of a new
        store, and opens it again. A store that this process may not write to opens for reading;
        with `read_only`, any store does, and nothing in it is changed. Agents keep up to
        `warm_bytes` of messages, as encoded, in memory between runs, so that a turn does not read
        its thread again; 0 keeps none. All stores of a process share `pool_size` sessions with a
        PostgreSQL server; the largest size that any of them asks for holds. A run of a process
        of another machine that gives no sign of life for `lease` seconds, by default 30, may be
        taken over; all processes of a database must agree on it.

        Raises:
            StorageError: The URL, the file or the keys cannot be used; nothing was changed.
            ConfigError: `ttl` is no duration, or `warm_bytes` no number of bytes.
        """
        codec = Codec(AllowList(allow))
        watchful = os.environ.get("WICK_DEBUG") == "1" if debug is None else debug
        known = check_keys(keys)
        dialect = dialect_of(url, synchronous, reads_only=read_only, pool_size=pool_size)
        core = StoreConnection(
            dialect, tenant=tenant, ttl=ttl, debug=watchful, keys=known, warm_bytes=warm_bytes
        )
        core.lease_seconds = lease
        return cls(core, codec)

    @property
    def _saving(self) -> CheckpointWriter:
        return CheckpointWriter(self._core, self.serde)

    @property
    def clock(self) -> Callable[[], float]:
        """The store's clock, in seconds since 1970; tests set it."""
        return self._core.clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._core.clock = clock

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute path of the database's file on this machine; none if it is elsewhere."""
        return self._core.dialect.files

    @property
    def has_machines(self) -> bool:
        """Whether processes of several machines may use the store."""
        return self._core.dialect.locks

    @property
    def is_encrypted(self) -> bool:
        """Whether the store has keys, so that it keeps nothing readable."""
        return self._core.sealing.keys is not None

    @property
    def threads(self) -> Threads:
        """The store's threads: look them up, list, pin and delete them."""
        return Threads(self._core, self.serde)

    @property
    def streams(self) -> ServerRuns:
        """The runs that servers were asked for, and the events that their readers got."""
        from wick_graph.store.server_rows import ServerRuns  # noqa: PLC0415  # for servers alone

        return ServerRuns(self._core)

    @property
    def recorded_runs(self) -> RecordedRuns:
        """The runs that keep a journal, over all threads."""
        return RecordedRuns(self._core)

    @property
    def tokens(self) -> Tokens:
        """The access tokens of this database's servers."""
        from wick_graph.store.server_rows import Tokens  # noqa: PLC0415  # as above

        return Tokens(self._core)

    @cached_property
    def mailbox(self) -> Mailbox:
        """The inbox and the outbox of the tenant's gateway, and what it keeps beside them."""
        from wick_graph.store.mailbox import Mailbox  # noqa: PLC0415  # for gateways alone

        return Mailbox(self._core)

    @cached_property
    def direct(self) -> Direct:
        """The saves of this saver without a wait."""
        return Direct(self)

    @property
    def notices(self) -> Notices:
        """Hints to the other processes of the database, and theirs."""
        return self._core.notices

    @notices.setter
    def notices(self, notices: Notices) -> None:
        self._core.notices = notices

    def check(self) -> None:
        """Check that the database answers, and has our schema.

        Raises:
            StorageError: It does not, or has not.
        """
        with self._core.reading() as db:
            version = self._core.dialect.version(db)
        if version < SCHEMA_VERSION:
            raise StorageError(f"the schema is {version}, and this release needs {SCHEMA_VERSION}")

    def sweep(self) -> list[str]:
        """Delete expired idle threads, and return their ids.

        Running, waiting and pinned threads stay. Each transaction deletes at most 1000 rows.
        """
        return sweep(self._core)

    def sweeper(self, interval: float = 300.0) -> Sweeper:
        """Return a context manager that sweeps every `interval` seconds, for servers."""
        return Sweeper(self._core, interval)

    def close(self) -> None:
        """Finish what is under way and close the database; closing twice is harmless."""
        while self.closing:
            self.closing.pop()()
        self.leases.close()
        self._core.close()

    def journal_rows(self, thread_id: str) -> JournalRows:
        """Return the rows of a thread's journal."""
        return JournalRows(self._core, self.serde, thread_id)

    def ledger(self, lease: Lease) -> Ledger:
        """Return the ledger of the thread that a lease is for."""
        return Ledger(self._core, self.serde, lease)

    def recorded_calls(self, thread_id: str) -> RecordedCalls:
        """Return the tool calls in the ledger of a thread, to be read only."""
        return RecordedCalls(self._core, thread_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> SqlSaver:
        """Return a saver on the same store that also stores these (module, name) classes."""
        codec = self.serde.with_msgpack_allowlist(extra_allowlist)
        if codec is self.serde:
            return self
        clone = copy.copy(self)
        clone.serde = codec
        vars(clone).pop("direct", None)
        return clone

    def get_next_version(self, current: int | str | None, channel: None) -> Any:
        """Return a version above `current`: a counter, and 20 random bits so that forks differ."""
        chance = random.getrandbits(_RANDOM_BITS)
        if isinstance(current, str):  # another saver began the thread
            return f"{int(current.split('.')[0]) + 1:032}.{chance / 2**_RANDOM_BITS:016}"
        return ((current or 0) >> _RANDOM_BITS) + 1 << _RANDOM_BITS | chance

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; it is durable when this returns.

        If a crash would make it again from what is durable (the step of an agent's tool calls), it
        may wait up to 20 ms for the next one. No reader ever misses it.

        Raises:
            StorageError: A value cannot be stored (the text says how to allow it), or the database
                reports an error; nothing is stored. Or an earlier write of a task cannot be
                stored; the checkpoint is stored all the same.
        """
        at = address_of(config)
        if metadata.get("source") == "loop" and (seconds := late_seconds(config)):
            self._core.deferred.await_writes(at, seconds)
        full = metadata_of(config, metadata)
        now = self._saving.checkpoint(at, config, checkpoint, full, new_versions)
        if now is not None:
            now()
        return Address(at.thread_id, at.ns, checkpoint["id"]).config()

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, under the checkpoint that it started from.

        The writes of a task that is alone in its step are committed with the checkpoint that
        follows, or after 20 ms; no reader ever misses them.

        Raises:
            StorageError: As in `put`.
        """
        now = self._saving.writes(config, writes, task_id, task_path)
        if now is not None:
            now()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the latest one; None if there is none.

        Raises:
            StorageError: A row is damaged; the text names the table and the thread.
        """
        self._note_graph_of(config)
        at = thread_id, ns, checkpoint = address_of(config)
        keeper, channel = keeper_of(config)
        if is_fresh(config, at):
            return None
        with self._core.reading(thread_id) as db:
            self._core.deferred.forget_errors(thread_id)
            cache = self._core.thread(db, thread_id)
            row = None if cache is None else find(db, cache, ns, checkpoint)
            forks = self._core.forks
            if checkpoint is None:
                forks.note_head((thread_id, ns), found=row is not None)
            if cache is None or row is None:
                return None
            if checkpoint is not None:
                forks.allow((thread_id, ns), row.id)
            reader = Reader(db, cache, self.serde, thread_id)
            if keeper is None or not self._core.warm.limit:
                return reader.checkpoint(row, remember=True)
            with self._core.keeping(cache, thread_id) as keeper.kept:
                return reader.checkpoint(row, remember=True, kept=keeper.kept, of=channel)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first, of one thread or of all; no lock is held meanwhile.

        `filter` compares metadata for equality; its keys and values never become SQL text.

        Raises:
            StorageError: As in `get_tuple`.
        """
        self.note_graph(graph_above())
        listing = Listing(self._core, self.serde, config, filter, before, limit)
        while batch := listing.batch():
            yield from batch

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of delta channels since their last stored value, oldest first."""
        thread_id, ns, checkpoint = address_of(config)
        with self._core.reading(thread_id) as db:
            cache = self._core.thread(db, thread_id)
            row = None if cache is None else find(db, cache, ns, checkpoint)
            reader = None if cache is None else Reader(db, cache, self.serde, thread_id)
            return delta_history(reader, row, channels)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its rows."""
        cleanup.delete_thread(self._core, str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that runs made, with their writes, their journal and their events.

        A checkpoint that delta channels of later ones are rebuilt from is hidden instead.
        """
        gone = frozenset(map(pack_id, run_ids))
        for thread_id in cleanup.threads_of_runs(self._core, gone):
            cleanup.prune_thread(
                self._core, self.serde, thread_id, lambda rows: _not_of(rows, gone), gone
            )

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes to a new thread; ids stay the same.

        Raises:
            StorageError: The target has checkpoints already.
        """
        copying.copy_thread(self._core, str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the latest checkpoint of each namespace, or whole threads (`delete`).

        The state does not change, that of delta channels included.

        Raises:
            ValueError: The strategy is unknown.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"unknown strategy {strategy!r}; use keep_latest or delete")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                cleanup.prune_thread(self._core, self.serde, str(thread_id), _latest)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do `put` in the store's thread; a checkpoint that may wait is deferred at once."""
        at = address_of(config)
        full = metadata_of(config, metadata)
        now = self._saving.checkpoint(at, config, checkpoint, full, new_versions)
        if now is not None:
            await self._core.worker.run(now)
        return Address(at.thread_id, at.ns, checkpoint["id"]).config()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Do `put_writes` in the store's thread; writes that may wait are deferred at once."""
        now = self._saving.writes(config, writes, task_id, task_path)
        if now is not None:
            await self._core.worker.run(now)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do `get_tuple` in the store's thread."""
        self._note_graph_of(config)
        if is_fresh(config, address_of(config)):
            return None
        return await self._core.worker.run(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do `list` in the store's thread, a batch at a time."""
        self.note_graph(graph_above())
        listing = Listing(self._core, self.serde, config, filter, before, limit)
        while batch := await self._core.worker.run_long(listing.batch):
            for found in batch:
                yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Do `get_delta_channel_history` in the store's thread."""
        return await self._core.worker.run(
            self.get_delta_channel_history, config=config, channels=channels
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Do `delete_thread` in the store's thread."""
        await self._core.worker.run_long(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do `delete_for_runs` in the store's thread."""
        await self._core.worker.run_long(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do `copy_thread` in the store's thread."""
        await self._core.worker.run_long(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do `prune` in the store's thread."""
        await self._core.worker.run_long(self.prune, thread_ids, strategy=strategy)

    def note_graph(self, graph: Any) -> object:
        """Learn the classes that may be stored, those that a graph names; return their list."""
        if graph is not None:
            self.serde.allow.note_graph(graph)
        return self.serde.allow

    def _note_graph_of(self, config: RunnableConfig) -> None:
        """Note the graph that reads, unless its run has: to find it keeps the callers' frames."""
        asked = configurable(config)
        writer = None if TASK_ID in asked else asked.get(WRITER)
        if not isinstance(writer, Writer) or writer.told is not self.serde.allow:
            self.note_graph(graph_above())


class Direct:
    """The saves of a saver without a wait: for a loop that knows when to wait."""

    def __init__(self, saver: SqlSaver) -> None:
        self._saving, self._core = saver._saving, saver._core

    def added(self, config: RunnableConfig, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run's config adds to the metadata of its checkpoints."""
        whole = metadata_of(config, metadata)
        return {name: value for name, value in whole.items() if name not in metadata}

    def checkpoint(
        self,
        behind: bool,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: dict[str, Any],
        new_versions: ChannelVersions,
    ) -> Callable[[], None] | None:
        """Defer a checkpoint if it may wait; otherwise return what saves it.

        `metadata` has what the run's config adds. With `behind`, it waits for its step's writes as
        `put` does: another thread may have them.
        """
        at = address_of(config)
        if behind and metadata.get("source") == "loop" and (seconds := late_seconds(config)):
            self._core.deferred.await_writes(at, seconds)
        given = (at, config, checkpoint, metadata, new_versions)
        return self._saving.checkpoint(*given, is_last=not behind)

    def writes(self, *given: Any) -> Callable[[], None] | None:
        """Defer a task's writes if they may wait; otherwise return what saves them."""
        config, writes, task_id, *path = given
        return self._saving.writes(config, writes, task_id, path[0] if path else "")

    def save(self, now: Callable[[], None], future: asyncio.Future[None]) -> None:
        """Save in the store's thread, and settle a future of the running loop.

        Raises:
            StorageError: The store is closed.
        """
        self._core.worker.give(now, future)


def _latest(rows: list[Row]) -> set[int]:
    return set({row.ns: row.rid for row in rows}.values())


def _not_of(rows: list[Row], runs: frozenset[bytes]) -> set[int]:
    return {row.rid for row in rows if row.run not in runs}
