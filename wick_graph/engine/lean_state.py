"""The state of LangGraph's loop, its managers and queues, made shorter; `lean` tells when."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from random import getrandbits
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

from langgraph._internal import _constants as key
from langgraph._internal._typing import EMPTY_SEQ
from langgraph.channels import (
    BaseChannel,
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    Topic,
)
from langgraph.checkpoint.base import id as _id
from langgraph.checkpoint.base import writes_sort_key
from langgraph.pregel import _algo, _loop, _runner, main

from wick_graph.engine.channels import MISSING, FastEphemeralChannel, FastReducerChannel
from wick_graph.engine.small import MANY, Few, WeakMethod, own_names

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

# --- A run's channels, and what they hold.

_VALUED: Final = frozenset(
    {FastReducerChannel, FastEphemeralChannel, BinaryOperatorAggregate, EphemeralValue, LastValue}
)
"""Channels with their value, or the mark of a missing one, in an attribute."""

_FLEETING: Final = frozenset({FastEphemeralChannel, EphemeralValue})
"""Those of them that are empty after a step without a write; the others do not change then."""


class Channels(dict[str, Any]):
    """A run's channels, and the values that they hold.

    Only `apply_writes` changes them, so it alone notes what they hold.
    """

    __slots__ = ("_ranks", "_stored", "acting", "asked", "fleeting", "held")

    def __init__(self, channels: Mapping[str, Any]) -> None:
        super().__init__(channels)
        kinds = _kinds_of(tuple(channels), tuple(map(type, channels.values())))
        self.fleeting, self.asked, self.acting, self._ranks = kinds
        self._stored: list[str] = []
        self.look()

    def look(self) -> None:
        """Note what each channel holds; one that must be asked is there itself."""
        asked = self.asked
        self.held = {
            name: channel if name in asked else channel.value
            for name, channel in self.items()
            if name in asked or channel.value is not MISSING
        }

    def read(self, names: Iterable[str], changed: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Return the values of the channels that have one; some may be read in another form."""
        held = {**self.held, **changed} if changed else self.held
        found = {name: held[name] for name in names if name in held}
        for name in {*self.asked, *changed}:
            if name in found:
                channel = found[name]
                if channel.is_available():
                    found[name] = channel.get()
                else:
                    del found[name]
        return found

    def stored(self, versions: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a checkpoint keeps of the channels that were ever written."""
        if len(self._stored) != len(versions):  # none is ever taken out
            self._stored = sorted(self.keys() & versions.keys(), key=self._ranks.__getitem__)
        held = self.held
        found = {name: held[name] for name in self._stored if name in held}
        for name in self.asked:
            if name in found:
                found[name] = found[name].checkpoint()
                if found[name] is MISSING:
                    del found[name]
        return found


@lru_cache(maxsize=64)
def _kinds_of(
    names: tuple[str, ...], types: tuple[type[Any], ...]
) -> tuple[Sequence[str], Sequence[str], Sequence[str], Mapping[str, int]]:
    """Return the fleeting channels, those to be asked, those that act, and the place of each."""
    kinds = dict(zip(names, types, strict=True))
    asked = [name for name, kind in kinds.items() if kind not in _VALUED]
    own = BaseChannel.consume, BaseChannel.finish
    acting = [name for name in asked if (kinds[name].consume, kinds[name].finish) != own]
    fleeting = [name for name, kind in kinds.items() if kind in _FLEETING]
    return fleeting, asked, acting, {name: place for place, name in enumerate(names)}


# --- A step's writes, and the state that the route reads.

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
    channels: Channels,
    tasks: Iterable[Any],
    get_next_version: Any,
    trigger_to_nodes: Mapping[str, Sequence[str]],
) -> set[str]:
    """Apply the writes of a step's tasks, as LangGraph does; return the updated channels."""
    done = list(tasks)
    written = _written(done)
    versions, all_seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    if not channels.keys() >= written.keys():
        all_seen.update({name: {**seen} for name, seen in all_seen.items()})  # a save has these
        given = done, get_next_version, trigger_to_nodes
        updated: set[str] = _algo.apply_writes(checkpoint, channels, *given)
        channels.look()
        return updated
    _note_seen(all_seen, versions, done)
    version = get_next_version(max(versions.values(), default=None), None)
    updated, held, asked = set(), channels.held, channels.asked
    for name in channels.acting:
        if any(name in task.triggers for task in done) and channels[name].consume():
            versions[name] = version
    for name, values in written.items():
        channel = channels[name]
        if channel.update(values):
            versions[name] = version
            if name not in asked:
                held[name] = channel.value  # a write always leaves one
            elif not channel.is_available():
                continue
            updated.add(name)
    if any(map(_TRIGGERS, done)):
        _pass_step(channels, versions, version, updated, trigger_to_nodes)
    return updated


def _pass_step(
    channels: Channels,
    versions: dict[str, Any],
    version: Any,
    updated: set[str],
    trigger_to_nodes: Mapping[str, Sequence[str]],
) -> None:
    """Tell the channels that were not written that a step has passed, or that it was the last."""
    held = channels.held
    for name in channels.fleeting:
        if name in held and name not in updated:
            channels[name].update(EMPTY_SEQ)
            versions[name] = version
            del held[name]
    for name in channels.asked:
        channel = channels[name]
        if name not in updated and channel.is_available() and channel.update(EMPTY_SEQ):
            versions[name] = version
            if channel.is_available():
                updated.add(name)
    for name in channels.acting if updated.isdisjoint(trigger_to_nodes) else ():
        if channels[name].finish():
            versions[name] = version
            if channels[name].is_available():
                updated.add(name)


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


def _note_seen(all_seen: Any, versions: Any, tasks: list[Any]) -> None:
    """Note the versions that triggered tasks; what a checkpoint that is saved has is kept."""
    for task in tasks:
        now = {name: versions[name] for name in task.triggers if name in versions}
        all_seen[task.name] = {**all_seen.get(task.name, NOTHING), **now}


def local_read(
    scratchpad: Any,
    channels: Channels,
    managed: Any,
    task: Any,
    select: Any,
    fresh: bool = False,
) -> Any:
    """Read the state with a task's own writes, as LangGraph does; copy only what changes."""
    if isinstance(select, str) or not channels.keys() >= set(select):
        return _algo.local_read(scratchpad, channels, managed, task, select, fresh)
    if not fresh:
        return channels.read(select)
    written: dict[str, list[Any]] = {}
    for name, value in task.writes:
        if name in select:
            written.setdefault(name, []).append(value)
    changed: dict[str, Any] = {}
    passing = channels.held.keys() & channels.fleeting
    for name in (*written, *passing, *channels.asked):
        if name in select and name not in changed:
            changed[name] = channels[name].copy()
            changed[name].update(written.get(name, EMPTY_SEQ))
    return channels.read(select, changed)


_KNOWN: Final = _VALUED - {BinaryOperatorAggregate} | {Topic}
"""Channels of an agent; none is made of earlier checkpoints."""


def channels_of(specs: Mapping[str, Any], checkpoint: Any) -> dict[str, Any] | None:
    """Return a checkpoint's channels, as LangGraph does; None if it must look closer at one."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    if not _KNOWN.issuperset(map(type, specs.values())):
        return None
    for name in versions.keys() - values.keys():
        if type(specs.get(name)) is FastReducerChannel:
            return None
    return {name: spec.from_checkpoint(values.get(name, MISSING)) for name, spec in specs.items()}


_VERSION: Final[int] = vars(_loop)["empty_checkpoint"]()["v"]


def checkpoint_of(
    last: Any, channels: Channels, step: int, updated: set[str] | None
) -> dict[str, Any]:
    """Make the checkpoint that comes after another one, as LangGraph does."""
    versions = last["channel_versions"]
    return {
        "v": _VERSION,
        "ts": datetime.now(UTC).isoformat(),
        "id": checkpoint_id(step),
        "channel_values": channels.stored(versions),
        "channel_versions": {**versions},
        "versions_seen": last["versions_seen"],
        "updated_channels": None if updated is None else sorted(updated),
    }


def copy_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return what the saver gets; `_note_seen` leaves the versions that a task has seen."""
    return {
        **checkpoint,
        "channel_values": {**checkpoint["channel_values"]},
        "channel_versions": {**checkpoint["channel_versions"]},
        "versions_seen": {**checkpoint["versions_seen"]},
    }


_IDS: Final = vars(_id)

_LAST: Final = "_last_v6_timestamp"

_EPOCH: Final = 0x01B21DD213814000
"""The number of 100-ns intervals between the epoch of UUIDs and that of Unix."""


def checkpoint_id(step: int) -> str:
    """Return what LangGraph's `uuid6` makes, as text; both count on from the same last time."""
    now, last = time.time_ns() // 100 + _EPOCH, _IDS[_LAST]
    if last is not None and now <= last:
        now = last + 1
    _IDS[_LAST] = now
    parts = now >> 28, now >> 12 & 0xFFFF, now & 0xFFF, step & 0x3FFF | 0x8000, getrandbits(48)
    return "{:08x}-{:04x}-6{:03x}-{:04x}-{:012x}".format(*parts)


def new_versions(previous: Mapping[str, Any], current: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the versions that changed, as LangGraph does: none of ours is ever lowered."""
    return dict(current.items() - previous.items()) if previous else current


_channels: Final[Any] = vars(_loop)["channels_from_checkpoint"]

_achannels: Final[Any] = vars(_loop)["achannels_from_checkpoint"]


def channels_from_checkpoint(specs: Any, checkpoint: Any, **options: Any) -> Any:
    """Return a checkpoint's channels and managed values."""
    made, managed = channels_of(specs, checkpoint), {}
    if made is None:
        made, managed = _channels(specs, checkpoint, **options)
    return Channels(made), managed


async def achannels_from_checkpoint(specs: Any, checkpoint: Any, **options: Any) -> Any:
    """Return a checkpoint's channels and managed values."""
    made, managed = channels_of(specs, checkpoint), {}
    if made is None:
        made, managed = await _achannels(specs, checkpoint, **options)
    return Channels(made), managed


# --- What a step says to a reader of the state, or of its changes.

_values: Final[Any] = vars(_loop)["map_output_values"]

_updates: Final[Any] = vars(_loop)["map_output_updates"]


def output_values(keys: Any, writes: Any, channels: Channels) -> Iterator[Any]:
    """Yield the state if a step has changed it, as LangGraph does."""
    if isinstance(keys, str) or not channels.keys() >= set(keys):
        yield from _values(keys, writes, channels)
    elif writes is True or any(name in keys for name, _ in writes):
        yield channels.read(keys)


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
