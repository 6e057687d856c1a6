"""The state of a scripted model: one object for the model, its copies and its bindings."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage

from wick_graph.testing.draft import copy_tree, estimate_tokens
from wick_graph.testing.failures import UnconsumedSteps, UnexpectedModelCall
from wick_graph.testing.lanes import Cursor, Lane, conversation, place
from wick_graph.testing.record import ModelCall, freeze, tail
from wick_graph.testing.schemas import check_call
from wick_graph.testing.steps import Overflow, Reply, Step, describe, leaves_nothing

Tools = tuple[dict[str, Any], ...]


class Log:
    """Calls, attempts and cursors of this process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[ModelCall] = []
        self._count = 0
        self._fifo: dict[str, int] = {}
        self._failed: set[tuple[str, int, str]] = set()
        self._done: set[tuple[str, int]] = set()
        self._passed: dict[str, int] = {}
        self._unexpected: list[UnexpectedModelCall] = []
        self._tools: Tools = ()
        self._prompt: tuple[BaseMessage, ...] = ()
        self._checked: dict[int, tuple[Step, Tools]] = {}

    def __deepcopy__(self, memo: object) -> Log:
        return self

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """What was recorded so far."""
        with self._lock:
            return tuple(self._calls)

    def keep_messages(self, messages: Sequence[BaseMessage]) -> tuple[BaseMessage, ...]:
        """Copy a prompt; what equals its place in the last prompt is not copied again."""
        last = self._prompt
        kept = [
            last[at] if at < len(last) and _same(last[at], message) else freeze(message)
            for at, message in enumerate(messages)
        ]
        self._prompt = tuple(kept)
        return self._prompt

    def keep_tools(self, tools: Sequence[dict[str, Any]]) -> Tools:
        """Copy the bound tools; what equals the last ones is not copied again."""
        kept = self._tools
        if len(kept) != len(tools) or any(a != b for a, b in zip(kept, tools, strict=True)):
            kept = self._tools = tuple(copy_tree(tool) for tool in tools)
        return kept

    def take(
        self, lane: Lane, script: str, cursor: Cursor, call: ModelCall, record: bool
    ) -> ModelCall:
        """Log the call with the step that it takes.

        Raises `UnexpectedModelCall` when the lane has no step left.
        """
        with self._lock:
            if cursor == "fifo":
                start = self._fifo.get(lane.name, 0)
            else:
                start = place(lane, script, call.messages)
                self._pass(lane, start)
            at = start
            while at < len(lane.steps) and self._steps_aside(lane, at, call.messages):
                at += 1
            found = at < len(lane.steps)
            taken = self._add(replace(call, lane=lane.name, step=at if found else -1), record)
            if not found:
                raise self._beyond(lane, start, cursor, taken)
            self._done.add((lane.name, at))
            self._fifo[lane.name] = at + (not isinstance(lane.steps[at], Overflow))
            return taken

    def no_lane(self, lanes: Sequence[Lane], call: ModelCall, record: bool) -> UnexpectedModelCall:
        """Log a call that no lane wants, and make the error to raise for it."""
        with self._lock:
            self._add(call, record)
            names = ", ".join(lane.name for lane in lanes) or "none"
            return self._unforeseen(f"no lane of the script takes this call (lanes: {names})", call)

    def check(self, step: Step, reply: Reply, tools: Tools) -> None:
        """Raise `ScriptMismatch` unless the reply's calls fit the tools.

        What stands in the script is checked once per set of tools; what a function made, always.
        """
        if reply.unchecked or not reply.calls:
            return
        known = self._checked.get(id(step))
        if step is reply and known and known[1] is tools:
            return
        for call in reply.calls:
            check_call(call, tools)
        if step is reply:
            self._checked[id(step)] = step, tools

    def assert_complete(self, lanes: Sequence[Lane]) -> None:
        """Raise the first unexpected call again, else `UnconsumedSteps` if steps are left."""
        with self._lock:
            if self._unexpected:
                raise self._unexpected[0]
            left = [
                f"  {lane.name} {at + 1}: {describe(step)}"
                for lane in lanes
                for at, step in enumerate(lane.steps)
                if (lane.name, at) not in self._done
            ]
        if left:
            raise UnconsumedSteps("these steps were never taken:\n" + "\n".join(left))

    def _pass(self, lane: Lane, start: int) -> None:
        # What lies behind a prompt was taken, perhaps in another process. An overflow may have
        # stepped aside without a refusal, so the prompt is no proof of it.
        for at in range(self._passed.get(lane.name, 0), min(start, len(lane.steps))):
            if not isinstance(lane.steps[at], Overflow):
                self._done.add((lane.name, at))
            self._passed[lane.name] = at + 1

    def _steps_aside(self, lane: Lane, at: int, messages: Sequence[BaseMessage]) -> bool:
        step = lane.steps[at]
        if isinstance(step, Overflow):
            return estimate_tokens(messages) <= step.above_tokens
        if not leaves_nothing(step) or at + 1 == len(lane.steps):
            return False
        attempt = (lane.name, at, conversation(messages))
        if attempt in self._failed:
            return True
        self._failed.add(attempt)
        return False

    def _add(self, call: ModelCall, record: bool) -> ModelCall:
        call = replace(call, number=self._count)
        self._count += 1
        if record:
            self._calls.append(call)
        return call

    def _beyond(
        self, lane: Lane, start: int, cursor: Cursor, call: ModelCall
    ) -> UnexpectedModelCall:
        nearest = f"{len(lane.steps)}: {describe(lane.steps[-1])}" if lane.steps else "none"
        return self._unforeseen(
            f"the script has no step for this call\n"
            f"  lane: {lane.name}, cursor: {start} of {len(lane.steps)} ({cursor})\n"
            f"  nearest step: {nearest}",
            call,
        )

    def _unforeseen(self, what: str, call: ModelCall) -> UnexpectedModelCall:
        failure = UnexpectedModelCall(
            f"{what}\n"
            f"  purpose: {call.purpose}, agent: {call.agent or '-'}, "
            f"tools: {', '.join(call.tool_names) or 'none'}\n"
            f"  last messages:\n{tail(call.messages)}"
        )
        self._unexpected.append(failure)
        return failure


def _same(kept: BaseMessage, message: BaseMessage) -> bool:
    return type(kept) is type(message) and kept.__dict__ == message.__dict__
