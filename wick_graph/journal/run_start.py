"""Start the journal of a run: identity of the agent, numbering, forks, unfinished runs."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from types import CodeType
from typing import Any, Final, Literal

from wick_graph.core.moments import JournalOptions
from wick_graph.errors import StorageError
from wick_graph.hooks.protocol import PHASES
from wick_graph.journal.encode import FieldEncoder, MutationGuard
from wick_graph.journal.page_format import pack_about, pack_page
from wick_graph.journal.reader import UnfinishedRun, body_of, content_of, follow_run
from wick_graph.journal.recorder import BranchCounters, JournalListener, Writer
from wick_graph.journal.request_key import packed
from wick_graph.journal.value_store import Mask, ValueStore, known_secrets
from wick_graph.runtime.context import AgentSpec
from wick_graph.store.connection import is_alive, owner
from wick_graph.store.dialect import Database
from wick_graph.store.journal_rows import KEY, Batch, JournalRows, RunRow
from wick_graph.store.row_format import pack_id

# --- The identity of the agent in a recording, to recognise other versions of it.


_HASH_BYTES: Final = 8

_PACKAGES: Final = ("wick-graph", "langgraph", "langchain-core")

_CONSTANTS: Final = (str, int, float, bytes, bool, type(None))


def about(spec: AgentSpec) -> dict[str, Any]:
    """Describe an agent; cached.

    `graph` changes with the prompt, the schema of a tool or of the output, a hook or a limit;
    `code` changes with the code of a hook or a tool.
    """
    if not spec.recorded:
        spec.recorded.update(_about(spec))
    return dict(spec.recorded)


def _about(spec: AgentSpec) -> dict[str, Any]:
    layers = [layer for phase in PHASES for layer in spec.hooks.layers(phase)]
    shape: list[Any] = [
        [(layer.hook, layer.phase) for layer in layers],
        [tool.schema for tool in spec.tools],
        spec.max_iterations,
        spec.system_prompt,
    ]
    if spec.output is not None:
        shape.append([spec.output.way, *(form.parameters for form in spec.output.forms)])
    functions = [*(layer.fn for layer in layers), *(tool.source for tool in spec.tools)]
    code = b"".join(part for function in functions for part in _code(function))
    return {
        "agent": spec.name,
        "model": spec.model.name,
        "hooks": list(spec.hooks.names),
        "graph": _hash(packed(shape)),
        "code": _hash(code),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=_HASH_BYTES).hexdigest()


@functools.cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _code(function: Any) -> Iterator[bytes]:
    while isinstance(function, functools.partial):
        function = function.func
    for name in ("func", "function", "coroutine", "__wrapped__", "__func__"):
        inner = getattr(function, name, None)
        if inner is not None and inner is not function and callable(inner):
            yield from _code(inner)
            return
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        yield from _bytes(code)
    else:
        yield type(function).__qualname__.encode()


def _bytes(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _bytes(constant)
        elif isinstance(constant, _CONSTANTS):
            yield repr(constant).encode("utf-8", "replace")


# --- Start the journal of a run: continue the numbering, close moments of a dead process,
# recognise forks.


Mode = Literal["input", "answer", "resume", "update"]
"""How a run started: with a new input, an answer, as a resumption, or as an `update_state`."""

_KEY_BYTES: Final = 32

_FAR: Final = 1_000
"""Limit of checkpoints in the search for a fork's beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A starting run, as the engine knows it."""

    run_id: str
    mode: Mode
    about: dict[str, Any]
    model: Any
    guard: MutationGuard | None = None
    started_ns: int = field(default_factory=time.monotonic_ns)


def look(rows: JournalRows, thread: int, checkpoint_id: str | None) -> Opening:
    """Read the state of a thread's journal, in the transaction that takes its lease.

    `checkpoint_id` is the checkpoint from which the caller wants to continue.

    Raises:
        StorageError: The database fails. A damaged journal raises nothing.
    """
    with rows.joining() as db:
        opened = Opening(rows, db, thread)
        opened.look(checkpoint_id)
    return opened


