"""`SqlStore`: LangGraph's long-term store on the database of threads.

An item is one row, found by its namespace and its key; both make up the row's key, so that the
items below a namespace are a range. The tenant is the connection's: no namespace reaches another's
items. A batch is one transaction: its reads come first, as in LangGraph's own stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)
from sqlalchemy import (
    ARRAY,
    REAL,
    Column,
    Integer,
    MetaData,
    Table,
    bindparam,
    delete,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert

from wick_graph.store import vectors
from wick_graph.store.allowlist import AllowList
from wick_graph.store.codec import Codec
from wick_graph.store.connection import StoreConnection
from wick_graph.store.dialect import Database, Synchronous
from wick_graph.store.encryption import Keys, check_keys
from wick_graph.store.row_format import bytes_text, text_bytes
from wick_graph.store.saver import SqlSaver, dialect_of
from wick_graph.store.schema import memories
from wick_graph.store.statements import checked
from wick_graph.store.texts import Prepared, compiled
from wick_graph.store.threads import Sweeper, sweep
from wick_graph.store.vectors import Known, VectorIndex

LONGEST: Final = 2_000
"""Bytes of a namespace and a key together; PostgreSQL's indexes take about 2,700."""

_CHUNK: Final = 1_000
"""Rows that are read at once."""

_ALL: Final = 1 << 62

_MINUTE: Final = 60.0

_SOONEST: Final = 30.0
"""Seconds by which a read moves the end of an item, or 1/120 of its TTL; by less it writes none."""

# --- The key of a row.
#
# Each label of the namespace ends with NUL, which no label contains. An empty label ends the
# namespace; the item's key follows. So namespaces are sorted as tuples of texts are.


_END: Final = b"\x00"

_AFTER: Final = b"\xff"
"""Above every byte of a text."""


def _below(namespace: Sequence[str]) -> bytes:
    """Return what the keys of all items below a namespace begin with."""
    return b"".join(text_bytes(label) + _END for label in namespace)


def _key(namespace: Sequence[str], key: str) -> bytes:
    return _below(namespace) + _END + text_bytes(key)


def _namespace(head: bytes) -> tuple[str, ...]:
    return tuple(map(bytes_text, head.split(_END))) if head else ()


def _parted(row_key: bytes) -> tuple[bytes, bytes]:
    """Return the labels of a row's key, with NUL between them, and the item's key."""
    if row_key.startswith(_END):
        return b"", row_key[1:]
    head, _, key = row_key.partition(_END + _END)
    return head, key


_b, _m = bindparam, memories.c

_live: Final = or_(_m.expires.is_(None), _m.expires > _b("n"))

_range: Final = (_m.tenant == _b("t"), _m.key >= _b("low"), _m.key < _b("high"))

_COLUMNS: Final = (_m.rid, _m.key, _m.created, _m.updated, _m.ttl, _m.expires, _m.body)

_GET: Final = Prepared(
    lambda: select(*_COLUMNS).where(_m.tenant == _b("t"), _m.key == _b("k"), _live), "t", "k", "n"
)

_IDS: Final = Prepared(
    lambda: select(_m.rid).where(*_range, _live).order_by(_m.rid).limit(_b("l")).offset(_b("o")),
    *("t", "low", "high", "n", "l", "o"),
)

_between: Final = (*_range, _m.rid.between(_b("first"), _b("last")))

_BETWEEN: Final = ("t", "low", "high", "first", "last")

_ROWS: Final = Prepared(lambda: select(*_COLUMNS).where(*_between), *_BETWEEN)

_VECTORS: Final = Prepared(
    lambda: select(_m.rid, _m.key, _m.vectors, null()).where(*_between), *_BETWEEN
)

_KEYS: Final = Prepared(
    lambda: select(_m.key).where(*_range, _live).order_by(_m.key), *("t", "low", "high", "n")
)

_DELETE: Final = Prepared(
    lambda: delete(memories).where(_m.tenant == _b("t"), _m.key == _b("k")), "t", "k"
)

_DELETE_EXPIRED: Final = Prepared(
    lambda: delete(memories).where(_m.tenant == _b("t"), _m.key == _b("k"), _m.expires <= _b("n")),
    *("t", "k", "n"),
)

