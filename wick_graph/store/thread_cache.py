"""What this process knows about a thread's rows, and the items as they are stored."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from sys import intern
from types import MappingProxyType
from typing import Any, Final, TypeVar

from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.store.dialect import Database
from wick_graph.store.digests import LANE_BITS, NAMES, PLACES
from wick_graph.store.later import statements
from wick_graph.store.row_format import PLAIN, Form, Marks, Seals, bytes_text, text_bytes

# --- Allowed branches of a thread: two runs must not branch it by accident.
#
# LangGraph itself lets two runs continue the same checkpoint: the last one becomes the thread's
# head, and what the other did is gone from it. Here a checkpoint must continue the head, unless
# a caller has asked for its parent by id, which is how a branch is made on purpose.


_KEPT: Final = 4_096

POINTER: Final = 48
"""Bytes of content from which a row that points to it saves space."""

K = TypeVar("K")

V = TypeVar("V")

Place = tuple[str, str]
"""Thread and namespace."""


class AllowedBranches:
    """Checkpoints that readers asked for lately; unlike caches, an error does not clear them."""

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[str, str, bytes], None] = OrderedDict()
        self._empty: OrderedDict[Place, None] = OrderedDict()

    def allow(self, place: Place, checkpoint: bytes) -> None:
        """Note that a reader asked for a checkpoint by its id, so that it may be continued."""
        _note(self._asked, (*place, checkpoint))

    def note_head(self, place: Place, *, found: bool) -> None:
        """Note whether a reader that asked for a thread's head found one."""
        if found:
            self._empty.pop(place, None)
        else:
            _note(self._empty, place)

    def check(self, place: Place, own: bytes, parent: bytes | None, head: bytes | None) -> None:
        """Refuse a checkpoint that would branch the thread by accident.

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
# All of it may be forgotten at any time: the next `put` then reads the parent checkpoint and finds
# again what it can share.


_RECENT: Final = 3

_DIGESTS: Final = 50_000

_TEXTS: Final = 32

_RESERVED: Final = 64

_STEPS: Final = 64

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def _none() -> Mapping[str, Any]:
    """Return what most threads share, so that each of many needs no dict of its own."""
    return _EMPTY


_ROOM: Final = 8
"""Checkpoints that a graph may have under way when a subgraph continues one of them."""


digest: Final = partial(blake2b, digest_size=16)
"""Makes the key by which equal content is found again."""


def place_key(lane: int, head: bytes, key: bytes) -> bytes:
    """Return the key of content in a lane; as one text it takes half of what a tuple does."""
    return lane.to_bytes(4, "little") + head + key


def _with(known: Mapping[str, V], most: int, key: str, value: V) -> dict[str, V]:
    """Return a mapping with one entry more, without the oldest if that is more than the most."""
    kept = islice(known.items(), max(len(known) - most + 1, 0), None)
    return {**dict(kept), key: value}


@dataclass(slots=True, eq=False)
class Known:
    """A list or dict with stored elements, known by the objects that it holds."""

    keys: list[Any] | None
    """The keys of a dict, None for a list."""
    values: list[Any]
    ranges: list[int]
    """Start, count, start, count, … of places in the lane."""
    ids: set[int] | None = None
    """Ids of the values, and of others: a list that continues another one shares its set. None
    until they are needed."""
    kept: Set[int] = frozenset()
    """Ids of further values: those that are kept between runs."""

    def holds_any(self, ids: Set[int]) -> bool:
        """Return whether any of the values may have one of these ids."""
        if self.ids is None:
            self.ids = set(map(id, self.values))
        return not (ids.isdisjoint(self.ids) and ids.isdisjoint(self.kept))

    def continuing(self, known: Known) -> Known:
        """Share the ids of the list that this one continues, and return this one."""
        self.ids, self.kept = known.ids, known.kept
        if self.ids is not None:
            self.ids.update(map(id, self.values[len(known.values) :]))
        return self

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
    """The items of one channel in one namespace: the lane that they are in, and what it holds."""

    id: int
    next: int | None = None
    """The next free place; None if the database must be asked."""
    recent: tuple[Known, ...] = ()
    version: Any = None
    value: Any = None
    form: Form | None = None
    """How the value of the channel's version was stored last; None if that is not known."""

    def remember(self, known: Known, instead_of: Known | None = None) -> None:
        """Keep a list at hand, instead of the one that it continues."""
        others = [one for one in self.recent if one is not instead_of]
        self.recent = (known, *others[: _RECENT - 1])

    def forget(self) -> None:
        """Forget the objects that were stored; their content is still found."""
        self.recent, self.version, self.value, self.form = (), None, None, None


