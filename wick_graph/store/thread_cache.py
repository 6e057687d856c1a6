"""What this process knows about a thread's rows, and the items as they are stored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.store import statements
from wick_graph.store.dialect import Database
from wick_graph.store.digests import NAMES, row_hash
from wick_graph.store.row_format import PLAIN, Form, Marks, Seals, bytes_text, text_bytes
from wick_graph.store.schema import LANE_BITS, PLACES

# --- Which forks of a thread are meant: two runs that know nothing of each other must not make
# one.
#
# LangGraph itself lets two runs continue the same checkpoint; the one that comes last becomes the
# thread's head, and what the other did is gone from it. Here a checkpoint must continue the head,
# unless its parent was asked for by its id, which is how a fork is made on purpose.


_KEPT: Final = 4_096

K = TypeVar("K")

Place = tuple[str, str]
"""Thread and namespace."""


class AllowedBranches:
    """What readers asked for lately; unlike caches, this is never forgotten because of an error."""

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[str, str, bytes], None] = OrderedDict()
        self._empty: OrderedDict[Place, None] = OrderedDict()

    def allow(self, place: Place, checkpoint: bytes) -> None:
        """Note that a checkpoint was asked for by its id, and may be continued."""
        _note(self._asked, (*place, checkpoint))

    def note_head(self, place: Place, *, found: bool) -> None:
        """Note whether somebody who looked for a thread's head found one."""
        if found:
            self._empty.pop(place, None)
        else:
            _note(self._empty, place)

    def check(self, place: Place, own: bytes, parent: bytes | None, head: bytes | None) -> None:
        """Refuse a checkpoint that would leave the head aside without anybody meaning it.

        Raises:
            ThreadBusyError: Another run or an update was faster.
        """
        if head is None or head in (own, parent):
            return
        fresh = parent is None and place not in self._empty
        meant = fresh or (parent is not None and (*place, parent) in self._asked)
        if not meant:
            raise ThreadBusyError(
                f"thread {place[0]} was changed by another run or update since this one read it; "
                "nothing of this step was stored, so run it again from the thread's latest state"
            )


def _note(kept: OrderedDict[K, None], key: K) -> None:
    kept[key] = None
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)


# --- What this process knows about a thread's rows, so that a step writes only what is new.
#
# Everything here may be forgotten at any time: the next `put` then reads the parent checkpoint and
# finds again what it can share (`writing.Writer.warm`).


_RECENT: Final = 3

_DIGESTS: Final = 50_000

_TEXTS: Final = 32

_RESERVED: Final = 64

_STEPS: Final = 64

_ROOM: Final = 8
"""Checkpoints that a graph may have under way when one of them is continued inside."""


def digest(core: bytes) -> bytes:
    """Return the key under which equal content is found again."""
    return blake2b(core, digest_size=16).digest()


@dataclass(slots=True, eq=False)
class Known:
    """A list or dict whose elements are stored, by the very objects it holds."""

    keys: list[Any] | None
    """The keys of a dict, None for a list."""
    values: list[Any]
    ranges: list[int]
    """Start, count, start, count, … of places in the lane."""
    ids: set[int]
    """Ids of the values, or more: a list that continues another one has its set."""

    def places(self) -> list[int]:
        """Return the place of every element."""
        flat = self.ranges
        return [
            place
            for start, count in zip(flat[::2], flat[1::2], strict=True)
            for place in range(start, start + count)
        ]


@dataclass(slots=True)
class ChannelItems:
    """One channel of one namespace: where its items go and what lies there."""

    id: int
    next: int | None = None
    """The next free place; None if the database must be asked."""
    recent: list[Known] = field(default_factory=list)
    last: tuple[Any, Any, Form] | None = None
    """Version, value and form that were stored last."""

    def remember(self, known: Known, instead_of: Known | None = None) -> None:
        """Keep a list at hand, in the place of one that it continues."""
        if instead_of is not None and instead_of in self.recent:
            self.recent.remove(instead_of)
        self.recent.insert(0, known)
        del self.recent[_RECENT:]


@dataclass(slots=True)
class Reserved:
    """Numbers that are kept for a checkpoint which is not stored yet."""

    checkpoint: bytes
    low: int
    """The first number below its own that is free."""
    number: int


