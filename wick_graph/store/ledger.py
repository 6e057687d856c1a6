"""The ledger of tool calls: their intents and results.

If a call is not safe to repeat, its intent is committed before it starts, and its result before
anyone sees it. After a crash a finished call never runs again; one that was in flight runs again
only if its tool says that this is safe.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Literal

from wick_graph.errors import StorageError
from wick_graph.store.codec import HASH_BYTES, Codec, fold, unfold
from wick_graph.store.connection import StoreConnection
from wick_graph.store.dialect import Database
from wick_graph.store.digests import CALL_ROW, CALLS, changing, row_hash
from wick_graph.store.later import schema, statements
from wick_graph.store.leases import Lease, check
from wick_graph.store.row_format import Context, Seals, bytes_text, text_bytes, too_large
from wick_graph.types import Replay


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the call."""

    again: bool
    """It began before: a run ended while it was in flight, or it stopped to wait for an answer."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Use this as the call's result: it has run already."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The call was in flight when a run died, and must not be run again."""


Verdict = Execute | Finished | OutcomeUnknown

Known = Literal["done", "unknown", "again"]
"""What a call's row says: it has a result, it must not run again, or it runs again."""


def known_of(state: str, replay: Replay) -> Known:
    """Return what happens to a call with a row in this state."""
    if state == "done":
        return "done"
    stays = state != "waiting" and (replay == "never" or state == "unknown")
    return "unknown" if stays else "again"


