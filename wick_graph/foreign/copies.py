"""Copies of the checkpoints that another saver keeps, or none, for the debugger to read."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from langgraph.channels import DeltaChannel, UntrackedValue
from langgraph.checkpoint.base import copy_checkpoint
from langgraph.errors import EmptyChannelError
from langgraph.types import Send

from wick_graph import langgraph_config
from wick_graph.errors import StorageError
from wick_graph.journal.value_store import CUT, HEAD
from wick_graph.store.codec import Codec
from wick_graph.store.commit_policy import CommitPolicy
from wick_graph.store.connection import StoreConnection
from wick_graph.store.leases import Writer
from wick_graph.store.row_format import pack_id
from wick_graph.store.saver import SqlSaver, dialect_of
from wick_graph.store.shapes import MESSAGES
from wick_graph.store.sharing import FIXED
from wick_graph.store.sqlite import Sqlite

RECORDED: Final = Path("checkpoints", "recorded.db")
"""The database for recordings of runs without an `SqlSaver`."""

TTL: Final = "7d"

TENANT: Final = "local"

WAIT: Final = 0.5
"""How long a run waits for a locked store of copies, in seconds."""

MISSING: Final = UntrackedValue(object).checkpoint()
"""What LangGraph's empty channels store."""

_EARLY: Final = 1_024
"""The most messages that are encoded before they are stored."""

_Versions = dict[str, Any]


class LenientCodec(Codec):
    """Stores what the data-only codec refuses as fields, or as the beginning of its text."""

    def __init__(self) -> None:
        super().__init__()
        self._early: OrderedDict[int, tuple[Any, tuple[bytes, bytes]]] = OrderedDict()

    def encode_now(self, message: Any) -> None:
        """Encode a message that is stored later: the run may change it until then."""
        self._early[id(message)] = message, super().split(message)
        while len(self._early) > _EARLY:
            self._early.popitem(last=False)

    def forget(self, message: Any) -> None:
        """Encode a message again at its next use."""
        self._early.pop(id(message), None)

    def split(self, value: Any) -> tuple[bytes, bytes]:
        """Encode a value, or return how it was encoded."""
        held = self._early.get(id(value))
        return super().split(value) if held is None else held[1]

    def with_msgpack_allowlist(self, pairs: Any) -> Codec:
        """Return itself: it keeps no class, only data."""
        return self

    def _extend(self, value: Any, pack: Any) -> Any:
        try:
            return super()._extend(value, pack)
        except Exception:  # also one of the value's own methods
            return {CUT: type(value).__name__, "head": _text(value), **_fields(value)}


def _text(value: Any) -> str:
    try:
        return repr(value)[:HEAD]
    except Exception as error:  # a third-party `__repr__`
        return f"its text cannot be made: {type(error).__name__}"


def _fields(value: Any) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return {"fields": {one.name: getattr(value, one.name, None) for one in fields(value)}}
    shown = getattr(type(value), "model_fields", None)
    if isinstance(shown, dict):
        return {"fields": {name: getattr(value, name, None) for name in shown}}
    return {}


def open_store(store: SqlSaver | str | None) -> SqlSaver:
    """Open the store of copies; the default is a private file, named on stderr.

    Raises:
        StorageError: It cannot be opened.
        OSError: Its file cannot be made.
    """
    if isinstance(store, SqlSaver):
        return SqlSaver(store._core, LenientCodec())
    url = f"sqlite:///{RECORDED}" if store is None else store
    if store is None:
        RECORDED.parent.mkdir(exist_ok=True)
        sys.stderr.write(f"wick: recording into {RECORDED}\n")
    dialect = dialect_of(url, "NORMAL")
    for file in map(Path, dialect.files):
        os.close(os.open(file, os.O_CREAT, 0o600))  # a new one is private from its first byte
        if store is None:
            file.chmod(0o600)
    if isinstance(dialect, Sqlite):
        dialect.wait = WAIT
    made = SqlSaver(StoreConnection(dialect, tenant=TENANT, ttl=TTL), LenientCodec())
    if store is None:  # the threads of any other store are its owner's
        with suppress(StorageError):  # another process has it locked: the next one sweeps
            made.sweep()
    return made


