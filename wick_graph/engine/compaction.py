"""Compaction: summarise the old part of a thread between two runs.

The thread keeps its whole history. Only its channel `summary` changes, and the `SummarizationHook`
of the agent sends the summary in place of what it covers. The model works on a snapshot, without
the thread's lease: messages that come meanwhile stay behind the summary. The lease is held for the
one commit of the result.

The summary is stored beside the thread's last checkpoint, as the records of failures are. So open
questions, unfinished steps and the number of checkpoints stay as they are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from wick_graph import langgraph_config
from wick_graph.constants import (
    CHARS_PER_TOKEN,
    COMPACTION_KEEP,
    COMPACTION_MESSAGES,
    COMPACTION_PERCENT,
    COMPACTION_SECONDS,
    COMPACTION_TEMPERATURE,
    COMPACTION_TOKENS,
)
from wick_graph.core.bridge import Bridge
from wick_graph.core.request import ModelRequest
from wick_graph.core.stopping import alarm
from wick_graph.core.usage import Usage
from wick_graph.engine.answers import beside
from wick_graph.engine.graph import RunGraph
from wick_graph.errors import ConfigError, RunCancelled, ThreadBusyError
from wick_graph.hooks.summarization import (
    Parts,
    chunks,
    cut,
    limits,
    parts,
    request_for,
    shown_messages,
    summarised,
)
from wick_graph.messages import estimate_tokens
from wick_graph.models.resolve import ModelChoice
from wick_graph.nodes.model import through_hooks
from wick_graph.runtime.context import EngineStore, NodeContext, Run
from wick_graph.store.leases import Asking, Suspected, Writer

Outcome = Literal["compacted", "short", "busy", "changed", "unfinished", "failed"]

_FIRST_SECONDS: Final = 0.005

_LONGEST_SECONDS: Final = 0.1

_PATIENCE: Final = COMPACTION_SECONDS
"""Seconds to wait for the end of a run, before its summary is dropped."""

_LONGEST_TEXT: Final = 2 * CHARS_PER_TOKEN * COMPACTION_TOKENS
"""Characters of a summary; only a model that ignores its limit of tokens writes more."""

_under_way: Final[set[tuple[int, int, str]]] = set()
"""Threads that are compacted in this process, with process and store."""

_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Compaction:
    """How a compaction ended."""

    outcome: Outcome
    """`compacted`; else nothing changed: `short`: it is not needed or possible; `busy`: the thread
    is compacted already, or a run did not end in time; `changed`: another summary was faster, or
    the messages are gone; `unfinished`: the thread's last run crashed, and must be continued
    first; `failed`: the model failed, was too slow, or wrote nothing."""
    usage: Usage = Usage()  # noqa: RUF009 - it is frozen
    """The tokens that the summariser used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """When a thread is compacted, and how much of it stays."""

    messages: int = COMPACTION_MESSAGES
    percent: int = COMPACTION_PERCENT
    keep: int = COMPACTION_KEEP
    force: bool = False

    def __post_init__(self) -> None:
        if self.keep < 1 or self.messages < 1 or not 0 < self.percent <= 100:
            raise ConfigError(
                "compaction needs keep and messages of 1 or more, and a percent from 1 to 100"
            )


def place_of_cut(seen: Parts, upto: str, window: int, terms: Terms) -> int:
    """Return how many messages behind the last summary the next one covers; 0 for no summary.

    Args:
        seen: The thread, divided by its last summary.
        upto: The id of the last message that this summary covers.
        window: Tokens of the model's context window.
        terms: When to compact, and how much stays.
    """
    tokens = estimate_tokens(shown_messages(seen, upto)) * 100
    if terms.force or len(seen.rest) > terms.messages or tokens > window * terms.percent:
        return _whole(seen.rest, cut(seen.rest, terms.keep))
    return 0


def _whole(messages: Sequence[BaseMessage], at: int) -> int:
    """Move a cut before the last calls of the thread if results of them can still come."""
    places = range(len(messages) - 1, at - 1, -1)
    if any(_calls(messages[i]) for i in places):
        return at
    last = next((i for i in range(at - 1, -1, -1) if _calls(messages[i])), at)
    done = {m.tool_call_id for m in messages[last:] if isinstance(m, ToolMessage)}
    open_calls = last < at and not done.issuperset(one["id"] for one in _calls(messages[last]))
    return last if open_calls else at


def _calls(message: BaseMessage) -> Sequence[Any]:
    return message.tool_calls if isinstance(message, AIMessage) else ()