@dataclass(slots=True)
class Reserved:
    """Numbers that are reserved for a checkpoint that is not stored yet."""

    checkpoint: bytes
    low: int
    """The first free number below its own."""
    number: int


@dataclass(slots=True)
class Space:
    """What is known of one namespace."""

    warm: bool = False
    """Its lanes hold what the head's values need."""
    head: tuple[bytes, int] | None = None
    """The id and the number of the latest checkpoint."""
    knows_head: bool = False
    valued: tuple[str, ...] = ()
    """The channels with a value in the checkpoint that was stored last."""
    seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """By node, the channels and versions that it has seen; a dict of one takes thrice as much."""
    flats: dict[str, list[Any]] = field(default_factory=dict)
    """By node, the same as a row holds it."""
    meta: tuple[bytes, bytes] | None = None
    """The metadata that was stored last, as encoded, and as its row holds it."""
    written: dict[bytes, defaultdict[int, list[Any]]] | None = None
    """By checkpoint, what the step after it has written to each channel."""
    saved: tuple[Any, ...] | None = None
    """The arguments of the last `StepTransaction.checkpoint`, if its writes may come after it."""


@dataclass(slots=True)
class ThreadCache:
    """The names, lanes and content of one thread, valid for one generation of its rows."""

    id: int
    generation: int
    seen_others: int = 0
    seals: Seals = PLAIN
    """How the thread's rows are sealed and opened."""
    marks: Marks | None = None
    """In debug mode, what saved elements looked like."""
    within: int = 0
    """The number of the transaction that read the thread's own row last; 0 for none."""
    epoch: int | None = None
    """The epoch of its lease within that transaction; None if the database must be asked."""
    names: dict[int, dict[str, int]] | None = None
    """By scope, the number of each name."""
    texts: dict[int, str] | None = None
    """The same the other way round, for who reads a row."""
    spaces: dict[int, Space] = field(default_factory=dict)
    last: int | None = None
    """The number of the thread's last checkpoint; None if the database must be asked."""
    reserved: Mapping[str, Reserved] = field(default_factory=_none)
    """By namespace, numbers for a checkpoint that others continue before it is stored."""
    lanes: dict[int, ChannelItems] = field(default_factory=dict)
    exact: dict[bytes, int] = field(default_factory=dict)
    """By `place_key`, the place of an item; by digest alone, the key of a full item to which others
    may point."""
    unlearned: Sequence[tuple[int, int]] = ()
    """Ranges of keys of lists that were read, with items that are not in `exact` yet."""
    has_kept: bool = False
    """The keys of the messages that are kept between runs are among these, or were."""
    is_new: bool = False
    """This process made the thread, and no other has written to it: all its rows are known."""
    begun: tuple[str, ...] = ()
    """What of a new thread was read or written first."""
    texts_apart: Mapping[str, bytes] = field(default_factory=_none)
    """The hashes of long texts that are stored apart."""

    def lane(self, number: int) -> ChannelItems:
        """Return a lane by its number."""
        lane = self.lanes.get(number)
        if lane is None:
            lane = self.lanes[number] = ChannelItems(number, 0 if self.is_new else None)
        return lane

    def space(self, ns: int) -> Space:
        """Return what is known of a namespace."""
        space = self.spaces.get(ns)
        if space is None:
            space = self.spaces[ns] = Space()
        return space

    def begin_empty(self) -> None:
        """Note that this process has just made the thread."""
        self.is_new, self.names, self.last = True, {}, 0

    def is_first(self, what: str) -> bool:
        """Return, once, whether a new thread has no row of a kind yet."""
        if not self.is_new or what in self.begun:
            return False
        self.begun += (what,)
        return True

    def rest(self) -> None:
        """Forget what holds a run's objects, at its end; the next one begins by reading."""
        for space in self.spaces.values():
            space.saved = space.written = None
            space.seen, space.flats, space.valued = {}, {}, ()
        self.texts_apart = _EMPTY
        for lane in self.lanes.values():
            lane.forget()

    def invalidate_shared(self) -> None:
        """Forget what another process may have changed by adding rows."""
        self.is_new, self.names, self.texts, self.last = False, None, None, None
        self.has_kept = False
        for space in self.spaces.values():
            space.head, space.knows_head = None, False
        for lane in self.lanes.values():
            lane.next = None

    def forget_places(self) -> None:
        """Forget where content is: the database is an older one than it was."""
        self.exact, self.lanes, self.unlearned = {}, {}, ()

    def note_written(self, ns: int, checkpoint: bytes) -> defaultdict[int, list[Any]]:
        """Return what the step after a checkpoint has written to each channel; callers add to it.

        LangGraph goes on while steps are saved, so several steps are kept at a time.
        """
        space = self.space(ns)
        steps = space.written
        if steps is None:
            steps = space.written = {}
        while len(steps) >= _STEPS and checkpoint not in steps:
            del steps[next(iter(steps))]
        return steps.setdefault(checkpoint, defaultdict(list))

    def take_written(self, ns: int, checkpoint: bytes | None) -> Mapping[int, list[Any]]:
        """Return what the step after a checkpoint has written, and forget it."""
        space = self.spaces.get(ns)
        if space is None or not space.written or not checkpoint:
            return {}
        taken = space.written.pop(checkpoint, None)
        space.written = space.written or None
        return taken or {}

    def learn(self, lane: int, head: bytes, key: bytes, place: int, *, full: bool) -> None:
        """Remember the place of content by its digest; `full` if others may point to its row."""
        if len(self.exact) > _DIGESTS:
            self.exact.clear()
            self.texts_apart = _EMPTY
        self.exact[place_key(lane, head, key)] = place
        if full:
            self.exact[key] = lane << LANE_BITS | place

    def keep_text(self, text: str, hashed: bytes) -> None:
        """Remember a text that is stored apart."""
        self.texts_apart = _with(self.texts_apart, _TEXTS, text, hashed)

    def note_unlearned(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note ranges of keys with items that are not learned yet."""
        known = self.unlearned if isinstance(self.unlearned, list) else []
        known += ranges
        self.unlearned = known

    def scope(self, db: Database, scope: int) -> dict[str, int]:
        """Return the names of a scope with their numbers; do not change the dict."""
        if self.names is None:
            self.names = {}
            for number, within, data in db.execute(statements.NAMES, (self.id,)).fetchall():
                self.names.setdefault(within, {})[intern(bytes_text(data))] = number
        return self.names.setdefault(scope, {})

    def find_name(self, db: Database, scope: int, text: str) -> int | None:
        """Return the number of a name; None if the thread has no such name."""
        return self.scope(db, scope).get(text)

    def name(self, db: Database, scope: int, text: str) -> int:
        """Return the number of a name; make one if there is none."""
        names = self.scope(db, scope)
        number = names.get(text)
        if number is None:
            row = db.execute(statements.NEW_NAME, (self.id, scope, text_bytes(text))).fetchone()
            number = names[text] = int(row[0])
            if self.texts is not None:
                self.texts[number] = text
            db.account.add_all(NAMES, self.id, [(number, self.id, scope, text_bytes(text))])
        return number

    def name_all(self, db: Database, scope: int, texts: Iterable[str]) -> None:
        """Make the names of a scope that has none yet."""
        db.executemany(statements.ADD_NAME, [(self.id, scope, text_bytes(text)) for text in texts])
        self.names = self.texts = None
        named = self.scope(db, scope).items()
        rows = [(number, self.id, scope, text_bytes(text)) for text, number in named]
        db.account.add_all(NAMES, self.id, rows)

    def head(self, db: Database, ns: int) -> tuple[bytes, int] | None:
        """Return the id and the number of a namespace's latest checkpoint."""
        space = self.space(ns)
        if not space.knows_head:
            if not self.is_new:
                row = db.execute(statements.HEAD, (self.id, ns, 0, 1, 0)).fetchone()
                space.head = None if row is None else (bytes(row[0]), row[1])
            space.knows_head = True
        return space.head

    def next_seq(self, db: Database) -> int:
        """Return the number of the thread's next checkpoint."""
        if self.last is None:
            self.last = db.execute(statements.LAST_SEQ, (self.id,)).fetchone()[0] or 0
        self.last += 1
        return self.last

    def reserve(self, db: Database, name: str, checkpoint: bytes) -> None:
        """Reserve a checkpoint's number before a checkpoint of a subgraph in it gets one.

        A graph's checkpoint may be stored in the background while a subgraph runs. So may the
        checkpoints before it: there is room for them below the reserved number.
        """
        held, ns = self.reserved.get(name), self.find_name(db, 0, name)
        if held is not None and held.checkpoint == checkpoint:
            return
        if ns is not None and self.seq(db, ns, checkpoint):
            return
        low = self.next_seq(db)
        self.last = low + _ROOM
        self.reserved = _with(self.reserved, _RESERVED, name, Reserved(checkpoint, low, self.last))

    def take_seq(self, db: Database, name: str, checkpoint: bytes) -> int:
        """Return the number of a checkpoint that is being stored."""
        held = self.reserved.get(name)
        if held is None:
            return self.next_seq(db)
        if checkpoint < held.checkpoint and held.low < held.number:
            # This process made both ids, and never makes a lower one after a higher.
            held.low += 1
            return held.low - 1
        self.reserved = {one: kept for one, kept in self.reserved.items() if one != name}
        return held.number if checkpoint == held.checkpoint else self.next_seq(db)

    def seq(self, db: Database, ns: int, checkpoint: bytes | None) -> int:
        """Return the number of a checkpoint; 0 if it is not stored."""
        if checkpoint is None:
            return 0
        space = self.spaces.get(ns)
        head = None if space is None else space.head
        if head is not None and head[0] == checkpoint:
            return head[1]
        if head is None and self.is_new:
            return 0
        row = db.execute(statements.SEQ, (self.id, ns, checkpoint)).fetchone()
        return 0 if row is None else int(row[0])

    def text(self, db: Database, number: int) -> str:
        """Return the text of a name; raise KeyError if no name has this number."""
        if self.texts is None:
            self.scope(db, 0)
            named = (names.items() for names in (self.names or {}).values())
            self.texts = {number: text for text, number in chain.from_iterable(named)}
        return self.texts[number]


# --- Items as they are stored: read in ranges, checked, and found again by their content.


_LONG_HEAD: Final = 255
"""In the place of a head's size: the size is in the next four bytes."""

Item = tuple[bytes, bytes, int, bool]
"""One row of `items`: head, core, its key, and whether it holds the content itself, not the key of
another row. A named tuple would be a sixth of what it takes to read one."""


def read_items(
    db: Database, cache: ThreadCache, first: int, last: int, thread_id: str
) -> Iterator[Item]:
    """Yield the items of a range of keys, after verifying their check values.

    Raises:
        StorageError: An item is missing or damaged.
    """
    what = f"table items of thread {thread_id!r}"
    due, unseal = first, cache.seals.unseal
    for rid, base, sealed, based in db.execute(statements.ITEMS, (first, last)):
        payload = unseal(sealed, what, rid, base)
        size = payload[0]
        if base is None and size < _LONG_HEAD:  # nearly all, so without a call of `take_head`
            head, core = payload[1 : 1 + size], payload[1 + size :]
        else:
            head, core = take_head(payload)
        if base is not None:
            if based is None:
                raise _incomplete(what)
            core = take_head(unseal(based, what, base, None))[1]
        if rid != due:
            break
        due += 1
        yield head, core, rid, base is None
    if due != last + 1:
        raise _incomplete(what)


def learn(cache: ThreadCache, item: Item) -> None:
    """Remember the place of an item's content."""
    head, core, rid, full = item
    full = full and len(core) >= POINTER
    cache.learn(rid >> LANE_BITS, head, digest(core).digest(), rid & PLACES, full=full)


def learn_lately_read(db: Database, cache: ThreadCache, thread_id: str) -> None:
    """Remember the places of the content of lists that were read without noting them.

    Nearly every list is continued, and found by the objects that it holds. Only a list that is
    rebuilt is found by its content.
    """
    ranges, cache.unlearned = cache.unlearned, ()
    for first, last in ranges:
        for item in read_items(db, cache, first, last, thread_id):
            learn(cache, item)


def take_head(payload: bytes) -> tuple[bytes, bytes]:
    """Split an item's payload into head and core."""
    size = payload[0]
    start = 1
    if size == _LONG_HEAD:
        size = int.from_bytes(payload[1:5], "little")
        start = 5
    return payload[start : start + size], payload[start + size :]


def _incomplete(what: str) -> StorageError:
    return StorageError(f"{what} is damaged: an item is missing; restore a backup")
