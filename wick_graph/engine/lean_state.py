"""The state of LangGraph's loop, its managers and queues, made shorter; `lean` tells when."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForChainRun
from langgraph._internal import _constants as key
from langgraph._internal._typing import EMPTY_SEQ
from langgraph.channels import (
    BaseChannel,
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    Topic,
)
from langgraph.checkpoint.base import writes_sort_key
from langgraph.pregel import _algo, _loop, _runner, main

from wick_graph.engine.channels import (
    MISSING,
    FastEphemeralChannel,
    FastReducerChannel,
    values_of,
)
from wick_graph.engine.small import MANY, Few, WeakMethod, own_names

# --- A step's writes, and the state that the route reads.
#
# A channel with a reducer, or with the last value, does nothing when a step passes without a write.

_PASSIVE: Final = frozenset({LastValue, BinaryOperatorAggregate, FastReducerChannel})

_CONTROL: Final = frozenset(
    {
        key.NO_WRITES,
        key.PUSH,
        key.RESUME,
        key.INTERRUPT,
        key.RETURN,
        key.ERROR,
        key.ERROR_SOURCE_NODE,
    }
)


_TRIGGERS: Final = attrgetter("triggers")


def apply_writes(
    checkpoint: Any,
    channels: Mapping[str, Any],
    tasks: Iterable[Any],
    get_next_version: Any,
    trigger_to_nodes: Mapping[str, Sequence[str]],
) -> set[str]:
    """Apply the writes of a step's tasks, as LangGraph does; return the updated channels."""
    done = list(tasks)
    written = _written(done)
    if not channels.keys() >= written.keys():
        return _algo.apply_writes(checkpoint, channels, done, get_next_version, trigger_to_nodes)
    versions = checkpoint["channel_versions"]
    updated: set[str] = set()
    read = _note_seen(checkpoint["versions_seen"], versions, channels, done)
    version = get_next_version(max(versions.values(), default=None), None)

    def note(name: str) -> None:
        versions[name] = version
        channel = channels[name]
        if channel.value is not MISSING if type(channel) in _VALUED else channel.is_available():
            updated.add(name)

    for name in read:
        if channels[name].consume():
            versions[name] = version
    for name, values in written.items():
        if channels[name].update(values):
            note(name)
    if any(map(_TRIGGERS, done)):
        _pass_step(channels, trigger_to_nodes, updated, note)
    return updated


def _pass_step(
    channels: Mapping[str, Any],
    trigger_to_nodes: Mapping[str, Sequence[str]],
    updated: set[str],
    note: Callable[[str], None],
) -> None:
    """Tell the channels that were not written that a step has passed, or that it was the last."""
    asked, finishing = active(channels)
    for name in asked:
        channel = channels[name]
        if type(channel) in _VALUED and channel.value is MISSING:
            continue  # most edges are not on the way
        if name not in updated and channel.is_available() and channel.update(EMPTY_SEQ):
            note(name)
    for name in finishing if updated.isdisjoint(trigger_to_nodes) else ():
        if channels[name].finish():
            note(name)


_VALUED: Final = frozenset(
    {FastReducerChannel, FastEphemeralChannel, BinaryOperatorAggregate, EphemeralValue, LastValue}
)
"""Channels with their value, or the mark of a missing one, in an attribute."""