@dataclass(slots=True)
class ThreadCache:
    """Names, lanes and content of one thread, valid for one generation of its rows."""

    id: int
    generation: int
    warm: set[int] = field(default_factory=set)
    """Namespaces whose lanes hold what the head's values need."""
    seen_others: int = 0
    seals: Seals = PLAIN
    """How the thread's rows are closed and opened."""
    marks: Marks | None = None
    """In debug mode: what saved elements looked like."""
    within: object = None
    """The open transaction in which the thread's own row was seen last."""
    names: dict[int, dict[str, int]] | None = None
    """Per scope, the number of every name."""
    texts: dict[int, str] = field(default_factory=dict)
    heads: dict[int, tuple[bytes, int] | None] = field(default_factory=dict)
    """Per namespace, the id and the number of the latest checkpoint."""
    last: int | None = None
    """The number of the thread's last checkpoint; None if the database must be asked."""
    written: dict[int, dict[bytes, dict[int, list[Any]]]] = field(default_factory=dict)
    """Per namespace and checkpoint, what the step after it has written to each channel."""
    saved: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Per namespace, the arguments of the last `StepTransaction.checkpoint`."""
    reserved: dict[str, Reserved] = field(default_factory=dict)
    """Per namespace, numbers for a checkpoint that others were made of before it was stored."""
    flats: dict[int, tuple[dict[str, Any], list[Any]]] = field(default_factory=dict)
    """By a node's number: the versions it has seen, and these as a row holds them."""
    lanes: dict[int, ChannelItems] = field(default_factory=dict)
    channels: dict[int, dict[str, ChannelItems]] = field(default_factory=dict)
    """Per namespace, the lanes of its channels by their names."""
    exact: dict[tuple[int, bytes, bytes], int] = field(default_factory=dict)
    """Lane, head and digest of an item: its place."""
    bases: dict[bytes, int] = field(default_factory=dict)
    """Digest of a full item: its key."""
    unlearned: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of keys of lists that were read: what they hold is not in `exact` yet."""
    step: tuple[Any, Any] | None = None
    """Which member of a transaction wrote last, and with what (`StepTransaction`)."""
    texts_apart: dict[str, bytes] = field(default_factory=dict)
    """Long texts that are stored apart: their hashes."""

    def lane(self, number: int) -> ChannelItems:
        """Return a lane by its number."""
        lane = self.lanes.get(number)
        if lane is None:
            lane = self.lanes[number] = ChannelItems(number)
        return lane

    def invalidate_shared(self) -> None:
        """Forget what another process may have changed by adding rows."""
        self.names = None
        self.heads.clear()
        self.last = None
        for lane in self.lanes.values():
            lane.next = None

    def note_written(self, ns: int, checkpoint: bytes) -> dict[int, list[Any]]:
        """Return what the step after a checkpoint has written to each channel, to be added to.

        LangGraph goes on while steps are saved, so there are some of them at a time.
        """
        steps = self.written.setdefault(ns, {})
        while len(steps) >= _STEPS and checkpoint not in steps:
            del steps[next(iter(steps))]
        return steps.setdefault(checkpoint, {})

    def take_written(self, ns: int, checkpoint: bytes | None) -> Mapping[int, list[Any]]:
        """Return what the step after a checkpoint has written, and forget it."""
        steps = self.written.get(ns)
        return steps.pop(checkpoint, {}) if steps and checkpoint else {}

    def learn(self, lane: int, head: bytes, key: bytes, place: int, *, full: bool) -> None:
        """Remember where content of a digest lies; `full` if the row holds the content itself."""
        if len(self.exact) > _DIGESTS:
            self.exact.clear()
            self.bases.clear()
            self.texts_apart.clear()
        self.exact[lane, head, key] = place
        if full:
            self.bases[key] = lane << LANE_BITS | place

    def keep_text(self, text: str, hashed: bytes) -> None:
        """Remember a text that is stored apart."""
        while len(self.texts_apart) >= _TEXTS:
            del self.texts_apart[next(iter(self.texts_apart))]
        self.texts_apart[text] = hashed

    def scope(self, db: Database, scope: int) -> dict[str, int]:
        """Return the names of a scope with their numbers; not to be changed."""
        if self.names is None:
            self.names, self.texts = {}, {}
            for number, within, data in db.execute(statements.NAMES, (self.id,)).fetchall():
                text = self.texts[number] = bytes_text(data)
                self.names.setdefault(within, {})[text] = number
        return self.names.setdefault(scope, {})

    def find_name(self, db: Database, scope: int, text: str) -> int | None:
        """Return the number of a name, None if the thread has no such name."""
        return self.scope(db, scope).get(text)

    def name(self, db: Database, scope: int, text: str) -> int:
        """Return the number of a name, made if there is none."""
        names = self.scope(db, scope)
        number = names.get(text)
        if number is None:
            row = db.execute(statements.NEW_NAME, (self.id, scope, text_bytes(text))).fetchone()
            number = names[text] = int(row[0])
            self.texts[number] = text
            hashed = row_hash((number, self.id, scope, text_bytes(text)), None)
            db.account.add(NAMES, self.id, hashed)
        return number

    def head(self, db: Database, ns: int) -> tuple[bytes, int] | None:
        """Return the id and the number of a namespace's latest checkpoint."""
        if ns not in self.heads:
            row = db.execute(statements.HEAD, (self.id, ns, 0, 1, 0)).fetchone()
            self.heads[ns] = None if row is None else (bytes(row[0]), row[1])
        return self.heads[ns]

    def next_seq(self, db: Database) -> int:
        """Count up the thread's checkpoints, and return the number."""
        if self.last is None:
            self.last = db.execute(statements.LAST_SEQ, (self.id,)).fetchone()[0] or 0
        self.last += 1
        return self.last

    def reserve(self, db: Database, name: str, checkpoint: bytes) -> None:
        """Give a checkpoint its number before what was made of it gets one.

        A graph's checkpoint may be stored in the background, while a graph inside of it runs; so
        may the one before it, for which there is room below.
        """
        held, ns = self.reserved.get(name), self.find_name(db, 0, name)
        if held is not None and held.checkpoint == checkpoint:
            return
        if ns is not None and self.seq(db, ns, checkpoint):
            return
        low = self.next_seq(db)
        self.last = low + _ROOM
        while len(self.reserved) >= _RESERVED:
            del self.reserved[next(iter(self.reserved))]
        self.reserved[name] = Reserved(checkpoint, low, self.last)

    def take_seq(self, db: Database, name: str, checkpoint: bytes) -> int:
        """Return the number of a checkpoint that is stored now."""
        held = self.reserved.get(name)
        if held is None:
            return self.next_seq(db)
        if checkpoint < held.checkpoint and held.low < held.number:
            # Both ids were made in this process, which never makes a lower one after a higher.
            held.low += 1
            return held.low - 1
        del self.reserved[name]
        return held.number if checkpoint == held.checkpoint else self.next_seq(db)

    def seq(self, db: Database, ns: int, checkpoint: bytes | None) -> int:
        """Return the number of a checkpoint, 0 for one that is not stored."""
        if checkpoint is None:
            return 0
        head = self.heads.get(ns)
        if head is not None and head[0] == checkpoint:
            return head[1]
        row = db.execute(statements.SEQ, (self.id, ns, checkpoint)).fetchone()
        return 0 if row is None else int(row[0])

    def text(self, db: Database, number: int) -> str:
        """Return the text of a name; raises KeyError for a number that is none."""
        if self.names is None:
            self.scope(db, 0)
        return self.texts[number]


