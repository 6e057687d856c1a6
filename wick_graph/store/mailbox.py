"""The rows of a gateway: what came in, what goes out, and facts; each belongs to a tenant.

A message is one row, found by the platform's id of it, so none is taken twice. A turn's answers and
the end of its message are one commit. A row names the process that works on it; the rows of a dead
process are anybody's. The gateway's turns repeat safely, so a wrong guess costs time only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, ParamSpec, TypeVar

from sqlalchemy import Table, bindparam, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from wick_graph.constants import LEASE_SECONDS
from wick_graph.errors import StorageError
from wick_graph.store.connection import StoreConnection, is_alive, owner
from wick_graph.store.row_format import bytes_text, text_bytes
from wick_graph.store.schema import facts, inbox, outbox
from wick_graph.store.statements import checked
from wick_graph.store.texts import Prepared, compiled

P = ParamSpec("P")

T = TypeVar("T")

State = Literal["open", "done", "refused", "sent", "dead"]
"""Of a message that came in: `open`, `done`, `refused`. Of one that goes out: `open`, `sent`,
`dead`."""

Change = Callable[[Any], Any]
"""Makes a fact of the one before, which is None if there is none; None deletes it."""

_ALIVE: Final = "server/"
"""Facts by which processes of other machines show that they live."""

_NOBODY: Final = b""

_MOST_TAKEN: Final = 10_000
"""Rows that are taken over at once; the next look takes more."""

_LONGEST_CHAT: Final = 1_000
"""Bytes; PostgreSQL's indexes take about 2,700."""

_b = bindparam


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A message of the inbox or the outbox."""

    row: int
    key: str
    """What makes it one row however often it comes or is put, and its turn repeatable."""
    chat: str
    state: str
    at: float
    """When it came, or was put."""
    message: Mapping[str, Any]
    here: bool = True
    """Whether this process answers it: else another one answers earlier messages of its chat."""
    behind: tuple[int, ...] = ()
    """The rows of earlier messages of its chat that were open when it came."""
    tries: int = 0
    due: float = 0.0
    """When to send it."""
    native: str = ""
    """The platform's id, once it is sent."""
    error: str = ""
    """Why the last try to send it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to put into the outbox; the key makes it one row however often it is put."""

    key: str
    chat: str
    message: Mapping[str, Any]


def hashed(*parts: str) -> str:
    """Return a key of texts of any length and content."""
    text = "\n".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _chat(name: str) -> bytes:
    """Return the name of a chat as its rows have it; an index takes no long one."""
    plain = text_bytes(name)
    if len(plain) <= _LONGEST_CHAT:
        return plain
    return text_bytes(f"{name.partition(':')[0][:64]}:#{hashed(name)}")


