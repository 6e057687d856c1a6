"""Forks: going on from a moment of the past, on a branch of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wick_graph import keys
from wick_graph.debug.attached import PLAIN, Under
from wick_graph.debug.cursor import At
from wick_graph.debug.kept import kept_decider, told_of
from wick_graph.debug.live import Door
from wick_graph.debug.moves import goal_of
from wick_graph.debug.plans import Plan, Planning, summary
from wick_graph.debug.policy import Decider, Edit, Policy, edit_of, put, tool_edits, written
from wick_graph.debug.types import Stop
from wick_graph.debug.values import read_path
from wick_graph.errors import DebugError
from wick_graph.journal.replay import Tape

_BEFORE = {
    "before_agent": "__start__",
    "modify_request": "before_agent",
    "model": "modify_request",
    "tools": "model",
}
"""The node whose edges lead to a node: a state that is edited there goes on with it."""


class Forking(Planning):
    """Goes on from a moment of the past."""

    def fork(
        self,
        at: At = None,
        *,
        state: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Any = None,
        args: Mapping[str, Any] | None = None,
        result: Any = None,
        policy: Policy | None = None,
        label: str = "",
    ) -> Plan:
        """Prepare a new branch from a moment; `live` executes it, and this branch never changes.

        Args:
            at: The moment; the step that it belongs to is done again.
            state: Channels, or paths in them, and what is to stand there.
            request: `system`, `messages` or `settings` of the request at the moment.
            response: The model's reply, in place of asking it.
            args: The arguments of the call at the moment.
            result: The result of the call at the moment, in place of making it.
            policy: What answers the other calls; `session.policy` by default.
            label: A word for people.

        Raises:
            DebugError: Nothing can be gone on with from there, or the moment has no such part.
        """
        with self._cond:
            place = self._place(at)
            start = self._superstep(place)
            entry, first = self._timeline.entries[place], self._timeline.entries[start]
            chosen = policy or self.policy
            edits = [
                *self._model_edits(place, request, response),
                *tool_edits(entry, args, result),
            ]
            planned = self.will_execute(first, chosen)
            return Plan(
                position=str(self._position(place)),
                branch=self.branch,
                checkpoint=first.checkpoint or "",
                node=first.node,
                policy=chosen,
                will_execute=planned,
                text=summary(str(self._position(place)), self._next_branch(), planned),
                label=label,
                state=self._channels(place, state or {}),
                edits=tuple(edits),
            )

    def _next_branch(self) -> int:
        return 1 + max((branch.number for branch in self.branches()), default=self.branch)

    def _channels(self, place: int, state: Mapping[str, Any]) -> dict[str, Any]:
        """Turn edits of paths into whole channels."""
        shown = self._json.state(self._views.view(place).base) if state else {}
        made: dict[str, Any] = {}
        for text, value in state.items():
            path = read_path(text)
            channel = str(path[0])
            if channel not in shown:
                raise DebugError(f"there is no channel {channel}; there is {', '.join(shown)}")
            made[channel] = put(made.get(channel, shown[channel]), path[1:], value, text)
        return made

    def _model_edits(
        self, place: int, request: Mapping[str, Any] | None, response: Any
    ) -> Iterator[Edit]:
        if request is None and response is None:
            return
        if request is not None and response is not None:
            raise DebugError("a model whose reply is given is not asked; give one of the two")
        asked = [e for e in self._timeline.of_task(place) if e.what == "model.request"]
        if not asked:
            raise DebugError("no request stands at this moment; choose one at a model:request")
        given = {"request": request} if response is None else {"response": response}
        yield edit_of({"nth": len(asked), **given})

    def live(
        self, plan: Plan | None = None, *, door: Door = "sync", timeout: float | None = None
    ) -> Stop:
        """Execute a prepared fork, or go on where the thread stands; returns at the first stop.

        A fork that was left is gone on with under its own policy, and with its edits, in any
        process.

        Raises:
            DebugError: The session has no agent, the thread is finished, or it stands in a fork
                whose edits and policy could not be kept.
        """
        graph = self._graph()
        self._refuse_file()
        if plan is None:
            return self._live_at_the_end(graph, door, timeout)
        address = {keys.THREAD_ID: self.thread_id, keys.CHECKPOINT_ID: plan.checkpoint}
        if plan.state:
            before = _BEFORE.get(plan.node or "")
            made = graph.update_state(
                keys.with_configurable(None, **address), written(plan.state), as_node=before
            )
            address[keys.CHECKPOINT_ID] = keys.configurable(made)[keys.CHECKPOINT_ID]
        tape = None if self.journal is None else Tape(self.journal)
        decide, told = Decider(plan.policy, tape, plan.edits), told_of(plan.policy, plan.edits)
        under = Under(decide, told, "FORK")
        return self._started(None, address, door, goal_of("step", None), timeout, under=under)

    def _live_at_the_end(self, graph: Any, door: Door, timeout: float | None) -> Stop:
        if self.thread_id is None:
            raise DebugError("there is no thread to go on with; run an input first")
        config = keys.with_configurable(None, **{keys.THREAD_ID: self.thread_id})
        if not graph.get_state(config).next:
            raise DebugError("the thread is finished; run a new input, or fork from a moment of it")
        return self._go_on(None, door, timeout)

    def _go_on(self, given: Any, door: Door, timeout: float | None, under: Under = PLAIN) -> Stop:
        kept = None if self.journal is None else kept_decider(self.journal)
        if kept is not None:
            under = Under(*kept, "FORK")
        return super()._go_on(given, door, timeout, under)

    @property
    def executed(self) -> tuple[int, int]:
        """How many models and tools the last fork or replay really called."""
        found = self._under.decide
        return (found.live_models, found.live_tools) if isinstance(found, Decider) else (0, 0)