# --- Items as they are stored: read in ranges, checked, and found again by what they hold.


class Item(NamedTuple):
    """One row of `items`."""

    rid: int
    head: bytes
    core: bytes
    full: bool
    """The row holds the content itself, and not the key of another one."""


def read_items(
    db: Database, cache: ThreadCache, first: int, last: int, thread_id: str
) -> Iterator[Item]:
    """Yield the items of a range of keys, with their check values verified.

    Raises:
        StorageError: if one is missing or damaged.
    """
    what = f"table items of thread {thread_id!r}"
    due, unseal = first, cache.seals.unseal
    for rid, base, sealed, based in db.execute(statements.ITEMS, (first, last)):
        head, core = take_head(unseal(sealed, what, rid, base))
        if base is not None:
            if based is None:
                raise _incomplete(what)
            core = take_head(unseal(based, what, base, None))[1]
        if rid != due:
            break
        due += 1
        yield Item(rid, head, core, base is None)
    if due != last + 1:
        raise _incomplete(what)


def learn(cache: ThreadCache, item: Item) -> None:
    """Remember where an item's content lies."""
    key = digest(item.core)
    cache.learn(item.rid >> LANE_BITS, item.head, key, item.rid & PLACES, full=item.full)


def learn_lately_read(db: Database, cache: ThreadCache, thread_id: str) -> None:
    """Remember where the content of lists lies that were read without looking at that.

    Nearly every list is continued, and found by the objects it holds; only what is made anew is
    looked for by its content.
    """
    ranges, cache.unlearned = cache.unlearned, []
    for first, last in ranges:
        for item in read_items(db, cache, first, last, thread_id):
            learn(cache, item)


def take_head(payload: bytes) -> tuple[bytes, bytes]:
    """Split an item's payload into head and core."""
    size = payload[0]
    start = 1
    if size == 255:
        size = int.from_bytes(payload[1:5], "little")
        start = 5
    return payload[start : start + size], payload[start + size :]


def _incomplete(what: str) -> StorageError:
    return StorageError(f"{what} is damaged: an item is missing; restore a backup")
