"""The rows of a gateway: what came in, what goes out, and facts; each belongs to a tenant.

A message is one row, found by the platform's id of it, so none is taken twice. A turn's answers and
the end of its message are one commit. A row names the process that works on it; the rows of a dead
process are anybody's. The gateway's turns repeat safely, so a wrong guess costs time only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, ParamSpec, TypeVar

from sqlalchemy import Table, bindparam, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from wick_graph.errors import StorageError
from wick_graph.store.connection import LEASE_SECONDS, StoreConnection, is_alive, owner
from wick_graph.store.row_format import bytes_text, text_bytes
from wick_graph.store.schema import facts, inbox, outbox
from wick_graph.store.statements import checked, compiled, prepared

P = ParamSpec("P")

T = TypeVar("T")

State = Literal["open", "done", "refused", "sent", "dead"]
"""Of a message that came in: `open`, `done`, `refused`. Of one that goes out: `open`, `sent`,
`dead`."""

_ALIVE: Final = "server/"
"""Facts by which processes of other machines show that they live."""

_NOBODY: Final = b""

_MOST_TAKEN: Final = 10_000
"""Rows that are taken over at once; the next look takes more."""

_LONGEST_CHAT: Final = 1_000
"""Bytes; PostgreSQL's indexes take about 2,700."""

_b = bindparam


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message that came in."""

    row: int
    key: str
    """What makes its turn repeatable: the same each time the message is handled."""
    chat: str
    state: str
    tries: int
    received: float
    message: Mapping[str, Any]
    here: bool = True
    """Whether this process answers it: else another one answers earlier messages of its chat."""
    behind: tuple[int, ...] = ()
    """The rows of earlier messages of its chat that were open when it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message that goes out."""

    row: int
    key: str
    chat: str
    state: str
    tries: int
    due: float
    created: float
    message: Mapping[str, Any]
    native: str = ""
    """The platform's id, once it is sent."""
    error: str = ""
    """Why the last try failed."""


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


_IN: Final = (
    *(inbox.c.rid, inbox.c.key, inbox.c.chat, inbox.c.state, inbox.c.tries),
    *(inbox.c.received, inbox.c.body, inbox.c.server),
)

_OUT: Final = (
    *(outbox.c.rid, outbox.c.key, outbox.c.chat, outbox.c.state, outbox.c.tries),
    *(outbox.c.due, outbox.c.created, outbox.c.body, outbox.c.server),
)


def _added(table: Table, order: Sequence[str]) -> str:
    values = checked(table, {name: _b(name) for name in order}, new=True)
    made = upsert(table).values(**values).on_conflict_do_nothing().returning(table.c.rid)
    return prepared(made, *order)


_TAKE_ORDER: Final = ("tenant", "key", "chat", "state", "server", "tries", "received", "body")

_TAKE: Final = _added(inbox, _TAKE_ORDER)

_PUT_ORDER: Final = (
    *("tenant", "key", "chat", "turn", "state", "server", "tries", "due", "created", "body"),
)

_PUT: Final = _added(outbox, _PUT_ORDER)

_OPEN_IN: Final = prepared(
    select(inbox.c.rid, inbox.c.server).where(
        inbox.c.tenant == _b("t"), inbox.c.state == _b("s"), inbox.c.chat == _b("c")
    ),
    *("t", "s", "c"),
)

_END: Final = prepared(
    update(inbox)
    .values(**checked(inbox, {"state": _b("s"), "ended": _b("n")}))
    .where(inbox.c.rid == _b("r"), inbox.c.tenant == _b("t"), inbox.c.state == _b("o")),
    *("s", "n", "r", "t", "o"),
)

_SENT: Final = prepared(
    update(outbox)
    .values(**checked(outbox, {"state": _b("s"), "ended": _b("n"), "body": _b("x")}))
    .where(outbox.c.rid == _b("r"), outbox.c.tenant == _b("t")),
    *("s", "n", "x", "r", "t"),
)

