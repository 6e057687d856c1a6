"""The tables, in one description for SQLite and PostgreSQL.

Text that a user may have written is in binary columns only: no database refuses or changes a NUL
or a lone surrogate there. Ids are 16 bytes, threads are integers, times are seconds since 1970. An
item's key is its lane (a row of `names`) times 2**32 plus its place in the lane. So a range of a
list is a range of keys, and needs no second index.

In SQLite files a `checksum` covers all other columns of its row; PostgreSQL checks its own pages.
Columns that a later schema added come last, where `ALTER TABLE` puts them.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
)

metadata: Final = MetaData()

_Key = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", _Key, primary_key=True)


def _rid() -> Column[int]:
    return Column("rid", _Key, primary_key=True)


def _thread() -> Column[int]:
    return Column("thread", _Key, nullable=False)


threads: Final = Table(
    "threads",
    metadata,
    _id(),
    Column("tenant", LargeBinary, nullable=False),
    Column("thread", LargeBinary, nullable=False),
    Column("agent", LargeBinary),
    Column("status", Text, nullable=False),
    Column("title", LargeBinary),
    Column("parent", LargeBinary),
    Column("pinned", SmallInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("last_access", Float, nullable=False),
    Column("ttl", Float),
    Column("expires_at", Float),
    Column("generation", BigInteger, nullable=False),
    Column("run", LargeBinary),
    Column("stopped_because", Text),
    Column("last_error", LargeBinary),
    Column("checksum", BigInteger),
    UniqueConstraint("tenant", "thread"),
    Index("threads_expiry", "tenant", "expires_at"),
    Index("threads_recent", "tenant", "last_access", "id"),
    sqlite_autoincrement=True,
)
"""`generation` grows when rows of a thread are removed; a cache of items is for one generation.
A list of threads walks `threads_recent`. Indexes with the agent and the status would spare a
filtered list the threads between, but each turn would write another 13 kB of log."""

names: Final = Table(
    "names",
    metadata,
    _id(),
    _thread(),
    Column("scope", _Key, nullable=False),
    Column("text", LargeBinary, nullable=False),
    UniqueConstraint("thread", "scope", "text"),
    sqlite_autoincrement=True,
)
"""In scope 0 a checkpoint namespace; otherwise a channel or node of the namespace `scope`."""

checkpoints: Final = Table(
    "checkpoints",
    metadata,
    _rid(),
    _thread(),
    Column("ns", _Key, nullable=False),
    Column("id", LargeBinary, nullable=False),
    Column("parent", LargeBinary),
    Column("source", Text),
    Column("step", BigInteger),
    Column("run", LargeBinary),
    Column("hidden", SmallInteger, nullable=False),
    Column("meta", LargeBinary),
    Column("body", LargeBinary, nullable=False),
    Column("seq", BigInteger),
    UniqueConstraint("thread", "ns", "id"),
)
"""`seq` counts a thread's checkpoints over all namespaces, in the order in which they were stored.
The highest number in a namespace is its head. Ids and times order nothing."""

Index("checkpoints_seq", checkpoints.c.thread, checkpoints.c.seq, unique=True)

Index("checkpoints_head", checkpoints.c.thread, checkpoints.c.ns, checkpoints.c.seq, unique=True)

Index(
    "checkpoints_hidden",
    checkpoints.c.thread,
    sqlite_where=checkpoints.c.hidden == literal_column("1"),  # and PostgreSQL's, by `postgres`
)
"""`hidden` rows are not listed; delta channels of later checkpoints are rebuilt from them."""

writes: Final = Table(
    "writes",
    metadata,
    _rid(),
    _thread(),
    Column("ns", _Key, nullable=False),
    Column("checkpoint", LargeBinary, nullable=False),
    Column("task", LargeBinary, nullable=False),
    Column("path", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("thread", "ns", "checkpoint", "task"),
)

items: Final = Table(
    "items",
    metadata,
    Column("rid", _Key, primary_key=True, autoincrement=False),
    Column("base", _Key),
    Column("body", LargeBinary, nullable=False),
)
"""With `base`, the row has the content of the row `base` under another message id."""

calls: Final = Table(
    "calls",
    metadata,
    _rid(),
    _thread(),
    Column("key", LargeBinary, nullable=False),
    Column("name", LargeBinary, nullable=False),
    Column("args", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("body", LargeBinary),
    UniqueConstraint("thread", "key"),
)
"""The ledger of tool calls; `args` is a hash. Long results are compressed (`store.ledger`)."""

leases: Final = Table(
    "leases",
    metadata,
    Column("thread", _Key, primary_key=True, autoincrement=False),
    Column("owner", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until", Float, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("head", LargeBinary),
    Column("checksum", BigInteger),
)
"""`until` is 0 for a lease that was given back. `until` below 0, `tries` and `head` are for runs of
a process that died: see `store.leases`."""

runs: Final = Table(
    "runs",
    metadata,
    _rid(),
    _thread(),
    Column("number", Integer, nullable=False),
    Column("run", LargeBinary, nullable=False),
    Column("branch", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("thread", "number"),
)
"""The runs of a thread that keep a journal, counted from 1."""

moments: Final = Table(
    "moments",
    metadata,
    Column("rid", _Key, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
"""The journal, in pages; each is the addition of one commit. A page's key is its thread times 2**32
plus the number of its last moment."""

blobs: Final = Table(
    "blobs",
    metadata,
    _rid(),
    _thread(),
    Column("hash", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("thread", "hash"),
)
"""What moments and values refer to by hash. The row with an empty hash holds the key that the
thread's journal hides secrets with."""