class Ledger:
    """The calls of one thread, written under one lease."""

    def __init__(self, core: StoreConnection, codec: Codec, lease: Lease) -> None:
        self._core = core
        self._codec = codec
        self._lease = lease
        self._written: dict[str, int] = {}
        """Hashes of the rows that this lease has written, and may write again."""
        self._asked: dict[str, bytes] = {}
        """Hashes of the running calls' arguments, which their tools may change meanwhile."""

    @property
    def _seals(self) -> Seals:
        return self._core.seals(self._lease.thread, text_bytes(self._lease.thread_id))

    def begin(self, key: str, name: str, args: Mapping[str, Any], replay: Replay) -> Verdict:
        """Look a call up; if it is to run, commit the intent to run it.

        A row with other arguments is another call: the reply was edited since.

        Raises:
            ThreadBusyError: The run lost its thread; nothing may be started.
            StorageError: The database refuses.
        """
        hashed = self._hash(name, args)
        with self._core.writing(self._lease.thread_id) as db:
            check(self._core, db, self._lease)
            row = self._row(db, key)
            if row is not None and row[0] == hashed:
                return self._known(db, key, row, replay)
            self._put(db, key, name, hashed, "intent", 1, new=row is None)
        self._asked[key] = hashed
        return Execute(again=False)

    def identify(self, key: str, name: str, args: Mapping[str, Any]) -> None:
        """Remember the arguments of a call that begins without an intent."""
        self._asked[key] = self._hash(name, args)

    def recorded(self, key: str, name: str, args: Mapping[str, Any]) -> Finished | None:
        """Look a finished call up without writing anything."""
        known = self.begun(key, name, args)
        return known if isinstance(known, Finished) else None

    def begun(self, key: str, name: str, args: Mapping[str, Any]) -> Finished | Execute | None:
        """Look up a call that may be repeated, without writing anything; None if it is unknown."""
        with self._core.reading() as db:
            row = self._row(db, key)
            if row is None or row[0] != self._hash(name, args):
                return None
            return self._result(key, row) if row[1] == "done" else Execute(again=True)

    def lookup(
        self, key: str, name: str, args: Mapping[str, Any]
    ) -> Finished | OutcomeUnknown | None:
        """Return what is known of a call that will not run; None if nothing is."""
        with self._core.reading() as db:
            row = self._row(db, key)
            if row is None or row[0] != self._hash(name, args) or row[1] == "waiting":
                return None
            return self._result(key, row) if row[1] == "done" else OutcomeUnknown()

    def alookup(
        self, key: str, name: str, args: Mapping[str, Any]
    ) -> Awaitable[Finished | OutcomeUnknown | None]:
        """Do `lookup` in the store's thread."""
        return self._core.worker.run(self.lookup, key, name, args)

    def finish(self, key: str, name: str, args: Mapping[str, Any], fields: Any) -> None:
        """Commit a call's whole result; only then may it be used.

        Raises:
            StorageError: The result cannot be stored, or the run lost its thread.
        """
        self._file(key, name, args, "done", fields)

    def abegin(
        self, key: str, name: str, args: Mapping[str, Any], replay: Replay
    ) -> Awaitable[Verdict]:
        """Do `begin` in the store's thread."""
        return self._core.worker.run(self.begin, key, name, args, replay)

    def afinish(self, key: str, name: str, args: Mapping[str, Any], fields: Any) -> Awaitable[None]:
        """Do `finish` in the store's thread."""
        return self._core.worker.run(self.finish, key, name, args, fields)

    def arecorded(self, key: str, name: str, args: Mapping[str, Any]) -> Awaitable[Finished | None]:
        """Do `recorded` in the store's thread."""
        return self._core.worker.run(self.recorded, key, name, args)

    def abegun(
        self, key: str, name: str, args: Mapping[str, Any]
    ) -> Awaitable[Finished | Execute | None]:
        """Do `begun` in the store's thread."""
        return self._core.worker.run(self.begun, key, name, args)

    def amark_waiting(self, key: str, name: str, args: Mapping[str, Any]) -> Awaitable[None]:
        """Do `mark_waiting` in the store's thread."""
        return self._core.worker.run(self.mark_waiting, key, name, args)

    def note(self, key: str, what: str, state: str, fields: Any) -> None:
        """Record a fact beside a call, and replace the fact that was recorded there.

        Raises:
            StorageError: The fact cannot be stored, or the run lost its thread.
        """
        self._file(key, what, {}, state, fields)

    def claim(self, key: str, name: str, by: str) -> bool:
        """Record who does something, unless another one was recorded; return whether `by` does it.

        Raises:
            StorageError: The claim cannot be stored, or the run lost its thread.
        """
        with self._core.writing(self._lease.thread_id) as db:
            check(self._core, db, self._lease)
            if (row := self._row(db, key)) is not None:
                return bool(self._result(key, row).fields["output"] == by)
            self._filed(db, key, name, {}, "done", self._codec.pack({"output": by}))
        return True

    def aclaim(self, key: str, name: str, by: str) -> Awaitable[bool]:
        """Do `claim` in the store's thread."""
        return self._core.worker.run(self.claim, key, name, by)

    def noted(self, key: str) -> tuple[str, Any] | None:
        """Return the state and the fields of a fact that `note` recorded; None if there is none."""
        with self._core.reading() as db:
            row = self._row(db, key)
            return None if row is None else (row[1], self._result(key, row).fields)

    def noted_as(self, state: str) -> dict[str, Any]:
        """Return the fields of all facts in a state, by key."""
        with self._core.reading() as db:
            found = db.execute(statements.CALLS_IN, (self._lease.thread, state)).fetchall()
            rows = ((bytes_text(key), row) for key, *row in found)
            return {key: self._result(key, tuple(row)).fields for key, row in rows}

    def anote(self, key: str, what: str, state: str, fields: Any) -> Awaitable[None]:
        """Do `note` in the store's thread."""
        return self._core.worker.run(self.note, key, what, state, fields)

    def anoted(self, key: str) -> Awaitable[tuple[str, Any] | None]:
        """Do `noted` in the store's thread."""
        return self._core.worker.run(self.noted, key)

    def anoted_as(self, state: str) -> Awaitable[dict[str, Any]]:
        """Do `noted_as` in the store's thread."""
        return self._core.worker.run(self.noted_as, state)

    def refusal(self, value: Any) -> str | None:
        """Return why a value cannot be stored; None if it can."""
        try:
            return too_large(self._codec.pack(value))
        except StorageError as error:
            return str(error)

    def mark_waiting(self, key: str, name: str, args: Mapping[str, Any]) -> None:
        """Mark a call as waiting for an answer; the answer may start it again."""
        with self._core.writing(self._lease.thread_id) as db:
            check(self._core, db, self._lease)
            self._put(db, key, name, self._asked_for(key, name, args), "waiting", 1)

    def _file(self, key: str, name: str, args: Mapping[str, Any], state: str, fields: Any) -> None:
        payload = _folded(self._codec.pack(fields))
        with self._core.writing(self._lease.thread_id) as db:
            check(self._core, db, self._lease)
            self._filed(db, key, name, args, state, payload)

    def _asked_for(self, key: str, name: str, args: Mapping[str, Any]) -> bytes:
        """Return the hash of a call's arguments, which is not needed after the commit."""
        self._core.when_committed(partial(self._asked.pop, key, None))
        return self._asked.get(key) or self._hash(name, args)

    def _filed(
        self, db: Database, key: str, name: str, args: Mapping[str, Any], state: str, payload: bytes
    ) -> None:
        hashed, seals = self._asked_for(key, name, args), self._seals
        place = place_of(seals, self._lease.thread, text_bytes(key), hashed)
        self._put(db, key, name, hashed, state, 1, seals.seal(payload, *place))

    def _known(self, db: Database, key: str, row: tuple[Any, ...], replay: Replay) -> Verdict:
        _, state, tries, _ = row
        known = known_of(state, replay)
        if known == "done":
            return self._result(key, row)
        if known == "unknown":
            self._state(db, key, "unknown", tries)
            return OutcomeUnknown()
        self._state(db, key, "intent", tries + 1)
        self._asked[key] = row[0]
        return Execute(again=True)

    def _row(self, db: Database, key: str) -> tuple[Any, ...] | None:
        found = db.execute(statements.CALL, (self._lease.thread, text_bytes(key))).fetchone()
        return None if found is None else tuple(found)

    def _result(self, key: str, row: tuple[Any, ...]) -> Finished:
        what = f"a recorded tool result of thread {self._lease.thread_id}"
        seals = self._seals
        place = place_of(seals, self._lease.thread, text_bytes(key), row[0])
        return Finished(self._codec.unpack(_unfolded(seals.unseal(row[3], what, *place), what)))

    def _state(self, db: Database, key: str, state: str, tries: int) -> None:
        lease, packed = self._lease, text_bytes(key)
        self._written.pop(key, None)
        self._core.when_committed(partial(self._written.pop, key, None))
        calls = schema.calls
        mine = (calls.c.thread == lease.thread, calls.c.key == packed)
        with changing(db, calls, lease.thread, *mine):
            db.execute(statements.CALL_STATE, (state, lease.epoch, tries, lease.thread, packed))

    def _put(
        self,
        db: Database,
        key: str,
        name: str,
        hashed: bytes,
        state: str,
        tries: int,
        body: bytes | None = None,
        new: bool = False,
    ) -> None:
        """Write the row of a call; its hash is remembered once it is committed."""
        lease, now = self._lease, self._core.now()
        ended = None if body is None else now
        row = (text_bytes(key), text_bytes(name), hashed, state, lease.epoch, tries, now, ended)
        before = self._written.pop(key, None)
        if before is None and not new:
            found = db.execute(CALL_ROW, (lease.thread, row[0])).fetchone()
            before = None if found is None else row_hash(found[:-1], found[-1])
        if before is not None:
            db.account.remove(CALLS, lease.thread, before)
        db.execute(statements.PUT_CALL, (lease.thread, *row, body))
        made = row_hash(row, body)
        db.account.add(CALLS, lease.thread, made)
        self._core.when_committed(partial(self._written.__setitem__, key, made))

    def _hash(self, name: str, args: Mapping[str, Any]) -> bytes:
        return _identified(self._seals, name, args)