def start(opened: Opening, begun: Begun, options: JournalOptions) -> JournalListener:
    """Start a run's journal; nothing is written yet."""
    rows = opened.rows
    secret = opened.secret or secrets.token_bytes(_KEY_BYTES)
    mask = Mask(secret, known_secrets(begun.model), options.redact)
    values = ValueStore(rows.codec, mask, secret if rows.is_encrypted else b"")
    if opened.secret is None:
        values.put(KEY, secret)
    about = {
        **begun.about,
        "level": options.level,
        "mode": begun.mode,
        "base": opened.base,
        "first": opened.last + 1,
        "steps": opened.counters.steps,
        "visits": dict(opened.counters.visits),
        **({"redact": [*options.redact]} if options.redact else {}),
        **({"by": owner()} if opened.shared else {}),
    }
    run = RunRow(
        number=opened.number,
        run=pack_id(begun.run_id),
        branch=opened.branch,
        status="running",
        started=rows.now() - (time.monotonic_ns() - begun.started_ns) / 1e9,
        ended=None,
        body=None,
    )
    names = {"model": about["model"], "run": about["agent"]}
    encoder = FieldEncoder(values, secret, hooks=about["hooks"], names=names)
    return JournalListener(
        rows,
        opened.thread,
        level=options.level,
        writer=Writer(encoder, opened.counters, begun.started_ns),
        values=values,
        run=run,
        about=about,
        last=opened.last,
        before=opened.closing,
        guard=begun.guard,
    )


class Opening:
    """State of a thread's journal before a run.

    A `shared` run holds no lease: others may run in its thread, and its caller names the checkpoint
    that it begins at.
    """

    def __init__(
        self, rows: JournalRows, db: Database, thread: int, *, shared: bool = False
    ) -> None:
        self.rows, self._db, self.thread = rows, db, thread
        self.shared = shared
        self._is_new = rows.is_new(thread)
        self.last = 0 if self._is_new else rows.last(db, thread)
        self.secret = None if self._is_new else self._secret()
        self.number, self.branch = 1, 0
        self.base: bytes | None = None if self._is_new else rows.head(db, thread)
        self.counters = BranchCounters()
        self.closing: Batch | None = None

    def look(self, checkpoint_id: str | None) -> None:
        """Read the previous run, and find where this one continues."""
        asked = None if checkpoint_id is None else pack_id(checkpoint_id)
        self.base = asked if self.shared else self.base
        before = None if self._is_new else self.rows.last_run(self._db, self.thread)
        if before is None:
            return
        self.number, self.branch = before.number + 1, before.branch
        body = body_of(before)
        self.counters = BranchCounters(body.get("steps", 0), dict(body.get("visits") or {}))
        goes_on = before.status == "running" and self._lives(body)
        if before.status == "running" or not body:
            unfinished = follow_run(self.rows, self._db, self.thread, before, self.last)
            self.counters = BranchCounters(unfinished.steps, dict(unfinished.visits))
            if before.status == "running" and not goes_on:
                self._close(before, unfinished)
        fork = (self.base or b"") if goes_on else self._fork(before, body, asked)
        if fork is not None:
            self._branch_off(fork)

    def _secret(self) -> bytes | None:
        try:
            return self.rows.secret(self._db, self.thread)
        except StorageError:
            return secrets.token_bytes(
                _KEY_BYTES
            )  # old keys no longer match; the reader reports it

    def _close(self, run: RunRow, unfinished: UnfinishedRun) -> None:
        """Close the moments that were open when the process died."""
        first = self.last + 1
        entries = unfinished.closing(self.last)
        self.last += len(entries)
        body = {**body_of(run), "steps": unfinished.steps, "visits": unfinished.visits}
        run.status, run.ended = "lost", run.started + unfinished.at / 1e6
        run.body = pack_about({**body, "last": self.last, "stopped": "lost"})
        page = (self.last, pack_page(run.number, first, [], entries)) if entries else None
        self.closing = Batch(page=page, first=first, run=run)

    def _lives(self, body: dict[str, Any]) -> bool:
        """Return whether the previous run goes on beside this one."""
        if by := body.get("by"):
            return is_alive(by)
        return self.shared and self.rows.is_running(self._db, self.thread)

    def _fork(self, before: RunRow, body: dict[str, Any], asked: bytes | None) -> bytes | None:
        """Return the checkpoint at which this run forks off the last one; None if it does not.

        It is empty for a run that begins its thread again from nothing.
        """
        reached = body.get("end") or self.rows.last_of_run(self._db, self.thread, before.run)
        at = asked or self.base
        self.base = at
        if at is None and self.shared:
            return b"" if reached is not None else None
        for _ in range(_FAR):
            if at is None or reached is None or at == reached:
                return None
            if at < reached:  # ids are ordered by time: this is before the end
                return at
            at = self.rows.parent_of(self._db, self.thread, at)
        return None

    def _branch_off(self, checkpoint: bytes) -> None:
        """Start a new branch, with the counters at its beginning."""
        rows = self.rows.run_rows(self._db, self.thread)
        self.branch = max(row.branch for row in rows) + 1
        unfinished = UnfinishedRun()
        for page in self.rows.pages_back(self._db, self.thread, self.last):
            content = content_of(page)
            if content is not None:
                unfinished.count(place for place in content.places if place[2] < checkpoint)
        self.counters = BranchCounters(unfinished.steps, unfinished.visits)