async def compact(
    graph: RunGraph,
    store: EngineStore,
    thread_id: str,
    bridge: Bridge,
    terms: Terms,
    model: ModelChoice | None = None,
) -> Compaction:
    """Summarise the old part of a thread; see `Agent.compact`."""
    with _only_one(store, thread_id) as first:
        if not first:
            return Compaction("busy")
        at = langgraph_config.with_configurable(None, **{langgraph_config.THREAD_ID: thread_id})
        config: Any = {**at, "metadata": {}}
        state: Any = await bridge.call(graph.get_state, graph.aget_state, config)
        known = state.values.get("summary") or {}
        seen = parts(state.values.get("messages") or (), known)
        upto = str(known.get("upto"))
        old = seen.rest[: place_of_cut(seen, upto, graph.spec.model.context_window, terms)]
        if not old:
            return Compaction("short")
        work = _Work(
            graph, bridge, state.values, model or graph.spec.model, Run(thread_id=thread_id)
        )
        text = await work.summary(old, seen.summary)
        outcome: Outcome = "failed"
        if text:
            made = {"text": text, "upto": old[-1].id}
            outcome = await _stored(graph, store, config, known, made, bridge)
        return Compaction(outcome, work.run.usage)


@contextmanager
def _only_one(store: EngineStore, thread_id: str) -> Iterator[bool]:
    """Yield whether nothing else in this process compacts the thread."""
    key = (os.getpid(), id(store), thread_id)
    with _lock:
        first = key not in _under_way
        _under_way.add(key)
    try:
        yield first
    finally:
        if first:
            _under_way.discard(key)


@dataclass(frozen=True, slots=True)
class _Work:
    """The calls of the summariser, through the agent's hooks and processors."""

    graph: RunGraph
    bridge: Bridge
    state: Mapping[str, Any]
    model: ModelChoice
    run: Run

    async def summary(self, old: Sequence[BaseMessage], before: str) -> str:
        """Return the summary of old messages and of the summary before them; "" on failure."""
        run, window = self.run, self.model.context_window
        run.stop.waits = True
        quiet = alarm(COMPACTION_SECONDS, run.stop.ask, "limit", "the summariser is too slow")
        pieces = chunks(old, window, brief=True)
        body = summarised(self._next, self._asked, pieces, before)
        try:
            return (await self.bridge.until(run.stop, body) if pieces else "")[:_LONGEST_TEXT]
        except RunCancelled:
            return ""
        finally:
            body.close()
            quiet()

    @property
    def _ctx(self) -> NodeContext:
        return NodeContext(self.graph.spec, self.run, self.bridge, {})

    async def _next(self, request: ModelRequest) -> AIMessage:
        reply, _ = await through_hooks(request, self._ctx, [])
        return reply

    def _asked(self, piece: str, before: str) -> ModelRequest:
        state = self.state
        asked = request_for(
            piece,
            before,
            state=state,
            ctx=self._ctx.for_hooks(state),
            most=limits(self.model.context_window, COMPACTION_TOKENS),
            temperature=COMPACTION_TEMPERATURE,
        )
        return replace(asked, model=self.model)


async def _stored(
    graph: RunGraph,
    store: EngineStore,
    config: Any,
    known: Mapping[str, Any],
    made: Mapping[str, Any],
    bridge: Bridge,
) -> Outcome:
    """Store a summary; wait for the end of a run that goes on in the thread."""
    leases, pause, waited = store.leases, _FIRST_SECONDS, 0.0

    def commit() -> Outcome:
        return _commit(graph, store, config, known, made)

    while True:
        try:
            return await bridge.uninterruptible(leases.together, leases.atogether, commit)
        except ThreadBusyError:
            if waited >= _PATIENCE:
                return "busy"
        except Suspected:
            return "unfinished"
        await bridge.sleep(pause)
        waited, pause = waited + pause, min(2 * pause, _LONGEST_SECONDS)


def _commit(
    graph: RunGraph,
    store: EngineStore,
    config: Any,
    known: Mapping[str, Any],
    made: Mapping[str, Any],
) -> Outcome:
    """Take the lease, store the summary and give the lease back, all in one commit.

    Raises:
        ThreadBusyError: A run goes on in the thread.
        Suspected: The thread's last run crashed.
    """
    saver: Any = store
    values = graph.get_state(config).values
    held = any(message.id == made["upto"] for message in values.get("messages") or ())
    if not held or (values.get("summary") or {}) != known:
        return "changed"
    lease = store.leases.acquire(langgraph_config.thread_of(config) or "", Asking(), judged=True)
    try:
        if lease.charges:  # a poisoned thread: a write would look like progress of its run
            return "unfinished"
        saved = saver.get_tuple(config)
        saver.put_writes(*beside(saved, ("summary", dict(made)), Writer(lease)))
        return "compacted"
    finally:
        store.leases.release(lease, charges=lease.charges)
