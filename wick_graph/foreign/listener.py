"""Choose the runs to record, and the open recording that records each."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver

from wick_graph import langgraph_config
from wick_graph.core.moments import Moment
from wick_graph.engine.graph import RunGraph
from wick_graph.engine.guest import GuestGraph
from wick_graph.engine.lifecycle import is_nested
from wick_graph.foreign.held import HeldRun
from wick_graph.foreign.run import ForeignRun, Keeper, saver_of
from wick_graph.foreign.seams import HEARD, MUTE, SEAMS, Heard
from wick_graph.journal.run_start import Mode
from wick_graph.journal.tracebacks import message_of
from wick_graph.store.row_format import pack_id

HERE: Final[ContextVar[Keeper | None]] = ContextVar("wick_recording", default=None)
"""The recording of this context alone."""


class Listener:
    """Hears the runs for all open recordings of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Keeper] = []
        self._everywhere: list[Keeper] = []

    def open(self, keeper: Keeper, *, everywhere: bool) -> None:
        """Begin to record; `everywhere` is in every thread and task."""
        with self._lock:
            if not self._open:
                SEAMS.open(self)
            self._open.append(keeper)
            if everywhere:
                self._everywhere.append(keeper)

    def close(self, keeper: Keeper) -> None:
        """End what `open` began."""
        with self._lock:
            self._open.remove(keeper)
            if keeper in self._everywhere:
                self._everywhere.remove(keeper)
            if not self._open:
                SEAMS.close()

    def hear(self, graph: Any, input: Any, config: Any) -> Heard | None:
        """Return what hears a run that begins; a part of another run is heard by that."""
        keeper = self._keeper()
        if is_agent(graph):  # the engine records it itself, unless it is a node
            return MUTE if HEARD.get() is not None and not is_nested(config) else None
        if keeper is None or is_nested(config):
            return None
        made = HeldRun if keeper.holds else ForeignRun
        return made(graph, input, config, keeper)

    def updated(self, graph: Any, config: Any, supersteps: Any, made: Any) -> Update:
        """Return what records an `update_state`."""
        return Update(None if is_agent(graph) else self._keeper(), graph, config, supersteps)

    def fail(self, error: Exception) -> None:
        """Note that a run or an update could not be recorded; it goes on."""
        if (keeper := self._keeper()) is not None:
            keeper.tell(f"a run was not recorded: {type(error).__name__}: {message_of(error)}")

    def _keeper(self) -> Keeper | None:
        here = HERE.get()
        if here in self._open:  # a task may outlive the block that it began in
            return here
        return next(iter(self._everywhere[-1:]), None)


class Update(ForeignRun):
    """Records one `update_state` as a run of one moment."""

    mode: Mode = "update"

    def __init__(self, keeper: Keeper | None, graph: Any, config: Any, supersteps: Any) -> None:
        found = saver_of(graph, config)
        kept = keeper is not None and isinstance(found, BaseCheckpointSaver)
        self.saver: Any = found if kept else None
        """The saver to read the new checkpoint from; None if nothing is recorded."""
        self._steps = supersteps
        if keeper is not None:
            super().__init__(graph, None, config, keeper)

    def __call__(self, found: Any) -> None:
        """Record it, given its checkpoint."""
        if self.saver is None or found is None:
            return
        self._record(found)
        self.journal.close()
        self._told()

    def _record(self, found: Any) -> None:
        try:
            above = langgraph_config.configurable(found.parent_config)
            self.base = above.get(langgraph_config.CHECKPOINT_ID)
            self._open(self.saver)
            if self._copy is not None:
                self._copy.update(found)
            end = {"stopped_because": "done", "about": {"end": pack_id(found.checkpoint["id"])}}
            writes, node = _writes_of(self._steps)
            for moment in (
                Moment("run", "enter", self.name, {"input": None}),
                Moment("state", "update", node, {"writes": writes, "node": node}),
                Moment("run", "exit", "", end),
            ):
                self.journal.record(moment)
        except Exception as error:  # a recording never fails what it records
            self.journal.fail(error)


def _writes_of(supersteps: Sequence[Any]) -> tuple[list[tuple[str, Any]], str]:
    """Return the written channels, and the node that counts as their writer."""
    writes: list[tuple[str, Any]] = []
    node = ""
    for superstep in supersteps:
        for update in superstep:
            node = update.as_node or node
            if isinstance(update.values, dict):
                writes += update.values.items()
    return writes, node


def is_agent(graph: Any) -> bool:
    """Return whether the engine itself tells of a graph's runs."""
    return isinstance(graph, RunGraph) and not isinstance(graph, GuestGraph)


LISTENER: Final = Listener()
"""The listener of this process."""


@contextmanager
def heard_by(keeper: Keeper) -> Iterator[None]:
    """Let a recording hear the runs that begin in this context."""
    token = HERE.set(keeper)
    LISTENER.open(keeper, everywhere=False)
    try:
        yield
    finally:
        LISTENER.close(keeper)
        HERE.reset(token)
