"""Replay of a recorded LangGraph graph: its journal answers all models and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick_graph import langgraph_config
from wick_graph.core.bridge import Bridge
from wick_graph.core.moments import Directive, Moment
from wick_graph.errors import ReplayError
from wick_graph.foreign.held import HeldRun
from wick_graph.foreign.listener import heard_by
from wick_graph.foreign.run import ForeignRun
from wick_graph.journal.replay import STREAMED, ReplayListener
from wick_graph.runtime.context import Run
from wick_graph.store.saver import SqlSaver


class Answering:
    """Records a replay in its own store, and answers from a recording: holder and gate of it."""

    holds = True

    def __init__(self, listener: ReplayListener) -> None:
        self.run = Run()
        self.problem: Exception | None = None
        """What was not recorded; a graph may go on after such an error of a tool."""
        self._listener = listener
        self._journal: Any = None

    def keep(self, run: ForeignRun, saver: Any) -> SqlSaver:
        """Return the store of the replay."""
        store: SqlSaver = saver
        return store

    def gate(self, run: HeldRun, store: SqlSaver) -> Answering:
        """Return itself."""
        self.run.run_id, self._journal = run.run_id, run.journal
        return self

    def saw(self, checkpoint: str, values: Mapping[str, Any]) -> None:
        """Ignore the values of a checkpoint."""

    def tell(self, problem: str) -> None:
        """Note that the replay could not be recorded."""
        self.problem = self.problem or ReplayError(problem)

    def record(self, moment: Moment) -> None:
        """Record a moment of the replay."""
        self._journal.record(moment)

    async def at(self, moment: Moment, bridge: Bridge | None = None) -> Directive:
        """Answer a call."""
        try:
            return await self._listener.at(moment)
        except ReplayError as error:
            self.problem = self.problem or error
            raise

    def passed(self, moment: Moment) -> None:
        """Refuse a streamed request: only calls of `invoke` are answered."""
        self.problem = self.problem or ReplayError(STREAMED)
        raise self.problem


def played(
    graph: Any, given: Any, thread_id: str, listener: ReplayListener, context: Any
) -> tuple[str, Mapping[str, Any]]:
    """Run a graph; see `wick_graph.journal.replay.replay`.

    Raises:
        ReplayError: A request or a call was not recorded.
    """
    keeper = Answering(listener)
    config = langgraph_config.with_configurable(None, **{langgraph_config.THREAD_ID: thread_id})
    more = {} if context is None else {"context": context}
    try:
        with heard_by(keeper):
            values = graph.invoke(given, config, **more)
    except Exception:
        if keeper.problem is not None:
            raise keeper.problem from None
        raise
    if keeper.problem is not None:
        raise keeper.problem
    return keeper.run.run_id, values
