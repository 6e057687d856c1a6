"""Saving a step's parts: at once, or with the next commit where that loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from wick_graph.errors import StorageError
from wick_graph.keys import PUSH
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.checkpoints.leases import Lease, fence, writer_of
from wick_graph.store.checkpoints.steps import Step
from wick_graph.store.database.address import Address, address_of
from wick_graph.store.database.dialect import Database
from wick_graph.store.database.pending import Apply, Entry
from wick_graph.store.values.codec import Codec

_CHANGED: Final = frozenset({list, dict})
"""Types of values that a reducer may change in place before they are written."""
MAX_WRITES: Final = 100_000
"""Writes that one task may make."""
Now = Callable[[], None]
"""Does in one transaction what could not wait."""


class Tried:
    """Whether something was tried before: its commit may have been done without an answer."""

    __slots__ = ("_once",)

    def __init__(self) -> None:
        self._once = False

    def again(self) -> bool:
        """Note a try; say whether it is a further one."""
        before, self._once = self._once, True
        return before


@dataclass(slots=True)  # not frozen: one is made for each call
class Saving:
    """One store, and how values are written to it."""

    core: Core
    codec: Codec

    def checkpoint(
        self,
        at: Address,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Now | None:
        """Let a checkpoint wait if it may; else return what saves it."""
        full: dict[str, Any] = {**get_checkpoint_metadata(config, metadata)}
        lease, policy = writer_of(config, at.checkpoint_id)
        waits = self.core.pending.checkpoint_can_wait(at, policy)
        held = checkpoint["channel_values"]
        if waits:
            values = {n: v.copy() if type(v) in _CHANGED else v for n, v in held.items()}
            kept: Any = {**checkpoint, "channel_values": values}
            checkpoint = kept

        tried = Tried()

        def save(db: Database) -> None:
            self.core.pending.refuse(at)
            step = self._step(db, at, lease)
            if not (tried.again() and step.has_checkpoint(checkpoint["id"])):
                step.checkpoint(checkpoint, full, new_versions, at.checkpoint_id, held)

        return self._now_or_later(at, save, waits=waits)

    def writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        path: str,
    ) -> Now | None:
        """Let a task's writes wait if they may; else return what saves them.

        Raises:
            StorageError: if there are more than `MAX_WRITES`.
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
        waits = self.core.pending.writes_can_wait(at, policy, writes, path)
        alone = waits and (PUSH not in path or policy.single_call)
        if waits:
            writes = [(name, v.copy() if type(v) in _CHANGED else v) for name, v in writes]

        tried = Tried()
        # such a write takes the place of the task's last one: written twice it is the same
        replaces = any(channel in WRITES_IDX_MAP for channel, _ in writes)

        def save(db: Database) -> None:
            step, checkpoint = self._step(db, at, lease), at.checkpoint_id or ""
            if replaces or not (tried.again() and step.has_writes(checkpoint, writes, task_id)):
                step.writes(checkpoint, writes, task_id, path, alone=alone)

        return self._now_or_later(at, save, waits=waits)

    def _step(self, db: Database, at: Address, lease: Lease | None) -> Step:
        """Check the lease, once for all that one member of a transaction writes."""
        cache = self.core.thread_for_writing(db, at.thread_id)
        of = (self.core.member, id(lease), id(self.codec), at.ns)
        if cache.step is not None and cache.step[0] == of:
            known: Step = cache.step[1]
            return known
        fence(self.core, db, lease, cache.id, at.thread_id)
        made = Step(db, cache, self.codec, at.thread_id, at.ns, self.core.forks, self.core.strays)
        cache.step = (of, made)
        return made

    def _now_or_later(self, at: Address, save: Apply, *, waits: bool) -> Now | None:
        if waits:
            self.core.later(Entry(at, save))
            return None

        def now() -> None:
            # LangGraph may save a checkpoint after what its tasks wrote, and it needs none of that
            self.core.apply(at.thread_id, save, regardless=True)

        return now