_TOUCH: Final = Prepared(
    lambda: (
        update(memories)
        .values(**checked(memories, {"expires": _b("e")}))
        .where(_m.rid == _b("r"), _m.tenant == _b("t"), _m.expires == _b("o"))
    ),
    *("e", "r", "t", "o"),
)
"""It changes no item that was put again meanwhile, perhaps without a TTL."""

_PUT_ORDER: Final = (*("tenant", "key", "created", "updated", "ttl", "expires", "body", "vectors"),)


def _put(table: Table, order: Sequence[str]) -> Prepared:
    values = checked(table, {name: _b(name) for name in order}, new=True)
    made = upsert(table).values(**values)
    new = {name: made.excluded[name] for name in order[3:]}
    made = made.on_conflict_do_update(index_elements=["tenant", "key"], set_=checked(table, new))
    return Prepared(lambda: made, *order)


_PUT: Final = _put(memories, _PUT_ORDER)

_postgres: Final = memories.to_metadata(MetaData())
_postgres.append_column(Column("dims", Integer))
_postgres.append_column(Column("floats", ARRAY(REAL)))

_PUT_POSTGRES: Final = _put(_postgres, (*_PUT_ORDER, "dims", "floats"))


@dataclass(slots=True)
class _Plan:
    """A batch: its operations, and the vectors of its texts and queries."""

    ops: list[Op]
    puts: dict[bytes, PutOp] = field(default_factory=dict)
    """By key of the row; of several, the last one counts."""
    texts: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    vectors: tuple[Known, Known] = ({}, {})