def active(channels: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the channels that a step may change without a write, and those that the end may."""
    return _active_of(tuple(channels), tuple(map(type, channels.values())))


@lru_cache(maxsize=64)
def _active_of(
    names: tuple[str, ...], types: tuple[type[Any], ...]
) -> tuple[Sequence[str], Sequence[str]]:
    kinds = dict(zip(names, types, strict=True))
    active = [name for name, kind in kinds.items() if kind not in _PASSIVE]
    return active, [name for name in active if kinds[name].finish is not BaseChannel.finish]


def _written(tasks: list[Any]) -> dict[str, list[Any]]:
    """Sort tasks by their path, and group what they wrote by channel."""
    written: dict[str, list[Any]] = {}
    if len(tasks) > 1:
        tasks.sort(key=lambda task: writes_sort_key(_algo.task_path_str(task.path)))
    for task in tasks:
        for name, value in task.writes:
            if name not in _CONTROL:
                written.setdefault(name, []).append(value)
    return written


def _note_seen(
    all_seen: Any, versions: Any, channels: Mapping[str, Any], tasks: list[Any]
) -> set[str]:
    """Note the versions that triggered tasks; return the channels that did."""
    read = set()
    for task in tasks:
        seen = all_seen.setdefault(task.name, {})
        for name in task.triggers:
            if name in versions:
                seen[name] = versions[name]
            if name not in key.RESERVED and name in channels:
                read.add(name)
    return read


def local_read(
    scratchpad: Any,
    channels: Mapping[str, Any],
    managed: Any,
    task: Any,
    select: Any,
    fresh: bool = False,
) -> Any:
    """Read the state with a task's own writes, as LangGraph does; copy only what changes."""
    if isinstance(select, str) or not channels.keys() >= set(select):
        return _algo.local_read(scratchpad, channels, managed, task, select, fresh)
    if not fresh:
        return values_of(channels, select)
    written: dict[str, list[Any]] = {}
    for name, value in task.writes:
        if name in select:
            written.setdefault(name, []).append(value)
    read = {}
    for name in select:
        channel = read[name] = channels[name]
        if name in written or type(channel) not in _PASSIVE:
            channel = read[name] = channel.copy()
            channel.update(written.get(name, []))
    return values_of(read, read)


_KNOWN: Final = _PASSIVE - {BinaryOperatorAggregate} | {Topic, EphemeralValue, FastEphemeralChannel}
"""Channels of an agent; none is made of earlier checkpoints."""


def channels_of(specs: Mapping[str, Any], checkpoint: Any) -> dict[str, Any] | None:
    """Return a checkpoint's channels, as LangGraph does; None if it must look closer at one."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    made = {}
    for name, spec in specs.items():
        stored = values.get(name, MISSING)
        kind = type(spec)
        if kind not in _KNOWN or (
            kind is FastReducerChannel and stored is MISSING and name in versions
        ):
            return None
        made[name] = spec.from_checkpoint(stored)
    return made


_create: Final[Any] = vars(_loop)["create_checkpoint"]


def create_checkpoint(checkpoint: Any, channels: Any, step: int, **given: Any) -> Any:
    """Make a checkpoint of the channels, as LangGraph does, without a call for most of them."""
    if channels is None or given.get("channels_to_snapshot"):
        return _create(checkpoint, channels, step, **given)
    versions, values = checkpoint["channel_versions"], {}
    for name, channel in channels.items():
        if name in versions:
            value = channel.value if type(channel) in _VALUED else channel.checkpoint()
            if value is not MISSING:
                values[name] = value
    held = {**checkpoint, "channel_values": values, "channel_versions": dict(versions)}
    return _create(held, None, step, **given)


def new_versions(previous: Mapping[str, Any], current: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the versions that changed, as LangGraph does: none of ours is ever lowered."""
    return dict(current.items() - previous.items()) if previous else current


_channels: Final[Any] = vars(_loop)["channels_from_checkpoint"]

_achannels: Final[Any] = vars(_loop)["achannels_from_checkpoint"]


def channels_from_checkpoint(specs: Any, checkpoint: Any, **options: Any) -> Any:
    """Return a checkpoint's channels and managed values."""
    made = channels_of(specs, checkpoint)
    if made is not None:
        return made, {}
    return _channels(specs, checkpoint, **options)


async def achannels_from_checkpoint(specs: Any, checkpoint: Any, **options: Any) -> Any:
    """Return a checkpoint's channels and managed values."""
    made = channels_of(specs, checkpoint)
    if made is not None:
        return made, {}
    return await _achannels(specs, checkpoint, **options)


# --- What a step says to a reader of the state, or of its changes.

_values: Final[Any] = vars(_loop)["map_output_values"]

_updates: Final[Any] = vars(_loop)["map_output_updates"]


def output_values(keys: Any, writes: Any, channels: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the state if a step has changed it, as LangGraph does."""
    if isinstance(keys, str) or not channels.keys() >= set(keys):
        yield from _values(keys, writes, channels)
    elif writes is True or any(name in keys for name, _ in writes):
        yield values_of(channels, keys)


def output_updates(keys: Any, tasks: list[tuple[Any, Any]], cached: bool = False) -> Any:
    """Yield what a task has changed, as LangGraph does."""
    [(task, writes)] = tasks
    names = [name for name, _ in writes]
    plain = not cached and not isinstance(keys, str) and not (task.config or {}).get("tags")
    if not plain or len(set(names)) < len(names) or not _CONTROL.isdisjoint(names):
        return _updates(keys, tasks, cached)
    return iter([{task.name: {name: value for name, value in writes if name in keys} or None}])


# --- The callback managers of tasks.

_OF_CHILD: Final = {
    *("handlers", "inheritable_handlers", "parent_run_id"),
    *("tags", "inheritable_tags", "metadata", "inheritable_metadata"),
}
"""What a child callback manager holds."""

_CHILDREN: Final[dict[type[Any], type[Any]]] = {}
"""The type of each manager's child; that of None if a child holds anything else."""


def child_of(manager: Any, tag: str) -> Any:
    """Return a manager's child, as LangChain makes it if there are no handlers."""
    kind = _CHILDREN.get(type(manager))
    if kind is None:
        child = manager.get_child()
        kind = type(child) if vars(child).keys() == _OF_CHILD else type(None)
        _CHILDREN[type(manager)] = kind
    if kind is type(None):
        return manager.get_child(tag)
    tags, metadata = manager.inheritable_tags, manager.inheritable_metadata
    made: Any = object.__new__(kind)
    made.handlers, made.inheritable_handlers, made.parent_run_id = [], [], manager.run_id
    made.tags, made.inheritable_tags = [*tags, tag], [*tags]
    made.metadata, made.inheritable_metadata = {**metadata}, {**metadata}
    return made


class QuietManager(AsyncCallbackManagerForChainRun):
    """The callback manager of a run; it makes a task only for a handler."""

    async def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        """Tell the handlers that the run has ended."""
        if self.handlers:
            await super().on_chain_end(outputs, **kwargs)


def hush(manager: Any) -> None:
    """Let a run's manager make no task if it has no handler."""
    if type(manager) is AsyncCallbackManagerForChainRun:
        manager.__class__ = QuietManager


# --- What a run may never use is small, or made when it is first used.


_Queue: Final[Any] = vars(main)["AsyncQueue"]


class Chunks(_Queue):  # type: ignore[misc]  # LangGraph's module has no types
    """LangGraph's queue of chunks: without a limit, and without tasks to wait for."""

    def __init__(self) -> None:
        self._queue: Any = Few()
        self._getters = Few()

    def put_nowait(self, item: Any) -> None:
        """Add a chunk, and wake who waits for one."""
        self._queue.append(item)
        if len(self._queue) == MANY and type(self._queue) is Few:
            self._queue = deque(self._queue)
        if self._getters:
            self._wakeup_next(self._getters)

    def get_nowait(self) -> Any:
        """Remove and return the first chunk."""
        if not self._queue:
            raise asyncio.QueueEmpty
        return self._queue.popleft()


WEAK: Final = SimpleNamespace(ref=weakref.ref, WeakMethod=WeakMethod)
"""What LangGraph asks of `weakref`."""

_MAKES: Final = threading.Lock()


class Futures(_runner.FuturesDict[Any, Any]):
    """The tasks that a step waits for; a step of one task that starts no other has none."""

    __slots__ = (*own_names(_runner.FuturesDict), "makes", "runner")

    def __init__(self, event: Any, callback: Any, should_stop: Any, future_type: Any) -> None:
        dict.__init__(self)
        self.runner: Any = weakref.ref(callback().__self__)
        self.should_stop = should_stop
        self.makes: Callable[[], Any] | None = type(event)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.makes is not None:
            with _MAKES:
                if (make := self.makes) is not None:
                    callback: Any = WeakMethod(self.runner().commit)
                    super().__init__(make(), callback, self.should_stop, type(key))
                    self.makes = None
        super().__setitem__(key, value)
