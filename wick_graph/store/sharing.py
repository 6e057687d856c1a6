"""Structural sharing: only new elements of a channel become rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import is_
from typing import Any, Final

from langchain_core.messages import RemoveMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from wick_graph.store import codec
from wick_graph.store.codec import Codec
from wick_graph.store.dialect import Database
from wick_graph.store.digests import BLOBS, ITEMS, LANE_BITS, PLACES, row_hash
from wick_graph.store.later import statements
from wick_graph.store.row_format import DELTA, DICT, Form, text_bytes
from wick_graph.store.shapes import MESSAGES
from wick_graph.store.thread_cache import (
    POINTER,
    ChannelItems,
    Known,
    ThreadCache,
    digest,
    learn_lately_read,
    place_key,
)

# --- Which elements of a channel a step may have changed in place: those that it wrote.
#
# Stored elements are recognised by identity, so that a step costs what is new in it. An object
# that was changed and written back is the same object with other content: it is encoded again.
# The store does not know what a reducer made of the writes. If the reducer did not put them into
# the value, one for one, it may have changed any element, and all are encoded again.


FIXED: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Immutable types."""

NOTHING: Final[tuple[Any, ...]] = ()
"""The writes to a channel that did not change."""

ALL: Final = None
"""In place of suspects: any element may have changed."""

Suspects = set[int] | None
"""Ids of the objects that may have changed; `ALL` if any may have."""


def suspects(
    written: Sequence[Any] | None, values: Collection[Any], tail: Collection[Any], paired: bool
) -> Suspects:
    """Return the elements of a channel's value that must be compared by content.

    Args:
        written: What the step wrote to the channel; None if that is unknown.
        values: The elements of the channel's value.
        tail: The elements that are not known, by identity, to be stored.
        paired: The channel holds a dict.
    """
    if written is None:
        return ALL
    if not written:
        return set()
    elements = {id(element): element for value in written for element in _elements(value, paired)}
    ids = set(map(id, tail))
    missing = elements.keys() - ids
    if missing:
        missing -= set(map(id, values))
        new = ids - elements.keys()
        if sum(type(elements[one]) is not RemoveMessage for one in missing) > len(new):
            return ALL
    return {one for one, element in elements.items() if type(element) not in FIXED}


def _elements(value: Any, paired: bool) -> Iterable[Any]:
    if type(value) is Overwrite:
        value = value.value
    if isinstance(value, (list, tuple)):
        return value
    return value.values() if paired and isinstance(value, dict) else (value,)


# --- Structural sharing: values become forms, and only new elements become rows.
#
# A list or dict is stored as ranges over items. Elements of the channel's last list are found by
# identity, unless the step wrote them; all others by content. So an append writes one row, an edit
# or a removal writes what changed, and a fork shares with its parent, for any reducer.
#
# A value's form is its encoding if it is small, the key of one item, or a sequence
# `[kind, [lane, start, count, …], [lane, …]]`.


_INLINE: Final = 96
"""The most bytes of a value that is stored in its checkpoint's own row."""

_WHOLE: Final = 200
"""The most bytes of a dict of known keys that is one item: a row for each part would take more, or
hardly less if most parts are those of the step before."""

_FEW: Final = 8