streams: Final = Table(
    "streams",
    metadata,
    _rid(),
    _thread(),
    Column("run", LargeBinary, nullable=False),
    Column("status", Text, nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("first", BigInteger, nullable=False),
    Column("key", LargeBinary),
    Column("body", LargeBinary, nullable=False),
    Column("tenant", LargeBinary),
    Column("placed", Float),
    UniqueConstraint("thread", "run"),
    UniqueConstraint("key"),
)
"""The runs of a server: their requests, and the number of their first event. `key` is a hash of the
caller's idempotency key.

`tenant` and `placed` are for runs of workers; all others lack them. `placed` is NULL while an
earlier run of the thread is unfinished, 0 once the run may begin, and then the time at which it got
a job in the queue. Both are hints that no digest covers: a wrong one costs time only."""

events: Final = Table(
    "events",
    metadata,
    Column("rid", _Key, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
"""The events of a server's runs, in pages. A page's key is its thread times 2**32 plus the number
of its last event."""

tokens: Final = Table(
    "tokens",
    metadata,
    _rid(),
    Column("tenant", LargeBinary, nullable=False),
    Column("token", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("name", LargeBinary, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
    Column("checksum", BigInteger),
    UniqueConstraint("token"),
)
"""The access tokens of a server; only hashes of them are stored."""

ACCOUNTED: Final = (
    *(names, checkpoints, writes, items, blobs, calls, runs, moments, streams, events),
)
"""The tables that digests cover, in the order of `digests.HASHED`."""

digests: Final = Table(
    "digests",
    metadata,
    Column("rid", _Key, primary_key=True, autoincrement=False),
    *(Column(table.name, BigInteger, nullable=False) for table in ACCOUNTED),
)
"""Sums over the rows of a thread, by table: a missing or foreign row changes a sum. A row's key is
its thread times 2**32 plus the number of a step, or 0 (`store.digests`)."""

clock: Final = Table(
    "clock",
    metadata,
    Column("rid", _Key, primary_key=True, autoincrement=False),
    Column("boot", LargeBinary, nullable=False),
    Column("wall", Float, nullable=False),
    Column("steady", Float, nullable=False),
    Column("since", Float, nullable=False),
    Column("checksum", BigInteger),
)
"""One row: the boot that used the store last, and the time by both of its clocks. Idle time counts
from `since` at the earliest (`store.threads`)."""

inbox: Final = Table(
    "inbox",
    metadata,
    _rid(),
    Column("tenant", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("chat", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    Column("server", LargeBinary, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("received", Float, nullable=False),
    Column("ended", Float),
    Column("body", LargeBinary, nullable=False),
    Column("checksum", BigInteger),
    UniqueConstraint("tenant", "key"),
    Index("inbox_state", "tenant", "state", "chat"),
    sqlite_autoincrement=True,
)
"""The messages that a gateway has taken. `key` is of the platform's id: a message that comes again
is known. `server` is the process that answers it."""

outbox: Final = Table(
    "outbox",
    metadata,
    _rid(),
    Column("tenant", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("chat", LargeBinary, nullable=False),
    Column("turn", LargeBinary),
    Column("state", Text, nullable=False),
    Column("server", LargeBinary, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    Column("body", LargeBinary, nullable=False),
    Column("checksum", BigInteger),
    UniqueConstraint("tenant", "key"),
    Index("outbox_state", "tenant", "state", "chat"),
    Index("outbox_turn", "turn"),
    sqlite_autoincrement=True,
)
"""The messages that a gateway sends, in order. `turn` is the run of a tool that wrote it."""

facts: Final = Table(
    "facts",
    metadata,
    _rid(),
    Column("tenant", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("changed", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("checksum", BigInteger),
    UniqueConstraint("tenant", "key"),
    sqlite_autoincrement=True,
)
"""What a gateway keeps beside messages: jobs, pairings, the owner's last chat, live processes."""

memories: Final = Table(
    "memories",
    metadata,
    _rid(),
    Column("tenant", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("ttl", Float),
    Column("expires", Float),
    Column("body", LargeBinary, nullable=False),
    Column("vectors", LargeBinary),
    Column("checksum", BigInteger),
    UniqueConstraint("tenant", "key"),
    Index("memories_expires", "tenant", "expires"),
    sqlite_autoincrement=True,
)
"""The items of the long-term store. `key` is of the namespace and the item's own key, so that the
items below a namespace are a range of keys (`store.memories`). In PostgreSQL, `vectors` is there a
second time as an array, which pgvector reads (`store.vectors`)."""

OWNED: Final = (writes, checkpoints, calls, leases, runs, blobs, streams)
"""Tables with a column for the thread. Rows of `moments`, `events`, `digests` and `items` are
deleted by ranges of their keys, those of `names` and `threads` last."""