def _ordered(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the order of a table's columns, as statements take them."""
    return {column.name: values[column.name] for column in table.c if column.name in values}


@cache
def _insert(table: Table, *names: str) -> Prepared:
    """Return the text that adds a row with these columns, unless its key is there."""
    values = checked(table, {name: _b(name) for name in names}, new=True)
    made = upsert(table).values(**values).on_conflict_do_nothing().returning(table.c.rid)
    return Prepared(lambda: made, *names)


@cache
def _update(table: Table, *names: str) -> Prepared:
    """Return the text that changes these columns of a row in a state."""
    new: dict[str, Any] = {name: _b(f"new_{name}") for name in names}
    made = (
        update(table)
        .values(**checked(table, new))
        .where(table.c.rid == _b("row"), table.c.tenant == _b("tenant"), table.c.state == _b("was"))
    )
    return Prepared(lambda: made, *(one.key for one in new.values()), "row", "tenant", "was")


def _about(statement: Any, table: Table, *names: str) -> Prepared:
    """Return the text of a statement about the rows with given values of these columns."""
    return Prepared(lambda: statement.where(*(table.c[name] == _b(name) for name in names)), *names)


_OPEN_IN: Final = _about(select(inbox.c.rid, inbox.c.server), inbox, "tenant", "state", "chat")

_WROTE: Final = _about(select(func.count(outbox.c.rid)), outbox, "turn", "tenant", "chat")

_FACT: Final = _about(select(facts.c.body), facts, "tenant", "key")

_DROP: Final = _about(delete(facts), facts, "tenant", "key")

_FACT_ROW: Final = ("tenant", "key", "changed", "body")

_CHANGED: Final = ("changed", "body", "checksum")


@cache
def _put_sql(*columns: str) -> Prepared:
    """Return what adds a fact, or changes these columns of the one that is there."""
    values: dict[str, Any] = {name: _b(name) for name in _FACT_ROW}
    made = upsert(facts).values(**checked(facts, values, new=True))
    new = {name: made.excluded[name] for name in columns}
    return Prepared(
        lambda: made.on_conflict_do_update(index_elements=["tenant", "key"], set_=new), *_FACT_ROW
    )


class Mailbox:
    """The inbox, the outbox and the facts of a tenant's gateway.

    `run` calls any of the methods in the store's thread.
    """

    def __init__(self, core: StoreConnection) -> None:
        self._core = core
        self.server: Final = f"{bytes_text(owner())}#{id(self):x}"
        """The name of this process and gateway; no other has it."""
        self.sends: Collection[str] | None = None
        """Channels, and single chats, to which this process sends; None for all."""
        self.takes: Callable[[Row], bool] = lambda one: True
        """Whether it may take over a message that came in from a dead process."""

    @property
    def now(self) -> float:
        """The store's time, in seconds since 1970."""
        return self._core.now()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call one of these methods in the store's thread."""
        return await self._core.worker.run(work, *args, **kwargs)

    # --- the inbox

    def receive(
        self,
        key: str,
        chat: str,
        message: Mapping[str, Any],
        *,
        most: int | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> Row | None:
        """Store a message, and return it; None if it is known.

        Args:
            key: Recognises the message when it comes again.
            chat: The key of its session; a session's messages are answered in order.
            message: The message as data.
            most: Messages of the session that may wait; one more is stored as `refused`.
            notes: Facts to store with it, unless it is known or refused.
        """
        with self._writing() as db:
            found = db.execute(_OPEN_IN, (self._core.tenant, "open", _chat(chat))).fetchall()
            servers = {bytes(server) for _, server in found}
            # who answers the earlier ones answers this one, too
            others = (server for server in servers if self._is_at_work(db, server))
            mine = next(others, self._server)
            state = "open" if most is None or len(found) < most else "refused"
            now, body = self.now, self._close(message, key, inbox)
            about = {"state": state, "server": mine, "received": now}
            row = self._add(db, inbox, key, chat, body, **about)
            for name, data in (notes or {}).items() if row and state == "open" else ():
                if self._fact(db, name) != data:
                    self._put_fact(db, name, data, *_CHANGED)
        return row and Row(
            row=row,
            key=key,
            chat=chat,
            state=state,
            at=now,
            message=message,
            here=mine == self._server,
            behind=tuple(row for row, _ in found),
        )

    def waiting(self, known: Container[int] = ()) -> list[Row]:
        """Return the open messages that this process is to answer, the oldest first.

        Those of dead processes are this one's from now on. Known rows are left out.
        """
        return self._claimed(inbox, known)

    def release(self, rows: Collection[int]) -> None:
        """Leave messages to another process."""
        with self._writing() as db:
            self._give(db, inbox, _NOBODY, inbox.c.server == self._server, inbox.c.rid.in_(rows))

    def settle(
        self,
        rows: Iterable[int],
        answers: Sequence[Draft] = (),
        *,
        turn: str = "",
        unless: str = "",
        state: State = "done",
        drops: Sequence[str] = (),
        changes: Mapping[str, Change] = MappingProxyType({}),
    ) -> list[Row]:
        """End messages, and put their answers into the outbox, in one commit.

        Args:
            rows: The messages.
            answers: What is sent; none of it if another process has ended the messages.
            turn: The run that answered them.
            unless: A chat; if a tool of the run has written to it, nothing is sent.
            state: `done` or `refused`.
            drops: Facts that end with the messages.
            changes: Makes other facts new, as in `change_fact`.
        """
        with self._writing() as db:
            end = {"state": state, "ended": self.now}
            if not sum([self._change(db, inbox, row, "open", **end) for row in rows]):
                return []
            for key in drops:
                self._drop(db, key)
            for key in sorted(changes):
                self._change_fact(db, key, changes[key])
            wrote = (text_bytes(turn), self._core.tenant, _chat(unless))
            if unless and db.execute(_WROTE, wrote).fetchone()[0]:
                return []
            return [made for one in answers if (made := self._put(db, one, None)) is not None]

    # --- the outbox

    def queue(self, draft: Draft, *, turn: str = "") -> Row | None:
        """Put a message into the outbox, and return it; None if its key is there."""
        with self._writing() as db:
            return self._put(db, draft, text_bytes(turn) or None)

    def unsent(self, known: Container[int] = ()) -> list[Row]:
        """Return the open messages that this process is to send, as `waiting` does."""
        return self._claimed(outbox, known)

    def sent(self, one: Row, native: str = "") -> None:
        """Note that a message was sent, and the platform's id of it."""
        self._note(one, {"native": native}, state="sent", ended=self.now)

    def failed(self, one: Row, error: str, due: float | None) -> None:
        """Note that a message was not sent, and when to try again; None for never."""
        more = {"state": "dead", "ended": self.now} if due is None else {"due": due}
        self._note(one, {"error": error}, tries=one.tries + 1, **more)

    def resend(self, row: int) -> bool:
        """Let a dead message be sent again; False if there is no such message."""
        again = {"state": "open", "tries": 0, "due": self.now, "server": self._server}
        with self._writing() as db:
            return self._change(db, outbox, row, "dead", **again)

    def may_send(self, chat: str) -> bool:
        """Return whether this process sends to a chat."""
        return self.sends is None or not {chat, chat.partition(":")[0]}.isdisjoint(self.sends)

    # --- listings

    def inbox(self, state: State | None = None, limit: int = 100) -> list[Row]:
        """Return the messages that came last, the newest first."""
        return self._latest(inbox, state, limit)

    def outbox(self, state: State | None = None, limit: int = 100) -> list[Row]:
        """Return the messages that were put last, the newest first."""
        return self._latest(outbox, state, limit)

    def answers(self, chat: str, after: int = 0, limit: int = 100) -> list[Row]:
        """Return the messages to a chat after a row, the oldest first, whatever their state."""
        query = self._rows(outbox, outbox.c.chat == _chat(chat), outbox.c.rid > after)
        return self._read(outbox, query.order_by(outbox.c.rid).limit(limit))

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many messages there are, by box and state."""
        made: dict[str, dict[str, int]] = {}
        with self._reading() as db:
            for table in (inbox, outbox):
                query = select(table.c.state, func.count()).group_by(table.c.state)
                query = query.where(table.c.tenant == self._core.tenant)
                made[table.name] = dict(db.execute(*compiled(query)).fetchall())
        return made

    def sweep(self, older: float) -> int:
        """Delete what ended before a time, but no dead letters; return how many rows."""
        count = 0
        with self._writing() as db:
            for table, at in ((inbox, inbox.c.received), (outbox, outbox.c.created)):
                gone = delete(table).where(table.c.tenant == self._core.tenant)
                gone = gone.where(func.coalesce(table.c.ended, at) < older)
                gone = gone.where(table.c.state.not_in(["open", "dead"]))
                count += db.execute(*compiled(gone)).rowcount
        return count

    # --- facts

    def fact(self, key: str) -> Any:
        """Return a fact; None if there is none."""
        with self._reading() as db:
            return self._fact(db, key)

    def put_fact(self, key: str, data: Any) -> None:
        """Store a fact in place of the earlier one."""
        self.change_fact(key, lambda _: data)

    def change_fact(self, key: str, change: Change) -> Any:
        """Store what a function makes of a fact, and return it; None deletes it.

        No other process changes the fact between reading and writing.
        """
        with self._writing() as db:
            return self._change_fact(db, key, change)

    def facts(self, prefix: str) -> dict[str, Any]:
        """Return the facts with keys that begin with a text."""
        low = text_bytes(prefix)
        query = select(facts.c.key, facts.c.body).where(
            *(facts.c.tenant == self._core.tenant, facts.c.key >= low, facts.c.key < low + b"\xff")
        )
        with self._reading() as db:
            found = db.execute(*compiled(query.order_by(facts.c.key))).fetchall()
        made = {bytes_text(key): self._open(body, bytes_text(key), facts) for key, body in found}
        return {key: data for key, data in made.items() if data is not None}

    def drop_fact(self, key: str) -> bool:
        """Delete a fact; return whether there was one."""
        with self._writing() as db:
            return self._drop(db, key)

    # --- processes

    def note_alive(self, about: Mapping[str, Any] | None = None) -> None:
        """Show processes of other machines that this one lives; call it every ten seconds."""
        self.put_fact(_ALIVE + self.server, {**(about or {}), "at": self.now})

    def alive(self) -> dict[str, Mapping[str, Any]]:
        """Return what the processes that live have said of themselves, by name."""
        found = self.facts(_ALIVE)
        with self._reading() as db:
            return {
                name: about
                for key, about in found.items()
                if (name := key.removeprefix(_ALIVE)) == self.server
                or self._is_at_work(db, text_bytes(name))
            }

    def leave(self) -> None:
        """Release what this process has not ended, so that any other may take it."""
        with self._writing() as db:
            for table in (inbox, outbox):
                self._give(db, table, _NOBODY, table.c.server == self._server)
            self._drop(db, _ALIVE + self.server)

    # --- Inside a transaction.

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._core.writing() as db:
            self._core.must_fit(db)
            yield db

    def _change_fact(self, db: Any, key: str, change: Change) -> Any:
        if self._core.dialect.locks:  # a write locks the row until the commit
            self._put_fact(db, key, None, "changed")
        made = change(self._fact(db, key))
        if made is None:
            self._drop(db, key)
        else:
            self._put_fact(db, key, made, *_CHANGED)
        return made

    def _reading(self) -> AbstractContextManager[Any]:
        """Read without committing what threads defer: these rows belong to none."""
        return self._core.reading("")

    @property
    def _server(self) -> bytes:
        return text_bytes(self.server)

    def _is_at_work(self, db: Any, server: bytes) -> bool:
        """Return whether another process is alive, as far as this one can know."""
        if server in (_NOBODY, self._server):
            return False
        known = self._fact(db, _ALIVE + bytes_text(server))
        recent = known is not None and 0 <= self.now - known["at"] < LEASE_SECONDS
        return is_alive(server.rpartition(b"#")[0], elsewhere=recent)

    def _claimed(self, table: Table, known: Container[int]) -> list[Row]:
        """Return the open rows of this process; take those of dead ones."""
        query = self._rows(table, table.c.state == "open").order_by(table.c.rid)
        with self._reading() as db:
            found = db.execute(*compiled(query)).fetchall()
            others = {bytes(row[-1]) for row in found} - {self._server}
            gone = [server for server in others if not self._is_at_work(db, server)]
        lost = (row for row in found if bytes(row[-1]) in gone)
        free = [row[0] for row in lost if self._may_take(table, row)]
        if free:
            where = (table.c.server.in_(gone), table.c.rid.in_(free[:_MOST_TAKEN]))
            with self._writing() as db:
                self._give(db, table, self._server, *where)
                found = db.execute(*compiled(query)).fetchall()
        mine = (row for row in found if bytes(row[-1]) == self._server)
        return [self._row(table, row) for row in mine if row[0] not in known]

    def _give(self, db: Any, table: Table, server: bytes, *where: Any) -> None:
        """Let a process have the open rows for which conditions hold."""
        made = update(table).values(**checked(table, {"server": server}))
        made = made.where(table.c.tenant == self._core.tenant, table.c.state == "open", *where)
        db.execute(*compiled(made))

    def _may_take(self, table: Table, row: Sequence[Any]) -> bool:
        if table is inbox:
            return self.takes(self._row(table, row))
        return self.may_send(bytes_text(row[2]))

    def _put(self, db: Any, draft: Draft, turn: bytes | None) -> Row | None:
        now, key, chat = self.now, draft.key, draft.chat
        body = self._close({"message": draft.message}, key, outbox)
        server = self._server if self.may_send(chat) else _NOBODY
        about = {"turn": turn, "state": "open", "server": server, "due": now, "created": now}
        row = self._add(db, outbox, key, chat, body, **about)
        return row and Row(
            row=row, key=key, chat=chat, state="open", at=now, due=now, message=draft.message
        )

    def _add(self, db: Any, table: Table, key: str, chat: str, body: bytes, **values: Any) -> Any:
        """Add a row, and return its number; None if its key is there."""
        place = {"tenant": self._core.tenant, "key": text_bytes(key), "chat": _chat(chat)}
        row = _ordered(table, {**place, "tries": 0, **values, "body": body})
        made = db.execute(_insert(table, *row), (*row.values(),)).fetchone()
        return made and made[0]

    def _change(self, db: Any, table: Table, row: int, was: State, **values: Any) -> bool:
        """Change a row if it is in a state; return whether it was."""
        new = _ordered(table, values)
        given = (*new.values(), row, self._core.tenant, was)
        return bool(db.execute(_update(table, *new), given).rowcount)

    def _note(self, one: Row, about: Mapping[str, str], **values: Any) -> None:
        """Note what became of a try to send a message."""
        body = self._close({"message": one.message, **about}, one.key, outbox)
        with self._writing() as db:
            self._change(db, outbox, one.row, "open", **values, body=body)

    def _rows(self, table: Table, *where: Any) -> Any:
        c, out = table.c, table is outbox
        times = (c.created, c.due) if out else (c.received, c.received)
        columns = (c.rid, c.key, c.chat, c.state, c.tries, *times, c.body, c.server)
        return select(*columns).where(c.tenant == self._core.tenant, *where)

    def _read(self, table: Table, query: Any) -> list[Row]:
        with self._reading() as db:
            return [self._row(table, one) for one in db.execute(*compiled(query)).fetchall()]

    def _row(self, table: Table, found: Sequence[Any]) -> Row:
        number, key, chat, state, tries, at, due, body, _ = found
        name = bytes_text(key)
        data = self._open(body, name, table)
        return Row(
            row=number,
            key=name,
            chat=bytes_text(chat),
            state=state,
            tries=tries,
            at=at,
            due=due,
            **(data if table is outbox else {"message": data}),
        )

    def _latest(self, table: Table, state: State | None, limit: int) -> list[Row]:
        query = self._rows(table, *([] if state is None else [table.c.state == state]))
        return self._read(table, query.order_by(table.c.rid.desc()).limit(limit))

    def _fact(self, db: Any, key: str) -> Any:
        found = db.execute(_FACT, (self._core.tenant, text_bytes(key))).fetchone()
        return None if found is None else self._open(found[0], key, facts)

    def _drop(self, db: Any, key: str) -> bool:
        return bool(db.execute(_DROP, (self._core.tenant, text_bytes(key))).rowcount)

    def _put_fact(self, db: Any, key: str, data: Any, *columns: str) -> None:
        """Add a fact; if there is one, change these columns of it."""
        row = (self._core.tenant, text_bytes(key), self.now, self._close(data, key, facts))
        db.execute(_put_sql(*columns), row)

    def _close(self, data: Any, key: str, table: Table) -> bytes:
        text = json.dumps(data, separators=(",", ":"))
        closed = self._core.close_text(text, text_bytes(key), table.name)
        assert closed is not None
        return closed

    def _open(self, body: bytes, key: str, table: Table) -> Any:
        text = self._core.open_text(bytes(body), text_bytes(key), table.name)
        try:
            return json.loads(text or "")
        except ValueError:
            raise StorageError(
                f"a row of {table.name} cannot be read; restore a backup, or delete the row"
            ) from None