class SqlStore(BaseStore):
    """LangGraph's long-term store on a SQL database: items by namespace and key, for all threads.

    It keeps whatever the codec takes: JSON, dates, messages, and the classes that are allowed.
    Items are listed in the order in which they were made. An item with a TTL expires when it was
    neither read nor written for so many minutes; it is never returned afterwards, and a sweep
    deletes it.
    """

    supports_ttl = True

    def __init__(
        self,
        core: StoreConnection,
        codec: Codec,
        *,
        index: VectorIndex | None = None,
        ttl: TTLConfig | None = None,
        owns: bool = False,
    ) -> None:
        self._core, self._codec, self._index, self._owns = core, codec, index, owns
        self.ttl_config = ttl
        if index is not None and core.dialect.locks and not core.dialect.reads_only:
            with core.idle() as db, suppress(*core.dialect.errors):
                db.execute(vectors.ADD)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        tenant: str = "local",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        allow: Iterable[type] = (),
        synchronous: Synchronous = "FULL",
        keys: Keys | str | None = None,
        read_only: bool = False,
    ) -> Self:
        """Open `sqlite:///path.db`, `sqlite://` in memory, or `postgresql://…`.

        Args:
            url: The database; threads may be in it too.
            tenant: The owner of the items; those of others cannot be reached.
            index: LangGraph's `IndexConfig` (`embed`, `dims`, `fields`), for search by meaning.
            ttl: LangGraph's `TTLConfig` (`default_ttl` in minutes, `refresh_on_read`).
            allow: As for a `SqlSaver`, as are `synchronous`, `keys` and `read_only`.
            synchronous: Whether each commit is durable.
            keys: Encrypt values and vectors; namespaces and keys stay readable.
            read_only: Change nothing.

        Raises:
            StorageError: The URL, the file or the keys cannot be used; nothing was changed.
            ConfigError: `index` cannot be used.
        """
        found, known = VectorIndex.of(index), check_keys(keys)
        dialect = dialect_of(url, synchronous, reads_only=read_only)
        core = StoreConnection(dialect, tenant=tenant, ttl=None, keys=known)
        return cls(core, Codec(AllowList(allow)), index=found, ttl=ttl, owns=True)

    @classmethod
    def of(
        cls, saver: SqlSaver, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> Self:
        """Return the long-term store in the database of a `SqlSaver`, of its tenant."""
        return cls(saver._core, saver.serde, index=VectorIndex.of(index), ttl=ttl)

    def sweep(self) -> None:
        """Delete what has expired: items, and idle threads of the database."""
        sweep(self._core)

    def sweeper(self, interval: float = 300.0) -> Sweeper:
        """Return a context manager that sweeps every `interval` seconds."""
        return Sweeper(self._core, interval)

    def close(self) -> None:
        """Close the database, if this store opened it."""
        if self._owns:
            self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do all operations in one transaction: first those that read, then those that write.

        Raises:
            StorageError: A value cannot be stored, or the database reports an error; nothing of
                the batch is stored.
            ValueError: A namespace, a limit, a TTL or an operator of a filter is invalid.
        """
        plan = self._plan(ops)
        if self._index is not None:
            plan.vectors = self._index.embed(plan.texts, plan.queries)
        return self._run(plan)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do as `batch`, in the store's thread."""
        plan = self._plan(ops)
        if self._index is not None:
            plan.vectors = await self._index.aembed(plan.texts, plan.queries)
        return await self._core.worker.run(self._run, plan)

    # --- A batch: checked, then done in one transaction.

    def _plan(self, ops: Iterable[Op]) -> _Plan:
        plan = _Plan([*ops])
        for op in plan.ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                plan.puts[_checked_key(op)] = op
            elif isinstance(op, SearchOp | ListNamespacesOp):
                if any(not isinstance(one, int) or one < 0 for one in (op.limit, op.offset)):
                    raise ValueError("limit and offset must be whole numbers of 0 or more")
            elif not isinstance(op, GetOp):
                raise ValueError(f"unknown operation {op!r:.80}")
        if self._index is not None:
            texts = [text for put in plan.puts.values() for text in self._index.texts(put)]
            plan.texts = [*dict.fromkeys(texts)]
            asked = (op.query for op in plan.ops if isinstance(op, SearchOp) and op.query)
            plan.queries = [*dict.fromkeys(asked)]
        return plan

    def _run(self, plan: _Plan) -> list[Result]:
        rows = [self._row(key, put, plan) for key, put in plan.puts.items()]
        if rows:
            return self._core.apply(None, lambda db: self._done(db, plan, rows))
        with self._core.reading() as db:
            found, touched = self._answers(db, plan)
        if touched and not self._core.dialect.reads_only:
            self._core.apply(None, partial(_touch, touched))
        return found

    def _answers(self, db: Database, plan: _Plan) -> tuple[list[Result], list[tuple[Any, ...]]]:
        """Return the results, and what `_TOUCH` takes for items with a TTL that begins again."""
        reading = _Reading(self._core, self._codec, self._index, db, plan.vectors[1])
        return [reading.answer(op) for op in plan.ops], reading.touched

    def _done(self, db: Database, plan: _Plan, rows: Sequence[tuple[Any, ...]]) -> list[Result]:
        self._core.must_fit(db)
        if self._core.dialect.locks and len(rows) > 1:
            self._lock(db, sorted(plan.puts))
        found, touched = self._answers(db, plan)
        new = [row for row in rows if len(row) > 2]
        expired = [(*row[:2], row[3]) for row in new]
        gone = [row for row in rows if len(row) == 2]
        put = _PUT_POSTGRES if self._core.dialect.locks else _PUT
        writes = ((_TOUCH, touched), (_DELETE, gone), (_DELETE_EXPIRED, expired), (put, new))
        for text, values in writes:
            if values:
                db.executemany(text, values)
        return found

    def _lock(self, db: Database, keys: Sequence[bytes]) -> None:
        """Lock rows in the order that all processes take, so that no two wait for each other."""
        for some in _parts(keys):
            held = select(_m.rid).where(_m.tenant == self._core.tenant, _m.key.in_(some))
            db.execute(*compiled(held.order_by(_m.key).with_for_update()))

    def _row(self, key: bytes, put: PutOp, plan: _Plan) -> tuple[Any, ...]:
        """Return a row as it is written; one without a body is deleted."""
        tenant, now = self._core.tenant, self._core.now()
        if put.value is None:
            return (tenant, key)
        close = self._core.sealing.close
        body = close(self._codec.pack(dict(put.value)), tenant, key, memories.name)
        ttl = None if put.ttl is None else put.ttl * _MINUTE
        row = (tenant, key, now, now, ttl, None if ttl is None else now + ttl, body)
        index, locks = self._index, self._core.dialect.locks
        known = [] if index is None else [plan.vectors[0][text] for text in index.texts(put)]
        if index is None or not known:
            return (*row, *((None, None, None) if locks else (None,)))
        packed = close(index.packed(known), tenant, key, "vectors")
        if not locks:
            return (*row, packed)
        is_plain = self._core.sealing.keys is None
        return (*row, packed, *((index.dims, index.floats(known)) if is_plain else (None, None)))


def _checked_key(put: PutOp) -> bytes:
    """Return the key of a row to write.

    Raises:
        ValueError: Namespace and key are too long, the TTL or the index is invalid, or the value
            is no mapping.
    """
    key = _key(put.namespace, str(put.key))
    if len(key) > LONGEST:
        raise ValueError(
            f"a namespace and a key of {len(key):,} bytes cannot be stored, {LONGEST:,} is the "
            "most; shorten them, or use a hash"
        )
    ttl: Any = put.ttl
    if ttl is not None and not (isinstance(ttl, int | float) and 0 < ttl < math.inf):
        raise ValueError(f"ttl must be minutes above 0, or None, not {ttl!r:.80}")
    index: Any = put.index
    if index not in (None, False) and not (
        isinstance(index, list | tuple) and all(isinstance(one, str) for one in index)
    ):
        raise ValueError(f"index must be a list of fields, False or None, not {index!r:.80}")
    value: Any = put.value
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"a value must be a mapping, or None to delete it, not {value!r:.80}")
    return key