class RecordedCalls:
    """The calls in a thread's ledger, read without a lease."""

    def __init__(self, core: StoreConnection, thread_id: str) -> None:
        self._core = core
        self._thread_id = thread_id

    def state(self, key: str) -> str | None:
        """Return the state of a row; None if there is none."""
        found = self._row(key)
        return None if found is None else found[0]

    def known(
        self, key: str, name: str, args: Mapping[str, Any], replay: Replay, *, any_args: bool
    ) -> Known | None:
        """Return what happens to a call when it is due; None for one that runs as a new one.

        Args:
            key: Its key.
            name: Its tool.
            args: Its arguments; the row of a call with others is of no account.
            replay: What the tool says of repetitions.
            any_args: Whether the row is of this call whatever its arguments: hooks change them.
        """
        found = self._row(key)
        if found is None:
            return None
        state, hashed, seals = found
        if not any_args and hashed != _identified(seals, name, args):
            return None
        return "again" if replay == "safe" and state != "done" else known_of(state, replay)

    def _row(self, key: str) -> tuple[str, bytes, Seals] | None:
        with self._core.reading(self._thread_id) as db:
            cache = self._core.thread(db, self._thread_id)
            if cache is None:
                return None
            row = db.execute(statements.CALL, (cache.id, text_bytes(key))).fetchone()
            return None if row is None else (row[1], bytes(row[0]), cache.seals)


def _identified(seals: Seals, name: str, args: Mapping[str, Any]) -> bytes:
    """Identify a call by its name and arguments."""
    text = json.dumps([name, args], sort_keys=True, ensure_ascii=True, default=str)
    return seals.mark(blake2b(text.encode(), digest_size=HASH_BYTES).digest())


_FOLDED: Final = b"\xc1"
"""The mark of a compressed result; no encoded value begins with it."""

_COMPRESSED: Final = 256
"""Size in bytes from which a result is compressed."""


def _folded(payload: bytes) -> bytes:
    """Compress a result: its message has the same text, and it is read after a crash only."""
    small = fold(payload, 1) if len(payload) > _COMPRESSED else None
    return payload if small is None else _FOLDED + small


def _unfolded(payload: bytes, what: str) -> bytes:
    """Undo `_folded`.

    Raises:
        StorageError: It is damaged.
    """
    if payload[:1] != _FOLDED:
        return payload
    try:
        return unfold(payload[1:])
    except zlib.error as error:
        raise StorageError(f"{what} is damaged ({error}); restore a backup") from error


def place_of(seals: Seals, thread: int, key: bytes, args: bytes) -> tuple[Context, ...]:
    """Return what the check of a call's result covers besides the result.

    An encrypted result is bound to its arguments: under the hash of others it cannot be read.
    """
    return ("calls", thread, key, args) if seals.hides else ("calls", thread, key)