class ItemWriter:
    """Collects the item rows of one transaction."""

    def __init__(self, db: Database, cache: ThreadCache, codec: Codec, thread_id: str) -> None:
        self._thread_id = thread_id
        self._db = db
        self._cache = cache
        self._codec = codec
        self._rows: list[tuple[int, int | None, bytes]] = []
        self._lately: dict[int, dict[tuple[Any, ...], int]] = defaultdict(dict)
        """By lane, where this transaction has put the elements of writes, by their identity: a
        checkpoint that is saved together with its step's writes holds the same objects."""
        self._alive: list[Any] = []
        """Those elements: while they live, no other object has their ids."""

    def flush(self) -> None:
        """Insert the collected rows."""
        if self._rows:
            self._db.executemany(statements.NEW_ITEM, self._rows)
            for _, _, body in self._rows:
                self._db.account.add_body(ITEMS, self._cache.id, body)
            self._rows = []

    def share(self, lane: ChannelItems, data: bytes) -> Form:
        """Return the form of bytes that are likely to occur again."""
        if len(data) <= _FEW and not self._cache.seals.hides:
            return data
        return lane.id << LANE_BITS | self._place(lane, b"", data)

    def form(
        self,
        value: Any,
        lane: ChannelItems,
        home: ChannelItems,
        written: Sequence[Any] | None,
        *,
        keep: bool,
    ) -> Form:
        """Return the form of a channel's value, to `keep`, or of a pending write to the channel.

        New items go to `home`: the channel's own lane or, for writes of parallel tasks, another
        one. Those come in another order than the channel will have, which would break its ranges
        apart. `written` is what this step wrote to the channel: `NOTHING` if it did not change,
        None if that is unknown.
        """
        head, core = b"", None
        if type(value) in FIXED:
            core = self._codec.pack(value)
        elif isinstance(value, (list, dict)):
            if type(value) is dict and not (lane.recent or self._cache.marks):
                core = self._codec.pack_keyed(value)  # else its elements must be compared
            if core is None or len(core) > _WHOLE:
                return self._sequence(value, value, 0, lane, home, written, keep=keep)
        elif type(value) is _DeltaSnapshot and isinstance(value.value, (list, dict)):
            # a snapshot holds what many steps wrote
            return self._sequence(value, value.value, DELTA, lane, home, None, keep=keep)
        elif type(value) in MESSAGES:
            head, core = self._codec.split(value)
        else:
            core = self._codec.pack(value)
        if not head and len(core) <= _INLINE:
            return core
        return home.id << LANE_BITS | self._place(home, head, core)

    def _sequence(
        self,
        whole: Any,
        value: list[Any] | dict[Any, Any],
        kind: int,
        lane: ChannelItems,
        home: ChannelItems,
        written: Sequence[Any] | None,
        *,
        keep: bool,
    ) -> Form:
        if isinstance(value, dict):
            keys, values = list(value), list(value.values())
            kind |= DICT
        else:
            keys, values = None, list(value)
        known: Known | None = None
        index: dict[tuple[Any, ...], int] = {}
        lately, marks = self._lately[lane.id], self._cache.marks
        if keep and (marks or (lane.recent and not _covers(lately, keys, values))):
            known, index = self._found(lane, keys, values, written)
        if known is None and (small := self._inline(whole, values, lane)) is not None:
            return small
        done = len(known.values) if known else 0
        if self._cache.unlearned and len(values) - done > _FEW:
            learn_lately_read(self._db, self._cache, self._thread_id)
        own: list[int] = list(known.ranges) if known else []
        rest: list[int] = []
        into, new = own, own if home is lane else rest
        fresh = values[done:]
        ones = [*_identities(None if keys is None else keys[done:], fresh)]
        found = map(lately.get, ones, map(index.get, ones))
        for one, value, place in zip(ones, fresh, found, strict=True):
            if place is None or rest:
                place, into = self._element(home, keys is not None, one[-1], value), new
                if not keep and home is lane:
                    lately[one] = place
                    self._alive.append(value)
            if into and into[-2] + into[-1] == place:
                into[-1] += 1
            else:
                into += (place, 1)
        if keep:
            made = Known(keys, values, own)
            lane.remember(made if known is None else made.continuing(known), known)
        form = [kind, [lane.id, *own]] if own else [kind]
        return [*form, [home.id, *rest]] if rest else form

    def _found(
        self,
        lane: ChannelItems,
        keys: list[Any] | None,
        values: list[Any],
        written: Sequence[Any] | None,
    ) -> tuple[Known | None, dict[tuple[Any, ...], int]]:
        """Return the list that this one continues, or else the places of elements by identity."""
        known = _prefix(lane.recent, keys, values)
        index = _index(lane.recent) if known is None else {}
        tail = values[len(known.values) :] if known else values
        if known is None and written:
            held = {one[0] for one in index}
            tail = [one for one in values if id(one) not in held]
        changed = suspects(written, values, tail, keys is not None)
        if changed is ALL and set(map(type, values)) <= FIXED:
            changed = set()
        if self._cache.marks is not None:
            channel = self._cache.text(self._db, lane.id)
            self._cache.marks.check(self._codec, values, channel, changed)
        if changed is ALL or (known and changed and known.holds_any(changed)):
            known, index = None, index or _index(lane.recent)
        if known is None and changed != set():
            trusted = _trusted(index, values, changed)
            if len(trusted) < len(index):  # objects of older lists have other places now
                lane.recent = ()
                learn_lately_read(self._db, self._cache, self._thread_id)
            index = trusted
        return known, index

    def _inline(self, whole: Any, values: list[Any], lane: ChannelItems) -> bytes | None:
        if values and (lane.recent or len(values) > _FEW):
            return None
        if not MESSAGES.keys().isdisjoint(map(type, values)):
            return None
        keyed = self._codec.pack_keyed(whole) if type(whole) is dict else None
        data = keyed or self._codec.pack(whole)
        return data if not values or len(data) <= _INLINE else None

    def _element(self, lane: ChannelItems, paired: bool, key: Any, value: Any) -> int:
        if paired:
            core = self._codec.pack([key, value])
            if len(core) >= codec.WORTH and type(value) is not str:
                core = self._codec.pack([key, codec.lifted(value, self._blob)])
            return self._place(lane, b"", core)
        head, core = self._codec.split(value)
        if not head and len(core) >= codec.WORTH and type(value) is not str:
            core = self._codec.pack(codec.lifted(value, self._blob))
        return self._place(lane, head, core)

    def _blob(self, text: str) -> codec.Blob:
        """Store a long text once per thread, and return its reference."""
        cache = self._cache
        hashed = cache.texts_apart.get(text)
        if hashed is None:
            data = text_bytes(text)
            hashed = cache.seals.mark(codec.hash_of(data))
            sealed = cache.seals.seal(data, "blobs", hashed)
            row = (cache.id, codec.blob_key(hashed), len(data), sealed)
            if self._db.execute(statements.NEW_BLOB, row).rowcount:
                self._db.account.add(BLOBS, cache.id, row_hash(row[1:3], sealed))
            cache.keep_text(text, hashed)
        return codec.Blob(hashed)

    def _place(self, lane: ChannelItems, head: bytes, core: bytes) -> int:
        """Return the place of content in a lane; add a row if there is none."""
        cache = self._cache
        key = digest(core).digest()
        found = cache.exact.get(place_key(lane.id, head, key))
        if found is not None:
            return found
        place = self._first_free(lane) if lane.next is None else lane.next
        lane.next = place + 1
        rid = lane.id << LANE_BITS | place
        is_long = len(core) >= POINTER
        base = cache.exact.get(key) if is_long else None
        payload = bytes((len(head),)) + head if len(head) < 255 else b"\xff" + _long(head)
        body = cache.seals.seal(payload if base is not None else payload + core, rid, base)
        self._rows.append((rid, base, body))
        cache.learn(lane.id, head, key, place, full=is_long and base is None)
        return place

    def _first_free(self, lane: ChannelItems) -> int:
        low = lane.id << LANE_BITS
        last = self._db.execute(statements.LAST_ITEM, (low, low | PLACES)).fetchone()[0]
        return 0 if last is None else (int(last) & PLACES) + 1