def _touch(touched: Sequence[tuple[Any, ...]], db: Database) -> None:
    """Let the TTL of items begin again; the cursor ends here, where no other thread uses it."""
    db.executemany(_TOUCH, touched)


class _Reading:
    """The operations of a batch that read, in one transaction."""

    def __init__(
        self,
        core: StoreConnection,
        codec: Codec,
        index: VectorIndex | None,
        db: Database,
        queries: Known,
    ) -> None:
        self._core, self._codec, self._index, self._db = core, codec, index, db
        self._queries = queries
        self._near = self._statement()
        self._now = core.now()
        self.touched: list[tuple[Any, ...]] = []

    def answer(self, op: Op) -> Any:
        """Return the result of an operation; None for one that writes."""
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            return self._search(op)
        return self._namespaces(op) if isinstance(op, ListNamespacesOp) else None

    def _get(self, op: GetOp) -> Item | None:
        values = (self._core.tenant, _key(op.namespace, str(op.key)), self._now)
        row = self._db.execute(_GET, values).fetchone()
        return None if row is None else Item(**self._read(row, touch=op.refresh_ttl))

    def _search(self, op: SearchOp) -> list[SearchItem]:
        query = self._queries.get(op.query or "")
        low = _below(op.namespace_prefix)
        if op.filter or query is not None:
            page = self._chosen(low, op, query)
        else:
            page = [
                (rid, None) for rid in self._ids(low, min(op.limit, _ALL), min(op.offset, _ALL))
            ]
        rows = {row[0]: row for some in _parts(page) for row in self._of([rid for rid, _ in some])}
        return [
            SearchItem(**self._read(rows[rid], touch=op.refresh_ttl), score=score)
            for rid, score in page
        ]

    def _chosen(self, low: bytes, op: SearchOp, query: Any) -> list[tuple[int, float | None]]:
        """Look through the items below a namespace; return those of a page, the nearest first."""
        found: list[tuple[int, float | None]] = []
        end = op.offset + op.limit
        for ids in _parts(self._ids(low, _ALL, 0)):
            if op.filter:
                rows = self._rows(_ROWS, low, ids)
                ids = [row[0] for row in rows if fits(self._value(row), op.filter)]
            found += zip(ids, self._scores(low, ids, query), strict=True)
            if query is None and len(found) >= end:
                break
        if query is not None:
            found.sort(key=lambda one: math.inf if one[1] is None else -one[1])
        return found[op.offset : end]

    def _scores(self, low: bytes, ids: Sequence[int], query: Any) -> Sequence[float | None]:
        if query is None or self._index is None or not ids:
            return [None] * len(ids)
        open_, tenant = self._core.sealing.open, self._core.tenant
        if self._near is None:
            rows = self._rows(_VECTORS, low, ids)
        else:
            rows = self._rows(self._near, low, ids, self._index.floats([query]))
        stored = [data and open_(data, tenant, key, "vectors") for _, key, data, _ in rows]
        scanned = self._index.scores(query, stored)
        return [near if one is None else one for one, (*_, near) in zip(scanned, rows, strict=True)]

    def _statement(self) -> str | None:
        """Return the statement that computes scores with pgvector; None if numpy does."""
        if self._index is None or not self._queries or not self._core.dialect.locks:
            return None
        found = self._db.execute(vectors.FIND).fetchone()
        return None if found is None else self._index.near(found[0])

    def _rows(self, text: Prepared | str, low: bytes, ids: Sequence[int], *first: Any) -> list[Any]:
        """Return rows below a namespace by their numbers, which ascend."""
        wanted = frozenset(ids)
        values = (*first, self._core.tenant, low, low + _AFTER, ids[0], ids[-1])
        rows = self._db.execute(text, values).fetchall()
        return sorted((row for row in rows if row[0] in wanted), key=lambda row: row[0])

    def _ids(self, low: bytes, limit: int, offset: int) -> list[int]:
        values = (self._core.tenant, low, low + _AFTER, self._now, limit, offset)
        return [rid for (rid,) in self._db.execute(_IDS, values).fetchall()]

    def _of(self, ids: Sequence[int]) -> list[Any]:
        return self._db.execute(*compiled(select(*_COLUMNS).where(_m.rid.in_(ids)))).fetchall()

    def _value(self, row: Sequence[Any]) -> dict[str, Any]:
        data = self._core.sealing.open(
            bytes(row[6]), self._core.tenant, bytes(row[1]), memories.name
        )
        value: dict[str, Any] = self._codec.unpack(data)
        return value

    def _read(self, row: Sequence[Any], *, touch: bool) -> dict[str, Any]:
        """Return the parts of an item; note that its TTL begins again, if that moves its end."""
        rid, row_key, created, updated, ttl, expires, _ = row
        head, key = _parted(bytes(row_key))
        if touch and ttl is not None:
            until = self._now + ttl
            if until - expires >= min(_SOONEST, ttl / 120):
                self.touched.append((until, rid, self._core.tenant, expires))
        return {
            "namespace": _namespace(head),
            "key": bytes_text(key),
            "value": self._value(row),
            "created_at": datetime.fromtimestamp(created, UTC),
            "updated_at": datetime.fromtimestamp(updated, UTC),
        }

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        values = (self._core.tenant, b"", _AFTER, self._now)
        rows = self._db.execute(_KEYS, values).fetchall()
        heads = dict.fromkeys(_parted(bytes(key))[0] for (key,) in rows)
        conditions = op.match_conditions or ()
        found = [
            name
            for name in map(_namespace, heads)
            if all(_matches(one, name) for one in conditions)
        ]
        cut = dict.fromkeys(name[: op.max_depth] for name in found)
        return [*cut][op.offset : op.offset + op.limit]