class Copy:
    """The copied checkpoints of one run."""

    def __init__(self, saver: SqlSaver, thread_id: str, run_id: str) -> None:
        self.saver = saver
        self._thread, self._run = thread_id, run_id
        self._heads: dict[str, tuple[str, _Versions]] = {}
        """By namespace, the last copied checkpoint, and the versions of its channels."""
        self._codec: Any = saver.serde
        self._met: dict[int, Any] = {}
        """By identity, messages that were encoded; the reference keeps the identity's meaning."""
        self._wrote: list[Any] = []
        """What tasks wrote since the last checkpoint."""

    def begin(self, loop: Any) -> None:
        """Copy what a loop has read, unless it is there: `update_state` may have made it."""
        at = langgraph_config.configurable(loop.checkpoint_config)
        known = at.get(langgraph_config.CHECKPOINT_ID)
        if not known:
            return
        ns, checkpoint = namespace_of(loop), loop.checkpoint
        if self.saver.get_tuple(self._config(ns, known)) is None:
            self._put(ns, loop, None)
        self._heads[ns] = checkpoint["id"], dict(checkpoint["channel_versions"])

    def checkpoint(self, loop: Any) -> None:
        """Copy the checkpoint that a loop has made."""
        ns = namespace_of(loop)
        self._put(ns, loop, self._heads.get(ns))

    def writes(self, loop: Any, task_id: str, writes: Any, path: str) -> None:
        """Copy a task's writes."""
        specs = loop.specs
        kept = [(c, _lasting(v)) for c, v in writes if type(specs.get(c)) is not UntrackedValue]
        for _, value in kept:  # a known message may be written again because it was changed
            self._wrote.append(value)
            for one in value if isinstance(value, list) else [value]:
                self._met.pop(id(one), None)
                self._codec.forget(one)
        config = self._config(namespace_of(loop), loop.checkpoint["id"])
        self.saver.put_writes(config, kept, task_id, path)

    def update(self, found: Any) -> None:
        """Copy a checkpoint that `update_state` has made."""
        at = langgraph_config.configurable(found.config)
        ns = at.get(langgraph_config.CHECKPOINT_NS, "")
        above = langgraph_config.configurable(found.parent_config)
        parent = above.get(langgraph_config.CHECKPOINT_ID)
        self._store(ns, parent, found.checkpoint, found.metadata, {})

    def _put(self, ns: str, loop: Any, before: tuple[str, _Versions] | None) -> None:
        own, metadata = loop.checkpoint, loop.checkpoint_metadata
        held: Any = {**own, "channel_values": values_of(loop)}
        checkpoint = copy_checkpoint(held)
        parent, known = (None, {}) if before is None else before
        self._store(ns, parent, checkpoint, metadata, known)
        self._heads[ns] = own["id"], dict(own["channel_versions"])

    def _store(
        self, ns: str, parent: str | None, checkpoint: Any, metadata: Any, known: _Versions
    ) -> None:
        versions = checkpoint["channel_versions"]
        new = {name: v for name, v in versions.items() if known.get(name) != v}
        if parent is not None:  # runs beside each other may continue one checkpoint
            self.saver._core.forks.allow((self._thread, ns), pack_id(parent))
        values = checkpoint["channel_values"]
        values |= {name: _lasting(values[name]) for name in new if name in values}
        wrote, self._wrote = self._wrote, []
        fixed = self._fixed([*wrote, *(values[name] for name in new if name in values)])
        config = self._config(ns, parent, fixed)
        about: Any = {**metadata, "run_id": self._run}
        self.saver.put(config, checkpoint, about, new)

    def _fixed(self, values: list[Any]) -> bool:
        """Return whether nothing that the run does later changes what is stored of these values."""
        for value in values:
            parts = value.values() if type(value) is dict else value
            for one in parts if type(value) in (list, dict) else [value]:
                if type(one) in MESSAGES:
                    if id(one) not in self._met:
                        self._met[id(one)] = one
                        self._codec.encode_now(one)
                elif type(one) not in FIXED and not (type(one) is Send and _is_plain(one)):
                    return False
        return True

    def _config(self, ns: str, checkpoint: str | None, waits: bool = False) -> Any:
        """Address a checkpoint; what its tasks write is committed with the one that follows."""
        config: Any = langgraph_config.Address(self._thread, ns, checkpoint).config()
        policy = CommitPolicy(checkpoint or "", checkpoint=waits, call_results=True)
        writer = {langgraph_config.WRITER: Writer(policy=policy)}
        return langgraph_config.with_configurable(config, **writer)


def _own(data: Any) -> Any:
    """Copy plain data; raise TypeError for any other."""
    if type(data) is list:
        return [_own(one) for one in data]
    if type(data) is dict:
        return {key: _own(one) for key, one in data.items()}
    if type(data) not in FIXED:
        raise TypeError
    return data


def _is_plain(task: Any) -> bool:
    with suppress(TypeError, RecursionError):
        _own(task.arg)
        return True
    return False


def _lasting(value: Any) -> Any:
    """Give tasks to run arguments of their own: those that run may change theirs."""
    if type(value) is list and any(type(one) is Send for one in value):
        return [_lasting(one) for one in value]
    if type(value) is not Send or not _is_plain(value):
        return value
    made = copy(value)
    made.arg = _own(value.arg)
    return made


def namespace_of(loop: Any) -> str:
    """Return the namespace of a loop's checkpoints."""
    known = langgraph_config.configurable(loop.config)
    return str(known.get(langgraph_config.CHECKPOINT_NS) or "")


def values_of(loop: Any) -> dict[str, Any]:
    """Return the values of a loop's channels as a checkpoint holds them; deltas are summed up."""
    made: dict[str, Any] = {}
    versions = loop.checkpoint["channel_versions"]
    for name, channel in loop.channels.items():
        if name not in versions or isinstance(channel, UntrackedValue):
            continue
        try:
            value = channel.get() if isinstance(channel, DeltaChannel) else channel.checkpoint()
        except EmptyChannelError:
            continue
        if value is not MISSING:
            made[name] = value
    return made