def _long(head: bytes) -> bytes:
    return len(head).to_bytes(4, "little") + head


def _identities(keys: list[Any] | None, values: list[Any]) -> Iterable[tuple[Any, ...]]:
    """Yield what the elements of a list or dict are recognised by: the object, and its key."""
    ids = map(id, values)
    return zip(ids) if keys is None else zip(ids, map(type, keys), keys, strict=True)


def _covers(places: dict[tuple[Any, ...], int], keys: list[Any] | None, values: list[Any]) -> bool:
    """Return whether the places of all elements of a dict are known by identity."""
    if not places or keys is None:
        return False
    return all(map(places.__contains__, _identities(keys, values)))


def _index(recent: Iterable[Known]) -> dict[tuple[Any, ...], int]:
    """Map the objects of recent lists to their places; the lists keep the objects alive."""
    index: dict[tuple[Any, ...], int] = {}
    for known in recent:
        ones = _identities(known.keys, known.values)
        for one, place in zip(ones, known.places(), strict=True):
            index.setdefault(one, place)
    return index


def _trusted(
    index: dict[tuple[Any, ...], int], values: list[Any], changed: Suspects
) -> dict[tuple[Any, ...], int]:
    """Return the places of the objects that identity is enough to recognise."""
    if changed is ALL:
        fixed = {id(value) for value in values if type(value) in FIXED}
        return {one: place for one, place in index.items() if one[0] in fixed}
    return {one: place for one, place in index.items() if one[0] not in changed}


def _prefix(recent: Iterable[Known], keys: list[Any] | None, values: list[Any]) -> Known | None:
    """Find a recent list that the new one continues, by the identity of every element."""
    for known in recent:
        if (known.keys is None) is not (keys is None) or len(known.values) > len(values):
            continue
        if not all(map(is_, known.values, values)):
            continue
        if keys is None or known.keys is None or all(map(is_, known.keys, keys)):
            return known
    return None