def _parts(all_: Sequence[Any]) -> Iterator[Any]:
    return (all_[at : at + _CHUNK] for at in range(0, len(all_), _CHUNK))


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    kind, path = condition.match_type, condition.path
    if kind not in ("prefix", "suffix"):
        raise ValueError(f"a namespace is matched by prefix or suffix, not by {kind!r:.80}")
    if len(namespace) < len(path):
        return False
    labels = namespace if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, labels, strict=False))


# --- Filters, as LangGraph's store in memory has them; none becomes a part of a statement.


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a value has all that a filter wants; what is no number is in no order.

    Raises:
        ValueError: An operator is unknown.
    """
    return all(_fits(value.get(name), one) for name, one in wanted.items())


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compare(value, name, other) for name, other in wanted.items())
        return isinstance(value, Mapping) and fits(value, wanted)
    if isinstance(wanted, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(wanted):
            return False
        return all(_fits(one, other) for one, other in zip(value, wanted, strict=True))
    return _is_same(value, wanted)


def _is_same(value: Any, wanted: Any) -> bool:
    try:
        return bool(value == wanted)
    except (TypeError, ValueError):  # of numpy's arrays
        return False


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": lambda one, other: float(one) > float(other),
    "$gte": lambda one, other: float(one) >= float(other),
    "$lt": lambda one, other: float(one) < float(other),
    "$lte": lambda one, other: float(one) <= float(other),
    "$eq": _is_same,
    "$ne": lambda one, other: not _is_same(one, other),
}


def _compare(value: Any, name: str, other: Any) -> bool:
    if (compare := _COMPARE.get(name)) is None:
        raise ValueError(f"unknown operator {name!r:.80}; use one of {', '.join(_COMPARE)}")
    try:
        return compare(value, other)
    except (TypeError, ValueError, OverflowError):
        return False