_WROTE: Final = prepared(
    select(func.count(outbox.c.rid)).where(
        outbox.c.turn == _b("u"), outbox.c.tenant == _b("t"), outbox.c.chat == _b("c")
    ),
    "u",
    "t",
    "c",
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
        """Channels through which this process sends; None for all."""
        self.takes: Collection[str] | None = None
        """Chats with messages that it may take over from dead processes; None for all."""

    @property
    def now(self) -> float:
        """The store's time, in seconds since 1970."""
        return self._core.now()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call one of these methods in the store's thread."""
        return await self._core.worker.run(work, *args, **kwargs)

    # --- the inbox

    def receive(
        self, key: str, chat: str, message: Mapping[str, Any], *, most: int | None = None
    ) -> Received | None:
        """Store a message, and return it; None if it is known.

        Args:
            key: Recognises the message when it comes again.
            chat: The key of its session; a session's messages are answered in order.
            message: The message as data.
            most: Messages of the session that may wait; one more is stored as `refused`.
        """
        with self._writing() as db:
            found = db.execute(_OPEN_IN, (self._core.tenant, "open", _chat(chat))).fetchall()
            servers = {bytes(server) for _, server in found}
            # who answers the earlier ones answers this one, too
            others = (server for server in servers if self._is_at_work(db, server))
            mine = next(others, self._server)
            state = "open" if most is None or len(found) < most else "refused"
            now, body = self.now, self._close(message, key, "inbox")
            row = (*self._place(key, chat), state, mine, 0, now, body)
            made = db.execute(_TAKE, row).fetchone()
        if made is None:
            return None
        return Received(
            row=made[0],
            key=key,
            chat=chat,
            state=state,
            tries=0,
            received=now,
            message=message,
            here=mine == self._server,
            behind=tuple(row for row, _ in found),
        )

    def waiting(self) -> list[Received]:
        """Return the open messages that this process is to answer, the oldest first.

        Those of dead processes are this one's from now on.
        """
        query = self._of(inbox, *_IN).where(inbox.c.state == "open").order_by(inbox.c.rid)
        return [self._received(row) for row in self._claimed(inbox, query)]

    def settle(
        self,
        rows: Iterable[int],
        answers: Sequence[Draft] = (),
        *,
        turn: str = "",
        unless: str = "",
        state: State = "done",
        drops: Sequence[str] = (),
    ) -> list[Outgoing]:
        """End messages, and put their answers into the outbox, in one commit.

        Args:
            rows: The messages.
            answers: What is sent; none of it if another process has ended the messages.
            turn: The run that answered them.
            unless: A chat; if a tool of the run has written to it, nothing is sent.
            state: `done` or `refused`.
            drops: Facts that end with the messages.
        """
        tenant = self._core.tenant
        with self._writing() as db:
            now, ended = self.now, 0
            for row in rows:
                ended += db.execute(_END, (state, now, row, tenant, "open")).rowcount
            if not ended:
                return []
            for key in drops:
                db.execute(*compiled(delete(facts).where(*self._named(key))))
            chat = _chat(unless)
            if unless and db.execute(_WROTE, (text_bytes(turn), tenant, chat)).fetchone()[0]:
                return []
            return [made for one in answers if (made := self._put(db, one, None)) is not None]

    # --- the outbox

    def queue(self, draft: Draft, *, turn: str = "") -> Outgoing | None:
        """Put a message into the outbox, and return it; None if its key is there."""
        with self._writing() as db:
            return self._put(db, draft, text_bytes(turn) or None)

    def unsent(self) -> list[Outgoing]:
        """Return the open messages that this process is to send, the oldest first.

        Those of dead processes are this one's from now on.
        """
        query = self._of(outbox, *_OUT).where(outbox.c.state == "open").order_by(outbox.c.rid)
        return [self._outgoing(row) for row in self._claimed(outbox, query)]

    def sent(self, one: Outgoing, native: str = "") -> None:
        """Note that a message was sent, and the platform's id of it."""
        body = self._close({"message": one.message, "native": native}, one.key, "outbox")
        with self._writing() as db:
            db.execute(_SENT, ("sent", self.now, body, one.row, self._core.tenant))

    def failed(self, one: Outgoing, error: str, due: float | None) -> None:
        """Note that a message was not sent, and when to try again; None for never."""
        body = self._close({"message": one.message, "error": error}, one.key, "outbox")
        tries = {"tries": one.tries + 1, "body": body}
        more = {"state": "dead", "ended": self.now} if due is None else {"due": due}
        with self._writing() as db:
            made = update(outbox).values(**checked(outbox, {**tries, **more}))
            db.execute(*compiled(made.where(*self._is(outbox, one.row))))

    def resend(self, row: int) -> bool:
        """Let a dead message be sent again; False if there is no such message."""
        values = {"state": "open", "tries": 0, "due": self.now, "server": self._server}
        made = update(outbox).values(**checked(outbox, values))
        made = made.where(*self._is(outbox, row), outbox.c.state == "dead")
        with self._writing() as db:
            return bool(db.execute(*compiled(made)).rowcount)

    # --- listings

    def inbox(self, state: State | None = None, limit: int = 100) -> list[Received]:
        """Return the messages that came last, the newest first."""
        return [self._received(row) for row in self._latest(inbox, _IN, state, limit)]

    def outbox(self, state: State | None = None, limit: int = 100) -> list[Outgoing]:
        """Return the messages that were put last, the newest first."""
        return [self._outgoing(row) for row in self._latest(outbox, _OUT, state, limit)]

    def answers(self, chat: str, after: int = 0, limit: int = 100) -> list[Outgoing]:
        """Return the messages to a chat after a row, the oldest first, whatever their state."""
        query = self._of(outbox, *_OUT).where(outbox.c.chat == _chat(chat))
        query = query.where(outbox.c.rid > after).order_by(outbox.c.rid).limit(limit)
        with self._core.reading() as db:
            return [self._outgoing(row) for row in db.execute(*compiled(query)).fetchall()]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many messages there are, by box and state."""
        made: dict[str, dict[str, int]] = {}
        with self._core.reading() as db:
            for table in (inbox, outbox):
                query = self._of(table, table.c.state, func.count()).group_by(table.c.state)
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
        with self._core.reading() as db:
            return self._fact(db, key)

    def put_fact(self, key: str, data: Any) -> None:
        """Store a fact in place of the earlier one."""
        with self._writing() as db:
            self._put_fact(db, key, data)

    def add_fact(self, key: str, data: Any) -> bool:
        """Store a fact unless there is one; return whether it was stored."""
        values = self._values(key, data)
        made = upsert(facts).values(**checked(facts, values, new=True)).on_conflict_do_nothing()
        with self._writing() as db:
            return bool(db.execute(*compiled(made)).rowcount)

    def change_fact(self, key: str, change: Callable[[Any], Any]) -> Any:
        """Store what a function makes of a fact, and return it; None deletes it.

        No other process changes the fact between reading and writing.
        """
        if self._core.dialect.locks:
            self.add_fact(key, None)
        with self._writing() as db:
            if self._core.dialect.locks:  # a write locks the row until the commit
                touch = update(facts).values(**checked(facts, {"changed": self.now}))
                db.execute(*compiled(touch.where(*self._named(key))))
            made = change(self._fact(db, key))
            if made is None:
                db.execute(*compiled(delete(facts).where(*self._named(key))))
            else:
                self._put_fact(db, key, made)
            return made

    def facts(self, prefix: str) -> dict[str, Any]:
        """Return the facts with keys that begin with a text."""
        low = text_bytes(prefix)
        query = self._of(facts, facts.c.key, facts.c.body)
        query = query.where(facts.c.key >= low, facts.c.key < low + b"\xff").order_by(facts.c.key)
        with self._core.reading() as db:
            found = db.execute(*compiled(query)).fetchall()
        made = {bytes_text(key): self._open(body, bytes_text(key), "facts") for key, body in found}
        return {key: data for key, data in made.items() if data is not None}

    def drop_fact(self, key: str) -> bool:
        """Delete a fact; return whether there was one."""
        with self._writing() as db:
            return bool(db.execute(*compiled(delete(facts).where(*self._named(key)))).rowcount)

    # --- processes

    def note_alive(self, about: Mapping[str, Any] | None = None) -> None:
        """Show processes of other machines that this one lives; call it every ten seconds."""
        self.put_fact(_ALIVE + self.server, {**(about or {}), "at": self.now})

    def alive(self) -> dict[str, Mapping[str, Any]]:
        """Return what the processes that live have said of themselves, by name."""
        found = self.facts(_ALIVE)
        with self._core.reading() as db:
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
                mine = (table.c.tenant == self._core.tenant, table.c.server == self._server)
                made = update(table).values(**checked(table, {"server": _NOBODY}))
                db.execute(*compiled(made.where(*mine, table.c.state == "open")))
            db.execute(*compiled(delete(facts).where(*self._named(_ALIVE + self.server))))

    # --- Inside a transaction.

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._core.writing() as db:
            self._core.must_fit(db)
            yield db

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

    def _claimed(self, table: Table, query: Any) -> list[Any]:
        """Return the rows of this process; take those of dead ones."""
        with self._core.reading() as db:
            found = db.execute(*compiled(query)).fetchall()
            others = {bytes(row[-1]) for row in found} - {self._server}
            gone = [server for server in others if not self._is_at_work(db, server)]
        free = [row[0] for row in found if bytes(row[-1]) in gone and self._may_take(table, row)]
        if free:
            mine = (table.c.tenant == self._core.tenant, table.c.state == "open")
            made = update(table).values(**checked(table, {"server": self._server}))
            made = made.where(*mine, table.c.server.in_(gone))
            with self._writing() as db:
                db.execute(*compiled(made.where(table.c.rid.in_(free[:_MOST_TAKEN]))))
                found = db.execute(*compiled(query)).fetchall()
        return [row for row in found if bytes(row[-1]) == self._server]

    def _may_take(self, table: Table, row: Sequence[Any]) -> bool:
        chat = bytes_text(row[2])
        if table is inbox:
            return self.takes is None or chat in self.takes
        return self._sends(chat)

    def _sends(self, chat: str) -> bool:
        return self.sends is None or chat.partition(":")[0] in self.sends

    def _put(self, db: Any, draft: Draft, turn: bytes | None) -> Outgoing | None:
        now, body = self.now, self._close({"message": draft.message}, draft.key, "outbox")
        server = self._server if self._sends(draft.chat) else _NOBODY
        row = (*self._place(draft.key, draft.chat), turn, "open", server, 0, now, now, body)
        made = db.execute(_PUT, row).fetchone()
        if made is None:
            return None
        return Outgoing(
            row=made[0],
            key=draft.key,
            chat=draft.chat,
            state="open",
            tries=0,
            due=now,
            created=now,
            message=draft.message,
        )

    def _place(self, key: str, chat: str) -> tuple[bytes, bytes, bytes]:
        return self._core.tenant, text_bytes(key), _chat(chat)

    def _of(self, table: Table, *columns: Any) -> Any:
        return select(*columns).where(table.c.tenant == self._core.tenant)

    def _is(self, table: Table, row: int) -> tuple[Any, ...]:
        return table.c.rid == row, table.c.tenant == self._core.tenant

    def _latest(
        self, table: Table, columns: Collection[Any], state: State | None, limit: int
    ) -> list[Any]:
        query = self._of(table, *columns).order_by(table.c.rid.desc()).limit(limit)
        if state is not None:
            query = query.where(table.c.state == state)
        with self._core.reading() as db:
            return db.execute(*compiled(query)).fetchall()

    def _named(self, key: str) -> tuple[Any, ...]:
        return facts.c.tenant == self._core.tenant, facts.c.key == text_bytes(key)

    def _fact(self, db: Any, key: str) -> Any:
        query = select(facts.c.body).where(*self._named(key))
        found = db.execute(*compiled(query)).fetchone()
        return None if found is None else self._open(found[0], key, "facts")

    def _values(self, key: str, data: Any) -> dict[str, Any]:
        body = self._close(data, key, "facts")
        return {
            "tenant": self._core.tenant,
            "key": text_bytes(key),
            "changed": self.now,
            "body": body,
        }

    def _put_fact(self, db: Any, key: str, data: Any) -> None:
        made = upsert(facts).values(**checked(facts, self._values(key, data), new=True))
        new = {name: made.excluded[name] for name in ("changed", "body", "checksum")}
        made = made.on_conflict_do_update(index_elements=["tenant", "key"], set_=new)
        db.execute(*compiled(made))

    def _close(self, data: Any, key: str, table: str) -> bytes:
        text = json.dumps(data, separators=(",", ":"))
        closed = self._core.close_text(text, text_bytes(key), table)
        assert closed is not None
        return closed

    def _open(self, body: bytes, key: str, table: str) -> Any:
        text = self._core.open_text(bytes(body), text_bytes(key), table)
        try:
            return json.loads(text or "")
        except ValueError:
            raise StorageError(
                f"a row of {table} cannot be read; restore a backup, or delete the row"
            ) from None

    def _received(self, row: Sequence[Any]) -> Received:
        number, key, chat, state, tries, received, body, _ = row
        name = bytes_text(key)
        return Received(
            row=number,
            key=name,
            chat=bytes_text(chat),
            state=state,
            tries=tries,
            received=received,
            message=self._open(body, name, "inbox"),
        )

    def _outgoing(self, row: Sequence[Any]) -> Outgoing:
        number, key, chat, state, tries, due, created, body, _ = row
        name = bytes_text(key)
        return Outgoing(
            row=number,
            key=name,
            chat=bytes_text(chat),
            state=state,
            tries=tries,
            due=due,
            created=created,
            **self._open(body, name, "outbox"),
        )
